/* op_norm.cu: norms, and the int8 form of columns, alone or at the end of a norm. One block per
 * column: a column is a few kilobytes, which stay in the first cache between the passes. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum { THREADS = 256, WARPS = THREADS / GPU_WARP };

struct norm_shared {
    float sum[WARPS], squares[WARPS];
};

struct normed_value {
    const float *x, *w, *b;
    float mean, scale;
    __device__ __forceinline__ float operator()(int64_t i) const {
        float v = (x[i] - mean) * scale;
        if (w) v *= w[i];
        if (b) v += b[i];
        return v;
    }
};

/* The variance is taken from centred values: no cancellation. In place is fine: a thread writes
 * what it alone reads, after the int8 form has been made from x by all. */
static __global__ void __launch_bounds__(THREADS) norm_kernel(gpu_norm a) {
    GPU_SHARED(norm_shared, shared);
    const int64_t c = blockIdx.x;
    normed_value value = {a.x + c * a.ldx, a.w, a.b, 0.0f, 1.0f};
    if (a.centred) {
        float sum = 0.0f;
        for (int64_t i = threadIdx.x; i < a.n; i += THREADS) sum += value.x[i];
        value.mean = gpu_block_sum(sum, shared.sum, WARPS) / (float)a.n;
    }
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < a.n; i += THREADS) {
        const float v = value.x[i] - value.mean;
        squares += v * v;
    }
    const float mean_square = gpu_block_sum(squares, shared.squares, WARPS) / (float)a.n;
    value.scale = 1.0f / sqrtf(mean_square + a.eps);
    if (a.q8) {
        gpu_encode_column(value, a.n, (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n), WARPS);
        gpu_sync();
    }
    if (!a.y) return;
    float *y = a.y + c * a.ldy;
    for (int64_t i = threadIdx.x; i < a.n; i += THREADS) y[i] = value(i);
}

void gpu_op_norm(gpu_stream *s, const gpu_norm *a) {
    assert(a->n_cols >= 1 && (!a->q8 || a->n % 32 == 0));
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, THREADS};
    gpu_launch(s, grid, norm_kernel, *a);
}

struct plain_value {
    const float *x;
    __device__ __forceinline__ float operator()(int64_t i) const { return x[i]; }
};

static __global__ void __launch_bounds__(THREADS) encode_kernel(gpu_encode a) {
    const int64_t c = blockIdx.x;
    const plain_value value = {a.x + c * a.ldx};
    gpu_encode_column(value, a.n, (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n), WARPS);
}

void gpu_op_encode(gpu_stream *s, const gpu_encode *a) {
    assert(a->n_cols >= 1 && a->n % 32 == 0);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, THREADS};
    gpu_launch(s, grid, encode_kernel, *a);
}
