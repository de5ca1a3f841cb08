/* neon_i8mm_mat.c: matrix products of quantized types on CPUs with 8-bit matrix instructions
 * (I8MM). Inputs and results equal those of neon_matmul.c, with twice as many products per
 * instruction. */
#define MM_I8MM 1
#include "neon_matmul.h"

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, neon_i8mm, name, mm_run)
QUANT_BLOCKS(DEFINE)

#define ENTRY(type, name, ...) k->mat[QUANT_##type].matmul = neon_i8mm_matmul_##name;

void cpu_init_neon_i8mm_mat(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    k->tiled[CPU_ACT_Q8].from = 8; /* derived as in neon_mat.c: a fifth fewer instructions */
}
