/* gpu_formats.h: how each type's packed rows (gpu_mat) are read: one struct per type.
 *
 * A *unit* is 16 bytes of a row's quants, what one lane loads at a time. Two families:
 *   float weights    `floats` values per unit; they meet float inputs.
 *   quantized ones   one or two groups of 16 values per unit, each a scale s and a minimum m:
 *                    value = s * q - m, q as signed bytes, four to a register. They meet int8
 *                    inputs: the group's part of a product is d * (s * sum(q * x) - m * sum(x)),
 *                    with d the input's scale, as on the processor.
 * `value` decodes one element anywhere, for embeddings and tiles. */
#ifndef GPU_CUDA_GPU_FORMATS_H
#define GPU_CUDA_GPU_FORMATS_H

#include "gpu_kernel.h"

/* ---- float weights ----------------------------------------------------------------------------
 */

struct gpu_f32 {
    static const bool quantized = false;
    static const int floats = 4;
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        w[0] = gpu_bits_float(u.x);
        w[1] = gpu_bits_float(u.y);
        w[2] = gpu_bits_float(u.z);
        w[3] = gpu_bits_float(u.w);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        (void)n;
        return ((const float *)row)[i];
    }
};

struct gpu_f16 {
    static const bool quantized = false;
    static const int floats = 8;
    static __device__ __forceinline__ float of(uint32_t bits) { return gpu_half_float(bits); }
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        const uint32_t v[4] = {u.x, u.y, u.z, u.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            w[2 * i] = of(v[i] & 0xffff);
            w[2 * i + 1] = of(v[i] >> 16);
        }
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        (void)n;
        return of(((const uint16_t *)row)[i]);
    }
};

struct gpu_bf16 {
    static const bool quantized = false;
    static const int floats = 8;
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        const uint32_t v[4] = {u.x, u.y, u.z, u.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            w[2 * i] = gpu_bits_float(v[i] << 16);
            w[2 * i + 1] = gpu_bits_float(v[i] & 0xffff0000u);
        }
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        (void)n;
        return gpu_bf16_float(((const uint16_t *)row)[i]);
    }
};

/* ---- quantized weights ------------------------------------------------------------------------
 */

/* A decoded unit: `groups` groups of 16 values. The first starts at element first(unit) of the row,
 * the second `distance` further on. */
struct gpu_unit {
    int q[8]; /* group g: q[4g .. 4g+3] */
    float s[2], m[2];
};

static __device__ __forceinline__ float gpu_half_at(const uint8_t *p) {
    return gpu_half_float(*(const uint16_t *)p);
}

/* 2^(e - 128), as quant_e8m0_half: E2M1's table is doubled. */
static __device__ __forceinline__ float gpu_e8m0_half(uint32_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : e == 255 ? 0x7fc00000u : (e - 1) << 23;
    return gpu_bits_float(bits);
}

struct gpu_q8_0 {
    static const bool quantized = true;
    static const int groups = 1;
    static const bool has_min = false;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 16; }
    static const int distance = 0;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 16 * unit; }
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        const uint4 v = gpu_load16(row + 16 * unit);
        u.q[0] = (int)v.x, u.q[1] = (int)v.y, u.q[2] = (int)v.z, u.q[3] = (int)v.w;
        u.s[0] = gpu_half_at(row + n + 2 * (unit / 2));
        u.m[0] = 0;
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        return gpu_half_at(row + n + 2 * (i / 32)) * (float)((const int8_t *)row)[i];
    }
};

/* Four bytes' low and high nibbles. */
static __device__ __forceinline__ void gpu_split_nibbles(const uint4 &v, int *q) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = (int)(w[i] & 0x0f0f0f0fu);
        q[4 + i] = (int)(w[i] >> 4 & 0x0f0f0f0fu);
    }
}

/* Nibble of element i where a block of 32 has elements i and i + 16 in byte i. */
static __device__ __forceinline__ uint32_t gpu_nibble32(const uint8_t *row, int64_t i) {
    const uint8_t byte = row[i / 32 * 16 + i % 16];
    return i % 32 < 16 ? byte & 0xfu : byte >> 4;
}

struct gpu_q4_0 {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 16;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 32 * unit; }
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        gpu_split_nibbles(gpu_load16(row + 16 * unit), u.q);
        u.s[0] = u.s[1] = gpu_half_at(row + n / 2 + 2 * unit);
        u.m[0] = u.m[1] = 8.0f * u.s[0];
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        const float d = gpu_half_at(row + n / 2 + 2 * (i / 32));
        return d * (float)((int)gpu_nibble32(row, i) - 8);
    }
};

struct gpu_mxfp4 {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = false;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 16;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 32 * unit; }
    /* Four values of E2M1, doubled, from four nibbles: magnitudes 0 1 2 3 4 6 8 12 by the low three
     * bits, chosen from a table of either sign by the fourth. */
    static __device__ __forceinline__ uint32_t four(uint32_t nibbles) {
        const uint32_t index = nibbles & 0x7777u;
        const uint32_t positive = gpu_bytes(0x03020100u, 0x0c080604u, index);
        const uint32_t negative = gpu_bytes(0xfdfeff00u, 0xf4f8fafcu, index);
        const uint32_t mask = gpu_bytes(0, 0xffffffffu, nibbles >> 1 & 0x4444u);
        return (positive & ~mask) | (negative & mask);
    }
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        const uint4 v = gpu_load16(row + 16 * unit);
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) { /* low and high nibbles alternate: elements j and j + 16 */
            const uint32_t a = four(w[i] & 0xffffu), b = four(w[i] >> 16);
            u.q[i] = (int)gpu_bytes(a, b, 0x6420);
            u.q[4 + i] = (int)gpu_bytes(a, b, 0x7531);
        }
        u.s[0] = u.s[1] = gpu_e8m0_half(row[n / 2 + unit]);
        u.m[0] = u.m[1] = 0;
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        const int q = (int8_t)(four(gpu_nibble32(row, i)) & 0xff);
        return gpu_e8m0_half(row[n / 2 + i / 32]) * (float)q;
    }
};

struct gpu_q4_k {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 32;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 256 * (unit / 8) + 64 * (unit % 8 / 2) + 16 * (unit % 2);
    }
    /* Six-bit scale and minimum of sub-block j: see quant_blocks.h; packed as in all K formats:
     * j < 4 in the low six bits of bytes j and j + 4, the others in nibbles of bytes 8.. with their
     * upper two bits in those of the first eight. */
    static __device__ __forceinline__ void scale(const uint8_t *p, int j, float &s, float &m) {
        const float d = gpu_half_at(p), dmin = gpu_half_at(p + 2);
        const uint8_t *q = p + 4;
        int sc, mn;
        if (j < 4) {
            sc = q[j] & 63;
            mn = q[j + 4] & 63;
        } else {
            sc = (q[j + 4] & 0xf) | (q[j - 4] >> 6) << 4;
            mn = (q[j + 4] >> 4) | (q[j] >> 6) << 4;
        }
        s = d * (float)sc;
        m = dmin * (float)mn;
    }
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        gpu_split_nibbles(gpu_load16(row + 16 * unit), u.q);
        /* 32 bytes hold sub-blocks 2j (low nibbles) and 2j + 1 (high); a unit is a half of them. */
        const int64_t pair = unit % 8 / 2;
        const uint8_t *p = row + n / 2 + 16 * (unit / 8);
        scale(p, (int)(2 * pair), u.s[0], u.m[0]);
        scale(p, (int)(2 * pair + 1), u.s[1], u.m[1]);
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        const int64_t block = i / 256;
        const int sub = (int)(i % 256 / 32);
        const uint8_t byte = row[128 * block + 32 * (sub / 2) + i % 32];
        float s, m;
        scale(row + n / 2 + 16 * block, sub, s, m);
        return s * (float)(sub % 2 ? byte >> 4 : byte & 0xf) - m;
    }
};

struct gpu_q6_k {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 64;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 128 * (unit / 4) + 16 * (unit % 4);
    }
    /* Half a block is 128 values: ql [64] holds the low four bits of values l and l + 64 (l < 64)
     * in byte l; qh [32] the high two bits of values l, l + 32, l + 64, l + 96 in byte l. */
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        gpu_split_nibbles(gpu_load16(row + 16 * unit), u.q);
        const int64_t half = unit / 4, part = unit % 4; /* part: 16 of the 64 bytes of ql */
        const int shift = 2 * (int)(part / 2);
        const uint4 h = gpu_load16(row + n / 2 + 32 * half + 16 * (part % 2));
        const uint32_t w[4] = {h.x, h.y, h.z, h.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] |= (int)((w[i] >> shift & 0x03030303u) << 4);
            u.q[4 + i] |= (int)((w[i] >> (shift + 4) & 0x03030303u) << 4);
        }
        const int8_t *scales = (const int8_t *)row + n / 2 + n / 4;
        const float d = gpu_half_at(row + n / 2 + n / 4 + n / 16 + 2 * (half / 2));
        u.s[0] = d * (float)scales[first(unit) / 16];
        u.s[1] = d * (float)scales[first(unit) / 16 + distance / 16];
        u.m[0] = 32.0f * u.s[0];
        u.m[1] = 32.0f * u.s[1];
    }
    static __device__ __forceinline__ float value(const uint8_t *row, int64_t n, int64_t i) {
        const int64_t half = i / 128, l = i % 128;
        const int low = row[64 * half + l % 64] >> (l < 64 ? 0 : 4) & 0xf;
        const int high = row[n / 2 + 32 * half + l % 32] >> (2 * (l / 32)) & 3;
        const int8_t scale = ((const int8_t *)row)[n / 2 + n / 4 + i / 16];
        const float d = gpu_half_at(row + n / 2 + n / 4 + n / 16 + 2 * (i / 256));
        return d * (float)scale * (float)((low | high << 4) - 32);
    }
};

/* Calls DO(struct) for the type. */
#define GPU_FORMAT_SWITCH(type, DO)                                                                \
    switch (type) {                                                                                \
    case QUANT_F32:                                                                                \
        DO(gpu_f32);                                                                               \
        break;                                                                                     \
    case QUANT_F16:                                                                                \
        DO(gpu_f16);                                                                               \
        break;                                                                                     \
    case QUANT_BF16:                                                                               \
        DO(gpu_bf16);                                                                              \
        break;                                                                                     \
    case QUANT_Q8_0:                                                                               \
        DO(gpu_q8_0);                                                                              \
        break;                                                                                     \
    case QUANT_Q4_0:                                                                               \
        DO(gpu_q4_0);                                                                              \
        break;                                                                                     \
    case QUANT_Q4_K:                                                                               \
        DO(gpu_q4_k);                                                                              \
        break;                                                                                     \
    case QUANT_Q6_K:                                                                               \
        DO(gpu_q6_k);                                                                              \
        break;                                                                                     \
    case QUANT_MXFP4:                                                                              \
        DO(gpu_mxfp4);                                                                             \
        break;                                                                                     \
    default:                                                                                       \
        assert(!"a type without kernels");                                                         \
    }

#endif
