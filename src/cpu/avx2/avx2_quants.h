/* avx2_quants.h: what a quantized type looks like to the AVX2 kernels.
 *
 * Both kernels (matvec, matmul) see a row as chunks of eight groups of 32 elements. A type is
 * described by a q_format: how to unpack a group into 32 bytes in element order, and how to get all
 * scales and minima of a chunk at once:
 *
 *   value = d * (byte - offset) - m
 *
 * Matvec takes two groups at once, one per 128-bit lane: that is cheaper than two groups in element
 * order, and so is adding up their products. Types with one scale per 32 put elements 0..15 of both
 * into one vector and 16..31 into another. Q6_K, with one per 16, puts the first eight of either
 * half into one and the last eight into another, so that 64 bits belong to one scale; its scales
 * are small integers, and products are multiplied with them before they are added up any further.
 * Where elements of several groups share a byte (Q2_K, Q3_K), they are not unpacked: see q_spread.
 *
 * Instructions that multiply bytes want unsigned weights. Those of AVX-VNNI take all of 0..255, so
 * where they are there signed bytes are raised by 128, and that is their offset. Without them sums
 * of two products have 16 bits, which holds 128 * 127 twice: signed weights stay signed then.
 *
 * Functions read only the bytes of the chunk; rows that are no multiple of 256 end in a copy padded
 * with zeros (a scale of 0 makes the padding vanish). */
#ifndef CPU_AVX2_QUANTS_H
#define CPU_AVX2_QUANTS_H

#include <stddef.h>
#include <string.h>

#include "avx2_mat.h"
#include "quant_blocks.h"

enum {
    Q_CHUNK = 256,                      /* elements */
    Q_GROUPS = Q_CHUNK / CPU_ACT_GROUP, /* one vector of floats */
    Q_CHUNK_BYTES_MAX = Q_GROUPS * 34   /* q8_0, the widest */
};

#if defined(__AVXVNNI__)
enum { Q_DOTS_FOUR = 1, Q_RAISE = 128 /* of signed bytes */ };
#else
enum { Q_DOTS_FOUR = 0, Q_RAISE = 0 };
#endif

/* Scales of a chunk. One per 32 elements: d[0], m[0] hold eight. One per 16: all hold 16. */
typedef struct q_scales {
    __m256 d[2], m[2];
} q_scales;

/* The same where there is one per 16, as words in the order of elements: scale * d, min * dmin. */
typedef struct q_subs {
    __m256i scale, min;
    __m256 d, dmin;
} q_subs;

typedef struct q_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32 */
    bool has_min;
    bool is_signed; /* bytes are -top..top, else 0..top; signed ones have no offset */
    bool apart;     /* pairs are groups g and g + 2 (0 2, 1 3, 4 6, 5 7), else neighbours; with
                       one scale per 16 they are g and g + 4 */
    int top;
    int offset;
    /* No sum of products |byte - offset| * 127 over a scale's elements, in pairs of 16 lanes,
     * leaves 16 bits: up to 16 with one scale per 32, up to 32 with one per 16. */
    bool narrow;
    __m256i (*quants)(const uint8_t *chunk, int group);
    /* Pair 0..3: the two vectors. */
    void (*pair)(const uint8_t *chunk, int pair, __m256i out[2]);
    /* What is to be added to them, in another order (see q_fifth_bits); NULL: nothing. */
    void (*bits)(const uint8_t *chunk, int pair, __m256i out[2]);
    void (*scales)(const uint8_t *chunk, q_scales *out);
    void (*subs)(const uint8_t *chunk, q_subs *out); /* sub 16 only */
    /* Fields of bytes, instead of pairs: see q_spread. Half 0: elements 0..15 of all groups. */
    void (*fields)(const uint8_t *chunk, int half, __m256i out[2]);
    int at[4];       /* first bits of the fields in the four words of a lane */
    bool crossed;    /* words of a lane are groups 0 2 1 3 (4 6 5 7), else 0 1 2 3 */
    int scale_shift; /* scales that subs gives are that many bits to the left; for Q3_K 2 * 16
                        products of 32 << 8, 4 << 4 and 127 still have 32 bits */
} q_format;

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX2_INLINE size_t q_bytes(const q_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

AVX2_INLINE int16_t q_word(const uint8_t *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

AVX2_INLINE __m256 q_half(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_set1_epi16(q_word(p)));
}

AVX2_INLINE void q_two_halfs(const uint8_t *p, __m256 *first, __m256 *second) {
    int32_t halfs;
    memcpy(&halfs, p, sizeof halfs);
    __m128d two = _mm_castps_pd(_mm_cvtph_ps(_mm_cvtsi32_si128(halfs)));
    __m256 both = _mm256_castpd_ps(_mm256_broadcastsd_pd(two));
    *first = _mm256_moveldup_ps(both);
    *second = _mm256_movehdup_ps(both);
}

/* Halfs at the same place p of eight blocks, as they are. */
AVX2_INLINE __m128i q_block_halfs(const uint8_t *p, int bytes) {
    return _mm_setr_epi16(q_word(p), q_word(p + bytes), q_word(p + 2 * bytes),
                          q_word(p + 3 * bytes), q_word(p + 4 * bytes), q_word(p + 5 * bytes),
                          q_word(p + 6 * bytes), q_word(p + 7 * bytes));
}

/* The first four bytes of eight blocks (less for MXFP4), by windows of 32 bytes over two blocks: in
 * the second lane a block starts two to eight bytes later than in the first. Lane 0: blocks 0 2 4
 * 6, lane 1: the others, whose bytes are `bytes` - 16 further left in the same or the next word. */
AVX2_INLINE __m256i q_block_words(const uint8_t *chunk, const int bytes) {
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_loadu_si256((const void *)(chunk + (ptrdiff_t)2 * bytes * i));
    if (bytes == 24) { /* two words later */
        __m256d a = _mm256_shuffle_pd(_mm256_castsi256_pd(v[0]), _mm256_castsi256_pd(v[1]), 12);
        __m256d b = _mm256_shuffle_pd(_mm256_castsi256_pd(v[2]), _mm256_castsi256_pd(v[3]), 12);
        return _mm256_castps_si256(
            _mm256_shuffle_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b), 0x88));
    }
    __m256d a = _mm256_castsi256_pd(_mm256_unpacklo_epi32(v[0], v[1]));
    __m256d b = _mm256_castsi256_pd(_mm256_unpacklo_epi32(v[2], v[3]));
    a = bytes < 20 ? _mm256_unpacklo_pd(a, b) : _mm256_shuffle_pd(a, b, 12);
    return _mm256_castpd_si256(a);
}

/* Eight blocks of 18 or 22 bytes that start with a scale: in lane 1 it is the word's upper half. */
AVX2_INLINE void q_scale_first(const uint8_t *chunk, const int bytes, q_scales *out) {
    __m256i words = q_block_words(chunk, bytes);
    __m128i d = _mm_blend_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1),
                                0xaa);
    out->d[0] = _mm256_cvtph_ps(d);
}

/* Eight blocks of 20 or 24 bytes that start with a scale and an addend: a minimum with its sign
 * changed. */
AVX2_INLINE void q_scale_addend(const uint8_t *chunk, const int bytes, q_scales *out) {
    __m256i words = q_block_words(chunk, bytes);
    __m128i a = _mm256_castsi256_si128(words), b = _mm256_extracti128_si256(words, 1);
    __m128i d = _mm_blend_epi16(a, _mm_slli_epi32(b, 16), 0xaa);
    __m128i m = _mm_blend_epi16(_mm_srli_epi32(a, 16), b, 0xaa);
    out->d[0] = _mm256_cvtph_ps(d);
    out->m[0] = _mm256_cvtph_ps(_mm_xor_si128(m, _mm_set1_epi16(INT16_MIN)));
}

/* The values of a table of 16 bytes at the nibbles' places. */
AVX2_INLINE __m256i q_look_up(__m256i places, __m128i table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), places);
}

AVX2_INLINE __m128i q_iq4_table(void) {
    return _mm_add_epi8(_mm_setr_epi8(QUANT_IQ4_VALUES), _mm_set1_epi8((char)Q_RAISE));
}

/* 16 bytes: 32 elements, first the low nibbles. */
AVX2_INLINE __m256i q_nibble_block(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const void *)p);
    __m256i q = _mm256_set_m128i(_mm_srli_epi16(b, 4), b);
    return _mm256_and_si256(q, _mm256_set1_epi8(15));
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

/* 16 bytes each. */
AVX2_INLINE __m256i q_two(const uint8_t *a, const uint8_t *b) {
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const void *)a));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const void *)b), 1);
}

/* The nibbles of two blocks at p and p + bytes. */
AVX2_INLINE void q_nibble_pair(const uint8_t *p, int bytes, __m256i out[2]) {
    __m256i v = q_two(p, p + bytes);
    out[0] = _mm256_and_si256(v, _mm256_set1_epi8(15));
    out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

AVX2_INLINE void q_look_up_pair(__m128i table, __m256i out[2]) {
    out[0] = q_look_up(out[0], table);
    out[1] = q_look_up(out[1], table);
}

/* 16 where a bit of a block's string of 32 is set, for two blocks: byte j of word k is bit 8 j + k
 * in out[0], bit 8 j + 4 + k in out[1]. This is cheaper than the order of elements, and products
 * with activations in the same order are added to those of the nibbles. */
AVX2_INLINE void q_fifth_bits(const uint8_t *a, const uint8_t *b, __m256i out[2]) {
    int32_t bits[2];
    memcpy(&bits[0], a, sizeof bits[0]);
    memcpy(&bits[1], b, sizeof bits[1]);
    __m256i v = _mm256_blend_epi32(_mm256_set1_epi32(bits[0]), _mm256_set1_epi32(bits[1]), 0xf0);
    v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3));
    out[0] = _mm256_and_si256(_mm256_slli_epi16(v, 4), _mm256_set1_epi8(16));
    out[1] = _mm256_and_si256(v, _mm256_set1_epi8(16));
}

AVX2_INLINE __m256i q4_0_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 18 * group;
    return q_nibble_block(block + 2);
}

AVX2_INLINE void q4_0_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 18 * pair;
    q_nibble_pair(block + 2, 18, out);
}

AVX2_INLINE void q4_0_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_first(chunk, 18, out);
}

AVX2_INLINE __m256i q4_1_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 20 * group;
    return q_nibble_block(block + 4);
}

AVX2_INLINE void q4_1_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 20 * pair;
    q_nibble_pair(block + 4, 20, out);
}

AVX2_INLINE void q4_1_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_addend(chunk, 20, out);
}

AVX2_INLINE __m256i q5_0_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 22 * group;
    __m256i more = _mm256_andnot_si256(q_clear_bits(block + 2), _mm256_set1_epi8(16));
    return _mm256_or_si256(q_nibble_block(block + 6), more);
}

AVX2_INLINE void q5_0_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 22 * pair;
    q_nibble_pair(block + 6, 22, out);
}

AVX2_INLINE void q5_0_bits(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 22 * pair;
    q_fifth_bits(block + 2, block + 24, out);
}

AVX2_INLINE void q5_0_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_first(chunk, 22, out);
}

AVX2_INLINE __m256i q5_1_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 24 * group;
    __m256i more = _mm256_andnot_si256(q_clear_bits(block + 4), _mm256_set1_epi8(16));
    return _mm256_or_si256(q_nibble_block(block + 8), more);
}

AVX2_INLINE void q5_1_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 24 * pair;
    q_nibble_pair(block + 8, 24, out);
}

AVX2_INLINE void q5_1_bits(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 24 * pair;
    q_fifth_bits(block + 4, block + 28, out);
}

AVX2_INLINE void q5_1_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_addend(chunk, 24, out);
}

AVX2_INLINE __m256i q_raise(__m256i v) {
    return Q_RAISE ? _mm256_xor_si256(v, _mm256_set1_epi8((char)Q_RAISE)) : v;
}

AVX2_INLINE __m256i q8_0_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 34 * group;
    return q_raise(_mm256_loadu_si256((const void *)(block + 2)));
}

AVX2_INLINE void q8_0_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 34 * pair;
    out[0] = q_raise(q_two(block + 2, block + 36));
    out[1] = q_raise(q_two(block + 18, block + 52));
}

AVX2_INLINE void q8_0_scales(const uint8_t *chunk, q_scales *out) {
    out->d[0] = _mm256_cvtph_ps(q_block_halfs(chunk, 34));
}

AVX2_INLINE __m256i iq4_nl_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 18 * group;
    return q_look_up(q_nibble_block(block + 2), q_iq4_table());
}

AVX2_INLINE void iq4_nl_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 18 * pair;
    q_nibble_pair(block + 2, 18, out);
    q_look_up_pair(q_iq4_table(), out);
}

AVX2_INLINE void iq4_nl_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_first(chunk, 18, out);
}

AVX2_INLINE __m128i mxfp4_table(void) {
    return _mm_add_epi8(_mm_setr_epi8(QUANT_E2M1_VALUES), _mm_set1_epi8(12));
}

AVX2_INLINE __m256i mxfp4_quants(const uint8_t *chunk, int group) {
    return q_look_up(q_nibble_block(chunk + 17 * group + 1), mxfp4_table());
}

AVX2_INLINE void mxfp4_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 17 * pair;
    q_nibble_pair(block + 1, 17, out);
    q_look_up_pair(mxfp4_table(), out);
}

/* The scale is 2^(e - 128), see quant_e8m0_half: half of the float whose exponent is e, which for
 * 255 would be infinite and for 0 is denormal. */
AVX2_INLINE void mxfp4_scales(const uint8_t *p, q_scales *out) {
    /* Exponents are byte 0 of words in lane 0, byte 1 in lane 1: to the top byte. */
    const __m256i place = _mm256_setr_epi32(0x00808080, 0x04808080, 0x08808080, 0x0c808080,
                                            0x01808080, 0x05808080, 0x09808080, 0x0d808080);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i e = _mm256_shuffle_epi8(q_block_words(p, 17), place);
    e = _mm256_permutevar8x32_epi32(e, order);
    __m256i nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32((int32_t)0xff000000));
    __m256i twice = _mm256_max_epi32(_mm256_srli_epi32(e, 1), _mm256_set1_epi32(0x00400000));
    twice = _mm256_or_si256(twice, nan);
    out->d[0] = _mm256_mul_ps(_mm256_castsi256_ps(twice), _mm256_set1_ps(0.5f));
}

/* ---- K types: planes of bits, see quant_blocks.h --------------------------------------------- */

/* The bits of 32 bytes from bit `from` on, brought to bit `to` and masked. */
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

/* Four elements of each of four groups, as fields of the same four bytes, are a word of 32 bits. It
 * is copied to all words of a lane, and each copy keeps the field of one group where it is: sums of
 * products need no adding up across words, and come out as many bits to the left as the field lies.
 * Words 0 and 1 are copies from one vector, words 2 and 3 from another. */
AVX2_INLINE void q_spread(const __m256i from[2], __m256i mask, __m256i out[4]) {
    __m256 a = _mm256_castsi256_ps(from[0]), b = _mm256_castsi256_ps(from[1]);
    out[0] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x00)), mask);
    out[1] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x55)), mask);
    out[2] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xaa)), mask);
    out[3] = _mm256_and_si256(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xff)), mask);
}

/* 32 bytes each at a and b, where planes of groups g and g + 4 lie, become vectors as pairs of
 * groups want them. */
AVX2_INLINE void q_interleave(const uint8_t *a, const uint8_t *b, __m256i out[2]) {
    __m256i first = q_two(a, b), second = q_two(a + 16, b + 16);
    out[0] = _mm256_unpacklo_epi64(first, second);
    out[1] = _mm256_unpackhi_epi64(first, second);
}

AVX2_INLINE __m256i q_low_bits(__m256i v, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}

AVX2_INLINE __m256i q2_K_quants(const uint8_t *block, int group) {
    return q_plane(block + 16 + group / 4 * 32, group % 4 * 2, 0, 3);
}

AVX2_INLINE void q2_K_fields(const uint8_t *block, int half, __m256i out[2]) {
    out[0] = q_two(block + 16 + 16 * half, block + 48 + 16 * half);
    out[1] = Q_DOTS_FOUR ? out[0] : _mm256_srli_epi16(out[0], 4);
}

AVX2_INLINE void q2_K_subs(const uint8_t *block, q_subs *out) {
    __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)block));
    out->scale = _mm256_and_si256(both, _mm256_set1_epi16(15));
    out->min = _mm256_srli_epi16(both, 4);
    q_two_halfs(block + 80, &out->d, &out->dmin);
}
Q_SUB_SCALES(q2_K, true)

AVX2_INLINE __m256i q3_K_quants(const uint8_t *block, int group) {
    __m256i low = q_plane(block + 32 + group / 4 * 32, group % 4 * 2, 0, 3);
    return _mm256_or_si256(low, q_plane(block, group, 2, 4));
}

/* A nibble of the plane of one bit has those of groups 0..3, or of 4..7. Two look-ups bring them
 * above the two bits of groups 0 and 2 and of groups 1 and 3. */
AVX2_INLINE void q3_K_fields(const uint8_t *block, int half, __m256i out[2]) {
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
AVX2_INLINE __m256i q3_K_scale_bytes(const uint8_t *block) {
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

AVX2_INLINE void q3_K_scales(const uint8_t *block, q_scales *out) {
    __m256i sc = _mm256_permute4x64_epi64(q3_K_scale_bytes(block), 0x08);
    q_scale_words(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(sc)), q_half(block + 108), out->d);
}

/* For fields: the order is theirs, and bytes become the upper halfs of words. */
AVX2_INLINE void q3_K_subs(const uint8_t *block, q_subs *out) {
    const __m256i place = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 2, -1, 3, -1, 6, -1, 7));
    out->scale = _mm256_shuffle_epi8(q3_K_scale_bytes(block), place);
    out->d = q_half(block + 108);
}

AVX2_INLINE __m256i q4_K_quants(const uint8_t *block, int group) {
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

AVX2_INLINE void q4_K_pair(const uint8_t *block, int pair, __m256i out[2]) {
    q_k_nibble_pair(block + 16, pair, out);
}

/* Q4_K and Q5_K: a block starts with d, dmin and three words u0, u1, u2 of 6-bit scales and minima.
 * The first four scales are the low six bits of u0's bytes; the others have their low nibbles in
 * u2 (low nibbles) and their high two bits on top of u0. Minima likewise with u1 and the high
 * nibbles of u2. */
AVX2_INLINE void q4_K_scales(const uint8_t *block, q_scales *out) {
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

AVX2_INLINE void q5_K_scales(const uint8_t *block, q_scales *out) {
    q4_K_scales(block, out);
}

AVX2_INLINE __m256i q5_K_quants(const uint8_t *block, int group) {
    __m256i low = q_plane(block + 48 + group / 2 * 32, group % 2 * 4, 0, 15);
    return _mm256_or_si256(low, q_plane(block + 16, group, 4, 16));
}

AVX2_INLINE void q5_K_pair(const uint8_t *block, int pair, __m256i out[2]) {
    const int g = pair / 2 * 4 + pair % 2;
    q_k_nibble_pair(block + 48, pair, out);
    for (int i = 0; i < 2; i++) {
        /* bits of groups g and g + 2 at one place */
        __m128i plane = _mm_loadu_si128((const void *)(block + 16 + 16 * i));
        __m256i v = _mm256_srlv_epi64(_mm256_broadcastsi128_si256(plane),
                                      _mm256_setr_epi64x(0, 0, 2, 2));
        v = g > 4 ? _mm256_srli_epi16(v, g - 4) : _mm256_slli_epi16(v, 4 - g);
        out[i] = _mm256_or_si256(out[i], _mm256_and_si256(v, _mm256_set1_epi8(16)));
    }
}

/* Group g of a half block of 128: nibbles of 32 bytes (g even or odd), low or high ones, and a
 * plane of two bits. */
AVX2_INLINE __m256i q6_K_quants(const uint8_t *block, int group) {
    int half = group / 4, g = group % 4;
    __m256i low = q_plane(block + 64 * half + 32 * (g % 2), g / 2 * 4, 0, 15);
    return _mm256_or_si256(low, q_plane(block + 128 + 32 * half, 2 * g, 4, 0x30));
}

AVX2_INLINE void q6_K_pair(const uint8_t *block, int pair, __m256i out[2]) {
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

AVX2_INLINE void q6_K_subs(const uint8_t *block, q_subs *out) {
    out->scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(block + 192)));
    out->d = q_half(block + 208);
}
Q_SUB_SCALES(q6_K, false)

AVX2_INLINE __m256i iq4_xs_quants(const uint8_t *block, int group) {
    return q_look_up(q_nibble_block(block + 8 + group * 16), q_iq4_table());
}

AVX2_INLINE void iq4_xs_pair(const uint8_t *block, int pair, __m256i out[2]) {
    q_nibble_pair(block + 8 + 32 * pair, 16, out);
    q_look_up_pair(q_iq4_table(), out);
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

#define Q_FORMAT(name, ...)                                                                        \
    static const q_format name##_format = {                                                        \
        .quants = name##_quants, .scales = name##_scales, __VA_ARGS__}
#define Q_FORMAT_32(name, ...)     Q_FORMAT(name, .sub = 32, .pair = name##_pair, __VA_ARGS__)
#define Q_FORMAT_16(name, ...)     Q_FORMAT(name, .sub = 16, .subs = name##_subs, __VA_ARGS__)
#define Q_FORMAT_FIELDS(name, ...) Q_FORMAT_16(name, .fields = name##_fields, __VA_ARGS__)
#define Q_FORMAT_SIGNED(name, ...)                                                                 \
    Q_FORMAT_32(name, .is_signed = !Q_RAISE, .offset = Q_RAISE, __VA_ARGS__)

Q_FORMAT_32(q4_0, .chunk_bytes = 8 * 18, .top = 15, .offset = 8, .narrow = true);
Q_FORMAT_32(q4_1, .chunk_bytes = 8 * 20, .top = 15, .has_min = true, .narrow = true);
Q_FORMAT_32(q5_0, .chunk_bytes = 8 * 22, .bits = q5_0_bits, .top = 31, .offset = 16,
            .narrow = true);
Q_FORMAT_32(q5_1, .chunk_bytes = 8 * 24, .bits = q5_1_bits, .top = 31, .has_min = true);
Q_FORMAT_SIGNED(q8_0, .chunk_bytes = 8 * 34, .top = 128);
Q_FORMAT_SIGNED(iq4_nl, .chunk_bytes = 8 * 18, .top = 127);
Q_FORMAT_32(mxfp4, .chunk_bytes = 8 * 17, .top = 24, .offset = 12, .narrow = true);
Q_FORMAT_FIELDS(q2_K, .chunk_bytes = 84, .top = 3, .has_min = true, .narrow = true,
                .at = {0, 2, Q_DOTS_FOUR ? 4 : 0, Q_DOTS_FOUR ? 6 : 2});
Q_FORMAT_FIELDS(q3_K, .chunk_bytes = 110, .top = 7, .offset = 4, .narrow = true, .at = {0, 4, 0, 4},
                .crossed = true, .scale_shift = 8);
Q_FORMAT_32(q4_K, .chunk_bytes = 144, .apart = true, .top = 15, .has_min = true, .narrow = true);
Q_FORMAT_32(q5_K, .chunk_bytes = 176, .apart = true, .top = 31, .has_min = true);
Q_FORMAT_16(q6_K, .pair = q6_K_pair, .chunk_bytes = 210, .top = 63, .offset = 32, .narrow = true);
Q_FORMAT_SIGNED(iq4_xs, .chunk_bytes = 136, .top = 127);

/* Products of signed bytes, pairs added: |w| <= 128 and |x| <= 127 keep this within 16 bits. */
AVX2_INLINE __m256i q_dot16(__m256i w, __m256i x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* Adds neighbours: 16 sums of 16 bits to 8 of 32. */
AVX2_INLINE __m256i q_widen(__m256i v) {
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

#endif
