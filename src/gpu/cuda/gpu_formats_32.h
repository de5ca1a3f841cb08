/* gpu_formats_32.h: formats whose unit is 32 contiguous elements: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL,
 * IQ4_XS, MXFP4.
 *
 * In all of them byte i of 16 holds elements i and i + 16 of a unit, in the low and high nibble,
 * and a unit has one scale. They differ in the integers that nibbles represent, and in the bytes
 * after the nibbles in the row. Q8_0 is also here. */
#ifndef GPU_CUDA_GPU_FORMATS_32_H
#define GPU_CUDA_GPU_FORMATS_32_H

#include "gpu_unit.h"

struct gpu_q8_0 {
    static const bool quantized = true;
    static const int groups = 1, words = 5, unit_bytes = 16;
    static const int per_scale = 32, centre = 0;
    static const bool has_min = false;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 16; }
    static const int distance = 0;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 16 * unit; }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        gpu_words16(row + 16 * unit, w);
        w[4] = gpu_short_at(row + n + 2 * (unit / 2));
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        (void)unit;
        GPU_UNROLL
        for (int i = 0; i < 4; i++) u.q[i] = (int)w[i];
        u.s[0] = gpu_half_float(w[4]);
        u.m[0] = 0;
    }
};

/* ---- integers: `extra` bytes of the row follow the nibbles ----------------------------------- */

/* Nibbles without further bits. */
struct gpu_bits_nibbles {
    static const int words = 4;
    static __device__ __forceinline__ int64_t extra(int64_t n) {
        (void)n;
        return 0;
    }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        (void)n;
        gpu_words16(row + 16 * unit, w);
    }
};

struct gpu_bits_4 : gpu_bits_nibbles {
    static __device__ __forceinline__ void make(const uint32_t *w, int *q) {
        gpu_split_nibbles(w, q);
    }
};

/* Nibbles and a fifth bit: bit i of a word per unit belongs to element i. `centred`: q - 16. */
template <bool centred> struct gpu_bits_5 {
    static const int words = 5;
    static const uint32_t above = centred ? 0xf0u : 0x10u;
    static __device__ __forceinline__ int64_t extra(int64_t n) { return n / 8; }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        gpu_words16(row + 16 * unit, w);
        w[4] = *(const uint32_t *)(row + n / 2 + 4 * unit);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int *q) {
        gpu_split_nibbles(w, q);
        GPU_UNROLL
        for (int i = 0; i < 8; i++)
            q[i] = gpu_add_bit<centred>(q[i], gpu_spread_bits(w[4] >> 4 * i & 0xfu), above);
    }
};

template <class T> struct gpu_bits_table : gpu_bits_nibbles {
    static __device__ __forceinline__ void make(const uint32_t *w, int *q) {
        GPU_UNROLL
        for (int i = 0; i < 4; i++) { /* low and high nibbles in turn: elements j and j + 16 */
            const uint32_t a = gpu_look_up<T>(w[i] & 0xffffu), b = gpu_look_up<T>(w[i] >> 16);
            q[i] = (int)gpu_bytes(a, b, 0x6420);
            q[4 + i] = (int)gpu_bytes(a, b, 0x7531);
        }
    }
};

/* ---- scale and minimum of a unit; p: start of the row's scales ------------------------------- */

template <int middle> struct gpu_scale_d {
    static const int words = 1, centre = middle;
    static const bool has_min = centre != 0;
    static __device__ __forceinline__ void fetch(const uint8_t *p, int64_t unit, uint32_t *w) {
        w[0] = gpu_short_at(p + 2 * unit);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, float &s,
                                                float &m) {
        (void)unit;
        s = gpu_half_float(w[0]);
        m = has_min ? (float)centre * s : 0.0f;
    }
};

struct gpu_scale_dm {
    static const int words = 1, centre = 0;
    static const bool has_min = true;
    static __device__ __forceinline__ void fetch(const uint8_t *p, int64_t unit, uint32_t *w) {
        w[0] = *(const uint32_t *)(p + 4 * unit);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, float &s,
                                                float &m) {
        (void)unit;
        s = gpu_half_float(w[0] & 0xffffu);
        m = -gpu_half_float(w[0] >> 16);
    }
};

struct gpu_scale_e8m0 {
    static const int words = 1, centre = 0;
    static const bool has_min = false;
    static __device__ __forceinline__ void fetch(const uint8_t *p, int64_t unit, uint32_t *w) {
        w[0] = p[unit];
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, float &s,
                                                float &m) {
        (void)unit;
        s = gpu_e8m0_half(w[0]);
        m = 0.0f;
    }
};

/* Eight units share half d, two high bits of each scale, then its four low bits. */
struct gpu_scale_iq4_xs {
    static const int words = 2, centre = 0;
    static const bool has_min = false;
    static __device__ __forceinline__ void fetch(const uint8_t *p, int64_t unit, uint32_t *w) {
        w[0] = *(const uint32_t *)(p + unit / 8 * 8);
        w[1] = *(const uint32_t *)(p + unit / 8 * 8 + 4);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, float &s,
                                                float &m) {
        const int j = (int)(unit % 8);
        const uint32_t high = w[0] >> (16 + 2 * j) & 3u, low = w[1] >> 4 * j & 0xfu;
        s = gpu_half_float(w[0] & 0xffffu) * (float)((int)(low | high << 4) - 32);
        m = 0.0f;
    }
};

/* ---- formats --------------------------------------------------------------------------------- */

template <class B, class S> struct gpu_block32 {
    static const bool quantized = true;
    static const int groups = 2, words = B::words + S::words, unit_bytes = 16;
    static const int per_scale = 32, centre = S::centre;
    static const bool has_min = S::has_min;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 16;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 32 * unit; }
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        B::fetch(row, n, unit, w);
        S::fetch(row + n / 2 + B::extra(n), unit, w + B::words);
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        B::make(w, u.q);
        S::make(w + B::words, unit, u.s[0], u.m[0]);
        u.s[1] = u.s[0];
        u.m[1] = u.m[0];
    }
};

typedef gpu_block32<gpu_bits_4, gpu_scale_d<8>> gpu_q4_0;
typedef gpu_block32<gpu_bits_4, gpu_scale_dm> gpu_q4_1;
typedef gpu_block32<gpu_bits_5<true>, gpu_scale_d<0>> gpu_q5_0;
typedef gpu_block32<gpu_bits_5<false>, gpu_scale_dm> gpu_q5_1;
typedef gpu_block32<gpu_bits_table<gpu_iq4_table>, gpu_scale_d<0>> gpu_iq4_nl;
typedef gpu_block32<gpu_bits_table<gpu_iq4_table>, gpu_scale_iq4_xs> gpu_iq4_xs;
typedef gpu_block32<gpu_bits_table<gpu_e2m1_table>, gpu_scale_e8m0> gpu_mxfp4;

/* Block fields that form the parts of a packed row, in its order. */
#define GPU_PARTS_q8_0   FIELD(block_q8_0, qs), FIELD(block_q8_0, d)
#define GPU_PARTS_q4_0   FIELD(block_q4_0, qs), FIELD(block_q4_0, d)
#define GPU_PARTS_q4_1   FIELD(block_q4_1, qs), FIELDS(block_q4_1, d, m)
#define GPU_PARTS_q5_0   FIELD(block_q5_0, qs), FIELD(block_q5_0, qh), FIELD(block_q5_0, d)
#define GPU_PARTS_q5_1   FIELD(block_q5_1, qs), FIELD(block_q5_1, qh), FIELDS(block_q5_1, d, m)
#define GPU_PARTS_iq4_nl FIELD(block_iq4_nl, qs), FIELD(block_iq4_nl, d)
#define GPU_PARTS_iq4_xs FIELD(block_iq4_xs, qs), FIELDS(block_iq4_xs, d, scales_l)
#define GPU_PARTS_mxfp4  FIELD(block_mxfp4, qs), FIELD(block_mxfp4, e)

#endif
