/* test_synth_experts.c: synthetic mixtures of experts: a prepared file is the plain file with
 * sorted experts, gives the same logits bit for bit, and uses its experts as often as it states. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine.h"
#include "gguf.h"
#include "mem.h"
#include "model_drafter.h"
#include "powerinfer_tools.h"
#include "rng.h"
#include "run_engine.h"
#include "synth.h"

#define PLAIN_PATH    TEST_BINARY_DIR "/test_synth_experts_plain.gguf"
#define PREPARED_PATH TEST_BINARY_DIR "/test_synth_experts.gguf"

enum { N_EXPERT = 16, N_USED = 4, N_VOCAB = 512, N_LAYER = 4, N_TOKENS = 512, MAX_BATCH = 64 };

static const char *const shapes[] = {"tiny-moe", "tiny-reglu-moe", "tiny-mla-moe", "tiny-kda-moe"};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void synth(const char *path, const char *shape, const char *type, bool plain) {
    pi_error err = {0};
    pi_synth_options o = pi_synth_default_options();
    o.shape = shape;
    o.type = type;
    o.plain = plain;
    o.seed = 5;
    o.n_threads = 2;
    if (pi_synth(path, &o, &err)) fail_msg("%s", err.message);
}

/* ---- the same network ------------------------------------------------------------------------ */

static void expect_experts_moved(const model *plain, const model *prepared, int layer) {
    static const tensor_role roles[] = {ROLE_ROUTER, ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                        ROLE_EXPERT_DOWN};
    const int32_t *perm = prepared->layers[layer].sparse.expert_perm;
    bool moved = false;
    assert_non_null(perm);
    assert_null(plain->layers[layer].sparse.expert_perm);
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
        const model_tensor *a = &plain->layers[layer].t[roles[k]];
        const model_tensor *b = &prepared->layers[layer].t[roles[k]];
        if (roles[k] == ROLE_EXPERT_DOWN && !b->data) continue; /* transposed */
        size_t bytes = a->n_bytes / N_EXPERT;
        assert_int_equal(a->n_bytes, b->n_bytes);
        for (int e = 0; e < N_EXPERT; e++) {
            const uint8_t *source = (const uint8_t *)a->data + (size_t)perm[e] * bytes;
            assert_memory_equal((const uint8_t *)b->data + (size_t)e * bytes, source, bytes);
            moved = moved || perm[e] != e;
        }
    }
    assert_true(moved);
}

static void test_same_network(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        synth(PLAIN_PATH, shapes[i], "q4_0", true);
        synth(PREPARED_PATH, shapes[i], "q4_0", false);
        model *plain = run_engine_open(PLAIN_PATH), *prepared = run_engine_open(PREPARED_PATH);
        for (int l = 0; l < N_LAYER; l++)
            if (plain->layers[l].hp.n_ff_expert > 0) expect_experts_moved(plain, prepared, l);
        model_close(plain);
        model_close(prepared);
    }
}

/* Experts with exact zeros: element k of neuron i is element i of row k of the plain file. */
static void test_transposed(void **state) {
    (void)state;
    synth(PLAIN_PATH, "tiny-reglu-moe", "f32", true);
    synth(PREPARED_PATH, "tiny-reglu-moe", "f32", false);
    model *plain = run_engine_open(PLAIN_PATH), *prepared = run_engine_open(PREPARED_PATH);
    for (int l = 0; l < N_LAYER; l++) {
        const int32_t *perm = prepared->layers[l].sparse.expert_perm;
        const model_tensor *a = &plain->layers[l].t[ROLE_EXPERT_DOWN];
        const model_tensor *b = &prepared->layers[l].t[ROLE_EXPERT_DOWN_T];
        const float *down = a->data, *down_t = b->data;
        int64_t n_ff = a->n_in, n_embd = b->n_in;
        assert_true(!prepared->layers[l].t[ROLE_EXPERT_DOWN].data);
        assert_true(a->n_out == n_embd * N_EXPERT && b->n_out == n_ff * N_EXPERT);
        for (int64_t e = 0; e < N_EXPERT; e++)
            for (int64_t i = 0; i < n_ff; i++)
                for (int64_t k = 0; k < n_embd; k++)
                    assert_true(down_t[(e * n_ff + i) * n_embd + k] ==
                                down[(perm[e] * n_embd + k) * n_ff + i]);
    }
    model_close(plain);
    model_close(prepared);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static void draw_tokens(int32_t *tokens, int n) {
    rng r;
    rng_seed(&r, 21);
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)(rng_u64(&r) % N_VOCAB);
}

/* Feeds n tokens, `step` at a time, stores the last token's logits, then calls `look`. */
static void run(const model *m, int n, int step, float *logits,
                void (*look)(const engine_context *c)) {
    static int32_t tokens[N_TOKENS];
    engine_options o = {
        .n_threads = 2, .n_batch = MAX_BATCH, .type_k = QUANT_F32, .type_v = QUANT_F32};
    draw_tokens(tokens, n);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, n);
    for (int i = 0; i < n; i += step) {
        pi_input in = {
            .session = s, .tokens = tokens + i, .n_tokens = step, .logits = PI_LOGITS_LAST};
        run_engine_forward(c, &in, 1);
    }
    if (logits) memcpy(logits, engine_logits(c, 0), N_VOCAB * sizeof *logits);
    if (look) look(c);
    engine_session_destroy(s);
    engine_context_destroy(c);
}

static void test_same_logits(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q4_0"};
    static float plain[N_VOCAB], prepared[N_VOCAB];
    for (int i = 0; i < N_SHAPES * 2; i++) {
        synth(PLAIN_PATH, shapes[i / 2], types[i % 2], true);
        synth(PREPARED_PATH, shapes[i / 2], types[i % 2], false);
        model *a = run_engine_open(PLAIN_PATH), *b = run_engine_open(PREPARED_PATH);
        for (int step = 1; step <= 32; step *= 32) {
            run(a, 32, step, plain, NULL);
            run(b, 32, step, prepared, NULL);
            double square = 0, error = 0;
            for (int k = 0; k < N_VOCAB; k++) {
                double off = (double)(plain[k] - prepared[k]);
                square += (double)(plain[k] * plain[k]) / N_VOCAB;
                error += off * off / N_VOCAB;
            }
            /* transposed rows are summed and quantized in another order */
            bool transposed = b->layers[0].t[ROLE_EXPERT_DOWN_T].data;
            assert_true(error <= (!transposed ? 0 : i % 2 ? 0.1 : 1e-9) * square);
            assert_true(sqrt(square) > 0.7 && sqrt(square) < 1.4);
        }
        model_close(a);
        model_close(b);
    }
}

/* The binomial deviation of N_TOKENS draws is at most 0.02; the planted scores are about as
 * accurate. */
static void expect_frequencies(const engine_context *c) {
    const model *m = engine_plan(c)->model;
    for (int l = 0; l < N_LAYER; l++) {
        if (m->layers[l].hp.n_ff_expert == 0) continue;
        const uint64_t *uses = engine_expert_uses(c, l);
        const float *freq = m->layers[l].sparse.expert_freq;
        double all = 0, worst = 0;
        for (int e = 0; e < N_EXPERT; e++) {
            double is = (double)uses[e] / N_TOKENS, off = fabs(is - (double)freq[e]);
            all += is;
            if (off > worst) worst = off;
        }
        print_message("layer %d: hottest %.2f, coldest %.3f, worst off by %.3f\n", l,
                      (double)freq[0], (double)freq[N_EXPERT - 1], worst);
        assert_true(fabs(all - N_USED) < 1e-9);
        assert_true(worst < 0.12);
        assert_true(freq[0] > 4 * freq[N_EXPERT - 1]);
    }
}

static void test_frequencies(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        synth(PREPARED_PATH, shapes[i], "f32", false);
        model *m = run_engine_open(PREPARED_PATH);
        run(m, N_TOKENS, MAX_BATCH, NULL, expect_frequencies);
        model_close(m);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void expect_number(const gguf_file *f, const char *key, uint64_t want) {
    uint64_t v = 0;
    const gguf_value *value = gguf_find(f, key);
    if (!value || !gguf_as_u64(value, &v) || v != want) fail_msg("%s is not %d", key, (int)want);
}

/* The table includes tensors that llama.cpp's loader of gpt-oss requires. */
static void test_tensors(void **state) {
    (void)state;
    static const struct {
        tensor_role role;
        uint64_t n_in, n_rows;
    } tensors[] = {{ROLE_ATTN_SINKS, 64, 1},           {ROLE_ATTN_Q_BIAS, 4096, 1},
                   {ROLE_ATTN_OUT_BIAS, 2880, 1},      {ROLE_ROUTER, 2880, 32},
                   {ROLE_ROUTER_BIAS, 32, 1},          {ROLE_EXPERT_GATE, 2880, 2880 * 32},
                   {ROLE_EXPERT_UP_BIAS, 2880, 32},    {ROLE_EXPERT_DOWN_BIAS, 2880, 32},
                   {ROLE_EXPERT_DOWN, 2880, 2880 * 32}};
    const synth_shape *shape = synth_shape_find("gpt-oss-20b");
    const arch_row *arch = arch_find("gpt-oss", strlen("gpt-oss"));
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const arch_tensor *t = arch_tensor_of(arch, tensors[i].role);
        assert_true(synth_has_tensor(shape, t, 0, false));
        assert_int_equal(synth_shape_dim(shape, t->dims[0], 0), tensors[i].n_in);
        assert_int_equal(synth_shape_dim(shape, t->dims[1], 0) *
                             synth_shape_dim(shape, t->dims[2], 0),
                         tensors[i].n_rows);
    }
    assert_false(synth_has_tensor(shape, arch_tensor_of(arch, ROLE_FFN_FREQ), 0, false));
    assert_true(synth_has_tensor(shape, arch_tensor_of(arch, ROLE_FFN_FREQ), 0, true));
    assert_false(synth_has_tensor(shape, arch_tensor_of(arch, ROLE_EXPERT_GATE_UP), 0, true));
}

/* Matrices of published checkpoints, [rows][elements]. */
static void test_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *shape, *arch;
        int layer;
        tensor_role role;
        uint64_t n_rows, n_in;
    } sizes[] = {
        {"kimi-k3", "kimi-k3", 0, ROLE_TOKEN_EMBD, 163840, 7168},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_IN, 12288, 7168},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_CONV_K, 12288, 4},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_ALPHA_A, 128, 7168},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_ALPHA_B, 12288, 128},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_BETA, 96, 7168},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_GATE, 12288, 7168},
        {"kimi-k3", "kimi-k3", 0, ROLE_SSM_OUT, 7168, 12288},
        {"kimi-k3", "kimi-k3", 0, ROLE_FFN_DOWN, 7168, 33792},
        {"kimi-k3", "kimi-k3", 3, ROLE_ATTN_Q_A, 1536, 7168},
        {"kimi-k3", "kimi-k3", 3, ROLE_ATTN_Q_B, 18432, 1536},
        {"kimi-k3", "kimi-k3", 3, ROLE_ATTN_KV_A, 576, 7168},
        {"kimi-k3", "kimi-k3", 92, ROLE_ATTN_GATE, 12288, 7168},
        {"kimi-k3", "kimi-k3", 92, ROLE_ATTN_OUT, 7168, 12288},
        {"kimi-k3", "kimi-k3", 1, ROLE_ROUTER, 896, 7168},
        {"kimi-k3", "kimi-k3", 1, ROLE_EXPERT_LATENT_IN, 3584, 7168},
        {"kimi-k3", "kimi-k3", 1, ROLE_EXPERT_LATENT_OUT, 7168, 3584},
        {"kimi-k3", "kimi-k3", 1, ROLE_EXPERT_GATE, 3072 * 896, 3584},
        {"kimi-k3", "kimi-k3", 1, ROLE_EXPERT_DOWN, 3584 * 896, 3072},
        {"kimi-k3", "kimi-k3", 1, ROLE_SHARED_UP, 6144, 7168},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_ATTN_Q_A, 1024, 4096},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_ATTN_Q_B, 32768, 1024},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_ATTN_OUT, 4096, 8192},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_INDEX_Q, 8192, 1024},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_EXPERT_GATE, 2048 * 256, 4096},
        {"deepseek-v4-flash", "deepseek4", 2, ROLE_ROUTER_TABLE, 129280, 6},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_TOKEN_EMBD, 248320, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_NGRAM_EMBD, 320001536, 160},
        {"qwen3.8-flash-next", "qwen4exp", 1, ROLE_NGRAM_KEY, 10240, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_SSM_IN, 10240, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_SSM_GATE, 6144, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_SSM_ALPHA, 48, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 0, ROLE_SSM_OUT, 2560, 6144},
        {"qwen3.8-flash-next", "qwen4exp", 3, ROLE_ATTN_Q, 12288, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 3, ROLE_ATTN_K, 512, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 3, ROLE_ATTN_OUT, 2560, 6144},
        {"qwen3.8-flash-next", "qwen4exp", 3, ROLE_INDEX_Q, 512, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 3, ROLE_INDEX_K, 128, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 2, ROLE_HYPER_FFN_DOWN, 320, 10240},
        {"qwen3.8-flash-next", "qwen4exp", 2, ROLE_HYPER_ATTN_INJECT, 4, 10240},
        {"qwen3.8-flash-next", "qwen4exp", 2, ROLE_ROUTER, 512, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 2, ROLE_EXPERT_GATE, 640 * 512, 2560},
        {"qwen3.8-flash-next", "qwen4exp", 2, ROLE_SHARED_DOWN, 2560, 640},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const synth_shape *s = synth_shape_find(sizes[i].shape);
        const arch_row *arch = arch_find(sizes[i].arch, strlen(sizes[i].arch));
        const arch_tensor *t = arch_tensor_of(arch, sizes[i].role);
        const int layer = sizes[i].layer;
        if (!synth_has_tensor(s, t, layer, false)) fail_msg("no tensor %zu", i);
        const uint64_t n_in = synth_shape_dim(s, t->dims[0], layer),
                       n_rows = synth_shape_dim(s, t->dims[1], layer) *
                                synth_shape_dim(s, t->dims[2], layer);
        if (n_in != sizes[i].n_in || n_rows != sizes[i].n_rows)
            fail_msg("tensor %zu: %d rows of %d", i, (int)n_rows, (int)n_in);
        /* recurrent layers do not attend */
        if (s->period > 0 && tensor_role_part(t->role) != PART_ANY &&
            tensor_role_part(t->role) != PART_FFN)
            assert_false(synth_has_tensor(s, t, layer == 0 ? 3 : 0, false));
    }
}

static void test_keys(void **state) {
    (void)state;
    synth(PLAIN_PATH, "tiny-reglu-moe", "q4_0", true);
    model *m = run_engine_open(PLAIN_PATH);
    expect_number(m->file, "smallthinker.expert_count", N_EXPERT);
    expect_number(m->file, "smallthinker.expert_used_count", N_USED);
    expect_number(m->file, "smallthinker.expert_feed_forward_length", 128);
    expect_number(m->file, "smallthinker.expert_gating_func", GATING_SOFTMAX);
    expect_number(m->file, "smallthinker.attention.key_length", 64);
    assert_null(gguf_find_tensor(m->file, "blk.0.ffn_freq"));
    assert_null(gguf_find_tensor(m->file, "blk.0.ffn_expert_perm"));
    model_close(m);
}

/* All positions at once, and one by one; the scores of the output are those of one stream. */
static void check_streams(const char *shape) {
    static float at_once[N_VOCAB], one_by_one[N_VOCAB];
    synth(PLAIN_PATH, shape, "f32", true);
    model *m = run_engine_open(PLAIN_PATH);
    assert_int_equal(m->hp.n_stream, 4);
    run(m, 256, MAX_BATCH, at_once, NULL);
    run(m, 256, 1, one_by_one, NULL);
    double square = 0, error = 0;
    for (int k = 0; k < N_VOCAB; k++) {
        double off = (double)(at_once[k] - one_by_one[k]);
        square += (double)(at_once[k] * at_once[k]) / N_VOCAB;
        error += off * off / N_VOCAB;
    }
    if (!(error <= 1e-6 * square)) fail_msg("%s: NMSE %g", shape, error / square);
    if (!(sqrt(square) > 0.7 && sqrt(square) < 1.4))
        fail_msg("%s: logits of deviation %g", shape, sqrt(square));
    model_close(m);
}

/* Compressed keys, residual streams and a table of experts. */
static void test_streams(void **state) {
    (void)state;
    check_streams("tiny-csa-moe");
    model *m = run_engine_open(PLAIN_PATH);
    assert_true(m->layers[0].hp.routes_by_token && !m->layers[1].hp.routes_by_token);
    model_close(m);
}

/* Gated hyper-connections, index keys of several positions, embeddings of n-grams. */
static void test_ngrams(void **state) {
    (void)state;
    check_streams("tiny-ngram-moe");
    model *m = run_engine_open(PLAIN_PATH);
    assert_true(m->layers[1].hp.ngrams && m->layers[3].hp.ratio == 4);
    assert_true(m->hp.ngrams.n_rows == 8 && m->hp.ngrams.n_embd == 32);
    model_close(m);
}

/* ---- a head that drafts ---------------------------------------------------------------------- */

enum { N_EMBD = 256 };

static void synth_with_head(const char *shape, bool plain, bool bundle, bool mtp) {
    pi_error err = {0};
    pi_synth_options o = pi_synth_default_options();
    o.shape = shape;
    o.type = "q8_0";
    o.plain = plain;
    o.bundle = bundle;
    o.n_mtp = mtp;
    o.n_layer = 2;
    o.n_threads = 2;
    if (pi_synth(PREPARED_PATH, &o, &err)) fail_msg("%s", err.message);
}

/* Logits of the last of four tokens; a head also gets features as input. */
static void run_head(const model *m, bool head, float *logits) {
    static float features[4 * 4 * N_EMBD]; /* of up to four streams */
    const int32_t tokens[4] = {3, 100, 7, 450};
    engine_options o = {.n_threads = 2, .n_batch = 4, .type_k = QUANT_F32, .type_v = QUANT_F32};
    rng r;
    rng_seed(&r, 4);
    for (int i = 0; i < 4 * 4 * N_EMBD; i++) features[i] = (float)(rng_u64(&r) % 2001) / 1000 - 1;
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, 4);
    pi_input in = {.session = s,
                   .tokens = tokens,
                   .n_tokens = 4,
                   .logits = PI_LOGITS_LAST,
                   .features = head ? features : NULL};
    run_engine_forward(c, &in, 1);
    memcpy(logits, engine_logits(c, 0), N_VOCAB * sizeof *logits);
    engine_session_destroy(s);
    engine_context_destroy(c);
}

/* The head does not change the model, and is identical in plain, prepared and bundled files. */
static void test_head(void **state) {
    (void)state;
    static const char *const with_heads[] = {"tiny",           "tiny-opt",     "tiny-moe",
                                             "tiny-reglu-moe", "tiny-mla-moe", "tiny-dsa-moe",
                                             "tiny-csa-moe"};
    static float without[N_VOCAB], with[N_VOCAB], first[N_VOCAB], head[N_VOCAB];
    for (size_t i = 0; i < 3 * sizeof with_heads / sizeof *with_heads; i++) {
        bool plain = i % 3 == 0, bundle = i % 3 == 2;
        pi_error err = {0};
        if (!plain && strcmp(with_heads[i / 3], "tiny-csa-moe") == 0) continue; /* refused */
        synth_with_head(with_heads[i / 3], plain, bundle, false);
        model *m = run_engine_open(PREPARED_PATH), *drafter;
        assert_int_equal(model_open_drafter(m, NULL, 0, &drafter, &err), PI_ERR_NOT_FOUND);
        run_head(m, false, without);
        model_close(m);
        synth_with_head(with_heads[i / 3], plain, bundle, true);
        m = run_engine_open(PREPARED_PATH);
        assert_int_equal(m->hp.n_layer, 2);
        run_head(m, false, with);
        assert_memory_equal(with, without, sizeof with);
        if (model_open_drafter(m, NULL, 0, &drafter, &err)) fail_msg("%s", err.message);
        run_head(drafter, true, plain ? first : head);
        if (!plain && memcmp(head, first, sizeof head) != 0)
            fail_msg("%s: another head in a prepared file%s", with_heads[i / 3],
                     bundle ? " with bundles" : "");
        model_close(drafter);
        model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_network),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_same_logits),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_ngrams),
        cmocka_unit_test(test_head),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(PLAIN_PATH);
    unlink(PREPARED_PATH);
    return failed;
}
