/* threshold.h: one threshold per neuron for given scores. Private to src/prepare.
 *
 * The candidates of a neuron are THRESHOLD_BINS + 1 values from the lowest to the highest score at
 * which it fired, and "never". Raising a threshold avoids selections and adds penalty: the sum of
 * (a_i |down_i|)^2 over the training tokens whose firing would be missed. Per neuron only the lower
 * convex hull of penalty over avoided selections matters; its pieces, sorted over the whole layer
 * by penalty per avoided selection, give the best thresholds for every budget: pieces are taken in
 * this order until the next one would leave less than `target` of the contributions, on the
 * training tokens or on the held-out tokens. A larger target takes a shorter prefix of the list, so
 * thresholds never fall when the target falls.
 *
 * Few samples: the lowest score of a neuron that fired twice is unreliable. Therefore every neuron
 * also has the penalty of `prior_weight` prior samples, spread over the scores at which neurons of
 * similar frequency fire (in units of each neuron's mean and deviation). Prior samples only add
 * penalty to raising the threshold; they do not change the budget. A neuron that never fired has
 * only prior samples. */
#ifndef PREPARE_THRESHOLD_H
#define PREPARE_THRESHOLD_H

#include "linalg.h"
#include "predictor.h"

/* The active set by neurons: neuron i fired for token[start[i]] .. token[start[i + 1] - 1],
 * ascending; those up to split[i] are training tokens. */
typedef struct neuron_pairs {
    int64_t *start;      /* [n_ff + 1] */
    int64_t *split;      /* [n_ff] */
    int32_t *token;      /* token numbers [start[n_ff]] */
    float *contribution; /* contribution of each pair [start[n_ff]] */
} neuron_pairs;

pi_status neuron_pairs_make(const predictor_data *data, neuron_pairs *out, pi_error *err);
void neuron_pairs_free(neuron_pairs *p);

/* scores[i][t] = sum over k < n_k of rows[i][k] * inputs[t][k]. */
typedef struct score_source {
    const float *rows; /* [n_ff][ld_rows] */
    int64_t ld_rows;
    const uint8_t
        *bits; /* [n_ff][n_k / 8]: rows of +1 where a bit is set, else -1, when not NULL */
    const float *inputs; /* [n_train + n_held][ld_inputs] */
    int64_t ld_inputs;
    int64_t n_k;
} score_source;

/* bias: [n_ff], minus the thresholds. quality: on held-out tokens (if there are none, on training
 * tokens), from the histograms: within one bin of the exact value. */
pi_status threshold_fit(la_job *job, const predictor_data *data, const neuron_pairs *pairs,
                        const score_source *source, double target, float *bias,
                        predictor_quality *quality, pi_error *err);

/* Calls fn(arg, i, scores) for every stride-th neuron i, in no order, on all threads: scores[t -
 * t0] for t0 <= t < t1 are valid until fn returns. */
typedef void (*score_fn)(void *arg, int64_t neuron, const float *scores);
typedef struct score_range {
    int64_t n_neurons, stride, t0, t1;
} score_range;
pi_status scores_visit(la_job *job, const score_source *source, score_range range, score_fn fn,
                       void *arg, pi_error *err);

/* The bias of a neuron that is never selected: finite, so that no score turns it into a NaN. */
#define THRESHOLD_NEVER (-1e30f)

#endif
