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

/* What a chunk of a column contributes, arranged for mv_dots and in the order of scales. */
typedef struct mv_part {
    __m256i x[Q_GROUPS];    /* elements; of a pair's groups one per 128-bit lane */
    __m256i size[Q_GROUPS]; /* their absolute values */
    __m256 dx[2];           /* scales */
    __m256i off[2];         /* offset of the weights times sums of elements */
    __m256 lift[2];         /* dx times sums, for minima */
} mv_part;

/* A chunk of which `groups` are valid. Scales and sums are padded with zeros; elements are not. */
AVX2_INLINE mv_part mv_load(const q_format *f, const mv_col *x, const int groups) {
    mv_part part;
    __m256i q[Q_GROUPS];
    for (int g = 0; g < Q_GROUPS; g++)
        q[g] = g < groups ? _mm256_loadu_si256((const void *)(x->q + g * CPU_ACT_GROUP))
                          : _mm256_setzero_si256();
    for (int g = 0; g < Q_GROUPS; g++) {
        const int a = f->apart ? g / 4 * 4 + g / 2 % 2 : g / 2 * 2, b = a + (f->apart ? 2 : 1);
        part.x[g] = q[g];
        if (f->sub == 32)
            part.x[g] = g % 2 == 0 ? _mm256_permute2x128_si256(q[a], q[b], 0x20)
                                   : _mm256_permute2x128_si256(q[a], q[b], 0x31);
        if (f->is_signed) part.size[g] = _mm256_abs_epi8(part.x[g]);
    }
    __m256 dx = _mm256_loadu_ps(x->d);
    __m256i sum[2] = {_mm256_loadu_si256((const void *)x->sum),
                      _mm256_loadu_si256((const void *)(x->sum + Q_GROUPS))};
    if (f->sub == 32) /* sums of pairs come out as groups 0 1 4 5 2 3 6 7 */
        sum[0] = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[0], sum[1]), 0xd8);
    for (int h = 0; h < 32 / f->sub; h++) {
        __m256i twice = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                                         _mm256_set1_epi32(4 * h));
        part.dx[h] = f->sub == 32 ? dx : _mm256_permutevar8x32_ps(dx, twice);
        part.lift[h] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[h]), part.dx[h]);
        part.off[h] = _mm256_mullo_epi32(sum[h], _mm256_set1_epi32(f->offset));
    }
    return part;
}

/* Sums of products are words of 16 bits as long as the largest ones fit, then of 32. `n` is how
 * many products a word holds, had it 16 bits, after the sum in question. */
AVX2_INLINE bool mv_fits(const q_format *f, int n) {
    return n * f->top * INT8_MAX <= INT16_MAX;
}
AVX2_INLINE __m256i mv_prepare(const q_format *f, int n, __m256i v) {
    return !mv_fits(f, n) && mv_fits(f, n / 2) ? q_widen(v) : v;
}
AVX2_INLINE __m256i mv_add(const q_format *f, int n, __m256i a, __m256i b) {
    return mv_fits(f, n) ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}

/* Per 128-bit lane: half a lane of sums from each. */
AVX2_INLINE __m256i mv_halve(const q_format *f, int n, __m256i a, __m256i b) {
    a = mv_prepare(f, n, a);
    b = mv_prepare(f, n, b);
    return mv_add(f, n, _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Four vectors of products to one of 32-bit sums: per 128-bit lane, those of t[0], ..., t[3]. `n`
 * is how many products a word of t holds. */
AVX2_INLINE __m256i mv_sums(const q_format *f, int n, const __m256i t[4]) {
    __m256i a = mv_prepare(f, 4 * n, mv_halve(f, 2 * n, t[0], t[1]));
    __m256i b = mv_prepare(f, 4 * n, mv_halve(f, 2 * n, t[2], t[3]));
    __m256 fa = _mm256_castsi256_ps(a), fb = _mm256_castsi256_ps(b);
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0x88));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0xdd));
    __m256i sum = mv_add(f, 4 * n, even, odd);
    return mv_fits(f, 4 * n) ? q_widen(sum) : sum;
}

AVX2_INLINE __m256i mv_dot16(const q_format *f, __m256i w, const mv_part *x, int i) {
    if (!f->is_signed) return _mm256_maddubs_epi16(w, x->x[i]);
    if (f->top > INT8_MAX) return q_dot16(w, x->x[i]); /* -128 has no sign to change */
    return _mm256_maddubs_epi16(x->size[i], _mm256_sign_epi8(w, x->x[i]));
}

/* Integer products of a chunk of a row with n_cols columns, one per scale, in the order of scales.
 * Meanwhile the chunk at `ahead` is prefetched. */
AVX2_INLINE void mv_dots(const q_format *f, const int n_cols, const uint8_t *p,
                         const uint8_t *ahead, const mv_part *x, __m256i dots[MV_COLS][2]) {
    const int lines = (f->chunk_bytes + 63) / 64, steps = f->sub == 32 ? 4 : Q_GROUPS;
    const __m256i order = f->apart ? _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7)
                                   : _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i t[MV_COLS][4];
#pragma GCC unroll 8
    for (int i = 0; i < steps; i++) {
        __m256i w[2];
        if (f->sub == 32)
            f->pair(p, i, w);
        else
            w[0] = f->quants(p, i);
        for (int line = lines * i / steps; line < lines * (i + 1) / steps; line++)
            _mm_prefetch((const char *)ahead + 64 * line, _MM_HINT_T0);
        for (int c = 0; c < n_cols; c++) {
            if (f->sub == 32) {
                __m256i a = mv_prepare(f, 4, mv_dot16(f, w[0], &x[c], 2 * i));
                __m256i b = mv_prepare(f, 4, mv_dot16(f, w[1], &x[c], 2 * i + 1));
                t[c][i] = mv_add(f, 4, a, b);
            } else {
                t[c][i % 4] = mv_dot16(f, w[0], &x[c], i);
            }
            if (i % 4 == 3)
                dots[c][i / 4] = _mm256_permutevar8x32_epi32(mv_sums(f, f->sub / 8, t[c]), order);
        }
    }
}

/* A chunk of a row times n_cols columns. */
AVX2_INLINE void mv_chunk(const q_format *f, const int n_cols, const uint8_t *p,
                          const uint8_t *ahead, const mv_part *x, __m256 acc[MV_COLS]) {
    __m256i dots[MV_COLS][2];
    q_scales s;
    f->scales(p, &s);
    mv_dots(f, n_cols, p, ahead, x, dots);
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 32 / f->sub; h++) {
            __m256i dot = dots[c][h];
            if (f->offset != 0) dot = _mm256_sub_epi32(dot, x[c].off[h]);
            __m256 d = _mm256_mul_ps(s.d[h], x[c].dx[h]);
            acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, acc[c]);
            if (f->has_min) acc[c] = _mm256_fnmadd_ps(s.m[h], x[c].lift[h], acc[c]);
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
        for (int c = 0; c < n_cols; c++) part[c] = mv_load(f, &x[c], Q_GROUPS);
            /* Unrolled, pointers and sums stay in registers: 21 instead of 16 GB/s for Q4_0. */
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            mv_chunk(f, n_cols, p[r], ahead[r], part, acc[r]);
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
        for (int c = 0; c < n_cols; c++) part[c] = mv_load(f, &x[c], (int)left / CPU_ACT_GROUP);
        for (int r = 0; r < n_rows; r++) {
            uint8_t tail[Q_CHUNK_BYTES_MAX] = {0};
            memcpy(tail, p[r], q_bytes(f, left));
            mv_chunk(f, n_cols, tail, ahead[r], part, acc[r]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++) y[(col + c) * ldy + i + r * stride] = avx2_sum(acc[r][c]);
}

/* The same rows with every column, while they are in the cache. */
AVX2_INLINE void mv_columns(const q_format *f, const int n_rows, const cpu_rows *s, int64_t i,
                            int64_t stride, const cpu_act *x, float *y, int64_t ldy) {
    int64_t col = 0;
    for (; col + MV_COLS <= x->n_cols; col += MV_COLS)
        mv_rows(f, n_rows, MV_COLS, s, i, stride, x, col, y, ldy);
    for (; col < x->n_cols; col++) mv_rows(f, n_rows, 1, s, i, stride, x, col, y, ldy);
}

AVX2_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                        int64_t ldy) {
    int64_t n_groups = s->n / MV_ROWS, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++)
        mv_columns(f, MV_ROWS, s, rows_first(s, g, MV_ROWS), stride, x, y, ldy);
    for (int64_t i = n_groups * MV_ROWS; i < s->n; i++) mv_columns(f, 1, s, i, 0, x, y, ldy);
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
