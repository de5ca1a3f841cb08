/* headed_model.h: copies a model and adds layers for multi-token prediction. */
#ifndef TESTS_HEADED_MODEL_H
#define TESTS_HEADED_MODEL_H

/* Writes the model of the file `from` to `to`, with all weights in F32, and adds n_heads (at most
 * HEADED_MAX) layers for multi-token prediction: copies of the last layer with attention,
 * whose nextn tensors are random. */
enum { HEADED_MAX = 8 };
void headed_write(const char *from, const char *to, int n_heads);

#endif
