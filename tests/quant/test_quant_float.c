/* test_quant_float.c: half and bfloat16 by definition, exhaustively, and compared with the CPU's
 * own conversion where it has one; and the table of types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_features.h"
#include "quant.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static uint32_t bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* (-1)^s * 2^(e - 15) * (1 + f / 1024); subnormals: without the 1 and with e = 1. */
static double half_by_definition(uint32_t h) {
    double sign = h & 0x8000u ? -1.0 : 1.0;
    int e = (int)(h >> 10 & 31u), f = (int)(h & 1023u);
    if (e == 31) return f != 0 ? NAN : sign * INFINITY;
    return sign * (e == 0 ? ldexp(f, -24) : ldexp(1024 + f, e - 25));
}

static void test_half_all_values(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_f16_to_f32((uint16_t)h);
        double want = half_by_definition(h);
        if (isnan(want)) {
            assert_true(isnan(f));
            assert_int_equal(quant_f32_to_f16(f), h | 0x200u); /* quiet, same payload */
            continue;
        }
        assert_true((double)f == want && !signbit(f) == !signbit(want));
        assert_int_equal(quant_f32_to_f16(f), h);
    }
}

/* Between two neighbouring halfs the midpoint rounds to the even one, everything else to the nearer
 * one. */
static void test_half_rounding(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float lo = quant_f16_to_f32((uint16_t)h), hi = quant_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)lo + (double)hi) / 2.0); /* exact in float */
        uint32_t even = h + (h & 1u);
        assert_int_equal(quant_f32_to_f16(middle), even);
        assert_int_equal(quant_f32_to_f16(-middle), even | 0x8000u);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(quant_f32_to_f16(nextafterf(65520.0f, 0.0f)), 0x7bff);
    assert_int_equal(quant_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(quant_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(quant_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(quant_f32_to_f16(from_bits(1)), 0);
    assert_int_equal(quant_f32_to_f16(from_bits(0x80000001u)), 0x8000);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t hardware_half(float f) {
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(f), 0));
}

__attribute__((target("f16c"))) static float hardware_float(uint16_t h) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

static void test_half_as_hardware(void **state) {
    (void)state;
    if (!cpu_features_get()->f16c) skip();
    for (uint32_t h = 0; h < 65536; h++)
        assert_int_equal(bits(quant_f16_to_f32((uint16_t)h)), bits(hardware_float((uint16_t)h)));
    /* A stride coprime to 2^32 reaches all exponents with varying fractions. */
    uint32_t u = 0;
    for (int i = 0; i < 4000000; i++, u += 0x9e3779b1u) {
        float f = from_bits(u);
        if (quant_f32_to_f16(f) != hardware_half(f))
            fail_msg("float %08x: %04x, not %04x", u, quant_f32_to_f16(f), hardware_half(f));
    }
}
#endif

static void test_bf16_all_values(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits(f), h << 16);
        if (isnan(f)) {
            assert_int_equal(quant_f32_to_bf16(f), h | 0x40u);
            continue;
        }
        assert_int_equal(quant_f32_to_bf16(f), h);
        if (isinf(f)) continue;
        /* The midpoint to the next larger magnitude, and its neighbours. */
        uint32_t middle = h << 16 | 0x8000u;
        assert_int_equal(quant_f32_to_bf16(from_bits(middle)), h + (h & 1u));
        assert_int_equal(quant_f32_to_bf16(from_bits(middle - 1)), h);
        assert_int_equal(quant_f32_to_bf16(from_bits(middle + 1)), h + 1);
    }
    assert_int_equal(quant_f32_to_bf16(from_bits(0x7f800001u)) & 0x7fffu, 0x7fc0); /* still NaN */
}

/* Types, block sizes and bytes from the documentation of the format. */
static void test_table(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
        int elems, bytes;
    } rows[] = {
        {0, "F32", 1, 4},         {1, "F16", 1, 2},        {30, "BF16", 1, 2},
        {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},     {6, "Q5_0", 32, 22},
        {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},     {10, "Q2_K", 256, 84},
        {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},
        {14, "Q6_K", 256, 210},   {20, "IQ4_NL", 32, 18},  {23, "IQ4_XS", 256, 136},
        {39, "MXFP4", 32, 17},    {24, "I8", 1, 1},        {25, "I16", 1, 2},
        {26, "I32", 1, 4},        {27, "I64", 1, 8},       {28, "F64", 1, 8},
        {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {22, "IQ2_S", 256, 82},
        {18, "IQ3_XXS", 256, 98}, {21, "IQ3_S", 256, 110}, {19, "IQ1_S", 256, 50},
        {29, "IQ1_M", 256, 56},   {34, "TQ1_0", 256, 54},  {35, "TQ2_0", 256, 66},
        {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},   {42, "Q2_0", 64, 18},
    };
    size_t n_known = 0;
    for (uint32_t type = 0; type < 300; type++) n_known += quant_find(type) != NULL;
    assert_int_equal(n_known, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n_known; i++) {
        const quant_traits *t = quant_find(rows[i].type);
        assert_non_null(t);
        assert_ptr_equal(quant_find_name(rows[i].name), t);
        assert_ptr_equal(quant_find_name(t->name), t);
        assert_int_equal(t->type, rows[i].type);
        assert_int_equal(t->block_elems, rows[i].elems);
        assert_int_equal(t->block_bytes, rows[i].bytes);
        assert_int_equal(t->is_quantized, rows[i].elems > 1);
    }
    assert_null(quant_find(UINT32_MAX));
    assert_null(quant_find_name("q4"));
    assert_null(quant_find_name(""));
    assert_null(quant_find_name(NULL));
}

static void test_row_bytes(void **state) {
    (void)state;
    size_t n = 7;
    assert_true(quant_row_bytes(QUANT_Q4_0, 4096, &n));
    assert_int_equal(n, 2304);
    assert_true(quant_row_bytes(QUANT_Q6_K, 256, &n));
    assert_int_equal(n, 210);
    assert_true(quant_row_bytes(QUANT_F32, 0, &n));
    assert_int_equal(n, 0);
    n = 7;
    assert_false(quant_row_bytes(QUANT_Q4_0, 33, &n));
    assert_false(quant_row_bytes(QUANT_Q4_K, 128, &n));
    assert_false(quant_row_bytes(QUANT_F32, UINT64_MAX / 2, &n));
    assert_false(quant_row_bytes(QUANT_Q8_0, UINT64_MAX - 31, &n));
    assert_false(quant_row_bytes((quant_type)4, 32, &n));
    assert_int_equal(n, 7);
}

static void test_nonfinite_floats(void **state) {
    (void)state;
    float f[5] = {1.0f, 0.0f, -3e38f, from_bits(1), 2.0f};
    double d[2] = {1.0, 1e300};
    uint16_t h[3] = {0x3c00, 0x7bff, 0x8001};
    assert_false(quant_has_nonfinite(QUANT_F32, f, 5));
    assert_false(quant_has_nonfinite(QUANT_F64, d, 2));
    assert_false(quant_has_nonfinite(QUANT_F16, h, 3));
    assert_false(quant_has_nonfinite(QUANT_BF16, h, 3));
    f[4] = INFINITY;
    d[1] = (double)NAN;
    h[2] = 0xfc00;
    assert_true(quant_has_nonfinite(QUANT_F32, f, 5));
    assert_false(quant_has_nonfinite(QUANT_F32, f, 4));
    assert_true(quant_has_nonfinite(QUANT_F64, d, 2));
    assert_true(quant_has_nonfinite(QUANT_F16, h, 3));
    assert_false(quant_has_nonfinite(QUANT_BF16, h, 3));
    h[2] = 0xff80;
    assert_true(quant_has_nonfinite(QUANT_BF16, h, 3));
    int32_t all_ones = -1;
    assert_false(quant_has_nonfinite(QUANT_I32, &all_ones, 1));
}

/* Values that a half cannot hold are found in the result, values that no type should hold in the
 * source. */
static void test_checked(void **state) {
    (void)state;
    float x[32] = {1, -2, 3};
    uint16_t halves[32];
    uint8_t blocks[64];
    const quant_traits *f16 = quant_find(QUANT_F16), *q8 = quant_find(QUANT_Q8_0);
    const quant_traits *bf16 = quant_find(QUANT_BF16);
    assert_int_equal(quant_quantize_checked(f16, x, halves, 32, NULL), QUANT_SOUND);
    assert_true(quant_f16_to_f32(halves[1]) == -2);
    x[5] = -65520; /* rounds to infinity */
    assert_int_equal(quant_quantize_checked(f16, x, halves, 32, NULL), QUANT_BAD_RESULT);
    assert_int_equal(quant_quantize_checked(q8, x, blocks, 32, NULL), QUANT_SOUND);
    assert_int_equal(quant_quantize_checked(bf16, x, halves, 32, NULL), QUANT_SOUND);
    halves[0] = 0x1234;
    const float worst[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        x[31] = worst[i];
        assert_int_equal(quant_quantize_checked(bf16, x, halves, 32, NULL), QUANT_BAD_SOURCE);
        assert_int_equal(halves[0], 0x1234);
    }
}

/* Rows of plain types may have any alignment. */
static void test_plain_rows_unaligned(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16};
    const float x[4] = {1.0f, -2.5f, 0.15625f, 1024.0f}; /* exact in all three */
    for (size_t t = 0; t < 3; t++) {
        char raw[17];
        float back[4];
        const quant_traits *traits = quant_find((uint32_t)types[t]);
        traits->quantize(x, raw + 1, 4, NULL);
        traits->dequantize(raw + 1, back, 4);
        assert_memory_equal(x, back, sizeof x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_all_values),
        cmocka_unit_test(test_half_rounding),
#if defined(__x86_64__)
        cmocka_unit_test(test_half_as_hardware),
#endif
        cmocka_unit_test(test_bf16_all_values),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_row_bytes),
        cmocka_unit_test(test_nonfinite_floats),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_plain_rows_unaligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
