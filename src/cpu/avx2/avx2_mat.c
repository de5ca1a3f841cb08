/* avx2_mat.c: the entries of this tier in the table of kernels. */
#include "avx2_mat.h"

#include "tiers.h"

#define ENTRY(type, name, ...) TIER_MAT_ENTRY(avx2, Q8, type, name)

void cpu_init_avx2_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    TIER_MAT_ENTRY(avx2, F32, F32, f32)
    TIER_MAT_ENTRY(avx2, F32, F16, f16)
    TIER_MAT_ENTRY(avx2, BF16, BF16, bf16)
    /* Both products are one kernel; in larger ubatches the columns share the work between them as
     * well. */
    k->tiled[CPU_ACT_Q8] = (cpu_tiled){.from = 12, .products_per_ns = 80};
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = 25, .products_per_ns = 45};
    k->tiled[CPU_ACT_F32] = (cpu_tiled){.from = 17, .products_per_ns = 45};
}
