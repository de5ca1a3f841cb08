/* avx512_mat.c: the entries of this tier in the table of kernels. */
#include "avx512_mat.h"

#include "tiers.h"

#define ENTRY(type, format)                                                                        \
    k->mat[QUANT_##type] = (cpu_mat_kernels){CPU_ACT_Q8, avx512_matvec_##format,                   \
                                             avx512_matmul_##format, avx512_matvec_rows_##format};

void cpu_init_avx512_mat(cpu_kernels *k) {
    AVX512_Q_TYPES(ENTRY)
    k->mat[QUANT_F32] = (cpu_mat_kernels){CPU_ACT_F32, avx512_matvec_f32, avx512_matmul_f32,
                                          avx512_matvec_rows_f32};
    k->mat[QUANT_F16] = (cpu_mat_kernels){CPU_ACT_F32, avx512_matvec_f16, avx512_matmul_f16,
                                          avx512_matvec_rows_f16};
    k->mat[QUANT_BF16] = (cpu_mat_kernels){CPU_ACT_BF16, avx512_matvec_bf16_wide,
                                           avx512_matmul_bf16_wide, avx512_matvec_rows_bf16_wide};
    k->act_encode = avx512_act_encode;
    k->stream_read = avx512_stream_read;
}
