/* quant_k.c: the formats with blocks of 256 elements, whose sub-blocks have small integer scales.
 *
 * Quantizing happens in two rounds. First every sub-block is fitted alone (quant_fit.h). Then the
 * sub-blocks' scales are themselves rounded to multiples of the block's, and the integers are
 * chosen again for the scales as they will be read back.
 *
 * Input is tamed first (quant_tame), so scales are finite whatever comes in: NaN becomes 0, and an
 * infinity the largest value that the format can hold; finite neighbours then lose precision. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_fit.h"
#include "quant_types.h"

/* ---- Q4_K ------------------------------------------------------------------------------------ */

enum {
    Q4K_SUB = 32,       /* elements of a sub-block */
    Q4K_SUBS = 8,       /* sub-blocks of a block */
    Q4K_TOP = 15,       /* largest q */
    Q4K_SCALE_TOP = 63, /* largest sub-block scale and minimum */
};

static void q4k_unpack(const uint8_t packed[12], int j, int *sc, int *m) {
    if (j < 4) {
        *sc = packed[j] & 63;
        *m = packed[j + 4] & 63;
    } else {
        *sc = (packed[j + 4] & 0xf) | (packed[j - 4] >> 6) << 4;
        *m = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    }
}

static void q4k_pack(uint8_t packed[12], int j, int sc, int m) {
    if (j < 4) {
        packed[j] = (uint8_t)(packed[j] | sc);
        packed[j + 4] = (uint8_t)(packed[j + 4] | m);
    } else {
        packed[j + 4] = (uint8_t)((sc & 0xf) | (m & 0xf) << 4);
        packed[j - 4] = (uint8_t)(packed[j - 4] | (sc >> 4) << 6);
        packed[j] = (uint8_t)(packed[j] | (m >> 4) << 6);
    }
}

void quant_dequantize_q4_k(const void *src, float *dst, int64_t n) {
    const block_q4_K *block = src;
    for (int64_t b = 0; b < n / QUANT_K; b++, block++) {
        float d = quant_f16_to_f32(block->d), dmin = quant_f16_to_f32(block->dmin);
        for (int j = 0; j < Q4K_SUBS; j++, dst += Q4K_SUB) {
            int sc, m;
            q4k_unpack(block->scales, j, &sc, &m);
            float scale = d * (float)sc, min = dmin * (float)m;
            const uint8_t *q = block->qs + j / 2 * Q4K_SUB;
            for (int i = 0; i < Q4K_SUB; i++)
                dst[i] = scale * (float)(j % 2 ? q[i] >> 4 : q[i] & 0xf) - min;
        }
    }
}

/* The half nearest to top / steps, and the integers nearest to value / half. */
static uint16_t quantize_scales(const float *value, int n, int steps, int *q, float *d) {
    float top = 0.0f;
    for (int j = 0; j < n; j++) top = fmaxf(top, value[j]);
    uint16_t h = quant_f32_to_f16(fminf(top / (float)steps, QUANT_F16_MAX));
    *d = quant_f16_to_f32(h);
    for (int j = 0; j < n; j++)
        q[j] = *d > 0.0f ? (int)quant_nearest(quant_clamp(value[j] / *d, 0.0f, (float)steps)) : 0;
    return h;
}

static void q4k_quantize_block(const float *src, const float *importance, block_q4_K *block) {
    float x[QUANT_K], w[Q4K_SUB], scale[Q4K_SUBS], min[Q4K_SUBS], d, dmin;
    int sc[Q4K_SUBS], m[Q4K_SUBS];
    const float limit = QUANT_F16_MAX * (float)Q4K_SCALE_TOP;
    for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[i], limit);
    for (int j = 0; j < Q4K_SUBS; j++) {
        quant_fit_weights(importance != NULL ? importance + j * Q4K_SUB : NULL, w, Q4K_SUB);
        quant_fit_affine(x + j * Q4K_SUB, w, Q4K_SUB, Q4K_TOP, false, &scale[j], &min[j]);
    }
    memset(block, 0, sizeof *block);
    block->d = quantize_scales(scale, Q4K_SUBS, Q4K_SCALE_TOP, sc, &d);
    block->dmin = quantize_scales(min, Q4K_SUBS, Q4K_SCALE_TOP, m, &dmin);
    for (int j = 0; j < Q4K_SUBS; j++) {
        q4k_pack(block->scales, j, sc[j], m[j]);
        float step = d * (float)sc[j], offset = dmin * (float)m[j];
        if (step <= 0.0f) continue; /* all q stay 0 */
        uint8_t *qs = block->qs + j / 2 * Q4K_SUB;
        for (int i = 0; i < Q4K_SUB; i++) {
            float q = quant_clamp((x[j * Q4K_SUB + i] + offset) / step, 0.0f, (float)Q4K_TOP);
            qs[i] = (uint8_t)(qs[i] | (int)quant_nearest(q) << (j % 2 ? 4 : 0));
        }
    }
}

void quant_quantize_q4_k(const float *src, void *dst, int64_t n, const float *importance) {
    block_q4_K *block = dst;
    for (int64_t b = 0; b < n / QUANT_K; b++)
        q4k_quantize_block(src + b * QUANT_K, importance ? importance + b * QUANT_K : NULL,
                           block + b);
}

/* ---- Q6_K ------------------------------------------------------------------------------------ */

enum {
    Q6K_SUB = 16,
    Q6K_SUBS = 16,
    Q6K_ZERO = 32, /* stored value of q = 0; q is in -32..31 */
    Q6K_SCALE_TOP = 128,
};

/* Element e of a block lies in nibble `high` of ql[*low] and in bits *shift.. of qh[*top]: a half
 * of 128 elements is four runs of 32, which share 64 bytes of ql and 32 bytes of qh. */
static void q6k_place(int e, int *low, int *nibble, int *top, int *shift) {
    int half = e / 128, run = e / 32 % 4, i = e % 32;
    *low = half * 64 + run % 2 * 32 + i;
    *nibble = run / 2 * 4;
    *top = half * 32 + i;
    *shift = run * 2;
}

void quant_dequantize_q6_k(const void *src, float *dst, int64_t n) {
    const block_q6_K *block = src;
    for (int64_t b = 0; b < n / QUANT_K; b++, block++, dst += QUANT_K) {
        float d = quant_f16_to_f32(block->d);
        for (int e = 0; e < QUANT_K; e++) {
            int low, nibble, top, shift;
            q6k_place(e, &low, &nibble, &top, &shift);
            int q = (block->ql[low] >> nibble & 0xf) | (block->qh[top] >> shift & 3) << 4;
            dst[e] = d * (float)block->scales[e / Q6K_SUB] * (float)(q - Q6K_ZERO);
        }
    }
}

static void q6k_quantize_block(const float *src, const float *importance, block_q6_K *block) {
    float x[QUANT_K], w[Q6K_SUB], scale[Q6K_SUBS];
    const float limit = QUANT_F16_MAX * (float)(Q6K_SCALE_TOP - 1) * (float)(Q6K_ZERO - 1);
    float longest = 0.0f;
    for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[i], limit);
    for (int j = 0; j < Q6K_SUBS; j++) {
        quant_fit_weights(importance != NULL ? importance + j * Q6K_SUB : NULL, w, Q6K_SUB);
        scale[j] = quant_fit_scale(x + j * Q6K_SUB, w, Q6K_SUB, Q6K_ZERO);
        if (fabsf(scale[j]) > fabsf(longest)) longest = scale[j];
    }
    memset(block, 0, sizeof *block);
    block->d = quant_f32_to_f16(quant_tame(longest / (float)-Q6K_SCALE_TOP, QUANT_F16_MAX));
    float d = quant_f16_to_f32(block->d);
    for (int j = 0; j < Q6K_SUBS; j++) {
        float sc = d != 0.0f ? quant_nearest(quant_clamp(scale[j] / d, (float)-Q6K_SCALE_TOP,
                                                         (float)(Q6K_SCALE_TOP - 1)))
                             : 0.0f;
        block->scales[j] = (int8_t)sc;
        float step = d * sc;
        for (int e = j * Q6K_SUB; e < (j + 1) * Q6K_SUB; e++) {
            float value = step != 0.0f ? x[e] / step : 0.0f;
            int q = (int)quant_nearest(quant_clamp(value, (float)-Q6K_ZERO, (float)(Q6K_ZERO - 1)));
            int low, nibble, top, shift;
            q6k_place(e, &low, &nibble, &top, &shift);
            q += Q6K_ZERO;
            block->ql[low] = (uint8_t)(block->ql[low] | (q & 0xf) << nibble);
            block->qh[top] = (uint8_t)(block->qh[top] | (q >> 4) << shift);
        }
    }
}

void quant_quantize_q6_k(const float *src, void *dst, int64_t n, const float *importance) {
    block_q6_K *block = dst;
    for (int64_t b = 0; b < n / QUANT_K; b++)
        q6k_quantize_block(src + b * QUANT_K, importance ? importance + b * QUANT_K : NULL,
                           block + b);
}
