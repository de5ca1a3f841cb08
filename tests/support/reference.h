/* reference.h: logits that were recorded elsewhere: token ids as text in one file, what follows
 * each of them as raw floats in another. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <stdint.h>

enum { REFERENCE_MAX_TOKENS = 4096 };

typedef struct reference {
    int32_t tokens[REFERENCE_MAX_TOKENS];
    int n_tokens;
    int n_ctx;     /* of the session that they were computed in; 0: n_tokens */
    float *logits; /* [n_tokens][n_vocab] */
} reference;

/* Fails the running test when the files are not there, or of another length. */
reference reference_read(const char *tokens_path, const char *logits_path, int n_vocab);
void reference_free(reference *r);

#endif
