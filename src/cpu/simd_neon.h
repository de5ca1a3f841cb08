/* simd_neon.h: the float vector of the template kernels: 8 lanes in two NEON registers, because the
 * templates need at least 8, and the second register hides the latency of the first. simd.h defines
 * each function. */
#ifndef CPU_SIMD_NEON_H
#define CPU_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct vf {
    float32x4_t lo, hi;
} vf;
typedef struct vi {
    uint32x4_t lo, hi;
} vi;
typedef struct vmask { /* per lane all bits set, or none */
    uint32x4_t lo, hi;
} vmask;
enum { VF_N = 8 };

static inline vi vi_of(vf v) {
    return (vi){vreinterpretq_u32_f32(v.lo), vreinterpretq_u32_f32(v.hi)};
}
static inline vf vf_of(vi v) {
    return (vf){vreinterpretq_f32_u32(v.lo), vreinterpretq_f32_u32(v.hi)};
}
static inline vf vf_zero(void) {
    return (vf){vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
}
static inline vf vf_set1(float x) {
    return (vf){vdupq_n_f32(x), vdupq_n_f32(x)};
}
static inline vf vf_load(const float *p) {
    return (vf){vld1q_f32(p), vld1q_f32(p + 4)};
}
static inline void vf_store(float *p, vf v) {
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}
static inline vf vf_load_part(const float *p, int n) {
    float part[VF_N] = {0};
    memcpy(part, p, (size_t)n * sizeof *part);
    return vf_load(part);
}
static inline void vf_store_part(float *p, vf v, int n) {
    float part[VF_N];
    vf_store(part, v);
    memcpy(p, part, (size_t)n * sizeof *part);
}
static inline vf vf_add(vf a, vf b) {
    return (vf){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}
static inline vf vf_sub(vf a, vf b) {
    return (vf){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}
static inline vf vf_mul(vf a, vf b) {
    return (vf){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}
static inline vf vf_div(vf a, vf b) {
    return (vf){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)};
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return (vf){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return (vf){vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}
static inline vf vf_fms(vf a, vf b, vf c) {
    return (vf){vfmaq_f32(vnegq_f32(c.lo), a.lo, b.lo), vfmaq_f32(vnegq_f32(c.hi), a.hi, b.hi)};
}
static inline vmask vf_gt(vf a, vf b) {
    return (vmask){vcgtq_f32(a.lo, b.lo), vcgtq_f32(a.hi, b.hi)};
}
static inline vf vf_select(vmask m, vf yes, vf no) {
    return (vf){vbslq_f32(m.lo, yes.lo, no.lo), vbslq_f32(m.hi, yes.hi, no.hi)};
}
static inline vf vf_keep(vmask m, vf yes) {
    return vf_select(m, yes, vf_zero());
}
/* Not vmaxq and vminq, which give NaN when either operand is NaN. */
static inline vf vf_max(vf a, vf b) {
    return vf_select(vf_gt(a, b), a, b);
}
static inline vf vf_min(vf a, vf b) {
    return vf_select(vf_gt(b, a), a, b);
}
static inline vf vf_abs(vf a) {
    return (vf){vabsq_f32(a.lo), vabsq_f32(a.hi)};
}
static inline vf vf_round(vf a) {
    return (vf){vrndnq_f32(a.lo), vrndnq_f32(a.hi)};
}
/* Multiplies in two steps, so that the exponents of both factors stay in range when that of the
 * product does not. A NaN n is treated as 0; a is NaN then. */
static inline float32x4_t vf_scale2_half(float32x4_t a, float32x4_t n) {
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t e = vcvtnq_s32_f32(n), h = vshrq_n_s32(e, 1);
    int32x4_t f = vshlq_n_s32(vaddq_s32(h, bias), 23);
    int32x4_t g = vshlq_n_s32(vaddq_s32(vsubq_s32(e, h), bias), 23);
    return vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(f)), vreinterpretq_f32_s32(g));
}
static inline vf vf_scale2(vf a, vf n) {
    return (vf){vf_scale2_half(a.lo, n.lo), vf_scale2_half(a.hi, n.hi)};
}

static inline float vf_hsum(vf a) {
    return vaddvq_f32(vaddq_f32(a.lo, a.hi));
}
static inline float vf_hmax(vf a) {
    return vmaxvq_f32(vmaxq_f32(a.lo, a.hi));
}
static inline vf vf_hsum_each(const vf a[VF_N]) {
    float32x4_t s[VF_N / 2];
    for (int i = 0; i < VF_N / 2; i++)
        s[i] = vpaddq_f32(vaddq_f32(a[2 * i].lo, a[2 * i].hi),
                          vaddq_f32(a[2 * i + 1].lo, a[2 * i + 1].hi));
    return (vf){vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3])};
}

static inline vf vf_from_f16(uint16x8_t h) {
    return (vf){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))),
                vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h)))};
}
static inline vf vf_load_f16(const void *p) {
    return vf_from_f16(vld1q_u16(p));
}
static inline vf vf_load_f16_part(const void *p, int n) {
    uint16_t part[VF_N] = {0};
    memcpy(part, p, (size_t)n * sizeof *part);
    return vf_load_f16(part);
}
static inline void vf_store_f16(void *p, vf v) {
    uint16_t *to = p;
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(v.lo)));
    vst1_u16(to + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.hi)));
}
static inline void vf_store_f16_part(void *p, vf v, int n) {
    uint16_t part[VF_N];
    vf_store_f16(part, v);
    memcpy(p, part, (size_t)n * sizeof *part);
}
static inline vf vf_set1_f16(uint16_t h) {
    return vf_from_f16(vdupq_n_u16(h));
}
static inline vf vf_load_bf16(const void *p) {
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
    return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}
static inline vf vf_load_i8(const int8_t *p) {
    int16x8_t w = vmovl_s8(vld1_s8(p));
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(w)))};
}
static inline void vf_store_i8(int8_t *p, vf v) {
    int16x8_t w = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(v.lo)), vqmovn_s32(vcvtnq_s32_f32(v.hi)));
    vst1_s8(p, vqmovn_s16(w));
}

static inline vmask vf_le(vf a, vf b) {
    return (vmask){vcleq_f32(a.lo, b.lo), vcleq_f32(a.hi, b.hi)};
}
/* Bit i of the result is lane i. */
static inline unsigned vmask_bits(vmask m) {
    static const uint32_t weight[4] = {1, 2, 4, 8};
    uint32x4_t w = vld1q_u32(weight);
    return vaddvq_u32(vandq_u32(m.lo, w)) | vaddvq_u32(vandq_u32(m.hi, w)) << 4;
}

/* A set bit becomes -1 as a signed byte, so the sums are negated. */
static inline float32x4_t vf_bit_sums_half(const uint8_t *bits, const int8_t *planes) {
    uint8x16_t v = vld1q_u8(bits);
    int32x4_t sum = vdupq_n_s32(0);
    for (int b = 0; b < 8; b++) {
        int8x16_t set = vreinterpretq_s8_u8(vtstq_u8(v, vdupq_n_u8((uint8_t)(1 << b))));
        sum = vdotq_s32(sum, set, vld1q_s8(planes + 4 * VF_N * b));
    }
    return vcvtq_f32_s32(vnegq_s32(sum));
}
static inline vf vf_bit_sums(const uint8_t *bits, const int8_t *planes) {
    return (vf){vf_bit_sums_half(bits, planes), vf_bit_sums_half(bits + 16, planes + 16)};
}

/* Interleaved pairs: (x0, y0, x1, y1, ...). */
static inline float32x4_t vf_rotate_pairs_half(float32x4_t x, float32x4_t cs) {
    /* sign bit of the first of each pair */
    const uint32x4_t first = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    float32x4_t s = vmulq_f32(vrev64q_f32(x), vtrn2q_f32(cs, cs));
    s = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(s), first));
    return vfmaq_f32(s, x, vtrn1q_f32(cs, cs));
}
static inline vf vf_rotate_pairs(vf x, vf cs) {
    return (vf){vf_rotate_pairs_half(x.lo, cs.lo), vf_rotate_pairs_half(x.hi, cs.hi)};
}
static inline void vf_split_pairs(const float *p, vf *even, vf *odd) {
    vf a = vf_load(p), b = vf_load(p + VF_N);
    *even = (vf){vuzp1q_f32(a.lo, a.hi), vuzp1q_f32(b.lo, b.hi)};
    *odd = (vf){vuzp2q_f32(a.lo, a.hi), vuzp2q_f32(b.lo, b.hi)};
}

/* ---- words ---------------------------------------------------------------------------------- */

static inline vi vi_zero(void) {
    return (vi){vdupq_n_u32(0), vdupq_n_u32(0)};
}
static inline vi vi_load(const void *p) {
    return (vi){vreinterpretq_u32_u8(vld1q_u8(p)),
                vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)p + 16))};
}
static inline void vi_store(void *p, vi v) {
    vst1q_u8(p, vreinterpretq_u8_u32(v.lo));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_u32(v.hi));
}
static inline vi vi_add(vi a, vi b) {
    return (vi){vaddq_u32(a.lo, b.lo), vaddq_u32(a.hi, b.hi)};
}
static inline int32_t vi_sum(vi v) {
    return vaddvq_s32(vreinterpretq_s32_u32(vaddq_u32(v.lo, v.hi)));
}
static inline vi vi_round(vf v) {
    return (vi){vreinterpretq_u32_s32(vcvtnq_s32_f32(v.lo)),
                vreinterpretq_u32_s32(vcvtnq_s32_f32(v.hi))};
}
static inline int8x8_t vi_narrow(vi q) { /* words in the range of a byte */
    return vmovn_s16(vreinterpretq_s16_u16(
        vuzp1q_u16(vreinterpretq_u16_u32(q.lo), vreinterpretq_u16_u32(q.hi))));
}
static inline vi vi_pack_i8(const vi q[4]) {
    return (vi){vreinterpretq_u32_s8(vcombine_s8(vi_narrow(q[0]), vi_narrow(q[1]))),
                vreinterpretq_u32_s8(vcombine_s8(vi_narrow(q[2]), vi_narrow(q[3])))};
}
static inline uint16x4_t vi_bf16_half(float32x4_t x) {
    uint32x4_t u = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    r = vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(u, vdupq_n_u32(0x00400000)));
    return vshrn_n_u32(r, 16);
}
static inline vi vi_pack_bf16(vf a, vf b) {
    return (vi){vreinterpretq_u32_u16(vcombine_u16(vi_bf16_half(a.lo), vi_bf16_half(a.hi))),
                vreinterpretq_u32_u16(vcombine_u16(vi_bf16_half(b.lo), vi_bf16_half(b.hi)))};
}
static inline vi vi_set1(int32_t x) {
    return (vi){vdupq_n_u32((uint32_t)x), vdupq_n_u32((uint32_t)x)};
}
static inline vf vf_low_bf16(vi v) {
    return vf_of((vi){vshlq_n_u32(v.lo, 16), vshlq_n_u32(v.hi, 16)});
}
static inline vf vf_high_bf16(vi v) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    return vf_of((vi){vandq_u32(v.lo, high), vandq_u32(v.hi, high)});
}
static inline bool vf_any_nan(vf v) {
    return vminvq_u32(vandq_u32(vceqq_f32(v.lo, v.lo), vceqq_f32(v.hi, v.hi))) == 0;
}
/* 4 x 4 words of 4 bytes: v[i][j] becomes v[j][i]. */
static inline void vi_transpose4(uint32x4_t v[4]) {
    uint64x2_t a = vreinterpretq_u64_u32(vtrn1q_u32(v[0], v[1]));
    uint64x2_t b = vreinterpretq_u64_u32(vtrn2q_u32(v[0], v[1]));
    uint64x2_t c = vreinterpretq_u64_u32(vtrn1q_u32(v[2], v[3]));
    uint64x2_t d = vreinterpretq_u64_u32(vtrn2q_u32(v[2], v[3]));
    v[0] = vreinterpretq_u32_u64(vtrn1q_u64(a, c));
    v[1] = vreinterpretq_u32_u64(vtrn1q_u64(b, d));
    v[2] = vreinterpretq_u32_u64(vtrn2q_u64(a, c));
    v[3] = vreinterpretq_u32_u64(vtrn2q_u64(b, d));
}
static inline void vi_transpose(vi v[VF_N]) {
    uint32x4_t t[4][4]; /* quarters: rows 0..3 and 4..7 of the low lanes, then of the high ones */
    for (int i = 0; i < 4; i++) {
        t[0][i] = v[i].lo;
        t[1][i] = v[4 + i].lo;
        t[2][i] = v[i].hi;
        t[3][i] = v[4 + i].hi;
    }
    for (int q = 0; q < 4; q++) vi_transpose4(t[q]);
    for (int i = 0; i < 4; i++) {
        v[i] = (vi){t[0][i], t[1][i]};
        v[4 + i] = (vi){t[2][i], t[3][i]};
    }
}
/* Four words; multiplications broadcast one of them at no cost. */
typedef uint32x4_t vi_four;
static inline vi_four vi_load_four(const void *p) {
    return vreinterpretq_u32_u8(vld1q_u8(p));
}
static inline vi vi_lane(vi_four x, int i) {
    return vi_set1((int32_t)x[i]);
}
/* Lane numbers are part of the instruction; unrolling removes the switch. */
static inline vf vf_fma_four(vf w, float32x4_t x, int i, vf acc) {
    switch (i) {
    case 0:
        return (vf){vfmaq_laneq_f32(acc.lo, w.lo, x, 0), vfmaq_laneq_f32(acc.hi, w.hi, x, 0)};
    case 1:
        return (vf){vfmaq_laneq_f32(acc.lo, w.lo, x, 1), vfmaq_laneq_f32(acc.hi, w.hi, x, 1)};
    case 2:
        return (vf){vfmaq_laneq_f32(acc.lo, w.lo, x, 2), vfmaq_laneq_f32(acc.hi, w.hi, x, 2)};
    default:
        return (vf){vfmaq_laneq_f32(acc.lo, w.lo, x, 3), vfmaq_laneq_f32(acc.hi, w.hi, x, 3)};
    }
}
#define VF_FMA_LANE
static inline vf vf_fma_lane(vf w, vi_four x, int i, vf acc) {
    return vf_fma_four(w, vreinterpretq_f32_u32(x), i, acc);
}
static inline vf vf_fma_lane_low(vf w, vi_four x, int i, vf acc) {
    return vf_fma_four(w, vreinterpretq_f32_u32(vshlq_n_u32(x, 16)), i, acc);
}
static inline vf vf_fma_lane_high(vf w, vi_four x, int i, vf acc) {
    return vf_fma_four(w, vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000))), i, acc);
}

#endif
