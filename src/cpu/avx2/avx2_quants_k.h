/* avx2_quants_k.h: types with blocks of 256 elements for avx2_quants.h: planes of bits, see
 * quant_blocks.h. */
#ifndef CPU_AVX2_QUANTS_K_H
#define CPU_AVX2_QUANTS_K_H

#include "avx2_quants.h"

/* The bits of 32 bytes from bit `from` on, moved to bit `to` and masked. */
AVX2_INLINE __m256i q_plane(const uint8_t *p, int from, int to, int mask) {
    __m256i v = _mm256_loadu_si256((const void *)p);
    v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* 16 words times d. */
AVX2_INLINE void q_scale_words(__m256i sc, __m256 d, __m256 out[2]) {
    __m256i low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sc));
    __m256i high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sc, 1));
    out[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(low));
    out[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(high));
}

#define Q_SUB_SCALES(name, has_min)                                                                \
    AVX2_INLINE void name##_scales(const uint8_t *block, q_scales *out) {                          \
        q_subs s;                                                                                  \
        name##_subs(block, &s);                                                                    \
        q_scale_words(s.scale, s.d, out->d);                                                       \
        if (has_min) q_scale_words(s.min, s.dmin, out->m);                                         \
    }

/* A 32-bit word holds four elements of each of four groups, as fields of its bytes. The word is
 * copied to all words of a lane, and each copy keeps the field of one group in place: so sums of
 * products need no additions across words, and are shifted left by the field's position. Words 0
 * and 1 are copies from one vector, words 2 and 3 from another. */
AVX2_INLINE void q_spread(const __m256i from[2], __m256i mask, __m256i out[4]) {
    __m256 a = _mm256_castsi256_ps(from[0]), b = _mm256_castsi256_ps(from[1]);
    out[0] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x00)), mask);
    out[1] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x55)), mask);
    out[2] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xaa)), mask);
    out[3] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xff)), mask);
}

/* 32 bytes each at a and b, which hold planes of groups g and g + 4, become vectors in the order of
 * pairs of groups. */
AVX2_INLINE void q_interleave(const uint8_t *a, const uint8_t *b, __m256i out[2]) {
    __m256i first = q_two(a, b), second = q_two(a + 16, b + 16);
    out[0] = _mm256_unpacklo_epi64(first, second);
    out[1] = _mm256_unpackhi_epi64(first, second);
}

AVX2_INLINE __m256i q_low_bits(__m256i v, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}

AVX2_INLINE __m256i q2_k_quants(const uint8_t *block, int group) {
    return q_plane(block + 16 + group / 4 * 32, group % 4 * 2, 0, 3);
}

AVX2_INLINE void q2_k_fields(const uint8_t *block, int half, __m256i out[2]) {
    out[0] = q_two(block + 16 + 16 * half, block + 48 + 16 * half);
    out[1] = Q_DOTS_FOUR ? out[0] : _mm256_srli_epi16(out[0], 4);
}

/* A word holds elements of four groups in its fields. */
AVX2_INLINE void q2_k_lanes(const uint8_t *block, __m256i out[Q_GROUPS]) {
    const __m256i field = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    for (int half = 0; half < 2; half++) {
        __m256i v = q_two(block + 16 + 16 * half, block + 48 + 16 * half), *w = out + 4 * half;
        w[0] = _mm256_shuffle_epi32(v, 0x00);
        w[1] = _mm256_shuffle_epi32(v, 0x55);
        w[2] = _mm256_shuffle_epi32(v, 0xaa);
        w[3] = _mm256_shuffle_epi32(v, 0xff);
        for (int j = 0; j < 4; j++)
            w[j] = _mm256_and_si256(_mm256_srlv_epi32(w[j], field), _mm256_set1_epi8(3));
    }
}

AVX2_INLINE void q2_k_subs(const uint8_t *block, q_subs *out) {
    __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)block));
    out->scale = _mm256_and_si256(both, _mm256_set1_epi16(15));
    out->min = _mm256_srli_epi16(both, 4);
    q_two_halfs(block + 80, &out->d, &out->dmin);
}
Q_SUB_SCALES(q2_k, true)

AVX2_INLINE __m256i q3_k_quants(const uint8_t *block, int group) {
    __m256i low = q_plane(block + 32 + group / 4 * 32, group % 4 * 2, 0, 3);
    return _mm256_or_si256(low, q_plane(block, group, 2, 4));
}

/* A nibble of the one-bit plane has the bits of groups 0..3, or of 4..7. Two look-ups move them
 * above the two bits of groups 0 and 2 and of groups 1 and 3. */
AVX2_INLINE void q3_k_fields(const uint8_t *block, int half, __m256i out[2]) {
    const __m128i even = _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68);
    const __m128i odd = _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68);
    __m256i low = q_two(block + 32 + 16 * half, block + 64 + 16 * half);
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(block + 16 * half)));
    high = _mm256_srlv_epi64(high, _mm256_setr_epi64x(0, 0, 4, 4));
    high = _mm256_and_si256(high, _mm256_set1_epi8(15));
    out[0] = _mm256_or_si256(q_low_bits(low, 0, 0x33), q_look_up(high, even));
    out[1] = _mm256_or_si256(q_low_bits(low, 2, 0x33), q_look_up(high, odd));
}

/* The first eight bytes of lane 0 (1): scales 0..7 (8..15). Low nibbles of both share 8 bytes; the
 * high two bits of all share the next 4. */
AVX2_INLINE __m256i q3_k_scale_bytes(const uint8_t *block) {
    const __m128i tops = _mm_setr_epi8(-32, -16, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    int64_t low;
    int32_t high;
    memcpy(&low, block + 96, sizeof low);
    memcpy(&high, block + 104, sizeof high);
    __m256i l = _mm256_srlv_epi64(_mm256_set1_epi64x(low), _mm256_setr_epi64x(0, 0, 4, 4));
    __m256i h = _mm256_srlv_epi32(_mm256_set1_epi32(high),
                                  _mm256_setr_epi32(0, 2, 0, 2, 4, 6, 4, 6));
    h = q_look_up(_mm256_and_si256(h, _mm256_set1_epi8(3)), tops);
    return _mm256_or_si256(_mm256_and_si256(l, _mm256_set1_epi8(15)), h);
}

AVX2_INLINE void q3_k_scales(const uint8_t *block, q_scales *out) {
    __m256i sc = _mm256_permute4x64_epi64(q3_k_scale_bytes(block), 0x08);
    q_scale_words(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(sc)), q_half(block + 108), out->d);
}

/* Scales in the order of fields; bytes become the upper halves of words. */
AVX2_INLINE void q3_k_subs(const uint8_t *block, q_subs *out) {
    const __m256i place = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 2, -1, 3, -1, 6, -1, 7));
    out->scale = _mm256_shuffle_epi8(q3_k_scale_bytes(block), place);
    out->d = q_half(block + 108);
}

AVX2_INLINE __m256i q4_k_quants(const uint8_t *block, int group) {
    return q_plane(block + 16 + group / 2 * 32, group % 2 * 4, 0, 15);
}

/* Low (pairs 0, 2) or high nibbles of two runs of 32 bytes. */
AVX2_INLINE void q_k_nibble_pair(const uint8_t *qs, int pair, __m256i out[2]) {
    const uint8_t *p = qs + pair / 2 * 64;
    for (int i = 0; i < 2; i++) {
        __m256i v = q_two(p + 16 * i, p + 32 + 16 * i);
        if (pair % 2 != 0) v = _mm256_srli_epi16(v, 4);
        out[i] = _mm256_and_si256(v, _mm256_set1_epi8(15));
    }
}

AVX2_INLINE void q4_k_pair(const uint8_t *block, int pair, __m256i out[2]) {
    q_k_nibble_pair(block + 16, pair, out);
}

/* Q4_K and Q5_K: a block starts with d, dmin and three words u0, u1, u2 of 6-bit scales and minima.
 * The first four scales are the low six bits of u0's bytes; the others have their low nibbles in
 * u2 (low nibbles) and their high two bits on top of u0. Minima likewise with u1 and the high
 * nibbles of u2. */
AVX2_INLINE void q4_k_scales(const uint8_t *block, q_scales *out) {
    __m128i head = _mm_loadu_si128((const void *)block);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(head, 0xa5), _mm_setr_epi32(0, 2, 0, 2));
    __m128i high = _mm_srlv_epi32(_mm_shuffle_epi32(head, 0xff), _mm_setr_epi32(0, 0, 0, 4));
    low = _mm_and_si128(low, _mm_set1_epi64x(0x303030303f3f3f3f));
    high = _mm_and_si128(high, _mm_set1_epi64x(0x0f0f0f0f00000000));
    __m128i both = _mm_or_si128(low, high);
    __m256 sc = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(both));
    __m256 m = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(both, 8)));
    __m256 d, dmin;
    q_two_halfs(block, &d, &dmin);
    out->d[0] = _mm256_mul_ps(d, sc);
    out->m[0] = _mm256_mul_ps(dmin, m);
}

AVX2_INLINE void q4_k_floats(const uint8_t *block, int step, const w_scales *s,
                             __m256 v[W_VECTORS]) {
    const uint8_t *qs = block + 16 + step / 2 * 32;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_apply(w_nibbles(qs + 8 * i, step % 2), s, step);
}

AVX2_INLINE void q5_k_scales(const uint8_t *block, q_scales *out) {
    q4_k_scales(block, out);
}

AVX2_INLINE __m256i q5_k_quants(const uint8_t *block, int group) {
    __m256i low = q_plane(block + 48 + group / 2 * 32, group % 2 * 4, 0, 15);
    return _mm256_or_si256(low, q_plane(block + 16, group, 4, 16));
}

AVX2_INLINE void q5_k_pair(const uint8_t *block, int pair, __m256i out[2]) {
    const int g = pair / 2 * 4 + pair % 2;
    q_k_nibble_pair(block + 48, pair, out);
    for (int i = 0; i < 2; i++) {
        /* bits of groups g and g + 2 at the same place */
        __m128i plane = _mm_loadu_si128((const void *)(block + 16 + 16 * i));
        __m256i v = _mm256_srlv_epi64(_mm256_broadcastsi128_si256(plane),
                                      _mm256_setr_epi64x(0, 0, 2, 2));
        v = g > 4 ? _mm256_srli_epi16(v, g - 4) : _mm256_slli_epi16(v, 4 - g);
        out[i] = _mm256_or_si256(out[i], _mm256_and_si256(v, _mm256_set1_epi8(16)));
    }
}

/* Group g of 128 elements of a block: nibbles of 32 bytes (g even or odd), low or high ones, and a
 * plane of two bits. */
AVX2_INLINE __m256i q6_k_quants(const uint8_t *block, int group) {
    int half = group / 4, g = group % 4;
    __m256i low = q_plane(block + 64 * half + 32 * (g % 2), g / 2 * 4, 0, 15);
    return _mm256_or_si256(low, q_plane(block + 128 + 32 * half, 2 * g, 4, 0x30));
}

AVX2_INLINE void q6_k_pair(const uint8_t *block, int pair, __m256i out[2]) {
    const uint8_t *low = block + pair % 2 * 32, *high = block + 128;
    __m256i top[2];
    q_interleave(low, low + 64, out);
    q_interleave(high, high + 32, top);
    for (int i = 0; i < 2; i++) {
        top[i] = pair < 2 ? _mm256_slli_epi16(top[i], 4 - 2 * pair)
                          : _mm256_srli_epi16(top[i], 2 * pair - 4);
        top[i] = _mm256_and_si256(top[i], _mm256_set1_epi8(0x30));
        out[i] = _mm256_or_si256(q_low_bits(out[i], pair / 2 * 4, 15), top[i]);
    }
}

AVX2_INLINE void q6_k_subs(const uint8_t *block, q_subs *out) {
    out->scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(block + 192)));
    out->d = q_half(block + 208);
}
Q_SUB_SCALES(q6_k, false)

AVX2_INLINE __m256i iq4_xs_quants(const uint8_t *block, int group) {
    return q_look_up(q_nibble_block(block + 8 + group * 16), q_iq4_table());
}

AVX2_INLINE void iq4_xs_pair(const uint8_t *block, int pair, __m256i out[2]) {
    q_nibble_pair(block + 8 + 32 * pair, 16, out);
    q_look_up_pair(q_iq4_table(), out);
}

AVX2_INLINE void iq4_xs_lanes(const uint8_t *block, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(block + 8, 16, out);
    q_look_up_lanes(q_iq4_table(), out);
}

/* Scale j: nibble j of scales_l, above it bits 2j, 2j + 1 of scales_h; from -32. */
AVX2_INLINE void iq4_xs_scales(const uint8_t *block, q_scales *out) {
    const __m256i nibble_at = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    uint16_t high;
    int32_t low;
    memcpy(&high, block + 2, sizeof high);
    memcpy(&low, block + 4, sizeof low);
    __m256i l = _mm256_srlv_epi32(_mm256_set1_epi32(low), nibble_at);
    __m256i h = _mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_srli_epi32(nibble_at, 1));
    h = _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(3)), 4);
    __m256i sc = _mm256_or_si256(_mm256_and_si256(l, _mm256_set1_epi32(15)), h);
    sc = _mm256_sub_epi32(sc, _mm256_set1_epi32(32));
    out->d[0] = _mm256_mul_ps(q_half(block), _mm256_cvtepi32_ps(sc));
}

Q_FORMAT_FIELDS(q2_k, .lanes = q2_k_lanes, .top = 3,
                .at = {0, 2, Q_DOTS_FOUR ? 4 : 0, Q_DOTS_FOUR ? 6 : 2});
Q_FORMAT_FIELDS(q3_k, .top = 7, .offset = 4, .at = {0, 4, 0, 4}, .crossed = true, .scale_shift = 8);
Q_FORMAT_32(q4_k, .floats = q4_k_floats, .apart = true, .top = 15);
Q_FORMAT_32(q5_k, .apart = true, .top = 31);
Q_FORMAT_16(q6_k, .pair = q6_k_pair, .top = 63, .offset = 32);
Q_FORMAT_SIGNED(iq4_xs, .lanes = iq4_xs_lanes, .top = 127);

#endif
