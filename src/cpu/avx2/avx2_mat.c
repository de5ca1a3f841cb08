/* avx2_mat.c: the entries of this tier in the table of kernels. */
#include "avx2_mat.h"

#include "tiers.h"

void cpu_init_avx2_mat(cpu_kernels *k) {
    k->mat[QUANT_F32] = (cpu_mat_kernels){CPU_ACT_F32, avx2_matvec_f32, avx2_matmul_f32};
    k->mat[QUANT_F16] = (cpu_mat_kernels){CPU_ACT_F32, avx2_matvec_f16, avx2_matmul_f16};
    k->mat[QUANT_BF16] = (cpu_mat_kernels){CPU_ACT_BF16, avx2_matvec_bf16, avx2_matmul_bf16};
    k->mat[QUANT_Q4_0] = (cpu_mat_kernels){CPU_ACT_Q8, avx2_matvec_q4_0, avx2_matmul_q4_0};
    k->mat[QUANT_Q8_0] = (cpu_mat_kernels){CPU_ACT_Q8, avx2_matvec_q8_0, avx2_matmul_q8_0};
    k->mat[QUANT_Q4_K] = (cpu_mat_kernels){CPU_ACT_Q8, avx2_matvec_q4_K, avx2_matmul_q4_K};
    k->mat[QUANT_Q6_K] = (cpu_mat_kernels){CPU_ACT_Q8, avx2_matvec_q6_K, avx2_matmul_q6_K};
    k->act_encode = avx2_act_encode;
    k->stream_read = avx2_stream_read;
}
