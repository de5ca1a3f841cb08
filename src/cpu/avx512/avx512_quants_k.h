/* avx512_quants_k.h: the types with blocks of 256 elements; see avx512_quants.h. A chunk is two
 * blocks, a step of 64 elements a quarter of a block.
 *
 * Bits are stored in planes: 32 bytes hold the low bits of 32 elements, above them those of the
 * next 32, and so on. The two halves of a step's vector therefore come from the same bytes, rotated
 * differently; masks remove the other bits that a rotation brings in. */
#ifndef CPU_AVX512_QUANTS_K_H
#define CPU_AVX512_QUANTS_K_H

#include "avx512_quants.h"

/* 32 bytes twice: in the lower half the bits from `bit` on are moved to bit `to`, in the upper half
 * those from bit + step on. */
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

/* q_plane of 16 rows, 32 bytes at p[r] + at, in words, masked by `mask`. */
AVX512_INLINE void q_two_planes(const uint8_t *const p[Q_ROWS], int at, int bit, int step, int to,
                                int mask, __m512i out[Q_WORDS]) {
    const __m512i through = _mm512_set1_epi8((char)mask);
    const __m512i low = _mm512_set1_epi32((bit - to) & 31);
    const __m512i high = _mm512_set1_epi32((bit + step - to) & 31);
    __m512i v[Q_WORDS / 2];
    for (int i = 0; i < 2; i++) q_words(p, at + 16 * i, v + 4 * i);
    for (int i = 0; i < Q_WORDS / 2; i++) {
        out[i] = _mm512_and_si512(_mm512_rorv_epi32(v[i], low), through);
        out[Q_WORDS / 2 + i] = _mm512_and_si512(_mm512_rorv_epi32(v[i], high), through);
    }
}

AVX512_INLINE void q_join_words(__m512i out[Q_WORDS], const __m512i more[Q_WORDS]) {
    for (int i = 0; i < Q_WORDS; i++) out[i] = _mm512_or_si512(out[i], more[i]);
}

AVX512_INLINE __m512 q_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_set1_ps(_cvtsh_ss(half));
}

/* 64 bytes each of both blocks, which hold planes of groups 0..3 and of 4..7, become a quad. */
AVX512_INLINE void q_interleave(const uint8_t *p, int block_bytes, __m512i out[2]) {
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + block_bytes);
    __m512i first = _mm512_shuffle_i32x4(a, b, 0x88), second = _mm512_shuffle_i32x4(a, b, 0xdd);
    out[0] = _mm512_unpacklo_epi64(first, second);
    out[1] = _mm512_unpackhi_epi64(first, second);
}

/* Converts words 0 and 1 at p and at p + block_bytes, which are halfs, to floats 0..3. */
AVX512_INLINE __m512 q_four_halfs(const uint8_t *p, int block_bytes) {
    int32_t a, b;
    memcpy(&a, p, sizeof a);
    memcpy(&b, p + block_bytes, sizeof b);
    return _mm512_castps128_ps512(_mm_cvtph_ps(_mm_insert_epi32(_mm_cvtsi32_si128(a), b, 1)));
}

/* The `i`th of these floats and the one two places further, for the two blocks. */
AVX512_INLINE __m512 q_of_blocks(__m512 halfs, int i) {
    const __m512i blocks = _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(_mm512_add_epi32(blocks, _mm512_set1_epi32(i)), halfs);
}

/* 16 bytes of both blocks. */
AVX512_INLINE __m256i q_both(const uint8_t *p, int block_bytes) {
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const void *)p));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const void *)(p + block_bytes)), 1);
}

/* 16 signed bytes times a scale. */
AVX512_INLINE __m512 q_scaled(__m512 d, __m128i sc) {
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sc)));
}

/* Floats of 32 bytes: the step's elements 0..31 from bit `bit` on in one table, elements 32..63
 * from bit + next on in the other. */
AVX512_INLINE void w_planes(const uint8_t *p, int bit, int next, const __m512 table[2],
                            __m512 v[W_VECTORS]) {
    for (int h = 0; h < 2; h++) {
        __m512i places = w_widen(p + 16 * h);
        v[h] = w_look_up(places, bit, table[0]);
        v[2 + h] = w_look_up(places, bit + next, table[1]);
    }
}

/* ---- Q2_K: 84 bytes per 256: scales[16], qs[64], d, dmin ------------------------------------- */

AVX512_INLINE __m512i q2_k_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 84 * (step >> 2) + 16 + 32 * ((step >> 1) & 1);
    return _mm512_and_si512(q_plane(qs, 4 * (step & 1), 2, 0), _mm512_set1_epi8(3));
}

AVX512_INLINE void q2_k_scales(const uint8_t *chunk, q_scales *out) {
    const __m128i nibble = _mm_set1_epi8(15);
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 84 * b;
        __m128i both = _mm_loadu_si128((const void *)block);
        out->d[b] = q_scaled(q_half(block + 80), _mm_and_si128(both, nibble));
        out->m[b] = q_scaled(q_half(block + 82), _mm_and_si128(_mm_srli_epi16(both, 4), nibble));
    }
}

AVX512_INLINE void q2_k_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    q_interleave(chunk + 16, 84, out);
    const __m512i shift = _mm512_set1_epi16((short)(2 * quad));
    for (int i = 0; i < 2; i++) {
        if (quad > 0) out[i] = _mm512_srlv_epi16(out[i], shift);
        out[i] = _mm512_and_si512(out[i], _mm512_set1_epi8(3));
    }
}

AVX512_INLINE void q2_k_subs(const uint8_t *chunk, q_subs *out) {
    __m512i both = _mm512_cvtepu8_epi16(q_both(chunk, 84));
    __m512 halfs = q_four_halfs(chunk + 80, 84);
    out->scale = _mm512_and_si512(both, _mm512_set1_epi16(15));
    out->min = _mm512_srli_epi16(both, 4);
    out->d = q_of_blocks(halfs, 0);
    out->dmin = q_of_blocks(halfs, 1);
}

AVX512_INLINE void q2_k_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    const uint8_t *qs = chunk + 84 * (step >> 2) + 16 + 32 * ((step >> 1) & 1);
    const __m512 table[2] = {w_count2(0), w_count2(0)};
    w_planes(qs, 4 * (step & 1), 2, table, v);
    for (int k = 0; k < W_VECTORS; k++) v[k] = w_apply(v[k], s, 4 * step + k);
}

AVX512_INLINE void q2_k_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_two_planes(chunk, 84 * (step >> 2) + 16 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, 0, 3,
                 out);
}

Q_FORMAT(q2_k, .offset_shift = -1, .floats = q2_k_floats, .quad = q2_k_quad, .subs = q2_k_subs);

/* ---- Q3_K: 110 bytes per 256: hmask[32], qs[64], scales[12], d ------------------------------- */

AVX512_INLINE __m512i q3_k_quants(const uint8_t *chunk, int step) {
    const uint8_t *block = chunk + 110 * (step >> 2);
    __m512i low = q_plane(block + 32 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, 0);
    return q_combine(low, 3, q_plane(block, 2 * (step & 3), 1, 2), 4);
}

/* Low nibbles of scales 0-7 and 8-15 share 8 bytes; the high two bits of all share the next 4.
 * Returns the scales of both blocks. */
AVX512_INLINE __m256i q3_k_unpack_scales(const uint8_t *chunk) {
    const uint8_t *a = chunk + 96, *b = a + 110;
    int32_t high[2];
    memcpy(&high[0], a + 8, sizeof high[0]);
    memcpy(&high[1], b + 8, sizeof high[1]);
    __m256i nibbles = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadl_epi64((const void *)a)), _mm_loadl_epi64((const void *)b),
        1);
    nibbles = _mm256_unpacklo_epi64(nibbles, _mm256_srli_epi16(nibbles, 4));
    __m256i top = _mm256_blend_epi32(_mm256_set1_epi32(high[0]), _mm256_set1_epi32(high[1]), 0xf0);
    top = _mm256_srlv_epi32(top, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    top = _mm256_slli_epi16(_mm256_and_si256(top, _mm256_set1_epi8(3)), 4);
    __m256i sc = _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi8(15)), top);
    return _mm256_sub_epi8(sc, _mm256_set1_epi8(32));
}

AVX512_INLINE void q3_k_scales(const uint8_t *chunk, q_scales *out) {
    __m256i sc = q3_k_unpack_scales(chunk);
    out->d[0] = q_scaled(q_half(chunk + 108), _mm256_castsi256_si128(sc));
    out->d[1] = q_scaled(q_half(chunk + 110 + 108), _mm256_extracti128_si256(sc, 1));
}

/* A nibble of the one-bit plane has the bits of groups 0..3, or of 4..7. Two look-ups move them
 * above the two bits of groups 0 and 2 and of groups 1 and 3, which are unpacked together. */
AVX512_INLINE void q3_k_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    const __m128i even = _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68);
    const __m128i odd = _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68);
    const __m512i shift = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
    __m512i high = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const void *)chunk)),
        _mm256_loadu_si256((const void *)(chunk + 110)), 1);
    __m512i of[2] = {_mm512_permutex_epi64(high, 0x88), _mm512_permutex_epi64(high, 0xdd)};
    q_interleave(chunk + 32, 110, out);
    for (int i = 0; i < 2; i++) {
        of[i] = _mm512_and_si512(_mm512_srlv_epi64(of[i], shift), _mm512_set1_epi8(15));
        of[i] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(quad % 2 ? odd : even), of[i]);
        __m512i low = quad % 2 ? _mm512_srli_epi16(out[i], 2) : out[i];
        __m512i two = _mm512_ternarylogic_epi64(low, _mm512_set1_epi8(0x33), of[i], 0xea);
        if (quad >= 2) two = _mm512_srli_epi16(two, 4);
        out[i] = _mm512_and_si512(two, _mm512_set1_epi8(15));
    }
}

AVX512_INLINE void q3_k_subs(const uint8_t *chunk, q_subs *out) {
    out->scale = _mm512_cvtepi8_epi16(q3_k_unpack_scales(chunk));
    out->d = q_of_blocks(q_four_halfs(chunk + 106, 110), 1);
}

AVX512_INLINE void q3_k_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    const uint8_t *block = chunk + 110 * (step >> 2);
    const __m512 table[2] = {w_count2(-4), w_count2(-4)};
    w_planes(block + 32 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, table, v);
    for (int b = 0; b < 2; b++)
        w_add_bits(w_plane_bits(block, 2 * (step & 3) + b), 4.0f, v + 2 * b);
}

AVX512_INLINE void q3_k_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    const int block = 110 * (step >> 2);
    __m512i high[Q_WORDS];
    q_two_planes(chunk, block + 32 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, 0, 3, out);
    q_two_planes(chunk, block, 2 * (step & 3), 1, 2, 4, high);
    q_join_words(out, high);
}

Q_FORMAT(q3_k, .offset_shift = 2, .floats = q3_k_floats, .quad = q3_k_quad, .subs = q3_k_subs);

/* ---- Q4_K, Q5_K: d, dmin, 12 bytes of scales, (32 of fifth bits,) 128 of nibbles per 256 ----- */

/* A block starts with 16 bytes: d, dmin, and three words u0, u1, u2 that pack eight scales and
 * eight minima of 6 bits. The first four scales are the low six bits of u0's bytes; the others have
 * their low nibbles in u2 (low nibbles) and their high two bits in the top bits of u0. Minima
 * likewise with u1 and the high nibbles of u2. Unpacks both blocks of a chunk at once. */
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
    /* halves 0, 1 are d, dmin of the first block; 8, 9 of the second */
    __m512 halfs = _mm512_cvtph_ps(head);
    __m512 d = _mm512_permutexvar_ps(blocks, halfs);
    __m512 dmin = _mm512_permutexvar_ps(_mm512_add_epi32(blocks, _mm512_set1_epi32(1)), halfs);
    out->d[0] = _mm512_mul_ps(d, sc);
    out->m[0] = _mm512_mul_ps(dmin, m);
}

AVX512_INLINE __m512i q4_k_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 144 * (step >> 2) + 16 + 32 * (step & 3);
    return _mm512_and_si512(q_plane(qs, 0, 4, 0), _mm512_set1_epi8(15));
}

AVX512_INLINE void q4_k_scales(const uint8_t *chunk, q_scales *out) {
    q_scales_k4(chunk, 144, out);
}

AVX512_INLINE void q4_k_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    const __m512 table[2] = {w_apply(w_count(0), s, 2 * step),
                             w_apply(w_count(0), s, 2 * step + 1)};
    w_planes(chunk + 144 * (step >> 2) + 16 + 32 * (step & 3), 0, 4, table, v);
}

AVX512_INLINE void q4_k_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_two_planes(chunk, 144 * (step >> 2) + 16 + 32 * (step & 3), 0, 4, 0, 15, out);
}

Q_FORMAT(q4_k, .offset_shift = -1, .floats = q4_k_floats);

AVX512_INLINE __m512i q5_k_quants(const uint8_t *chunk, int step) {
    const uint8_t *block = chunk + 176 * (step >> 2);
    __m512i high = q_plane(block + 16, 2 * (step & 3), 1, 4);
    return q_combine(q_plane(block + 48 + 32 * (step & 3), 0, 4, 0), 15, high, 16);
}

AVX512_INLINE void q5_k_scales(const uint8_t *chunk, q_scales *out) {
    q_scales_k4(chunk, 176, out);
}

AVX512_INLINE void q5_k_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    const uint8_t *block = chunk + 176 * (step >> 2);
    const __m512 table[2] = {w_count(0), w_count(0)};
    w_planes(block + 48 + 32 * (step & 3), 0, 4, table, v);
    for (int b = 0; b < 2; b++)
        w_add_bits(w_plane_bits(block + 16, 2 * (step & 3) + b), 16.0f, v + 2 * b);
    for (int k = 0; k < W_VECTORS; k++) v[k] = w_apply(v[k], s, 2 * step + k / 2);
}

AVX512_INLINE void q5_k_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    const int block = 176 * (step >> 2);
    __m512i high[Q_WORDS];
    q_two_planes(chunk, block + 48 + 32 * (step & 3), 0, 4, 0, 15, out);
    q_two_planes(chunk, block + 16, 2 * (step & 3), 1, 4, 16, high);
    q_join_words(out, high);
}

Q_FORMAT(q5_k, .offset_shift = -1, .floats = q5_k_floats);

/* ---- Q6_K: 210 bytes per 256: ql[128], qh[64], scales[16], d -------------------------------- */

AVX512_INLINE __m512i q6_k_quants(const uint8_t *chunk, int step) {
    /* 128 elements of a block: 64 bytes of nibbles (low ones for the first 64 elements) and a plane
     * of two bits. */
    const uint8_t *block = chunk + 210 * (step >> 2);
    int half = (step >> 1) & 1, pair = step & 1;
    __m512i low = _mm512_loadu_si512(block + 64 * half);
    if (pair) low = _mm512_srli_epi16(low, 4);
    return q_combine(low, 15, q_plane(block + 128 + 32 * half, 4 * pair, 2, 4), 0x30);
}

AVX512_INLINE void q6_k_scales(const uint8_t *chunk, q_scales *out) {
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 210 * b;
        out->d[b] = q_scaled(q_half(block + 208), _mm_loadu_si128((const void *)(block + 192)));
    }
}

AVX512_INLINE void q6_k_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    /* 128 elements of a block: 64 bytes of nibbles (low ones for the first 64 elements) and a plane
     * of two bits. */
    const uint8_t *block = chunk + 210 * (step >> 2);
    int half = (step >> 1) & 1, pair = step & 1;
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = w_look_up(w_widen(block + 64 * half + 16 * i), 4 * pair, w_count(-32));
    for (int b = 0; b < 2; b++) {
        const uint8_t *high = block + 128 + 32 * half;
        w_add_bits(w_plane_bits(high, 4 * pair + 2 * b), 16.0f, v + 2 * b);
        w_add_bits(w_plane_bits(high, 4 * pair + 2 * b + 1), 32.0f, v + 2 * b);
    }
}

AVX512_INLINE void q6_k_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    const int block = 210 * (step >> 2), half = (step >> 1) & 1, pair = step & 1;
    __m512i high[Q_WORDS];
    for (int i = 0; i < 4; i++) q_words(chunk, block + 64 * half + 16 * i, out + 4 * i);
    for (int i = 0; i < Q_WORDS; i++) {
        if (pair) out[i] = _mm512_srli_epi16(out[i], 4);
        out[i] = _mm512_and_si512(out[i], _mm512_set1_epi8(15));
    }
    q_two_planes(chunk, block + 128 + 32 * half, 4 * pair, 2, 4, 0x30, high);
    q_join_words(out, high);
}

Q_FORMAT(q6_k, .offset_shift = 5, .floats = q6_k_floats);

/* ---- IQ4_XS: 136 bytes per 256: d, scales_h, scales_l[4], nibbles as in eight blocks of IQ4_NL */

AVX512_INLINE __m512i iq4_xs_quants(const uint8_t *chunk, int step) {
    const uint8_t *qs = chunk + 136 * (step >> 2) + 8 + 32 * (step & 3);
    return q_look_up(q_nibble_blocks(qs, qs + 16), _mm_setr_epi8(QUANT_IQ4_VALUES), 128);
}

/* The groups of a quad are adjacent. */
AVX512_INLINE void iq4_xs_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    __m512i v = _mm512_loadu_si512(chunk + 136 * (quad / 2) + 8 + 64 * (quad % 2));
    out[0] = _mm512_and_si512(v, _mm512_set1_epi8(15));
    out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
    q_look_up_all(2, _mm_setr_epi8(QUANT_IQ4_VALUES), 128, out);
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

AVX512_INLINE void iq4_xs_floats(const uint8_t *chunk, int step, const w_scales *s,
                                 __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_IQ4_VALUES));
    const uint8_t *qs = chunk + 136 * (step >> 2) + 8 + 32 * (step & 3);
    for (int b = 0; b < 2; b++) w_nibbles(qs + 16 * b, table, v + 2 * b);
}

AVX512_INLINE void iq4_xs_words(const uint8_t *const chunk[Q_ROWS], int step,
                                __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, 0, 16, 136 * (step >> 2) + 8 + 32 * (step & 3), out);
    q_look_up_all(Q_WORDS, _mm_setr_epi8(QUANT_IQ4_VALUES), 128, out);
}

Q_FORMAT(iq4_xs, .offset_shift = 7, .floats = iq4_xs_floats, .quad = iq4_xs_quad);

#endif
