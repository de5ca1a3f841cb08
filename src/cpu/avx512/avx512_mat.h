/* avx512_mat.h: what the files of this tier offer to each other. */
#ifndef CPU_AVX512_MAT_H
#define CPU_AVX512_MAT_H

#include "cpu.h"

#define AVX512_MAT_DECLARE(name)                                                                   \
    void avx512_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy);                                              \
    void avx512_matvec_rows_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows,          \
                                   const cpu_act *x, float *y, int64_t ldy);                       \
    void avx512_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy, void *scratch);

AVX512_MAT_DECLARE(f32)
AVX512_MAT_DECLARE(f16)
AVX512_MAT_DECLARE(bf16_wide) /* without the bf16 unit */
AVX512_MAT_DECLARE(bf16)

/* Every quantized type with kernels in this tier: X(type, format). */
#define AVX512_Q_TYPES(X)                                                                          \
    X(Q4_0, q4_0)                                                                                  \
    X(Q4_1, q4_1)                                                                                  \
    X(Q5_0, q5_0)                                                                                  \
    X(Q5_1, q5_1)                                                                                  \
    X(Q8_0, q8_0)                                                                                  \
    X(IQ4_NL, iq4_nl)                                                                              \
    X(MXFP4, mxfp4)                                                                                \
    X(Q2_K, q2_K)                                                                                  \
    X(Q3_K, q3_K)                                                                                  \
    X(Q4_K, q4_K)                                                                                  \
    X(Q5_K, q5_K)                                                                                  \
    X(Q6_K, q6_K)                                                                                  \
    X(IQ4_XS, iq4_xs)

#define AVX512_Q_DECLARE(type, format) AVX512_MAT_DECLARE(format)
AVX512_Q_TYPES(AVX512_Q_DECLARE)

void avx512_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
uint64_t avx512_stream_read(const void *p, size_t n_bytes);

#endif
