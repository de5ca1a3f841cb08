/* avx2_matvec.c: products of quantized rows with one or a few vectors. Four rows at a time, from
 * the four quarters of the range, so that a thread is four sequential streams through memory, far
 * apart; lines are asked for some way ahead. Sums are formed in the same order whatever the
 * blocking is. */
#include "avx2_quants.h"

enum {
    MV_ROWS = 4,    /* streams for one column */
    MV_COLS = 4,    /* columns that share a row's unpacked weights */
    MV_AHEAD = 4096 /* bytes of prefetch */
};

typedef struct mv_col {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
} mv_col;

typedef struct mv_acc {
    __m256 dot;
    float lift; /* sum of minimum * activations */
} mv_acc;

/* One block of a row, whose first group is g0, times n_cols columns. */
AVX2_INLINE void mv_block(const q_format *f, const int n_cols, const uint8_t *p, int64_t g0,
                          const mv_col *x, mv_acc acc[MV_COLS]) {
    q_scales s;
    f->scales(p, &s);
#pragma GCC unroll 8
    for (int g = 0; g < f->groups; g++) {
        __m256i w = f->quants(p, g);
        for (int c = 0; c < n_cols; c++) {
            __m256i xq = _mm256_loadu_si256((const void *)(x[c].q + (g0 + g) * CPU_ACT_GROUP));
            __m256 dot = _mm256_cvtepi32_ps(q_widen(q_dot16(w, xq)));
            float dx = x[c].d[g0 + g];
            __m256 scale = _mm256_set1_ps(s.d[2 * g] * dx);
            if (f->sub == 16)
                scale = _mm256_insertf128_ps(scale, _mm_set1_ps(s.d[2 * g + 1] * dx), 1);
            acc[c].dot = _mm256_fmadd_ps(dot, scale, acc[c].dot);
            if (!f->has_min) continue;
            const int32_t *sum = x[c].sum + 2 * (g0 + g);
            acc[c].lift += dx * (s.m[2 * g] * (float)sum[0] + s.m[2 * g + 1] * (float)sum[1]);
        }
    }
}

/* Rows row, row + stride, ... (n_rows of them) times columns [col, col + n_cols). */
AVX2_INLINE void mv_rows(const q_format *f, const int n_rows, const int n_cols, const cpu_mat *w,
                         int64_t row, int64_t stride, const cpu_act *act, int64_t col, float *y,
                         int64_t ldy) {
    const uint8_t *p[MV_ROWS];
    mv_acc acc[MV_ROWS][MV_COLS];
    mv_col x[MV_COLS];
    for (int c = 0; c < n_cols; c++) {
        const void *column = act_column(act, col + c);
        x[c] = (mv_col){act_q8_q(column), act_q8_d(column, act->n), act_q8_sum(column, act->n)};
    }
    for (int r = 0; r < n_rows; r++) {
        p[r] = (const uint8_t *)w->data + (size_t)(row + r * stride) * w->row_bytes;
        for (int c = 0; c < n_cols; c++) acc[r][c] = (mv_acc){_mm256_setzero_ps(), 0.0f};
    }
    int64_t groups = w->n_in / CPU_ACT_GROUP;
    for (int64_t g = 0; g < groups; g += f->groups)
        for (int r = 0; r < n_rows; r++) {
            for (int line = 0; line < f->block_bytes; line += 64)
                _mm_prefetch((const char *)p[r] + MV_AHEAD + line, _MM_HINT_T0);
            mv_block(f, n_cols, p[r], g, x, acc[r]);
            p[r] += f->block_bytes;
        }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + row + r * stride] = avx2_sum(acc[r][c].dot) - acc[r][c].lift;
}

AVX2_INLINE void mv_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                        const cpu_act *x, float *y, int64_t ldy) {
    /* Types with large blocks are bound by instructions here, and gain nothing from streams. */
    bool streams = x->n_cols == 1 && f->groups == 1;
    int64_t row = row0, stride = streams ? (row1 - row0) / MV_ROWS : 0;
    for (; row < row0 + stride; row++) mv_rows(f, MV_ROWS, 1, w, row, stride, x, 0, y, ldy);
    for (row = row0 + stride * MV_ROWS; row < row1; row++) {
        int64_t col = 0;
        for (; col + MV_COLS <= x->n_cols; col += MV_COLS)
            mv_rows(f, 1, MV_COLS, w, row, 0, x, col, y, ldy);
        for (; col < x->n_cols; col++) mv_rows(f, 1, 1, w, row, 0, x, col, y, ldy);
    }
}

#define MV_DEFINE(type, format)                                                                    \
    void avx2_matvec_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy) {                                             \
        mv_run(&format##_format, w, row0, row1, x, y, ldy);                                        \
    }
AVX2_Q_TYPES(MV_DEFINE)
