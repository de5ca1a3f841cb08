/* tier_plain.h: products of unquantized rows (F32, F16, BF16). A template: each tier's _plain.c
 * includes it once.
 *
 * Both kernels use vectors of VF_N words of 4 bytes: a word is a float, or a pair of bfloat16
 * (which are converted to floats when they are multiplied, or are the input of a dot unit).
 * Activations have the same words, in columns and in panels. The ends of rows are copied into a
 * vector of zeros. */
#ifndef CPU_TIER_PLAIN_H
#define CPU_TIER_PLAIN_H

#include <string.h>

#include "act.h"
#include "rows.h"
#include "simd.h"
#include "tier_table.h"
#include "tiers.h"

typedef struct plain_format {
    int elems;   /* elements of a vector: VF_N or 2 VF_N */
    int w_bytes; /* bytes per element of a row */
    vi (*words)(const char *row);
    vf (*dot)(vf acc, vi w, vi x);
    vf (*dot_lane)(vf acc, vi w, vi_four x, int i); /* multiplies with word i of x */
} plain_format;

enum {
    PLAIN_ROWS = 4,     /* rows at once: separate streams, which share a column's loads */
    PLAIN_COLS = 4,     /* maximum columns that share a row's loads */
    PLAIN_ACC = 2,      /* vectors in flight per column, to hide the latency of fma */
    PLAIN_AHEAD = 2048, /* bytes of prefetch */
    PLAIN_PARTS = CPU_ROW_TILE / VF_N, /* vectors of the rows of a tile */
    PLAIN_SUMS = VF_N == 16 ? 16 : 4, /* columns of a tile's product: the sums fit into registers */
    PLAIN_VECTOR = 4 * VF_N,          /* bytes */
    PLAIN_LINE = 4 * CPU_ROW_TILE,    /* bytes: a word of all rows of a tile */
    PLAIN_TILES = 8,                  /* rows of a block of matmul: 8 x 16 */
    PLAIN_STEPS = 512,                /* words of a row in a block: 32 KiB of a panel */
    PLAIN_TILE_BYTES = PLAIN_STEPS * PLAIN_LINE
};
_Static_assert(PLAIN_TILES *PLAIN_TILE_BYTES <= CPU_SCRATCH_BYTES, "a block fits into scratch");

/* ---- formats -------------------------------------------------------------------------------- */

SIMD_INLINE vi plain_load(const char *row) {
    return vi_load(row);
}
SIMD_INLINE vi plain_load_f16(const char *row) {
    return vi_of(vf_load_f16(row));
}
SIMD_INLINE vf plain_dot(vf acc, vi w, vi x) {
    return vf_fma(vf_of(w), vf_of(x), acc);
}
SIMD_INLINE vf plain_dot_lane(vf acc, vi w, vi_four x, int i) {
    return vf_fma_lane(vf_of(w), x, i, acc);
}
SIMD_INLINE vf plain_dot_bf16(vf acc, vi w, vi x) {
    acc = vf_fma(vf_low_bf16(w), vf_low_bf16(x), acc);
    return vf_fma(vf_high_bf16(w), vf_high_bf16(x), acc);
}
SIMD_INLINE vf plain_dot_lane_bf16(vf acc, vi w, vi_four x, int i) {
    acc = vf_fma_lane_low(vf_low_bf16(w), x, i, acc);
    return vf_fma_lane_high(vf_high_bf16(w), x, i, acc);
}

#define PLAIN_F32                                                                                  \
    { VF_N, 4, plain_load, plain_dot, plain_dot_lane }
#define PLAIN_F16                                                                                  \
    { VF_N, 2, plain_load_f16, plain_dot, plain_dot_lane }
#define PLAIN_BF16                                                                                 \
    { 2 * VF_N, 2, plain_load, plain_dot_bf16, plain_dot_lane_bf16 }

/* The vector at p; only `left` elements belong to the row. */
SIMD_INLINE vi plain_words(const plain_format *f, const char *p, int64_t left) {
    if (left >= f->elems) return f->words(p);
    char buffer[PLAIN_VECTOR] = {0};
    if (left > 0) memcpy(buffer, p, (size_t)left * (size_t)f->w_bytes);
    return f->words(buffer);
}

/* ---- few columns: one row of each quarter of the range at once ------------------------------- */

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). The prefetch is
 * PLAIN_AHEAD bytes ahead and continues in the stream's next row. */
SIMD_INLINE void plain_rows(const plain_format *f, const int n_rows, const int n_cols,
                            const cpu_rows *s, int64_t i, int64_t stride, const cpu_act *act,
                            int64_t col, float *y, int64_t ldy) {
    const int64_t n_in = s->w->n_in;
    const char *p[PLAIN_ROWS], *ahead[PLAIN_ROWS], *x[PLAIN_COLS];
    vf acc[PLAIN_ROWS][PLAIN_COLS][PLAIN_ACC];
    const int vector_bytes = f->elems * f->w_bytes, step_bytes = vector_bytes * PLAIN_ACC;
    const int64_t step = (int64_t)f->elems * PLAIN_ACC, all = (n_in + step - 1) / step;
    const int64_t near = PLAIN_AHEAD / step_bytes, lead = near < all ? near : all;
    for (int c = 0; c < n_cols; c++) x[c] = act_column(act, col + c);
    for (int r = 0; r < n_rows; r++) {
        p[r] = (const char *)rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * step_bytes;
        for (int c = 0; c < n_cols; c++)
            for (int v = 0; v < PLAIN_ACC; v++) acc[r][c][v] = vf_zero();
    }
    int64_t k = 0;
    for (; k + step <= n_in; k += step) {
        if (k == (all - lead) * step)
            for (int r = 0; r < n_rows; r++)
                ahead[r] = (const char *)rows_next(s, i + r * stride, n_rows);
        for (int r = 0; r < n_rows; r++) {
            for (int line = 0; line < step_bytes; line += 64) SIMD_PREFETCH(ahead[r] + line);
            for (int v = 0; v < PLAIN_ACC; v++) {
                vi words = f->words(p[r] + v * vector_bytes);
                for (int c = 0; c < n_cols; c++)
                    acc[r][c][v] = f->dot(acc[r][c][v], words, vi_load(x[c] + PLAIN_VECTOR * v));
            }
            p[r] += step_bytes;
            ahead[r] += step_bytes;
        }
        for (int c = 0; c < n_cols; c++) x[c] += PLAIN_VECTOR * PLAIN_ACC;
    }
    for (int v = 0; k < n_in; k += f->elems, v++)
        for (int r = 0; r < n_rows; r++) {
            vi words = plain_words(f, p[r] + v * vector_bytes, n_in - k);
            for (int c = 0; c < n_cols; c++)
                acc[r][c][v] = f->dot(acc[r][c][v], words, vi_load(x[c] + PLAIN_VECTOR * v));
        }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + i + r * stride] = vf_hsum(vf_add(acc[r][c][0], acc[r][c][1]));
}

/* Rows of a tile at once: the sums fit into registers. AVX2 has only 16 registers, and converts
 * pairs of bfloat16 for each product. */
SIMD_INLINE int plain_tile_rows(const plain_format *f) {
    return VF_N == 8 && f->elems > VF_N ? 1 : 2;
}
SIMD_INLINE int plain_tile_cols(const plain_format *f) {
    return VF_N == 8 && f->elems == VF_N ? 2 : PLAIN_COLS;
}

/* Columns that do not fill a tile are computed one by one. */
SIMD_INLINE void plain_columns(const plain_format *f, const int n_rows, const cpu_rows *s,
                               int64_t i, int64_t stride, const cpu_act *x, float *y, int64_t ldy) {
    const int cols = plain_tile_cols(f), rows = n_rows > 1 ? plain_tile_rows(f) : 1;
    const int64_t tiled = x->n_cols - x->n_cols % cols;
    for (int r = 0; r < n_rows; r += rows)
        for (int64_t col = 0; col < tiled; col += cols)
            plain_rows(f, rows, cols, s, i + r * stride, stride, x, col, y, ldy);
    for (int64_t col = tiled; col < x->n_cols; col++)
        plain_rows(f, n_rows, 1, s, i, stride, x, col, y, ldy);
}

SIMD_INLINE void plain_matvec(const plain_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                              int64_t ldy) {
    const int64_t n_groups = s->n / PLAIN_ROWS, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++)
        plain_columns(f, PLAIN_ROWS, s, rows_first(s, g, PLAIN_ROWS), stride, x, y, ldy);
    for (int64_t i = n_groups * PLAIN_ROWS; i < s->n; i++) plain_columns(f, 1, s, i, 0, x, y, ldy);
}

/* ---- many columns: blocks of tiles times panels, as in tier_matmul.h ------------------------- */

/* Elements [k0, k1) of 16 rows -> [words][16 rows]; rows from row1 on repeat the last one. */
SIMD_INLINE void plain_tile(const plain_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                            int64_t k0, int64_t k1, char *tile) {
    for (int64_t k = k0; k < k1; k += f->elems, tile += VF_N * PLAIN_LINE)
        for (int h = 0; h < PLAIN_PARTS; h++) {
            vi v[VF_N];
            for (int r = 0; r < VF_N; r++) {
                int64_t at = row + VF_N * h + r, from = at < row1 ? at : row1 - 1;
                v[r] = plain_words(
                    f, (const char *)w->data + (size_t)from * w->row_bytes + k * f->w_bytes,
                    k1 - k);
            }
            vi_transpose(v);
            for (int i = 0; i < VF_N; i++) vi_store(tile + PLAIN_LINE * i + PLAIN_VECTOR * h, v[i]);
        }
}

/* Number of the n rows that are in part h of a tile. */
SIMD_INLINE int plain_part(int n, int h) {
    int left = n - h * VF_N;
    return left < 0 ? 0 : left < VF_N ? left : VF_N;
}

/* y += tile x panel over n words (y = when `first`), for n_rows rows and n_cols columns. */
SIMD_INLINE void plain_product(const plain_format *f, const char *tile, const char *panel,
                               int64_t n, float *y, int64_t ldy, int n_rows, int n_cols,
                               bool first) {
    for (int col = 0; col < n_cols; col += PLAIN_SUMS) {
        const char *t = tile, *x = panel + 4 * col;
        vf acc[PLAIN_SUMS][PLAIN_PARTS];
        for (int c = 0; c < PLAIN_SUMS; c++)
            for (int h = 0; h < PLAIN_PARTS; h++)
                acc[c][h] = first || col + c >= n_cols
                                ? vf_zero()
                                : vf_load_part(y + (col + c) * ldy + VF_N * h,
                                               plain_part(n_rows, h));
        for (; t < tile + n * PLAIN_LINE; t += PLAIN_LINE, x += 4 * CPU_PANEL) {
            vi w[PLAIN_PARTS];
            for (int h = 0; h < PLAIN_PARTS; h++) w[h] = vi_load(t + PLAIN_VECTOR * h);
            SIMD_UNROLL
            for (int c = 0; c < PLAIN_SUMS; c += 4) {
                const vi_four four = vi_load_four(x + 4 * c);
                SIMD_UNROLL
                for (int j = 0; j < 4; j++)
                    for (int h = 0; h < PLAIN_PARTS; h++)
                        acc[c + j][h] = f->dot_lane(acc[c + j][h], w[h], four, j);
            }
        }
        for (int c = 0; c < PLAIN_SUMS; c++)
            for (int h = 0; h < PLAIN_PARTS && col + c < n_cols; h++)
                vf_store_part(y + (col + c) * ldy + VF_N * h, acc[c][h], plain_part(n_rows, h));
    }
}

SIMD_INLINE void plain_matmul(const plain_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                              const cpu_act *x, float *y, int64_t ldy, char *scratch) {
    const int per_word = f->elems / VF_N;
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
                panel += k0 / per_word * 4 * CPU_PANEL;
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end; row += CPU_ROW_TILE, tile += PLAIN_TILE_BYTES)
                    plain_product(f, tile, panel, (k1 - k0 + per_word - 1) / per_word,
                                  y + col * ldy + row, ldy,
                                  end - row < CPU_ROW_TILE ? (int)(end - row) : CPU_ROW_TILE,
                                  n_cols, k0 == 0);
            }
        }
}

/* Defines the kernels of a tier for a type; its plain_format is NAME_format. */
#define PLAIN_DEFINE(tier, name)                                                                   \
    ROWS_DEFINE(extern, tier, name, plain_matvec)                                                  \
    TIER_MATMUL_DEFINE(extern, tier, name, plain_matmul)

#endif
