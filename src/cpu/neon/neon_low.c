/* neon_low.c: products with the formats of three bits and less. */
#include <string.h>

#include "act.h"
#include "simd.h"

/* Eight partial sums of a row and a column: four of elements 0..15 of groups, four of 16..31. */
typedef vf low_sums;

SIMD_INLINE low_sums low_zero(void) {
    return vf_zero();
}

SIMD_INLINE float low_sum(low_sums v) {
    return vaddvq_f32(vaddq_f32(v.lo, v.hi));
}

SIMD_INLINE low_sums low_dot(low_sums sum, const int8_t *w, const int8_t *x, const float scale[2],
                             float d) {
    const int32x4_t zero = vdupq_n_s32(0);
    const int32x4_t lo = vdotq_s32(zero, vld1q_s8(w), vld1q_s8(x));
    const int32x4_t hi = vdotq_s32(zero, vld1q_s8(w + 16), vld1q_s8(x + 16));
    sum.lo = vfmaq_n_f32(sum.lo, vcvtq_f32_s32(lo), scale[0] * d);
    sum.hi = vfmaq_n_f32(sum.hi, vcvtq_f32_s32(hi), scale[1] * d);
    return sum;
}

/* 16 elements of a row times 16 columns. */
SIMD_INLINE void low_panel_dot(const int8_t *w, const int8_t x[4][CPU_PANEL][4], const int32_t *sum,
                               vf out[2]) {
    (void)sum;
    for (int v = 0; v < 2; v++) {
        int32x4_t lo = vdupq_n_s32(0), hi = vdupq_n_s32(0);
        for (int i = 0; i < 4; i++) {
            int32_t four;
            memcpy(&four, w + 4 * i, sizeof four);
            const int8x16_t vw = vreinterpretq_s8_s32(vdupq_n_s32(four));
            lo = vdotq_s32(lo, vw, vld1q_s8(x[i][8 * v]));
            hi = vdotq_s32(hi, vw, vld1q_s8(x[i][8 * v + 4]));
        }
        out[v].lo = vcvtq_f32_s32(lo);
        out[v].hi = vcvtq_f32_s32(hi);
    }
}

#include "tier_low.h"

void cpu_init_neon_low(cpu_kernels *k) {
    low_enter(k);
}
