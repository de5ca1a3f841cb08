/* counters.h: what ubatches read, and which experts they used. Private to src/engine. */
#ifndef ENGINE_COUNTERS_H
#define ENGINE_COUNTERS_H

#include "context.h"

/* Adds what the last ubatch read to the counters. */
void context_count(engine_context *c);
/* After a ubatch: uses of experts that the GPU's routers chose. The GPU sends them to the host only
 * while gpu_sides.wants_uses. */
void context_count_routed(engine_context *c);
/* After a ubatch, where activity is watched: what the GPUs counted. */
void context_count_activity(engine_context *c);

#endif
