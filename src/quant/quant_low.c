/* quant_low.c: conversion of the formats of three bits and less to float (quant_low.h). */
#include "quant_low.h"

#include "quant_types.h"

enum { GROUP = 32 };

static float *store(const quant_group *g, float *dst) {
    int8_t q[GROUP];
    memcpy(q, g->q, sizeof q);
    for (int i = 0; i < GROUP; i++) dst[i] = g->scale[i / 16] * (float)q[i];
    return dst + GROUP;
}

#define DEQUANTIZE(type, name, ...)                                                                \
    void quant_dequantize_##name(const void *src, float *dst, int64_t n) {                         \
        const block_##name *block = src;                                                           \
        for (int64_t b = 0; b < n / name##_elems; b++, block++) {                                  \
            const float unit = name##_unit(block);                                                 \
            for (int g = 0; g < name##_elems / GROUP; g++) {                                       \
                quant_group group;                                                                 \
                name##_group(block, g, unit, &group);                                              \
                dst = store(&group, dst);                                                          \
            }                                                                                      \
        }                                                                                          \
    }
QUANT_LOW(DEQUANTIZE)
