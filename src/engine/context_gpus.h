/* context_gpus.h: operations of a context on all its GPUs, one after the other. Private to
 * src/engine. */
#ifndef ENGINE_CONTEXT_GPUS_H
#define ENGINE_CONTEXT_GPUS_H

#include "context.h"

/* The GPUs' part of the context for its current plan and options. */
gpu_sides context_gpu_sides(engine_context *c);
/* Also creates the adapters of experts and neurons (adapt.h, adapt_neurons.h). After an error,
 * context_gpus_destroy frees the rest. */
pi_status context_gpus_create(engine_context *c, pi_error *err);
void context_gpus_destroy(engine_context *c);
void context_gpus_begin(engine_context *c); /* a ubatch */
/* Waits for all GPUs; returns the first status that is not PI_OK. */
pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err);

/* Between two ubatches: continues the current swap of experts, or begins the next one. */
void context_gpus_swap(engine_context *c);
/* At the start, and after work on the devices was dropped: abandons the current swap, which may
 * begin again later, and sends the devices the locations of the experts. */
void context_gpus_restart_swaps(engine_context *c);

/* Whether both sides of the current ubatch have few tokens: then active neurons are known. */
bool context_gpus_have_few(const engine_context *c);
/* Between two ubatches: counts the last one's active neurons and exchanges the next ones. */
void context_gpus_move_neurons(engine_context *c);

void context_gpus_drop_session(const engine_context *c, pi_session *s);
extern const session_gpus context_session_gpus; /* of all sessions */

/* The GPU that a layer belongs to; NULL: it has no work. */
static inline gpu_exec *context_gpu(const engine_context *c, int layer) {
    return cpu_exec_gpu(&c->cpu, layer);
}

#endif
