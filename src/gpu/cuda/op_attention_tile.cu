/* op_attention_tile.cu: prefill attention over F16 caches, on tensor cores (Dao 2023,
 * FlashAttention-2; arXiv 2307.08691).
 *
 * A thread block computes 64 queries of one KV head: token by token, the heads that share it. So
 * it reads a tile of keys and values once for 64 queries; blocks of four queries would read it 16
 * times. A warp has 16 queries (a wave of 64 lanes 32). Scores, weights and results stay in
 * registers, because the sums of one product have the fragment layout of the next product
 * (gpu_mma.h). Heads of more than 128 elements use twice as many warps: two warps have equal
 * queries, and each has half of the elements of the values.
 *
 * One buffer holds the keys of a tile, another one its values. Each is copied asynchronously while
 * the other is multiplied:
 *
 *   copy V(i) | scores of K(i), softmax | copy K(i+1) | sums of V(i) | ...
 *
 * On sm_80, for heads of 64, 128 and 256 elements, a block uses 19, 35 and 34 KiB of shared memory
 * and 168, 222 and 212 registers in each of 128, 128 and 256 threads: three, two and one blocks fit
 * a multiprocessor. Per tile of 64 keys of 128 elements it copies 32 KiB for 2 * 64 * 64 * 128
 * products of each kind, 64 per byte.
 *
 * Heads of more than 256 elements would need too much shared memory: there a block has 32 queries
 * and tiles of 16 keys, 41 KiB. Four warps have equal queries, and each has a quarter of the
 * elements of queries, keys and values: it sums a quarter of every score, and shared memory adds
 * the quarters.
 *
 * On AMD a tile has 32 keys: 10, 19 or 37 KiB of the 64 KiB of a gfx9 compute unit (49 KiB with 16
 * keys for the largest heads), so that registers limit the number of blocks. There values are
 * transposed when they are copied to shared memory: then fragment loads are 8 or 16 bytes, as for
 * keys, instead of one load per value.
 *
 * Queries are scaled by a power of two each and rounded to half; weights (0 to 2^14) are rounded to
 * half; sums are float. A block processes its columns session by session and masks the columns of
 * other sessions. */
#include <assert.h>

#include "gpu_attention.h"
#include "gpu_mma.h"
#include "op_table.h"

#if GPU_MMA

enum { MMA = 16, CHUNK = 8 /* halves in 16 bytes */ };

/* Launch parameters, for heads of up to DIM elements. */
template <int DIM> struct tile_block {
    static const bool shares = DIM > 256; /* a part sums only its elements' part of the scores */
    static const int rows = shares ? 32 : 64;
    /* parts of the values' elements, one wave each */
    static const int parts = shares ? 4 : DIM > 128 ? 2 : 1;
    static const int threads = rows / MMA * GPU_WARP * parts;
    static const int blocks = DIM > 128 ? 1 : DIM > 64 ? 2 : 3; /* per multiprocessor, at least */
};

#if GPU_MMA_HERE

/* Queries of a wave: 16 per warp, so 32 where a wave is two warps. */
enum { WAVE_ROWS = MMA * GPU_MMA_LANES / GPU_WARP, TIMES = WAVE_ROWS / MMA };

/* Sizes for heads of up to DIM elements. Lines are padded, so that eight rows of 16 bytes are in
 * different banks. */
template <int DIM> struct tile_shape : tile_block<DIM> {
    typedef tile_block<DIM> block;
    /* keys per tile */
    static const int keys = block::shares ? 16 : DIM > 128 || GPU_MMA_TURNS ? 32 : 64;
    static const int out = DIM / block::parts;          /* elements of a result per wave */
    static const int terms = block::shares ? out : DIM; /* terms of a score per wave */
    static const int sums = block::shares ? block::rows * keys : 0; /* exchanged scores per part */
    static const int line = DIM + CHUNK;
    static const int value_line = keys + CHUNK; /* transposed values: line of one element */
    static const int copies = keys * DIM / CHUNK / block::threads;
    static const int values = GPU_MMA_TURNS ? DIM * value_line : keys * line;
    static const int kv = block::rows * line > keys *line + values ? block::rows *line
                                                                   : keys *line + values;
};

/* The buffer of queries is reused for keys and values. */
template <int DIM> struct tile_shared {
    typedef tile_shape<DIM> shape;
    alignas(16) uint16_t kv[shape::kv];
    float sums[shape::parts * shape::sums + 1];    /* [part][sum of a thread][thread of the part] */
    float scale[shape::rows];                      /* factor of a query's scores */
    int32_t first[shape::rows], last[shape::rows]; /* range of positions of a query */
};

/* Work of a block. Row r is head first_head + r % heads of column first_col + r / heads. */
struct tile_task {
    int kv_head, first_head, heads, first_col, n_cols;
};

template <int ROWS> static __device__ __forceinline__ tile_task task_of(const gpu_attention &a) {
    tile_task t;
    const int group = a.n_head / a.kv.n_head_kv, most = group < ROWS ? group : ROWS;
    const int chunks = (group + most - 1) / most, chunk = (int)blockIdx.x % chunks;
    const int per_tile = ROWS / most;
    t.kv_head = (int)blockIdx.x / chunks;
    t.first_head = t.kv_head * group + chunk * most;
    t.heads = group - chunk * most < most ? group - chunk * most : most;
    /* Later columns attend to more positions: their blocks start first. */
    t.first_col = (int)(gridDim.y - 1 - blockIdx.y) * per_tile;
    t.n_cols = a.n_cols - t.first_col < per_tile ? a.n_cols - t.first_col : per_tile;
    return t;
}

/* A thread's part of its wave's queries, 16 at a time. In a product, queries are outputs; keys, or
 * elements of values, are columns. */
template <int DIM> struct tile_state {
    uint32_t q[TIMES][tile_shape<DIM>::terms / MMA][GPU_MMA_KEPT];
    float out[TIMES][tile_shape<DIM>::out / MMA][GPU_MMA_SUMS];
    float m[TIMES][GPU_MMA_OUTS];
    float l[TIMES][GPU_MMA_OUTS]; /* over this thread's columns of scores only */
};

template <int DIM> static __device__ __forceinline__ int wave_row() {
    return (int)threadIdx.x / GPU_MMA_LANES % (tile_block<DIM>::rows / WAVE_ROWS) * WAVE_ROWS;
}
template <int DIM> static __device__ __forceinline__ int wave_part() {
    return (int)threadIdx.x / GPU_MMA_LANES / (tile_block<DIM>::rows / WAVE_ROWS);
}
/* The first of the terms of scores that this wave sums. */
template <int DIM> static __device__ __forceinline__ int wave_term() {
    return tile_block<DIM>::shares ? wave_part<DIM>() * tile_shape<DIM>::terms : 0;
}

/* Weights are e^(score - m), m this much below the largest score: up to 2^14, so that halves
 * represent weights down to 2^-28 of the largest. MFMA takes halves below 2^-14 as zero. */
#define WEIGHT_LOG 9.70406053f

/* The power of two that scales `largest` to [1, 2); 1 when there is none. */
static __device__ __forceinline__ float scale_for(float largest) {
    const uint32_t exponent = gpu_float_bits(largest) >> 23;
    if (!(largest < INFINITY) || exponent == 0 || exponent == 254) return 1.0f;
    return gpu_bits_float((254 - exponent) << 23);
}

/* Converts queries to fragments of halves, through shared memory. A warp converts every n-th
 * row. */
template <int DIM>
static __device__ __forceinline__ void load_queries(const gpu_attention &a, const tile_task &t,
                                                    tile_shared<DIM> &shared, tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int dim = a.kv.head_dim, per_lane = DIM / GPU_WARP;
    for (int r = gpu_warp(); r < shape::rows; r += shape::threads / GPU_WARP) {
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
    for (int i = 0; i < TIMES; i++) {
        const uint16_t *rows = shared.kv + (wave_row<DIM>() + MMA * i) * shape::line +
                               wave_term<DIM>();
        GPU_UNROLL
        for (int k = 0; k < shape::terms / MMA; k++)
            gpu_load_kept(s.q[i][k], rows + MMA * k, shape::line);
    }
    gpu_sync();
}

/* Starts to copy positions [first, first + n) of a head to a buffer; zeros follow the positions,
 * and the elements of a head. */
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

#if GPU_MMA_TURNS
/* Copies and transposes values: a thread has some elements of `copies` positions. Positions after
 * the last one repeat it, with weights of zero. */
template <int DIM> struct tile_values {
    typedef tile_shape<DIM> shape;
    static const int blocks = shape::keys / shape::copies; /* blocks of `copies` keys */
    static_assert(shape::copies % 2 == 0, "keys go in pairs");
    uint4 v[shape::copies];

    __device__ __forceinline__ void begin(const uint8_t *head, size_t row, uint32_t first,
                                          uint32_t n, int dim, uint16_t *) {
        const uint32_t key = threadIdx.x % blocks * shape::copies;
        const int at = (int)threadIdx.x / blocks * CHUNK;
        head += (size_t)first * row + 2 * (at < dim ? at : 0);
        GPU_UNROLL
        for (uint32_t i = 0; i < (uint32_t)shape::copies; i++)
            v[i] = gpu_load16(head + (size_t)(key + i < n ? key + i : n - 1) * row);
    }
    __device__ __forceinline__ void end(uint16_t *to) {
        uint32_t w[shape::copies][CHUNK / 2], turned[shape::copies / 2];
        const int key = (int)threadIdx.x % blocks * shape::copies;
        to += (int)threadIdx.x / blocks * CHUNK * shape::value_line + key;
        GPU_UNROLL
        for (int i = 0; i < shape::copies; i++)
            w[i][0] = v[i].x, w[i][1] = v[i].y, w[i][2] = v[i].z, w[i][3] = v[i].w;
        GPU_UNROLL
        for (int e = 0; e < CHUNK; e++, to += shape::value_line) {
            GPU_UNROLL
            for (int i = 0; i < shape::copies; i += 2)
                turned[i / 2] = e % 2 ? w[i][e / 2] >> 16 | (w[i + 1][e / 2] & 0xffff0000u)
                                      : (w[i][e / 2] & 0xffffu) | w[i + 1][e / 2] << 16;
            __builtin_memcpy(__builtin_assume_aligned(to, sizeof turned), turned, sizeof turned);
        }
    }
};
#else
template <int DIM> struct tile_values {
    gpu_copy16 copy[tile_shape<DIM>::copies];

    __device__ __forceinline__ void begin(const uint8_t *head, size_t row, uint32_t first,
                                          uint32_t n, int dim, uint16_t *to) {
        begin_tile<DIM>(head, row, first, n, dim, to, copy);
    }
    __device__ __forceinline__ void end(uint16_t *) { gpu_copy16_end(copy); }
};
#endif

template <int N>
static __device__ __forceinline__ void cap_scores(float (&w)[N][GPU_MMA_SUMS], int o, float cap) {
    GPU_UNROLL
    for (int j = 0; j < N; j++) {
        GPU_UNROLL
        for (int c = 0; c < GPU_MMA_SUMS / GPU_MMA_OUTS; c++) {
            float &score = w[j][gpu_sum_at(o, c)];
            score = cap * tanhf(score / cap);
        }
    }
}

/* Adds the parts of the scores, in the order of the parts; all parts' waves get the sums. The
 * barriers of the loop over tiles separate it from the next call. */
template <int DIM, int N>
static __device__ __forceinline__ void share_scores(tile_shared<DIM> &shared,
                                                    float (&w)[TIMES][N][GPU_MMA_SUMS]) {
    typedef tile_shape<DIM> shape;
    const int n = shape::threads / shape::parts, per_thread = TIMES * N * GPU_MMA_SUMS;
    const int at = (int)threadIdx.x % n;
    static_assert(per_thread * n == shape::sums, "a float for every score");
    float *own = shared.sums + wave_part<DIM>() * shape::sums + at;
    GPU_UNROLL
    for (int i = 0; i < per_thread; i++)
        own[i * n] = w[i / (N * GPU_MMA_SUMS)][i / GPU_MMA_SUMS % N][i % GPU_MMA_SUMS];
    gpu_sync();
    GPU_UNROLL
    for (int i = 0; i < per_thread; i++) {
        float sum = 0.0f;
        GPU_UNROLL
        for (int part = 0; part < shape::parts; part++)
            sum += shared.sums[part * shape::sums + i * n + at];
        w[i / (N * GPU_MMA_SUMS)][i / GPU_MMA_SUMS % N][i % GPU_MMA_SUMS] = sum;
    }
}

/* Converts the scores of a tile's keys, from position `first` on, to weights: 0 for positions that
 * a row does not attend to. Rescales earlier results. p: the weights as halves. */
template <int DIM>
static __device__ __forceinline__ void
weigh_tile(const gpu_attention &a, tile_shared<DIM> &shared, const uint16_t *keys, uint32_t first,
           tile_state<DIM> &s, uint32_t (&p)[TIMES][tile_shape<DIM>::keys / MMA][GPU_MMA_WORDS]) {
    typedef tile_shape<DIM> shape;
    const int n_times = shape::keys / MMA, columns = GPU_MMA_SUMS / GPU_MMA_OUTS;
    float w[TIMES][shape::keys / MMA][GPU_MMA_SUMS];
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS; i++) w[t][j][i] = 0.0f;
        }
    }
    GPU_UNROLL
    for (int k = 0; k < shape::terms / MMA; k++) {
        uint32_t q[TIMES][GPU_MMA_WORDS];
        GPU_UNROLL
        for (int t = 0; t < TIMES; t++) gpu_kept(q[t], s.q[t][k]);
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) {
            uint32_t b[GPU_MMA_WORDS];
            gpu_load_fragment_b(b, keys + j * MMA * shape::line + wave_term<DIM>() + MMA * k,
                                shape::line);
            GPU_UNROLL
            for (int t = 0; t < TIMES; t++) gpu_multiply_f16(w[t][j], q[t], b);
        }
    }
    if constexpr (shape::shares) share_scores<DIM>(shared, w);
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) {
            const int r = wave_row<DIM>() + MMA * t + gpu_sum_output(o);
            const float scale = shared.scale[r];
            const int32_t from = shared.first[r], to = shared.last[r];
            float top = s.m[t][o];
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) w[t][j][gpu_sum_at(o, c)] *= scale;
            }
            if (a.softcap > 0.0f) cap_scores(w[t], o, a.softcap);
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) {
                    const int32_t at = (int32_t)first + MMA * j + gpu_sum_column(c);
                    float &score = w[t][j][gpu_sum_at(o, c)];
                    if (at < from || at > to) score = -INFINITY;
                    top = fmaxf(top, score);
                }
            }
            top = gpu_output_max(top);
            const float base = top > -INFINITY ? top : 0.0f; /* no position so far */
            const float shrink = expf(s.m[t][o] - base);
            s.m[t][o] = top;
            s.l[t][o] *= shrink;
            GPU_UNROLL
            for (int j = 0; j < n_times; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) {
                    float &score = w[t][j][gpu_sum_at(o, c)];
                    score = expf(score - (base - WEIGHT_LOG));
                    s.l[t][o] += score;
                }
            }
            GPU_UNROLL
            for (int j = 0; j < shape::out / MMA; j++) {
                GPU_UNROLL
                for (int c = 0; c < columns; c++) s.out[t][j][gpu_sum_at(o, c)] *= shrink;
            }
        }
        GPU_UNROLL
        for (int j = 0; j < n_times; j++) gpu_sums_fragment(p[t][j], w[t][j]);
    }
}

/* out += p times the tile's values. */
template <int DIM>
static __device__ __forceinline__ void
sum_tile(const uint16_t *values,
         const uint32_t (&p)[TIMES][tile_shape<DIM>::keys / MMA][GPU_MMA_WORDS],
         tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int first = wave_part<DIM>() * shape::out;
    GPU_UNROLL
    for (int k = 0; k < shape::keys / MMA; k++) {
        GPU_UNROLL
        for (int j = 0; j < shape::out / MMA; j++) {
            uint32_t b[GPU_MMA_WORDS];
#if GPU_MMA_TURNS
            gpu_load_fragment_b(b, values + (first + MMA * j) * shape::value_line + MMA * k,
                                shape::value_line);
#else
            gpu_load_fragment_tb(b, values + MMA * k * shape::line + first + MMA * j, shape::line);
#endif
            GPU_UNROLL
            for (int t = 0; t < TIMES; t++) gpu_multiply_f16(s.out[t][j], p[t][k], b);
        }
    }
}

/* The block's part of positions [begin, end), to which columns [c0, c1) attend. */
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
    tile_values<DIM> on_way;
    uint32_t p[TIMES][shape::keys / MMA][GPU_MMA_WORDS];
    begin_tile<DIM>(k, a.kv.k_row, from, to - from, dim, keys, copy);
    gpu_copy16_end(copy);
    gpu_sync();
    for (uint32_t at = from; at < to; at += shape::keys) {
        on_way.begin(v, a.kv.v_row, at, to - at, v_dim, values);
        weigh_tile<DIM>(a, shared, keys, at, s, p);
        on_way.end(values);
        gpu_sync();
        /* The fetch after the last tile repeats that tile, unused. */
        const uint32_t next = to - at > (uint32_t)shape::keys ? at + shape::keys : at;
        begin_tile<DIM>(k, a.kv.k_row, next, to - next, dim, keys, copy);
        sum_tile<DIM>(values, p, s);
        gpu_copy16_end(copy);
        gpu_sync();
    }
}

/* ---- results --------------------------------------------------------------------------------- */

template <int DIM>
static __device__ __forceinline__ void store(const gpu_attention &a, const tile_task &task,
                                             const tile_state<DIM> &s) {
    typedef tile_shape<DIM> shape;
    const int dim = a.kv.v_dim, first = wave_part<DIM>() * shape::out;
    GPU_UNROLL
    for (int t = 0; t < TIMES; t++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) {
            const int r = wave_row<DIM>() + MMA * t + gpu_sum_output(o);
            const float l = gpu_output_sum(s.l[t][o]), m = s.m[t][o] - WEIGHT_LOG;
            if (r / task.heads >= task.n_cols) continue;
            const int64_t c = task.first_col + r / task.heads,
                          head = task.first_head + r % task.heads;
            const bool whole = a.n_splits == 1;
            const float share = whole ? attn_share(a, head, m, l) : 1.0f;
            float *to = whole ? a.out + c * a.ldo + head * dim
                              : attn_sums(a, c, head, (int)blockIdx.z);
            GPU_UNROLL
            for (int j = 0; j < shape::out / MMA; j++) {
                GPU_UNROLL
                for (int i = 0; i < GPU_MMA_SUMS / GPU_MMA_OUTS; i++) {
                    const int d = first + MMA * j + gpu_sum_column(i);
                    if (d >= dim) continue;
                    const float x = s.out[t][j][gpu_sum_at(o, i)] * share;
                    to[d] = whole ? x * attn_gate_at(a, c, head, d) : x;
                }
            }
            if (whole || first + gpu_sum_column(0) > 0) continue;
            float *state = attn_state(a, c, head, (int)blockIdx.z);
            state[0] = m;
            state[1] = l;
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int DIM> static __device__ __forceinline__ void run_block(const gpu_attention &a) {
    typedef tile_shared<DIM> shared_type;
    GPU_SHARED(shared_type, shared);
    const tile_task t = task_of<tile_block<DIM>::rows>(a);
    tile_state<DIM> s;
    GPU_UNROLL
    for (int n = 0; n < TIMES; n++) {
        GPU_UNROLL
        for (int o = 0; o < GPU_MMA_OUTS; o++) s.m[n][o] = -INFINITY, s.l[n][o] = 0.0f;
        GPU_UNROLL
        for (int j = 0; j < tile_shape<DIM>::out / MMA; j++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS; i++) s.out[n][j][i] = 0.0f;
        }
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
        for (int r = (int)threadIdx.x; r < tile_block<DIM>::rows; r += tile_block<DIM>::threads) {
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
#endif

template <int DIM>
static __global__ void GPU_BOUNDS(tile_block<DIM>::threads, tile_block<DIM>::blocks)
    tile_kernel(gpu_attention a) {
    gpu_begin();
#if GPU_MMA_HERE /* HIP: not in families without matrix units */
    run_block<DIM>(a);
#endif
}

template <int DIM> static void launch(gpu_stream *s, const gpu_attention &a) {
    const int rows = tile_block<DIM>::rows, group = a.n_head / a.kv.n_head_kv;
    const int most = group < rows ? group : rows;
    const gpu_grid grid = {(unsigned)a.kv.n_head_kv * gpu_blocks(group, most),
                           gpu_blocks(a.n_cols, rows / most), (unsigned)a.n_splits,
                           tile_block<DIM>::threads};
    gpu_launch<tile_kernel<DIM>>(s, grid, a);
}

bool gpu_attention_tiled(gpu_stream *s, const gpu_attention &a) {
    if (a.precise || a.n_cols <= GPU_MAX_COLS || !gpu_stream_tensor_cores(s)) return false;
    if (a.kv.type_k != QUANT_F16 || a.kv.type_v != QUANT_F16) return false;
    if (a.kv.head_dim <= 64)
        launch<64>(s, a);
    else if (a.kv.head_dim <= 128)
        launch<128>(s, a);
    else if (a.kv.head_dim <= 256)
        launch<256>(s, a);
    else
        launch<GPU_MAX_HEAD>(s, a);
    return true;
}

#else

bool gpu_attention_tiled(gpu_stream *, const gpu_attention &) {
    return false;
}

#endif
