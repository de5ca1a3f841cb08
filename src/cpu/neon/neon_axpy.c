/* neon_axpy.c: sums of chosen rows times factors, for few columns: how tier_axpy.h does it in this
 * tier. */
#include "neon_floats.h"
#include "neon_mat.h"
#include "tier_axpy.h"

/* A group of one row times its factor on to sum. */
NEON_INLINE void ax_group_add(const w_format *f, const uint8_t *p, int g, const q_scales *s,
                              float h, float32x4_t sum[W_VECTORS]) {
    float32x4_t v[W_VECTORS];
    f->group(p, g, v);
    for (int i = 0; i < W_VECTORS; i++) {
        float factor = h;
        if (f->has_min)
            v[i] = vfmaq_n_f32(vdupq_n_f32(-s->m[2 * g + i / 4]), v[i], s->d[2 * g + i / 4]);
        else if (f->sub)
            factor = h * s->d[2 * g + i / 4];
        sum[i] = vfmaq_n_f32(sum[i], v[i], factor);
    }
}

SIMD_INLINE void ax_block(const w_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                          const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc) {
    q_scales scales[AX_ROWS];
    for (int r = 0; r < n_rows && f->sub; r++) f->scales(p[r], &scales[r]);
#pragma GCC unroll 8
    for (int g = 0; g < f->groups; g++) {
        float32x4_t sum[W_VECTORS];
        float *to = acc + W_GROUP * g;
        for (int i = 0; i < W_VECTORS; i++) sum[i] = vld1q_f32(to + 4 * i);
        for (int r = 0; r < n_rows; r++) {
            const int lines = (f->block_bytes + AX_LINE - 1) / AX_LINE;
            for (int l = lines * g / f->groups; l < lines * (g + 1) / f->groups; l++)
                NEON_PREFETCH(next[r] + AX_LINE * l);
            ax_group_add(f, p[r], g, &scales[r], h[r], sum);
        }
        for (int i = 0; i < W_VECTORS; i++) vst1q_f32(to + 4 * i, sum[i]);
    }
}

#define DEFINE(type, format) AX_DEFINE(neon, format)
TIER_TYPES(DEFINE)
