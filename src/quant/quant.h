/* quant.h: block formats: what a tensor type is called, how large it is, and the scalar conversions
 * to and from float that define its meaning. Kernels live in src/cpu and src/gpu.
 *
 * Type numbers are GGUF's (ggml_type). Block layouts are public facts of the GGUF format; the
 * structs are in quant_blocks.h. */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant_formats.h"

typedef enum quant_type {
#define QUANT_NUMBER(type, name, number, ...) QUANT_##type = number,
    QUANT_COMPUTED(QUANT_NUMBER) QUANT_OPAQUE(QUANT_NUMBER)
#undef QUANT_NUMBER
        QUANT_TYPE_COUNT = 43
} quant_type;

/* One row per type. `dequantize` turns n elements (a multiple of block_elems) into float; exact up
 * to one float rounding per element. `quantize` is the reverse: rounds to the format's best
 * reasonable fit; `importance` [n] weights the squared error per element (NULL: all 1). Either is
 * NULL where the type is only known by size. */
typedef struct quant_traits {
    quant_type type;
    const char *name; /* lower case as on the command line: "q4_0", "q4_k", "f16" */
    int block_elems;  /* elements per block; 1 for plain types */
    int block_bytes;
    bool is_quantized; /* false for floats and integers */
    int file_type;     /* general.file_type of files whose matrices have this type; -1: none */
    void (*dequantize)(const void *src, float *dst, int64_t n);
    void (*quantize)(const float *src, void *dst, int64_t n, const float *importance);
} quant_traits;

/* NULL for numbers that are not in the table. */
const quant_traits *quant_find(uint32_t type);
/* By name, any case ("Q4_0"); NULL when unknown. */
const quant_traits *quant_find_name(const char *name);

/* Bytes of a row of n elements; false when n is not a multiple of the block or it overflows. */
bool quant_row_bytes(quant_type type, uint64_t n, size_t *out);

/* True when any value of the n elements at src dequantizes to NaN or infinity, as bad scales do;
 * scans scales only for quantized types. */
bool quant_has_nonfinite(quant_type type, const void *src, int64_t n);

typedef enum quant_fault {
    QUANT_SOUND,
    QUANT_BAD_SOURCE, /* it has NaN or infinity; nothing was written */
    QUANT_BAD_RESULT  /* finite numbers that the type's scales cannot hold */
} quant_fault;
/* traits->quantize, with both sides checked. */
quant_fault quant_quantize_checked(const quant_traits *traits, const float *src, void *dst,
                                   int64_t n, const float *importance);

/* IEEE half and bfloat16, round to nearest even, NaN and infinity preserved. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
static inline float quant_bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
uint16_t quant_f32_to_bf16(float f);

#endif
