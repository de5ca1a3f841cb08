/* avx512_matmul_t.h: products over the rows of a matrix (one row per neuron) with many vectors. A
 * template, compiled once with float words and once with pairs for the bf16 dot unit.
 *
 * The sum runs over rows, so 16 neighbouring outputs lie side by side in memory already, and a tile
 * of plain_product ([words][16 outputs], a word being one weight or those of two rows) is decoded
 * without a transpose: MT_COLS outputs by MT_WORDS words lie in `scratch`, which stays in the
 * second cache, while all panels of 16 columns sweep over them.
 *
 * scratch: tiles[MT_COLS / 16], each MT_WORDS vectors and one unused (see MT_TILE_BYTES). */
#ifndef CPU_AVX512_MATMUL_T_H
#define CPU_AVX512_MATMUL_T_H

#include "avx512_floats.h"
#include "avx512_plain.h"

enum {
    MT_COLS = 256,
    MT_WORDS = 256,
    /* One vector more than a tile has: a row's vectors go to all tiles at once, and at multiples of
     * a page they would share a few lines of the first cache. */
    MT_TILE_BYTES = (MT_WORDS + 1) * 64,
    MT_STEPS = MT_COLS / 64,
    MT_AHEAD = 4 /* rows from a prefetch to its use */
};
_Static_assert((int)MT_COLS <= (int)Q_CHUNK && (int)MT_COLS <= (int)CPU_COL_TILE,
               "ranges are whole blocks of columns");
_Static_assert(MT_COLS / 16 * (int)MT_TILE_BYTES <= (int)CPU_SCRATCH_BYTES,
               "a block fits into scratch");

/* Four vectors of weights of two neighbouring rows as words. */
typedef void (*mt_pack)(const __m512 a[W_VECTORS], const __m512 b[W_VECTORS],
                        __m512i out[W_VECTORS]);

/* A row's piece of MT_COLS outputs, or of the last n_left of the row, as weights: v[step][vector].
 */
AVX512_INLINE void mt_row(const w_format *f, const uint8_t *p, int64_t n_left, int steps,
                          __m512 v[MT_STEPS][W_VECTORS]) {
    uint8_t tail[W_BYTES_MAX];
    if (n_left < Q_CHUNK) {
        memset(tail, 0, (size_t)f->chunk_bytes);
        memcpy(tail, p, w_bytes(f, n_left));
        p = tail;
    }
    w_scales scales;
    if (f->sub) w_store_scales(f, p, _mm512_set1_ps(1.0f), &scales);
    for (int j = 0; j < steps; j++) {
        f->step(p, j, &scales, v[j]);
        for (int i = 0; i < W_VECTORS && f->sub && !f->has_min; i++) {
            int k = f->sub == 16 ? 4 * j + i : 2 * j + i / 2;
            v[j][i] = _mm512_mul_ps(v[j][i], _mm512_set1_ps(scales.d[k]));
        }
    }
}

/* Rows [n0, n1), outputs from j0 on, into tiles. A missing second row of a pair is zeros. */
AVX512_INLINE void mt_decode(const w_format *f, const mt_pack pack, const cpu_mat *w, int64_t n0,
                             int64_t n1, int64_t j0, int steps, char *tiles) {
    const uint8_t *p = (const uint8_t *)w->data + (size_t)n0 * w->row_bytes + w_bytes(f, j0);
    const size_t ahead = MT_AHEAD * w->row_bytes;
    for (int64_t n = n0; n < n1; n += pack ? 2 : 1, tiles += 64) {
        __m512 v[2][MT_STEPS][W_VECTORS];
        for (int r = 0; r < (pack ? 2 : 1); r++) {
            if (n + r < n1) {
                for (size_t b = 0; b < w_bytes(f, MT_COLS); b += 64)
                    _mm_prefetch((const char *)p + ahead + b, _MM_HINT_T0);
                mt_row(f, p, w->n_in - j0, steps, v[r]);
            } else {
                memset(v[r], 0, sizeof v[r]);
            }
            p += w->row_bytes;
        }
        for (int j = 0; j < steps; j++) {
            __m512i words[W_VECTORS];
            if (pack)
                pack(v[0][j], v[1][j], words);
            else
                memcpy(words, v[0][j], sizeof words);
            for (int i = 0; i < W_VECTORS; i++)
                _mm512_store_si512(tiles + (W_VECTORS * j + i) * MT_TILE_BYTES, words[i]);
        }
    }
}

AVX512_INLINE void mt_run(const w_format *f, const plain_format *dot, const mt_pack pack,
                          const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h, float *y,
                          int64_t ldy, char *scratch) {
    const int per_word = pack ? 2 : 1;
    for (int64_t j0 = col0; j0 < col1; j0 += MT_COLS) {
        int64_t outputs = col1 - j0 < MT_COLS ? col1 - j0 : MT_COLS;
        for (int64_t n0 = 0; n0 < w->n_out; n0 += MT_WORDS * per_word) {
            int64_t left = w->n_out - n0,
                    n = left < MT_WORDS * per_word ? left : MT_WORDS * per_word;
            mt_decode(f, pack, w, n0, n0 + n, j0, (int)(outputs + 63) / 64, scratch);
            for (int64_t col = 0; col < h->n_cols; col += CPU_PANEL) {
                const char *panel = act_panel(h, col / CPU_PANEL);
                panel += n0 / per_word * 64;
                int n_cols = h->n_cols - col < CPU_PANEL ? (int)(h->n_cols - col) : CPU_PANEL;
                const char *tile = scratch;
                for (int64_t j = 0; j < outputs; j += 16, tile += MT_TILE_BYTES) {
                    __mmask16 mask = (__mmask16)plain_mask(outputs - j);
                    plain_product(dot, tile, panel, (n + per_word - 1) / per_word,
                                  y + col * ldy + j0 + j, ldy, mask, n_cols, n0 == 0);
                }
            }
        }
    }
}

#define MT_DEFINE(name, format, dot, pack)                                                         \
    void name##_matmul_t_##format(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,  \
                                  float *y, int64_t ldy, void *scratch) {                          \
        mt_run(&w_##format, dot, pack, w, col0, col1, h, y, ldy, scratch);                         \
    }

#endif
