/* op_norm.cu: norms, and quantization of columns to int8, separate or at the end of a norm.
 *
 * A norm uses one block per column, because its sums are over the whole column. No other kernel
 * runs meanwhile, so latency counts: each thread holds four contiguous elements of every stretch of
 * 4 * threads elements, all loaded at once; eight lanes hold a group of the int8 form. Columns of
 * more than HELD stretches are read again from the cache, HELD stretches at a time. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum {
    NORM_THREADS = 512, /* maximum */
    NORM_WARPS = NORM_THREADS / GPU_WARP,
    HELD = 4, /* stretches that stay in registers: 8 K elements */
    QUANTIZE_THREADS = 128
};

struct norm_shared {
    float sum[NORM_WARPS], squares[NORM_WARPS];
};

/* A thread's elements of the stretches from `base` on: values, and weights, loaded together so that
 * weights do not wait for the sums. Zeros after the end of the column. */
struct norm_held {
    float x[HELD][4], w[HELD][4];
};

static __device__ __forceinline__ int64_t place_of(int64_t base, int stretch) {
    return base + ((int64_t)stretch * blockDim.x + threadIdx.x) * 4;
}

static __device__ __forceinline__ void load4(const float *x, int64_t at, int64_t n, float (&v)[4]) {
    if (at + 4 <= n) {
        gpu_load4(x + at, v);
        return;
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) v[i] = at + i < n ? x[at + i] : 0.0f;
}

static __device__ __forceinline__ void load_held(const gpu_norm &a, const float *x, int64_t base,
                                                 norm_held &held) {
    GPU_UNROLL
    for (int s = 0; s < HELD; s++) load4(x, place_of(base, s), a.n, held.x[s]);
    if (!a.w) return;
    GPU_UNROLL
    for (int s = 0; s < HELD; s++) load4(a.w, place_of(base, s), a.n, held.w[s]);
}

/* Sum of a column's values, or of the squares of their differences from `mean`. */
static __device__ __forceinline__ float sum_column(const gpu_norm &a, const float *x,
                                                   norm_held &held, bool squares, float mean,
                                                   float *shared) {
    const int64_t step = (int64_t)HELD * 4 * blockDim.x;
    float sum = 0.0f;
    for (int64_t base = 0; base < a.n; base += step) {
        if (a.n > step) load_held(a, x, base, held);
        GPU_UNROLL
        for (int s = 0; s < HELD; s++) {
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const float v = place_of(base, s) + i < a.n ? held.x[s][i] - mean : 0.0f;
                sum += squares ? v * v : v;
            }
        }
    }
    return gpu_block_sum(sum, shared, (int)blockDim.x / GPU_WARP);
}

/* The variance is computed from centred values: no cancellation. May run in place: a thread reads
 * only elements that it writes. */
static __global__ void __launch_bounds__(NORM_THREADS) norm_kernel(gpu_norm a) {
    gpu_begin();
    GPU_SHARED(norm_shared, shared);
    const int64_t c = blockIdx.x, step = (int64_t)HELD * 4 * blockDim.x;
    const float *x = a.x + c * a.ldx;
    uint8_t *q8 = a.q8 ? (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n) : nullptr;
    norm_held held;
    load_held(a, x, 0, held);
    float mean = 0.0f;
    if (a.kind == GPU_NORM_LAYER)
        mean = sum_column(a, x, held, false, 0.0f, shared.sum) / (float)a.n;
    const float squares = sum_column(a, x, held, true, mean, shared.squares);
    if (a.bad && threadIdx.x == 0 && !(squares < INFINITY)) gpu_raise(a.bad, a.mark);
    const float scale = a.kind == GPU_NORM_NONE ? 1.0f : 1.0f / sqrtf(squares / (float)a.n + a.eps);
    float *y = a.y ? a.y + c * a.ldy : nullptr;
    for (int64_t base = 0; base < a.n; base += step) {
        if (a.n > step) load_held(a, x, base, held);
        GPU_UNROLL
        for (int s = 0; s < HELD; s++) {
            const int64_t at = place_of(base, s);
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
            if (q8) gpu_quantize_group(v, at / 32, at < a.n, a.n, q8);
            GPU_UNROLL
            for (int i = 0; i < 4; i++)
                if (y && at + i < a.n) y[at + i] = v[i];
        }
    }
}

void gpu_op_norm(gpu_stream *s, const gpu_norm *a) {
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && (!a->q8 || a->n % 32 == 0));
    assert(!a->add || a->y);
    const unsigned warps = gpu_blocks(a->n, 4 * GPU_WARP);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1,
                           (warps < NORM_WARPS ? warps : (unsigned)NORM_WARPS) * GPU_WARP};
    gpu_launch<norm_kernel>(s, grid, *a);
}

static __global__ void __launch_bounds__(QUANTIZE_THREADS) quantize_kernel(gpu_quantize a) {
    gpu_begin();
    const int64_t c = blockIdx.y;
    const int64_t at = ((int64_t)blockIdx.x * QUANTIZE_THREADS + threadIdx.x) * 4;
    float v[4];
    load4(a.x + c * a.ldx, at, a.n, v);
    gpu_quantize_group(v, at / 32, at < a.n, a.n, (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n));
}

void gpu_op_quantize(gpu_stream *s, const gpu_quantize *a) {
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && a->n % 32 == 0);
    const gpu_grid grid = {gpu_blocks(a->n, 4 * QUANTIZE_THREADS), (unsigned)a->n_cols, 1,
                           QUANTIZE_THREADS};
    gpu_launch<quantize_kernel>(s, grid, *a);
}
