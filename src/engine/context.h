/* context.h: inside of a context. Private to src/engine.
 *
 * A ubatch feeds up to n_batch tokens, of one or several sessions, through all steps of the plan.
 * All worker threads run the same loop over steps; each step hands out its work with pool_take and
 * ends with a barrier. Fields of `ubatch` are written by the calling thread before the workers
 * start and are constant while they run. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <stdatomic.h>

#include "adapt.h"
#include "engine.h"
#include "form_pace.h"
#include "gpu_exec.h"
#include "kv_cache.h"
#include "recurrent_state.h"
#include "trace.h"

/* Sparse attention: of a layer, while it is computed. */
typedef struct block_scores {
    float *data; /* [n_batch][n_index_head][n_blocks]; NULL: a token attends to all blocks */
    int64_t n_blocks;
    size_t n_bytes;
} block_scores;

struct pi_session {
    engine_context *context;
    kv_cache kv; /* of layers whose primary is the CPU */
    recurrent_state state;
    block_scores blocks;
    void *device_kv[PLAN_MAX_DEVICES]; /* of the others, on their GPUs; NULL: there are none */
    int32_t *tokens; /* [n_ctx] all that were fed, to feed them again without a GPU that is lost;
                        NULL without one */
    engine_session *next; /* of the context */
    int64_t length;       /* tokens fed */
    bool in_call;
};

/* Consecutive rows of the batch that belong to one session. */
typedef struct ubatch_item {
    engine_session *session;
    int row, n_tokens;
    int64_t pos; /* of its first token */
    /* Of recurrent layers: the state before the first token (NULL: zeros), after the last one, and
     * after n_before of them (NULL: not wanted). The first two may be the same. */
    const float *state_from;
    float *state_to, *state_before;
    int n_before; /* < n_tokens */
} ubatch_item;

typedef struct engine_ubatch {
    int n_tokens, n_items, n_out, n_hidden;
    plan_form form, head_form; /* of the layers by n_tokens, of the head by n_out */
    /* By GPU: the CPU's part of layers whose primary it is is left out. */
    bool streaming[PLAN_MAX_DEVICES];
    int first_step, end_step; /* of the plan */
    int first_logits_row;     /* where this ubatch's logits go */
    int first_hidden_row;     /* and its hidden states */
    int nth;                  /* threads */
    form_pace *pace;          /* that is told how long it took; NULL: none */
} engine_ubatch;

/* Bytes of weights that a thread read of active neurons in this ubatch. */
typedef struct ubatch_bytes {
    uint64_t ffn;       /* rows of gate, up and down */
    uint64_t gathered;  /* of these, non-contiguous rows */
    uint64_t predictor; /* second products, signs */
} ubatch_bytes;

enum { LATENT_BLOCK = 128 }; /* positions whose keys and values are made at once; of whole panels */

/* Of prompts of compressed attention (cpu_latent_prompt.c), one head at a time. head_dim: of a
 * query and of a value, the larger. */
typedef struct latent_scratch {
    int64_t row_stride, head_dim; /* floats; row_stride: of a cached row, whole cache lines */
    float *rows;                  /* [LATENT_BLOCK][row_stride] as floats */
    float *k, *v;                 /* [LATENT_BLOCK][head_dim] */
    void *act;                    /* latent vectors, quantized */
    float *q, *acc;               /* [n_batch][head_dim] */
    float *m, *l;                 /* [n_batch] */
    int32_t *first, *limit;       /* [n_batch] */
} latent_scratch;

/* What a thread needs for itself: decoded weight tiles, or queries and softmax states. */
typedef struct thread_scratch {
    void *kernel;           /* for matmul and attention kernels */
    float *q, *m, *l, *acc; /* attn_queries rows */
    int32_t *first, *limit; /* [attn_queries] */
    void *head;             /* OP_HEADS: a head's quantized input */
    latent_scratch latent;
    /* Of one part of an FFN layer; tokens of the ubatch in columns. */
    float *gate, *up; /* [PLAN_EXPERT_MAX_COLS][max_part_rows] */
    int32_t *rows;    /* [max_part_rows], selected neurons */
    uint8_t *mark;    /* [max_part_rows], bit c: token c selected it */
    float *recur; /* CPU_RECUR_TOKENS of a head of a recurrent layer: decays, keys, queries, values;
                     of its kernel */
    ubatch_bytes counts;
} thread_scratch;

enum {
    /* Decode splits long contexts over threads; states of split ranges are kept and merged. */
    ATTN_SPLIT_LENGTH = 1024, /* positions per task at least, so that merging stays negligible */
    ATTN_MAX_SPLITS = 32,
    ATTN_QUERIES = 128 /* rows of Q per task: amortizes decoding K and V over a prompt's tokens */
};

/* Which experts the tokens of a ubatch use. A pair is a token and one of its experts; pairs are
 * numbered by expert, then by token. */
typedef struct ubatch_experts {
    int32_t *chosen; /* [n_batch][n_used] experts of a token */
    float *weight;   /* [n_batch][n_used] */
    float *shared;   /* [n_batch] weight of the shared expert */
    int32_t *pair;   /* [n_batch][n_used]; -1: of an expert on the GPU */
    int32_t *token;  /* [n_batch * n_used] of a pair */
    int32_t *first;  /* [n_expert + 1] first pair of an expert */
    int32_t *active; /* [n_expert] those with pairs, ascending */
    uint64_t *uses;  /* [n_layer][n_expert] pairs of each expert since the context was made */
    int32_t *seen;   /* [n_layer][n_expert] those that the GPU had counted at the last look */
    bool looked;     /* after the last ubatch */
    int n_active;
    bool from_norm; /* experts of a single token read what the norm has quantized */
    /* Quantized inputs and hidden vectors: those of an expert at byte `at` of its form. */
    size_t *in_at[CPU_ACT_KIND_COUNT], *hidden_at[CPU_ACT_KIND_COUNT]; /* [n_expert] */
    uint8_t *in[CPU_ACT_KIND_COUNT], *hidden[CPU_ACT_KIND_COUNT];
} ubatch_experts;

enum { CONTEXT_NO_LAYER = -2 }; /* -1: before and after the layers */

struct engine_context {
    const model *source; /* as it was opened */
    const model *model;  /* the same, or as the pager has it */
    paging *paging;      /* NULL: all weights are in memory, or mapped */
    engine_options options;
    plan *plan; /* NULL: what followed the loss of a GPU failed */
    cpu_kernels kernels;
    pool *pool;
    int n_threads, n_threads_batch, n_batch, n_logits;
    quant_type type_k, type_v;
    form_pace paces[PLAN_FFN_MAX_COLS + 1]; /* by tokens of a ubatch */

    /* One mapping holds everything below that has pages. */
    uint8_t *memory;
    size_t n_memory;
    float *buf[BUF_COUNT];                     /* [n_batch][plan->width], LOGITS [n_logits] */
    void *act[PLAN_SLOTS][CPU_ACT_KIND_COUNT]; /* both layouts fit */
    float *angles;                             /* [n_batch][ROPE_SETS][n_rot/2][2]: cos, sin */
    /* [ROPE_SETS + 1][n_rot/2] radians per position; the last are the global ones of sessions that
     * are longer than the model's original context, where these differ (LongRoPE). */
    float *inv_freq;
    float angle_scale;                 /* of the global set's cos and sin */
    float *hidden;                     /* [n_batch][n_embd], rows that were wanted */
    int32_t *tokens, *out_rows;        /* [n_batch] */
    int32_t *hidden_rows;              /* [n_batch] rows of X whose hidden states are wanted */
    int64_t *positions;                /* [n_batch] */
    ubatch_item *items, **item_of_row; /* [n_batch] */
    int attn_queries;                  /* rows of Q a task can hold */
    thread_scratch *scratch;           /* [pool_size] */
    float *partial; /* [PLAN_FFN_MAX_PARTS][PLAN_FFN_MAX_COLS][n_embd]: sums of down rows */
    bool partial_used[PLAN_FFN_MAX_PARTS];
    ubatch_experts experts;
    float *
        split_state; /* [tokens of FORM_FEW at most][n_head][MAX_SPLITS][2 + head_dim]: m, l, acc */

    engine_observer observer; /* NULL: none */
    void *observer_user;
    engine_trace *trace;       /* NULL: none */
    engine_activity *activity; /* NULL: nothing is counted */

    engine_ubatch ubatch;
    int n_logits_rows, n_hidden_rows; /* after a call */
    pi_counters counters;
    int idle_layer;          /* of this ubatch: the last one whose exchange has nothing to do */
    engine_adapter *adapter; /* NULL: experts stay where they are */
    int n_gpus;              /* 0: everything is on the CPU */
    gpu_exec *gpus[PLAN_MAX_DEVICES]; /* [n_gpus]; NULL: one without work */
    char gpu_loss[PI_ERROR_TEXT_MAX]; /* why the context fell back to the CPU; "": it did not */
    /* By GPU, after neurons went back to the CPU; all 0: none did. */
    engine_gpu_bytes gpu_kept[PLAN_MAX_DEVICES];
    engine_session *sessions;
    atomic_bool gpu_lost; /* during a ubatch: a GPU timed out */
    int64_t n_received;   /* messages of GPUs since context_forward began */
    atomic_bool cancelled;
    atomic_bool stop[2]; /* by parity of the step: see forward.c */
    atomic_int bad_step; /* of a ubatch: the first norm whose input was not finite; INT_MAX: none */
};

/* Plan and working memory for c->options, in place of what is there. */
pi_status context_build(engine_context *c, pi_error *err);
/* Feeds inputs that were checked, from where their sessions stand. */
pi_status context_forward(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
/* Adds what the last ubatch read to the counters. */
void context_count(engine_context *c);
/* Uses of experts: of those that the CPU's router chose, and after a ubatch of those that the GPU's
 * did, which are only brought here while somebody watches or adapts. */
void context_count_chosen(engine_context *c, int layer, const int32_t *chosen, int n);
void context_count_routed(engine_context *c);
static inline bool context_wants_uses(const engine_context *c) {
    return c->activity || c->adapter;
}
/* Gives neurons of a GPU back to the CPU so that `need` bytes are free there; primary devices,
 * caches and sessions stay. PI_ERR_NOMEM: there are too few, nothing has changed. After other
 * errors only context_leave_gpu helps. */
pi_status context_shrink_gpu(engine_context *c, int device, uint64_t need, pi_error *err);
/* Falls back to the CPU, with all sessions as they were (recover.c). `why` is kept for
 * engine_gpu_loss. Where this fails, sessions are empty and the context cannot be used. */
pi_status context_leave_gpu(engine_context *c, const pi_error *why, pi_error *err);
pi_status context_unusable(const engine_context *c, pi_error *err);
/* PI_ERR_ARG in a process that was forked from the one that made the context. `call` for the
 * message. */
pi_status context_check_process(const engine_context *c, const char *call, pi_error *err);

/* context_gpus.c: the plan's GPUs, one after the other. What fails leaves those that were made to
 * context_gpus_destroy. */
pi_status context_gpus_create(engine_context *c, pi_error *err);
void context_gpus_destroy(engine_context *c);
void context_gpus_begin(engine_context *c); /* a ubatch */
/* The first status that is not PI_OK; all have ended. */
pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err);
bool context_gpus_are_alive(const engine_context *c);
/* A session's caches; those of a GPU that has no memory for one take the place of neurons. */
pi_status context_gpus_add_session(engine_context *c, engine_session *s, pi_error *err);
void context_gpus_drop_session(const engine_context *c, engine_session *s);
pi_status context_gpus_copy(engine_session *to, const engine_session *from, int64_t n,
                            pi_error *err);
/* As gpu_exec_state_read and gpu_exec_state_write, of all GPUs. */
pi_status context_gpus_read_state(const engine_session *s, const float *floats, pi_error *err);
pi_status context_gpus_write_state(const engine_session *s, const float *floats, pi_error *err);
/* The GPU that a layer belongs to; NULL: it has no work. */
static inline gpu_exec *context_gpu(const engine_context *c, int layer) {
    return c->gpus[c->plan->splits[layer].device];
}

/* Whether a layer's part of a KV cache is on the GPU. */
static inline bool context_kv_on_gpu(const engine_context *c, int layer) {
    return c->plan->splits[layer].primary == SIDE_GPU;
}

/* finite.c: PI_ERR_RANGE when the ubatch that has run computed values that are not finite; the
 * message names the layer where they began. */
pi_status context_check_finite(const engine_context *c, pi_error *err);

/* Turns a row of the cache, or what is multiplied by it, before or back (kv_hadamard). */
static inline void context_hadamard(const engine_context *c, quant_type type, float *x, int64_t n) {
    const int block = kv_hadamard(type, n);
    if (block) c->kernels.hadamard(x, n, block);
}

/* Fills inv_freq and angle_scale. */
void rope_init(engine_context *c);
/* [n_rot/2] radians per position of a set, in a session of this length. */
const float *rope_frequencies(const engine_context *c, const engine_session *s, rope_set set);
/* RoPE angles of the position of a row of the batch. */
void rope_fill_angles(engine_context *c, int64_t row);

#endif
