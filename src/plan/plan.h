/* plan.h: the execution plan of a model: a flat array of steps (plan_step.h) per device (CPU, GPU),
 * created once. The plan contains all decisions: weights, buffers and activations of each step, its
 * kernel in ubatches of one token, of few and of many, and the transfers between devices. Execution
 * is a loop over steps.
 *
 * Devices. Every layer has a primary device, which computes everything except neurons, and a split
 * point: the GPU has neurons [0, hot), the CPU the rest. Both compute their neurons from the same
 * input and sum their rows of down; SEND and RECEIVE steps transfer the input one way and the
 * partial sum back, and the residual stream where the primary changes. The sends of one device
 * match, in order, the receives of the other. Messages alternate: a device does not send again
 * before the other device has answered, so that one buffer per direction is enough; a second buffer
 * holds data that a device receives only once (BUF_LAYER_EMBD).
 *
 * Several GPUs have layers in stages: the first layers belong to the first device, and so on. From
 * one stage to the next the residual stream goes from GPU to GPU (`peer`): a device receives and
 * sends it at most once per ubatch, so that one buffer per receiver is enough. Other GPUs may be
 * helpers of a layer: they have further ranges of its neurons, so that all devices compute the
 * layer's neurons in parallel. Messages of helpers go through the CPU, which forwards the layer's
 * input to the helpers and adds their partial sums to its own. plan_of_device extracts the plan of
 * a single device.
 *
 * Several machines also have layers in stages (src/cluster): the plan of a machine has only the
 * steps of its layers. The first machine also has the steps before and after all layers. The
 * residual stream goes from machine to machine, and back to the first one, outside of the plan.
 *
 * A plan borrows the model's weights and is immutable. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdio.h>

#include "error.h"
#include "gpu_support.h"
#include "plan_step.h"

enum { PLAN_MODES = PI_MODE_THRESHOLD + 1 }; /* values of pi_mode (docs/sparse.md) */

/* 32-bit words with a bit for each of n neurons. */
static inline int64_t plan_bits_words(int64_t n) {
    return (n + 31) / 32;
}

enum { PLAN_MAX_DEVICES = PI_MAX_DEVICES }; /* GPUs */

typedef struct plan_split {
    plan_side primary; /* device of attention, norms, predictor and KV cache */
    int64_t hot;       /* neurons (or experts) [0, hot) are on the GPU */
    int device;        /* GPU number; never descends from layer to layer */
    /* Numbers of neurons on other GPUs (helpers have no experts): after `hot` come the neurons of
     * GPU 0, then of GPU 1, and so on; 0 for `device`. The CPU has the rest. */
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
    pi_mode mode;   /* a layer without the data for the mode runs in an exact mode */
    float max_loss; /* for PI_MODE_AUTO: relative increase of perplexity, 0.01 for 1% */
    bool set_threshold;
    float threshold;          /* with set_threshold: replaces the model's predictor threshold */
    const plan_split *splits; /* [n_layer]; NULL: everything is on the CPU */
    plan_side head; /* with splits: device of the last norm and the output matrix; a GPU: the last
                       layer's */
    const model *drafter; /* a head for which sessions keep features; NULL: none */
    /* Layers of this machine; end_layer 0: all. A part of the layers needs a head on the CPU. */
    int first_layer, end_layer;
    bool few_only; /* ubatches have at most PLAN_FFN_MAX_COLS tokens: none is of FORM_MANY */
    bool prefetch; /* for neurons and experts on the drive: OP_PREFETCH, OP_PREFETCH_EXPERTS */
    /* Blocks of PLAN_BOUNDS_SIZE positions that a token attends to in layers on the CPU
     * (plan_attention_blocks); 0: all. */
    int32_t attn_blocks;
    pi_head predict_head; /* of the output head on the CPU; with max_loss 0 AUTO is DENSE */
    uint64_t cache_bytes; /* for PI_MODE_AUTO: last-level cache of the CPU; 0: this machine's */
    /* For placement: which parts of each layer, and of the head, must stay on the CPU, as bits
     * PLAN_STAY_* [n_layer + 1]; NULL: none. */
    const uint8_t *stays;
    gpu_supports *supports; /* gpu_backend.supports; NULL: gpu_kernels_support */
    /* Bit i: on GPU i kernels of a program do not overlap (gpu_info.overlaps), so the kernel that
     * adds to X for a single token also norms it; see plan_step.norms. */
    uint32_t merge_norms;
} plan_options;

/* Parts of a layer (or the head): the weights of the primary, and the neurons (experts). */
enum { PLAN_STAY_ALWAYS = 1, PLAN_STAY_NEURONS = 2 };

const char *ffn_mode_name(pi_mode mode); /* "auto", "dense", ... */
/* The mode of a layer of the model under these options; never PI_MODE_AUTO. */
pi_mode plan_choose_mode(const model *m, int layer, const plan_options *options);
/* PI_ERR_UNSUPPORTED when no layer can run in `mode`; the message says what the model lacks. */
pi_status plan_check_mode(const model *m, pi_mode mode, pi_error *err);
/* PI_ERR_UNSUPPORTED when the output head has no predictor, but `head` needs one. */
pi_status plan_check_head(const model *m, pi_head head, pi_error *err);

/* Buffer of quantized vectors. */
typedef struct plan_slot {
    int64_t width;  /* longest vector that is quantized */
    unsigned kinds; /* bits of all types that steps need */
} plan_slot;

typedef struct plan {
    const model *model;
    pi_mode mode; /* mode of most layers */
    int first_layer,
        end_layer; /* the plan's layers: [0, n_layer) unless other machines have some */
    /* Steps of the layers and before them; after n_layer_steps come those of the head, which are
     * computed for the wanted rows only. In between the residual streams are joined. */
    int n_stage_steps, n_layer_steps, n_steps;
    plan_step *steps;          /* [n_steps], for the CPU */
    plan_matrix *matrices;     /* PLAN_MAX_GROUP for each step */
    bool is_sparse;            /* the CPU has OP_FFN_SPARSE steps */
    bool predicts_head;        /* the CPU has OP_HEAD_ROWS */
    int64_t n_features;        /* floats that sessions keep of each token; 0: none */
    int many_from[PLAN_SIDES]; /* tokens from which a device runs FORM_MANY */
    int n_gpu_steps;
    plan_step *gpu_steps;         /* [n_gpu_steps], by device; none without splits */
    int64_t width[BUF_COUNT];     /* floats per row */
    int64_t gpu_width[BUF_COUNT]; /* widths of the GPU's buffers; 0: no such buffer */
    plan_ffn *ffn;                /* [n_layer] */
    plan_ffn *gpu_ffn;            /* [n_devices][n_layer]; in a part [n_layer] */
    plan_experts *experts;        /* [n_layer] */
    plan_experts *adjugates;      /* [n_layer] adjugate experts, behind `experts` */
    int n_expert, n_expert_used;  /* 0: no layer has experts */
    uint64_t expert_bytes;        /* bytes of all experts of all layers */
    plan_recurrent *recurrent;    /* [n_layer] */
    plan_ngrams ngrams;           /* conv.n_taps 0: no layer adds embeddings of n-grams */
    /* Floats of a session's recurrent state; 0: the model has none. Where all recurrent layers are
     * on other machines n_state is 1, so that sessions have the same snapshots everywhere. */
    int64_t n_state, n_own_state;
    plan_split *splits;          /* [n_layer], also filled in for plans without a GPU */
    plan_side head;              /* where logits are computed */
    int32_t attn_blocks;         /* plan_options.attn_blocks */
    gpu_supports *supports;      /* plan_options.supports */
    int n_exchanges[PLAN_SIDES]; /* messages sent by each side to the other in a ubatch */
    int n_devices;               /* highest device of the splits, plus one; 0 without splits */
    int device;                  /* in a part: its device; -1: the plan is whole */
    int first_gpu_step;          /* in a part: index of its first step in the whole plan */
    /* maximum 32-bit words of selected neurons per token in messages of a device */
    int64_t bits_words[PLAN_MAX_DEVICES];
    plan_slot slots[PLAN_SIDES][PLAN_SLOTS];
    uint64_t head_bytes;   /* output matrix, or its predictor: not read when no logits are wanted */
    int64_t max_part_rows; /* maximum over layers; 0: no neurons are left out */
    /* Bytes per ubatch: weights of steps that always read all of them (head included); FFN weights
     * among these; all FFN weights (without predictors). */
    uint64_t fixed_bytes, fixed_ffn_bytes, ffn_bytes;
} plan;

/* The mode of a layer's FFN, or of its experts. */
static inline pi_mode plan_mode_of_layer(const plan *p, int layer) {
    return p->experts[layer].n_expert ? p->experts[layer].mode : p->ffn[layer].mode;
}

/* Whether a machine with layers [first_layer, end_layer) has a layer's KV cache: its own layers',
 * and those of earlier layers that its layers, or later ones, read. */
bool plan_holds_cache(const model *m, int first_layer, int end_layer, int layer);
static inline bool plan_owns(const plan *p, int layer) {
    return layer >= p->first_layer && layer < p->end_layer;
}
static inline bool plan_is_stage(const plan *p) {
    return p->end_layer - p->first_layer < p->model->hp.n_layer;
}

/* How tokens of a layer attend to the positions before them. */
plan_blocks plan_attention_blocks(const plan *p, int layer);

static inline plan_form plan_form_of(const plan *p, plan_side side, int n_tokens) {
    if (n_tokens >= p->many_from[side]) return FORM_MANY;
    return n_tokens > 1 ? FORM_FEW : FORM_ONE;
}

/* The buffer that moves between primaries, and its floats per token. */
static inline plan_buffer plan_residual(const plan *p) {
    return p->model->hp.n_stream > 1 ? BUF_STREAMS : BUF_X;
}
static inline bool plan_is_residual(plan_buffer b) {
    return b == BUF_X || b == BUF_STREAMS;
}
static inline int64_t plan_residual_width(const model *m) {
    return (int64_t)m->hp.n_stream * m->hp.n_embd;
}

/* Floats per token in a message with this buffer. */
static inline int64_t plan_message_width(const plan *p, plan_buffer b) {
    if (b == BUF_LAYER_EMBD) return p->width[b];
    if (b == BUF_EXPERT_LATENT) return p->model->hp.n_expert_embd;
    return b == BUF_STREAMS ? plan_residual_width(p->model) : p->model->hp.n_embd;
}

/* Whether the vectors of a GPU's message are in int8 form, which is what the CPU multiplies with:
 * in ubatches whose activations the CPU quantizes by columns. Experts of several tokens gather
 * floats.
 */
static inline bool plan_message_is_q8(const plan *p, const args_message *a, int n_tokens) {
    return a->q8 && plan_form_of(p, SIDE_CPU, n_tokens) != FORM_MANY &&
           plan_form_of(p, SIDE_GPU, n_tokens) != FORM_MANY && (!a->experts || n_tokens == 1);
}

/* Whether a step reads only weights of active neurons; all other steps read weight_bytes. */
static inline bool plan_step_is_sparse(const plan_step *s) {
    return plan_op_reads(s->op) == READS_ACTIVE;
}

/* PI_ERR_UNSUPPORTED when a weight's type has no kernels, PI_ERR_NOMEM; PI_ERR_ARG for a split
 * point that is outside the layer, or inside a block of a down matrix with neurons along its
 * rows. */
pi_status plan_create(const model *m, const cpu_kernels *kernels, const plan_options *options,
                      plan **out, pi_error *err);
void plan_free(plan *p); /* accepts NULL */
/* The part of a plan on one device: its steps are `gpu_steps`, and the head is SIDE_GPU when the
 * device has it. Borrows the plan's arrays; must not be freed. */
void plan_of_device(const plan *p, int device, plan *out);
/* Whether a layer, or the steps after the layers (-1), belongs to a part's device other than as a
 * helper; in a whole plan all layers do. */
bool plan_has(const plan *part, int layer);
/* The GPU that sends the residual stream to a part's device; -1: the CPU, or no device. */
int plan_peer_of(const plan *part);
/* A device's neurons of a layer in a whole plan; zeroed without neurons. */
plan_ffn *plan_gpu_ffn(const plan *p, int device, int layer);
/* Granularity of split points in a layer, in neurons (experts): 1, or the block of a down matrix
 * with neurons along its rows. A split point is a multiple of it, or all neurons. */
int64_t plan_split_unit(const model *m, int layer);
/* Rows [first, first + n) of a matrix that has a row per neuron, bias included. */
plan_matrix plan_take_rows(const plan_matrix *m, int64_t first, int64_t n);
/* Elements [first, first + n) of every row; whole blocks. */
plan_matrix plan_take_columns(const plan_matrix *m, int64_t first, int64_t n);
/* In a layer with compressed attention: the position, relative to its OP_ATTENTION, of the step
 * that multiplies with ROLE_ATTN_K_B (below 0) or ROLE_ATTN_V_B. */
int plan_latent_offset(const plan_step *attention, tensor_role role);
/* Prints a line per step, in the order of execution on each device, with its kernel for each
 * form. */
void plan_print(const plan *p, FILE *out);

#endif
