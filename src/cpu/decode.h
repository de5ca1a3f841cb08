/* decode.h: a quantized row as integers with scales, in one form for all block formats. Private to
 * src/cpu.
 *
 * Element i of a group of 32 equals scale[i / 16] * q[i] - min[i / 16], exactly: a scale or minimum
 * is an FP16 number times a small integer, and this product fits into a float. Formats with one
 * scale per 32 elements return it twice; formats without minima return zeros. A format is one
 * function in decode.c. */
#ifndef CPU_DECODE_H
#define CPU_DECODE_H

#include <stdint.h>

#include "quant.h"

enum {
    DECODE_GROUP = 32, /* elements per call; equals CPU_ACT_GROUP */
    DECODE_HALF = 16   /* elements per scale and minimum */
};

typedef struct decode_group {
    int8_t q[DECODE_GROUP];
    float scale[2], min[2]; /* for elements 0..15 and 16..31 */
} decode_group;

/* Decodes elements 32 * group .. 32 * group + 31 of a row of this type. */
typedef void (*decode_fn)(const void *row, int64_t group, decode_group *out);

/* NULL: the type is not quantized, or has no decoder. */
decode_fn decode_find(quant_type type);

#endif
