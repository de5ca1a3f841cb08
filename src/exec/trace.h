/* trace.h: the timeline of ubatches: which threads of the CPU and which streams of the GPUs ran
 * which step of the plan, and when.
 *
 * A context owns its trace (engine_trace_start). All memory is allocated when the trace is made:
 * it has room for some ubatches. The next ubatches that succeed fill it, and recording ends when it
 * is full. While recording, the GPU writes its clock between steps, in programs recorded for that.
 * Without a trace a step costs one test more.
 *
 * A thread writes its own row only. Times are those of clock_seconds. The GPU's times are
 * converted to it: the GPU writes its clock between two reads of the host's clock, which leaves
 * clock_error. */
#ifndef EXEC_TRACE_H
#define EXEC_TRACE_H

#include "error.h"
#include "plan.h"

typedef enum trace_kind {
    TRACE_STEP,
    TRACE_WAIT,  /* within a RECEIVE of the CPU: until the GPU's message arrived */
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
    double clock_error; /* seconds by which the GPU's times may be off, at most */

    /* While recording. */
    bool on;
    double wait_end;     /* of the RECEIVE under way */
    trace_event *events; /* of all rows */
    uint64_t *bytes;     /* [steps of the CPU] read of active neurons in the ubatch */
} engine_trace;

/* Allocates room for max_ubatches of events_per_ubatch in every row. */
pi_status trace_create(const engine_trace *shape, int events_per_ubatch, engine_trace **out,
                       pi_error *err);
void trace_free(engine_trace *t); /* NULL is fine */
/* Called before and after every ubatch; recording is on only while there is room. `done`: the
 * ubatch succeeded; the events of others are dropped. */
void trace_begin(engine_trace *t, int n_tokens);
void trace_end(engine_trace *t, bool done);
/* Appends an event of this ubatch to a row. */
void trace_put(engine_trace *t, int row, const trace_event *e);

/* Steps of the CPU whose bytes are counted by the threads that read them. */
static inline bool trace_counts_reads(const plan_step *s) {
    return plan_op_reads(s->op) != READS_ALL;
}

#endif
