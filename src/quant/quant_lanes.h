/* quant_lanes.h: eight floats at a time, for the quantizers. Each operation is that of the scalar
 * code, lane by lane, so that the results are the same on every CPU. Private to src/quant. */
#ifndef QUANT_QUANT_LANES_H
#define QUANT_QUANT_LANES_H

#ifdef QUANT_AVX2 /* quant_types.h */
#include <immintrin.h>
#else
#include <string.h>
#endif

enum { QUANT_LANES = 8 };

#ifdef QUANT_AVX2
typedef __m256 quant_lanes;

static inline quant_lanes lanes_load(const float *x) {
    return _mm256_loadu_ps(x);
}
static inline void lanes_store(float *x, quant_lanes a) {
    _mm256_storeu_ps(x, a);
}
static inline quant_lanes lanes_all(float x) {
    return _mm256_set1_ps(x);
}
static inline quant_lanes lanes_add(quant_lanes a, quant_lanes b) {
    return _mm256_add_ps(a, b);
}
static inline quant_lanes lanes_sub(quant_lanes a, quant_lanes b) {
    return _mm256_sub_ps(a, b);
}
static inline quant_lanes lanes_mul(quant_lanes a, quant_lanes b) {
    return _mm256_mul_ps(a, b);
}
static inline quant_lanes lanes_div(quant_lanes a, quant_lanes b) {
    return _mm256_div_ps(a, b);
}
/* a < b ? a : b, and a > b ? a : b, in this order where they are equal or NaN. */
static inline quant_lanes lanes_min(quant_lanes a, quant_lanes b) {
    return _mm256_min_ps(a, b);
}
static inline quant_lanes lanes_max(quant_lanes a, quant_lanes b) {
    return _mm256_max_ps(a, b);
}
#else
typedef struct quant_lanes {
    float v[QUANT_LANES];
} quant_lanes;

static inline quant_lanes lanes_load(const float *x) {
    quant_lanes a;
    memcpy(a.v, x, sizeof a.v);
    return a;
}
static inline void lanes_store(float *x, quant_lanes a) {
    memcpy(x, a.v, sizeof a.v);
}
static inline quant_lanes lanes_all(float x) {
    quant_lanes a;
    for (int l = 0; l < QUANT_LANES; l++) a.v[l] = x;
    return a;
}
#define LANES_DEFINE(name, formula)                                                                \
    static inline quant_lanes lanes_##name(quant_lanes x, quant_lanes y) {                         \
        for (int l = 0; l < QUANT_LANES; l++) {                                                    \
            const float a = x.v[l], b = y.v[l];                                                    \
            x.v[l] = formula;                                                                      \
        }                                                                                          \
        return x;                                                                                  \
    }
LANES_DEFINE(add, a + b)
LANES_DEFINE(sub, a - b)
LANES_DEFINE(mul, a *b)
LANES_DEFINE(div, a / b)
LANES_DEFINE(min, a < b ? a : b)
LANES_DEFINE(max, a > b ? a : b)
#undef LANES_DEFINE
#endif

/* Nearest integers within lo..hi, ties to even (quant_nearest). */
static inline quant_lanes lanes_nearest(quant_lanes x, float lo, float hi) {
    const quant_lanes shift = lanes_all(12582912.0f);
    x = lanes_min(lanes_all(hi), lanes_max(lanes_all(lo), x));
    return lanes_sub(lanes_add(x, shift), shift);
}

/* The lanes' sum, from the first to the last. */
static inline float lanes_sum(quant_lanes a) {
    float v[QUANT_LANES], sum = 0.0f;
    lanes_store(v, a);
    for (int l = 0; l < QUANT_LANES; l++) sum += v[l];
    return sum;
}

#endif
