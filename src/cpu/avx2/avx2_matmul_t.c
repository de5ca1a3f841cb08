/* avx2_matmul_t.c: products over the rows of a matrix (one row per neuron) with many vectors.
 *
 * The sum runs over rows, so neighbouring outputs lie side by side in memory already: a tile of 16
 * outputs, [rows][16], is decoded without a transpose. MT_COLS outputs by MT_ROWS rows lie in
 * `scratch` as floats, which stays in the second cache, while panels of 16 columns sweep over them;
 * the innermost product is 16 outputs by 4 columns.
 *
 * scratch: tiles[MT_COLS / 16], each MT_ROWS lines and one unused (see MT_TILE). */
#include "avx2_floats.h"
#include "avx2_mat.h"
#include "tiers.h"

enum {
    MT_COLS = 256, /* one chunk */
    MT_ROWS = 256,
    /* Floats; one line more than a tile has: a row goes to all tiles at once, and at multiples of a
     * page its pieces would share a few lines of the first cache. */
    MT_TILE = (MT_ROWS + 1) * 16,
    MT_AT_ONCE = 4, /* columns of a panel */
    MT_AHEAD = 4    /* rows from a prefetch to its use */
};
_Static_assert((int)MT_COLS == (int)Q_CHUNK && (int)MT_COLS <= (int)CPU_COL_TILE,
               "ranges are whole chunks");
_Static_assert(MT_COLS / 16 * MT_TILE * (int)sizeof(float) <= (int)CPU_SCRATCH_BYTES,
               "a block fits into scratch");

/* A row's piece of MT_COLS outputs, or of the last n_left of the row, into one line of each tile.
 */
AVX2_INLINE void mt_row(const w_format *f, const uint8_t *p, int64_t n_left, float *line) {
    uint8_t tail[W_BYTES_MAX];
    if (n_left < Q_CHUNK) {
        memset(tail, 0, (size_t)f->chunk_bytes);
        memcpy(tail, p, w_bytes(f, n_left));
        p = tail;
    }
    w_scales s;
    if (f->sub) w_store_scales(f, p, _mm256_set1_ps(1.0f), &s);
#pragma GCC unroll 8
    for (int g = 0; g < Q_GROUPS; g++) {
        __m256 v[W_VECTORS];
        f->group(p, g, &s, v);
        for (int i = 0; i < W_VECTORS; i++) {
            if (f->sub && !f->has_min)
                v[i] = _mm256_mul_ps(v[i], _mm256_set1_ps(s.d[f->sub == 16 ? 2 * g + i / 2 : g]));
            _mm256_store_ps(line + (2 * g + i / 2) * MT_TILE + 8 * (i % 2), v[i]);
        }
    }
}

/* y += tile x panel over n rows (y = when `first`). */
static void mt_product(const float *tile, const float *panel, int64_t n, float *y, int64_t ldy,
                       const __m256i mask[2], int n_cols, bool first) {
    for (int col = 0; col < n_cols; col += MT_AT_ONCE) {
        __m256 acc[MT_AT_ONCE][2];
        for (int c = 0; c < MT_AT_ONCE; c++)
            for (int i = 0; i < 2; i++)
                acc[c][i] = first || col + c >= n_cols
                                ? _mm256_setzero_ps()
                                : _mm256_maskload_ps(y + (col + c) * ldy + 8 * i, mask[i]);
        const float *x = panel + col;
        for (int64_t k = 0; k < n; k++, x += CPU_PANEL) {
            __m256 low = _mm256_load_ps(tile + 16 * k), high = _mm256_load_ps(tile + 16 * k + 8);
            for (int c = 0; c < MT_AT_ONCE; c++) {
                __m256 factor = _mm256_set1_ps(x[c]);
                acc[c][0] = _mm256_fmadd_ps(low, factor, acc[c][0]);
                acc[c][1] = _mm256_fmadd_ps(high, factor, acc[c][1]);
            }
        }
        for (int c = 0; c < MT_AT_ONCE && col + c < n_cols; c++)
            for (int i = 0; i < 2; i++)
                _mm256_maskstore_ps(y + (col + c) * ldy + 8 * i, mask[i], acc[c][i]);
    }
}

/* All panels against the tiles of rows [n0, n0 + n). */
static void mt_sweep(const float *tiles, int64_t n0, int64_t n, int64_t outputs, const cpu_act *h,
                     float *y, int64_t ldy) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t col = 0; col < h->n_cols; col += CPU_PANEL) {
        const float *panel = act_panel(h, col / CPU_PANEL);
        int n_cols = h->n_cols - col < CPU_PANEL ? (int)(h->n_cols - col) : CPU_PANEL;
        for (int64_t j = 0; j < outputs; j += 16) {
            int left = (int)(outputs - j);
            const __m256i mask[2] = {_mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes),
                                     _mm256_cmpgt_epi32(_mm256_set1_epi32(left - 8), lanes)};
            mt_product(tiles + j / 16 * MT_TILE, panel + n0 * CPU_PANEL, n, y + col * ldy + j, ldy,
                       mask, n_cols, n0 == 0);
        }
    }
}

AVX2_INLINE void mt_run(const w_format *f, const cpu_mat *w, int64_t col0, int64_t col1,
                        const cpu_act *h, float *y, int64_t ldy, float *tiles) {
    for (int64_t j0 = col0; j0 < col1; j0 += MT_COLS) {
        int64_t outputs = col1 - j0 < MT_COLS ? col1 - j0 : MT_COLS;
        for (int64_t n0 = 0; n0 < w->n_out; n0 += MT_ROWS) {
            int64_t n = w->n_out - n0 < MT_ROWS ? w->n_out - n0 : MT_ROWS;
            const uint8_t *p = (const uint8_t *)w->data + (size_t)n0 * w->row_bytes +
                               w_bytes(f, j0);
            for (int64_t i = 0; i < n; i++, p += w->row_bytes) {
                for (int b = 0; b < f->chunk_bytes; b += 64)
                    _mm_prefetch((const char *)p + MT_AHEAD * w->row_bytes + b, _MM_HINT_T0);
                mt_row(f, p, w->n_in - j0, tiles + 16 * i);
            }
            mt_sweep(tiles, n0, n, outputs, h, y + j0, ldy);
        }
    }
}

#define MT_DEFINE(type, format)                                                                    \
    void avx2_matmul_t_##format(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,    \
                                float *y, int64_t ldy, void *scratch) {                            \
        mt_run(&w_##format, w, col0, col1, h, y, ldy, scratch);                                    \
    }
TIER_TYPES(MT_DEFINE)
