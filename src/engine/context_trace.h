/* context_trace.h: recording the timeline of a context's ubatches. Private to src/engine. */
#ifndef ENGINE_CONTEXT_TRACE_H
#define ENGINE_CONTEXT_TRACE_H

#include "context.h"

/* Around every ubatch, where there is a trace; `done`: the ubatch succeeded. */
void context_trace_begin(engine_context *c);
void context_trace_end(engine_context *c, bool done);

#endif
