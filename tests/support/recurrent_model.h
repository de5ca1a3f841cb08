/* recurrent_model.h: small files of architectures with recurrent layers, with seeded random
 * weights: every tensor that the architecture's row requires, and a vocabulary (tiny_model.h). */
#ifndef TEST_RECURRENT_MODEL_H
#define TEST_RECURRENT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { RECURRENT_VOCAB = 288, RECURRENT_ARCHS = 16 };
extern const char *const recurrent_archs[RECURRENT_ARCHS];

/* Values of keys; 0: the default. */
typedef struct recurrent_keys {
    uint32_t taps, inner, state, heads, groups, kv_heads;
    bool relu; /* the FFNs use ReLU */
} recurrent_keys;

/* Writes the file; fails the running test on errors. */
void recurrent_write(const char *arch, const recurrent_keys *keys, const char *path);

#endif
