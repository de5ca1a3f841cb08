/* avx2_columns.h: products of quantized rows with several vectors at once. A template, like
 * avx2_matvec.h, which includes it.
 *
 * Instructions limit the speed, and most of them are executed per column. So a chunk of a row is
 * unpacked once into the layout with the fewest instructions per column: vector j holds elements 4
 * j .. 4 j + 3 of all eight groups, in the order of groups. Columns are arranged in this layout
 * once for all rows. Products are then added vector by vector and give one sum per group, in the
 * order of scales, without additions across lanes. Loads are the next limit: when the sums fit into
 * registers, chunks of four rows are unpacked in L1 and multiplied with two columns at once. Float
 * sums also stay in L1. Results equal those of one column, bit for bit. */
#ifndef CPU_AVX2_COLUMNS_H
#define CPU_AVX2_COLUMNS_H

#include "avx2_quants_k.h"
#include "rows.h"

enum {
    MC_ROWS = 4,    /* rows at once: separate streams, as for one column */
    MC_TILE = 2,    /* columns that share loads of weights */
    MC_COLS = 64,   /* maximum columns at once: a chunk of them is 20 KiB */
    MC_LOAD = 8,    /* columns arranged at a time */
    MC_READY = 512, /* chunks of columns arranged in advance, on the stack: 160 KiB, eight columns
                       of 16384; matmul's scratch holds more */
    MC_BLOCK = 512, /* rows per block when not all columns fit `ready`: the weights of a block are
                       read again from L3, which costs less than arranging columns again */
    MC_AHEAD = 1024 /* bytes of prefetch */
};

/* A chunk of a column. */
typedef struct mc_part {
    __m256i x[Q_GROUPS]; /* elements */
    __m256 dx;           /* scales */
    union {
        /* sums of elements: of 16 as words, of 32 times the weights' offset; or (mc_wraps) in 16
         * bits, times the offset, in the layout of sums of products */
        __m256i sum;
        __m256 lift; /* dx times sums of 32, for minima */
    };
} mc_part;

/* Data of a row's chunk, shared by all columns. */
typedef struct mc_weights {
    __m256i w[Q_GROUPS];
    __m256i size[Q_GROUPS]; /* absolute values, for signed weights */
    __m256i half[2];        /* scales of 16 elements, twice each */
    __m256i off;            /* the scales once each, times the offset */
    q_scales s;
    q_subs sub;
} mc_weights;

/* Whether instructions add four products of bytes to a 32-bit word. With a scale per 16 elements,
 * these sums must fit into 16 bits, in which they are multiplied with the scale. */
AVX2_INLINE bool mc_dots_four(const q_format *f) {
    return Q_DOTS_FOUR && (f->sub == 32 || 16 * f->top * INT8_MAX <= INT16_MAX);
}

/* Whether 16 bits hold the sum of 16 products after the offset is subtracted. Intermediate sums may
 * overflow: final sums are correct because all additions are modulo 2^16. Not for MXFP4, whose
 * offset differs and which is slower in tiles. */
AVX2_INLINE bool mc_wraps(const q_format *f) {
    return !Q_DOTS_FOUR && f->sub == 32 && f->offset != 0 && f->top == 2 * f->offset - 1 &&
           16 * f->offset * INT8_MAX <= INT16_MAX;
}

/* Number of vectors whose products (sums of two) may be added in 16 bits. */
AVX2_INLINE int mc_fit(const q_format *f) {
    if (mc_wraps(f)) return Q_GROUPS;
    const int fit = INT16_MAX / (2 * f->top * INT8_MAX), most = f->sub / 4;
    return fit >= 8 && most == 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

AVX2_INLINE int64_t mc_less(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Computes the values that depend on the sums of 16 elements (with groups as lanes) and on the
 * scales of a column. */
AVX2_INLINE void mc_finish(const q_format *f, __m256i low, __m256i high, __m256 dx, mc_part *part) {
    part->dx = dx;
    if (f->sub == 16) {
        part->sum = _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
        part->dx = _mm256_mul_ps(dx, _mm256_set1_ps(1.0f / (float)(1 << f->scale_shift)));
        return;
    }
    __m256i sum = _mm256_add_epi32(low, high);
    if (mc_wraps(f)) {
        const __m256i offset = _mm256_set1_epi8((char)f->offset);
        part->sum = _mm256_setzero_si256();
        for (int j = 0; j < Q_GROUPS; j++)
            part->sum = _mm256_add_epi16(part->sum, _mm256_maddubs_epi16(offset, part->x[j]));
    } else if (f->has_min)
        part->lift = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), dx);
    else
        part->sum = _mm256_mullo_epi32(sum, _mm256_set1_epi32(f->offset));
}

/* Arranges chunk k of n columns from `col` on. Only `groups` groups exist; zeros follow them. */
AVX2_INLINE void mc_load_columns(const q_format *f, const cpu_act *act, int64_t col, int64_t n,
                                 int64_t k, int groups, mc_part *part) {
    for (int64_t c = 0; c < n; c++) {
        const act_q8_column x = act_q8_skip(act_q8_at(act, col + c), (int)k * Q_GROUPS);
        for (int g = 0; g < Q_GROUPS; g++)
            part[c].x[g] = g < groups ? _mm256_loadu_si256((const void *)(x.q + g * CPU_ACT_GROUP))
                                      : _mm256_setzero_si256();
        vi_transpose(part[c].x);
        __m256 a = _mm256_loadu_ps((const float *)x.sum);
        __m256 b = _mm256_loadu_ps((const float *)(x.sum + Q_GROUPS));
        __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
        __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
        mc_finish(f, _mm256_castpd_si256(_mm256_permute4x64_pd(even, 0xd8)),
                  _mm256_castpd_si256(_mm256_permute4x64_pd(odd, 0xd8)), _mm256_loadu_ps(x.d),
                  &part[c]);
    }
}

/* Transposes eight words per group, one from each column: v[i] becomes column i's. */
AVX2_INLINE void mc_transpose(const void *first, int groups, __m256i v[Q_GROUPS]) {
    for (int g = 0; g < Q_GROUPS; g++)
        v[g] = g < groups
                   ? _mm256_loadu_si256((const void *)((const char *)first +
                                                       (size_t)g * sizeof(act_q8_panel_group)))
                   : _mm256_setzero_si256();
    vi_transpose(v);
}

/* Like mc_load_columns, from panels. */
AVX2_INLINE void mc_load_panels(const q_format *f, const cpu_act *act, int64_t col, int64_t n,
                                int64_t k, int groups, mc_part *part) {
    for (int64_t c0 = 0; c0 < n; c0 += MC_LOAD) {
        const int64_t m = mc_less(n - c0, MC_LOAD), first = (col + c0) % MC_LOAD;
        const int64_t at = (col + c0) % CPU_PANEL - first;
        const act_q8_panel_group *x = act_panel(act, (col + c0) / CPU_PANEL);
        x += k * Q_GROUPS;
        __m256i v[Q_GROUPS], low[Q_GROUPS], high[Q_GROUPS];
        for (int j = 0; j < CPU_ACT_GROUP / 4; j++) {
            mc_transpose(x->q[j][at], groups, v);
            for (int64_t c = 0; c < m; c++) part[c0 + c].x[j] = v[first + c];
        }
        mc_transpose(x->sum[0] + at, groups, low);
        mc_transpose(x->sum[1] + at, groups, high);
        mc_transpose(x->d + at, groups, v);
        for (int64_t c = 0; c < m; c++)
            mc_finish(f, low[first + c], high[first + c], _mm256_castsi256_ps(v[first + c]),
                      &part[c0 + c]);
    }
}

AVX2_INLINE void mc_unpack(const q_format *f, const uint8_t *p, mc_weights *w) {
    if (f->lanes != NULL) {
        f->lanes(p, w->w);
    } else {
        for (int g = 0; g < Q_GROUPS; g++) w->w[g] = f->quants(p, g);
        vi_transpose(w->w);
    }
    for (int j = 0; j < Q_GROUPS && f->is_signed; j++) w->size[j] = _mm256_abs_epi8(w->w[j]);
    if (f->sub == 32) {
        f->scales(p, &w->s);
        return;
    }
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    f->subs(p, &w->sub);
    if (f->crossed) w->sub.scale = _mm256_shuffle_epi32(w->sub.scale, 0xd8);
    if (f->offset != 0) /* a power of two; the product has 16 bits */
        w->off = _mm256_slli_epi16(w->sub.scale, __builtin_ctz((unsigned)f->offset));
    w->half[0] = _mm256_shuffle_epi8(w->sub.scale, first);
    w->half[1] = _mm256_shuffle_epi8(w->sub.scale, _mm256_add_epi8(first, _mm256_set1_epi8(2)));
}

AVX2_INLINE __m256i mc_dot16(const q_format *f, const mc_weights *w, __m256i x, int j) {
    if (!f->is_signed) return _mm256_maddubs_epi16(w->w[j], x);
    return _mm256_maddubs_epi16(w->size[j], _mm256_sign_epi8(x, w->w[j]));
}

/* Number of vectors whose products are added before they are widened or scaled. */
AVX2_INLINE int mc_run_length(const q_format *f) {
    return mc_dots_four(f) ? f->sub / 4 : mc_fit(f);
}

/* Whether rows and columns are computed as a tile: each load of weights serves MC_TILE products,
 * each load of activations MC_ROWS. This needs one register per product, which is enough where all
 * products are added first, or each is widened at once. Other formats need two registers per
 * product; they keep one row's weights in registers for all columns instead. */
AVX2_INLINE bool mc_tiles(const q_format *f) {
    return mc_run_length(f) == Q_GROUPS || mc_run_length(f) == 1;
}
AVX2_INLINE int mc_tile_rows(const q_format *f) {
    return mc_tiles(f) ? MC_ROWS : 1;
}
AVX2_INLINE int mc_tile_cols(const q_format *f) {
    return mc_tiles(f) ? MC_TILE : 1;
}

/* In tiles, keeps the order of additions: compilers would turn them into trees, which need too many
 * registers. */
AVX2_INLINE __m256i mc_keep(const q_format *f, __m256i v) {
    if (mc_tiles(f)) __asm__("" : "+x"(v));
    return v;
}

/* Adds the products of the next vector, the `i`-th of a run. */
AVX2_INLINE __m256i mc_next(const q_format *f, const mc_weights *w, __m256i x, int j, int i,
                            __m256i sum) {
#if defined(__AVXVNNI__)
    if (mc_dots_four(f))
        return _mm256_dpbusd_avx_epi32(i == 0 ? _mm256_setzero_si256() : sum, w->w[j], x);
#endif
    __m256i dot = mc_dot16(f, w, x, j);
    return mc_keep(f, i == 0 ? dot : _mm256_add_epi16(sum, dot));
}

/* Adds the sums of the run that starts at vector j to the earlier ones. */
AVX2_INLINE __m256i mc_fold(const q_format *f, const mc_weights *w, __m256i sum, int j,
                            __m256i dot) {
    if (mc_dots_four(f)) {
        if (j == 0) return sum;
        dot = _mm256_blend_epi16(dot, _mm256_slli_epi32(sum, 16), 0xaa);
        return _mm256_madd_epi16(dot, w->sub.scale);
    }
    sum = f->sub == 32 ? q_widen(sum) : _mm256_madd_epi16(sum, w->half[j / 4]);
    return mc_keep(f, j == 0 ? sum : _mm256_add_epi32(dot, sum));
}

/* Short runs: one product after the other. */
AVX2_INLINE void mc_dots_short(const q_format *f, const mc_weights *w, const mc_part *x,
                               const int n, __m256i dot[MC_ROWS][MC_TILE]) {
    const int run = mc_run_length(f);
#pragma GCC unroll 8
    for (int j0 = 0; j0 < Q_GROUPS; j0 += run)
#pragma GCC unroll 4
        for (int r = 0; r < mc_tile_rows(f); r++)
#pragma GCC unroll 2
            for (int c = 0; c < n; c++) {
                __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 2
                for (int i = 0; i < run; i++)
                    sum = mc_next(f, &w[r], x[c].x[j0 + i], j0 + i, i, sum);
                dot[r][c] = mc_fold(f, &w[r], sum, j0, dot[r][c]);
            }
}

/* Long runs: all products at once. */
AVX2_INLINE void mc_dots_long(const q_format *f, const mc_weights *w, const mc_part *x, const int n,
                              __m256i dot[MC_ROWS][MC_TILE]) {
    const int run = mc_run_length(f);
    __m256i sum[MC_ROWS][MC_TILE];
#pragma GCC unroll 8
    for (int j = 0; j < Q_GROUPS; j++)
#pragma GCC unroll 4
        for (int r = 0; r < mc_tile_rows(f); r++)
#pragma GCC unroll 2
            for (int c = 0; c < n; c++) {
                sum[r][c] = mc_next(f, &w[r], x[c].x[j], j, j % run, sum[r][c]);
                if (mc_wraps(f) && j == Q_GROUPS - 1)
                    sum[r][c] = _mm256_sub_epi16(sum[r][c], x[c].sum);
                if (j % run == run - 1)
                    dot[r][c] = mc_fold(f, &w[r], sum[r][c], j - run + 1, dot[r][c]);
            }
}

/* Sums of the products of eight groups, times their scales where there is one per 16 elements, for
 * the rows of a tile and n columns. */
AVX2_INLINE void mc_dots(const q_format *f, const mc_weights *w, const mc_part *x, const int n,
                         __m256i dot[MC_ROWS][MC_TILE]) {
    if (mc_run_length(f) <= 2)
        mc_dots_short(f, w, x, n, dot);
    else
        mc_dots_long(f, w, x, n, dot);
}

AVX2_INLINE __m256 mc_add(const q_format *f, const mc_weights *w, const mc_part *x, __m256i dot,
                          __m256 acc) {
    if (f->sub == 32) {
        if (f->offset != 0 && !mc_wraps(f)) dot = _mm256_sub_epi32(dot, x->sum);
        if (f->has_min) acc = _mm256_fnmadd_ps(w->s.m[0], x->lift, acc);
    } else {
        if (f->offset != 0) dot = _mm256_sub_epi32(dot, _mm256_madd_epi16(w->off, x->sum));
        if (f->has_min) {
            __m256 min = _mm256_cvtepi32_ps(_mm256_madd_epi16(w->sub.min, x->sum));
            acc = _mm256_fnmadd_ps(min, _mm256_mul_ps(w->sub.dmin, x->dx), acc);
        }
    }
    __m256 d = _mm256_mul_ps(f->sub == 32 ? w->s.d[0] : w->sub.d, x->dx);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, acc);
}

/* A chunk of the rows of a tile times n columns; acc[column][MC_ROWS]. */
AVX2_INLINE void mc_tile(const q_format *f, const mc_weights *w, const mc_part *x, const int n,
                         __m256 *acc) {
    __m256i dot[MC_ROWS][MC_TILE];
    if (mc_tiles(f)) __asm__("" : "+r"(w)); /* weights stay in memory */
    mc_dots(f, w, x, n, dot);
#pragma GCC unroll 4
    for (int r = 0; r < mc_tile_rows(f); r++)
#pragma GCC unroll 2
        for (int c = 0; c < n; c++) {
            __m256 *to = acc + c * MC_ROWS + r;
            *to = mc_add(f, &w[r], &x[c], dot[r][c], *to);
        }
}

/* A chunk of the rows of a tile times all columns. */
AVX2_INLINE void mc_chunk(const q_format *f, const mc_weights *w, const mc_part *x, int64_t n_cols,
                          __m256 *acc) {
    const int n = mc_tile_cols(f);
    int64_t c = 0;
    for (; c + n <= n_cols; c += n) mc_tile(f, w, x + c, n, acc + c * MC_ROWS);
    if (c < n_cols) mc_tile(f, w, x + c, 1, acc + c * MC_ROWS);
}

/* Columns that are arranged: chunks [k0, k1) of n, x[chunk][n]. */
typedef struct mc_ready {
    mc_part *x;
    int64_t n, k0, k1;
} mc_ready;

/* Row r of a group; the last row replaces missing rows. */
AVX2_INLINE int64_t mc_row(int n_rows, int r, int64_t i, int64_t stride) {
    return i + (r < n_rows ? r : n_rows - 1) * stride;
}

/* The sums of four vectors, added as in avx2_sum, in adjacent lanes; for two columns. */
AVX2_INLINE __m256 mc_halves(const q_format *f, const __m256 v[MC_ROWS]) {
    __m256 even, odd;
    for (int i = 0; i < 2; i++) {
        __m256 sum = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 2], 0x20),
                                   _mm256_permute2f128_ps(v[i], v[i + 2], 0x31));
        if (f->crossed) sum = _mm256_permute_ps(sum, 0xd8);
        *(i == 0 ? &even : &odd) = sum;
    }
    const __m256d a = _mm256_castps_pd(even), b = _mm256_castps_pd(odd);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
}
AVX2_INLINE __m256 mc_sums(const q_format *f, const __m256 a[MC_ROWS], const __m256 b[MC_ROWS]) {
    const __m256 first = mc_halves(f, a), second = mc_halves(f, b);
    const __m256 sum = _mm256_add_ps(_mm256_shuffle_ps(first, second, 0x88),
                                     _mm256_shuffle_ps(first, second, 0xdd));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xd8));
}

/* Stores one column's results of n_rows rows, `stride` apart; `more`: += */
AVX2_INLINE void mc_store(__m128 sums, int n_rows, int64_t stride, bool more, float *y) {
    if (n_rows == MC_ROWS && stride == 1) {
        _mm_storeu_ps(y, more ? _mm_add_ps(_mm_loadu_ps(y), sums) : sums);
        return;
    }
    float sum[MC_ROWS];
    _mm_storeu_ps(sum, sums);
    for (int r = 0; r < n_rows; r++) y[r * stride] = more ? y[r * stride] + sum[r] : sum[r];
}

/* Rows i, i + stride, ... (n_rows of them) of s times the arranged columns. y = for their first
 * chunks, then +=. */
AVX2_INLINE void mc_rows(const q_format *f, int n_rows, const cpu_rows *s, int64_t i,
                         int64_t stride, const mc_ready *a, float *y, int64_t ldy) {
    const int tile = mc_tile_rows(f);
    const uint8_t *p[MC_ROWS], *ahead[MC_ROWS];
    __m256 acc[MC_COLS][MC_ROWS];
    mc_weights w[MC_ROWS];
    const mc_part *x = a->x;
    const int64_t whole = s->w->n_in / Q_CHUNK, end = a->k1 < whole ? a->k1 : whole;
    const int64_t near = MC_AHEAD / f->chunk_bytes, lead = near < whole ? near : whole;
    for (int r = 0; r < MC_ROWS; r++) {
        p[r] = rows_at(s, mc_row(n_rows, r, i, stride)) + a->k0 * f->chunk_bytes;
        ahead[r] = p[r] + lead * f->chunk_bytes;
    }
    for (int64_t c = 0; c < a->n; c++)
        for (int r = 0; r < MC_ROWS; r++) acc[c][r] = _mm256_setzero_ps();
    for (int64_t k = a->k0; k < end; k++, x += a->n)
        for (int r0 = 0; r0 < n_rows; r0 += tile) {
#pragma GCC unroll 4
            for (int r = 0; r < tile; r++) {
                const uint8_t **at = &p[r0 + r], **next = &ahead[r0 + r];
                if (k == whole - lead)
                    *next = rows_next(s, mc_row(n_rows, r0 + r, i, stride), MC_ROWS);
                mc_unpack(f, *at, &w[r]);
                for (int line = 0; line < f->chunk_bytes; line += 64)
                    _mm_prefetch((const char *)*next + line, _MM_HINT_T0);
                *at += f->chunk_bytes;
                *next += f->chunk_bytes;
            }
            mc_chunk(f, w, x, a->n, acc[0] + r0);
        }
    for (int r0 = 0; r0 < n_rows && end < a->k1; r0 += tile) { /* a part of a chunk remains */
        for (int r = r0; r < r0 + tile; r++) {
            uint8_t tail[Q_CHUNK_BYTES_MAX] = {0};
            memcpy(tail, p[r], q_bytes(f, s->w->n_in % Q_CHUNK));
            mc_unpack(f, tail, &w[r - r0]);
        }
        mc_chunk(f, w, x, a->n, acc[0] + r0);
    }
    for (int64_t c = 0; c < a->n; c += 2) {
        const bool two = c + 1 < a->n;
        const __m256 sums = mc_sums(f, acc[c], acc[c + two]);
        mc_store(_mm256_castps256_ps128(sums), n_rows, stride, a->k0 > 0, y + c * ldy + i);
        if (two)
            mc_store(_mm256_extractf128_ps(sums, 1), n_rows, stride, a->k0 > 0,
                     y + (c + 1) * ldy + i);
    }
}

/* Rows of s times the arranged columns. */
AVX2_INLINE void mc_sweep(const q_format *f, const cpu_rows *s, const mc_ready *a, float *y,
                          int64_t ldy) {
    const int64_t n_groups = (s->n + MC_ROWS - 1) / MC_ROWS, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++) {
        const int64_t i = rows_first(s, g, MC_ROWS), left = (s->n - i + stride - 1) / stride;
        mc_rows(f, left < MC_ROWS ? (int)left : MC_ROWS, s, i, stride, a, y, ldy);
    }
}

/* Whether rows are short enough for `ready`, so that each row is summed in one sweep. */
AVX2_INLINE bool mc_fits(int64_t n_in) {
    return n_in <= MC_READY * Q_CHUNK;
}

/* Number of columns to arrange at once, whose chunks are `span` each: whole loads, or a divisor of
 * one. */
AVX2_INLINE int64_t mc_at_once(int64_t n_ready, int64_t span) {
    const int64_t n = mc_less(n_ready / span, MC_COLS);
    return n >= MC_LOAD ? n - n % MC_LOAD : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* Rows of s times all columns, which are first arranged in `ready` [n_ready]. */
AVX2_INLINE void mc_run(const q_format *f, const cpu_rows *s, const cpu_act *act, float *y,
                        int64_t ldy, mc_part *ready, int64_t n_ready) {
    const int64_t chunks = (act->n + Q_CHUNK - 1) / Q_CHUNK, span = mc_less(chunks, n_ready);
    int64_t at_once = mc_at_once(n_ready, span);
    /* parts of about equal size: a small part takes as long as a large one */
    if (at_once > MC_LOAD) {
        const int64_t n = (act->n_cols + at_once - 1) / at_once * MC_LOAD;
        at_once = (act->n_cols + n - 1) / n * MC_LOAD;
    }
    const bool panels = act->layout == CPU_ACT_PANELS;
    const int64_t n_rows = act->n_cols > at_once ? MC_BLOCK : s->n;
    for (int64_t row = 0; row < s->n; row += n_rows) {
        const cpu_rows block = {s->w, s->list != NULL ? s->list + row : NULL, s->first + row,
                                mc_less(s->n - row, n_rows), s->near};
        for (int64_t col = 0; col < act->n_cols; col += at_once)
            for (int64_t k0 = 0; k0 < chunks; k0 += span) {
                const mc_ready a = {ready, mc_less(act->n_cols - col, at_once), k0,
                                    mc_less(chunks, k0 + span)};
                for (int64_t k = k0; k < a.k1; k++) {
                    const int groups = (int)mc_less(act->n / CPU_ACT_GROUP - k * Q_GROUPS,
                                                    Q_GROUPS);
                    mc_part *x = ready + (k - k0) * a.n;
                    if (panels)
                        mc_load_panels(f, act, col, a.n, k, groups, x);
                    else
                        mc_load_columns(f, act, col, a.n, k, groups, x);
                }
                mc_sweep(f, &block, &a, y + col * ldy + row, ldy);
            }
    }
}

AVX2_INLINE void mc_matvec(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                           int64_t ldy) {
    mc_part ready[MC_READY];
    mc_run(f, s, x, y, ldy, ready, MC_READY);
}

AVX2_INLINE void mc_matmul(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                           const cpu_act *x, float *y, int64_t ldy, void *scratch) {
    const cpu_rows s = {w, NULL, row0, row1 - row0, true};
    mc_run(f, &s, x, y + row0, ldy, scratch, CPU_SCRATCH_BYTES / sizeof(mc_part));
}

#endif
