/* context.h: inside of a context. Private to src/engine.
 *
 * A context ties the two executors together: the CPU's side (src/exec/cpu), the sides of its GPUs
 * (src/exec/gpu), and the ubatch that both work on. All worker threads run the same loop over the
 * steps of a ubatch; each step hands out its work with pool_take and ends with a barrier. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <stdatomic.h>

#include "cpu_exec.h"
#include "engine.h"
#include "gpu_exec.h"

struct engine_context {
    cpu_exec cpu;
    gpu_sides gpu;

    uint8_t *memory; /* one mapping that holds all arrays of `cpu` but `scratch` */
    size_t n_memory;

    /* What the context was made of. */
    const model *source; /* as it was opened */
    engine_options options;
    int n_threads, n_threads_batch, n_batch, n_logits;
    form_pace paces[PLAN_FFN_MAX_COLS + 1]; /* by tokens of a ubatch */

    session_host host; /* what the sessions share */
    pi_session *sessions;

    /* Calls. */
    engine_observer observer; /* NULL: none */
    void *observer_user;
    int n_logits_rows, n_hidden_rows; /* after a call */
    pi_counters counters;
    atomic_bool cancelled;
    atomic_bool stop[2]; /* by parity of the step: see forward.c */

    /* GPUs that failed. */
    char gpu_loss[PI_ERROR_TEXT_MAX]; /* why the context fell back to the CPU; "": it did not */
    /* By GPU, after neurons went back to the CPU; all 0: none did. */
    gpu_exec_bytes gpu_kept[PLAN_MAX_DEVICES];
};

/* context_memory.c: sizes the working memory from the plan and allocates it. PI_ERR_NOMEM. */
pi_status context_allocate(engine_context *c, pi_error *err);
/* context_create.c: plan and working memory for c->options, in place of what is there. */
pi_status context_build(engine_context *c, pi_error *err);
/* The plan is lost: sessions cannot be used. */
void context_drop_plan(engine_context *c);
/* PI_ERR_ARG in a process that was forked from the one that made the context. `call` for the
 * message. */
pi_status context_check_process(const engine_context *c, const char *call, pi_error *err);

/* Whether a layer's part of a KV cache is on the GPU. */
static inline bool context_kv_on_gpu(const engine_context *c, int layer) {
    return c->cpu.plan->splits[layer].primary == SIDE_GPU;
}

#endif
