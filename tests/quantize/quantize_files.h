/* quantize_files.h: writes GGUF files with any tensors, for tests that need no working model. Each
 * failure fails the running test. */
#ifndef TEST_QUANTIZE_FILES_H
#define TEST_QUANTIZE_FILES_H

#include "gguf.h"
#include "gguf_writer.h"
#include "powerinfer_tools.h"

/* A tensor of the file. */
typedef struct made_tensor {
    const char *name;
    quant_type type;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
} made_tensor;

/* Writes keys first, then all tensors, then their data. The values are normally distributed, scaled
 * so that columns differ by up to a factor of e^2, in each tensor's type. keys may be NULL. */
void made_write(const char *path, const made_tensor *tensors, int n, uint64_t seed,
                void (*keys)(gguf_writer *w));

gguf_file *made_open(const char *path);
const gguf_tensor *made_find(const gguf_file *f, const char *name);
/* Returns all values as floats; mem_free(). */
float *made_floats(const gguf_tensor *t);

/* Writes an importance matrix for these tensors of a file: sums that differ by up to four orders of
 * magnitude, one row per expert. */
void made_imatrix(const char *path, const char *model_path, const char *const *names, int n);

/* Fails unless both files have the same bytes. */
void assert_same_file(const char *a, const char *b);
bool made_exists(const char *path);

#endif
