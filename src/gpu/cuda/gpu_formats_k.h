/* gpu_formats_k.h: formats with blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. A byte holds bits of
 * elements that are 32 or 64 apart, so the two groups of a unit are also 32 or 64 apart. */
#ifndef GPU_CUDA_GPU_FORMATS_K_H
#define GPU_CUDA_GPU_FORMATS_K_H

#include "gpu_unit.h"

/* Q2_K and, with a third bit, Q3_K. Half a block is 128 values: byte l of its 32 bytes holds values
 * l, l + 32, l + 64, l + 96. Two units share 16 bytes: one has values l and l + 32, the other l +
 * 64 and l + 96. */
template <bool third> struct gpu_q23_k {
    static const bool quantized = true;
    static const int groups = 2, words = third ? 13 : 7, unit_bytes = 8;
    static const int per_scale = 16, centre = 0;
    static const bool has_min = !third;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 32;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 128 * (unit / 4) + 64 * (unit % 2) + 16 * (unit / 2 % 2);
    }
    /* Loads the bytes of the scale and minimum of sub-block j of a row, 16 values. Q2_K: one byte
     * per sub-block, scale and minimum in its nibbles, then {d, dmin} per block. Q3_K: 14 bytes per
     * block, 16 scales of six bits and d: low nibbles of scales 0-7 and of 8-15 share bytes 0-7;
     * the upper two bits of scale i are at bit i / 4 * 2 of byte 8 + i % 4. */
    static __device__ __forceinline__ void fetch_scale(const uint8_t *row, int64_t n, int64_t j,
                                                       uint32_t *w) {
        if (third) {
            const uint8_t *p = row + n / 4 + n / 8 + 14 * (j / 16);
            w[0] = p[j % 8];
            w[1] = p[8 + j % 4];
        } else {
            w[0] = row[n / 4 + j];
        }
    }
    static __device__ __forceinline__ void make_scale(const uint32_t *w, uint32_t d, int64_t j,
                                                      float &s, float &m) {
        if (third) {
            const int i = (int)(j % 16);
            const int low = (int)(w[0] >> i / 8 * 4 & 0xfu), high = (int)(w[1] >> i / 4 * 2 & 3u);
            s = gpu_half_float(d) * (float)((low | high << 4) - 32);
            m = 0.0f;
        } else {
            s = gpu_half_float(d & 0xffffu) * (float)(w[0] & 0xfu);
            m = gpu_half_float(d >> 16) * (float)(w[0] >> 4);
        }
    }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        const int64_t j = first(unit) / 16, block = j / 16;
        gpu_words16(row + 16 * (unit / 2), w);
        if (third) {
            gpu_words16(row + n / 4 + 32 * (unit / 8) + 16 * (unit / 2 % 2), w + 4);
            w[8] = gpu_short_at(row + n / 4 + n / 8 + 14 * block + 12);
        } else {
            w[4] = *(const uint32_t *)(row + n / 4 + n / 16 + 4 * block);
        }
        uint32_t *scales = w + (third ? 9 : 5);
        fetch_scale(row, n, j, scales);
        fetch_scale(row, n, j + distance / 16, scales + (third ? 2 : 1));
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        const int shift = 4 * (int)(unit % 2);
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] = (int)(w[i] >> shift & 0x03030303u);
            u.q[4 + i] = (int)(w[i] >> (shift + 2) & 0x03030303u);
        }
        if (third) add_third(w + 4, unit, u);
        const int64_t j = first(unit) / 16;
        const uint32_t d = w[third ? 8 : 4], *scales = w + (third ? 9 : 5);
        make_scale(scales, d, j, u.s[0], u.m[0]);
        make_scale(scales + (third ? 2 : 1), d, j + distance / 16, u.s[1], u.m[1]);
    }
    /* Bit j of byte l of a block's 32 bytes belongs to value 32 j + l. Set: the value is not
     * negative. */
    static __device__ __forceinline__ void add_third(const uint32_t *w, int64_t unit, gpu_unit &u) {
        const int bit = 4 * (int)(unit / 4 % 2) + 2 * (int)(unit % 2);
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] = gpu_add_bit<true>(u.q[i], w[i] >> bit & 0x01010101u, 0xfcu);
            u.q[4 + i] = gpu_add_bit<true>(u.q[4 + i], w[i] >> (bit + 1) & 0x01010101u, 0xfcu);
        }
    }
};

/* Q4_K and, with a fifth bit, Q5_K: 32 bytes hold sub-blocks 2j (low nibbles) and 2j + 1 (high
 * nibbles); a unit is half of these bytes. */
template <bool fifth> struct gpu_q45_k {
    static const bool quantized = true;
    static const int groups = 2, words = fifth ? 12 : 8, unit_bytes = 16;
    static const int per_scale = 32, centre = 0;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 32;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 256 * (unit / 8) + 64 * (unit % 8 / 2) + 16 * (unit % 2);
    }
    /* Extracts the six-bit scale and minimum of sub-block j from d, dmin and twelve bytes. j < 4:
     * the low six bits of bytes j and j + 4. Others: the nibbles of byte j + 4, with their upper
     * two bits in the upper two bits of bytes j - 4 and j. */
    static __device__ __forceinline__ void scale(const uint32_t *head, int j, float &s, float &m) {
        const float d = gpu_half_float(head[0] & 0xffffu), dmin = gpu_half_float(head[0] >> 16);
        const int at = 8 * (j % 4);
        const uint32_t a = head[1] >> at, b = head[2] >> at, c = head[3] >> at;
        const uint32_t sc = j < 4 ? a & 63u : (c & 0xfu) | (a >> 6 & 3u) << 4;
        const uint32_t mn = j < 4 ? b & 63u : (c >> 4 & 0xfu) | (b >> 6 & 3u) << 4;
        s = d * (float)sc;
        m = dmin * (float)mn;
    }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        gpu_words16(row + 16 * unit, w);
        gpu_words16(row + n / 2 + (fifth ? n / 8 : 0) + 16 * (unit / 8), w + 4);
        if (fifth) gpu_words16(row + n / 2 + 32 * (unit / 8) + 16 * (unit % 2), w + 8);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        gpu_split_nibbles(w, u.q);
        const int pair = (int)(unit % 8 / 2);
        if (fifth) { /* bit j of byte l of a block's 32 bytes belongs to value l of sub-block j */
            const uint32_t *h = w + 8;
            GPU_UNROLL
            for (int i = 0; i < 4; i++) {
                u.q[i] = gpu_add_bit<false>(u.q[i], h[i] >> 2 * pair & 0x01010101u, 0x10u);
                u.q[4 + i] = gpu_add_bit<false>(u.q[4 + i], h[i] >> (2 * pair + 1) & 0x01010101u,
                                                0x10u);
            }
        }
        scale(w + 4, 2 * pair, u.s[0], u.m[0]);
        scale(w + 4, 2 * pair + 1, u.s[1], u.m[1]);
    }
};

struct gpu_q6_k {
    static const bool quantized = true;
    static const int groups = 2, words = 11, unit_bytes = 16;
    static const int per_scale = 16, centre = 32;
    static const bool has_min = true;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 64;
    static __device__ __forceinline__ int64_t first(int64_t unit) {
        return 128 * (unit / 4) + 16 * (unit % 4);
    }
    /* Half a block is 128 values: ql [64] holds the low four bits of values l and l + 64 (l < 64)
     * in byte l; qh [32] the high two bits of values l, l + 32, l + 64, l + 96 in byte l. */
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        const int64_t half = unit / 4, part = unit % 4; /* part: 16 of the 64 bytes of ql */
        const uint8_t *scales = row + n / 2 + n / 4 + first(unit) / 16;
        gpu_words16(row + 16 * unit, w);
        gpu_words16(row + n / 2 + 32 * half + 16 * (part % 2), w + 4);
        w[8] = gpu_short_at(row + n / 2 + n / 4 + n / 16 + 2 * (half / 2));
        w[9] = scales[0];
        w[10] = scales[distance / 16];
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        const int shift = 2 * (int)(unit % 4 / 2);
        const uint32_t *h = w + 4;
        gpu_split_nibbles(w, u.q);
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            u.q[i] |= (int)((h[i] >> shift & 0x03030303u) << 4);
            u.q[4 + i] |= (int)((h[i] >> (shift + 4) & 0x03030303u) << 4);
        }
        const float d = gpu_half_float(w[8]);
        u.s[0] = d * (float)(int8_t)w[9];
        u.s[1] = d * (float)(int8_t)w[10];
        u.m[0] = (float)centre * u.s[0];
        u.m[1] = (float)centre * u.s[1];
    }
};

typedef gpu_q23_k<false> gpu_q2_k;
typedef gpu_q23_k<true> gpu_q3_k;
typedef gpu_q45_k<false> gpu_q4_k;
typedef gpu_q45_k<true> gpu_q5_k;

/* Block fields that form the parts of a packed row, in its order. */
#define GPU_PARTS_q2_k FIELD(block_q2_k, qs), FIELD(block_q2_k, scales), FIELDS(block_q2_k, d, dmin)
#define GPU_PARTS_q3_k                                                                             \
    FIELD(block_q3_k, qs), FIELD(block_q3_k, hmask), FIELDS(block_q3_k, scales, d)
#define GPU_PARTS_q4_k FIELD(block_q4_k, qs), FIELDS(block_q4_k, d, scales)
#define GPU_PARTS_q5_k FIELD(block_q5_k, qs), FIELD(block_q5_k, qh), FIELDS(block_q5_k, d, scales)
#define GPU_PARTS_q6_k                                                                             \
    FIELD(block_q6_k, ql), FIELD(block_q6_k, qh), FIELD(block_q6_k, scales), FIELD(block_q6_k, d)

#endif
