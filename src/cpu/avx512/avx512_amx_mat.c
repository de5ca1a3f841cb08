/* avx512_amx_mat.c: matmul by the tile unit (AMX-BF16), for BF16 and quantized rows: weights and
 * activations are rounded to bfloat16, sums are floats.
 *
 * The unit multiplies 16 rows of 32 weights by 32 elements of 16 columns in 16 cycles. The first
 * factor is a step of a tile as it is unpacked, rows of 64 bytes; the second is a panel's words as
 * they lie in memory. Two tiles by two panels are multiplied at once, with sums in four tile
 * registers.
 *
 * A block of AMX_TILES tiles by AMX_K elements lies in `scratch`, which stays in the second cache,
 * while panels of 16 columns sweep over it. Sums are [row][column], y is [column][row]: as long as
 * further elements follow, the place of 16 by 16 numbers in y holds them as they are; the last time
 * they are transposed.
 *
 * A single panel is left to the int8 and bf16 units of AVX-512, for which rows are unpacked faster.
 *
 * scratch: tiles[AMX_TILES][AMX_K / 32][16 rows][32] of bfloat16. */
#include "avx512_amx.h"
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "tier_floats.h"
#include "tiers.h"

enum {
    AMX_TILES = 16,
    AMX_K = Q_CHUNK,
    AMX_TILE_BYTES = AMX_K / AMX_DEPTH * AMX_STEP_BYTES,
};
_Static_assert(AMX_TILES *AMX_TILE_BYTES <= CPU_SCRATCH_BYTES, "scratch");

/* ---- unpacking ------------------------------------------------------------------------------- */

/* 512 weights of a row into its lines of a tile. */
AVX512_INLINE void amx_unpack_row(const q_format *f, const uint8_t *chunk, uint8_t *line) {
    w_scales scales;
    w_store_scales(f, chunk, 1.0f, &scales);
#pragma GCC unroll 8
    for (int j = 0; j < W_STEPS; j++) {
        vf v[W_VECTORS];
        w_weights(f, chunk, j, &scales, v);
        for (int i = 0; i < W_VECTORS; i += 2, line += AMX_STEP_BYTES)
            _mm512_store_si512(line, (__m512i)_mm512_cvtne2ps_pbh(v[i + 1], v[i]));
    }
}

/* Elements [k0, k1), one chunk, of rows [row, row + 16) into a tile, while what follows is
 * prefetched: the next tile. Rows from row1 on repeat the last one, so that nothing outside of the
 * range is read. */
AVX512_INLINE void amx_unpack_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                   int64_t k0, int64_t k1, uint8_t *tile) {
    for (int r = 0; r < AMX_ROWS; r++) {
        const int64_t from = row + r < row1 ? row + r : row1 - 1;
        const uint8_t *p = (const uint8_t *)w->data + (size_t)from * w->row_bytes + q_bytes(f, k0);
        for (int at = 0; at < f->chunk_bytes; at += 64)
            _mm_prefetch((const char *)p + AMX_ROWS * w->row_bytes + at, _MM_HINT_T0);
        uint8_t tail[W_BYTES_MAX];
        amx_unpack_row(f, w_padded(f, p, k1 - k0, tail), tile + r * 64);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Sums are [row][column], the other way round than y. */
AVX512_INLINE void amx_end_rows(const int sums, const amx_place *p) {
    if (amx_is_whole(p) && !p->last) {
        amx_store(sums, p->y, p->ldy);
        return;
    }
    _Alignas(64) float t[AMX_ROWS][CPU_PANEL];
    amx_store(sums, t[0], CPU_PANEL);
    __m512i v[AMX_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < AMX_ROWS; r++) v[r] = _mm512_load_si512(t[r]);
    vi_transpose(v);
    const __mmask16 there = amx_mask(p);
    const bool add = !p->first && !amx_is_whole(p);
#pragma GCC unroll 16
    for (int c = 0; c < CPU_PANEL; c++) {
        if (c == p->n_cols) break;
        amx_put(p->y + c * p->ldy, there, _mm512_castsi512_ps(v[c]), add);
    }
}

typedef void amx_unpack(const cpu_mat *w, int64_t row, int64_t row1, int64_t k0, int64_t k1,
                        uint8_t *tile);

/* Elements [k0, k1) of rows [row, end), a block in `tiles`, times all panels. */
static void amx_sweep(const uint8_t *tiles, int64_t row, int64_t end, int64_t k0, int64_t k1,
                      const cpu_act *x, float *y, int64_t ldy) {
    const size_t panel_bytes = act_panel_bytes(CPU_ACT_BF16, x->n);
    for (int64_t col = 0; col < x->n_cols; col += 2 * CPU_PANEL) {
        const char *panel = (const char *)act_panel(x, col / CPU_PANEL) + k0 / 2 * CPU_PANEL * 4;
        const uint8_t *tile = tiles;
        for (int64_t r = row; r < end; r += 2 * AMX_ROWS, tile += 2 * AMX_TILE_BYTES) {
            amx_place p[2][2];
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    p[i][k] = amx_place_at(y, ldy, r + i * AMX_ROWS, end, col + k * CPU_PANEL,
                                           x->n_cols, k0 == 0, k1 == x->n);
            amx_products((const void *const[2]){tile, tile + AMX_TILE_BYTES},
                         (const void *const[2]){panel, panel + panel_bytes}, (k1 - k0) / AMX_DEPTH,
                         p, amx_end_rows);
        }
    }
}

static void amx_run(amx_unpack *unpack, const cpu_mat *w, int64_t row0, int64_t row1,
                    const cpu_act *x, float *y, int64_t ldy, uint8_t *scratch) {
    amx_open();
    for (int64_t row = row0; row < row1; row += AMX_TILES * AMX_ROWS)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += AMX_K) {
            const int64_t k1 = k0 + AMX_K < w->n_in ? k0 + AMX_K : w->n_in;
            const int64_t end = row + AMX_TILES * AMX_ROWS < row1 ? row + AMX_TILES * AMX_ROWS
                                                                  : row1;
            uint8_t *tile = scratch;
            for (int64_t r = row; r < end; r += AMX_ROWS, tile += AMX_TILE_BYTES)
                unpack(w, r, row1, k0, k1, tile);
            amx_sweep(scratch, row, end, k0, k1, x, y, ldy);
        }
    _tile_release();
}

#define DEFINE(name, format)                                                                       \
    static void name##_unpack(const cpu_mat *w, int64_t row, int64_t row1, int64_t k0, int64_t k1, \
                              uint8_t *tile) {                                                     \
        amx_unpack_tile(&format, w, row, row1, k0, k1, tile);                                      \
    }                                                                                              \
    static void amx_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,  \
                                  float *y, int64_t ldy, void *scratch) {                          \
        if (x->n_cols <= CPU_PANEL || w->n_in % AMX_DEPTH != 0)                                    \
            avx512_matmul_##name(w, row0, row1, x, y, ldy, scratch);                               \
        else                                                                                       \
            amx_run(name##_unpack, w, row0, row1, x, y, ldy, scratch);                             \
    }
#define QUANTIZED(type, name, ...) DEFINE(name, name##_format)
QUANT_BLOCKS(QUANTIZED)
DEFINE(bf16, bf16_weights)

#define ENTRY(type, name, ...)                                                                     \
    k->mat[QUANT_##type].act = CPU_ACT_Q8_BF16;                                                    \
    k->mat[QUANT_##type].matmul = amx_matmul_##name;

void cpu_init_avx512_amx_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    k->mat[QUANT_BF16].matmul = amx_matmul_bf16;
    k->tiled[CPU_ACT_Q8_BF16] = k->tiled[CPU_ACT_Q8];
    k->tiled[CPU_ACT_Q8_BF16].products_per_ns = 450;
    k->tiled[CPU_ACT_BF16].products_per_ns = 450;
}
