/* safetensor.h: a tensor in a file of weights, and its data types. */
#ifndef CONVERT_SAFETENSOR_H
#define CONVERT_SAFETENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { SAFETENSORS_MAX_DIMS = 8 };

/* name in the file, bytes per element */
#define SAFETENSORS_DTYPES(X)                                                                      \
    X(BOOL, 1)                                                                                     \
    X(U8, 1)                                                                                       \
    X(I8, 1)                                                                                       \
    X(F8_E4M3, 1)                                                                                  \
    X(F8_E5M2, 1)                                                                                  \
    X(I16, 2)                                                                                      \
    X(U16, 2)                                                                                      \
    X(F16, 2)                                                                                      \
    X(BF16, 2)                                                                                     \
    X(I32, 4)                                                                                      \
    X(U32, 4)                                                                                      \
    X(F32, 4)                                                                                      \
    X(I64, 8)                                                                                      \
    X(U64, 8)                                                                                      \
    X(F64, 8)

typedef enum safetensors_dtype {
#define SAFETENSORS_ENUM(name, bytes) SAFETENSORS_##name,
    SAFETENSORS_DTYPES(SAFETENSORS_ENUM)
#undef SAFETENSORS_ENUM
        SAFETENSORS_DTYPE_COUNT
} safetensors_dtype;

typedef struct safetensor {
    const char *name; /* NUL-terminated */
    const char *file; /* path of the tensor's shard, for messages */
    safetensors_dtype dtype;
    int n_dims;                          /* 0: a scalar */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* the last dimension is contiguous */
    const uint8_t *data;                 /* [n_bytes], any alignment */
    size_t n_bytes;
} safetensor;

const char *safetensors_dtype_name(safetensors_dtype dtype); /* "BF16" */
size_t safetensors_dtype_bytes(safetensors_dtype dtype);     /* bytes of an element */

/* Receives a tensor of a file; t->name has n_name bytes and is not NUL-terminated. */
typedef pi_status (*safetensor_fn)(void *user, const safetensor *t, size_t n_name, pi_error *err);

#endif
