/* quant_table.c: the formats whose nibbles are indices of a table of 16 values: IQ4_NL and IQ4_XS
 * (a table denser around zero) and MXFP4 (four-bit floats, E2M1, with a power of two as scale).
 *
 * IQ4 quantizers search for the scale with the smallest weighted error and try both signs, because
 * the table is longer on its negative side. MXFP4 scales are powers of two; its quantizer tries the
 * exponents around that of the largest value. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_fit.h"
#include "quant_types.h"

enum {
    BLOCK = 32, /* elements per block, or per sub-block of IQ4_XS */
    IQ4XS_SUBS = QUANT_K / BLOCK,
    IQ4XS_SCALE_ZERO = 32 /* stored value of an integer scale of 0 */
};

static const int8_t iq4_values[16] = {QUANT_IQ4_VALUES};
static const int8_t e2m1_values[16] = {QUANT_E2M1_VALUES};

static const float *importance_at(const float *importance, int64_t e) {
    return importance != NULL ? importance + e : NULL;
}

/* Nibbles of elements i and i + 16 share byte i. */
static void expand(const uint8_t qs[BLOCK / 2], const int8_t table[16], float scale, float *dst) {
    for (int i = 0; i < BLOCK / 2; i++) {
        dst[i] = scale * (float)table[qs[i] & 0xf];
        dst[i + BLOCK / 2] = scale * (float)table[qs[i] >> 4];
    }
}

static void pack(const uint8_t q[BLOCK], uint8_t qs[BLOCK / 2]) {
    for (int i = 0; i < BLOCK / 2; i++) qs[i] = (uint8_t)(q[i] | q[i + BLOCK / 2] << 4);
}

/* Table indices for a scale as a reader will decode it; for a scale of 0 the index of 1, the
 * smallest value. */
static void choose_iq4(const float *x, float scale, uint8_t qs[BLOCK / 2]) {
    uint8_t q[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        q[i] = quant_nearest_entry(
            scale != 0.0f ? quant_clamp(x[i] / scale, -256.0f, 256.0f) : 0.0f, iq4_values);
    pack(q, qs);
}

/* ---- IQ4_NL ---------------------------------------------------------------------------------- */

void QUANT_FOR(quant_dequantize_iq4_nl)(const void *src, float *dst, int64_t n) {
    const block_iq4_nl *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++)
        expand(block[b].qs, iq4_values, quant_f16_to_f32(block[b].d), dst + b * BLOCK);
}

void QUANT_FOR(quant_quantize_iq4_nl)(const float *src, void *dst, int64_t n,
                                      const float *importance) {
    block_iq4_nl *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++) {
        float x[BLOCK], w[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            x[i] = quant_tame(src[b * BLOCK + i], QUANT_F16_MAX * (float)iq4_values[15]);
        quant_fit_weights(importance_at(importance, b * BLOCK), w, BLOCK);
        float scale = quant_fit_table(x, w, BLOCK, iq4_values);
        block[b].d = quant_f32_to_f16(quant_tame(scale, QUANT_F16_MAX));
        choose_iq4(x, quant_f16_to_f32(block[b].d), block[b].qs);
    }
}

/* ---- IQ4_XS ---------------------------------------------------------------------------------- */

static int iq4xs_scale(const block_iq4_xs *block, int j) {
    int low = block->scales_l[j / 2] >> j % 2 * 4 & 0xf, high = block->scales_h >> 2 * j & 3;
    return (low | high << 4) - IQ4XS_SCALE_ZERO;
}

static void iq4xs_put_scale(block_iq4_xs *block, int j, int scale) {
    int stored = scale + IQ4XS_SCALE_ZERO;
    block->scales_l[j / 2] = (uint8_t)(block->scales_l[j / 2] | (stored & 0xf) << j % 2 * 4);
    block->scales_h = (uint16_t)(block->scales_h | stored >> 4 << 2 * j);
}

void QUANT_FOR(quant_dequantize_iq4_xs)(const void *src, float *dst, int64_t n) {
    const block_iq4_xs *block = src;
    for (int64_t b = 0; b < n / QUANT_K; b++, block++) {
        float d = quant_f16_to_f32(block->d);
        for (int j = 0; j < IQ4XS_SUBS; j++, dst += BLOCK)
            expand(block->qs + j * BLOCK / 2, iq4_values, d * (float)iq4xs_scale(block, j), dst);
    }
}

void QUANT_FOR(quant_quantize_iq4_xs)(const float *src, void *dst, int64_t n,
                                      const float *importance) {
    const float limit = QUANT_F16_MAX * (float)(IQ4XS_SCALE_ZERO - 1) * (float)iq4_values[15];
    block_iq4_xs *block = dst;
    for (int64_t b = 0; b < n / QUANT_K; b++, block++) {
        float x[QUANT_K], w[BLOCK], scale[IQ4XS_SUBS];
        int8_t sc[IQ4XS_SUBS];
        for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[b * QUANT_K + i], limit);
        for (int j = 0; j < IQ4XS_SUBS; j++) {
            quant_fit_weights(importance_at(importance, b * QUANT_K + j * BLOCK), w, BLOCK);
            scale[j] = quant_fit_table(x + j * BLOCK, w, BLOCK, iq4_values);
        }
        memset(block, 0, sizeof *block);
        block->d = quant_round_scales(scale, IQ4XS_SUBS, IQ4XS_SCALE_ZERO, sc);
        float d = quant_f16_to_f32(block->d);
        for (int j = 0; j < IQ4XS_SUBS; j++) {
            iq4xs_put_scale(block, j, sc[j]);
            choose_iq4(x + j * BLOCK, d * (float)sc[j], block->qs + j * BLOCK / 2);
        }
    }
}

/* ---- MXFP4 ----------------------------------------------------------------------------------- */

enum {
    E8M0_BIAS_HALF = 128, /* quant_e8m0_half(e) = 2^(e - 128) */
    E8M0_TOP = 252        /* 12 * 2^(e - 128) is finite up to here */
};

void QUANT_FOR(quant_dequantize_mxfp4)(const void *src, float *dst, int64_t n) {
    const block_mxfp4 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++)
        expand(block[b].qs, e2m1_values, quant_e8m0_half(block[b].e), dst + b * BLOCK);
}

/* Chooses table indices for exponent byte e; returns their weighted squared error. */
static double choose_mxfp4(const float *x, const float *w, int e, uint8_t q[BLOCK]) {
    float scale = quant_e8m0_half((uint8_t)e);
    double error = 0.0;
    for (int i = 0; i < BLOCK; i++) {
        float y = x[i] / scale;
        q[i] = quant_nearest_e2m1(y);
        double off = (double)y - (double)e2m1_values[q[i]];
        error += (double)w[i] * off * off;
    }
    return ldexp(error, 2 * (e - E8M0_BIAS_HALF));
}

void QUANT_FOR(quant_quantize_mxfp4)(const float *src, void *dst, int64_t n,
                                     const float *importance) {
    const float limit = ldexpf(12.0f, E8M0_TOP - E8M0_BIAS_HALF);
    block_mxfp4 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++) {
        float x[BLOCK], w[BLOCK], amax = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            x[i] = quant_tame(src[b * BLOCK + i], limit);
            amax = fmaxf(amax, fabsf(x[i]));
        }
        quant_fit_weights(importance_at(importance, b * BLOCK), w, BLOCK);
        /* amax = f * 2^k with f in [0.5, 1): 12 * 2^(k - 3) is larger, 12 * 2^(k - 4) may be
         * smaller, and the next two exponents clip the largest values. */
        int k = 0;
        frexpf(amax, &k);
        double best = INFINITY;
        for (int down = 0; down <= 3; down++) {
            int e = k - 3 - down + E8M0_BIAS_HALF;
            uint8_t q[BLOCK];
            e = e < 0 ? 0 : e > E8M0_TOP ? E8M0_TOP : e;
            double error = choose_mxfp4(x, w, e, q);
            if (error >= best) continue;
            best = error;
            block[b].e = (uint8_t)e;
            pack(q, block[b].qs);
        }
    }
}
