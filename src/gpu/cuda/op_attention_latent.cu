/* op_attention_latent.cu: compressed attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1):
 * all heads share the cache rows, which are keys and values. As in op_attention.cu, in tiles of
 * positions with an online softmax; long contexts are split into parts.
 *
 * Rows are long and heads are many, so heads are divided among warps: a warp computes HEADS heads
 * and keeps their queries and sums in registers, element i in lane i % 32. A block of WARPS warps
 * stores a tile of rows in shared memory, as floats, while it loads the next tile. The softmax
 * needs no other warp. Each block reads the whole cache, or the rows of the positions that
 * op_blocks.cu listed; the heads of a small model fit one block. Compressed keys (DeepSeek-V4) are
 * rows before those of the window. */
#include <assert.h>

#include "gpu_attention.h"
#include "gpu_cache.h"

enum {
    WARPS = 8,
    THREADS = WARPS * GPU_WARP,
    HEADS = 2, /* heads per warp: each element loaded from shared memory is used this often */
    TILE = 8,  /* rows per tile */
    PARTS = GPU_MAX_LATENT / GPU_WARP,
    ROW_EIGHTS = GPU_MAX_LATENT / 8,
    EIGHTS = (TILE * ROW_EIGHTS + THREADS - 1) / THREADS /* eights of a tile that a thread loads */
};

struct latent_shared {
    alignas(16) float row[TILE][GPU_MAX_LATENT]; /* at first a warp's query; zeros after the end of
                                                    a row, and after the last row */
};

/* One head: scaled query, softmax state and sums. */
struct latent_head {
    float q[PARTS], acc[PARTS], m, l;
};

/* Loads a query. When the cache uses a Hadamard matrix, the warp multiplies the query by it, in its
 * row of shared memory. */
static __device__ __forceinline__ void start_head(const gpu_attention &a, int64_t c, int64_t head,
                                                  float scale, latent_shared &shared,
                                                  latent_head &t) {
    const float *q = attn_query(a, c, head);
    const int dim = a.kv.head_dim;
    float *row = shared.row[gpu_warp()];
    GPU_UNROLL
    for (int i = 0; i < PARTS; i++) {
        const int at = gpu_lane() + i * GPU_WARP;
        t.q[i] = head < a.n_head && at < dim ? q[at] * scale : 0.0f;
        t.acc[i] = 0.0f;
        if (a.kv.k_hadamard) row[at] = t.q[i];
    }
    if (a.kv.k_hadamard) {
        gpu_sync();
        gpu_hadamard(row, dim, a.kv.k_hadamard, gpu_lane(), GPU_WARP);
        GPU_UNROLL
        for (int i = 0; i < PARTS; i++) {
            const int at = gpu_lane() + i * GPU_WARP;
            t.q[i] = at < dim ? row[at] : 0.0f;
        }
    }
    t.m = -INFINITY;
    t.l = 0.0f;
}

/* Row of a thread's x-th eight; below, its position in the row. */
static __device__ __forceinline__ int row_of(int x) {
    return ((int)threadIdx.x + x * THREADS) / ROW_EIGHTS;
}
static __device__ __forceinline__ int eight_of(int x) {
    return ((int)threadIdx.x + x * THREADS) % ROW_EIGHTS;
}

/* The rows that a column attends to: those of a list, or all, then those of the window. With
 * compressed keys the first are compressed keys. */
struct latent_rows {
    const uint8_t *first, *window;
    const int32_t *list; /* NULL: all */
    uint32_t n_first;    /* rows before the window's */
    uint32_t at;         /* first of the tile, counted from the beginning of all rows */
};

static __device__ __forceinline__ const uint8_t *row_at(const gpu_attention &a,
                                                        const latent_rows &rows, int i) {
    const uint32_t at = rows.at + (uint32_t)i;
    if (at >= rows.n_first) return rows.window + (size_t)(at - rows.n_first) * a.kv.k_row;
    return rows.first + (size_t)(rows.list ? (uint32_t)rows.list[at] : at) * a.kv.k_row;
}

/* The column's rows; *n is their number. */
static __device__ __forceinline__ latent_rows rows_of(const gpu_attention &a, const gpu_column &col,
                                                      uint32_t *n) {
    const uint8_t *cache = (const uint8_t *)gpu_global(col.kv);
    const bool listed = a.sparse.size > 0 && !attn_sees_all(a.sparse, col.pos);
    const uint32_t begin = attn_first_seen(a, (uint32_t)col.pos);
    latent_rows rows;
    rows.first = cache + (size_t)col.n_ctx * (a.ratio > 0 ? a.compressed : a.kv.k_offset);
    rows.window = cache + (size_t)col.n_ctx * a.kv.k_offset + (size_t)begin * a.kv.k_row;
    rows.list = listed ? attn_list_of(a.sparse, col) : nullptr;
    rows.n_first = listed        ? (uint32_t)a.sparse.top
                   : a.ratio > 0 ? ((uint32_t)col.pos + 1) / (uint32_t)a.ratio
                                 : 0;
    rows.at = 0;
    *n = rows.n_first + (listed && a.ratio == 0 ? 0 : (uint32_t)col.pos + 1 - begin);
    return rows;
}

template <class K>
static __device__ __forceinline__ void load_rows(const gpu_attention &a, const latent_rows &rows,
                                                 int n, typename K::raw (&raw)[EIGHTS]) {
    GPU_UNROLL
    for (int x = 0; x < EIGHTS; x++)
        if (row_of(x) < n && eight_of(x) < a.kv.head_dim / 8)
            K::load(a.kv.type_k, row_at(a, rows, row_of(x)), eight_of(x), raw[x]);
}

template <class K>
static __device__ __forceinline__ void decode_rows(const gpu_attention &a, const latent_rows &rows,
                                                   int n, typename K::raw (&raw)[EIGHTS],
                                                   latent_shared &shared) {
    GPU_UNROLL
    for (int x = 0; x < EIGHTS; x++) {
        float v[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (row_of(x) >= TILE) continue;
        if (row_of(x) < n && eight_of(x) < a.kv.head_dim / 8) {
            K::prepare(a.kv.type_k, eight_of(x), raw[x]);
            K::decode(a.kv.type_k, raw[x], row_at(a, rows, row_of(x)), eight_of(x), v);
        }
        GPU_UNROLL
        for (int i = 0; i < 8; i++) shared.row[row_of(x)][8 * eight_of(x) + i] = v[i];
    }
}

/* Converts scores to weights, 0 from n on; updates the state; returns the factor of earlier
 * sums. */
static __device__ __forceinline__ float to_weights(float (&s)[TILE], int n, float softcap,
                                                   latent_head &t) {
    float top = t.m, sum = 0.0f;
    GPU_UNROLL
    for (int j = 0; j < TILE; j++) {
        if (softcap > 0.0f) s[j] = softcap * tanhf(s[j] / softcap);
        if (j < n) top = fmaxf(top, s[j]);
    }
    GPU_UNROLL
    for (int j = 0; j < TILE; j++) {
        s[j] = j < n ? expf(s[j] - top) : 0.0f;
        sum += s[j];
    }
    const float shrink = expf(t.m - top); /* 0 at first: m is -inf */
    t.l = t.l * shrink + sum;
    t.m = top;
    return shrink;
}

static __device__ __forceinline__ void
attend_tile(const gpu_attention &a, const latent_shared &shared, int n, latent_head (&t)[HEADS]) {
    float s[HEADS][TILE];
    GPU_UNROLL
    for (int j = 0; j < TILE; j++) {
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++) s[h][j] = 0.0f;
        GPU_UNROLL
        for (int i = 0; i < PARTS; i++) {
            const float v = shared.row[j][gpu_lane() + i * GPU_WARP];
            GPU_UNROLL
            for (int h = 0; h < HEADS; h++) s[h][j] += t[h].q[i] * v;
        }
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++) s[h][j] = gpu_warp_sum(s[h][j]);
    }
    float shrink[HEADS];
    GPU_UNROLL
    for (int h = 0; h < HEADS; h++) shrink[h] = to_weights(s[h], n, a.softcap, t[h]);
    GPU_UNROLL
    for (int i = 0; i < PARTS; i++) {
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++) t[h].acc[i] *= shrink[h];
        GPU_UNROLL
        for (int j = 0; j < TILE; j++) {
            const float v = shared.row[j][gpu_lane() + i * GPU_WARP];
            GPU_UNROLL
            for (int h = 0; h < HEADS; h++) t[h].acc[i] += s[h][j] * v;
        }
    }
}

/* Stores the result, or a part's sums and state. */
static __device__ __forceinline__ void put_head(const gpu_attention &a, int64_t c, int64_t head,
                                                const latent_head &t) {
    if (head >= a.n_head) return;
    const int split = (int)blockIdx.y;
    const bool whole = a.n_splits == 1;
    float *to = whole ? a.out + c * a.ldo + head * a.kv.head_dim : attn_sums(a, c, head, split);
    const float share = whole ? attn_share(a, head, t.m, t.l) : 1.0f;
    GPU_UNROLL
    for (int i = 0; i < PARTS; i++) {
        const int at = gpu_lane() + i * GPU_WARP;
        if (at < a.kv.head_dim) to[at] = t.acc[i] * share;
    }
    if (whole || gpu_lane() != 0) return;
    float *state = attn_state(a, c, head, split);
    state[0] = t.m;
    state[1] = t.l;
}

template <class K>
static __global__ void __launch_bounds__(THREADS) latent_kernel(gpu_attention a) {
    gpu_begin();
    GPU_SHARED(latent_shared, shared);
    const gpu_column col = a.cols[blockIdx.z];
    const int64_t c = blockIdx.z, first = ((int64_t)blockIdx.x * WARPS + gpu_warp()) * HEADS;
    uint32_t n_rows;
    latent_rows rows = rows_of(a, col, &n_rows);
    const attn_range range = attn_part_of(a, {0, n_rows}, blockIdx.y);
    rows.at = range.first;
    typename K::raw raw[EIGHTS];
    uint32_t left = range.n;
    int n = left < TILE ? (int)left : (int)TILE;
    load_rows<K>(a, rows, n, raw);
    latent_head t[HEADS];
    GPU_UNROLL
    for (int h = 0; h < HEADS; h++)
        start_head(a, c, first + h, attn_scale_at(a, col.pos), shared, t[h]);
    while (left > 0) {
        gpu_sync(); /* all warps have read the last tile */
        decode_rows<K>(a, rows, n, raw, shared);
        gpu_sync();
        left -= (uint32_t)n;
        rows.at += TILE;
        const int next = left < TILE ? (int)left : (int)TILE;
        load_rows<K>(a, rows, next, raw);
        attend_tile(a, shared, n, t);
        n = next;
    }
    GPU_UNROLL
    for (int h = 0; h < HEADS; h++) put_head(a, c, first + h, t[h]);
}

void gpu_attention_latent(gpu_stream *s, const gpu_attention &a) {
    const gpu_grid grid = {gpu_blocks(a.n_head, WARPS * HEADS), (unsigned)a.n_splits,
                           (unsigned)a.n_cols, THREADS};
    assert(a.kv.n_head_kv == 1 && a.kv.head_dim <= GPU_MAX_LATENT && !a.gate);
#define CACHE(K) gpu_launch<latent_kernel<K>>(s, grid, a)
    GPU_CACHE_SWITCH(a.kv.type_k);
#undef CACHE
}
