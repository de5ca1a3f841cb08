/* trace.c: recording the timeline of ubatches. All memory is allocated when a trace is started. */
#include "trace.h"

#include "clock.h"
#include "context.h"
#include "mem.h"
#include "trace_impl.h"

enum { MAX_UBATCHES = 1024 };

/* ---- making ---------------------------------------------------------------------------------- */

static int count_receives(const plan *p) {
    return p->n_exchanges[SIDE_GPU];
}

/* The CPU's threads have an event per step and one per wait; the GPU's stream has one per
 * step, and one per batch of logits. */
static int events_per_ubatch(const engine_context *c) {
    int most = c->plan->n_steps + count_receives(c->plan);
    for (int i = 0; i < c->n_gpus; i++) {
        int n = c->gpus[i] ? gpu_exec_marks_capacity(c->gpus[i]) : 0;
        if (n > most) most = n;
    }
    return most;
}

static pi_status allocate(engine_trace *t, pi_error *err) {
    size_t n_rows = (size_t)t->n_threads + (size_t)t->n_gpus, n_events,
           n_steps = (size_t)t->plan->n_steps;
    if (!size_mul(n_rows, (size_t)t->capacity, &n_events)) n_events = SIZE_MAX;
    t->rows = mem_calloc(n_rows, sizeof *t->rows);
    t->events = mem_calloc(n_events, sizeof *t->events);
    t->ubatches = mem_calloc((size_t)t->max_ubatches, sizeof *t->ubatches);
    t->bytes = mem_calloc(n_steps, sizeof *t->bytes);
    if (!t->rows || !t->events || !t->ubatches || !t->bytes)
        return error_nomem(err, n_rows * sizeof *t->rows, "a trace");
    for (size_t i = 0; i < n_rows; i++) t->rows[i].events = t->events + i * (size_t)t->capacity;
    return PI_OK;
}

pi_status engine_trace_start(engine_context *c, int n_ubatches, pi_error *err) {
    engine_trace_stop(c);
    if (!c->plan) return context_unusable(c, err);
    if (n_ubatches < 1 || n_ubatches > MAX_UBATCHES)
        return error_set(err, PI_ERR_ARG, "bad number of ubatches: trace: %d: use 1 to %d",
                         n_ubatches, MAX_UBATCHES);
    engine_trace *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(err, sizeof *t, "a trace");
    c->trace = t;
    t->plan = c->plan;
    t->n_threads = pool_size(c->pool);
    t->n_gpus = c->n_gpus;
    t->max_ubatches = n_ubatches;
    t->capacity = n_ubatches * events_per_ubatch(c);
    pi_status status = allocate(t, err);
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++)
        if (c->gpus[i]) status = gpu_exec_marks_create(c->gpus[i], err);
    if (status != PI_OK) engine_trace_stop(c);
    return status;
}

void engine_trace_stop(engine_context *c) {
    engine_trace *t = c->trace;
    if (!t) return;
    for (int i = 0; i < c->n_gpus; i++)
        if (c->gpus[i]) gpu_exec_marks_destroy(c->gpus[i]);
    mem_free(t->rows);
    mem_free(t->events);
    mem_free(t->ubatches);
    mem_free(t->bytes);
    mem_free(t);
    c->trace = NULL;
}

const engine_trace *engine_get_trace(const engine_context *c) {
    return c->trace;
}

/* ---- recording ------------------------------------------------------------------------------- */

void trace_put(engine_trace *t, int row, const trace_event *e) {
    trace_row *r = &t->rows[row];
    if (r->n == t->capacity) return;
    r->events[r->n] = *e;
    r->events[r->n++].ubatch = t->n_ubatches;
}

void trace_begin_ubatch(engine_context *c) {
    engine_trace *t = c->trace;
    t->on = t->n_ubatches < t->max_ubatches;
    if (!t->on) return;
    for (int i = 0; i < c->n_gpus; i++) {
        if (!c->gpus[i]) continue;
        gpu_exec_marks_begin(c->gpus[i], t);
        gpu_exec_record(c->gpus[i], c); /* which is no part of the ubatch */
    }
    t->ubatches[t->n_ubatches] = (trace_ubatch){.n_tokens = c->ubatch.n_tokens,
                                                .start = clock_seconds()};
}

/* Threads have counted what each read of active neurons; an event shows the sum. */
static void add_up_bytes(engine_trace *t) {
    for (int i = 0; i < t->plan->n_steps; i++) t->bytes[i] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int row = 0; row < t->n_threads; row++) {
            for (int k = t->rows[row].n; k-- > 0;) {
                trace_event *e = &t->rows[row].events[k];
                if (e->ubatch != t->n_ubatches) break;
                if (!trace_counts_reads(&t->plan->steps[e->step])) continue;
                if (pass == 0) t->bytes[e->step] += e->bytes;
                if (pass == 1) e->bytes = t->bytes[e->step];
            }
        }
    }
}

/* Of a ubatch that failed, nothing is kept. */
static void forget_ubatch(engine_trace *t) {
    for (int row = 0; row < t->n_threads + t->n_gpus; row++) {
        trace_row *r = &t->rows[row];
        while (r->n > 0 && r->events[r->n - 1].ubatch == t->n_ubatches) r->n--;
    }
}

void trace_end_ubatch(engine_context *c, bool done) {
    engine_trace *t = c->trace;
    if (!t->on) return;
    t->on = false;
    t->ubatches[t->n_ubatches].end = clock_seconds();
    for (int i = 0; i < c->n_gpus; i++)
        if (c->gpus[i]) gpu_exec_marks_end(c->gpus[i], done ? t : NULL);
    if (!done) {
        forget_ubatch(t);
        return;
    }
    add_up_bytes(t);
    t->n_ubatches++;
}
