/* cuda_intrinsics.h: the few instructions that kernels use beyond plain C++, for CUDA. */
#ifndef GPU_CUDA_CUDA_INTRINSICS_H
#define GPU_CUDA_CUDA_INTRINSICS_H

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* What the host side says of itself and of a device. */
#define GPU_BACKEND_NAME "cuda"
#define GPU_ARCH_NAME(text, properties)                                                            \
    snprintf(text, sizeof text, "sm_%d%d", (properties).major, (properties).minor)
#define GPU_HAS_TENSOR_CORES(properties) ((properties).major >= 7)

static __device__ __forceinline__ float gpu_shuffle_xor(float v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
static __device__ __forceinline__ uint32_t gpu_ballot(bool v) {
    return __ballot_sync(0xffffffffu, v);
}
static __device__ __forceinline__ int gpu_popcount(uint32_t v) {
    return __popc(v);
}
static __device__ __forceinline__ void gpu_sync() {
    __syncthreads();
}

static __device__ __forceinline__ float gpu_half_float(uint32_t bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
static __device__ __forceinline__ uint16_t gpu_float_half(float v) {
    return __half_as_ushort(__float2half_rn(v));
}
static __device__ __forceinline__ float gpu_bits_float(uint32_t bits) {
    return __uint_as_float(bits);
}
/* Nearest integer, ties to even. */
static __device__ __forceinline__ int gpu_round(float v) {
    return __float2int_rn(v);
}

/* c + the products of four signed bytes. */
static __device__ __forceinline__ int gpu_dp4a(int a, int b, int c) {
    return __dp4a(a, b, c);
}
/* Bytes of (hi, lo) chosen by the nibbles of `selector`. */
static __device__ __forceinline__ uint32_t gpu_bytes(uint32_t lo, uint32_t hi, uint32_t selector) {
    return __byte_perm(lo, hi, selector);
}

/* Flags in pinned host memory: acquire and release at system scope. */
static __device__ __forceinline__ uint64_t gpu_flag_load(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ void gpu_flag_store(uint64_t *p, uint64_t v) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/* Adds to a counter that other blocks add to as well. */
static __device__ __forceinline__ void gpu_count(int32_t *p, int32_t n) {
    atomicAdd(p, n);
}
/* Makes the writes of this thread visible to the host before those that follow. */
static __device__ __forceinline__ void gpu_fence_system() {
    __threadfence_system();
}
static __device__ __forceinline__ uint64_t gpu_clock_ns() {
    uint64_t v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}
static __device__ __forceinline__ void gpu_pause() {
    __nanosleep(100);
}

#endif
