/* mirostat.h: keeps the surprise of the text near a target by steering the cut. Basu et al. 2021,
 * Mirostat (https://arxiv.org/abs/2007.14966); surprise is in bits. Private to src/sample. */
#ifndef SAMPLE_MIROSTAT_H
#define SAMPLE_MIROSTAT_H

#include "candidates.h"

typedef struct mirostat {
    int32_t version; /* 1 or 2 */
    int32_t n_vocab;
    double tau, eta; /* wanted surprise; rate of learning */
    double mu;       /* greatest surprise let through now; 2 tau at first */
} mirostat;

/* Cuts, draws, learns. c->n >= 1. Returns the index of the drawn item. */
int32_t mirostat_draw(mirostat *m, candidates *c, rng *random);

#endif
