/* quant_types.h: the conversions of the traits table, one pair per type. Private to src/quant. All
 * take n as a multiple of the type's block and an unaligned `src` for plain types.
 *
 * Files of the most common types are compiled twice on x86: for every CPU, and with QUANT_AVX2 for
 * CPUs with AVX2, where the names end in _avx2 (CMakeLists.txt). Both give the same bits: the order
 * of operations is fixed, and multiply-adds are not fused. */
#ifndef QUANT_QUANT_TYPES_H
#define QUANT_QUANT_TYPES_H

#include <stdint.h>

#include "quant_formats.h"

/* Largest finite half; scales are clamped to it. */
#define QUANT_F16_MAX 65504.0f

#define QUANT_DECLARE(type, name, ...)                                                             \
    void quant_dequantize_##name(const void *src, float *dst, int64_t n);                          \
    void quant_quantize_##name(const float *src, void *dst, int64_t n, const float *importance);
#define QUANT_DECLARE_AVX2(type, name, ...) QUANT_DECLARE(type, name##_avx2, )
QUANT_COMPUTED(QUANT_DECLARE)
QUANT_PLAIN(QUANT_DECLARE_AVX2)
QUANT_BLOCKS(QUANT_DECLARE_AVX2)

#ifdef QUANT_AVX2
#define QUANT_FOR(function) function##_avx2
#else
#define QUANT_FOR(function) function
#endif

/* Every quantizer applies this to its input first: NaN becomes 0 and values are clamped to +-limit,
 * so that no input leads to a scale that is not finite. */
static inline float quant_tame(float x, float limit) {
    if (!(x == x)) return 0.0f;
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* Nearest integer as a float, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction
 * bits in the sum. Unlike lrintf this vectorizes on every CPU. */
static inline float quant_nearest(float x) {
    const float shift = 12582912.0f;
    return (x + shift) - shift;
}

#endif
