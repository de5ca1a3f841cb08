/* tier_floats.h: rows of every type as floats: see tier_weights.h. A template: include the tier's
 * quants header first. */
#ifndef CPU_TIER_FLOATS_H
#define CPU_TIER_FLOATS_H

#include <string.h>

#include "tier_weights.h"

/* Index of the scale of vector i of a step. */
SIMD_INLINE int w_index(const q_format *f, int step, int i) {
    return W_STEP / f->sub * step + VF_N * i / f->sub;
}

/* Loads the vectors of step `step`; scales are used only for types with minima. */
SIMD_INLINE void w_step(const q_format *f, const uint8_t *chunk, int step, const w_scales *s,
                        vf v[W_VECTORS]) {
    if (f->floats != NULL) {
        f->floats(chunk, step, s, v);
        return;
    }
    q_widen_step(f, chunk, step, v);
    for (int i = 0; i < W_VECTORS && f->has_min; i++) v[i] = w_apply(v[i], s, w_index(f, step, i));
}

/* The factor of vector i of a step whose vectors are multiplied with h: scales already contain
 * h. */
SIMD_INLINE float w_factor(const q_format *f, const w_scales *s, int step, int i, float h) {
    return f->sub && !f->has_min ? s->d[w_index(f, step, i)] : h;
}

/* The weights of a step of a chunk whose scales were stored with h = 1. */
SIMD_INLINE void w_weights(const q_format *f, const uint8_t *chunk, int step, const w_scales *s,
                           vf v[W_VECTORS]) {
    w_step(f, chunk, step, s, v);
    for (int i = 0; i < W_VECTORS && f->sub && !f->has_min; i++)
        v[i] = vf_mul(v[i], vf_set1(w_factor(f, s, step, i, 1.0f)));
}

/* The chunk; when only n of its elements exist, a copy [W_BYTES_MAX] padded with zeros. */
SIMD_INLINE const uint8_t *w_padded(const q_format *f, const uint8_t *chunk, int64_t n,
                                    uint8_t *copy) {
    if (n >= Q_CHUNK) return chunk;
    memset(copy, 0, q_bytes(f, Q_CHUNK));
    memcpy(copy, chunk, q_bytes(f, n));
    return copy;
}

/* Stores the scales of a chunk; for types without minima, times h. They are read back one by one: a
 * load broadcasts at no cost, while compilers would shuffle them out of a register, and shuffles
 * already limit unpacking. */
SIMD_INLINE void w_store_scales(const q_format *f, const uint8_t *chunk, float h, w_scales *out) {
    if (!f->sub) return;
    q_scales s;
    q_chunk_scales(f, chunk, &s);
    if (f->floats_unit != 0.0f) h *= f->floats_unit;
    for (int i = 0; i < 32 / f->sub; i++) {
        vf_store(out->d + VF_N * i, f->has_min ? s.d[i] : vf_mul(s.d[i], vf_set1(h)));
        if (f->has_min) vf_store(out->m + VF_N * i, s.m[i]);
    }
    __asm__ volatile("" : : "r"(out) : "memory");
}

/* ---- plain types ---------------------------------------------------------------------------- */

#define W_PLAIN(name, bytes, load)                                                                 \
    SIMD_INLINE void name##_floats(const uint8_t *chunk, int step, const w_scales *s,              \
                                   vf v[W_VECTORS]) {                                              \
        (void)s;                                                                                   \
        for (int i = 0; i < W_VECTORS; i++)                                                        \
            v[i] = load((const void *)(chunk + bytes * (W_STEP * step + VF_N * i)));               \
    }                                                                                              \
    static const q_format name##_weights = {Q_CHUNK_BYTES(bytes), .floats = name##_floats};
SIMD_INLINE vf w_load_f32(const void *p) { /* at any address */
    return vf_of(vi_load(p));
}
W_PLAIN(f32, 4, w_load_f32)
W_PLAIN(f16, 2, vf_load_f16)
W_PLAIN(bf16, 2, vf_load_bf16)

#endif
