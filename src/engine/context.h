/* context.h: internals of a context. Private to src/engine.
 *
 * A context connects the two executors: the CPU's (src/exec/cpu), the GPUs' (src/exec/gpu), and the
 * ubatch that both process. All worker threads run the same loop over the steps of a ubatch; each
 * step distributes its work with pool_take and ends with a barrier. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <stdatomic.h>

#include "cpu_exec.h"
#include "engine.h"
#include "gpu_exec.h"
#include "model_places.h"

struct engine_context {
    cpu_exec cpu;
    gpu_sides gpu;

    uint8_t *memory; /* one mapping with all arrays of `cpu` except `scratch` */
    size_t n_memory;
    /* Rows of `memory` for a ubatch's buffers, and for logits. Larger ubatches and calls use memory
     * of the pager, at most n_lent bytes. n_lent 0: there are no larger ones. */
    int own_rows, own_logits;
    size_t n_lent;

    /* Inputs of engine_context_create. */
    const model *source;  /* the model as opened */
    model_places *places; /* of neurons that move, with the model that the plan reads; NULL: none */
    neuron_adapter *moves; /* NULL: neurons stay where they are */
    engine_options options;
    int n_threads, n_threads_batch, n_batch, n_logits;
    bool alone;                             /* encoders: every text is a separate ubatch */
    form_pace paces[PLAN_FFN_MAX_COLS + 1]; /* by number of tokens of a ubatch */

    struct engine_stage *stage; /* stage.h; NULL: this machine has all layers */
    session_host host;          /* shared by the sessions */
    pi_session *sessions;

    /* Calls. */
    engine_observer observer; /* NULL: none */
    void *observer_user;
    int n_logits_rows, n_hidden_rows; /* rows of the last call */
    int n_call_logits;                /* rows that the call under way wants */
    const pi_input *begun;            /* [n_begun] of engine_forward_begin, without stages */
    int n_begun;
    pi_counters counters;
    atomic_bool cancelled;
    atomic_bool stop; /* the threads leave the steps: see forward.c */

    /* GPUs that failed. */
    char gpu_loss[PI_ERROR_TEXT_MAX]; /* why the context fell back to the CPU; "": it did not */
    /* By GPU: bytes after neurons moved to the CPU; all 0: none moved. */
    gpu_exec_bytes gpu_kept[PLAN_MAX_DEVICES];
};

/* forward.c: the parts of a ubatch, for stage.c. forward_begin chooses its form; forward_run runs
 * steps [first_step, end_step) of the ubatch on all threads; forward_end returns its status. */
void forward_begin(engine_context *c, int first_step, int end_step);
void forward_run(engine_context *c);
pi_status forward_end(engine_context *c, pi_error *err);
void forward_count(engine_context *c); /* after a ubatch that succeeded */
/* Evaluates inputs; their sessions stay as they are until forward_grow. */
pi_status forward_apart(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
void forward_grow(const pi_input *in); /* the input's tokens are part of its session now */

/* context_memory.c: sizes the working memory from the plan and allocates it. PI_ERR_NOMEM. */
pi_status context_allocate(engine_context *c, pi_error *err);
/* Before a ubatch: chooses the memory of its rows. Returns the bytes of lent memory that they use.
 */
size_t context_place_rows(engine_context *c);
/* context_create.c: creates plan and working memory for c->options; replaces the old ones. */
pi_status context_build(engine_context *c, pi_error *err);
/* Whether neurons move, where they can (neurons_move). */
bool context_moves_neurons(const engine_options *o);
/* Drops the plan; sessions cannot be used until there is a new one. */
void context_drop_plan(engine_context *c);
/* PI_ERR_ARG: the process was forked from the one that created the context. `call` is for the
 * message. */
pi_status context_check_process(const engine_context *c, const char *call, pi_error *err);

/* Whether a layer's part of a KV cache is on the GPU. */
static inline bool context_kv_on_gpu(const engine_context *c, int layer) {
    return c->cpu.plan->splits[layer].primary == SIDE_GPU;
}

#endif
