/* quantize_files.h: GGUF files with arbitrary tensors, for tests that do not need a working model.
 * Every failure fails the running test. */
#ifndef TEST_QUANTIZE_FILES_H
#define TEST_QUANTIZE_FILES_H

#include "gguf.h"
#include "gguf_writer.h"
#include "powerinfer_tools.h"

/* A file being written: keys first, then all tensors, then their data. */
typedef struct made_tensor {
    const char *name;
    quant_type type;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
} made_tensor;

/* Normally distributed values, scaled so that columns differ by up to a factor of e^2; converted to
 * each tensor's type. keys may be NULL. */
void made_write(const char *path, const made_tensor *tensors, int n, uint64_t seed,
                void (*keys)(gguf_writer *w));

gguf_file *made_open(const char *path);
const gguf_tensor *made_find(const gguf_file *f, const char *name);
/* All values as floats; free with mem_free. */
float *made_floats(const gguf_tensor *t);

/* An importance matrix for these tensors of a file: sums that differ by up to four orders of
 * magnitude, one row per expert. */
void made_imatrix(const char *path, const char *model_path, const char *const *names, int n);

/* Both files have the same bytes. */
void assert_same_file(const char *a, const char *b);
bool made_exists(const char *path);

#endif
