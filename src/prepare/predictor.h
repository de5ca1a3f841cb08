/* predictor.h: fits predictors for one layer, from data in memory to data in memory.
 *
 * A predictor gives every neuron a score from the layer's normed input x; neuron i is computed when
 * score_i + bias_i >= 0. Three recipes behind one interface:
 *
 *   sign      x . sign(W_gate): the scores need no data
 *   lowrank   fc2 . fc1 . x, the rank-r SVD of W_gate S, S S^T = cov(x): optimal for its rank and
 *             this input distribution, closed form; the bias covers the means
 *   relu_mlp  fc2 . relu(fc1 . x), started from the low-rank solution (a pair of units for a
 *             direction, or a lift that keeps inputs positive), refined by logistic loss weighted
 *             with contributions, AdamW, stopped early on held-out tokens
 *
 * Scores are computed with fc1 and fc2 as stored (quantized and decoded again); then every neuron's
 * bias is set: thresholds rise where an avoided selection loses the least sum (a_i |down_i|)^2 of
 * missed training tokens, until contribution recall just meets the target on the training tokens
 * and on the held-out tokens (threshold.h has the algorithm). Held-out tokens determine only this
 * limit, the rank and the end of training; quality is measured on them. Neurons are in stored order
 * (hottest first) everywhere here. The result depends on data, options and the CPU's instruction
 * set, not on the number of threads. */
#ifndef PREPARE_PREDICTOR_H
#define PREPARE_PREDICTOR_H

#include <stddef.h>
#include <stdint.h>

#include "active.h"
#include "model.h"
#include "pool.h"
#include "progress.h"
#include "quant.h"

typedef struct predictor_data {
    int64_t n_embd, n_ff;
    int64_t n_train, n_held;  /* numbers of tokens; held-out tokens come after training tokens */
    const float *x;           /* [n_train + n_held][n_embd] */
    const float *gate;        /* [n_ff][n_embd] W_gate, or W_up without a gate */
    const float *gate_bias;   /* [n_ff] or NULL; added to scores, included in the thresholds */
    const active_set *active; /* for all n_train + n_held tokens */
    size_t gate_row_bytes;    /* bytes of a row in the model, for the cost of a candidate */
    bool unbiased;            /* lowrank: scores have no bias that makes up for the mean of x */
} predictor_data;

typedef struct predictor_options {
    predictor_kind kind; /* the only kind to fit; PREDICTOR_KIND_COUNT: the cheapest of all kinds */
    double target;       /* target contribution recall, 0 < target <= 1; 0.98 */
    quant_type type;     /* type of fc1 and fc2; rows that are not whole blocks use Q8_0 */
    int32_t max_rank;    /* 0: n_embd / 2 */
    int32_t only_rank;  /* a multiple of 32: fit only this rank; 0: the cheapest rank (relu_mlp: the
                           cheapest rank of lowrank) */
    int32_t max_epochs; /* for relu_mlp; 0: the default */
    uint64_t seed;
} predictor_options;

typedef struct predictor_quality {
    double recall;              /* selected fraction of the active (token, neuron) pairs */
    double contribution_recall; /* selected fraction of their contributions */
    double selected;            /* selected fraction of all pairs */
    double active;              /* fraction of all pairs that fired */
} predictor_quality;

typedef struct predictor_fit {
    predictor_kind kind; /* NONE: computing every gate row costs least (see cost) */
    int32_t rank;
    quant_type type_fc1, type_fc2;
    void *fc1;      /* [rank] rows of n_embd, in type_fc1 */
    void *fc2;      /* [n_ff] rows of rank, in type_fc2 */
    float *bias;    /* [n_ff] */
    uint8_t *sign;  /* [n_ff][n_embd / 8]: bit k % 8 of byte k / 8 is set when weight k > 0 */
    size_t n_bytes; /* bytes of fc1, fc2 and bias, or sign and bias, read for every token */
    double cost;    /* n_bytes + selected * n_ff * gate_row_bytes: bytes read before `up` */
    predictor_quality quality; /* on held-out tokens */
} predictor_fit;

/* Fits the predictors that the options ask for. `cost` selects among recipes and ranks that reach
 * the target (if none does, the closest wins). Exact mode costs n_ff * gate_row_bytes and wins over
 * a more expensive predictor unless `kind` names one. PI_ERR_ARG (no tokens; n_embd or ranks that
 * are not multiples of 32), PI_ERR_RANGE (values that are not finite), PI_ERR_NOMEM,
 * PI_ERR_CANCELLED. */
pi_status predictor_fit_layer(pool *p, const predictor_data *data, const predictor_options *options,
                              progress *progress, predictor_fit *out, pi_error *err);
void predictor_fit_free(predictor_fit *fit);
/* The kinds that are tried for a layer, and the progress after each. */
typedef struct predictor_recipe {
    predictor_kind kind;
    double to;
} predictor_recipe;
enum { PREDICTOR_RECIPES = 3 };
extern const predictor_recipe predictor_recipes[PREDICTOR_RECIPES];
/* Whether a is the better of two fits: one that reaches the target; if both do, the cheaper one; if
 * none does, the closer one. */
bool predictor_is_better(const predictor_fit *a, const predictor_fit *b, double target);

/* Quality of `fit` on tokens [t0, t1). */
pi_status predictor_measure(pool *p, const predictor_fit *fit, const predictor_data *data,
                            int64_t t0, int64_t t1, predictor_quality *out, pi_error *err);

#endif
