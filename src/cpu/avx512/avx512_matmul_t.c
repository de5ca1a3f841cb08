/* avx512_matmul_t.c: products over the rows of a matrix in floats: for F32 and F16 rows, whose
 * precision bfloat16 would lose, and for all types on processors without the bf16 unit. */
#include "avx512_matmul_t.h"

#include "avx512_mat.h"

/* Words are what a tile holds; rows are read by avx512_floats.h. */
PLAIN_INLINE __m512 f32_dot(__m512 acc, __m512i w, __m512i x) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(x), acc);
}

static const plain_format float_words = {.elems = 16, .w_bytes = 4, .dot = f32_dot};

#define DEFINE(type, format) MT_DEFINE(avx512, format, &float_words, NULL)
TIER_TYPES(DEFINE)
