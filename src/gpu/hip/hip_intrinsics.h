/* hip_intrinsics.h: the functions of cuda_intrinsics.h, for AMD.
 *
 * Kernels are written for warps of 32 threads. On GPUs with waves of 64, two such warps share a
 * wave: shuffles stay within 32 lanes, and a ballot returns the caller's half. */
#ifndef GPU_HIP_HIP_INTRINSICS_H
#define GPU_HIP_HIP_INTRINSICS_H

#include "driver_kernels.h"
#include "gpu_amd.h"
#include "gpu_device.h"

#define GPU_TURING 0

/* Matrix instructions of the family that is compiled for (hip_mma.h). 9: MFMA; 11, 12: WMMA of
 * gfx11, gfx12; 0: none. */
#if !GPU_AMD_UNITS
#define GPU_AMD_MMA 0
#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) ||  \
    defined(__gfx942__) || defined(__gfx950__)
#define GPU_AMD_MMA 9
#elif defined(__GFX11__)
#define GPU_AMD_MMA 11
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define GPU_AMD_MMA 12
#else
#define GPU_AMD_MMA 0
#endif
#define GPU_MMA      1
#define GPU_MMA_HERE (GPU_AMD_MMA != 0)
#define GPU_MMA_BF16 GPU_MMA_HERE

/* HIP counts waves of 64 per SIMD; a compute unit has four SIMDs. */
#define GPU_BOUNDS(threads, blocks) __launch_bounds__(threads, (threads) * (blocks) / 256)

static __device__ __forceinline__ float gpu_shuffle_xor(float v, int mask) {
    return __shfl_xor(v, mask, 32);
}
static __device__ __forceinline__ uint32_t gpu_ballot(bool v) {
    return (uint32_t)(__ballot(v) >> (__lane_id() & 32u));
}
static __device__ __forceinline__ void gpu_pin(uint32_t v) {
    asm volatile("" ::"v"(v));
}

/* Kernels do not overlap. */
static __device__ __forceinline__ void gpu_begin() {}
template <class T, int N> static __device__ __forceinline__ void gpu_hold(T (&w)[N]) {
    for (int i = 0; i < N; i++) asm volatile("" : "+v"(w[i]));
}
static __device__ __forceinline__ void gpu_prefetch(const void *p) {
    (void)p; /* only the newest GPUs have a prefetch instruction */
}
/* A wave runs in lockstep; orders its writes to shared memory before later accesses. */
static __device__ __forceinline__ void gpu_sync_warp() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

/* One instruction where the family has it; its name differs on gfx11 and gfx12; Vega and gfx1010
 * lack it. */
static __device__ __forceinline__ int gpu_dp4a(int a, int b, int c) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) ||  \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx1011__) || defined(__gfx1012__) ||  \
    defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) ||                        \
    defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
    return __builtin_amdgcn_sdot4(a, b, c, false);
#else
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i & 0xff) * (int8_t)(b >> 8 * i & 0xff);
    return c;
#endif
}
/* Bytes of (hi, lo) selected by the nibbles of `selector`, whose highest bits are clear. The
 * instruction takes one byte per index. */
static __device__ __forceinline__ uint32_t gpu_bytes(uint32_t lo, uint32_t hi, uint32_t selector) {
    uint32_t spread = ((selector & 0xffffu) | selector << 8) & 0x00ff00ffu;
    spread = (spread | spread << 4) & 0x07070707u;
    return __builtin_amdgcn_perm(hi, lo, spread);
}

static __device__ __forceinline__ uint64_t gpu_flag_load(const uint64_t *p) {
    return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
static __device__ __forceinline__ void gpu_flag_store(uint64_t *p, uint64_t v) {
    __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
static __device__ __forceinline__ uint4 gpu_host_load16(const void *p) {
    /* One uncached load, ordered by the flag's acquire. */
    typedef uint32_t words_t __attribute__((ext_vector_type(4)));
    const words_t w = __builtin_nontemporal_load(static_cast<const words_t *>(p));
    return make_uint4(w[0], w[1], w[2], w[3]);
}
/* A counter of constant rate; the instruction differs by family. */
static __device__ __forceinline__ uint64_t gpu_clock_ns(uint32_t clock_khz) {
#if __has_builtin(__builtin_readsteadycounter)
    const uint64_t ticks = __builtin_readsteadycounter();
#elif defined(__GFX11__) || defined(__GFX12__)
    const uint64_t ticks = __builtin_amdgcn_s_sendmsg_rtnl(0x83); /* MSG_RTN_GET_REALTIME */
#else
    const uint64_t ticks = __builtin_amdgcn_s_memrealtime();
#endif
    return ticks / clock_khz * 1000000 + ticks % clock_khz * 1000000 / clock_khz;
}
static __device__ __forceinline__ void gpu_pause() {
    __builtin_amdgcn_s_sleep(2);
}
/* As in cuda_intrinsics.h, but through registers; the load has no branch. */
struct gpu_copy16 {
    uint4 v;
    void *to;
    bool there;
};
static __device__ __forceinline__ void gpu_copy16_begin(gpu_copy16 &copy, void *shared,
                                                        const void *global, bool there) {
    copy.v = *static_cast<const uint4 *>(global);
    copy.to = shared;
    copy.there = there;
}
template <int N> static __device__ __forceinline__ void gpu_copy16_end(gpu_copy16 (&copy)[N]) {
    GPU_UNROLL
    for (int i = 0; i < N; i++) {
        /* word by word: a choice between two structs would put both in memory */
        const uint4 v = copy[i].v;
        const uint32_t mask = copy[i].there ? ~0u : 0u;
        *static_cast<uint4 *>(copy[i].to) = make_uint4(v.x & mask, v.y & mask, v.z & mask,
                                                       v.w & mask);
    }
}
/* Tells the compiler that an address read from memory is in global memory. */
static __device__ __forceinline__ const void *gpu_global(const void *p) {
    /* through an integer: the compiler would remove a pair of pointer casts */
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    return (const void *)(const __attribute__((address_space(1))) void *)at;
}

#endif
