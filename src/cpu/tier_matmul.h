/* tier_matmul.h: the loops of products of quantized rows with many vectors. A template: each tier's
 * _matmul.h includes it once, after its q_format, mm_group and sizes, and defines how a tile is
 * unpacked and multiplied.
 *
 * MM_TILES tiles of MM_ROWS rows by MM_K elements are a block, which is unpacked once into scratch
 * and stays in L2. Panels of 16 columns sweep over it; a panel's elements stay in L1 for all tiles;
 * y is written once per MM_K elements.
 *
 * scratch: mm_group tiles[MM_TILES][MM_K_GROUPS]; an mm_group is 32 elements of MM_ROWS rows. */
#ifndef CPU_TIER_MATMUL_H
#define CPU_TIER_MATMUL_H

#include "simd.h"
#include "tiers.h"

_Static_assert(MM_TILES *MM_K_GROUPS * sizeof(mm_group) <= CPU_SCRATCH_BYTES, "scratch");

/* Unpacks elements [k0, k1) of rows [row, row + MM_ROWS) into a tile; rows from row1 on repeat the
 * last row, so that no row outside the range is read. */
SIMD_INLINE void mm_decode_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                int64_t k0, int64_t k1, mm_group *tile);
/* y += tile x panel (y = when `first`), for n_rows rows and n_cols columns. */
SIMD_INLINE void mm_tile(const q_format *f, const mm_group *tile, const act_q8_panel_group *x,
                         int64_t n_groups, float *y, int64_t ldy, int n_rows, int n_cols,
                         bool first);

SIMD_INLINE void mm_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                        const cpu_act *x, float *y, int64_t ldy, mm_group *scratch) {
    /* A single panel uses blocks of one tile, which is multiplied while it is in L1. */
    const int64_t n_rows = (x->n_cols <= CPU_PANEL ? 1 : MM_TILES) * MM_ROWS;
    for (int64_t block = row0; block < row1; block += n_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += MM_K) {
            int64_t k1 = k0 + MM_K < w->n_in ? k0 + MM_K : w->n_in;
            int64_t end = block + n_rows < row1 ? block + n_rows : row1;
            mm_group *tile = scratch;
            for (int64_t row = block; row < end; row += MM_ROWS, tile += MM_K_GROUPS)
                mm_decode_tile(f, w, row, row1, k0, k1, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const act_q8_panel_group *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / CPU_ACT_GROUP;
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end; row += MM_ROWS, tile += MM_K_GROUPS)
                    mm_tile(f, tile, panel, (k1 - k0) / CPU_ACT_GROUP, y + col * ldy + row, ldy,
                            end - row < MM_ROWS ? (int)(end - row) : MM_ROWS, n_cols, k0 == 0);
            }
        }
}

#endif
