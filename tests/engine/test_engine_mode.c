/* test_engine_mode.c: sizes and statistics determine the mode that auto takes: layers of known
 * shape, without weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "form_pace.h"
#include "plan.h"

/* A gated ReLU layer of Q4_0 in a prepared file, as far as its cost is concerned. */
typedef struct costed_layer {
    int64_t n_embd, n_ff, rank; /* rank 0: signs */
    float fired, selected;      /* fractions of the neurons; NAN: unknown */
} costed_layer;

static void set_tensor(model_layer *l, tensor_role role, int64_t n_in, int64_t n_out) {
    static const uint8_t never_read;
    l->t[role] = (model_tensor){.data = &never_read,
                                .n_bytes = (size_t)(n_in * n_out) * 9 / 16,
                                .n_in = n_in,
                                .n_out = n_out,
                                .type = QUANT_Q4_0};
}

/* The choice of auto with these total weights and this cache. */
static pi_mode mode_by_cost(const costed_layer *from, uint64_t weights, uint64_t cache) {
    enum { MOST = 16384 };
    static float freq[MOST];
    model_layer l = {.hp = {.n_ff = (int32_t)from->n_ff}};
    model m = {.arch = arch_find("llama", 5),
               .layers = &l,
               .weight_bytes = weights,
               .sparse.predict_loss = 0.005f};
    plan_options o = {.mode = PI_MODE_AUTO, .max_loss = 0.01f, .cache_bytes = cache};
    for (int64_t i = 0; i < from->n_ff; i++) freq[i] = from->fired;
    m.hp.n_layer = 1;
    m.hp.activation = ACTIVATION_RELU;
    l.sparse = (model_layer_sparse){.predictor = from->rank ? PREDICTOR_LOWRANK : PREDICTOR_SIGN,
                                    .density = from->selected,
                                    .cut = NAN,
                                    .freq = isnan(from->fired) ? NULL : freq};
    set_tensor(&l, ROLE_FFN_GATE, from->n_embd, from->n_ff);
    set_tensor(&l, ROLE_FFN_UP, from->n_embd, from->n_ff);
    set_tensor(&l, ROLE_FFN_DOWN_T, from->n_embd, from->n_ff);
    if (from->rank) set_tensor(&l, ROLE_FC1, from->n_embd, from->rank);
    if (from->rank) set_tensor(&l, ROLE_FC2, from->rank, from->n_ff);
    if (!from->rank) set_tensor(&l, ROLE_FFN_SIGN, from->n_embd * 2 / 9, from->n_ff);
    pi_mode mode = plan_choose_mode(&m, 0, &o);
    o.max_loss = 0.004f;
    assert_int_not_equal(plan_choose_mode(&m, 0, &o), PI_MODE_PREDICT);
    return mode;
}

/* As mode_by_cost, for eight experts. A token uses two of them, `hot` of them are on a GPU. */
static pi_mode mode_of_experts(const costed_layer *from, int hot) {
    enum { N = 8 };
    model_layer l = {.hp = {.n_ff_expert = (int32_t)from->n_ff}};
    model m = {.arch = arch_find("llama", 5),
               .layers = &l,
               .weight_bytes = (uint64_t)1 << 32,
               .sparse.predict_loss = 0.005f};
    plan_split split = {.primary = SIDE_CPU, .hot = hot};
    plan_options o = {.mode = PI_MODE_AUTO,
                      .max_loss = 0.01f,
                      .cache_bytes = 1 << 20,
                      .splits = hot ? &split : NULL};
    m.hp.n_layer = 1;
    m.hp.n_expert = N;
    m.hp.n_expert_used = 2;
    m.hp.activation = ACTIVATION_RELU;
    l.sparse = (model_layer_sparse){.predictor = from->rank ? PREDICTOR_LOWRANK : PREDICTOR_SIGN,
                                    .density = from->selected,
                                    .cut = NAN,
                                    .expert_active = from->fired};
    set_tensor(&l, ROLE_ROUTER, from->n_embd, N);
    set_tensor(&l, ROLE_EXPERT_GATE, from->n_embd, N * from->n_ff);
    set_tensor(&l, ROLE_EXPERT_UP, from->n_embd, N * from->n_ff);
    set_tensor(&l, ROLE_EXPERT_DOWN_T, from->n_embd, N * from->n_ff);
    if (from->rank) set_tensor(&l, ROLE_EXPERT_FC1, from->n_embd, N * from->rank);
    if (from->rank) set_tensor(&l, ROLE_EXPERT_FC2, from->rank, N * from->n_ff);
    if (!from->rank) set_tensor(&l, ROLE_EXPERT_SIGN, from->n_embd * 2 / 9, N * from->n_ff);
    return plan_choose_mode(&m, 0, &o);
}

/* Predictors within experts are on the CPU: with experts on a GPU the layer runs exact. */
static void test_auto_within_experts(void **state) {
    (void)state;
    const costed_layer small = {256, 256, 0, 0.1f, 0.25f};
    const costed_layer large = {4096, 14336, 256, 0.1f, 0.12f};
    const costed_layer vague = {4096, 14336, 256, 0.1f, 0.95f};
    const costed_layer busy = {4096, 14336, 256, 0.97f, 0.99f};
    const costed_layer unknown = {4096, 14336, 256, NAN, NAN};
    assert_int_equal(mode_of_experts(&small, 0), PI_MODE_EXACT);
    assert_int_equal(mode_of_experts(&large, 0), PI_MODE_PREDICT);
    assert_int_equal(mode_of_experts(&large, 3), PI_MODE_EXACT);
    assert_int_equal(mode_of_experts(&vague, 0), PI_MODE_EXACT);
    assert_int_equal(mode_of_experts(&busy, 0), PI_MODE_DENSE);
    assert_int_equal(mode_of_experts(&unknown, 0), PI_MODE_EXACT);
}

/* auto takes the lossless mode where a score costs more than the short rows that it saves, or
 * prediction saves little; the predictor in large layers; dense where nearly all neurons are
 * active. */
static void test_auto_takes_what_is_faster(void **state) {
    (void)state;
    const uint64_t mib = 1048576, cache = 100 * mib;
    const costed_layer small = {256, 1024, 0, 0.1f, 0.25f};
    const costed_layer large = {4096, 14336, 256, 0.1f, 0.12f};
    const costed_layer vague = {4096, 14336, 256, 0.1f, 0.95f};
    const costed_layer busy = {4096, 14336, 256, 0.97f, 0.99f};
    const costed_layer unknown = {4096, 14336, 256, NAN, NAN};
    assert_int_equal(mode_by_cost(&small, 7 * mib, cache), PI_MODE_EXACT);
    assert_int_equal(mode_by_cost(&small, 4000 * mib, cache), PI_MODE_EXACT);
    assert_int_equal(mode_by_cost(&large, 4000 * mib, cache), PI_MODE_PREDICT);
    assert_int_equal(mode_by_cost(&vague, 4000 * mib, cache), PI_MODE_EXACT);
    assert_int_equal(mode_by_cost(&busy, 4000 * mib, cache), PI_MODE_DENSE);
    assert_int_equal(mode_by_cost(&unknown, 4000 * mib, cache), PI_MODE_EXACT);
    /* Separate rows cost more from memory than from the cache. */
    const costed_layer short_rows = {256, 8192, 0, 0.18f, 0.9f};
    assert_int_equal(mode_by_cost(&short_rows, 10 * mib, cache), PI_MODE_EXACT);
    assert_int_equal(mode_by_cost(&short_rows, 10 * mib, 8 * mib), PI_MODE_DENSE);
}

/* Ubatches that take few_cost and many_cost, and 30 times as long every tenth time. Returns how
 * many of `n` ran in FORM_MANY. */
static int run_paced(form_pace *p, double few_cost, double many_cost, int n) {
    int n_many = 0;
    for (int i = 0; i < n; i++) {
        plan_form form = form_pace_next(p);
        double cost = form == FORM_MANY ? many_cost : few_cost;
        form_pace_add(p, form, i % 10 == 3 ? 30 * cost : cost);
        n_many += form == FORM_MANY;
    }
    return n_many;
}

/* The form that takes less time, also when that changes. */
static void test_form_is_measured(void **state) {
    (void)state;
    enum { N = 64 * FORM_PACE_AGAIN };
    form_pace p = {.n_all = 0};
    assert_in_range(run_paced(&p, 11, 16, N), FORM_PACE_TRIES, N / 20);
    assert_in_range(run_paced(&p, 16, 11, N), N - N / 10, N);
    assert_in_range(run_paced(&p, 11, 16, N), 1, N / 10);
    p = (form_pace){.n_all = 0};
    assert_in_range(run_paced(&p, 16, 11, N), N - N / 20, N - FORM_PACE_TRIES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_is_measured),
        cmocka_unit_test(test_auto_takes_what_is_faster),
        cmocka_unit_test(test_auto_within_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
