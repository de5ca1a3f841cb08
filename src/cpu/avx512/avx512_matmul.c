/* avx512_matmul.c: products of quantized rows with many vectors (prompts).
 *
 * Rows are unpacked once per call, 16 at a time, into tiles whose vectors hold the same four
 * elements of 16 rows, ready for the int8 dot unit against four broadcast elements of a column. A
 * block of rows (MM_TILES tiles) by MM_K elements lies in `scratch`, which stays in the second
 * cache; panels of 16 columns sweep over it, a panel's MM_K elements staying in the first cache for
 * all tiles. The innermost product is 16 rows x 16 columns in 16 float accumulators, which are
 * added to y once per MM_K elements.
 *
 * scratch: tiles[MM_TILES][MM_K / 32] of tile_group, at the size of the format. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "simd.h"
#include "tiers.h"

enum {
    MM_ROWS = CPU_ROW_TILE,
    MM_TILES = 8, /* 128 rows: a panel is fetched from the third cache once per 128 rows */
    MM_K = 1024,  /* 22 KiB of a panel, of a first cache of 48 or 32 KiB */
    MM_K_GROUPS = MM_K / CPU_ACT_GROUP,
    MM_GROUP_MAX = 512 + 4 * 64, /* quants, two scales and two minima per row */
    MM_COLS_AT_ONCE = 4          /* independent chains of dot products */
};
_Static_assert(MM_TILES *MM_K_GROUPS *MM_GROUP_MAX <= CPU_SCRATCH_BYTES, "scratch");

/* A group of 32 elements of 16 rows: uint8_t q[8][16][4], float d[n_sub][16], then m[n_sub][16]
 * for formats that have minima. */
AVX512_INLINE size_t mm_group_bytes(const q_format *f) {
    return 512 + (size_t)(32 / f->sub) * 64 * (f->has_min ? 2 : 1);
}

/* Stores scales (or minima) of 16 rows, one vector per group (or half group). */
AVX512_INLINE void mm_store_scales(const q_format *f, __m512 s[MM_ROWS], int half, size_t at,
                                   uint8_t *out) {
    __m512i v[MM_ROWS];
    for (int r = 0; r < MM_ROWS; r++) v[r] = _mm512_castps_si512(s[r]);
    vi_transpose(v);
    size_t stride = mm_group_bytes(f);
    for (int i = 0; i < 16; i++) {
        uint8_t *to = f->sub == 32
                          ? out + (size_t)i * stride + at
                          : out + (size_t)(8 * half + i / 2) * stride + at + (size_t)(i % 2) * 64;
        _mm512_store_ps((void *)to, _mm512_castsi512_ps(v[i]));
    }
}

/* One chunk of 16 rows into 16 tile groups. */
AVX512_INLINE void mm_decode_chunk(const q_format *f, const uint8_t *const p[MM_ROWS],
                                   uint8_t *out) {
    size_t stride = mm_group_bytes(f);
    q_scales s[MM_ROWS];
    for (int r = 0; r < MM_ROWS; r++) f->scales(p[r], &s[r]);
    for (int half = 0; half < 32 / f->sub; half++) {
        __m512 v[MM_ROWS];
        for (int r = 0; r < MM_ROWS; r++) v[r] = s[r].d[half];
        mm_store_scales(f, v, half, 512, out);
        if (!f->has_min) continue;
        for (int r = 0; r < MM_ROWS; r++) v[r] = s[r].m[half];
        mm_store_scales(f, v, half, 512 + (size_t)(32 / f->sub) * 64, out);
    }
#pragma GCC unroll 8
    for (int j = 0; j < Q_STEPS; j++) {
        __m512i v[MM_ROWS];
        for (int r = 0; r < MM_ROWS; r++) v[r] = f->quants(p[r], j);
        vi_transpose(v);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + (size_t)(2 * j + i / 8) * stride + (size_t)(i % 8) * 64, v[i]);
    }
}

/* Elements [k0, k1) of rows [row, row + 16) into a tile; rows from row1 on repeat the last one, so
 * that nothing outside of the range is read. */
AVX512_INLINE void mm_decode_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                  int64_t k0, int64_t k1, uint8_t *tile) {
    const uint8_t *p[MM_ROWS];
    for (int r = 0; r < MM_ROWS; r++) {
        int64_t from = row + r < row1 ? row + r : row1 - 1;
        p[r] = (const uint8_t *)w->data + (size_t)from * w->row_bytes + q_bytes(f, k0);
    }
    int64_t k = k0;
    for (; k + Q_CHUNK <= k1; k += Q_CHUNK) {
        mm_decode_chunk(f, p, tile);
        tile += Q_GROUPS * mm_group_bytes(f);
        for (int r = 0; r < MM_ROWS; r++) p[r] += f->chunk_bytes;
    }
    if (k < k1) {
        uint8_t tail[MM_ROWS][Q_TAIL_BYTES] = {{0}};
        for (int r = 0; r < MM_ROWS; r++) {
            memcpy(tail[r], p[r], q_bytes(f, k1 - k));
            p[r] = tail[r];
        }
        mm_decode_chunk(f, p, tile);
    }
}

/* Dot products of quants [k, k + n) of a group with four columns, starting from `start`. */
AVX512_INLINE void mm_dot4(const __m512i *w, const act_q8_panel_group *x, int k, int n, int col,
                           const int32_t *start, __m512i t[MM_COLS_AT_ONCE]) {
    for (int c = 0; c < MM_COLS_AT_ONCE; c++) t[c] = _mm512_set1_epi32(start[col + c]);
#pragma GCC unroll 8
    for (int i = k; i < k + n; i++)
        for (int c = 0; c < MM_COLS_AT_ONCE; c++) {
            int32_t four;
            memcpy(&four, x->q[i][col + c], sizeof four);
            t[c] = _mm512_dpbusd_epi32(t[c], w[i], _mm512_set1_epi32(four));
        }
}

/* What a panel's group contributes apart from dot products: the integers that take off the offset,
 * and for minima d * sum. Per 16 elements, or in [0] per 32. They are the same for all tiles. */
typedef struct mm_sums {
    int32_t start[2][CPU_PANEL];
    float lift[2][CPU_PANEL];
} mm_sums;

AVX512_INLINE void mm_sums_make(const q_format *f, const act_q8_panel_group *x, int64_t n_groups,
                                mm_sums *out) {
    for (int64_t g = 0; g < n_groups; g++)
        for (int s = 0; s < 32 / f->sub; s++) {
            __m512i sum = _mm512_loadu_si512(x[g].sum[s]);
            if (f->sub == 32) sum = _mm512_add_epi32(sum, _mm512_loadu_si512(x[g].sum[1]));
            __m512i start = _mm512_setzero_si512();
            if (f->offset_shift >= 0)
                start = _mm512_sub_epi32(start,
                                         _mm512_slli_epi32(sum, (unsigned)f->offset_shift & 31));
            _mm512_storeu_si512(out[g].start[s], start);
            if (!f->has_min) continue;
            __m512 lift = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(x[g].d));
            _mm512_storeu_ps(out[g].lift[s], lift);
        }
}

/* acc[c] += the group's products with all 16 columns. */
AVX512_INLINE void mm_group(const q_format *f, const uint8_t *group, const act_q8_panel_group *x,
                            const mm_sums *sums, __m512 acc[CPU_PANEL]) {
    const int n_sub = 32 / f->sub;
    __m512i w[8];
    for (int i = 0; i < 8; i++) w[i] = _mm512_load_si512(group + 64 * i);
    const float *d = (const float *)(group + 512), *m = d + n_sub * MM_ROWS;
#pragma GCC unroll 4
    for (int col = 0; col < CPU_PANEL; col += MM_COLS_AT_ONCE)
        for (int s = 0; s < n_sub; s++) {
            __m512i t[MM_COLS_AT_ONCE];
            mm_dot4(w, x, s * 8 / n_sub, 8 / n_sub, col, sums->start[s], t);
            for (int c = 0; c < MM_COLS_AT_ONCE; c++) {
                __m512 dd = _mm512_mul_ps(_mm512_load_ps(d + s * MM_ROWS),
                                          _mm512_set1_ps(x->d[col + c]));
                acc[col + c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t[c]), dd, acc[col + c]);
                if (f->has_min)
                    acc[col + c] = _mm512_fnmadd_ps(_mm512_load_ps(m + s * MM_ROWS),
                                                    _mm512_set1_ps(sums->lift[s][col + c]),
                                                    acc[col + c]);
            }
        }
}

/* y += tile x panel over n_groups groups (y = when `first`), for the rows of `mask` and n_cols
 * columns. */
AVX512_INLINE void mm_tile(const q_format *f, const uint8_t *tile, const act_q8_panel_group *x,
                           const mm_sums *sums, int64_t n_groups, float *y, int64_t ldy,
                           __mmask16 mask, int n_cols, bool first) {
    __m512 acc[CPU_PANEL];
    for (int c = 0; c < CPU_PANEL; c++)
        acc[c] = first || c >= n_cols ? _mm512_setzero_ps()
                                      : _mm512_maskz_loadu_ps(mask, y + c * ldy);
    for (int64_t g = 0; g < n_groups; g++, tile += mm_group_bytes(f))
        mm_group(f, tile, x + g, sums + g, acc);
    for (int c = 0; c < CPU_PANEL; c++)
        if (c < n_cols) _mm512_mask_storeu_ps(y + c * ldy, mask, acc[c]);
}

AVX512_INLINE void mm_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                          const cpu_act *x, float *y, int64_t ldy, uint8_t *scratch) {
    const size_t tile_bytes = MM_K_GROUPS * mm_group_bytes(f);
    mm_sums sums[MM_K_GROUPS]; /* 8 KiB */
    for (int64_t block = row0; block < row1; block += MM_TILES * MM_ROWS)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += MM_K) {
            int64_t k1 = k0 + MM_K < w->n_in ? k0 + MM_K : w->n_in;
            int64_t end = block + MM_TILES * MM_ROWS < row1 ? block + MM_TILES * MM_ROWS : row1;
            uint8_t *tile = scratch;
            for (int64_t row = block; row < end; row += MM_ROWS, tile += tile_bytes)
                mm_decode_tile(f, w, row, row1, k0, k1, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const act_q8_panel_group *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / CPU_ACT_GROUP;
                mm_sums_make(f, panel, (k1 - k0) / CPU_ACT_GROUP, sums);
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end; row += MM_ROWS, tile += tile_bytes) {
                    int64_t rows = end - row < MM_ROWS ? end - row : MM_ROWS;
                    mm_tile(f, tile, panel, sums, (k1 - k0) / CPU_ACT_GROUP, y + col * ldy + row,
                            ldy, (__mmask16)((1u << rows) - 1), n_cols, k0 == 0);
                }
            }
        }
}

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, avx512, name, mm_run)
QUANT_BLOCKS(DEFINE)
