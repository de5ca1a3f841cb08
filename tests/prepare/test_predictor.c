/* test_predictor.c: predictors of layers with a known gate: they find its rank, reach their target
 * on held-out tokens, and obey every option. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "planted_layer.h"

static const planted_shape usual = {.n_embd = 96,
                                    .n_ff = 256,
                                    .n_train = 1500,
                                    .n_held = 500,
                                    .rank = 20,
                                    .noise = 0.02,
                                    .bias = -1.3,
                                    .spread = 0.4,
                                    .seed = 11};

enum { MAX_RANK = 96 }; /* n_embd of the planted layers */

static int set_up(void **state) {
    return planted_set_up(&usual, 2, state);
}

static predictor_options defaults(predictor_kind kind) {
    return (predictor_options){.kind = kind, .target = 0.98, .type = QUANT_Q8_0, .seed = 5};
}

static predictor_fit fit(planted_fixture *f, const predictor_options *o) {
    predictor_fit out;
    pi_error err = {0};
    pi_status status = predictor_fit_layer(f->pool, &f->layer.data, o, NULL, &out, &err);
    if (status != PI_OK) print_message("%s\n", err.message);
    assert_int_equal(status, PI_OK);
    return out;
}

/* Rows of a quantized matrix as floats, [n_rows][n]; mem_free. */
static float *decoded(quant_type type, const void *packed, int64_t n_rows, int64_t n) {
    size_t row_bytes;
    float *rows = mem_alloc((size_t)(n_rows * n) * sizeof *rows);
    assert_non_null(rows);
    assert_true(quant_row_bytes(type, (uint64_t)n, &row_bytes));
    for (int64_t i = 0; i < n_rows; i++)
        quant_find(type)->dequantize((const char *)packed + (size_t)i * row_bytes, rows + i * n, n);
    return rows;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

/* The rows of a predictor as floats. Sign predictor: fc1 is NULL, fc2 has the signs. */
typedef struct plain_predictor {
    float *fc1; /* [rank][n_embd] */
    float *fc2; /* [n_ff][rank], or [n_ff][n_embd] */
} plain_predictor;

static plain_predictor decode(const predictor_fit *p, const predictor_data *d) {
    plain_predictor out = {NULL, NULL};
    if (p->kind != PREDICTOR_SIGN) {
        out.fc1 = decoded(p->type_fc1, p->fc1, p->rank, d->n_embd);
        out.fc2 = decoded(p->type_fc2, p->fc2, d->n_ff, p->rank);
        return out;
    }
    size_t n = (size_t)(d->n_ff * d->n_embd);
    out.fc2 = mem_alloc(n * sizeof *out.fc2);
    assert_non_null(out.fc2);
    for (size_t i = 0; i < n; i++) out.fc2[i] = p->sign[i / 8] & 1 << i % 8 ? 1 : -1;
    return out;
}

/* Scores of one token, bias included: [n_ff]. */
static void plain_scores(const predictor_fit *p, const plain_predictor *plain,
                         const predictor_data *d, const float *x, double *scores) {
    float hidden[MAX_RANK];
    if (plain->fc1) assert_in_range(p->rank, 1, MAX_RANK);
    for (int64_t r = 0; plain->fc1 && r < p->rank; r++) {
        hidden[r] = (float)dot(plain->fc1 + r * d->n_embd, x, d->n_embd);
        if (p->kind == PREDICTOR_RELU_MLP && hidden[r] < 0) hidden[r] = 0;
    }
    int64_t n = plain->fc1 ? p->rank : d->n_embd;
    for (int64_t i = 0; i < d->n_ff; i++)
        scores[i] = dot(plain->fc2 + i * n, plain->fc1 ? hidden : x, n) + (double)p->bias[i];
}

/* Quality by its definition. The score of some neuron equals its threshold and counts as selected,
 * although a sum in another order may be slightly lower. */
static predictor_quality plain_quality(planted_fixture *f, const predictor_fit *p, int64_t t0,
                                       int64_t t1) {
    const predictor_data *d = &f->layer.data;
    const active_set *a = d->active;
    plain_predictor plain = decode(p, d);
    double *s = mem_alloc((size_t)d->n_ff * sizeof *s);
    assert_non_null(s);
    const double rounding = 1e-5;
    double selected = 0, kept = 0, part = 0, total = 0;
    for (int64_t t = t0; t < t1; t++) {
        plain_scores(p, &plain, d, d->x + t * d->n_embd, s);
        for (int64_t i = 0; i < d->n_ff; i++) selected += s[i] >= -rounding;
        for (int64_t k = a->start[t]; k < a->start[t + 1]; k++) {
            bool yes = s[a->neuron[k]] >= -rounding;
            kept += yes;
            total += (double)a->contribution[k];
            if (yes) part += (double)a->contribution[k];
        }
    }
    double fired = (double)(a->start[t1] - a->start[t0]), cells = (double)((t1 - t0) * d->n_ff);
    mem_free(s);
    mem_free(plain.fc1);
    mem_free(plain.fc2);
    return (predictor_quality){kept / fired, part / total, selected / cells, fired / cells};
}

static void assert_close(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance)) print_message("%g and %g\n", a, b);
    assert_true(fabs(a - b) <= tolerance);
}

static void check_fit(planted_fixture *f, const predictor_fit *p, double target) {
    const predictor_data *d = &f->layer.data;
    predictor_quality q = plain_quality(f, p, d->n_train, d->n_train + d->n_held);
    /* A score at its threshold may fall to either side when sums have another order. */
    double few = 5.0 / (double)(d->n_ff * d->n_held) + 1e-5;
    assert_close(q.selected, p->quality.selected, few);
    assert_close(q.active, p->quality.active, 1e-9);
    assert_close(q.recall, p->quality.recall, 20 * few);
    assert_close(q.contribution_recall, p->quality.contribution_recall, 20 * few);
    assert_true(q.contribution_recall >= target - 1e-3);
    q = plain_quality(f, p, 0, d->n_train);
    assert_true(q.contribution_recall >= target - 1e-6);
    double bytes = p->kind == PREDICTOR_SIGN ? (double)(d->n_ff * (d->n_embd / 8 + 4))
                                             : (double)(p->rank * d->n_embd / 32 * 34 +
                                                        d->n_ff * (p->rank / 32 * 34 + 4));
    assert_close((double)p->n_bytes, bytes, 0);
    double rows = p->quality.selected * (double)d->n_ff * (double)d->gate_row_bytes;
    assert_close(p->cost, bytes + rows, 1);
}

/* The planted rank is below 32, so rank 32 predicts everything except the noise. */
static void test_lowrank(void **state) {
    planted_fixture *f = *state;
    predictor_options o = defaults(PREDICTOR_LOWRANK);
    predictor_fit p = fit(f, &o);
    assert_int_equal(p.kind, PREDICTOR_LOWRANK);
    assert_int_equal(p.rank, 32);
    assert_int_equal(p.type_fc1, QUANT_Q8_0);
    assert_null(p.sign);
    check_fit(f, &p, o.target);
    assert_true(p.quality.selected < 1.25 * p.quality.active);
    predictor_fit_free(&p);
}

static void test_sign(void **state) {
    planted_fixture *f = *state;
    const predictor_data *d = &f->layer.data;
    predictor_options o = defaults(PREDICTOR_SIGN);
    predictor_fit p = fit(f, &o);
    assert_int_equal(p.kind, PREDICTOR_SIGN);
    assert_null(p.fc1);
    for (int64_t i = 0; i < d->n_ff * d->n_embd; i++)
        assert_int_equal(p.sign[i / 8] >> (i % 8) & 1, d->gate[i] > 0);
    check_fit(f, &p, o.target);
    assert_true(p.quality.selected < 4 * p.quality.active);
    predictor_fit_free(&p);
}

/* A higher rank helps if the gate has it, and `only_rank` is obeyed. */
static void test_rank(void **state) {
    planted_fixture *f = *state;
    planted_shape shape = usual;
    shape.rank = 60;
    planted_layer usual_layer = f->layer;
    planted_make(&shape, &f->layer);
    predictor_options o = defaults(PREDICTOR_LOWRANK);
    double selected = 1;
    for (o.only_rank = 32; o.only_rank <= 96; o.only_rank += 32) {
        predictor_fit p = fit(f, &o);
        assert_int_equal(p.rank, o.only_rank);
        check_fit(f, &p, o.target);
        assert_true(p.quality.selected < selected);
        selected = p.quality.selected;
        predictor_fit_free(&p);
    }
    planted_free(&f->layer);
    f->layer = usual_layer;
}

static void test_monotone(void **state) {
    planted_fixture *f = *state;
    static const double targets[] = {0.5, 0.9, 0.95, 0.98, 0.99, 0.999, 1};
    enum { N = sizeof targets / sizeof targets[0] };
    for (predictor_kind kind = PREDICTOR_SIGN; kind <= PREDICTOR_LOWRANK; kind++) {
        predictor_fit p[N];
        for (int i = 0; i < N; i++) {
            predictor_options o = defaults(kind);
            o.target = targets[i];
            o.only_rank = 32;
            p[i] = fit(f, &o);
            for (int64_t k = 0; i > 0 && k < f->layer.data.n_ff; k++)
                assert_true(p[i].bias[k] >= p[i - 1].bias[k]);
        }
        assert_true(p[N - 1].quality.selected > p[0].quality.selected);
        predictor_quality q = plain_quality(f, &p[N - 1], 0, f->layer.data.n_train);
        assert_true(q.recall > 1 - 1e-4);
        assert_true(q.contribution_recall > 1 - 1e-6);
        for (int i = 0; i < N; i++) predictor_fit_free(&p[i]);
    }
}

/* Where rectified directions decide, training beats every linear predictor; where a linear
 * predictor is optimal, training loses little. */
static void test_relu_mlp(void **state) {
    planted_fixture *f = *state;
    planted_layer usual_layer = f->layer;
    for (int rectified = 0; rectified < 2; rectified++) {
        planted_shape shape = usual;
        shape.rectified = rectified;
        shape.rank = rectified ? 12 : 60;
        shape.n_train = 4000;
        planted_make(&shape, &f->layer);
        predictor_options o = defaults(PREDICTOR_LOWRANK);
        o.only_rank = 32;
        predictor_fit linear = fit(f, &o);
        o.kind = PREDICTOR_RELU_MLP;
        predictor_fit p = fit(f, &o);
        assert_int_equal(p.kind, PREDICTOR_RELU_MLP);
        assert_int_equal(p.rank, 32);
        check_fit(f, &p, o.target);
        double limit = (rectified ? 0.8 : 1.1) * linear.quality.selected;
        if (!(p.quality.selected < limit))
            print_message("%g, linear %g\n", p.quality.selected, linear.quality.selected);
        assert_true(p.quality.selected < limit);
        predictor_fit_free(&p);
        predictor_fit_free(&linear);
        planted_free(&f->layer);
    }
    f->layer = usual_layer;
}

/* Inputs without a constant component: the hidden layer must be initialized with pairs, and the
 * gate's mean comes from its bias. */
static void test_gate_bias(void **state) {
    planted_fixture *f = *state;
    planted_shape shape = usual;
    shape.gate_bias = true;
    planted_layer usual_layer = f->layer;
    planted_make(&shape, &f->layer);
    for (int64_t t = 0; t < shape.n_train + shape.n_held; t++) f->layer.x[t * shape.n_embd] = 0;
    predictor_options o = defaults(PREDICTOR_LOWRANK);
    predictor_fit p = fit(f, &o);
    assert_int_equal(p.rank, 32);
    check_fit(f, &p, o.target);
    assert_true(p.quality.selected < 1.25 * p.quality.active);
    predictor_fit_free(&p);
    o.kind = PREDICTOR_RELU_MLP;
    o.only_rank = 64; /* 32 pairs */
    p = fit(f, &o);
    check_fit(f, &p, o.target);
    assert_true(p.quality.selected < 1.3 * p.quality.active);
    predictor_fit_free(&p);
    planted_free(&f->layer);
    f->layer = usual_layer;
}

/* Moves all data of neuron order[i] to neuron i. */
static void permute(planted_layer *p, const int32_t *order) {
    int64_t n_ff = p->data.n_ff, n = p->data.n_embd;
    float *gate = mem_alloc((size_t)(n_ff * n) * sizeof *gate);
    assert_non_null(gate);
    for (int64_t i = 0; i < n_ff; i++)
        memcpy(gate + i * n, p->gate + order[i] * n, (size_t)n * sizeof *gate);
    mem_free(p->gate);
    p->gate = gate;
    p->data.gate = gate;
    assert_int_equal(active_permute(&p->active, order, NULL), PI_OK);
}

static void test_permutation(void **state) {
    planted_fixture *f = *state;
    enum { N_FF = 256 };
    const predictor_data *d = &f->layer.data;
    int32_t order[N_FF], back[N_FF];
    for (int i = 0; i < N_FF; i++) back[order[i] = (i * 77 + 5) % N_FF] = i;
    predictor_options o = defaults(PREDICTOR_SIGN), low = defaults(PREDICTOR_LOWRANK);
    predictor_fit before = fit(f, &o), low_before = fit(f, &low);
    permute(&f->layer, order);
    predictor_fit after = fit(f, &o), low_after = fit(f, &low);
    permute(&f->layer, back);
    size_t row = (size_t)d->n_embd / 8;
    int same = 0;
    for (size_t i = 0; i < N_FF; i++) {
        assert_memory_equal(after.sign + i * row, before.sign + (size_t)order[i] * row, row);
        /* the prior uses a sample of neurons in their order, so biases are only close */
        same += fabsf(after.bias[i] - before.bias[order[i]]) <=
                1e-3f * fabsf(before.bias[order[i]]);
    }
    assert_true(same > N_FF * 9 / 10);
    assert_close(after.quality.selected, before.quality.selected, 2e-3);
    assert_close(low_after.quality.selected, low_before.quality.selected, 4e-3);
    predictor_fit_free(&before);
    predictor_fit_free(&after);
    predictor_fit_free(&low_before);
    predictor_fit_free(&low_after);
}

/* The cheapest predictor is chosen, and none if a gate row costs nearly nothing. */
static void test_choice(void **state) {
    planted_fixture *f = *state;
    double cost[PREDICTOR_KIND_COUNT];
    predictor_options o = defaults(PREDICTOR_SIGN);
    predictor_kind cheapest = PREDICTOR_SIGN;
    for (o.kind = PREDICTOR_SIGN; o.kind < PREDICTOR_KIND_COUNT; o.kind++) {
        predictor_fit p = fit(f, &o);
        cost[o.kind] = p.cost;
        if (p.cost < cost[cheapest]) cheapest = o.kind;
        predictor_fit_free(&p);
    }
    predictor_fit p = fit(f, &o);
    assert_int_equal(p.kind, cheapest);
    assert_close(p.cost, cost[cheapest], 0);
    predictor_fit_free(&p);
    size_t row_bytes = f->layer.data.gate_row_bytes;
    f->layer.data.gate_row_bytes = 1;
    p = fit(f, &o);
    assert_int_equal(p.kind, PREDICTOR_NONE);
    assert_null(p.bias);
    f->layer.data.gate_row_bytes = row_bytes;
    o.kind = PREDICTOR_NONE;
    p = fit(f, &o);
    assert_int_equal(p.kind, PREDICTOR_NONE);
}

/* Types with blocks of 256 do not fit these rows. Types with blocks of 32 do: recall is kept, and
 * more neurons are selected. */
static void test_types(void **state) {
    planted_fixture *f = *state;
    predictor_options o = defaults(PREDICTOR_LOWRANK);
    o.only_rank = 32;
    o.type = QUANT_Q4_K;
    predictor_fit p = fit(f, &o);
    assert_int_equal(p.type_fc1, QUANT_Q8_0);
    assert_int_equal(p.type_fc2, QUANT_Q8_0);
    check_fit(f, &p, o.target);
    double fine = p.quality.selected;
    predictor_fit_free(&p);
    o.type = QUANT_Q4_0;
    p = fit(f, &o);
    assert_int_equal(p.type_fc1, QUANT_Q4_0);
    assert_int_equal(p.type_fc2, QUANT_Q4_0);
    assert_true(p.quality.contribution_recall >= o.target - 1e-3);
    assert_true(p.quality.selected > fine && p.quality.selected < 2 * fine);
    predictor_fit_free(&p);
    o.type = QUANT_F32;
    p = fit(f, &o);
    assert_true(fabs(p.quality.selected - fine) < 0.05 * fine);
    predictor_fit_free(&p);
}

/* Neurons that are rarely or never active in few tokens can still be selected. */
static void test_few_tokens(void **state) {
    planted_fixture *f = *state;
    planted_layer all = f->layer;
    predictor_data *d = &f->layer.data;
    active_set part = f->layer.active;
    d->active = &part;
    d->n_train = 150;
    d->n_held = part.n_tokens = 200;
    part.n_tokens = d->n_train + d->n_held;
    predictor_options o = defaults(PREDICTOR_LOWRANK);
    o.only_rank = 32;
    predictor_fit p = fit(f, &o);
    check_fit(f, &p, o.target);
    /* tokens used neither for thresholds nor for their correction */
    part = all.active;
    predictor_quality q = plain_quality(f, &p, 400, 2000);
    assert_true(q.contribution_recall > 0.95);
    assert_true(q.selected < 3 * q.active);
    predictor_fit_free(&p);
    f->layer = all;
    f->layer.data.active = &((planted_fixture *)*state)->layer.active;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowrank),     cmocka_unit_test(test_sign),
        cmocka_unit_test(test_rank),        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_relu_mlp),    cmocka_unit_test(test_gate_bias),
        cmocka_unit_test(test_permutation), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_few_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, planted_tear_down);
}
