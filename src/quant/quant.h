/* quant.h: tensor types: their names, sizes, and the scalar conversions to and from float that
 * define their meaning. Kernels are in src/cpu and src/gpu.
 *
 * Type numbers are those of GGUF (ggml_type). Block layouts are public facts of the GGUF format;
 * the structs are in quant_blocks.h. */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant_float.h"
#include "quant_formats.h"

typedef enum quant_type {
#define QUANT_NUMBER(type, name, number, ...) QUANT_##type = number,
    QUANT_COMPUTED(QUANT_NUMBER) QUANT_OPAQUE(QUANT_NUMBER)
#undef QUANT_NUMBER
        QUANT_TYPE_COUNT = 43
} quant_type;

/* One row per type. `dequantize` converts n elements (a multiple of block_elems) to float, exact up
 * to one float rounding per element. `quantize` converts back with a good fit of the format;
 * `importance` [n] weights the squared error per element (NULL: all 1). Both are NULL where the
 * type is known by size only. */
typedef struct quant_traits {
    quant_type type;
    const char *name; /* lower case, as in the program's options: "q4_0", "q4_k", "f16" */
    int block_elems;  /* elements per block; 1 for plain types */
    int block_bytes;
    bool is_quantized; /* false for floats and integers */
    int file_type;     /* general.file_type of files with matrices of this type; -1: none */
    void (*dequantize)(const void *src, float *dst, int64_t n);
    void (*quantize)(const float *src, void *dst, int64_t n, const float *importance);
} quant_traits;

/* NULL: the number is not in the table. */
const quant_traits *quant_find(uint32_t type);
/* Finds a type by name, ignoring case ("Q4_0"); NULL: unknown. */
const quant_traits *quant_find_name(const char *name);

/* Bytes of a row of n elements; false: n is not a multiple of block_elems, or the size
 * overflows. */
bool quant_row_bytes(quant_type type, uint64_t n, size_t *out);

/* Whether any of the n elements at src dequantizes to NaN or infinity, as with bad scales. Scans
 * only the scales of quantized types. */
bool quant_has_nonfinite(quant_type type, const void *src, int64_t n);

typedef enum quant_fault {
    QUANT_SOUND,
    QUANT_BAD_SOURCE, /* NaN or infinity in the source; nothing was written */
    QUANT_BAD_RESULT  /* the source is finite, but the type's scales cannot represent it */
} quant_fault;
/* Runs traits->quantize and checks source and result. */
quant_fault quant_quantize_checked(const quant_traits *traits, const float *src, void *dst,
                                   int64_t n, const float *importance);

#endif
