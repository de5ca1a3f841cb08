/* op_vector.cu: element by element: activations, sums. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"

enum { THREADS = 256 };

/* ---- activations and sums ---------------------------------------------------------------------
 */

static __global__ void __launch_bounds__(THREADS) activate_kernel(gpu_activate a) {
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    float v = gpu_activation(a.f, a.threshold, a.gate[c * a.ldg + i]);
    if (fabsf(v) <= a.cut || !gpu_selected(a.bitmap, a.n_words, c, a.first_bit + i)) v = 0.0f;
    a.y[c * a.ldy + i] = a.up ? gpu_gated(a.f, v, a.up[c * a.ldu + i]) : v;
}

void gpu_op_activate(gpu_stream *s, const gpu_activate *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch(s, grid, activate_kernel, *a);
}

static __global__ void __launch_bounds__(THREADS) add_kernel(gpu_add a) {
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    a.y[c * a.ldy + i] += a.x[c * a.ldx + i];
}

void gpu_op_add(gpu_stream *s, const gpu_add *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch(s, grid, add_kernel, *a);
}
