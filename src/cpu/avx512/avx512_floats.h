/* avx512_floats.h: rows of every type as floats, for kernels that need weights in element order:
 * sums of rows (avx512_axpy.c) and products over neurons (avx512_matmul_t.c).
 *
 * A row is again chunks of 512 elements in eight steps of 64; scales are those of avx512_quants.h.
 * A step gives four vectors v of 16 floats. Without minima these are integers, offsets already
 * taken off, and the weights are d * v: users multiply d with something else first. With minima
 * they are the weights d * q - m themselves. Either is exact to one rounding.
 *
 * Four bits become a float by one look-up in a register of 16 floats, which ignores the bits above
 * them; so shifts need no masks, and offsets, tables of values and minima cost next to nothing.
 * Further bits are masks of additions.
 *
 * Everything is static: this code must not be shared with files compiled for lesser processors. */
#ifndef CPU_AVX512_FLOATS_H
#define CPU_AVX512_FLOATS_H

#include "avx512_quants_k.h"

enum {
    W_ELEMS_MAX = Q_CHUNK,
    W_BYTES_MAX = Q_CHUNK * (int)sizeof(float), /* F32, the widest */
    W_VECTORS = 4                               /* of a step */
};

/* The scales of a chunk, stored: one per 32 elements (16 of them) or per 16 (32). */
typedef struct w_scales {
    _Alignas(64) float d[2 * Q_GROUPS], m[2 * Q_GROUPS];
} w_scales;

typedef struct w_format {
    int chunk_bytes;
    int sub; /* elements per scale: 16 or 32; 0: the floats are the values */
    bool has_min;
    /* Scales are used only where there are minima. */
    void (*step)(const uint8_t *chunk, int step, const w_scales *s, __m512 v[W_VECTORS]);
    void (*scales)(const uint8_t *chunk, q_scales *out);
} w_format;

AVX512_INLINE int64_t w_elems(const w_format *f) {
    (void)f;
    return Q_CHUNK;
}

/* Bytes of n elements; n is a multiple of the type's block, so the division is exact. */
AVX512_INLINE size_t w_bytes(const w_format *f, int64_t n) {
    return (size_t)n * (size_t)f->chunk_bytes / Q_CHUNK;
}

AVX512_INLINE __m512i w_widen(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}

/* The floats at the places that the low four bits from `shift` on say. */
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

/* The same for two bits, whatever the two above them are. */
AVX512_INLINE __m512 w_count2(int first) {
    return _mm512_broadcast_f32x4(
        _mm_setr_ps((float)first, (float)(first + 1), (float)(first + 2), (float)(first + 3)));
}

AVX512_INLINE __m512 w_table(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* The weights of integers (or of a table of them) that share scale and minimum i. */
AVX512_INLINE __m512 w_apply(__m512 v, const w_scales *s, int i) {
    return _mm512_fmsub_ps(v, _mm512_set1_ps(s->d[i]), _mm512_set1_ps(s->m[i]));
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

/* Stores the scales of a chunk, those without minima times h. They are read back one by one: from
 * memory a load broadcasts them for free, where compilers would rather shuffle them out of a
 * register, and shuffles are what unpacking is short of. */
AVX512_INLINE void w_store_scales(const w_format *f, const uint8_t *chunk, __m512 h,
                                  w_scales *out) {
    q_scales s;
    f->scales(chunk, &s);
    for (int i = 0; i < 32 / f->sub; i++) {
        _mm512_store_ps(out->d + 16 * i, f->has_min ? s.d[i] : _mm512_mul_ps(s.d[i], h));
        if (f->has_min) _mm512_store_ps(out->m + 16 * i, s.m[i]);
    }
    __asm__ volatile("" : : "r"(out) : "memory");
}

/* ---- plain types ---------------------------------------------------------------------------- */

AVX512_INLINE void f32_step(const uint8_t *chunk, int step, const w_scales *s,
                            __m512 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++) v[i] = _mm512_loadu_ps(chunk + 256 * step + 64 * i);
}

AVX512_INLINE void f16_step(const uint8_t *chunk, int step, const w_scales *s,
                            __m512 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++)
        v[i] = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(chunk + 128 * step + 32 * i)));
}

AVX512_INLINE void bf16_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++) {
        __m256i h = _mm256_loadu_si256((const void *)(chunk + 128 * step + 32 * i));
        v[i] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
    }
}

/* ---- blocks of 32: two in a step ------------------------------------------------------------ */

AVX512_INLINE void q8_0_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    for (int i = 0; i < W_VECTORS; i++) {
        const uint8_t *p = chunk + 34 * (2 * step + i / 2) + 2 + 16 * (i % 2);
        v[i] = w_table(_mm_loadu_si128((const void *)p));
    }
}

AVX512_INLINE void q4_0_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 18 * (2 * step + b) + 2, w_count(-8), v + 2 * b);
}

AVX512_INLINE void q4_1_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    for (int b = 0; b < 2; b++) {
        int i = 2 * step + b;
        w_nibbles(chunk + 20 * i + 4, w_apply(w_count(0), s, i), v + 2 * b);
    }
}

AVX512_INLINE void q5_0_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = chunk + 22 * (2 * step + b);
        w_nibbles(block + 6, w_count(-16), v + 2 * b);
        w_add_bits(w_bits(block + 2), 16.0f, v + 2 * b);
    }
}

AVX512_INLINE void q5_1_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    for (int b = 0; b < 2; b++) {
        int i = 2 * step + b;
        const uint8_t *block = chunk + 24 * i;
        w_nibbles(block + 8, w_count(0), v + 2 * b);
        w_add_bits(w_bits(block + 4), 16.0f, v + 2 * b);
        for (int k = 2 * b; k < 2 * b + 2; k++) v[k] = w_apply(v[k], s, i);
    }
}

AVX512_INLINE void iq4_nl_step(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_IQ4_VALUES));
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 18 * (2 * step + b) + 2, table, v + 2 * b);
}

AVX512_INLINE void mxfp4_step(const uint8_t *chunk, int step, const w_scales *s,
                              __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_E2M1_VALUES));
    for (int b = 0; b < 2; b++) w_nibbles(chunk + 17 * (2 * step + b) + 1, table, v + 2 * b);
}

/* ---- blocks of 256: four steps each; bits in planes, see avx512_quants_k.h ------------------- */

/* 32 bytes: the step's elements 0..31 from bit `bit` on in one table, elements 32..63 from bit +
 * next on in the other. */
AVX512_INLINE void w_planes(const uint8_t *p, int bit, int next, const __m512 table[2],
                            __m512 v[W_VECTORS]) {
    for (int h = 0; h < 2; h++) {
        __m512i places = w_widen(p + 16 * h);
        v[h] = w_look_up(places, bit, table[0]);
        v[2 + h] = w_look_up(places, bit + next, table[1]);
    }
}

AVX512_INLINE void q2_K_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    const uint8_t *qs = chunk + 84 * (step >> 2) + 16 + 32 * ((step >> 1) & 1);
    const __m512 table[2] = {w_count2(0), w_count2(0)};
    w_planes(qs, 4 * (step & 1), 2, table, v);
    for (int k = 0; k < W_VECTORS; k++) v[k] = w_apply(v[k], s, 4 * step + k);
}

AVX512_INLINE void q3_K_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    const uint8_t *block = chunk + 110 * (step >> 2);
    const __m512 table[2] = {w_count2(-4), w_count2(-4)};
    w_planes(block + 32 + 32 * ((step >> 1) & 1), 4 * (step & 1), 2, table, v);
    for (int b = 0; b < 2; b++)
        w_add_bits(w_plane_bits(block, 2 * (step & 3) + b), 4.0f, v + 2 * b);
}

AVX512_INLINE void q4_K_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    const __m512 table[2] = {w_apply(w_count(0), s, 2 * step),
                             w_apply(w_count(0), s, 2 * step + 1)};
    w_planes(chunk + 144 * (step >> 2) + 16 + 32 * (step & 3), 0, 4, table, v);
}

AVX512_INLINE void q5_K_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    const uint8_t *block = chunk + 176 * (step >> 2);
    const __m512 table[2] = {w_count(0), w_count(0)};
    w_planes(block + 48 + 32 * (step & 3), 0, 4, table, v);
    for (int b = 0; b < 2; b++)
        w_add_bits(w_plane_bits(block + 16, 2 * (step & 3) + b), 16.0f, v + 2 * b);
    for (int k = 0; k < W_VECTORS; k++) v[k] = w_apply(v[k], s, 2 * step + k / 2);
}

AVX512_INLINE void q6_K_step(const uint8_t *chunk, int step, const w_scales *s,
                             __m512 v[W_VECTORS]) {
    (void)s;
    /* A half block of 128 elements: 64 bytes of nibbles (low ones for the first 64 elements) and a
     * plane of two bits. */
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

AVX512_INLINE void iq4_xs_step(const uint8_t *chunk, int step, const w_scales *s,
                               __m512 v[W_VECTORS]) {
    (void)s;
    const __m512 table = w_table(_mm_setr_epi8(QUANT_IQ4_VALUES));
    const uint8_t *qs = chunk + 136 * (step >> 2) + 8 + 32 * (step & 3);
    for (int b = 0; b < 2; b++) w_nibbles(qs + 16 * b, table, v + 2 * b);
}

/* ---- the formats: type X is w_format w_X ----------------------------------------------------- */

static const w_format w_f32 = {.chunk_bytes = 4 * Q_CHUNK, .step = f32_step};
static const w_format w_f16 = {.chunk_bytes = 2 * Q_CHUNK, .step = f16_step};
static const w_format w_bf16 = {.chunk_bytes = 2 * Q_CHUNK, .step = bf16_step};

#define W_FORMAT(name, bytes, ...)                                                                 \
    static const w_format w_##name = {                                                             \
        .chunk_bytes = bytes, .step = name##_step, .scales = name##_scales, __VA_ARGS__};
W_FORMAT(q8_0, 16 * 34, .sub = 32)
W_FORMAT(q4_0, 16 * 18, .sub = 32)
W_FORMAT(q4_1, 16 * 20, .sub = 32, .has_min = true)
W_FORMAT(q5_0, 16 * 22, .sub = 32)
W_FORMAT(q5_1, 16 * 24, .sub = 32, .has_min = true)
W_FORMAT(mxfp4, 16 * 17, .sub = 32)
W_FORMAT(q2_K, 2 * 84, .sub = 16, .has_min = true)
W_FORMAT(q3_K, 2 * 110, .sub = 16)
W_FORMAT(q4_K, 2 * 144, .sub = 32, .has_min = true)
W_FORMAT(q5_K, 2 * 176, .sub = 32, .has_min = true)
W_FORMAT(q6_K, 2 * 210, .sub = 16)
W_FORMAT(iq4_xs, 2 * 136, .sub = 32)
static const w_format w_iq4_nl = {
    .chunk_bytes = 16 * 18, .sub = 32, .step = iq4_nl_step, .scales = q4_0_scales};

#endif
