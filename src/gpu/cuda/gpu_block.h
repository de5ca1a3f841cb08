/* gpu_block.h: collective operations of a thread block: sums, the int8 form of a column, and the
 * end of a message. */
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

/* Writes a lane's part of a group of the int8 form: eight lanes have four of its values each. */
static __device__ __forceinline__ void gpu_put_group(uint8_t *q8, int64_t n, int64_t group,
                                                     uint32_t packed, float d, int32_t low,
                                                     int32_t high) {
    const int lane8 = gpu_lane() % 8;
    ((uint32_t *)q8)[group * 8 + lane8] = packed;
    if (lane8 != 0) return;
    ((float *)(q8 + gpu_q8_d_offset(n)))[group] = d;
    ((int32_t *)(q8 + gpu_q8_sum_offset(n)))[2 * group] = low;
    ((int32_t *)(q8 + gpu_q8_sum_offset(n)))[2 * group + 1] = high;
}

/* Quantizes a group of 32 of a column of n elements to q8, and to a copy in pinned memory (either
 * may be NULL): eight lanes have four values each, in order. All lanes of the warp call it, each
 * eight with another group; `valid`: the group exists. As on the CPU: d = amax / 127, q = x / d
 * rounded to even; a group with a value that is not finite gets d = NaN. */
static __device__ __forceinline__ void gpu_quantize_group(const float (&x)[4], int64_t group,
                                                          bool valid, int64_t n, uint8_t *q8,
                                                          uint8_t *host_q8 = nullptr) {
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
    if (q8) gpu_put_group(q8, n, group, packed, d, (int32_t)low, (int32_t)high);
    if (host_q8) gpu_put_group(host_q8, n, group, packed, d, (int32_t)low, (int32_t)high);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Whether the exchange of n_cols columns is empty. */
static __device__ __forceinline__ bool gpu_is_idle(const gpu_idle &a, int n_cols) {
    if (!a.choices) return false;
    bool idle = true;
    for (int i = 0; i < n_cols * a.n_used; i++) {
        const bool own = (int64_t)a.choices[GPU_CHOICE_WORDS * i] < a.n_own;
        idle = idle && own != a.others;
    }
    return idle;
}

/* Every thread calls it between its last write of a message and the barrier behind which one thread
 * raises the flag. On CUDA release is cumulative (PTX memory model, causality order): that thread
 * also releases the writes of the others before the barrier, and only one pays for it. HIP's
 * barrier guarantees this within the device only, so all threads fence. */
static __device__ __forceinline__ void gpu_send_fence() {
#if defined(GPU_HIP)
    gpu_fence_system();
#endif
}

/* The epoch of the message that a kernel sends; 0: it sends none. */
static __device__ __forceinline__ uint64_t gpu_send_epoch(const gpu_send &a) {
    return a.epoch ? *a.epoch : 0;
}

/* Ends a message of n_blocks blocks, one per column: called by all threads of each when its part is
 * written. The last block raises the flag. `shared` is shared memory. */
static __device__ __forceinline__ void gpu_send_end(const gpu_send &a, uint64_t epoch,
                                                    int32_t n_blocks, bool *shared) {
    if (epoch == 0) return;
    gpu_send_fence();
    if (!a.flag) return;
    if (n_blocks == 1)
        gpu_sync();
    else if (!gpu_is_last(a.arrived, n_blocks, shared))
        return;
    if (threadIdx.x == 0) gpu_flag_store(a.flag, epoch + (gpu_is_idle(a.idle, n_blocks) ? 1 : 0));
}

#endif
