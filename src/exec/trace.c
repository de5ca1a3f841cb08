/* trace.c: recording the timeline of ubatches. */
#include "trace.h"

#include "clock.h"
#include "mem.h"

/* ---- memory ---------------------------------------------------------------------------------- */

pi_status trace_create(const engine_trace *shape, int events_per_ubatch, engine_trace **out,
                       pi_error *err) {
    *out = NULL;
    engine_trace *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(err, sizeof *t, "a trace");
    *t = *shape;
    t->capacity = t->max_ubatches * events_per_ubatch;
    const size_t n_rows = (size_t)t->n_threads + (size_t)t->n_gpus;
    size_t n_events;
    if (!size_mul(n_rows, (size_t)t->capacity, &n_events)) n_events = SIZE_MAX;
    t->rows = mem_calloc(n_rows, sizeof *t->rows);
    t->events = mem_calloc(n_events, sizeof *t->events);
    t->ubatches = mem_calloc((size_t)t->max_ubatches, sizeof *t->ubatches);
    t->bytes = mem_calloc((size_t)t->plan->n_steps, sizeof *t->bytes);
    if (!t->rows || !t->events || !t->ubatches || !t->bytes) {
        trace_free(t);
        return error_nomem(err, n_rows * sizeof *t->rows, "a trace");
    }
    for (size_t i = 0; i < n_rows; i++) t->rows[i].events = t->events + i * (size_t)t->capacity;
    *out = t;
    return PI_OK;
}

void trace_free(engine_trace *t) {
    if (!t) return;
    mem_free(t->rows);
    mem_free(t->events);
    mem_free(t->ubatches);
    mem_free(t->bytes);
    mem_free(t);
}

/* ---- recording ------------------------------------------------------------------------------- */

void trace_put(engine_trace *t, int row, const trace_event *e) {
    trace_row *r = &t->rows[row];
    if (r->n == t->capacity) return;
    r->events[r->n] = *e;
    r->events[r->n++].ubatch = t->n_ubatches;
}

void trace_begin(engine_trace *t, int n_tokens) {
    t->ubatches[t->n_ubatches] = (trace_ubatch){.n_tokens = n_tokens, .start = clock_seconds()};
}

void trace_end(engine_trace *t, bool done) {
    for (int row = 0; row < t->n_threads + t->n_gpus && !done; row++) {
        trace_row *r = &t->rows[row];
        while (r->n > 0 && r->events[r->n - 1].ubatch == t->n_ubatches) r->n--;
    }
    if (!done) return;
    /* Each thread has counted its own reads of active neurons; events show the sum of all threads.
     */
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
    t->n_ubatches++;
}
