/* gpu_cache.h: the types of a KV cache: how the elements of a head are stored and read, one struct
 * per type. */
#ifndef GPU_CUDA_GPU_CACHE_H
#define GPU_CUDA_GPU_CACHE_H

#include "gpu_block.h"
#include "gpu_formats.h"

/* `load` takes eight elements as they are, without a look at them; `decode` makes values of them.
 * `head` is where element 0 lies, `i` the number of the eight. `store` writes a head of n elements
 * by n_threads threads. */
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

/* One block of 32 as Q8_0, by one thread: q against the scale as stored, as on the CPU. */
static __device__ __forceinline__ void gpu_store_q8_0(const float *x, uint8_t *to) {
    const float largest_half = 65504.0f;
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        const float size = fabsf(x[i]);
        finite = finite && size < INFINITY;
        amax = fmaxf(amax, size);
    }
    const float scale = finite ? fminf(amax / 127.0f, largest_half) : gpu_bits_float(0x7fc00000u);
    *(uint16_t *)to = gpu_float_half(scale);
    const float d = gpu_half_float(*(uint16_t *)to);
    for (int i = 0; i < 32; i++) {
        const float q = d > 0.0f ? fmaxf(-127.0f, fminf(127.0f, x[i] / d)) : 0.0f;
        to[2 + i] = (uint8_t)(gpu_round(q) & 0xff);
    }
}

/* Blocks of 34 bytes are aligned to 2 only, the cache to 4: eight quants are in two aligned words,
 * or begin in the middle of the first of three. The third address is never beyond them. */
struct gpu_cache_q8_0 {
    struct raw {
        uint32_t w[3];
        uint16_t d;
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
        r.w[2] = w[1 + odd / 2];
        r.d = *(const uint16_t *)(head + 34 * (i / 4));
    }
    static __device__ __forceinline__ void decode(const raw &r, const uint8_t *head, int i,
                                                  float (&v)[8]) {
        const uint32_t shift = (uint32_t)((uintptr_t)quants(head, i) & 2) * 8;
        const float d = gpu_half_float(r.d);
        GPU_UNROLL
        for (int j = 0; j < 2; j++) {
            const uint64_t both = (uint64_t)r.w[j + 1] << 32 | r.w[j];
            const uint32_t q = (uint32_t)(both >> shift);
            GPU_UNROLL
            for (int b = 0; b < 4; b++) v[4 * j + b] = d * (float)(int8_t)(q >> 8 * b & 0xff);
        }
    }
    static __device__ __forceinline__ void store(const float *x, uint8_t *to, int n, int thread,
                                                 int n_threads) {
        for (int i = thread; i < n / 32; i += n_threads) gpu_store_q8_0(x + 32 * i, to + 34 * i);
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
