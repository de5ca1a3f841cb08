/* kernel_select.c: compares neuron selection (select, keep) exactly with plain loops, and scores
 * from sign bits (sign_dot) with a sum in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "kernel_case.h"
#include "kernel_tests.h"

enum { N_MAX = 300 };

/* Returns a value near the threshold, at the threshold, or beyond all bounds. */
static float hostile_value(float threshold, rng *r) {
    const float special[] = {NAN,       -NAN,
                             INFINITY,  -INFINITY,
                             -1e30f,    1e30f,
                             0.0f,      -0.0f,
                             threshold, nextafterf(threshold, 9e9f),
                             1e-45f,    3e38f,
                             -1e-45f,   nextafterf(threshold, -9e9f)};
    uint64_t pick = rng_u64(r) >> 32;
    if (pick % 3 == 0) return special[pick / 3 % (sizeof special / sizeof *special)];
    return threshold + rng_normal(r);
}

static void check_select(const cpu_kernels *k, int64_t n, float threshold, bool with_bias, rng *r) {
    /* exactly the size that may be touched, so that every other access is detected */
    float *score = fenced_alloc((size_t)n * sizeof *score);
    float *bias = fenced_alloc((size_t)n * sizeof *bias);
    int32_t *out = fenced_alloc((size_t)n * sizeof *out), want[N_MAX];
    assert_true(score != NULL && bias != NULL && out != NULL);
    int64_t count = 0;
    const int32_t first = (int32_t)(rng_u64(r) % 1000);
    for (int64_t i = 0; i < n; i++) {
        score[i] = hostile_value(threshold, r);
        bias[i] = i % 4 == 0 ? -1e30f : i % 4 == 1 ? 0.0f : rng_normal(r);
        float sum = with_bias ? score[i] + bias[i] : score[i];
        if (sum >= threshold || isnan(sum) || isnan(threshold)) want[count++] = first + (int32_t)i;
    }
    int64_t got = k->select(score, with_bias ? bias : NULL, threshold, first, n, out);
    if (got != count || memcmp(out, want, (size_t)count * sizeof *out) != 0)
        fail_msg(
            "%s: select of %d, threshold %g, bias %d: %d neurons, expected %d; or other neurons",
            k->name, (int)n, (double)threshold, with_bias, (int)got, (int)count);
    fenced_free(score);
    fenced_free(bias);
    fenced_free(out);
}

void kernel_test_select(void **state) {
    (void)state;
    static const float thresholds[] = {0.0f, -1e30f, 0.37f, INFINITY, -INFINITY, NAN, -2.0f};
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 61);
    kernel_tiers_load(&tiers);
    for (int t = 0; t < tiers.n; t++)
        for (int64_t n = 0; n <= 67; n += n < 35 ? 1 : 8)
            for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++)
                for (int bias = 0; bias < 2; bias++)
                    check_select(&tiers.table[t], n, thresholds[i], bias, &r);
    for (int t = 0; t < tiers.n; t++) check_select(&tiers.table[t], N_MAX, 0.5f, true, &r);
}

static void check_keep(const cpu_kernels *k, int64_t n, float cut, bool weighted, rng *r) {
    float *v = fenced_alloc((size_t)n * sizeof *v), want_v[N_MAX];
    float *weight = fenced_alloc((size_t)n * sizeof *weight);
    int32_t *rows = fenced_alloc((size_t)n * sizeof *rows), want_rows[N_MAX];
    assert_true(v != NULL && rows != NULL && weight != NULL);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = hostile_value(i % 2 ? cut : -cut, r);
        weight[i] = (float)(i % 3) / 2;
        rows[i] = (int32_t)(3 * i + 5);
        float size = weighted ? fabsf(v[i]) * weight[i] : fabsf(v[i]);
        if (!(size > cut) && !isnan(size) && !isnan(cut)) continue;
        want_v[count] = v[i];
        want_rows[count++] = rows[i];
    }
    int64_t got = k->keep(v, weighted ? weight : NULL, rows, cut, n);
    if (got != count || memcmp(v, want_v, (size_t)count * sizeof *v) != 0 ||
        memcmp(rows, want_rows, (size_t)count * sizeof *rows) != 0)
        fail_msg("%s: keep of %d, cut %g: %d neurons, expected %d; or other neurons", k->name,
                 (int)n, (double)cut, (int)got, (int)count);
    fenced_free(v);
    fenced_free(weight);
    fenced_free(rows);
}

void kernel_test_keep(void **state) {
    (void)state;
    static const float cuts[] = {0.0f, 0.5f, 1e-45f, INFINITY, -1.0f, NAN};
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 62);
    kernel_tiers_load(&tiers);
    for (int t = 0; t < tiers.n; t++) {
        for (int64_t n = 0; n <= 67; n += n < 35 ? 1 : 8)
            for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
                for (int weighted = 0; weighted < 2; weighted++)
                    check_keep(&tiers.table[t], n, cuts[i], weighted, &r);
        check_keep(&tiers.table[t], N_MAX, 0.5f, true, &r);
    }
}

/* ---- sign_dot -------------------------------------------------------------------------------- */

typedef struct sign_case {
    kernel_case c; /* only x is used */
    uint8_t *bits; /* [n_rows][n / 8] */
    int64_t n, n_rows, ldy;
    size_t n_y;
    float *y, *whole;
} sign_case;

static void sign_make(sign_case *s, int64_t n, int64_t n_rows, int64_t n_cols, rng *r) {
    *s = (sign_case){.n = n, .n_rows = n_rows, .ldy = n_rows + 2};
    s->c = (kernel_case){.n_cols = n_cols, .ldx = n + 5, .w = {.n_in = n}};
    size_t n_x = (size_t)(n_cols - 1) * (size_t)s->c.ldx + (size_t)n;
    size_t n_bits = (size_t)(n_rows * n / 8);
    s->n_y = (size_t)((n_cols - 1) * s->ldy + n_rows);
    s->c.x = fenced_alloc(n_x * sizeof *s->c.x);
    s->bits = fenced_alloc(n_bits);
    s->y = fenced_alloc(s->n_y * sizeof *s->y);
    s->whole = fenced_alloc(s->n_y * sizeof *s->whole);
    assert_true(s->c.x != NULL && s->bits != NULL && s->y != NULL && s->whole != NULL);
    for (size_t i = 0; i < n_x; i++) s->c.x[i] = rng_normal(r) * (i % 71 < 40 ? 1.0f : 100.0f);
    for (size_t i = 0; i < n_bits; i++) s->bits[i] = (uint8_t)(rng_u64(r) >> 40);
}

static void sign_free(sign_case *s) {
    fenced_free(s->c.x);
    fenced_free(s->bits);
    fenced_free(s->y);
    fenced_free(s->whole);
}

static void sign_check(const cpu_kernels *k, sign_case *s, int64_t row0, int64_t row1) {
    cpu_act a = kernel_encode(k, &s->c, CPU_ACT_Q8, CPU_ACT_COLUMNS);
    for (size_t i = 0; i < s->n_y; i++) s->y[i] = KERNEL_GUARD;
    k->sign_dot(s->bits, row0, row1, &a, s->y, s->ldy);
    for (size_t i = 0; i < s->n_y; i++) {
        int64_t row = (int64_t)i % s->ldy, col = (int64_t)i / s->ldy;
        if (row < row0 || row >= row1) {
            assert_true(s->y[i] == KERNEL_GUARD);
            continue;
        }
        const uint8_t *bits = s->bits + row * s->n / 8;
        double want = 0.0, terms = 0.0;
        for (int64_t e = 0; e < s->n; e++) {
            double x = kernel_act_value(&a, col, e);
            want += bits[e / 8] >> e % 8 & 1 ? x : -x;
            terms += fabs(x);
        }
        double got = (double)s->y[i];
        if (!(fabs(got - want) <= 1e-6 * terms) && !(isnan(want) && isnan(got)))
            fail_msg("%s: sign_dot of %d, row %d of %d..%d, column %d: %.9g, not %.9g", k->name,
                     (int)s->n, (int)row, (int)row0, (int)row1, (int)col, got, want);
    }
    fenced_free(a.data);
}

/* Every split of the rows gives the same bits. */
static void sign_check_split(const cpu_kernels *k, sign_case *s, rng *r) {
    cpu_act a = kernel_encode(k, &s->c, CPU_ACT_Q8, CPU_ACT_COLUMNS);
    for (size_t i = 0; i < s->n_y; i++) s->y[i] = s->whole[i] = KERNEL_GUARD;
    k->sign_dot(s->bits, 0, s->n_rows, &a, s->whole, s->ldy);
    for (int64_t row = 0; row < s->n_rows;) {
        int64_t end = row + (int64_t)(rng_u64(r) % 9);
        if (end > s->n_rows) end = s->n_rows;
        k->sign_dot(s->bits, row, end, &a, s->y, s->ldy);
        row = end;
    }
    assert_memory_equal(s->y, s->whole, s->n_y * sizeof *s->y);
    fenced_free(a.data);
}

void kernel_test_sign_dot(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 63);
    kernel_tiers_load(&tiers);
    for (int64_t n = 32; n <= 9000; n += n < 1200 ? 32 : 1952) {
        sign_case s;
        sign_make(&s, n, 1 + (int64_t)(rng_u64(&r) % 30), 1 + n / 32 % 7, &r);
        /* a group of zeros, and a non-finite group in the last column */
        for (int i = 0; i < 32; i++) s.c.x[i] = 0.0f;
        if (n % 96 == 0) s.c.x[(s.c.n_cols - 1) * s.c.ldx + n - 7] = n % 64 ? NAN : -INFINITY;
        for (int t = 0; t < tiers.n; t++) {
            int64_t first = (int64_t)(rng_u64(&r) % (uint64_t)s.n_rows);
            sign_check(&tiers.table[t], &s, 0, s.n_rows);
            sign_check(&tiers.table[t], &s, first, s.n_rows);
            sign_check(&tiers.table[t], &s, first, first);
            sign_check_split(&tiers.table[t], &s, &r);
        }
        sign_free(&s);
    }
}
