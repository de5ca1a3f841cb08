/* quant_q32.c: the formats with blocks of 32 elements and one half-precision scale, or a scale and
 * a minimum.
 *
 * Without importance the quantizers follow the rule that all GGUF writers share, and give the same
 * bytes: the step follows from the largest value (or the range), and the float scale, before
 * rounding to half, chooses the integers. With importance the four- and five-bit types search for
 * the step with the smallest weighted error; Q8_0 does not need it. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_fit.h"
#include "quant_types.h"

enum { BLOCK = 32 };

/* 1 / d, or 0 where it is not finite (d is 0, or so small that all values round to 0). */
static float inverse_or_zero(float d) {
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    return isfinite(inverse) ? inverse : 0.0f;
}

/* Nearest integer, halves away from zero, for |x| < 2^22: the addend is the largest float below a
 * half, so that no smaller x is rounded up to the next integer. Unlike roundf this vectorizes. */
static int round_half_away(float x) {
    const float below_half = 0x1.fffffep-2f;
    return (int)(x < 0.0f ? x - below_half : x + below_half);
}

void QUANT_FOR(quant_dequantize_q8_0)(const void *src, float *dst, int64_t n) {
    const block_q8_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = quant_f16_to_f32(block->d);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)block->qs[i];
    }
}

void QUANT_FOR(quant_quantize_q8_0)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    (void)importance;
    const float q_max = 127.0f;
    block_q8_0 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, src += BLOCK) {
        float x[BLOCK];
        for (int i = 0; i < BLOCK; i++) x[i] = quant_tame(src[i], QUANT_F16_MAX * q_max);
        float d = fabsf(quant_extreme(x, BLOCK)) / q_max;
        float inverse = inverse_or_zero(d);
        block->d = quant_f32_to_f16(d);
        for (int i = 0; i < BLOCK; i++)
            block->qs[i] = (int8_t)round_half_away(quant_clamp(x[i] * inverse, -q_max, q_max));
    }
}

/* ---- Q4_0, Q4_1, Q5_0, Q5_1: four bits, a fifth, a minimum ----------------------------------- */

/* Nibbles of elements i and i + 16 share byte i. */
static void pack_nibbles(const uint8_t q[BLOCK], uint8_t qs[BLOCK / 2]) {
    for (int i = 0; i < BLOCK / 2; i++)
        qs[i] = (uint8_t)((q[i] & 0xf) | (q[i + BLOCK / 2] & 0xf) << 4);
}

static void unpack_nibbles(const uint8_t qs[BLOCK / 2], uint8_t q[BLOCK]) {
    for (int i = 0; i < BLOCK / 2; i++) {
        q[i] = qs[i] & 0xf;
        q[i + BLOCK / 2] = qs[i] >> 4;
    }
}

/* Bit 4 of element i is bit i of a 32-bit string. */
static void pack_fifth(const uint8_t q[BLOCK], uint8_t qh[BLOCK / 8]) {
    memset(qh, 0, BLOCK / 8);
    for (int i = 0; i < BLOCK; i++) qh[i / 8] = (uint8_t)(qh[i / 8] | (q[i] >> 4) << i % 8);
}

static void unpack_fifth(const uint8_t qh[BLOCK / 8], uint8_t q[BLOCK]) {
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(q[i] | (qh[i / 8] >> i % 8 & 1) << 4);
}

/* dst = d * q + m with one rounding: half times five-bit integer is exact. */
static void store_affine(const uint8_t q[BLOCK], uint16_t d, float m, float *dst) {
    float scale = quant_f16_to_f32(d);
    for (int i = 0; i < BLOCK; i++) dst[i] = scale * (float)q[i] + m;
}

void QUANT_FOR(quant_dequantize_q4_0)(const void *src, float *dst, int64_t n) {
    const block_q4_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        uint8_t q[BLOCK];
        unpack_nibbles(block->qs, q);
        store_affine(q, block->d, -8.0f * quant_f16_to_f32(block->d), dst);
    }
}

void QUANT_FOR(quant_dequantize_q4_1)(const void *src, float *dst, int64_t n) {
    const block_q4_1 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        uint8_t q[BLOCK];
        unpack_nibbles(block->qs, q);
        store_affine(q, block->d, quant_f16_to_f32(block->m), dst);
    }
}

void QUANT_FOR(quant_dequantize_q5_0)(const void *src, float *dst, int64_t n) {
    const block_q5_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        uint8_t q[BLOCK];
        unpack_nibbles(block->qs, q);
        unpack_fifth(block->qh, q);
        store_affine(q, block->d, -16.0f * quant_f16_to_f32(block->d), dst);
    }
}

void QUANT_FOR(quant_dequantize_q5_1)(const void *src, float *dst, int64_t n) {
    const block_q5_1 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        uint8_t q[BLOCK];
        unpack_nibbles(block->qs, q);
        unpack_fifth(block->qh, q);
        store_affine(q, block->d, quant_f16_to_f32(block->m), dst);
    }
}

/* q = x / scale + zero, rounded half up, clamped to 0..2 * zero - 1; returns the scale as a
 * half. */
static uint16_t choose_signed(const float *src, const float *importance, int zero,
                              uint8_t q[BLOCK]) {
    float x[BLOCK], w[BLOCK];
    for (int i = 0; i < BLOCK; i++) x[i] = quant_tame(src[i], QUANT_F16_MAX * (float)zero);
    float d = quant_extreme(x, BLOCK) / (float)-zero; /* the extreme value becomes -zero */
    if (quant_fit_weights(importance, w, BLOCK)) {
        d = quant_tame(quant_fit_scale(x, w, BLOCK, zero), QUANT_F16_MAX);
        d = quant_f16_to_f32(quant_f32_to_f16(d));
    }
    float inverse = inverse_or_zero(d), offset = (float)zero + 0.5f, top = (float)(2 * zero - 1);
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)quant_clamp(x[i] * inverse + offset, 0.0f, top);
    return quant_f32_to_f16(d);
}

/* q = (x - m) / d, rounded half up, clamped to 0..top; writes d and m as halfs. */
static void choose_affine(const float *src, const float *importance, int top, uint8_t q[BLOCK],
                          uint16_t *half_d, uint16_t *half_m) {
    float x[BLOCK], w[BLOCK];
    for (int i = 0; i < BLOCK; i++) x[i] = quant_tame(src[i], QUANT_F16_MAX);
    float lo, hi;
    quant_range(x, BLOCK, &lo, &hi);
    float d = (hi - lo) / (float)top, m = lo;
    if (quant_fit_weights(importance, w, BLOCK)) {
        float min;
        quant_fit_affine(x, w, BLOCK, top, true, &d, &min);
        d = quant_f16_to_f32(quant_f32_to_f16(quant_tame(d, QUANT_F16_MAX)));
        m = quant_f16_to_f32(quant_f32_to_f16(quant_tame(-min, QUANT_F16_MAX)));
    }
    float inverse = inverse_or_zero(d);
    for (int i = 0; i < BLOCK; i++)
        q[i] = (uint8_t)quant_clamp((x[i] - m) * inverse + 0.5f, 0.0f, (float)top);
    *half_d = quant_f32_to_f16(d);
    *half_m = quant_f32_to_f16(m);
}

static const float *importance_at(const float *importance, int64_t b) {
    return importance != NULL ? importance + b * BLOCK : NULL;
}

void QUANT_FOR(quant_quantize_q4_0)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    block_q4_0 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++) {
        uint8_t q[BLOCK];
        block->d = choose_signed(src + b * BLOCK, importance_at(importance, b), 8, q);
        pack_nibbles(q, block->qs);
    }
}

void QUANT_FOR(quant_quantize_q4_1)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    block_q4_1 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++) {
        uint8_t q[BLOCK];
        choose_affine(src + b * BLOCK, importance_at(importance, b), 15, q, &block->d, &block->m);
        pack_nibbles(q, block->qs);
    }
}

void QUANT_FOR(quant_quantize_q5_0)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    block_q5_0 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++) {
        uint8_t q[BLOCK];
        block->d = choose_signed(src + b * BLOCK, importance_at(importance, b), 16, q);
        pack_nibbles(q, block->qs);
        pack_fifth(q, block->qh);
    }
}

void QUANT_FOR(quant_quantize_q5_1)(const float *src, void *dst, int64_t n,
                                    const float *importance) {
    block_q5_1 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++) {
        uint8_t q[BLOCK];
        choose_affine(src + b * BLOCK, importance_at(importance, b), 31, q, &block->d, &block->m);
        pack_nibbles(q, block->qs);
        pack_fifth(q, block->qh);
    }
}
