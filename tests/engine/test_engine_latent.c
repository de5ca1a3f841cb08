/* test_engine_latent.c: compressed attention (MLA): the matrices that the engine absorbs into
 * queries and results, against keys and values expanded at every position, in double precision; and
 * the operations of sessions on a cache of latent vectors. Bounds as in test_engine_forward.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plain_forward.h"
#include "powerinfer_session.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH   TEST_BINARY_DIR "/test_engine_latent.gguf"
#define SESSION_PATH TEST_BINARY_DIR "/test_engine_latent.session"

enum { N_TOKENS = 37, MAX_VOCAB = 64, CONTEXT = 64 };

static int32_t tokens[N_TOKENS];
static double exact[N_TOKENS * MAX_VOCAB];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];

/* Heads of 24, including 8 rotated elements; rows of the cache are 8 + 24 long, a block of Q8_0. */
static tiny_model latent_model(int n_latent_q, bool kv_b) {
    tiny_model t = tiny_default();
    t.arch = "deepseek2";
    t.n_embd = 64;
    t.head_dim = 24;
    t.n_rot = 8;
    t.n_latent = 24;
    t.n_latent_q = n_latent_q;
    t.v_dim = 16;
    t.kv_b = kv_b;
    tiny_set_heads(&t, 4, kv_b ? 4 : 1);
    return t;
}

static void compute(const tiny_model *t) {
    assert_true(t->n_vocab <= MAX_VOCAB);
    tiny_write(t, MODEL_PATH);
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    plain_forward(t, MODEL_PATH, PLAIN_DENSE, tokens, N_TOKENS, exact);
    for (int i = 0; i < N_TOKENS * t->n_vocab; i++) want[i] = (float)exact[i];
}

static void check_near(const char *what, const float *a, const float *b, int64_t n, double gate) {
    double nmse = run_nmse(a, b, n);
    if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
}

/* All kernels, whole, token by token and in pieces of both forms. */
static void check(const char *what, const tiny_model *t) {
    static const int pieces[] = {0, 1, 5, 20};
    compute(t);
    for (int k = 0; k < RUN_KERNELS; k++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[k];
        o.n_threads = 1 + k % 3;
        run_model r = run_open(MODEL_PATH, &o);
        for (int i = 0; i < 4; i++) {
            run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
            check_near(what, got, want, (int64_t)N_TOKENS * t->n_vocab,
                       plain_gate(t, run_kernels[k]));
        }
        run_close(&r);
    }
}

static void test_forms(void **state) {
    (void)state;
    for (int kv_b = 0; kv_b < 2; kv_b++) {
        tiny_model t = latent_model(32, kv_b);
        check("latent queries", &t);
        t = latent_model(0, kv_b);
        check("plain queries", &t);
        t.type = "f16";
        check("f16", &t);
        t.type = "bf16";
        check("bf16", &t);
        t.type = "f32";
        tiny_set_heads(&t, 1, 1);
        check("one head", &t);
        tiny_set_heads(&t, 7, kv_b ? 7 : 1);
        check("seven heads", &t);
    }
    tiny_model t = latent_model(32, false);
    t.scales = true;
    check("scales", &t);
}

/* Scores grow in place of rotated vectors where the file has the multiplier. */
static void test_yarn(void **state) {
    (void)state;
    tiny_model t = latent_model(0, false);
    t.scaling = TINY_SCALING_YARN;
    t.factor = 4;
    t.original_context = 16;
    t.yarn_multiplier = 0.0707f;
    check("YaRN", &t);
}

static void test_cache_types(void **state) {
    (void)state;
    static const struct {
        pi_cache_type type;
        double gate;
    } types[] = {{PI_CACHE_F16, 1e-5},   {PI_CACHE_Q8_0, 1e-3}, {PI_CACHE_BF16, 1e-4},
                 {PI_CACHE_Q5_0, 1e-2},  {PI_CACHE_Q5_1, 1e-2}, {PI_CACHE_Q4_0, 5e-2},
                 {PI_CACHE_IQ4_NL, 5e-2}};
    tiny_model t = latent_model(32, false);
    compute(&t);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pi_context_options o = run_exact_options();
        o.cache_k = types[i].type;
        run_model r = run_open(MODEL_PATH, &o);
        run_tokens(&r, tokens, N_TOKENS, 0, got);
        check_near("cache type", got, want, (int64_t)N_TOKENS * t.n_vocab, types[i].gate);
        run_close(&r);
    }
}

/* In one layer a cached row depends only on its token and position: after tokens 5 to 14 are
 * removed, the session equals one that was fed only the others. */
static void test_removal(void **state) {
    (void)state;
    enum { FIRST = 5, END = 15, LAST = N_TOKENS - 1 };
    pi_error err;
    tiny_model t = latent_model(32, false);
    t.n_layer = 1;
    compute(&t);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, CONTEXT);
    run_feed(&r, s, tokens, LAST, 0, got);
    assert_int_equal(pi_session_remove(s, FIRST, END, &err), PI_OK);
    run_feed(&r, s, tokens + LAST, 1, 0, got);
    pi_session_destroy(s);
    int32_t kept[N_TOKENS];
    memcpy(kept, tokens, FIRST * sizeof *kept);
    memcpy(kept + FIRST, tokens + END, (N_TOKENS - END) * sizeof *kept);
    int n = N_TOKENS - (END - FIRST);
    run_tokens(&r, kept, n, 0, want);
    check_near("removal", got, want + (n - 1) * t.n_vocab, t.n_vocab, 1e-10);
    run_close(&r);
}

/* Rewinding, a copy, and a file: the same logits, bit for bit. */
static void test_sessions(void **state) {
    (void)state;
    enum { KEEP = 11, REST = N_TOKENS - KEEP };
    pi_error err;
    tiny_model t = latent_model(0, false);
    compute(&t);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, CONTEXT), *copy = run_session(&r, CONTEXT);
    size_t n = (size_t)(REST * t.n_vocab) * sizeof *got;
    run_feed(&r, s, tokens, KEEP, 0, got);
    assert_int_equal(pi_session_copy(copy, s, KEEP, &err), PI_OK);
    assert_int_equal(pi_session_save(s, SESSION_PATH, tokens, KEEP, &err), PI_OK);
    run_feed(&r, s, tokens + KEEP, REST, 0, want);
    assert_int_equal(pi_session_rewind(s, KEEP, &err), PI_OK);
    run_feed(&r, s, tokens + KEEP, REST, 0, got);
    assert_memory_equal(got, want, n);
    run_feed(&r, copy, tokens + KEEP, REST, 0, got);
    assert_memory_equal(got, want, n);
    pi_session_destroy(copy);
    copy = run_session(&r, CONTEXT);
    int32_t loaded[CONTEXT], n_loaded;
    assert_int_equal(pi_session_load(copy, SESSION_PATH, loaded, CONTEXT, &n_loaded, &err), PI_OK);
    assert_int_equal(n_loaded, KEEP);
    run_feed(&r, copy, tokens + KEEP, REST, 0, got);
    assert_memory_equal(got, want, n);
    pi_session_destroy(copy);
    pi_session_destroy(s);
    run_close(&r);
    remove(SESSION_PATH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),    cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_removal),  cmocka_unit_test(test_cache_types),
        cmocka_unit_test(test_sessions),
    };
    return cmocka_run_group_tests_name("engine_latent", tests, NULL, NULL);
}
