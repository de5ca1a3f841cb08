/* sharp_model.h: models with random weights and sharp attention, whose logits depend on the order
 * of tokens, and the largest NMSE allowed against the recorded logits. */
#ifndef TESTS_SHARP_MODEL_H
#define TESTS_SHARP_MODEL_H

#include "golden_case.h"

/* Made in memory from ../more/NAME.gguf: norm weights are 1 + 2 w, attention matrices 12 w. */
typedef struct sharp_model {
    char name[GOLDEN_NAME_BYTES];
    model *m;
    reference r;
    double gate;    /* NMSE with F32 caches */
    uint8_t *bytes; /* contents of the file */
    size_t n_bytes;
} sharp_model;

/* `folder` has the logits. Prints a line and returns false for a model that is not supported. */
bool sharp_open(const char *folder, const char *name, sharp_model *out);
void sharp_close(sharp_model *s);

/* Calls golden_each with the models of this folder. */
void sharp_each(int n_own, int n_shared, golden_visit *visit);

#endif
