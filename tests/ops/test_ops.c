/* test_ops.c: compares norms, rotary positions, activations, sums and KV cache rows of every tier
 * with the formulas in double: sizes 1..300, in place and out of place, between guard values, with
 * hostile input. `test_ops --bench` measures attention instead. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "activation_formula.h"
#include "cpu.h"
#include "ops_bench.h"
#include "quant_blocks.h"
#include "rng.h"

enum { MAX_N = 300, GUARD = 20 };
static const float guard_value = -54321.25f;
static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_AVX2, CPU_TIER_AVX512, CPU_TIER_NEON};

/* Inputs start at odd multiples of 4 bytes; guards surround the output. */
typedef struct buffers {
    float x[MAX_N + 1], w[MAX_N + 1], b[MAX_N + 1];
    float y[GUARD + MAX_N + GUARD];
} buffers;

static void fill(buffers *b, uint64_t seed, float scale, float shift) {
    rng r;
    rng_seed(&r, seed);
    for (int i = 0; i <= MAX_N; i++) {
        b->x[i] = rng_normal(&r) * scale + shift;
        b->w[i] = rng_normal(&r);
        b->b[i] = rng_normal(&r);
    }
}

/* Puts guards around `y`, and x between them when the operation works in place. */
static float *output(buffers *b, const float *x, int n) {
    for (int i = 0; i < 2 * GUARD + MAX_N; i++) b->y[i] = guard_value;
    if (x) memcpy(b->y + GUARD, x, (size_t)n * sizeof *x);
    return b->y + GUARD;
}

static void check_guards(const buffers *b, int n) {
    for (int i = 0; i < GUARD; i++) {
        assert_true(b->y[i] == guard_value);
        assert_true(b->y[GUARD + n + i] == guard_value);
    }
}

static void near(double got, double want, double relative, double absolute) {
    if (!(fabs(got - want) <= relative * fabs(want) + absolute))
        fail_msg("%.9g, should be %.9g", got, want);
}

#define EACH_TIER(k)                                                                               \
    for (size_t tier_ = 0; tier_ < sizeof tiers / sizeof *tiers; tier_++)                          \
        if (cpu_kernels_get(tiers[tier_], &(k)))

static void test_rms_norm(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, 3, 0);
        const float *x = b.x + n % 2, *w = n % 3 ? b.w + n % 2 : NULL, eps = 1e-5f;
        double sum = 0;
        for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / n + (double)eps);
        for (int in_place = 0; in_place < 2; in_place++) {
            float *y = output(&b, in_place ? x : NULL, n);
            k.rms_norm(in_place ? y : x, w, y, n, eps);
            check_guards(&b, n);
            for (int i = 0; i < n; i++)
                near((double)y[i], x[i] * scale * (w ? (double)w[i] : 1), 1e-6, 1e-37);
        }
    }
}

static void test_layer_norm(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, 2, 5); /* a mean well away from 0 */
        const float *x = b.x + n % 2, *w = n % 3 ? b.w : NULL, *bias = n % 5 ? b.b + 1 : NULL;
        double mean = 0, var = 0;
        for (int i = 0; i < n; i++) mean += (double)x[i] / n;
        for (int i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / n;
        double scale = 1 / sqrt(var + 1e-3);
        for (int in_place = 0; in_place < 2; in_place++) {
            float *y = output(&b, in_place ? x : NULL, n);
            k.layer_norm(in_place ? y : x, w, bias, y, n, 1e-3f);
            check_guards(&b, n);
            for (int i = 0; i < n; i++) {
                double want = (x[i] - mean) * scale * (w ? (double)w[i] : 1);
                /* the error of (x - mean) is a few roundings of the mean, not relative to y */
                near((double)y[i], want + (bias ? (double)bias[i] : 0), 1e-6,
                     4e-6 * (1 + scale) + 1e-6 * fabs(want));
            }
        }
    }
}

static void test_rope(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k)
    for (int n_rot = 0; n_rot <= 256; n_rot += 2)
        for (int neox = 0; neox < 2; neox++) {
            float cs[256 + 1];
            fill(&b, (uint64_t)n_rot, 1, 0);
            for (int i = 0; i < n_rot / 2; i++) {
                cs[2 * i] = cosf((float)i * 0.7f);
                cs[2 * i + 1] = sinf((float)i * 0.7f);
            }
            float *y = output(&b, b.x, n_rot);
            k.rope(y, n_rot, cs, neox);
            check_guards(&b, n_rot);
            for (int i = 0; i < n_rot / 2; i++) {
                int e = neox ? i : 2 * i, o = neox ? i + n_rot / 2 : 2 * i + 1;
                double c = cs[2 * i], s = cs[2 * i + 1];
                near((double)y[e], b.x[e] * c - b.x[o] * s, 1e-6, 5e-7);
                near((double)y[o], b.x[e] * s + b.x[o] * c, 1e-6, 5e-7);
            }
        }
}

static void test_activate(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    const float threshold = 0.25f;
    EACH_TIER(k) for (int f = 0; f < ACTIVATION_COUNT; f++) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, n % 4 == 0 ? 20.0f : 2.0f, 0);
        if (n > 3) b.x[3] = threshold; /* not above it */
        const float *up = n % 3 ? b.w + n % 2 : NULL;
        for (int in_place = 0; in_place < 3; in_place++) {
            if (in_place == 2 && !up) continue;
            float *y = output(&b, in_place == 1 ? b.x : in_place == 2 ? up : NULL, n);
            k.activate((activation)f, threshold, in_place == 1 ? y : b.x, in_place == 2 ? y : up, y,
                       n);
            check_guards(&b, n);
            for (int i = 0; i < n; i++) {
                double want = activation_formula((activation)f, (double)threshold, (double)b.x[i]);
                double u = up ? (double)up[i] : 1;
                if (f == ACTIVATION_DRELU) u = u > 0 ? u : 0;
                /* exponentials: an absolute error of 1e-6 in the argument is a relative error of
                 * 1e-6 in the result */
                near((double)y[i], want * u, 1e-6 * (1 + fabs((double)b.x[i])), 1e-9);
            }
        }
    }
}

/* Tests the exponential through silu, x / silu(x) - 1 = e^-x, over the whole range of float. */
static void test_exponential(void **state) {
    (void)state;
    cpu_kernels k;
    EACH_TIER(k) for (double x = -104; x < 88; x += 0.037) {
        float gate[1] = {(float)x}, y[1];
        k.activate(ACTIVATION_SILU, 0, gate, NULL, y, 1);
        double want = (double)gate[0] / (1 + exp(-(double)gate[0]));
        /* one float rounding of 1 + e^-x, one of the quotient, and e^-x itself: 2e-7 each */
        if (x > -87)
            near((double)y[0], want, 4e-7, 1e-38);
        else
            assert_true(fabsf(y[0]) < 1e-35f);
    }
}

static void test_decay(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, n % 4 == 0 ? 40.0f : 3.0f, 0);
        const float *x = b.x + n % 2, a = n % 3 ? -0.7f : -8;
        float *y = output(&b, NULL, n);
        const float least = n % 5 ? 0 : -5;
        k.decay(x, b.b, a, least, y, n);
        check_guards(&b, n);
        for (int i = 0; i < n; i++) {
            double v = (double)(x[i] + b.b[i]), plus = v > 30 ? v : log1p(exp(v));
            /* absolute errors of the exponent, some 2e-7 of it, are relative errors of the
             * result */
            double want = least < 0 ? -5 / (1 + exp((double)a * v)) : (double)a * plus;
            near((double)y[i], exp(want), 1e-6 * (1 - want), 1e-37);
        }
    }
    static const float plain[] = {0, -INFINITY, INFINITY, NAN, -1e30f, 1e30f, -90, 90};
    EACH_TIER(k) for (int i = 0; i < 8; i++) {
        float none = 0, y;
        k.decay(&plain[i], &none, -1, 0, &y, 1);
        double v = (double)plain[i], want = exp(-(v > 30 ? v : log1p(exp(v))));
        if (isnan(plain[i]))
            assert_true(isnan(y));
        else
            near((double)y, want, 1e-6, 1e-37);
        k.decay(&plain[i], &none, -1, -5, &y, 1); /* from e^-5 to 1 */
        want = exp(-5 / (1 + exp(-v)));
        if (isnan(plain[i]))
            assert_true(isnan(y));
        else
            near((double)y, want, 1e-5, 1e-37);
    }
}

static void test_gate(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, n % 4 == 0 ? 30.0f : 2.0f, 0);
        const float *gate = b.x + n % 2;
        float *y = output(&b, b.w, n);
        k.gate(gate, y, n);
        check_guards(&b, n);
        for (int i = 0; i < n; i++)
            near((double)y[i], (double)b.w[i] / (1 + exp(-(double)gate[i])), 1e-6, 1e-30);
    }
}

static void test_add(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) for (int in_place = 0; in_place < 3; in_place++) {
        fill(&b, (uint64_t)n, 1, 0);
        const float *p = b.x + n % 2, *q = b.w + n % 3 % 2;
        float *y = output(&b, in_place == 1 ? p : in_place == 2 ? q : NULL, n);
        k.add(in_place == 1 ? y : p, in_place == 2 ? y : q, y, n);
        check_guards(&b, n);
        for (int i = 0; i < n; i++) assert_true(y[i] == p[i] + q[i]);
    }
}

/* Elementwise results must not depend on where a range is split. */
static void test_cuts(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    float whole[MAX_N], parts[MAX_N];
    fill(&b, 77, 4, 0);
    EACH_TIER(k) for (int f = 0; f < ACTIVATION_COUNT; f++) for (int at = 0; at <= MAX_N; at += 3) {
        k.activate((activation)f, 0.1f, b.x, b.w, whole, MAX_N);
        k.activate((activation)f, 0.1f, b.x, b.w, parts, at);
        k.activate((activation)f, 0.1f, b.x + at, b.w + at, parts + at, MAX_N - at);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

static const float hostile[] = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,      3.4e38f, -3.4e38f,
                                1e-45f, 1e-38f, -1e-40f,  65504.0f,  65520.0f, 8.4e6f,  1.0f};
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

/* Bad values do not change their neighbours' results, and NaN is kept. */
static void test_hostile(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    EACH_TIER(k) for (int h = 0; h < N_HOSTILE; h++) for (int at = 0; at < 40; at++) {
        fill(&b, 5, 1, 0);
        float clean[40], *y;
        for (int f = 0; f < ACTIVATION_COUNT; f++) {
            k.activate((activation)f, 0.1f, b.x, b.w, clean, 40);
            float saved = b.x[at];
            b.x[at] = hostile[h];
            y = output(&b, NULL, 40);
            k.activate((activation)f, 0.1f, b.x, b.w, y, 40);
            check_guards(&b, 40);
            for (int i = 0; i < 40; i++) assert_true(i == at || y[i] == clean[i]);
            if (isnan(hostile[h]) && f != ACTIVATION_FATRELU && f != ACTIVATION_DRELU)
                assert_true(isnan(y[at]));
            if (hostile[h] == 0 && f != ACTIVATION_DRELU) assert_true(y[at] == 0);
            b.x[at] = saved;
        }
        b.x[at] = hostile[h];
        y = output(&b, NULL, 40);
        k.rms_norm(b.x, b.w, y, 40, 1e-5f);
        check_guards(&b, 40);
        if (isnan(hostile[h]))
            for (int i = 0; i < 40; i++) assert_true(isnan(y[i]));
        k.layer_norm(b.x, b.w, b.b, y, 40, 1e-5f);
        check_guards(&b, 40);
        if (!isfinite(hostile[h]))
            for (int i = 0; i < 40; i++) assert_true(isnan(y[i]));
        float zeros[40] = {0};
        k.rms_norm(zeros, NULL, y, 40, 1e-5f);
        for (int i = 0; i < 40; i++) assert_true(y[i] == 0);
        k.layer_norm(zeros, NULL, NULL, y, 40, 1e-5f);
        for (int i = 0; i < 40; i++) assert_true(y[i] == 0);
    }
}

static void test_kv_f32_f16(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    uint16_t row[MAX_N + 16];
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, n % 2 ? 1.0f : 1e-6f, 0);
        for (int h = 0; h < N_HOSTILE && h < n; h++) b.x[(h * 7 + n) % n] = hostile[h];
        float *y = output(&b, NULL, n);
        k.kv_store(b.x, y, QUANT_F32, n);
        check_guards(&b, n);
        assert_memory_equal(y, b.x, (size_t)n * sizeof *y);
        for (int i = 0; i < MAX_N + 16; i++) row[i] = 0xabcd;
        k.kv_store(b.x, row, QUANT_F16, n);
        for (int i = 0; i < 16; i++) assert_int_equal(row[n + i], 0xabcd);
        for (int i = 0; i < n; i++) {
            if (isnan(b.x[i]))
                assert_true(isnan(quant_f16_to_f32(row[i])));
            else
                assert_int_equal(row[i], quant_f32_to_f16(b.x[i]));
        }
    }
}

static void test_kv_q8_0(void **state) {
    (void)state;
    cpu_kernels k, scalar;
    buffers b;
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &scalar));
    EACH_TIER(k) for (int seed = 0; seed < 400; seed++) {
        int blocks = 1 + seed % 9, n = 32 * blocks;
        block_q8_0 row[10], want[10];
        float back[288];
        fill(&b, (uint64_t)seed, powf(10.0f, (float)(seed % 13) - 6), 0);
        if (seed % 4 == 3) b.x[seed % n] = hostile[seed / 4 % N_HOSTILE];
        if (seed % 50 == 0) memset(b.x, 0, sizeof b.x);
        memset(row, 0x5a, sizeof row);
        memset(want, 0x5a, sizeof want);
        k.kv_store(b.x, row, QUANT_Q8_0, n);
        scalar.kv_store(b.x, want, QUANT_Q8_0, n);
        assert_memory_equal(row, want, sizeof row); /* and nothing behind the last block */
        quant_find(QUANT_Q8_0)->dequantize(row, back, n);
        for (int i = 0; i < blocks; i++) {
            double amax = 0, d = (double)quant_f16_to_f32(row[i].d);
            bool finite = true;
            for (int j = 0; j < 32; j++) {
                finite = finite && isfinite(b.x[32 * i + j]);
                amax = fmax(amax, fabs((double)b.x[32 * i + j]));
            }
            if (!finite) {
                assert_true(isnan(back[32 * i]));
                continue;
            }
            if (amax > 127 * 65504.0) { /* saturated, but finite */
                assert_true(d == 65504);
                continue;
            }
            /* half a step; at both ends the rounding of the scale (2^-11, or 2^-25 absolute for
             * denormal halfs) may clip */
            for (int j = 0; j < 32; j++)
                near((double)back[32 * i + j], (double)b.x[32 * i + j], 0,
                     fmax(0.5001 * d, 127 * (d * 0x1p-11 + 0x1p-25)));
        }
    }
}

/* BF16 rounds to nearest even; NaN stays NaN, and nothing is written behind n. */
static void test_kv_bf16(void **state) {
    (void)state;
    cpu_kernels k;
    buffers b;
    uint16_t row[MAX_N + 16];
    EACH_TIER(k) for (int n = 1; n <= MAX_N; n++) {
        fill(&b, (uint64_t)n, n % 2 ? 1.0f : 1e-6f, 0);
        for (int h = 0; h < N_HOSTILE && h < n; h++) b.x[(h * 7 + n) % n] = hostile[h];
        for (int i = 0; i < MAX_N + 16; i++) row[i] = 0xabcd;
        k.kv_store(b.x, row, QUANT_BF16, n);
        for (int i = 0; i < 16; i++) assert_int_equal(row[n + i], 0xabcd);
        for (int i = 0; i < n; i++) {
            if (isnan(b.x[i]))
                assert_true(isnan(quant_bf16_to_f32(row[i])));
            else
                assert_int_equal(row[i], quant_f32_to_bf16(b.x[i]));
        }
    }
}

/* Step of a block with values lo to hi, and the largest distance, in steps, of a value from the
 * nearest value of the type: Q4_0 and Q5_0 have no value opposite the largest magnitude. */
typedef struct low_type {
    quant_type type;
    int steps; /* per largest magnitude, or per range */
    bool range;
    double gap;
} low_type;
static const low_type low_types[] = {{QUANT_Q4_0, 8, false, 1},
                                     {QUANT_Q4_1, 15, true, 0.5},
                                     {QUANT_Q5_0, 16, false, 1},
                                     {QUANT_Q5_1, 31, true, 0.5},
                                     {QUANT_IQ4_NL, 127, false, 14}};
enum { N_LOW = sizeof low_types / sizeof *low_types };

static void check_low_block(const low_type *t, const float *x, const float *back) {
    double lo = (double)x[0], hi = lo, worst = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        finite = finite && isfinite(x[i]);
        lo = fmin(lo, (double)x[i]), hi = fmax(hi, (double)x[i]);
        worst = fmax(worst, fabs((double)x[i] - (double)back[i]));
    }
    if (!finite) {
        for (int i = 0; i < 32; i++) assert_true(isnan(back[i]));
        return;
    }
    double top = fmax(fabs(lo), fabs(hi)), d = (t->range ? hi - lo : top) / t->steps;
    if (top > 65504.0 || d > 65504.0) { /* saturated, but finite */
        for (int i = 0; i < 32; i++) assert_true(isfinite(back[i]));
        return;
    }
    /* Rounding of the scale clips at the far end; rounding of the minimum shifts all values. */
    double clipped = t->steps * (d * 0x1p-11 + 0x1p-25) + (t->range ? top * 0x1p-11 + 0x1p-25 : 0);
    if (!(worst <= t->gap * d * 1.0001 + clipped))
        fail_msg("type %d: off by %g, step %g", t->type, worst, d);
}

static void test_kv_low(void **state) {
    (void)state;
    cpu_kernels k, scalar;
    buffers b;
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &scalar));
    EACH_TIER(k) for (int seed = 0; seed < 400 * N_LOW; seed++) {
        const low_type *t = &low_types[seed % N_LOW];
        int turn = seed / N_LOW, blocks = 1 + turn % 9, n = 32 * blocks;
        uint8_t row[10 * 24], want[10 * 24];
        float back[288];
        fill(&b, (uint64_t)turn, powf(10.0f, (float)(turn % 13) - 6), 0);
        for (int i = 0; turn % 3 == 0 && i < n; i++) b.x[i] = fabsf(b.x[i]) + 0.5f;
        if (turn % 4 == 3) b.x[turn % n] = hostile[turn / 4 % N_HOSTILE];
        if (turn % 50 == 0) memset(b.x, 0, sizeof b.x);
        if (turn % 50 == 1) b.x[0] = -b.x[1]; /* both ends may have the same magnitude */
        memset(row, 0x5a, sizeof row);
        memset(want, 0x5a, sizeof want);
        k.kv_store(b.x, row, t->type, n);
        scalar.kv_store(b.x, want, t->type, n);
        assert_memory_equal(row, want, sizeof row); /* and nothing behind the last block */
        quant_find((uint32_t)t->type)->dequantize(row, back, n);
        for (int i = 0; i < blocks; i++) check_low_block(t, b.x + 32 * i, back + 32 * i);
    }
}

/* Compares the Hadamard transform with its definition: entry (i, j) is +1 when i and j share an
 * even number of bits, else -1. Applied twice it is the identity; all tiers give the same bits. */
static void test_hadamard(void **state) {
    (void)state;
    enum { N = 512 };
    cpu_kernels k, scalar;
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &scalar));
    EACH_TIER(k)
    for (int block = 1; block <= N; block *= 2)
        for (int blocks = 1; blocks <= 9 && block * blocks <= N; blocks += 4) {
            float x[N + 1], y[N + 1], same[N];
            const int n = block * blocks;
            rng r;
            rng_seed(&r, (uint64_t)n);
            for (int i = 0; i < n; i++) x[i] = y[i] = same[i] = rng_normal(&r);
            y[n] = guard_value;
            k.hadamard(y, n, block);
            scalar.hadamard(same, n, block);
            assert_memory_equal(y, same, (size_t)n * sizeof *y);
            assert_true(y[n] == guard_value);
            for (int i = 0; i < n; i++) {
                double sum = 0;
                for (int j = 0; j < block; j++) {
                    bool odd = __builtin_popcount((unsigned)(i % block & j)) % 2;
                    double v = (double)x[i / block * block + j];
                    sum += odd ? -v : v;
                }
                near((double)y[i], sum / sqrt((double)block), 1e-5, 1e-5);
            }
            k.hadamard(y, n, block);
            for (int i = 0; i < n; i++) near((double)y[i], (double)x[i], 1e-5, 1e-5);
        }
}

/* Tiles with sums of every length, stored and added, in a matrix surrounded by guards. */
static void test_gemm_tile(void **state) {
    (void)state;
    enum { ROWS = CPU_GEMM_ROWS, COLS = CPU_GEMM_COLS, K_MAX = 40, LDC = COLS + 5 };
    static _Alignas(64) float a[K_MAX * ROWS], b[K_MAX * COLS];
    float c[(ROWS + 2) * LDC];
    cpu_kernels k;
    rng r;
    rng_seed(&r, 9);
    for (int i = 0; i < K_MAX * ROWS; i++) a[i] = rng_normal(&r);
    for (int i = 0; i < K_MAX * COLS; i++) b[i] = rng_normal(&r);
    EACH_TIER(k) for (int n_k = 0; n_k <= K_MAX; n_k++) for (int add = 0; add < 2; add++) {
        for (int i = 0; i < (ROWS + 2) * LDC; i++) c[i] = guard_value / 1e4f;
        k.gemm_tile(a, b, n_k, c + LDC, LDC, add);
        for (int i = -1; i <= ROWS; i++)
            for (int j = 0; j < LDC; j++) {
                bool inside = i >= 0 && i < ROWS && j < COLS;
                double want = inside && !add ? 0 : (double)(guard_value / 1e4f);
                for (int l = 0; inside && l < n_k; l++)
                    want += (double)a[l * ROWS + i] * (double)b[l * COLS + j];
                near((double)c[(i + 1) * LDC + j], want, inside ? 1e-5 : 0, inside ? 1e-5 : 0);
            }
    }
}

/* Compares recurrences over rows of n elements, fed in pieces of every size that a kernel takes,
 * with the definition in double; nothing outside of state and results is written. Some decays, and
 * whole products of decays, are practically zero. */
enum { RECUR_ROWS = 19, RECUR_N = 70, RECUR_FED = 20, RECUR_LD = RECUR_ROWS + 1 };

static void check_recur(const cpu_kernels *k, int n, int n_rows, int piece, bool delta) {
    static float s[RECUR_ROWS * RECUR_N + 2 * GUARD], scratch[49 * RECUR_N];
    static float decay[RECUR_FED * RECUR_N], key[RECUR_FED * RECUR_N], query[RECUR_FED * RECUR_N];
    static double exact[RECUR_ROWS * RECUR_N];
    float value[RECUR_FED * RECUR_ROWS], beta[RECUR_FED], out[RECUR_FED * RECUR_LD];
    rng r;
    assert_true(cpu_recur_floats(n) <= sizeof scratch / sizeof *scratch);
    rng_seed(&r, (uint64_t)(n * 64 + piece));
    for (int i = 0; i < n_rows * n + 2 * GUARD; i++) s[i] = guard_value;
    for (int i = 0; i < n_rows * n; i++) exact[i] = (double)(s[GUARD + i] = rng_normal(&r));
    for (int i = 0; i < RECUR_FED * n; i++) {
        float even = (float)rng_uniform(&r);
        decay[i] = i % 5 == 0 ? even * 1e-30f : 1 - 0.3f * even;
        key[i] = rng_normal(&r) / sqrtf((float)n);
        query[i] = rng_normal(&r);
    }
    for (int i = 0; i < RECUR_FED * n_rows; i++) value[i] = rng_normal(&r);
    for (int i = 0; i < RECUR_FED; i++) beta[i] = (float)rng_uniform(&r);
    for (int i = 0; i < RECUR_FED * RECUR_LD; i++) out[i] = guard_value;
    for (int t = 0; t < RECUR_FED; t += piece) {
        const cpu_recurrence a = {.state = s + GUARD,
                                  .n_rows = n_rows,
                                  .n = n,
                                  .n_tokens = RECUR_FED - t < piece ? RECUR_FED - t : piece,
                                  .decay = decay + t * n,
                                  .key = key + t * n,
                                  .query = query + t * n,
                                  .value = value + t * n_rows,
                                  .beta = delta ? beta + t : NULL,
                                  .out = out + t * RECUR_LD,
                                  .ld_out = RECUR_LD,
                                  .scratch = scratch};
        k->recur(&a);
    }
    for (int t = 0; t < RECUR_FED; t++) {
        for (int row = 0; row < n_rows; row++) {
            double *e = exact + row * n, known = 0, sum = 0, d = (double)value[t * n_rows + row];
            for (int i = 0; i < n; i++)
                known += (e[i] *= (double)decay[t * n + i]) * (double)key[t * n + i];
            if (delta) d = (double)beta[t] * (d - known);
            for (int i = 0; i < n; i++)
                sum += (e[i] += d * (double)key[t * n + i]) * (double)query[t * n + i];
            near((double)out[t * RECUR_LD + row], sum, 2e-5, 2e-5);
        }
        for (int i = n_rows; i < RECUR_LD; i++) assert_true(out[t * RECUR_LD + i] == guard_value);
    }
    for (int i = 0; i < n_rows * n; i++) near((double)s[GUARD + i], exact[i], 2e-5, 2e-5);
    for (int i = 0; i < GUARD; i++) {
        assert_true(s[i] == guard_value);
        assert_true(s[GUARD + n_rows * n + i] == guard_value);
    }
}

static void test_recur(void **state) {
    (void)state;
    cpu_kernels k;
    EACH_TIER(k) for (int delta = 0; delta < 2; delta++) {
        for (int n = 1; n <= RECUR_N; n++) check_recur(&k, n, 3, 16, delta);
        for (int n_rows = 1; n_rows <= RECUR_ROWS; n_rows++) check_recur(&k, 32, n_rows, 16, delta);
        for (int piece = 1; piece <= CPU_RECUR_TOKENS; piece++)
            check_recur(&k, 37, RECUR_ROWS, piece, delta);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--bench") == 0) return ops_bench_run();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),    cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_rope),        cmocka_unit_test(test_activate),
        cmocka_unit_test(test_decay),       cmocka_unit_test(test_gate),
        cmocka_unit_test(test_exponential), cmocka_unit_test(test_add),
        cmocka_unit_test(test_cuts),        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_kv_f32_f16),  cmocka_unit_test(test_kv_q8_0),
        cmocka_unit_test(test_kv_bf16),     cmocka_unit_test(test_kv_low),
        cmocka_unit_test(test_hadamard),    cmocka_unit_test(test_gemm_tile),
        cmocka_unit_test(test_recur),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
