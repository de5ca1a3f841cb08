/* gpu_formats_k.h: formats with blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. Their bytes hold
 * bits of elements that lie 32 or 64 apart, so a unit's two groups do as well. */
#ifndef GPU_CUDA_GPU_FORMATS_K_H
#define GPU_CUDA_GPU_FORMATS_K_H

#include "gpu_unit.h"

/* Q2_K and, with a third bit, Q3_K. Half a block is 128 values: byte l of its 32 holds values l,
 * l + 32, l + 64, l + 96. Two units share 16 bytes: the lower two of these and the upper two. */
template <bool third> struct gpu_q23_k {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = !third;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 32;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 128 * (unit / 4) + 64 * (unit % 2) + 16 * (unit / 2 % 2);
    }
    /* Scale and minimum of 16 values, sub-block j of a row. Q2_K: a byte each, scale and minimum in
     * its nibbles, then {d, dmin} per block. Q3_K: 14 bytes per block, 16 scales of six bits and d:
     * low nibbles of scales 0-7 and of 8-15 share bytes 0-7; the upper two bits of scale i are at
     * bit i / 4 * 2 of byte 8 + i % 4. */
    static __device__ __forceinline__ void scale(const uint8_t *row, int64_t n, int64_t j, float &s,
                                                 float &m) {
        if (third) {
            const uint8_t *p = row + n / 4 + n / 8 + 14 * (j / 16);
            const int i = (int)(j % 16);
            const int low = p[i % 8] >> i / 8 * 4 & 0xf, high = p[8 + i % 4] >> i / 4 * 2 & 3;
            s = gpu_half_at(p + 12) * (float)((low | high << 4) - 32);
            m = 0.0f;
        } else {
            const uint8_t *p = row + n / 4 + n / 16 + 4 * (j / 16);
            const uint8_t both = row[n / 4 + j];
            s = gpu_half_at(p) * (float)(both & 0xf);
            m = gpu_half_at(p + 2) * (float)(both >> 4);
        }
    }
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        const uint4 v = gpu_load16(row + 16 * (unit / 2));
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        const int shift = 4 * (int)(unit % 2);
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] = (int)(w[i] >> shift & 0x03030303u);
            u.q[4 + i] = (int)(w[i] >> (shift + 2) & 0x03030303u);
        }
        if (third) add_third(row + n / 4, unit, u);
        scale(row, n, first(unit) / 16, u.s[0], u.m[0]);
        scale(row, n, first(unit) / 16 + distance / 16, u.s[1], u.m[1]);
    }
    /* Bit j of byte l of a block's 32: of value 32 j + l. Set: the value is not negative. */
    static __device__ __forceinline__ void add_third(const uint8_t *mask, int64_t unit,
                                                     gpu_unit &u) {
        const uint4 v = gpu_load16(mask + 32 * (unit / 8) + 16 * (unit / 2 % 2));
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        const int bit = 4 * (int)(unit / 4 % 2) + 2 * (int)(unit % 2);
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] = gpu_add_bit<true>(u.q[i], w[i] >> bit & 0x01010101u, 0xfcu);
            u.q[4 + i] = gpu_add_bit<true>(u.q[4 + i], w[i] >> (bit + 1) & 0x01010101u, 0xfcu);
        }
    }
};

/* Q4_K and, with a fifth bit, Q5_K: 32 bytes hold sub-blocks 2j (low nibbles) and 2j + 1 (high); a
 * unit is a half of them. */
template <bool fifth> struct gpu_q45_k {
    static const bool quantized = true;
    static const int groups = 2;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 32;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 256 * (unit / 8) + 64 * (unit % 8 / 2) + 16 * (unit % 2);
    }
    static __device__ __forceinline__ const uint8_t *head(const uint8_t *row, int64_t n,
                                                          int64_t block) {
        return row + n / 2 + (fifth ? n / 8 : 0) + 16 * block;
    }
    /* Six-bit scale and minimum of sub-block j: j < 4 in the low six bits of bytes j and j + 4, the
     * others in nibbles of bytes 8.. with their upper two bits in those of the first eight. */
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
        const int64_t pair = unit % 8 / 2;
        if (fifth) { /* bit j of byte l of a block's 32: of value l of sub-block j */
            const uint4 v = gpu_load16(row + n / 2 + 32 * (unit / 8) + 16 * (unit % 2));
            const uint32_t w[4] = {v.x, v.y, v.z, v.w};
            const int bit = 2 * (int)pair;
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                u.q[i] = gpu_add_bit<false>(u.q[i], w[i] >> bit & 0x01010101u, 0x10u);
                u.q[4 + i] = gpu_add_bit<false>(u.q[4 + i], w[i] >> (bit + 1) & 0x01010101u, 0x10u);
            }
        }
        const uint8_t *p = head(row, n, unit / 8);
        scale(p, (int)(2 * pair), u.s[0], u.m[0]);
        scale(p, (int)(2 * pair + 1), u.s[1], u.m[1]);
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
};

typedef gpu_q23_k<false> gpu_q2_k;
typedef gpu_q23_k<true> gpu_q3_k;
typedef gpu_q45_k<false> gpu_q4_k;
typedef gpu_q45_k<true> gpu_q5_k;

/* Fields of a block that become the parts of a packed row, in its order. */
#define GPU_PARTS_q2_k FIELD(block_q2_k, qs), FIELD(block_q2_k, scales), FIELDS(block_q2_k, d, dmin)
#define GPU_PARTS_q3_k                                                                             \
    FIELD(block_q3_k, qs), FIELD(block_q3_k, hmask), FIELDS(block_q3_k, scales, d)
#define GPU_PARTS_q4_k FIELD(block_q4_k, qs), FIELDS(block_q4_k, d, scales)
#define GPU_PARTS_q5_k FIELD(block_q5_k, qs), FIELD(block_q5_k, qh), FIELDS(block_q5_k, d, scales)
#define GPU_PARTS_q6_k                                                                             \
    FIELD(block_q6_k, ql), FIELD(block_q6_k, qh), FIELD(block_q6_k, scales), FIELD(block_q6_k, d)

#endif
