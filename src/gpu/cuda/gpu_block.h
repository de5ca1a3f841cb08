/* gpu_block.h: collective operations of a thread block: sums, and the int8 form of a column. */
#ifndef GPU_CUDA_GPU_BLOCK_H
#define GPU_CUDA_GPU_BLOCK_H

#include "gpu_kernel.h"

/* Sum over a block of at most 32 warps, in all threads. `part` is shared memory; calls with an
 * equal `part` need a gpu_sync between them. */
static __device__ __forceinline__ float gpu_block_sum(float v, float *part, int n_warps) {
    v = gpu_warp_sum(v);
    if (gpu_lane() == 0) part[gpu_warp()] = v;
    gpu_sync();
    return gpu_warp_sum(gpu_lane() < n_warps ? part[gpu_lane()] : 0.0f);
}

/* The largest magnitude of 32 values, four in each of eight lanes; infinite when a value is not
 * finite. */
static __device__ __forceinline__ float gpu_group32_amax(const float (&x)[4]) {
    float amax = 0.0f;
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const float size = fabsf(x[i]);
        amax = fmaxf(amax,
                     size < INFINITY ? size : INFINITY); /* NaN compares false: becomes INFINITY */
    }
    return gpu_group8_max(amax);
}

/* Quantizes a group of 32 of a column of n elements to q8: eight lanes have four values each, in
 * order. All lanes of the warp call it, each eight with another group; `valid`: the group exists.
 * As on the CPU: d = amax / 127, q = x / d rounded to even; a group with a value that is not finite
 * gets d = NaN. */
static __device__ __forceinline__ void gpu_quantize_group(const float (&x)[4], int64_t group,
                                                          bool valid, int64_t n, uint8_t *q8) {
    const int lane8 = gpu_lane() % 8;
    const float amax = gpu_group32_amax(x);
    const bool finite = amax < INFINITY;
    const float d = finite ? amax / 127.0f : gpu_bits_float(0x7fc00000u);
    uint32_t packed = 0;
    int sum = 0;
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        int q = finite && d != 0.0f ? gpu_round(x[i] / d) : 0;
        q = q > 127 ? 127 : q < -127 ? -127 : q; /* a denormal scale is inexact and may give more */
        sum += q;
        packed |= (uint32_t)(q & 0xff) << 8 * i;
    }
    const float low = gpu_group8_sum(lane8 < 4 ? (float)sum : 0.0f);
    const float high = gpu_group8_sum(lane8 < 4 ? 0.0f : (float)sum);
    if (!valid) return;
    ((uint32_t *)q8)[group * 8 + lane8] = packed;
    if (lane8 != 0) return;
    ((float *)(q8 + gpu_q8_d_offset(n)))[group] = d;
    ((int32_t *)(q8 + gpu_q8_sum_offset(n)))[2 * group] = (int32_t)low;
    ((int32_t *)(q8 + gpu_q8_sum_offset(n)))[2 * group + 1] = (int32_t)high;
}

#endif
