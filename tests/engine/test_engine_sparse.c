/* test_engine_sparse.c: sparse feed-forward layers against a plain pass in double precision, under
 * all kernels, in one batch (tiles), a few tokens at a time and one by one; and the properties that
 * hold between modes.
 *
 * Scores near the threshold may fall to either side after rounding; with float weights that takes a
 * score within about 1e-6 of the threshold, which the seeds here do not have. So choices are
 * compared with float weights; block types are compared where results do not depend on choices.
 * Bounds as in test_engine_forward.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plain_forward.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_sparse.gguf"

#ifdef TEST_SAMPLED
enum { N_TOKENS = 19, N_WAYS = 3 };
#else
enum { N_TOKENS = 41, N_WAYS = 4 };
#endif
enum { MAX_LOGITS = N_TOKENS * 64 };

static int32_t tokens[N_TOKENS];
static float want[MAX_LOGITS], got[MAX_LOGITS];

/* ReLU, two layers of unequal width, rows per neuron. */
static tiny_model base_model(void) {
    tiny_model t = tiny_default();
    t.activation = "relu";
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = 608; /* two parts, not whole tiles of 256 */
    t.n_ff[1] = 96;
    t.sparse.down_t = true;
    return t;
}

static tiny_model with_predictor(const char *kind) {
    tiny_model t = base_model();
    t.sparse.predictor = kind;
    t.sparse.rank = 32;
    return t;
}

static pi_context_options options_for(pi_kernels kernels, pi_mode mode) {
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    o.mode = mode;
    o.n_threads = 2;
    return o;
}

static void expect_near(const char *what, const tiny_model *t, pi_kernels kernels, int piece) {
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * t->n_vocab);
    if (!(nmse <= plain_gate(t, kernels)))
        fail_msg("%s, kernels %d, pieces of %d: NMSE %g is above %g", what, (int)kernels, piece,
                 nmse, plain_gate(t, kernels));
}

/* Needs `want`; every division of the tokens gives it, under all kernels. */
static void compare_ways(const char *what, const tiny_model *t, pi_mode mode) {
    static const int pieces[] = {0, 1, 5, 8}; /* the first N_WAYS */
    for (int k = 0; k < RUN_KERNELS; k++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
        pi_context_options o = options_for(run_kernels[k], mode);
        run_model r = run_open(MODEL_PATH, &o);
        for (int i = 0; i < N_WAYS; i++) {
            run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
            expect_near(what, t, run_kernels[k], pieces[i]);
        }
        run_close(&r);
    }
}

static void make(const tiny_model *t) {
    assert_true(N_TOKENS * t->n_vocab <= MAX_LOGITS);
    tiny_write(t, MODEL_PATH);
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
}

static void plain_logits(const tiny_model *t, plain_mode mode) {
    static double exact[MAX_LOGITS];
    plain_forward(t, MODEL_PATH, mode, tokens, N_TOKENS, exact);
    for (int i = 0; i < N_TOKENS * t->n_vocab; i++) want[i] = (float)exact[i];
}

static void check(const char *what, const tiny_model *t, plain_mode plain, pi_mode mode) {
    make(t);
    plain_logits(t, plain);
    compare_ways(what, t, mode);
}

/* Logits of one mode, one token at a time, into `out`. */
static void run_mode(pi_mode mode, pi_kernels kernels, float threshold, float *out) {
    pi_context_options o = options_for(kernels, mode);
    o.threshold = threshold;
    run_model r = run_open(MODEL_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 1, out);
    run_close(&r);
}

/* ---- modes against the plain pass ------------------------------------------------------------ */

static void test_dense(void **state) {
    (void)state;
    tiny_model t = base_model();
    check("dense, rows per neuron", &t, PLAIN_DENSE, PI_MODE_DENSE);
    t.activation = "silu";
    check("dense, silu", &t, PLAIN_DENSE, PI_MODE_DENSE);
}

static void test_exact(void **state) {
    (void)state;
    static const char *const activations[] = {"relu", "drelu", "relu_squared", "fatrelu"};
    for (int i = 0; i < 4; i++) {
        tiny_model t = base_model();
        t.activation = activations[i];
        t.threshold = 0.3f;
        t.ffn_bias = i % 2;
        check(activations[i], &t, PLAIN_DENSE, PI_MODE_EXACT);
        t.sparse = (tiny_sparse){0};
        check("exact, plain down", &t, PLAIN_DENSE, PI_MODE_EXACT);
    }
}

static void test_predict(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    static const char *const activations[] = {"relu", "drelu", "fatrelu"};
    for (int k = 0; k < 3; k++) {
        for (int a = 0; a < 3; a++) {
            tiny_model t = with_predictor(kinds[k]);
            t.activation = activations[a];
            t.threshold = 0.2f;
            t.ffn_bias = a == 1;
            t.sparse.residual = a == 1 && k < 2;
            t.sparse.no_bias = a == 2;
            t.sparse.threshold = a == 2 ? -0.4f : a == 1 ? 0.25f : 0;
            check(kinds[k], &t, PLAIN_PREDICT, PI_MODE_PREDICT);
        }
    }
}

/* Files of the original PowerInfer have ranks of any size, in F16 or F32. Choices are compared in
 * F32, other types with thresholds that all scores pass or none does. */
static void test_odd_ranks(void **state) {
    (void)state;
    static const int ranks[] = {1, 7, 33, 100};
    static const char *const types[] = {"f32", "f16", "bf16"};
    for (int i = 0; i < 4; i++) {
        tiny_model t = with_predictor("relu_mlp");
        t.sparse.rank = ranks[i];
        t.sparse.residual = true;
        t.sparse.no_bias = true;
        t.sparse.threshold = ranks[i] == 1 ? 0.05f : 0.25f; /* rank 1: half are exactly 0 */
        check("odd rank", &t, PLAIN_PREDICT, PI_MODE_PREDICT);
        for (int k = 0; k < 3; k++) {
            t.type = types[k];
            t.sparse.threshold = -1e30f;
            check("odd rank, all pass", &t, PLAIN_DENSE, PI_MODE_PREDICT);
        }
        t.type = "f16";
        t.sparse.threshold = 0.25f;
        t.sparse.pwri = true;
        t.activation = NULL;
        check("odd rank, PWRI", &t, PLAIN_PREDICT, PI_MODE_AUTO);
    }
}

static void test_threshold(void **state) {
    (void)state;
    static const char *const activations[] = {"silu", "gelu", "relu"};
    for (int i = 0; i < 6; i++) {
        int a = i / 2;
        tiny_model t = base_model();
        t.activation = activations[a];
        t.sparse.cut = 0.1f;
        t.sparse.cut_factors = i % 2;
        t.sparse.down_t = true;
        check(activations[a], &t, PLAIN_THRESHOLD, PI_MODE_THRESHOLD);
    }
}

/* Bytes of the FFN that mode threshold reads for the tokens, one at a time; logits in `got`. */
static uint64_t bytes_read(void) {
    pi_context_options o = options_for(PI_KERNELS_AUTO, PI_MODE_THRESHOLD);
    run_model r = run_open(MODEL_PATH, &o);
    pi_counters n;
    run_tokens(&r, tokens, N_TOKENS, 1, got);
    pi_context_get_counters(r.context, &n);
    run_close(&r);
    return n.ffn_bytes;
}

/* A second threshold, of hidden values, also after a first one that leaves out nothing. */
static void test_two_thresholds(void **state) {
    (void)state;
    static const char *const activations[] = {"silu", "gelu", "relu"};
    for (int i = 0; i < 6; i++) {
        tiny_model t = base_model();
        t.activation = activations[i / 2];
        t.sparse.cut = i % 2 ? 0.1f : 1e-30f;
        t.sparse.cut_factors = i == 1;
        t.sparse.cut_down = 0.05f;
        check(activations[i / 2], &t, PLAIN_THRESHOLD, PI_MODE_THRESHOLD);
    }
}

/* Rows of down that are left out are not read; a second threshold that no hidden value is up to
 * changes nothing. */
static void test_rows_of_down(void **state) {
    (void)state;
    tiny_model t = base_model();
    t.activation = "silu";
    t.sparse.cut = 0.05f;
    make(&t);
    uint64_t one = bytes_read();
    memcpy(want, got, sizeof want);
    t.sparse.cut_down = 1e-30f;
    make(&t);
    assert_int_equal(bytes_read(), one);
    assert_memory_equal(want, got, sizeof want);
    t.sparse.cut_down = 0.1f;
    make(&t);
    uint64_t two = bytes_read();
    assert_true(two < one);
    size_t row = (size_t)t.n_embd * sizeof(float);
    assert_int_equal((one - two) % row, 0); /* whole rows of F32 */
    assert_memory_not_equal(want, got, sizeof want);
}

/* Any type of weights; `exact` does not depend on the rounding of scores. */
static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f16",  "bf16", "q8_0",   "q4_0", "q4_1",
                                        "q5_0", "q5_1", "iq4_nl", "mxfp4"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_model t = base_model();
        t.type = types[i];
        check(types[i], &t, PLAIN_DENSE, PI_MODE_EXACT);
        check(types[i], &t, PLAIN_DENSE, PI_MODE_DENSE);
    }
    static const char *const k_types[] = {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"};
    for (size_t i = 0; i < sizeof k_types / sizeof k_types[0]; i++) {
        tiny_model t = base_model();
        t.type = k_types[i];
        t.n_embd = 256;
        t.head_dim = t.n_rot = 64;
        t.n_vocab = 40;
        make(&t);
        plain_logits(&t, PLAIN_DENSE);
        compare_ways(k_types[i], &t, PI_MODE_EXACT);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Six experts, a token uses three; each expert has two parts and a rest. */
static tiny_model with_experts(const char *kind) {
    tiny_model t = with_predictor(kind);
    t.experts = (tiny_experts){.n = 6, .n_used = 3, .n_ff = 544};
    return t;
}

static void test_predict_experts(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    static const char *const activations[] = {"relu", "drelu", "fatrelu"};
    for (int k = 0; k < 3; k++) {
        for (int a = 0; a < 3; a++) {
            tiny_model t = with_experts(kinds[k]);
            t.activation = activations[a];
            t.threshold = 0.2f;
            t.experts.biased = a == 1;
            t.sparse.no_bias = a == 2;
            t.sparse.threshold = a == 2 ? -0.4f : a == 1 ? 0.25f : 0;
            if (k == a) check("experts, exact", &t, PLAIN_DENSE, PI_MODE_EXACT);
            check(kinds[k], &t, PLAIN_PREDICT, PI_MODE_PREDICT);
        }
    }
    tiny_model t = with_experts("lowrank"); /* the first layer is dense, with a predictor */
    t.experts.n_dense = 1;
    check("dense layer and experts", &t, PLAIN_PREDICT, PI_MODE_PREDICT);
}

/* If every neuron is selected, the bits are those of mode exact. */
static void test_experts_open(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    static const char *const types[] = {"f16", "q4_0", "q8_0"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = with_experts(kinds[i]);
        t.type = types[i];
        make(&t);
        for (int k = 0; k < RUN_KERNELS; k++) {
            if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
            run_mode(PI_MODE_EXACT, run_kernels[k], NAN, want);
            run_mode(PI_MODE_PREDICT, run_kernels[k], -1e30f, got);
            assert_memory_equal(got, want, (size_t)(N_TOKENS * t.n_vocab) * sizeof *got);
            run_mode(PI_MODE_PREDICT, run_kernels[k], 1e30f, got);
            assert_memory_not_equal(got, want, (size_t)(N_TOKENS * t.n_vocab) * sizeof *got);
        }
    }
}

/* ---- properties ------------------------------------------------------------------------------ */

static void test_open_threshold_is_dense(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = with_predictor(kinds[i]);
        t.type = i == 1 ? "q8_0" : "f32";
        make(&t);
        plain_logits(&t, PLAIN_DENSE);
        for (int k = 0; k < RUN_KERNELS; k++) {
            if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
            run_mode(PI_MODE_PREDICT, run_kernels[k], -1e30f, got);
            expect_near("threshold -1e30", &t, run_kernels[k], 1);
        }
    }
}

/* No neuron is selected: the FFN blocks add only the bias of down. */
static void test_closed_threshold(void **state) {
    (void)state;
    tiny_model t = with_predictor("lowrank");
    t.ffn_bias = true;
    make(&t);
    t.sparse.threshold = 1e30f;
    plain_logits(&t, PLAIN_PREDICT);
    run_mode(PI_MODE_PREDICT, PI_KERNELS_AUTO, 1e30f, got);
    expect_near("threshold 1e30", &t, PI_KERNELS_AUTO, 1);
}

/* The bits do not depend on the number of threads. */
static void test_threads(void **state) {
    (void)state;
    static const pi_mode modes[] = {PI_MODE_EXACT, PI_MODE_PREDICT, PI_MODE_DENSE};
    for (int i = 0; i < 12; i++) {
        tiny_model t = i % 2 ? with_experts("lowrank") : with_predictor("lowrank");
        make(&t);
        int m = i / 2 % 3, piece = i < 6 ? 1 : 5;
        for (int threads = 1; threads <= 5; threads += 2) {
            pi_context_options o = options_for(PI_KERNELS_AUTO, modes[m]);
            o.n_threads = threads;
            run_model r = run_open(MODEL_PATH, &o);
            run_tokens(&r, tokens, N_TOKENS, piece, threads == 1 ? want : got);
            run_close(&r);
            if (threads == 1) continue;
            assert_memory_equal(got, want, (size_t)(N_TOKENS * t.n_vocab) * sizeof *got);
        }
    }
}

static const char *mode_of(const char *path, pi_mode mode, float max_loss) {
    pi_context_options o = pi_context_default_options();
    o.mode = mode;
    o.max_loss = max_loss;
    run_model r = run_open(path, &o);
    const char *name = pi_context_mode(r.context);
    run_close(&r);
    return name;
}

static void refused(const char *path, pi_mode mode, const char *why) {
    pi_context_options o = pi_context_default_options();
    pi_model *model;
    pi_context *context;
    pi_error err;
    o.mode = mode;
    assert_int_equal(pi_model_open(path, NULL, &model, &err), PI_OK);
    assert_int_equal(pi_context_create(model, &o, &context, &err), PI_ERR_UNSUPPORTED);
    assert_null(context);
    assert_non_null(strstr(err.message, why));
    pi_model_close(model);
}

/* A mode without data in any layer is refused; auto never is. */
static void test_choice_of_mode(void **state) {
    (void)state;
    tiny_model t = with_predictor("lowrank"); /* with a measured loss of 0.4%, but no statistics */
    tiny_write(&t, MODEL_PATH);
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_AUTO, 0.01f), "exact");
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_PREDICT, 0), "predict");
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_DENSE, 0.01f), "dense");
    t = base_model();
    tiny_write(&t, MODEL_PATH);
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_AUTO, 0.01f), "exact");
    refused(MODEL_PATH, PI_MODE_PREDICT, "mode predict does not apply: activation relu: ");
    refused(MODEL_PATH, PI_MODE_THRESHOLD, "mode threshold does not apply: ");
    t.activation = "silu";
    tiny_write(&t, MODEL_PATH);
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_AUTO, 0.01f), "dense");
    refused(MODEL_PATH, PI_MODE_EXACT, "activation silu: its values are never exactly zero");
    t.sparse.cut = 0.1f;
    tiny_write(&t, MODEL_PATH);
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_AUTO, 0.01f), "threshold");
    assert_string_equal(mode_of(MODEL_PATH, PI_MODE_AUTO, 0.001f), "dense");
}

/* The counts are those of the neurons that the plain pass needs. Mode dense reads all of gate and
 * up, but only the needed rows of down: the others would be multiplied by zero. */
static void test_counters(void **state) {
    (void)state;
    tiny_model t = base_model();
    make(&t);
    uint64_t row = (uint64_t)t.n_embd * sizeof(float), all = (uint64_t)(t.n_ff[0] + t.n_ff[1]);
    uint64_t rows = 0; /* rows of up and down in mode exact */
    for (int dense = 0; dense < 2; dense++) {
        pi_context_options o = options_for(PI_KERNELS_AUTO, dense ? PI_MODE_DENSE : PI_MODE_EXACT);
        pi_counters n;
        run_model r = run_open(MODEL_PATH, &o);
        run_tokens(&r, tokens, N_TOKENS, 1, got);
        pi_context_get_counters(r.context, &n);
        run_close(&r);
        assert_int_equal(n.ffn_total_bytes, 3 * row * all * N_TOKENS);
        if (dense) {
            assert_int_equal(n.ffn_bytes, (2 * all * N_TOKENS + rows / 2) * row);
            assert_int_equal(n.gathered_bytes, rows / 2 * row);
            continue;
        }
        /* With random weights a neuron is active for half of the tokens. */
        rows = (n.ffn_bytes - row * all * N_TOKENS) / row;
        assert_true(rows > all * N_TOKENS * 8 / 10 && rows < all * N_TOKENS * 12 / 10);
        assert_int_equal(n.gathered_bytes, rows * row);
        assert_true(n.weight_bytes > n.ffn_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_predict_experts),
        cmocka_unit_test(test_experts_open),
        cmocka_unit_test(test_odd_ranks),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_two_thresholds),
        cmocka_unit_test(test_rows_of_down),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_open_threshold_is_dense),
        cmocka_unit_test(test_closed_threshold),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_choice_of_mode),
        cmocka_unit_test(test_counters),
    };
    int failed = cmocka_run_group_tests_name("engine_sparse", tests, NULL, NULL);
    remove(MODEL_PATH);
    return failed;
}
