/* avx2_axpy.c: sums of chosen rows times factors, for few columns: how tier_axpy.h does it in this
 * tier. */
#include "avx2_floats.h"
#include "avx2_mat.h"
#include "tier_axpy.h"

/* Compilers would gather the prefetches of an unrolled loop into bursts, which costs a tenth of the
 * speed; nothing moves across this. */
#define AX_IN_ORDER __asm__ volatile("" : : : "memory")

SIMD_INLINE void ax_block(const w_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                          const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc) {
    const int group_bytes = f->chunk_bytes / Q_GROUPS;
    w_scales scales[AX_ROWS];
    for (int r = 0; r < n_rows && f->sub; r++)
        w_store_scales(f, p[r], _mm256_set1_ps(h[r]), &scales[r]);
#pragma GCC unroll 8
    for (int g = 0; g < Q_GROUPS; g++) {
        __m256 sum[W_VECTORS];
        for (int i = 0; i < W_VECTORS; i++) sum[i] = _mm256_loadu_ps(acc + 32 * g + 8 * i);
        for (int r = 0; r < n_rows; r++) {
            __m256 v[W_VECTORS];
            f->group(p[r], g, &scales[r], v);
            for (int b = 0; b < group_bytes; b += AX_LINE)
                _mm_prefetch((const char *)next[r] + group_bytes * g + b, _MM_HINT_T0);
            for (int i = 0; i < W_VECTORS; i++) {
                int k = f->sub == 16 ? 2 * g + i / 2 : g;
                float factor = f->sub && !f->has_min ? scales[r].d[k] : h[r];
                sum[i] = _mm256_fmadd_ps(v[i], _mm256_set1_ps(factor), sum[i]);
            }
        }
        for (int i = 0; i < W_VECTORS; i++) _mm256_storeu_ps(acc + 32 * g + 8 * i, sum[i]);
        AX_IN_ORDER;
    }
}

#define DEFINE(type, format) AX_DEFINE(avx2, format)
TIER_TYPES(DEFINE)
