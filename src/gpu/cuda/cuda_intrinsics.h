/* cuda_intrinsics.h: the instructions that kernels use beyond plain C++, for CUDA. */
#ifndef GPU_CUDA_CUDA_INTRINSICS_H
#define GPU_CUDA_CUDA_INTRINSICS_H

#include "driver_kernels.h"
#include "gpu_device.h"

/* Launch bounds: threads per block, and minimum blocks per multiprocessor. */
#define GPU_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)

static __device__ __forceinline__ float gpu_shuffle_xor(float v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
static __device__ __forceinline__ uint32_t gpu_ballot(bool v) {
    return __ballot_sync(0xffffffffu, v);
}
/* Requires the value here: the compiler must not move its load into the branch that uses it. AMD's
 * compiler waits for the load at this point, so pins come after all loads that should overlap. */
static __device__ __forceinline__ void gpu_pin(uint32_t v) {
    asm volatile("" ::"r"(v));
}

/* The first call in every kernel. Where kernels of a program overlap (driver_launch), it waits
 * until all earlier work is done, then lets blocks of the next kernel start, which wait here in
 * turn. The build replaces this comment in PTX by the instructions, from sm_90 on
 * (driver_build.cmake). */
static __device__ __forceinline__ void gpu_begin() {
    asm volatile("// gpu_begin" ::: "memory");
}

/* The compiler must not compute with the words before this point. */
template <int N> static __device__ __forceinline__ void gpu_hold(uint32_t (&w)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(w[i]));
}
/* Prefetches to the L2 cache. */
static __device__ __forceinline__ void gpu_prefetch(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}
/* A barrier for the threads of a warp. */
static __device__ __forceinline__ void gpu_sync_warp() {
    __syncwarp();
}

/* c + the products of four signed bytes. */
static __device__ __forceinline__ int gpu_dp4a(int a, int b, int c) {
    return __dp4a(a, b, c);
}
/* Bytes of (hi, lo) selected by the nibbles of `selector`. */
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
/* Uncached load of 16 bytes of pinned memory, which the host may have changed. */
static __device__ __forceinline__ uint4 gpu_host_load16(const void *p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
static __device__ __forceinline__ uint64_t gpu_clock_ns(uint32_t) {
    uint64_t v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}
static __device__ __forceinline__ void gpu_pause() {
    __nanosleep(100);
}
/* Tells the compiler that an address read from memory is in global memory. */
static __device__ __forceinline__ const void *gpu_global(const void *p) {
    return (const void *)(const __attribute__((address_space(1))) void *)p;
}

/* ---- tensor cores ----------------------------------------------------------------------------
 *
 * The matrices of a multiplication are distributed over a warp in fragments. A fragment of 16 x 16
 * 16-bit values is four registers per lane, one for each 8 x 8 part: rows 0..7, rows 8..15 of
 * columns 0..7, then these rows of columns 8..15. In each part lane l has row l / 4, columns 2 (l %
 * 4) and the next.
 *
 * GPU_ALL_ARCHS: the file does not use tensor cores, and its PTX suits all architectures. */
#if !defined(GPU_ALL_ARCHS)
#define GPU_MMA 1 /* this backend has tensor cores */
/* Whether the architecture compiled for has tensor cores; true in the host's compiler pass. */
#define GPU_MMA_HERE 1
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define GPU_MMA_BF16 1
#else
#define GPU_MMA_BF16 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GPU_TURING 1
#else
#define GPU_TURING 0
#endif

/* Conversions of gpu_kernel.h, one instruction each. */
#if GPU_MMA_BF16
#define GPU_PAIRS
static __device__ __forceinline__ uint32_t gpu_half_pair(float low, float high) {
    return gpu_pair_f16(low, high);
}
static __device__ __forceinline__ uint32_t gpu_bf16_pair(float low, float high) {
    return gpu_pair_bf16(low, high);
}
#endif

static __device__ __forceinline__ void cuda_load_matrices(uint32_t (&f)[4], const uint16_t *line) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(line)))
                 : "memory");
}

/* Loads the fragment at `tile`, in shared memory: 16 lines of 16 values, `stride` values apart;
 * tile and stride are aligned to 16 bytes. Called by all threads of a warp. */
static __device__ __forceinline__ void gpu_load_fragment(uint32_t (&f)[4], const uint16_t *tile,
                                                         int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    cuda_load_matrices(f, tile + lane % 16 * stride + lane / 16 * 8);
}
/* gpu_load_fragment with the two middle parts exchanged: when lines are columns of b (gpu_mma),
 * each pair of registers holds eight columns. */
static __device__ __forceinline__ void gpu_load_fragment_b(uint32_t (&f)[4], const uint16_t *tile,
                                                           int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    cuda_load_matrices(f, tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}
/* Like gpu_load_fragment; lines are the fragment's columns. */
static __device__ __forceinline__ void gpu_load_fragment_t(uint32_t (&f)[4], const uint16_t *tile,
                                                           int stride) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint16_t *line = tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(line)))
                 : "memory");
}

/* c += a b for 16 x 16 a, 16 x 8 b, in float. b0, b1: the first and last eight terms; lane l has
 * column l / 4, terms 2 (l % 4) and the next. In c it has row l / 4, columns 2 (l % 4) and the
 * next, then these columns of row l / 4 + 8. */
static __device__ __forceinline__ void gpu_mma_f16(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
#if GPU_TURING /* eight terms at a time */
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
#if GPU_MMA_BF16
static __device__ __forceinline__ void gpu_mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

/* d = start + a b for bytes: 16 x 32 a, 32 x 8 b, in int32. Fragments are those of gpu_mma_f16 with
 * two bytes instead of each 16-bit value: lane l has terms 4 (l % 4) and the next three, of a also
 * those of row l / 4 + 8, and the terms 16 behind. */
static __device__ __forceinline__ void gpu_mma_s8_half(int32_t (&d)[4], uint32_t a0, uint32_t a1,
                                                       uint32_t b, int32_t start) {
#if GPU_TURING /* eight rows at a time */
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %4};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a0), "r"(b), "r"(start));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %4};"
        : "=r"(d[2]), "=r"(d[3])
        : "r"(a1), "r"(b), "r"(start));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(start));
#endif
}
static __device__ __forceinline__ void gpu_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1, int32_t start) {
#if GPU_TURING
    gpu_mma_s8_half(d, a[0], a[1], b0, start);
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[2]), "r"(b1));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[2]), "+r"(d[3])
        : "r"(a[3]), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
#endif
}

/* Copies 16 bytes from global to shared memory, or writes zeros. The bytes have arrived when `end`
 * has returned; for other threads, after a barrier. No thread may use `shared` before that.
 * Asynchronous where the architecture supports it, else through registers. */
struct gpu_copy16 {
#if GPU_TURING
    uint4 v;
    void *to;
#endif
};
static __device__ __forceinline__ void gpu_copy16_begin(gpu_copy16 &copy, void *shared,
                                                        const void *global, bool there) {
#if GPU_TURING
    copy.v = there ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
    copy.to = shared;
#else
    (void)copy;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(there ? 16 : 0)
                 : "memory");
#endif
}
/* Waits for all copies that this thread has begun, including `copy`. */
template <int N> static __device__ __forceinline__ void gpu_copy16_end(gpu_copy16 (&copy)[N]) {
#if GPU_TURING
    for (int i = 0; i < N; i++) *static_cast<uint4 *>(copy[i].to) = copy[i].v;
#else
    (void)copy;
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
#endif

#endif
