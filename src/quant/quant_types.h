/* quant_types.h: the conversions behind the traits table, one pair per type. Private to src/quant.
 * All of them take n as a multiple of the type's block and unaligned `src` of plain types. */
#ifndef QUANT_QUANT_TYPES_H
#define QUANT_QUANT_TYPES_H

#include <stdint.h>

#include "quant_formats.h"

/* Largest finite half; scales are held at or under it. */
#define QUANT_F16_MAX 65504.0f

#define QUANT_DECLARE(type, name, ...)                                                             \
    void quant_dequantize_##name(const void *src, float *dst, int64_t n);                          \
    void quant_quantize_##name(const float *src, void *dst, int64_t n, const float *importance);
QUANT_COMPUTED(QUANT_DECLARE)

/* What every quantizer makes of its input first: NaN counts as 0, and everything is held within
 * +-limit, so that no input leads to a scale that is not finite. */
static inline float quant_tame(float x, float limit) {
    if (!(x == x)) return 0.0f;
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* Nearest integer as a float, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction
 * bits in the sum. Unlike lrintf this vectorizes everywhere. */
static inline float quant_nearest(float x) {
    const float shift = 12582912.0f;
    return (x + shift) - shift;
}

#endif
