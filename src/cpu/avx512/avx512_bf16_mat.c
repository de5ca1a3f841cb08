/* avx512_bf16_mat.c: BF16 rows with the bf16 dot unit. */
#include "avx512_bf16_unit.h"
#include "avx512_mat.h"

static const plain_format bf16_format = PLAIN_BF16_UNIT;

PLAIN_DEFINE(avx512, bf16)

void cpu_init_avx512_bf16_mat(cpu_kernels *k) {
    TIER_MAT_ENTRY(avx512, BF16, BF16, bf16)
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = CPU_PANEL, .products_per_ns = 160};
}
