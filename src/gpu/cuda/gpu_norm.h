/* gpu_norm.h: a thread block norms a column. Kernels that have just written a column share it, so
 * that no further kernel has to begin.
 *
 * No other kernel runs meanwhile, so latency counts: each thread holds four contiguous elements of
 * every stretch of 4 * threads elements, all loaded at once; eight lanes hold a group of the int8
 * form. Columns of more than GPU_NORM_HELD stretches are read again from the cache, so many
 * stretches at a time. A thread reads only elements that it writes. */
#ifndef GPU_CUDA_GPU_NORM_H
#define GPU_CUDA_GPU_NORM_H

#include "gpu_block.h"

enum {
    GPU_NORM_THREADS = 512, /* maximum */
    GPU_NORM_WARPS = GPU_NORM_THREADS / GPU_WARP,
    GPU_NORM_HELD = 4 /* stretches that stay in registers: 8 K elements of 512 threads */
};

struct gpu_norm_args {
    gpu_norm norm;
    gpu_send send; /* epoch NULL: no message */
};

static inline gpu_norm_args gpu_norm_args_of(const gpu_norm *a) {
    gpu_norm_args k = {*a, {}};
    if (a->send) k.send = *a->send;
    return k;
}

/* Threads of a block for a column of n elements. */
static inline unsigned gpu_norm_threads(int64_t n) {
    const unsigned warps = gpu_blocks(n, 4 * GPU_WARP);
    return (warps < GPU_NORM_WARPS ? warps : (unsigned)GPU_NORM_WARPS) * GPU_WARP;
}

struct gpu_norm_shared {
    float sum[GPU_NORM_WARPS], squares[GPU_NORM_WARPS];
    bool last;
};

/* A thread's elements of the stretches from `base` on: values, and weights, loaded together so that
 * weights do not wait for the sums. Zeros after the end of the column. */
struct gpu_norm_held {
    float x[GPU_NORM_HELD][4], w[GPU_NORM_HELD][4];
};

/* Elements of a column that a block holds. */
static __device__ __forceinline__ int64_t gpu_norm_step() {
    return (int64_t)GPU_NORM_HELD * 4 * blockDim.x;
}

static __device__ __forceinline__ int64_t gpu_norm_place(int64_t base, int stretch) {
    return base + ((int64_t)stretch * blockDim.x + threadIdx.x) * 4;
}

/* Four elements of a column of n, zeros after its end. */
static __device__ __forceinline__ void gpu_load4_of(const float *x, int64_t at, int64_t n,
                                                    float (&v)[4]) {
    if (at + 4 <= n) {
        gpu_load4(x + at, v);
        return;
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) v[i] = at + i < n ? x[at + i] : 0.0f;
}

static __device__ __forceinline__ void gpu_norm_load(const gpu_norm &a, const float *x,
                                                     int64_t base, gpu_norm_held &held) {
    GPU_UNROLL
    for (int s = 0; s < GPU_NORM_HELD && x; s++) /* x NULL: only weights */
        gpu_load4_of(x, gpu_norm_place(base, s), a.n, held.x[s]);
    if (!a.w) return;
    GPU_UNROLL
    for (int s = 0; s < GPU_NORM_HELD; s++)
        gpu_load4_of(a.w, gpu_norm_place(base, s), a.n, held.w[s]);
}

/* Sum of a column's values, or of the squares of their differences from `mean`. */
static __device__ __forceinline__ float gpu_norm_sum(const gpu_norm &a, const float *x,
                                                     gpu_norm_held &held, bool squares, float mean,
                                                     float *shared) {
    float sum = 0.0f;
    for (int64_t base = 0; base < a.n; base += gpu_norm_step()) {
        if (a.n > gpu_norm_step()) gpu_norm_load(a, x, base, held);
        GPU_UNROLL
        for (int s = 0; s < GPU_NORM_HELD; s++) {
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const float v = gpu_norm_place(base, s) + i < a.n ? held.x[s][i] - mean : 0.0f;
                sum += squares ? v * v : v;
            }
        }
    }
    return gpu_block_sum(sum, shared, (int)blockDim.x / GPU_WARP);
}

/* Norms column c, one of n_cols with a block each, and sends it. `held` has its first stretches
 * (gpu_norm_load); of a longer column x has all of them. The variance is computed from centred
 * values: no cancellation. */
static __device__ __forceinline__ void
gpu_norm_column(const gpu_norm_args &k, int64_t c, gpu_norm_held &held, gpu_norm_shared &shared) {
    const gpu_norm &a = k.norm;
    const int64_t step = gpu_norm_step();
    const float *x = a.x + c * a.ldx;
    const uint64_t epoch = gpu_send_epoch(k.send);
    const size_t column_q8 = (size_t)c * gpu_q8_bytes(a.n);
    uint8_t *q8 = a.q8 ? (uint8_t *)a.q8 + column_q8 : nullptr;
    uint8_t *host_q8 = k.send.host_q8 && epoch ? (uint8_t *)k.send.host_q8 + column_q8 : nullptr;
    float *host_x = k.send.host_x && epoch ? k.send.host_x + c * a.n : nullptr;
    float mean = 0.0f;
    if (a.kind == GPU_NORM_LAYER)
        mean = gpu_norm_sum(a, x, held, false, 0.0f, shared.sum) / (float)a.n;
    const float squares = gpu_norm_sum(a, x, held, true, mean, shared.squares);
    if (a.bad && threadIdx.x == 0 && !(squares < INFINITY)) gpu_raise(a.bad, a.mark);
    const float scale = a.kind == GPU_NORM_NONE ? 1.0f : 1.0f / sqrtf(squares / (float)a.n + a.eps);
    float *y = a.y ? a.y + c * a.ldy : nullptr;
    for (int64_t base = 0; base < a.n; base += step) {
        if (a.n > step) gpu_norm_load(a, x, base, held);
        GPU_UNROLL
        for (int s = 0; s < GPU_NORM_HELD; s++) {
            const int64_t at = gpu_norm_place(base, s);
            if (at - 4 * gpu_lane() >= a.n) break; /* uniform in the warp */
            float v[4];
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const bool there = at + i < a.n;
                v[i] = there ? (held.x[s][i] - mean) * scale : 0.0f;
                if (a.w) v[i] *= held.w[s][i];
                if (a.b && there) v[i] += a.b[at + i];
                if (a.add && there) v[i] = a.y_scale * (y[at + i] + a.scale * v[i]);
            }
            if (q8 || host_q8) gpu_quantize_group(v, at / 32, at < a.n, a.n, q8, host_q8);
            if (host_x && a.n % 4 == 0 && at < a.n)
                *(uint4 *)(host_x + at) = {gpu_float_bits(v[0]), gpu_float_bits(v[1]),
                                           gpu_float_bits(v[2]), gpu_float_bits(v[3])};
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                if (at + i >= a.n) continue;
                if (host_x && a.n % 4 != 0) host_x[at + i] = v[i];
                if (y) y[at + i] = v[i];
            }
        }
    }
    gpu_send_end(k.send, epoch, a.n_cols, &shared.last);
}

/* The last block of the grid norms the single column that the blocks have written, and sends it.
 * Called by all threads; *arrived: see gpu_is_last. */
static __device__ __forceinline__ void gpu_norm_by_last(const gpu_norm_args &k, int32_t *arrived,
                                                        gpu_norm_shared &shared) {
    if (!gpu_is_last(arrived, (int32_t)(gridDim.x * gridDim.y * gridDim.z), &shared.last)) return;
    gpu_norm_held held;
    gpu_norm_load(k.norm, k.norm.x, 0, held);
    gpu_norm_column(k, 0, held, shared);
}

#endif
