/* avx2_floats.h: rows of every type as floats, for kernels that need weights in element order: sums
 * of rows (avx2_axpy.c) and products over neurons (avx2_matmul_t.c).
 *
 * A row is again chunks of 256 elements in eight groups of 32; scales are those of avx2_quants.h. A
 * group is four vectors v of 8 floats. Without minima these are integers, offsets already taken
 * off, and the weights are d * v: users multiply d with something else first. With minima they are
 * the weights d * q - m themselves. Either is exact to one rounding. */
#ifndef CPU_AVX2_FLOATS_H
#define CPU_AVX2_FLOATS_H

#include "avx2_quants.h"

enum {
    W_ELEMS_MAX = Q_CHUNK,
    W_BYTES_MAX = Q_CHUNK * (int)sizeof(float), /* F32, the widest */
    W_VECTORS = 4                               /* of a group */
};

/* The scales of a chunk, stored: one per 32 elements (8 of them) or per 16 (16). */
typedef struct w_scales {
    _Alignas(32) float d[2 * Q_GROUPS], m[2 * Q_GROUPS];
} w_scales;

typedef struct w_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32; 0: the floats are the values */
    bool has_min;
    /* Scales are used only where there are minima. */
    void (*group)(const uint8_t *chunk, int group, const w_scales *s, __m256 v[W_VECTORS]);
    void (*scales)(const uint8_t *chunk, q_scales *out);
} w_format;

AVX2_INLINE int64_t w_elems(const w_format *f) {
    (void)f;
    return Q_CHUNK;
}

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX2_INLINE size_t w_bytes(const w_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

/* Stores the scales of a chunk, those without minima times h. They are read back one by one: from
 * memory a load broadcasts them for free, where compilers would rather shuffle them out of a
 * register, and shuffles are what unpacking is short of. */
AVX2_INLINE void w_store_scales(const w_format *f, const uint8_t *chunk, __m256 h, w_scales *out) {
    q_scales s;
    f->scales(chunk, &s);
    for (int i = 0; i < 32 / f->sub; i++) {
        _mm256_store_ps(out->d + 8 * i, f->has_min ? s.d[i] : _mm256_mul_ps(s.d[i], h));
        if (f->has_min) _mm256_store_ps(out->m + 8 * i, s.m[i]);
    }
    __asm__ volatile("" : : "r"(out) : "memory");
}

/* ---- plain types ---------------------------------------------------------------------------- */

AVX2_INLINE void f32_group(const uint8_t *chunk, int group, const w_scales *s,
                           __m256 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm256_loadu_ps((const void *)(chunk + 128 * group + 32 * i));
}

AVX2_INLINE void f16_group(const uint8_t *chunk, int group, const w_scales *s,
                           __m256 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(chunk + 64 * group + 16 * i)));
}

AVX2_INLINE void bf16_group(const uint8_t *chunk, int group, const w_scales *s,
                            __m256 v[W_VECTORS]) {
    (void)s;
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

AVX2_INLINE void q8_0_group(const uint8_t *chunk, int group, const w_scales *s,
                            __m256 v[W_VECTORS]) {
    (void)s;
    const uint8_t *q = chunk + 34 * group + 2;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_widen(_mm_loadl_epi64((const void *)(q + 8 * i)));
}

/* Nibbles lie in pairs 16 elements apart. With their top bits turned they are q - 8 as signed
 * numbers of four bits, which in the top bits of a word are (q - 8) * 2^28; q4_0_small takes that
 * power off the scale. */
AVX2_INLINE void q4_0_group(const uint8_t *chunk, int group, const w_scales *s,
                            __m256 v[W_VECTORS]) {
    (void)s;
    const __m256i top = _mm256_set1_epi32((int32_t)0xf0000000);
    /* bytes 0..7 of 16 to the top of 8 words, in the two lanes; the next 8 lie 8 places on */
    const __m256i place = _mm256_setr_epi32(0x00808080, 0x01808080, 0x02808080, 0x03808080,
                                            0x04808080, 0x05808080, 0x06808080, 0x07808080);
    __m128i bytes = _mm_loadu_si128((const void *)(chunk + 18 * group + 2));
    __m256i q = _mm256_xor_si256(_mm256_broadcastsi128_si256(bytes), _mm256_set1_epi8(-0x78));
    for (int i = 0; i < 2; i++) {
        __m256i at = _mm256_add_epi32(place, _mm256_set1_epi32(i * 0x08000000));
        __m256i words = _mm256_shuffle_epi8(q, at);
        v[i] = _mm256_cvtepi32_ps(_mm256_slli_epi32(words, 4));
        v[2 + i] = _mm256_cvtepi32_ps(_mm256_and_si256(words, top));
    }
}

AVX2_INLINE void q4_0_small(const uint8_t *chunk, q_scales *out) {
    q4_0_scales(chunk, out);
    out->d[0] = _mm256_mul_ps(out->d[0], _mm256_set1_ps(0x1p-28f));
}

/* The weights of integers that share scale and minimum i. */
AVX2_INLINE __m256 w_apply(__m256 v, const w_scales *s, int i) {
    return _mm256_fmsub_ps(v, _mm256_set1_ps(s->d[i]), _mm256_set1_ps(s->m[i]));
}

/* Eight nibbles, the low or the high ones of eight bytes, as floats. */
AVX2_INLINE __m256 w_nibbles(const uint8_t *p, bool high) {
    __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    words = high ? _mm256_srli_epi32(words, 4) : _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(words);
}

AVX2_INLINE void q4_1_group(const uint8_t *chunk, int group, const w_scales *s,
                            __m256 v[W_VECTORS]) {
    const uint8_t *qs = chunk + 20 * group + 4;
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = w_apply(w_nibbles(qs + 8 * (i % 2), i / 2), s, group);
}

AVX2_INLINE void q4_K_group(const uint8_t *block, int group, const w_scales *s,
                            __m256 v[W_VECTORS]) {
    const uint8_t *qs = block + 16 + group / 2 * 32;
    for (int i = 0; i < W_VECTORS; i++) v[i] = w_apply(w_nibbles(qs + 8 * i, group % 2), s, group);
}

/* The others from the unpacked bytes of avx2_quants.h. */
#define W_GROUP(name)                                                                              \
    AVX2_INLINE void name##_group(const uint8_t *chunk, int group, const w_scales *s,              \
                                  __m256 v[W_VECTORS]) {                                           \
        const q_format *f = &name##_format;                                                        \
        __m256i q = name##_quants(chunk, group);                                                   \
        w_widen_group(_mm256_sub_epi8(q, _mm256_set1_epi8((char)f->offset)), v);                   \
        for (int i = 0; i < W_VECTORS && f->has_min; i++)                                          \
            v[i] = w_apply(v[i], s, f->sub == 16 ? 2 * group + i / 2 : group);                     \
    }
W_GROUP(q5_0)
W_GROUP(q5_1)
W_GROUP(iq4_nl)
W_GROUP(mxfp4)
W_GROUP(q2_K)
W_GROUP(q3_K)
W_GROUP(q5_K)
W_GROUP(q6_K)
W_GROUP(iq4_xs)

/* ---- the formats: type X is w_format w_X ----------------------------------------------------- */

static const w_format w_f32 = {.chunk_bytes = 4 * Q_CHUNK, .group = f32_group};
static const w_format w_f16 = {.chunk_bytes = 2 * Q_CHUNK, .group = f16_group};
static const w_format w_bf16 = {.chunk_bytes = 2 * Q_CHUNK, .group = bf16_group};

static const w_format w_q4_0 = {
    .chunk_bytes = 8 * 18, .sub = 32, .group = q4_0_group, .scales = q4_0_small};

#define W_FORMAT(name, bytes, ...)                                                                 \
    static const w_format w_##name = {                                                             \
        .chunk_bytes = bytes, .group = name##_group, .scales = name##_scales, __VA_ARGS__};
W_FORMAT(q8_0, 8 * 34, .sub = 32)
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
