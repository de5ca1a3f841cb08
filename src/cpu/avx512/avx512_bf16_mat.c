/* avx512_bf16_mat.c: BF16 rows with the bf16 dot unit (AVX512-BF16). The unit takes denormals as
 * zero. */
#include "avx512_mat.h"
#include "avx512_plain.h"

PLAIN_INLINE __m512i bf16_words(const char *row, int64_t left) {
    return _mm512_maskz_loadu_epi16(plain_mask(left), row);
}

PLAIN_INLINE __m512 bf16_dot(__m512 acc, __m512i w, __m512i x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}

static const plain_format bf16_format = {32, 2, bf16_words, bf16_dot};

PLAIN_DEFINE(bf16)

void cpu_init_avx512_bf16_mat(cpu_kernels *k) {
    TIER_MAT_ENTRY(avx512, BF16, BF16, bf16)
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = CPU_PANEL, .products_per_ns = 160};
}
