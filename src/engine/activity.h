/* activity.h: counting which neurons and experts are active (powerinfer_activity.h). Threads add to
 * the counts while a ubatch runs; everything else happens between calls. Private to src/engine, but
 * for the functions that the API wraps. */
#ifndef ENGINE_ACTIVITY_H
#define ENGINE_ACTIVITY_H

#include <stdatomic.h>

#include "engine.h"

struct engine_activity {
    int n_bins;
    uint64_t n_ubatches;
    uint64_t *hot;          /* [n_layer] */
    _Atomic uint32_t *bins; /* [n_layer][n_bins] */
    uint32_t *shown;        /* [n_bins], a layer's copy for the caller */
};

/* As pi_context_watch, pi_context_watched, pi_context_get_activity. */
pi_status engine_watch(engine_context *c, int n_bins, pi_error *err);
uint64_t engine_watched(const engine_context *c);
void engine_get_activity(const engine_context *c, int layer, pi_layer_activity *out);

/* Neurons rows[0 .. n) (ascending, numbered from `first`) of a layer were active. */
void activity_add_neurons(engine_context *c, int layer, int64_t first, const int32_t *rows,
                          int64_t n);
/* Tokens of the ubatch chose experts chosen[0 .. n), each any number of times. */
void activity_add_experts(engine_context *c, int layer, const int32_t *chosen, int n);
/* After a ubatch: what the GPU counted. */
void activity_end_ubatch(engine_context *c);

#endif
