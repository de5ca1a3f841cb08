/* headed_model.h: copies a model and adds layers for multi-token prediction. */
#ifndef TESTS_HEADED_MODEL_H
#define TESTS_HEADED_MODEL_H

#include <stdbool.h>

/* Writes the model of the file `from` to `to`, with all weights in F32, and adds n_heads (at most
 * HEADED_MAX) layers for multi-token prediction: copies of the last layer with attention,
 * whose nextn tensors are random. */
enum { HEADED_MAX = 8 };
typedef struct headed_options {
    int n_heads;
    bool unbiased; /* leaves out biases of Q, K and V */
    bool fused;    /* layers for multi-token prediction have one matrix for Q, K and V, and a dense
                      FFN instead of experts */
    bool short_lists; /* lists of layers have no items for these layers */
} headed_options;
void headed_write(const char *from, const char *to, const headed_options *o);

#endif
