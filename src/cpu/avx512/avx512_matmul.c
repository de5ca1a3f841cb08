/* avx512_matmul.c: products of quantized rows with many vectors (prefill, several sequences).
 *
 * Rows are unpacked once per call, 16 at a time, into tiles. A tile's vectors hold the same four
 * elements of 16 rows, ready for the int8 dot unit with four broadcast elements of a column. A
 * block of rows (MM_TILES tiles) by MM_K elements is in `scratch`, which stays in L2; panels of 16
 * columns sweep over it. The innermost product is two tiles by four columns, in eight float
 * accumulators, which are added to y once per MM_K elements: two tiles share the broadcast
 * elements, and stay in L1 for all columns of a panel.
 *
 * scratch: tiles[MM_TILES][MM_K / 32] of groups of mm_group_bytes(f) bytes. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "simd.h"
#include "tiers.h"

enum {
    MM_ROWS = CPU_ROW_TILE,
    MM_TILES = 16, /* 256 rows: a panel is read from L3 once per 256 rows */
    MM_K = Q_CHUNK,
    MM_K_GROUPS = MM_K / CPU_ACT_GROUP,
    MM_GROUP_MAX = 512 + 4 * 64, /* quants, two scales and two minima per row */
    MM_PAIR = 2,                 /* tiles at once: 20 KiB */
    MM_FEW =
        CPU_PANEL, /* maximum columns for which a block is a pair of tiles, which stays in L1 */
    MM_COLS = 4    /* maximum columns at once */
};
_Static_assert(MM_TILES *MM_K_GROUPS *MM_GROUP_MAX <= CPU_SCRATCH_BYTES, "scratch");

/* A group of 32 elements of 16 rows: uint8_t q[8][16][4], float d[n_sub][16], then m[n_sub][16] for
 * formats with minima. */
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

/* Unpacks one chunk of 16 rows into 16 tile groups. */
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
        __m512i v[Q_WORDS];
        f->words(p, j, v);
        for (int i = 0; i < Q_WORDS; i++)
            _mm512_store_si512(out + (size_t)(2 * j + i / 8) * stride + (size_t)(i % 8) * 64, v[i]);
    }
}

/* Unpacks elements [k0, k1), one chunk, of rows [row, row + 16) into a tile; rows from row1 on
 * repeat the last row, so that no row outside the range is read. With `many` columns the next tile
 * is prefetched. */
AVX512_INLINE void mm_decode_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                  int64_t k0, int64_t k1, bool many, uint8_t *tile) {
    const uint8_t *p[MM_ROWS];
    for (int r = 0; r < MM_ROWS; r++) {
        int64_t from = row + r < row1 ? row + r : row1 - 1;
        p[r] = (const uint8_t *)w->data + (size_t)from * w->row_bytes + q_bytes(f, k0);
        for (int at = 0; many && at < f->chunk_bytes; at += 64)
            _mm_prefetch((const char *)p[r] + MM_ROWS * w->row_bytes + at, _MM_HINT_T0);
    }
    uint8_t tail[MM_ROWS][Q_TAIL_BYTES];
    for (int r = 0; r < MM_ROWS && k1 - k0 < Q_CHUNK; r++) {
        memset(tail[r], 0, sizeof tail[r]);
        memcpy(tail[r], p[r], q_bytes(f, k1 - k0));
        p[r] = tail[r];
    }
    mm_decode_chunk(f, p, tile);
}

/* Contribution of a panel's group besides dot products, shared by all tiles: integers that subtract
 * the offset, and for minima d * sum. Per 16 elements, or in [0] per 32. */
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

/* Dot products of quants [k, k + n) of a pair's groups with `cols` columns, starting from
 * `start`. */
AVX512_INLINE void mm_dot(const uint8_t *const group[MM_PAIR], const act_q8_panel_group *x, int k,
                          int n, int col, const int cols, const int32_t *start,
                          __m512i t[MM_PAIR][MM_COLS]) {
    for (int c = 0; c < cols; c++)
        for (int i = 0; i < MM_PAIR; i++) t[i][c] = _mm512_set1_epi32(start[col + c]);
#pragma GCC unroll 8
    for (int j = k; j < k + n; j++) {
        __m512i w[MM_PAIR];
        for (int i = 0; i < MM_PAIR; i++) w[i] = _mm512_load_si512(group[i] + 64 * j);
        for (int c = 0; c < cols; c++) {
            int32_t four;
            memcpy(&four, x->q[j][col + c], sizeof four);
            const __m512i xq = _mm512_set1_epi32(four);
            for (int i = 0; i < MM_PAIR; i++) t[i][c] = _mm512_dpbusd_epi32(t[i][c], w[i], xq);
        }
    }
}

/* acc[i][c] += the products of a pair's groups with column col + c. */
AVX512_INLINE void mm_group(const q_format *f, const uint8_t *const group[MM_PAIR],
                            const act_q8_panel_group *x, const mm_sums *sums, int col,
                            const int cols, __m512 acc[MM_PAIR][MM_COLS]) {
    const int n_sub = 32 / f->sub;
    for (int s = 0; s < n_sub; s++) {
        __m512i t[MM_PAIR][MM_COLS];
        mm_dot(group, x, s * 8 / n_sub, 8 / n_sub, col, cols, sums->start[s], t);
        for (int c = 0; c < cols; c++) {
            const __m512 dx = _mm512_set1_ps(x->d[col + c]);
            for (int i = 0; i < MM_PAIR; i++) {
                const float *d = (const float *)(group[i] + 512) + s * MM_ROWS;
                __m512 dd = _mm512_mul_ps(_mm512_load_ps(d), dx);
                acc[i][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t[i][c]), dd, acc[i][c]);
                if (f->has_min)
                    acc[i][c] = _mm512_fnmadd_ps(_mm512_load_ps(d + n_sub * MM_ROWS),
                                                 _mm512_set1_ps(sums->lift[s][col + c]), acc[i][c]);
            }
        }
    }
}

/* Prefetches the next block of rows, line by line, while a block is multiplied: requests for all
 * lines at once would wait for each other. */
typedef struct mm_ahead {
    const char *row;
    size_t row_bytes;
    int at, chunk_bytes, n_rows; /* remaining ones */
    int n;                       /* lines per call */
} mm_ahead;

AVX512_INLINE void mm_prefetch(mm_ahead *a) {
    for (int i = 0; i < a->n && a->n_rows > 0; i++) {
        _mm_prefetch(a->row + a->at, _MM_HINT_T0);
        a->at += 64;
        if (a->at < a->chunk_bytes) continue;
        a->at = 0;
        a->row += a->row_bytes;
        a->n_rows--;
    }
}

/* A block of tiles, whose last rows may not exist, and the destination of its products. */
typedef struct mm_block {
    const uint8_t *tiles;
    int64_t n_rows, n_groups;
    float *y; /* of the block's first row */
    int64_t ldy;
    bool first; /* y = instead of y += */
} mm_block;

/* Rows [row, row + 32) of the block times columns [col, col + cols) of a panel, which ends before
 * n_cols. `cols` is a constant: accumulators are registers. An odd last tile is multiplied twice
 * and stored once. */
AVX512_INLINE void mm_pair(const q_format *f, const mm_block *b, int64_t row,
                           const act_q8_panel_group *x, const mm_sums *sums, int col,
                           const int cols, int n_cols, mm_ahead *ahead) {
    const int64_t left = b->n_rows - row;
    const uint8_t *tile = b->tiles + (size_t)(row / MM_ROWS) * MM_K_GROUPS * mm_group_bytes(f);
    const uint8_t *p[MM_PAIR] = {tile, tile};
    if (left > MM_ROWS) p[1] += MM_K_GROUPS * mm_group_bytes(f);
    const uint32_t rows = left < MM_PAIR * MM_ROWS ? (1u << left) - 1 : UINT32_MAX;
    const __mmask16 mask[MM_PAIR] = {(__mmask16)rows, (__mmask16)(rows >> MM_ROWS)};
    __m512 acc[MM_PAIR][MM_COLS];
    for (int i = 0; i < MM_PAIR; i++)
        for (int c = 0; c < cols; c++)
            acc[i][c] = b->first || col + c >= n_cols
                            ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(mask[i],
                                                    b->y + (col + c) * b->ldy + row + i * MM_ROWS);
    for (int64_t g = 0; g < b->n_groups; g++) {
        mm_prefetch(ahead);
        mm_group(f, p, x + g, sums + g, col, cols, acc);
        for (int i = 0; i < MM_PAIR; i++) p[i] += mm_group_bytes(f);
    }
    for (int i = 0; i < MM_PAIR; i++)
        for (int c = 0; c < cols; c++)
            if (col + c < n_cols)
                _mm512_mask_storeu_ps(b->y + (col + c) * b->ldy + row + i * MM_ROWS, mask[i],
                                      acc[i][c]);
}

/* Starts at the rows' elements from k on, or at the next rows. */
AVX512_INLINE void mm_ahead_begin(const q_format *f, const cpu_mat *w, int64_t row, int64_t k,
                                  int64_t n_cols, mm_ahead *a) {
    const int steps = MM_K_GROUPS * (int)((n_cols + MM_COLS - 1) / MM_COLS);
    if (k >= w->n_in) {
        row += MM_PAIR * MM_ROWS;
        k = 0;
    }
    a->row = (const char *)w->data + (size_t)row * w->row_bytes + q_bytes(f, k);
    a->n_rows = MM_PAIR * MM_ROWS;
    a->n = (a->n_rows * (f->chunk_bytes / 64 + 1) + steps - 1) / steps;
}

AVX512_INLINE void mm_run(const q_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                          const cpu_act *x, float *y, int64_t ldy, uint8_t *scratch) {
    mm_sums sums[MM_K_GROUPS]; /* 4 KiB */
    const bool few = x->n_cols <= MM_FEW;
    const int64_t n_rows = (few ? MM_PAIR : MM_TILES) * MM_ROWS;
    for (int64_t row = row0; row < row1; row += n_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += MM_K) {
            int64_t k1 = k0 + MM_K < w->n_in ? k0 + MM_K : w->n_in;
            int64_t end = row + n_rows < row1 ? row + n_rows : row1;
            mm_ahead ahead = {.row_bytes = w->row_bytes, .chunk_bytes = f->chunk_bytes};
            if (few) mm_ahead_begin(f, w, row, k1, x->n_cols, &ahead);
            uint8_t *tile = scratch;
            for (int64_t r = row; r < end; r += MM_ROWS, tile += MM_K_GROUPS * mm_group_bytes(f))
                mm_decode_tile(f, w, r, row1, k0, k1, !few, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const act_q8_panel_group *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / CPU_ACT_GROUP;
                const mm_block b = {
                    scratch, end - row, (k1 - k0) / CPU_ACT_GROUP, y + col * ldy + row,
                    ldy,     k0 == 0};
                mm_sums_make(f, panel, b.n_groups, sums);
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                for (int64_t r = 0; r < b.n_rows; r += MM_PAIR * MM_ROWS)
                    for (int c = 0; c < n_cols; c += MM_COLS)
                        if (n_cols - c > 2)
                            mm_pair(f, &b, r, panel, sums, c, MM_COLS, n_cols, &ahead);
                        else
                            mm_pair(f, &b, r, panel, sums, c, 2, n_cols, &ahead);
            }
        }
}

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, avx512, name, mm_run)
QUANT_BLOCKS(DEFINE)
