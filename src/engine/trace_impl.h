/* trace_impl.h: recording, as the rest of the engine sees it. Private to src/engine. */
#ifndef ENGINE_TRACE_IMPL_H
#define ENGINE_TRACE_IMPL_H

#include "trace.h"

/* Around every ubatch, with c->trace; `done`: it succeeded. */
void trace_begin_ubatch(engine_context *c);
void trace_end_ubatch(engine_context *c, bool done);
/* The ubatch is filled in. */
void trace_put(engine_trace *t, int row, const trace_event *e);

/* Steps of the CPU whose bytes are counted by the threads that read them. */
static inline bool trace_counts_reads(const plan_step *s) {
    return plan_op_reads(s->op) != READS_ALL;
}

/* gpu_trace.c: stamps of the device's clock around the GPU's steps. */
int gpu_exec_marks_capacity(const gpu_exec *g); /* steps that a ubatch may have */
pi_status gpu_exec_marks_create(gpu_exec *g, pi_error *err);
void gpu_exec_marks_destroy(gpu_exec *g); /* none: fine */
/* The ubatch that begins is marked; the stream is idle. Raises t->clock_error. */
void gpu_exec_marks_begin(gpu_exec *g, engine_trace *t);
/* Its steps become the device's row of t; NULL: they are forgotten. */
void gpu_exec_marks_end(gpu_exec *g, engine_trace *t);

#endif
