/* tier_select.h: vectorized selection of neurons: lists of those above a threshold, and scores from
 * the signs of weights. A template like tier_ops.h: included once by tier_all.h.
 *
 * Stores beyond the end of a list only overwrite elements that have been read, so lists may be made
 * in place and need no space beyond n. */
#ifndef CPU_TIER_SELECT_H
#define CPU_TIER_SELECT_H

#include <math.h>
#include <string.h>

#include "act.h"
#include "simd.h"
#include "tiers.h"

static int64_t tier_select(const float *score, const float *bias, float threshold, int32_t first,
                           int64_t n, int32_t *out) {
    const vf limit = vf_set1(threshold);
    int64_t count = 0, i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(score + i);
        if (bias != NULL) v = vf_add(v, vf_load(bias + i));
        count += vf_pack_index(out + count, vf_gt(limit, v), first + (int32_t)i);
    }
    for (; i < n; i++) {
        float v = bias != NULL ? score[i] + bias[i] : score[i];
        if (!(v < threshold)) out[count++] = first + (int32_t)i;
    }
    return count;
}

static int64_t tier_keep(float *v, const float *weight, int32_t *rows, float cut, int64_t n) {
    const vf limit = vf_set1(cut);
    int64_t count = 0, i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf x = vf_load(v + i), size = vf_abs(x);
        if (weight != NULL) size = vf_mul(size, vf_load(weight + i));
        vmask gone = vf_le(size, limit);
        vf_pack_i32(rows + count, gone, rows + i);
        count += vf_pack(v + count, gone, x);
    }
    for (; i < n; i++) {
        if (fabsf(v[i]) * (weight != NULL ? weight[i] : 1) <= cut) continue;
        rows[count] = rows[i];
        v[count++] = v[i];
    }
    return count;
}

/* ---- scores by signs ------------------------------------------------------------------------- */

/* sum x s = 2 sum (x where set) - sum x. All rows share the second sum. Bits are processed by their
 * position in the byte: activations are arranged in this order once per call, so that the bytes of
 * a row need no unpacking; four bytes are a group of 32 with one scale. */
enum {
    SIGN_BYTES = 4 * VF_N,      /* bytes of a row per step */
    SIGN_STEP = 8 * SIGN_BYTES, /* elements */
    SIGN_K = 4096,              /* elements per pass: planes stay in L1 */
    SIGN_COLS = 4,              /* columns per pass */
    SIGN_AHEAD = 2048           /* bytes of prefetch */
};
_Static_assert(SIGN_K % SIGN_STEP == 0, "a pass is whole steps");

/* A part of a column: elements [k0, k1). */
typedef struct sign_part {
    int8_t planes[SIGN_K] __attribute__((aligned(64))); /* [steps][8][SIGN_BYTES] */
    const float *d;                                     /* [groups], padded with zeros */
    float all;                                          /* sum x */
} sign_part;

static void sign_load(const cpu_act *x, int64_t col, int64_t k0, int64_t k1, sign_part *out) {
    const void *column = act_column(x, col);
    const int8_t *q = act_q8_q(column) + k0;
    const int32_t *sum = act_q8_sum(column, x->n) + k0 / 16;
    int64_t n = k1 - k0;
    out->d = act_q8_d(column, x->n) + k0 / CPU_ACT_GROUP;
    out->all = 0.0f;
    for (int64_t g = 0; g < n / CPU_ACT_GROUP; g++)
        out->all += out->d[g] * (float)(sum[2 * g] + sum[2 * g + 1]);
    int64_t i = 0;
    for (int8_t *to = out->planes; i < n; i += SIGN_STEP, to += SIGN_STEP) {
        int8_t tail[SIGN_STEP] = {0};
        const int8_t *from = q + i;
        if (n - i < SIGN_STEP) from = memcpy(tail, from, (size_t)(n - i));
        for (int t = 0; t < SIGN_BYTES; t++)
            for (int b = 0; b < 8; b++) to[b * SIGN_BYTES + t] = from[8 * t + b];
    }
}

/* Score of one row over one part. */
SIMD_INLINE float sign_row(const uint8_t *bits, int64_t n, const sign_part *x) {
    vf acc = vf_zero();
    int64_t k = 0;
    for (; k + SIGN_STEP <= n; k += SIGN_STEP) {
        const uint8_t *p = bits + k / 8;
        for (int line = 0; line < SIGN_BYTES; line += 64) SIMD_PREFETCH(p + SIGN_AHEAD + line);
        acc = vf_fma(vf_bit_sums(p, x->planes + k), vf_load(x->d + k / CPU_ACT_GROUP), acc);
    }
    if (k < n) {
        uint8_t tail[SIGN_BYTES] = {0};
        memcpy(tail, bits + k / 8, (size_t)(n - k) / 8);
        acc = vf_fma(vf_bit_sums(tail, x->planes + k),
                     vf_load_part(x->d + k / CPU_ACT_GROUP, (int)((n - k) / CPU_ACT_GROUP)), acc);
    }
    return 2.0f * vf_hsum(acc) - x->all;
}

static void tier_sign_dot(const uint8_t *bits, int64_t row0, int64_t row1, const cpu_act *x,
                          float *y, int64_t ldy) {
    const int64_t row_bytes = x->n / 8;
    sign_part part[SIGN_COLS];
    for (int64_t col = 0; col < x->n_cols; col += SIGN_COLS) {
        int cols = x->n_cols - col < SIGN_COLS ? (int)(x->n_cols - col) : SIGN_COLS;
        for (int64_t k0 = 0; k0 < x->n; k0 += SIGN_K) {
            int64_t k1 = k0 + SIGN_K < x->n ? k0 + SIGN_K : x->n;
            for (int c = 0; c < cols; c++) sign_load(x, col + c, k0, k1, &part[c]);
            for (int64_t r = row0; r < row1; r++) {
                for (int c = 0; c < cols; c++) {
                    float *to = y + (col + c) * ldy + r;
                    float sum = sign_row(bits + r * row_bytes + k0 / 8, k1 - k0, &part[c]);
                    *to = k0 == 0 ? sum : *to + sum;
                }
            }
        }
    }
}

#endif
