/* avx512_amx_mat.c: matmul by the tile unit (AMX-BF16). For BF16 and quantized rows, weights and
 * activations are rounded to bfloat16. An F16 weight is exactly the sum of two bfloat16, an
 * activation nearly (CPU_ACT_F32_SPLIT), and three products of these parts are added. Sums are
 * floats.
 *
 * The unit multiplies 16 rows of 32 weights by 32 elements of 16 columns in 16 cycles. The first
 * factor is a step of an unpacked tile, rows of 64 bytes; the second factor is a panel's words as
 * stored. Two tiles are multiplied by two panels at once, with sums in four tile registers.
 *
 * A block of AMX_TILES tiles by AMX_K elements is in `scratch`, which stays in L2, while panels of
 * 16 columns sweep over it. Sums are [row][column], y is [column][row]: until the last elements,
 * the 16 by 16 sums are stored untransposed in their place in y; the last time they are transposed.
 *
 * A single panel uses the int8 and bf16 units of AVX-512, because unpacking for them is faster.
 *
 * scratch: tiles[AMX_TILES][AMX_K / 32][16 rows][32] of bfloat16; with two parts half as many
 * tiles, [AMX_K / 32][2]. */
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

/* Stores 32 floats as bfloat16; with `split` also their remainders. */
AVX512_INLINE void amx_store_weights(vf a, vf b, const bool split, uint8_t *line) {
    const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    _mm512_store_si512(line, high);
    if (!split) return;
    a = _mm512_sub_ps(
        a, vf_of(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(high)), 16)));
    b = _mm512_sub_ps(
        b, vf_of(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1)), 16)));
    _mm512_store_si512(line + AMX_STEP_BYTES, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* 512 weights of a row into its lines of a tile. */
AVX512_INLINE void amx_unpack_row(const q_format *f, const bool split, const uint8_t *chunk,
                                  uint8_t *line) {
    w_scales scales;
    w_store_scales(f, chunk, 1.0f, &scales);
#pragma GCC unroll 8
    for (int j = 0; j < W_STEPS; j++) {
        vf v[W_VECTORS];
        w_weights(f, chunk, j, &scales, v);
        for (int i = 0; i < W_VECTORS; i += 2, line += AMX_STEP_BYTES << split)
            amx_store_weights(v[i], v[i + 1], split, line);
    }
}

/* Unpacks elements [k0, k1), one chunk, of rows [row, row + 16) into a tile, and prefetches the
 * next tile. Rows from row1 on repeat the last row, so that no row outside the range is read. */
AVX512_INLINE void amx_unpack_tile(const q_format *f, const bool split, const cpu_mat *w,
                                   int64_t row, int64_t row1, int64_t k0, int64_t k1,
                                   uint8_t *tile) {
    for (int r = 0; r < AMX_ROWS; r++) {
        const int64_t from = row + r < row1 ? row + r : row1 - 1;
        const uint8_t *p = (const uint8_t *)w->data + (size_t)from * w->row_bytes + q_bytes(f, k0);
        for (int at = 0; at < f->chunk_bytes; at += 64)
            _mm_prefetch((const char *)p + AMX_ROWS * w->row_bytes + at, _MM_HINT_T0);
        uint8_t tail[W_BYTES_MAX];
        amx_unpack_row(f, split, w_padded(f, p, k1 - k0, tail), tile + r * 64);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Sums are [row][column], transposed relative to y. */
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
AVX512_INLINE void amx_sweep(const bool split, const uint8_t *tiles, int64_t row, int64_t end,
                             int64_t k0, int64_t k1, const cpu_act *x, float *y, int64_t ldy) {
    const size_t panel_bytes = act_panel_bytes(split ? CPU_ACT_F32_SPLIT : CPU_ACT_BF16, x->n),
                 tile_bytes = (size_t)AMX_TILE_BYTES << split;
    for (int64_t col = 0; col < x->n_cols; col += 2 * CPU_PANEL) {
        const char *panel = (const char *)act_panel(x, col / CPU_PANEL) +
                            (k0 / 2 * CPU_PANEL * 4 << split);
        const uint8_t *tile = tiles;
        for (int64_t r = row; r < end; r += 2 * AMX_ROWS, tile += 2 * tile_bytes) {
            amx_place p[2][2];
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    p[i][k] = amx_place_at(y, ldy, r + i * AMX_ROWS, end, col + k * CPU_PANEL,
                                           x->n_cols, k0 == 0, k1 == x->n);
            amx_products((const void *const[2]){tile, tile + tile_bytes},
                         (const void *const[2]){panel, panel + panel_bytes}, split,
                         (k1 - k0 + AMX_DEPTH - 1) / AMX_DEPTH, p, amx_end_rows);
        }
    }
}

AVX512_INLINE void amx_run_of(amx_unpack *unpack, const bool split, const cpu_mat *w, int64_t row0,
                              int64_t row1, const cpu_act *x, float *y, int64_t ldy,
                              uint8_t *scratch) {
    const int64_t n_rows = (AMX_TILES >> split) * AMX_ROWS;
    amx_open();
    for (int64_t row = row0; row < row1; row += n_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += AMX_K) {
            const int64_t k1 = k0 + AMX_K < w->n_in ? k0 + AMX_K : w->n_in;
            const int64_t end = row + n_rows < row1 ? row + n_rows : row1;
            uint8_t *tile = scratch;
            for (int64_t r = row; r < end; r += AMX_ROWS, tile += AMX_TILE_BYTES << split)
                unpack(w, r, row1, k0, k1, tile);
            amx_sweep(split, scratch, row, end, k0, k1, x, y, ldy);
        }
    _tile_release();
}

static void amx_run(amx_unpack *unpack, const cpu_mat *w, int64_t row0, int64_t row1,
                    const cpu_act *x, float *y, int64_t ldy, uint8_t *scratch) {
    amx_run_of(unpack, false, w, row0, row1, x, y, ldy, scratch);
}

#define DEFINE(name, format)                                                                       \
    static void name##_unpack(const cpu_mat *w, int64_t row, int64_t row1, int64_t k0, int64_t k1, \
                              uint8_t *tile) {                                                     \
        amx_unpack_tile(&format, false, w, row, row1, k0, k1, tile);                               \
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

static void f16_unpack(const cpu_mat *w, int64_t row, int64_t row1, int64_t k0, int64_t k1,
                       uint8_t *tile) {
    amx_unpack_tile(&f16_weights, true, w, row, row1, k0, k1, tile);
}
static void amx_matmul_f16(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                           int64_t ldy, void *scratch) {
    if (x->n_cols <= CPU_PANEL)
        avx512_matmul_f16(w, row0, row1, x, y, ldy, scratch);
    else
        amx_run_of(f16_unpack, true, w, row0, row1, x, y, ldy, scratch);
}

#define ENTRY(type, name, ...)                                                                     \
    k->mat[QUANT_##type].act = CPU_ACT_Q8_BF16;                                                    \
    k->mat[QUANT_##type].matmul = amx_matmul_##name;

void cpu_init_avx512_amx_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    k->mat[QUANT_BF16].matmul = amx_matmul_bf16;
    k->mat[QUANT_F16].act = CPU_ACT_F32_SPLIT;
    k->mat[QUANT_F16].matmul = amx_matmul_f16;
    k->tiled[CPU_ACT_Q8_BF16] = k->tiled[CPU_ACT_Q8];
    k->tiled[CPU_ACT_Q8_BF16].products_per_ns = 450;
    k->tiled[CPU_ACT_BF16].products_per_ns = 450;
    k->tiled[CPU_ACT_F32_SPLIT] = k->tiled[CPU_ACT_F32];
    k->tiled[CPU_ACT_F32_SPLIT].products_per_ns = 250;
}
