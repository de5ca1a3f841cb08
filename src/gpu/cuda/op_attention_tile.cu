/* op_attention_tile.cu: attention of prompts over F16 caches, on tensor cores (Dao 2023,
 * FlashAttention-2; arXiv 2307.08691).
 *
 * A block takes ROWS queries of one KV head, the heads that share it packed behind each other for
 * each token, so that keys and values are read once for all of them: for 64 queries a tile of them
 * is read once instead of 16 times by blocks of four. A warp has 16 queries; scores, weights and
 * results stay in its registers, as the layout of a product's sums is that of its first matrix.
 * Heads of more than 128 elements take twice as many warps: two have the same queries, and each one
 * half of the values.
 *
 * Keys of a tile lie in one buffer, its values in another. Each is copied asynchronously while
 * the other is multiplied:
 *
 *   copy V(i) | scores of K(i), softmax | copy K(i+1) | sums of V(i) | ...
 *
 * On sm_80 a block takes 19, 35 or 34 KiB of shared memory for heads of 64, 128 and 256 elements
 * and 154, 214 or 214 registers of 128, 128 or 256 threads: three, two or one at a time per
 * multiprocessor. Per tile of 64 keys of 128 elements it copies 32 KiB for 2 * 64 * 64 * 128
 * products of each kind, 64 to a byte.
 *
 * Queries are rounded to half, each scaled by a power of two, and so are weights (0 to 1); sums
 * are float. Columns of several sessions are taken session by session; those of the others are
 * masked meanwhile. */
#include <assert.h>

#include "gpu_attention.h"
#include "op_table.h"

#if GPU_MMA_HERE && !defined(GPU_AMD_MMA) /* scores lie as the next product takes them */

enum { ROWS = 64, WARP_ROWS = 16, CHUNK = 8 /* halves in 16 bytes */ };

/* Sizes for heads of up to DIM elements. */
template <int DIM> struct tile_shape {
    static const int keys = DIM > 128 ? 32 : 64; /* of a tile */
    static const int parts = DIM > 128 ? 2 : 1;  /* of the values' elements, a warp each */
    static const int out = DIM / parts;          /* elements of a warp's results */
    static const int threads = ROWS / WARP_ROWS * GPU_WARP * parts;
    static const int blocks = DIM > 128 ? 1 : 2; /* per multiprocessor, at least */
    static const int line = DIM + CHUNK; /* eight lines of 16 bytes lie in different banks */
    static const int copies = keys * DIM / CHUNK / threads;
    static const int q_lines = ROWS > 2 * keys ? ROWS : 2 * keys;
};

/* Queries are put where keys and values come later. */
template <int DIM> struct tile_shared {
    alignas(16) uint16_t kv[tile_shape<DIM>::q_lines * tile_shape<DIM>::line];
    float scale[ROWS];               /* of a query's scores */
    int32_t first[ROWS], last[ROWS]; /* positions that it sees */
};

/* What a block does. Row r is head first_head + r % heads of column first_col + r / heads. */
struct tile_task {
    int kv_head, first_head, heads, first_col, n_cols;
};

static __device__ __forceinline__ tile_task task_of(const gpu_attention &a) {
    tile_task t;
    const int group = a.n_head / a.kv.n_head_kv, most = group < ROWS ? group : (int)ROWS;
    const int chunks = (group + most - 1) / most, chunk = (int)blockIdx.x % chunks;
    const int per_tile = ROWS / most;
    t.kv_head = (int)blockIdx.x / chunks;
    t.first_head = t.kv_head * group + chunk * most;
    t.heads = group - chunk * most < most ? group - chunk * most : most;
    /* Later columns see more positions: they go first. */
    t.first_col = (int)(gridDim.y - 1 - blockIdx.y) * per_tile;
    t.n_cols = a.n_cols - t.first_col < per_tile ? a.n_cols - t.first_col : per_tile;
    return t;
}

/* A thread's part of its warp's 16 queries: rows lane / 4 and lane / 4 + 8. */
template <int DIM> struct tile_state {
    uint32_t q[DIM / 16][4];
    float out[tile_shape<DIM>::out / 8][4];
    float m[2], l[2]; /* l: of this thread's columns of scores only */
};

static __device__ __forceinline__ int warp_row() {
    return gpu_warp() % (ROWS / WARP_ROWS) * WARP_ROWS;
}

/* The power of two that brings `largest` to [1, 2); 1 where there is none. */
static __device__ __forceinline__ float scale_for(float largest) {
    const uint32_t exponent = gpu_float_bits(largest) >> 23;
    if (!(largest < INFINITY) || exponent == 0 || exponent == 254) return 1.0f;
    return gpu_bits_float((254 - exponent) << 23);
}

/* The queries as halves, by way of shared memory, to fragments. A warp takes every n-th row. */
template <int DIM>
static __device__ __forceinline__ void load_queries(const gpu_attention &a, const tile_task &t,
                                                    tile_shared<DIM> &shared, tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int dim = a.kv.head_dim, per_lane = DIM / GPU_WARP;
    for (int r = gpu_warp(); r < ROWS; r += shape::threads / GPU_WARP) {
        const int column = r / t.heads;
        const bool there = column < t.n_cols;
        const int64_t c = t.first_col + (there ? column : 0);
        const float *q = attn_query(a, c, t.first_head + r % t.heads);
        float v[per_lane], largest = 0.0f;
        GPU_UNROLL
        for (int i = 0; i < per_lane; i++) {
            const int d = gpu_lane() * per_lane + i;
            v[i] = there && d < dim ? q[d] : 0.0f;
            largest = fmaxf(largest, fabsf(v[i]));
        }
        const float scale = scale_for(gpu_warp_max(largest));
        uint32_t *to = (uint32_t *)(shared.kv + r * shape::line) + gpu_lane() * per_lane / 2;
        GPU_UNROLL
        for (int i = 0; i < per_lane; i += 2)
            to[i / 2] = gpu_half_pair(v[i] * scale, v[i + 1] * scale);
        if (gpu_lane() == 0) shared.scale[r] = attn_scale_at(a, a.cols[c].pos) / scale;
    }
    gpu_sync();
    GPU_UNROLL
    for (int k = 0; k < DIM / 16; k++)
        gpu_load_fragment(s.q[k], shared.kv + warp_row() * shape::line + 16 * k, shape::line);
    gpu_sync();
}

/* Begins to copy positions [first, first + n) of a head to a buffer; zeros behind them and behind
 * the head. */
template <int DIM>
static __device__ __forceinline__ void begin_tile(const uint8_t *head, size_t row, uint32_t first,
                                                  uint32_t n, int dim, uint16_t *to,
                                                  gpu_copy16 (&copy)[tile_shape<DIM>::copies]) {
    typedef tile_shape<DIM> shape;
    const int per_line = DIM / CHUNK;
    GPU_UNROLL
    for (int i = 0; i < shape::copies; i++) {
        const int chunk = (int)threadIdx.x + i * shape::threads;
        const int line = chunk / per_line, at = chunk % per_line * CHUNK;
        const bool there = (uint32_t)line < n && at < dim;
        const uint8_t *from = head + (size_t)(first + (there ? (uint32_t)line : 0)) * row +
                              2 * (there ? at : 0);
        gpu_copy16_begin(copy[i], to + line * shape::line + at, from, there);
    }
}

/* Scores of a tile's keys, from position `first` on, as weights: of what a row does not see 0.
 * Results so far shrink. p: the weights as halves. */
template <int DIM>
static __device__ __forceinline__ void
weigh_tile(const gpu_attention &a, const tile_shared<DIM> &shared, const uint16_t *keys,
           uint32_t first, tile_state<DIM> &s, uint32_t (&p)[tile_shape<DIM>::keys / 16][4]) {
    typedef tile_shape<DIM> shape;
    float w[shape::keys / 8][4];
    GPU_UNROLL
    for (int j = 0; j < shape::keys / 8; j++) {
        GPU_UNROLL
        for (int i = 0; i < 4; i++) w[j][i] = 0.0f;
    }
    GPU_UNROLL
    for (int k = 0; k < DIM / 16; k++) {
        GPU_UNROLL
        for (int j = 0; j < shape::keys / 8; j += 2) {
            uint32_t b[4];
            gpu_load_fragment_b(b, keys + j * 8 * shape::line + 16 * k, shape::line);
            gpu_mma_f16(w[j], s.q[k], b[0], b[1]);
            gpu_mma_f16(w[j + 1], s.q[k], b[2], b[3]);
        }
    }
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int r = warp_row() + gpu_lane() / 4 + 8 * half;
        const float scale = shared.scale[r];
        const int32_t from = shared.first[r], to = shared.last[r];
        float top = s.m[half];
        GPU_UNROLL
        for (int j = 0; j < shape::keys / 8; j++) {
            GPU_UNROLL
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                const int32_t at = (int32_t)first + 8 * j + gpu_lane() % 4 * 2 + i % 2;
                float x = w[j][i] * scale;
                if (a.softcap > 0.0f) x = a.softcap * tanhf(x / a.softcap);
                w[j][i] = at >= from && at <= to ? x : -INFINITY;
                top = fmaxf(top, w[j][i]);
            }
        }
        top = gpu_group4_max(top);
        const float base = top > -INFINITY ? top : 0.0f; /* nothing was seen yet */
        const float shrink = expf(s.m[half] - base);
        s.m[half] = top;
        s.l[half] *= shrink;
        GPU_UNROLL
        for (int j = 0; j < shape::keys / 8; j++) {
            GPU_UNROLL
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                w[j][i] = expf(w[j][i] - base);
                s.l[half] += w[j][i];
            }
            p[j / 2][j % 2 * 2 + half] = gpu_half_pair(w[j][2 * half], w[j][2 * half + 1]);
        }
        GPU_UNROLL
        for (int j = 0; j < shape::out / 8; j++) {
            s.out[j][2 * half] *= shrink;
            s.out[j][2 * half + 1] *= shrink;
        }
    }
}

/* out += p times the tile's values. */
template <int DIM>
static __device__ __forceinline__ void sum_tile(const uint16_t *values,
                                                const uint32_t (&p)[tile_shape<DIM>::keys / 16][4],
                                                tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    values += gpu_warp() / (ROWS / WARP_ROWS) * shape::out;
    GPU_UNROLL
    for (int k = 0; k < shape::keys / 16; k++) {
        GPU_UNROLL
        for (int j = 0; j < shape::out / 8; j += 2) {
            uint32_t b[4];
            gpu_load_fragment_t(b, values + k * 16 * shape::line + 8 * j, shape::line);
            gpu_mma_f16(s.out[j], p[k], b[0], b[2]);
            gpu_mma_f16(s.out[j + 1], p[k], b[1], b[3]);
        }
    }
}

/* The block's part of positions [begin, end), which columns [c0, c1) see. */
template <int DIM>
static __device__ __forceinline__ void attend(const gpu_attention &a, const tile_task &t,
                                              const gpu_column &col, uint32_t begin, uint32_t end,
                                              tile_shared<DIM> &shared, tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int dim = a.kv.head_dim, v_dim = a.kv.v_dim;
    const uint32_t tiles = (end - begin + shape::keys - 1) / shape::keys;
    const uint32_t part = (tiles + gridDim.z - 1) / gridDim.z * shape::keys;
    const uint32_t from = begin + blockIdx.z * part;
    const uint32_t to = end - begin < (blockIdx.z + 1) * part ? end : from + part;
    if (from >= end) return;
    const uint8_t *cache = (const uint8_t *)gpu_global(col.kv);
    const uint8_t *k = cache + (size_t)col.n_ctx * a.kv.k_offset + (size_t)(2 * t.kv_head * dim);
    const uint8_t *v = cache + (size_t)col.n_ctx * a.kv.v_offset + (size_t)(2 * t.kv_head * v_dim);
    uint16_t *keys = shared.kv, *values = shared.kv + shape::keys * shape::line;
    gpu_copy16 copy[shape::copies];
    uint32_t p[shape::keys / 16][4];
    begin_tile<DIM>(k, a.kv.k_row, from, to - from, dim, keys, copy);
    gpu_copy16_end(copy);
    gpu_sync();
    for (uint32_t at = from; at < to; at += shape::keys) {
        begin_tile<DIM>(v, a.kv.v_row, at, to - at, v_dim, values, copy);
        weigh_tile<DIM>(a, shared, keys, at, s, p);
        gpu_copy16_end(copy);
        gpu_sync();
        /* After the last tile it is fetched once more, for nothing. */
        const uint32_t next = to - at > (uint32_t)shape::keys ? at + shape::keys : at;
        begin_tile<DIM>(k, a.kv.k_row, next, to - next, dim, keys, copy);
        sum_tile<DIM>(values, p, s);
        gpu_copy16_end(copy);
        gpu_sync();
    }
}

/* ---- results --------------------------------------------------------------------------------- */

template <int DIM>
static __device__ __forceinline__ void store(const gpu_attention &a, const tile_task &t,
                                             const tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int dim = a.kv.v_dim, part = gpu_warp() / (ROWS / WARP_ROWS);
    const int d0 = part * shape::out + gpu_lane() % 4 * 2;
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const int r = warp_row() + gpu_lane() / 4 + 8 * half;
        const float l = gpu_group4_sum(s.l[half]);
        if (r / t.heads >= t.n_cols) continue;
        const int64_t c = t.first_col + r / t.heads, head = t.first_head + r % t.heads;
        const bool whole = a.n_splits == 1;
        const float share = whole ? attn_share(a, head, s.m[half], l) : 1.0f;
        float *to = whole ? a.out + c * a.ldo + head * dim : attn_sums(a, c, head, (int)blockIdx.z);
        GPU_UNROLL
        for (int j = 0; j < shape::out / 8; j++) {
            GPU_UNROLL
            for (int i = 0; i < 2; i++) {
                const int d = d0 + 8 * j + i;
                if (d >= dim) continue;
                const float x = s.out[j][2 * half + i] * share;
                to[d] = whole ? x * attn_gate_at(a, c, head, d) : x;
            }
        }
        if (whole || part > 0 || gpu_lane() % 4 > 0) continue;
        float *state = attn_state(a, c, head, (int)blockIdx.z);
        state[0] = s.m[half];
        state[1] = l;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int DIM>
static __global__ void GPU_BOUNDS(tile_shape<DIM>::threads, tile_shape<DIM>::blocks)
    tile_kernel(gpu_attention a) {
    gpu_begin();
    typedef tile_shared<DIM> shared_type;
    GPU_SHARED(shared_type, shared);
    const tile_task t = task_of(a);
    tile_state<DIM> s;
    GPU_UNROLL
    for (int half = 0; half < 2; half++) s.m[half] = -INFINITY, s.l[half] = 0.0f;
    GPU_UNROLL
    for (int j = 0; j < tile_shape<DIM>::out / 8; j++) {
        GPU_UNROLL
        for (int i = 0; i < 4; i++) s.out[j][i] = 0.0f;
    }
    load_queries<DIM>(a, t, shared, s);
    const gpu_column *cols = a.cols + t.first_col;
    for (int c0 = 0, c1; c0 < t.n_cols; c0 = c1) { /* columns of one session */
        uint32_t begin = attn_first_seen(a, (uint32_t)cols[c0].pos), end = 0;
        for (c1 = c0; c1 < t.n_cols && cols[c1].kv == cols[c0].kv; c1++) {
            const uint32_t pos = (uint32_t)cols[c1].pos, first = attn_first_seen(a, pos);
            begin = first < begin ? first : begin;
            end = pos + 1 > end ? pos + 1 : end;
        }
        for (int r = (int)threadIdx.x; r < ROWS; r += tile_shape<DIM>::threads) {
            const int column = r / t.heads;
            const bool sees = column >= c0 && column < c1;
            const int32_t pos = sees ? cols[column].pos : -1;
            shared.first[r] = sees ? (int32_t)attn_first_seen(a, (uint32_t)pos) : 0;
            shared.last[r] = pos;
        }
        attend<DIM>(a, t, cols[c0], begin, end, shared, s);
        gpu_sync();
    }
    store<DIM>(a, t, s);
}

template <int DIM> static void launch(gpu_stream *s, const gpu_attention &a) {
    const int group = a.n_head / a.kv.n_head_kv, most = group < ROWS ? group : (int)ROWS;
    const gpu_grid grid = {(unsigned)a.kv.n_head_kv * gpu_blocks(group, most),
                           gpu_blocks(a.n_cols, ROWS / most), (unsigned)a.n_splits,
                           tile_shape<DIM>::threads};
    gpu_launch<tile_kernel<DIM>>(s, grid, a);
}

bool gpu_attention_tiled(gpu_stream *s, const gpu_attention &a) {
    if (a.precise || a.n_cols <= GPU_MAX_COLS) return false;
    if (a.kv.type_k != QUANT_F16 || a.kv.type_v != QUANT_F16) return false;
    if (a.kv.head_dim <= 64)
        launch<64>(s, a);
    else if (a.kv.head_dim <= 128)
        launch<128>(s, a);
    else
        launch<GPU_MAX_HEAD>(s, a);
    return true;
}

#else

bool gpu_attention_tiled(gpu_stream *, const gpu_attention &) {
    return false;
}

#endif
