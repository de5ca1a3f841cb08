/* reference.h: logits that other programs recorded: one file has token ids as text, another the
 * logits after each token as raw floats. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <stdint.h>

enum { REFERENCE_MAX_TOKENS = 4096 };

typedef struct reference {
    int32_t tokens[REFERENCE_MAX_TOKENS];
    int n_tokens;
    int n_ctx;     /* context of the recording session; 0: n_tokens */
    float *logits; /* [n_tokens][n_vocab] */
} reference;

/* Fails the running test if a file is missing or has another length. */
reference reference_read(const char *tokens_path, const char *logits_path, int n_vocab);
void reference_free(reference *r);

#endif
