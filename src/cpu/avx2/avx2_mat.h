/* avx2_mat.h: what the files of this tier offer to each other, and a transpose that all use.
 *
 * Functions with bodies are static: they must not be shared with files compiled for lesser
 * processors. */
#ifndef CPU_AVX2_MAT_H
#define CPU_AVX2_MAT_H

#include <immintrin.h>

#include "act.h"
#include "cpu.h"

#define AVX2_INLINE static inline __attribute__((always_inline))

#define AVX2_MAT_DECLARE(name)                                                                     \
    void avx2_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,        \
                            float *y, int64_t ldy);                                                \
    void avx2_matvec_rows_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows,            \
                                 const cpu_act *x, float *y, int64_t ldy);                         \
    void avx2_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,        \
                            float *y, int64_t ldy, void *scratch);

AVX2_MAT_DECLARE(f32)
AVX2_MAT_DECLARE(f16)
AVX2_MAT_DECLARE(bf16)

/* Every quantized type with kernels in this tier: X(type, format). */
#define AVX2_Q_TYPES(X)                                                                            \
    X(Q4_0, q4_0)                                                                                  \
    X(Q4_1, q4_1)                                                                                  \
    X(Q5_0, q5_0)                                                                                  \
    X(Q5_1, q5_1)                                                                                  \
    X(Q8_0, q8_0)                                                                                  \
    X(IQ4_NL, iq4_nl)                                                                              \
    X(MXFP4, mxfp4)                                                                                \
    X(Q2_K, q2_K)                                                                                  \
    X(Q3_K, q3_K)                                                                                  \
    X(Q4_K, q4_K)                                                                                  \
    X(Q5_K, q5_K)                                                                                  \
    X(Q6_K, q6_K)                                                                                  \
    X(IQ4_XS, iq4_xs)

#define AVX2_Q_DECLARE(type, format) AVX2_MAT_DECLARE(format)
AVX2_Q_TYPES(AVX2_Q_DECLARE)

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
