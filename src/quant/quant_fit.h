/* quant_fit.h: searches for the scales of a sub-block, shared by the quantizers. Private to
 * src/quant.
 *
 * Candidates for the step are tried around the obvious one; for each the integers are chosen, then
 * the scale (and offset) that fit those integers best in the weighted least-squares sense, and the
 * candidate with the smallest error wins. Lengths n are multiples of 8, at most QUANT_FIT_MAX;
 * x is tame (quant_tame) and w comes from quant_fit_weights. */
#ifndef QUANT_QUANT_FIT_H
#define QUANT_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum { QUANT_FIT_MAX = 32 };

/* Weights of a sub-block, scaled so that the largest is 1; all 1, and false, where `importance` is
 * NULL or says nothing (no positive finite number). */
bool quant_fit_weights(const float *importance, float *w, int n);

/* Scale >= 0 and minimum with x ~ scale * q - min, q in 0..top. The minimum is held at or above 0
 * unless it is `free`. */
void quant_fit_affine(const float *x, const float *w, int n, int top, bool free_min, float *scale,
                      float *min);

/* Scale with x ~ scale * q, q in -zero..zero-1. Its sign is chosen so that the extreme value meets
 * q = -zero, the longer side. */
float quant_fit_scale(const float *x, const float *w, int n, int zero);

/* Scale with x ~ scale * table[q], for a table of 16 ascending values of both signs whose first one
 * is the longest. */
float quant_fit_table(const float *x, const float *w, int n, const int8_t table[16]);

/* The entry of the table nearest to x. */
uint8_t quant_nearest_entry(float x, const int8_t table[16]);

/* The entry of QUANT_E2M1_VALUES nearest to x; ties go to the smaller magnitude. */
uint8_t quant_nearest_e2m1(float x);

/* Signed scales as integers in -zero..zero-1 times a half, which is returned: the longest becomes
 * -zero. */
uint16_t quant_round_scales(const float *scale, int n, int zero, int8_t *q);

/* Clamps; x is never NaN here. */
static inline float quant_clamp(float x, float lo, float hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

#endif
