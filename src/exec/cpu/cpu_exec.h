/* cpu_exec.h: the CPU's side of a context: the functions that run the steps of a plan, and the
 * state that they work on. The engine fills in a cpu_exec and runs the steps.
 *
 * ops.def says which function runs an operation with a kernel. All threads of a ubatch call the
 * function of a step; each takes pieces of the work (pool_take) until none are left, and the
 * forward loop ends the step with a barrier. Only one thread calls the function of a step that is
 * one piece of work. */
#ifndef EXEC_CPU_EXEC_H
#define EXEC_CPU_EXEC_H

#include <math.h>
#include <stdatomic.h>

#include "activity.h"
#include "adapt.h"
#include "adapt_neurons.h"
#include "gpu_exchange.h"
#include "paging.h"
#include "trace.h"
#include "ubatch.h"

/* ---- working memory of a thread -------------------------------------------------------------- */

enum {
    /* Decode splits long contexts over threads; states of split ranges are kept and merged. */
    ATTN_SPLIT_LENGTH = 1024, /* positions per task at least, so that merging stays negligible */
    ATTN_MAX_SPLITS = 32,
    ATTN_QUERIES = 128 /* rows of Q per task: amortizes decoding K and V over a prompt's tokens */
};

/* Bytes of weights that a thread read in this ubatch, in steps that do not read all of theirs. */
typedef struct ubatch_bytes {
    uint64_t ffn;       /* rows of gate, up and down */
    uint64_t gathered;  /* non-contiguous rows among these */
    uint64_t predictor; /* second products, signs */
    uint64_t head;      /* rows of the output matrix */
    uint64_t active;    /* not bytes: active neurons of sparse layers */
} ubatch_bytes;

/* Positions whose keys and values are computed at once; a multiple of CPU_PANEL. */
enum { LATENT_BLOCK = 128 };

/* Prefill with compressed attention (cpu_latent.c), one head at a time. head_dim: of a query
 * or of a value, the larger. */
typedef struct latent_scratch {
    int64_t row_stride, head_dim; /* floats; row_stride: of a cached row, whole cache lines */
    float *rows;                  /* [LATENT_BLOCK][row_stride] as floats; also gathered rows of the
                                     cache, where attention reads selected ones */
    float *k, *v;                 /* [LATENT_BLOCK][head_dim] */
    void *act;                    /* latent vectors, quantized */
    float *q, *acc;               /* [n_batch][head_dim] */
    float *m, *l;                 /* [n_batch] */
    int32_t *first, *limit;       /* [n_batch] */
} latent_scratch;

/* Positions whose index scores are computed at once (DSA); a multiple of CPU_ROW_TILE. */
enum { INDEX_PART = 256 };

typedef struct thread_scratch {
    void *kernel; /* for matmul (decoded tiles of weights) and attention kernels */
    /* Queries and softmax states of attention. */
    float *q, *m, *l, *acc; /* attn_queries rows */
    int32_t *first, *limit; /* [attn_queries] */
    void *head;             /* OP_HEADS: quantized input of a head */
    void *index_act;        /* DSA: quantized index queries, attn_queries of them */
    float *index;           /* DSA: [attn_queries][INDEX_PART] products with index keys */
    latent_scratch latent;
    /* One part of an FFN layer. */
    float *gate, *up; /* [PLAN_EXPERT_MAX_COLS tokens][max_part_rows] */
    int32_t *rows;    /* [max_part_rows], selected neurons */
    uint8_t *mark;    /* [max_part_rows], bit c: token c selected the neuron */
    float *recur; /* a head of a recurrent layer, CPU_RECUR_TOKENS: decays, keys, queries, values;
                     then what its kernel needs */
    float *best;  /* [n_batch] OP_HEAD_SCORES: per row of logits, this thread's best score */
    ubatch_bytes counts;
} thread_scratch;

/* ---- the CPU's side of a context ------------------------------------------------------------- */

/* What the CPU's steps work on; the calling thread writes it before the workers start. */
typedef struct cpu_exec {
    const model *model; /* as opened, or the pager's copy of it */
    plan *plan;         /* NULL: the context lost its GPU and could not fall back to the CPU */
    cpu_kernels kernels;
    pool *pool;
    paging *paging; /* NULL: all weights are in memory, or mapped */
    quant_type type_k, type_v;
    rope_frequencies rope;
    int attn_queries;          /* rows of Q that a task can hold */
    float expert_slack;        /* engine_options.expert_slack */
    expert_adapter *adapter;   /* NULL: experts stay where they are */
    neuron_adapter *neurons;   /* counts this ubatch's uses of neurons; NULL: nothing does */
    engine_trace *trace;       /* NULL: none */
    activity_counts *activity; /* NULL: nothing is counted */
    gpu_exec *const *gpus;     /* [PLAN_MAX_DEVICES]; NULL: the GPU has no work */

    /* Working memory. */
    float *buf[BUF_COUNT];                     /* [n_batch][plan->width], LOGITS [n_logits] */
    void *act[PLAN_SLOTS][CPU_ACT_KIND_COUNT]; /* both layouts fit */
    float *angles;                             /* [n_batch][ROPE_SETS][n_rot/2][2]: cos, sin */
    thread_scratch *scratch;                   /* [pool_size] */
    float *partial; /* [PLAN_FFN_MAX_PARTS][PLAN_FFN_MAX_COLS][n_embd]: sums of down rows */
    bool partial_used[PLAN_FFN_MAX_PARTS];
    float *split_state; /* [tokens of FORM_FEW at most][n_head][ATTN_MAX_SPLITS][2 + head_dim]: m,
                           l, acc */
    ubatch_experts experts;

    engine_ubatch ubatch;
    bool decodes;         /* an observer reads the inputs of products: messages in int8 form are
                             also converted to floats in BUF_Y */
    int idle_layer;       /* of the ubatch: the last layer whose exchange has nothing to do */
    int64_t n_received;   /* messages of GPUs since the forward pass began */
    atomic_bool gpu_lost; /* during a ubatch: a GPU timed out */
    atomic_int bad_step; /* of a ubatch: the first norm whose input was not finite; INT_MAX: none */
} cpu_exec;

enum { CPU_EXEC_NO_LAYER = -2 }; /* -1: steps before and after the layers */

/* ---- functions of ops.def (ith: the calling thread) ------------------------------------------ */

/* cpu_vector.c */
void cpu_exec_embed(cpu_exec *c);
void cpu_exec_angles(cpu_exec *c);
void cpu_exec_embed_layers(cpu_exec *c, const plan_step *s, const args_norm *a);
void cpu_exec_norm(cpu_exec *c, const plan_step *s, const args_norm *a);
void cpu_exec_head_norm(cpu_exec *c, const plan_step *s, const args_norm *a);
void cpu_exec_quantize(cpu_exec *c, const plan_step *s, const args_quantize *a);
void cpu_exec_add(cpu_exec *c, const plan_step *s, const args_add *a);
void cpu_exec_softcap(cpu_exec *c, const plan_step *s, const args_softcap *a);
void cpu_exec_rope_store(cpu_exec *c, const plan_step *s, const args_rope *a);
/* cpu_matmul.c */
void cpu_exec_matmul(cpu_exec *c, const plan_step *s, int ith);
/* cpu_streams.c */
void cpu_exec_spread(cpu_exec *c, const plan_step *s);
void cpu_exec_merge(cpu_exec *c, const plan_step *s);
void cpu_exec_predict(cpu_exec *c, const plan_step *s, const args_mix *a);
void cpu_exec_hyper_start(cpu_exec *c, const plan_step *s);
void cpu_exec_hyper_in(cpu_exec *c, const plan_step *s, const args_hyper *a);
void cpu_exec_hyper_mean(cpu_exec *c, const plan_step *s);
void cpu_exec_past_in(cpu_exec *c, const plan_step *s, const args_past *a);
void cpu_exec_past_out(cpu_exec *c, const plan_step *s, const args_past *a);
void cpu_exec_hyper_out(cpu_exec *c, const plan_step *s, const args_hyper *a);
void cpu_exec_correct(cpu_exec *c, const plan_step *s, const args_mix *a);
/* cpu_ngram.c */
void cpu_exec_ngram_rows(cpu_exec *c, const plan_step *s);
void cpu_exec_ngram_gate(cpu_exec *c, const plan_step *s, const plan_ngrams *g);
/* cpu_attention.c */
void cpu_exec_attention_whole(cpu_exec *c, const plan_step *s, const args_attention *args, int ith);
void cpu_exec_attention_split(cpu_exec *c, const plan_step *s, const args_attention *args, int ith);
/* cpu_blocks.c */
void cpu_exec_index_store(cpu_exec *c, const plan_step *s, const args_rope *a);
void cpu_exec_find_blocks(cpu_exec *c, const plan_step *s, const plan_blocks *blocks, int ith);
/* cpu_bounds.c */
void cpu_exec_find_by_bounds(cpu_exec *c, const plan_step *s, const args_find_blocks *a, int ith);
/* cpu_latent.c */
void cpu_exec_heads(cpu_exec *c, const plan_step *s, const args_heads *a, int ith);
void cpu_exec_latent_store(cpu_exec *c, const plan_step *s, const args_latent_store *a, int ith);
void cpu_exec_compress(cpu_exec *c, const plan_step *s, const args_compress *a, int ith);
void cpu_exec_rope_back(cpu_exec *c, const plan_step *s, const args_rope *a);
/* cpu_recurrent.c */
void cpu_exec_conv(cpu_exec *c, const plan_step *s, const plan_recurrent *r);
void cpu_exec_recur(cpu_exec *c, const plan_recurrent *r, int ith);
void cpu_exec_gate_ssm(cpu_exec *c, const plan_recurrent *r);
void cpu_exec_gate_heads(cpu_exec *c, const plan_step *s, const args_gate_heads *a);
/* cpu_wkv.c */
void cpu_exec_shift(cpu_exec *c, const plan_step *s, const args_shift *a);
void cpu_exec_wkv(cpu_exec *c, const plan_recurrent *r, int ith);
/* cpu_ffn_dense.c */
void cpu_exec_ffn_in(cpu_exec *c, const plan_step *s, int ith);
void cpu_exec_top_k(cpu_exec *c, const plan_step *s, const args_top_k *a);
void cpu_exec_ffn_masked(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
void cpu_exec_ffn_down_tiled(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
/* cpu_ffn_sparse.c */
void cpu_exec_ffn_sparse_one(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
void cpu_exec_ffn_sparse_union(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
void cpu_exec_prefetch(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
void cpu_exec_ffn_down_rows(cpu_exec *c, const plan_step *s, const plan_ffn *f);
/* cpu_head.c */
void cpu_exec_head_scores(cpu_exec *c, const plan_step *s, int ith);
void cpu_exec_head_rows(cpu_exec *c, const plan_step *s, const args_head *a, int ith);
void cpu_exec_draft_read(cpu_exec *c, const args_draft_read *a);
void cpu_exec_draft_keep(cpu_exec *c);
void cpu_exec_draft_in(cpu_exec *c, const plan_step *s, const args_draft_in *a);
void cpu_exec_draft_logits(cpu_exec *c);
/* cpu_route.c */
void cpu_exec_route(cpu_exec *c, const plan_step *s, const plan_experts *e);
void cpu_exec_prefetch_experts(cpu_exec *c, const plan_step *s, const plan_experts *e);
void cpu_exec_group(cpu_exec *c, const plan_step *s, const plan_experts *e);
/* cpu_experts.c */
void cpu_exec_experts_gather(cpu_exec *c, const plan_experts *e);
void cpu_exec_experts_fc1(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith);
void cpu_exec_experts_quantize(cpu_exec *c, const plan_step *s, const plan_experts *e);
void cpu_exec_experts_in(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith);
void cpu_exec_experts_down(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith);
void cpu_exec_experts_sum(cpu_exec *c, const plan_step *s, const plan_experts *e);
/* cpu_exchange.c */
void cpu_exec_select(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith);
void cpu_exec_send(cpu_exec *c, const plan_step *s, const args_message *a);
void cpu_exec_receive(cpu_exec *c, const plan_step *s, const args_message *a);

/* ---- other functions that the engine calls --------------------------------------------------- */

/* Writes the hidden states of the wanted rows where the head is on the CPU. The calling thread does
 * it after the steps: there are few rows, or the work is small compared with prefill. */
void cpu_exec_hidden(cpu_exec *c);
/* A token's embedding [n_embd], without position and token type embeddings; zeros if the file has
 * no token embeddings. */
void cpu_exec_token_embedding(const cpu_exec *c, int32_t token, float *out);

/* Fills in engine_ubatch.ngrams, and stores the last tokens of each item in the sessions' states.
 * For plans with embeddings of n-grams; call it before the steps. */
void cpu_exec_find_ngrams(cpu_exec *c);

/* y = norm of x, which may be y. */
void cpu_exec_norm_row(cpu_exec *c, const plan_step *s, const args_norm *a, const float *x,
                       float *y);

/* A session's memory for OP_FIND_BLOCKS: scores of blocks, and bounds of keys; none of either if
 * its tokens attend to all blocks. attn_blocks: of plan_options. The layout functions fill in all
 * fields except `data`, with n_bytes 0 if no memory is needed; false: the size overflows. The
 * create functions also allocate it. PI_ERR_NOMEM. */
bool block_scores_layout(const model_hparams *hp, int32_t attn_blocks, int n_batch, int64_t n_ctx,
                         block_scores *out);
pi_status block_scores_create(block_scores *b, const model_hparams *hp, int32_t attn_blocks,
                              int n_batch, int64_t n_ctx, pi_error *err);
void block_scores_free(block_scores *b); /* *b may be zeroed */
/* The positions that a token attends to [n_list], if the session has lists. */
int32_t *cpu_exec_block_list(const ubatch_item *item, int token);
bool key_bounds_layout(const model *m, int32_t attn_blocks, int64_t n_ctx, key_bounds *out);
pi_status key_bounds_create(key_bounds *b, const model *m, int32_t attn_blocks, int64_t n_ctx,
                            pi_error *err);
void key_bounds_free(key_bounds *b); /* *b may be zeroed */
/* Call before and after the steps of a ubatch: update key_bounds.positions. */
void key_bounds_begin(cpu_exec *c);
void key_bounds_end(cpu_exec *c);

/* Counts the experts that a ubatch uses in a layer, if activity is counted; experts may repeat. */
void cpu_exec_watch_experts(cpu_exec *c, int layer, const int32_t *experts, int n);

/* The GPU that a layer belongs to; NULL: that GPU has no work. */
static inline gpu_exec *cpu_exec_gpu(const cpu_exec *c, int layer) {
    return c->gpus[c->plan->splits[layer].device];
}

/* Computes the RoPE angles for the position of a row of the ubatch. */
static inline void cpu_exec_fill_angles(cpu_exec *c, int64_t row) {
    rope_fill(&c->rope, c->ubatch.item_of_row[row]->session->kv.n_ctx, c->ubatch.positions[row],
              c->angles + row * ROPE_SETS * c->model->hp.n_rot);
}

/* ---- products -------------------------------------------------------------------------------- */

/* How a product is computed, by matrix-vector or tiled kernels: the layout of the activations, and
 * a function that computes y[c * ldy + r] for rows [r0, r1) of a matrix. */
typedef struct cpu_exec_product {
    cpu_act_layout layout;
    void (*run)(const cpu_mat_kernels *mk, const cpu_mat *w, int64_t r0, int64_t r1,
                const cpu_act *x, float *y, int64_t ldy, void *scratch);
} cpu_exec_product;
extern const cpu_exec_product cpu_exec_by_vector, cpu_exec_by_tile;

/* Steps after the layers compute the wanted rows of logits only. */
static inline bool cpu_exec_is_head(const cpu_exec *c, const plan_step *s) {
    return s - c->plan->steps >= c->plan->n_layer_steps;
}
/* The form in which the ubatch runs a step. */
static inline plan_form cpu_exec_form(const cpu_exec *c, const plan_step *s) {
    return cpu_exec_is_head(c, s) ? c->ubatch.head_form : c->ubatch.form;
}
/* Rows of the buffers that a step works on. */
static inline int64_t cpu_exec_n_rows(const cpu_exec *c, const plan_step *s) {
    return cpu_exec_is_head(c, s) ? c->ubatch.n_out : c->ubatch.n_tokens;
}

/* How a step multiplies, and how it quantizes activations. */
static inline const cpu_exec_product *cpu_exec_product_of(const cpu_exec *c, const plan_step *s) {
    bool tiled = s->kernel[cpu_exec_form(c, s)] == KERNEL_TILED;
    return tiled ? &cpu_exec_by_tile : &cpu_exec_by_vector;
}
static inline cpu_act_layout cpu_exec_layout(const cpu_exec *c, const plan_step *s) {
    return cpu_exec_product_of(c, s)->layout;
}

/* The activations of n_cols vectors of n elements in a slot. */
cpu_act cpu_exec_slot_act(const cpu_exec *c, int slot, cpu_act_kind kind, cpu_act_layout layout,
                          int64_t n, int64_t n_cols);
/* Applies scale and bias to rows [r0, r1) of one product; y points at row r0. */
void cpu_exec_finish_column(const cpu_exec *c, const plan_matrix *pm, float *y, int64_t r0,
                            int64_t r1);
/* Computes rows [r0, r1) of one product for all columns, with scale and bias, into the buffer of
 * the matrix. */
static inline void cpu_exec_multiply(cpu_exec *c, const cpu_exec_product *by, const plan_matrix *pm,
                                     const cpu_act *x, int64_t r0, int64_t r1, int ith) {
    int64_t first = pm->out == BUF_LOGITS ? c->ubatch.first_logits_row : 0;
    int64_t ldy = c->plan->width[pm->out];
    float *y = c->buf[pm->out] + first * ldy + pm->out_at;
    by->run(&c->kernels.mat[pm->w.type], &pm->w, r0, r1, x, y, ldy, c->scratch[ith].kernel);
    if (!pm->bias && pm->scale == 1) return;
    for (int64_t col = 0; col < x->n_cols; col++)
        cpu_exec_finish_column(c, pm, y + col * ldy + r0, r0, r1);
}
/* Finishes elements [j0, j1) of one token's product with a down matrix of rows: applies scale and
 * bias, then adds them to X if the step does. */
void cpu_exec_finish_down(cpu_exec *c, const plan_step *s, const plan_ffn *f, int64_t col,
                          int64_t j0, int64_t j1);
/* Computes the predictor scores of neurons [r0, r1) for all tokens; those of token k start at y + k
 * * ldy. */
void cpu_exec_scores(cpu_exec *c, const cpu_exec_product *by, const plan_ffn *f, int64_t r0,
                     int64_t r1, float *y, int64_t ldy, int ith);

/* gate[i] = f(gate[i]) * up[i] with the activation of the architecture, or f(gate[i]) if up is
 * NULL. limit: of gate and up (model_layer_hparams), 0: none. A limit needs `up`, which may be
 * overwritten. */
void cpu_exec_activate(const cpu_exec *c, float limit, float *gate, float *up, int64_t n);

/* The layout of an expert's activations. */
cpu_act_layout cpu_exec_expert_layout(const cpu_exec *c, cpu_act_kind kind, int64_t n_pairs);

/* Chunks of a range of rows. Each takes half of a thread's fair share of the remaining rows, within
 * limits and in whole row tiles (guided self-scheduling; Polychronopoulos and Kuck 1987). */
typedef struct row_chunks {
    int64_t total, least, most;
    int nth;
    int64_t index, next; /* chunk `index` starts at row `next` */
} row_chunks;
row_chunks row_chunks_make(int64_t total, size_t row_bytes, int nth, cpu_act_layout layout);
/* Takes the next chunk [*r0, *r1) of the step; false when all are taken. */
bool row_chunks_take(pool *p, row_chunks *k, int64_t *r0, int64_t *r1);

/* A token's row of a buffer. */
static inline float *cpu_exec_row(const cpu_exec *c, plan_buffer b, int64_t row) {
    return c->buf[b] + row * c->plan->width[b];
}

static inline float cpu_exec_sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

/* log(1 + e^x), without overflow. */
static inline float cpu_exec_softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

/* Whether a predictor with this threshold selects neuron r; a score of NaN selects it. bias may be
 * NULL. */
static inline bool cpu_exec_passes(float score, const float *bias, int64_t r, float threshold) {
    float value = bias ? score + bias[r] : score;
    return !(value < threshold);
}
/* Whether the predictor of a dense FFN selects neuron r. */
static inline bool cpu_exec_selects(const plan_ffn *f, const float *score, int64_t r) {
    return cpu_exec_passes(score[r], f->score_bias, r, f->threshold);
}

/* The hidden value of a neuron, zero up to plan_ffn.cut_down. An activation of zero stays zero
 * whatever the neuron's up is. */
static inline float cpu_exec_hidden_value(float activated, float up, float cut_down) {
    float h = activated * up;
    return activated == 0 || fabsf(h) <= cut_down ? 0 : h;
}

/* Whether bit r of a token's selected neurons is set. */
static inline bool cpu_exec_is_selected(const uint32_t *bits, int64_t r) {
    return bits[r / 32] >> (r % 32) & 1;
}

#endif
