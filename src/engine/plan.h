/* plan.h: what will run for one model: a flat array of plain-struct steps per device (CPU, GPU),
 * made once. All decisions are made here: which weights, which buffers, which activations, what
 * each step runs as in ubatches of one token, of few and of many, what crosses from one device to
 * the other. Executing is a loop over steps.
 *
 * Devices. Every layer has a primary, where everything but its neurons is computed, and a split
 * point: the GPU has neurons [0, hot), the CPU the rest. Both compute their neurons from the same
 * input and sum their rows of down; SEND and RECEIVE steps carry the input one way and the partial
 * sum back, and the residual stream where the primary changes. The sends of one device pair, in
 * order, with the receives of the other. Messages alternate: nobody sends again before the other
 * device has answered, so one buffer per direction is enough, beside one for what a device is sent
 * once (BUF_LAYER_EMBD).
 *
 * Several GPUs have layers in stages: the first ones belong to the first device, and so on. From
 * one stage to the next the residual stream goes from GPU to GPU (`peer`): a device gets it so once
 * in a ubatch at most, and gives it away so once, so that one buffer per receiver is enough. Other
 * GPUs may be helpers in a layer: they have further ranges of its neurons, so that all devices
 * compute the layer's neurons at the same time. These messages go by way of the CPU, which passes
 * the input of a layer on to its helpers, and adds their parts to its own. What one device has of a
 * plan is a plan of its own (plan_of_device).
 *
 * A plan borrows the model's weights and is immutable. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stdio.h>

#include "cpu.h"
#include "error.h"
#include "gpu_ops.h"
#include "model.h"
#include "powerinfer.h"

enum { PLAN_MODES = PI_MODE_THRESHOLD + 1 }; /* values of pi_mode (docs/sparse.md) */

typedef enum plan_side { SIDE_CPU, SIDE_GPU, PLAN_SIDES } plan_side;

/* 32-bit words of a bit for each of n neurons. */
static inline int64_t plan_bits_words(int64_t n) {
    return (n + 31) / 32;
}

enum { PLAN_MAX_DEVICES = PI_MAX_DEVICES }; /* GPUs */

typedef struct plan_split {
    plan_side primary; /* of attention, norms, predictor and KV cache */
    int64_t hot;       /* neurons [0, hot) are on the GPU, or experts */
    int device;        /* which GPU; from layer to layer the same or a later one */
    /* Neurons that other GPUs have, no experts: the first ones behind `hot` those of GPU 0, and so
     * on; of `device` 0. The CPU has those behind them all. */
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
    /* For who makes the splits: bits of what has to stay on the CPU of each layer, and of the head
     * [n_layer + 1]; NULL: nothing. */
    const uint8_t *stays;
    gpu_supports *supports; /* gpu_backend.supports; NULL: gpu_kernels_support */
} plan_options;

/* A layer's primary, or the head; its neurons (experts). */
enum { PLAN_STAY_ALWAYS = 1, PLAN_STAY_NEURONS = 2 };

const char *ffn_mode_name(pi_mode mode); /* "auto", "dense", ... */
/* What a layer of the model runs in under these options; never PI_MODE_AUTO. */
pi_mode plan_choose_mode(const model *m, int layer, const plan_options *options);
/* PI_ERR_UNSUPPORTED when no layer can run in `mode`; the message says what the model lacks. */
pi_status plan_check_mode(const model *m, pi_mode mode, pi_error *err);

/* Working buffers, all float32, one row per token of the batch. */
typedef enum plan_buffer {
    BUF_X, /* residual stream [n_embd]; of several, within a layer, the one that it computes */
    BUF_STREAMS,   /* of several: all between layers; what a layer begins with
                      [n_stream * n_embd] */
    BUF_Y,         /* normed input of a half, or the result that is added to X [n_embd] */
    BUF_Q,         /* [n_head * head_dim]; MLA: [n_head * q_dim] */
    BUF_K,         /* [n_head_kv * head_dim] */
    BUF_V,         /* [n_head_kv * v_dim]; MLA: attention's result as values [n_head * v_dim] */
    BUF_INDEX_Q,   /* sparse attention: queries by which blocks are found [n_index_head * index_dim]
                    */
    BUF_INDEX_K,   /* the key of these [index_dim] */
    BUF_LATENT_Q,  /* MLA: queries' latent vector [n_latent_q], then queries times k_b, as the cache
                      is [n_head * head_dim] */
    BUF_ATTN_GATE, /* [n_head * head_dim] */
    BUF_ATTN,      /* attention's result [n_head * v_dim] */
    BUF_ATTN_OUT,  /* attention's half where both run in parallel [n_embd] */
    BUF_FFN_OUT,   /* on the GPU: an FFN's result that is scaled or normed before it is added to X,
                      which leaves the input in Y as it is [n_embd] */
    /* Recurrent mixers. */
    BUF_SSM_IN,     /* what is convolved [n_conv] */
    BUF_SSM_GATE,   /* gate of the result [n_inner]; MIXER_CONV: [n_embd] */
    BUF_SSM_STEP,   /* steps, or alphas of the delta rule [n_ssm_head], KDA: [n_inner]; MIXER_CONV:
                       what the convolution's input is multiplied by [n_embd] */
    BUF_SSM_BETA,   /* betas [n_ssm_head], or betas and alphas group by group [2 * n_ssm_head] */
    BUF_SSM_CONV,   /* after the convolution [n_conv] */
    BUF_SSM_OUT,    /* the mixer's result [n_inner]; MIXER_CONV: [n_embd] */
    BUF_GATE,       /* [n_ff]; after the activation: the hidden vector */
    BUF_UP,         /* [n_ff] */
    BUF_PRED,       /* the predictor's hidden vector [rank] */
    BUF_SCORE,      /* its scores [n_ff]; only in ubatches of many tokens */
    BUF_LAYER_EMBD, /* embeddings per layer [n_layer * n_embd_layer], made by the CPU */
    BUF_ROUTER,     /* scores of experts [n_expert]; on the GPU then that of the shared one. What
                       the router of several streams says [n_stream] */
    BUF_SHARED,     /* result of the shared expert, or of an FFN beside the experts [n_embd] */
    /* Mixtures of experts; a row per pair of a token and an expert that it uses, sorted by expert.
     */
    BUF_EXPERT_IN,   /* inputs of experts that several tokens use [n_embd] */
    BUF_EXPERT_GATE, /* [n_ff_expert]; after the activation: the hidden vector */
    BUF_EXPERT_UP,   /* [n_ff_expert] */
    BUF_EXPERT_OUT,  /* [n_embd] */
    BUF_LOGITS,      /* [n_vocab], one row per wanted row of logits */
    BUF_COUNT
} plan_buffer;

typedef enum plan_op {
    OP_EMBED,        /* X = rows of the embedding table; RoPE angles of the positions */
    OP_EMBED_LAYERS, /* LAYER_EMBD, a product of X: normed, plus the table's rows */
    OP_SPREAD,       /* several streams: X is the first, the others, products of X, get its
                        magnitude */
    OP_PREDICT,      /* STREAMS, and X, mixed by what the router says */
    OP_CORRECT,      /* X and STREAMS follow what the layer has made of X; Y = X, scaled */
    OP_MERGE,        /* X = the mean of the first stream and of products of the others, as long as
                        it is */
    OP_NORM,         /* out = norm(in), and its quantized form if a product reads it */
    OP_QUANTIZE,     /* quantized form of `in` */
    OP_MATMUL,       /* out_i = W_i * quantized input (+ bias) (+= add_to) */
    OP_FFN_IN,       /* GATE = f(W_gate * input) * (W_up * input), or f(W_up * input) ungated */
    OP_TOP_K,        /* GATE = f(the excess of GATE over a cutoff that depends on all of it) */
    OP_ROPE_STORE,   /* QK norm, rotation, append K and V to the cache */
    OP_INDEX_STORE, /* sparse attention: norm and rotation of INDEX_Q and INDEX_K, append the latter
                       to the cache */
    OP_FIND_BLOCKS, /* which blocks of positions each head of keys is attended in */
    OP_HEADS,       /* MLA: each head's part of `in` times a matrix of its own */
    OP_LATENT_STORE, /* MLA: rotation, norm of the latent vector, append it to the cache */
    OP_ATTENTION,    /* ATTN = softmax(Q K^T) V over the cache; on the GPU its quantized form too */
    OP_GATE_HEADS,   /* ATTN *= sigmoid of the gates that lie behind the heads of Q */
    OP_CONV,     /* causal convolution of SSM_IN with the session's last inputs, into SSM_CONV */
    OP_RECUR,    /* SSM_OUT from SSM_CONV by the session's state, which goes on */
    OP_GATE_SSM, /* SSM_OUT gated and normed */
    OP_ADD,      /* out += add_scale * norm(in): X, SHARED, or all streams but X */
    OP_PREFETCH, /* before the layer's first half: neurons that the predictor selects for its input
                   are requested from the drive */
    OP_FFN_SPARSE, /* scores, selected neurons, gate, up; and their part of the down product */
    OP_FFN_DOWN,   /* X += the down product, which reads a row per neuron */
    OP_ROUTE,      /* from BUF_ROUTER: the experts of every token and their weights */
    OP_PREFETCH_EXPERTS, /* before the layer's first half: experts that the router chooses for its
                           input are requested from the drive */
    OP_GROUP,            /* pairs of token and expert sorted by expert */
    OP_EXPERTS_GATHER,   /* quantized inputs of experts that several tokens use */
    OP_EXPERTS_IN,       /* EXPERT_GATE = f(gate * input) * (up * input), of all pairs */
    OP_EXPERTS_QUANTIZE, /* quantized form of EXPERT_GATE */
    OP_EXPERTS_DOWN,     /* EXPERT_OUT = down * hidden */
    OP_EXPERTS_SUM, /* X += (or Y =) the weighted sum of a token's experts, and the shared one */
    OP_SELECT,  /* selected ones of all neurons, as bits of the next message; on the GPU also the
                   list of its own, which may come from the message's bits */
    OP_SEND,    /* message = in, and with `bits` the selected neurons; raises the exchange's flag */
    OP_RECEIVE, /* waits for the flag; out = message, or (add_to_out) out += message */
    OP_SOFTCAP, /* in = cap * tanh(in / cap), the logits */
    OP_HEAD_NORM, /* Y = norm of the rows of X whose logits are wanted, and their quantized form */
    OP_COUNT
} plan_op;

/* Sizes of ubatches that run differently: the forward loop looks up the form once per ubatch
 * (plan_form_of), every step says what it runs as in each of them. */
typedef enum plan_form {
    FORM_ONE,  /* a single token: decode */
    FORM_FEW,  /* each row of weights is read once for all tokens */
    FORM_MANY, /* prefill: tiles of weights are decoded once for all tokens */
    PLAN_FORMS
} plan_form;

/* What a step runs as. */
typedef enum plan_kernel {
    KERNEL_SKIP,   /* nothing is to be done */
    KERNEL_PLAIN,  /* the operation has one way */
    KERNEL_VECTOR, /* activations in columns, matrix-vector products; selected neurons only */
    KERNEL_UNION,  /* the same, with a list of the neurons that any token selected */
    KERNEL_MASKED, /* the GPU's: matrix-vector products of all neurons, then masked */
    KERNEL_TILED,  /* activations in panels, matrix-matrix products of all neurons, then masked */
    KERNEL_COUNT
} plan_kernel;

/* Where a sparse layer's selected neurons come from. */
typedef enum plan_selection {
    SELECT_ALL,    /* all are selected: activations alone decide (exact, threshold) */
    SELECT_SCORES, /* predictor scores that the step makes itself */
    SELECT_MESSAGE /* bits that came from the other device */
} plan_selection;

typedef struct plan_matrix {
    cpu_mat w;
    size_t row_size;     /* bytes of a row's own; w.row_bytes is the way to the next one */
    size_t expert_bytes; /* of experts' matrices: from one expert's rows to the next one's */
    const float *bias;   /* [w.n_out], of down_t [w.n_in], or NULL */
    float scale;         /* of the product, before the bias or (scale_last) after it */
    bool scale_last;
    plan_buffer out;
    int64_t out_at; /* floats: where its rows begin in those of the buffer */
    tensor_role role;
} plan_matrix;

enum {
    PLAN_MAX_GROUP = 4, /* Q, K, V and the gate; input, gate, alpha and beta of the delta rule */
    /* Quantized vectors are kept in slots, so that the predictor's hidden vector does not displace
     * the layer's input. */
    PLAN_SLOT_MAIN = 0,
    PLAN_SLOT_PREDICTOR = 1,
    PLAN_SLOT_HIDDEN = 2, /* the GPU's: neurons, while others still read the layer's input */
    PLAN_SLOTS = 3,

    /* Parts into which a layer's neurons are cut for OP_FFN_SPARSE. Each part's sum of down rows
     * is kept apart and the sums are added in order, so that results do not depend on which thread
     * took what: more parts balance better, but each costs a vector of n_embd. */
    PLAN_FFN_MAX_PARTS = 32,
    PLAN_FFN_PART_ROWS = 256, /* at least */
    PLAN_FFN_MAX_COLS = 8,    /* tokens of a ubatch whose selected neurons are computed, at most */
    PLAN_EXPERT_MAX_COLS = 24 /* tokens of an expert of which active neurons are: one fewer than any
                                 tier's cpu_tiled.from, at most */
};

/* A sparse FFN layer (mode exact, predict or threshold), or one whose down matrix has a row per
 * neuron. */
typedef struct plan_step plan_step;
typedef struct plan_ffn {
    pi_mode mode;
    plan_selection selection;
    const plan_step *sparse; /* its OP_FFN_SPARSE; NULL when there is none */
    /* This side's neurons: n_ff of them from `first` on. All matrices and vectors below begin
     * there. */
    int64_t first, n_ff;
    plan_matrix down; /* [n_embd, n_ff], a row per neuron; w.data NULL: down is a plain matrix that
                         a step of its own multiplies with the hidden vector */
    predictor_kind predictor; /* NONE unless scores are made here or for here, of n_scored neurons:
                                 on the GPU of the whole layer */
    int64_t n_scored;
    plan_matrix fc2;         /* LOWRANK, RELU_MLP: [rank, n_ff] */
    const uint8_t *sign;     /* SIGN: [n_ff][n_embd / 8] */
    const float *score_bias; /* [n_ff] or NULL */
    float threshold;         /* neurons with score + bias >= this are computed */
    bool given; /* activations are in GATE, made by OP_TOP_K; only up is a matrix here */
    float cut;  /* activations with |f(gate)| <= this count as zero; < 0: none do */
    int n_parts;
    int64_t part_rows; /* of all parts but a shorter last one; a multiple of CPU_ROW_TILE */
} plan_ffn;

/* The head's part of a row: n elements from first + head * stride on. */
typedef struct plan_part {
    int64_t first, stride;
} plan_part;

/* Sparse attention: of all blocks of `size` positions a token attends to the `top` in which the
 * highest product of an index query and an index key is highest, as many as there are. The last
 * `local` ones up to its own are always among these. */
typedef struct plan_blocks {
    int32_t size, top, local; /* size 0: all positions are attended to */
} plan_blocks;

/* A token at this position attends to all that are before it. */
static inline bool plan_blocks_all(const plan_blocks *b, int64_t pos) {
    return b->size == 0 || pos / b->size < b->top;
}

/* The experts of a layer. Matrices are those of the first one; expert_bytes lead to the next. */
typedef struct plan_experts {
    pi_mode mode; /* PI_MODE_DENSE, or PI_MODE_EXACT: rows of up, and of down where it has a row per
                     neuron, are read where activations are not zero */
    int n_expert, n_used, n_group, n_group_used;
    int64_t n_ff;
    expert_gating gating;
    bool norm;                /* weights are divided by their sum */
    float scale;              /* then multiplied by this */
    bool weigh_input;         /* weights multiply the input, not the output */
    bool half;                /* of the sum counts */
    const int32_t *perm;      /* [n_expert] source index of each stored expert; NULL: as it is */
    const float *select_bias; /* added to probabilities for the choice only */
    const float
        *shared_router; /* [n_embd]: the shared expert's result times sigmoid(w . y); NULL: 1 */
    bool shared;        /* there is a shared expert, in BUF_SHARED */
    plan_matrix gate, up, down; /* w.n_out: rows of one expert; gate.w.data NULL: there is none */
    bool down_rows;             /* down has a row per neuron, of n_embd */
    int64_t up_rows; /* of an expert in the tensor of up: 2 * n_ff where it has gate too */
    const float *gate_scales, *up_scales, *down_scales; /* [n_expert] or NULL */
    int64_t hot;          /* experts [0, hot) are on the GPU, the others on the CPU */
    plan_side primary;    /* where the router is */
    bool split;           /* the other device has experts too: it is sent the choices */
    plan_step *norm_step; /* the CPU's, quantizes the input of single tokens; NULL: it has none */
    unsigned in_kinds, down_kinds; /* quantized forms that the products read */
} plan_experts;

/* The recurrent mixer of a layer. Heads of a group share key and query (Mamba-2: B and C). */
typedef struct plan_recurrent {
    uint32_t mixer; /* MIXER_* */
    int n_taps;
    int64_t n_conv;
    const float *taps[3];   /* [n_conv][n_taps], the last one is the token's own; KDA: of queries,
                               keys and values [n_conv / 3][n_taps] each */
    const float *conv_bias; /* [n_conv] or NULL */
    int n_head, n_group;
    int64_t head_dim, n_state; /* elements of a value, of a key */
    bool groups_alternate;     /* arch_row */
    bool paired;               /* BUF_SSM_BETA has betas and alphas */
    const float *dt_bias;      /* [n_head]; KDA: [n_head * n_state] */
    const float *a;            /* [n_head] */
    const float *d;            /* [n_head] or NULL */
    const float *norm; /* of the result, or NULL: [n_head * head_dim] by groups (Mamba-2), or
                          [head_dim] of every head */
    int64_t conv_at, heads_at; /* floats from the beginning of a session's state: the last n_taps -
                                  1 inputs [n_taps - 1][n_conv]; [n_head][head_dim][n_state] */
} plan_recurrent;

struct plan_step {
    plan_op op;
    int layer;  /* -1: before or after the layers */
    int device; /* of the GPU's steps where they run, of messages the GPU that has part in them */
    plan_kernel kernel[PLAN_FORMS];
    bool alone[PLAN_FORMS]; /* one piece of work: the last thread that ends the step before it
                               runs it too, while the others wait */
    plan_buffer in;
    int64_t in_at; /* OP_QUANTIZE, and the OP_MATMUL behind it: floats, where its rows begin in
                      those of the buffer */
    /* OP_MATMUL, OP_FFN_IN: matrices that share one quantized input */
    int n_matrices;
    plan_matrix matrix[PLAN_MAX_GROUP];
    bool add_to_x; /* OP_FFN_DOWN, OP_EXPERTS_SUM too: the product is added to X afterwards; on the
                      GPU it is else in `out` */
    /* OP_NORM, OP_HEAD_NORM, OP_ADD */
    norm_kind norm;     /* NORM_NONE: as it is */
    int64_t norm_width; /* elements */
    const float *norm_weight, *norm_bias;
    float add_scale;
    float x_scale;             /* OP_ADD: then X is multiplied by this */
    const float *coefficients; /* OP_PREDICT: [n_stream][n_stream][n_stream]; OP_CORRECT:
                                  [n_stream][n_stream], and norm_weight scales Y */
    float cutoff;              /* OP_TOP_K: model_layer_hparams.ffn_cutoff */
    /* OP_ROPE_STORE, OP_INDEX_STORE: norms of heads, whose weights are at q_norm + head *
     * norm_stride; or NULL */
    const float *q_norm, *k_norm;
    int64_t norm_stride; /* 0: all heads have the same weight */
    bool norm_late;      /* after the rotation */
    bool norm_bare;      /* without weights */
    bool value_norm;     /* RMS norm of values, without weights */
    rope_set rope;       /* which angles */
    int64_t q_stride; /* floats from a head of Q to the next one; OP_ATTENTION, OP_GATE_HEADS too */
    /* OP_ATTENTION, OP_SOFTCAP */
    int32_t window;   /* positions that a token attends to, its own among them; 0: all */
    float scale;      /* of the scores */
    bool temperature; /* scores grow with the position (model_hparams) */
    float softcap;    /* 0: none */
    /* OP_NORM, OP_QUANTIZE, OP_HEAD_NORM, on the GPU what writes vectors by itself too
     * (plan_quantizes): forms that later steps read, bits 1 << cpu_act_kind */
    unsigned act_kinds;
    int slot;  /* written by these steps; read by OP_MATMUL */
    bool relu; /* OP_QUANTIZE: the vector is rectified first, in place; the GPU's OP_MATMUL: the
                  result is */
    bool layer_embd; /* OP_QUANTIZE: the vector's activation is multiplied by the layer's part of
                        BUF_LAYER_EMBD first, in place */
    bool gated; /* OP_QUANTIZE, the GPU's OP_ATTENTION: the vector is multiplied by the sigmoid of
                   BUF_ATTN_GATE first; of the gates behind Q's heads where q_stride is longer */
    /* OP_HEADS: matrix[0] holds those of all heads, one after the other */
    int n_heads;
    plan_part in_part, out_part;
    /* OP_FFN_SPARSE (matrix[0]: gate, or up where there is none; matrix[1]: up), OP_FFN_DOWN,
     * the OP_QUANTIZE between them, OP_SELECT and OP_PREFETCH. NULL elsewhere. */
    const plan_ffn *ffn;
    const plan_experts *experts;     /* OP_ROUTE to OP_EXPERTS_SUM, and their messages */
    const plan_recurrent *recurrent; /* OP_CONV, OP_RECUR, OP_GATE_SSM */
    const float *sinks;              /* OP_ATTENTION: [n_head] scores that no position has; NULL */
    bool latent;                     /* OP_ATTENTION: values are the keys */
    bool chunks;                     /* OP_ATTENTION: `window` is a fixed range of positions */
    plan_blocks blocks;              /* OP_ATTENTION, OP_FIND_BLOCKS */
    /* OP_SEND, OP_RECEIVE */
    plan_buffer out;         /* OP_NORM, OP_ADD too */
    bool add_to_out, answer; /* OP_RECEIVE; answer: the message is the other side's part of a sum */
    int exchange;            /* number of the message, counted per direction; to a peer -1 */
    int peer;     /* of the GPU's messages: the GPU at the other end; -1: it is the CPU */
    bool bits;    /* selected neurons travel with it; OP_SELECT: they came with the last one */
    bool clear_x; /* OP_RECEIVE: X = 0, to add this side's part to */
    bool helpers; /* OP_RECEIVE, of an answer in a layer whose primary is a GPU: parts of other
                    GPUs are in it, and come where cold steps are left out too: on the CPU
                    they are the first then, on the GPU they are added to the cold part */
    bool cold;    /* the CPU's part of a layer whose primary is the GPU: left out in ubatches
                     in which the GPU computes all */
    bool early;   /* OP_PREFETCH, OP_PREFETCH_EXPERTS, and what they need: left out where it does
                     not pay */
    int64_t act_width;     /* elements of the vectors that it quantizes */
    uint64_t weight_bytes; /* read by this step in one ubatch; OP_FFN_SPARSE and OP_FFN_DOWN: at
                              most, contexts count what is really read */
};

/* Where the products of a step have the quantized form of their input. */
static inline int plan_input_slot(const plan_step *s) {
    return s->op == OP_MATMUL ? s->slot : PLAN_SLOT_MAIN;
}

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
    gpu_supports *supports;       /* plan_options.supports */
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
    return s->op == OP_FFN_SPARSE || s->op == OP_FFN_DOWN;
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
/* Neurons (experts) that cannot be parted in a layer of this model: 1, or the blocks of a down
 * matrix with neurons along its rows. A cut is a multiple of it, or all neurons. */
int64_t plan_split_unit(const model *m, int layer);
/* Of a layer with compressed attention: how many steps after its OP_ATTENTION the one is that
 * multiplies with ROLE_ATTN_K_B (below 0) or ROLE_ATTN_V_B. */
int plan_latent_offset(const plan_step *attention, tensor_role role);
/* A line per step, as text: in the order of execution on each device, with what it runs as in
 * ubatches of each size. */
void plan_print(const plan *p, FILE *out);
const char *plan_op_name(plan_op op);

#endif
