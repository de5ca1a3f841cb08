/* avx512_axpy.c: sums of chosen rows times factors, for few columns: how tier_axpy.h does it in
 * this tier. */
#include "avx512_floats.h"
#include "avx512_mat.h"
#include "tier_axpy.h"

SIMD_INLINE void ax_block(const w_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                          const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc) {
    const int step_bytes = f->chunk_bytes / Q_STEPS;
    w_scales scales[AX_ROWS];
    for (int r = 0; r < n_rows && f->sub; r++)
        w_store_scales(f, p[r], _mm512_set1_ps(h[r]), &scales[r]);
#pragma GCC unroll 1
    for (int j = 0; j < Q_STEPS; j++) {
        __m512 sum[W_VECTORS];
        for (int i = 0; i < W_VECTORS; i++) sum[i] = _mm512_loadu_ps(acc + 64 * j + 16 * i);
        for (int r = 0; r < n_rows; r++) {
            __m512 v[W_VECTORS];
            f->step(p[r], j, &scales[r], v);
            for (int b = 0; b < step_bytes; b += AX_LINE)
                _mm_prefetch((const char *)next[r] + step_bytes * j + b, _MM_HINT_T0);
            for (int i = 0; i < W_VECTORS; i++) {
                int k = f->sub == 16 ? 4 * j + i : 2 * j + i / 2;
                float factor = f->sub && !f->has_min ? scales[r].d[k] : h[r];
                sum[i] = _mm512_fmadd_ps(v[i], _mm512_set1_ps(factor), sum[i]);
            }
        }
        for (int i = 0; i < W_VECTORS; i++) _mm512_storeu_ps(acc + 64 * j + 16 * i, sum[i]);
    }
}

#define DEFINE(type, format) AX_DEFINE(avx512, format)
TIER_TYPES(DEFINE)
