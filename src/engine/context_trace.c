/* context_trace.c: starts traces of a context, records on the CPU and the GPUs. */
#include "clock.h"
#include "context.h"
#include "gpu_trace.h"

enum { MAX_UBATCHES = 1024 };

/* A thread of the CPU has an event per step, and one per wait for a GPU; the stream of a GPU has
 * one per step, those of the head for every batch of logits. */
static int events_per_ubatch(const engine_context *c) {
    int most = c->cpu.plan->n_steps + c->cpu.plan->n_exchanges[SIDE_GPU];
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        int n = c->gpu.gpus[i] ? gpu_exec_marks_capacity(c->gpu.gpus[i]) : 0;
        if (n > most) most = n;
    }
    return most;
}

pi_status engine_trace_start(engine_context *c, int n_ubatches, pi_error *err) {
    engine_trace_stop(c);
    if (!c->cpu.plan) return context_unusable(c, err);
    if (n_ubatches < 1 || n_ubatches > MAX_UBATCHES)
        return error_set(err, PI_ERR_ARG, "bad number of ubatches: trace: %d: use 1 to %d",
                         n_ubatches, MAX_UBATCHES);
    const engine_trace shape = {.plan = c->cpu.plan,
                                .n_threads = pool_size(c->cpu.pool),
                                .n_gpus = c->gpu.n_gpus,
                                .max_ubatches = n_ubatches};
    pi_status status = trace_create(&shape, events_per_ubatch(c), &c->cpu.trace, err);
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++)
        if (c->gpu.gpus[i]) status = gpu_exec_marks_create(c->gpu.gpus[i], err);
    if (status != PI_OK) engine_trace_stop(c);
    return status;
}

void engine_trace_stop(engine_context *c) {
    for (int i = 0; i < c->gpu.n_gpus && c->cpu.trace; i++)
        if (c->gpu.gpus[i]) gpu_exec_marks_destroy(c->gpu.gpus[i]);
    trace_free(c->cpu.trace);
    c->cpu.trace = NULL;
}

const engine_trace *engine_get_trace(const engine_context *c) {
    return c->cpu.trace;
}

void context_trace_begin(engine_context *c) {
    engine_trace *t = c->cpu.trace;
    t->on = t->n_ubatches < t->max_ubatches;
    if (!t->on) return;
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        if (!c->gpu.gpus[i]) continue;
        gpu_exec_marks_begin(c->gpu.gpus[i], t);
        gpu_exec_record(c->gpu.gpus[i]); /* before the ubatch, not part of the trace */
    }
    trace_begin(t, c->cpu.ubatch.n_tokens);
}

void context_trace_end(engine_context *c, bool done) {
    engine_trace *t = c->cpu.trace;
    if (!t->on) return;
    t->on = false;
    t->ubatches[t->n_ubatches].end = clock_seconds();
    for (int i = 0; i < c->gpu.n_gpus; i++)
        if (c->gpu.gpus[i]) gpu_exec_marks_end(c->gpu.gpus[i], done ? t : NULL);
    trace_end(t, done);
}
