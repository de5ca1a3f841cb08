/* neon_matvec.c: products of quantized rows with one or a few vectors. Four rows at a time, from
 * the four quarters of the range, so that a thread is four sequential streams through memory, far
 * apart; lines are asked for some way ahead. Sums are formed in the same order whatever the
 * blocking is. */
#include "neon_quants.h"
#include "rows.h"

enum {
    MV_ROWS = 4,    /* streams for one column */
    MV_COLS = 4,    /* columns that share a row's unpacked weights */
    MV_AHEAD = 2048 /* bytes of prefetch */
};

typedef struct mv_acc {
    float32x4_t dot;
    float lift; /* sum of minimum * activations */
} mv_acc;

/* One block of a row, whose first group is g0, times n_cols columns. */
NEON_INLINE void mv_block(const q_format *f, const int n_cols, const uint8_t *p, int64_t g0,
                          const act_q8_column *x, mv_acc acc[MV_COLS]) {
    const int32x4_t zero = vdupq_n_s32(0);
    q_block_scales s;
    f->scales(p, &s);
#pragma GCC unroll 8
    for (int g = 0; g < f->groups; g++) {
        q_group w = f->quants(p, g);
        for (int c = 0; c < n_cols; c++) {
            const int8_t *q = x[c].q + (g0 + g) * CPU_ACT_GROUP;
            float dx = x[c].d[g0 + g];
            int32x4_t dot = vdotq_s32(zero, w.lo, vld1q_s8(q));
            if (f->sub == 16) {
                acc[c].dot = vfmaq_n_f32(acc[c].dot, vcvtq_f32_s32(dot), s.d[2 * g] * dx);
                dot = zero;
            }
            dot = vdotq_s32(dot, w.hi, vld1q_s8(q + 16));
            acc[c].dot = vfmaq_n_f32(acc[c].dot, vcvtq_f32_s32(dot), s.d[2 * g + 1] * dx);
            if (!f->has_min) continue;
            const int32_t *sum = x[c].sum + 2 * (g0 + g);
            acc[c].lift += dx * (s.m[2 * g] * (float)sum[0] + s.m[2 * g + 1] * (float)sum[1]);
        }
    }
}

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). */
NEON_INLINE void mv_rows(const q_format *f, const int n_rows, const int n_cols, const cpu_rows *s,
                         int64_t i, int64_t stride, const cpu_act *act, int64_t col, float *y,
                         int64_t ldy) {
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    mv_acc acc[MV_ROWS][MV_COLS];
    act_q8_column x[MV_COLS];
    for (int c = 0; c < n_cols; c++) x[c] = act_q8_at(act, col + c);
    /* The prefetch is `lead` blocks early: that much before a row's end it leaves for the next. */
    const int64_t groups = s->w->n_in / CPU_ACT_GROUP, blocks = groups / f->groups;
    const int64_t near = MV_AHEAD / f->block_bytes, lead = near < blocks ? near : blocks;
    for (int r = 0; r < n_rows; r++) {
        p[r] = rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * f->block_bytes;
        for (int c = 0; c < n_cols; c++) acc[r][c] = (mv_acc){vdupq_n_f32(0.0f), 0.0f};
    }
    for (int64_t b = 0; b < blocks; b++) {
        if (b == blocks - lead)
            for (int r = 0; r < n_rows; r++) ahead[r] = rows_next(s, i + r * stride, n_rows);
        for (int r = 0; r < n_rows; r++) {
            for (int line = 0; line < f->block_bytes; line += 64) SIMD_PREFETCH(ahead[r] + line);
            mv_block(f, n_cols, p[r], b * f->groups, x, acc[r]);
            p[r] += f->block_bytes;
            ahead[r] += f->block_bytes;
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + i + r * stride] = vaddvq_f32(acc[r][c].dot) - acc[r][c].lift;
}

NEON_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                        int64_t ldy) {
    int64_t n_groups = x->n_cols == 1 ? s->n / MV_ROWS : 0, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++)
        mv_rows(f, MV_ROWS, 1, s, rows_first(s, g, MV_ROWS), stride, x, 0, y, ldy);
    for (int64_t i = n_groups * MV_ROWS; i < s->n; i++) {
        int64_t col = 0;
        for (; col + MV_COLS <= x->n_cols; col += MV_COLS)
            mv_rows(f, 1, MV_COLS, s, i, 0, x, col, y, ldy);
        for (; col < x->n_cols; col++) mv_rows(f, 1, 1, s, i, 0, x, col, y, ldy);
    }
}

#define DEFINE(type, name, ...) ROWS_DEFINE(extern, neon, name, mv_run)
QUANT_BLOCKS(DEFINE)
