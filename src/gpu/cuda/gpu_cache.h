/* gpu_cache.h: the types of a KV cache: how the elements of a head are stored and read, one struct
 * per type. */
#ifndef GPU_CUDA_GPU_CACHE_H
#define GPU_CUDA_GPU_CACHE_H

#include "gpu_block.h"
#include "gpu_formats.h"

/* `load` takes eight elements as they are, without a look at them; `decode` makes values of them.
 * `head` is where element 0 lies, `i` the number of the eight. `store` writes a head of n elements,
 * of shared memory aligned to 16 bytes, by n_threads threads of whole warps. */
struct gpu_cache_f16 {
    typedef uint4 raw;
    static __device__ __forceinline__ size_t head_bytes(int n) { return 2 * (size_t)n; }
    static __device__ __forceinline__ void load(const uint8_t *head, int i, raw &r) {
        r = gpu_load16(head + 16 * i);
    }
    static __device__ __forceinline__ void decode(const raw &r, const uint8_t *, int,
                                                  float (&v)[8]) {
        gpu_f16::decode(r, v);
    }
    static __device__ __forceinline__ void store(const float *x, uint8_t *to, int n, int thread,
                                                 int n_threads) {
        for (int i = thread; i < n; i += n_threads) ((uint16_t *)to)[i] = gpu_float_half(x[i]);
    }
};

struct gpu_cache_f32 {
    struct raw {
        float v[8];
    };
    static __device__ __forceinline__ size_t head_bytes(int n) { return 4 * (size_t)n; }
    static __device__ __forceinline__ void load(const uint8_t *head, int i, raw &r) {
        gpu_load4((const float *)head + 8 * i, r.v);
        gpu_load4((const float *)head + 8 * i + 4, r.v + 4);
    }
    static __device__ __forceinline__ void decode(const raw &r, const uint8_t *, int,
                                                  float (&v)[8]) {
        GPU_UNROLL
        for (int j = 0; j < 8; j++) v[j] = r.v[j];
    }
    static __device__ __forceinline__ void store(const float *x, uint8_t *to, int n, int thread,
                                                 int n_threads) {
        for (int i = thread; i < n; i += n_threads) ((float *)to)[i] = x[i];
    }
};

/* A block of 32 as Q8_0, by eight lanes with four values each, in order; the other lanes of the
 * warp take blocks of their own, `valid` or not. As on the CPU: q against the scale as stored. */
static __device__ __forceinline__ void gpu_store_q8_0(const float (&x)[4], uint8_t *to,
                                                      bool valid) {
    const float largest_half = 65504.0f;
    const int lane8 = gpu_lane() % 8;
    float amax = 0.0f;
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const float size = fabsf(x[i]);
        amax = fmaxf(amax, size < INFINITY ? size : INFINITY); /* NaN is none of < */
    }
    amax = gpu_group8_max(amax);
    const float scale = amax < INFINITY ? fminf(amax / 127.0f, largest_half)
                                        : gpu_bits_float(0x7fc00000u);
    const uint16_t stored = gpu_float_half(scale);
    const float d = gpu_half_float(stored);
    uint32_t packed = 0;
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const float q = d > 0.0f ? fmaxf(-127.0f, fminf(127.0f, x[i] / d)) : 0.0f;
        packed |= (uint32_t)(gpu_round(q) & 0xff) << 8 * i;
    }
    if (!valid) return;
    uint16_t *halves = (uint16_t *)to;
    if (lane8 == 0) halves[0] = stored;
    halves[1 + 2 * lane8] = (uint16_t)packed;
    halves[2 + 2 * lane8] = (uint16_t)(packed >> 16);
}

/* Blocks of 34 bytes are aligned to 2 only, the cache to 4: eight quants are in two aligned words,
 * or begin in the middle of the first and end with half a word. Nothing is read of other blocks,
 * which may be written at the same time. */
struct gpu_cache_q8_0 {
    struct raw {
        uint32_t w[2];
        uint16_t last, d;
    };
    static __device__ __forceinline__ size_t head_bytes(int n) { return (size_t)(n / 32 * 34); }
    static __device__ __forceinline__ const uint8_t *quants(const uint8_t *head, int i) {
        return head + 34 * (i / 4) + 2 + 8 * (i % 4);
    }
    static __device__ __forceinline__ void load(const uint8_t *head, int i, raw &r) {
        const uint8_t *q = quants(head, i);
        const uint32_t odd = (uint32_t)((uintptr_t)q & 2);
        const uint32_t *w = (const uint32_t *)(q - odd);
        r.w[0] = w[0];
        r.w[1] = w[1];
        r.last = *(const uint16_t *)(q + 6);
        r.d = *(const uint16_t *)(head + 34 * (i / 4));
    }
    static __device__ __forceinline__ void decode(const raw &r, const uint8_t *head, int i,
                                                  float (&v)[8]) {
        const uint32_t shift = (uint32_t)((uintptr_t)quants(head, i) & 2) * 8;
        const float d = gpu_half_float(r.d);
        GPU_UNROLL
        for (int j = 0; j < 2; j++) {
            const uint32_t next = j == 0 ? r.w[1] : r.last;
            const uint32_t q = (uint32_t)(((uint64_t)next << 32 | r.w[j]) >> shift);
            GPU_UNROLL
            for (int b = 0; b < 4; b++) v[4 * j + b] = d * (float)(int8_t)(q >> 8 * b & 0xff);
        }
    }
    static __device__ __forceinline__ void store(const float *x, uint8_t *to, int n, int thread,
                                                 int n_threads) {
        for (int at = 4 * thread; at - 4 * gpu_lane() < n; at += 4 * n_threads) {
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (at < n) gpu_load4(x + at, v);
            gpu_store_q8_0(v, to + (at / 32) * 34, at < n);
        }
    }
};

/* Does CACHE(struct), a macro, for the type. */
#define GPU_CACHE_SWITCH(type)                                                                     \
    do {                                                                                           \
        if (type == QUANT_F16)                                                                     \
            CACHE(gpu_cache_f16);                                                                  \
        else if (type == QUANT_Q8_0)                                                               \
            CACHE(gpu_cache_q8_0);                                                                 \
        else                                                                                       \
            CACHE(gpu_cache_f32);                                                                  \
    } while (0)

#endif
