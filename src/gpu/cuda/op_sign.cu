/* op_sign.cu: predictor scores from the signs of the gate's weights: sum of x where the bit is set
 * minus sum of x elsewhere = 2 * (sum where set) - (sum of all x). One warp per row; its lanes load
 * several words of 32 bits before they use one. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"

enum { WARPS = 4, AHEAD = 4 };

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

static __global__ void __launch_bounds__(WARPS *GPU_WARP) sign_kernel(gpu_sign_dot a) {
    gpu_begin();
    const int64_t r = (int64_t)blockIdx.x * WARPS + gpu_warp();
    if (r >= a.n_out) return;
    const uint32_t *row = (const uint32_t *)(a.bits + (size_t)r * ((size_t)a.n_in / 8));
    const int64_t groups = a.n_in / 32;
    for (int c = 0; c < a.in.n_cols; c++) {
        const uint8_t *q8 = (const uint8_t *)a.in.q8 + (size_t)c * gpu_q8_bytes(a.n_in);
        float score = 0.0f;
        for (int64_t first = gpu_lane(); first < groups; first += AHEAD * GPU_WARP) {
            uint32_t bits[AHEAD];
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t g = first + j * GPU_WARP;
                bits[j] = row[g < groups ? g : first];
            }
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) gpu_pin(bits[j]);
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t g = first + j * GPU_WARP;
                if (g < groups) score += group_score(bits[j], q8, a.n_in, g);
            }
        }
        score = gpu_warp_sum(score);
        if (gpu_lane() == 0) a.y[c * a.ldy + r] = score;
    }
}

void gpu_op_sign_dot(gpu_stream *s, const gpu_sign_dot *a) {
    assert(a->n_in % 32 == 0 && a->in.q8 && a->in.n_cols <= GPU_MAX_COLS);
    const gpu_grid grid = {gpu_blocks(a->n_out, WARPS), 1, 1, WARPS * GPU_WARP};
    gpu_launch<sign_kernel>(s, grid, *a);
}
