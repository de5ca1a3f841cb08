/* avx2_mat.c: the entries of this tier in the table of kernels. */
#include "avx2_mat.h"

#include "tiers.h"

#define ENTRY(type, format)                                                                        \
    k->mat[QUANT_##type] = (cpu_mat_kernels){CPU_ACT_Q8, avx2_matvec_##format,                     \
                                             avx2_matmul_##format, avx2_matvec_rows_##format};

void cpu_init_avx2_mat(cpu_kernels *k) {
    AVX2_Q_TYPES(ENTRY)
    k->mat[QUANT_F32] = (cpu_mat_kernels){CPU_ACT_F32, avx2_matvec_f32, avx2_matmul_f32,
                                          avx2_matvec_rows_f32};
    k->mat[QUANT_F16] = (cpu_mat_kernels){CPU_ACT_F32, avx2_matvec_f16, avx2_matmul_f16,
                                          avx2_matvec_rows_f16};
    k->mat[QUANT_BF16] = (cpu_mat_kernels){CPU_ACT_BF16, avx2_matvec_bf16, avx2_matmul_bf16,
                                           avx2_matvec_rows_bf16};
    k->act_encode = avx2_act_encode;
    k->stream_read = avx2_stream_read;
}
