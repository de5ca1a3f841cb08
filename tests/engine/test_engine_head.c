/* test_engine_head.c: the output head with a predictor. Scores and logits are computed again in
 * double, from the hidden states and the decoded weights. Logits of candidates must equal those of
 * the dense head, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "quant.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_head.gguf"

/* More than two pieces of the vocabulary, and not a multiple of a row tile. */
enum { N_TOKENS = 21, N_BATCH = 24, N_CTX = 64, N_EMBD = 64, N_VOCAB = 603, RANK = 32 };

static int32_t tokens[N_TOKENS];
static float hidden[N_TOKENS][N_EMBD], dense[N_TOKENS][N_VOCAB], logits[N_TOKENS][N_VOCAB],
    again[N_TOKENS][N_VOCAB];

static tiny_model base_model(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.n_embd = N_EMBD;
    t.head_dim = t.n_rot = 16;
    t.n_vocab = N_VOCAB;
    t.head = (tiny_head){.rank = RANK, .type = "q8_0", .distance = 8, .loss = 0.002f};
    return t;
}

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    return run_engine_open_tiny(t, MODEL_PATH);
}

/* One token's results do not depend on the others, except with `many`. */
static engine_options options_for(pi_head head, int n_threads, bool many) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_BATCH, N_BATCH);
    o.n_threads = n_threads;
    o.plan.few_only = !many;
    o.plan.predict_head = head;
    return o;
}

/* Logits of all tokens, `piece` at a time; returns the bytes that were read. */
static uint64_t run(const model *m, const engine_options *o, int piece, float out[][N_VOCAB]) {
    engine_context *c = run_engine_context(m, o);
    pi_session *s = run_engine_session(c, N_CTX);
    for (int done = 0, n; done < N_TOKENS; done += n) {
        n = piece < N_TOKENS - done ? piece : N_TOKENS - done;
        const pi_input in = {.session = s,
                             .tokens = tokens + done,
                             .n_tokens = n,
                             .logits = PI_LOGITS_ALL,
                             .hidden = PI_HIDDEN_ALL};
        run_engine_forward(c, &in, 1);
        for (int i = 0; i < n; i++) {
            memcpy(hidden[done + i], engine_hidden(c, i), sizeof hidden[0]);
            memcpy(out[done + i], engine_logits(c, i), sizeof out[0]);
        }
    }
    uint64_t n_bytes = engine_get_counters(c).weight_bytes;
    engine_session_destroy(s);
    engine_context_destroy(c);
    return n_bytes;
}

static double product(const model_tensor *w, int64_t row, const double *x) {
    float values[N_EMBD];
    double sum = 0;
    quant_find(w->type)->dequantize((const uint8_t *)w->data + (size_t)row * w->row_bytes, values,
                                    w->n_in);
    for (int64_t k = 0; k < w->n_in; k++) sum += (double)values[k] * x[k];
    return sum;
}

static double capped(const model *m, double x) {
    double cap = (double)m->hp.logit_softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* Scores of all tokens for a hidden state; of a sketch before the soft cap. */
static void score(const model *m, const float *h, double *out) {
    const float *bias = m->t[ROLE_OUTPUT_BIAS].data;
    bool sketch = m->sparse.head.kind == HEAD_SKETCH;
    double x[N_EMBD], middle[N_EMBD];
    for (int k = 0; k < N_EMBD; k++) x[k] = (double)h[k];
    for (int k = 0; k < RANK; k++) middle[k] = product(&m->t[ROLE_OUTPUT_FC1], k, x);
    for (int i = 0; i < N_VOCAB; i++) {
        out[i] = product(&m->t[ROLE_OUTPUT_FC2], i, middle);
        if (sketch)
            out[i] = out[i] * (double)m->t[ROLE_OUTPUT].scale * (double)m->hp.logit_scale +
                     (bias ? (double)bias[i] : 0);
    }
}

/* Scores are computed from rounded activations: within this of the reference, per unit of their
 * deviation. */
static const double tolerance = 0.1;

/* Checks one row: candidates have the dense head's logits, others their scores. Returns the number
 * of candidates. */
static int check_row(const model *m, int row, bool same_kernels) {
    const model_head *h = &m->sparse.head;
    double scores[N_VOCAB], best = -INFINITY, squares = 0;
    int n = 0, n_sure = 0;
    score(m, hidden[row], scores);
    for (int i = 0; i < N_VOCAB; i++) {
        best = fmax(best, scores[i]);
        squares += scores[i] * scores[i];
    }
    double limit = h->kind == HEAD_SKETCH ? best - (double)h->distance : fmin(best, 0);
    double slack = tolerance * sqrt(squares / N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++) {
        float got = logits[row][i], exact = dense[row][i];
        bool candidate = same_kernels ? got == exact : fabs((double)(got - exact)) < slack;
        double left = h->kind == HEAD_SKETCH ? capped(m, scores[i]) : scores[i] - 1e5;
        bool as_scored = fabs((double)got - left) < slack;
        if (scores[i] > limit + slack) assert_true(candidate);
        if (scores[i] < limit - slack) assert_true(as_scored);
        assert_true(candidate || as_scored);
        n += candidate && !(as_scored && scores[i] < limit);
        n_sure += scores[i] > limit + slack || scores[i] < limit - slack;
    }
    assert_true(n_sure > N_VOCAB * 3 / 4); /* the reference decides */
    assert_true(n >= 1);
    return n;
}

static void check_model(model *m) {
    const engine_options plain = options_for(PI_HEAD_DENSE, 2, false);
    uint64_t all = run(m, &plain, 1, dense), read = 0;
    int64_t n = 0;
    const size_t row_bytes = m->t[ROLE_OUTPUT].row_bytes;
    for (int n_threads = 1; n_threads <= 3; n_threads++)
        for (int piece = 1; piece <= 8; piece += piece < 4 ? 1 : 4) {
            const engine_options o = options_for(PI_HEAD_PREDICT, n_threads, false);
            bool first = n_threads == 1 && piece == 1;
            uint64_t n_bytes = run(m, &o, piece, first ? logits : again);
            if (first) read = n_bytes;
            if (!first) assert_memory_equal(logits, again, sizeof logits);
        }
    for (int i = 0; i < N_TOKENS; i++) n += check_row(m, i, true);
    uint64_t sketch = m->t[ROLE_OUTPUT_FC1].n_bytes + m->t[ROLE_OUTPUT_FC2].n_bytes;
    int64_t saved = (int64_t)(all - read), rows = N_TOKENS * (int64_t)N_VOCAB - n;
    int64_t expected = rows * (int64_t)row_bytes - N_TOKENS * (int64_t)sketch;
    /* the grey band: candidates that the reference does not know */
    assert_true(llabs(saved - expected) <= N_TOKENS * 24 * (int64_t)row_bytes);
    /* one ubatch with many rows */
    const engine_options many = options_for(PI_HEAD_PREDICT, 2, true);
    const engine_options dense_many = options_for(PI_HEAD_DENSE, 2, true);
    run(m, &dense_many, N_TOKENS, dense);
    run(m, &many, N_TOKENS, logits);
    for (int i = 0; i < N_TOKENS; i++) check_row(m, i, false);
}

/* ---- sketches -------------------------------------------------------------------------------- */

static void test_types(void **state) {
    static const char *const types[][2] = {{"f32", "f32"},   {"f16", "q8_0"},  {"q8_0", "q4_0"},
                                           {"q4_0", "q8_0"}, {"bf16", "bf16"}, {"q5_1", "f16"}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_model t = base_model("llama");
        t.head_type = types[i][0];
        t.head.type = types[i][1];
        model *m = open_model(&t);
        check_model(m);
        model_close(m);
    }
}

/* Biases, scales and caps apply to scores and logits alike. */
static void test_finished_logits(void **state) {
    (void)state;
    tiny_model t = base_model("qwen2");
    t.qkv_bias = t.head_bias = true;
    model *m = open_model(&t);
    m->hp.logit_scale = 0.25f;
    m->sparse.head.distance = 2;
    check_model(m);
    m->hp.logit_softcap = 3;
    check_model(m);
    model_close(m);
    t = base_model("llama");
    t.tied = true;
    m = open_model(&t);
    check_model(m);
    model_close(m);
}

/* Distance 0: one candidate; a long one: the dense head. */
static void test_distances(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.head.type = "f32";
    model *m = open_model(&t);
    const engine_options plain = options_for(PI_HEAD_DENSE, 2, false);
    const engine_options predict = options_for(PI_HEAD_PREDICT, 2, false);
    run(m, &plain, 1, dense);
    m->sparse.head.distance = 1e9f;
    run(m, &predict, 1, logits);
    assert_memory_equal(dense, logits, sizeof dense);
    m->sparse.head.distance = 0;
    run(m, &predict, 1, logits);
    for (int i = 0; i < N_TOKENS; i++) {
        int n = 0;
        for (int k = 0; k < N_VOCAB; k++) n += logits[i][k] == dense[i][k];
        assert_int_equal(n, 1);
    }
    model_close(m);
}

/* ---- the tensor of the original PowerInfer --------------------------------------------------- */

static tiny_model smallthinker(void) {
    tiny_model t = base_model("smallthinker");
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32};
    t.activation = "relu";
    t.head.profiler = true;
    return t;
}

static void test_profiler(void **state) {
    static const char *const types[] = {"q4_0", "q8_0", "f16", "f32"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_model t = smallthinker();
        t.head.type = types[i];
        model *m = open_model(&t);
        assert_int_equal(m->sparse.head.kind, HEAD_PROFILER);
        assert_int_equal(m->sparse.head.rank, RANK);
        check_model(m);
        model_close(m);
    }
}

/* Where no score is positive, the best token is the candidate. */
static void test_no_positive_score(void **state) {
    (void)state;
    tiny_model t = smallthinker();
    t.head.type = "f32";
    model *m = open_model(&t);
    /* one hidden value, the same sign for all tokens: scores have one sign */
    static float values[N_VOCAB * RANK];
    for (int i = 0; i < N_VOCAB; i++) values[i * RANK] = 1 + (float)(i * 7 % N_VOCAB);
    m->t[ROLE_OUTPUT_FC2].data = values;
    const engine_options plain = options_for(PI_HEAD_DENSE, 2, false);
    const engine_options predict = options_for(PI_HEAD_PREDICT, 2, false);
    run(m, &plain, 1, dense);
    run(m, &predict, 2, logits);
    int n_alone = 0, n_all = 0;
    for (int i = 0; i < N_TOKENS; i++) {
        int n = 0, top = 0;
        for (int k = 0; k < N_VOCAB; k++) {
            n += logits[i][k] == dense[i][k];
            if (logits[i][k] > logits[i][top]) top = k;
            assert_true(isfinite(logits[i][k]));
        }
        n_alone += n == 1;
        n_all += n == N_VOCAB;
        if (n == 1) assert_int_equal(values[top * RANK], 1); /* the least negative score */
    }
    assert_true(n_alone > 0 && n_all > 0);
    assert_int_equal(n_alone + n_all, N_TOKENS);
    model_close(m);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool predicts(const model *m, pi_head head, pi_mode mode, float max_loss) {
    engine_options o = run_engine_options(mode, N_BATCH, 1);
    o.plan.predict_head = head;
    o.plan.max_loss = max_loss;
    engine_context *c = run_engine_context(m, &o);
    bool found = engine_plan(c)->predicts_head;
    engine_context_destroy(c);
    return found;
}

static void test_auto(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    model *m = open_model(&t); /* losses: head 0.002, predictor 0.004 */
    m->sparse.head.rows = 0.1f;
    m->t[ROLE_OUTPUT].n_bytes /= 64; /* too small to pay */
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 1));
    m->t[ROLE_OUTPUT].n_bytes *= 1 << 16;
    assert_true(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 0.002f));
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 0.001f));
    assert_true(predicts(m, PI_HEAD_AUTO, PI_MODE_PREDICT, 0.0061f));
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_PREDICT, 0.0059f));
    assert_false(predicts(m, PI_HEAD_DENSE, PI_MODE_EXACT, 1));
    assert_true(predicts(m, PI_HEAD_PREDICT, PI_MODE_EXACT, 0));
    m->adapters_hash = 1;
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 1));
    m->adapters_hash = 0;
    m->sparse.head.loss = -0.01f; /* noise: not a gain, and not lossless */
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_PREDICT, 0.0039f));
    assert_true(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 1e-6f));
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 0));
    m->sparse.head.rows = 0.9f;
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 1));
    m->sparse.head.rows = 0.1f;
    m->sparse.head.loss = NAN;
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_EXACT, 1));
    model_close(m);
    t = smallthinker();
    m = open_model(&t);
    assert_false(predicts(m, PI_HEAD_AUTO, PI_MODE_DENSE, 1));
    assert_true(predicts(m, PI_HEAD_PREDICT, PI_MODE_DENSE, 1));
    model_close(m);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(const tiny_model *t, const char *expected) {
    pi_error err = {.status = PI_OK};
    model *m = NULL;
    tiny_write(t, MODEL_PATH);
    assert_int_equal(model_open(MODEL_PATH, NULL, &m, &err), PI_ERR_FORMAT);
    if (!strstr(err.message, expected)) fail_msg("%s", err.message);
}

static void test_refusals(void **state) {
    (void)state;
    pi_error err = {.status = PI_OK};
    tiny_model t = smallthinker();
    t.head.rank = 33;
    t.head.type = "f32"; /* any rank */
    model *m = open_model(&t);
    model_close(m);
    t.n_vocab = 604;
    t.head.rank = 48; /* 48 * (64 + 604) is a multiple of 32, but rows of 48 are not */
    t.head.type = "q8_0";
    refuse(&t, "lm_head_profiler.weight of type q8_0 has rows of 64 and of 48 elements");
    t = base_model("llama");
    t.head.distance = -1;
    refuse(&t, "powerinfer.head.distance is missing or below 0");
    t.head.distance = NAN;
    refuse(&t, "powerinfer.head.distance is not a finite number");
    t.head.rank = 0;
    m = open_model(&t);
    assert_int_equal(plan_check_head(m, PI_HEAD_AUTO, &err), PI_OK);
    assert_int_equal(plan_check_head(m, PI_HEAD_PREDICT, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "the output head has no predictor"));
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_finished_logits),
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_profiler),
        cmocka_unit_test(test_no_positive_score),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
