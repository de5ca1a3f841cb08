/* recurrent_model.h: small files of the architectures with recurrent layers, with seeded random
 * weights: every tensor that the architecture's row asks for, and a vocabulary (tiny_model.h). */
#ifndef TEST_RECURRENT_MODEL_H
#define TEST_RECURRENT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { RECURRENT_VOCAB = 288, RECURRENT_ARCHS = 8 };
extern const char *const recurrent_archs[RECURRENT_ARCHS];

/* Keys that are written instead of the usual numbers; 0: the usual ones. */
typedef struct recurrent_keys {
    uint32_t taps, inner, state, heads, groups, kv_heads;
    bool relu; /* the FFNs' activation */
} recurrent_keys;

/* Fails the running test when it cannot. */
void recurrent_write(const char *arch, const recurrent_keys *keys, const char *path);

#endif
