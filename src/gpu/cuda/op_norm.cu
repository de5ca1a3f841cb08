/* op_norm.cu: norms, and quantization of columns to int8, separate or at the end of a norm. A norm
 * uses one block per column, because its sums are over the whole column. */
#include <assert.h>

#include "gpu_norm.h"
#include "op_table.h"

enum { QUANTIZE_THREADS = 128 };

/* May run in place. */
static __global__ void __launch_bounds__(GPU_NORM_THREADS) norm_kernel(gpu_norm_args a) {
    gpu_begin();
    GPU_SHARED(gpu_norm_shared, shared);
    gpu_norm_held held;
    gpu_norm_load(a.norm, a.norm.x + blockIdx.x * a.norm.ldx, 0, held);
    gpu_norm_column(a, blockIdx.x, held, shared);
}

void gpu_op_norm(gpu_stream *s, const gpu_norm *a) {
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && (!a->q8 || a->n % 32 == 0));
    assert(!a->add || a->y);
    assert(!a->send || (a->n_cols <= GPU_MAX_COLS && (!a->send->host_q8 || a->n % 32 == 0)));
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, gpu_norm_threads(a->n)};
    gpu_launch<norm_kernel>(s, grid, gpu_norm_args_of(a));
}

static __global__ void __launch_bounds__(QUANTIZE_THREADS) quantize_kernel(gpu_quantize a) {
    gpu_begin();
    if (a.list && (int32_t)blockIdx.x >= *a.n_listed) return;
    const int64_t c = a.list ? a.list[blockIdx.x] : (int32_t)blockIdx.x;
    const int64_t at = ((int64_t)blockIdx.y * QUANTIZE_THREADS + threadIdx.x) * 4;
    float v[4];
    gpu_load4_of(a.x + c * a.ldx, at, a.n, v);
    gpu_quantize_group(v, at / 32, at < a.n, a.n, (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n));
}

void gpu_op_quantize(gpu_stream *s, const gpu_quantize *a) {
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && a->n % 32 == 0);
    const gpu_grid grid = {(unsigned)a->n_cols, gpu_blocks(a->n, 4 * QUANTIZE_THREADS), 1,
                           QUANTIZE_THREADS};
    gpu_launch<quantize_kernel>(s, grid, *a);
}
