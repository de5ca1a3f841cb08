/* test_engine_lora.c: models opened with LoRA adapters against files whose matrices have the same
 * changes, W + scale * alpha / rank * B A computed in double precision; and adapters that do not
 * belong to the model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "affix.h"
#include "bundled_file.h"
#include "gguf_writer.h"
#include "mem.h"
#include "model.h"
#include "os_file.h"
#include "powerinfer_session.h"
#include "rng.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH  TEST_BINARY_DIR "/test_engine_lora.gguf"
#define MERGED_PATH TEST_BINARY_DIR "/test_engine_lora_merged.gguf"
#define FIRST_PATH  TEST_BINARY_DIR "/test_engine_lora_1.gguf"
#define SECOND_PATH TEST_BINARY_DIR "/test_engine_lora_2.gguf"
#define SORTED_PATH TEST_BINARY_DIR "/test_engine_lora_sorted.gguf"
#define SAVED_PATH  TEST_BINARY_DIR "/test_engine_lora.session"

enum { N_TOKENS = 21, MAX_VOCAB = 320, CONTEXT = 32 };

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* All matrices. */
static bool is_adapted(const gguf_tensor *t) {
    return t->n_dims >= 2 && ends_with(t->name, ".weight") && !strstr(t->name, "_norm");
}

/* For embeddings, tokens select rows of A. */
static bool is_embedding(const gguf_tensor *t) {
    return strcmp(t->name, "token_embd.weight") == 0;
}

typedef struct recipe {
    uint64_t seed;
    int rank;
    float alpha; /* 0: no key */
    const char *type;
} recipe;

static const recipe first = {1, 4, 8, "f32"}, second = {2, 3, 0, "f16"};

/* A or B of a tensor: equal numbers for adapter and reference. */
static void make(const recipe *r, const gguf_tensor *t, bool b, float *out, size_t n) {
    rng g;
    uint64_t mark = r->seed * 2 + b;
    for (const char *c = t->name; *c; c++) mark = mark * 31 + (uint8_t)*c;
    rng_seed(&g, mark);
    for (size_t i = 0; i < n; i++) out[i] = (float)(int)(rng_normal(&g) * 16) / 128; /* exact */
}

static void add_half(gguf_writer *w, const recipe *r, const gguf_tensor *t, bool b, bool data) {
    char name[96];
    uint64_t rank = (uint64_t)r->rank;
    uint64_t dims[3] = {b ? rank : t->dims[0], b ? t->dims[1] : rank, t->dims[2]};
    if (is_embedding(t)) {
        dims[0] = rank;
        dims[1] = t->dims[b ? 0 : 1];
    }
    size_t n = (size_t)(dims[0] * dims[1] * dims[2]);
    const quant_traits *type = quant_find(strcmp(r->type, "f16") == 0 ? QUANT_F16 : QUANT_F32);
    snprintf(name, sizeof name, "%s.lora_%c", t->name, b ? 'b' : 'a');
    if (!data) {
        ok(gguf_add_tensor(w, name, type->type, t->n_dims, dims, &err));
        return;
    }
    float *x = mem_calloc(n, sizeof *x), *bytes = mem_calloc(n, sizeof *bytes);
    assert_non_null(x);
    assert_non_null(bytes);
    make(r, t, b, x, n);
    type->quantize(x, bytes, (int64_t)n, NULL);
    ok(gguf_write_data(w, bytes, n * (size_t)type->block_bytes, &err));
    mem_free(x);
    mem_free(bytes);
}

/* only: NULL, or the only tensor that the adapter changes. */
static void write_adapter(const recipe *r, const char *only, const char *path) {
    gguf_file *g;
    gguf_writer *w;
    gguf_string arch;
    char name[64];
    ok(gguf_open(MODEL_PATH, NULL, &g, &err));
    assert_true(gguf_as_string(gguf_find(g, "general.architecture"), &arch));
    snprintf(name, sizeof name, "%.*s", (int)arch.n_bytes, arch.data);
    ok(gguf_writer_create(path, &w, &err));
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "general.architecture", name);
    gguf_put_string(w, "adapter.type", "lora");
    if (r->alpha != 0) gguf_put_f32(w, "adapter.lora.alpha", r->alpha);
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            if (only ? strcmp(t->name, only) != 0 : !is_adapted(t)) continue;
            add_half(w, r, t, false, data);
            add_half(w, r, t, true, data);
        }
        if (!data) ok(gguf_writer_begin_data(w, &err));
    }
    ok(gguf_writer_finish(w, &err));
    gguf_close(g);
}

/* Adds scale * B A to a tensor. */
static void change(const recipe *r, const gguf_tensor *t, double scale, double *w) {
    size_t rank = (size_t)r->rank, n_in = (size_t)t->dims[0], n_out = (size_t)t->dims[1];
    size_t items = (size_t)t->dims[2];
    float *a = mem_calloc(items * rank * n_in, sizeof *a);
    float *b = mem_calloc(items * rank * n_out, sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    bool embedding = is_embedding(t);
    make(r, t, embedding, a, items * rank * n_in);
    make(r, t, !embedding, b, items * rank * n_out);
    if (r->alpha != 0) scale *= (double)r->alpha / r->rank;
    for (size_t row = 0; row < items * n_out; row++)
        for (size_t i = 0; i < n_in; i++)
            for (size_t k = 0; k < rank; k++)
                w[row * n_in + i] +=
                    scale * (double)b[row * rank + k] *
                    (double)a[embedding ? i * rank + k : (row / n_out * rank + k) * n_in + i];
    mem_free(a);
    mem_free(b);
}

/* The model with changed matrices in F32. */
static void write_merged(double scale_1, double scale_2) {
    gguf_file *g;
    gguf_writer *w;
    ok(gguf_open(MODEL_PATH, NULL, &g, &err));
    ok(gguf_writer_create(MERGED_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(g); i++) gguf_put_value(w, gguf_value_at(g, i));
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        quant_type type = is_adapted(t) ? QUANT_F32 : t->type;
        ok(gguf_add_tensor(w, t->name, type, t->n_dims, t->dims, &err));
    }
    /* a head that is the embedding matrix stays unchanged */
    const gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    bool tied = !gguf_find_tensor(g, "output.weight");
    if (tied) ok(gguf_add_tensor(w, "output.weight", embd->type, 2, embd->dims, &err));
    ok(gguf_writer_begin_data(w, &err));
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = (size_t)t->n_elems;
        if (!is_adapted(t)) {
            ok(gguf_write_data(w, t->data, t->n_bytes, &err));
            continue;
        }
        float *x = mem_calloc(n, sizeof *x);
        double *sum = mem_calloc(n, sizeof *sum);
        assert_non_null(x);
        assert_non_null(sum);
        quant_find(t->type)->dequantize(t->data, x, (int64_t)n);
        for (size_t k = 0; k < n; k++) sum[k] = (double)x[k];
        change(&first, t, scale_1, sum);
        change(&second, t, scale_2, sum);
        for (size_t k = 0; k < n; k++) x[k] = (float)sum[k];
        ok(gguf_write_data(w, x, n * sizeof *x, &err));
        mem_free(x);
        mem_free(sum);
    }
    if (tied) ok(gguf_write_data(w, embd->data, embd->n_bytes, &err));
    ok(gguf_writer_finish(w, &err));
    gguf_close(g);
}

/* ---- running --------------------------------------------------------------------------------- */

static pi_status try_open(const pi_adapter *adapters, size_t n, pi_model **out) {
    pi_model_options options = pi_model_default_options();
    options.adapters = adapters;
    options.n_adapters = n;
    return pi_model_open(MODEL_PATH, &options, out, &err);
}

/* As try_open, with adapters that contexts merge. */
static pi_status try_by_context(const pi_adapter *adapters, size_t n, pi_model **out) {
    pi_model_options options = pi_model_default_options();
    options.adapters = adapters;
    options.n_adapters = n;
    options.adapters_by_context = true;
    return pi_model_open(MODEL_PATH, &options, out, &err);
}

static run_model open_adapted(const pi_adapter *adapters, size_t n) {
    run_model r = {0};
    pi_context_options o = run_exact_options();
    pi_model_info info;
    ok(try_open(adapters, n, &r.model));
    ok(pi_context_create(r.model, &o, &r.context, &err));
    pi_model_get_info(r.model, &info);
    r.n_vocab = info.n_vocab;
    return r;
}

static void check(const char *what, double scale_1, double scale_2, double gate) {
    const pi_adapter adapters[] = {{FIRST_PATH, (float)scale_1}, {SECOND_PATH, (float)scale_2}};
    pi_context_options o = run_exact_options();
    write_merged(scale_1, scale_2);
    run_model r = run_open(MERGED_PATH, &o);
    assert_true(r.n_vocab <= MAX_VOCAB);
    run_random_tokens(9, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    r = open_adapted(adapters, 2);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * r.n_vocab);
    run_close(&r);
    if (!(nmse <= gate)) fail_msg("%s, scales %g, %g: NMSE %g", what, scale_1, scale_2, nmse);
}

static void check_scales(const char *what, const tiny_model *t, double gate) {
    tiny_write(t, MODEL_PATH);
    write_adapter(&first, NULL, FIRST_PATH);
    write_adapter(&second, NULL, SECOND_PATH);
    check(what, 1, 0, gate);
    check(what, 0.5, -2, gate);
}

/* Separate and fused matrices, experts in stacks, compressed attention; every kind of weights. */
static void test_merging(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    check_scales("llama", &t, 1e-11);
    t.type = "f16";
    check_scales("f16", &t, 1e-6);
    t.type = "bf16";
    check_scales("bf16", &t, 1e-6);
    t.type = "q4_0";
    check_scales("q4_0", &t, 1e-6);
    t.type = "q8_0";
    check_scales("q8_0", &t, 1e-6);
    t = tiny_default();
    t.tied = true;
    check_scales("tied", &t, 1e-11);
    t = tiny_default();
    t.arch = "falcon";
    check_scales("falcon", &t, 1e-11);
    t = tiny_default();
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32};
    check_scales("experts", &t, 1e-11);
    t = tiny_default();
    t.arch = "deepseek2";
    t.n_embd = 64;
    t.head_dim = 24;
    t.n_rot = 8;
    t.n_latent = 24;
    t.v_dim = 16;
    t.kv_b = true;
    tiny_set_heads(&t, 4, 4);
    check_scales("kv_b", &t, 1e-9);
}

/* An adapter that changes one matrix leaves the others unchanged. */
static void test_one_matrix(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.type = "q4_0";
    tiny_write(&t, MODEL_PATH);
    write_adapter(&first, "blk.1.attn_q.weight", FIRST_PATH);
    const pi_adapter adapter = {FIRST_PATH, 1}, none = {FIRST_PATH, 0};
    pi_model *plain, *changed;
    pi_model_info before, after;
    ok(try_open(NULL, 0, &plain));
    ok(try_open(&adapter, 1, &changed));
    pi_model_get_info(plain, &before);
    pi_model_get_info(changed, &after);
    uint64_t n = (uint64_t)(32 * 32);
    assert_int_equal(after.weight_bytes, before.weight_bytes + n * 2 - n / 32 * 18);
    assert_int_equal(after.n_params, before.n_params);
    pi_model_close(plain);
    pi_model_close(changed);
    run_random_tokens(9, t.n_vocab, tokens, N_TOKENS);
    run_model r = open_adapted(NULL, 0);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    r = open_adapted(&none, 1);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    run_close(&r);
    assert_true(run_nmse(got, want, (int64_t)N_TOKENS * t.n_vocab) <= 1e-7);
    r = open_adapted(&adapter, 1);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    assert_true(run_nmse(got, want, (int64_t)N_TOKENS * t.n_vocab) > 1e-5);
    run_close(&r);
}

/* Adapters that contexts merge give the bits of adapters that were merged when the model was
 * opened. A part of the layers has only its own matrices merged, and the hash of all. */
static void test_by_context(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.type = "q4_0";
    t.n_layer = 3;
    tiny_write(&t, MODEL_PATH);
    write_adapter(&first, NULL, FIRST_PATH);
    const pi_adapter a = {FIRST_PATH, 1};
    pi_model *plain;
    pi_model_info before, after;
    ok(try_open(NULL, 0, &plain));
    pi_model_get_info(plain, &before);
    pi_model_close(plain);
    run_random_tokens(9, t.n_vocab, tokens, N_TOKENS);
    run_model r = open_adapted(&a, 1);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    const pi_context_options o = run_exact_options();
    r = (run_model){.n_vocab = t.n_vocab};
    ok(try_by_context(&a, 1, &r.model));
    pi_model_get_info(r.model, &after);
    assert_int_equal(after.weight_bytes, before.weight_bytes);
    ok(pi_context_create(r.model, &o, &r.context, &err));
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    assert_memory_equal(got, want, (size_t)(N_TOKENS * t.n_vocab) * sizeof *got);
    run_close(&r);

    const model_adapter inner = {FIRST_PATH, 1};
    gguf_file *file;
    model *whole, *all, *part;
    ok(gguf_open(MODEL_PATH, NULL, &file, &err));
    ok(model_open_adapted(file, &inner, 1, false, &whole, &err));
    ok(model_open_part(whole, &inner, 1, 0, 3, &all, &err));
    assert_int_equal(whole->adapters_hash, all->adapters_hash);
    assert_int_equal(all->t[ROLE_OUTPUT].type, QUANT_F16);
    for (int rank = 0; rank < 3; rank++) {
        ok(model_open_part(whole, &inner, 1, rank, rank + 1, &part, &err));
        assert_int_equal(part->adapters_hash, all->adapters_hash);
        for (int i = 0; i < 3; i++)
            for (int role = 0; role < ROLE_COUNT; role++)
                assert_int_equal(part->layers[i].t[role].type,
                                 (i == rank ? all : whole)->layers[i].t[role].type);
        assert_int_equal(part->t[ROLE_OUTPUT].type, (rank == 0 ? all : whole)->t[ROLE_OUTPUT].type);
        model_close(part);
    }
    assert_int_not_equal(whole->t[ROLE_OUTPUT].type, QUANT_F16);
    model_close(all);
    model_close(whole);
}

/* A session of the model without adapter is not valid for the model with it. */
static void test_sessions(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    write_adapter(&first, "blk.1.attn_k.weight", FIRST_PATH);
    run_random_tokens(9, t.n_vocab, tokens, N_TOKENS);
    const pi_adapter one = {FIRST_PATH, 1}, half = {FIRST_PATH, 0.5f};
    const pi_adapter *const writers[] = {NULL, &one};
    for (int i = 0; i < 2; i++) {
        run_model r = open_adapted(writers[i], writers[i] ? 1 : 0);
        pi_session *s = run_session(&r, CONTEXT);
        run_feed(&r, s, tokens, 8, 0, got);
        ok(pi_session_save(s, SAVED_PATH, tokens, 8, &err));
        pi_session_destroy(s);
        run_close(&r);
        const pi_adapter *const readers[] = {&one, &half};
        for (int k = 0; k < 2; k++) {
            int32_t loaded[CONTEXT], n;
            r = open_adapted(readers[k], 1);
            s = run_session(&r, CONTEXT);
            pi_status status = pi_session_load(s, SAVED_PATH, loaded, CONTEXT, &n, &err);
            bool same = writers[i] == readers[k];
            if ((status == PI_OK) != same) fail_msg("writer %d, reader %d", i, k);
            pi_session_destroy(s);
            run_close(&r);
        }
    }
    remove(SAVED_PATH);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const pi_adapter *a, pi_status wanted, const char *text) {
    pi_model *m;
    pi_status status = try_open(a, 1, &m);
    run_check_message(&err, status);
    if (status != wanted || !strstr(err.message, text))
        fail_msg("%s: '%s' lacks '%s'", pi_status_name(status), err.message, text);
}

/* A file with one pair, with the given keys and dimensions. */
static void write_pair(const char *type, const char *kind, const char *arch, const char *a,
                       const char *b, const uint64_t *dims_a, const uint64_t *dims_b, float value) {
    static float items[4096];
    for (int i = 0; i < 4096; i++) items[i] = value;
    gguf_writer *w;
    ok(gguf_writer_create(SECOND_PATH, &w, &err));
    if (type) gguf_put_string(w, "general.type", type);
    if (kind) gguf_put_string(w, "adapter.type", kind);
    if (arch) gguf_put_string(w, "general.architecture", arch);
    ok(gguf_add_tensor(w, a, QUANT_F32, 2, dims_a, &err));
    if (b) ok(gguf_add_tensor(w, b, QUANT_F32, 2, dims_b, &err));
    ok(gguf_writer_begin_data(w, &err));
    ok(gguf_write_data(w, items, (size_t)(dims_a[0] * dims_a[1]) * sizeof *items, &err));
    if (b) ok(gguf_write_data(w, items, (size_t)(dims_b[0] * dims_b[1]) * sizeof *items, &err));
    ok(gguf_writer_finish(w, &err));
}

#define A "blk.0.attn_q.weight.lora_a"
#define B "blk.0.attn_q.weight.lora_b"
static const struct {
    const char *type, *kind, *arch, *a, *b;
    uint64_t dims_a[2], dims_b[2];
    pi_status status;
    const char *text;
} cases[] = {
    {NULL, "lora", "llama", A, B, {32, 2}, {2, 32}, PI_ERR_FORMAT, "general.type is ''"},
    {"model", "lora", "llama", A, B, {32, 2}, {2, 32}, PI_ERR_FORMAT, "not an adapter"},
    {"adapter",
     "vera",
     "llama",
     A,
     B,
     {32, 2},
     {2, 32},
     PI_ERR_UNSUPPORTED,
     "adapter.type is 'vera'"},
    {"adapter",
     "lora",
     "qwen2",
     A,
     B,
     {32, 2},
     {2, 32},
     PI_ERR_UNSUPPORTED,
     "its architecture is 'qwen2', the model's llama"},
    {"adapter",
     "lora",
     "llama",
     A,
     NULL,
     {32, 2},
     {0, 0},
     PI_ERR_FORMAT,
     "attn_q.weight.lora_a has no counterpart"},
    {"adapter",
     "lora",
     "llama",
     "blk.0.attn_q.weight",
     NULL,
     {32, 2},
     {0, 0},
     PI_ERR_FORMAT,
     "neither NAME.lora_a nor NAME.lora_b"},
    {"adapter",
     "lora",
     "llama",
     A,
     B,
     {64, 2},
     {2, 32},
     PI_ERR_FORMAT,
     "lora_a is [64, 2] and its counterpart [2, 32], the model's matrix [32, 32]"},
    {"adapter", "lora", "llama", A, B, {32, 2}, {2, 48}, PI_ERR_FORMAT, "[2, 48]"},
    {"adapter", "lora", "llama", A, B, {32, 2}, {3, 32}, PI_ERR_FORMAT, "[3, 32]"},
    {"adapter",
     "lora",
     "llama",
     "blk.7.attn_q.weight.lora_a",
     "blk.7.attn_q.weight.lora_b",
     {32, 2},
     {2, 32},
     PI_ERR_FORMAT,
     "blk.7.attn_q.weight.lora_a matches no matrix of"},
    {"adapter",
     "lora",
     "llama",
     "blk.0.attn_norm.weight.lora_a",
     "blk.0.attn_norm.weight.lora_b",
     {32, 2},
     {2, 32},
     PI_ERR_FORMAT,
     "matches no matrix of"},
    {"adapter",
     "lora",
     "llama",
     "token_embd.weight.lora_a",
     "token_embd.weight.lora_b",
     {32, 2},
     {2, 32},
     PI_ERR_FORMAT,
     "token_embd.weight.lora_a is [32, 2] and its counterpart [2, 32], the model's matrix [32"},
};

static void test_errors(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pi_adapter a = {SECOND_PATH, 1};
        write_pair(cases[i].type, cases[i].kind, cases[i].arch, cases[i].a, cases[i].b,
                   cases[i].dims_a, cases[i].dims_b, 0);
        refused(&a, cases[i].status, cases[i].text);
    }
    refused(&(pi_adapter){TEST_BINARY_DIR "/nowhere.gguf", 1}, PI_ERR_IO, "nowhere.gguf");
    write_adapter(&first, NULL, FIRST_PATH);
    refused(&(pi_adapter){FIRST_PATH, 1e9f}, PI_ERR_ARG, "bad scale: ");
    t.type = "f16";
    tiny_write(&t, MODEL_PATH);
    refused(&(pi_adapter){FIRST_PATH, 1e6f}, PI_ERR_RANGE, "with its adapters: tensor ");
}

/* ---- sorted models --------------------------------------------------------------------------- */

/* Item i of x becomes item order[i] of the original. */
static void sort_items(float *x, size_t n, size_t n_bytes, const int32_t *order) {
    uint8_t *old = mem_alloc(n * n_bytes), *now = (uint8_t *)x;
    assert_non_null(old);
    memcpy(old, x, n * n_bytes);
    for (size_t i = 0; i < n; i++)
        memcpy(now + i * n_bytes, old + (size_t)order[i] * n_bytes, n_bytes);
    mem_free(old);
}

static void transpose(float *x, size_t n_rows, size_t n_in) {
    float *old = mem_calloc(n_rows * n_in, sizeof *old);
    assert_non_null(old);
    memcpy(old, x, n_rows * n_in * sizeof *old);
    for (size_t i = 0; i < n_rows * n_in; i++) x[i % n_in * n_rows + i / n_in] = old[i];
    mem_free(old);
}

enum { SORTED_ITEMS = 64 };

/* Puts a tensor's neurons, or experts, in an order; for down the columns, or, transposed, the
 * rows. */
static void sort_tensor(const gguf_tensor *t, float *x, const int32_t *order, bool down_t) {
    size_t n_in = (size_t)t->dims[0], n_out = (size_t)t->dims[1], n = (size_t)t->n_elems;
    size_t row = n_in * sizeof *x;
    memcpy(x, t->data, n * sizeof *x);
    if (strstr(t->name, "_exps"))
        sort_items(x, (size_t)t->dims[2], n / (size_t)t->dims[2] * sizeof *x, order);
    if (strstr(t->name, "ffn_gate_inp.") || strstr(t->name, "ffn_gate.") ||
        strstr(t->name, "ffn_up.")) {
        bool both = n_out > SORTED_ITEMS; /* rows of gate, then of up */
        sort_items(x, both ? SORTED_ITEMS : n_out, row, order);
        if (both) sort_items(x + SORTED_ITEMS * n_in, SORTED_ITEMS, row, order);
    }
    if (strstr(t->name, "ffn_down."))
        for (size_t r = 0; r < n_out; r++) sort_items(x + r * n_in, n_in, sizeof *x, order);
    if (strstr(t->name, "ffn_down") && down_t)
        for (size_t e = 0; e < (size_t)t->dims[2]; e++)
            transpose(x + e * n_in * n_out, n_out, n_in);
}

/* Replaces the model by one with its neurons or experts in another order. */
static void write_sorted(int n_items, int step, bool experts, bool down_t) {
    gguf_file *g;
    gguf_writer *w;
    int32_t order[SORTED_ITEMS];
    char name[2][32];
    for (int i = 0; i < n_items; i++) order[i] = (i * step + 3) % n_items;
    ok(gguf_open(MODEL_PATH, NULL, &g, &err));
    ok(gguf_writer_create(SORTED_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(g); i++) gguf_put_value(w, gguf_value_at(g, i));
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            bool turned = down_t && strstr(t->name, "ffn_down");
            uint64_t dims[3] = {t->dims[turned], t->dims[!turned], t->dims[2]};
            char to[GGUF_MAX_NAME];
            snprintf(to, sizeof to, "%.*s_t%s", (int)strlen("blk.0.ffn_down"), t->name,
                     experts ? "_exps.weight" : ".weight");
            if (!data) {
                ok(gguf_add_tensor(w, turned ? to : t->name, t->type, t->n_dims,
                                   t->n_dims > 1 ? dims : t->dims, &err));
                continue;
            }
            float *x = mem_calloc((size_t)t->n_elems, sizeof *x);
            assert_non_null(x);
            assert_int_equal(t->type, QUANT_F32);
            sort_tensor(t, x, order, down_t);
            ok(gguf_write_data(w, x, t->n_bytes, &err));
            mem_free(x);
        }
        for (int layer = 0; layer < 2; layer++) {
            snprintf(name[layer], sizeof name[layer], "blk.%d.ffn_%sperm", layer,
                     experts ? "expert_" : "");
            if (data)
                ok(gguf_write_data(w, order, (size_t)n_items * sizeof *order, &err));
            else
                ok(gguf_add_tensor(w, name[layer], QUANT_I32, 1,
                                   (const uint64_t[]){(uint64_t)n_items}, &err));
        }
        if (!data) ok(gguf_writer_begin_data(w, &err));
    }
    ok(gguf_writer_finish(w, &err));
    gguf_close(g);
}

/* SORTED_PATH with both adapters against `want`. */
static void check_prepared(const char *what, int i) {
    const pi_adapter adapters[] = {{FIRST_PATH, 0.5f}, {SECOND_PATH, -2}};
    assert_int_equal(os_path_rename(SORTED_PATH, MODEL_PATH), 0);
    run_model r = open_adapted(adapters, 2);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * r.n_vocab);
    run_close(&r);
    if (!(nmse <= 1e-10)) fail_msg("%s, case %d: NMSE %g", what, i, nmse);
}

/* Adapters refer to the model before it was prepared. */
static void test_sorted(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        bool experts = i / 2 == 1;
        tiny_model t = tiny_default();
        assert_int_equal(t.n_layer, 2);
        t.fused_ffn = i / 2 == 2;
        if (t.fused_ffn) t.arch = "phi3";
        if (experts) t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32};
        check_scales("unsorted", &t, 1e-11);
        write_sorted(experts ? 4 : 64, 5, experts, i % 2);
        check_prepared("sorted", i);
        if (!experts && i % 2 == 0) continue; /* bundles of neurons have rows of down */
        bundled_write(MODEL_PATH, SORTED_PATH, 1);
        check_prepared("in bundles", i);
    }
}

/* A pair for a head that is the embedding matrix leaves the embeddings unchanged. */
static void test_tied_head(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    check_scales("untied", &t, 1e-11); /* creates `tokens` */
    t.tied = true;
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    write_pair("adapter", "lora", "llama", "output.weight.lora_a", "output.weight.lora_b",
               (const uint64_t[]){32, 2}, (const uint64_t[]){2, (uint64_t)t.n_vocab}, 0.125f);
    r = open_adapted(&(pi_adapter){SECOND_PATH, 1}, 1);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    run_close(&r);
    /* every logit grows by one number: twice 1/64 times the sum of the normed vector */
    bool moved = false;
    for (int i = 0; i < N_TOKENS; i++) {
        double more = (double)(got[i * t.n_vocab] - want[i * t.n_vocab]);
        moved = moved || more > 0.01 || more < -0.01;
        for (int k = 0; k < t.n_vocab; k++)
            assert_true(fabs((double)(got[i * t.n_vocab + k] - want[i * t.n_vocab + k]) - more) <
                        1e-4);
    }
    assert_true(moved);
}

/* An order that is not a permutation. */
static void test_bad_order(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    write_adapter(&first, NULL, FIRST_PATH);
    write_sorted(64, 4, false, false); /* every item four times */
    assert_int_equal(os_path_rename(SORTED_PATH, MODEL_PATH), 0);
    refused(&(pi_adapter){FIRST_PATH, 1}, PI_ERR_FORMAT, "not a permutation");
}

static void test_no_memory(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    write_adapter(&first, NULL, FIRST_PATH);
    const pi_adapter a = {FIRST_PATH, 1};
    for (int64_t n = 1;; n++) {
        pi_model *m;
        mem_fail_at(n);
        pi_status status = try_open(&a, 1, &m);
        mem_fail_at(0);
        if (status == PI_OK) {
            pi_model_close(m);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, PI_ERR_NOMEM);
    }
    for (int64_t n = 1;; n++) {
        const pi_context_options o = run_exact_options();
        pi_model *m = NULL;
        pi_context *c = NULL;
        mem_fail_at(n);
        pi_status status = try_by_context(&a, 1, &m);
        if (status == PI_OK) status = pi_context_create(m, &o, &c, &err);
        mem_fail_at(0);
        pi_context_destroy(c);
        pi_model_close(m);
        if (status == PI_OK) return;
        assert_int_equal(status, PI_ERR_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merging),    cmocka_unit_test(test_one_matrix),
        cmocka_unit_test(test_by_context), cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_sorted),
        cmocka_unit_test(test_bad_order),  cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_no_memory),
    };
    int failed = cmocka_run_group_tests_name("engine_lora", tests, NULL, NULL);
    static const char *const paths[] = {MODEL_PATH, MERGED_PATH, FIRST_PATH, SECOND_PATH};
    for (int i = 0; i < 4; i++) remove(paths[i]);
    return failed;
}
