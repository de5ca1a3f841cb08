/* sim_kernel.h: kernels as plain C++: the keywords that CUDA adds to the language, and the
 * functions of gpu_kernel.h, for a host compiler. sim_block.cpp has the functions that switch
 * fibers.
 *
 * A thread block runs on the stream's worker thread, each of its threads as a fiber. Fibers switch
 * only in gpu_sync and warp operations; all other code runs at normal speed. */
#ifndef GPU_SIM_SIM_KERNEL_H
#define GPU_SIM_SIM_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
/* Not forced: hundreds of kernels share the decoders. With ThreadSanitizer forced: it instruments
 * every call. */
#if defined(__SANITIZE_THREAD__)
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif
#define __launch_bounds__(...)
#define GPU_BOUNDS(...)

struct sim_dim {
    unsigned x, y, z;
};

/* A thread of the running block; all fibers of a worker belong to one block. */
struct sim_thread {
    sim_dim index, block, block_dim, grid;
};
extern __thread sim_thread *sim_self __attribute__((tls_model("initial-exec")));

#define threadIdx (sim_self->index)
#define blockIdx  (sim_self->block)
#define blockDim  (sim_self->block_dim)
#define gridDim   (sim_self->grid)

/* The most that a kernel may declare: of CUDA's, and of a compute unit of AMD's. */
#if defined(GPU_AMD_MMA)
enum : size_t { SIM_MOST_SHARED = 64 * 1024 };
#else
enum : size_t { SIM_MOST_SHARED = 48 * 1024 };
#endif
/* The block's shared memory: NaN in every float type when a block starts. A kernel that asks for
 * more than `most` bytes ends, and the device is lost. */
void *sim_shared(size_t n_bytes, size_t most);
#define GPU_SHARED(type, name)                                                                     \
    type &name = *static_cast<type *>(sim_shared(sizeof(type), SIM_MOST_SHARED))

void gpu_sync();
void gpu_begin(); /* an error when a thread of the kernel does not call it */
float gpu_warp_sum(float v);
float gpu_warp_max(float v);
float gpu_group4_sum(float v);
float gpu_group4_max(float v);
float gpu_group8_sum(float v);
float gpu_group16_sum(float v);
float gpu_group8_max(float v);
uint32_t gpu_ballot(bool v);

struct uint4 {
    uint32_t x, y, z, w;
};
/* Traps on a misaligned address, as the hardware does. */
static inline uint4 gpu_load16(const void *p) {
    return *static_cast<const uint4 *>(__builtin_assume_aligned(p, 16));
}

static inline void gpu_pin(uint32_t v) {
    (void)v;
}
template <int N> static inline void gpu_hold(uint32_t (&w)[N]) {
    (void)w;
}
/* Reads the address, so that sanitizers check it. */
static inline void gpu_prefetch(const void *p) {
    (void)*static_cast<const volatile uint8_t *>(p);
}
static inline void gpu_sync_warp() {
    gpu_ballot(true);
}
static inline int gpu_popcount(uint32_t v) {
    return __builtin_popcount(v);
}
static inline float gpu_bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t gpu_float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* IEEE half: 5 bits of exponent (bias 15), 10 of mantissa. Scaling by 2^112 moves the exponent to
 * float's bias and makes denormals normal. */
static inline float gpu_half_float(uint32_t h) {
    uint32_t sign = (h & 0x8000u) << 16, magnitude = (h & 0x7fffu) << 13;
    if (magnitude >= 0x7c00u << 13) return gpu_bits_float(sign | magnitude | 0x7f800000u);
    float scaled = gpu_bits_float(magnitude) * gpu_bits_float((112u + 127u) << 23);
    return gpu_bits_float(gpu_float_bits(scaled) | sign);
}

/* Round to nearest even. */
static inline uint16_t gpu_float_half(float f) {
    uint32_t bits = gpu_float_bits(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7fffu);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u); /* >= 65520 */
    if (magnitude < 0x38800000u) { /* below 2^-14: denormal; adding 0.5 leaves units of 2^-24 */
        float shifted = gpu_bits_float(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (gpu_float_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return static_cast<uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

/* Saturates; NaN gives 0, as in hardware. */
static inline int gpu_round(float v) {
    if (!(v == v)) return 0;
    if (v >= 2147483648.0f) return INT32_MAX;
    if (v <= -2147483648.0f) return INT32_MIN;
    return static_cast<int>(rintf(v));
}

static inline int gpu_dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c += static_cast<int8_t>(a >> 8 * i & 0xff) * static_cast<int8_t>(b >> 8 * i & 0xff);
    return c;
}

static inline uint32_t gpu_bytes(uint32_t lo, uint32_t hi, uint32_t selector) {
    uint64_t all = static_cast<uint64_t>(hi) << 32 | lo;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= static_cast<uint32_t>(all >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}

static inline uint64_t gpu_flag_load(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void gpu_flag_store(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline uint4 gpu_host_load16(const void *p) {
    return gpu_load16(p);
}
static inline void gpu_count(int32_t *p, int32_t n) {
    __atomic_fetch_add(p, n, __ATOMIC_RELAXED);
}
static inline int32_t gpu_ticket(int32_t *p) {
    return __atomic_fetch_add(p, 1, __ATOMIC_RELAXED);
}
static inline void gpu_fence_device() {} /* blocks run one after the other */
static inline void gpu_raise(int32_t *p, int32_t n) {
    int32_t is = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (is < n &&
           !__atomic_compare_exchange_n(p, &is, n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}
static inline void gpu_fence_system() {
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer does not know fences: a read-modify-write in every fence orders the same
     * accesses. */
    static int order;
    __atomic_fetch_add(&order, 1, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
uint64_t gpu_clock_ns(uint32_t clock_khz = 1000000);
void gpu_pause(); /* yields to other threads of the machine */
static inline const void *gpu_global(const void *p) {
    return p;
}

/* ---- tensor cores ------------------------------------------------------------------------------
 *
 * GPU_NO_MMA: none; GPU_AMD_MMA: those of an AMD family (hip_mma.h); otherwise those of
 * cuda_intrinsics.h. */
#if defined(GPU_NO_MMA)
#define GPU_MMA      0
#define GPU_MMA_HERE 0
#else
#define GPU_MMA      1
#define GPU_MMA_HERE 1
#define GPU_MMA_BF16 1
#define GPU_TURING   0

#if defined(GPU_AMD_MMA)
/* c += a b for 16 x 16 matrices, by all lanes of a wave: `family` is GPU_AMD_MMA. */
void sim_sync_wave();                        /* wave of two warps */
uint32_t sim_swap(uint32_t v, int distance); /* v of the lane 16 or (two warps) 32 away */
void sim_amd_mma(int family, float *c, const uint32_t *a, const uint32_t *b, bool bf16);
void sim_amd_mma_s8(int family, int32_t *c, const uint32_t *a, const uint32_t *b);
#else
static inline void gpu_load_fragment(uint32_t (&f)[4], const uint16_t *tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = 0; i < 4; i++) {
        const uint16_t *p = tile + (lane / 4 + i % 2 * 8) * stride + lane % 4 * 2 + i / 2 * 8;
        f[i] = p[0] | static_cast<uint32_t>(p[1]) << 16;
    }
}
static inline void gpu_load_fragment_b(uint32_t (&f)[4], const uint16_t *tile, int stride) {
    gpu_load_fragment(f, tile, stride);
    const uint32_t second = f[1];
    f[1] = f[2];
    f[2] = second;
}
static inline void gpu_load_fragment_t(uint32_t (&f)[4], const uint16_t *tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = 0; i < 4; i++) {
        const uint16_t *p = tile + (lane % 4 * 2 + i / 2 * 8) * stride + lane / 4 + i % 2 * 8;
        f[i] = p[0] | static_cast<uint32_t>(p[stride]) << 16;
    }
}

void gpu_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void gpu_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void gpu_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start);
static inline void gpu_mma_s8_half(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b,
                                   int32_t start) {
    const uint32_t a[4] = {a0, a1, 0, 0};
    gpu_mma_s8(d, a, b, 0, start);
}
#endif

/* Copies as late as the hardware may: in `end`. */
struct gpu_copy16 {
    void *to;
    const void *from;
    bool there;
};
static inline void gpu_copy16_begin(gpu_copy16 &copy, void *shared, const void *global,
                                    bool there) {
    copy = {shared, global, there};
}
template <int N> static inline void gpu_copy16_end(gpu_copy16 (&copy)[N]) {
    for (int i = 0; i < N; i++) {
        uint4 v = {0, 0, 0, 0};
        if (copy[i].there) v = gpu_load16(copy[i].from);
        *static_cast<uint4 *>(__builtin_assume_aligned(copy[i].to, 16)) = v;
    }
}
#endif

#endif
