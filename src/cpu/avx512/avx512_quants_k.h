/* avx512_quants_k.h: the types with blocks of 256 elements; see avx512_quants.h. A chunk is two
 * blocks, a step of 64 elements a quarter of a block.
 *
 * Bits lie in planes: 32 bytes hold the low bits of 32 elements, above them those of the next 32,
 * and so on. So the two halves of a step's vector come from the same bytes, rotated differently;
 * what else a rotation brings in is masked away. */
#ifndef CPU_AVX512_QUANTS_K_H
#define CPU_AVX512_QUANTS_K_H

#include "avx512_quants.h"

/* 32 bytes twice: in the lower half the bits from `bit` on are brought to bit `to`, in the upper
 * half those from bit + step on. */
AVX512_INLINE __m512i q_plane(const uint8_t *p, int bit, int step, int to) {
    __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
    __m512i by = _mm512_inserti64x4(_mm512_set1_epi32((bit - to) & 31),
                                    _mm256_set1_epi32((bit + step - to) & 31), 1);
    return _mm512_rorv_epi32(v, by);
}

/* (low & mask) | (high & high_mask) */
AVX512_INLINE __m512i q_combine(__m512i low, int mask, __m512i high, int high_mask) {
    high = _mm512_and_si512(high, _mm512_set1_epi8((char)high_mask));
    return _mm512_ternarylogic_epi64(low, _mm512_set1_epi8((char)mask), high, 0xea);
}

AVX512_INLINE __m512 q_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_set1_ps(_cvtsh_ss(half));
}

/* 16 signed bytes times a scale. */
AVX512_INLINE __m512 q_scaled(__m512 d, __m128i sc) {
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sc)));
}

/* ---- Q2_K: 84 bytes per 256: scales[16], qs[64], d, dmin ------------------------------------- */

AVX512_INLINE __m512i q2_K_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 84 * (step >> 2) + 16 + 32 * ((step >> 1) & 1);
    return _mm512_and_si512(q_plane(qs, 4 * (step & 1), 2, 0), _mm512_set1_epi8(3));
}

AVX512_INLINE void q2_K_scales(const uint8_t *chunk, q_scales *out) {
    const __m128i nibble = _mm_set1_epi8(15);
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 84 * b;
        __m128i both = _mm_loadu_si128((const void *)block);
        out->d[b] = q_scaled(q_half(block + 80), _mm_and_si128(both, nibble));
        out->m[b] = q_scaled(q_half(block + 82), _mm_and_si128(_mm_srli_epi16(both, 4), nibble));
    }
}

static const q_format q2_K_format = {.chunk_bytes = 2 * 84,
                                     .sub = 16,
                                     .has_min = true,
                                     .offset_shift = -1,
                                     .quants = q2_K_quants,
                                     .scales = q2_K_scales};

/* ---- Q3_K: 110 bytes per 256: hmask[32], qs[64], scales[12], d ------------------------------- */

AVX512_INLINE __m512i q3_K_quants(const uint8_t *chunk, int step) {
    const uint8_t *block = chunk + 110 * (step >> 2);
    __m512i low = q_plane(block + 32 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, 0);
    return q_combine(low, 3, q_plane(block, 2 * (step & 3), 1, 2), 4);
}

/* Low nibbles of scales 0-7 and 8-15 share 8 bytes; the high two bits of all share the next 4. */
AVX512_INLINE __m128i q3_K_unpack_scales(const uint8_t *packed) {
    int32_t high;
    memcpy(&high, packed + 8, sizeof high);
    __m128i nibbles = _mm_loadl_epi64((const void *)packed);
    nibbles = _mm_unpacklo_epi64(nibbles, _mm_srli_epi16(nibbles, 4));
    __m128i top = _mm_srlv_epi32(_mm_set1_epi32(high), _mm_setr_epi32(0, 2, 4, 6));
    top = _mm_slli_epi16(_mm_and_si128(top, _mm_set1_epi8(3)), 4);
    __m128i sc = _mm_or_si128(_mm_and_si128(nibbles, _mm_set1_epi8(15)), top);
    return _mm_sub_epi8(sc, _mm_set1_epi8(32));
}

AVX512_INLINE void q3_K_scales(const uint8_t *chunk, q_scales *out) {
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 110 * b;
        out->d[b] = q_scaled(q_half(block + 108), q3_K_unpack_scales(block + 96));
    }
}

static const q_format q3_K_format = {.chunk_bytes = 2 * 110,
                                     .sub = 16,
                                     .offset_shift = 2,
                                     .quants = q3_K_quants,
                                     .scales = q3_K_scales};

/* ---- Q4_K, Q5_K: d, dmin, 12 bytes of scales, (32 of fifth bits,) 128 of nibbles per 256 ----- */

/* A block starts with 16 bytes: d, dmin, and three words u0, u1, u2 that pack eight scales and
 * eight minima of 6 bits. The first four scales are the low six bits of u0's bytes, the others have
 * their low nibbles in u2 (low nibbles) and their high two bits on top of u0; minima likewise with
 * u1 and the high nibbles of u2. Both blocks of a chunk at once. */
AVX512_INLINE void q_scales_k4(const uint8_t *chunk, int block_bytes, q_scales *out) {
    const __m256i from01 = _mm256_setr_epi32(1, 1, 5, 5, 2, 2, 6, 6);
    const __m256i from2 = _mm256_setr_epi32(3, 3, 7, 7, 3, 3, 7, 7);
    const __m256i shift01 = _mm256_setr_epi32(0, 2, 0, 2, 0, 2, 0, 2);
    const __m256i shift2 = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    const __m256i mask01 = _mm256_set1_epi64x(0x303030303f3f3f3f);
    const __m256i mask2 = _mm256_set1_epi64x(0x0f0f0f0f00000000);
    const __m512i blocks = _mm512_set_epi32(8, 8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0);
    __m256i head = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const void *)chunk)),
        _mm_loadu_si128((const void *)(chunk + block_bytes)), 1);
    __m256i low = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(head, from01), shift01);
    __m256i high = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(head, from2), shift2);
    __m256i both = _mm256_or_si256(_mm256_and_si256(low, mask01), _mm256_and_si256(high, mask2));
    __m512 sc = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(both)));
    __m512 m = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(both, 1)));
    /* halfs 0, 1 are d, dmin of the first block; 8, 9 of the second */
    __m512 halfs = _mm512_cvtph_ps(head);
    __m512 d = _mm512_permutexvar_ps(blocks, halfs);
    __m512 dmin = _mm512_permutexvar_ps(_mm512_add_epi32(blocks, _mm512_set1_epi32(1)), halfs);
    out->d[0] = _mm512_mul_ps(d, sc);
    out->m[0] = _mm512_mul_ps(dmin, m);
}

AVX512_INLINE __m512i q4_K_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 144 * (step >> 2) + 16 + 32 * (step & 3);
    return _mm512_and_si512(q_plane(qs, 0, 4, 0), _mm512_set1_epi8(15));
}

AVX512_INLINE void q4_K_scales(const uint8_t *chunk, q_scales *out) {
    q_scales_k4(chunk, 144, out);
}

static const q_format q4_K_format = {.chunk_bytes = 2 * 144,
                                     .sub = 32,
                                     .has_min = true,
                                     .offset_shift = -1,
                                     .quants = q4_K_quants,
                                     .scales = q4_K_scales};

AVX512_INLINE __m512i q5_K_quants(const uint8_t *chunk, int step) {
    const uint8_t *block = chunk + 176 * (step >> 2);
    __m512i high = q_plane(block + 16, 2 * (step & 3), 1, 4);
    return q_combine(q_plane(block + 48 + 32 * (step & 3), 0, 4, 0), 15, high, 16);
}

AVX512_INLINE void q5_K_scales(const uint8_t *chunk, q_scales *out) {
    q_scales_k4(chunk, 176, out);
}

static const q_format q5_K_format = {.chunk_bytes = 2 * 176,
                                     .sub = 32,
                                     .has_min = true,
                                     .offset_shift = -1,
                                     .quants = q5_K_quants,
                                     .scales = q5_K_scales};

/* ---- Q6_K: 210 bytes per 256: ql[128], qh[64], scales[16], d -------------------------------- */

AVX512_INLINE __m512i q6_K_quants(const uint8_t *chunk, int step) {
    /* A half block of 128 elements: 64 bytes of nibbles (low ones for the first 64 elements) and a
     * plane of two bits. */
    const uint8_t *block = chunk + 210 * (step >> 2);
    int half = (step >> 1) & 1, pair = step & 1;
    __m512i low = _mm512_loadu_si512(block + 64 * half);
    if (pair) low = _mm512_srli_epi16(low, 4);
    return q_combine(low, 15, q_plane(block + 128 + 32 * half, 4 * pair, 2, 4), 0x30);
}

AVX512_INLINE void q6_K_scales(const uint8_t *chunk, q_scales *out) {
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 210 * b;
        out->d[b] = q_scaled(q_half(block + 208), _mm_loadu_si128((const void *)(block + 192)));
    }
}

static const q_format q6_K_format = {.chunk_bytes = 2 * 210,
                                     .sub = 16,
                                     .offset_shift = 5,
                                     .quants = q6_K_quants,
                                     .scales = q6_K_scales};

/* ---- IQ4_XS: 136 bytes per 256: d, scales_h, scales_l[4], nibbles as in eight blocks of IQ4_NL */

AVX512_INLINE __m512i iq4_xs_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 136 * (step >> 2) + 8 + 32 * (step & 3);
    return q_look_up(q_nibble_blocks(qs, qs + 16), _mm_setr_epi8(QUANT_IQ4_VALUES), 128);
}

/* Scale j of a block: nibble j of scales_l, above it bits 2j, 2j + 1 of scales_h; from -32. */
AVX512_INLINE void iq4_xs_scales(const uint8_t *chunk, q_scales *out) {
    const __m512i nibble_at = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8,
                                               4, 0);
    uint16_t high[2];
    int32_t low[2];
    for (int b = 0; b < 2; b++) {
        memcpy(&high[b], chunk + 136 * b + 2, sizeof high[b]);
        memcpy(&low[b], chunk + 136 * b + 4, sizeof low[b]);
    }
    __m512i l = _mm512_mask_set1_epi32(_mm512_set1_epi32(low[0]), 0xff00, low[1]);
    __m512i h = _mm512_mask_set1_epi32(_mm512_set1_epi32(high[0]), 0xff00, high[1]);
    l = _mm512_and_si512(_mm512_srlv_epi32(l, nibble_at), _mm512_set1_epi32(15));
    h = _mm512_srlv_epi32(h, _mm512_srli_epi32(nibble_at, 1));
    h = _mm512_slli_epi32(_mm512_and_si512(h, _mm512_set1_epi32(3)), 4);
    __m512i sc = _mm512_sub_epi32(_mm512_or_si512(l, h), _mm512_set1_epi32(32));
    __m512 d = _mm512_mask_mov_ps(q_half(chunk), 0xff00, q_half(chunk + 136));
    out->d[0] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sc));
}

static const q_format iq4_xs_format = {.chunk_bytes = 2 * 136,
                                       .sub = 32,
                                       .offset_shift = 7,
                                       .quants = iq4_xs_quants,
                                       .scales = iq4_xs_scales};

#endif
