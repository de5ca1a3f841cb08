/* neon_mat_t.c: the entries of this tier in the table of kernels for matrices with one row per
 * neuron. */
#include "neon_mat.h"

#include "tiers.h"

#define ENTRY(type, name, ...) TIER_MAT_T_ENTRY(neon, F32, type, name)

void cpu_init_neon_mat_t(cpu_kernels *k) {
    QUANT_PLAIN(ENTRY)
    QUANT_BLOCKS(ENTRY)
}
