/* op_select.cu: bitmaps of selected neurons from scores, one thread per neuron and column (for few
 * tokens: op_predict.cu); lists of selected neurons from bitmaps of a message, by one block. */
#include <assert.h>

#include "gpu_select.h"
#include "op_table.h"

enum { BIT_THREADS = 256, WARPS = 16, LIST_THREADS = WARPS * GPU_WARP };

static __global__ void __launch_bounds__(BIT_THREADS) bits_kernel(gpu_select a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * BIT_THREADS + threadIdx.x;
    const float score = i < a.n ? a.v[c * a.ldv + i] + (a.bias ? a.bias[i] : 0.0f) : 0.0f;
    const uint32_t word = gpu_ballot(i < a.n && gpu_is_selected(a, score));
    if (gpu_lane() == 0 && i < a.n) a.bitmap[c * ((a.n + 31) / 32) + i / 32] = word;
}

struct list_shared {
    int32_t counts[2][WARPS];
};

static __global__ void __launch_bounds__(LIST_THREADS) list_kernel(gpu_select a) {
    gpu_begin();
    GPU_SHARED(list_shared, shared);
    gpu_write_list<WARPS>(a, a.bits_in, shared.counts);
}

void gpu_op_select(gpu_stream *s, const gpu_select *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->n_list <= a->n);
    assert(a->v ? a->bitmap && !a->bits_in && !a->list : a->bits_in && a->list && a->count);
    if (a->v && a->n > 0) {
        const gpu_grid grid = {gpu_blocks(a->n, BIT_THREADS), (unsigned)a->n_cols, 1, BIT_THREADS};
        gpu_launch<bits_kernel>(s, grid, *a);
    }
    if (a->v) return;
    const gpu_grid grid = {1, 1, 1, LIST_THREADS};
    gpu_launch<list_kernel>(s, grid, *a);
}
