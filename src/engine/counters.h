/* counters.h: counters of bytes that ubatches read and of experts that they used. Private to
 * src/engine. */
#ifndef ENGINE_COUNTERS_H
#define ENGINE_COUNTERS_H

#include "context.h"

/* Adds the bytes that the last ubatch read to the counters. */
void context_count(engine_context *c);
/* After a ubatch: uses of experts that the GPU's routers chose. The GPU sends them to the host only
 * while gpu_sides.wants_uses. */
void context_count_routed(engine_context *c);
/* After a ubatch, if activity is watched: adds the GPUs' counts. */
void context_count_activity(engine_context *c);

#endif
