/* avx2_quants.h: what a quantized type looks like to the AVX2 kernels.
 *
 * A row is a sequence of blocks of one or eight groups of 32 elements. A type is described by a
 * q_format: how to unpack a group into 32 signed bytes in element order, and the scales and minima
 * of a block, two per group (equal ones where the type has one per 32 elements):
 *
 *   value = d * byte - m
 *
 * Functions read only the bytes of the block. */
#ifndef CPU_AVX2_QUANTS_H
#define CPU_AVX2_QUANTS_H

#include <string.h>

#include "avx2_mat.h"

enum { Q_GROUPS_MAX = 8 };

typedef struct q_scales {
    float d[2 * Q_GROUPS_MAX], m[2 * Q_GROUPS_MAX];
} q_scales;

typedef struct q_format {
    int block_bytes;
    int groups; /* of a block */
    bool has_min;
    /* No sum of products |byte| * 127 over a scale's elements, in pairs of 16 lanes, leaves 16
     * bits: |byte| <= 16 with one scale per 32, <= 32 with one per 16. */
    bool narrow;
    int sub; /* elements per scale */
    __m256i (*quants)(const uint8_t *block, int group);
    void (*scales)(const uint8_t *block, q_scales *out);
} q_format;

AVX2_INLINE float q_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* 32 bytes -> their low (shift 0) or high (shift 4) nibbles. */
AVX2_INLINE __m256i q_nibbles(const uint8_t *p, int shift) {
    __m256i v = _mm256_loadu_si256((const void *)p);
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(15));
}

AVX2_INLINE __m256i q4_0_quants(const uint8_t *block, int group) {
    (void)group;
    __m128i b = _mm_loadu_si128((const void *)(block + 2));
    __m256i q = _mm256_set_m128i(_mm_srli_epi16(b, 4), b);
    return _mm256_sub_epi8(_mm256_and_si256(q, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
}

AVX2_INLINE void q_scale_first(const uint8_t *block, q_scales *out) {
    out->d[0] = out->d[1] = q_half(block);
}

AVX2_INLINE __m256i q8_0_quants(const uint8_t *block, int group) {
    (void)group;
    return _mm256_loadu_si256((const void *)(block + 2));
}

AVX2_INLINE __m256i q4_K_quants(const uint8_t *block, int group) {
    return q_nibbles(block + 16 + group / 2 * 32, group % 2 * 4);
}

/* Eight bytes times d, each twice, to out[16]. */
AVX2_INLINE void q_store_twice(uint64_t bytes, float d, float *out) {
    __m256i words = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(words), _mm256_set1_ps(d));
    __m256 low = _mm256_unpacklo_ps(v, v), high = _mm256_unpackhi_ps(v, v);
    _mm256_storeu_ps(out, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(out + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/* Eight scales and eight minima of 6 bits in 12 bytes, as three words: the first four scales are
 * the low six bits of u0's bytes, the others have their low nibbles in u2 and their high two bits
 * on top of u0; minima likewise with u1 and the high nibbles of u2. */
AVX2_INLINE void q4_K_scales(const uint8_t *block, q_scales *out) {
    uint32_t u[3];
    memcpy(u, block + 4, sizeof u);
    uint32_t sc = (u[2] & 0x0f0f0f0f) | ((u[0] >> 2) & 0x30303030);
    uint32_t m = ((u[2] >> 4) & 0x0f0f0f0f) | ((u[1] >> 2) & 0x30303030);
    q_store_twice((u[0] & 0x3f3f3f3f) | (uint64_t)sc << 32, q_half(block), out->d);
    q_store_twice((u[1] & 0x3f3f3f3f) | (uint64_t)m << 32, q_half(block + 2), out->m);
}

/* Group g of a half block of 128: nibbles of 32 bytes (g even or odd), low or high ones, and two
 * bits of each of the half's 32 bytes qh. */
AVX2_INLINE __m256i q6_K_quants(const uint8_t *block, int group) {
    int half = group / 4, g = group % 4;
    __m256i low = q_nibbles(block + 64 * half + 32 * (g % 2), g / 2 * 4);
    __m256i high = _mm256_loadu_si256((const void *)(block + 128 + 32 * half));
    high = _mm256_and_si256(_mm256_srli_epi16(high, 2 * g), _mm256_set1_epi8(3));
    __m256i q = _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
    return _mm256_sub_epi8(q, _mm256_set1_epi8(32));
}

AVX2_INLINE void q6_K_scales(const uint8_t *block, q_scales *out) {
    float d = q_half(block + 208);
    for (int i = 0; i < 16; i += 8) {
        __m128i sc = _mm_loadl_epi64((const void *)(block + 192 + i));
        __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sc));
        _mm256_storeu_ps(out->d + i, _mm256_mul_ps(v, _mm256_set1_ps(d)));
    }
}

static const q_format q4_0_format = {.block_bytes = 18,
                                     .groups = 1,
                                     .narrow = true,
                                     .sub = 32,
                                     .quants = q4_0_quants,
                                     .scales = q_scale_first};
static const q_format q8_0_format = {
    .block_bytes = 34, .groups = 1, .sub = 32, .quants = q8_0_quants, .scales = q_scale_first};
static const q_format q4_K_format = {.block_bytes = 144,
                                     .groups = 8,
                                     .has_min = true,
                                     .narrow = true,
                                     .sub = 32,
                                     .quants = q4_K_quants,
                                     .scales = q4_K_scales};
static const q_format q6_K_format = {.block_bytes = 210,
                                     .groups = 8,
                                     .narrow = true,
                                     .sub = 16,
                                     .quants = q6_K_quants,
                                     .scales = q6_K_scales};

/* Products of signed bytes, pairs added: |w| <= 128 and |x| <= 127 keep this within 16 bits. */
AVX2_INLINE __m256i q_dot16(__m256i w, __m256i x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* Adds neighbours: 16 sums of 16 bits to 8 of 32. */
AVX2_INLINE __m256i q_widen(__m256i v) {
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

/* Every quantized type with kernels in this tier: X(format). */
#define AVX2_Q_TYPES(X) X(q4_0) X(q8_0) X(q4_K) X(q6_K)

#endif
