/* neon_matmul_t.c: products over the rows of a matrix (one row per neuron) with many vectors.
 *
 * The sum runs over rows, so neighbouring outputs lie side by side in memory already: a tile of 16
 * outputs, [rows][16], is decoded without a transpose. MT_COLS outputs by MT_ROWS rows lie in
 * `scratch` as floats, which stays in the second cache, while panels of 16 columns sweep over them;
 * the innermost product is 16 outputs by 4 columns.
 *
 * scratch: tiles[MT_COLS / 16], each MT_ROWS lines and one unused (see MT_TILE). */
#include "neon_floats.h"
#include "neon_mat.h"
#include "tiers.h"

enum {
    MT_COLS = 256, /* eight groups */
    MT_ROWS = 256,
    /* Floats; one line more than a tile has: a row goes to all tiles at once, and at multiples of a
     * page its pieces would share a few lines of the first cache. */
    MT_TILE = (MT_ROWS + 1) * 16,
    MT_AT_ONCE = 4, /* columns of a panel */
    MT_AHEAD = 4    /* rows from a prefetch to its use */
};
_Static_assert((int)MT_COLS % (Q_GROUPS_MAX * W_GROUP) == 0 && (int)MT_COLS <= (int)CPU_COL_TILE,
               "ranges are whole blocks");
_Static_assert(MT_COLS / 16 * MT_TILE * (int)sizeof(float) <= (int)CPU_SCRATCH_BYTES,
               "a block fits into scratch");

/* n outputs of a row (the row ends there when they are no whole block) into one line of each tile.
 */
NEON_INLINE void mt_row(const w_format *f, const uint8_t *p, int64_t n, float *line) {
    for (int64_t j = 0; j < n; j += w_elems(f), p += f->block_bytes) {
        uint8_t copy[W_PLAIN_BYTES_MAX];
        const uint8_t *block = w_block(f, p, n - j, copy);
        q_scales s;
        if (f->sub) f->scales(block, &s);
#pragma GCC unroll 8
        for (int g = 0; g < f->groups; g++) {
            float32x4_t v[W_VECTORS];
            f->group(block, g, v);
            for (int i = 0; i < W_VECTORS; i++) {
                int64_t at = j + W_GROUP * g + 4 * i;
                if (f->has_min)
                    v[i] = vfmaq_n_f32(vdupq_n_f32(-s.m[2 * g + i / 4]), v[i], s.d[2 * g + i / 4]);
                else if (f->sub)
                    v[i] = vmulq_n_f32(v[i], s.d[2 * g + i / 4]);
                vst1q_f32(line + at / 16 * MT_TILE + at % 16, v[i]);
            }
        }
    }
}

/* y += tile x panel over n rows (y = when `first`), n_out outputs of 16. */
static void mt_product(const float *tile, const float *panel, int64_t n, float *y, int64_t ldy,
                       int n_out, int n_cols, bool first) {
    for (int col = 0; col < n_cols; col += MT_AT_ONCE) {
        float32x4_t acc[MT_AT_ONCE][4];
        for (int c = 0; c < MT_AT_ONCE; c++) {
            float from[16] = {0};
            if (!first && col + c < n_cols)
                memcpy(from, y + (col + c) * ldy, (size_t)n_out * sizeof *y);
            for (int i = 0; i < 4; i++) acc[c][i] = vld1q_f32(from + 4 * i);
        }
        for (int64_t k = 0; k < n; k++) {
            float32x4_t x = vld1q_f32(panel + k * CPU_PANEL + col);
            for (int i = 0; i < 4; i++) {
                float32x4_t v = vld1q_f32(tile + 16 * k + 4 * i);
                /* spelt out: lane numbers are part of the instruction */
                acc[0][i] = vfmaq_laneq_f32(acc[0][i], v, x, 0);
                acc[1][i] = vfmaq_laneq_f32(acc[1][i], v, x, 1);
                acc[2][i] = vfmaq_laneq_f32(acc[2][i], v, x, 2);
                acc[3][i] = vfmaq_laneq_f32(acc[3][i], v, x, 3);
            }
        }
        for (int c = 0; c < MT_AT_ONCE && col + c < n_cols; c++) {
            float to[16];
            for (int i = 0; i < 4; i++) vst1q_f32(to + 4 * i, acc[c][i]);
            memcpy(y + (col + c) * ldy, to, (size_t)n_out * sizeof *y);
        }
    }
}

/* All panels against the tiles of rows [n0, n0 + n). */
static void mt_sweep(const float *tiles, int64_t n0, int64_t n, int64_t outputs, const cpu_act *h,
                     float *y, int64_t ldy) {
    for (int64_t col = 0; col < h->n_cols; col += CPU_PANEL) {
        const float *panel = act_panel(h, col / CPU_PANEL);
        int n_cols = h->n_cols - col < CPU_PANEL ? (int)(h->n_cols - col) : CPU_PANEL;
        for (int64_t j = 0; j < outputs; j += 16)
            mt_product(tiles + j / 16 * MT_TILE, panel + n0 * CPU_PANEL, n, y + col * ldy + j, ldy,
                       outputs - j < 16 ? (int)(outputs - j) : 16, n_cols, n0 == 0);
    }
}

NEON_INLINE void mt_run(const w_format *f, const cpu_mat *w, int64_t col0, int64_t col1,
                        const cpu_act *h, float *y, int64_t ldy, float *tiles) {
    for (int64_t j0 = col0; j0 < col1; j0 += MT_COLS) {
        int64_t outputs = col1 - j0 < MT_COLS ? col1 - j0 : MT_COLS;
        for (int64_t n0 = 0; n0 < w->n_out; n0 += MT_ROWS) {
            int64_t n = w->n_out - n0 < MT_ROWS ? w->n_out - n0 : MT_ROWS;
            const uint8_t *p = (const uint8_t *)w->data + (size_t)n0 * w->row_bytes +
                               w_bytes(f, j0);
            for (int64_t i = 0; i < n; i++, p += w->row_bytes) {
                for (size_t b = 0; b < w_bytes(f, MT_COLS); b += W_LINE)
                    NEON_PREFETCH(p + MT_AHEAD * w->row_bytes + b);
                mt_row(f, p, outputs, tiles + 16 * i);
            }
            mt_sweep(tiles, n0, n, outputs, h, y + j0, ldy);
        }
    }
}

#define MT_DEFINE(type, format)                                                                    \
    void neon_matmul_t_##format(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,    \
                                float *y, int64_t ldy, void *scratch) {                            \
        mt_run(&w_##format, w, col0, col1, h, y, ldy, scratch);                                    \
    }
TIER_TYPES(MT_DEFINE)
