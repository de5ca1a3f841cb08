/* test_engine_resident.c: routing that prefers experts in memory (expert_slack). The chosen
 * experts' probabilities stay within the slack of the best ones, only experts that must be read are
 * replaced, and fewer are read; without a drive or in prefill nothing changes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_resident.gguf"

enum { V = 40, LAYERS = 3, N_EXPERT = 16, N_USED = 3, N_TOKENS = 60, N_CTX = 64 };

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];

/* Weights by the softmax of all scores; in groups, with biases of the choice; by the softmax of the
 * chosen scores, as in gpt-oss. */
enum { GROUPS = 1, CHOSEN = 2, KINDS = 3 };

static model *open_model(int kind) {
    tiny_model t = tiny_default();
    t.arch = kind == GROUPS ? "deepseek2" : "qwen3moe";
    t.n_layer = LAYERS;
    t.n_vocab = V;
    t.experts = (tiny_experts){.n = N_EXPERT, .n_used = N_USED, .n_ff = 256};
    if (kind == GROUPS) {
        t.n_latent = 32;
        t.n_rot = 8;
        t.head_dim = 24;
        t.v_dim = 16;
        tiny_set_heads(&t, 4, 4);
        t.experts.n_group = 4;
        t.experts.n_group_used = 2;
        t.experts.select_bias = true;
    }
    run_random_tokens(3, V, tokens, N_TOKENS);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

/* budget 0: all weights are mapped; else the least one plus `more`, of 4.6 MB of experts. */
static engine_context *open_context(const model *m, float slack, uint64_t more) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    o.n_positions = N_CTX;
    if (more > 0) {
        o.ram_budget = (uint64_t)1 << 30;
        engine_context *c = run_engine_context(m, &o);
        paging_sizes n = paging_get_sizes(engine_paging(c));
        o.ram_budget = n.needed + n.beside + more;
        engine_context_destroy(c);
    }
    o.expert_slack = slack;
    return run_engine_context(m, &o);
}

/* The probabilities of a layer's experts, by a second formulation. */
static void probabilities_of(const engine_context *c, double p[N_EXPERT]) {
    const plan_experts *e = &c->cpu.plan->experts[LAYERS - 1];
    const float *score = c->cpu.buf[BUF_ROUTER];
    double sum = 0;
    for (int i = 0; i < N_EXPERT; i++) {
        bool sigmoid = e->gating == GATING_SIGMOID;
        p[i] = sigmoid ? 1 / (1 + exp(-(double)score[i])) : exp((double)score[i]);
        sum += sigmoid ? 0 : p[i];
    }
    for (int i = 0; i < N_EXPERT && sum > 0; i++) p[i] /= sum;
}

/* The experts that the token would use with all of them in memory: the best of the best groups. */
static void best_of(const engine_context *c, const double p[N_EXPERT], bool best[N_EXPERT]) {
    const plan_experts *e = &c->cpu.plan->experts[LAYERS - 1];
    const int n_groups = e->n_group > 1 ? e->n_group : 1, n = N_EXPERT / n_groups;
    double score[N_EXPERT], group[N_EXPERT];
    for (int i = 0; i < N_EXPERT; i++)
        score[i] = p[i] + (e->select_bias ? (double)e->select_bias[i] : 0);
    for (int g = 0; g < n_groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int i = g * n; i < (g + 1) * n; i++) {
            if (score[i] > first) {
                second = first;
                first = score[i];
            } else if (score[i] > second) {
                second = score[i];
            }
        }
        group[g] = first + second;
    }
    for (int i = 0; i < N_EXPERT; i++) {
        int better = 0;
        for (int g = 0; g < n_groups; g++) better += group[g] > group[i / n];
        if (n_groups > 1 && better >= e->n_group_used) score[i] = -INFINITY;
    }
    for (int i = 0; i < N_EXPERT; i++) {
        int better = 0;
        for (int k = 0; k < N_EXPERT; k++) better += score[k] > score[i];
        best[i] = better < N_USED;
    }
}

/* Feeds the tokens one by one and checks the choice of the last layer; returns the number of
 * replaced experts. */
static int check_choices(engine_context *c, int kind, float slack) {
    pi_session *s = run_engine_session(c, N_CTX);
    int replaced = 0;
    for (int i = 0; i < LAYERS && kind == CHOSEN; i++)
        c->cpu.plan->experts[i].gating = GATING_SOFTMAX_CHOSEN;
    for (int at = 0; at < N_TOKENS; at++) {
        double p[N_EXPERT], most = 0, have = 0;
        bool best[N_EXPERT], used[N_EXPERT] = {false};
        run_engine_feed(c, s, tokens + at, 1, 0, NULL);
        probabilities_of(c, p);
        best_of(c, p, best);
        for (int k = 0; k < N_USED; k++) {
            int32_t expert = c->cpu.experts.chosen[k];
            assert_false(used[expert]);
            used[expert] = true;
            have += p[expert];
            replaced += !best[expert];
        }
        for (int i = 0; i < N_EXPERT; i++) most += best[i] ? p[i] : 0;
        if (have < (1 - (double)slack) * most - 1e-6) fail_msg("%g of %g is left", have, most);
    }
    engine_session_destroy(s);
    return replaced;
}

static void test_choices(void **state) {
    (void)state;
    static const float slacks[] = {0, 0.1f, 0.5f, 1};
    for (int kind = 0; kind < KINDS; kind++) {
        model *m = open_model(kind);
        uint64_t misses[4];
        int replaced[4];
        for (int i = 0; i < 4; i++) {
            engine_context *c = open_context(m, slacks[i], 800 * 1024);
            replaced[i] = check_choices(c, kind, slacks[i]);
            misses[i] = paging_get_counts(engine_paging(c)).misses;
            engine_context_destroy(c);
        }
        assert_int_equal(replaced[0], 0);
        if (replaced[3] == 0 || 4 * misses[3] >= 3 * misses[0])
            fail_msg("kind %d: %d replaced, %d misses instead of %d", kind, replaced[3],
                     (int)misses[3], (int)misses[0]);
        model_close(m);
    }
}

/* Two sessions in a call, also in ubatches of FORM_MANY, use experts in memory. */
static void test_sessions(void **state) {
    (void)state;
    enum { STEP = 8 };
    model *m = open_model(0);
    uint64_t misses[2];
    for (int slack = 0; slack < 2; slack++) {
        engine_context *c = open_context(m, (float)slack, 1500 * 1024);
        pi_session *s[2] = {run_engine_session(c, N_CTX), run_engine_session(c, N_CTX)};
        for (int at = 0; at + STEP <= N_TOKENS; at += STEP) {
            pi_input in[2];
            for (int k = 0; k < 2; k++)
                in[k] = (pi_input){.session = s[k], .tokens = tokens + at, .n_tokens = STEP};
            run_engine_forward(c, in, 2);
        }
        misses[slack] = paging_get_counts(engine_paging(c)).misses;
        for (int k = 0; k < 2; k++) engine_session_destroy(s[k]);
        engine_context_destroy(c);
    }
    if (4 * misses[1] >= 3 * misses[0])
        fail_msg("%d misses instead of %d", (int)misses[1], (int)misses[0]);
    model_close(m);
}

/* Prefill uses all experts, and a mapped model has all of them. */
static void test_unchanged(void **state) {
    (void)state;
    model *m = open_model(0);
    for (int paged = 0; paged < 2; paged++) {
        for (int slack = 0; slack < 2; slack++) {
            engine_context *c = open_context(m, (float)slack, paged ? 1500 * 1024 : 0);
            run_engine_tokens(c, N_CTX, tokens, N_TOKENS, paged ? 0 : 1, slack ? got : want);
            engine_context_destroy(c);
        }
        assert_memory_equal(got, want, sizeof want);
    }
    model_close(m);
}

static void test_refused(void **state) {
    (void)state;
    pi_context_options o = pi_context_default_options();
    o.expert_slack = 0.1f;
    o.deterministic = true;
    model_close(open_model(0));
    pi_model *m;
    pi_context *c;
    pi_error err;
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    o.deterministic = false;
    o.expert_slack = NAN;
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
