/* test_quant_low.c: the formats of three bits and less. The code books by a hash of all their
 * points; dequantizing against a second formulation that finds one element at a time in raw bytes,
 * written from the formats' description. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

/* The hashes are those of the tables in ggml-common.h (llama.cpp, 2026), byte by byte. */
static void test_code_books(void **state) {
    (void)state;
#define HASH(table) hash_bytes((const uint8_t *)(table), sizeof(table))
    assert_true(HASH(quant_grid_iq2_xxs) == UINT64_C(0xbb4ee025b5ac6e8e));
    assert_true(HASH(quant_grid_iq2_xs) == UINT64_C(0xc9b1ee61e79909bd));
    assert_true(HASH(quant_grid_iq2_s) == UINT64_C(0x123edd38a3b62b90));
    assert_true(HASH(quant_grid_iq3_xxs) == UINT64_C(0xdfa5dc83d6a155d5));
    assert_true(HASH(quant_grid_iq3_s) == UINT64_C(0xfa37020c25b44829));
    int8_t signs[2048][8]; /* ours are eighths */
    memcpy(signs, quant_grid_iq1, sizeof signs);
    for (int i = 0; i < 2048; i++)
        for (int k = 0; k < 8; k++) signs[i][k] = (int8_t)(signs[i][k] / 8);
    assert_true(HASH(signs) == UINT64_C(0x6703ed863501ae2e));
#undef HASH
}

/* What the GPU computes from the lists is what the compiler made of them for the CPU. */
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

static double half_at(const uint8_t *p) {
    return (double)quant_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Bits [bit, bit + n) of a little-endian byte string. */
static int bit_field(const uint8_t *p, int bit, int n) {
    int value = 0;
    for (int i = 0; i < n; i++) value |= (p[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
    return value;
}

/* Coordinate k of a point. */
static double point(uint64_t bytes, int k) {
    return (double)(int8_t)(bytes >> 8 * k & 0xff);
}

/* Sign k of 8, of which 7 are stored: the eighth makes the number of negative ones even. */
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

/* Ternary digits of a byte: it is their number in base 3, as a fraction of 243, rounded up to one
 * of 256. */
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

/* A bad half is found in every block, and nothing else is taken for one. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_books),
        cmocka_unit_test(test_listed_points),
        cmocka_unit_test(test_dequantize_by_definition),
        cmocka_unit_test(test_nonfinite_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
