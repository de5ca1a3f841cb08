/* test_engine_route.c: routers that no recorded model covers: a table with the experts of every
 * token, against biases that force the same choice; weights by the root of the softplus, against
 * their formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_route.gguf"

enum { V = 40, LAYERS = 3, N_EXPERT = 16, N_USED = 3, N_TOKENS = 24, N_CTX = 64 };

static int32_t tokens[N_TOKENS];
static int32_t table[V][N_USED];

static model *open_model(void) {
    tiny_model t = tiny_default();
    t.arch = "qwen3moe";
    t.n_layer = LAYERS;
    t.n_vocab = V;
    t.experts = (tiny_experts){.n = N_EXPERT, .n_used = N_USED, .n_ff = 256};
    run_random_tokens(3, V, tokens, N_TOKENS);
    for (int i = 0; i < V; i++)
        for (int k = 0; k < N_USED; k++) table[i][k] = (7 * i + 5 * k) % N_EXPERT;
    return run_engine_open_tiny(&t, MODEL_PATH);
}

static engine_context *open_context(const model *m, expert_gating gating) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    o.n_positions = N_CTX;
    engine_context *c = run_engine_context(m, &o);
    for (int i = 0; i < LAYERS; i++) c->cpu.plan->experts[i].gating = gating;
    return c;
}

/* Biases larger than any probability, in the order of the table. */
static void force(float bias[N_EXPERT], int32_t token) {
    memset(bias, 0, N_EXPERT * sizeof *bias);
    for (int k = 0; k < N_USED; k++) bias[table[token][k]] = 1000.0f * (float)(N_USED - k);
}

static void test_table(void **state) {
    (void)state;
    static float want[N_TOKENS][V], one[V], all[N_TOKENS * V];
    float bias[N_EXPERT];
    model *m = open_model();
    engine_context *c = open_context(m, GATING_SOFTMAX), *d = open_context(m, GATING_SOFTMAX);
    for (int i = 0; i < LAYERS; i++) {
        c->cpu.plan->experts[i].select_bias = bias;
        d->cpu.plan->experts[i].by_token = &table[0][0];
    }
    pi_session *a = run_engine_session(c, N_CTX), *b = run_engine_session(d, N_CTX);
    for (int at = 0; at < N_TOKENS; at++) {
        force(bias, tokens[at]);
        run_engine_feed(c, a, tokens + at, 1, 1, want[at]);
        run_engine_feed(d, b, tokens + at, 1, 1, one);
        for (int k = 0; k < N_USED; k++)
            assert_int_equal(d->cpu.experts.chosen[k], table[tokens[at]][k]);
        assert_memory_equal(one, want[at], sizeof one);
    }
    pi_session *whole = run_engine_session(d, N_CTX);
    run_engine_feed(d, whole, tokens, N_TOKENS, N_TOKENS, all);
    assert_true(run_nmse(all, want[0], (int64_t)N_TOKENS * V) < 1e-10);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_session_destroy(whole);
    engine_context_destroy(c);
    engine_context_destroy(d);
    model_close(m);
}

static void test_root_of_softplus(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = open_context(m, GATING_SQRT_SOFTPLUS);
    pi_session *s = run_engine_session(c, N_CTX);
    for (int at = 0; at < N_TOKENS; at++) {
        run_engine_feed(c, s, tokens + at, 1, 0, NULL);
        const float *score = c->cpu.buf[BUF_ROUTER];
        double p[N_EXPERT], sum = 0;
        for (int i = 0; i < N_EXPERT; i++) p[i] = sqrt(log(1 + exp((double)score[i])));
        for (int k = 0; k < N_USED; k++) sum += p[c->cpu.experts.chosen[k]];
        for (int k = 0; k < N_USED; k++) {
            const int32_t chosen = c->cpu.experts.chosen[k];
            int better = 0;
            for (int i = 0; i < N_EXPERT; i++) better += score[i] > score[chosen];
            assert_int_equal(better, k);
            double want = p[chosen] / sum, got = (double)c->cpu.experts.weight[k];
            if (!(fabs(got - want) < 1e-6)) fail_msg("weight %g, not %g", got, want);
        }
    }
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_root_of_softplus)};
    return cmocka_run_group_tests_name("engine_route", tests, NULL, NULL);
}
