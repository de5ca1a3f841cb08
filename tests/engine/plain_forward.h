/* plain_forward.h: the forward pass of a described model once more, in double precision and with
 * nothing clever: what the engine is compared with. It shares the file reader and the conversions
 * of weight types with the engine, and nothing else. */
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

/* NMSE that an engine with these kernels may be away from it: what the order of sums gives, and
 * how vectors are encoded for weights of this type. */
double plain_gate(const tiny_model *t, pi_kernels kernels);

#endif
