/* avx512_matvec.c: products of quantized rows with one or a few vectors.
 *
 * Memory is the limit, so a row is read once, and the rest of the design keeps loads in flight:
 *   - Four rows are computed at a time, from the four quarters of a range, so that a thread reads
 *     four sequential streams that are far apart. (One stream does not use all requests that a core
 *     can have in flight; four neighbouring rows are short streams that restart with every group.)
 *     From a list of rows, four neighbours are computed.
 *   - Cache lines are prefetched MV_AHEAD bytes ahead, across the ends of pages and into the next
 *     row of the list, a few instructions apart.
 *   - Columns are arranged in the order of the weights once for all rows, and scales of 16 groups
 *     are converted and multiplied as one vector, so that there are few instructions between loads.
 *
 * The sum of a (row, column) pair is added in one order for every blocking, so results do not
 * depend on how rows are split or on the number of columns. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "rows.h"

enum {
    MV_ROWS = 4,    /* rows at once (streams) for one column; half as many for several columns */
    MV_WIDE = 500,  /* from this number of bytes per chunk two streams are faster than four: Q8_0 */
    MV_COLS = 4,    /* columns that share a row's unpacked weights */
    MV_READY = 256, /* chunks of columns arranged in advance: 176 KiB, n_in up to 32768 */
    MV_AHEAD = 2048 /* bytes, of each stream; 1024, 4096 and 8192 were slower on Zen 5 */
};

/* 16 sums of 16 elements in a and in b -> 16 sums of 32. */
AVX512_INLINE __m512i mv_pair_sums(__m512i a, __m512i b) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                          0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                            _mm512_permutex2var_epi32(a, odd, b));
}

/* Products of scales for every group of a chunk: dd = d_w * d_x, in the arrangement of q_scales;
 * minima are added directly to the accumulator. */
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

/* Minima after the valid groups are undefined bytes; even times zero they could be NaN. */
AVX512_INLINE void mv_mask_minima(const q_format *f, q_scales *s, int groups) {
    uint32_t valid = (uint32_t)((UINT64_C(1) << groups * 32 / f->sub) - 1);
    for (int h = 0; h < 32 / f->sub; h++)
        s->m[h] = _mm512_maskz_mov_ps((__mmask16)(valid >> 16 * h), s->m[h]);
}

/* A chunk's products of n_rows rows with n_cols columns; the first `groups` groups are valid, in
 * `steps` steps; later ones are read but not used. Prefetches the chunk at ahead[r]. */
AVX512_INLINE void mv_steps(const q_format *f, const int n_rows, const int n_cols,
                            const uint8_t *const p[MV_ROWS], const uint8_t *const ahead[MV_ROWS],
                            const act_q8_column *x, int groups, const int steps,
                            __m512 acc[MV_ROWS][MV_COLS]) {
    const __m512i lane_sum = _mm512_set_epi32(0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0);
    const int lines = (f->chunk_bytes + 63) / 64;
    const uint32_t valid = (uint32_t)((UINT64_C(1) << 2 * groups) - 1);
    __m512 dd[MV_ROWS][MV_COLS][2];
    __m512i off[MV_COLS][2];
    q_scales s[MV_ROWS];
    for (int r = 0; r < n_rows; r++) {
        f->scales(p[r], &s[r]);
        if (f->has_min && groups < Q_GROUPS) mv_mask_minima(f, &s[r], groups);
    }
    for (int c = 0; c < n_cols; c++) {
        __m512 dx = _mm512_maskz_loadu_ps((__mmask16)((1u << groups) - 1), x[c].d);
        __m512i sums[2] = {_mm512_maskz_loadu_epi32((__mmask16)valid, x[c].sum),
                           _mm512_maskz_loadu_epi32((__mmask16)(valid >> 16), x[c].sum + 16)};
        for (int r = 0; r < n_rows; r++)
            acc[r][c] = mv_scale(f, &s[r], dx, sums, dd[r][c], acc[r][c]);
        for (int h = 0; h < 2; h++)
            if (f->offset_shift >= 0)
                off[c][h] = _mm512_sub_epi32(
                    _mm512_setzero_si512(),
                    _mm512_slli_epi32(sums[h], (unsigned)f->offset_shift & 31));
    }
#pragma GCC unroll 8
    for (int j = 0; j < steps; j++) {
        __m512i start[MV_COLS], xq[MV_COLS];
        for (int c = 0; c < n_cols; c++) {
            /* -offset * sum of 16 elements, in one of the four lanes of these elements */
            start[c] = _mm512_setzero_si512();
            if (f->offset_shift >= 0)
                start[c] = _mm512_maskz_permutexvar_epi32(
                    0x1111, _mm512_add_epi32(lane_sum, _mm512_set1_epi32(4 * (j & 3))),
                    off[c][j >> 2]);
            xq[c] = _mm512_loadu_si512(x[c].q + 64 * j);
        }
        for (int r = 0; r < n_rows; r++) {
            __m512i w = f->quants(p[r], j);
            for (int line = lines * j / Q_STEPS; line < lines * (j + 1) / Q_STEPS; line++)
                _mm_prefetch((const char *)ahead[r] + 64 * line, _MM_HINT_T0);
            for (int c = 0; c < n_cols; c++) {
                __m512 t = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start[c], w, xq[c]));
                acc[r][c] = _mm512_fmadd_ps(t, mv_lane_scale(f, dd[r][c], j), acc[r][c]);
            }
        }
    }
}

/* ---- products by quads ----------------------------------------------------------------------- */

enum { MV_QUADS = Q_GROUPS / 4 };

/* A column's chunk, in the order of quads and of scales. */
typedef struct mv_part {
    __m512i x[2 * MV_QUADS]; /* elements */
    __m512 dx;               /* scales */
    __m512i sum;             /* sums of elements: of 16 as words, of 32 times the weights' offset */
    __m512 lift;             /* dx times sums of 32, for minima */
} mv_part;

/* 64 bytes of groups g and g2; zeros for absent groups. */
AVX512_INLINE __m512i mv_groups(const act_q8_column *x, int g, int g2, int groups) {
    __m256i v[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (g < groups) v[0] = _mm256_loadu_si256((const void *)(x->q + g * CPU_ACT_GROUP));
    if (g2 < groups) v[1] = _mm256_loadu_si256((const void *)(x->q + g2 * CPU_ACT_GROUP));
    return _mm512_inserti64x4(_mm512_castsi256_si512(v[0]), v[1], 1);
}

AVX512_INLINE mv_part mv_load(const q_format *f, const act_q8_column *x, const int groups) {
    const uint32_t valid = (uint32_t)((UINT64_C(1) << 2 * groups) - 1);
    mv_part part;
    for (int i = 0; i < MV_QUADS; i++) {
        const int g = f->sub == 16 ? i : 4 * i, near = f->sub == 16 ? 4 : 1;
        const int far = f->sub == 16 ? 8 : 2;
        __m512i a = mv_groups(x, g, g + near, groups);
        __m512i b = mv_groups(x, g + far, g + far + near, groups);
        __m512i first = _mm512_shuffle_i32x4(a, b, 0x88), last = _mm512_shuffle_i32x4(a, b, 0xdd);
        part.x[2 * i] = f->sub == 16 ? _mm512_unpacklo_epi64(first, last) : first;
        part.x[2 * i + 1] = f->sub == 16 ? _mm512_unpackhi_epi64(first, last) : last;
    }
    part.dx = _mm512_maskz_loadu_ps((__mmask16)((1u << groups) - 1), x->d);
    __m512i low = _mm512_maskz_loadu_epi32((__mmask16)valid, x->sum);
    __m512i high = _mm512_maskz_loadu_epi32((__mmask16)(valid >> 16), x->sum + 16);
    if (f->sub == 16) {
        part.sum = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)),
                                      _mm512_cvtepi32_epi16(high), 1);
        return part;
    }
    __m512i sum = mv_pair_sums(low, high);
    part.lift = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), part.dx);
    part.sum = f->offset_shift < 0 ? sum : _mm512_slli_epi32(sum, (unsigned)f->offset_shift & 31);
    return part;
}

/* Per half of a 128-bit lane: the sum of its two words. */
AVX512_INLINE __m512i mv_halves(__m512i a, __m512i b) {
    __m512 fa = _mm512_castsi512_ps(a), fb = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(fa, fb, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(fa, fb, 0xdd)));
}

/* Integer products of 16 groups, in their order, from those of the quads. */
AVX512_INLINE __m512i mv_quad_sums(const q_format *f, const __m512i t[MV_QUADS], __m512i scale) {
    __m512i a = mv_halves(t[0], t[1]), b = mv_halves(t[2], t[3]);
    if (f->sub == 16) { /* sums of 16 fit into 16 bits: scales are words above words of 0 */
        const __m512i zero = _mm512_setzero_si512();
        a = _mm512_madd_epi16(a, _mm512_unpacklo_epi16(scale, zero));
        b = _mm512_madd_epi16(b, _mm512_unpackhi_epi16(scale, zero));
        return mv_halves(a, b);
    }
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(order, mv_halves(a, b));
}

/* A chunk of a row times n_cols columns, with `quads` quads and `groups` groups. Column c's chunk
 * is x[c * stride]. */
AVX512_INLINE void mv_row_quads(const q_format *f, const int n_cols, const uint8_t *p,
                                const uint8_t *ahead, const mv_part *x, int64_t stride, int groups,
                                const int quads, __m512 acc[MV_COLS]) {
    const int lines = (f->chunk_bytes + 63) / 64;
    const __mmask16 valid = (__mmask16)((1u << groups) - 1);
    __m512i t[MV_COLS][MV_QUADS];
    q_scales s;
    q_subs sub;
    if (f->sub == 32)
        f->scales(p, &s);
    else
        f->subs(p, &sub);
#pragma GCC unroll 4
    for (int i = 0; i < MV_QUADS; i++) {
        __m512i w[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        if (i < quads) f->quad(p, i, w);
        for (int line = lines * i / MV_QUADS; line < lines * (i + 1) / MV_QUADS; line++)
            _mm_prefetch((const char *)ahead + 64 * line, _MM_HINT_T0);
        for (int c = 0; c < n_cols; c++) {
            const mv_part *part = &x[c * stride];
            t[c][i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[0], part->x[2 * i]);
            t[c][i] = _mm512_dpbusd_epi32(t[c][i], w[1], part->x[2 * i + 1]);
        }
    }
    /* scales after the valid groups are undefined bytes */
    __m512 d = f->sub == 32 ? s.d[0] : sub.d, dmin = f->sub == 32 ? s.m[0] : sub.dmin;
    if (groups < Q_GROUPS) d = _mm512_maskz_mov_ps(valid, d);
    if (groups < Q_GROUPS && f->has_min) dmin = _mm512_maskz_mov_ps(valid, dmin);
    for (int c = 0; c < n_cols; c++) {
        const mv_part *part = &x[c * stride];
        __m512i dot = mv_quad_sums(f, t[c], sub.scale);
        if (f->sub == 16 && f->offset_shift >= 0)
            dot = _mm512_sub_epi32(dot, _mm512_slli_epi32(_mm512_madd_epi16(sub.scale, part->sum),
                                                          (unsigned)f->offset_shift & 31));
        else if (f->offset_shift >= 0)
            dot = _mm512_sub_epi32(dot, part->sum);
        if (f->has_min && f->sub == 32) acc[c] = _mm512_fnmadd_ps(dmin, part->lift, acc[c]);
        if (f->has_min && f->sub == 16)
            acc[c] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(sub.min, part->sum)),
                                      _mm512_mul_ps(dmin, part->dx), acc[c]);
        acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(d, part->dx), acc[c]);
    }
}

/* A chunk's products. Without `part`, the columns are arranged here. */
AVX512_INLINE void mv_chunk(const q_format *f, const int n_rows, const int n_cols,
                            const uint8_t *const p[MV_ROWS], const uint8_t *const ahead[MV_ROWS],
                            const act_q8_column *x, const mv_part *part, int64_t stride, int groups,
                            const int steps, __m512 acc[MV_ROWS][MV_COLS]) {
    if (f->quad == NULL) {
        mv_steps(f, n_rows, n_cols, p, ahead, x, groups, steps, acc);
        return;
    }
    mv_part own[MV_COLS];
    for (int c = 0; c < n_cols && part == NULL; c++) own[c] = mv_load(f, &x[c], groups);
    const int quads = f->sub == 16 ? MV_QUADS : (steps + 1) / 2;
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
        mv_row_quads(f, n_cols, p[r], ahead[r], part != NULL ? part : own,
                     part != NULL ? stride : 1, groups, quads, acc[r]);
}

/* Returns the next rows: their first chunks are prefetched while the last chunks of rows i, i +
 * stride, ... are computed. */
AVX512_INLINE void mv_next_rows(const int n_rows, const cpu_rows *s, int64_t i, int64_t stride,
                                const uint8_t *ahead[MV_ROWS]) {
    for (int r = 0; r < n_rows; r++) ahead[r] = rows_next(s, i + r * stride, n_rows);
}

/* The remaining elements after the last whole chunk. `part`: as for mv_chunk. */
AVX512_INLINE void mv_tail(const q_format *f, const int n_rows, const int n_cols, const cpu_mat *w,
                           const uint8_t *p[MV_ROWS], const uint8_t *const ahead[MV_ROWS],
                           const act_q8_column *x, const mv_part *part, int64_t stride,
                           __m512 acc[MV_ROWS][MV_COLS]) {
    const int64_t left = w->n_in % Q_CHUNK;
    const int groups = (int)left / CPU_ACT_GROUP;
    const uint8_t *end = (const uint8_t *)w->data + (size_t)(w->n_out - 1) * w->row_bytes +
                         q_bytes(f, w->n_in);
    uint8_t tail[MV_ROWS][Q_TAIL_BYTES];
    /* Half a chunk, as with n_ff of 11008, is computed in place: the bytes after it are still
     * mapped. */
    if (left != Q_CHUNK / 2 || f->chunk_bytes > end - p[n_rows - 1])
        for (int r = 0; r < n_rows; r++) {
            memset(tail[r], 0, sizeof tail[r]);
            memcpy(tail[r], p[r], q_bytes(f, left));
            p[r] = tail[r];
        }
    mv_chunk(f, n_rows, n_cols, p, ahead, x, part, stride, groups, (groups + 1) / 2, acc);
}

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). `ready` (may be
 * NULL) holds the arranged chunks of column `col`, then those of the following columns. */
AVX512_INLINE void mv_rows(const q_format *f, const int n_rows, const int n_cols, const cpu_rows *s,
                           int64_t i, int64_t stride, const cpu_act *act, int64_t col,
                           const mv_part *ready, float *y, int64_t ldy) {
    const cpu_mat *w = s->w;
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    __m512 acc[MV_ROWS][MV_COLS];
    act_q8_column x[MV_COLS];
    for (int c = 0; c < n_cols; c++) x[c] = act_q8_at(act, col + c);
    /* The prefetch is `lead` chunks ahead: this far before a row's end it moves to the next row. */
    const int64_t chunks = w->n_in / Q_CHUNK, left = w->n_in % Q_CHUNK, all = chunks + (left > 0);
    const int64_t near = MV_AHEAD / f->chunk_bytes, lead = near < all ? near : all;
    for (int r = 0; r < n_rows; r++) {
        p[r] = rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * f->chunk_bytes;
        for (int c = 0; c < n_cols; c++) acc[r][c] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < chunks; k++) {
        if (k == all - lead) mv_next_rows(n_rows, s, i, stride, ahead);
        mv_chunk(f, n_rows, n_cols, p, ahead, x, ready != NULL ? ready + k : NULL, all, Q_GROUPS,
                 Q_STEPS, acc);
        for (int r = 0; r < n_rows; r++) {
            p[r] += f->chunk_bytes;
            ahead[r] += f->chunk_bytes;
        }
        for (int c = 0; c < n_cols; c++) x[c] = act_q8_skip(x[c], Q_GROUPS);
    }
    if (left) {
        if (chunks == all - lead) mv_next_rows(n_rows, s, i, stride, ahead);
        mv_tail(f, n_rows, n_cols, w, p, ahead, x, ready != NULL ? ready + chunks : NULL, all, acc);
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + i + r * stride] = _mm512_reduce_add_ps(acc[r][c]);
}

/* Columns [col, end) of two rows, four, two or one at a time. `ready`: as for mv_rows. */
AVX512_INLINE void mv_columns(const q_format *f, const cpu_rows *s, int64_t i, int64_t stride,
                              const cpu_act *x, int64_t col, int64_t end, const mv_part *ready,
                              int64_t all, float *y, int64_t ldy) {
    const int64_t step = ready != NULL ? all : 0;
    for (; col + MV_COLS <= end; col += MV_COLS, ready += MV_COLS * step)
        mv_rows(f, 2, MV_COLS, s, i, stride, x, col, ready, y, ldy);
    if (col + 2 <= end) {
        mv_rows(f, 2, 2, s, i, stride, x, col, ready, y, ldy);
        col += 2;
        ready += 2 * step;
    }
    if (col < end) mv_rows(f, 2, 1, s, i, stride, x, col, ready, y, ldy);
}

/* Arranges columns [col, end). */
AVX512_INLINE void mv_arrange(const q_format *f, const cpu_act *x, int64_t col, int64_t end,
                              mv_part *ready) {
    for (; col < end; col++) {
        act_q8_column c = act_q8_at(x, col);
        int64_t left = x->n;
        for (; left >= Q_CHUNK; left -= Q_CHUNK, c = act_q8_skip(c, Q_GROUPS))
            *ready++ = mv_load(f, &c, Q_GROUPS);
        if (left > 0) *ready++ = mv_load(f, &c, (int)left / CPU_ACT_GROUP);
    }
}

/* `arranges`, a constant: columns are arranged for all rows, as many at once as fit. */
AVX512_INLINE void mv_all(const q_format *f, const bool arranges, const cpu_rows *s,
                          const cpu_act *x, float *y, int64_t ldy) {
    const int64_t all = (x->n + Q_CHUNK - 1) / Q_CHUNK;
    const int64_t at_once = arranges ? MV_READY / all : x->n_cols;
    const bool wide = f->chunk_bytes >= MV_WIDE && s->list == NULL;
    const int64_t n_rows = x->n_cols == 1 && !wide ? MV_ROWS : 2, n_groups = s->n / n_rows;
    const int64_t stride = rows_stride(s, n_groups);
    mv_part parts[MV_READY];
    const mv_part *ready = arranges ? parts : NULL;
    for (int64_t col = 0; col < x->n_cols; col += at_once) {
        const int64_t end = x->n_cols - col < at_once ? x->n_cols : col + at_once;
        if (arranges) mv_arrange(f, x, col, end, parts);
        for (int64_t g = 0; g < n_groups; g++)
            if (n_rows == MV_ROWS)
                mv_rows(f, MV_ROWS, 1, s, rows_first(s, g, MV_ROWS), stride, x, 0, ready, y, ldy);
            else
                mv_columns(f, s, rows_first(s, g, 2), stride, x, col, end, ready, all, y, ldy);
        for (int64_t i = n_groups * n_rows; i < s->n; i++) /* few rows, in cache from column 2 on */
            for (int64_t c = col; c < end; c++)
                mv_rows(f, 1, 1, s, i, 0, x, c, arranges ? ready + (c - col) * all : NULL, y, ldy);
    }
}

/* Columns that are too long to be arranged in advance are arranged for every pair of rows. */
AVX512_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                          int64_t ldy) {
    const int64_t all = (x->n + Q_CHUNK - 1) / Q_CHUNK;
    const int64_t together = x->n_cols < MV_COLS ? x->n_cols : MV_COLS;
    if (f->quad != NULL && all * together <= MV_READY)
        mv_all(f, true, s, x, y, ldy);
    else
        mv_all(f, false, s, x, y, ldy);
}

#define DEFINE(type, name, ...) ROWS_DEFINE(extern, avx512, name, mv_run)
QUANT_BLOCKS(DEFINE)
