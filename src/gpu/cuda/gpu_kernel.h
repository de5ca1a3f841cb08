/* gpu_kernel.h: a thin layer over CUDA, HIP and the simulator, so that every operation has one
 * source. Kernels use everything that differs between the three through this layer.
 *
 * Rules for kernels: a kernel takes one struct of arguments by value; blocks are one-dimensional,
 * of whole warps of GPU_WARP threads; shared memory is one struct per kernel (GPU_SHARED); all
 * threads of a warp call a warp operation together. */
#ifndef GPU_CUDA_GPU_KERNEL_H
#define GPU_CUDA_GPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "gpu.h"
#include "gpu_fault.h"

enum { GPU_WARP = 32 };

/* Unrolls a loop: keeps small arrays in registers. */
#if defined(GPU_SIM)
#define GPU_UNROLL
#define GPU_ROLLED
#else
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1") /* prevents unrolling */
#endif

/* A device function that is not inlined; on AMD it is, because calls save registers in memory
 * there. */
#if defined(GPU_HIP)
#define GPU_NOINLINE __attribute__((always_inline)) inline
#else
#define GPU_NOINLINE __attribute__((noinline))
#endif

/* Of a table that lanes read at different places: not `const` where that means constant memory,
 * which serves one address at a time. */
#if defined(GPU_CLANG) && !defined(GPU_HIP)
#define GPU_TABLE
#else
#define GPU_TABLE const
#endif

#if defined(GPU_SIM)
#include "sim_kernel.h"
#else
#if defined(GPU_HIP)
#include "hip_intrinsics.h"
#else
#include "cuda_intrinsics.h"
#endif

/* Equal in CUDA and HIP. */
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
static __device__ __forceinline__ uint32_t gpu_float_bits(float v) {
    return __float_as_uint(v);
}
/* Nearest integer, ties to even. */
static __device__ __forceinline__ int gpu_round(float v) {
    return __float2int_rn(v);
}
/* Adds to a counter that other blocks also add to. */
static __device__ __forceinline__ void gpu_count(int32_t *p, int32_t n) {
    atomicAdd(p, n);
}
/* Atomic addition that returns the old value. */
static __device__ __forceinline__ int32_t gpu_ticket(int32_t *p) {
    return atomicAdd(p, 1);
}
/* Makes the writes of this thread, and the writes of others that it has observed, visible to the
 * device. */
static __device__ __forceinline__ void gpu_fence_device() {
    __threadfence();
}
/* *p = max(*p, n), atomically. */
static __device__ __forceinline__ void gpu_raise(int32_t *p, int32_t n) {
    atomicMax(p, n);
}
/* Makes the writes of this thread visible to the host before those that follow. */
static __device__ __forceinline__ void gpu_fence_system() {
    __threadfence_system();
}

/* Declares `name`, shared by the threads of a block; its contents are undefined at first. */
#define GPU_SHARED(type, name) __shared__ type name

static __device__ __forceinline__ float gpu_warp_sum(float v) {
    GPU_UNROLL
    for (int i = GPU_WARP / 2; i > 0; i /= 2) v += gpu_shuffle_xor(v, i);
    return v;
}

static __device__ __forceinline__ float gpu_warp_max(float v) {
    GPU_UNROLL
    for (int i = GPU_WARP / 2; i > 0; i /= 2) v = fmaxf(v, gpu_shuffle_xor(v, i));
    return v;
}

/* Sum over aligned groups of 4 lanes. */
static __device__ __forceinline__ float gpu_group4_sum(float v) {
    v += gpu_shuffle_xor(v, 2);
    return v + gpu_shuffle_xor(v, 1);
}

static __device__ __forceinline__ float gpu_group4_max(float v) {
    v = fmaxf(v, gpu_shuffle_xor(v, 2));
    return fmaxf(v, gpu_shuffle_xor(v, 1));
}

/* Sum over aligned groups of 8 lanes. */
static __device__ __forceinline__ float gpu_group8_sum(float v) {
    GPU_UNROLL
    for (int i = 4; i > 0; i /= 2) v += gpu_shuffle_xor(v, i);
    return v;
}

static __device__ __forceinline__ float gpu_group8_max(float v) {
    GPU_UNROLL
    for (int i = 4; i > 0; i /= 2) v = fmaxf(v, gpu_shuffle_xor(v, i));
    return v;
}

/* Over aligned groups of 16 lanes. */
static __device__ __forceinline__ float gpu_group16_sum(float v) {
    return gpu_group8_sum(v + gpu_shuffle_xor(v, 8));
}

/* Loads 16 bytes at an aligned address. */
static __device__ __forceinline__ uint4 gpu_load16(const void *p) {
    return *(const uint4 *)p;
}
#endif

/* Packs two values, rounded to nearest even, the first in the low half; NaN stays NaN. */
#if !defined(GPU_PAIRS)
static __device__ __forceinline__ uint32_t gpu_half_pair(float low, float high) {
    return gpu_float_half(low) | static_cast<uint32_t>(gpu_float_half(high)) << 16;
}
static __device__ __forceinline__ uint32_t gpu_float_bf16(float f) {
    const uint32_t bits = gpu_float_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
static __device__ __forceinline__ uint32_t gpu_bf16_pair(float low, float high) {
    return gpu_float_bf16(low) | gpu_float_bf16(high) << 16;
}
#endif

/* a * b + c, rounded once, also where the compiler may not contract. */
static __device__ __forceinline__ float gpu_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

/* Loads four floats at an address aligned to 16 bytes, in one instruction. */
static __device__ __forceinline__ void gpu_load4(const float *p, float *v) {
    const uint4 u = gpu_load16(p);
    v[0] = gpu_bits_float(u.x), v[1] = gpu_bits_float(u.y);
    v[2] = gpu_bits_float(u.z), v[3] = gpu_bits_float(u.w);
}

/* ---- launching (one per backend) ------------------------------------------------------------- */

struct gpu_grid {
    unsigned x, y, z; /* blocks */
    unsigned threads; /* per block, a multiple of GPU_WARP */
};

struct gpu_fault *gpu_stream_fault(gpu_stream *s); /* device address */
uint64_t gpu_stream_wait_ns(const gpu_stream *s);
/* Call before every launch of a kernel that waits for the host. */
void gpu_stream_waits(gpu_stream *s);
/* Ticks per millisecond of the device's clock, for gpu_clock_ns. */
uint32_t gpu_stream_clock_khz(const gpu_stream *s);
/* Whether the stream's device has tensor cores: in a build for several AMD families some devices
 * have none. */
bool gpu_stream_tensor_cores(const gpu_stream *s);
/* Call before a kernel that may write to another device's memory. When that memory is not from
 * peer_alloc, the simulator reports an error; on a real device the address is invalid. */
#if defined(GPU_SIM)
void gpu_stream_writes(gpu_stream *s, const void *p, size_t n_bytes);
#else
static inline void gpu_stream_writes(gpu_stream *, const void *, size_t) {}
#endif

#if defined(GPU_SIM)
typedef void (*gpu_any_kernel)(void);
/* Calls the kernel with a copy of the arguments. */
typedef void (*gpu_caller)(gpu_any_kernel kernel, const void *args);
template <class A> static void gpu_call(gpu_any_kernel kernel, const void *args) {
    reinterpret_cast<void (*)(A)>(kernel)(*static_cast<const A *>(args));
}
/* Entry of the list of all kernels, built when the backend's library is opened: opening a device
 * loads all of them. */
struct gpu_kernel {
    gpu_any_kernel function;
    gpu_caller call;
    gpu_kernel *next;
    unsigned loaded; /* sim: one bit per device */
    gpu_kernel(gpu_any_kernel f, gpu_caller c) : function(f), call(c), next(first), loaded(0) {
        first = this;
    }
    static gpu_kernel *first;
};
void gpu_launch_any(gpu_stream *s, const gpu_grid &grid, const gpu_kernel &kernel, const void *args,
                    size_t n_args);

template <auto function, class A> struct gpu_kernel_of { static gpu_kernel kernel; };
template <auto function, class A>
gpu_kernel gpu_kernel_of<function, A>::kernel(reinterpret_cast<gpu_any_kernel>(function),
                                              gpu_call<A>);

template <auto function, class A>
static void gpu_launch(gpu_stream *s, const gpu_grid &grid, const A &args) {
    gpu_launch_any(s, grid, gpu_kernel_of<function, A>::kernel, &args, sizeof args);
}
#else
template <auto function, class A> struct gpu_kernel_of { static driver_kernel kernel; };
template <auto function, class A>
driver_kernel gpu_kernel_of<function, A>::kernel(gpu_host_name<function>());

template <auto function, class A>
static void gpu_launch(gpu_stream *s, const gpu_grid &grid, const A &args) {
    const unsigned blocks[3] = {grid.x, grid.y, grid.z};
    driver_launch(s, gpu_kernel_of<function, A>::kernel.number, blocks, grid.threads, &args);
}
#endif

/* Whether two types are the same. */
template <class A, class B> struct gpu_same { static constexpr bool value = false; };
template <class A> struct gpu_same<A, A> { static constexpr bool value = true; };

/* ---- shared by kernels ----------------------------------------------------------------------- */

static inline unsigned gpu_blocks(int64_t n, int64_t per_block) {
    return static_cast<unsigned>((n + per_block - 1) / per_block);
}

static __device__ __forceinline__ int gpu_lane() {
    return static_cast<int>(threadIdx.x) % GPU_WARP;
}
/* Hides the origin of a value from the compiler. Otherwise clang would hoist the addresses that a
 * loop computes from it out of all enclosing loops, and registers would spill. */
static __device__ __forceinline__ int gpu_here(int v) {
#if defined(GPU_HIP)
    asm volatile("" : "+v"(v));
#elif defined(GPU_CLANG)
    asm volatile("" : "+r"(v));
#endif
    return v;
}
/* gpu_here for a value that is uniform in the block. */
static __device__ __forceinline__ int gpu_same_here(int v) {
#if defined(GPU_HIP)
    asm volatile("" : "+s"(v));
#elif defined(GPU_CLANG)
    asm volatile("" : "+r"(v));
#endif
    return v;
}
static __device__ __forceinline__ int gpu_warp() {
    return static_cast<int>(threadIdx.x) / GPU_WARP;
}

/* Expands four bits to four bytes of 0 or 1: shifted copies, 7 bits apart, put bit j at bit 8 j and
 * do not overlap. */
static __device__ __forceinline__ uint32_t gpu_spread_bits(uint32_t bits) {
    return bits * 0x00204081u & 0x01010101u;
}

/* The activations of activation.h; NaN stays NaN. */
static __device__ __forceinline__ float gpu_relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

static __device__ __forceinline__ float gpu_activation(activation f, float threshold, float x) {
    const float sqrt_2_over_pi = 0.79788456080286536f;
    switch (f) {
    case ACTIVATION_SILU:
        return x / (1.0f + expf(-x));
    case ACTIVATION_GELU:
        return 0.5f * x * (1.0f + tanhf(sqrt_2_over_pi * (x + 0.044715f * x * x * x)));
    case ACTIVATION_RELU_SQUARED:
        return gpu_relu(x) * gpu_relu(x);
    case ACTIVATION_FATRELU:
        return x > threshold ? x : 0.0f;
    default: /* relu, drelu */
        return gpu_relu(x);
    }
}

/* f(gate) * up; dReLU also applies ReLU to up. A zero activation gives 0 for every value of `up`,
 * also NaN. */
static __device__ __forceinline__ float gpu_gated(activation f, float activated, float up) {
    if (activated == 0.0f) return 0.0f;
    return activated * (f == ACTIVATION_DRELU ? gpu_relu(up) : up);
}

/* A hidden value, zero up to cut_down (gpu_ops.h). */
static __device__ __forceinline__ float gpu_hidden(activation f, float activated, float up,
                                                   float cut_down) {
    const float h = gpu_gated(f, activated, up);
    return fabsf(h) <= cut_down ? 0.0f : h;
}

/* Clamps gate and up. For gpt-oss it also scales them so that silu(gate) * up is its activation: x
 * / (1 + e^-ax) = silu(ax) / a. NaN stays NaN. */
#define GPU_CLAMP_ALPHA 1.702f
static __device__ __forceinline__ float gpu_clamp_gate(const gpu_clamp &c, float x) {
    if (c.most == 0.0f || c.late || c.soft > 0.0f) return x;
    const float y = x > c.most ? c.most : x;
    return c.shifted ? GPU_CLAMP_ALPHA * y : y;
}
/* f(gate), limited. */
static __device__ __forceinline__ float gpu_clamp_activation(const gpu_clamp &c, activation f,
                                                             float threshold, float gate) {
    if (c.soft > 0.0f) return c.soft * tanhf(gate / c.soft) / (1.0f + expf(-gate));
    const float y = gpu_activation(f, threshold, gpu_clamp_gate(c, gate));
    return c.late && c.most > 0.0f && y > c.most ? c.most : y;
}
static __device__ __forceinline__ float gpu_clamp_up(const gpu_clamp &c, float x) {
    if (c.most == 0.0f || !(c.most < INFINITY)) return x;
    if (c.soft > 0.0f) return c.most * tanhf(x / c.most);
    const float y = x > c.most ? c.most : x < -c.most ? -c.most : x;
    return c.shifted ? (y + 1.0f) / GPU_CLAMP_ALPHA : y;
}

/* True in the last of n blocks that call it; this block sees the writes of the others. *arrived is
 * 0 before and after. Called by all threads of a block; `shared` is shared memory. Thread 0
 * releases the writes that the other threads made before the barrier: on CUDA release is
 * cumulative. On AMD's CDNA neither a barrier nor the fence of one wave waits for stores of other
 * waves, so every thread fences (check-hip.sh checks the code). */
static __device__ __forceinline__ bool gpu_is_last(int32_t *arrived, int32_t n, bool *shared) {
#if defined(GPU_HIP)
    gpu_fence_device();
#endif
    gpu_sync();
    if (threadIdx.x == 0) {
        gpu_fence_device();
        *shared = gpu_ticket(arrived) == n - 1;
        if (*shared) *arrived = 0;
        gpu_fence_device();
    }
    gpu_sync();
    return *shared;
}

/* Stores a product in y. */
static __device__ __forceinline__ void gpu_put_product(const gpu_matmul &a, float *y, float v) {
    const float sum = a.add ? *y + v : v;
    *y = a.relu ? gpu_relu(sum) : sum;
}

/* Bit i of column c of a bitmap [n_cols][n_words]; NULL: every bit is set. */
static __device__ __forceinline__ bool gpu_selected(const uint32_t *bitmap, int64_t n_words,
                                                    int64_t c, int64_t i) {
    return !bitmap || (bitmap[c * n_words + i / 32] >> (i % 32) & 1u) != 0;
}

#endif
