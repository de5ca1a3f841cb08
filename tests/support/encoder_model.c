/* encoder_model.c: every tensor has its own generator of numbers, seeded by its name, so that a
 * test can compute them again. */
#include "encoder_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arch.h"
#include "gguf_writer.h"
#include "mem.h"
#include "rng.h"

enum { N_LAYER = 2, N_FF = 48, N_HEAD = 4, N_EMBD = ENCODER_N_EMBD, N_DENSE = 40 };

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* Norms are near 1, matrices and tables spread by the root of their rows' length. */
static void fill(const char *name, uint64_t seed, float *out, int64_t n_in, int64_t n) {
    rng r;
    bool norm = strstr(name, "norm") && strstr(name, ".weight");
    bool vector = n == n_in;
    uint64_t hash = seed;
    for (const char *c = name; *c; c++) hash = hash * 31 + (unsigned char)*c;
    rng_seed(&r, hash);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(rng_u64(&r) % 2001) / 1000 - 1;
        out[i] = norm ? 1 + 0.3f * x : vector ? 0.3f * x : 2 * x / sqrtf((float)n_in);
    }
}

static void put_vocabulary(gguf_writer *w) {
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    static char texts[ENCODER_N_VOCAB][8];
    gguf_string tokens[ENCODER_N_VOCAB];
    int32_t types[ENCODER_N_VOCAB];
    for (int i = 0; i < ENCODER_N_VOCAB; i++) {
        int word = i - ENCODER_FIRST_WORD;
        if (word < 0)
            snprintf(texts[i], sizeof texts[i], "%s", special[i]);
        else if (word < 26)
            snprintf(texts[i], sizeof texts[i], "\xE2\x96\x81%c", 'a' + word);
        else
            snprintf(texts[i], sizeof texts[i], "\xE2\x96\x81%c%c", 'a' + (word - 26) / 26,
                     'a' + (word - 26) % 26);
        tokens[i] = (gguf_string){texts[i], strlen(texts[i])};
        types[i] = word < 0 ? 3 : 1;
    }
    gguf_put_string(w, "tokenizer.ggml.model", "bert");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, ENCODER_N_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, ENCODER_N_VOCAB);
    gguf_put_u32(w, "tokenizer.ggml.token_type_count", 2);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.cls_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.seperator_token_id", 3);
}

static void put_keys(gguf_writer *w, const char *arch, bool ranks) {
    bool causal = strcmp(arch, "qwen3") == 0;
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", N_LAYER},          {"embedding_length", N_EMBD},
                   {"context_length", ENCODER_N_CTX}, {"feed_forward_length", N_FF},
                   {"attention.head_count", N_HEAD},  {"attention.sliding_window", 12},
                   {"dense_2_feat_in", N_EMBD}, /* llama.cpp needs these four */
                   {"dense_2_feat_out", N_DENSE},     {"dense_3_feat_in", N_DENSE},
                   {"dense_3_feat_out", N_EMBD},      {"pooling_type", ranks ? 4 : causal ? 3 : 1}};
    char key[96];
    gguf_put_string(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].name);
        gguf_put_u32(w, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", arch);
    gguf_put_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.attention.causal", arch);
    gguf_put_bool(w, key, causal);
    /* llama.cpp does not run models in which all layers have a window */
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    if (strcmp(arch, "gemma-embedding") == 0) gguf_put_u32(w, key, N_LAYER);
    if (!ranks) return;
    const gguf_string labels[] = {{"yes", 3}, {"no", 2}};
    snprintf(key, sizeof key, "%s.classifier.output_labels", arch);
    gguf_put_strings(w, key, labels, (uint64_t)encoder_scores(arch));
    if (causal) gguf_put_string(w, "tokenizer.chat_template.rerank", "ab {query} cd {document} ef");
}

int encoder_scores(const char *arch) {
    return strcmp(arch, "qwen3") == 0 ? 2 : 1;
}

/* Tensors that files of these models have. */
static bool has(const char *arch, bool ranks, const arch_tensor *t, int layer) {
    bool bert = strcmp(arch, "bert") == 0, jina = strcmp(arch, "jina-bert-v2") == 0;
    if (t->flags & (TENSOR_SPARSE | TENSOR_IF_FITS)) return false;
    if (t->role == ROLE_ATTN_QKV || t->role == ROLE_ATTN_QKV_BIAS) return false;
    if (t->role == ROLE_OUTPUT || t->role == ROLE_ROPE_FREQS) return false;
    if (t->role == ROLE_DENSE_2_BIAS) return false;
    if (t->role == ROLE_ATTN_OUT_BIAS && strcmp(arch, "gemma-embedding") == 0) return false;
    if (t->role == ROLE_CLS_NORM) return false;
    if (t->role == ROLE_CLS || t->role == ROLE_CLS_BIAS) return ranks && (bert || jina);
    if (t->role == ROLE_CLS_OUT) return ranks && !jina;
    if (t->role == ROLE_CLS_OUT_BIAS) return ranks && bert;
    if (strcmp(arch, "modern-bert") == 0 && t->role == ROLE_ATTN_NORM) return layer > 0;
    return true;
}

static int64_t size_of(arch_dim dim) {
    const arch_sizes sizes = {.n_embd = N_EMBD,
                              .n_vocab = ENCODER_N_VOCAB,
                              .n_ff = N_FF,
                              .n_head = N_HEAD,
                              .n_head_kv = N_HEAD,
                              .head_dim = N_EMBD / N_HEAD,
                              .n_layer = N_LAYER,
                              .n_pos = ENCODER_N_CTX};
    return dim == DIM_TYPES ? 2 : arch_dim_size(dim, &sizes);
}

/* Sizes that only the file has. */
static void open_sizes(const char *arch, tensor_role role, int64_t dims[2]) {
    bool bert = strcmp(arch, "bert") == 0;
    if (role == ROLE_CLS) dims[1] = bert ? N_EMBD : 1;
    if (role == ROLE_CLS_BIAS) dims[0] = bert ? N_EMBD : 1;
    if (role == ROLE_CLS_OUT) dims[1] = encoder_scores(arch);
    if (role == ROLE_CLS_OUT_BIAS) dims[0] = encoder_scores(arch);
    if (role == ROLE_DENSE_2) dims[1] = N_DENSE;
    if (role == ROLE_DENSE_3) dims[0] = N_DENSE, dims[1] = N_EMBD;
}

/* Calls with each tensor of the file, in order. */
typedef void (*visit)(gguf_writer *w, const char *name, const int64_t dims[2], uint64_t seed);

static void visit_all(gguf_writer *w, const char *arch, bool ranks, uint64_t seed, visit do_it) {
    const arch_row *row = arch_find(arch, strlen(arch));
    assert_non_null(row);
    for (int i = 0; i < row->n_tensors; i++) {
        const arch_tensor *t = &row->tensors[i];
        for (int layer = 0; layer < (t->flags & TENSOR_PER_LAYER ? N_LAYER : 1); layer++) {
            char name[64];
            int64_t dims[2] = {size_of(t->dims[0]), size_of(t->dims[1])};
            open_sizes(arch, t->role, dims);
            if (!has(arch, ranks, t, layer)) continue;
            arch_tensor_name(t, layer, name);
            do_it(w, name, dims, seed);
        }
    }
}

static void add(gguf_writer *w, const char *name, const int64_t dims[2], uint64_t seed) {
    const uint64_t shape[2] = {(uint64_t)dims[0], (uint64_t)dims[1]};
    (void)seed;
    ok(gguf_add_tensor(w, name, QUANT_F32,
                       dims[1] > 1 || (strncmp(name, "cls.", 4) == 0 && strstr(name, "weight")) ? 2
                                                                                                : 1,
                       shape, &err));
}

static void write(gguf_writer *w, const char *name, const int64_t dims[2], uint64_t seed) {
    int64_t n = dims[0] * dims[1];
    float *data = mem_alloc((size_t)n * sizeof *data);
    assert_non_null(data);
    fill(name, seed, data, dims[0], n);
    ok(gguf_write_data(w, data, (size_t)n * sizeof *data, &err));
    mem_free(data);
}

static void write_model(const char *path, const char *arch, bool ranks, uint64_t seed) {
    gguf_writer *w;
    ok(gguf_writer_create(path, &w, &err));
    put_keys(w, arch, ranks);
    put_vocabulary(w);
    visit_all(w, arch, ranks, seed, add);
    ok(gguf_writer_begin_data(w, &err));
    visit_all(w, arch, ranks, seed, write);
    ok(gguf_writer_finish(w, &err));
}

void encoder_write(const char *path, const char *arch, uint64_t seed) {
    write_model(path, arch, false, seed);
}

void encoder_write_ranking(const char *path, const char *arch, uint64_t seed) {
    write_model(path, arch, true, seed);
}

float encoder_rank(const float *hidden, uint64_t seed) {
    float cls[N_EMBD * N_EMBD], bias[N_EMBD], out[N_EMBD], out_bias[1];
    fill("cls.weight", seed, cls, N_EMBD, N_EMBD * N_EMBD);
    fill("cls.bias", seed, bias, N_EMBD, N_EMBD);
    fill("cls.output.weight", seed, out, N_EMBD, N_EMBD);
    fill("cls.output.bias", seed, out_bias, 1, 1);
    double score = (double)out_bias[0];
    for (int r = 0; r < N_EMBD; r++) {
        double sum = (double)bias[r];
        for (int i = 0; i < N_EMBD; i++) sum += (double)cls[r * N_EMBD + i] * (double)hidden[i];
        score += (double)out[r] * tanh(sum);
    }
    return (float)score;
}
