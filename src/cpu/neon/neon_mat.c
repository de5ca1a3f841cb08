/* neon_mat.c: the entries of this tier in the table of kernels. */
#include "neon_mat.h"

#include "tiers.h"

#define ENTRY(type, name, ...) TIER_MAT_ENTRY(neon, Q8, type, name)

void cpu_init_neon_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    TIER_MAT_ENTRY(neon, F32, F32, f32)
    TIER_MAT_ENTRY(neon, F32, F16, f16)
    TIER_MAT_ENTRY(neon, BF16, BF16, bf16)
    /* Derived from instructions per weight and column, because no such CPU was available for
     * measurements: tiles compute four columns at a time, and need fewer instructions than matvec
     * from 16 columns (Q4_0; Q4_K about as many). Other values as for AVX2, which has the same
     * kernels. */
    k->tiled[CPU_ACT_Q8] = (cpu_tiled){.from = 16, .products_per_ns = 60};
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = 11, .products_per_ns = 30};
    k->tiled[CPU_ACT_F32] = (cpu_tiled){.from = 11, .products_per_ns = 30};
}
