/* avx512_float.c: F32 and F16 rows against float activations, and BF16 rows on processors without
 * the bf16 unit, whose elements are widened to float. */
#include "avx512_mat.h"
#include "avx512_plain.h"

PLAIN_INLINE __m512i f32_words(const char *row, int64_t left) {
    return _mm512_maskz_loadu_epi32((__mmask16)plain_mask(left), row);
}

PLAIN_INLINE __m512i f16_words(const char *row, int64_t left) {
    __m256i h = left >= 16 ? _mm256_loadu_si256((const void *)row)
                           : _mm256_maskz_loadu_epi16((__mmask16)plain_mask(left), row);
    return _mm512_castps_si512(_mm512_cvtph_ps(h));
}

PLAIN_INLINE __m512 f32_dot(__m512 acc, __m512i w, __m512i x) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(x), acc);
}

PLAIN_INLINE __m512i bf16_wide_words(const char *row, int64_t left) {
    return _mm512_maskz_loadu_epi16(plain_mask(left), row);
}

/* A bfloat16 is the upper half of a float: shift or mask the pair apart. */
PLAIN_INLINE __m512 bf16_wide_dot(__m512 acc, __m512i w, __m512i x) {
    const __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000);
    acc = f32_dot(acc, _mm512_slli_epi32(w, 16), _mm512_slli_epi32(x, 16));
    return f32_dot(acc, _mm512_and_si512(w, upper), _mm512_and_si512(x, upper));
}

static const plain_format f32_format = {16, 4, f32_words, f32_dot};
static const plain_format f16_format = {16, 2, f16_words, f32_dot};
static const plain_format bf16_wide_format = {32, 2, bf16_wide_words, bf16_wide_dot};

PLAIN_DEFINE(f32)
PLAIN_DEFINE(f16)
PLAIN_DEFINE(bf16_wide)
