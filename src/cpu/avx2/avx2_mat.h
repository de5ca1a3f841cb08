/* avx2_mat.h: declarations shared by the files of this tier.
 *
 * Functions with bodies are static: they must not be shared with files compiled for older CPUs. */
#ifndef CPU_AVX2_MAT_H
#define CPU_AVX2_MAT_H

#include "act.h"
#include "cpu.h"
#include "simd.h"
#include "tier_table.h"

#define AVX2_INLINE static inline __attribute__((always_inline))

#define AVX2_DECLARE(type, name, ...) TIER_DECLARE(avx2, name)
QUANT_PLAIN(AVX2_DECLARE)
QUANT_BLOCKS(AVX2_DECLARE)

AVX2_INLINE float avx2_sum(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#endif
