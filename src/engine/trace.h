/* trace.h: the timeline of ubatches: which thread of the CPU, and the GPUs' streams, ran which
 * step of the plan, and when.
 *
 * A context owns its trace. engine_trace_start allocates room for some ubatches; the next ubatches
 * that succeed fill it, and recording ends by itself when it is full. While recording, the GPU
 * writes its clock between steps, in programs recorded for that. A context without a trace pays a
 * test per step.
 *
 * A thread writes its own row only. Times are those of clock_seconds; the GPU's are set to it by a
 * clock that was written between two looks of the host at its own, which leaves clock_error. */
#ifndef ENGINE_TRACE_H
#define ENGINE_TRACE_H

#include "engine.h"

typedef enum trace_kind {
    TRACE_STEP,
    TRACE_WAIT,  /* within a RECEIVE of the CPU: until the GPU's message was there */
    TRACE_STREAM /* on the GPU, in place of a RECEIVE: the layer's cold neurons, copied there */
} trace_kind;

typedef struct trace_event {
    int ubatch, step; /* step of the row's side of the plan */
    trace_kind kind;
    double start, end; /* seconds */
    uint64_t bytes;    /* of weights, read in the step by all rows of the side */
} trace_event;

typedef struct trace_row {
    int n;
    trace_event *events; /* [capacity], in the order in which they ended */
} trace_row;

typedef struct trace_ubatch {
    int n_tokens;
    double start, end;
} trace_ubatch;

typedef struct engine_trace {
    const plan *plan;
    int n_threads;
    int n_gpus;
    trace_row *rows; /* [n_threads + n_gpus], the GPUs' last */
    int capacity;
    trace_ubatch *ubatches; /* [max_ubatches] */
    int n_ubatches, max_ubatches;
    double clock_error; /* of the GPU's times against the CPU's, seconds at most */

    /* While recording. */
    bool on;
    double wait_end;     /* of the RECEIVE under way */
    trace_event *events; /* of all rows */
    uint64_t *bytes;     /* [steps of the CPU] read of active neurons in the ubatch */
} engine_trace;

/* Replaces the trace that the context has. PI_ERR_ARG, PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status engine_trace_start(engine_context *c, int n_ubatches, pi_error *err);
void engine_trace_stop(engine_context *c); /* forgets it */
/* What was recorded since; NULL: there is no trace. Lost with the plan it belongs to, when the
 * context goes on without its GPU. */
const engine_trace *engine_get_trace(const engine_context *c);

#endif
