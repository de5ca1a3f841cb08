/* quant_float.c: the plain float types: IEEE half and bfloat16 with integer arithmetic only.
 *
 * Integer arithmetic gives the same bits on every CPU, whatever its rounding mode and flush-to-zero
 * flags. Conversions agree bit by bit with the F16C and AVX512-BF16 instructions of x86, except
 * that AVX512-BF16 flushes subnormals and this code keeps them. NaNs become quiet and keep the
 * payload bits that fit. Rows in files may have any alignment, hence the memcpy calls. */
#include "quant_float.h"

#include <string.h>

#include "quant_types.h"

#ifdef QUANT_AVX2
#include <immintrin.h>
#else
static float float_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

enum {
    F16_FRACTION = 10,      /* bits */
    F32_FRACTION = 23,      /* bits */
    EXPONENT_GAP = 127 - 15 /* difference of the exponent biases */
};

float quant_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> F16_FRACTION) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 0x1f) {
        uint32_t quiet = fraction != 0 ? 0x400000u : 0;
        return float_of_bits(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent == 0) {
        /* Subnormal: fraction * 2^-24, exact and normal in float. */
        float magnitude = (float)fraction * 0x1p-24f;
        return float_of_bits(sign | bits_of_float(magnitude));
    }
    return float_of_bits(sign | (exponent + EXPONENT_GAP) << F32_FRACTION | fraction << 13);
}

/* value >> shift, rounded to nearest, ties to even; shift in 1..31. */
static uint32_t shift_round_even(uint32_t value, uint32_t shift) {
    uint32_t half = 1u << (shift - 1);
    uint32_t odd = (value >> shift) & 1u;
    return (value + half - 1 + odd) >> shift;
}

uint16_t quant_f32_to_f16(float f) {
    uint32_t u = bits_of_float(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more: infinity */
    if (magnitude >= 0x38800000u) {                                  /* 2^-14 and more: normal */
        uint32_t rebased = magnitude - ((uint32_t)EXPONENT_GAP << F32_FRACTION);
        return (uint16_t)(sign | shift_round_even(rebased, F32_FRACTION - F16_FRACTION));
    }
    if (magnitude <= 0x33000000u) return (uint16_t)sign; /* 2^-25, half the smallest, and less: 0 */
    /* Subnormal: the significand with its leading one, in units of 2^-24. The exponent field e is
     * 102..112 here, and the unit of the significand is 2^(e - 150). */
    uint32_t exponent = magnitude >> F32_FRACTION;
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(significand, 126u - exponent));
}

uint16_t quant_f32_to_bf16(float f) {
    uint32_t u = bits_of_float(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    uint32_t odd = (u >> 16) & 1u;
    return (uint16_t)((u + 0x7fffu + odd) >> 16);
}

#endif

void QUANT_FOR(quant_dequantize_f32)(const void *src, float *dst, int64_t n) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

void QUANT_FOR(quant_quantize_f32)(const float *src, void *dst, int64_t n,
                                   const float *importance) {
    (void)importance;
    memcpy(dst, src, (size_t)n * sizeof *src);
}

static uint16_t load_u16(const void *src, int64_t i) {
    uint16_t h;
    memcpy(&h, (const char *)src + 2 * i, sizeof h);
    return h;
}

static void store_u16(void *dst, int64_t i, uint16_t h) {
    memcpy((char *)dst + 2 * i, &h, sizeof h);
}

void QUANT_FOR(quant_dequantize_f16)(const void *src, float *dst, int64_t n) {
    int64_t i = 0;
#ifdef QUANT_AVX2
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const void *)((const char *)src + 2 * i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
    }
#endif
    for (; i < n; i++) dst[i] = quant_f16_to_f32(load_u16(src, i));
}

void QUANT_FOR(quant_quantize_f16)(const float *src, void *dst, int64_t n,
                                   const float *importance) {
    (void)importance;
    int64_t i = 0;
#ifdef QUANT_AVX2
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((void *)((char *)dst + 2 * i), half);
    }
#endif
    for (; i < n; i++) store_u16(dst, i, quant_f32_to_f16(src[i]));
}

void QUANT_FOR(quant_dequantize_bf16)(const void *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = quant_bf16_to_f32(load_u16(src, i));
}

void QUANT_FOR(quant_quantize_bf16)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    (void)importance;
    for (int64_t i = 0; i < n; i++) store_u16(dst, i, quant_f32_to_bf16(src[i]));
}
