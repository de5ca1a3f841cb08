/* gpu_mma.h: one interface for all tensor cores: products of 16 x 16 matrices, computed by the
 * threads of a warp (on AMD's gfx9 by a wave, which is two warps).
 *
 * `w` is [outputs][terms], `x` is [columns][terms]. A thread has GPU_MMA_WORDS registers of two
 * 16-bit floats of each, and GPU_MMA_SUMS results, for GPU_MMA_OUTS outputs: sum gpu_sum_at(o, c)
 * belongs to its o-th output, gpu_sum_output(o), and to its c-th column. Loads read 16 lines of
 * shared memory, `stride` values apart; address and stride are aligned to 16 bytes:
 *
 *   gpu_load_fragment    lines are outputs
 *   gpu_load_fragment_t  lines are terms: [terms][outputs]
 *   gpu_load_fragment_b  lines are columns
 *   gpu_sync_wave        barrier of the lanes, also for their writes to shared memory
 *   gpu_multiply_f16     sums += w x^T, in float
 *   gpu_multiply_bf16    gpu_multiply_f16 for bfloat16; only where GPU_MMA_BF16
 *
 * For int8 the registers have 32 terms of four bytes each instead of 16; sums have the same layout:
 *
 *   gpu_load_bytes       lines of 32 bytes are outputs; stride in bytes
 *   gpu_load_bytes_b     lines of 32 bytes are columns
 *   gpu_load_column_values  of 16 floats, those of the columns of the thread's sums, in their order
 *   gpu_multiply_s8      products = start + w x^T, exact, in int32
 *   gpu_multiply_s8_half gpu_multiply_s8 of 16 terms: the first (half 0) or the last (half 1)
 *
 * For two products in a row, where the second multiplies the sums of the first (attention):
 *
 *   gpu_load_fragment_tb lines are terms: [terms][columns]; not where GPU_MMA_TURNS: such
 *                        loads are slow there, and matrices are transposed when they are copied
 *   gpu_sums_fragment    sums as a fragment of halves: outputs stay outputs, columns become terms
 *   gpu_output_max, _sum over the lanes that have sums of the same outputs
 *   gpu_load_kept        like gpu_load_fragment, into GPU_MMA_KEPT registers
 *   gpu_kept             expands these registers to a fragment */
#ifndef GPU_CUDA_GPU_MMA_H
#define GPU_CUDA_GPU_MMA_H

#include "gpu_kernel.h"

#if defined(GPU_ALL_ARCHS)
#error "this file uses tensor cores: add it to GPU_TENSOR_FILES in driver_build.cmake"
#endif
#if GPU_MMA_HERE
#if defined(GPU_AMD_MMA)
#include "hip_mma.h"
#else

/* Two multiplications of eight columns each (cuda_intrinsics.h). */
enum { GPU_MMA_LANES = 32, GPU_MMA_WORDS = 4, GPU_MMA_SUMS = 8, GPU_MMA_OUTS = 2 };
#define GPU_MMA_TURNS 0
enum { GPU_MMA_KEPT = GPU_MMA_WORDS };

static __device__ __forceinline__ void gpu_load_fragment_tb(uint32_t (&f)[GPU_MMA_WORDS],
                                                            const uint16_t *tile, int stride) {
    gpu_load_fragment_t(f, tile, stride);
    const uint32_t second = f[1];
    f[1] = f[2];
    f[2] = second;
}
static __device__ __forceinline__ void gpu_sums_fragment(uint32_t (&f)[GPU_MMA_WORDS],
                                                         const float (&s)[GPU_MMA_SUMS]) {
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_WORDS; i++) f[i] = gpu_half_pair(s[2 * i], s[2 * i + 1]);
}
static __device__ __forceinline__ float gpu_output_max(float v) {
    return gpu_group4_max(v);
}
static __device__ __forceinline__ float gpu_output_sum(float v) {
    return gpu_group4_sum(v);
}
static __device__ __forceinline__ void gpu_load_kept(uint32_t (&kept)[GPU_MMA_KEPT],
                                                     const uint16_t *tile, int stride) {
    gpu_load_fragment(kept, tile, stride);
}
static __device__ __forceinline__ void gpu_kept(uint32_t (&f)[GPU_MMA_WORDS],
                                                const uint32_t (&kept)[GPU_MMA_KEPT]) {
    GPU_UNROLL
    for (int i = 0; i < GPU_MMA_WORDS; i++) f[i] = kept[i];
}

static __device__ __forceinline__ void gpu_sync_wave() {
    gpu_sync_warp();
}
static __device__ __forceinline__ int gpu_sum_at(int o, int c) {
    return c / 2 * 4 + o * 2 + c % 2;
}
static __device__ __forceinline__ int gpu_sum_output(int o) {
    return gpu_lane() / 4 + o * 8;
}
static __device__ __forceinline__ int gpu_sum_column(int c) {
    return gpu_lane() % 4 * 2 + c / 2 * 8 + c % 2;
}
enum { GPU_MMA_COLUMNS = GPU_MMA_SUMS / GPU_MMA_OUTS };
static __device__ __forceinline__ void gpu_load_column_values(float (&v)[GPU_MMA_COLUMNS],
                                                              const float *values) {
    const float *from = values + gpu_sum_column(0);
    __builtin_memcpy(v, __builtin_assume_aligned(from, 8), 8);
    __builtin_memcpy(v + 2, __builtin_assume_aligned(from + 8, 8), 8);
}
static __device__ __forceinline__ void gpu_load_bytes(uint32_t (&f)[GPU_MMA_WORDS],
                                                      const uint8_t *tile, int stride) {
    gpu_load_fragment(f, (const uint16_t *)tile, stride / 2);
}
static __device__ __forceinline__ void gpu_load_bytes_b(uint32_t (&f)[GPU_MMA_WORDS],
                                                        const uint8_t *tile, int stride) {
    gpu_load_fragment_b(f, (const uint16_t *)tile, stride / 2);
}
static __device__ __forceinline__ void gpu_multiply_s8(int32_t (&s)[GPU_MMA_SUMS],
                                                       const uint32_t (&w)[GPU_MMA_WORDS],
                                                       const uint32_t (&x)[GPU_MMA_WORDS],
                                                       int32_t start) {
    gpu_mma_s8(reinterpret_cast<int32_t(&)[4]>(s[0]), w, x[0], x[1], start);
    gpu_mma_s8(reinterpret_cast<int32_t(&)[4]>(s[4]), w, x[2], x[3], start);
}
static __device__ __forceinline__ void gpu_multiply_s8_half(int32_t (&s)[GPU_MMA_SUMS],
                                                            const uint32_t (&w)[GPU_MMA_WORDS],
                                                            const uint32_t (&x)[GPU_MMA_WORDS],
                                                            int half, int32_t start) {
    const uint32_t a0 = w[2 * half], a1 = w[2 * half + 1];
    gpu_mma_s8_half(reinterpret_cast<int32_t(&)[4]>(s[0]), a0, a1, x[half], start);
    gpu_mma_s8_half(reinterpret_cast<int32_t(&)[4]>(s[4]), a0, a1, x[2 + half], start);
}
static __device__ __forceinline__ void gpu_multiply_f16(float (&s)[GPU_MMA_SUMS],
                                                        const uint32_t (&w)[GPU_MMA_WORDS],
                                                        const uint32_t (&x)[GPU_MMA_WORDS]) {
    gpu_mma_f16(reinterpret_cast<float(&)[4]>(s[0]), w, x[0], x[1]);
    gpu_mma_f16(reinterpret_cast<float(&)[4]>(s[4]), w, x[2], x[3]);
}
#if GPU_MMA_BF16
static __device__ __forceinline__ void gpu_multiply_bf16(float (&s)[GPU_MMA_SUMS],
                                                         const uint32_t (&w)[GPU_MMA_WORDS],
                                                         const uint32_t (&x)[GPU_MMA_WORDS]) {
    gpu_mma_bf16(reinterpret_cast<float(&)[4]>(s[0]), w, x[0], x[1]);
    gpu_mma_bf16(reinterpret_cast<float(&)[4]>(s[4]), w, x[2], x[3]);
}
#endif

#endif
#endif
#endif
