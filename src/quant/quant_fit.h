/* quant_fit.h: scale searches for sub-blocks, shared by the quantizers. Private to src/quant.
 *
 * A search tries steps around the obvious one. For each step it chooses the integers, then the
 * scale (and offset) that fit these integers best by weighted least squares. The candidate with the
 * smallest error wins. Lengths n are multiples of 8, at most QUANT_FIT_MAX; x went through
 * quant_tame and w comes from quant_fit_weights. */
#ifndef QUANT_QUANT_FIT_H
#define QUANT_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "quant_lanes.h"

#ifdef QUANT_AVX2 /* quant_types.h */
#define quant_fit_weights   quant_fit_weights_avx2
#define quant_fit_affine    quant_fit_affine_avx2
#define quant_fit_scale     quant_fit_scale_avx2
#define quant_fit_table     quant_fit_table_avx2
#define quant_nearest_entry quant_nearest_entry_avx2
#define quant_nearest_e2m1  quant_nearest_e2m1_avx2
#define quant_round_scales  quant_round_scales_avx2
#endif

enum { QUANT_FIT_MAX = 32 };

/* Weights of a sub-block, scaled so that the largest is 1. Returns false with all weights 1 where
 * `importance` is NULL or has no positive finite number. */
bool quant_fit_weights(const float *importance, float *w, int n);

/* Finds scale >= 0 and min with x ~ scale * q - min, q in 0..top. The minimum stays at or above 0
 * unless `free_min`. */
void quant_fit_affine(const float *x, const float *w, int n, int top, bool free_min, float *scale,
                      float *min);

/* Scale with x ~ scale * q, q in -zero..zero-1. Its sign maps the extreme value to q = -zero, the
 * longer side. */
float quant_fit_scale(const float *x, const float *w, int n, int zero);

/* Scale with x ~ scale * table[q], for a table of 16 ascending values of both signs whose first
 * value has the largest magnitude. */
float quant_fit_table(const float *x, const float *w, int n, const int8_t table[16]);

/* Index of the table value nearest to x. */
uint8_t quant_nearest_entry(float x, const int8_t table[16]);

/* Index of the value in QUANT_E2M1_VALUES nearest to x; ties go to the smaller magnitude. */
uint8_t quant_nearest_e2m1(float x);

/* Writes signed scales as integers in -zero..zero-1 times a half, which it returns: the scale of
 * largest magnitude becomes -zero. */
uint16_t quant_round_scales(const float *scale, int n, int zero, int8_t *q);

/* Clamps; x is never NaN here. (fminf and fmaxf are calls for most compilers.) */
static inline float quant_clamp(float x, float lo, float hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* The smallest and the largest of n values, none of them NaN. */
static inline void quant_range(const float *x, int n, float *lo, float *hi) {
    float low[QUANT_LANES], high[QUANT_LANES];
    quant_lanes least = lanes_load(x), most = least;
    for (int i = QUANT_LANES; i < n; i += QUANT_LANES) {
        least = lanes_min(lanes_load(x + i), least);
        most = lanes_max(lanes_load(x + i), most);
    }
    lanes_store(low, least);
    lanes_store(high, most);
    *lo = low[0];
    *hi = high[0];
    for (int l = 1; l < QUANT_LANES; l++) {
        *lo = low[l] < *lo ? low[l] : *lo;
        *hi = high[l] > *hi ? high[l] : *hi;
    }
}

/* The value of largest magnitude, with its sign; the first of several. */
static inline float quant_extreme(const float *x, int n) {
    float lo, hi;
    quant_range(x, n, &lo, &hi);
    if (hi != -lo) return hi > -lo ? hi : lo;
    for (int i = 0; i < n && hi > 0.0f; i++)
        if (x[i] == hi || x[i] == lo) return x[i];
    return 0.0f;
}

#endif
