/* tiny_model.c: writes keys and tensors of a described model with the GGUF writer. Weights are
 * normally distributed with a variance that keeps vectors near unit size, so that every part of the
 * model affects the logits. */
#include "tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"
#include "rng.h"
#include "sparse_keys.h"

enum { MAX_TENSORS = 96, MAX_VOCAB = 1024, NAME_BYTES = 96, SHORT_NAME = 32 };

typedef struct tiny_tensor {
    char name[GGUF_MAX_NAME];
    const quant_traits *traits;
    uint64_t dims[3]; /* dims[1] 0: a vector; dims[2] 0: a matrix */
    float mean, deviation;
    bool twins;    /* rows come in equal pairs */
    bool identity; /* row i has 1 at i, and 0 elsewhere */
} tiny_tensor;

typedef struct tiny_list {
    const tiny_model *model;
    tiny_tensor tensors[MAX_TENSORS];
    int n;
} tiny_list;

tiny_model tiny_default(void) {
    tiny_model t = {.arch = "llama",
                    .type = "f32",
                    .vector_type = "f32",
                    .n_layer = 2,
                    .n_embd = 32,
                    .n_vocab = 40,
                    .head_dim = 8,
                    .n_rot = 8,
                    .factor = 4,
                    .original_context = 64,
                    .eps = 1e-5f,
                    .freq_base = 10000,
                    .seed = 1};
    tiny_set_heads(&t, 4, 2);
    for (int i = 0; i < TINY_MAX_LAYERS; i++) t.n_ff[i] = 64;
    return t;
}

void tiny_set_heads(tiny_model *t, int n_head, int n_head_kv) {
    for (int i = 0; i < TINY_MAX_LAYERS; i++) {
        t->n_head[i] = n_head;
        t->n_head_kv[i] = n_head_kv;
    }
}

static bool arch_is(const tiny_model *t, const char *arch) {
    return strcmp(t->arch, arch) == 0;
}

bool tiny_has_layer_norm(const tiny_model *t) {
    return arch_is(t, "falcon") || arch_is(t, "opt");
}

bool tiny_is_gated(const tiny_model *t) {
    return !tiny_has_layer_norm(t) && !arch_is(t, "apertus");
}

const char *tiny_activation(const tiny_model *t) {
    if (t->activation) return t->activation;
    if (arch_is(t, "bamboo")) return "drelu";
    if (arch_is(t, "apertus")) return "xielu";
    if (t->sparse.pwri || arch_is(t, "opt")) return "relu";
    return arch_is(t, "falcon") ? "gelu" : "silu";
}

const float tiny_xielu[TINY_XIELU][TINY_MAX_LAYERS] = {{0.8f, -0.4f, 1.5f, 30},
                                                       {0.3f, 1.4f, -2, 0.8f},
                                                       {0.5f, 0.4f, 0.7f, 0.6f},
                                                       {-1e-6f, -0.05f, -1e-6f, -0.01f}};

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *key(const tiny_model *t, const char *suffix, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "%s.%s", t->arch, suffix);
    return name;
}

static int n_all_layers(const tiny_model *t) {
    return t->n_layer + t->draft.n;
}

/* Writes a number if all layers agree, else an array. */
static void put_per_layer(gguf_writer *w, const tiny_model *t, const char *suffix,
                          const int *values) {
    char name[NAME_BYTES];
    int32_t items[TINY_MAX_LAYERS];
    bool same = true;
    for (int i = 0; i < n_all_layers(t); i++) {
        items[i] = values[i];
        same = same && values[i] == values[0];
    }
    if (same)
        gguf_put_u32(w, key(t, suffix, name), (uint32_t)values[0]);
    else
        gguf_put_array(w, key(t, suffix, name), GGUF_I32, items, (uint64_t)n_all_layers(t));
}

static void put_optional(gguf_writer *w, const tiny_model *t, const char *suffix, float value) {
    char name[NAME_BYTES];
    if (value != 0) gguf_put_f32(w, key(t, suffix, name), value);
}

static void put_scaling(gguf_writer *w, const tiny_model *t) {
    char name[NAME_BYTES];
    if (t->scaling == TINY_SCALING_NONE) return;
    if (t->scaling == TINY_SCALING_LINEAR_OLD || t->scaling == TINY_SCALING_LINEAR_BARE) {
        bool old = t->scaling == TINY_SCALING_LINEAR_OLD;
        gguf_put_f32(w, key(t, old ? "rope.scale_linear" : "rope.scaling.factor", name), t->factor);
        return;
    }
    bool yarn = t->scaling == TINY_SCALING_YARN;
    gguf_put_string(w, key(t, "rope.scaling.type", name), yarn ? "yarn" : "linear");
    gguf_put_f32(w, key(t, "rope.scaling.factor", name), t->factor);
    if (!yarn) return;
    gguf_put_u32(w, key(t, "rope.scaling.original_context_length", name),
                 (uint32_t)t->original_context);
    put_optional(w, t, "rope.scaling.yarn_beta_fast", t->beta_fast);
    put_optional(w, t, "rope.scaling.yarn_beta_slow", t->beta_slow);
    put_optional(w, t, "rope.scaling.attn_factor", t->attn_factor);
    put_optional(w, t, "rope.scaling.yarn_ext_factor", t->ext_factor);
    put_optional(w, t, "rope.scaling.yarn_log_multiplier", t->yarn_multiplier);
}

/* Writes the head sizes of compressed attention: newer files state the sizes of the cache, and the
 * head sizes in separate keys. */
static void put_latent_keys(gguf_writer *w, const tiny_model *t) {
    char name[NAME_BYTES];
    int k = t->kv_b ? t->head_dim : t->n_latent + t->n_rot, v = t->kv_b ? t->v_dim : t->n_latent;
    gguf_put_u32(w, key(t, "attention.kv_lora_rank", name), (uint32_t)t->n_latent);
    gguf_put_u32(w, key(t, "attention.q_lora_rank", name), (uint32_t)t->n_latent_q);
    gguf_put_u32(w, key(t, "attention.key_length", name), (uint32_t)k);
    gguf_put_u32(w, key(t, "attention.value_length", name), (uint32_t)v);
    if (t->kv_b) return;
    gguf_put_u32(w, key(t, "attention.key_length_mla", name), (uint32_t)t->head_dim);
    gguf_put_u32(w, key(t, "attention.value_length_mla", name), (uint32_t)t->v_dim);
}

/* <unk>, <s>, </s>, the 256 bytes, the blank, then made-up words. */
void tiny_put_vocabulary(gguf_writer *w, int n_vocab) {
    enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6, FIRST_BYTE = 3, FIRST_WORD = 259 };
    static char texts[MAX_VOCAB][16];
    static gguf_string tokens[MAX_VOCAB];
    static float scores[MAX_VOCAB];
    static int32_t types[MAX_VOCAB];
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    assert_in_range(n_vocab, FIRST_WORD + 1, MAX_VOCAB);
    for (int i = 0; i < n_vocab; i++) {
        types[i] = i == 0 ? UNKNOWN : i < FIRST_BYTE ? CONTROL : i < FIRST_WORD ? BYTE : NORMAL;
        scores[i] = (float)-i;
        if (i < FIRST_BYTE)
            snprintf(texts[i], sizeof texts[i], "%s", first[i]);
        else if (i < FIRST_WORD)
            snprintf(texts[i], sizeof texts[i], "<0x%02X>", (unsigned)(i - FIRST_BYTE));
        else if (i == FIRST_WORD)
            snprintf(texts[i], sizeof texts[i], "\xe2\x96\x81"); /* the blank */
        else
            snprintf(texts[i], sizeof texts[i], "w%d", i);
        tokens[i] = (gguf_string){texts[i], strlen(texts[i])};
    }
    uint64_t n = (uint64_t)n_vocab;
    gguf_put_string(w, "tokenizer.ggml.model", "llama");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, n);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
}

static void put_sparse_keys(gguf_writer *w, const tiny_model *t) {
    const tiny_sparse *s = &t->sparse;
    gguf_string kinds[TINY_MAX_LAYERS], inputs[TINY_MAX_LAYERS];
    float cuts[TINY_MAX_LAYERS], hidden[TINY_MAX_LAYERS], quality[TINY_MAX_LAYERS];
    const char *kind = s->predictor ? s->predictor : "none";
    const char *input = s->residual ? "residual" : "normed";
    for (int i = 0; i < t->n_layer; i++) {
        kinds[i] = (gguf_string){kind, strlen(kind)};
        inputs[i] = (gguf_string){input, strlen(input)};
        cuts[i] = s->cut != 0 ? s->cut : NAN;
        hidden[i] = s->cut_down;
        quality[i] = 0.5f;
    }
    uint64_t n = (uint64_t)t->n_layer;
    if (s->threshold != 0) gguf_put_f32(w, SPARSE_KEY_PREDICTOR_THRESHOLD, s->threshold);
    if (s->pwri) return;
    gguf_put_u32(w, SPARSE_KEY_VERSION, SPARSE_VERSION);
    gguf_put_f32(w, SPARSE_KEY_CALIBRATION_LOSS, 0.004f);
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_KIND, kinds, n);
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_INPUT, inputs, n);
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_RECALL, GGUF_F32, quality, n);
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_DENSITY, GGUF_F32, quality, n);
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_CUT, GGUF_F32, cuts, n);
    if (s->cut_down != 0) gguf_put_array(w, SPARSE_KEY_THRESHOLD_DOWN, GGUF_F32, hidden, n);
    gguf_put_f32(w, SPARSE_KEY_THRESHOLD_LOSS, 0.004f);
}

static void put_expert_keys(gguf_writer *w, const tiny_model *t) {
    const tiny_experts *e = &t->experts;
    char name[NAME_BYTES];
    gguf_put_u32(w, key(t, "expert_count", name), (uint32_t)e->n);
    gguf_put_u32(w, key(t, "expert_used_count", name), (uint32_t)e->n_used);
    gguf_put_u32(w, key(t, "leading_dense_block_count", name), (uint32_t)e->n_dense);
    gguf_put_bool(w, key(t, "expert_weights_norm", name), true);
    gguf_put_f32(w, key(t, "expert_weights_scale", name), 1.5f);
    if (e->n_group == 0) return;
    gguf_put_u32(w, key(t, "expert_group_count", name), (uint32_t)e->n_group);
    gguf_put_u32(w, key(t, "expert_group_used_count", name), (uint32_t)e->n_group_used);
}

static void put_index_keys(gguf_writer *w, const tiny_model *t) {
    char name[NAME_BYTES];
    const tiny_index *x = &t->index;
    int32_t own[TINY_MAX_LAYERS];
    for (int i = 0; i < t->n_layer; i++) own[i] = !x->shared[i];
    gguf_put_u32(w, key(t, "attention.indexer.head_count", name),
                 (uint32_t)(x->heads ? x->heads : t->n_head_kv[0]));
    gguf_put_u32(w, key(t, "attention.indexer.key_length", name), (uint32_t)t->index.dim);
    gguf_put_u32(w, key(t, "attention.indexer.top_k", name), (uint32_t)t->index.top);
    if (arch_is(t, "glm-dsa"))
        gguf_put_array(w, key(t, "attention.indexer.types", name), GGUF_I32, own,
                       (uint64_t)t->n_layer);
    if (x->heads) return;
    gguf_put_u32(w, key(t, "attention.indexer.block_size", name), (uint32_t)t->index.size);
    gguf_put_u32(w, key(t, "attention.indexer.local_blocks", name), (uint32_t)t->index.local);
}

static void put_eagle3_keys(gguf_writer *w, const tiny_model *t) {
    const int32_t *reads = t->draft.reads;
    gguf_put_array(w, t->draft.newer ? "eagle3.target_layers" : "eagle3.extract_layers", GGUF_I32,
                   reads, 3);
    if (t->draft.newer) gguf_put_bool(w, "eagle3.norm_before_fc", true);
    gguf_put_u32(w, "eagle3.target_hidden_size", (uint32_t)t->draft.n_target);
    gguf_put_bool(w, "eagle3.norm_before_residual", t->draft.normed);
}

static void put_keys(gguf_writer *w, const tiny_model *t) {
    char name[NAME_BYTES];
    gguf_put_string(w, "general.architecture", t->arch);
    gguf_put_string(w, "general.name", "tiny");
    gguf_put_u32(w, key(t, "block_count", name), (uint32_t)n_all_layers(t));
    if (t->draft.n) gguf_put_u32(w, key(t, "nextn_predict_layers", name), (uint32_t)t->draft.n);
    if (arch_is(t, "eagle3")) put_eagle3_keys(w, t);
    gguf_put_u32(w, key(t, "embedding_length", name), (uint32_t)t->n_embd);
    gguf_put_u32(w, key(t, "context_length", name), 256);
    put_per_layer(w, t, "attention.head_count", t->n_head);
    put_per_layer(w, t, "attention.head_count_kv", t->n_head_kv);
    put_per_layer(w, t, "feed_forward_length", t->n_ff);
    int most_heads = 0;
    for (int i = 0; i < t->n_layer; i++)
        if (t->n_head[i] > most_heads) most_heads = t->n_head[i];
    if (t->n_latent) {
        put_latent_keys(w, t);
    } else if (t->head_dim != t->n_embd / most_heads || t->v_dim) {
        int v_dim = t->v_dim ? t->v_dim : t->head_dim;
        gguf_put_u32(w, key(t, "attention.key_length", name), (uint32_t)t->head_dim);
        gguf_put_u32(w, key(t, "attention.value_length", name), (uint32_t)v_dim);
    }
    if (t->n_rot != t->head_dim)
        gguf_put_u32(w, key(t, "rope.dimension_count", name), (uint32_t)t->n_rot);
    const char *eps = tiny_has_layer_norm(t) ? "attention.layer_norm_epsilon"
                                             : "attention.layer_norm_rms_epsilon";
    gguf_put_f32(w, key(t, eps, name), t->eps);
    gguf_put_f32(w, key(t, "rope.freq_base", name), t->freq_base);
    if (t->sections[0] > 0)
        gguf_put_array(w, key(t, "rope.dimension_sections", name), GGUF_I32, t->sections, 4);
    put_scaling(w, t);
    if (t->experts.n > 0) put_expert_keys(w, t);
    if (t->index.dim > 0) put_index_keys(w, t);
    if (t->sparse.down_t) put_sparse_keys(w, t);
    if (t->head.rank > 0 && !t->head.profiler) {
        gguf_put_f32(w, SPARSE_KEY_HEAD_DISTANCE, t->head.distance);
        gguf_put_f32(w, SPARSE_KEY_HEAD_LOSS, t->head.loss);
    }
    static const char *const xielu[TINY_XIELU] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta",
                                                  "xielu.eps"};
    for (int i = 0; i < TINY_XIELU && arch_is(t, "apertus"); i++)
        gguf_put_array(w, xielu[i], GGUF_F32, tiny_xielu[i], TINY_MAX_LAYERS);
    if (t->activation) gguf_put_string(w, key(t, "hidden_activation", name), t->activation);
    put_optional(w, t, "hidden_activation_threshold", t->threshold);
    if (t->vocabulary)
        tiny_put_vocabulary(w, t->n_vocab);
    else
        gguf_put_string(w, "tokenizer.ggml.model", "none");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static tiny_tensor *add(tiny_list *l, int layer, const char *name, const char *type) {
    assert_true(l->n < MAX_TENSORS);
    tiny_tensor *x = &l->tensors[l->n++];
    *x = (tiny_tensor){.traits = quant_find_name(type)};
    assert_non_null(x->traits);
    if (layer < 0)
        snprintf(x->name, sizeof x->name, "%s", name);
    else
        snprintf(x->name, sizeof x->name, "blk.%d.%s", layer, name);
    return x;
}

static void add_vector(tiny_list *l, int layer, const char *name, int n, float mean,
                       float deviation) {
    tiny_tensor *x = add(l, layer, name, l->model->vector_type);
    x->dims[0] = (uint64_t)n;
    x->mean = mean;
    x->deviation = deviation;
}

static void add_matrix(tiny_list *l, int layer, const char *name, int n_in, int n_out) {
    char full[SHORT_NAME];
    snprintf(full, sizeof full, "%s.weight", name);
    tiny_tensor *x = add(l, layer, full, l->model->type);
    x->dims[0] = (uint64_t)n_in;
    x->dims[1] = (uint64_t)n_out;
    x->deviation = layer < 0 ? 1 : 1 / sqrtf((float)n_in);
    if (!l->model->scales || layer < 0) return;
    snprintf(full, sizeof full, "%s.scale", name);
    add_vector(l, layer, full, 1, 1.25f, 0.25f);
}

static void add_bias(tiny_list *l, bool wanted, int layer, const char *name, int n) {
    if (wanted) add_vector(l, layer, name, n, 0, 0.3f);
}

/* Up, down and the predictor. Scores have a deviation near one, so that a fair part of the neurons
 * is selected. */
static void add_neurons(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    const tiny_sparse *s = &t->sparse;
    add_matrix(l, i, "ffn_up", t->n_embd, (t->fused_ffn ? 2 : 1) * t->n_ff[i]);
    if (s->down_t)
        add_matrix(l, i, "ffn_down_t", t->n_embd, t->n_ff[i]);
    else
        add_matrix(l, i, "ffn_down", t->n_ff[i], t->n_embd);
    if (s->cut_factors) add_vector(l, i, "ffn_cut", t->n_ff[i], 1, 0.15f);
    if (!s->predictor) return;
    if (strcmp(s->predictor, "sign") == 0) {
        tiny_tensor *x = add(l, i, "ffn_sign", "i8");
        x->dims[0] = (uint64_t)t->n_embd / 8;
        x->dims[1] = (uint64_t)t->n_ff[i];
    } else {
        add_matrix(l, i, "fc1", t->n_embd, s->rank);
        add_matrix(l, i, "fc2", s->rank, t->n_ff[i]);
    }
    add_bias(l, !s->no_bias, i, "fc2.bias", t->n_ff[i]);
}

static void add_norm(tiny_list *l, int layer, const char *name) {
    char full[SHORT_NAME];
    const tiny_model *t = l->model;
    snprintf(full, sizeof full, "%s.weight", name);
    add_vector(l, layer, full, t->n_embd, 1, 0.2f);
    snprintf(full, sizeof full, "%s.bias", name);
    add_bias(l, tiny_has_layer_norm(t), layer, full, t->n_embd);
}

static void add_heads(tiny_list *l, int i, const char *name, int n_in, int n_out) {
    add_matrix(l, i, name, n_in, n_out);
    for (int k = l->n - 2; k < l->n; k++) /* including its scale, if present */
        if (strstr(l->tensors[k].name, name) && strstr(l->tensors[k].name, ".weight"))
            l->tensors[k].dims[2] = (uint64_t)l->model->n_head[i];
}

static void add_latent_attention(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    int q = t->n_head[i] * t->head_dim, n_nope = t->head_dim - t->n_rot;
    add_norm(l, i, "attn_norm");
    if (t->n_latent_q) {
        add_matrix(l, i, "attn_q_a", t->n_embd, t->n_latent_q);
        add_vector(l, i, "attn_q_a_norm.weight", t->n_latent_q, 1, 0.2f);
        add_matrix(l, i, "attn_q_b", t->n_latent_q, q);
    } else {
        add_matrix(l, i, "attn_q", t->n_embd, q);
    }
    add_matrix(l, i, "attn_kv_a_mqa", t->n_embd, t->n_latent + t->n_rot);
    add_vector(l, i, "attn_kv_a_norm.weight", t->n_latent, 1, 0.2f);
    if (t->kv_b) {
        add_matrix(l, i, "attn_kv_b", t->n_latent, t->n_head[i] * (n_nope + t->v_dim));
    } else {
        add_heads(l, i, "attn_k_b", n_nope, t->n_latent);
        add_heads(l, i, "attn_v_b", t->n_latent, t->v_dim);
    }
    add_matrix(l, i, "attn_output", t->n_head[i] * t->v_dim, t->n_embd);
    if (t->index.dim == 0 || t->index.shared[i]) return;
    add_matrix(l, i, "indexer.attn_q_b", t->n_latent_q, t->index.heads * t->index.dim);
    add_matrix(l, i, "indexer.attn_k", t->n_embd, t->index.dim);
    add_vector(l, i, "indexer.k_norm.weight", t->index.dim, 1.5f, 0.3f);
    add_vector(l, i, "indexer.k_norm.bias", t->index.dim, 0, 0.3f);
    add_matrix(l, i, "indexer.proj", t->n_embd, t->index.heads);
}

static void add_attention(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    if (t->n_latent) {
        add_latent_attention(l, i);
        return;
    }
    int q = t->n_head[i] * t->head_dim, kv = t->n_head_kv[i] * t->head_dim;
    int v_dim = t->v_dim ? t->v_dim : t->head_dim;
    add_norm(l, i, "attn_norm");
    if (t->two_norms) add_norm(l, i, "attn_norm_2");
    if (arch_is(t, "falcon")) {
        add_matrix(l, i, "attn_qkv", t->n_embd, q + 2 * kv);
    } else {
        int n_in = arch_is(t, "eagle3") ? 2 * t->n_embd : t->n_embd;
        add_matrix(l, i, "attn_q", n_in, q);
        add_matrix(l, i, "attn_k", n_in, kv);
        add_matrix(l, i, "attn_v", n_in, t->n_head_kv[i] * v_dim);
    }
    add_matrix(l, i, "attn_output", t->n_head[i] * v_dim, t->n_embd);
    add_bias(l, t->qkv_bias, i, "attn_q.bias", q);
    add_bias(l, t->qkv_bias, i, "attn_k.bias", kv);
    add_bias(l, t->qkv_bias, i, "attn_v.bias", kv);
    add_bias(l, t->out_bias, i, "attn_output.bias", t->n_embd);
    if (!arch_is(t, "qwen3") && !arch_is(t, "qwen3vl") && !arch_is(t, "bailingmoe2") &&
        !arch_is(t, "minimax-m3") && !arch_is(t, "apertus"))
        return;
    add_vector(l, i, "attn_q_norm.weight", t->head_dim, 1.5f, 0.3f);
    add_vector(l, i, "attn_k_norm.weight", t->head_dim, 1.5f, 0.3f);
    if (t->index.dim == 0 || i < t->experts.n_dense) return;
    add_matrix(l, i, "indexer.q_proj", t->n_embd, t->n_head_kv[i] * t->index.dim);
    add_matrix(l, i, "indexer.k_proj", t->n_embd, t->index.dim);
    add_vector(l, i, "indexer.q_norm.weight", t->index.dim, 1.5f, 0.3f);
    add_vector(l, i, "indexer.k_norm.weight", t->index.dim, 1.5f, 0.3f);
}

static void add_expert_matrix(tiny_list *l, int layer, const char *name, int n_in, int n_out) {
    add_matrix(l, layer, name, n_in, n_out);
    tiny_tensor *x = &l->tensors[l->n - 1];
    if (l->model->scales) { /* a number per expert */
        x->dims[0] = (uint64_t)l->model->experts.n;
        x--;
    }
    x->dims[2] = (uint64_t)l->model->experts.n;
}

static void add_expert_bias(tiny_list *l, int layer, const char *name, int n) {
    if (!l->model->experts.biased) return;
    add_vector(l, layer, name, n, 0, 0.3f);
    l->tensors[l->n - 1].dims[1] = (uint64_t)l->model->experts.n;
}

static void add_shared_expert(tiny_list *l, int i) {
    int n_embd = l->model->n_embd, n_ff = l->model->experts.n_ff_shared;
    if (n_ff == 0) return;
    add_matrix(l, i, "ffn_gate_shexp", n_embd, n_ff);
    add_matrix(l, i, "ffn_up_shexp", n_embd, n_ff);
    add_matrix(l, i, "ffn_down_shexp", n_ff, n_embd);
}

static void add_expert_predictors(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    const tiny_experts *e = &t->experts;
    if (strcmp(t->sparse.predictor, "sign") == 0) {
        tiny_tensor *x = add(l, i, "ffn_sign_exps", "i8");
        x->dims[0] = (uint64_t)t->n_embd / 8;
        x->dims[1] = (uint64_t)e->n_ff;
        x->dims[2] = (uint64_t)e->n;
    } else {
        add_expert_matrix(l, i, "fc1_exps", t->n_embd, t->sparse.rank);
        add_expert_matrix(l, i, "fc2_exps", t->sparse.rank, e->n_ff);
    }
    if (t->sparse.no_bias) return;
    add_vector(l, i, "fc2_exps.bias", e->n_ff, 0, 0.3f);
    l->tensors[l->n - 1].dims[1] = (uint64_t)e->n;
}

static void add_experts(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    const tiny_experts *e = &t->experts;
    add_matrix(l, i, "ffn_gate_inp", t->n_embd, e->n);
    tiny_tensor *router = &l->tensors[l->n - 1];
    router->twins = e->twins;
    router->deviation *= 2;
    add_bias(l, e->biased, i, "ffn_gate_inp.bias", e->n);
    add_bias(l, e->select_bias, i, "exp_probs_b.bias", e->n);
    if (e->fused) {
        add_expert_matrix(l, i, "ffn_gate_up_exps", t->n_embd, 2 * e->n_ff);
    } else {
        add_expert_matrix(l, i, "ffn_gate_exps", t->n_embd, e->n_ff);
        add_expert_bias(l, i, "ffn_gate_exps.bias", e->n_ff);
        add_expert_matrix(l, i, "ffn_up_exps", t->n_embd, e->n_ff);
        add_expert_bias(l, i, "ffn_up_exps.bias", e->n_ff);
    }
    if (t->sparse.down_t)
        add_expert_matrix(l, i, "ffn_down_t_exps", t->n_embd, e->n_ff);
    else
        add_expert_matrix(l, i, "ffn_down_exps", e->n_ff, t->n_embd);
    add_expert_bias(l, i, "ffn_down_exps.bias", t->n_embd);
    if (t->sparse.predictor) add_expert_predictors(l, i);
    add_shared_expert(l, i);
}

static void add_layer(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    bool gated = tiny_is_gated(t);
    add_attention(l, i);
    if (!arch_is(t, "falcon")) add_norm(l, i, "ffn_norm");
    if (t->experts.n > 0 && i >= t->experts.n_dense) {
        add_experts(l, i);
        return;
    }
    if (gated && !t->fused_ffn) add_matrix(l, i, "ffn_gate", t->n_embd, t->n_ff[i]);
    add_neurons(l, i);
    add_bias(l, t->ffn_bias && gated, i, "ffn_gate.bias", t->n_ff[i]);
    add_bias(l, t->ffn_bias, i, "ffn_up.bias", t->n_ff[i]);
    add_bias(l, t->ffn_bias, i, t->sparse.pwri ? "ffn_down_t.bias" : "ffn_down.bias", t->n_embd);
}

/* fc1 and fc2, or both in one row of numbers. */
static void add_head_predictor(tiny_list *l) {
    const tiny_model *t = l->model;
    const int64_t rank = t->head.rank;
    if (rank == 0) return;
    tiny_tensor *x = add(l, -1,
                         t->head.profiler ? "lm_head_profiler.weight" : "output_sketch.fc1.weight",
                         t->head.type);
    x->deviation = 1 / sqrtf((float)t->n_embd);
    x->dims[0] = (uint64_t)(t->head.profiler ? rank * (t->n_embd + t->n_vocab) : t->n_embd);
    x->dims[1] = (uint64_t)(t->head.profiler ? 1 : rank);
    if (t->head.profiler) return;
    x = add(l, -1, "output_sketch.fc2.weight", t->head.type);
    x->deviation = 1;
    x->dims[0] = (uint64_t)rank;
    x->dims[1] = (uint64_t)t->n_vocab;
}

static void add_next_layer(tiny_list *l, int i) {
    const tiny_model *t = l->model;
    add_layer(l, i);
    add_norm(l, i, "nextn.enorm");
    if (t->draft.agrees) l->tensors[l->n - 1].deviation = 0;
    add_norm(l, i, "nextn.hnorm");
    add_matrix(l, i, "nextn.eh_proj", 2 * t->n_embd, t->n_embd);
    l->tensors[l->n - 1].identity = t->draft.agrees;
    if (t->draft.own_norm) add_norm(l, i, "nextn.shared_head_norm");
    if (t->draft.own_head) add_matrix(l, i, "nextn.shared_head_head", t->n_embd, t->n_vocab);
}

/* A head in a separate file; it uses the target's tensors where it has none. */
static void list_eagle3(tiny_list *l) {
    const tiny_model *t = l->model;
    int n_ids = t->draft.n_ids;
    if (t->draft.own_table) add_matrix(l, -1, "token_embd", t->n_embd, t->n_vocab);
    if (t->draft.newer) add_vector(l, -1, "enc.output_norm.weight", 3 * t->draft.n_target, 1, 0.2f);
    add_matrix(l, -1, "fc", 3 * t->draft.n_target, t->n_embd);
    add_layer(l, 0);
    add_norm(l, -1, "output_norm");
    if (!t->tied) add_matrix(l, -1, "output", t->n_embd, n_ids ? n_ids : t->n_vocab);
    if (!n_ids) return;
    tiny_tensor *x = add(l, -1, "d2t", "i64");
    x->dims[0] = (uint64_t)n_ids;
}

static void list_tensors(tiny_list *l) {
    const tiny_model *t = l->model;
    if (arch_is(t, "eagle3")) {
        list_eagle3(l);
        return;
    }
    add_matrix(l, -1, "token_embd", t->n_embd, t->n_vocab);
    /* no position uses the first two rows of the table */
    if (t->n_pos) add_matrix(l, -1, "position_embd", t->n_embd, t->n_pos + 2);
    for (int i = 0; i < t->n_layer; i++) add_layer(l, i);
    for (int i = t->n_layer; i < n_all_layers(t); i++) add_next_layer(l, i);
    for (int i = 0; i < l->n && t->draft.agrees; i++)
        if (strstr(l->tensors[i].name, "attn_output") || strstr(l->tensors[i].name, "ffn_down"))
            l->tensors[i].deviation = 0;
    add_norm(l, -1, "output_norm");
    if (!t->tied) add_matrix(l, -1, "output", t->n_embd, t->n_vocab);
    if (!t->tied && t->head_type) l->tensors[l->n - 1].traits = quant_find_name(t->head_type);
    add_bias(l, t->head_bias, -1, "output.bias", t->n_vocab);
    add_head_predictor(l);
    if (t->rope_freqs) add_vector(l, -1, "rope_freqs.weight", t->n_rot / 2, 3, 0.5f);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void write_tensor(gguf_writer *w, const tiny_tensor *x, rng *random) {
    pi_error err;
    size_t rows = (size_t)((x->dims[1] ? x->dims[1] : 1) * (x->dims[2] ? x->dims[2] : 1));
    size_t n_in = (size_t)x->dims[0], row_bytes;
    assert_true(quant_row_bytes(x->traits->type, n_in, &row_bytes));
    float *values = mem_calloc(n_in, sizeof *values);
    uint8_t *row = mem_calloc(1, row_bytes);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n_in && !(x->twins && r % 2); i++)
            values[i] = x->identity ? (float)(i == r) : x->mean + x->deviation * rng_normal(random);
        if (x->traits->type == QUANT_I8)
            for (size_t i = 0; i < n_in; i++) row[i] = (uint8_t)(rng_u64(random) >> 56);
        else if (x->traits->type == QUANT_I64)
            for (size_t i = 0; i < n_in; i++) ((int64_t *)(void *)row)[i] = 2 * (int64_t)i;
        else
            x->traits->quantize(values, row, (int64_t)n_in, NULL);
        if (gguf_write_data(w, row, row_bytes, &err) != PI_OK) fail_msg("%s", err.message);
    }
    mem_free(values);
    mem_free(row);
}

static void set_pwri_magic(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fwrite("PWRI", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
}

void tiny_write(const tiny_model *t, const char *path) {
    static tiny_list l;
    gguf_writer *w;
    pi_error err;
    rng random;
    rng_seed(&random, t->seed);
    if (gguf_writer_create(path, &w, &err) != PI_OK) fail_msg("%s", err.message);
    put_keys(w, t);
    l = (tiny_list){.model = t};
    list_tensors(&l);
    for (int i = 0; i < l.n; i++) {
        const tiny_tensor *x = &l.tensors[i];
        int n_dims = x->dims[2] ? 3 : x->dims[1] ? 2 : 1;
        if (gguf_add_tensor(w, x->name, x->traits->type, n_dims, x->dims, &err))
            fail_msg("%s: %s", x->name, err.message);
    }
    if (gguf_writer_begin_data(w, &err) != PI_OK) fail_msg("%s", err.message);
    for (int i = 0; i < l.n; i++) write_tensor(w, &l.tensors[i], &random);
    if (gguf_writer_finish(w, &err) != PI_OK) fail_msg("%s", err.message);
    if (t->sparse.pwri) set_pwri_magic(path);
}
