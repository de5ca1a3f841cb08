/* test_quant_blocks.c: block formats. Dequantizing is compared with a second formulation that
 * extracts one element at a time from raw bytes, written from the description of the formats.
 * Quantizing is tested by its error, by the exact rule where there is one, and with hostile
 * input. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "block_bits.h"
#include "cpu_features.h"
#include "mem.h"
#include "quant.h"
#include "rng.h"

enum { N = 4096, MAX_BYTES = 2 * N };

/* Per type: the largest root mean square error on normal data and on 0.1 + 2 cos(i); the largest
 * power of two that normal data may be scaled by; the largest relative error of one value that
 * fills a block; the least value that infinity becomes; whether weights must help.
 *
 * The error bounds are 2 to 6% above a good fit; in the types that search, a step derived from the
 * range of the sub-block exceeds them. The usual measure on the cosine is sqrt(sum of squares) / n
 * with n = 4096: at most 0.002 from 4 bits on, which is 0.128 here, 0.004 (0.256) for 3 bits and
 * 0.0075 (0.48) for 2. */
typedef struct block_case {
    quant_type type;
    double normal, cosine;
    int power;
    float constant;
    float infinity;
    bool weights;
} block_case;

static const block_case cases[] = {
    /* The single value in the block is the extreme, which is represented up to the rounding of a
     * half scale (2^-11), or of the quantizer (Q8_0 has no other error); MXFP4's nearest value may
     * be 1/12 off. */
    {QUANT_Q8_0, 0.0054, 0.0049, 16, 0.001f, 5e5f, false},
    {QUANT_Q4_0, 0.0875, 0.0735, 16, 0.001f, 5e5f, true},
    {QUANT_Q4_1, 0.0795, 0.0750, 13, 0.001f, 6e4f, true}, /* the minimum itself is a half */
    {QUANT_Q5_0, 0.0437, 0.0388, 16, 0.001f, 5e5f, true},
    {QUANT_Q5_1, 0.0388, 0.0365, 13, 0.001f, 6e4f, true},
    {QUANT_IQ4_NL, 0.0740, 0.0800, 16, 0.001f, 5e5f, true},
    {QUANT_MXFP4, 0.1130, 0.1230, 16, 0.09f, 5e5f, false},
    {QUANT_Q2_K, 0.2680, 0.2850, 16, 0.001f, 5e5f, true},
    {QUANT_Q3_K, 0.1450, 0.1560, 16, 0.001f, 5e5f, true},
    {QUANT_Q4_K, 0.0707, 0.0624, 16, 0.001f, 5e5f, true},
    {QUANT_Q5_K, 0.0349, 0.0339, 16, 0.001f, 5e5f, true},
    {QUANT_Q6_K, 0.0175, 0.0165, 16, 0.001f, 5e5f, true},
    {QUANT_IQ4_XS, 0.0748, 0.0815, 16, 0.001f, 5e5f, true},
};
enum { N_TYPES = sizeof cases / sizeof *cases };

/* Scale and minimum j of Q4_K and Q5_K from 12 bytes. */
static int scale_6bit(const uint8_t *packed, int j) {
    if (j < 4) return bit_field(packed, 8 * j, 6);
    return bit_field(packed, 8 * (4 + j), 4) + 16 * bit_field(packed, 8 * (j - 4) + 6, 2);
}

static int min_6bit(const uint8_t *packed, int j) {
    if (j < 4) return bit_field(packed, 8 * (4 + j), 6);
    return bit_field(packed, 8 * (4 + j) + 4, 4) + 16 * bit_field(packed, 8 * j + 6, 2);
}

static double q2_k_element(const uint8_t *block, int e) {
    int q = bit_field(block + 16, 8 * (e / 128 * 32 + e % 32) + e / 32 % 4 * 2, 2);
    double sc = bit_field(block, 8 * (e / 16), 4), m = bit_field(block, 8 * (e / 16) + 4, 4);
    return half_at(block + 80) * sc * q - half_at(block + 82) * m;
}

static double q3_k_element(const uint8_t *block, int e) {
    int q = bit_field(block + 32, 8 * (e / 128 * 32 + e % 32) + e / 32 % 4 * 2, 2);
    int high = bit_field(block, 8 * (e % 32) + e / 32, 1), j = e / 16;
    int sc = bit_field(block + 96, 8 * (j % 8) + j / 8 * 4, 4) +
             16 * bit_field(block + 104, 8 * (j % 4) + j / 4 * 2, 2);
    return half_at(block + 108) * (sc - 32) * (q - (high ? 0 : 4));
}

static double q4_k_element(const uint8_t *block, int e) {
    int j = e / 32;
    int q = bit_field(block + 16, 8 * (e / 64 * 32 + e % 32) + j % 2 * 4, 4);
    return half_at(block) * scale_6bit(block + 4, j) * q -
           half_at(block + 2) * min_6bit(block + 4, j);
}

static double q5_k_element(const uint8_t *block, int e) {
    int j = e / 32;
    int q = bit_field(block + 48, 8 * (e / 64 * 32 + e % 32) + j % 2 * 4, 4) +
            16 * bit_field(block + 16, 8 * (e % 32) + j, 1);
    return half_at(block) * scale_6bit(block + 4, j) * q -
           half_at(block + 2) * min_6bit(block + 4, j);
}

static double q6_k_element(const uint8_t *block, int e) {
    int low_byte = e / 128 * 64 + e % 64, high_byte = 128 + e / 128 * 32 + e % 32;
    int low = bit_field(block, 8 * low_byte + e / 64 % 2 * 4, 4);
    int high = bit_field(block, 8 * high_byte + e / 32 % 4 * 2, 2);
    return half_at(block + 208) * (int8_t)block[192 + e / 16] * (16 * high + low - 32);
}

/* Nibble of element e of 32 in 16 bytes. */
static int nibble_at(const uint8_t *p, int e) {
    return bit_field(p, 8 * (e % 16) + e / 16 * 4, 4);
}

static double iq4_value(int place) {
    static const double values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
    return values[place];
}

static double iq4_xs_element(const uint8_t *block, int e) {
    int j = e / 32;
    int sc = bit_field(block + 4, 4 * j, 4) + 16 * bit_field(block + 2, 2 * j, 2);
    return half_at(block) * (sc - 32) * iq4_value(nibble_at(block + 8 + 16 * j, e % 32));
}

/* Sign, two exponent bits with bias 1, one fraction bit; times 2^(byte - 127). */
static double mxfp4_element(const uint8_t *block, int e) {
    int code = nibble_at(block + 1, e), exponent = code >> 1 & 3, fraction = code & 1;
    double value = exponent == 0 ? 0.5 * fraction : ldexp(1.0 + 0.5 * fraction, exponent - 1);
    return ldexp(code & 8 ? -value : value, block[0] - 127);
}

/* Element e of a block. */
static double element(quant_type type, const uint8_t *block, int e) {
    switch (type) {
    case QUANT_Q8_0:
        return half_at(block) * (int8_t)block[2 + e];
    case QUANT_Q4_0:
        return half_at(block) * (nibble_at(block + 2, e) - 8);
    case QUANT_Q4_1:
        return half_at(block) * nibble_at(block + 4, e) + half_at(block + 2);
    case QUANT_Q5_0:
        return half_at(block) * (nibble_at(block + 6, e) + 16 * bit_field(block + 2, e, 1) - 16);
    case QUANT_Q5_1:
        return half_at(block) * (nibble_at(block + 8, e) + 16 * bit_field(block + 4, e, 1)) +
               half_at(block + 2);
    case QUANT_IQ4_NL:
        return half_at(block) * iq4_value(nibble_at(block + 2, e));
    case QUANT_MXFP4:
        return mxfp4_element(block, e);
    case QUANT_Q2_K:
        return q2_k_element(block, e);
    case QUANT_Q3_K:
        return q3_k_element(block, e);
    case QUANT_Q4_K:
        return q4_k_element(block, e);
    case QUANT_Q5_K:
        return q5_k_element(block, e);
    case QUANT_Q6_K:
        return q6_k_element(block, e);
    case QUANT_IQ4_XS:
        return iq4_xs_element(block, e);
    default:
        fail();
        return 0.0;
    }
}

static void test_dequantize_by_definition(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 1);
    for (int t = 0; t < N_TYPES; t++) {
        const quant_traits *traits = quant_find((uint32_t)cases[t].type);
        for (int round = 0; round < 300; round++) {
            uint8_t block[512];
            float y[256];
            size_t n_bytes = (size_t)traits->block_bytes;
            do {
                for (size_t i = 0; i < n_bytes; i++) block[i] = (uint8_t)rng_u64(&r);
            } while (quant_has_nonfinite(cases[t].type, block, traits->block_elems));
            traits->dequantize(block, y, traits->block_elems);
            for (int e = 0; e < traits->block_elems; e++)
                assert_true(y[e] == (float)element(cases[t].type, block, e));
        }
    }
}

/* Root mean square of x - dequantize(quantize(x)). */
static double round_trip_error(quant_type type, const float *x, const float *importance) {
    static uint8_t data[MAX_BYTES];
    static float back[N];
    const quant_traits *traits = quant_find((uint32_t)type);
    memset(data, 0xa5, sizeof data);
    traits->quantize(x, data, N, importance);
    size_t n_bytes;
    assert_true(quant_row_bytes(type, N, &n_bytes));
    for (size_t i = n_bytes; i < sizeof data; i++) assert_int_equal(data[i], 0xa5);
    assert_false(quant_has_nonfinite(type, data, N));
    traits->dequantize(data, back, N);
    double sum = 0.0, weights = 0.0;
    for (int i = 0; i < N; i++) {
        double w = importance != NULL ? (double)importance[i] : 1.0;
        double e = (double)x[i] - (double)back[i];
        sum += w * e * e;
        weights += w;
    }
    return sqrt(sum / weights);
}

static void test_error_bounds(void **state) {
    (void)state;
    float x[N];
    rng r;
    for (int t = 0; t < N_TYPES; t++) {
        const char *name = quant_find((uint32_t)cases[t].type)->name;
        rng_seed(&r, 2);
        for (int i = 0; i < N; i++) x[i] = rng_normal(&r);
        double e = round_trip_error(cases[t].type, x, NULL);
        for (int i = 0; i < N; i++) x[i] = 0.1f + 2.0f * cosf((float)i);
        double e_cos = round_trip_error(cases[t].type, x, NULL);
        print_message("%s: rms error %.5f on normal data, %.5f on a cosine\n", name, e, e_cos);
        assert_true(e < cases[t].normal);
        assert_true(e_cos < cases[t].cosine);
    }
}

/* The error scales with the data over the whole range of half-precision scales. */
static void test_error_at_all_magnitudes(void **state) {
    (void)state;
    float x[N];
    rng r;
    for (int t = 0; t < N_TYPES; t++) {
        for (int power = -10; power <= cases[t].power; power++) {
            rng_seed(&r, 3);
            for (int i = 0; i < N; i++) x[i] = ldexpf(rng_normal(&r), power);
            double e = ldexp(round_trip_error(cases[t].type, x, NULL), -power);
            if (e > 1.4 * cases[t].normal)
                fail_msg("type %d at 2^%d: %g", (int)cases[t].type, power, e);
        }
    }
}

/* Formats that search represent heavily weighted elements better. */
static void test_importance(void **state) {
    (void)state;
    float x[N], w[N];
    rng r;
    rng_seed(&r, 4);
    for (int i = 0; i < N; i++) {
        x[i] = rng_normal(&r);
        w[i] = i % 7 == 0 ? 100.0f : 0.01f;
    }
    for (int t = 0; t < N_TYPES; t++) {
        if (!cases[t].weights) continue;
        double with = round_trip_error(cases[t].type, x, w);
        float back[N];
        uint8_t data[MAX_BYTES];
        const quant_traits *traits = quant_find((uint32_t)cases[t].type);
        traits->quantize(x, data, N, NULL);
        traits->dequantize(data, back, N);
        double sum = 0.0, weights = 0.0;
        for (int i = 0; i < N; i++) {
            double e = (double)x[i] - (double)back[i];
            sum += (double)w[i] * e * e;
            weights += (double)w[i];
        }
        if (!(with < 0.9 * sqrt(sum / weights)))
            fail_msg("%s: %g with weights, %g without", traits->name, with, sqrt(sum / weights));
    }
    /* Weights without information are no worse than none. */
    for (int i = 0; i < N; i++) w[i] = i % 2 ? NAN : -1.0f;
    for (int t = 0; t < N_TYPES; t++) {
        uint8_t a[MAX_BYTES], b[MAX_BYTES];
        const quant_traits *traits = quant_find((uint32_t)cases[t].type);
        size_t n_bytes;
        assert_true(quant_row_bytes(cases[t].type, N, &n_bytes));
        traits->quantize(x, a, N, NULL);
        traits->quantize(x, b, N, w);
        assert_memory_equal(a, b, n_bytes);
    }
}

/* d = amax / 127 and q = round(x / d). */
static void check_q8_rule(const float x[32]) {
    uint8_t q8[34];
    float amax = 0.0f;
    for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(x[i]));
    quant_find(QUANT_Q8_0)->quantize(x, q8, 32, NULL);
    float d = amax / 127.0f, inverse = 1.0f / d;
    assert_int_equal(q8[0] | q8[1] << 8, quant_f32_to_f16(d));
    for (int i = 0; i < 32; i++) assert_int_equal((int8_t)q8[2 + i], (int)roundf(x[i] * inverse));
}

/* d = extreme / -zero and q = floor(x / d + zero + 1/2), at most 2 zero - 1. */
static void check_signed_rule(const float x[32], quant_type type, int zero) {
    uint8_t block[22];
    float extreme = 0.0f;
    for (int i = 0; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    }
    quant_find((uint32_t)type)->quantize(x, block, 32, NULL);
    float d = extreme / (float)-zero, inverse = 1.0f / d;
    assert_int_equal(block[0] | block[1] << 8, quant_f32_to_f16(d));
    for (int i = 0; i < 32; i++) {
        int q = (int)floorf(x[i] * inverse + ((float)zero + 0.5f));
        int got = nibble_at(block + (zero == 16 ? 6 : 2), i);
        if (zero == 16) got += 16 * bit_field(block + 2, i, 1);
        assert_int_equal(got, q < 2 * zero ? q : 2 * zero - 1);
    }
}

/* d = (max - min) / top, m = min and q = floor((x - m) / d + 1/2), at most top. */
static void check_affine_rule(const float x[32], quant_type type, int top) {
    uint8_t block[24];
    float lo = x[0], hi = x[0];
    for (int i = 0; i < 32; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    quant_find((uint32_t)type)->quantize(x, block, 32, NULL);
    float d = (hi - lo) / (float)top, inverse = 1.0f / d;
    assert_int_equal(block[0] | block[1] << 8, quant_f32_to_f16(d));
    assert_int_equal(block[2] | block[3] << 8, quant_f32_to_f16(lo));
    for (int i = 0; i < 32; i++) {
        int q = (int)floorf((x[i] - lo) * inverse + 0.5f);
        int got = nibble_at(block + (top == 31 ? 8 : 4), i);
        if (top == 31) got += 16 * bit_field(block + 4, i, 1);
        assert_int_equal(got, q < top ? q : top);
    }
}

static void test_exact_rules(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 2000; round++) {
        float x[32];
        for (int i = 0; i < 32; i++) x[i] = rng_normal(&r) * 0.02f;
        check_q8_rule(x);
        check_signed_rule(x, QUANT_Q4_0, 8);
        check_signed_rule(x, QUANT_Q5_0, 16);
        check_affine_rule(x, QUANT_Q4_1, 15);
        check_affine_rule(x, QUANT_Q5_1, 31);
    }
}

/* MXFP4 has 254 scales: none may give a smaller error than the chosen one. */
static void test_best_exponent(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 8);
    for (int round = 0; round < 500; round++) {
        uint8_t block[17], other[17];
        float x[32], y[32];
        double error[2] = {0.0, INFINITY};
        for (int i = 0; i < 32; i++) x[i] = ldexpf(rng_normal(&r), round % 41 - 20);
        quant_find(QUANT_MXFP4)->quantize(x, block, 32, NULL);
        quant_find(QUANT_MXFP4)->dequantize(block, y, 32);
        for (int i = 0; i < 32; i++) error[0] += pow((double)x[i] - (double)y[i], 2.0);
        for (int e = 1; e < 250; e++) {
            double sum = 0.0;
            for (int i = 0; i < 32; i++) {
                double nearest = INFINITY;
                for (int code = 0; code < 16; code++) {
                    memset(other, code | code << 4, sizeof other);
                    other[0] = (uint8_t)e;
                    nearest = fmin(nearest, fabs((double)x[i] - mxfp4_element(other, i)));
                }
                sum += nearest * nearest;
            }
            error[1] = fmin(error[1], sum);
        }
        assert_true(error[0] <= error[1] * 1.000001);
    }
}

static void test_constant_and_zero(void **state) {
    (void)state;
    static const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.37f, -0.37f, 1000.0f, -1000.0f};
    float x[N], back[N];
    uint8_t data[MAX_BYTES];
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (int i = 0; i < N; i++) x[i] = values[v];
        for (int t = 0; t < N_TYPES; t++) {
            const quant_traits *traits = quant_find((uint32_t)cases[t].type);
            traits->quantize(x, data, N, NULL);
            traits->dequantize(data, back, N);
            for (int i = 0; i < N; i++)
                assert_true(fabsf(back[i] - values[v]) <= cases[t].constant * fabsf(values[v]));
        }
    }
}

static void test_hostile(void **state) {
    (void)state;
    static const float values[] = {3e38f, -3e38f,   1e9f,      65504.0f, 1e-30f,   1e-45f, -1e-45f,
                                   6e-8f, INFINITY, -INFINITY, NAN,      1.2e-38f, 1e-12f};
    enum { N_VALUES = sizeof values / sizeof *values };
    float x[N], back[N];
    uint8_t data[MAX_BYTES];
    rng r;
    rng_seed(&r, 6);
    for (int t = 0; t < N_TYPES; t++) {
        const quant_traits *traits = quant_find((uint32_t)cases[t].type);
        for (int round = 0; round < 4 * N_VALUES; round++) {
            /* All elements; a few among zeros; among normal values; mixed. */
            for (int i = 0; i < N; i++) {
                int pick = round / 4;
                if (round % 4 == 3) pick = (int)(rng_u64(&r) % N_VALUES);
                bool here = round % 4 == 0 || round % 4 == 3 || i % 37 == 5;
                x[i] = here ? values[pick] : round % 4 == 1 ? 0.0f : rng_normal(&r);
            }
            traits->quantize(x, data, N, NULL);
            assert_false(quant_has_nonfinite(cases[t].type, data, N));
            traits->dequantize(data, back, N);
            for (int i = 0; i < N; i++) {
                assert_true(isfinite(back[i]));
                if (round % 4 == 0 && isinf(x[i]))
                    assert_true(x[i] > 0 ? back[i] > cases[t].infinity
                                         : back[i] < -cases[t].infinity);
                if (round % 4 == 0 && isnan(x[i])) assert_true(back[i] == 0.0f);
            }
        }
    }
}

/* A NaN does not disturb its neighbours: it becomes 0. */
static void test_nan_is_zero(void **state) {
    (void)state;
    float x[N], z[N];
    uint8_t a[MAX_BYTES], b[MAX_BYTES];
    rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < N; i++) {
        z[i] = i % 11 == 0 ? 0.0f : rng_normal(&r);
        x[i] = i % 11 == 0 ? NAN : z[i];
    }
    for (int t = 0; t < N_TYPES; t++) {
        size_t n_bytes;
        assert_true(quant_row_bytes(cases[t].type, N, &n_bytes));
        quant_find((uint32_t)cases[t].type)->quantize(x, a, N, NULL);
        quant_find((uint32_t)cases[t].type)->quantize(z, b, N, NULL);
        assert_memory_equal(a, b, n_bytes);
    }
}

/* quant_has_nonfinite checks every scale of every format, and nothing else. */
static void test_nonfinite_scales(void **state) {
    (void)state;
    static const struct {
        quant_type type;
        int scale[2]; /* byte offsets, -1: none */
    } rows[] = {
        {QUANT_Q4_0, {0, -1}},   {QUANT_Q4_1, {0, 2}},    {QUANT_Q5_0, {0, -1}},
        {QUANT_Q5_1, {0, 2}},    {QUANT_Q8_0, {0, -1}},   {QUANT_Q2_K, {80, 82}},
        {QUANT_Q3_K, {108, -1}}, {QUANT_Q4_K, {0, 2}},    {QUANT_Q5_K, {0, 2}},
        {QUANT_Q6_K, {208, -1}}, {QUANT_IQ4_NL, {0, -1}}, {QUANT_IQ4_XS, {0, -1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const quant_traits *t = quant_find((uint32_t)rows[i].type);
        uint8_t data[3 * 256];
        int bytes = t->block_bytes;
        memset(data, 0xff, sizeof data);
        for (int b = 0; b < 3; b++) {
            for (int s = 0; s < 2; s++) {
                if (rows[i].scale[s] >= 0) memset(data + b * bytes + rows[i].scale[s], 0x3b, 2);
            }
        }
        assert_false(quant_has_nonfinite(rows[i].type, data, 3 * t->block_elems));
        for (int s = 0; s < 2 && rows[i].scale[s] >= 0; s++) {
            uint8_t *high = data + 2 * bytes + rows[i].scale[s] + 1;
            *high = 0xfc;
            assert_true(quant_has_nonfinite(rows[i].type, data, 3 * t->block_elems));
            assert_false(quant_has_nonfinite(rows[i].type, data, 2 * t->block_elems));
            *high = 0x3b;
        }
    }
    uint8_t mxfp4[34] = {0};
    assert_false(quant_has_nonfinite(QUANT_MXFP4, mxfp4, 64));
    mxfp4[17] = 255;
    assert_true(quant_has_nonfinite(QUANT_MXFP4, mxfp4, 64));
}

/* Conversions for CPUs with AVX2 give the bits of those for every CPU, with and without importance;
 * also for the plain types, and for lengths that are no multiple of a vector. */
static void test_same_bits_without_avx2(void **state) {
    (void)state;
    enum { HOSTILE = N / 2, ODD = N + 5 };
    static const quant_type plain[] = {QUANT_F32, QUANT_F16, QUANT_BF16};
    enum { N_PLAIN = sizeof plain / sizeof *plain };
    const cpu_features none = {0};
    static float x[ODD], w[ODD], back[2][ODD];
    static uint8_t data[2][4 * ODD];
    if (!cpu_features_get()->avx2) skip();
    for (int seed = 0; seed < 20; seed++) {
        rng r;
        rng_seed(&r, (uint64_t)(30 + seed));
        for (int i = 0; i < ODD; i++) {
            uint32_t bits = (uint32_t)rng_u64(&r);                     /* any float, also NaN */
            x[i] = seed % 4 == 3 ? 0.125f * roundf(4 * rng_normal(&r)) /* ties */
                                 : ldexpf(rng_normal(&r), i % (1 + 2 * seed));
            if (seed >= 10 && i > HOSTILE) memcpy(&x[i], &bits, sizeof bits);
            w[i] = rng_normal(&r) * rng_normal(&r);
        }
        for (int t = 0; t < N_TYPES + N_PLAIN; t++) {
            const quant_type type = t < N_TYPES ? cases[t].type : plain[t - N_TYPES];
            const int n = t < N_TYPES ? N : ODD;
            size_t n_bytes;
            assert_true(quant_row_bytes(type, (uint64_t)n, &n_bytes));
            for (int weighted = 0; weighted < 2; weighted++) {
                const quant_traits *used[2];
                for (int k = 0; k < 2; k++) {
                    cpu_features_limit(k ? &none : NULL);
                    used[k] = quant_find((uint32_t)type);
                    used[k]->quantize(x, data[k], n, weighted ? w : NULL);
                    used[k]->dequantize(data[0], back[k], n);
                }
                cpu_features_limit(NULL);
                assert_true(used[0]->quantize != used[1]->quantize);
                assert_memory_equal(data[0], data[1], n_bytes);
                assert_memory_equal(back[0], back[1], (size_t)n * sizeof *x);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantize_by_definition),
        cmocka_unit_test(test_error_bounds),
        cmocka_unit_test(test_error_at_all_magnitudes),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_exact_rules),
        cmocka_unit_test(test_best_exponent),
        cmocka_unit_test(test_constant_and_zero),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_nan_is_zero),
        cmocka_unit_test(test_nonfinite_scales),
        cmocka_unit_test(test_same_bits_without_avx2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
