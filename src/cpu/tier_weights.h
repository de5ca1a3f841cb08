/* tier_weights.h: rows of every type as floats, for kernels that need weights in element order:
 * sums of rows (tier_axpy.h) and products over neurons (tier_matmul_t.h). Included by each tier's
 * quants header, before its q_format; tier_floats.h has the other half.
 *
 * A row is chunks of Q_CHUNK elements in W_STEPS steps of W_VECTORS vectors v. Without minima the
 * vectors are integers, after subtraction of the offset, and the weights are d * v; callers first
 * multiply d by another factor. With minima the vectors are the weights d * q - m. Both round
 * once. */
#ifndef CPU_TIER_WEIGHTS_H
#define CPU_TIER_WEIGHTS_H

#include "simd.h"

enum {
    W_VECTORS = 4,             /* vectors of a step */
    W_STEP = W_VECTORS * VF_N, /* elements */
    W_STEPS = Q_CHUNK / W_STEP,
    W_BYTES_MAX = Q_CHUNK * (int)sizeof(float) /* bytes of a chunk: F32, the widest */
};

/* The scales of a chunk, stored: one per 32 elements or per 16. */
typedef struct w_scales {
    _Alignas(64) float d[Q_CHUNK / 16], m[Q_CHUNK / 16];
} w_scales;

/* The weights of integers (or of a table of them) that share scale and minimum i. */
SIMD_INLINE vf w_apply(vf v, const w_scales *s, int i) {
    return vf_fms(v, vf_set1(s->d[i]), vf_set1(s->m[i]));
}

#endif
