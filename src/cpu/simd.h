/* simd.h: the vector types of the template kernels (tier_*.h): a float vector `vf` of VF_N lanes
 * (8 or 16), as wide as the instructions that the file is compiled with. Private to src/cpu.
 *
 *   vf_load_part, vf_store_part   only the first n lanes (0..VF_N-1); the others are 0, unchanged
 *   vf_fma, vf_fnma, vf_fms       a * b + c, c - a * b, a * b - c, rounded once
 *   vf_max, vf_min                the second operand when either is NaN: put the data second to
 *                                 keep NaNs
 *   vf_round                      to the nearest integer, for |a| < 2^31
 *   vf_gt, vf_select, vf_keep     a > b (false for NaN); per lane yes or no; per lane yes or 0
 *   vf_scale2                     a * 2^n for integral n, rounded once below the normal range
 *   vf_hsum_each                  lane i of the result = sum of the lanes of a[i]
 *   vf_rotate_pairs               (x c - y s, x s + y c) of pairs (x, y) by pairs (c, s)
 *   vf_split_pairs                splits 2 VF_N floats at p into even and odd elements
 *   vf_store_i8                   rounded to nearest even
 *   vf_le                         a <= b (false for NaN)
 *   vf_pack, vf_pack_i32          stores the lanes that are not `gone` at p, in order; returns
 *                                 their number; may write VF_N elements
 *   vf_pack_index                 like vf_pack_i32, for first, first + 1, ...
 *   vf_bit_sums                   lane i: sum of those of the 32 elements of group i whose bit is
 *                                 set; byte t, bit b of `bits` is planes[b * 4 * VF_N + t], in
 *                                 group t / 4
 *   vf_any_nan                    whether a lane is NaN
 *
 * and a vector `vi` of VF_N 32-bit words; vi_of and vf_of convert without changing bits:
 *
 *   vi_round, vi_sum              to the nearest integers, ties to even; sum of the lanes
 *   vi_pack_i8                    4 VF_N words in the range of a byte, as bytes, in order
 *   vi_pack_bf16                  2 VF_N floats as bfloat16: to nearest even, NaN stays NaN
 *   vf_low_bf16, vf_high_bf16     the lower and the upper halves of words, bfloat16 to float
 *   vi_load_four, vi_lane         four words at p; one of them in all lanes
 *   vf_fma_lane, ..._low, _high   w * x[i] + acc, x[i] being word i of four or one of its halves
 *   vi_transpose                  v[i][j] becomes v[j][i] */
#ifndef CPU_SIMD_H
#define CPU_SIMD_H

#include <stdbool.h>

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#elif defined(__aarch64__)
#include "simd_neon.h"
#else
#error "simd.h: compile this file with a tier's instruction flags"
#endif

/* Prefetches the cache line at p, which may be outside any object. */
#define SIMD_PREFETCH(p) __builtin_prefetch(p, 0, 3)

#define SIMD_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Tiers without multiplication by a lane: a broadcast load costs nothing. */
#ifndef VF_FMA_LANE
typedef const int32_t *vi_four;
static inline vi_four vi_load_four(const void *p) {
    return p;
}
static inline vi vi_lane(vi_four x, int i) {
    return vi_set1(x[i]);
}
SIMD_INLINE vf vf_fma_lane(vf w, vi_four x, int i, vf acc) {
    return vf_fma(w, vf_of(vi_lane(x, i)), acc);
}
SIMD_INLINE vf vf_fma_lane_low(vf w, vi_four x, int i, vf acc) {
    return vf_fma(w, vf_low_bf16(vi_lane(x, i)), acc);
}
SIMD_INLINE vf vf_fma_lane_high(vf w, vi_four x, int i, vf acc) {
    return vf_fma(w, vf_high_bf16(vi_lane(x, i)), acc);
}
#endif

#ifndef VF_PACK /* branchless, because the kept lanes are unpredictable */
static inline int vf_pack(float *p, vmask gone, vf v) {
    float lane[VF_N];
    unsigned kept = ~vmask_bits(gone), n = 0;
    vf_store(lane, v);
    for (int i = 0; i < VF_N; i++) {
        p[n] = lane[i];
        n += kept >> i & 1;
    }
    return (int)n;
}
static inline int vf_pack_index(int32_t *p, vmask gone, int32_t first) {
    unsigned kept = ~vmask_bits(gone), n = 0;
    for (int i = 0; i < VF_N; i++) {
        p[n] = first + i;
        n += kept >> i & 1;
    }
    return (int)n;
}
static inline int vf_pack_i32(int32_t *p, vmask gone, const int32_t *from) {
    unsigned kept = ~vmask_bits(gone), n = 0;
    for (int i = 0; i < VF_N; i++) {
        p[n] = from[i];
        n += kept >> i & 1;
    }
    return (int)n;
}
#endif

/* e^x: 2^n e^r with n = round(x / ln 2), |r| <= ln(2)/2, and e^r by its Taylor polynomial of degree
 * 7 (remainder r^8/8! < 6e-9). ln 2 is split in two parts so that x - n ln 2 is exact to float.
 * NaN gives NaN, -inf 0, +inf inf; results below the normal range are denormal. */
static inline vf vf_exp(vf x) {
    /* beyond these limits the result is 0 or inf in any case; n stays within vf_scale2's range */
    x = vf_max(vf_set1(-105.0f), vf_min(vf_set1(90.0f), x));
    vf n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_fnma(n, vf_set1(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set1(0x1.7f7d1cp-20f), r);
    vf p = vf_fma(r, vf_set1(1.0f / 5040.0f), vf_set1(1.0f / 720.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 120.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 24.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 6.0f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(vf_mul(p, r), r, r);
    return vf_scale2(vf_add(p, vf_set1(1.0f)), n);
}

/* 1 / (1 + e^-x). */
static inline vf vf_sigmoid(vf x) {
    return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|, and ln(1 + u) = 2 artanh(s), s = u / (2 + u)
 * <= 1/3, by its series up to s^15 (the next term is below 2e-9 of it). */
static inline vf vf_softplus(vf x) {
    vf u = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf s = vf_div(u, vf_add(u, vf_set1(2.0f))), s2 = vf_mul(s, s);
    vf p = vf_fma(s2, vf_set1(1.0f / 15.0f), vf_set1(1.0f / 13.0f));
    p = vf_fma(p, s2, vf_set1(1.0f / 11.0f));
    p = vf_fma(p, s2, vf_set1(1.0f / 9.0f));
    p = vf_fma(p, s2, vf_set1(1.0f / 7.0f));
    p = vf_fma(p, s2, vf_set1(1.0f / 5.0f));
    p = vf_fma(p, s2, vf_set1(1.0f / 3.0f));
    return vf_fma(vf_fma(vf_mul(p, s2), s, s), vf_set1(2.0f), vf_max(vf_zero(), x));
}

/* tanh: 1 - 2 / (e^2|x| + 1) with the sign of x; near 0, where that cancels, x - x^3/3 + ... up to
 * x^9 (the next term is below 1e-8 of x at the limit). */
static inline vf vf_tanh(vf x) {
    const float limit = 0.25f;
    vf e = vf_exp(vf_mul(x, vf_set1(2.0f)));
    vf big = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    vf x2 = vf_mul(x, x);
    vf p = vf_fma(x2, vf_set1(62.0f / 2835.0f), vf_set1(-17.0f / 315.0f));
    p = vf_fma(p, x2, vf_set1(2.0f / 15.0f));
    p = vf_fma(p, x2, vf_set1(-1.0f / 3.0f));
    vf small = vf_fma(vf_mul(p, x2), x, x);
    return vf_select(vf_gt(vf_set1(limit), vf_abs(x)), small, big);
}

#endif
