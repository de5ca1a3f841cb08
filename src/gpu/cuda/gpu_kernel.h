/* gpu_kernel.h: the language of kernels: one small layer over CUDA, HIP and the simulation, so that
 * every operation is one source. Everything that differs between the three goes through here.
 *
 * Rules that make one source serve for three: a kernel takes one struct of arguments by value;
 * blocks are one-dimensional, of whole warps of GPU_WARP threads; shared memory is one struct per
 * kernel (GPU_SHARED); warp operations are called by all threads of a warp together. */
#ifndef GPU_CUDA_GPU_KERNEL_H
#define GPU_CUDA_GPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "gpu.h"

enum { GPU_WARP = 32 };

/* Unrolls a loop: keeps small arrays in registers. */
#if defined(GPU_SIM)
#define GPU_UNROLL
#define GPU_ROLLED
#else
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1") /* keeps a loop */
#endif

/* A device function that is called, not inlined; on AMD it is inlined, since calls there save
 * registers in memory. */
#if defined(GPU_HIP)
#define GPU_NOINLINE __attribute__((always_inline)) inline
#elif defined(__CUDACC__)
#define GPU_NOINLINE __noinline__
#else
#define GPU_NOINLINE __attribute__((noinline))
#endif

#if defined(GPU_SIM)
#include "sim_kernel.h"
#else
#if defined(GPU_HIP)
#include "hip_alias.h"
#else
#include "cuda_intrinsics.h"
#endif

/* CUDA and HIP spell these alike. */
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
/* Makes the writes of this thread, and those of others that it has seen, visible to the device. */
static __device__ __forceinline__ void gpu_fence_device() {
    __threadfence();
}
/* Raises a number to at least n; other blocks may also raise it. */
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

/* Over aligned groups of 4 lanes. */
static __device__ __forceinline__ float gpu_group4_sum(float v) {
    v += gpu_shuffle_xor(v, 2);
    return v + gpu_shuffle_xor(v, 1);
}

static __device__ __forceinline__ float gpu_group4_max(float v) {
    v = fmaxf(v, gpu_shuffle_xor(v, 2));
    return fmaxf(v, gpu_shuffle_xor(v, 1));
}

/* Over aligned groups of 8 lanes. */
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

/* Sixteen bytes at an aligned address. */
static __device__ __forceinline__ uint4 gpu_load16(const void *p) {
    return *(const uint4 *)p;
}
#endif

/* Two values, rounded to nearest even, the first in the low half; NaN stays NaN. */
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

/* Four floats at an address aligned to 16 bytes, by one load. */
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

/* Where a stream's kernels report that a wait failed, and how long they wait. Pinned. */
struct gpu_fault {
    uint64_t released;  /* set by the host: aborts all waits */
    uint64_t timed_out; /* set by a kernel */
};
struct gpu_fault *gpu_stream_fault(gpu_stream *s); /* device address */
uint64_t gpu_stream_wait_ns(const gpu_stream *s);
/* To be called before launching a kernel that waits for the host. */
void gpu_stream_waits(gpu_stream *s);
/* Ticks per millisecond of the device's clock, for gpu_clock_ns. */
uint32_t gpu_stream_clock_khz(const gpu_stream *s);
/* Whether its device has tensor cores: in a build for several AMD families some have none. */
bool gpu_stream_tensor_cores(const gpu_stream *s);
/* To be called before a kernel that may write to another device's memory. Memory that is not from
 * peer_alloc is an error of the simulated device, and an invalid address for a real one. */
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
#else
typedef const void *gpu_any_kernel;
typedef void (*gpu_caller)(void); /* not needed */
template <class A> static void gpu_call() {}
#endif

/* A list of all kernels, made when the backend's library is opened: opening a device loads all of
 * them. */
struct gpu_kernel {
    gpu_any_kernel function;
    gpu_caller call;
    gpu_kernel *next;
    unsigned loaded; /* sim: a bit for every device */
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

/* ---- small things that kernels share --------------------------------------------------------- */

static inline unsigned gpu_blocks(int64_t n, int64_t per_block) {
    return static_cast<unsigned>((n + per_block - 1) / per_block);
}

static __device__ __forceinline__ int gpu_lane() {
    return static_cast<int>(threadIdx.x) % GPU_WARP;
}
/* A thread's value, as if computed here. Otherwise clang would move the addresses that a loop makes
 * of it out of the loop and out of the loops around it, and keep them in more registers than there
 * are. */
static __device__ __forceinline__ int gpu_here(int v) {
#if defined(GPU_HIP)
    asm volatile("" : "+v"(v));
#endif
    return v;
}
/* A value that is uniform in the block. */
static __device__ __forceinline__ int gpu_same_here(int v) {
#if defined(GPU_HIP)
    asm volatile("" : "+s"(v));
#endif
    return v;
}
static __device__ __forceinline__ int gpu_warp() {
    return static_cast<int>(threadIdx.x) / GPU_WARP;
}

/* Four bits as four bytes of 0 or 1: copies of them, 7 apart, have bit j at 8 j, and none overlap.
 */
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

/* f(gate) * up, with the second ReLU of dReLU. A zero stays zero whatever `up` is. */
static __device__ __forceinline__ float gpu_gated(activation f, float activated, float up) {
    if (activated == 0.0f) return 0.0f;
    return activated * (f == ACTIVATION_DRELU ? gpu_relu(up) : up);
}

/* Gate and up of gpt-oss, scaled so that silu(gate) * up is its activation: x / (1 + e^-ax) is
 * silu(ax) / a. NaN stays NaN. */
#define GPU_CLAMP_LIMIT 7.0f
#define GPU_CLAMP_ALPHA 1.702f
static __device__ __forceinline__ float gpu_clamp_gate(float x) {
    return GPU_CLAMP_ALPHA * (x > GPU_CLAMP_LIMIT ? GPU_CLAMP_LIMIT : x);
}
static __device__ __forceinline__ float gpu_clamp_up(float x) {
    const float y = x > GPU_CLAMP_LIMIT    ? GPU_CLAMP_LIMIT
                    : x < -GPU_CLAMP_LIMIT ? -GPU_CLAMP_LIMIT
                                           : x;
    return (y + 1.0f) / GPU_CLAMP_ALPHA;
}

/* True in the last of n blocks that arrive here; that block sees what the others have written. The
 * count of arrivals is 0 before and after. By all threads of a block; `shared` is shared memory.
 * The thread that counts releases what the other threads wrote before the barrier: on CUDA release
 * is cumulative. On AMD's CDNA neither a barrier nor the fence of one wave waits for other waves'
 * stores: there every thread fences (check-hip.sh reads the code). */
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

/* A product to its place in y. */
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
