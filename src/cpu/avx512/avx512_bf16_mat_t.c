/* avx512_bf16_mat_t.c: products over the rows of a matrix with the bf16 dot unit (AVX512-BF16), for
 * BF16 and quantized rows: weights and factors are rounded to bfloat16, sums are floats. The unit
 * takes denormals as zero. */
#include "avx512_mat.h"
#include "avx512_matmul_t.h"

PLAIN_INLINE __m512 bf16_dot(__m512 acc, __m512i w, __m512i x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}

static const plain_format bf16_pairs = {.elems = 32, .w_bytes = 2, .dot = bf16_dot};

/* 16 lanes of (a, b). */
AVX512_INLINE void bf16_pack(const __m512 a[W_VECTORS], const __m512 b[W_VECTORS],
                             __m512i out[W_VECTORS]) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    /* words 0, 16, 1, 17, ... */
    const __m512i order = _mm512_add_epi32(
        lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
    for (int i = 0; i < W_VECTORS; i++)
        out[i] = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b[i], a[i]));
}

#define DEFINE(type, format) static MT_DEFINE(avx512_bf16, format, &bf16_pairs, bf16_pack)
TIER_Q_TYPES(DEFINE)
DEFINE(BF16, bf16)

#define ENTRY(type, format)                                                                        \
    k->mat_t[QUANT_##type].act = CPU_ACT_BF16;                                                     \
    k->mat_t[QUANT_##type].matmul_t = avx512_bf16_matmul_t_##format;

void cpu_init_avx512_bf16_mat_t(cpu_kernels *k) {
    TIER_Q_TYPES(ENTRY)
    ENTRY(BF16, bf16)
}
