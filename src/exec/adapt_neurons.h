/* adapt_neurons.h: adaptive placement of neurons (--adapt): neurons that are used often move to the
 * GPU while the model runs (experts: adapt.h).
 *
 * A layer has places for neurons: places [0, hot) are on the GPU, the others on the CPU. In
 * ubatches of few tokens the uses of the neuron in each place are counted: one use if any token
 * activates the neuron (mode predict: selects it). After every half-life, measured in such
 * ubatches, the neurons on the CPU with the most uses are paired with the neurons on the GPU with
 * the fewest. Pairs whose uses differ enough are queued, the largest difference first; then all
 * counts are halved. Between ubatches the neurons of a few pairs change places. Steps, kernels and
 * messages address neurons by place, so nothing else changes.
 *
 * Which neurons move depends on the tokens only. */
#ifndef EXEC_ADAPT_NEURONS_H
#define EXEC_ADAPT_NEURONS_H

#include "adapt.h"
#include "error.h"
#include "plan.h"

enum { ADAPT_MOVES = 8 }; /* neurons that move to the GPU after a ubatch, at most */

typedef struct neuron_adapter neuron_adapter;

/* Whether the neurons of a layer can move, in a plan or a device's part of it. The layer must be
 * sparse (exact, threshold, predict), with neurons on the CPU and on one GPU and with a row of down
 * per neuron. Its kernels must skip neurons, and not by a cutoff that depends on all of them. */
bool neurons_move(const plan *p, int layer);
/* NULL in *out when no layer's neurons can move. `policy`: without slice_bytes. PI_ERR_NOMEM. */
pi_status neuron_adapter_create(const plan *p, const adapt_policy *policy, neuron_adapter **out,
                                pi_error *err);
void neuron_adapter_free(neuron_adapter *a); /* NULL is fine */

/* The next three count a use of the neurons in some places of a layer. They do nothing in layers
 * whose neurons cannot move, and without an adapter (NULL). Threads may count at the same time,
 * each for different places. */
/* Places first + rows[0 .. n). */
void neuron_adapter_count(neuron_adapter *a, int layer, int64_t first, const int32_t *rows,
                          int64_t n);
/* Places [0, n) whose bit is set in any of the columns, n_words apart. */
void neuron_adapter_count_bits(neuron_adapter *a, int layer, const uint32_t *bits, int64_t n_words,
                               int n_cols, int64_t n);
/* Places [0, n) with a value other than zero in any of the columns, ldh floats apart. */
void neuron_adapter_count_values(neuron_adapter *a, int layer, const float *h, int64_t ldh,
                                 int n_cols, int64_t n);

/* Ends a ubatch of few tokens. */
void neuron_adapter_end(neuron_adapter *a);

/* The neurons of two places of a layer change places. */
typedef struct neuron_move {
    int layer;
    int32_t hot, cold; /* places on the GPU, on the CPU */
    uint32_t gain;     /* uses */
} neuron_move;
/* The next move; NULL: none. neuron_adapter_finish removes it from the queue, after the neurons
 * have changed places. */
const neuron_move *neuron_adapter_next(const neuron_adapter *a);
void neuron_adapter_finish(neuron_adapter *a);

#endif
