/* low_x86.h: the dot product of tier_low.h for one column, in vectors of 32 bytes. */
#ifndef CPU_LOW_X86_H
#define CPU_LOW_X86_H

#include "simd.h"

/* Eight partial sums of a row and a column: four of elements 0..15 of groups, four of 16..31. */
typedef __m256 low_sums;

SIMD_INLINE low_sums low_zero(void) {
    return _mm256_setzero_ps();
}

SIMD_INLINE float low_sum(low_sums v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Weights are at most 62, so sums of two products fit into 16 bits. */
SIMD_INLINE low_sums low_dot(low_sums sum, const int8_t *w, const int8_t *x, const float scale[2],
                             float d) {
    const __m256i vw = _mm256_load_si256((const void *)w);
    const __m256i vx = _mm256_loadu_si256((const void *)x);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(vw), _mm256_sign_epi8(vx, vw));
    const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    const __m256 both = _mm256_set_m128(_mm_set1_ps(scale[1]), _mm_set1_ps(scale[0]));
    return _mm256_fmadd_ps(dot, _mm256_mul_ps(both, _mm256_set1_ps(d)), sum);
}

#endif
