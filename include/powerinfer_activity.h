/* powerinfer_activity.h: which neurons or experts were active. Included by powerinfer.h.
 *
 * Counting is off until pi_context_watch; it costs one branch per layer while it is off. */
#ifndef POWERINFER_ACTIVITY_H
#define POWERINFER_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_context;

enum { PI_ACTIVITY_MAX_BINS = 1024 };

typedef enum pi_activity_kind {
    PI_ACTIVITY_DENSE,   /* all neurons are computed for every token: nothing is counted */
    PI_ACTIVITY_NEURONS, /* units are the FFN's neurons: a neuron is active if its row of the down
                            matrix was computed for any token of a ubatch */
    PI_ACTIVITY_EXPERTS  /* units are experts: an expert is active if any token used it */
} pi_activity_kind;

typedef struct pi_layer_activity {
    pi_activity_kind kind;
    int32_t n_units; /* neurons of the FFN, or experts */
    int32_t n_hot;   /* units [0, n_hot), the hot prefix, are on the GPU */
    /* Active units, summed over ubatches: `hot` for the whole hot prefix (the GPU reports only the
     * sum), bins[n_bins] for the others: unit u is in bin u * n_bins / n_units. With `adapt`,
     * neurons count in the places where they are at the time. Valid until the next
     * pi_context_watch. */
    uint64_t hot;
    const uint32_t *bins;
} pi_layer_activity;

/* Starts counting at zero with the next pi_forward, in n_bins bins per layer; 0: stops. Ubatches
 * of many tokens (prefill) compute all neurons and are left out. PI_ERR_ARG: n_bins is not in
 * 0..PI_ACTIVITY_MAX_BINS; PI_ERR_NOMEM: nothing is counted. */
PI_API pi_status pi_context_watch(struct pi_context *context, int32_t n_bins, pi_error *err);
/* Ubatches that were counted since pi_context_watch. */
PI_API uint64_t pi_context_watched(const struct pi_context *context);
/* The counts of a layer; zeros and bins NULL when nothing is counted. */
PI_API void pi_context_get_activity(const struct pi_context *context, int32_t layer,
                                    pi_layer_activity *out);

#ifdef __cplusplus
}
#endif
#endif
