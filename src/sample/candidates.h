/* candidates.h: the candidate tokens and the filters on them. Private to src/sample.
 *
 * Invariants, from candidates_collect on: at least one item (unless there was none at the start),
 * and no logit is NaN or infinite, so that differences of logits, taken in double, are finite.
 * Every filter keeps at least one item. */
#ifndef SAMPLE_CANDIDATES_H
#define SAMPLE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"

typedef struct candidate {
    float logit;
    int32_t id;
    float key; /* the heap's order: the logit, or how typical the token is */
} candidate;

typedef struct candidates {
    candidate *items; /* [room for n_vocab] */
    int32_t n;
    bool sorted; /* best first */
} candidates;

/* The k best of scores[n_vocab] with nonzero probability, best first; all of them, in the order of
 * ids, when k is 0. NaN counts as -inf, +inf as FLT_MAX. Ties go to the lower id. */
void candidates_collect(candidates *c, const float *scores, int32_t n_vocab, int32_t k);
/* Copies logits to scores[n_vocab], -inf for ids that are absent; copies them back. */
void candidates_to_scores(const candidates *c, float *scores, int32_t n_vocab);
void candidates_from_scores(candidates *c, const float *scores);
/* Moves the `wanted` best items to the front, best first; keeps all items. */
void candidates_sort(candidates *c, int32_t wanted);
float candidates_best(const candidates *c); /* the highest logit; n >= 1 */

/* Filters; n >= 1 before and after. */
void candidates_typical(candidates *c, float p);
void candidates_top_p(candidates *c, float p);
void candidates_min_p(candidates *c, float min_p);
void candidates_xtc(candidates *c, float threshold);
void candidates_top_k(candidates *c, int32_t k); /* k >= 1 */
void candidates_top_n_sigma(candidates *c, float n);
void candidates_keep_best(candidates *c);

/* logit = (logit - best) / temp; temp > 0. */
void candidates_temperature(candidates *c, double temp);
/* Entropy of the distribution in nats, 0..log(n). */
double candidates_entropy(const candidates *c);

/* Draws an item by its probability, stores that in *probability, returns the item's index. Takes
 * exactly one number from `random`. */
int32_t candidates_draw(candidates *c, rng *random, double *probability);

#endif
