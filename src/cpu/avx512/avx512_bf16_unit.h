/* avx512_bf16_unit.h: dot products of pairs of bfloat16 (AVX512-BF16) for tier_plain.h, and packing
 * of pairs for tier_matmul_t.h. The unit treats denormals as zero. */
#ifndef CPU_AVX512_BF16_UNIT_H
#define CPU_AVX512_BF16_UNIT_H

#include "avx512_quants_k.h"
#include "tier_plain.h"

SIMD_INLINE vf unit_dot(vf acc, vi w, vi x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}
SIMD_INLINE vf unit_dot_lane(vf acc, vi w, vi_four x, int i) {
    return unit_dot(acc, w, vi_lane(x, i));
}

/* Packs 16 lanes of (a, b). */
AVX512_INLINE void mt_pack(const vf a[W_VECTORS], const vf b[W_VECTORS], vi out[W_VECTORS]) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    /* words 0, 16, 1, 17, ... */
    const __m512i order = _mm512_add_epi32(
        lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
    for (int i = 0; i < W_VECTORS; i++)
        out[i] = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b[i], a[i]));
}

#define PLAIN_BF16_UNIT                                                                            \
    { 2 * VF_N, 2, plain_load, unit_dot, unit_dot_lane }

#endif
