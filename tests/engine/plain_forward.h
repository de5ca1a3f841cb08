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

/* What heads that draft read: the normed stream after the last layer [n_tokens][n_embd], or
 * (eagle3) the stream before three layers [n_tokens][3 * n_embd]. */
void plain_reads(const tiny_model *t, const char *path, const int *layers, const int32_t *tokens,
                 int n_tokens, double *out);
/* Logits of a head [n_tokens][n_vocab of the target], and the features that it computes for each
 * token. The head is layer `number` of t->draft.n, or the file of an EAGLE-3 head. target: the file
 * with embeddings and output if `path` lacks them. features: those of the token before each token;
 * features[0] may be another head's. */
void plain_draft(const tiny_model *t, const char *path, const char *target, int number,
                 const double *features, const int32_t *tokens, int n_tokens, double *logits,
                 double *next);
/* EAGLE-3: features from what plain_reads gives, for each token. */
void plain_fuse(const tiny_model *t, const char *path, const double *reads, int n_tokens,
                double *features);

/* Maximum NMSE of an engine with these kernels: from the order of sums, and from quantized
 * activations for weights of this type. */
double plain_gate(const tiny_model *t, pi_kernels kernels);

#endif
