/* avx512_mat.c: the entries of this tier in the table of kernels. */
#include "avx512_mat.h"

#include "tiers.h"

#define ENTRY(type, name, ...) TIER_MAT_ENTRY(avx512, Q8, type, name)

void cpu_init_avx512_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    TIER_MAT_ENTRY(avx512, F32, F32, f32)
    TIER_MAT_ENTRY(avx512, F32, F16, f16)
    TIER_MAT_ENTRY(avx512, BF16, BF16, bf16_wide)
    /* Measured: 4 or 5 columns. */
    k->tiled[CPU_ACT_Q8] = (cpu_tiled){.from = 5, .products_per_ns = 200};
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = CPU_PANEL, .products_per_ns = 85};
    k->tiled[CPU_ACT_F32] = (cpu_tiled){.from = 13, .products_per_ns = 85};
}
