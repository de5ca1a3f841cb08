/* test_engine_session.c: conditions that must not change an answer: the division of tokens into
 * calls and batches, the number of threads, other sessions, a prefix that was fed or left after a
 * rewind, and the split of long contexts over tasks.
 *
 * A computation in another order of sums differs by float rounding: 1e-11 as NMSE for float weights
 * (see test_engine_forward.c). A computation on other threads, or in another session, must not
 * differ at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_session.gguf"

#define INPUT(s, ids, n, rows)                                                                     \
    { .session = (s), .tokens = (ids), .n_tokens = (n), .logits = (rows) }

enum { N_TOKENS = 70, MAX_VOCAB = 64, MAX_ROWS = 256 };

/* Sampling runs every third split, from the second on, and every third length. */
#ifdef TEST_SAMPLED
enum { EVERY_SPLIT = 3, EVERY_LENGTH = 3 };
#else
enum { EVERY_SPLIT = 1, EVERY_LENGTH = 1 };
#endif

static const double order_gate = 1e-11;

static float expected[MAX_ROWS * MAX_VOCAB], got[MAX_ROWS * MAX_VOCAB];
static int32_t tokens[MAX_ROWS];

static void check_near(const char *what, const float *a, const float *b, int rows, int n_vocab,
                       double gate) {
    double nmse = run_nmse(a, b, (int64_t)rows * n_vocab);
    if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
}

static void check_same(const float *a, const float *b, int rows, int n_vocab) {
    assert_memory_equal(a, b, (size_t)rows * (size_t)n_vocab * sizeof *a);
}

static run_model open_default(pi_kernels kernels, pi_cache_type cache, int n_batch, int n_threads) {
    tiny_model t = tiny_default();
    pi_context_options o = run_exact_options();
    t.head_dim = t.n_rot = 32;
    tiny_write(&t, MODEL_PATH);
    o.kernels = kernels;
    o.cache_k = o.cache_v = cache;
    o.n_batch = n_batch;
    o.n_threads = n_threads;
    run_model r = run_open(MODEL_PATH, &o);
    run_random_tokens(5, r.n_vocab, tokens, MAX_ROWS);
    return r;
}

/* Rounding in the cache does not depend on the split: only the order of sums differs, but a key or
 * value near the middle between two stored values may fall to either side. */
static double split_gate(pi_cache_type cache) {
    return cache == PI_CACHE_F32    ? order_gate
           : cache == PI_CACHE_F16  ? 1e-6
           : cache == PI_CACHE_Q4_0 ? 1e-2
                                    : 1e-4;
}

static void test_splits(void **state) {
    (void)state;
    static const pi_cache_type caches[] = {PI_CACHE_F32, PI_CACHE_F16, PI_CACHE_Q8_0,
                                           PI_CACHE_Q4_0};
    static const int batches[] = {1, 2, 7, 16, 33, 512}, pieces[] = {0, 1, 3, 8, 9, 31};
    static const pi_kernels kernels[] = {PI_KERNELS_SCALAR, PI_KERNELS_AUTO};
    for (int k = 0; k < 2; k++) {
        for (int c = 0; c < 4; c++) {
            run_model r = open_default(kernels[k], caches[c], 1, 1);
            run_tokens(&r, tokens, N_TOKENS, 1, expected);
            run_close(&r);
            for (int b = EVERY_SPLIT / 2; b < 6; b += EVERY_SPLIT) {
                r = open_default(kernels[k], caches[c], batches[b], 2);
                for (int p = EVERY_SPLIT / 2; p < 6; p += EVERY_SPLIT) {
                    /* The batch also limits the rows of logits. */
                    int piece = pieces[p] && pieces[p] < batches[b] ? pieces[p] : batches[b];
                    run_tokens(&r, tokens, N_TOKENS, piece, got);
                    check_near("split", got, expected, N_TOKENS, r.n_vocab, split_gate(caches[c]));
                }
                run_close(&r);
            }
        }
    }
}

/* The error of each type of cache, against the F32 cache. */
static void test_cache_types(void **state) {
    (void)state;
    run_model r = open_default(PI_KERNELS_SCALAR, PI_CACHE_F32, 64, 1);
    run_tokens(&r, tokens, 64, 0, expected);
    run_close(&r);
    r = open_default(PI_KERNELS_SCALAR, PI_CACHE_F16, 64, 1);
    run_tokens(&r, tokens, 64, 0, got);
    check_near("f16 cache", got, expected, 64, r.n_vocab, 1e-6);
    assert_memory_not_equal(got, expected, 64 * (size_t)r.n_vocab * sizeof *got);
    run_close(&r);
    r = open_default(PI_KERNELS_SCALAR, PI_CACHE_Q8_0, 64, 1);
    run_tokens(&r, tokens, 64, 0, got);
    check_near("q8_0 cache", got, expected, 64, r.n_vocab, 1e-3);
    assert_memory_not_equal(got, expected, 64 * (size_t)r.n_vocab * sizeof *got);
    run_close(&r);
}

/* A batch of one has no choice of products, so every bit must agree; 4 threads are more than some
 * machines have. Scalar products give equal sums in either layout, so with them any batch
 * agrees. */
static void test_threads(void **state) {
    (void)state;
    static const struct {
        pi_kernels kernels;
        int batch;
    } cases[] = {{PI_KERNELS_AUTO, 1}, {PI_KERNELS_SCALAR, 1}, {PI_KERNELS_SCALAR, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int n_threads = 1; n_threads <= 4; n_threads++) {
            run_model r = open_default(cases[i].kernels, PI_CACHE_F16, cases[i].batch, n_threads);
            assert_int_equal(pi_context_threads(r.context), n_threads);
            float *to = n_threads == 1 ? expected : got;
            run_tokens(&r, tokens, N_TOKENS, cases[i].batch, to);
            if (n_threads > 1) check_same(got, expected, N_TOKENS, r.n_vocab);
            run_close(&r);
        }
    }
}

/* Far more threads than most test machines have cores: the run is slower, but ends with the same
 * answer; also a prompt in batches. */
static void test_crowd(void **state) {
    (void)state;
    enum { CROWD = 24 };
    run_model r = open_default(PI_KERNELS_SCALAR, PI_CACHE_F16, 16, 1);
    run_tokens(&r, tokens, N_TOKENS, 1, expected);
    run_close(&r);
    r = open_default(PI_KERNELS_SCALAR, PI_CACHE_F16, 16, CROWD);
    run_tokens(&r, tokens, N_TOKENS, 1, got);
    check_same(got, expected, N_TOKENS, r.n_vocab);
    run_tokens(&r, tokens, N_TOKENS, 16, got);
    check_same(got, expected, N_TOKENS, r.n_vocab);
    run_close(&r);
}

static void test_rewind(void **state) {
    (void)state;
    run_model r = open_default(PI_KERNELS_AUTO, PI_CACHE_F16, 64, 2);
    pi_session *s = run_session(&r, N_TOKENS);
    size_t row = (size_t)r.n_vocab;
    run_feed(&r, s, tokens, N_TOKENS, 1, expected);
    for (int keep = N_TOKENS; keep >= 0; keep -= 7) {
        assert_int_equal(pi_session_rewind(s, keep, NULL), PI_OK);
        assert_int_equal(pi_session_length(s), keep);
        /* First another text, so that the cache behind the prefix is overwritten. */
        if (keep < N_TOKENS) {
            run_feed(&r, s, tokens + 100, N_TOKENS - keep, 1, got);
            assert_int_equal(pi_session_rewind(s, keep, NULL), PI_OK);
            run_feed(&r, s, tokens + keep, N_TOKENS - keep, 1, got);
            check_same(got, expected + (size_t)keep * row, N_TOKENS - keep, r.n_vocab);
        }
    }
    pi_session_destroy(s);
    run_close(&r);
}

/* Sessions of different lengths that grow in shared calls answer as each does alone. */
static void test_shared_passes(void **state) {
    (void)state;
    enum { N_SESSIONS = 5, ROUNDS = 6 };
    static const pi_kernels kernels[] = {PI_KERNELS_SCALAR, PI_KERNELS_AUTO};
    for (int k = 0; k < 2; k++) {
        /* A batch smaller than some rounds, so that sessions are split in the middle. */
        run_model r = open_default(kernels[k], PI_CACHE_F32, 16, 2);
        pi_session *s[N_SESSIONS];
        float *alone[N_SESSIONS];
        int fed[N_SESSIONS] = {0};
        for (int i = 0; i < N_SESSIONS; i++) {
            alone[i] = calloc(N_TOKENS * (size_t)r.n_vocab, sizeof(float));
            run_tokens(&r, tokens + 10 * i, N_TOKENS, 1, alone[i]);
            s[i] = run_session(&r, N_TOKENS);
        }
        for (int round = 0; round < ROUNDS; round++) {
            pi_input in[N_SESSIONS];
            for (int i = 0; i < N_SESSIONS; i++)
                in[i] = (pi_input){.session = s[i],
                                   .tokens = tokens + 10 * i + fed[i],
                                   .n_tokens = 1 + (3 * i + 2 * round) % 10,
                                   .logits = PI_LOGITS_LAST};
            assert_int_equal(pi_forward(r.context, in, N_SESSIONS, NULL), PI_OK);
            assert_int_equal(pi_logits_rows(r.context), N_SESSIONS);
            for (int i = 0; i < N_SESSIONS; i++) {
                fed[i] += in[i].n_tokens;
                assert_int_equal(pi_session_length(s[i]), fed[i]);
                check_near("shared pass", pi_logits(r.context, i),
                           alone[i] + (size_t)(fed[i] - 1) * (size_t)r.n_vocab, 1, r.n_vocab,
                           order_gate);
            }
        }
        for (int i = 0; i < N_SESSIONS; i++) {
            pi_session_destroy(s[i]);
            free(alone[i]);
        }
        run_close(&r);
    }
}

/* Inputs that want no row, the last row or all rows, in one call of several ubatches. */
static void test_wanted_rows(void **state) {
    (void)state;
    enum { N_INPUTS = 4, EACH = 20 };
    static const pi_logits_wanted wanted[N_INPUTS] = {PI_LOGITS_ALL, PI_LOGITS_NONE, PI_LOGITS_LAST,
                                                      PI_LOGITS_ALL};
    pi_context_options o = run_exact_options();
    run_model first = open_default(PI_KERNELS_SCALAR, PI_CACHE_F32, 64, 1);
    run_close(&first);
    o.n_batch = 7;
    o.n_logits = 2 * EACH + 1;
    run_model r = run_open(MODEL_PATH, &o);
    pi_input in[N_INPUTS];
    for (int i = 0; i < N_INPUTS; i++)
        in[i] = (pi_input){.session = run_session(&r, EACH),
                           .tokens = tokens + i * EACH,
                           .n_tokens = EACH,
                           .logits = wanted[i]};
    assert_int_equal(pi_forward(r.context, in, N_INPUTS, NULL), PI_OK);
    assert_int_equal(pi_logits_rows(r.context), 2 * EACH + 1);
    memcpy(got, pi_logits(r.context, 0), (2 * EACH + 1) * (size_t)r.n_vocab * sizeof *got);
    size_t row = (size_t)r.n_vocab;
    run_tokens(&r, tokens, EACH, 1, expected);
    check_near("all", got, expected, EACH, r.n_vocab, order_gate);
    run_tokens(&r, tokens + 2 * EACH, EACH, 1, expected);
    check_near("last", got + EACH * row, expected + (EACH - 1) * row, 1, r.n_vocab, order_gate);
    run_tokens(&r, tokens + 3 * EACH, EACH, 1, expected);
    check_near("all again", got + (EACH + 1) * row, expected, EACH, r.n_vocab, order_gate);
    for (int i = 0; i < N_INPUTS; i++) {
        assert_int_equal(pi_session_length(in[i].session), EACH);
        assert_int_equal(pi_session_rewind(in[i].session, 0, NULL), PI_OK);
        in[i].logits = PI_LOGITS_NONE;
    }
    assert_int_equal(pi_forward(r.context, in, N_INPUTS, NULL), PI_OK);
    assert_int_equal(pi_logits_rows(r.context), 0);
    for (int i = 0; i < N_INPUTS; i++) pi_session_destroy(in[i].session);
    run_close(&r);
}

/* Small ubatches over long contexts are split over tasks and merged, larger ubatches are not: both
 * must agree. `length` positions come first, then a few tokens, once in a small ubatch, once as
 * part of a larger one that repeats some of the positions before. */
static void check_long(pi_kernels kernels, pi_cache_type cache, int length, double gate) {
    enum { SMALL = 5, LARGE = 24 };
    tiny_model t = tiny_default();
    t.n_layer = 1;
    t.n_embd = 8;
    t.n_ff[0] = 8;
    t.head_dim = t.n_rot = cache >= PI_CACHE_Q8_0 ? 32 : 4;
    tiny_set_heads(&t, 2, 1);
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    o.n_batch = 512;
    o.n_threads = 2;
    o.cache_k = o.cache_v = cache;
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, length + LARGE);
    int32_t *ids = calloc((size_t)length + LARGE, sizeof *ids);
    run_random_tokens(9, r.n_vocab, ids, length + LARGE);
    pi_input in = {.session = s, .tokens = ids, .n_tokens = length, .logits = PI_LOGITS_NONE};
    assert_int_equal(pi_forward(r.context, &in, 1, NULL), PI_OK);
    run_feed(&r, s, ids + length, LARGE, 0, expected);
    assert_int_equal(pi_session_rewind(s, length, NULL), PI_OK);
    run_feed(&r, s, ids + length, LARGE, 1, got);
    check_near("one at a time", got, expected, LARGE, r.n_vocab, gate);
    assert_int_equal(pi_session_rewind(s, length, NULL), PI_OK);
    run_feed(&r, s, ids + length, LARGE, SMALL, got);
    check_near("a few at a time", got, expected, LARGE, r.n_vocab, gate);
    free(ids);
    pi_session_destroy(s);
    run_close(&r);
}

static void test_long_contexts(void **state) {
    (void)state;
    /* Lengths around which one range becomes two, then three. */
    static const int lengths[] = {1016, 1020, 1023, 1024, 1025, 2040, 2045};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i += EVERY_LENGTH) {
        check_long(PI_KERNELS_SCALAR, PI_CACHE_F32, lengths[i], order_gate);
        check_long(PI_KERNELS_AUTO, PI_CACHE_F16, lengths[i], 1e-6);
        check_long(PI_KERNELS_AUTO, PI_CACHE_Q8_0, lengths[i], 1e-4);
        check_long(PI_KERNELS_AUTO, PI_CACHE_Q4_0, lengths[i], 1e-2);
    }
}

/* Beyond 32 ranges of 1,024 positions the ranges grow. */
static void test_very_long_context(void **state) {
    (void)state;
#ifdef TEST_SAMPLED
    fprintf(stderr,
            "*** SKIPPED: 32,768 positions take minutes on an emulator or under a sanitizer ***\n");
    skip();
#endif
    check_long(PI_KERNELS_AUTO, PI_CACHE_F16, 32 * 1024 - 10, 1e-6);
}

/* A short and a long session in one small ubatch: only one of them is split. */
static void test_long_and_short(void **state) {
    (void)state;
    enum { LONG = 1500 };
    run_model r = open_default(PI_KERNELS_AUTO, PI_CACHE_F32, 64, 2);
    int32_t ids[LONG + 1];
    run_random_tokens(11, r.n_vocab, ids, LONG + 1);
    pi_session *s[2] = {run_session(&r, LONG + 1), run_session(&r, 8)};
    pi_input in[2] = {INPUT(s[0], ids, LONG, PI_LOGITS_NONE), INPUT(s[1], ids, 3, PI_LOGITS_NONE)};
    assert_int_equal(pi_forward(r.context, in, 2, NULL), PI_OK);
    for (int i = 0; i < 2; i++) {
        in[i] = (pi_input)INPUT(s[i], ids + (i ? 3 : LONG), 1, PI_LOGITS_LAST);
        assert_int_equal(pi_forward(r.context, &in[i], 1, NULL), PI_OK);
        memcpy(expected + i * r.n_vocab, pi_logits(r.context, 0),
               (size_t)r.n_vocab * sizeof(float));
        assert_int_equal(pi_session_rewind(s[i], i ? 3 : LONG, NULL), PI_OK);
    }
    assert_int_equal(pi_forward(r.context, in, 2, NULL), PI_OK);
    check_near("long and short", pi_logits(r.context, 0), expected, 2, r.n_vocab, order_gate);
    for (int i = 0; i < 2; i++) pi_session_destroy(s[i]);
    run_close(&r);
}

static void test_counters(void **state) {
    (void)state;
    run_model r = open_default(PI_KERNELS_SCALAR, PI_CACHE_F16, 16, 1);
    pi_session *s = run_session(&r, 64);
    pi_counters a, b, c;
    pi_model_info info;
    pi_model_get_info(r.model, &info);
    pi_context_get_counters(r.context, &a);
    assert_true(a.ubatches == 0 && a.tokens == 0 && a.weight_bytes == 0 && a.kv_bytes == 0);
    run_feed(&r, s, tokens, 1, 1, got);
    pi_context_get_counters(r.context, &a);
    assert_true(a.ubatches == 1 && a.tokens == 1);
    /* All weights are read once, except that one row of the embedding is read. */
    uint64_t row = (uint64_t)info.n_embd * sizeof(float);
    uint64_t table = row * (uint64_t)info.n_vocab;
    uint64_t vectors = (2 * 2 + 1) * row; /* norms; the test accepts them counted or not */
    uint64_t most = info.weight_bytes - table + row;
    assert_in_range(a.weight_bytes, most - vectors, most);
    assert_int_equal(a.ffn_bytes, 2 * 3 * row * (uint64_t)info.n_ff);
    assert_int_equal(a.ffn_total_bytes, a.ffn_bytes);
    /* K and V of 2 layers, 2 KV heads of 32 halves, one position. */
    assert_int_equal(a.kv_bytes, 2 * 2 * 2 * 32 * 2);

    pi_input in = {.session = s, .tokens = tokens, .n_tokens = 40, .logits = PI_LOGITS_NONE};
    assert_int_equal(pi_forward(r.context, &in, 1, NULL), PI_OK);
    pi_context_get_counters(r.context, &b);
    assert_int_equal(b.ubatches - a.ubatches, 3); /* 16 + 16 + 8 */
    assert_int_equal(b.tokens - a.tokens, 40);
    uint64_t dense = a.weight_bytes - row;
    assert_int_equal(b.weight_bytes - a.weight_bytes, 3 * (dense - table) + 40 * row);

    assert_int_equal(pi_session_rewind(s, 64 - 50, NULL), PI_OK);
    in.n_tokens = 60; /* does not fit: nothing is counted */
    assert_int_equal(pi_forward(r.context, &in, 1, NULL), PI_ERR_LIMIT);
    pi_context_get_counters(r.context, &c);
    assert_memory_equal(&b, &c, sizeof b);
    pi_session_destroy(s);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_cache_types),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_shared_passes),
        cmocka_unit_test(test_wanted_rows),
        cmocka_unit_test(test_long_contexts),
        cmocka_unit_test(test_very_long_context),
        cmocka_unit_test(test_long_and_short),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests_name("pi_session", tests, NULL, NULL);
}
