/* recurrent_model.c: first writes a file with keys only, reads the kinds of the layers from it,
 * then writes the full file. */
#include "recurrent_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"
#include "model.h"
#include "rng.h"
#include "tiny_model.h"

const char *const recurrent_archs[RECURRENT_ARCHS] = {
    "lfm2",      "mamba2",     "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe",
    "qwen3next", "qwen35",     "mamba",         "jamba",     "plamo2",     "minimax-01",
    "rwkv6",     "rwkv6qwen2", "rwkv7",         "arwkv7"};

enum { N_LAYER = 3, N_EMBD = 32, N_FF = 48, N_EXPERT = 4, N_EXPERT_FF = 16, N_HEAD = 4 };

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static uint32_t or_usual(uint32_t wanted, uint32_t usual) {
    return wanted ? wanted : usual;
}

/* Attention in layer 1; nemotron_h's last layer is an FFN. */
static void put_keys(gguf_writer *w, const char *arch, const recurrent_keys *k) {
    const uint32_t kv_heads[N_LAYER] = {0, or_usual(k->kv_heads, 2), 0};
    const uint32_t ffs[N_LAYER] = {0, 0, N_FF};
    const arch_row *row = arch_find(arch, strlen(arch));
    bool groups = strcmp(arch, "plamo2") != 0, normed = strcmp(arch, "minimax-01") == 0;
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", N_LAYER},
                   {"embedding_length", N_EMBD},
                   {"context_length", 512},
                   {"attention.head_count", N_HEAD},
                   {"attention.key_length", 8},
                   {"attention.value_length", 8},
                   {"rope.dimension_count", 8},
                   {"full_attention_interval", 2},
                   {"shortconv.l_cache", or_usual(k->taps, 3)},
                   {"wkv.head_size", or_usual(k->state, 8)},
                   {"ssm.conv_kernel", or_usual(k->taps, 4)},
                   {"ssm.inner_size", or_usual(k->inner, 32)},
                   {"ssm.state_size", or_usual(k->state, 8)},
                   {"ssm.time_step_rank", or_usual(k->heads, 4)},
                   {"ssm.group_count", or_usual(k->groups, groups ? 2 : 0)},
                   {"expert_count", N_EXPERT},
                   {"expert_used_count", 2}};
    char key[96];
    gguf_put_string(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].name);
        gguf_put_u32(w, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.hidden_activation", arch);
    if (k->relu) gguf_put_string(w, key, "relu");
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-5f);
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", arch);
    if (row->norm == NORM_LAYER) gguf_put_f32(w, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rescale_every_n_layers", arch);
    if (strcmp(arch, "rwkv6") == 0) gguf_put_u32(w, key, 2);
    snprintf(key, sizeof key, "%s.residual_scale", arch);
    if (normed) gguf_put_f32(w, key, 3.5f);
    tiny_put_vocabulary(w, RECURRENT_VOCAB);
    bool by_heads = row->layers != LAYERS_BY_PERIOD && strcmp(arch, "falcon-h1") != 0 &&
                    !(row->mixers & MIXER_WKV);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
    if (by_heads)
        gguf_put_array(w, key, GGUF_U32, kv_heads, N_LAYER);
    else
        gguf_put_u32(w, key, kv_heads[1]);
    snprintf(key, sizeof key, "%s.feed_forward_length", arch);
    if (strncmp(arch, "nemotron_h", 10) == 0)
        gguf_put_array(w, key, GGUF_U32, ffs, N_LAYER);
    else
        gguf_put_u32(w, key, N_FF);
}

/* Norms are near 1, decays are negative; matrices keep vectors near unit size. */
static void fill(float *x, const arch_tensor *t, int64_t n, int64_t n_in, rng *r) {
    bool vector = t->flags & TENSOR_F32, norm = strstr(t->name, "norm");
    float scale = vector ? 0.3f : 1 / sqrtf((float)n_in);
    for (int64_t i = 0; i < n; i++) {
        x[i] = rng_normal(r) * scale + (norm ? 1 : 0);
        if (t->role == ROLE_SSM_A) x[i] = -fabsf(x[i]);
    }
}

/* True for optional tensors that the file has: biases of the convolution, norms, experts. */
static bool is_written(const arch_row *row, const arch_tensor *t) {
    bool experts = row->gating != GATING_NONE;
    bool of_expert = t->role >= ROLE_ROUTER && t->role <= ROLE_SHARED_DOWN;
    if (t->role == ROLE_EXPERT_GATE_UP || t->role == ROLE_ATTN_QKV) return false;
    if (t->flags & (TENSOR_SPARSE | TENSOR_ONES)) return false;
    if (experts && t->flags & TENSOR_NO_EXPERTS) return false;
    if (of_expert) return experts && !strstr(t->name, ".bias");
    if (t->role >= ROLE_SSM_SHIFT_W && t->role <= ROLE_SSM_SHIFT_G) return false;
    if (t->role == ROLE_SSM_GATE_A || t->role == ROLE_SSM_GATE_B) /* arwkv7: no gate, no norm */
        return !(t->flags & TENSOR_OPTIONAL);
    if (t->role == ROLE_SSM_NORM || t->role == ROLE_SSM_NORM_BIAS)
        return !(row->mixers & MIXER_WKV) || !(t->flags & TENSOR_OPTIONAL);
    return !(t->flags & TENSOR_OPTIONAL) || t->role == ROLE_SSM_CONV_BIAS ||
           (t->role >= ROLE_SSM_SHIFT && t->role <= ROLE_SSM_BONUS);
}

/* Sizes that only tensors have: ranks, and the number of shifted inputs. */
static uint64_t open_size(const arch_row *row, const arch_tensor *t) {
    enum { RANK = 8 };
    if (t->role == ROLE_SSM_SHIFT) return arch_tensor_of(row, ROLE_FFN_SHIFT) ? 6 : 5;
    return t->role == ROLE_SSM_SHIFT_A ? 5 * RANK : RANK;
}

typedef struct tensor_list {
    const model_hparams *hp;
    const model_layer_hparams *layers;
    const arch_row *row;
    gguf_writer *w;
    rng rng;
} tensor_list;

static void put_tensor(tensor_list *l, const arch_tensor *t, int layer, bool data) {
    const model_hparams *hp = l->hp;
    const arch_sizes sizes = {.n_embd = hp->n_embd,
                              .n_vocab = RECURRENT_VOCAB,
                              .n_ff = l->layers[layer].n_ff,
                              .n_head = l->layers[layer].n_head,
                              .n_head_kv = l->layers[layer].n_head_kv,
                              .head_dim = hp->head_dim,
                              .n_rot = hp->n_rot,
                              .n_expert = N_EXPERT,
                              .n_ff_expert = N_EXPERT_FF,
                              .n_ff_shared = N_EXPERT_FF,
                              .n_taps = hp->n_taps,
                              .n_conv = hp->n_conv,
                              .n_inner = hp->n_inner,
                              .n_ssm_head = hp->n_ssm_head,
                              .n_ssm_group = hp->n_ssm_group,
                              .n_state = hp->n_state,
                              .n_step_rank = hp->n_step_rank};
    uint64_t dims[4];
    int n_dims = 0;
    size_t n = 1;
    for (int d = 0; d < 3 && t->dims[d] != DIM_NONE; d++) {
        dims[n_dims] = t->dims[d] == DIM_OPEN ? open_size(l->row, t)
                                              : (uint64_t)arch_dim_size(t->dims[d], &sizes);
        n_dims++;
        n *= (size_t)dims[d];
    }
    if (t->flags & TENSOR_FOURTH) {
        dims[3] = dims[1];
        dims[1] = dims[2] = 1;
        n_dims = 4;
    }
    char name[64];
    arch_tensor_name(t, layer, name);
    if (!data) {
        ok(gguf_add_tensor(l->w, name, QUANT_F32, n_dims, dims, &err));
        return;
    }
    float *x = mem_alloc(n * sizeof *x);
    assert_non_null(x);
    fill(x, t, (int64_t)n, (int64_t)dims[0], &l->rng);
    ok(gguf_write_data(l->w, x, n * sizeof *x, &err));
    mem_free(x);
}

static void put_tensors(tensor_list *l, bool data) {
    for (int i = 0; i < l->row->n_tensors; i++) {
        const arch_tensor *t = &l->row->tensors[i];
        int n = t->flags & TENSOR_PER_LAYER ? N_LAYER : 1;
        for (int layer = 0; layer < n && is_written(l->row, t); layer++)
            if (!(t->flags & TENSOR_PER_LAYER) || model_layer_has(&l->layers[layer], t->role))
                put_tensor(l, t, layer, data);
    }
}

void recurrent_write(const char *arch, const recurrent_keys *keys, const char *path) {
    static const recurrent_keys usual = {0};
    model_layer_hparams layers[N_LAYER];
    model_hparams hp;
    gguf_file *file;
    tensor_list l = {.hp = &hp, .layers = layers, .row = arch_find(arch, strlen(arch))};
    rng_seed(&l.rng, strlen(arch));
    ok(gguf_writer_create(path, &l.w, &err));
    put_keys(l.w, arch, &usual);
    ok(gguf_writer_begin_data(l.w, &err));
    ok(gguf_writer_finish(l.w, &err));
    ok(gguf_open(path, NULL, &file, &err));
    ok(model_read_hparams(file, l.row, false, &hp, layers, &err));
    gguf_close(file);

    ok(gguf_writer_create(path, &l.w, &err));
    put_keys(l.w, arch, keys ? keys : &usual);
    put_tensors(&l, false);
    ok(gguf_writer_begin_data(l.w, &err));
    put_tensors(&l, true);
    ok(gguf_writer_finish(l.w, &err));
}
