/* context.h: inside of a context. Private to src/engine.
 *
 * All worker threads run the same loop over the steps of a ubatch; each step hands out its work
 * with pool_take and ends with a barrier. The first two groups of fields are all that the CPU's
 * steps (cpu_exec.h) read; the calling thread writes them before the workers start. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <stdatomic.h>

#include "engine.h"
#include "experts_state.h"
#include "thread_scratch.h"
#include "ubatch.h"

struct gpu_exec; /* gpu_exec.h */

enum { CONTEXT_NO_LAYER = -2 }; /* -1: before and after the layers */

struct engine_context {
    /* What the CPU's steps work on. */
    const model *model; /* as it was opened, or as the pager has it */
    plan *plan;         /* NULL: the context lost its GPU and could not fall back to the CPU */
    cpu_kernels kernels;
    pool *pool;
    paging *paging; /* NULL: all weights are in memory, or mapped */
    quant_type type_k, type_v;
    rope_frequencies rope;
    int attn_queries;                        /* rows of Q that a task can hold */
    expert_adapter *adapter;                 /* NULL: experts stay where they are */
    engine_trace *trace;                     /* NULL: none */
    activity_counts *activity;               /* NULL: nothing is counted */
    int n_gpus;                              /* 0: everything is on the CPU */
    struct gpu_exec *gpus[PLAN_MAX_DEVICES]; /* [n_gpus]; NULL: one without work */

    /* Working memory of the CPU's steps. One mapping holds all arrays here but `scratch`. */
    uint8_t *memory;
    size_t n_memory;
    float *buf[BUF_COUNT];                     /* [n_batch][plan->width], LOGITS [n_logits] */
    void *act[PLAN_SLOTS][CPU_ACT_KIND_COUNT]; /* both layouts fit */
    float *angles;                             /* [n_batch][ROPE_SETS][n_rot/2][2]: cos, sin */
    float *hidden;                             /* [n_batch][n_embd], rows that were wanted */
    int32_t *tokens, *out_rows;                /* [n_batch] */
    int32_t *hidden_rows;              /* [n_batch] rows of X whose hidden states are wanted */
    int64_t *positions;                /* [n_batch] */
    ubatch_item *items, **item_of_row; /* [n_batch] */
    thread_scratch *scratch;           /* [pool_size] */
    float *partial; /* [PLAN_FFN_MAX_PARTS][PLAN_FFN_MAX_COLS][n_embd]: sums of down rows */
    bool partial_used[PLAN_FFN_MAX_PARTS];
    float *split_state; /* [tokens of FORM_FEW at most][n_head][MAX_SPLITS][2 + head_dim]: m, l,
                           acc */
    ubatch_experts experts;
    engine_ubatch ubatch;
    int idle_layer;       /* of this ubatch: the last one whose exchange has nothing to do */
    int64_t n_received;   /* messages of GPUs since context_forward began */
    atomic_bool gpu_lost; /* during a ubatch: a GPU timed out */
    atomic_int bad_step; /* of a ubatch: the first norm whose input was not finite; INT_MAX: none */

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
    engine_gpu_bytes gpu_kept[PLAN_MAX_DEVICES];
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
/* forward.c: feeds inputs that were checked, from where their sessions stand. */
pi_status context_forward(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);

/* Whether a layer's part of a KV cache is on the GPU. */
static inline bool context_kv_on_gpu(const engine_context *c, int layer) {
    return c->plan->splits[layer].primary == SIDE_GPU;
}

/* Rotates a row of the cache, or what is multiplied by it (kv_hadamard). */
static inline void context_hadamard(const engine_context *c, quant_type type, float *x, int64_t n) {
    kv_rotate(&c->kernels, type, x, n);
}

/* RoPE angles of the position of a row of the ubatch. */
static inline void rope_fill_angles(engine_context *c, int64_t row) {
    rope_fill(&c->rope, c->item_of_row[row]->session->kv.n_ctx, c->positions[row],
              c->angles + row * ROPE_SETS * c->model->hp.n_rot);
}

#endif
