/* avx2_matvec.c: products of quantized rows with one or a few vectors. Four rows at a time, from
 * the four quarters of the range, so that a thread is four sequential streams through memory, far
 * apart; lines are asked for some way ahead. Sums are formed in the same order whatever the
 * blocking is. */
#include "avx2_quants.h"
#include "rows.h"

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

/* What a chunk of a column contributes to scales: dx, one per scale of a weight, and `lift`, dx
 * times the sum of the elements under that scale, for minima and offsets. */
typedef struct mv_part {
    __m256 dx[2], lift[2];
} mv_part;

/* Columns are padded, so that reading eight groups is fine where fewer are left. */
AVX2_INLINE mv_part mv_load(const q_format *f, const mv_col *x) {
    __m256 dx = _mm256_loadu_ps(x->d);
    mv_part part = {.dx = {dx, dx}, .lift = {dx, dx}};
    __m256i sum[2] = {_mm256_loadu_si256((const void *)x->sum),
                      _mm256_loadu_si256((const void *)(x->sum + Q_GROUPS))};
    if (f->sub == 32) {
        /* sums of pairs come out as groups 0 1 4 5 2 3 6 7 */
        __m256i pairs = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[0], sum[1]), 0xd8);
        part.dx[0] = dx;
        part.lift[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(pairs), dx);
        return part;
    }
    for (int h = 0; h < 2; h++) {
        __m256i twice = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                                         _mm256_set1_epi32(4 * h));
        part.dx[h] = _mm256_permutevar8x32_ps(dx, twice);
        part.lift[h] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[h]), part.dx[h]);
    }
    return part;
}

/* Scales of a chunk arranged for mv_group_scale; minima and offsets go into the accumulator. */
AVX2_INLINE __m256 mv_scale(const q_format *f, const q_scales *s, const mv_part *x, __m256 lane[2],
                            __m256 acc) {
    const __m256i even_odd = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for (int h = 0; h < 32 / f->sub; h++) {
        __m256 dd = _mm256_mul_ps(s->d[h], x->dx[h]);
        if (f->sub == 32) {
            lane[0] = _mm256_permute2f128_ps(dd, dd, 0x00);
            lane[1] = _mm256_permute2f128_ps(dd, dd, 0x11);
        } else {
            lane[h] = _mm256_permutevar8x32_ps(dd, even_odd);
        }
        __m256 m = f->has_min ? s->m[h] : _mm256_mul_ps(s->d[h], _mm256_set1_ps((float)f->offset));
        if (f->has_min || f->offset != 0) acc = _mm256_fnmadd_ps(m, x->lift[h], acc);
    }
    return acc;
}

/* The scale of each 32-bit lane in group g: lane i belongs to elements 4i .. 4i + 3. */
AVX2_INLINE __m256 mv_group_scale(const __m256 lane[2], int g) {
    return _mm256_permutevar_ps(lane[g / 4], _mm256_set1_epi32(g % 4));
}

/* A chunk of a row, of which `groups` are valid, times n_cols columns. Meanwhile the chunk at
 * `ahead` is prefetched. */
AVX2_INLINE void mv_chunk(const q_format *f, const int n_cols, const uint8_t *p,
                          const uint8_t *ahead, const int groups, const mv_col *x,
                          const mv_part *part, __m256 acc[MV_COLS]) {
    const int lines = (f->chunk_bytes + 63) / 64;
    q_scales s;
    __m256 lane[MV_COLS][2];
    f->scales(p, &s);
    for (int c = 0; c < n_cols; c++) acc[c] = mv_scale(f, &s, &part[c], lane[c], acc[c]);
#pragma GCC unroll 8
    for (int g = 0; g < groups; g++) {
        __m256i w = f->quants(p, g);
        for (int line = lines * g / Q_GROUPS; line < lines * (g + 1) / Q_GROUPS; line++)
            _mm_prefetch((const char *)ahead + 64 * line, _MM_HINT_T0);
        for (int c = 0; c < n_cols; c++) {
            __m256i xq = _mm256_loadu_si256((const void *)(x[c].q + g * CPU_ACT_GROUP));
            __m256i dot = f->is_signed ? q_dot16(w, xq) : _mm256_maddubs_epi16(w, xq);
            acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q_widen(dot)), mv_group_scale(lane[c], g),
                                     acc[c]);
        }
    }
}

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). */
AVX2_INLINE void mv_rows(const q_format *f, const int n_rows, const int n_cols, const cpu_rows *s,
                         int64_t i, int64_t stride, const cpu_act *act, int64_t col, float *y,
                         int64_t ldy) {
    const cpu_mat *w = s->w;
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    __m256 acc[MV_ROWS][MV_COLS];
    mv_col x[MV_COLS];
    mv_part part[MV_COLS];
    for (int c = 0; c < n_cols; c++) {
        const void *column = act_column(act, col + c);
        x[c] = (mv_col){act_q8_q(column), act_q8_d(column, act->n), act_q8_sum(column, act->n)};
    }
    /* The prefetch is `lead` chunks early: that much before a row's end it leaves for the next. */
    const int64_t chunks = w->n_in / Q_CHUNK, left = w->n_in % Q_CHUNK;
    const int64_t near = MV_AHEAD / f->chunk_bytes, lead = near < chunks ? near : chunks;
    for (int r = 0; r < n_rows; r++) {
        p[r] = rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * f->chunk_bytes;
        for (int c = 0; c < n_cols; c++) acc[r][c] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < chunks; k++) {
        if (k == chunks - lead)
            for (int r = 0; r < n_rows; r++) ahead[r] = rows_next(s, i + r * stride, n_rows);
        for (int c = 0; c < n_cols; c++) part[c] = mv_load(f, &x[c]);
            /* Unrolled, pointers and sums stay in registers: 21 instead of 16 GB/s for Q4_0. */
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            mv_chunk(f, n_cols, p[r], ahead[r], Q_GROUPS, x, part, acc[r]);
            p[r] += f->chunk_bytes;
            ahead[r] += f->chunk_bytes;
        }
        for (int c = 0; c < n_cols; c++) {
            x[c].q += Q_CHUNK;
            x[c].d += Q_GROUPS;
            x[c].sum += 2 * Q_GROUPS;
        }
    }
    if (left) {
        for (int c = 0; c < n_cols; c++) part[c] = mv_load(f, &x[c]);
        for (int r = 0; r < n_rows; r++) {
            uint8_t tail[Q_CHUNK_BYTES_MAX] = {0};
            memcpy(tail, p[r], q_bytes(f, left));
            mv_chunk(f, n_cols, tail, ahead[r], (int)left / CPU_ACT_GROUP, x, part, acc[r]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++) y[(col + c) * ldy + i + r * stride] = avx2_sum(acc[r][c]);
}

AVX2_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
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

/* One body for both kernels: there are many of them, and they are long. */
#define MV_DEFINE(type, format)                                                                    \
    static __attribute__((noinline)) void mv_run_##format(const cpu_rows *s, const cpu_act *x,     \
                                                          float *y, int64_t ldy) {                 \
        mv_run(&format##_format, s, x, y, ldy);                                                    \
    }                                                                                              \
    void avx2_matvec_##format(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy) {                                             \
        const cpu_rows s = {w, NULL, row0, row1 - row0};                                           \
        mv_run_##format(&s, x, y + row0, ldy);                                                     \
    }                                                                                              \
    void avx2_matvec_rows_##format(const cpu_mat *w, const int32_t *rows, int64_t n_rows,          \
                                   const cpu_act *x, float *y, int64_t ldy) {                      \
        const cpu_rows s = {w, rows, 0, n_rows};                                                   \
        mv_run_##format(&s, x, y, ldy);                                                            \
    }
AVX2_Q_TYPES(MV_DEFINE)
