/* avx2_quants.h: the description of quantized types for the AVX2 kernels.
 *
 * Both kernels (matvec, matmul) read a row as chunks of eight groups of 32 elements. A q_format
 * describes a type: how to unpack a group into 32 bytes in element order, and how to get all scales
 * and minima of a chunk at once:
 *
 *   value = d * (byte - offset) - m
 *
 * Matvec processes two groups at once, one per 128-bit lane: unpacking this order, and adding its
 * products, takes fewer instructions than two groups in element order. Types with one scale per 32
 * put elements 0..15 of both groups into one vector and 16..31 into another. Q6_K, with one scale
 * per 16, puts the first eight elements of either half into one vector and the last eight into
 * another, so that 64 bits share one scale; its scales are small integers, and products are
 * multiplied with them before any further additions. Where elements of several groups share a byte
 * (Q2_K, Q3_K), they are not unpacked: see q_spread. Several columns need whole chunks in another
 * layout: see `lanes` and avx2_columns.h.
 *
 * Instructions that multiply bytes need unsigned weights. Those of AVX-VNNI accept 0..255, so with
 * AVX-VNNI signed weights are raised by 128, which becomes their offset. Without AVX-VNNI, sums of
 * two products have 16 bits, which hold only 2 * 128 * 127: signed weights then stay signed.
 *
 * Functions read only the bytes of the chunk. Rows that are not a multiple of 256 end in a copy
 * padded with zeros (a scale of 0 removes the padding). */
#ifndef CPU_AVX2_QUANTS_H
#define CPU_AVX2_QUANTS_H

#include <stddef.h>
#include <string.h>

#include "avx2_mat.h"
#include "quant_blocks.h"

enum {
    Q_CHUNK = 256,                      /* elements */
    Q_GROUPS = Q_CHUNK / CPU_ACT_GROUP, /* groups of a chunk: one vector of floats */
    Q_CHUNK_BYTES_MAX = Q_GROUPS * 34   /* Q8_0, the widest */
};

#include "tier_weights.h"

#if defined(__AVXVNNI__)
enum { Q_DOTS_FOUR = 1, Q_RAISE = 128 /* added to signed bytes */ };
#else
enum { Q_DOTS_FOUR = 0, Q_RAISE = 0 };
#endif

/* Scales of a chunk. One per 32 elements: d[0], m[0] hold eight. One per 16: all hold 16. */
typedef struct q_scales {
    __m256 d[2], m[2];
} q_scales;

/* Like q_scales for one scale per 16, as words in the order of elements: scale * d, min * dmin. */
typedef struct q_subs {
    __m256i scale, min;
    __m256 d, dmin;
} q_subs;

typedef struct q_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32 */
    bool has_min;
    bool is_signed; /* bytes are -top..top, else 0..top; signed bytes have no offset */
    bool apart; /* pairs are groups g and g + 2 (0 2, 1 3, 4 6, 5 7), otherwise neighbours; with one
                   scale per 16 they are g and g + 4 */
    int top;
    int offset;
    __m256i (*quants)(const uint8_t *chunk, int group);
    /* Pair 0..3: its two vectors. */
    void (*pair)(const uint8_t *chunk, int pair, __m256i out[2]);
    /* Bits to add to the pair's vectors, in another order (see q_fifth_bits); NULL: none. */
    void (*bits)(const uint8_t *chunk, int pair, __m256i out[2]);
    /* Unpacks a whole chunk for several columns: vector j has elements 4 j .. 4 j + 3 of all
     * groups. NULL: `quants` is used. */
    void (*lanes)(const uint8_t *chunk, __m256i out[Q_GROUPS]);
    void (*scales)(const uint8_t *chunk, q_scales *out);
    void (*subs)(const uint8_t *chunk, q_subs *out); /* sub 16 only */
    /* Fields of bytes, instead of pairs: see q_spread. Half 0: elements 0..15 of all groups. */
    void (*fields)(const uint8_t *chunk, int half, __m256i out[2]);
    int at[4];       /* first bits of the fields in the four words of a lane */
    bool crossed;    /* words of a lane are groups 0 2 1 3 (4 6 5 7), otherwise 0 1 2 3 */
    int scale_shift; /* scales from subs are shifted left by this number of bits; for Q3_K, 2 * 16
                        products of 32 << 8, 4 << 4 and 127 still fit into 32 bits */
    /* See tier_weights.h; NULL: widened bytes. */
    void (*floats)(const uint8_t *chunk, int step, const w_scales *s, vf v[W_VECTORS]);
    float floats_unit; /* unit of the vectors; 0: 1 */
} q_format;
#define Q_CHUNK_BYTES(bytes) .chunk_bytes = Q_CHUNK * (bytes)

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX2_INLINE size_t q_bytes(const q_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

AVX2_INLINE void q_chunk_scales(const q_format *f, const uint8_t *chunk, q_scales *out) {
    f->scales(chunk, out);
}

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

AVX2_INLINE void q_widen_step(const q_format *f, const uint8_t *chunk, int step, __m256 v[4]) {
    w_widen_group(_mm256_sub_epi8(f->quants(chunk, step), _mm256_set1_epi8((char)f->offset)), v);
}

/* The low or the high nibbles of eight bytes, as floats. */
AVX2_INLINE __m256 w_nibbles(const uint8_t *p, bool high) {
    __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    words = high ? _mm256_srli_epi32(words, 4) : _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(words);
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

/* Halfs at p in each of eight blocks, unconverted. */
AVX2_INLINE __m128i q_block_halfs(const uint8_t *p, int bytes) {
    return _mm_setr_epi16(q_word(p), q_word(p + bytes), q_word(p + 2 * bytes),
                          q_word(p + 3 * bytes), q_word(p + 4 * bytes), q_word(p + 5 * bytes),
                          q_word(p + 6 * bytes), q_word(p + 7 * bytes));
}

/* The first four bytes of eight blocks (fewer for MXFP4), from windows of 32 bytes over two blocks:
 * in the second lane a block starts two to eight bytes later than in the first. Lane 0: blocks 0 2
 * 4 6, lane 1: the others, whose bytes are `bytes` - 16 further left in the same or the next
 * word. */
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

/* Eight blocks of 18 or 22 bytes that start with a scale; in lane 1 the scale is the word's upper
 * half. */
AVX2_INLINE void q_scale_first(const uint8_t *chunk, const int bytes, q_scales *out) {
    __m256i words = q_block_words(chunk, bytes);
    __m128i d = _mm_blend_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1),
                                0xaa);
    out->d[0] = _mm256_cvtph_ps(d);
}

/* Eight blocks of 20 or 24 bytes that start with a scale and an addend, which is a negated
 * minimum. */
AVX2_INLINE void q_scale_addend(const uint8_t *chunk, const int bytes, q_scales *out) {
    __m256i words = q_block_words(chunk, bytes);
    __m128i a = _mm256_castsi256_si128(words), b = _mm256_extracti128_si256(words, 1);
    __m128i d = _mm_blend_epi16(a, _mm_slli_epi32(b, 16), 0xaa);
    __m128i m = _mm_blend_epi16(_mm_srli_epi32(a, 16), b, 0xaa);
    out->d[0] = _mm256_cvtph_ps(d);
    out->m[0] = _mm256_cvtph_ps(_mm_xor_si128(m, _mm_set1_epi16(INT16_MIN)));
}

/* Looks up nibbles in a table of 16 bytes. */
AVX2_INLINE __m256i q_look_up(__m256i places, __m128i table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), places);
}

AVX2_INLINE __m128i q_iq4_table(void) {
    return _mm_add_epi8(_mm_setr_epi8(QUANT_IQ4_VALUES), _mm_set1_epi8((char)Q_RAISE));
}

/* Unpacks 16 bytes to 32 elements, the low nibbles first. */
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

/* Loads 16 bytes from each address. */
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

/* Words j of 16 bytes of eight groups, `bytes` apart. */
AVX2_INLINE void q_word_lanes(const uint8_t *p, int bytes, __m256i out[4]) {
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = q_two(p + i * bytes, p + (i + 4) * bytes);
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(a, b);
    out[1] = _mm256_unpackhi_epi64(a, b);
    a = _mm256_unpackhi_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[2], v[3]);
    out[2] = _mm256_unpacklo_epi64(a, b);
    out[3] = _mm256_unpackhi_epi64(a, b);
}

/* The nibbles of eight blocks. */
AVX2_INLINE void q_nibble_lanes(const uint8_t *p, int bytes, __m256i out[Q_GROUPS]) {
    q_word_lanes(p, bytes, out);
    for (int j = 0; j < 4; j++) {
        out[4 + j] = _mm256_and_si256(_mm256_srli_epi16(out[j], 4), _mm256_set1_epi8(15));
        out[j] = _mm256_and_si256(out[j], _mm256_set1_epi8(15));
    }
}

AVX2_INLINE void q_look_up_lanes(__m128i table, __m256i out[Q_GROUPS]) {
    for (int j = 0; j < Q_GROUPS; j++) out[j] = q_look_up(out[j], table);
}

AVX2_INLINE int32_t q_int(const uint8_t *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Loads the words at p, p + bytes, ..., combined in registers; _mm256_setr_epi32 may combine them
 * in memory and stall. */
AVX2_INLINE __m256i q_eight_ints(const uint8_t *p, int bytes) {
    __m128i v[2];
    for (int i = 0; i < 2; i++, p += 4 * bytes) {
        v[i] = _mm_cvtsi32_si128(q_int(p));
        v[i] = _mm_insert_epi32(v[i], q_int(p + bytes), 1);
        v[i] = _mm_insert_epi32(v[i], q_int(p + 2 * bytes), 2);
        v[i] = _mm_insert_epi32(v[i], q_int(p + 3 * bytes), 3);
    }
    return _mm256_set_m128i(v[1], v[0]);
}

/* Adds 16 where a bit of a block's 32-bit string at p is set. Four bits of the string are copied to
 * four bytes, at bits 4 to 7; a minimum turns them into 16. */
AVX2_INLINE void q_fifth_lanes(const uint8_t *p, int bytes, __m256i out[Q_GROUPS]) {
    const __m256i mask = _mm256_set1_epi32((int32_t)0x80402010);
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    const __m256i high = q_eight_ints(p, bytes);
    const __m256i low = _mm256_slli_epi32(high, 4);
    for (int j = 0; j < Q_GROUPS; j++) {
        const __m256i place = _mm256_add_epi8(first, _mm256_set1_epi8((char)(j / 2)));
        __m256i bits = _mm256_shuffle_epi8(j % 2 == 0 ? low : high, place);
        bits = _mm256_min_epu8(_mm256_and_si256(bits, mask), _mm256_set1_epi8(16));
        out[j] = _mm256_or_si256(out[j], bits);
    }
}

AVX2_INLINE void q_look_up_pair(__m128i table, __m256i out[2]) {
    out[0] = q_look_up(out[0], table);
    out[1] = q_look_up(out[1], table);
}

/* 16 where a bit of a block's 32-bit string is set, for two blocks: byte j of word k is bit 8 j + k
 * in out[0], bit 8 j + 4 + k in out[1]. This order is cheaper than the order of elements; products
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

AVX2_INLINE void q4_0_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 2, 18, out);
}

AVX2_INLINE void q4_0_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_first(chunk, 18, out);
}

/* Nibbles form pairs 16 elements apart. With their top bits inverted they are q - 8 as signed
 * four-bit numbers; in the top bits of a word they are (q - 8) * 2^28. */
AVX2_INLINE void q4_0_floats(const uint8_t *chunk, int step, const w_scales *s,
                             __m256 v[W_VECTORS]) {
    (void)s;
    const __m256i top = _mm256_set1_epi32((int32_t)0xf0000000);
    /* bytes 0..7 of 16 to the top of 8 words, in the two lanes; the next 8 are 8 places further */
    const __m256i place = _mm256_setr_epi32(0x00808080, 0x01808080, 0x02808080, 0x03808080,
                                            0x04808080, 0x05808080, 0x06808080, 0x07808080);
    __m128i bytes = _mm_loadu_si128((const void *)(chunk + 18 * step + 2));
    __m256i q = _mm256_xor_si256(_mm256_broadcastsi128_si256(bytes), _mm256_set1_epi8(-0x78));
    for (int i = 0; i < 2; i++) {
        __m256i at = _mm256_add_epi32(place, _mm256_set1_epi32(i * 0x08000000));
        __m256i words = _mm256_shuffle_epi8(q, at);
        v[i] = _mm256_cvtepi32_ps(_mm256_slli_epi32(words, 4));
        v[2 + i] = _mm256_cvtepi32_ps(_mm256_and_si256(words, top));
    }
}

AVX2_INLINE __m256i q4_1_quants(const uint8_t *chunk, int group) {
    const uint8_t *block = chunk + 20 * group;
    return q_nibble_block(block + 4);
}

AVX2_INLINE void q4_1_pair(const uint8_t *chunk, int pair, __m256i out[2]) {
    const uint8_t *block = chunk + 2 * 20 * pair;
    q_nibble_pair(block + 4, 20, out);
}

AVX2_INLINE void q4_1_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 4, 20, out);
}

AVX2_INLINE void q4_1_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_addend(chunk, 20, out);
}

AVX2_INLINE void q4_1_floats(const uint8_t *chunk, int step, const w_scales *s,
                             __m256 v[W_VECTORS]) {
    const uint8_t *qs = chunk + 20 * step + 4;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_apply(w_nibbles(qs + 8 * (i % 2), i / 2), s, step);
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

AVX2_INLINE void q5_0_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 6, 22, out);
    q_fifth_lanes(chunk + 2, 22, out);
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

AVX2_INLINE void q5_1_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 8, 24, out);
    q_fifth_lanes(chunk + 4, 24, out);
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

AVX2_INLINE void q8_0_floats(const uint8_t *chunk, int step, const w_scales *s,
                             __m256 v[W_VECTORS]) {
    (void)s;
    const uint8_t *q = chunk + 34 * step + 2;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_widen(_mm_loadl_epi64((const void *)(q + 8 * i)));
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

AVX2_INLINE void iq4_nl_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 2, 18, out);
    q_look_up_lanes(q_iq4_table(), out);
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

AVX2_INLINE void mxfp4_lanes(const uint8_t *chunk, __m256i out[Q_GROUPS]) {
    q_nibble_lanes(chunk + 1, 17, out);
    q_look_up_lanes(mxfp4_table(), out);
}

/* The scale is 2^(e - 128), see quant_e8m0_half: half of the float whose exponent is e, which is
 * infinite for 255 and denormal for 0. */
AVX2_INLINE void mxfp4_scales(const uint8_t *p, q_scales *out) {
    /* Exponents are byte 0 of words in lane 0, byte 1 in lane 1; moves them to the top byte. */
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

/* Products of signed bytes, pairs added: |w| <= 128 and |x| <= 127 keep this within 16 bits. */
AVX2_INLINE __m256i q_dot16(__m256i w, __m256i x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* Adds neighbours: 16 sums of 16 bits to 8 of 32. */
AVX2_INLINE __m256i q_widen(__m256i v) {
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

#define Q_FORMAT(name, ...)                                                                        \
    static const q_format name##_format = {.chunk_bytes = Q_CHUNK / name##_elems * name##_bytes,   \
                                           .sub = name##_sub,                                      \
                                           .has_min = name##_min,                                  \
                                           .quants = name##_quants,                                \
                                           .scales = name##_scales,                                \
                                           __VA_ARGS__}
#define Q_FORMAT_32(name, ...)     Q_FORMAT(name, .pair = name##_pair, __VA_ARGS__)
#define Q_FORMAT_16(name, ...)     Q_FORMAT(name, .subs = name##_subs, __VA_ARGS__)
#define Q_FORMAT_FIELDS(name, ...) Q_FORMAT_16(name, .fields = name##_fields, __VA_ARGS__)
#define Q_FORMAT_SIGNED(name, ...)                                                                 \
    Q_FORMAT_32(name, .is_signed = !Q_RAISE, .offset = Q_RAISE, __VA_ARGS__)

Q_FORMAT_32(q4_0, .lanes = q4_0_lanes, .floats = q4_0_floats, .floats_unit = 0x1p-28f, .top = 15,
            .offset = 8);
Q_FORMAT_32(q4_1, .lanes = q4_1_lanes, .floats = q4_1_floats, .top = 15);
Q_FORMAT_32(q5_0, .lanes = q5_0_lanes, .bits = q5_0_bits, .top = 31, .offset = 16);
Q_FORMAT_32(q5_1, .lanes = q5_1_lanes, .bits = q5_1_bits, .top = 31);
Q_FORMAT_SIGNED(q8_0, .floats = q8_0_floats, .top = 128);
Q_FORMAT_SIGNED(iq4_nl, .lanes = iq4_nl_lanes, .top = 127);
Q_FORMAT_32(mxfp4, .lanes = mxfp4_lanes, .top = 24, .offset = 12);

#endif
