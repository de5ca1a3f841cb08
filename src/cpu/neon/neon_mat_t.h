/* neon_mat_t.h: what the files for matrices with one row per neuron offer to each other. */
#ifndef CPU_NEON_MAT_T_H
#define CPU_NEON_MAT_T_H

#include "neon_mat.h"

/* Every type with kernels in this tier: X(type, format). */
#define NEON_T_TYPES(X)                                                                            \
    NEON_Q_TYPES(X)                                                                                \
    X(F32, f32)                                                                                    \
    X(F16, f16)                                                                                    \
    X(BF16, bf16)

#define NEON_T_DECLARE(type, format)                                                               \
    void neon_axpy_##format(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h, \
                            int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc);               \
    void neon_matmul_t_##format(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,    \
                                float *y, int64_t ldy, void *scratch);
NEON_T_TYPES(NEON_T_DECLARE)

#endif
