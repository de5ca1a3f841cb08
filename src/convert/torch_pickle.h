/* torch_pickle.h: the pickle in a torch_zip.h archive. Private to torch_zip.c and
 * torch_pickle.c. */
#ifndef CONVERT_TORCH_PICKLE_H
#define CONVERT_TORCH_PICKLE_H

#include "safetensor.h"

/* A text within the pickle. */
typedef struct pickle_text {
    const char *data; /* not NUL-terminated */
    size_t n;
} pickle_text;

/* Returns the bytes of the storage `key`; NULL: absent. */
typedef const uint8_t *(*torch_storage_fn)(void *user, pickle_text key, size_t *n_bytes);

typedef struct torch_pickle_reader {
    const char *file;
    torch_storage_fn storage;
    safetensor_fn tensor;
    void *storage_user, *tensor_user;
} torch_pickle_reader;

pi_status torch_pickle_parse(const uint8_t *bytes, size_t n_bytes, const torch_pickle_reader *r,
                             pi_error *err);

#endif
