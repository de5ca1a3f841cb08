/* avx512_quants.h: the description of quantized types for the AVX-512 kernels.
 *
 * Both kernels (matvec, matmul) read a row as chunks of 512 elements. A chunk has eight steps of 64
 * elements, one vector each, and 16 groups of 32. A q_format describes a type: how to unpack step j
 * into unsigned bytes in element order, and how to get all scales of a chunk at once. A new type is
 * two short functions and a row of constants; both kernels then support it.
 *
 *   value = d[group] * (byte - 2^offset_shift) - m[group]
 *
 * Matvec processes some types differently: four groups at once (a quad), one per 128-bit lane. A
 * quad takes fewer instructions to unpack when groups are in different blocks, and fewer to add.
 * With one scale per 32, a quad's vectors are elements 0..15 of its groups and elements 16..31.
 * With one scale per 16 they are the first eight elements of either half and the last eight, so
 * that 64 bits share one scale; scales are small integers there, and products are multiplied with
 * them before any further additions.
 *
 * Matmul needs the same four elements of 16 rows in a vector (words). Packed bits are transposed
 * before they are unpacked, because they are fewer.
 *
 * The offset is subtracted exactly, in integers, with the sums of the quantized activations; minima
 * are floats. Functions read only the chunk_bytes of the chunk. Rows that are not a multiple of 512
 * end in a copy padded with zeros (a scale of 0 removes the padding).
 *
 * Everything is static: this code must not be shared with files compiled for older CPUs. */
#ifndef CPU_AVX512_QUANTS_H
#define CPU_AVX512_QUANTS_H

#include <immintrin.h>
#include <string.h>

#include "act.h"
#include "quant_blocks.h"
#include "simd.h"

#define AVX512_INLINE SIMD_INLINE

enum {
    Q_CHUNK = 512,                                  /* elements */
    Q_STEPS = Q_CHUNK / 64,                         /* vectors of 64 elements */
    Q_GROUPS = Q_CHUNK / CPU_ACT_GROUP,             /* 16 groups: one vector of floats */
    Q_ROWS = 16,                                    /* rows of words */
    Q_WORDS = 64 / 4,                               /* words of four elements in a step */
    Q_CHUNK_BYTES_MAX = Q_GROUPS * 34,              /* Q8_0, the widest */
    Q_TAIL_BYTES = Q_CHUNK_BYTES_MAX / 64 * 64 + 64 /* a buffer for a padded chunk */
};

#include "tier_weights.h"

/* Scales of a chunk. One per 32 elements: d[0], m[0] hold 16. One per 16: d[0], d[1] hold 32. */
typedef struct q_scales {
    __m512 d[2], m[2];
} q_scales;

/* Like q_scales for one scale per 16, as words in the order of elements: scale * d, min * dmin. */
typedef struct q_subs {
    __m512i scale, min;
    __m512 d, dmin; /* the first block's values in the lower half */
} q_subs;

typedef struct q_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32 */
    bool has_min;
    int offset_shift; /* -1: no offset */
    __m512i (*quants)(const uint8_t *chunk, int step);
    void (*scales)(const uint8_t *chunk, q_scales *out);
    /* Like `quants` for 16 rows, in words of four elements: word i of row r is lane r of out[i]. */
    void (*words)(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]);
    /* Quad 0..3, or NULL: groups 4 i .. 4 i + 3; with one scale per 16, groups i and i + 4 of
     * either block. */
    void (*quad)(const uint8_t *chunk, int quad, __m512i out[2]);
    void (*subs)(const uint8_t *chunk, q_subs *out); /* for quads, sub 16 only */
    /* See tier_weights.h; NULL: widened bytes. */
    void (*floats)(const uint8_t *chunk, int step, const w_scales *s, vf v[W_VECTORS]);
    float floats_unit; /* unit of the vectors; 0: 1 */
} q_format;
#define Q_CHUNK_BYTES(bytes) .chunk_bytes = Q_CHUNK * (bytes), .offset_shift = -1
#define Q_FORMAT(name, ...)                                                                        \
    static const q_format name##_format = {.chunk_bytes = Q_CHUNK / name##_elems * name##_bytes,   \
                                           .sub = name##_sub,                                      \
                                           .has_min = name##_min,                                  \
                                           .quants = name##_quants,                                \
                                           .scales = name##_scales,                                \
                                           .words = name##_words,                                  \
                                           __VA_ARGS__}

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX512_INLINE size_t q_bytes(const q_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

AVX512_INLINE void q_chunk_scales(const q_format *f, const uint8_t *chunk, q_scales *out) {
    f->scales(chunk, out);
}

AVX512_INLINE void q_widen_step(const q_format *f, const uint8_t *chunk, int step,
                                vf v[W_VECTORS]) {
    const __m512i q = f->quants(chunk, step);
    const __m512i offset = _mm512_set1_epi32(f->offset_shift < 0 ? 0 : 1 << (f->offset_shift & 31));
    const __m128i bytes[4] = {_mm512_castsi512_si128(q), _mm512_extracti32x4_epi32(q, 1),
                              _mm512_extracti32x4_epi32(q, 2), _mm512_extracti32x4_epi32(q, 3)};
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes[i]), offset));
}

/* 32 bytes of low and high nibbles -> 64 bytes: low nibbles, then high ones, in 128-bit lanes as
 * given by `shift` (0 or 4 for the 16-bit words of a lane). */
AVX512_INLINE __m512i q_nibbles(__m512i twice, __m512i shift) {
    return _mm512_and_si512(_mm512_srlv_epi16(twice, shift), _mm512_set1_epi8(15));
}

/* 16 bytes of nibbles at p and at three places `bytes` apart: a quad. */
AVX512_INLINE void q_nibble_quad(const uint8_t *p, int bytes, __m512i out[2]) {
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
    for (int i = 1; i < 4; i++)
        v = _mm512_mask_broadcast_i32x4(v, (__mmask16)(15u << 4 * i),
                                        _mm_loadu_si128((const void *)(p + bytes * i)));
    out[0] = _mm512_and_si512(v, _mm512_set1_epi8(15));
    out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

/* 16 bytes of 16 rows, at p[r] + at: word i of row r becomes lane r of out[i]. */
AVX512_INLINE void q_words(const uint8_t *const p[Q_ROWS], int at, __m512i out[4]) {
    __m512i v[4], t[4];
    for (int i = 0; i < 4; i++) { /* rows i, 4 + i, 8 + i, 12 + i */
        v[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(p[i] + at)));
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(p[4 + i] + at)), 1);
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(p[8 + i] + at)), 2);
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(p[12 + i] + at)), 3);
    }
    for (int i = 0; i < 2; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = _mm512_unpacklo_epi64(t[i], t[2 + i]);
        out[2 * i + 1] = _mm512_unpackhi_epi64(t[i], t[2 + i]);
    }
}

/* n vectors of nibbles -> vectors of their low nibbles, followed by those of their high nibbles. */
AVX512_INLINE void q_split_nibbles(int n, const __m512i *nibbles, __m512i *out) {
    for (int i = 0; i < n; i++) {
        out[i] = _mm512_and_si512(nibbles[i], _mm512_set1_epi8(15));
        out[n + i] = _mm512_and_si512(_mm512_srli_epi16(nibbles[i], 4), _mm512_set1_epi8(15));
    }
}

/* A step of two blocks of nibbles at offset `at` in each. */
AVX512_INLINE void q_nibble_words(const uint8_t *const chunk[Q_ROWS], int step, int block_bytes,
                                  int at, __m512i out[Q_WORDS]) {
    for (int b = 0; b < 2; b++) {
        __m512i nibbles[4];
        q_words(chunk, (2 * step + b) * block_bytes + at, nibbles);
        q_split_nibbles(4, nibbles, out + 8 * b);
    }
}

/* ---- floats ----------------------------------------------------------------------------------
 *
 * One look-up in a register of 16 floats converts four bits to a float. It ignores the bits above
 * them, so shifts need no masks, and offsets, tables of values and minima cost almost nothing.
 * Further bits are masks of additions. */

AVX512_INLINE __m512i w_widen(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}

/* Looks up floats by the low four bits from `shift` on. */
AVX512_INLINE __m512 w_look_up(__m512i places, int shift, __m512 table) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(places, (unsigned)shift), table);
}

/* A table of the integers from `first` on. */
AVX512_INLINE __m512 w_count(int first) {
    return _mm512_setr_ps((float)first, (float)(first + 1), (float)(first + 2), (float)(first + 3),
                          (float)(first + 4), (float)(first + 5), (float)(first + 6),
                          (float)(first + 7), (float)(first + 8), (float)(first + 9),
                          (float)(first + 10), (float)(first + 11), (float)(first + 12),
                          (float)(first + 13), (float)(first + 14), (float)(first + 15));
}

/* Like w_count for two bits, ignoring the two bits above them. */
AVX512_INLINE __m512 w_count2(int first) {
    return _mm512_broadcast_f32x4(
        _mm_setr_ps((float)first, (float)(first + 1), (float)(first + 2), (float)(first + 3)));
}

AVX512_INLINE __m512 w_table(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* 16 bytes of nibbles: 32 elements, first the low ones. */
AVX512_INLINE void w_nibbles(const uint8_t *p, __m512 table, __m512 v[2]) {
    __m512i places = w_widen(p);
    v[0] = w_look_up(places, 0, table);
    v[1] = w_look_up(places, 4, table);
}

/* Adds `value` where the two vectors' 32 bits are set. */
AVX512_INLINE void w_add_bits(uint32_t bits, float value, __m512 v[2]) {
    const __m512 more = _mm512_set1_ps(value);
    v[0] = _mm512_mask_add_ps(v[0], (__mmask16)bits, v[0], more);
    v[1] = _mm512_mask_add_ps(v[1], (__mmask16)(bits >> 16), v[1], more);
}

AVX512_INLINE uint32_t w_bits(const uint8_t *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Bit `bit` of 32 bytes. */
AVX512_INLINE uint32_t w_plane_bits(const uint8_t *p, int bit) {
    return _mm256_test_epi8_mask(_mm256_loadu_si256((const void *)p),
                                 _mm256_set1_epi8((char)(1 << bit)));
}

/* ---- Q4_0: 18 bytes = 9 words per block, the scale first ------------------------------------ */

AVX512_INLINE __m512i q4_0_quants(const uint8_t *chunk, int step) {
    /* Two blocks fill 36 bytes; the window of the last step is moved back by 14 words, so that it
     * ends with the chunk. */
    const __m512i words = _mm512_set_epi16(17, 16, 15, 14, 13, 12, 11, 10, 17, 16, 15, 14, 13, 12,
                                           11, 10, 8, 7, 6, 5, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1);
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    bool last = step == Q_STEPS - 1;
    __m512i window = _mm512_loadu_si512(chunk + 36 * step - (last ? 28 : 0));
    __m512i index = last ? _mm512_add_epi16(words, _mm512_set1_epi16(14)) : words;
    return q_nibbles(_mm512_permutexvar_epi16(index, window), shift);
}

/* Halfs at words 0, 9, 18, 27 of four windows of 72 bytes (four blocks each). */
AVX512_INLINE __m512 q4_0_block_scales(const uint8_t *chunk) {
    const __m512i words = _mm512_set1_epi64(0x001b001200090000);
    __m512i h = _mm512_permutexvar_epi16(words, _mm512_loadu_si512(chunk));
    h = _mm512_mask_permutexvar_epi16(h, 0x00f0, words, _mm512_loadu_si512(chunk + 72));
    h = _mm512_mask_permutexvar_epi16(h, 0x0f00, words, _mm512_loadu_si512(chunk + 144));
    h = _mm512_mask_permutexvar_epi16(h, 0xf000, words, _mm512_loadu_si512(chunk + 216));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(h));
}

AVX512_INLINE void q4_0_scales(const uint8_t *chunk, q_scales *out) {
    out->d[0] = q4_0_block_scales(chunk);
}

AVX512_INLINE void q4_0_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    q_nibble_quad(chunk + 4 * 18 * quad + 2, 18, out);
}

AVX512_INLINE void q4_0_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 18 * (2 * step + b) + 2, w_count(-8), v + 2 * b);
}

AVX512_INLINE void q4_0_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 18, 2, out);
}

Q_FORMAT(q4_0, .offset_shift = 3, .floats = q4_0_floats, .quad = q4_0_quad);

/* ---- Q4_1, Q5_0, Q5_1: 20, 22, 24 bytes per block ------------------------------------------- */

/* 16 bytes of nibbles at a and at b: two blocks of 32 elements. */
AVX512_INLINE __m512i q_nibble_blocks(const uint8_t *a, const uint8_t *b) {
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
    return q_nibbles(v, shift);
}

/* Adds 16 where a bit of the two blocks' strings of 32 bits is set. */
AVX512_INLINE __m512i q_fifth_bits(__m512i q, const uint8_t *a, const uint8_t *b) {
    uint32_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    __mmask64 bits = _cvtu64_mask64((uint64_t)high << 32 | low);
    return _mm512_mask_add_epi8(q, bits, q, _mm512_set1_epi8(16));
}

/* Two windows of 64 bytes, at the start and at the end of four blocks, cover them. Returns the
 * place of half `half` of block k in these 64 words. */
AVX512_INLINE uint64_t q_half_place(int block_bytes, int k, int half) {
    int word = (k * block_bytes + 2 * half) / 2, last = (4 * block_bytes - 64) / 2;
    return (uint64_t)(word < 32 ? word : 32 + word - last);
}

AVX512_INLINE __m256i q_half_places(int block_bytes, int half) {
    return _mm256_set1_epi64x((int64_t)(q_half_place(block_bytes, 0, half) |
                                        q_half_place(block_bytes, 1, half) << 16 |
                                        q_half_place(block_bytes, 2, half) << 32 |
                                        q_half_place(block_bytes, 3, half) << 48));
}

/* The first and second half of 16 blocks of up to 32 bytes: words 0-15, words 16-31. */
AVX512_INLINE __m512i q_block_halfs(const uint8_t *chunk, int block_bytes) {
    const __m512i place = _mm512_inserti64x4(_mm512_castsi256_si512(q_half_places(block_bytes, 0)),
                                             q_half_places(block_bytes, 1), 1);
    __m512i h[4];
    for (int i = 0; i < 4; i++) {
        const uint8_t *p = chunk + 4 * block_bytes * i;
        h[i] = _mm512_permutex2var_epi16(_mm512_loadu_si512(p), place,
                                         _mm512_loadu_si512(p + 4 * block_bytes - 64));
    }
    h[0] = _mm512_mask_mov_epi16(h[0], 0x00f000f0, h[1]);
    h[2] = _mm512_mask_mov_epi16(h[2], 0xf000f000, h[3]);
    return _mm512_mask_mov_epi16(h[0], 0xff00ff00, h[2]);
}

/* Blocks that start with a scale. */
AVX512_INLINE void q_scale_first(const uint8_t *chunk, int block_bytes, q_scales *out) {
    out->d[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(q_block_halfs(chunk, block_bytes)));
}

/* Blocks that start with a scale and an addend, which is a negated minimum. */
AVX512_INLINE void q_scale_addend(const uint8_t *chunk, int block_bytes, q_scales *out) {
    __m512i halfs = _mm512_xor_si512(
        q_block_halfs(chunk, block_bytes),
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(INT16_MIN), 1));
    out->d[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halfs));
    out->m[0] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halfs, 1));
}

/* Adds 16 to the words of a step where a bit of the two blocks' strings of 32 bits is set. The
 * strings are at offset `at` in each block, and the 12 bytes after them belong to the block as
 * well. */
AVX512_INLINE void q_fifth_bit_words(const uint8_t *const chunk[Q_ROWS], int step, int block_bytes,
                                     int at, __m512i out[Q_WORDS]) {
    for (int b = 0; b < 2; b++) {
        __m512i bits[4]; /* the first word of each row is its string */
        q_words(chunk, (2 * step + b) * block_bytes + at, bits);
        for (int i = 0; i < 8; i++) { /* its byte i / 2 in all four bytes of a lane */
            const __m512i byte = _mm512_add_epi8(
                _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0),
                _mm512_set1_epi8((char)(i / 2)));
            const __m512i bit = _mm512_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
            const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits[0], byte), bit);
            __m512i *q = &out[8 * b + i];
            *q = _mm512_mask_add_epi8(*q, set, *q, _mm512_set1_epi8(16));
        }
    }
}

AVX512_INLINE __m512i q4_1_quants(const uint8_t *chunk, int step) {
    const uint8_t *p = chunk + 2 * 20 * step;
    return q_nibble_blocks(p + 4, p + 20 + 4);
}

AVX512_INLINE void q4_1_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_addend(chunk, 20, out);
}

AVX512_INLINE void q4_1_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    q_nibble_quad(chunk + 4 * 20 * quad + 4, 20, out);
}

AVX512_INLINE void q4_1_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    for (int b = 0; b < 2; b++) {
        int i = 2 * step + b;
        w_nibbles(chunk + 20 * i + 4, w_apply(w_count(0), s, i), v + 2 * b);
    }
}

AVX512_INLINE void q4_1_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 20, 4, out);
}

Q_FORMAT(q4_1, .offset_shift = -1, .floats = q4_1_floats, .quad = q4_1_quad);

AVX512_INLINE __m512i q5_0_quants(const uint8_t *chunk, int step) {
    const uint8_t *p = chunk + 2 * 22 * step;
    return q_fifth_bits(q_nibble_blocks(p + 6, p + 22 + 6), p + 2, p + 22 + 2);
}

AVX512_INLINE void q5_0_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_first(chunk, 22, out);
}

AVX512_INLINE void q5_0_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 22 * (2 * step + b);
        w_nibbles(block + 6, w_count(-16), v + 2 * b);
        w_add_bits(w_bits(block + 2), 16.0f, v + 2 * b);
    }
}

AVX512_INLINE void q5_0_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 22, 6, out);
    q_fifth_bit_words(chunk, step, 22, 2, out);
}

Q_FORMAT(q5_0, .offset_shift = 4, .floats = q5_0_floats);

AVX512_INLINE __m512i q5_1_quants(const uint8_t *chunk, int step) {
    const uint8_t *p = chunk + 2 * 24 * step;
    return q_fifth_bits(q_nibble_blocks(p + 8, p + 24 + 8), p + 4, p + 24 + 4);
}

AVX512_INLINE void q5_1_scales(const uint8_t *chunk, q_scales *out) {
    q_scale_addend(chunk, 24, out);
}

AVX512_INLINE void q5_1_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    for (int b = 0; b < 2; b++) {
        int i = 2 * step + b;
        const uint8_t *block = chunk + 24 * i;
        w_nibbles(block + 8, w_count(0), v + 2 * b);
        w_add_bits(w_bits(block + 4), 16.0f, v + 2 * b);
        for (int k = 2 * b; k < 2 * b + 2; k++) v[k] = w_apply(v[k], s, i);
    }
}

AVX512_INLINE void q5_1_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 24, 8, out);
    q_fifth_bit_words(chunk, step, 24, 4, out);
}

Q_FORMAT(q5_1, .offset_shift = -1, .floats = q5_1_floats);

/* ---- IQ4_NL: as Q4_0, but nibbles are places in a table ------------------------------------- */

/* Looks up nibbles in a table of 16 signed bytes, and adds `offset`. */
AVX512_INLINE __m512i q_look_up(__m512i places, __m128i table, int offset) {
    __m128i lifted = _mm_add_epi8(table, _mm_set1_epi8((char)offset));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(lifted), places);
}

AVX512_INLINE __m512i iq4_nl_quants(const uint8_t *chunk, int step) {
    const uint8_t *p = chunk + 2 * 18 * step;
    return q_look_up(q_nibble_blocks(p + 2, p + 18 + 2), _mm_setr_epi8(QUANT_IQ4_VALUES), 128);
}

AVX512_INLINE void iq4_nl_scales(const uint8_t *chunk, q_scales *out) {
    out->d[0] = q4_0_block_scales(chunk);
}

AVX512_INLINE void q_look_up_all(int n, __m128i table, int offset, __m512i *places) {
    for (int i = 0; i < n; i++) places[i] = q_look_up(places[i], table, offset);
}

AVX512_INLINE void iq4_nl_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    q_nibble_quad(chunk + 4 * 18 * quad + 2, 18, out);
    q_look_up_all(2, _mm_setr_epi8(QUANT_IQ4_VALUES), 128, out);
}

AVX512_INLINE void iq4_nl_floats(const uint8_t *chunk, int step, const w_scales *s,
                                 __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_IQ4_VALUES));
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 18 * (2 * step + b) + 2, table, v + 2 * b);
}

AVX512_INLINE void iq4_nl_words(const uint8_t *const chunk[Q_ROWS], int step,
                                __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 18, 2, out);
    q_look_up_all(Q_WORDS, _mm_setr_epi8(QUANT_IQ4_VALUES), 128, out);
}

Q_FORMAT(iq4_nl, .offset_shift = 7, .floats = iq4_nl_floats, .quad = iq4_nl_quad);

/* ---- MXFP4: 17 bytes per block, an exponent and 16 bytes of places in a table ---------------- */

AVX512_INLINE __m512i mxfp4_quants(const uint8_t *chunk, int step) {
    const uint8_t *p = chunk + 2 * 17 * step;
    return q_look_up(q_nibble_blocks(p + 1, p + 17 + 1), _mm_setr_epi8(QUANT_E2M1_VALUES), 16);
}

AVX512_INLINE void mxfp4_quad(const uint8_t *chunk, int quad, __m512i out[2]) {
    q_nibble_quad(chunk + 4 * 17 * quad + 1, 17, out);
    q_look_up_all(2, _mm_setr_epi8(QUANT_E2M1_VALUES), 16, out);
}

/* Exponents at bytes 0, 17, 34, 51 of four windows of 68 bytes: in words 0, 8, 17, 25, alternately
 * the lower and the upper byte. The scale is 2^(e - 128); see quant_e8m0_half. */
AVX512_INLINE void mxfp4_scales(const uint8_t *chunk, q_scales *out) {
    const __m512i words = _mm512_set1_epi64(0x0019001100080000);
    const __m512i two = _mm512_set1_epi32(2), nan = _mm512_set1_epi32(0x7fc00000);
    __m512i h = _mm512_permutexvar_epi16(words, _mm512_loadu_si512(chunk));
    h = _mm512_mask_permutexvar_epi16(h, 0x00f0, words, _mm512_loadu_si512(chunk + 68));
    h = _mm512_mask_permutexvar_epi16(h, 0x0f00, words, _mm512_loadu_si512(chunk + 136));
    h = _mm512_mask_permutexvar_epi16(h, 0xf000, words, _mm512_loadu_si512(chunk + 204));
    __m256i e16 = _mm256_srlv_epi16(_mm512_castsi512_si256(h),
                                    _mm256_set1_epi64x(0x0008000000080000));
    __m512i e = _mm512_cvtepu16_epi32(_mm256_and_si256(e16, _mm256_set1_epi16(255)));
    __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    d = _mm512_mask_sllv_epi32(d, _mm512_cmplt_epi32_mask(e, two), _mm512_set1_epi32(0x00200000),
                               e);
    d = _mm512_mask_mov_epi32(d, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), nan);
    out->d[0] = _mm512_castsi512_ps(d);
}

AVX512_INLINE void mxfp4_floats(const uint8_t *chunk, int step, const w_scales *s,
                                __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_E2M1_VALUES));
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 17 * (2 * step + b) + 1, table, v + 2 * b);
}

AVX512_INLINE void mxfp4_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    q_nibble_words(chunk, step, 17, 1, out);
    q_look_up_all(Q_WORDS, _mm_setr_epi8(QUANT_E2M1_VALUES), 16, out);
}

Q_FORMAT(mxfp4, .offset_shift = 4, .floats = mxfp4_floats, .quad = mxfp4_quad);

/* ---- Q8_0: 34 bytes = 17 words per block, the scale first ----------------------------------- */

AVX512_INLINE __m512i q8_0_quants(const uint8_t *chunk, int step) {
    __m256i a = _mm256_loadu_si256((const void *)(chunk + 68 * step + 2));
    __m256i b = _mm256_loadu_si256((const void *)(chunk + 68 * step + 36));
    __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    return _mm512_xor_si512(q, _mm512_set1_epi8(-128)); /* q + 128, as unsigned */
}

AVX512_INLINE void q8_0_scales(const uint8_t *chunk, q_scales *out) {
    /* Halfs at words 0 and 17 of eight windows of 68 bytes, two windows at a time. */
    const __m512i words = _mm512_set1_epi64(0x0031002000110000);
    __m512i h[4];
    for (int i = 0; i < 4; i++)
        h[i] = _mm512_permutex2var_epi16(_mm512_loadu_si512(chunk + 136 * i), words,
                                         _mm512_loadu_si512(chunk + 136 * i + 68));
    h[0] = _mm512_mask_mov_epi16(h[0], 0x00f0, h[1]);
    h[2] = _mm512_mask_mov_epi16(h[2], 0xf000, h[3]);
    h[0] = _mm512_mask_mov_epi16(h[0], 0xff00, h[2]);
    out->d[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(h[0]));
}

AVX512_INLINE void q8_0_floats(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++) {
        const uint8_t *p = chunk + 34 * (2 * step + i / 2) + 2 + 16 * (i % 2);
        v[i] = w_table(_mm_loadu_si128((const void *)p));
    }
}

AVX512_INLINE void q8_0_words(const uint8_t *const chunk[Q_ROWS], int step, __m512i out[Q_WORDS]) {
    for (int i = 0; i < 4; i++)
        q_words(chunk, 68 * step + 34 * (i / 2) + 2 + 16 * (i % 2), out + 4 * i);
    for (int i = 0; i < Q_WORDS; i++) out[i] = _mm512_xor_si512(out[i], _mm512_set1_epi8(-128));
}

Q_FORMAT(q8_0, .offset_shift = 7, .floats = q8_0_floats);

#endif
