/* tier_gemm.h: one tile of a float matrix product, vectorized. A template: included once by
 * tier_all.h.
 *
 * A tile of CPU_GEMM_ROWS x CPU_GEMM_COLS is computed in parts whose sums fit into the registers:
 * the whole tile with 32 registers of 16 floats, quarters with 16 registers of 8. The sums of a
 * part are independent chains, so that multiply-adds do not wait for each other. */
#ifndef CPU_TIER_GEMM_H
#define CPU_TIER_GEMM_H

#include "simd.h"
#include "tiers.h"

enum {
    TIER_GEMM_ROWS = VF_N == 16 ? CPU_GEMM_ROWS : CPU_GEMM_ROWS / 2,
    TIER_GEMM_VECTORS = 2, /* vectors of a part's columns */
    TIER_GEMM_COLS = TIER_GEMM_VECTORS * VF_N
};
_Static_assert(CPU_GEMM_COLS % TIER_GEMM_COLS == 0, "a tile is made of whole parts");

SIMD_INLINE void tier_gemm_part(const float *a, const float *b, int64_t n_k, float *c, int64_t ldc,
                                bool add) {
    vf sum[TIER_GEMM_ROWS][TIER_GEMM_VECTORS];
    SIMD_UNROLL
    for (int i = 0; i < TIER_GEMM_ROWS; i++) sum[i][0] = sum[i][1] = vf_zero();
    for (int64_t k = 0; k < n_k; k++, a += CPU_GEMM_ROWS, b += CPU_GEMM_COLS) {
        vf b0 = vf_load(b), b1 = vf_load(b + VF_N);
        SIMD_UNROLL
        for (int i = 0; i < TIER_GEMM_ROWS; i++) {
            vf x = vf_set1(a[i]);
            sum[i][0] = vf_fma(x, b0, sum[i][0]);
            sum[i][1] = vf_fma(x, b1, sum[i][1]);
        }
    }
    SIMD_UNROLL
    for (int i = 0; i < TIER_GEMM_ROWS; i++)
        for (int v = 0; v < TIER_GEMM_VECTORS; v++) {
            float *y = c + i * ldc + v * VF_N;
            vf_store(y, add ? vf_add(vf_load(y), sum[i][v]) : sum[i][v]);
        }
}

static void tier_gemm_tile(const float *a, const float *b, int64_t n_k, float *c, int64_t ldc,
                           bool add) {
    for (int j = 0; j < CPU_GEMM_COLS; j += TIER_GEMM_COLS)
        for (int i = 0; i < CPU_GEMM_ROWS; i += TIER_GEMM_ROWS)
            tier_gemm_part(a + i, b + j, n_k, c + i * ldc + j, ldc, add);
}

#endif
