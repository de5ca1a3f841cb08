/* op_predict.cu: predictors: scores of neurons, bitmaps of those that are selected, and their list.
 *
 * The CPU waits for the bitmaps, so this is one kernel. A block computes the scores of 32 neurons,
 * a word of each column's bitmap. The last block sends the bitmaps to the CPU and writes the list.
 *
 * Low-rank predictors: the hidden vector was just computed by a kernel whose blocks have fewer than
 * 32 of its elements, so every block here quantizes all of it, in shared memory. A warp prefetches
 * its rows before that: they come while the vector is quantized.
 *
 * Signs of the gate's weights: sum of x where the bit is set minus sum of x elsewhere = 2 * (sum
 * where set) - (sum of all x). Lanes load several words of 32 bits of all rows before they use
 * one. */
#include <assert.h>

#include "gpu_dot.h"
#include "gpu_select.h"
#include "op_table.h"

enum {
    WARPS = 8,
    THREADS = WARPS * GPU_WARP,
    ROWS = 32 / WARPS, /* of a warp */
    AHEAD = 4,         /* words of a row of signs */
    PREFETCHED = 32,   /* bytes */
    Q8_BYTES = GPU_MAX_RANK + GPU_MAX_RANK / 32 * 4 + GPU_MAX_RANK / 16 * 4 /* gpu_q8_bytes */
};

/* Per multiprocessor. Two leave 128 registers per thread; on gfx906 some types need more. */
#if defined(GPU_HIP)
enum { MIN_BLOCKS = 1 };
#else
enum { MIN_BLOCKS = 2 };
#endif

struct predict_args {
    gpu_predict predict;
    gpu_send send; /* epoch NULL: no message */
};

struct words_shared {
    uint32_t bits[GPU_COLS_AT_ONCE][WARPS]; /* of a warp's neurons */
    int32_t counts[2][WARPS];
    bool last;
};

template <bool quantized> struct predict_shared {
    words_shared words;
    uint4 q8[quantized ? Q8_BYTES / sizeof(uint4) : 1]; /* quantized columns */
};

/* ---- selection ------------------------------------------------------------------------------- */

/* Writes the block's word of columns c0 .. c0 + C - 1; bit r of bits[c]: the warp's neuron r. */
template <int C>
static __device__ __forceinline__ void put_words(const gpu_select &a, int c0,
                                                 const uint32_t (&bits)[C], words_shared &shared) {
    const int64_t n_words = (a.n + 31) / 32;
    gpu_sync(); /* the words before have been read */
    GPU_UNROLL
    for (int c = 0; c < C; c++)
        if (gpu_lane() == 0) shared.bits[c][gpu_warp()] = bits[c];
    gpu_sync();
    const int c = (int)threadIdx.x;
    if (c >= C || c0 + c >= a.n_cols || blockIdx.x >= n_words) return;
    uint32_t word = 0;
    GPU_UNROLL
    for (int w = 0; w < WARPS; w++) word |= shared.bits[c][w] << ROWS * w;
    a.bitmap[(c0 + c) * n_words + blockIdx.x] = word;
}

static __device__ __forceinline__ uint32_t bit_of(const gpu_select &a, float score, int64_t i,
                                                  int r) {
    if (i >= a.n) return 0;
    return (gpu_is_selected(a, score + (a.bias ? a.bias[i] : 0.0f)) ? 1u : 0u) << r;
}

/* The last block sends the bitmaps first: the CPU waits for them, but not for the list. */
static __device__ __forceinline__ void finish(const predict_args &args, words_shared &shared) {
    const gpu_select &a = args.predict.select;
    if (!a.list && !args.send.epoch) return;
    if (!gpu_is_last(args.predict.arrived, (int32_t)gridDim.x, &shared.last)) return;
    const uint64_t epoch = gpu_send_epoch(args.send);
    const int64_t n = a.n_cols * ((a.n + 31) / 32);
    for (int64_t i = threadIdx.x; epoch && i < n; i += THREADS)
        args.send.host_bits[i] = a.bitmap[i];
    gpu_send_end(args.send, epoch, 1, nullptr);
    if (a.list) gpu_write_list<WARPS>(a, a.bitmap, shared.counts);
}

/* ---- low rank -------------------------------------------------------------------------------- */

template <bool quantized> struct hidden;

template <> struct hidden<false> {
    static __device__ __forceinline__ void load(const gpu_input &, int, int64_t, uint4 *) {}
};

template <> struct hidden<true> {
    /* Quantizes the first n_cols columns, and lets `in` point to them. */
    static __device__ __forceinline__ void load(gpu_input &in, int n_cols, int64_t n, uint4 *to) {
        gpu_sync(); /* the columns before have been read */
        for (int c = 0; c < n_cols && c < in.n_cols; c++) {
            uint8_t *q8 = (uint8_t *)to + (size_t)c * gpu_q8_bytes(n);
            for (int64_t first = 0; first < n; first += 4 * THREADS) {
                const int64_t at = first + 4 * (int64_t)threadIdx.x;
                float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (at < n) gpu_load4(in.x + c * in.ldx + at, v);
                gpu_quantize_group(v, at / 32, at < n, n, q8);
            }
        }
        gpu_sync();
        in.q8 = to;
    }
};

template <class F, int C>
static __global__ void GPU_BOUNDS(THREADS, MIN_BLOCKS) predict_kernel(predict_args args) {
    gpu_begin();
    GPU_SHARED(predict_shared<F::quantized>, shared);
    /* Rows: more would not stay in registers. */
    const int AT_ONCE = C == 1 && !gpu_is_low<F>::yes ? ROWS : ROWS / 2;
    const gpu_predict &a = args.predict;
    const int64_t n = a.w.n_in, first = 32 * (int64_t)blockIdx.x + ROWS * gpu_warp();
    for (int r = 0; r < ROWS && first + r < a.w.n_out; r++) {
        const uint8_t *row = (const uint8_t *)a.w.data + (size_t)(first + r) * a.w.row_bytes;
        for (size_t b = PREFETCHED * (size_t)gpu_lane(); b < a.w.row_bytes;
             b += PREFETCHED * GPU_WARP)
            gpu_prefetch(row + b);
    }
    for (int c0 = 0; c0 < a.in.n_cols; c0 += C) {
        gpu_input in = a.in;
        in.x += c0 * in.ldx;
        in.n_cols -= c0;
        hidden<F::quantized>::load(in, C, n, shared.q8);
        uint32_t bits[C];
        GPU_UNROLL
        for (int c = 0; c < C; c++) bits[c] = 0;
        for (int r0 = 0; r0 < ROWS && first + r0 < a.w.n_out; r0 += AT_ONCE) {
            const uint8_t *row[AT_ONCE];
            float sum[AT_ONCE][C];
            GPU_UNROLL
            for (int r = 0; r < AT_ONCE; r++) { /* no rows after the last */
                const int64_t i = first + r0 + r;
                row[r] = gpu_row<F>(a.w, i < a.w.n_out ? i : first);
            }
            gpu_dot_rows<F, AT_ONCE, C>(row, n, in, sum);
            GPU_UNROLL
            for (int r = 0; r < AT_ONCE; r++) {
                GPU_UNROLL
                for (int c = 0; c < C; c++)
                    bits[c] |= bit_of(a.select, a.scale * sum[r][c], first + r0 + r, r0 + r);
            }
        }
        put_words<C>(a.select, c0, bits, shared.words);
    }
    finish(args, shared.words);
}

/* ---- signs ----------------------------------------------------------------------------------- */

/* Contribution of group g of a column to the score of a row with these bits. */
static __device__ __forceinline__ float group_score(uint32_t bits, const uint8_t *q8, int64_t n,
                                                    int64_t g) {
    const float *d = (const float *)(q8 + gpu_q8_d_offset(n));
    const int32_t *sum = (const int32_t *)(q8 + gpu_q8_sum_offset(n));
    int set = 0;
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint4 x = gpu_load16(q8 + 32 * g + 16 * half);
        const int q[4] = {(int)x.x, (int)x.y, (int)x.z, (int)x.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++)
            set = gpu_dp4a((int)gpu_spread_bits(bits >> (16 * half + 4 * i) & 0xf), q[i], set);
    }
    return d[g] * (float)(2 * set - sum[2 * g] - sum[2 * g + 1]);
}

/* Scores of the rows from `first` on. */
static __device__ __forceinline__ void sign_scores(const gpu_predict &a, int64_t first,
                                                   const uint8_t *q8, float (&score)[ROWS]) {
    const int64_t n = a.w.n_in, groups = n / 32;
    const uint32_t *row[ROWS];
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = first + r < a.w.n_out ? first + r : first;
        row[r] = (const uint32_t *)(a.signs + (size_t)i * ((size_t)n / 8));
        score[r] = 0.0f;
    }
    for (int64_t g0 = gpu_lane(); g0 < groups; g0 += AHEAD * GPU_WARP) {
        uint32_t bits[AHEAD][ROWS];
        GPU_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t g = g0 + j * GPU_WARP;
            GPU_UNROLL
            for (int r = 0; r < ROWS; r++) bits[j][r] = row[r][g < groups ? g : g0];
        }
        GPU_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            GPU_UNROLL
            for (int r = 0; r < ROWS; r++) gpu_pin(bits[j][r]);
        }
        GPU_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t g = g0 + j * GPU_WARP;
            if (g >= groups) break;
            GPU_UNROLL
            for (int r = 0; r < ROWS; r++) score[r] += group_score(bits[j][r], q8, n, g);
        }
    }
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) score[r] = gpu_warp_sum(score[r]);
}

static __global__ void __launch_bounds__(THREADS) sign_kernel(predict_args args) {
    gpu_begin();
    GPU_SHARED(words_shared, shared);
    const gpu_predict &a = args.predict;
    const int64_t first = 32 * (int64_t)blockIdx.x + ROWS * gpu_warp();
    for (int c = 0; c < a.in.n_cols; c++) {
        const uint8_t *q8 = (const uint8_t *)a.in.q8 + (size_t)c * gpu_q8_bytes(a.w.n_in);
        uint32_t bits[1] = {0};
        if (first < a.w.n_out) {
            float score[ROWS];
            sign_scores(a, first, q8, score);
            GPU_UNROLL
            for (int r = 0; r < ROWS; r++) bits[0] |= bit_of(a.select, score[r], first + r, r);
        }
        put_words<1>(a.select, c, bits, shared);
    }
    finish(args, shared);
}

/* ---- launching ------------------------------------------------------------------------------- */

void gpu_op_predict(gpu_stream *s, const gpu_predict *a) {
    const bool quantized = !a->signs && gpu_type_wants_q8(a->w.type);
    const int32_t n_cols = a->in.n_cols;
    assert(n_cols >= 1 && n_cols <= GPU_MAX_COLS && a->select.n_cols == n_cols);
    assert(a->select.bitmap && a->select.n == a->w.n_out && a->select.n_list <= a->select.n);
    assert(!a->select.list || a->select.count);
    assert(!a->send || !a->send->idle.choices);
    assert((!a->select.list && !a->send) || a->arrived);
    assert(a->signs ? a->in.q8 && a->w.n_in % 32 == 0 : a->in.x && a->in.ldx % 4 == 0);
    assert(!quantized || (a->w.n_in % 32 == 0 && a->w.n_in <= GPU_MAX_RANK));
    predict_args args = {*a, {}};
    if (a->send) args.send = *a->send;
    const unsigned blocks = gpu_blocks(a->w.n_out, 32);
    const gpu_grid grid = {blocks > 0 ? blocks : 1, 1, 1, THREADS};
    if (a->signs) {
        gpu_launch<sign_kernel>(s, grid, args);
        return;
    }
    /* Long vectors are quantized one at a time. */
    const bool one = n_cols == 1 ||
                     (quantized && GPU_COLS_AT_ONCE * gpu_q8_bytes(a->w.n_in) > Q8_BYTES);
#define FORMAT(F)                                                                                  \
    if (one)                                                                                       \
        gpu_launch<predict_kernel<F, 1>>(s, grid, args);                                           \
    else                                                                                           \
        gpu_launch<predict_kernel<F, GPU_COLS_AT_ONCE>>(s, grid, args)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
}
