/* sharp_model.h: models with random weights and sharp attention, whose logits depend on the order
 * of tokens, and the NMSE at which their recorded logits are met. */
#ifndef TESTS_SHARP_MODEL_H
#define TESTS_SHARP_MODEL_H

#include "golden_case.h"

/* Made in memory of ../more/NAME.gguf: norm weights are 1 + 2 w, matrices of attention 12 w. */
typedef struct sharp_model {
    char name[GOLDEN_NAME_BYTES];
    model *m;
    reference r;
    double gate;    /* NMSE with F32 caches */
    uint8_t *bytes; /* of the file */
    size_t n_bytes;
} sharp_model;

/* `folder` has the logits. False, with a line, for what is not supported. */
bool sharp_open(const char *folder, const char *name, sharp_model *out);
void sharp_close(sharp_model *s);

/* golden_each with the models of this folder. */
void sharp_each(int n_own, int n_shared, golden_visit *visit);

#endif
