/* imatrix.h: importance matrices as files: for every matrix of a model, how much each input column
 * has carried on some text. Written by imatrix_collect.c and by llama.cpp.
 *
 * Form: a GGUF file with general.type "imatrix"; for a matrix NAME there are NAME.in_sum2, float32
 * [n_in, n_matrices] sums of squares (a stack of experts has one row of them per expert), and
 * NAME.counts, float32 [1, n_matrices], over how many inputs. */
#ifndef QUANTIZE_IMATRIX_H
#define QUANTIZE_IMATRIX_H

#include "gguf.h"

#define IMATRIX_SUMS   ".in_sum2"
#define IMATRIX_COUNTS ".counts"

typedef struct imatrix {
    gguf_file *file;
} imatrix;

/* PI_ERR_FORMAT when the file is something else; all errors of gguf_open. */
pi_status imatrix_open(const char *path, imatrix *out, pi_error *err);
void imatrix_close(imatrix *m); /* a zeroed one is fine */

/* Weights for the columns of a matrix, [n_matrices][n_in], where n_matrices is t->dims[2] *
 * t->dims[3]; NULL when the file has none for it. Sums are as good as means: quantizers look at
 * ratios only. PI_ERR_FORMAT when sizes disagree. */
pi_status imatrix_find(const imatrix *m, const gguf_tensor *t, const float **out, pi_error *err);

/* Matrices, and chunks of text (0 when the file does not say). */
uint64_t imatrix_entries(const imatrix *m);
uint32_t imatrix_chunks(const imatrix *m);
/* The first text that was used; empty when the file does not say. */
gguf_string imatrix_dataset(const imatrix *m);

#endif
