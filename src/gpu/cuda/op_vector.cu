/* op_vector.cu: elementwise operations: activations (with their int8 form), sums, soft caps; and
 * Gaussian top-k. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum {
    THREADS = 256,
    ACTIVATE_THREADS = 128,
    TOP_THREADS = 512,
    TOP_WARPS = TOP_THREADS / GPU_WARP
};

static __device__ __forceinline__ float activated(const gpu_activate &a, int64_t c, int64_t i) {
    float gate = a.gate[c * a.ldg + i], up = a.up ? a.up[c * a.ldu + i] : 0.0f;
    up = gpu_clamp_up(a.clamp, up);
    float v = a.given ? gate : gpu_clamp_activation(a.clamp, a.f, a.threshold, gate);
    const float size = fabsf(v) * (a.cut_weight ? a.cut_weight[i] : 1.0f);
    if (size <= a.cut || !gpu_selected(a.bitmap, a.n_words, c, a.first_bit + i)) v = 0.0f;
    v = a.up ? gpu_hidden(a.f, v, up, a.cut_down) : v;
    return a.divisors ? v / a.divisors[i] : v;
}

/* A thread has four contiguous elements, so that eight lanes have a group of the int8 form. */
static __global__ void __launch_bounds__(ACTIVATE_THREADS) activate_kernel(gpu_activate a) {
    gpu_begin();
    const int64_t c = blockIdx.y;
    const int64_t at = ((int64_t)blockIdx.x * ACTIVATE_THREADS + threadIdx.x) * 4;
    float v[4];
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = at + i < a.n ? activated(a, c, at + i) : 0.0f;
        if (at + i < a.n) a.y[c * a.ldy + at + i] = v[i];
    }
    if (a.q8)
        gpu_quantize_group(v, at / 32, at < a.n, a.n,
                           (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n));
}

void gpu_op_activate(gpu_stream *s, const gpu_activate *a) {
    assert(a->n_cols >= 1 && a->n >= 1 &&
           (a->clamp.most == 0 || (a->up && a->f == ACTIVATION_SILU)));
    assert(!a->q8 || a->n % 32 == 0);
    const gpu_grid grid = {gpu_blocks(a->n, 4 * ACTIVATE_THREADS), (unsigned)a->n_cols, 1,
                           ACTIVATE_THREADS};
    gpu_launch<activate_kernel>(s, grid, *a);
}

struct top_shared {
    float sum[TOP_WARPS], squares[TOP_WARPS];
};

/* The mean of the column's values, or of the squares of their differences from `mean`. */
static __device__ __forceinline__ float top_mean(const float *x, int64_t n, bool squares,
                                                 float mean, float *shared) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += TOP_THREADS) {
        const float v = x[i] - mean;
        sum += squares ? v * v : v;
    }
    return gpu_block_sum(sum, shared, TOP_WARPS) / (float)n;
}

/* One block per column; a thread reads only elements that it writes. */
static __global__ void __launch_bounds__(TOP_THREADS) top_k_kernel(gpu_top_k a) {
    gpu_begin();
    GPU_SHARED(top_shared, shared);
    float *x = a.x + blockIdx.x * a.ldx;
    const float mean = top_mean(x, a.n, false, 0.0f, shared.sum);
    const float cutoff = mean + a.deviations * sqrtf(top_mean(x, a.n, true, mean, shared.squares));
    for (int64_t i = threadIdx.x; i < a.n; i += TOP_THREADS) {
        const float above = x[i] < cutoff ? 0.0f : x[i] - cutoff; /* NaN stays NaN */
        x[i] = gpu_activation(a.f, a.threshold, above);
    }
}

void gpu_op_top_k(gpu_stream *s, const gpu_top_k *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, TOP_THREADS};
    gpu_launch<top_k_kernel>(s, grid, *a);
}

static __global__ void __launch_bounds__(THREADS) add_kernel(gpu_add a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    a.y[c * a.ldy + blockIdx.z * a.step + i] += a.x[c * a.ldx + i];
}

void gpu_op_add(gpu_stream *s, const gpu_add *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, (unsigned)a->n_more + 1,
                           THREADS};
    gpu_launch<add_kernel>(s, grid, *a);
}

static __global__ void __launch_bounds__(THREADS) softcap_kernel(gpu_softcap a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    float *y = a.y + c * a.ldy + i;
    *y = a.cap * tanhf(*y / a.cap);
}

void gpu_op_softcap(gpu_stream *s, const gpu_softcap *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->cap > 0);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<softcap_kernel>(s, grid, *a);
}
