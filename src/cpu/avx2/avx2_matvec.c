/* avx2_matvec.c: products of quantized rows with one or a few vectors. One row after the other, so
 * that a thread is one sequential stream through memory, with lines asked for some way ahead. Sums
 * are formed in the same order whatever the blocking is. */
#include "avx2_quants.h"

enum {
    MV_COLS = 4,    /* columns that share a row's unpacked weights */
    MV_AHEAD = 2048 /* bytes of prefetch */
};

typedef struct mv_col {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    __m256 acc;
    float lift; /* sum of minimum * activations */
} mv_col;

AVX2_INLINE void mv_block(const q_format *f, const int n_cols, const uint8_t *p, int64_t g0,
                          mv_col *x) {
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
            x[c].acc = _mm256_fmadd_ps(dot, scale, x[c].acc);
            if (!f->has_min) continue;
            const int32_t *sum = x[c].sum + 2 * (g0 + g);
            x[c].lift += dx * (s.m[2 * g] * (float)sum[0] + s.m[2 * g + 1] * (float)sum[1]);
        }
    }
}

AVX2_INLINE void mv_row(const q_format *f, const int n_cols, const cpu_mat *w, int64_t row,
                        const cpu_act *act, int64_t col, float *y, int64_t ldy) {
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    mv_col x[MV_COLS];
    for (int c = 0; c < n_cols; c++) {
        const void *column = act_column(act, col + c);
        x[c] = (mv_col){act_q8_q(column), act_q8_d(column, act->n), act_q8_sum(column, act->n),
                        _mm256_setzero_ps(), 0.0f};
    }
    int64_t groups = w->n_in / CPU_ACT_GROUP;
    for (int64_t g = 0; g < groups; g += f->groups, p += f->block_bytes) {
        for (int line = 0; line < f->block_bytes; line += 64)
            _mm_prefetch((const char *)p + MV_AHEAD + line, _MM_HINT_T0);
        mv_block(f, n_cols, p, g, x);
    }
    for (int c = 0; c < n_cols; c++) y[(col + c) * ldy + row] = avx2_sum(x[c].acc) - x[c].lift;
}

AVX2_INLINE void mv_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                        const cpu_act *x, float *y, int64_t ldy) {
    for (int64_t row = row0; row < row1; row++) {
        int64_t col = 0;
        for (; col + MV_COLS <= x->n_cols; col += MV_COLS)
            mv_row(f, MV_COLS, w, row, x, col, y, ldy);
        for (; col < x->n_cols; col++) mv_row(f, 1, w, row, x, col, y, ldy);
    }
}

#define MV_DEFINE(type, format)                                                                    \
    void avx2_matvec_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy) {                                             \
        mv_run(&format##_format, w, row0, row1, x, y, ldy);                                        \
    }
AVX2_Q_TYPES(MV_DEFINE)
