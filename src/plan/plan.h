/* plan.h: what will run for one model: a flat array of steps (plan_step.h) per device (CPU, GPU),
 * made once. The plan makes all decisions: weights, buffers and activations of each step, what it
 * runs as in ubatches of one token, of few and of many, and what crosses from one device to the
 * other. Executing is a loop over steps.
 *
 * Devices. Every layer has a primary, where everything but its neurons is computed, and a split
 * point: the GPU has neurons [0, hot), the CPU the rest. Both compute their neurons from the same
 * input and sum their rows of down; SEND and RECEIVE steps carry the input one way and the partial
 * sum back, and the residual stream where the primary changes. The sends of one device pair, in
 * order, with the receives of the other. Messages alternate: no device sends again before the other
 * device has answered, so that one buffer per direction is enough; a second buffer holds what a
 * device is sent once (BUF_LAYER_EMBD).
 *
 * Several GPUs have layers in stages: the first layers belong to the first device, and so on. From
 * one stage to the next the residual stream goes from GPU to GPU (`peer`): a device receives and
 * sends it that way at most once in a ubatch, so that one buffer per receiver is enough. Other GPUs
 * may be helpers in a layer: they have further ranges of its neurons, so that all devices compute
 * the layer's neurons at the same time. These messages go through the CPU, which passes the input
 * of a layer on to its helpers, and adds their partial sums to its own. plan_of_device makes the
 * plan of a single device.
 *
 * A plan borrows the model's weights and is immutable. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdio.h>

#include "error.h"
#include "plan_step.h"

enum { PLAN_MODES = PI_MODE_THRESHOLD + 1 }; /* values of pi_mode (docs/sparse.md) */

/* 32-bit words of a bit for each of n neurons. */
static inline int64_t plan_bits_words(int64_t n) {
    return (n + 31) / 32;
}

enum { PLAN_MAX_DEVICES = PI_MAX_DEVICES }; /* GPUs */

typedef struct plan_split {
    plan_side primary; /* of attention, norms, predictor and KV cache */
    int64_t hot;       /* neurons [0, hot) are on the GPU, or experts */
    int device;        /* which GPU; from layer to layer the same or a later one */
    /* Neurons of other GPUs (helpers have no experts): behind `hot` those of GPU 0, and so on; 0
     * for `device`. The CPU has the last ones. */
    int64_t helpers[PLAN_MAX_DEVICES];
} plan_split;

/* Neurons (experts) [0, plan_split_end) are on GPUs, the others on the CPU. */
static inline int64_t plan_split_end(const plan_split *c) {
    int64_t end = c->hot;
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) end += c->helpers[i];
    return end;
}

static inline bool plan_split_same(const plan_split *a, const plan_split *b) {
    bool same = a->primary == b->primary && a->hot == b->hot && a->device == b->device;
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) same = same && a->helpers[i] == b->helpers[i];
    return same;
}

typedef struct plan_options {
    pi_mode mode;   /* a layer that lacks what the mode needs takes the next one that is exact */
    float max_loss; /* for PI_MODE_AUTO: relative increase of perplexity, 0.01 for 1% */
    bool set_threshold;
    float threshold;          /* with set_threshold: instead of the model's predictor threshold */
    const plan_split *splits; /* [n_layer]; NULL: everything is on the CPU */
    plan_side head; /* with splits: of the last norm and the output matrix; the last layer's GPU */
    bool few_only;  /* ubatches have at most PLAN_FFN_MAX_COLS tokens: none is of FORM_MANY */
    bool prefetch;  /* for neurons and experts from the drive: OP_PREFETCH, OP_PREFETCH_EXPERTS */
    uint64_t cache_bytes; /* for PI_MODE_AUTO: last-level cache of the CPU; 0: of this machine */
    /* For placement: bits of what must stay on the CPU in each layer, and of the head
     * [n_layer + 1]; NULL: nothing. */
    const uint8_t *stays;
} plan_options;

/* A layer's primary, or the head; its neurons (experts). */
enum { PLAN_STAY_ALWAYS = 1, PLAN_STAY_NEURONS = 2 };

const char *ffn_mode_name(pi_mode mode); /* "auto", "dense", ... */
/* What a layer of the model runs in under these options; never PI_MODE_AUTO. */
pi_mode plan_choose_mode(const model *m, int layer, const plan_options *options);
/* PI_ERR_UNSUPPORTED when no layer can run in `mode`; the message says what the model lacks. */
pi_status plan_check_mode(const model *m, pi_mode mode, pi_error *err);

/* Room for quantized vectors. */
typedef struct plan_slot {
    int64_t width;  /* longest vector that is quantized */
    unsigned kinds; /* all that any step needs */
} plan_slot;

typedef struct plan {
    const model *model;
    pi_mode mode;               /* that most layers run in */
    int n_steps, n_layer_steps; /* those after the layers are the head's */
    plan_step *steps;           /* [n_steps], of the CPU */
    plan_matrix *matrices;      /* PLAN_MAX_GROUP for each step */
    bool is_sparse;             /* the CPU has steps OP_FFN_SPARSE */
    int many_from[PLAN_SIDES];  /* tokens from which a device runs FORM_MANY */
    int n_gpu_steps;
    plan_step *gpu_steps;         /* [n_gpu_steps], by device; none without splits */
    int64_t width[BUF_COUNT];     /* floats per row */
    int64_t gpu_width[BUF_COUNT]; /* of the GPU's buffers; 0: it has no such one */
    plan_ffn *ffn;                /* [n_layer] */
    plan_ffn *gpu_ffn;            /* [n_devices][n_layer], of a part [n_layer] */
    plan_experts *experts;        /* [n_layer] */
    int n_expert, n_expert_used;  /* 0: no layer has experts */
    uint64_t expert_bytes;        /* of all experts of all layers */
    plan_recurrent *recurrent;    /* [n_layer] */
    int64_t n_state;              /* floats of a session's recurrent state; 0: no layer has one */
    plan_split *splits;           /* [n_layer], filled in for plans without a GPU too */
    plan_side head;               /* where logits are computed */
    int n_exchanges[PLAN_SIDES];  /* messages sent by each side to the other in a ubatch */
    int n_devices;                /* the last one of the splits, plus one; without splits 0 */
    int device;                   /* of a part: which one; -1: the plan is whole */
    int first_gpu_step;           /* of a part: where its steps begin in the whole */
    /* 32-bit words of selected neurons per token in messages of a device, at most */
    int64_t bits_words[PLAN_MAX_DEVICES];
    plan_slot slots[PLAN_SIDES][PLAN_SLOTS];
    uint64_t head_bytes;   /* of the output matrix: not read when no logits are wanted */
    int64_t max_part_rows; /* over layers; 0: no neurons are left out */
    /* Bytes per ubatch: of steps that always read all of their weights (head included), of FFN
     * weights among these, and of all FFN weights (predictors apart). */
    uint64_t fixed_bytes, fixed_ffn_bytes, ffn_bytes;
} plan;

static inline plan_form plan_form_of(const plan *p, plan_side side, int n_tokens) {
    if (n_tokens >= p->many_from[side]) return FORM_MANY;
    return n_tokens > 1 ? FORM_FEW : FORM_ONE;
}

/* What goes from one primary to the next, and how many floats of a token that is. */
static inline plan_buffer plan_residual(const plan *p) {
    return p->model->hp.n_stream > 1 ? BUF_STREAMS : BUF_X;
}
static inline bool plan_is_residual(plan_buffer b) {
    return b == BUF_X || b == BUF_STREAMS;
}
static inline int64_t plan_residual_width(const model *m) {
    return (int64_t)m->hp.n_stream * m->hp.n_embd;
}

/* Floats of a token in a message with this buffer. */
static inline int64_t plan_message_width(const plan *p, plan_buffer b) {
    if (b == BUF_LAYER_EMBD) return p->width[b];
    return b == BUF_STREAMS ? plan_residual_width(p->model) : p->model->hp.n_embd;
}

/* Whether a step reads the weights of active neurons only; of all others weight_bytes are read. */
static inline bool plan_step_is_sparse(const plan_step *s) {
    return plan_op_reads(s->op) == READS_ACTIVE;
}

/* PI_ERR_UNSUPPORTED when a weight's type has no kernels, PI_ERR_NOMEM; PI_ERR_ARG for a cut that
 * is not within the layer, or parts a block of a down matrix with neurons along its rows. */
pi_status plan_create(const model *m, const cpu_kernels *kernels, const plan_options *options,
                      plan **out, pi_error *err);
void plan_free(plan *p); /* NULL is fine */
/* What a device has of a plan: its steps are `gpu_steps`, and the head is SIDE_GPU when it is
 * there. Borrows the plan's arrays; not to be freed. */
void plan_of_device(const plan *p, int device, plan *out);
/* Whether a layer, or what follows the layers (-1), belongs to a part's device, which is no helper
 * in it; to a whole plan all do. */
bool plan_has(const plan *part, int layer);
/* The GPU that a part's device gets the residual stream from; -1: the CPU alone, or none. */
int plan_peer_of(const plan *part);
/* What a device has of a layer's neurons in a whole plan; a zeroed one: none. */
plan_ffn *plan_gpu_ffn(const plan *p, int device, int layer);
/* What the GPU's side has no steps for in this model ("sliding windows"); NULL: nothing. Such a
 * model has no splits. */
const char *plan_gpu_lacks(const model *m);
/* Neurons (experts) that cannot be parted in a layer of this model: 1, or the blocks of a down
 * matrix with neurons along its rows. A cut is a multiple of it, or all neurons. */
int64_t plan_split_unit(const model *m, int layer);
/* Rows [first, first + n) of a matrix that has a row per neuron, bias included. */
plan_matrix plan_take_rows(const plan_matrix *m, int64_t first, int64_t n);
/* Elements [first, first + n) of every row; whole blocks. */
plan_matrix plan_take_columns(const plan_matrix *m, int64_t first, int64_t n);
/* Of a layer with compressed attention: how many steps after its OP_ATTENTION the one is that
 * multiplies with ROLE_ATTN_K_B (below 0) or ROLE_ATTN_V_B. */
int plan_latent_offset(const plan_step *attention, tensor_role role);
/* A line per step, as text: in the order of execution on each device, with what it runs as in
 * ubatches of each size. */
void plan_print(const plan *p, FILE *out);

#endif
