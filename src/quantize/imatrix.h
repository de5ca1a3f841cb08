/* imatrix.h: importance matrices as files. For every matrix of a model, an importance matrix
 * records the magnitude of each input column's activations on a text. imatrix_collect.c and
 * llama.cpp write such files.
 *
 * Format: a GGUF file with general.type "imatrix". A matrix NAME has NAME.in_sum2, float32 [n_in,
 * n_matrices], sums of squares (a stack of experts has one row per expert), and NAME.counts,
 * float32 [1, n_matrices], the number of inputs. */
#ifndef QUANTIZE_IMATRIX_H
#define QUANTIZE_IMATRIX_H

#include "gguf.h"

#define IMATRIX_SUMS   ".in_sum2"
#define IMATRIX_COUNTS ".counts"

typedef struct imatrix {
    gguf_file *file;
} imatrix;

/* PI_ERR_FORMAT: the file is something else; also the errors of gguf_open. */
pi_status imatrix_open(const char *path, imatrix *out, pi_error *err);
void imatrix_close(imatrix *m); /* accepts a zeroed one */

/* Finds the weights of a matrix's columns, [n_matrices][n_in], where n_matrices is t->dims[2] *
 * t->dims[3]; NULL: the file has none. Sums serve as well as means, because quantizers only use
 * ratios. PI_ERR_FORMAT: sizes disagree. */
pi_status imatrix_find(const imatrix *m, const gguf_tensor *t, const float **out, pi_error *err);

/* Number of matrices, and of chunks of text (0: unknown). */
uint64_t imatrix_entries(const imatrix *m);
uint32_t imatrix_chunks(const imatrix *m);
/* The first text that was used; empty: unknown. */
gguf_string imatrix_dataset(const imatrix *m);

#endif
