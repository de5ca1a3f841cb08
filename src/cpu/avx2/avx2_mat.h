/* avx2_mat.h: what the files of this tier offer to each other, and a transpose that all use.
 *
 * Functions with bodies are static: they must not be shared with files compiled for lesser
 * processors. */
#ifndef CPU_AVX2_MAT_H
#define CPU_AVX2_MAT_H

#include <immintrin.h>

#include "act.h"
#include "cpu.h"
#include "tier_table.h"

#define AVX2_INLINE static inline __attribute__((always_inline))

#define AVX2_DECLARE(type, name) TIER_DECLARE(avx2, name)
TIER_TYPES(AVX2_DECLARE)

void avx2_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
uint64_t avx2_stream_read(const void *p, size_t n_bytes);

/* 8 x 8 words of 4 bytes: v[i][j] becomes v[j][i]. */
AVX2_INLINE void avx2_transpose8(__m256i v[8]) {
    __m256i t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) v[i] = t[i];
}

AVX2_INLINE float avx2_sum(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#endif
