/* neon_floats.h: rows of every type as floats, for kernels that need weights in element order: sums
 * of rows (neon_axpy.c) and products over neurons (neon_matmul_t.c).
 *
 * A row is again blocks of one or eight groups of 32 elements, with the scales of neon_quants.h;
 * plain types have blocks of one group and no scales. A group is eight vectors v of four floats,
 * for quantized types integers:
 *
 *   value = d * v - m, exactly (one rounding where there are minima) */
#ifndef CPU_NEON_FLOATS_H
#define CPU_NEON_FLOATS_H

#include "neon_quants.h"

enum {
    W_GROUP = CPU_ACT_GROUP,                          /* elements */
    W_VECTORS = W_GROUP / 4,                          /* of a group */
    W_ELEMS_MAX = QUANT_K,                            /* of a block */
    W_BYTES_MAX = (int)sizeof(block_q6_K),            /* the widest block */
    W_PLAIN_BYTES_MAX = W_GROUP * (int)sizeof(float), /* of a group of F32 */
    W_LINE = 64                                       /* bytes from prefetch to prefetch */
};

typedef struct w_format {
    int block_bytes;
    int groups; /* of a block */
    int sub;    /* elements per scale: 16 or 32; 0: the floats are the values */
    bool has_min;
    void (*group)(const uint8_t *block, int group, float32x4_t v[W_VECTORS]);
    void (*scales)(const uint8_t *block, q_scales *out);
} w_format;

/* Elements of a block. */
NEON_INLINE int64_t w_elems(const w_format *f) {
    return (int64_t)f->groups * W_GROUP;
}

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
NEON_INLINE size_t w_bytes(const w_format *f, int64_t n) {
    return (size_t)n * (size_t)f->block_bytes / (size_t)w_elems(f);
}

/* The block at p, of which `left` elements belong to the row: where these are fewer than it has, as
 * only plain types allow, a copy padded with zeros. */
NEON_INLINE const uint8_t *w_block(const w_format *f, const uint8_t *p, int64_t left,
                                   uint8_t copy[W_PLAIN_BYTES_MAX]) {
    if (f->sub || left >= W_GROUP) return p;
    memset(copy, 0, W_PLAIN_BYTES_MAX);
    memcpy(copy, p, w_bytes(f, left));
    return copy;
}

NEON_INLINE void f32_group(const uint8_t *block, int group, float32x4_t v[W_VECTORS]) {
    (void)group;
    for (int i = 0; i < W_VECTORS; i++) v[i] = vreinterpretq_f32_u8(vld1q_u8(block + 16 * i));
}

NEON_INLINE void f16_group(const uint8_t *block, int group, float32x4_t v[W_VECTORS]) {
    (void)group;
    for (int i = 0; i < W_VECTORS; i += 2) {
        float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(block + 8 * i));
        v[i] = vcvt_f32_f16(vget_low_f16(h));
        v[i + 1] = vcvt_high_f32_f16(h);
    }
}

NEON_INLINE void bf16_group(const uint8_t *block, int group, float32x4_t v[W_VECTORS]) {
    (void)group;
    for (int i = 0; i < W_VECTORS; i += 2) {
        uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(block + 8 * i));
        v[i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        v[i + 1] = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
    }
}

/* 16 signed bytes. */
NEON_INLINE void w_widen(int8x16_t q, float32x4_t v[4]) {
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
    v[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    v[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    v[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    v[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

/* ---- the formats: type X is w_format w_X ----------------------------------------------------- */

static const w_format w_f32 = {.block_bytes = 4 * W_GROUP, .groups = 1, .group = f32_group};
static const w_format w_f16 = {.block_bytes = 2 * W_GROUP, .groups = 1, .group = f16_group};
static const w_format w_bf16 = {.block_bytes = 2 * W_GROUP, .groups = 1, .group = bf16_group};

#define W_FORMAT(name, scales_of, bytes, ...)                                                      \
    NEON_INLINE void name##_group(const uint8_t *block, int group, float32x4_t v[W_VECTORS]) {     \
        q_bytes q = name##_quants(block, group);                                                   \
        w_widen(q.lo, v);                                                                          \
        w_widen(q.hi, v + 4);                                                                      \
    }                                                                                              \
    static const w_format w_##name = {                                                             \
        .block_bytes = bytes, .group = name##_group, .scales = scales_of, __VA_ARGS__};
W_FORMAT(q8_0, q_scale_first, 34, .groups = 1, .sub = 32)
W_FORMAT(q4_0, q_scale_first, 18, .groups = 1, .sub = 32)
W_FORMAT(q4_1, q_scale_addend, 20, .groups = 1, .sub = 32, .has_min = true)
W_FORMAT(q5_0, q_scale_first, 22, .groups = 1, .sub = 32)
W_FORMAT(q5_1, q_scale_addend, 24, .groups = 1, .sub = 32, .has_min = true)
W_FORMAT(iq4_nl, q_scale_first, 18, .groups = 1, .sub = 32)
W_FORMAT(mxfp4, mxfp4_scales, 17, .groups = 1, .sub = 32)
W_FORMAT(q2_K, q2_K_scales, 84, .groups = 8, .sub = 16, .has_min = true)
W_FORMAT(q3_K, q3_K_scales, 110, .groups = 8, .sub = 16)
W_FORMAT(q4_K, q_scales_k4, 144, .groups = 8, .sub = 32, .has_min = true)
W_FORMAT(q5_K, q_scales_k4, 176, .groups = 8, .sub = 32, .has_min = true)
W_FORMAT(q6_K, q6_K_scales, 210, .groups = 8, .sub = 16)
W_FORMAT(iq4_xs, iq4_xs_scales, 136, .groups = 8, .sub = 32)

#endif
