/* op_sign.cu: predictor scores from the signs of the gate's weights: sum of x where the bit is set,
 * minus the sum of the others, which is twice the former minus the sum of all. A warp per row. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"

enum { WARPS = 4 };

static __global__ void __launch_bounds__(WARPS *GPU_WARP) sign_kernel(gpu_sign_dot a) {
    const int64_t r = (int64_t)blockIdx.x * WARPS + gpu_warp();
    if (r >= a.n_out) return;
    const uint8_t *row = a.bits + (size_t)r * ((size_t)a.n_in / 8);
    const int64_t groups = a.n_in / 32;
    for (int c = 0; c < a.in.n_cols; c++) {
        const uint8_t *q8 = (const uint8_t *)a.in.q8 + (size_t)c * gpu_q8_bytes(a.n_in);
        const float *d = (const float *)(q8 + gpu_q8_d_offset(a.n_in));
        const int32_t *sum = (const int32_t *)(q8 + gpu_q8_sum_offset(a.n_in));
        float score = 0.0f;
        for (int64_t g = gpu_lane(); g < groups; g += GPU_WARP) {
            int set = 0;
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                const uint32_t bits = row[4 * g + i];
                const int *q = (const int *)(q8 + 32 * g + 8 * i);
                set = gpu_dp4a((int)gpu_spread_bits(bits & 0xf), q[0], set);
                set = gpu_dp4a((int)gpu_spread_bits(bits >> 4), q[1], set);
            }
            score += d[g] * (float)(2 * set - sum[2 * g] - sum[2 * g + 1]);
        }
        score = gpu_warp_sum(score);
        if (gpu_lane() == 0) a.y[c * a.ldy + r] = score;
    }
}

void gpu_op_sign_dot(gpu_stream *s, const gpu_sign_dot *a) {
    assert(a->n_in % 32 == 0 && a->in.q8 && a->in.n_cols <= GPU_MAX_COLS);
    const gpu_grid grid = {gpu_blocks(a->n_out, WARPS), 1, 1, WARPS * GPU_WARP};
    gpu_launch(s, grid, sign_kernel, *a);
}
