/* test_quant_low.c: the formats of three bits and less. Code books are checked by a hash of all
 * their points. Dequantizing is compared with a second formulation that extracts one element at a
 * time from raw bytes, written from the description of the formats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "block_bits.h"
#include "quant.h"
#include "quant_grids.h"
#include "quant_low.h"
#include "rng.h"

/* FNV-1a */
static uint64_t hash_bytes(const uint8_t *p, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Hashes of the tables in ggml-common.h (llama.cpp, 2026), byte by byte. */
static void test_code_books(void **state) {
    (void)state;
#define HASH(table) hash_bytes((const uint8_t *)(table), sizeof(table))
    assert_true(HASH(quant_grid_iq2_xxs) == UINT64_C(0xbb4ee025b5ac6e8e));
    assert_true(HASH(quant_grid_iq2_xs) == UINT64_C(0xc9b1ee61e79909bd));
    assert_true(HASH(quant_grid_iq2_s) == UINT64_C(0x123edd38a3b62b90));
    assert_true(HASH(quant_grid_iq3_xxs) == UINT64_C(0xdfa5dc83d6a155d5));
    assert_true(HASH(quant_grid_iq3_s) == UINT64_C(0xfa37020c25b44829));
    int8_t signs[2048][8]; /* ours are multiples of 1/8 */
    memcpy(signs, quant_grid_iq1, sizeof signs);
    for (int i = 0; i < 2048; i++)
        for (int k = 0; k < 8; k++) signs[i][k] = (int8_t)(signs[i][k] / 8);
    assert_true(HASH(signs) == UINT64_C(0x6703ed863501ae2e));
#undef HASH
}

/* The GPU computes from the lists the same points that the compiler made for the CPU. */
static void test_listed_points(void **state) {
    (void)state;
#define SELF(v)     (uint16_t)(v)
#define LISTED(...) QUANT_GRID_ROW(SELF, __VA_ARGS__)
    static const uint16_t iq2[] = {QUANT_GRID_IQ2_S(LISTED)}, iq1[] = {QUANT_GRID_IQ1(LISTED)};
    static const uint16_t xxs[] = {QUANT_GRID_IQ3_XXS(LISTED)}, s[] = {QUANT_GRID_IQ3_S(LISTED)};
    for (int i = 0; i < 1024; i++) assert_true(low_point_iq2(iq2[i]) == quant_grid_iq2_s[i]);
    for (int i = 0; i < 2048; i++) assert_true(low_point_iq1(iq1[i]) == quant_grid_iq1[i]);
    for (int i = 0; i < 256; i++) assert_true(low_point_iq3_xxs(xxs[i]) == quant_grid_iq3_xxs[i]);
    for (int i = 0; i < 512; i++) assert_true(low_point_iq3_s(s[i]) == quant_grid_iq3_s[i]);
}

/* Coordinate k of a point. */
static double point(uint64_t bytes, int k) {
    return (double)(int8_t)(bytes >> 8 * k & 0xff);
}

/* Sign k of 8, with 7 stored: the eighth makes the number of negative elements even. */
static double sign_of_7(int bits, int k) {
    int n = 0;
    for (int i = 0; i < 7; i++) n += bits >> i & 1;
    int negative = k == 7 ? n % 2 : bits >> k & 1;
    return negative ? -1.0 : 1.0;
}

static double sign_of_8(int bits, int k) {
    return bits >> k & 1 ? -1.0 : 1.0;
}

static double iq2_xxs_element(const uint8_t *block, int e) {
    const uint8_t *p = block + 2 + 8 * (e / 32);
    int run = e / 8 % 4;
    double scale = (0.5 + bit_field(p + 4, 28, 4)) * 0.25;
    return half_at(block) * scale * point(quant_grid_iq2_xxs[p[run]], e % 8) *
           sign_of_7(bit_field(p + 4, 7 * run, 7), e % 8);
}

static double iq2_xs_element(const uint8_t *block, int e) {
    int at = bit_field(block + 2, 16 * (e / 8), 9),
        bits = bit_field(block + 2, 16 * (e / 8) + 9, 7);
    double scale = (0.5 + bit_field(block + 66, 4 * (e / 16), 4)) * 0.25;
    return half_at(block) * scale * point(quant_grid_iq2_xs[at], e % 8) * sign_of_7(bits, e % 8);
}

static double iq2_s_element(const uint8_t *block, int e) {
    int at = block[2 + e / 8] + 256 * bit_field(block + 66, 2 * (e / 8), 2);
    double scale = (0.5 + bit_field(block + 74, 4 * (e / 16), 4)) * 0.25;
    return half_at(block) * scale * point(quant_grid_iq2_s[at], e % 8) *
           sign_of_8(block[34 + e / 8], e % 8);
}

static double iq3_xxs_element(const uint8_t *block, int e) {
    const uint8_t *p = block + 66 + 4 * (e / 32);
    double scale = (0.5 + bit_field(p, 28, 4)) * 0.5;
    return half_at(block) * scale * point(quant_grid_iq3_xxs[block[2 + e / 4]], e % 4) *
           sign_of_7(bit_field(p, 7 * (e / 8 % 4), 7), e % 8);
}

static double iq3_s_element(const uint8_t *block, int e) {
    int at = block[2 + e / 4] + 256 * bit_field(block + 66, e / 4, 1);
    double scale = 1 + 2 * bit_field(block + 106, 4 * (e / 32), 4);
    return half_at(block) * scale * point(quant_grid_iq3_s[at], e % 4) *
           sign_of_8(block[74 + e / 8], e % 8);
}

static double iq1_s_element(const uint8_t *block, int e) {
    const uint8_t *qh = block + 34 + 2 * (e / 32);
    int at = block[2 + e / 8] + 256 * bit_field(qh, 3 * (e / 8 % 4), 3);
    double shift = bit_field(qh, 15, 1) ? -0.125 : 0.125;
    return half_at(block) * (2 * bit_field(qh, 12, 3) + 1) *
           (point(quant_grid_iq1[at], e % 8) / 8 + shift);
}

static double iq1_m_element(const uint8_t *block, int e) {
    const uint8_t *scales = block + 48;
    int half = 0, at = block[e / 8] + 256 * bit_field(block + 32, 4 * (e / 8), 3);
    for (int i = 0; i < 4; i++) half |= bit_field(scales, 16 * i + 12, 4) << 4 * i;
    double d = (double)quant_f16_to_f32((uint16_t)half);
    double shift = bit_field(block + 32, 4 * (e / 8) + 3, 1) ? -0.125 : 0.125;
    int scale = bit_field(scales, 16 * (e / 64) + 3 * (e / 16 % 4), 3);
    return d * (2 * scale + 1) * (point(quant_grid_iq1[at], e % 8) / 8 + shift);
}

/* Ternary digits of a byte: a base-3 number as a fraction of 243, rounded up to a fraction of
 * 256. */
static double tq1_0_element(const uint8_t *block, int e) {
    int byte = e < 160 ? block[e % 32] : e < 240 ? block[32 + e % 16] : block[48 + e % 4];
    int place = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    double fraction = byte / 256.0;
    for (int i = 0; i < place; i++) fraction = 3 * fraction - floor(3 * fraction);
    return half_at(block + 52) * (floor(3 * fraction) - 1);
}

static double tq2_0_element(const uint8_t *block, int e) {
    return half_at(block + 64) *
           (bit_field(block, 8 * (e / 128 * 32 + e % 32) + e / 32 % 4 * 2, 2) - 1);
}

static double nvfp4_element(const uint8_t *block, int e) {
    int byte = block[e / 16],
        code = bit_field(block + 4 + 8 * (e / 16), 8 * (e % 8) + e / 8 % 2 * 4, 4);
    double scale = byte >> 3 & 15 ? ldexp(1 + (byte & 7) / 8.0, (byte >> 3 & 15) - 7)
                                  : ldexp(byte & 7, -9);
    double value = code >> 1 & 3 ? ldexp(1.0 + 0.5 * (code & 1), (code >> 1 & 3) - 1)
                                 : 0.5 * (code & 1);
    return (byte == 127 ? 0.0 : scale) * (code & 8 ? -value : value);
}

static double q1_0_element(const uint8_t *block, int e) {
    return half_at(block) * (2 * bit_field(block + 2, e, 1) - 1);
}

static double q2_0_element(const uint8_t *block, int e) {
    return half_at(block) * (bit_field(block + 2, 2 * e, 2) - 1);
}

static const struct {
    quant_type type;
    double (*element)(const uint8_t *block, int e);
} formats[] = {
#define FORMAT(type, name, ...) {QUANT_##type, name##_element},
    QUANT_LOW(FORMAT)
#undef FORMAT
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static void test_dequantize_by_definition(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 1);
    for (int f = 0; f < N_FORMATS; f++) {
        const quant_traits *traits = quant_find((uint32_t)formats[f].type);
        for (int round = 0; round < 300; round++) {
            uint8_t block[512];
            float y[256];
            do {
                for (int i = 0; i < traits->block_bytes; i++) block[i] = (uint8_t)rng_u64(&r);
            } while (quant_has_nonfinite(formats[f].type, block, traits->block_elems));
            traits->dequantize(block, y, traits->block_elems);
            for (int e = 0; e < traits->block_elems; e++)
                assert_true(y[e] == (float)formats[f].element(block, e));
        }
    }
}

/* Every non-finite half is found, and no other bytes are reported. */
static void test_nonfinite_scales(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 2);
    for (int f = 0; f < N_FORMATS; f++) {
        const quant_traits *t = quant_find((uint32_t)formats[f].type);
        int n_bad = 0;
        for (int round = 0; round < 2000; round++) {
            uint8_t blocks[3 * 128];
            float y[3 * 256];
            bool finite = true;
            for (int i = 0; i < 3 * t->block_bytes; i++)
                blocks[i] = rng_u64(&r) % 4 ? 0xff : (uint8_t)rng_u64(&r);
            t->dequantize(blocks, y, 3 * t->block_elems);
            for (int i = 0; i < 3 * t->block_elems; i++) finite &= isfinite(y[i]) != 0;
            assert_int_equal(quant_has_nonfinite(t->type, blocks, 3 * t->block_elems), !finite);
            n_bad += !finite;
        }
        assert_int_equal(n_bad > 0, t->type != QUANT_NVFP4);
    }
}

/* ---- quantizing ------------------------------------------------------------------------------ */

enum { N = 4096 };

/* Root mean square of x - dequantize(quantize(x)), weighted. */
static double round_trip_error(const quant_traits *t, const float *x, const float *importance,
                               const float *weights, float *back) {
    static uint8_t data[N * 2];
    double sum = 0.0, all = 0.0;
    memset(data, 0xa5, sizeof data);
    t->quantize(x, data, N, importance);
    for (size_t i = (size_t)(N / t->block_elems * t->block_bytes); i < sizeof data; i++)
        assert_int_equal(data[i], 0xa5);
    assert_false(quant_has_nonfinite(t->type, data, N));
    t->dequantize(data, back, N);
    for (int i = 0; i < N; i++) {
        double e = (double)x[i] - (double)back[i], w = weights ? (double)weights[i] : 1.0;
        sum += w * e * e;
        all += w;
    }
    return sqrt(sum / all);
}

/* Root mean square errors on normal data. The best quantizer of r bits reaches 2^-r, scalar
 * quantizers a little more: the bound is 2^-r for the bits per weight, times `above`. */
static void test_error_bounds(void **state) {
    (void)state;
    static const struct {
        quant_type type;
        double above;
    } bounds[] = {
        {QUANT_IQ1_S, 1.40}, {QUANT_IQ1_M, 1.46},   {QUANT_IQ2_XXS, 1.43}, {QUANT_IQ2_XS, 1.46},
        {QUANT_IQ2_S, 1.46}, {QUANT_IQ3_XXS, 1.52}, {QUANT_IQ3_S, 1.47},   {QUANT_TQ1_0, 1.45},
        {QUANT_TQ2_0, 1.90}, {QUANT_Q1_0, 1.35},    {QUANT_Q2_0, 1.75},    {QUANT_NVFP4, 2.10},
    };
    float x[N], w[N], back[N];
    rng r;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const quant_traits *t = quant_find((uint32_t)bounds[i].type);
        const double limit = exp2(-8.0 * t->block_bytes / t->block_elems);
        for (int power = t->type == QUANT_NVFP4 ? -4 : -10; power <= 7;
             power++) { /* 8-bit scales */
            rng_seed(&r, 3);
            for (int k = 0; k < N; k++) x[k] = ldexpf(rng_normal(&r), power);
            double e = ldexp(round_trip_error(t, x, NULL, NULL, back), -power);
            if (power == 0) print_message("%s: %.4f, %.3f above\n", t->name, e, e / limit);
            if (e > bounds[i].above * limit)
                fail_msg("%s at 2^%d: %.4f, %.3f above", t->name, power, e, e / limit);
        }
        /* A tenth of the elements has nearly all the weight. With one scale for 256 elements and
         * three values there is little to gain. */
        for (int k = 0; k < N; k++) w[k] = k % 10 == 0 ? 100.0f : 0.01f;
        double with = round_trip_error(t, x, w, w, back);
        double without = round_trip_error(t, x, NULL, w, back);
        if (!(with < without)) fail_msg("%s: %g with weights, %g without", t->name, with, without);
    }
}

/* Weights that were trained as values of a format are kept exactly. */
static void test_exact_values(void **state) {
    (void)state;
    static const struct {
        quant_type type;
        int low, n;
    } sets[] = {{QUANT_TQ1_0, -1, 3}, {QUANT_TQ2_0, -1, 3}, {QUANT_Q2_0, -1, 4}};
    float x[N], back[N];
    rng r;
    rng_seed(&r, 5);
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < N; i++)
            x[i] = 0.375f * (float)((int)(rng_u64(&r) % (uint64_t)sets[s].n) + sets[s].low);
        const quant_traits *t = quant_find((uint32_t)sets[s].type);
        assert_true(round_trip_error(t, x, NULL, NULL, back) == 0.0);
    }
    for (int i = 0; i < N; i++) x[i] = rng_u64(&r) % 2 ? 0.375f : -0.375f;
    assert_true(round_trip_error(quant_find(QUANT_Q1_0), x, NULL, NULL, back) == 0.0);
}

static void test_hostile(void **state) {
    (void)state;
    static const float values[] = {0.0f,   -0.0f,    3e38f,     -3e38f, 65504.0f, 1e-30f,
                                   1e-45f, INFINITY, -INFINITY, NAN,    6e-8f,    1e-12f};
    enum { N_VALUES = sizeof values / sizeof *values };
    float x[N], z[N], back[N], other[N];
    rng r;
    rng_seed(&r, 6);
    for (int f = 0; f < N_FORMATS; f++) {
        const quant_traits *t = quant_find((uint32_t)formats[f].type);
        for (int round = 0; round < 3 * N_VALUES; round++) {
            /* everywhere; among normal values; mixed */
            for (int i = 0; i < N; i++) {
                int pick = round % 3 == 2 ? (int)(rng_u64(&r) % N_VALUES) : round / 3;
                x[i] = round % 3 != 1 || i % 37 == 5 ? values[pick] : rng_normal(&r);
                z[i] = isnan(x[i]) ? 0.0f : x[i];
            }
            round_trip_error(t, x, NULL, NULL, back);
            round_trip_error(t, z, NULL, NULL, other); /* NaN becomes 0 */
            assert_memory_equal(back, other, sizeof back);
            for (int i = 0; i < N; i++) assert_true(isfinite(back[i]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_books),
        cmocka_unit_test(test_listed_points),
        cmocka_unit_test(test_dequantize_by_definition),
        cmocka_unit_test(test_nonfinite_scales),
        cmocka_unit_test(test_error_bounds),
        cmocka_unit_test(test_exact_values),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
