/* avx512_plain.h: products of rows that are not quantized (F32, F16, BF16), one template for all.
 *
 * Both kernels work on vectors of 16 words of 4 bytes: a float, or a pair of bfloat16. A format
 * says how many elements a vector holds, how such a vector is loaded from a row (the elements
 * behind its end as zeros), and how two vectors of words are multiplied into 16 sums. Encoded
 * activations have the same words, in columns and in panels.
 *
 * Everything is static: this code must not be shared with files compiled for lesser processors. */
#ifndef CPU_AVX512_PLAIN_H
#define CPU_AVX512_PLAIN_H

#include <immintrin.h>

#include "act.h"
#include "avx512_transpose.h"
#include "rows.h"
#include "tier_table.h"
#include "tiers.h"

#define PLAIN_INLINE static inline __attribute__((always_inline))

typedef struct plain_format {
    int elems;   /* of a vector: 16 or 32 */
    int w_bytes; /* per element of a row */
    __m512i (*words)(const char *row, int64_t left);
    __m512 (*dot)(__m512 acc, __m512i w, __m512i x);
} plain_format;

enum {
    PLAIN_ROWS = 4,     /* streams for one column; half as many for several */
    PLAIN_COLS = 4,     /* columns that share a row's loads */
    PLAIN_ACC = 2,      /* vectors in flight per column, to hide the latency of fma */
    PLAIN_AHEAD = 2048, /* bytes of prefetch, as in avx512_matvec.c */
    PLAIN_TILES = 8,    /* rows of a block of matmul: 8 x 16 */
    PLAIN_STEPS = 512,  /* words of a row in a block: 32 KiB of a panel */
    PLAIN_TILE_BYTES = PLAIN_STEPS * 64
};
_Static_assert(PLAIN_TILES *PLAIN_TILE_BYTES <= CPU_SCRATCH_BYTES, "a block fits into scratch");

/* A mask of the first `left` of 32 or 16 elements. */
PLAIN_INLINE uint32_t plain_mask(int64_t left) {
    return left >= 32 ? UINT32_MAX : (UINT32_C(1) << left) - 1;
}

/* ---- few columns: as in avx512_matvec.c, rows of several quarters of the range at once ------- */

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). The prefetch is
 * PLAIN_AHEAD bytes early and goes on in the stream's next row, as in avx512_matvec.c. */
PLAIN_INLINE void plain_rows(const plain_format *f, const int n_rows, const int n_cols,
                             const cpu_rows *s, int64_t i, int64_t stride, const cpu_act *act,
                             int64_t col, float *y, int64_t ldy) {
    const int64_t n_in = s->w->n_in;
    const char *p[PLAIN_ROWS], *ahead[PLAIN_ROWS], *x[PLAIN_COLS];
    __m512 acc[PLAIN_ROWS][PLAIN_COLS][PLAIN_ACC];
    const int vector_bytes = f->elems * f->w_bytes, step_bytes = vector_bytes * PLAIN_ACC;
    const int64_t step = (int64_t)f->elems * PLAIN_ACC, all = (n_in + step - 1) / step;
    const int64_t near = PLAIN_AHEAD / step_bytes, lead = near < all ? near : all;
    for (int c = 0; c < n_cols; c++) x[c] = act_column(act, col + c);
    for (int r = 0; r < n_rows; r++) {
        p[r] = (const char *)rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * step_bytes;
        for (int c = 0; c < n_cols; c++)
            for (int v = 0; v < PLAIN_ACC; v++) acc[r][c][v] = _mm512_setzero_ps();
    }
    int64_t k = 0;
    for (; k + step <= n_in; k += step) {
        if (k == (all - lead) * step)
            for (int r = 0; r < n_rows; r++)
                ahead[r] = (const char *)rows_next(s, i + r * stride, n_rows);
        for (int r = 0; r < n_rows; r++) {
            for (int line = 0; line < step_bytes; line += 64)
                _mm_prefetch(ahead[r] + line, _MM_HINT_T0);
            for (int v = 0; v < PLAIN_ACC; v++) {
                __m512i words = f->words(p[r] + v * vector_bytes, f->elems);
                for (int c = 0; c < n_cols; c++)
                    acc[r][c][v] = f->dot(acc[r][c][v], words, _mm512_loadu_si512(x[c] + 64 * v));
            }
            p[r] += step_bytes;
            ahead[r] += step_bytes;
        }
        for (int c = 0; c < n_cols; c++) x[c] += 64 * PLAIN_ACC;
    }
    for (; k < n_in; k += f->elems) {
        for (int r = 0; r < n_rows; r++) {
            __m512i words = f->words(p[r], n_in - k);
            for (int c = 0; c < n_cols; c++)
                acc[r][c][0] = f->dot(acc[r][c][0], words, _mm512_loadu_si512(x[c]));
            p[r] += vector_bytes;
        }
        for (int c = 0; c < n_cols; c++) x[c] += 64;
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + i + r * stride] = _mm512_reduce_add_ps(
                _mm512_add_ps(acc[r][c][0], acc[r][c][1]));
}

PLAIN_INLINE void plain_columns(const plain_format *f, const int n_rows, const cpu_rows *s,
                                int64_t i, int64_t stride, const cpu_act *x, float *y,
                                int64_t ldy) {
    int64_t col = 0;
    for (; col + PLAIN_COLS <= x->n_cols; col += PLAIN_COLS)
        plain_rows(f, n_rows, PLAIN_COLS, s, i, stride, x, col, y, ldy);
    for (; col < x->n_cols; col++) plain_rows(f, n_rows, 1, s, i, stride, x, col, y, ldy);
}

PLAIN_INLINE void plain_matvec(const plain_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                               int64_t ldy) {
    const int n_rows = x->n_cols == 1 ? PLAIN_ROWS : 2;
    int64_t n_groups = s->n / n_rows, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++) {
        int64_t i = rows_first(s, g, n_rows);
        if (n_rows == PLAIN_ROWS)
            plain_rows(f, PLAIN_ROWS, 1, s, i, stride, x, 0, y, ldy);
        else
            plain_columns(f, 2, s, i, stride, x, y, ldy);
    }
    for (int64_t i = n_groups * n_rows; i < s->n; i++) plain_columns(f, 1, s, i, 0, x, y, ldy);
}

/* ---- many columns: as in avx512_matmul.c, blocks of tiles against panels -------------------- */

/* Elements [k0, k1) of 16 rows -> [words][16 rows]; rows from row1 on repeat the last one. */
PLAIN_INLINE void plain_tile(const plain_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                             int64_t k0, int64_t k1, char *tile) {
    for (int64_t k = k0; k < k1; k += f->elems, tile += 16 * 64) {
        __m512i v[16];
        for (int r = 0; r < 16; r++) {
            int64_t from = row + r < row1 ? row + r : row1 - 1;
            const char *p = (const char *)w->data + (size_t)from * w->row_bytes + k * f->w_bytes;
            v[r] = k1 - k >= f->elems ? f->words(p, f->elems) : f->words(p, k1 - k);
        }
        avx512_transpose16(v);
        for (int i = 0; i < 16; i++) _mm512_store_si512(tile + 64 * i, v[i]);
    }
}

/* y += tile x panel over n words (y = when `first`), for the rows of `mask` and n_cols columns. */
PLAIN_INLINE void plain_product(const plain_format *f, const char *tile, const char *panel,
                                int64_t n, float *y, int64_t ldy, __mmask16 mask, int n_cols,
                                bool first) {
    __m512 acc[CPU_PANEL];
    for (int c = 0; c < CPU_PANEL; c++)
        acc[c] = first || c >= n_cols ? _mm512_setzero_ps()
                                      : _mm512_maskz_loadu_ps(mask, y + c * ldy);
    for (int64_t i = 0; i < n; i++, tile += 64, panel += 64) {
        const __m512i w = _mm512_load_si512(tile);
        const int32_t *x = (const int32_t *)(const void *)panel;
        for (int c = 0; c < CPU_PANEL; c++) acc[c] = f->dot(acc[c], w, _mm512_set1_epi32(x[c]));
    }
    for (int c = 0; c < CPU_PANEL; c++)
        if (c < n_cols) _mm512_mask_storeu_ps(y + c * ldy, mask, acc[c]);
}

PLAIN_INLINE void plain_matmul(const plain_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                               const cpu_act *x, float *y, int64_t ldy, char *scratch) {
    const int per_word = f->elems / 16;
    const int64_t block_k = (int64_t)PLAIN_STEPS * per_word,
                  block_rows = PLAIN_TILES * CPU_ROW_TILE;
    for (int64_t block = row0; block < row1; block += block_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += block_k) {
            int64_t k1 = k0 + block_k < w->n_in ? k0 + block_k : w->n_in;
            int64_t end = block + block_rows < row1 ? block + block_rows : row1;
            char *tile = scratch;
            for (int64_t row = block; row < end; row += CPU_ROW_TILE, tile += PLAIN_TILE_BYTES)
                plain_tile(f, w, row, row1, k0, k1, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const char *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / per_word * 64;
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end;
                     row += CPU_ROW_TILE, tile += PLAIN_TILE_BYTES) {
                    int64_t rows = end - row < CPU_ROW_TILE ? end - row : CPU_ROW_TILE;
                    plain_product(f, tile, panel, (k1 - k0 + per_word - 1) / per_word,
                                  y + col * ldy + row, ldy, (__mmask16)((1u << rows) - 1), n_cols,
                                  k0 == 0);
                }
            }
        }
}

#define PLAIN_DEFINE(name)                                                                         \
    ROWS_DEFINE(extern, avx512, name, plain_matvec)                                                \
    TIER_MATMUL_DEFINE(extern, avx512, name, plain_matmul)

#endif
