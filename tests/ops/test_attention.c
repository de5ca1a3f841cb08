/* test_attention.c: attention of every tier against the plain formula in double: softmax over all
 * visible positions at once, no blocks, no running maximum. Buffers have their exact size, so that
 * a sanitizer sees reads beyond the end; guard values surround states and scratch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu.h"
#include "fenced.h"
#include "mem.h"
#include "rng.h"

enum { GUARD = 16, MAX_Q = 80 };
static const float guard_value = -12345.5f;

static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_AVX2, CPU_TIER_AVX512, CPU_TIER_NEON};

typedef struct shape {
    int n_q, head_dim, n_pos;
    quant_type type_k, type_v;
    float softcap;
    size_t gap; /* bytes between rows */
    int v_dim;  /* 0: head_dim */
} shape;

typedef struct problem {
    cpu_attn a;
    int n_pos;
    void *k, *v;
    float slopes[3];
    float *kf, *vf, *q; /* decoded rows, [n_pos][head_dim]; vf: [n_pos][v_dim] */
    float *state;       /* GUARD | m | GUARD | l | GUARD | acc | GUARD */
    float *scratch;     /* ... | GUARD */
    size_t scratch_floats;
    int32_t first[MAX_Q], limit[MAX_Q];
    float v_max;
} problem;

static int value_dim(const cpu_attn *a) {
    return a->v_dim ? a->v_dim : a->head_dim;
}

/* Makes random rows of `type` and their decoded values. */
static void *make_rows(rng *r, quant_type type, int n, int dim, size_t gap, float scale,
                       float *decoded, size_t *stride) {
    const quant_traits *traits = quant_find((uint32_t)type);
    cpu_kernels k;
    size_t row;
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &k));
    assert_true(quant_row_bytes(type, (uint64_t)dim, &row));
    *stride = row + gap;
    char *rows = fenced_alloc((size_t)(n > 0 ? n : 1) * *stride);
    memset(rows, 0xff, (size_t)(n > 0 ? n : 1) * *stride); /* NaN in the gaps */
    for (int j = 0; j < n; j++) {
        float x[512];
        for (int d = 0; d < dim; d++) x[d] = rng_normal(r) * scale;
        k.kv_store(x, rows + (size_t)j * *stride, type, dim);
        traits->dequantize(rows + (size_t)j * *stride, decoded + j * dim, dim);
    }
    return rows;
}

static void reset(problem *p) {
    cpu_attn *a = &p->a;
    int n = a->n_q;
    size_t total = 4 * GUARD + (size_t)(2 * n + n * value_dim(a));
    for (size_t i = 0; i < total; i++) p->state[i] = guard_value;
    for (int i = 0; i < n; i++) a->m[i] = -INFINITY, a->l[i] = 0;
    for (int i = 0; i < n * value_dim(a); i++) a->acc[i] = 0;
    for (size_t i = 0; i < p->scratch_floats + GUARD; i++) p->scratch[i] = guard_value;
}

static void check_guards(const problem *p) {
    const cpu_attn *a = &p->a;
    for (int i = 0; i < GUARD; i++) {
        assert_true(p->state[i] == guard_value);
        assert_true(a->m[a->n_q + i] == guard_value);
        assert_true(a->l[a->n_q + i] == guard_value);
        assert_true(a->acc[a->n_q * value_dim(a) + i] == guard_value);
        assert_true(p->scratch[p->scratch_floats + (size_t)i] == guard_value);
    }
}

static void make(problem *p, shape s, uint64_t seed) {
    rng r;
    rng_seed(&r, seed);
    memset(p, 0, sizeof *p);
    int v_dim = s.v_dim ? s.v_dim : s.head_dim;
    size_t rows = (size_t)(s.n_pos > 0 ? s.n_pos : 1), cells = rows * (size_t)v_dim;
    p->n_pos = s.n_pos;
    p->kf = fenced_alloc(rows * (size_t)s.head_dim * sizeof(float));
    p->vf = fenced_alloc(cells * sizeof(float));
    p->q = fenced_alloc((size_t)(s.n_q * s.head_dim) * sizeof(float));
    p->k = make_rows(&r, s.type_k, s.n_pos, s.head_dim, s.gap, 1.0f, p->kf, &p->a.k_stride);
    p->v = make_rows(&r, s.type_v, s.n_pos, v_dim, s.gap, 1.0f, p->vf, &p->a.v_stride);
    float spread = 2.0f / sqrtf((float)s.head_dim);
    for (int i = 0; i < s.n_q * s.head_dim; i++) p->q[i] = rng_normal(&r) * spread;
    for (size_t i = 0; i < cells && s.n_pos > 0; i++) p->v_max = fmaxf(p->v_max, fabsf(p->vf[i]));
    size_t n = (size_t)s.n_q;
    p->state = fenced_alloc((4 * GUARD + 2 * n + n * (size_t)v_dim) * sizeof(float));
    p->scratch_floats = cpu_attn_scratch_bytes(s.n_q, s.head_dim) / sizeof(float);
    void *scratch = mem_map((p->scratch_floats + GUARD) * sizeof(float));
    assert_non_null(scratch);
    p->scratch = scratch;
    cpu_attn *a = &p->a;
    a->q = p->q, a->n_q = s.n_q, a->head_dim = s.head_dim, a->v_dim = s.v_dim;
    a->k = p->k, a->v = p->v, a->type_k = s.type_k, a->type_v = s.type_v;
    a->k1 = s.n_pos, a->first = p->first, a->limit = p->limit, a->softcap = s.softcap;
    a->m = p->state + GUARD, a->l = a->m + n + GUARD, a->acc = a->l + n + GUARD;
    a->scratch = scratch;
    for (int i = 0; i < s.n_q; i++) p->limit[i] = s.n_pos;
    reset(p);
}

static void drop(problem *p) {
    mem_unmap(p->scratch, (p->scratch_floats + GUARD) * sizeof(float));
    fenced_free(p->kf), fenced_free(p->vf), fenced_free(p->q), fenced_free(p->k), fenced_free(p->v);
    fenced_free(p->state);
}

static double score(const problem *p, int i, int j) {
    double s = 0, cap = p->a.softcap;
    int dim = p->a.head_dim;
    for (int d = 0; d < dim; d++) s += (double)p->q[i * dim + d] * p->kf[j * dim + d];
    if (cap > 0) s = cap * tanh(s / cap);
    if (p->a.slopes) s += (double)p->slopes[i % p->a.n_slopes] * (double)(j + 1 - p->limit[i]);
    return s;
}

/* Compares the state of every query with the formula. */
static void check(const problem *p, double tolerance) {
    const cpu_attn *a = &p->a;
    double w[4096];
    const int n = value_dim(a);
    check_guards(p);
    for (int i = 0; i < a->n_q; i++) {
        double top = -INFINITY, sum = 0;
        int64_t lo = p->first[i] > a->k0 ? p->first[i] : a->k0;
        int64_t hi = p->limit[i] < a->k1 ? p->limit[i] : a->k1;
        for (int64_t j = lo; j < hi; j++) {
            w[j] = score(p, i, (int)j);
            top = fmax(top, w[j]);
        }
        if (lo >= hi) { /* the state stays untouched */
            assert_true(a->m[i] == -INFINITY && a->l[i] == 0);
            for (int d = 0; d < n; d++) assert_true(a->acc[i * n + d] == 0);
            continue;
        }
        for (int64_t j = lo; j < hi; j++) sum += w[j] = exp(w[j] - top);
        double want = top + log(sum), got = (double)a->m[i] + log((double)a->l[i]);
        if (!(fabs(want - got) <= tolerance * (1 + fabs(want))))
            fail_msg("query %d: log sum %.9g, should be %.9g", i, got, want);
        for (int d = 0; d < n; d++) {
            double value = 0;
            for (int64_t j = lo; j < hi; j++) value += w[j] / sum * p->vf[j * n + d];
            got = (double)a->acc[i * n + d] / (double)a->l[i];
            if (!(fabs(value - got) <= tolerance * (1 + p->v_max)))
                fail_msg("query %d dim %d: %.9g, should be %.9g", i, d, got, value);
        }
    }
}

static void for_each_tier(shape s, uint64_t seed, void (*prepare)(problem *), double tolerance) {
    problem p;
    make(&p, s, seed);
    if (prepare) prepare(&p);
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
        cpu_kernels k;
        if (!cpu_kernels_get(tiers[t], &k)) continue;
        reset(&p);
        k.attention(&p.a);
        check(&p, tolerance);
    }
    drop(&p);
}

static const double tolerance = 2e-6;

static const quant_type cache_types[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16,
                                         QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1,
                                         QUANT_Q5_0, QUANT_Q5_1, QUANT_IQ4_NL};
enum { N_TYPES = 9, N_PLAIN = 3 };

static void test_dims_and_groups(void **state) {
    (void)state;
    static const int dims[] = {2,  6,  14, 16,  18,  34,  50,  62, 64,
                               66, 80, 96, 112, 126, 128, 130, 256};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int n_q = 1; n_q <= 10; n_q++)
            for (int plain = 0; plain < N_PLAIN; plain++) {
                quant_type type = cache_types[plain];
                shape s = {n_q, dims[d], 70, type, type, 0, 0, 0};
                for_each_tier(s, (uint64_t)(dims[d] * 100 + n_q), NULL, tolerance);
            }
}

static void test_types(void **state) {
    (void)state;
    static const int dims[] = {32, 64, 96, 128, 256}, queries[] = {1, 2, 3, 4, 7, 8, 9, 33};
    for (int tk = 0; tk < N_TYPES; tk++)
        for (int tv = 0; tv < N_TYPES; tv++)
            for (int d = 0; d < 5; d++)
                for (int n = 0; n < 8; n++) {
                    shape s = {
                        queries[n],          dims[d], 67, cache_types[tk], cache_types[tv], 0,
                        (size_t)(n % 3) * 4, 0};
                    for_each_tier(s, (uint64_t)(tk * 1000 + tv * 100 + d * 10 + n), NULL,
                                  tolerance);
                }
}

/* Value rows are shorter than key rows. */
static void test_uneven(void **state) {
    (void)state;
    static const int dims[][2] = {{192, 128}, {64, 32}, {256, 96}, {40, 6}, {66, 64}, {16, 2}};
    static const int queries[] = {1, 2, 3, 4, 7, 8, 9, 33};
    for (int d = 0; d < 6; d++)
        for (int t = 0; t < (dims[d][0] % 32 || dims[d][1] % 32 ? N_PLAIN : N_TYPES); t++)
            for (int n = 0; n < 8; n++) {
                const quant_type type = cache_types[t];
                shape s = {queries[n], dims[d][0],          67,        type, type,
                           0,          (size_t)(n % 3) * 4, dims[d][1]};
                for_each_tier(s, (uint64_t)(d * 100 + t * 10 + n), NULL, tolerance);
            }
}

static void test_lengths(void **state) {
    (void)state;
    for (int n_pos = 0; n_pos < 300; n_pos += n_pos < 20 ? 1 : 7)
        for (int n_q = 1; n_q < 20; n_q = n_q * 2 + 1)
            for_each_tier((shape){n_q, 64, n_pos, QUANT_F16, QUANT_F16, 0, 0, 0},
                          (uint64_t)(n_pos * 7 + n_q), NULL, tolerance);
    for_each_tier((shape){1, 128, 4096, QUANT_F16, QUANT_F16, 0, 0, 0}, 5, NULL, tolerance);
    for_each_tier((shape){5, 128, 4000, QUANT_Q8_0, QUANT_F16, 0, 0, 0}, 6, NULL, tolerance);
}

static void causal(problem *p) {
    int group = p->a.n_q % 4 == 0 ? 4 : 1;
    for (int i = 0; i < p->a.n_q; i++) p->limit[i] = p->n_pos - (p->a.n_q - 1) / group + i / group;
}

static void window(problem *p) {
    causal(p);
    for (int i = 0; i < p->a.n_q; i++) p->first[i] = p->limit[i] - 21;
}

/* ALiBi with one to three heads per KV head. */
static void sloped(problem *p) {
    p->a.n_slopes = p->a.n_q % 3 == 0 ? 3 : p->a.n_q % 2 == 0 ? 2 : 1;
    for (int h = 0; h < p->a.n_slopes; h++) p->slopes[h] = 0.5f / (float)(1 << 2 * h);
    for (int i = 0; i < p->a.n_q; i++) p->limit[i] = p->n_pos - (p->a.n_q - 1 - i) / p->a.n_slopes;
    p->a.slopes = p->slopes;
}

/* One tile has empty, reversed, outside, single and full ranges. */
static void ragged(problem *p) {
    rng r;
    rng_seed(&r, (uint64_t)p->a.n_q);
    for (int i = 0; i < p->a.n_q; i++) {
        p->first[i] = (int32_t)(rng_u64(&r) % 200) - 20;
        p->limit[i] = p->first[i] + (int32_t)(rng_u64(&r) % 120) - 10;
        if (i % 5 == 4) p->limit[i] = p->first[i] + 1;
    }
    p->limit[0] = p->first[0];
}

static void test_masks(void **state) {
    (void)state;
    static void (*const masks[])(problem *) = {causal, window, ragged, sloped};
    static const int queries[] = {1, 2, 3, 4, 6, 8, 12, 31, 64, 79};
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 10; n++)
            for (int n_pos = 90; n_pos < 200; n_pos += 37)
                for (int cap = 0; cap < 2; cap++) {
                    shape s = {queries[n], 48, n_pos, QUANT_F16, QUANT_F32, cap ? 3.0f : 0, 8, 0};
                    for_each_tier(s, (uint64_t)(n_pos + n), masks[m], 2 * tolerance);
                }
}

/* Values of hidden positions must not contribute, not even as 0 * inf. */
static void test_hidden_rows(void **state) {
    (void)state;
    for (int n_q = 1; n_q <= 16; n_q++) {
        problem p;
        make(&p, (shape){n_q, 40, 150, QUANT_F32, QUANT_F32, 0, 0, 0}, 3);
        for (int i = 0; i < n_q; i++) p.first[i] = 10 + i, p.limit[i] = 120 + i;
        for (int j = 0; j < 150; j++) {
            if (j >= 10 && j < 119 + n_q) continue;
            for (int d = 0; d < 40; d++) {
                ((float *)p.k)[j * 40 + d] = d % 2 ? INFINITY : NAN;
                ((float *)p.v)[j * 40 + d] = d % 2 ? NAN : -INFINITY;
            }
        }
        /* a position that only the first query sees */
        for (int d = 0; d < 40 && n_q > 1; d++) ((float *)p.v)[10 * 40 + d] = INFINITY;
        for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
            cpu_kernels k;
            if (!cpu_kernels_get(tiers[t], &k)) continue;
            reset(&p);
            k.attention(&p.a);
            check_guards(&p);
            for (int i = 0; i < n_q; i++)
                for (int d = 0; d < 40; d++) {
                    float x = p.a.acc[i * 40 + d];
                    assert_true(n_q > 1 && i == 0 ? !isfinite(x) : isfinite(x));
                }
        }
        drop(&p);
    }
}

/* Scores of -inf have weight 0, and leave the state unchanged if there are no others. Large and
 * tiny finite scores neither overflow nor vanish. NaN reaches the result. */
static void test_hostile_scores(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
        cpu_kernels k;
        if (!cpu_kernels_get(tiers[t], &k)) continue;
        for (int n_q = 1; n_q <= 12; n_q++) {
            problem p;
            make(&p, (shape){n_q, 16, 100, QUANT_F32, QUANT_F32, 0, 0, 0}, 8);
            float *rows = p.k;
            for (int i = 0; i < n_q * 16; i++) p.q[i] = i % 16 == 0;
            for (int j = 0; j < 100; j++) rows[j * 16] = -INFINITY;
            k.attention(&p.a);
            for (int i = 0; i < n_q; i++) assert_true(p.a.m[i] == -INFINITY && p.a.l[i] == 0);
            rows[99 * 16] = -3e38f;
            k.attention(&p.a);
            for (int i = 0; i < n_q; i++) {
                assert_true(p.a.l[i] == 1);
                for (int d = 0; d < 16; d++) assert_true(p.a.acc[i * 16 + d] == p.vf[99 * 16 + d]);
            }
            rows[3 * 16] = 3e38f;
            reset(&p);
            k.attention(&p.a);
            for (int i = 0; i < n_q; i++) assert_true(p.a.l[i] == 1 && p.a.m[i] == 3e38f);
            rows[70 * 16] = NAN;
            reset(&p);
            k.attention(&p.a);
            for (int i = 0; i < n_q; i++) assert_true(isnan(p.a.l[i]) && isnan(p.a.acc[i * 16]));
            check_guards(&p);
            drop(&p);
        }
    }
}

static void states_agree(const cpu_attn *a, const float *m, const float *l, const float *acc,
                         float v_max) {
    for (int i = 0; i < a->n_q; i++) {
        double scale = exp((double)m[i] - (double)a->m[i]);
        assert_true(fabs((double)l[i] * scale / (double)a->l[i] - 1) < 1e-6);
        for (int d = 0; d < a->head_dim; d++) {
            double x = (double)acc[i * a->head_dim + d] * scale / (double)a->l[i];
            double y = (double)a->acc[i * a->head_dim + d] / (double)a->l[i];
            assert_true(fabs(x - y) < 1e-6 * (double)v_max);
        }
    }
}

/* Two ranges, one after the other, on the same state. */
static void test_splits(void **state) {
    (void)state;
    enum { N = 333, DIM = 64 };
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
        cpu_kernels k;
        if (!cpu_kernels_get(tiers[t], &k)) continue;
        for (int n_q = 1; n_q <= 17; n_q += 4) {
            problem p;
            make(&p, (shape){n_q, DIM, N, QUANT_F16, QUANT_F16, 0, 0, 0}, 12);
            for (int at = 0; at <= N; at += at < 70 ? 1 : 29) {
                reset(&p);
                p.a.k0 = 0, p.a.k1 = at;
                k.attention(&p.a);
                p.a.k0 = at, p.a.k1 = N;
                k.attention(&p.a);
                float m1[MAX_Q], l1[MAX_Q], acc1[MAX_Q * DIM];
                memcpy(m1, p.a.m, sizeof(float) * (size_t)n_q);
                memcpy(l1, p.a.l, sizeof(float) * (size_t)n_q);
                memcpy(acc1, p.a.acc, sizeof(float) * (size_t)(n_q * DIM));
                reset(&p);
                p.a.k0 = 0;
                k.attention(&p.a);
                states_agree(&p.a, m1, l1, acc1, p.v_max);
                check_guards(&p);
            }
            drop(&p);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dims_and_groups), cmocka_unit_test(test_types),
        cmocka_unit_test(test_uneven),          cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_masks),           cmocka_unit_test(test_hidden_rows),
        cmocka_unit_test(test_hostile_scores),  cmocka_unit_test(test_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
