/* avx2_floats.h: rows of every type as floats, for kernels that need weights in element order: sums
 * of rows (avx2_axpy.c) and products over neurons (avx2_matmul_t.c).
 *
 * A row is again chunks of 256 elements in eight groups of 32; scales are those of avx2_quants.h. A
 * group is four vectors of 8 integers as floats, offsets already taken off:
 *
 *   value = d[group] * v - m[group], exactly (one rounding where there are minima) */
#ifndef CPU_AVX2_FLOATS_H
#define CPU_AVX2_FLOATS_H

#include "avx2_quants.h"

enum {
    W_CHUNK_BYTES_MAX = Q_CHUNK * (int)sizeof(float), /* F32, the widest */
    W_VECTORS = 4                                     /* of a group */
};

typedef struct w_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32; 0: the floats are the values */
    bool has_min;
    void (*group)(const uint8_t *chunk, int group, __m256 v[W_VECTORS]);
    void (*scales)(const uint8_t *chunk, q_scales *out);
} w_format;

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX2_INLINE size_t w_bytes(const w_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

/* ---- plain types ---------------------------------------------------------------------------- */

AVX2_INLINE void f32_group(const uint8_t *chunk, int group, __m256 v[W_VECTORS]) {
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm256_loadu_ps((const void *)(chunk + 128 * group + 32 * i));
}

AVX2_INLINE void f16_group(const uint8_t *chunk, int group, __m256 v[W_VECTORS]) {
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(chunk + 64 * group + 16 * i)));
}

AVX2_INLINE void bf16_group(const uint8_t *chunk, int group, __m256 v[W_VECTORS]) {
    for (int i = 0; i < W_VECTORS; i++) {
        __m128i h = _mm_loadu_si128((const void *)(chunk + 64 * group + 16 * i));
        v[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
    }
}

/* ---- quantized types ------------------------------------------------------------------------ */

AVX2_INLINE __m256 w_widen(__m128i bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

/* Signed bytes in element order. */
AVX2_INLINE void w_widen_group(__m256i q, __m256 v[W_VECTORS]) {
    __m128i low = _mm256_castsi256_si128(q), high = _mm256_extracti128_si256(q, 1);
    v[0] = w_widen(low);
    v[1] = w_widen(_mm_unpackhi_epi64(low, low));
    v[2] = w_widen(high);
    v[3] = w_widen(_mm_unpackhi_epi64(high, high));
}

AVX2_INLINE void q8_0_group(const uint8_t *chunk, int group, __m256 v[W_VECTORS]) {
    const uint8_t *q = chunk + 34 * group + 2;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_widen(_mm_loadl_epi64((const void *)(q + 8 * i)));
}

/* From the unpacked bytes of avx2_quants.h. */
#define W_GROUP(name)                                                                              \
    AVX2_INLINE void name##_group(const uint8_t *chunk, int group, __m256 v[W_VECTORS]) {          \
        __m256i offset = _mm256_set1_epi8((char)name##_format.offset);                             \
        w_widen_group(_mm256_sub_epi8(name##_quants(chunk, group), offset), v);                    \
    }
W_GROUP(q4_0)
W_GROUP(q4_1)
W_GROUP(q5_0)
W_GROUP(q5_1)
W_GROUP(iq4_nl)
W_GROUP(mxfp4)
W_GROUP(q2_K)
W_GROUP(q3_K)
W_GROUP(q4_K)
W_GROUP(q5_K)
W_GROUP(q6_K)
W_GROUP(iq4_xs)

/* ---- the formats: type X is w_format w_X ----------------------------------------------------- */

static const w_format w_f32 = {.chunk_bytes = 4 * Q_CHUNK, .group = f32_group};
static const w_format w_f16 = {.chunk_bytes = 2 * Q_CHUNK, .group = f16_group};
static const w_format w_bf16 = {.chunk_bytes = 2 * Q_CHUNK, .group = bf16_group};

#define W_FORMAT(name, bytes, ...)                                                                 \
    static const w_format w_##name = {                                                             \
        .chunk_bytes = bytes, .group = name##_group, .scales = name##_scales, __VA_ARGS__};
W_FORMAT(q8_0, 8 * 34, .sub = 32)
W_FORMAT(q4_0, 8 * 18, .sub = 32)
W_FORMAT(q4_1, 8 * 20, .sub = 32, .has_min = true)
W_FORMAT(q5_0, 8 * 22, .sub = 32)
W_FORMAT(q5_1, 8 * 24, .sub = 32, .has_min = true)
W_FORMAT(iq4_nl, 8 * 18, .sub = 32)
W_FORMAT(mxfp4, 8 * 17, .sub = 32)
W_FORMAT(q2_K, 84, .sub = 16, .has_min = true)
W_FORMAT(q3_K, 110, .sub = 16)
W_FORMAT(q4_K, 144, .sub = 32, .has_min = true)
W_FORMAT(q5_K, 176, .sub = 32, .has_min = true)
W_FORMAT(q6_K, 210, .sub = 16)
W_FORMAT(iq4_xs, 136, .sub = 32)

#endif
