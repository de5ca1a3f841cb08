/* gpu_cache.h: KV cache types: how the elements of a head are stored and read. F16, F32 and Q8_0
 * have separate structs and kernels. gpu_cache_any is for the other types, and for keys and values
 * of different types: kernels for all pairs would take minutes to compile. */
#ifndef GPU_CUDA_GPU_CACHE_H
#define GPU_CUDA_GPU_CACHE_H

#include "gpu_block.h"
#include "gpu_formats.h"

/* `load` loads eight elements unchanged; `prepare`, once and in place, does the work that depends
 * on the type; `decode` converts them to floats. `head` is the address of element 0, `i` the index
 * of the eight elements. `store` writes a head of n elements from shared memory, aligned to 16
 * bytes, with n_threads threads of whole warps. */
struct gpu_cache_f16 {
    typedef uint4 raw;
    static __device__ __forceinline__ size_t head_bytes(quant_type, int n) { return 2 * (size_t)n; }
    static __device__ __forceinline__ void load(quant_type, const uint8_t *head, int i, raw &r) {
        r = gpu_load16(head + 16 * i);
    }
    static __device__ __forceinline__ void prepare(quant_type, int, raw &) {}
    static __device__ __forceinline__ void decode(quant_type, const raw &r, const uint8_t *, int,
                                                  float (&v)[8]) {
        gpu_f16::decode(r, v);
    }
    static __device__ __forceinline__ void store(quant_type, const float *x, uint8_t *to, int n,
                                                 int thread, int n_threads) {
        for (int i = thread; i < n; i += n_threads) ((uint16_t *)to)[i] = gpu_float_half(x[i]);
    }
};

struct gpu_cache_f32 {
    struct raw {
        float v[8];
    };
    static __device__ __forceinline__ size_t head_bytes(quant_type, int n) { return 4 * (size_t)n; }
    static __device__ __forceinline__ void load(quant_type, const uint8_t *head, int i, raw &r) {
        gpu_load4((const float *)head + 8 * i, r.v);
        gpu_load4((const float *)head + 8 * i + 4, r.v + 4);
    }
    static __device__ __forceinline__ void prepare(quant_type, int, raw &) {}
    static __device__ __forceinline__ void decode(quant_type, const raw &r, const uint8_t *, int,
                                                  float (&v)[8]) {
        GPU_UNROLL
        for (int j = 0; j < 8; j++) v[j] = r.v[j];
    }
    static __device__ __forceinline__ void store(quant_type, const float *x, uint8_t *to, int n,
                                                 int thread, int n_threads) {
        for (int i = thread; i < n; i += n_threads) ((float *)to)[i] = x[i];
    }
};

/* Stores a block of 32 as Q8_0: eight lanes have four values each, in order. All lanes of the warp
 * call it, each eight with another block; `valid`: the block exists. As on the CPU, q is computed
 * with the scale as stored. */
static __device__ __forceinline__ void gpu_store_q8_0(const float (&x)[4], uint8_t *to,
                                                      bool valid) {
    const float largest_half = 65504.0f;
    const int lane8 = gpu_lane() % 8;
    const float amax = gpu_group32_amax(x);
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

/* Blocks of 34 bytes are aligned to 2 bytes, the cache to 4: eight quants are either two aligned
 * words, or the upper half of a word, a word, and the lower half of a third. No other block is
 * read, because it may be written at the same time. */
struct gpu_cache_q8_0 {
    struct raw {
        uint32_t w[2];
        uint16_t last, d;
    };
    static __device__ __forceinline__ size_t head_bytes(quant_type, int n) {
        return (size_t)(n / 32 * 34);
    }
    static __device__ __forceinline__ const uint8_t *quants(const uint8_t *head, int i) {
        return head + 34 * (i / 4) + 2 + 8 * (i % 4);
    }
    static __device__ __forceinline__ void prepare(quant_type, int, raw &) {}
    static __device__ __forceinline__ void load(quant_type, const uint8_t *head, int i, raw &r) {
        const uint8_t *q = quants(head, i);
        const uint32_t odd = (uint32_t)((uintptr_t)q & 2);
        const uint32_t *w = (const uint32_t *)(q - odd);
        r.w[0] = w[0];
        r.w[1] = w[1];
        r.last = *(const uint16_t *)(q + 6);
        r.d = *(const uint16_t *)(head + 34 * (i / 4));
    }
    static __device__ __forceinline__ void decode(quant_type, const raw &r, const uint8_t *head,
                                                  int i, float (&v)[8]) {
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
    static __device__ __forceinline__ void store(quant_type, const float *x, uint8_t *to, int n,
                                                 int thread, int n_threads) {
        for (int at = 4 * thread; at - 4 * gpu_lane() < n; at += 4 * n_threads) {
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (at < n) gpu_load4(x + at, v);
            gpu_store_q8_0(v, to + (at / 32) * 34, at < n);
        }
    }
};

/* ---- types of four and five bits ------------------------------------------------------------- */

/* Blocks of 32 elements, value = d * q + m, with the bytes of src/cpu/kv_low.h. */
struct gpu_cache_low {
    int bytes;
    int m, qh, qs; /* offsets in a block; 0: absent */
    /* range of q; the stored code is q - least, for IQ4_NL the index of the value */
    int least, most;
    bool codes;
    bool whole; /* Q8_0, for reading only: q are bytes */
};

/* Sets field by field: compilers put structs that are selected at run time in local memory. */
static __device__ __forceinline__ gpu_cache_low gpu_cache_low_of(quant_type type) {
    const bool q4_0 = type == QUANT_Q4_0, q5_0 = type == QUANT_Q5_0, q5_1 = type == QUANT_Q5_1;
    const bool affine = type == QUANT_Q4_1 || q5_1;
    gpu_cache_low f;
    f.codes = type == QUANT_IQ4_NL;
    f.whole = type == QUANT_Q8_0;
    f.m = affine ? 2 : 0;
    f.qh = q5_0 ? 2 : q5_1 ? 4 : 0;
    f.qs = 2 + f.m + (q5_0 || q5_1 ? 4 : 0);
    f.bytes = f.qs + (f.whole ? 32 : 16);
    f.least = affine ? 0 : q4_0 ? -8 : q5_0 ? -16 : -127;
    f.most = q4_0 ? 7 : q5_1 ? 31 : affine || q5_0 ? 15 : f.codes ? 113 : 127;
    return f;
}

/* The stored code of x. */
static __device__ __forceinline__ uint32_t gpu_cache_low_code(const gpu_cache_low &f, float x,
                                                              float d, float m) {
    const float y = d < 0.0f || d > 0.0f ? (x - m) / d : 0.0f;
    if (!f.codes)
        return (uint32_t)(gpu_round(fmaxf((float)f.least, fminf((float)f.most, y))) - f.least);
    uint32_t code =
        0; /* compares with the values in ascending order; an array would be in local memory */
    GPU_UNROLL
    for (uint32_t bit = 8; bit > 0; bit /= 2) {
        const uint32_t above = code | bit, pair = above | (above - 1) << 4;
        const uint32_t values = gpu_look_up<gpu_iq4_table>(pair);
        const float middle = 0.5f * ((float)(int8_t)(values & 0xffu) +
                                     (float)(int8_t)(values >> 8 & 0xffu));
        if (y > middle) code = above;
    }
    return code;
}

/* Stores a block with eight lanes, like gpu_store_q8_0; x are its elements in shared memory. Four
 * of the lanes write four bytes each. */
static __device__ __forceinline__ void gpu_store_low(const gpu_cache_low &f, const float *x,
                                                     uint8_t *to, bool valid) {
    const float largest_half = 65504.0f;
    const int lane8 = gpu_lane() % 8;
    float hi = -INFINITY, least = -INFINITY, amax = 0.0f; /* least: maximum of -x */
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const float v = valid ? x[4 * lane8 + i] : 0.0f, size = fabsf(v);
        hi = fmaxf(hi, v);
        least = fmaxf(least, -v);
        amax = fmaxf(amax, size < INFINITY ? size : INFINITY); /* NaN is none of < */
    }
    hi = gpu_group8_max(hi);
    const float lo = -gpu_group8_max(least);
    const bool finite = gpu_group8_max(amax) < INFINITY;
    const uint16_t half_m = gpu_float_half(
        finite ? fmaxf(-largest_half, fminf(largest_half, lo)) + 0.0f : 0.0f);
    const float m = f.m ? gpu_half_float(half_m) : 0.0f;
    float scale = (hi > -lo ? hi : lo) / (float)f.least + 0.0f;
    if (f.m) scale = (hi - m) / (float)f.most;
    scale = fmaxf(-largest_half, fminf(largest_half, scale));
    const uint16_t half_d = gpu_float_half(finite ? scale : gpu_bits_float(0x7fc00000u));
    const float d = gpu_half_float(half_d);
    if (!valid || lane8 >= 4) return;
    uint32_t nibbles = 0, fifth = 0;
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const int at = 4 * lane8 + i;
        nibbles |= (gpu_cache_low_code(f, x[at], d, m) & 15u) << 8 * i;
        nibbles |= (gpu_cache_low_code(f, x[at + 16], d, m) & 15u) << (8 * i + 4);
    }
    uint16_t *qs = (uint16_t *)(to + f.qs + 4 * lane8);
    qs[0] = (uint16_t)nibbles;
    qs[1] = (uint16_t)(nibbles >> 16);
    if (lane8 == 0) *(uint16_t *)to = half_d;
    if (lane8 == 0 && f.m) *(uint16_t *)(to + f.m) = half_m;
    if (!f.qh) return;
    GPU_UNROLL
    for (int i = 0; i < 8; i++) fifth |= (gpu_cache_low_code(f, x[8 * lane8 + i], d, m) >> 4) << i;
    to[f.qh + lane8] = (uint8_t)fifth;
}

/* `store` and head_bytes support all types, the other functions all except F32.
 *
 * `load` puts eight bytes of a block into words 0 and 1; when they are aligned to 2 bytes only
 * (raw_odd), they start in the upper half of word 0 and end in the lower half of word 2. The fifth
 * bits are in the third byte of word 2, d and m in word 3. `prepare` converts this to q as bytes in
 * words 0 and 1, d and m as floats in words 2 and 3. */
struct gpu_cache_any {
    struct raw {
        uint32_t w[4];
    };
    static const uint32_t raw_odd = 0x80000000u;
    static __device__ __forceinline__ bool is_half(quant_type type) {
        return type == QUANT_F16 || type == QUANT_BF16;
    }
    static __device__ __forceinline__ size_t head_bytes(quant_type type, int n) {
        if (type == QUANT_F32) return 4 * (size_t)n;
        if (is_half(type)) return 2 * (size_t)n;
        return (size_t)(n / 32 * gpu_cache_low_of(type).bytes);
    }
    static __device__ __forceinline__ void load(quant_type type, const uint8_t *head, int i,
                                                raw &r) {
        if (is_half(type)) {
            const uint4 u = gpu_load16(head + 16 * i);
            r.w[0] = u.x, r.w[1] = u.y, r.w[2] = u.z, r.w[3] = u.w;
            return;
        }
        const gpu_cache_low f = gpu_cache_low_of(type);
        const uint8_t *block = head + i / 4 * f.bytes;
        const uint8_t *q = block + f.qs + 8 * (i % (f.whole ? 4 : 2));
        const uint32_t odd = (uint32_t)((uintptr_t)q & 2);
        const uint32_t *w = (const uint32_t *)(q - odd);
        r.w[0] = w[0];
        r.w[1] = w[1];
        r.w[2] = *(const uint16_t *)(q + 6);
        if (odd) r.w[2] |= raw_odd;
        if (f.qh) r.w[2] |= (uint32_t)block[f.qh + i % 4] << 16;
        r.w[3] = *(const uint16_t *)block;
        if (f.m) r.w[3] |= (uint32_t)(*(const uint16_t *)(block + f.m)) << 16;
    }
    static __device__ __forceinline__ void prepare(quant_type type, int i, raw &r) {
        if (is_half(type)) return;
        const gpu_cache_low f = gpu_cache_low_of(type);
        const uint32_t shift = r.w[2] & raw_odd ? 16 : 0, fifth = r.w[2] >> 16 & 0xffu;
        const uint32_t selector = i % 4 < 2 ? 0x6420 : 0x7531, dm = r.w[3];
        const uint32_t next[2] = {r.w[1], r.w[2] & 0xffffu};
        GPU_UNROLL
        for (int j = 0; j < 2; j++) {
            uint32_t q = (uint32_t)(((uint64_t)next[j] << 32 | r.w[j]) >> shift);
            if (f.codes) {
                const uint32_t low = gpu_look_up<gpu_iq4_table>(q & 0xffffu);
                q = gpu_bytes(low, gpu_look_up<gpu_iq4_table>(q >> 16), selector);
            } else if (!f.whole) {
                q = (i % 4 < 2 ? q : q >> 4) & 0x0f0f0f0fu;
            }
            if (f.qh) q |= gpu_spread_bits(fifth >> 4 * j & 0xfu) << 4;
            r.w[j] = q;
        }
        const float d = gpu_half_float(dm & 0xffffu);
        r.w[2] = gpu_float_bits(d);
        r.w[3] = gpu_float_bits(f.m                  ? gpu_half_float(dm >> 16)
                                : f.codes || f.whole ? 0.0f
                                                     : d * (float)f.least);
    }
    static __device__ __forceinline__ void decode(quant_type type, const raw &r, const uint8_t *,
                                                  int, float (&v)[8]) {
        if (type == QUANT_F16) {
            const uint4 u = {r.w[0], r.w[1], r.w[2], r.w[3]};
            gpu_f16::decode(u, v);
        } else if (type == QUANT_BF16) {
            GPU_UNROLL
            for (int j = 0; j < 8; j++)
                v[j] = gpu_bits_float(j % 2 ? r.w[j / 2] & 0xffff0000u : r.w[j / 2] << 16);
        } else {
            const float d = gpu_bits_float(r.w[2]), m = gpu_bits_float(r.w[3]);
            GPU_UNROLL
            for (int j = 0; j < 8; j++)
                v[j] = d * (float)(int8_t)(r.w[j / 4] >> 8 * (j % 4) & 0xffu) + m;
        }
    }
    static __device__ __forceinline__ void store(quant_type type, const float *x, uint8_t *to,
                                                 int n, int thread, int n_threads) {
        if (type == QUANT_F16) {
            gpu_cache_f16::store(type, x, to, n, thread, n_threads);
        } else if (type == QUANT_F32) {
            gpu_cache_f32::store(type, x, to, n, thread, n_threads);
        } else if (type == QUANT_Q8_0) {
            gpu_cache_q8_0::store(type, x, to, n, thread, n_threads);
        } else if (type == QUANT_BF16) {
            for (int i = thread; i < n; i += n_threads)
                ((uint16_t *)to)[i] = (uint16_t)gpu_bf16_pair(x[i], 0.0f);
        } else {
            const gpu_cache_low f = gpu_cache_low_of(type);
            for (int at = 4 * thread; at - 4 * gpu_lane() < n; at += 4 * n_threads)
                gpu_store_low(f, x + at / 32 * 32, to + at / 32 * f.bytes, at < n);
        }
    }
};

/* Expands the macro CACHE(struct) for the type; below, CACHE(struct, struct) for keys and
 * values. */
#define GPU_CACHE_SWITCH(type)                                                                     \
    do {                                                                                           \
        if (type == QUANT_F16)                                                                     \
            CACHE(gpu_cache_f16);                                                                  \
        else if (type == QUANT_Q8_0)                                                               \
            CACHE(gpu_cache_q8_0);                                                                 \
        else if (type == QUANT_F32)                                                                \
            CACHE(gpu_cache_f32);                                                                  \
        else                                                                                       \
            CACHE(gpu_cache_any);                                                                  \
    } while (0)
#define GPU_CACHE_PAIR_SWITCH(k, v)                                                                \
    do {                                                                                           \
        if (k == v && k == QUANT_F16)                                                              \
            CACHE(gpu_cache_f16, gpu_cache_f16);                                                   \
        else if (k == v && k == QUANT_Q8_0)                                                        \
            CACHE(gpu_cache_q8_0, gpu_cache_q8_0);                                                 \
        else if (k == v && k == QUANT_F32)                                                         \
            CACHE(gpu_cache_f32, gpu_cache_f32);                                                   \
        else if (k == QUANT_F32)                                                                   \
            CACHE(gpu_cache_f32, gpu_cache_any);                                                   \
        else if (v == QUANT_F32)                                                                   \
            CACHE(gpu_cache_any, gpu_cache_f32);                                                   \
        else                                                                                       \
            CACHE(gpu_cache_any, gpu_cache_any);                                                   \
    } while (0)

/* ---- rotation -------------------------------------------------------------------------------- */

/* Multiplies n elements in shared memory by Hadamard matrices of size `block` over sqrt(block), see
 * kv_hadamard in src/session; equal to the CPU's result bit for bit. Ends with a barrier. */
static __device__ __forceinline__ void gpu_hadamard(float *x, int n, int block, int thread,
                                                    int n_threads) {
    const float scale = 1.0f / sqrtf((float)block);
    for (int half = 1; half < block; half *= 2) {
        for (int i = thread; i < n / 2; i += n_threads) {
            const int at = 2 * i - (i & (half - 1));
            const float a = x[at], b = x[at + half];
            x[at] = a + b;
            x[at + half] = a - b;
        }
        gpu_sync();
    }
    for (int i = thread; i < n; i += n_threads) x[i] *= scale;
    gpu_sync();
}

#endif
