/* safetensor.c: the table of data types. */
#include "safetensor.h"

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[] = {
#define SAFETENSORS_ROW(name, bytes) {#name, bytes},
    SAFETENSORS_DTYPES(SAFETENSORS_ROW)
#undef SAFETENSORS_ROW
};

const char *safetensors_dtype_name(safetensors_dtype dtype) {
    return (unsigned)dtype < SAFETENSORS_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

size_t safetensors_dtype_bytes(safetensors_dtype dtype) {
    return dtypes[dtype].n_bytes;
}
