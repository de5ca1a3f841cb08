/* avx512_bf16_mat_t.c: products over the rows of a matrix with the bf16 dot unit, for BF16 and
 * quantized rows: weights and factors are rounded to bfloat16, sums are floats. */
#include "avx512_bf16_unit.h"
#include "avx512_mat.h"
#include "avx512_quants_k.h"

static const plain_format mt_words = PLAIN_BF16_UNIT;

/* 16 lanes of (a, b). */
AVX512_INLINE void mt_pack(const vf a[W_VECTORS], const vf b[W_VECTORS], vi out[W_VECTORS]) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    /* words 0, 16, 1, 17, ... */
    const __m512i order = _mm512_add_epi32(
        lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
    for (int i = 0; i < W_VECTORS; i++)
        out[i] = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b[i], a[i]));
}

#define MT_PAIRS 1
#include "tier_matmul_t.h"

#define DEFINE(type, name, ...) static MT_DEFINE(avx512_bf16, name, name##_format)
QUANT_BLOCKS(DEFINE)
static MT_DEFINE(avx512_bf16, bf16, bf16_weights)

#define ENTRY(type, name, ...)                                                                     \
    k->mat_t[QUANT_##type].act = CPU_ACT_BF16;                                                     \
    k->mat_t[QUANT_##type].matmul_t = avx512_bf16_matmul_t_##name;

    void cpu_init_avx512_bf16_mat_t(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    ENTRY(BF16, bf16, )
}
