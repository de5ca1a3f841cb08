/* avx512_mat_t.c: the entries of this tier in the table of kernels for matrices with one row per
 * neuron. */
#include "avx512_mat.h"

#include "tiers.h"

#define ENTRY(type, name, ...) TIER_MAT_T_ENTRY(avx512, F32, type, name)

void cpu_init_avx512_mat_t(cpu_kernels *k) {
    QUANT_PLAIN(ENTRY)
    QUANT_BLOCKS(ENTRY)
}
