/* avx2_mat_t.c: the entries of this tier in the table of kernels for matrices with one row per
 * neuron. */
#include "avx2_mat_t.h"

#include "tiers.h"

#define ENTRY(type, format)                                                                        \
    k->mat_t[QUANT_##type] = (cpu_mat_t_kernels){avx2_axpy_##format, CPU_ACT_F32,                  \
                                                 avx2_matmul_t_##format};

void cpu_init_avx2_mat_t(cpu_kernels *k) {
    AVX2_T_TYPES(ENTRY)
}
