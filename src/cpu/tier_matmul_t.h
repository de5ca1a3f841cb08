/* tier_matmul_t.h: products over the rows of a matrix (one row per neuron) with many vectors. A
 * template: included after a tier's formats. With MT_PAIRS a word of a tile has the weights of two
 * rows, which mt_pack combines and mt_words multiplies; otherwise it is a float.
 *
 * Sums run over rows, so 16 neighbouring outputs are adjacent in memory, and a tile of
 * plain_product ([words][16 outputs]) is decoded without a transpose. `scratch` holds MT_COLS
 * outputs by MT_WORDS words and stays in L2 while all panels of 16 columns sweep over it.
 *
 * scratch: tiles[MT_COLS / 16], each MT_WORDS lines and one unused (see MT_TILE_BYTES). */
#ifndef CPU_TIER_MATMUL_T_H
#define CPU_TIER_MATMUL_T_H

#include "tier_floats.h"
#include "tier_plain.h"

#ifndef MT_PAIRS
#define MT_PAIRS 0
static const plain_format mt_words = PLAIN_F32;
SIMD_INLINE void mt_pack(const vf a[W_VECTORS], const vf b[W_VECTORS], vi out[W_VECTORS]) {
    (void)b;
    for (int i = 0; i < W_VECTORS; i++) out[i] = vi_of(a[i]);
}
#endif

enum {
    MT_PER_WORD = MT_PAIRS ? 2 : 1, /* rows */
    MT_COLS = 256,
    MT_WORDS = 256,
    /* One more line than a tile has: a row is written to all tiles at once, and with tiles at
     * multiples of a page its pieces would compete for a few sets of L1. */
    MT_TILE_BYTES = (MT_WORDS + 1) * PLAIN_LINE,
    MT_STEPS = MT_COLS / W_STEP,
    MT_AHEAD = 4 /* rows between a prefetch and its use */
};
_Static_assert((int)MT_COLS <= (int)Q_CHUNK && (int)MT_COLS <= (int)CPU_COL_TILE,
               "ranges are whole blocks of columns");
_Static_assert(MT_COLS / CPU_ROW_TILE * (int)MT_TILE_BYTES <= (int)CPU_SCRATCH_BYTES,
               "a block fits into scratch");

/* The rows of a word, starting n_left outputs before their end; the last outputs, when fewer than
 * MT_COLS, are copied and padded with zeros. */
typedef struct mt_rows {
    const uint8_t *p[MT_PER_WORD];
    w_scales scales[MT_PER_WORD];
    uint8_t tail[MT_PER_WORD][W_BYTES_MAX];
} mt_rows;

SIMD_INLINE void mt_open(const q_format *f, const uint8_t *p, size_t row_bytes, int64_t n_left,
                         const int n_rows, mt_rows *out) {
    for (int r = 0; r < n_rows; r++, p += row_bytes) {
        for (size_t b = 0; b < q_bytes(f, MT_COLS); b += 64)
            SIMD_PREFETCH((const char *)p + MT_AHEAD * row_bytes + b);
        out->p[r] = w_padded(f, p, n_left, out->tail[r]);
        w_store_scales(f, out->p[r], 1.0f, &out->scales[r]);
    }
}

/* MT_COLS outputs of n_rows rows (other rows of a word are zeros) into one line of each tile. */
SIMD_INLINE void mt_line(const q_format *f, const mt_rows *rows, const int n_rows, char *line) {
    SIMD_UNROLL
    for (int j = 0; j < MT_STEPS; j++) {
        vf v[2][W_VECTORS];
        vi words[W_VECTORS];
        for (int r = 0; r < MT_PER_WORD; r++) {
            if (r < n_rows) w_weights(f, rows->p[r], j, &rows->scales[r], v[r]);
            for (int i = 0; i < W_VECTORS && r >= n_rows; i++) v[r][i] = vf_zero();
        }
        mt_pack(v[0], v[1], words);
        for (int i = 0; i < W_VECTORS; i++) {
            const int at = W_STEP * j + VF_N * i;
            vi_store(line + at / CPU_ROW_TILE * MT_TILE_BYTES + at % CPU_ROW_TILE * 4, words[i]);
        }
    }
}

/* Multiplies all panels, from word n0 on, by the tiles of n words. A tier may define another sweep
 * and its name in MT_SWEEP. */
#ifndef MT_SWEEP
#define MT_SWEEP mt_sweep
static void mt_sweep(char *tiles, int64_t n0, int64_t n, int64_t outputs, const cpu_act *h,
                     float *y, int64_t ldy) {
    for (int64_t col = 0; col < h->n_cols; col += CPU_PANEL) {
        const char *panel = act_panel(h, col / CPU_PANEL), *tile = tiles;
        int n_cols = h->n_cols - col < CPU_PANEL ? (int)(h->n_cols - col) : CPU_PANEL;
        for (int64_t j = 0; j < outputs; j += CPU_ROW_TILE, tile += MT_TILE_BYTES)
            plain_product(&mt_words, tile, panel + n0 * 4 * CPU_PANEL, n, y + col * ldy + j, ldy,
                          outputs - j < CPU_ROW_TILE ? (int)(outputs - j) : CPU_ROW_TILE, n_cols,
                          n0 == 0);
    }
}
#endif

SIMD_INLINE void mt_run(const q_format *f, const cpu_mat *w, int64_t col0, int64_t col1,
                        const cpu_act *h, float *y, int64_t ldy, char *tiles) {
    for (int64_t j0 = col0; j0 < col1; j0 += MT_COLS) {
        int64_t outputs = col1 - j0 < MT_COLS ? col1 - j0 : MT_COLS;
        for (int64_t n0 = 0; n0 < w->n_out; n0 += MT_WORDS * MT_PER_WORD) {
            const int64_t left = w->n_out - n0,
                          n = left < MT_WORDS * MT_PER_WORD ? left : MT_WORDS * MT_PER_WORD;
            const uint8_t *p = (const uint8_t *)w->data + (size_t)n0 * w->row_bytes +
                               q_bytes(f, j0);
            char *line = tiles;
            mt_rows rows;
            int64_t i = 0;
            for (; i + MT_PER_WORD <= n; i += MT_PER_WORD, line += PLAIN_LINE) {
                mt_open(f, p, w->row_bytes, w->n_in - j0, MT_PER_WORD, &rows);
                mt_line(f, &rows, MT_PER_WORD, line);
                p += MT_PER_WORD * w->row_bytes;
            }
            if (i < n) {
                mt_open(f, p, w->row_bytes, w->n_in - j0, 1, &rows);
                mt_line(f, &rows, 1, line);
            }
            MT_SWEEP(tiles, n0 / MT_PER_WORD, (n + MT_PER_WORD - 1) / MT_PER_WORD, outputs, h,
                     y + j0, ldy);
        }
    }
}

#define MT_DEFINE(tier, name, format)                                                              \
    void tier##_matmul_t_##name(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,    \
                                float *y, int64_t ldy, void *scratch) {                            \
        mt_run(&format, w, col0, col1, h, y, ldy, scratch);                                        \
    }

#endif
