/* quant_low_few.c: quantizes floats to the formats with few values and one scale (TQ1_0, TQ2_0,
 * Q1_0, Q2_0) and to NVFP4. Weights that were trained to such values are kept exactly. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_fit.h"
#include "quant_low.h"
#include "quant_types.h"

enum { TRIALS = 15 };
static const float TRIAL_STEP = 0.05f; /* relative to the first trial, the largest element */

/* Chooses integers low..high and d for x ~ d * q that keep the most weighted energy; returns d as a
 * half. */
static uint16_t fit_few(const float *x, const float *w, int n, int low, int high, int8_t *q) {
    float amax = 0.0f, scale = 0.0f;
    double best = 0.0;
    for (int i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
    for (int i = 0; i < n; i++) q[i] = 0;
    if (amax < 0x1p-40f) return 0; /* d rounds to a half of 0, and 1 / amax could overflow */
    for (int t = 0; t < 2 * TRIALS; t++) {
        const float part = (1.0f - TRIAL_STEP * (float)(t / 2)) * amax / (float)high;
        const float inverse = (t % 2 ? -1.0f : 1.0f) / part;
        double xq = 0.0, qq = 0.0;
        int8_t trial[QUANT_K];
        if (t % 2 && low == -high) continue; /* same as an earlier trial */
        for (int i = 0; i < n; i++) {
            const float v = quant_nearest(quant_clamp(x[i] * inverse, (float)low, (float)high));
            xq += (double)(w[i] * x[i] * v);
            qq += (double)(w[i] * v * v);
            trial[i] = (int8_t)v;
        }
        if (!(qq > 0.0) || xq * xq / qq <= best) continue;
        best = xq * xq / qq;
        scale = (float)(xq / qq);
        for (int i = 0; i < n; i++) q[i] = trial[i];
    }
    return quant_f32_to_f16(quant_tame(scale, QUANT_F16_MAX));
}

/* Integers of a block, stored from 0: `low` is written as 0. */
static uint16_t take_block(const float *src, const float *importance, int64_t at, int n, int low,
                           int high, uint8_t *q) {
    float x[QUANT_K], w[QUANT_K];
    int8_t v[QUANT_K];
    for (int i = 0; i < n; i++) x[i] = quant_tame(src[at + i], QUANT_F16_MAX);
    quant_fit_weights(importance != NULL ? importance + at : NULL, w, n);
    const uint16_t d = fit_few(x, w, n, low, high, v);
    for (int i = 0; i < n; i++) q[i] = (uint8_t)(v[i] - low);
    return d;
}

/* The byte that encodes base-3 digits, the highest first. */
static uint8_t ternary(const uint8_t *q, int stride, int n) {
    int number = 0;
    for (int i = 0; i < 5; i++) number = 3 * number + (i < n ? q[i * stride] : 0);
    return (uint8_t)((number * 256 + 242) / 243);
}

void quant_quantize_tq1_0(const float *src, void *dst, int64_t n, const float *importance) {
    block_tq1_0 *out = dst;
    for (int64_t b = 0; b < n / QUANT_K; b++, out++) {
        uint8_t q[QUANT_K];
        out->d = take_block(src, importance, b * QUANT_K, QUANT_K, -1, 1, q);
        for (int i = 0; i < 32; i++) out->qs[i] = ternary(q + i, 32, 5);
        for (int i = 0; i < 16; i++) out->qs[32 + i] = ternary(q + 160 + i, 16, 5);
        for (int i = 0; i < 4; i++) out->qh[i] = ternary(q + 240 + i, 4, 4);
    }
}

void quant_quantize_tq2_0(const float *src, void *dst, int64_t n, const float *importance) {
    block_tq2_0 *out = dst;
    for (int64_t b = 0; b < n / QUANT_K; b++, out++) {
        uint8_t q[QUANT_K];
        out->d = take_block(src, importance, b * QUANT_K, QUANT_K, -1, 1, q);
        memset(out->qs, 0, sizeof out->qs);
        for (int i = 0; i < QUANT_K; i++) {
            uint8_t *byte = &out->qs[i / 128 * 32 + i % 32];
            *byte = (uint8_t)(*byte | q[i] << i / 32 % 4 * 2);
        }
    }
}

void quant_quantize_q2_0(const float *src, void *dst, int64_t n, const float *importance) {
    block_q2_0 *out = dst;
    for (int64_t b = 0; b < n / q2_0_elems; b++, out++) {
        uint8_t q[q2_0_elems];
        out->d = take_block(src, importance, b * q2_0_elems, q2_0_elems, -1, 2, q);
        memset(out->qs, 0, sizeof out->qs);
        for (int i = 0; i < q2_0_elems; i++)
            out->qs[i / 4] = (uint8_t)(out->qs[i / 4] | q[i] << i % 4 * 2);
    }
}

/* Stores signs; the mean magnitude is the best scale for them. */
void quant_quantize_q1_0(const float *src, void *dst, int64_t n, const float *importance) {
    block_q1_0 *out = dst;
    for (int64_t b = 0; b < n / q1_0_elems; b++, out++) {
        float w[q1_0_elems];
        double sum = 0.0, weights = 0.0;
        quant_fit_weights(importance != NULL ? importance + b * q1_0_elems : NULL, w, q1_0_elems);
        memset(out->qs, 0, sizeof out->qs);
        for (int i = 0; i < q1_0_elems; i++) {
            const float x = quant_tame(src[b * q1_0_elems + i], QUANT_F16_MAX);
            sum += (double)(w[i] * fabsf(x));
            weights += (double)w[i];
            out->qs[i / 8] = (uint8_t)(out->qs[i / 8] | (x >= 0.0f) << i % 8);
        }
        out->d = quant_f32_to_f16((float)(sum / weights));
    }
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */

enum { UE4M3_TOP = 126, E2M1_TOP = 7 };
static const int8_t e2m1_values[16] = {QUANT_E2M1_VALUES};

static double choose_e2m1(const float *x, const float *w, uint32_t byte, uint8_t q[nvfp4_sub]) {
    const float scale = low_ue4m3_half(byte);
    double error = 0.0;
    for (int i = 0; i < nvfp4_sub; i++) {
        q[i] = scale > 0.0f ? quant_nearest_e2m1(x[i] / scale) : 0;
        const double off = (double)(x[i] - scale * (float)e2m1_values[q[i]]);
        error += (double)w[i] * off * off;
    }
    return error;
}

/* Scale bytes ascend with their values: tries those from the largest element's scale down to half
 * of it (8 steps). */
static uint8_t fit_nvfp4(const float *x, const float *w, uint8_t best[nvfp4_sub]) {
    float amax = 0.0f;
    uint32_t top = 0, chosen = 0;
    for (int i = 0; i < nvfp4_sub; i++) amax = fmaxf(amax, fabsf(x[i]));
    while (top < UE4M3_TOP && low_ue4m3_half(top) * (float)e2m1_values[E2M1_TOP] < amax) top++;
    double least = INFINITY;
    for (uint32_t byte = top > 8 ? top - 8 : 0; byte <= top; byte++) {
        uint8_t q[nvfp4_sub];
        const double error = choose_e2m1(x, w, byte, q);
        if (error >= least) continue;
        least = error;
        chosen = byte;
        memcpy(best, q, sizeof q);
    }
    return (uint8_t)chosen;
}

void quant_quantize_nvfp4(const float *src, void *dst, int64_t n, const float *importance) {
    block_nvfp4 *out = dst;
    for (int64_t i = 0; i < n; i += nvfp4_sub) {
        block_nvfp4 *b = out + i / nvfp4_elems;
        const int64_t sub = i % nvfp4_elems / nvfp4_sub;
        float x[nvfp4_sub], w[nvfp4_sub];
        uint8_t q[nvfp4_sub];
        for (int k = 0; k < nvfp4_sub; k++) x[k] = quant_tame(src[i + k], QUANT_F16_MAX);
        quant_fit_weights(importance != NULL ? importance + i : NULL, w, nvfp4_sub);
        b->d[sub] = fit_nvfp4(x, w, q);
        for (int k = 0; k < nvfp4_sub / 2; k++)
            b->qs[sub * nvfp4_sub / 2 + k] = (uint8_t)(q[k] | q[k + nvfp4_sub / 2] << 4);
    }
}
