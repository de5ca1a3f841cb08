/* active.h: which neurons of one layer fired for which tokens, and their contributions.
 *
 * Compressed by tokens: token t's neurons are neuron[start[t]] .. neuron[start[t + 1] - 1],
 * ascending. A neuron's contribution to a token is |a_i| * |down_i|_2: the norm of the vector that
 * it adds to the residual stream. Not thread-safe. */
#ifndef PREPARE_ACTIVE_H
#define PREPARE_ACTIVE_H

#include <stdint.h>

#include "error.h"

typedef struct active_set {
    int64_t n_neurons;
    int64_t n_tokens, token_capacity;
    int64_t *start;      /* [n_tokens + 1] */
    int32_t *neuron;     /* [start[n_tokens]] */
    float *contribution; /* >= 0 and finite [start[n_tokens]] */
    int64_t capacity;
} active_set;

/* Creates an empty set for layers of n_neurons. */
void active_init(active_set *a, int64_t n_neurons);
void active_free(active_set *a);
/* Appends one token. hidden: [n_neurons], the input of the down product, 0 where nothing fired.
 * down_norm: [n_neurons]. PI_ERR_NOMEM; PI_ERR_RANGE: a contribution is not a number, and nothing
 * is added. */
pi_status active_add(active_set *a, const float *hidden, const float *down_norm, pi_error *err);
/* freq[i] = fraction of the tokens for which neuron i fired. 0 tokens: all 0. */
void active_frequencies(const active_set *a, float *freq);
/* order[i] = index of the i-th hottest neuron; ties by index. NaN counts as 0. */
pi_status neuron_order(const float *freq, int64_t n, int32_t *order, pi_error *err);
/* Reorders neurons of similar frequency so that neurons that fire together are neighbours: one read
 * then brings several of their bundles. order: from neuron_order. freq[i]: the frequency of neuron
 * order[i]; becomes the mean of the neurons of similar frequency. PI_ERR_NOMEM: both unchanged. */
pi_status active_chain(const active_set *a, int32_t *order, float *freq, pi_error *err);
/* Renumbers all neurons: neuron order[i] becomes neuron i. PI_ERR_NOMEM. */
pi_status active_permute(active_set *a, const int32_t *order, pi_error *err);

#endif
