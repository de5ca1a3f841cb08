/* context_gpus.h: what a context does with all of its GPUs, one after the other. Private to
 * src/engine. */
#ifndef ENGINE_CONTEXT_GPUS_H
#define ENGINE_CONTEXT_GPUS_H

#include "context.h"

/* What the GPUs have of the context, as its plan and options are. */
gpu_sides context_gpu_sides(engine_context *c);
/* Also makes the adapter. After an error context_gpus_destroy frees the rest. */
pi_status context_gpus_create(engine_context *c, pi_error *err);
void context_gpus_destroy(engine_context *c);
void context_gpus_begin(engine_context *c); /* a ubatch */
/* The first status that is not PI_OK; all have ended. */
pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err);

/* Between two ubatches: goes on with the swap of experts under way, or begins the next one. */
void context_gpus_swap(engine_context *c);
/* At first, and after work on the devices was dropped: the swap under way may begin again later,
 * and the devices learn where experts are. */
void context_gpus_restart_swaps(engine_context *c);

void context_gpus_drop_session(const engine_context *c, pi_session *s);
extern const session_gpus context_session_gpus; /* of all sessions */

/* The GPU that a layer belongs to; NULL: it has no work. */
static inline gpu_exec *context_gpu(const engine_context *c, int layer) {
    return cpu_exec_gpu(&c->cpu, layer);
}

#endif
