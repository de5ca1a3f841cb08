/* test_predictor_limits.c: fitting with wrong arguments, failing allocations, bad values and
 * cancelling; and independence of the number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "mem.h"
#include "planted_layer.h"

static const planted_shape small = {.n_embd = 64,
                                    .n_ff = 100,
                                    .n_train = 200,
                                    .n_held = 60,
                                    .rank = 10,
                                    .noise = 0.1,
                                    .bias = -1,
                                    .spread = 1,
                                    .seed = 3};

static int set_up(void **state) {
    return planted_set_up(&small, 3, state);
}

static predictor_options defaults(predictor_kind kind) {
    return (predictor_options){
        .kind = kind, .target = 0.95, .type = QUANT_Q8_0, .max_epochs = 2, .seed = 5};
}

static void expect(planted_fixture *f, const predictor_data *d, const predictor_options *o,
                   pi_status expected) {
    predictor_fit out;
    pi_error err = {0};
    memset(&out, 0x55, sizeof out);
    assert_int_equal(predictor_fit_layer(f->pool, d, o, NULL, &out, &err), expected);
    assert_true(strlen(err.message) > 10);
    assert_null(out.fc1);
    assert_null(out.fc2);
    assert_null(out.bias);
    assert_null(out.sign);
}

static void test_arguments(void **state) {
    planted_fixture *f = *state;
    const predictor_data good = f->layer.data;
    const predictor_options fine = defaults(PREDICTOR_LOWRANK);
    predictor_data d = good;
    predictor_options o = fine;
#define BAD_DATA(change)                                                                           \
    d = good;                                                                                      \
    d.change;                                                                                      \
    expect(f, &d, &fine, PI_ERR_ARG)
#define BAD_OPTION(change)                                                                         \
    o = fine;                                                                                      \
    o.change;                                                                                      \
    expect(f, &good, &o, PI_ERR_ARG)
    BAD_DATA(n_train = 0);
    BAD_DATA(n_train = -3);
    BAD_DATA(n_held = -1);
    BAD_DATA(n_held = 61);
    BAD_DATA(n_embd = 65);
    BAD_DATA(n_embd = 0);
    BAD_DATA(n_ff = 0);
    BAD_DATA(n_ff = 101);
    BAD_OPTION(target = 0);
    BAD_OPTION(target = 1.01);
    BAD_OPTION(target = NAN);
    BAD_OPTION(type = QUANT_I32);
    BAD_OPTION(type = (quant_type)77);
    BAD_OPTION(only_rank = 33);
    BAD_OPTION(only_rank = 96);
    BAD_OPTION(only_rank = -32);
    BAD_OPTION(max_rank = -1);
    BAD_OPTION(kind = (predictor_kind)17);
}

/* One thread and three give the same bits. */
static void test_threads(void **state) {
    planted_fixture *f = *state;
    pool *one;
    assert_int_equal(pool_create(1, &one, NULL), PI_OK);
    const predictor_data *d = &f->layer.data;
    for (predictor_kind kind = PREDICTOR_SIGN; kind < PREDICTOR_KIND_COUNT; kind++) {
        predictor_options o = defaults(kind);
        predictor_fit a, b;
        assert_int_equal(predictor_fit_layer(f->pool, d, &o, NULL, &a, NULL), PI_OK);
        assert_int_equal(predictor_fit_layer(one, d, &o, NULL, &b, NULL), PI_OK);
        assert_int_equal(a.kind, kind);
        assert_int_equal(a.rank, b.rank);
        assert_memory_equal(a.bias, b.bias, (size_t)d->n_ff * sizeof *a.bias);
        assert_memory_equal(&a.quality, &b.quality, sizeof a.quality);
        size_t row1 = (size_t)d->n_embd / 32 * 34, row2 = (size_t)a.rank / 32 * 34;
        if (kind != PREDICTOR_SIGN) {
            assert_memory_equal(a.fc1, b.fc1, (size_t)a.rank * row1);
            assert_memory_equal(a.fc2, b.fc2, (size_t)d->n_ff * row2);
        }
        predictor_fit_free(&a);
        predictor_fit_free(&b);
    }
    pool_destroy(one);
}

static void test_no_memory(void **state) {
    planted_fixture *f = *state;
    const predictor_data *d = &f->layer.data;
    for (predictor_kind kind = PREDICTOR_SIGN; kind < PREDICTOR_KIND_COUNT; kind++) {
        predictor_options o = defaults(kind);
        predictor_fit p;
        int64_t before = mem_count();
        assert_int_equal(predictor_fit_layer(f->pool, d, &o, NULL, &p, NULL), PI_OK);
        int64_t count = mem_count() - before;
        assert_true(count > 5);
        predictor_fit_free(&p);
        for (int64_t n = 1; n <= count; n++) {
            mem_fail_at(n);
            expect(f, d, &o, PI_ERR_NOMEM);
        }
        mem_fail_at(0);
    }
}

typedef struct patience {
    double until, last;
    int calls;
} patience;

static bool watch(void *user, const char *stage, double fraction) {
    patience *p = user;
    assert_non_null(stage);
    assert_true(fraction >= p->last && fraction <= 1);
    p->last = fraction;
    p->calls++;
    return fraction < p->until;
}

static void test_progress(void **state) {
    planted_fixture *f = *state;
    for (predictor_kind kind = PREDICTOR_SIGN; kind <= PREDICTOR_KIND_COUNT; kind++) {
        predictor_options o = defaults(kind);
        predictor_fit p;
        pi_error err;
        patience all = {.until = 2};
        progress report = {.fn = watch, .user = &all};
        assert_int_equal(predictor_fit_layer(f->pool, &f->layer.data, &o, &report, &p, &err),
                         PI_OK);
        assert_true(all.calls >= 2);
        assert_true(all.last == 1);
        predictor_fit_free(&p);
        /* cancelled at the first and at the last progress call */
        static const double limits[] = {0, 1};
        for (int i = 0; i < 2; i++) {
            patience none = {.until = limits[i]};
            report = (progress){.fn = watch, .user = &none};
            double start = clock_seconds();
            assert_int_equal(predictor_fit_layer(f->pool, &f->layer.data, &o, &report, &p, &err),
                             PI_ERR_CANCELLED);
            assert_true(clock_seconds() - start < 30);
            assert_null(p.bias);
            assert_null(p.fc1);
            assert_null(p.sign);
            if (i == 0) assert_int_equal(none.calls, 1);
        }
    }
}

static void test_not_finite(void **state) {
    planted_fixture *f = *state;
    float saved = f->layer.x[500];
    static const float values[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        f->layer.x[500] = values[i];
        for (predictor_kind kind = PREDICTOR_SIGN; kind < PREDICTOR_KIND_COUNT; kind++) {
            predictor_options o = defaults(kind);
            expect(f, &f->layer.data, &o, PI_ERR_RANGE);
        }
    }
    f->layer.x[500] = saved;
}

/* Layers without training data: no active neuron, no held-out tokens, one token. */
static void test_empty(void **state) {
    planted_fixture *f = *state;
    for (predictor_kind kind = PREDICTOR_SIGN; kind < PREDICTOR_KIND_COUNT; kind++) {
        predictor_options o = defaults(kind);
        predictor_data d = f->layer.data;
        predictor_fit p;
        active_set none;
        float hidden[100] = {0};
        active_init(&none, d.n_ff);
        for (int64_t t = 0; t < d.n_train + d.n_held; t++)
            assert_int_equal(active_add(&none, hidden, hidden, NULL), PI_OK);
        d.active = &none;
        assert_int_equal(predictor_fit_layer(f->pool, &d, &o, NULL, &p, NULL), PI_OK);
        assert_true(p.quality.selected == 0);
        assert_true(p.quality.contribution_recall == 1);
        predictor_fit_free(&p);
        active_free(&none);

        active_set part = f->layer.active;
        d.active = &part;
        d.n_held = 0;
        part.n_tokens = d.n_train;
        assert_int_equal(predictor_fit_layer(f->pool, &d, &o, NULL, &p, NULL), PI_OK);
        assert_true(p.quality.contribution_recall >= o.target - 1e-6);
        assert_true(p.quality.selected < 0.9);
        predictor_fit_free(&p);

        part.n_tokens = d.n_train = 1;
        assert_int_equal(predictor_fit_layer(f->pool, &d, &o, NULL, &p, NULL), PI_OK);
        assert_true(p.quality.contribution_recall >= o.target - 1e-6);
        predictor_fit_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_progress),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, set_up, planted_tear_down);
}
