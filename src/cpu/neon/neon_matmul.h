/* neon_matmul.h: products of quantized rows with many vectors (prefill). A template, included once
 * with MM_I8MM 0 (dot products) and once with 1 (products of 8-bit matrices).
 *
 * Tiles of 8 rows are arranged for the instruction; the innermost product is 8 rows x 4 columns.
 * mm_dot returns integer sums as vectors of 4 rows in both variants, so that all other code is
 * shared. tier_matmul.h multiplies blocks by panels. */
#ifndef CPU_NEON_MATMUL_H
#define CPU_NEON_MATMUL_H

#include "neon_quants.h"

enum {
    MM_ROWS = 8,   /* rows of a tile */
    MM_TILES = 16, /* tiles of a block: 128 rows */
    MM_K = 1024,
    MM_K_GROUPS = MM_K / CPU_ACT_GROUP,
    MM_COLS = 4 /* columns at once */
};

/* 32 elements of 8 rows, with scales and minima per 16. Dot products: q[2i + h] has elements 4i ..
 * 4i + 3 of rows 4h .. 4h + 3. Matrix products: q[4j + p] has elements 8j .. 8j + 7 of rows 2p and
 * 2p + 1. In both, the first 16 elements are in the first half. */
typedef struct mm_group {
    uint32x4_t q[16];
    float d[2][MM_ROWS], m[2][MM_ROWS];
} mm_group;

#include "tier_matmul.h"

/* Rearranges a group of 8 rows from element order to the layout of q. */
NEON_INLINE void mm_arrange(const q_group v[MM_ROWS], uint32x4_t q[16]) {
#if MM_I8MM
    for (int p = 0; p < 4; p++) {
        const uint64x2_t a[2] = {vreinterpretq_u64_s8(v[2 * p].lo),
                                 vreinterpretq_u64_s8(v[2 * p].hi)};
        const uint64x2_t b[2] = {vreinterpretq_u64_s8(v[2 * p + 1].lo),
                                 vreinterpretq_u64_s8(v[2 * p + 1].hi)};
        for (int h = 0; h < 2; h++) {
            q[8 * h + p] = vreinterpretq_u32_u64(vtrn1q_u64(a[h], b[h]));
            q[8 * h + 4 + p] = vreinterpretq_u32_u64(vtrn2q_u64(a[h], b[h]));
        }
    }
#else
    for (int h = 0; h < 2; h++) {
        uint32x4_t low[4], high[4];
        for (int r = 0; r < 4; r++) {
            low[r] = vreinterpretq_u32_s8(v[4 * h + r].lo);
            high[r] = vreinterpretq_u32_s8(v[4 * h + r].hi);
        }
        vi_transpose4(low);
        vi_transpose4(high);
        for (int i = 0; i < 4; i++) {
            q[2 * i + h] = low[i];
            q[8 + 2 * i + h] = high[i];
        }
    }
#endif
}

SIMD_INLINE void mm_decode_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                int64_t k0, int64_t k1, mm_group *tile) {
    int64_t block_elems = (int64_t)f->groups * CPU_ACT_GROUP;
    for (int64_t k = k0; k < k1; k += block_elems, tile += f->groups) {
        const uint8_t *p[MM_ROWS];
        for (int r = 0; r < MM_ROWS; r++) {
            int64_t from = row + r < row1 ? row + r : row1 - 1;
            p[r] = (const uint8_t *)w->data + (size_t)from * w->row_bytes +
                   k / block_elems * f->block_bytes;
            q_block_scales s;
            f->scales(p[r], &s);
            for (int g = 0; g < f->groups; g++)
                for (int h = 0; h < 2; h++) {
                    tile[g].d[h][r] = s.d[2 * g + h];
                    tile[g].m[h][r] = f->has_min ? s.m[2 * g + h] : 0.0f;
                }
        }
#pragma GCC unroll 8
        for (int g = 0; g < f->groups; g++) {
            q_group v[MM_ROWS];
            for (int r = 0; r < MM_ROWS; r++) v[r] = f->quants(p[r], g);
            mm_arrange(v, tile[g].q);
        }
    }
}

/* Integer dots of half groups [half0, half1) with four columns: t[h][c] has rows 4h .. 4h + 3. */
NEON_INLINE void mm_dot(const mm_group *w, const act_q8_panel_group *x, int col, int half0,
                        int half1, int32x4_t t[2][MM_COLS]) {
    for (int h = 0; h < 2; h++)
        for (int c = 0; c < MM_COLS; c++) t[h][c] = vdupq_n_s32(0);
#if MM_I8MM
    int32x4_t pair[4][2]; /* [row pair][column pair]: (c0 r0, c0 r1, c1 r0, c1 r1) */
    for (int p = 0; p < 4; p++) pair[p][0] = pair[p][1] = vdupq_n_s32(0);
    for (int j = 2 * half0; j < 2 * half1; j++) {
        int32x4_t a = vreinterpretq_s32_s8(vld1q_s8(x->q[2 * j][col]));
        int32x4_t b = vreinterpretq_s32_s8(vld1q_s8(x->q[2 * j + 1][col]));
        const int8x16_t x0 = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        const int8x16_t x1 = vreinterpretq_s8_s32(vzip2q_s32(a, b));
        for (int p = 0; p < 4; p++) {
            int8x16_t v = vreinterpretq_s8_u32(w->q[4 * j + p]);
            pair[p][0] = vmmlaq_s32(pair[p][0], x0, v);
            pair[p][1] = vmmlaq_s32(pair[p][1], x1, v);
        }
    }
    for (int h = 0; h < 2; h++)
        for (int c = 0; c < 2; c++) {
            int64x2_t a = vreinterpretq_s64_s32(pair[2 * h][c]);
            int64x2_t b = vreinterpretq_s64_s32(pair[2 * h + 1][c]);
            t[h][2 * c] = vreinterpretq_s32_s64(vtrn1q_s64(a, b));
            t[h][2 * c + 1] = vreinterpretq_s32_s64(vtrn2q_s64(a, b));
        }
#else
    for (int i = 4 * half0; i < 4 * half1; i++) {
        int8x16_t four = vld1q_s8(x->q[i][col]);
        for (int h = 0; h < 2; h++) {
            int8x16_t v = vreinterpretq_s8_u32(w->q[2 * i + h]);
            /* not a loop: lane numbers are part of the instruction */
            t[h][0] = vdotq_laneq_s32(t[h][0], v, four, 0);
            t[h][1] = vdotq_laneq_s32(t[h][1], v, four, 1);
            t[h][2] = vdotq_laneq_s32(t[h][2], v, four, 2);
            t[h][3] = vdotq_laneq_s32(t[h][3], v, four, 3);
        }
    }
#endif
}

NEON_INLINE void mm_product(const q_format *f, const mm_group *w, const act_q8_panel_group *x,
                            int64_t n_groups, int col, float32x4_t acc[2][MM_COLS]) {
    const int n_sub = 32 / f->sub;
    for (int64_t g = 0; g < n_groups; g++, w++, x++)
        for (int s = 0; s < n_sub; s++) {
            int32x4_t t[2][MM_COLS];
            mm_dot(w, x, col, s * 2 / n_sub, (s + 1) * 2 / n_sub, t);
            for (int h = 0; h < 2; h++) {
                float32x4_t d = vld1q_f32(&w->d[s][4 * h]);
                for (int c = 0; c < MM_COLS; c++)
                    acc[h][c] = vfmaq_f32(acc[h][c], vcvtq_f32_s32(t[h][c]),
                                          vmulq_n_f32(d, x->d[col + c]));
            }
            if (!f->has_min) continue;
            for (int c = 0; c < MM_COLS; c++) {
                int32_t sum = x->sum[s][col + c] + (n_sub == 1 ? x->sum[1][col + c] : 0);
                float lift = x->d[col + c] * (float)sum;
                for (int h = 0; h < 2; h++)
                    acc[h][c] = vfmsq_n_f32(acc[h][c], vld1q_f32(&w->m[s][4 * h]), lift);
            }
        }
}

SIMD_INLINE void mm_tile(const q_format *f, const mm_group *tile, const act_q8_panel_group *x,
                         int64_t n_groups, float *y, int64_t ldy, int n_rows, int n_cols,
                         bool first) {
    for (int col = 0; col < n_cols; col += MM_COLS) {
        float32x4_t acc[2][MM_COLS];
        for (int c = 0; c < MM_COLS; c++) {
            float from[MM_ROWS] = {0};
            if (!first && col + c < n_cols)
                memcpy(from, y + (col + c) * ldy, (size_t)n_rows * sizeof *y);
            for (int h = 0; h < 2; h++) acc[h][c] = vld1q_f32(from + 4 * h);
        }
        mm_product(f, tile, x, n_groups, col, acc);
        for (int c = 0; c < MM_COLS && col + c < n_cols; c++) {
            float to[MM_ROWS];
            for (int h = 0; h < 2; h++) vst1q_f32(to + 4 * h, acc[h][c]);
            memcpy(y + (col + c) * ldy, to, (size_t)n_rows * sizeof *y);
        }
    }
}

#endif
