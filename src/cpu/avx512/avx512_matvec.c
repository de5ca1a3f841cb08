/* avx512_matvec.c: products of quantized rows with one or a few vectors.
 *
 * Memory is the limit, so a row is read once, from front to back, and rows one after the other: a
 * thread is one sequential stream. Several rows at once were slower from memory (each row is then a
 * stream of its own) although they share work on the activations. Lines are asked for
 * MV_AHEAD bytes early, across the ends of pages and rows, a few instructions apart, so that
 * requests are always in flight. Scales of 16 groups are converted and multiplied as one vector.
 *
 * Sums of a (row, column) pair are formed in the same order whatever the blocking is, so results do
 * not depend on how rows are split or how many columns there are. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"

enum {
    MV_COLS = 4,    /* columns that share a row's unpacked weights */
    MV_ACC = 2,     /* accumulators per column, to hide the latency of fma */
    MV_AHEAD = 4096 /* bytes; 2048 and 8192 were slower or equal on Zen 5 */
};

/* One encoded column, at the chunk in work. */
typedef struct mv_col {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
} mv_col;

/* 16 sums of 16 elements in a and in b -> 16 sums of 32. */
AVX512_INLINE __m512i mv_pair_sums(__m512i a, __m512i b) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                          0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                            _mm512_permutex2var_epi32(a, odd, b));
}

/* Products of scales for every group of a chunk: dd = d_w * d_x, in the arrangement of q_scales;
 * minima go straight into the accumulator. */
AVX512_INLINE __m512 mv_scale(const q_format *f, const q_scales *s, __m512 dx, const __m512i *sums,
                              __m512 dd[2], __m512 acc) {
    const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    if (f->sub == 32) {
        dd[0] = _mm512_mul_ps(s->d[0], dx);
        if (f->has_min) {
            __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(mv_pair_sums(sums[0], sums[1])), dx);
            acc = _mm512_fnmadd_ps(s->m[0], t, acc);
        }
        return acc;
    }
    for (int h = 0; h < 2; h++) {
        __m512i index = _mm512_add_epi32(low, _mm512_set1_epi32(8 * h));
        __m512 dx2 = _mm512_permutexvar_ps(index, dx);
        dd[h] = _mm512_mul_ps(s->d[h], dx2);
        if (f->has_min) {
            __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[h]), dx2);
            acc = _mm512_fnmadd_ps(s->m[h], t, acc);
        }
    }
    return acc;
}

/* The scale of each 32-bit lane in step j: lane i belongs to element 64 j + 4 i. */
AVX512_INLINE __m512 mv_lane_scale(const q_format *f, const __m512 dd[2], int j) {
    const __m512i by32 = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i by16 = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    if (f->sub == 32)
        return _mm512_permutexvar_ps(_mm512_add_epi32(by32, _mm512_set1_epi32(2 * j)), dd[0]);
    return _mm512_permutexvar_ps(_mm512_add_epi32(by16, _mm512_set1_epi32(4 * (j & 3))),
                                 dd[j >> 2]);
}

/* A chunk's products with n_cols columns; the first `groups` groups are valid, in `steps` steps.
 * `ahead` (or NULL) is the place to prefetch. */
AVX512_INLINE void mv_chunk(const q_format *f, const int n_cols, const uint8_t *p,
                            const uint8_t *ahead, const mv_col *x, int groups, const int steps,
                            __m512 acc[MV_COLS][MV_ACC]) {
    const __m512i lane_sum = _mm512_set_epi32(0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0);
    const int lines = (f->chunk_bytes + 63) / 64;
    const uint32_t valid = (uint32_t)((UINT64_C(1) << 2 * groups) - 1);
    __m512 dd[MV_COLS][2];
    __m512i off[MV_COLS][2];
    q_scales s;
    f->scales(p, &s);
    for (int c = 0; c < n_cols; c++) {
        __m512 dx = _mm512_maskz_loadu_ps((__mmask16)((1u << groups) - 1), x[c].d);
        __m512i sums[2] = {_mm512_maskz_loadu_epi32((__mmask16)valid, x[c].sum),
                           _mm512_maskz_loadu_epi32((__mmask16)(valid >> 16), x[c].sum + 16)};
        acc[c][0] = mv_scale(f, &s, dx, sums, dd[c], acc[c][0]);
        for (int h = 0; h < 2; h++)
            if (f->offset_shift >= 0)
                off[c][h] = _mm512_sub_epi32(
                    _mm512_setzero_si512(),
                    _mm512_slli_epi32(sums[h], (unsigned)f->offset_shift & 31));
    }
#pragma GCC unroll 8
    for (int j = 0; j < steps; j++) {
        __m512i w = f->quants(p, j);
        for (int line = lines * j / Q_STEPS; line < lines * (j + 1) / Q_STEPS; line++)
            if (ahead) _mm_prefetch((const char *)ahead + 64 * line, _MM_HINT_T0);
        for (int c = 0; c < n_cols; c++) {
            /* -offset * sum of 16 elements, in one lane of the four that these elements have */
            __m512i t = _mm512_setzero_si512();
            if (f->offset_shift >= 0)
                t = _mm512_maskz_permutexvar_epi32(
                    0x1111, _mm512_add_epi32(lane_sum, _mm512_set1_epi32(4 * (j & 3))),
                    off[c][j >> 2]);
            t = _mm512_dpbusd_epi32(t, w, _mm512_loadu_si512(x[c].q + 64 * j));
            __m512 *sum = &acc[c][j % MV_ACC];
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), mv_lane_scale(f, dd[c], j), *sum);
        }
    }
}

/* One row times columns [col, col + n_cols). */
AVX512_INLINE void mv_row(const q_format *f, const int n_cols, const cpu_mat *w, int64_t row,
                          const cpu_act *act, int64_t col, float *y, int64_t ldy) {
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    __m512 acc[MV_COLS][MV_ACC];
    mv_col x[MV_COLS];
    for (int c = 0; c < n_cols; c++) {
        const void *column = act_column(act, col + c);
        x[c] = (mv_col){act_q8_q(column), act_q8_d(column, act->n), act_q8_sum(column, act->n)};
        for (int i = 0; i < MV_ACC; i++) acc[c][i] = _mm512_setzero_ps();
    }
    for (int64_t i = w->n_in / Q_CHUNK; i > 0; i--) {
        mv_chunk(f, n_cols, p, p + MV_AHEAD, x, Q_GROUPS, Q_STEPS, acc);
        p += f->chunk_bytes;
        for (int c = 0; c < n_cols; c++) {
            x[c].q += Q_CHUNK;
            x[c].d += Q_GROUPS;
            x[c].sum += 2 * Q_GROUPS;
        }
    }
    int64_t left = w->n_in % Q_CHUNK;
    if (left) {
        uint8_t tail[Q_TAIL_BYTES] = {0};
        memcpy(tail, p, q_bytes(f, left));
        int groups = (int)left / CPU_ACT_GROUP;
        mv_chunk(f, n_cols, tail, NULL, x, groups, (groups + 1) / 2, acc);
    }
    for (int c = 0; c < n_cols; c++)
        y[(col + c) * ldy + row] = _mm512_reduce_add_ps(_mm512_add_ps(acc[c][0], acc[c][1]));
}

AVX512_INLINE void mv_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                          const cpu_act *x, float *y, int64_t ldy) {
    for (int64_t row = row0; row < row1; row++) {
        int64_t col = 0;
        for (; col + MV_COLS <= x->n_cols; col += MV_COLS)
            mv_row(f, MV_COLS, w, row, x, col, y, ldy);
        if (col + 2 <= x->n_cols) {
            mv_row(f, 2, w, row, x, col, y, ldy);
            col += 2;
        }
        if (col < x->n_cols) mv_row(f, 1, w, row, x, col, y, ldy);
    }
}

#define MV_DEFINE(type, format)                                                                    \
    void avx512_matvec_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,    \
                                float *y, int64_t ldy) {                                           \
        mv_run(&format##_format, w, row0, row1, x, y, ldy);                                        \
    }
AVX512_Q_TYPES(MV_DEFINE)
