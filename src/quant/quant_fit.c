/* quant_fit.c: see quant_fit.h. Pure functions; the results are the same on every machine. */
#include "quant_fit.h"

#include <math.h>
#include <stddef.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_types.h"

enum {
    CANDIDATES = 21,      /* steps of 0.1 quantum from 1 below to 1 above the full range */
    TABLE_CANDIDATES = 11 /* per end of a table */
};

/* Relative step between candidates for a table's scale: a sixth of the distance between its outer
 * entries. Half the step improves the error by less than a thousandth. */
#define TABLE_STEP 0.03f

/* Below this magnitude every scale rounds to the half 0, and 1 / x could overflow. */
#define NEGLIGIBLE 0x1p-40f

/* Sums over a sub-block of w q, w q q and w x q. */
typedef struct fit_sums {
    float q, qq, xq;
} fit_sums;

static fit_sums sums_of(const float *x, const float *w, const float *q, int n) {
    quant_lanes sq = lanes_all(0.0f), sqq = sq, sxq = sq;
    for (int i = 0; i < n; i += QUANT_LANES) {
        const quant_lanes at = lanes_load(q + i), wq = lanes_mul(lanes_load(w + i), at);
        sq = lanes_add(sq, wq);
        sqq = lanes_add(sqq, lanes_mul(wq, at));
        sxq = lanes_add(sxq, lanes_mul(wq, lanes_load(x + i)));
    }
    return (fit_sums){lanes_sum(sq), lanes_sum(sqq), lanes_sum(sxq)};
}

bool quant_fit_weights(const float *importance, float *w, int n) {
    float top = 0.0f;
    for (int i = 0; i < n; i++) {
        bool says = importance != NULL && importance[i] > 0.0f && isfinite(importance[i]);
        w[i] = says ? importance[i] : 0.0f;
        top = w[i] > top ? w[i] : top;
    }
    for (int i = 0; i < n; i++) w[i] = top > 0.0f ? w[i] / top : 1.0f;
    return top > 0.0f;
}

void quant_fit_affine(const float *x, const float *w, int n, int top, bool free_min, float *scale,
                      float *min) {
    float lo, hi;
    quant_range(x, n, &lo, &hi);
    if (!free_min && lo > 0.0f) lo = 0.0f;
    float ones[QUANT_FIT_MAX];
    for (int i = 0; i < n; i++) ones[i] = 1.0f;
    const fit_sums all = sums_of(x, w, ones, n);
    const float sw = all.q, swx = all.xq;
    *scale = 0.0f;
    *min = -lo;
    if (hi - lo < NEGLIGIBLE) return;
    double best = INFINITY;
    for (int c = 0; c < CANDIDATES; c++) {
        float inverse = ((float)top + 0.1f * (float)(c - CANDIDATES / 2)) / (hi - lo);
        float q[QUANT_FIT_MAX];
        for (int i = 0; i < n; i += QUANT_LANES) {
            const quant_lanes at = lanes_sub(lanes_load(x + i), lanes_all(lo));
            const quant_lanes scaled = lanes_mul(at, lanes_all(inverse));
            lanes_store(q + i, lanes_nearest(scaled, 0.0f, (float)top));
        }
        fit_sums s = sums_of(x, w, q, n);
        /* Least squares for x ~ a q + b. Where b would be positive and must not be, b = 0 is
         * best. */
        double det = (double)sw * (double)s.qq - (double)s.q * (double)s.q;
        if (!(det > 0.0)) continue;
        double a = ((double)sw * (double)s.xq - (double)swx * (double)s.q) / det;
        double b = ((double)s.qq * (double)swx - (double)s.q * (double)s.xq) / det;
        if (b > 0.0 && !free_min) {
            b = 0.0;
            a = (double)s.xq / (double)s.qq;
        }
        if (!(a > 0.0)) continue;
        /* The squared error, without the constant sum of w x x. */
        double error = a * (a * (double)s.qq - 2.0 * (double)s.xq) +
                       b * (b * (double)sw - 2.0 * (double)swx + 2.0 * a * (double)s.q);
        if (error < best) {
            best = error;
            *scale = (float)a;
            *min = (float)-b;
        }
    }
    if (best == (double)INFINITY) *scale = (hi - lo) / (float)top;
}

/* Keeps the scale with the most weighted energy, (sum w x q)^2 / (sum w q q). */
static void keep_better(const float *x, const float *w, const float *q, int n, double *best,
                        float *scale) {
    const fit_sums s = sums_of(x, w, q, n);
    if (!(s.qq > 0.0f)) return;
    const double kept = (double)s.xq * (double)s.xq / (double)s.qq;
    if (!(kept > *best)) return;
    *best = kept;
    *scale = s.xq / s.qq;
}

float quant_fit_scale(const float *x, const float *w, int n, int zero) {
    const float extreme = quant_extreme(x, n);
    if (fabsf(extreme) < NEGLIGIBLE) return 0.0f;
    float scale = extreme / (float)-zero;
    double best = 0.0;
    for (int c = 0; c < CANDIDATES; c++) {
        float levels = (float)zero + 0.1f * (float)(c - CANDIDATES / 2);
        float inverse = -levels / extreme;
        float q[QUANT_FIT_MAX];
        for (int i = 0; i < n; i += QUANT_LANES) {
            const quant_lanes scaled = lanes_mul(lanes_load(x + i), lanes_all(inverse));
            lanes_store(q + i, lanes_nearest(scaled, (float)-zero, (float)(zero - 1)));
        }
        keep_better(x, w, q, n, &best, &scale);
    }
    return scale;
}

uint8_t quant_nearest_entry(float x, const int8_t table[16]) {
    int index = 0;
    for (int k = 0; k < 15; k++) index += x > 0.5f * (float)(table[k] + table[k + 1]);
    return (uint8_t)index;
}

/* q[i] = the table value nearest to x[i] * inverse, computed as a sum of steps, which vectorizes
 * over i. */
static void nearest_values(const float *x, int n, float inverse, const int8_t table[16], float *q) {
    for (int i = 0; i < n; i++) q[i] = (float)table[0];
    for (int k = 0; k < 15; k++) {
        float middle = 0.5f * (float)(table[k] + table[k + 1]);
        float step = (float)(table[k + 1] - table[k]);
        for (int i = 0; i < n; i++) q[i] += x[i] * inverse > middle ? step : 0.0f;
    }
}

/* The extreme value may map to either end of the table; both are tried, with the sign of the scale
 * that this implies. */
float quant_fit_table(const float *x, const float *w, int n, const int8_t table[16]) {
    const float extreme = quant_extreme(x, n);
    if (fabsf(extreme) < NEGLIGIBLE) return 0.0f;
    float scale = extreme / (float)table[0];
    double best = 0.0;
    for (int c = 0; c < 2 * TABLE_CANDIDATES; c++) {
        float end = (float)table[c < TABLE_CANDIDATES ? 0 : 15];
        float off = TABLE_STEP * (float)(c % TABLE_CANDIDATES - TABLE_CANDIDATES / 2);
        float inverse = end * (1.0f + off) / extreme;
        float q[QUANT_FIT_MAX];
        nearest_values(x, n, inverse, table, q);
        keep_better(x, w, q, n, &best, &scale);
    }
    return scale;
}

uint8_t quant_nearest_e2m1(float x) {
    enum { TOP = 7 }; /* index of the largest value */
    static const int8_t values[16] = {QUANT_E2M1_VALUES};
    int index = 0;
    for (int k = 0; k < TOP; k++) index += fabsf(x) > 0.5f * (float)(values[k] + values[k + 1]);
    return (uint8_t)(x < 0.0f ? index | 8 : index);
}

uint16_t quant_round_scales(const float *scale, int n, int zero, int8_t *q) {
    const float longest = quant_extreme(scale, n);
    uint16_t h = quant_f32_to_f16(quant_tame(longest / (float)-zero, QUANT_F16_MAX));
    float d = quant_f16_to_f32(h);
    for (int j = 0; j < n; j++) {
        float sc = d != 0.0f ? scale[j] / d : 0.0f;
        q[j] = (int8_t)quant_nearest(quant_clamp(sc, (float)-zero, (float)(zero - 1)));
    }
    return h;
}
