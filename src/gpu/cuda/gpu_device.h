/* gpu_device.h: what kernels need beyond C++, by clang alone: the words that CUDA and HIP add to
 * the language, and the functions of their headers and device libraries that kernels call. NVIDIA's
 * and AMD's GPUs are told apart by GPU_HIP.
 *
 * Floats are as exact as the libraries': the comment of a function has its error in units of the
 * last place. They are fused multiply-adds throughout, so the compiler's own contraction changes
 * nothing. */
#ifndef GPU_CUDA_GPU_DEVICE_H
#define GPU_CUDA_GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__      __attribute__((device))
#define __global__      __attribute__((global))
#define __shared__      __attribute__((shared))
#define __noinline__    __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#if defined(GPU_HIP) /* (threads per block) or (threads per block, least waves per SIMD) */
#define GPU_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define GPU_BOUNDS_2(threads, waves)                                                               \
    __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define GPU_BOUNDS_OF(first, second, which, ...) which

#define __launch_bounds__(...) GPU_BOUNDS_OF(__VA_ARGS__, GPU_BOUNDS_2, GPU_BOUNDS_1, )(__VA_ARGS__)
#else
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#endif
#define GPU_FUNCTION static __device__ __forceinline__

#undef INFINITY
#undef NAN
#define INFINITY __builtin_inff()
#define NAN      __builtin_nanf("")

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
GPU_FUNCTION uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return uint4{x, y, z, w};
}

/* Overloads the C library's, which is not the device's. */
GPU_FUNCTION void *memcpy(void *to, const void *from, size_t n) {
    return __builtin_memcpy(to, from, n);
}

/* ---- where a thread is ----------------------------------------------------------------------- */

struct gpu_index {
    unsigned x, y, z;
};
#define threadIdx gpu_thread_index()
#define blockIdx  gpu_block_index()
#define blockDim  gpu_block_size()
#define gridDim   gpu_grid_size()

#if defined(GPU_HIP)
#define GPU_INDEX(name)                                                                            \
    gpu_index {                                                                                    \
        __builtin_amdgcn_##name##_x(), __builtin_amdgcn_##name##_y(),                              \
            __builtin_amdgcn_##name##_z()                                                          \
    }
GPU_FUNCTION gpu_index gpu_thread_index() {
    return GPU_INDEX(workitem_id);
}
GPU_FUNCTION gpu_index gpu_block_index() {
    return GPU_INDEX(workgroup_id);
}
GPU_FUNCTION gpu_index gpu_block_size() {
    return GPU_INDEX(workgroup_size);
}
/* The packet of a launch counts threads; blocks are always full. */
GPU_FUNCTION gpu_index gpu_grid_size() {
    const gpu_index threads = GPU_INDEX(grid_size), block = gpu_block_size();
    return gpu_index{threads.x / block.x, threads.y / block.y, threads.z / block.z};
}
#else
#define GPU_INDEX(name)                                                                            \
    gpu_index {                                                                                    \
        (unsigned)__nvvm_read_ptx_sreg_##name##_x(), (unsigned)__nvvm_read_ptx_sreg_##name##_y(),  \
            (unsigned)__nvvm_read_ptx_sreg_##name##_z()                                            \
    }
GPU_FUNCTION gpu_index gpu_thread_index() {
    return GPU_INDEX(tid);
}
GPU_FUNCTION gpu_index gpu_block_index() {
    return GPU_INDEX(ctaid);
}
GPU_FUNCTION gpu_index gpu_block_size() {
    return GPU_INDEX(ntid);
}
GPU_FUNCTION gpu_index gpu_grid_size() {
    return GPU_INDEX(nctaid);
}
#endif

/* ---- other threads --------------------------------------------------------------------------- */

#if defined(GPU_HIP)
GPU_FUNCTION unsigned __lane_id() {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
/* Of the lane whose number differs in the bits of `mask`, below 32. */
GPU_FUNCTION int __shfl_xor(int v, int mask, int) {
    return __builtin_amdgcn_ds_bpermute(((int)__lane_id() ^ mask) * 4, v);
}
GPU_FUNCTION float __shfl_xor(float v, int mask, int width) {
    return __builtin_bit_cast(float, __shfl_xor(__builtin_bit_cast(int, v), mask, width));
}
GPU_FUNCTION uint64_t __ballot(bool v) {
#if defined(__GFX9__) /* waves of 64 */
    return __builtin_amdgcn_ballot_w64(v);
#else
    return __builtin_amdgcn_ballot_w32(v);
#endif
}
GPU_FUNCTION void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
GPU_FUNCTION void __threadfence() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
GPU_FUNCTION void __threadfence_system() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}
GPU_FUNCTION int atomicAdd(int *p, int n) {
    return __hip_atomic_fetch_add(p, n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_FUNCTION int atomicMax(int *p, int n) {
    return __hip_atomic_fetch_max(p, n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#else
/* __syncthreads is clang's own. */
GPU_FUNCTION float __shfl_xor_sync(unsigned members, float v, int mask) {
    return __nvvm_shfl_sync_bfly_f32(members, v, mask, 31);
}
GPU_FUNCTION unsigned __ballot_sync(unsigned members, bool v) {
    return __nvvm_vote_ballot_sync(members, v);
}
GPU_FUNCTION void __syncwarp() {
    __nvvm_bar_warp_sync(~0u);
}
GPU_FUNCTION void __nanosleep(unsigned ns) {
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
}
GPU_FUNCTION void __threadfence() {
    __nvvm_membar_gl();
}
GPU_FUNCTION void __threadfence_system() {
    __nvvm_membar_sys();
}
/* All atomics of kernels are on global memory. */
GPU_FUNCTION int atomicAdd(int *p, int n) {
    int before;
    asm volatile("atom.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"((__attribute__((address_space(1))) int *)p), "r"(n)
                 : "memory");
    return before;
}
GPU_FUNCTION int atomicMax(int *p, int n) {
    int before;
    asm volatile("atom.global.max.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"((__attribute__((address_space(1))) int *)p), "r"(n)
                 : "memory");
    return before;
}
#endif

/* ---- bits ------------------------------------------------------------------------------------ */

GPU_FUNCTION int __popc(uint32_t v) {
    return __builtin_popcount(v);
}
GPU_FUNCTION float __uint_as_float(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}
GPU_FUNCTION uint32_t __float_as_uint(float v) {
    return __builtin_bit_cast(uint32_t, v);
}

#if defined(GPU_HIP)
typedef _Float16 gpu_half;
GPU_FUNCTION float __half2float(gpu_half v) {
    return (float)v;
}
GPU_FUNCTION gpu_half __float2half_rn(float v) {
    return (gpu_half)v;
}
#else /* bits: clang would compare halves instead of floats, and clang 16 has no type for them     \
         here */
struct gpu_half {
    unsigned short bits;
};
GPU_FUNCTION float __half2float(gpu_half v) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
    return wide;
}
GPU_FUNCTION gpu_half __float2half_rn(float v) {
    gpu_half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(v));
    return half;
}
#endif
GPU_FUNCTION gpu_half __ushort_as_half(unsigned short bits) {
    return __builtin_bit_cast(gpu_half, bits);
}
GPU_FUNCTION unsigned short __half_as_ushort(gpu_half v) {
    return __builtin_bit_cast(unsigned short, v);
}

#if defined(GPU_HIP)
GPU_FUNCTION int __float2int_rn(float v) {
    return (int)__builtin_rintf(v);
}
#else
GPU_FUNCTION int __float2int_rn(float v) {
    return __nvvm_f2i_rn(v);
}
GPU_FUNCTION int __dp4a(int a, int b, int c) {
    int sum;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
GPU_FUNCTION uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    return __nvvm_prmt(low, high, selector);
}
/* Addresses within a space, of generic ones. */
GPU_FUNCTION uint64_t __cvta_generic_to_shared(const void *p) {
    return (uint64_t)(const __attribute__((address_space(3))) void *)p;
}
GPU_FUNCTION uint64_t __cvta_generic_to_global(const void *p) {
    return (uint64_t)(const __attribute__((address_space(1))) void *)p;
}
/* Two floats, the first in the low half. */
GPU_FUNCTION uint32_t gpu_pair_f16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
GPU_FUNCTION uint32_t gpu_pair_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

/* ---- mathematics ----------------------------------------------------------------------------- */

GPU_FUNCTION bool isnan(float x) {
    return __builtin_isnan(x);
}
GPU_FUNCTION float fabsf(float x) {
    return __builtin_fabsf(x);
}
GPU_FUNCTION float fminf(float x, float y) {
    return __builtin_fminf(x, y);
}
GPU_FUNCTION float fmaxf(float x, float y) {
    return __builtin_fmaxf(x, y);
}
GPU_FUNCTION float sqrtf(float x) {
    return __builtin_sqrtf(x);
}

/* 2^x, by an instruction: 2 units. */
GPU_FUNCTION float gpu_exp2(float x) {
#if defined(GPU_HIP)
    return __builtin_amdgcn_exp2f(x);
#else
    return __nvvm_ex2_approx_ftz_f(x);
#endif
}

/* e^x = 2^i 2^f, where f is x log2(e) - i, from log2(e) in two parts. Where i is at its limit, f is
 * large, and the product goes to zero or to infinity. 2 units. */
GPU_FUNCTION float expf(float x) {
    const float i = fmaxf(-126.0f, fminf(127.0f, __builtin_rintf(x * 1.44269502f)));
    const float f = __builtin_fmaf(x, 1.92596303e-8f, __builtin_fmaf(x, 1.44269502f, -i));
    return gpu_exp2(f) * __uint_as_float((uint32_t)((int)i + 127) << 23);
}

/* log(x) = e log(2) + log1p(m), m in [-1/3, 1/3], for normal x > 0; infinity and NaN stay what they
 * are. 1 unit. */
GPU_FUNCTION float logf(float x) {
    const uint32_t bits = __float_as_uint(x), two_thirds = 0x3f2aaaab;
    const uint32_t e = (bits - two_thirds) & 0xff800000u;
    const float m = __uint_as_float(bits - e) - 1.0f, s = m * m;
    float r = __builtin_fmaf(-0.130310059f, s, -0.121483512f);
    float t = __builtin_fmaf(0.140869141f, s, 0.139814854f);
    r = __builtin_fmaf(r, s, -0.166846126f);
    t = __builtin_fmaf(t, s, 0.200120345f);
    r = __builtin_fmaf(r, s, -0.249996200f);
    r = __builtin_fmaf(t, m, r);
    r = __builtin_fmaf(r, m, 0.333331972f);
    r = __builtin_fmaf(r, m, -0.5f);
    r = __builtin_fmaf(r, s, m);
    r = __builtin_fmaf((float)(int32_t)e * 0x1p-23f, 0.693147182f, r);
    return bits < 0x7f800000u ? r : x;
}

/* log(1 + x) for x >= 0. Rounding 1 + x to u loses a part, which the factor x / (u - 1) makes up
 * for (Kahan). 3 units. */
GPU_FUNCTION float log1pf(float x) {
    const float u = 1.0f + x;
    return u == 1.0f || !(u < INFINITY) ? x : logf(u) * (x / (u - 1.0f));
}

/* A polynomial near 0, else 1 - 2 / (e^2x + 1). 2 units. */
GPU_FUNCTION float tanhf(float x) {
    const float y = fabsf(x), s = x * x;
    float p = __builtin_fmaf(0.0157396831f, s, -0.0523039624f);
    p = __builtin_fmaf(p, s, 0.133152977f);
    p = __builtin_fmaf(p, s, -0.333327681f);
    if (y < 0.6f) return __builtin_fmaf(p * s, x, x);
    return __builtin_copysignf(1.0f - 2.0f / (expf(2.0f * y) + 1.0f), x);
}

/* The sine of x + quarter pi / 2, for |x| < 2^31: the rest of x after whole quarters, whose
 * length is in three parts, and the polynomials of fdlibm's kernels. */
GPU_FUNCTION double gpu_sine(double x, int quarter) {
    const double n = __builtin_rint(x * 0.63661977236758134);
    double r = __builtin_fma(-n, 1.5707963267948966, x);
    r = __builtin_fma(-n, 6.1232339957367660e-17, r);
    r = __builtin_fma(-n, -1.4973849048591833e-33, r);
    const double z = r * r;
    double s = __builtin_fma(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
    s = __builtin_fma(z, s, 2.75573137070700676789e-06);
    s = __builtin_fma(z, s, -1.98412698298579493134e-04);
    s = __builtin_fma(z, s, 8.33333333332248946124e-03);
    s = __builtin_fma(z, s, -1.66666666666666324348e-01);
    double c = __builtin_fma(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
    c = __builtin_fma(z, c, -2.75573143513906633035e-07);
    c = __builtin_fma(z, c, 2.48015872894767294178e-05);
    c = __builtin_fma(z, c, -1.38888888888741095749e-03);
    c = __builtin_fma(z, c, 4.16666666666666019037e-02);
    const double sine = __builtin_fma(r * z, s, r);
    const double cosine = __builtin_fma(z * z, c, __builtin_fma(z, -0.5, 1.0));
    const int q = (int)n + quarter;
    const double v = q & 1 ? cosine : sine;
    return q & 2 ? -v : v;
}
GPU_FUNCTION double sin(double x) {
    return gpu_sine(x, 0);
}
GPU_FUNCTION double cos(double x) {
    return gpu_sine(x, 1);
}

#endif
