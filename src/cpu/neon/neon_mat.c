/* neon_mat.c: the entries of this tier in the table of kernels. */
#include "neon_mat.h"

#include "tiers.h"

#define ENTRY(type, format)                                                                        \
    k->mat[QUANT_##type] = (cpu_mat_kernels){CPU_ACT_Q8, neon_matvec_##format,                     \
                                             neon_matmul_##format, neon_matvec_rows_##format};

void cpu_init_neon_mat(cpu_kernels *k) {
    NEON_Q_TYPES(ENTRY)
    k->mat[QUANT_F32] = (cpu_mat_kernels){CPU_ACT_F32, neon_matvec_f32, neon_matmul_f32,
                                          neon_matvec_rows_f32};
    k->mat[QUANT_F16] = (cpu_mat_kernels){CPU_ACT_F32, neon_matvec_f16, neon_matmul_f16,
                                          neon_matvec_rows_f16};
    k->mat[QUANT_BF16] = (cpu_mat_kernels){CPU_ACT_BF16, neon_matvec_bf16, neon_matmul_bf16,
                                           neon_matvec_rows_bf16};
    k->act_encode = neon_act_encode;
    k->stream_read = neon_stream_read;
}
