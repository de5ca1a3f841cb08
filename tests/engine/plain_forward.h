/* plain_forward.h: an independent forward pass of a described model, in double precision and
 * without optimization: the reference for the engine. It shares only the file reader and the
 * conversions of weight types with the engine. */
#ifndef TEST_PLAIN_FORWARD_H
#define TEST_PLAIN_FORWARD_H

#include <stdint.h>

#include "powerinfer.h"
#include "tiny_model.h"

typedef enum plain_mode {
    PLAIN_DENSE,
    PLAIN_PREDICT,  /* neurons whose score is below the file's threshold are left out */
    PLAIN_THRESHOLD /* activations of at most t->sparse.cut are left out */
} plain_mode;

/* Logits after every token of one sequence, [n_tokens][n_vocab]. */
void plain_forward(const tiny_model *t, const char *path, plain_mode mode, const int32_t *tokens,
                   int n_tokens, double *logits);

/* Maximum NMSE of an engine with these kernels: from the order of sums, and from quantized
 * activations for weights of this type. */
double plain_gate(const tiny_model *t, pi_kernels kernels);

#endif
