/* tier_act.h: vectorized quantization of activations. A template: included once by tier_all.h.
 *
 * Each step makes a vector of words: VF_N floats, 2 VF_N bfloat16 or 4 VF_N int8. For panels the
 * words of VF_N columns are transposed, which gives the layout of act.h for all three kinds. */
#ifndef CPU_TIER_ACT_H
#define CPU_TIER_ACT_H

#include <math.h>
#include <string.h>

#include "act.h"
#include "simd.h"
#include "tiers.h"

enum {
    TIER_ACT_BYTES = VF_N * 4,                        /* bytes of a vector */
    TIER_ACT_GROUPS = TIER_ACT_BYTES / CPU_ACT_GROUP, /* groups in a vector of int8 */
    TIER_ACT_VECTORS = CPU_ACT_GROUP / VF_N           /* float vectors per group */
};

/* Loads n vectors of the floats at x; zeros after the first `left` floats. */
SIMD_INLINE void tier_act_floats(const float *x, int64_t left, const int n, vf v[]) {
    for (int i = 0; i < n; i++, x += VF_N, left -= VF_N) {
        v[i] = vf_zero();
        if (left >= VF_N)
            v[i] = vf_load(x);
        else if (left > 0)
            v[i] = vf_load_part(x, (int)left);
    }
}

/* The word vector of the floats at x, or of pairs of them as bfloat16. */
SIMD_INLINE vi tier_act_words(const float *x, int64_t left, const bool bf16) {
    vf v[2] = {vf_zero(), vf_zero()};
    tier_act_floats(x, left, bf16 ? 2 : 1, v);
    return bf16 ? vi_pack_bf16(v[0], v[1]) : vi_of(v[0]);
}

/* The words of the high parts of 2 VF_N floats, and of the low parts. */
SIMD_INLINE void tier_act_split(const float *x, int64_t left, vi *high, vi *low) {
    vf v[2], top[2];
    tier_act_floats(x, left, 2, v);
    for (int i = 0; i < 2; i++) top[i] = vf_high_bf16(vi_add(vi_of(v[i]), vi_set1(0x8000)));
    *high = vi_pack_bf16(top[0], top[1]);
    *low = vi_pack_bf16(vf_sub(v[0], top[0]), vf_sub(v[1], top[1]));
}

/* Quantizes a group of 32 to integers; stores its scale in *d, sums of its halves in sum[0],
 * sum[1]. */
SIMD_INLINE void tier_act_group(const float *x, vi q[TIER_ACT_VECTORS], float *d, int32_t sum[2]) {
    vf v[TIER_ACT_VECTORS], top = vf_zero(), check = vf_zero();
    SIMD_UNROLL
    for (int i = 0; i < TIER_ACT_VECTORS; i++) {
        v[i] = vf_load(x + i * VF_N);
        top = vf_max(top, vf_abs(v[i]));
        check = vf_fma(v[i], vf_zero(), check); /* NaN if any value is not finite */
    }
    const bool bad = vf_any_nan(check);
    const float scale = vf_hmax(top) / 127.0f;
    sum[0] = sum[1] = 0;
    *d = bad ? NAN : scale;
    if (bad || scale == 0.0f) {
        for (int i = 0; i < TIER_ACT_VECTORS; i++) q[i] = vi_zero();
        return;
    }
    SIMD_UNROLL
    for (int i = 0; i < TIER_ACT_VECTORS; i++) {
        /* The clamp only matters when the scale is denormal and so inexact. */
        vf r = vf_min(vf_set1(127.0f), vf_div(v[i], vf_set1(scale)));
        q[i] = vi_round(vf_max(vf_set1(-127.0f), r));
    }
    for (int h = 0; h < 2; h++)
        sum[h] = vi_sum(TIER_ACT_VECTORS == 2 ? q[h] : vi_add(q[2 * h], q[2 * h + 1]));
}

/* A vector of int8: TIER_ACT_GROUPS groups; only n groups exist. */
SIMD_INLINE vi tier_act_bytes(const float *x, const int n, float d[TIER_ACT_GROUPS],
                              int32_t sum[2 * TIER_ACT_GROUPS]) {
    vi q[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
    for (int g = 0; g < n; g++)
        tier_act_group(x + g * CPU_ACT_GROUP, q + g * TIER_ACT_VECTORS, &d[g], &sum[2 * g]);
    return vi_pack_i8(q);
}

SIMD_INLINE void tier_act_column_words(const float *x, int64_t n, const bool bf16, char *out,
                                       size_t n_bytes) {
    const int64_t step = bf16 ? 2 * VF_N : VF_N;
    const char *end = out + n_bytes;
    for (; n >= step; n -= step, x += step, out += TIER_ACT_BYTES)
        vi_store(out, tier_act_words(x, step, bf16));
    for (; out < end; n -= step, x += step, out += TIER_ACT_BYTES)
        vi_store(out, tier_act_words(x, n, bf16));
}

static void tier_act_column(const float *x, int64_t n, cpu_act_kind kind, char *out) {
    const size_t groups = (size_t)n / CPU_ACT_GROUP, d_bytes = groups * sizeof(float);
    if (kind == CPU_ACT_BF16) {
        tier_act_column_words(x, n, true, out, act_column_bytes(kind, n));
        return;
    }
    if (kind == CPU_ACT_F32) {
        tier_act_column_words(x, n, false, out, act_column_bytes(kind, n));
        return;
    }
    float *d = (float *)(void *)(out + act_pad64((size_t)n));
    int32_t *sum = (int32_t *)(void *)((char *)d + act_pad64(d_bytes));
    memset(out + n, 0, act_pad64((size_t)n) - (size_t)n);
    size_t g = 0;
    for (; g + TIER_ACT_GROUPS <= groups; g += TIER_ACT_GROUPS)
        vi_store(out + g * CPU_ACT_GROUP,
                 tier_act_bytes(x + g * CPU_ACT_GROUP, TIER_ACT_GROUPS, d + g, sum + 2 * g));
    if (g < groups)
        vi_store(out + g * CPU_ACT_GROUP,
                 tier_act_bytes(x + g * CPU_ACT_GROUP, 1, d + g, sum + 2 * g));
    memset((char *)d + d_bytes, 0, act_pad64(d_bytes) - d_bytes);
    memset((char *)sum + 2 * d_bytes, 0, act_pad64(2 * d_bytes) - 2 * d_bytes);
}

/* `groups` groups of VF_N columns of a panel, from column `lane` on; only `cols` columns exist. */
SIMD_INLINE void tier_act_panel_bytes(const float *x, int64_t ldx, int cols, const int groups,
                                      int lane, act_q8_panel_group *out) {
    vi v[VF_N];
    for (int c = 0; c < VF_N; c++) {
        float d[TIER_ACT_GROUPS] = {0};
        int32_t sum[2 * TIER_ACT_GROUPS] = {0};
        v[c] = c < cols ? tier_act_bytes(x + c * ldx, groups, d, sum) : vi_zero();
        for (int g = 0; g < groups; g++) {
            out[g].d[lane + c] = d[g];
            out[g].sum[0][lane + c] = sum[2 * g];
            out[g].sum[1][lane + c] = sum[2 * g + 1];
        }
    }
    vi_transpose(v);
    for (int g = 0; g < groups; g++)
        for (int k = 0; k < 8; k++) vi_store(out[g].q[k][lane], v[8 * g + k]);
}

static void tier_act_panel_groups(const float *x, int64_t ldx, int cols, int64_t groups, int lane,
                                  act_q8_panel_group *out) {
    int64_t g = 0;
    for (; g + TIER_ACT_GROUPS <= groups; g += TIER_ACT_GROUPS)
        tier_act_panel_bytes(x + g * CPU_ACT_GROUP, ldx, cols, TIER_ACT_GROUPS, lane, out + g);
    if (g < groups) tier_act_panel_bytes(x + g * CPU_ACT_GROUP, ldx, cols, 1, lane, out + g);
}

/* VF_N columns of a panel as words. */
SIMD_INLINE void tier_act_panel_words(const float *x, int64_t ldx, int cols, int64_t n,
                                      const bool bf16, char *out) {
    const int64_t step = bf16 ? 2 * VF_N : VF_N;
    for (; n > 0; n -= step, x += step) {
        vi v[VF_N];
        for (int c = 0; c < VF_N; c++)
            v[c] = c < cols ? tier_act_words(x + c * ldx, n, bf16) : vi_zero();
        vi_transpose(v);
        const int64_t left = bf16 ? (n + 1) / 2 : n;
        for (int k = 0; k < VF_N && k < left; k++, out += 4 * CPU_PANEL) vi_store(out, v[k]);
    }
}

/* VF_N columns of a panel in two parts. */
static void tier_act_panel_split(const float *x, int64_t ldx, int cols, int64_t n, char *out) {
    const int64_t step = 2 * VF_N;
    for (int64_t i = 0; i < (n + ACT_SPLIT - 1) / ACT_SPLIT * ACT_SPLIT; i += step) {
        vi high[VF_N], low[VF_N];
        for (int c = 0; c < VF_N; c++) {
            high[c] = low[c] = vi_zero();
            if (c < cols) tier_act_split(x + c * ldx + i, n - i, &high[c], &low[c]);
        }
        vi_transpose(high);
        vi_transpose(low);
        char *to = out + act_split_at(i);
        for (int k = 0; k < VF_N; k++, to += 4 * CPU_PANEL) {
            vi_store(to, high[k]);
            vi_store(to + ACT_SPLIT_BYTES, low[k]);
        }
    }
}

static void tier_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out) {
    const int64_t n = out->n, groups = n / CPU_ACT_GROUP;
    const cpu_act_kind form = act_form(out->kind, out->layout, out->n_cols);
    if (out->layout == CPU_ACT_COLUMNS) {
        const size_t stride = act_column_bytes(out->kind, n);
        for (int64_t c = col0; c < col1; c++)
            tier_act_column(x + c * ldx, n, form, (char *)out->data + (size_t)c * stride);
        return;
    }
    const size_t stride = act_panel_bytes(form, n);
    const int64_t last = (col1 + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
    for (int64_t c = col0; c < last; c += VF_N) {
        char *panel = (char *)out->data + (size_t)(c / CPU_PANEL) * stride;
        const int lane = (int)(c % CPU_PANEL);
        const int cols = col1 - c >= VF_N ? VF_N : col1 > c ? (int)(col1 - c) : 0;
        const float *from = cols > 0 ? x + c * ldx : x;
        if (form == CPU_ACT_Q8)
            tier_act_panel_groups(from, ldx, cols, groups, lane,
                                  (act_q8_panel_group *)(void *)panel);
        else if (form == CPU_ACT_BF16)
            tier_act_panel_words(from, ldx, cols, n, true, panel + 4 * lane);
        else if (form == CPU_ACT_F32_SPLIT)
            tier_act_panel_split(from, ldx, cols, n, panel + 4 * lane);
        else
            tier_act_panel_words(from, ldx, cols, n, false, panel + 4 * lane);
    }
}

#endif
