/* avx512_bf16_mat_t.c: products over the rows of a matrix with the bf16 dot unit, for BF16 and
 * quantized rows: weights and factors are rounded to bfloat16, sums are floats. */
#include "avx512_bf16_unit.h"
#include "avx512_mat.h"
#include "avx512_quants_k.h"

static const plain_format mt_words = PLAIN_BF16_UNIT;

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
