/* mirostat.h: keeps the surprisal of the text near a target by adapting the truncation. Basu et al.
 * 2021, Mirostat (https://arxiv.org/abs/2007.14966); surprisal is in bits. Private to src/sample.
 */
#ifndef SAMPLE_MIROSTAT_H
#define SAMPLE_MIROSTAT_H

#include "candidates.h"

typedef struct mirostat {
    int32_t version; /* 1 or 2 */
    int32_t n_vocab;
    double tau, eta; /* target surprisal; learning rate */
    double mu;       /* current maximum surprisal; 2 tau at first */
} mirostat;

/* Truncates, samples, updates mu. c->n >= 1. Returns the index of the drawn item. */
int32_t mirostat_draw(mirostat *m, candidates *c, rng *random);

#endif
