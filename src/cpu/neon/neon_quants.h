/* neon_quants.h: the description of quantized types for the NEON kernels.
 *
 * A row is a sequence of blocks of one or eight groups of 32 elements. A type is described by a
 * q_format: how to unpack a group into 32 signed bytes in element order, and the scales and minima
 * of a block, two per group (equal ones where the type has one per 32 elements):
 *
 *   value = d * byte - m
 *
 * Functions read only the bytes of the block. */
#ifndef CPU_NEON_QUANTS_H
#define CPU_NEON_QUANTS_H

#include <string.h>

#include "neon_mat.h"
#include "quant_blocks.h"

enum {
    Q_GROUPS_MAX = 8,                      /* groups of a block */
    Q_CHUNK = Q_GROUPS_MAX * CPU_ACT_GROUP /* elements that sums of rows process at once */
};

#include "tier_weights.h"

typedef struct q_group { /* elements 0..15 and 16..31 of a group */
    int8x16_t lo, hi;
} q_group;

typedef struct q_block_scales {
    float d[2 * Q_GROUPS_MAX], m[2 * Q_GROUPS_MAX];
} q_block_scales;

typedef struct q_format {
    int block_bytes;
    int groups; /* groups per block */
    bool has_min;
    int sub; /* elements per scale */
    q_group (*quants)(const uint8_t *block, int group);
    void (*scales)(const uint8_t *block, q_block_scales *out);
    /* See tier_weights.h; NULL: widened bytes. */
    void (*floats)(const uint8_t *chunk, int step, const w_scales *s, vf v[W_VECTORS]);
    float floats_unit; /* unit of the vectors; 0: 1 */
} q_format;
#define Q_CHUNK_BYTES(bytes) .block_bytes = CPU_ACT_GROUP * (bytes), .groups = 1

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
NEON_INLINE size_t q_bytes(const q_format *f, int64_t n) {
    return (size_t)n * (size_t)f->block_bytes / (size_t)(f->groups * CPU_ACT_GROUP);
}

/* Scales of a chunk. One per 32 elements: d[0], m[0] hold eight. One per 16: all hold 16. */
typedef struct q_scales {
    vf d[2], m[2];
} q_scales;

NEON_INLINE void q_chunk_scales(const q_format *f, const uint8_t *chunk, q_scales *out) {
    const int apart = f->sub / 16;
    float d[Q_CHUNK / 16], m[Q_CHUNK / 16];
    for (int g = 0; g < Q_GROUPS_MAX; g += f->groups, chunk += f->block_bytes) {
        q_block_scales s;
        f->scales(chunk, &s);
        for (int i = 0; i < 2 * f->groups; i += apart) {
            d[(2 * g + i) / apart] = s.d[i];
            if (f->has_min) m[(2 * g + i) / apart] = s.m[i];
        }
    }
    for (int i = 0; i < 2 / apart; i++) {
        out->d[i] = vf_load(d + VF_N * i);
        if (f->has_min) out->m[i] = vf_load(m + VF_N * i);
    }
}

/* 16 signed bytes. */
NEON_INLINE void w_widen(int8x16_t q, vf v[2]) {
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
    v[0].lo = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    v[0].hi = vcvtq_f32_s32(vmovl_high_s16(low));
    v[1].lo = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    v[1].hi = vcvtq_f32_s32(vmovl_high_s16(high));
}

NEON_INLINE void q_widen_step(const q_format *f, const uint8_t *chunk, int step, vf v[W_VECTORS]) {
    q_group q = f->groups == 1 ? f->quants(chunk + f->block_bytes * step, 0)
                               : f->quants(chunk, step);
    w_widen(q.lo, v);
    w_widen(q.hi, v + 2);
}

NEON_INLINE float q_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

NEON_INLINE uint32_t q_word(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

NEON_INLINE q_group q_signed(uint8x16_t lo, uint8x16_t hi) {
    return (q_group){vreinterpretq_s8_u8(lo), vreinterpretq_s8_u8(hi)};
}

NEON_INLINE q_group q_or(q_group a, q_group b) {
    return (q_group){vorrq_s8(a.lo, b.lo), vorrq_s8(a.hi, b.hi)};
}

NEON_INLINE q_group q_less(q_group a, int8_t offset) {
    return (q_group){vsubq_s8(a.lo, vdupq_n_s8(offset)), vsubq_s8(a.hi, vdupq_n_s8(offset))};
}

/* Unpacks 16 bytes to 32 elements, the low nibbles first. */
NEON_INLINE q_group q_nibble_block(const uint8_t *p) {
    uint8x16_t b = vld1q_u8(p);
    return q_signed(vandq_u8(b, vdupq_n_u8(15)), vshrq_n_u8(b, 4));
}

/* Looks up nibbles in a table of 16 bytes. */
NEON_INLINE q_group q_look_up(q_group places, const int8_t table[16]) {
    int8x16_t t = vld1q_s8(table);
    return (q_group){vqtbl1q_s8(t, vreinterpretq_u8_s8(places.lo)),
                     vqtbl1q_s8(t, vreinterpretq_u8_s8(places.hi))};
}

/* 32 bits -> 32 bytes, `value` where a bit is set. */
NEON_INLINE q_group q_set_bits(const uint8_t *p, uint8_t value) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t lo = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
    uint8x16_t hi = vcombine_u8(vdup_n_u8(p[2]), vdup_n_u8(p[3]));
    return q_signed(vandq_u8(vtstq_u8(lo, bit), vdupq_n_u8(value)),
                    vandq_u8(vtstq_u8(hi, bit), vdupq_n_u8(value)));
}

/* The bits of 32 bytes that `mask` selects after bit `from` has moved to bit `to`. */
NEON_INLINE q_group q_plane(const uint8_t *p, int from, int to, uint8_t mask) {
    const int8x16_t shift = vdupq_n_s8((int8_t)(to - from));
    return q_signed(vandq_u8(vshlq_u8(vld1q_u8(p), shift), vdupq_n_u8(mask)),
                    vandq_u8(vshlq_u8(vld1q_u8(p + 16), shift), vdupq_n_u8(mask)));
}

/* ---- blocks of 32: a scale, or a scale and an addend, then the quants ----------------------- */

NEON_INLINE void q_scale_first(const uint8_t *block, q_block_scales *out) {
    out->d[0] = out->d[1] = q_half(block);
}

NEON_INLINE void q_scale_addend(const uint8_t *block, q_block_scales *out) {
    out->d[0] = out->d[1] = q_half(block);
    out->m[0] = out->m[1] = -q_half(block + 2);
}

NEON_INLINE q_group q4_0_quants(const uint8_t *block, int group) {
    (void)group;
    return q_less(q_nibble_block(block + 2), 8);
}

NEON_INLINE q_group q4_1_quants(const uint8_t *block, int group) {
    (void)group;
    return q_nibble_block(block + 4);
}

NEON_INLINE q_group q5_0_quants(const uint8_t *block, int group) {
    (void)group;
    return q_less(q_or(q_nibble_block(block + 6), q_set_bits(block + 2, 16)), 16);
}

NEON_INLINE q_group q5_1_quants(const uint8_t *block, int group) {
    (void)group;
    return q_or(q_nibble_block(block + 8), q_set_bits(block + 4, 16));
}

NEON_INLINE q_group q8_0_quants(const uint8_t *block, int group) {
    (void)group;
    const int8_t *q = (const int8_t *)block + 2;
    return (q_group){vld1q_s8(q), vld1q_s8(q + 16)};
}

static const int8_t q_iq4_values[16] = {QUANT_IQ4_VALUES};
static const int8_t q_e2m1_values[16] = {QUANT_E2M1_VALUES};

NEON_INLINE q_group iq4_nl_quants(const uint8_t *block, int group) {
    (void)group;
    return q_look_up(q_nibble_block(block + 2), q_iq4_values);
}

NEON_INLINE q_group mxfp4_quants(const uint8_t *block, int group) {
    (void)group;
    return q_look_up(q_nibble_block(block + 1), q_e2m1_values);
}

NEON_INLINE void mxfp4_scales(const uint8_t *block, q_block_scales *out) {
    out->d[0] = out->d[1] = quant_e8m0_half(block[0]);
}

/* ---- blocks of 256 -------------------------------------------------------------------------- */

/* d times eight signed bytes. */
NEON_INLINE void q_scale_8(int8x8_t sc, float d, float32x4_t out[2]) {
    int16x8_t w = vmovl_s8(sc);
    out[0] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), d);
    out[1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(w))), d);
}

/* One scale per 16 elements. */
NEON_INLINE void q_scale_bytes(int8x16_t sc, float d, float out[16]) {
    float32x4_t v[4];
    q_scale_8(vget_low_s8(sc), d, v);
    q_scale_8(vget_high_s8(sc), d, v + 2);
    for (int i = 0; i < 4; i++) vst1q_f32(out + 4 * i, v[i]);
}

/* One scale per 32 elements: each is stored twice. */
NEON_INLINE void q_scale_twice(int8x8_t sc, float d, float out[16]) {
    float32x4_t v[2];
    q_scale_8(sc, d, v);
    for (int i = 0; i < 2; i++) {
        vst1q_f32(out + 8 * i, vzip1q_f32(v[i], v[i]));
        vst1q_f32(out + 8 * i + 4, vzip2q_f32(v[i], v[i]));
    }
}

NEON_INLINE q_group q2_k_quants(const uint8_t *block, int group) {
    return q_plane(block + 16 + group / 4 * 32, group % 4 * 2, 0, 3);
}

NEON_INLINE void q2_k_scales(const uint8_t *block, q_block_scales *out) {
    uint8x16_t both = vld1q_u8(block);
    uint8x16_t sc = vandq_u8(both, vdupq_n_u8(15)), m = vshrq_n_u8(both, 4);
    q_scale_bytes(vreinterpretq_s8_u8(sc), q_half(block + 80), out->d);
    q_scale_bytes(vreinterpretq_s8_u8(m), q_half(block + 82), out->m);
}

NEON_INLINE q_group q3_k_quants(const uint8_t *block, int group) {
    q_group low = q_plane(block + 32 + group / 4 * 32, group % 4 * 2, 0, 3);
    return q_less(q_or(low, q_plane(block, group, 2, 4)), 4);
}

/* Low nibbles of scales 0-7 and 8-15 share 8 bytes; the high two bits of all share the next 4. */
NEON_INLINE void q3_k_scales(const uint8_t *block, q_block_scales *out) {
    static const int32_t right[4] = {0, -2, -4, -6};
    uint8x8_t nibbles = vld1_u8(block + 96);
    uint8x16_t low = vcombine_u8(vand_u8(nibbles, vdup_n_u8(15)), vshr_n_u8(nibbles, 4));
    uint32x4_t top = vshlq_u32(vdupq_n_u32(q_word(block + 104)), vld1q_s32(right));
    uint8x16_t high = vandq_u8(vreinterpretq_u8_u32(top), vdupq_n_u8(3));
    int8x16_t sc = vreinterpretq_s8_u8(vorrq_u8(low, vshlq_n_u8(high, 4)));
    q_scale_bytes(vsubq_s8(sc, vdupq_n_s8(32)), q_half(block + 108), out->d);
}

NEON_INLINE q_group q4_k_quants(const uint8_t *block, int group) {
    return q_plane(block + 16 + group / 2 * 32, group % 2 * 4, 0, 15);
}

NEON_INLINE q_group q5_k_quants(const uint8_t *block, int group) {
    q_group low = q_plane(block + 48 + group / 2 * 32, group % 2 * 4, 0, 15);
    return q_or(low, q_plane(block + 16, group, 4, 16));
}

/* Q4_K and Q5_K: a block starts with d, dmin and three words u0, u1, u2 of 6-bit scales and minima.
 * The first four scales are the low six bits of u0's bytes; the others have their low nibbles in
 * u2 (low nibbles) and their high two bits on top of u0. Minima likewise with u1 and the high
 * nibbles of u2. */
NEON_INLINE void q_scales_k4(const uint8_t *block, q_block_scales *out) {
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, top = 0x30303030;
    uint32_t u0 = q_word(block + 4), u1 = q_word(block + 8), u2 = q_word(block + 12);
    uint32_t sc = (u2 & four) | (u0 >> 2 & top), m = (u2 >> 4 & four) | (u1 >> 2 & top);
    int8x8_t scales = vcreate_s8((uint64_t)sc << 32 | (u0 & six));
    int8x8_t minima = vcreate_s8((uint64_t)m << 32 | (u1 & six));
    q_scale_twice(scales, q_half(block), out->d);
    q_scale_twice(minima, q_half(block + 2), out->m);
}

/* Group g of 128 elements of a block: nibbles of 32 bytes (g even or odd), low or high ones, and a
 * plane of two bits. */
NEON_INLINE q_group q6_k_quants(const uint8_t *block, int group) {
    int half = group / 4, g = group % 4;
    q_group low = q_plane(block + 64 * half + 32 * (g % 2), g / 2 * 4, 0, 15);
    return q_less(q_or(low, q_plane(block + 128 + 32 * half, 2 * g, 4, 0x30)), 32);
}

NEON_INLINE void q6_k_scales(const uint8_t *block, q_block_scales *out) {
    q_scale_bytes(vld1q_s8((const int8_t *)block + 192), q_half(block + 208), out->d);
}

NEON_INLINE q_group iq4_xs_quants(const uint8_t *block, int group) {
    return q_look_up(q_nibble_block(block + 8 + group * 16), q_iq4_values);
}

/* Scale j: nibble j of scales_l, above it bits 2j, 2j + 1 of scales_h; from -32. */
NEON_INLINE void iq4_xs_scales(const uint8_t *block, q_block_scales *out) {
    static const int16_t by_two[8] = {0, -2, -4, -6, -8, -10, -12, -14};
    static const int8_t by_four[8] = {0, -4, 0, -4, 0, -4, 0, -4};
    uint16_t packed;
    memcpy(&packed, block + 2, sizeof packed);
    uint8x8_t high = vmovn_u16(vshlq_u16(vdupq_n_u16(packed), vld1q_s16(by_two)));
    uint8x8_t low = vcreate_u8(q_word(block + 4));
    low = vshl_u8(vzip1_u8(low, low), vld1_s8(by_four)); /* bytes 0 0 1 1 2 2 3 3 */
    low = vand_u8(low, vdup_n_u8(15));
    high = vshl_n_u8(vand_u8(high, vdup_n_u8(3)), 4);
    int8x8_t sc = vsub_s8(vreinterpret_s8_u8(vorr_u8(low, high)), vdup_n_s8(32));
    q_scale_twice(sc, q_half(block), out->d);
}

#define Q_FORMAT(name, scales_of)                                                                  \
    static const q_format name##_format = {.block_bytes = name##_bytes,                            \
                                           .groups = name##_elems / CPU_ACT_GROUP,                 \
                                           .sub = name##_sub,                                      \
                                           .has_min = name##_min,                                  \
                                           .quants = name##_quants,                                \
                                           .scales = scales_of}

Q_FORMAT(q4_0, q_scale_first);
Q_FORMAT(q4_1, q_scale_addend);
Q_FORMAT(q5_0, q_scale_first);
Q_FORMAT(q5_1, q_scale_addend);
Q_FORMAT(q8_0, q_scale_first);
Q_FORMAT(iq4_nl, q_scale_first);
Q_FORMAT(mxfp4, mxfp4_scales);
Q_FORMAT(q2_k, q2_k_scales);
Q_FORMAT(q3_k, q3_k_scales);
Q_FORMAT(q4_k, q_scales_k4);
Q_FORMAT(q5_k, q_scales_k4);
Q_FORMAT(q6_k, q6_k_scales);
Q_FORMAT(iq4_xs, iq4_xs_scales);

#endif
