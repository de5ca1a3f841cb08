/* trace_impl.h: recording, as the rest of the engine sees it. Private to src/engine. */
#ifndef ENGINE_TRACE_IMPL_H
#define ENGINE_TRACE_IMPL_H

#include "trace.h"

/* Around every pass, with c->trace; `done`: it succeeded. */
void trace_begin_pass(engine_context *c);
void trace_end_pass(engine_context *c, bool done);
/* The pass is filled in. */
void trace_put(engine_trace *t, int row, const trace_event *e);

/* Steps of the processor whose bytes are counted by the threads that read them. */
static inline bool trace_reads_by_need(const plan_step *s) {
    return s->op == OP_FFN_NEURONS || s->op == OP_FFN_DOWN || s->op == OP_CHOOSE;
}

/* gpu_trace.c: stamps of the device's clock around the GPU's steps. */
int hybrid_marks_capacity(const hybrid *h); /* steps that a pass may have */
pi_status hybrid_marks_create(hybrid *h, pi_error *err);
void hybrid_marks_destroy(hybrid *h); /* none: fine */
/* The pass that begins is marked; the stream is idle. Raises t->clock_error. */
void hybrid_marks_begin(hybrid *h, engine_trace *t);
/* Its steps become the last row of t; NULL: they are forgotten. */
void hybrid_marks_end(hybrid *h, engine_trace *t);

#endif
