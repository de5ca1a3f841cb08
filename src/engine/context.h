/* context.h: the inside of a context, and what the files of src/engine do with it, in the order of
 * a call. Private to src/engine; stage.h has the part for several machines.
 *
 * A context connects the two executors, the CPU's (src/exec/cpu) and the GPUs' (src/exec/gpu), with
 * the ubatch that both process. All worker threads run the same loop over the steps of a ubatch;
 * each step distributes its work with pool_take and ends with a barrier. */
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

/* ---- the context: context_create.c, context_memory.c ----------------------------------------- */

/* Creates plan and working memory for c->options; replaces the old ones. */
pi_status context_build(engine_context *c, pi_error *err);
/* Sizes the working memory from the plan and allocates it. PI_ERR_NOMEM. */
pi_status context_allocate(engine_context *c, pi_error *err);
/* Before a ubatch: chooses the memory of its rows; returns the bytes of lent memory among it. */
size_t context_place_rows(engine_context *c);
/* Whether neurons move, where they can (neurons_move). */
bool context_moves_neurons(const engine_options *o);
/* PI_ERR_ARG: the process was forked from the one that created the context. `call` is for the
 * message. */
pi_status context_check_process(const engine_context *c, const char *call, pi_error *err);

/* ---- a call, split into ubatches: request.c -------------------------------------------------- */

/* PI_ERR_ARG, PI_ERR_LIMIT, PI_ERR_RANGE: no session changes. */
pi_status request_check(const engine_context *c, const pi_input *inputs, int n_inputs,
                        pi_error *err);
pi_status request_check_tokens(const engine_context *c, const pi_input *in, pi_error *err);
/* Rows of logits that the inputs want. */
int request_logits(const pi_input *inputs, int n_inputs);
int request_max_tokens(const engine_context *c); /* maximum tokens of a ubatch */
/* Progress of a request: earlier ubatches fed `done` tokens of input `index`. */
typedef struct request_cursor {
    int index, done;
} request_cursor;
/* Sets up c->cpu.ubatch with the next tokens, at most n_batch; false: all tokens were fed. */
bool request_next_ubatch(engine_context *c, const pi_input *inputs, int n_inputs,
                         request_cursor *at);

/* ---- a ubatch: forward.c --------------------------------------------------------------------- */

/* For stage.c. forward_begin chooses the form of the ubatch; forward_run runs steps [first_step,
 * end_step) on all threads; forward_end waits for the GPUs and returns the status of the ubatch. */
void forward_begin(engine_context *c, int first_step, int end_step);
void forward_run(engine_context *c);
pi_status forward_end(engine_context *c, pi_error *err);
void forward_count(engine_context *c); /* after a ubatch that succeeded */
/* Evaluates checked inputs, all ubatches; their sessions stay as they are until forward_grow. */
pi_status forward_ubatches(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
void forward_grow(const pi_input *in); /* the input's tokens are part of its session now */

/* PI_ERR_RANGE if the last ubatch computed values that are not finite; the message names the layer
 * where they began (finite.c). */
pi_status context_check_finite(const engine_context *c, pi_error *err);

/* ---- what a context records: record.c -------------------------------------------------------- */

/* Adds the bytes that the last ubatch read to the counters. */
void context_count(engine_context *c);
/* After a ubatch: uses of experts that the GPU's routers chose. The GPU sends them to the host only
 * while gpu_sides.wants_uses. */
void context_count_routed(engine_context *c);
/* After a ubatch, if activity is watched: adds the GPUs' counts. */
void context_count_activity(engine_context *c);
/* Around every ubatch, where there is a trace; `done`: the ubatch succeeded. */
void context_trace_begin(engine_context *c);
void context_trace_end(engine_context *c, bool done);

/* ---- all GPUs of a context: context_gpus.c --------------------------------------------------- */

/* The GPUs' part of the context for its current plan and options. */
gpu_sides context_gpu_sides(engine_context *c);
/* Also creates the adapters of experts and neurons (adapt.h, adapt_neurons.h). After an error,
 * context_gpus_destroy frees the rest. */
pi_status context_gpus_create(engine_context *c, pi_error *err);
void context_gpus_destroy(engine_context *c);
void context_gpus_begin(engine_context *c); /* launches their steps of a ubatch */
/* Waits for all GPUs; returns the first status that is not PI_OK. */
pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err);

/* Between two ubatches: continues the current swap of experts, or begins the next one. */
void context_gpus_swap(engine_context *c);
/* At the start, and after work on the devices was dropped: abandons the current swap, which may
 * begin again later, and sends the devices the locations of the experts. */
void context_gpus_restart_swaps(engine_context *c);
/* Whether both sides of the current ubatch have few tokens: then active neurons are known. */
bool context_gpus_have_few(const engine_context *c);
/* Between two ubatches: counts the last one's active neurons and exchanges the next ones. */
void context_gpus_move_neurons(engine_context *c);

void context_gpus_drop_session(const engine_context *c, pi_session *s);
extern const session_gpus context_session_gpus; /* of all sessions */

/* The GPU that a layer belongs to; NULL: it has no work. */
static inline gpu_exec *context_gpu(const engine_context *c, int layer) {
    return cpu_exec_gpu(&c->cpu, layer);
}
/* Whether a layer's part of a KV cache is on the GPU. */
static inline bool context_kv_on_gpu(const engine_context *c, int layer) {
    return c->cpu.plan->splits[layer].primary == SIDE_GPU;
}

/* ---- with fewer GPUs: recover.c -------------------------------------------------------------- */

/* Moves neurons of a GPU to the CPU so that `need` bytes are free on the GPU; primary devices,
 * caches and sessions stay. PI_ERR_NOMEM: too few neurons, nothing has changed. After other errors,
 * call context_fall_back. */
pi_status context_make_gpu_room(engine_context *c, int device, uint64_t need, pi_error *err);
/* Falls back to the CPU and restores all sessions. engine_gpu_loss returns the message of `why`. On
 * failure, sessions are empty and the context cannot be used. */
pi_status context_fall_back(engine_context *c, const pi_error *why, pi_error *err);
/* The error of a context that could not fall back. */
pi_status context_unusable(const engine_context *c, pi_error *err);

#endif
