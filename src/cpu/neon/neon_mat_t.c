/* neon_mat_t.c: the entries of this tier in the table of kernels for matrices with one row per
 * neuron. */
#include "neon_mat_t.h"

#include "tiers.h"

#define ENTRY(type, format)                                                                        \
    k->mat_t[QUANT_##type] = (cpu_mat_t_kernels){neon_axpy_##format, CPU_ACT_F32,                  \
                                                 neon_matmul_t_##format};

void cpu_init_neon_mat_t(cpu_kernels *k) {
    NEON_T_TYPES(ENTRY)
}
