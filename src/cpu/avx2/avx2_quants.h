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

/* 16 bytes: 32 elements, first the low nibbles. */
AVX2_INLINE __m256i q_nibble_block(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const void *)p);
    __m256i q = _mm256_set_m128i(_mm_srli_epi16(b, 4), b);
    return _mm256_and_si256(q, _mm256_set1_epi8(15));
}

AVX2_INLINE __m256i q4_0_quants(const uint8_t *block, int group) {
    (void)group;
    return _mm256_sub_epi8(q_nibble_block(block + 2), _mm256_set1_epi8(8));
}

AVX2_INLINE void q_scale_first(const uint8_t *block, q_scales *out) {
    out->d[0] = out->d[1] = q_half(block);
}

/* 32 bits -> 32 bytes, all ones where a bit is clear. */
AVX2_INLINE __m256i q_clear_bits(const uint8_t *p) {
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                            0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(INT64_C(-0x7fbfdfeff7fbfdff)); /* 0x8040201008040201 */
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), _mm256_setzero_si256());
}

AVX2_INLINE void q_scale_addend(const uint8_t *block, q_scales *out) {
    out->d[0] = out->d[1] = q_half(block);
    out->m[0] = out->m[1] = -q_half(block + 2);
}

AVX2_INLINE __m256i q4_1_quants(const uint8_t *block, int group) {
    (void)group;
    return q_nibble_block(block + 4);
}

AVX2_INLINE __m256i q5_0_quants(const uint8_t *block, int group) {
    (void)group;
    /* where the fifth bit is clear, q - 16 is the nibble with four ones above it */
    __m256i less = _mm256_and_si256(q_clear_bits(block + 2), _mm256_set1_epi8(-16));
    return _mm256_or_si256(q_nibble_block(block + 6), less);
}

AVX2_INLINE __m256i q5_1_quants(const uint8_t *block, int group) {
    (void)group;
    __m256i more = _mm256_andnot_si256(q_clear_bits(block + 4), _mm256_set1_epi8(16));
    return _mm256_or_si256(q_nibble_block(block + 8), more);
}

AVX2_INLINE __m256i q8_0_quants(const uint8_t *block, int group) {
    (void)group;
    return _mm256_loadu_si256((const void *)(block + 2));
}

AVX2_INLINE __m256i q4_K_quants(const uint8_t *block, int group) {
    return q_nibbles(block + 16 + group / 2 * 32, group % 2 * 4);
}

/* 6-bit scales and minima; see quant_blocks.h. The first four have their own six bits, the others
 * are a nibble and two bits on top of the first ones. */
AVX2_INLINE void q4_K_scales(const uint8_t *block, q_scales *out) {
    float d = q_half(block), dmin = q_half(block + 2);
    const uint8_t *s = block + 4;
    for (int g = 0; g < 8; g++) {
        int sc = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6 << 4);
        int m = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6 << 4);
        out->d[2 * g] = out->d[2 * g + 1] = d * (float)sc;
        out->m[2 * g] = out->m[2 * g + 1] = dmin * (float)m;
    }
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
    for (int i = 0; i < 16; i++) out->d[i] = d * (float)(int8_t)block[192 + i];
}

static const q_format q4_0_format = {.block_bytes = 18,
                                     .groups = 1,
                                     .narrow = true,
                                     .sub = 32,
                                     .quants = q4_0_quants,
                                     .scales = q_scale_first};
static const q_format q4_1_format = {.block_bytes = 20,
                                     .groups = 1,
                                     .has_min = true,
                                     .narrow = true,
                                     .sub = 32,
                                     .quants = q4_1_quants,
                                     .scales = q_scale_addend};
static const q_format q5_0_format = {.block_bytes = 22,
                                     .groups = 1,
                                     .narrow = true,
                                     .sub = 32,
                                     .quants = q5_0_quants,
                                     .scales = q_scale_first};
static const q_format q5_1_format = {.block_bytes = 24,
                                     .groups = 1,
                                     .has_min = true,
                                     .sub = 32,
                                     .quants = q5_1_quants,
                                     .scales = q_scale_addend};
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

#endif
