/* op_select.cu: the list of active neurons, ascending, and their bitmap. One block: neurons are
 * taken in rounds of one per thread; a round's places come from ballots and a sum over warps. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"

enum { WARPS = 16, THREADS = WARPS * GPU_WARP };

struct select_shared {
    int32_t count[2][WARPS]; /* by turns: a warp may be a round ahead */
};

static __device__ __forceinline__ bool is_active(const gpu_select &a, int64_t i) {
    const float bias = a.bias ? a.bias[i] : 0.0f;
    bool any = false;
    for (int c = 0; c < a.n_cols; c++) {
        const float v = a.v[c * a.ldv + i] + bias;
        any = any || !(a.magnitude ? fabsf(v) <= a.cut : v < a.cut); /* NaN counts */
    }
    return any;
}

static __global__ void __launch_bounds__(THREADS) select_kernel(gpu_select a) {
    GPU_SHARED(select_shared, shared);
    int32_t before = 0; /* listed in earlier rounds */
    int turn = 0;
    for (int64_t first = 0; first < a.n; first += THREADS, turn ^= 1) {
        const int64_t i = first + threadIdx.x;
        const bool active = i < a.n && is_active(a, i);
        const uint32_t all = gpu_ballot(active);
        const uint32_t listed = gpu_ballot(active && i < a.n_list);
        if (gpu_lane() == 0) {
            if (a.bitmap && i < a.n) a.bitmap[i / 32] = all;
            shared.count[turn][gpu_warp()] = gpu_popcount(listed);
        }
        gpu_sync();
        int32_t place = before;
        for (int w = 0; w < WARPS; w++) {
            if (w < gpu_warp()) place += shared.count[turn][w];
            before += shared.count[turn][w];
        }
        place += gpu_popcount(listed & ((1u << gpu_lane()) - 1u));
        if (active && i < a.n_list) a.list[place] = (int32_t)i;
    }
    if (threadIdx.x == 0) *a.count = before;
}

void gpu_op_select(gpu_stream *s, const gpu_select *a) {
    assert(a->n_cols >= 1 && a->n_list <= a->n && a->count);
    const gpu_grid grid = {1, 1, 1, THREADS};
    gpu_launch(s, grid, select_kernel, *a);
}
