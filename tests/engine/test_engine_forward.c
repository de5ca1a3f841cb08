/* test_engine_forward.c: every option of the architecture table against a plain pass in double
 * precision, under all kernels that this CPU supports.
 *
 * Bounds, as NMSE = sum (a - b)^2 / sum b^2. Vectors are floats between steps: 2^-24 per rounding,
 * squared, times about a hundred roundings, stays below 1e-12; fast kernels also sum in float,
 * which costs another digit. For bfloat16 weights fast kernels round inputs to bfloat16 (2^-9 per
 * element), for blocks to 8 bits per 32 elements (1/254 of the largest element), each about eight
 * times in a row. A wrong formula gives 1e-3 and more. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plain_forward.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_forward.gguf"

#ifdef TEST_SAMPLED
enum { N_TOKENS = 23, FAR = 1100, FRESH = 10 };
#else
enum { N_TOKENS = 45, FAR = 2500, FRESH = 50 };
#endif

/* The difference of one model under one set of kernels, in one batch and token by token. */
static void compare(const char *what, const tiny_model *t, const int32_t *tokens, const float *want,
                    pi_kernels kernels) {
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    run_model r = run_open(MODEL_PATH, &o);
    assert_int_equal(r.n_vocab, t->n_vocab);
    int64_t n = (int64_t)N_TOKENS * t->n_vocab;
    float *got = calloc((size_t)n, sizeof *got);
    static const int pieces[] = {0, 1, 20};
    double worst = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
        double nmse = run_nmse(got, want, n);
        if (!(nmse <= plain_gate(t, kernels)))
            fail_msg("%s, %s, pieces of %d: NMSE %g is above %g", what,
                     pi_context_kernels(r.context), pieces[i], nmse, plain_gate(t, kernels));
        if (nmse > worst) worst = nmse;
    }
    printf("%-24s %-8s NMSE %.1e\n", what, pi_context_kernels(r.context), worst);
    free(got);
    run_close(&r);
}

static void check(const char *what, const tiny_model *t) {
    int32_t tokens[N_TOKENS];
    size_t n = (size_t)N_TOKENS * (size_t)t->n_vocab;
    double *exact = calloc(n, sizeof *exact);
    float *want = calloc(n, sizeof *want);
    tiny_write(t, MODEL_PATH);
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    plain_forward(t, MODEL_PATH, PLAIN_DENSE, tokens, N_TOKENS, exact);
    for (size_t i = 0; i < n; i++) want[i] = (float)exact[i];
    for (int i = 0; i < RUN_KERNELS; i++)
        if (run_has_kernels(MODEL_PATH, run_kernels[i]))
            compare(what, t, tokens, want, run_kernels[i]);
    free(exact);
    free(want);
}

static void test_groups(void **state) {
    (void)state;
    for (int group = 1; group <= 8; group++) {
        tiny_model t = tiny_default();
        char what[32];
        snprintf(what, sizeof what, "%d heads per KV head", group);
        tiny_set_heads(&t, 2 * group, 2);
        t.seed = (uint64_t)group;
        check(what, &t);
    }
}

static void test_heads(void **state) {
    (void)state;
    static const struct {
        int head_dim, n_rot;
    } cases[] = {{2, 2}, {6, 6}, {10, 4}, {16, 2}, {18, 14}, {36, 36}, {64, 32}, {130, 128}};
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "qwen2vl", "qwen3vl", "exaone"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int a = 0; a < 6; a++) {
            tiny_model t = tiny_default();
            char what[48];
            t.arch = archs[a];
            t.qkv_bias = strncmp(t.arch, "qwen2", 5) == 0;
            t.head_dim = cases[i].head_dim;
            t.n_rot = cases[i].n_rot;
            snprintf(what, sizeof what, "%s head %d, %d rotated", t.arch, t.head_dim, t.n_rot);
            check(what, &t);
        }
    }
}

/* Rotary sections: pairs of the fourth axis do not rotate. */
static void test_sections(void **state) {
    (void)state;
    static const int32_t sections[][4] = {{4, 2, 2, 0}, {3, 3, 2, 0}, {2, 2, 1, 3}, {1, 1, 1, 1}};
    static const char *const archs[] = {"qwen2vl", "qwen3vl"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        for (int a = 0; a < 2; a++) {
            tiny_model t = tiny_default();
            char what[48];
            t.arch = archs[a];
            t.qkv_bias = a == 0;
            t.head_dim = t.n_rot = 16;
            memcpy(t.sections, sections[i], sizeof t.sections);
            snprintf(what, sizeof what, "%s, sections %zu", t.arch, i);
            check(what, &t);
        }
    }
}

static void test_biases(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.qkv_bias = t.out_bias = t.ffn_bias = true;
    check("llama with all biases", &t);
    t.scales = true;
    check("llama, biases and scales", &t);
    t = tiny_default();
    t.arch = "qwen2";
    t.qkv_bias = t.head_bias = true;
    check("qwen2 with head bias", &t);
    t.scales = true;
    check("qwen2, biases and scales", &t);
    t = tiny_default();
    t.arch = "qwen3";
    t.qkv_bias = t.scales = true;
    check("qwen3 with biases", &t);
}

static void test_activations(void **state) {
    (void)state;
    static const char *const names[] = {"relu", "silu", "gelu", "drelu", "relu_squared", "fatrelu"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tiny_model t = tiny_default();
        t.activation = names[i];
        t.threshold = 0.25f;
        check(names[i], &t);
    }
}

static void test_layers_that_differ(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    static const int heads[] = {4, 6, 2}, kv_heads[] = {2, 6, 1}, widths[] = {64, 31, 100};
    t.n_layer = 3;
    t.n_embd = 36;
    t.head_dim = 10;
    t.n_rot = 6;
    memcpy(t.n_head, heads, sizeof heads);
    memcpy(t.n_head_kv, kv_heads, sizeof kv_heads);
    memcpy(t.n_ff, widths, sizeof widths);
    check("layers that differ", &t);
}

static void test_heads_of_output(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.tied = true;
    t.n_vocab = 37;
    check("tied head", &t);
    t.n_vocab = 1;
    check("vocabulary of one", &t);
    t = tiny_default();
    t.vector_type = "f16";
    check("f16 vectors", &t);
    t.vector_type = "bf16";
    check("bf16 vectors", &t);
}

static void test_positions(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.head_dim = t.n_rot = 16;
    t.rope_freqs = true;
    check("rope_freqs", &t);
    t.rope_freqs = false;
    t.freq_base = 500000;
    check("frequency base", &t);
    t.scaling = TINY_SCALING_LINEAR;
    check("linear", &t);
    t.scaling = TINY_SCALING_LINEAR_OLD;
    check("linear, old key", &t);
    t.scaling = TINY_SCALING_LINEAR_BARE;
    check("linear, no type", &t);
    t.scaling = TINY_SCALING_YARN;
    check("yarn", &t);
    t.ext_factor = -1; /* other programs write the default this way */
    check("yarn, no share of unscaled frequencies", &t);
    t.beta_fast = 8;
    t.beta_slow = 2;
    t.attn_factor = 0.75f;
    t.freq_base = 10000;
    check("yarn with all keys", &t);
    t.arch = "qwen3";
    t.n_rot = 12;
    check("qwen3, yarn, partial", &t);
}

static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_model t = tiny_default();
        t.type = types[i];
        t.n_embd = t.n_ff[0] = t.n_ff[1] = 256;
        t.head_dim = t.n_rot = 64;
        check(types[i], &t);
        if (strchr(types[i], 'k')) continue;
        t.n_embd = t.head_dim = t.n_rot = 32;
        t.n_ff[0] = t.n_ff[1] = 96;
        check(types[i], &t);
    }
}

/* Thousands of positions one by one: angles stay correct at large positions, and ranges of
 * positions are split (from 1,024 on) and merged. A frequency has the rounding of a float, 2^-25
 * relative: at position 2,500 its angle is off by up to 7e-5 radians. */
static void test_far_positions(void **state) {
    (void)state;
    enum { CHECKED = 100 };
    tiny_model t = tiny_default();
    t.n_layer = 1;
    static int32_t tokens[FAR];
    size_t row = (size_t)t.n_vocab, n = FAR * row, tail = (FAR - CHECKED) * row;
    double *exact = calloc(n, sizeof *exact);
    float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
    tiny_write(&t, MODEL_PATH);
    run_random_tokens(8, t.n_vocab, tokens, FAR);
    plain_forward(&t, MODEL_PATH, PLAIN_DENSE, tokens, FAR, exact);
    for (size_t i = 0; i < n; i++) want[i] = (float)exact[i];
    for (int i = 0; i < RUN_KERNELS; i++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[i])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[i];
        run_model r = run_open(MODEL_PATH, &o);
        for (int piece = 1; piece <= 61; piece += 60) {
            run_tokens(&r, tokens, FAR, piece, got);
            double nmse = run_nmse(got + tail, want + tail, CHECKED * (int64_t)row);
            printf("far positions            %-8s NMSE %.1e\n", pi_context_kernels(r.context),
                   nmse);
            assert_true(nmse <= 1e-10);
        }
        run_close(&r);
    }
    free(exact);
    free(want);
    free(got);
}

/* ---- fresh contexts -------------------------------------------------------------------------- */

static void *keep_busy(void *arg) {
    atomic_bool *end = arg;
    while (!atomic_load_explicit(end, memory_order_relaxed)) continue;
    return NULL;
}

/* Batches on both sides of every tier's crossover between the two kinds of product. */
static const int fresh_sizes[] = {2, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17};
enum { FRESH_SIZES = sizeof fresh_sizes / sizeof *fresh_sizes, FRESH_TOKENS = 17 };

/* The last logits of every size, [FRESH_SIZES][n_vocab]. */
static void run_fresh(int n_threads, const int32_t *tokens, float *logits) {
    pi_context_options o = pi_context_default_options();
    o.device = PI_DEVICE_CPU;
    o.n_threads = n_threads;
    run_model r = run_open(MODEL_PATH, &o);
    for (int i = 0; i < FRESH_SIZES; i++) {
        pi_error err;
        pi_session *s = run_session(&r, FRESH_TOKENS);
        const pi_input in = {
            .session = s, .tokens = tokens, .n_tokens = fresh_sizes[i], .logits = PI_LOGITS_LAST};
        assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_OK);
        memcpy(logits + (size_t)i * (size_t)r.n_vocab, pi_logits(r.context, 0),
               (size_t)r.n_vocab * sizeof *logits);
        pi_session_destroy(s);
    }
    run_close(&r);
}

/* The same tokens give the same bits in every context, also when the machine is busy while the
 * context is created: no clock influences the choice of kernels. */
static void test_fresh_contexts(void **state) {
    (void)state;
    static const char *const types[] = {"q4_0", "f16"};
    int32_t tokens[FRESH_TOKENS];
    pthread_t busy;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        tiny_model t = tiny_default();
        t.type = types[k];
        t.n_embd = t.n_ff[0] = t.n_ff[1] = 256;
        t.head_dim = t.n_rot = 64;
        tiny_write(&t, MODEL_PATH);
        run_random_tokens(9, t.n_vocab, tokens, FRESH_TOKENS);
        size_t n = FRESH_SIZES * (size_t)t.n_vocab;
        float *first = calloc(n, sizeof *first), *again = calloc(n, sizeof *again);
        run_fresh(1, tokens, first);
        atomic_bool end = false;
        assert_int_equal(pthread_create(&busy, NULL, keep_busy, &end), 0);
        int differ = 0;
        for (int i = 1; i < FRESH; i++) {
            run_fresh(1 + i % 2, tokens, again);
            differ += memcmp(first, again, n * sizeof *first) != 0;
        }
        atomic_store(&end, true);
        pthread_join(busy, NULL);
        if (differ) fail_msg("%s: %d of %d contexts give other logits", types[k], differ, FRESH);
        free(first);
        free(again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_heads),
        cmocka_unit_test(test_sections),        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_activations),     cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_heads_of_output), cmocka_unit_test(test_positions),
        cmocka_unit_test(test_types),           cmocka_unit_test(test_far_positions),
        cmocka_unit_test(test_fresh_contexts),
    };
    return cmocka_run_group_tests_name("engine_forward", tests, NULL, NULL);
}
