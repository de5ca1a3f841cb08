/* avx512_bf16_unit.h: products of pairs of bfloat16 by the unit for them (AVX512-BF16), for
 * tier_plain.h. The unit takes denormals as zero. */
#ifndef CPU_AVX512_BF16_UNIT_H
#define CPU_AVX512_BF16_UNIT_H

#include "tier_plain.h"

SIMD_INLINE vf unit_dot(vf acc, vi w, vi x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}
SIMD_INLINE vf unit_dot_lane(vf acc, vi w, vi_four x, int i) {
    return unit_dot(acc, w, vi_lane(x, i));
}

#define PLAIN_BF16_UNIT                                                                            \
    { 2 * VF_N, 2, plain_load, unit_dot, unit_dot_lane }

#endif
