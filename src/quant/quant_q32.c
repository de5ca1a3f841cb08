/* quant_q32.c: the formats with blocks of 32 elements and one half-precision scale.
 *
 * The quantizers follow the rule that all GGUF writers share, so that ours give the same bytes: the
 * integers are chosen with the float scale, before it is rounded to half. `importance` has nothing
 * to say there: the scale is fixed by the largest value. */
#include <math.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_types.h"

enum { BLOCK = 32 };

/* 1 / d, or 0 where that is not finite (d is 0, or so small that all values round to 0 anyway). */
static float inverse_or_zero(float d) {
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    return isfinite(inverse) ? inverse : 0.0f;
}

void quant_dequantize_q8_0(const void *src, float *dst, int64_t n) {
    const block_q8_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = quant_f16_to_f32(block->d);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)block->qs[i];
    }
}

void quant_quantize_q8_0(const float *src, void *dst, int64_t n, const float *importance) {
    (void)importance;
    const float q_max = 127.0f;
    block_q8_0 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, src += BLOCK) {
        float x[BLOCK];
        float amax = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            x[i] = quant_tame(src[i], QUANT_F16_MAX * q_max);
            amax = fmaxf(amax, fabsf(x[i]));
        }
        float d = amax / q_max;
        float inverse = inverse_or_zero(d);
        block->d = quant_f32_to_f16(d);
        for (int i = 0; i < BLOCK; i++)
            block->qs[i] = (int8_t)fminf(fmaxf(roundf(x[i] * inverse), -q_max), q_max);
    }
}

void quant_dequantize_q4_0(const void *src, float *dst, int64_t n) {
    const block_q4_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = quant_f16_to_f32(block->d);
        for (int i = 0; i < BLOCK / 2; i++) {
            dst[i] = d * (float)((block->qs[i] & 0xf) - 8);
            dst[i + BLOCK / 2] = d * (float)((block->qs[i] >> 4) - 8);
        }
    }
}

void quant_quantize_q4_0(const float *src, void *dst, int64_t n, const float *importance) {
    (void)importance;
    block_q4_0 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, src += BLOCK) {
        float x[BLOCK];
        float extreme = 0.0f; /* the value of largest magnitude, with its sign: becomes q = -8 */
        for (int i = 0; i < BLOCK; i++) {
            x[i] = quant_tame(src[i], QUANT_F16_MAX * 8.0f);
            if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
        }
        float d = extreme / -8.0f;
        float inverse = inverse_or_zero(d);
        block->d = quant_f32_to_f16(d);
        uint8_t q[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            q[i] = (uint8_t)fmaxf(fminf(x[i] * inverse + 8.5f, 15.0f), 0.0f);
        for (int i = 0; i < BLOCK / 2; i++) block->qs[i] = (uint8_t)(q[i] | q[i + BLOCK / 2] << 4);
    }
}
