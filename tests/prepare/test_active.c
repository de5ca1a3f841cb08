/* test_active.c: collecting, counting and renumbering active neurons, compared with dense
 * tables. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "active.h"
#include "mem.h"
#include "rng.h"

enum { NEURONS = 37, TOKENS = 600 };

/* hidden: [TOKENS][NEURONS]; neuron i is active with probability i / NEURONS, with both signs. */
static void fill(float *hidden, float *norm) {
    rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < NEURONS; i++) norm[i] = (float)i / 4;
    for (int k = 0; k < TOKENS * NEURONS; k++)
        hidden[k] = rng_uniform(&r) * NEURONS < k % NEURONS ? rng_normal(&r) : 0.0f;
}

static void check(const active_set *a, const float *hidden, const float *norm,
                  const int32_t *order) {
    assert_int_equal(a->n_tokens, TOKENS);
    for (int64_t t = 0; t < TOKENS; t++) {
        int64_t at = a->start[t];
        for (int32_t i = 0; i < NEURONS; i++) {
            int32_t old = order ? order[i] : i;
            float h = hidden[t * NEURONS + old];
            if (h == 0) continue;
            assert_true(at < a->start[t + 1]);
            assert_int_equal(a->neuron[at], i);
            assert_true(a->contribution[at] == fabsf(h) * norm[old]);
            at++;
        }
        assert_int_equal(at, a->start[t + 1]);
    }
}

static void collect(active_set *a, const float *hidden, const float *norm) {
    for (int64_t t = 0; t < TOKENS; t++)
        assert_int_equal(active_add(a, hidden + t * NEURONS, norm, NULL), PI_OK);
}

static void test_collect(void **state) {
    (void)state;
    static float hidden[TOKENS * NEURONS], norm[NEURONS], freq[NEURONS];
    fill(hidden, norm);
    active_set a;
    active_init(&a, NEURONS);
    active_frequencies(&a, freq);
    for (int i = 0; i < NEURONS; i++) assert_true(freq[i] == 0);
    collect(&a, hidden, norm);
    check(&a, hidden, norm, NULL);
    active_frequencies(&a, freq);
    int32_t order[NEURONS], backwards[NEURONS];
    for (int i = 0; i < NEURONS; i++) {
        int count = 0;
        for (int t = 0; t < TOKENS; t++) count += hidden[t * NEURONS + i] != 0;
        assert_true(fabsf(freq[i] - (float)count / TOKENS) < 1e-6f);
    }
    assert_int_equal(neuron_order(freq, NEURONS, order, NULL), PI_OK);
    for (int i = 1; i < NEURONS; i++) assert_true(freq[order[i]] <= freq[order[i - 1]]);
    assert_int_equal(active_permute(&a, order, NULL), PI_OK);
    check(&a, hidden, norm, order);
    for (int i = 0; i < NEURONS; i++) backwards[order[i]] = i;
    assert_int_equal(active_permute(&a, backwards, NULL), PI_OK);
    check(&a, hidden, norm, NULL);
    active_free(&a);
}

static void test_odd_values(void **state) {
    (void)state;
    const float hidden[4] = {0, -2, -0.0f, 3}, norm[4] = {1, 0.5f, 1, 0};
    const int32_t order[4] = {3, 2, 1, 0};
    active_set a;
    active_init(&a, 4);
    assert_int_equal(active_add(&a, hidden, norm, NULL), PI_OK);
    /* NaN is refused and does not change the set. */
    const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            float wrong[4] = {1, 1, 1, 1}, large[4] = {2, 2, 2, 2};
            char neuron[32];
            pi_error err = {0};
            wrong[i] = bad[k];
            snprintf(neuron, sizeof neuron, "neuron %d:", i);
            assert_int_equal(active_add(&a, wrong, large, &err), PI_ERR_RANGE);
            assert_non_null(strstr(err.message, neuron));
            assert_int_equal(active_add(&a, large, wrong, &err), PI_ERR_RANGE);
        }
    assert_int_equal(a.n_tokens, 1);
    assert_int_equal(active_permute(&a, order, NULL), PI_OK);
    assert_int_equal(a.start[1], 2);
    assert_int_equal(a.neuron[0], 0);
    assert_true(a.contribution[0] == 0);
    assert_int_equal(a.neuron[1], 2);
    assert_true(a.contribution[1] == 1);
    active_free(&a);
}

static void test_order(void **state) {
    (void)state;
    const float freq[6] = {0.5f, NAN, 0.7f, 0.5f, 0, 0.7f};
    static const int32_t expected[6] = {2, 5, 0, 3, 1, 4};
    int32_t order[6];
    assert_int_equal(neuron_order(freq, 6, order, NULL), PI_OK);
    assert_memory_equal(order, expected, sizeof order);
}

/* Neurons of two groups, which fire for different tokens, become two runs; a hotter class stays in
 * front, and the sum of the frequencies stays. */
static void test_chain(void **state) {
    (void)state;
    enum { N = 160, MANY = 500, HOT = 6 };
    static float hidden[N], norm[N], freq[N];
    int32_t order[N];
    active_set a;
    active_init(&a, N);
    for (int i = 0; i < N; i++) norm[i] = 1;
    for (int t = 0; t < MANY; t++) {
        for (int i = 0; i < N; i++)
            hidden[i] = i < HOT || (t % 4 < 2 && (t % 2 == i % 2) && (i * 7 + t) % 11 > 0);
        assert_int_equal(active_add(&a, hidden, norm, NULL), PI_OK);
    }
    active_frequencies(&a, hidden);
    assert_int_equal(neuron_order(hidden, N, order, NULL), PI_OK);
    double before = 0, after = 0;
    for (int i = 0; i < N; i++) before += freq[i] = hidden[order[i]];
    assert_int_equal(active_chain(&a, order, freq, NULL), PI_OK);
    bool seen[N] = {false};
    int changes = 0, n_classes = 1;
    for (int i = 0; i < N; i++) {
        after += freq[i];
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        assert_true(i == 0 || freq[i] <= freq[i - 1]);
        assert_true((order[i] < HOT) == (i < HOT));
        if (i > HOT && freq[i] != freq[i - 1]) n_classes++;
        if (i > HOT && order[i] % 2 != order[i - 1] % 2) changes++;
    }
    assert_true(fabs(before - after) < 1e-4 * before);
    assert_true(n_classes > 1 && changes < 3 * (N / 10)); /* 80 on average by frequency only */
    for (int i = HOT; i < N; i++) freq[i] = hidden[order[i]];
    active_free(&a);
}

/* When memory runs out the set is unchanged and can be used further. */
static void test_no_memory(void **state) {
    (void)state;
    static float hidden[TOKENS * NEURONS], norm[NEURONS];
    fill(hidden, norm);
    active_set a;
    active_init(&a, NEURONS);
    pi_error err;
    int failures = 0;
    for (int64_t t = 0; t < TOKENS; t++)
        for (int n = 1;; n++) { /* until there are fewer than n allocations */
            mem_fail_at(n);
            pi_status status = active_add(&a, hidden + t * NEURONS, norm, &err);
            mem_fail_at(0);
            if (status == PI_OK) break;
            assert_int_equal(status, PI_ERR_NOMEM);
            failures++;
        }
    assert_true(failures >= 6);
    check(&a, hidden, norm, NULL);
    int32_t order[NEURONS];
    float freq[NEURONS] = {0};
    mem_fail_at(1);
    assert_int_equal(neuron_order(freq, NEURONS, order, &err), PI_ERR_NOMEM);
    assert_int_equal(neuron_order(freq, NEURONS, order, &err), PI_OK);
    mem_fail_at(1);
    assert_int_equal(active_chain(&a, order, freq, &err), PI_ERR_NOMEM);
    for (int n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_int_equal(active_permute(&a, order, &err), PI_ERR_NOMEM);
    }
    mem_fail_at(0);
    check(&a, hidden, norm, NULL);
    active_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collect),   cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_chain),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
