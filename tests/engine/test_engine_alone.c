/* test_engine_alone.c: contexts that are deterministic: the logits of a token have the same bits
 * for every division of its text into calls, and for every other input of the call. The expected
 * logits come from an ordinary context that computes single tokens, one per call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recurrent_model.h"
#include "rng.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_alone.gguf"

enum { N_TOKENS = 41, MAX_VOCAB = 288, N_OTHERS = 6, OTHERS_CTX = 256 };

#ifdef TEST_SAMPLED /* the fastest kernels only */
enum { MOST_KERNELS = 1 };
#else
enum { MOST_KERNELS = RUN_KERNELS };
#endif
#ifdef __SANITIZE_THREAD__ /* races do not depend on the type */
enum { TYPE_STEP = 5, MOST_PREDICTORS = 1 };
#else
enum { TYPE_STEP = 1, MOST_PREDICTORS = 3 };
#endif

static float expected[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static int32_t tokens[N_TOKENS], noise[OTHERS_CTX];

static void check_same(const run_model *r, const char *what) {
    size_t n = (size_t)N_TOKENS * (size_t)r->n_vocab;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&expected[i], &got[i], sizeof(float)) != 0)
            fail_msg("%s: token %zu: %.9g alone, %.9g now", what, i / (size_t)r->n_vocab,
                     (double)expected[i], (double)got[i]);
}

/* The text in pieces of random lengths, in calls with pieces of other sessions around them. */
static void feed_among_others(const run_model *r, uint64_t seed) {
    pi_session *s = run_session(r, N_TOKENS), *others[N_OTHERS];
    pi_error err;
    rng random;
    rng_seed(&random, seed);
    for (int i = 0; i < N_OTHERS; i++) others[i] = run_session(r, OTHERS_CTX);
    for (int done = 0; done < N_TOKENS;) {
        pi_input in[N_OTHERS + 1];
        int n_in = 0, n = 1 + (int)(rng_u64(&random) % 7), before = (int)(rng_u64(&random) % 4);
        if (n > N_TOKENS - done) n = N_TOKENS - done;
        for (int i = 0; i < N_OTHERS; i++) {
            if (i == before)
                in[n_in++] = (pi_input){
                    .session = s, .tokens = tokens + done, .n_tokens = n, .logits = PI_LOGITS_ALL};
            int count = (int)(rng_u64(&random) % 6);
            if (count == 0) continue;
            in[n_in++] = (pi_input){.session = others[i], .tokens = noise, .n_tokens = count};
        }
        if (pi_forward(r->context, in, n_in, &err) != PI_OK) fail_msg("%s", err.message);
        for (int i = 0; i < n; i++)
            memcpy(got + (size_t)(done + i) * (size_t)r->n_vocab, pi_logits(r->context, i),
                   (size_t)r->n_vocab * sizeof *got);
        done += n;
    }
    for (int i = 0; i < N_OTHERS; i++) pi_session_destroy(others[i]);
    pi_session_destroy(s);
}

static void check_file(const char *what, pi_mode mode, pi_cache_type cache) {
    static const int pieces[] = {0, 1, 2, 9};
    pi_context_options o = run_exact_options();
    o.mode = mode;
    o.cache_k = o.cache_v = cache;
    int n_tested = 0;
    for (int k = RUN_KERNELS - 1; k > 0; k--) { /* the scalar kernels are slow, and have one form */
        if (n_tested == MOST_KERNELS || !run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
        n_tested++;
        o.kernels = run_kernels[k];
        o.deterministic = false;
        o.n_threads = 1;
        run_model r = run_open(MODEL_PATH, &o);
        run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
        run_random_tokens(6, r.n_vocab, noise, OTHERS_CTX);
        run_tokens(&r, tokens, N_TOKENS, 1, expected);
        run_close(&r);
        o.deterministic = true;
        o.n_threads = 2;
        r = run_open(MODEL_PATH, &o);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
            check_same(&r, what);
        }
        for (uint64_t seed = 1; seed <= 3; seed++) {
            feed_among_others(&r, seed);
            check_same(&r, what);
        }
        run_close(&r);
    }
}

static void check(const tiny_model *t, const char *what, pi_mode mode) {
    tiny_write(t, MODEL_PATH);
    check_file(what, mode, PI_CACHE_F16);
}

static tiny_model wide(void) {
    tiny_model t = tiny_default();
    t.n_embd = 256;
    t.head_dim = t.n_rot = 64;
    t.n_ff[0] = t.n_ff[1] = 512;
    return t;
}

static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0",
                                        "q8_0", "q4_k", "q5_k", "q6_k", "q2_k", "iq4_nl"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i += TYPE_STEP) {
        tiny_model t = wide();
        t.type = types[i];
        check(&t, types[i], PI_MODE_DENSE);
    }
}

static void test_caches(void **state) {
    (void)state;
    tiny_model t = wide();
    t.type = "q8_0";
    tiny_write(&t, MODEL_PATH);
    check_file("F32", PI_MODE_DENSE, PI_CACHE_F32);
    check_file("Q8_0", PI_MODE_DENSE, PI_CACHE_Q8_0);
    check_file("BF16", PI_MODE_DENSE, PI_CACHE_BF16);
    check_file("Q4_0", PI_MODE_DENSE, PI_CACHE_Q4_0);
    check_file("Q5_1", PI_MODE_DENSE, PI_CACHE_Q5_1);
}

static void test_sparse(void **state) {
    (void)state;
    static const char *const predictors[] = {"sign", "lowrank", "relu_mlp"};
    static const char *const types[] = {"f32", "q4_0", "q8_0"};
    for (int k = 0; k < MOST_PREDICTORS; k++) {
        tiny_model t = wide();
        t.type = types[k];
        t.activation = "relu";
        check(&t, "exact", PI_MODE_EXACT);
        t.sparse.down_t = true;
        check(&t, "exact, rows of down", PI_MODE_EXACT);
        check(&t, "dense, rows of down", PI_MODE_DENSE);
        t.sparse.predictor = predictors[k];
        t.sparse.rank = 32;
        check(&t, predictors[k], PI_MODE_PREDICT);
        t = wide();
        t.type = types[k];
        t.sparse.down_t = true;
        t.sparse.cut = 0.1f;
        t.sparse.cut_factors = true;
        check(&t, "threshold", PI_MODE_THRESHOLD);
    }
}

static void test_experts(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q8_0"};
    for (int k = 0; k < 4; k++) {
        tiny_model t = wide();
        t.type = types[k & 1];
        t.activation = k > 1 ? "relu" : NULL;
        t.sparse.down_t = k > 1;
        t.arch = "qwen2moe";
        t.experts = (tiny_experts){.n = 6, .n_used = 2, .n_ff = 96, .n_ff_shared = 64};
        check(&t, "experts", k > 1 ? PI_MODE_EXACT : PI_MODE_DENSE);
    }
}

static void test_attention(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "deepseek2";
    t.n_embd = 64;
    t.head_dim = 24;
    t.n_rot = 8;
    t.n_latent = 32;
    t.n_latent_q = 32;
    t.v_dim = 16;
    tiny_set_heads(&t, 4, 1);
    check(&t, "compressed attention", PI_MODE_DENSE);
    t = tiny_default();
    t.arch = "minimax-m3";
    t.n_layer = 3;
    t.n_embd = 64;
    t.head_dim = 32;
    t.n_rot = 16;
    t.n_ff[2] = t.n_ff[0];
    tiny_set_heads(&t, 6, 2);
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1};
    t.index = (tiny_index){.dim = 64, .size = 4, .top = 3, .local = 1};
    check(&t, "sparse attention", PI_MODE_DENSE);
}

static void test_recurrent(void **state) {
    (void)state;
    for (int i = 0; i < RECURRENT_ARCHS; i++) {
        const recurrent_keys keys = {.taps = 0};
        recurrent_write(recurrent_archs[i], &keys, MODEL_PATH);
        check_file(recurrent_archs[i], PI_MODE_DENSE, PI_CACHE_F16);
    }
}

/* Beyond the length from which attention is split between threads. */
static void test_long(void **state) {
    (void)state;
    enum { LENGTH = 2300, TAIL = 11 };
    static int32_t text[LENGTH];
    tiny_model t = tiny_default();
    pi_context_options o = run_exact_options();
    t.head_dim = t.n_rot = 32;
    tiny_write(&t, MODEL_PATH);
    o.kernels = PI_KERNELS_AUTO;
    o.deterministic = true;
    o.n_threads = 2;
    run_model r = run_open(MODEL_PATH, &o);
    run_random_tokens(7, r.n_vocab, text, LENGTH);
    float *rows[2];
    for (int by_one = 0; by_one < 2; by_one++) {
        pi_session *s = run_session(&r, LENGTH);
        pi_error err;
        rows[by_one] = malloc((size_t)TAIL * (size_t)r.n_vocab * sizeof(float));
        pi_input in = {.session = s, .tokens = text, .n_tokens = LENGTH - TAIL};
        for (int i = 0; i < LENGTH - TAIL; i += in.n_tokens) {
            in.tokens = text + i;
            if (by_one) in.n_tokens = i % 5 + 1 < LENGTH - TAIL - i ? i % 5 + 1 : LENGTH - TAIL - i;
            if (pi_forward(r.context, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
        }
        run_feed(&r, s, text + LENGTH - TAIL, TAIL, by_one, rows[by_one]);
        pi_session_destroy(s);
    }
    assert_memory_equal(rows[0], rows[1], (size_t)TAIL * (size_t)r.n_vocab * sizeof(float));
    free(rows[0]);
    free(rows[1]);
    run_close(&r);
}

/* Both forms give one answer except for the order of sums. A deterministic context chooses no form
 * by time. */
static void test_timed_forms(void **state) {
    (void)state;
    enum { N_SESSIONS = 5 };
    tiny_model t = wide();
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "sign"};
    tiny_write(&t, MODEL_PATH);
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        pi_context_options o = run_exact_options();
        o.mode = PI_MODE_PREDICT;
        o.kernels = deterministic ? PI_KERNELS_AUTO : PI_KERNELS_SCALAR;
        o.timed_forms = true;
        o.deterministic = deterministic;
        run_model r = run_open(MODEL_PATH, &o);
        run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
        run_tokens(&r, tokens, N_TOKENS, 1, expected);
        pi_session *s[N_SESSIONS];
        pi_error err;
        bool differs = false;
        for (int k = 0; k < N_SESSIONS; k++) s[k] = run_session(&r, N_TOKENS);
        for (int i = 0; i < N_TOKENS; i++) {
            pi_input in[N_SESSIONS];
            for (int k = 0; k < N_SESSIONS; k++)
                in[k] = (pi_input){
                    .session = s[k], .tokens = tokens + i, .n_tokens = 1, .logits = PI_LOGITS_LAST};
            if (pi_forward(r.context, in, N_SESSIONS, &err) != PI_OK) fail_msg("%s", err.message);
            size_t at = (size_t)i * (size_t)r.n_vocab;
            for (int k = 0; k < N_SESSIONS; k++) {
                const float *row = pi_logits(r.context, k);
                differs = differs ||
                          memcmp(row, expected + at, (size_t)r.n_vocab * sizeof *row) != 0;
                double nmse = run_nmse(row, expected + at, r.n_vocab);
                if (!(nmse < 1e-9)) fail_msg("token %d of session %d: NMSE %g", i, k, nmse);
            }
        }
        assert_int_equal(differs, !deterministic); /* both forms were tried */
        for (int k = 0; k < N_SESSIONS; k++) pi_session_destroy(s[k]);
        run_close(&r);
    }
}

static void test_refused(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    pi_context_options o = run_exact_options();
    pi_model *m;
    pi_context *c;
    pi_error err;
    tiny_write(&t, MODEL_PATH);
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, &err), PI_OK);
    o.deterministic = o.adapt = true;
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),     cmocka_unit_test(test_caches),
        cmocka_unit_test(test_sparse),    cmocka_unit_test(test_experts),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_long),      cmocka_unit_test(test_timed_forms),
        cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
