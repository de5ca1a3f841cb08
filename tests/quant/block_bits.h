/* block_bits.h: reads bit fields of blocks, for the second formulations of the formats. */
#ifndef TEST_BLOCK_BITS_H
#define TEST_BLOCK_BITS_H

#include <stdint.h>

#include "quant.h"

static inline double half_at(const uint8_t *p) {
    return (double)quant_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Bits [bit, bit + n) of a little-endian byte string. */
static inline int bit_field(const uint8_t *p, int bit, int n) {
    int value = 0;
    for (int i = 0; i < n; i++) value |= (p[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
    return value;
}

#endif
