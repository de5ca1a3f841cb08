/* tier_table.h: names, declarations and table entries of a tier's matrix functions. Every tier has
 * these functions for each type of QUANT_PLAIN and QUANT_BLOCKS:
 *
 *   TIER_matvec_TYPE, TIER_matvec_rows_TYPE, TIER_matmul_TYPE    matrices with a row per output
 *   TIER_axpy_TYPE, TIER_matmul_t_TYPE                           matrices with a row per neuron */
#ifndef CPU_TIER_TABLE_H
#define CPU_TIER_TABLE_H

#include "cpu.h"

#define TIER_MATVEC_DECLARE(tier, name)                                                            \
    void tier##_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy);                                              \
    void tier##_matvec_rows_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows,          \
                                   const cpu_act *x, float *y, int64_t ldy);
#define TIER_MATMUL_DECLARE(tier, name)                                                            \
    void tier##_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy, void *scratch);
#define TIER_MAT_T_DECLARE(tier, name)                                                             \
    void tier##_axpy_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h, \
                            int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc);               \
    void tier##_matmul_t_##name(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h,    \
                                float *y, int64_t ldy, void *scratch);
#define TIER_DECLARE(tier, name)                                                                   \
    TIER_MATVEC_DECLARE(tier, name)                                                                \
    TIER_MATMUL_DECLARE(tier, name)                                                                \
    TIER_MAT_T_DECLARE(tier, name)

/* Defines the matmul of a tier for a type, computed by run(&NAME_format, w, ...). */
#define TIER_MATMUL_DEFINE(storage, tier, name, run)                                               \
    storage void tier##_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1,                \
                                      const cpu_act *x, float *y, int64_t ldy, void *scratch) {    \
        run(&name##_format, w, row0, row1, x, y, ldy, scratch);                                    \
    }

/* Sets entries of the table `k`, with the form of activations that the kernels need. */
#define TIER_MAT_ENTRY(tier, kind, type, name)                                                     \
    k->mat[QUANT_##type] = (cpu_mat_kernels){CPU_ACT_##kind, tier##_matvec_##name,                 \
                                             tier##_matmul_##name, tier##_matvec_rows_##name};
#define TIER_MAT_T_ENTRY(tier, kind, type, name)                                                   \
    k->mat_t[QUANT_##type] = (cpu_mat_t_kernels){tier##_axpy_##name, CPU_ACT_##kind,               \
                                                 tier##_matmul_t_##name};

#endif
