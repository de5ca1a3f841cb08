/* test_engine_layer.c: running a model layer by layer gives the residual stream that a whole
 * forward pass has before the head. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_layer.gguf"

enum { N_TOKENS = 24, N_EMBD = 32, WINDOW = 12 };

static model *weights;
static engine_context *context;
static pi_session *session;
static int32_t tokens[N_TOKENS];
static float normed[WINDOW * N_EMBD]; /* the head's input */

static int set_up(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    gguf_open_options open_options = {0};
    engine_options o = {.n_threads = 2, .n_batch = 16, .type_k = QUANT_F32, .type_v = QUANT_F32};
    if (model_open(MODEL_PATH, &open_options, &weights, NULL) != PI_OK) return 1;
    if (engine_context_create(weights, &o, &context, NULL) != PI_OK) return 1;
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (i * 7 + 3) % weights->hp.n_vocab;
    return engine_session_create(context, N_TOKENS, &session, NULL) != PI_OK;
}

static int tear_down(void **state) {
    (void)state;
    engine_session_destroy(session);
    engine_context_destroy(context);
    model_close(weights);
    remove(MODEL_PATH);
    return 0;
}

static void keep_head_input(void *user, const plan_step *step, const float *x, int64_t ldx,
                            int n_rows) {
    (void)user;
    if (step->matrix[0].out != BUF_LOGITS) return;
    for (int i = 0; i < n_rows; i++) memcpy(normed + i * N_EMBD, x + i * ldx, N_EMBD * sizeof *x);
}

static void forward(int first, int n) {
    pi_input in = {
        .session = session, .tokens = tokens + first, .n_tokens = n, .logits = PI_LOGITS_ALL};
    engine_observe(context, keep_head_input, NULL);
    assert_int_equal(engine_forward(context, &in, 1, NULL), PI_OK);
    engine_observe(context, NULL, NULL);
}

static void run_layers(int first, int n, float *x) {
    for (int layer = -1; layer < weights->hp.n_layer; layer++)
        assert_int_equal(
            engine_run_layer(context, session, layer, tokens + first, x, n, first, NULL), PI_OK);
}

static void check_normed(const float *x) {
    float y[N_EMBD];
    for (int i = 0; i < WINDOW; i++) {
        engine_kernels(context)->rms_norm(x + i * N_EMBD, weights->t[ROLE_OUTPUT_NORM].data, y,
                                          N_EMBD, weights->hp.norm_eps);
        assert_memory_equal(y, normed + i * N_EMBD, sizeof y);
    }
}

/* Two windows, so that the second one reads the first one's cache. */
static void test_same_stream(void **state) {
    (void)state;
    float x[WINDOW * N_EMBD];
    for (int first = 0; first < N_TOKENS; first += WINDOW) {
        assert_int_equal(session_length(session), first);
        run_layers(first, WINDOW, x);
        forward(first, WINDOW);
        check_normed(x);
    }
    assert_int_equal(session_rewind(session, 0, NULL), PI_OK);
}

static void expect_refused(int layer, int n, int64_t pos) {
    float x[WINDOW * N_EMBD] = {0};
    pi_error err;
    assert_int_equal(engine_run_layer(context, session, layer, tokens, x, n, pos, &err),
                     PI_ERR_ARG);
    assert_non_null(strstr(err.message, "bad request: layer"));
}

static void test_refused(void **state) {
    (void)state;
    expect_refused(-2, 1, 0);
    expect_refused(weights->hp.n_layer, 1, 0);
    expect_refused(0, 0, 0);
    expect_refused(0, 17, 0);
    expect_refused(0, 1, -1);
    expect_refused(0, 2, N_TOKENS - 1);
    float x[N_EMBD];
    int32_t outside = weights->hp.n_vocab;
    assert_int_equal(engine_run_layer(context, session, -1, &outside, x, 1, 0, NULL), PI_ERR_RANGE);
    engine_cancel(context);
    assert_int_equal(engine_run_layer(context, session, 0, NULL, x, 1, 0, NULL), PI_ERR_CANCELLED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_stream),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("engine_layer", tests, set_up, tear_down);
}
