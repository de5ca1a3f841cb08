/* plan_step.h: a step of a plan: a header common to all operations, and the arguments of one
 * operation. ops.def lists the operations and their arguments. Shapes are per token of the ubatch
 * unless a comment says otherwise. */
#ifndef PLAN_PLAN_STEP_H
#define PLAN_PLAN_STEP_H

#include <assert.h>

#include "cpu.h"
#include "model.h"
#include "powerinfer.h"

typedef enum plan_side { SIDE_CPU, SIDE_GPU, PLAN_SIDES } plan_side;

/* Working buffers, all float32, one row per token of the batch. */
typedef enum plan_buffer {
    BUF_X,          /* residual stream [n_embd]; if several, the one that layers compute */
    BUF_STREAMS,    /* several residual streams between layers: the input of a layer [n_stream *
                       n_embd] */
    BUF_HYPER_IN,   /* hyper-connections: the norm of all streams [n_stream * n_embd] */
    BUF_HYPER_LOW,  /* gated: its low-rank projection [hyper_rank] */
    BUF_HYPER_GATE, /* gated: the gates before the sigmoid; keys of n-grams [n_stream * n_embd] */
    BUF_HYPER,      /* before the sigmoid: weights of the sum of streams, then of the block's result
                       [2 * n_stream], then those that mix streams [n_stream^2] */
    BUF_Y,          /* normed input of a block, or the result that is added to X [n_embd] */
    BUF_Q,          /* [n_head * head_dim]; MLA: [n_head * q_dim] */
    BUF_K,          /* [n_head_kv * head_dim] */
    BUF_V,          /* [n_head_kv * v_dim]; MLA: attention's result as values [n_head * v_dim] */
    BUF_INDEX_Q,    /* sparse attention: index queries, which select blocks [n_index_head *
                       index_dim] */
    BUF_INDEX_K,    /* index key [index_dim] */
    BUF_INDEX_W,    /* DSA: weights of the index queries [n_index_head] */
    BUF_COMPRESS,   /* parts of compressed keys (args_compress) */
    BUF_LATENT_Q, /* MLA: queries' latent vector [n_latent_q], then queries times k_b, in the layout
                     of the cache [n_head * head_dim] */
    BUF_ATTN_GATE, /* [n_head * head_dim] */
    BUF_ATTN,      /* attention's result [n_head * v_dim] */
    BUF_ATTN_OUT,  /* result of attention where both blocks run in parallel [n_embd] */
    BUF_FFN_OUT, /* on the GPU: an FFN's result that is scaled or normed before it is added to X, so
                    that the input in Y stays unchanged [n_embd] */
    /* Recurrent mixers. */
    BUF_SSM_IN,     /* input of the convolution [n_conv]; MIXER_WKV: values [n_group * n_state],
                       then the FFN's input before it is shifted [n_embd] */
    BUF_SSM_GATE,   /* gate of the result [n_inner]; MIXER_CONV: [n_embd] */
    BUF_SSM_LATENT, /* MIXER_SCAN: the latent vector of steps [n_step_rank]; MIXER_WKV: how far
                       values follow the first layer's, before the sigmoid [n_inner] */
    BUF_SSM_KEY,    /* MIXER_SCAN: [n_state]; MIXER_WKV: [n_group * n_state] */
    BUF_SSM_QUERY,  /* MIXER_SCAN: [n_state]; MIXER_WKV: [n_inner] */
    BUF_SSM_STEP,   /* steps, or alphas of the delta rule [n_ssm_head], KDA and MIXER_WKV:
                       [n_inner]; MIXER_CONV: factors of the convolution's input [n_embd] */
    BUF_SSM_BETA,   /* betas [n_ssm_head], or betas and alphas group by group [2 * n_ssm_head];
                       MIXER_WKV: learning rates before the sigmoid [n_inner] */
    BUF_SSM_CONV,   /* after the convolution [n_conv]; MIXER_WKV: results of the first matrices of
                       low-rank products, and the input of SHIFT_A [n_embd] */
    BUF_SHIFT,      /* MIXER_WKV: product inputs, shifted towards the previous token [6 * n_embd] */
    BUF_SSM_OUT,    /* the mixer's result [n_inner]; MIXER_CONV: [n_embd] */
    BUF_GATE,       /* [n_ff]; after the activation: the hidden vector */
    BUF_UP,         /* [n_ff] */
    BUF_PRED,       /* a predictor's hidden vector [rank] */
    BUF_SCORE,      /* the predictor's scores [n_ff]; only in ubatches of many tokens */
    BUF_LAYER_EMBD, /* embeddings per layer [n_layer * n_embd_layer], computed by the CPU;
                       MIXER_WKV: values of the first layer [n_inner] */
    BUF_ROUTER, /* scores of experts [n_expert], on the GPU followed by the shared expert's; with
                   several streams their router's numbers [n_stream] */
    BUF_SHARED, /* result of the shared expert, or of an FFN next to the experts [n_embd] */
    BUF_EXPERT_LATENT, /* a latent vector that experts read, then the sum of their results
                          [n_expert_embd] */
    /* Mixtures of experts; a row per pair of a token and an expert that it uses, sorted by
     * expert. */
    BUF_EXPERT_IN,   /* inputs of experts that several tokens use [n_expert_embd] */
    BUF_EXPERT_PRED, /* hidden vectors of the experts' predictors [rank] */
    BUF_EXPERT_GATE, /* [n_ff_expert]; after the activation: the hidden vector */
    BUF_EXPERT_UP,   /* [n_ff_expert]; scores of the expert's predictor */
    BUF_EXPERT_OUT,  /* [n_expert_embd] */
    /* Heads that draft (plan_draft.c). */
    BUF_DRAFT_READS, /* inputs of the layers that the head reads [n_reads * n_embd] */
    BUF_FEATURES,    /* features for the head [its n_stream * n_embd] */
    BUF_DRAFT_IN,    /* in a head, for each stream: the normed embedding and the normed features
                        [n_stream * 2 * n_embd] */
    BUF_LOGITS,      /* [n_vocab], one row per wanted row of logits */
    BUF_COUNT
} plan_buffer;

typedef enum plan_op {
#define PLAN_OP(name, ...) OP_##name,
#include "ops.def"
    OP_COUNT
} plan_op;

const char *plan_op_name(plan_op op); /* for printed plans and traces */

/* Weights that a step reads: all its matrices (weight_bytes), rows of active neurons only, rows of
 * predictors, or rows of the output matrix. In steps that do not read all weights, threads count
 * the bytes that they read. */
typedef enum plan_reads { READS_ALL, READS_ACTIVE, READS_SCORES, READS_CANDIDATES } plan_reads;
plan_reads plan_op_reads(plan_op op);

/* Forms: classes of ubatch sizes. The forward loop determines the form once per ubatch
 * (plan_form_of); every step has a kernel for each form. */
typedef enum plan_form {
    FORM_ONE,  /* a single token: decode */
    FORM_FEW,  /* each row of weights is read once for all tokens */
    FORM_MANY, /* prefill: tiles of weights are decoded once for all tokens */
    PLAN_FORMS
} plan_form;

/* The kernel of a step. */
typedef enum plan_kernel {
    KERNEL_SKIP,   /* the step is left out */
    KERNEL_PLAIN,  /* the operation has one kernel */
    KERNEL_VECTOR, /* matrix-vector products, one vector per token; selected neurons only */
    KERNEL_UNION,  /* like VECTOR, with a list of the neurons that any token selected */
    KERNEL_MASKED, /* only on the GPU: matrix-vector products of all neurons, then masked */
    KERNEL_TILED,  /* activations in panels, matrix-matrix products of all neurons, then masked */
    KERNEL_COUNT
} plan_kernel;

/* The source of a sparse layer's selected neurons. */
typedef enum plan_selection {
    SELECT_ALL,    /* all neurons; only activations decide (exact, threshold) */
    SELECT_SCORES, /* predictor scores, computed by the step itself */
    SELECT_MESSAGE /* bits received from the other device */
} plan_selection;

typedef struct plan_matrix {
    cpu_mat w;
    size_t row_size;     /* bytes of a row; w.row_bytes is the distance between rows */
    size_t expert_bytes; /* experts' matrices: distance between the rows of two experts */
    const float *bias;   /* [w.n_out], of down_t [w.n_in], or NULL */
    float scale;         /* of the product, before the bias or (scale_last) after it */
    bool scale_last;
    plan_buffer out;
    int64_t out_at; /* offset of the output in the buffer's rows, floats */
    tensor_role role;
} plan_matrix;

enum {
    PLAN_MAX_SHIFTS = 6, /* inputs of RWKV's products: queries, decays, keys, values, rates, gate */
    PLAN_MAX_GROUP = 4,  /* Q, K, V and the gate; input, gate, alpha and beta of the delta rule */
    /* Slots of quantized vectors: the predictor's hidden vector must not overwrite the layer's
       input. */
    PLAN_SLOT_MAIN = 0,
    PLAN_SLOT_PREDICTOR = 1,
    PLAN_SLOT_HIDDEN = 2, /* GPU: hidden vector, while other steps read the layer's input */
    PLAN_SLOTS = 3,

    /* Parts into which OP_FFN_SPARSE divides a layer's neurons. Each part's sum of down rows is
       kept separately and the sums are added in order, so that results do not depend on the
       threads: more parts balance the load better, but each needs a vector of n_embd. */
    PLAN_FFN_MAX_PARTS = 32,
    PLAN_FFN_PART_ROWS = 256, /* minimum rows */
    PLAN_FFN_MAX_COLS = 8,    /* maximum tokens of a ubatch whose selected neurons are computed */
    PLAN_EXPERT_MAX_COLS = 24 /* maximum tokens per expert for sparse lists; below any tier's
                                 cpu_tiled.from */
};

typedef struct plan_step plan_step;
/* A sparse FFN layer (mode exact, predict or threshold), or one whose down matrix has a row per
 * neuron. */
typedef struct plan_ffn {
    pi_mode mode;
    plan_selection selection;
    const plan_step *sparse; /* the layer's OP_FFN_SPARSE; NULL when there is none */
    /* This side's neurons: n_ff of them from `first` on. All matrices and vectors below begin
     * there. */
    int64_t first, n_ff;
    plan_matrix down; /* [n_embd, n_ff], a row per neuron; w.data NULL: down is a plain matrix that
                         a separate step multiplies with the hidden vector */
    predictor_kind predictor; /* NONE unless scores are computed here, or for this side. There are
                                 n_scored scores: on the GPU for the whole layer */
    int64_t n_scored;
    plan_matrix fc2;         /* LOWRANK, RELU_MLP: [rank, n_ff] */
    const uint8_t *sign;     /* SIGN: [n_ff][n_embd / 8] */
    const float *score_bias; /* [n_ff] or NULL */
    float threshold;         /* neurons with score + bias >= this are computed */
    bool given; /* OP_TOP_K has written the activations to GATE; up is the only matrix here */
    /* Activations with |f(gate)| cut_weight <= cut count as zero; cut < 0: none do. */
    float cut;
    const float *cut_weight; /* [n_ff] or NULL: 1 */
    float cut_down; /* hidden values with |f(gate) up| <= cut_down also count as zero; 0: none */
    const float *divisors; /* [n_ff] of the hidden vector, in dense layers; NULL: 1 */
    int n_parts;
    int64_t part_rows; /* rows of a part (the last may be shorter); a multiple of CPU_ROW_TILE */
} plan_ffn;

/* A head's part of a row: n elements from first + head * stride on. */
typedef struct plan_part {
    int64_t first, stride;
} plan_part;

/* Sparse attention: a token attends to the `top` blocks of `size` positions with the highest
 * scores, or to all blocks if there are fewer. The first `first` blocks and the last `local` ones
 * up to its own are always included. A score is the highest product of an index query and an index
 * key; with model_hparams.index_sums a block is one position, and its score is the sum over all
 * index heads of weight * max(0, product). With `bounds` it is an upper bound of the product of a
 * query and a key, and only sessions with at most PLAN_DECODE_TOKENS tokens in a ubatch select
 * blocks: decode and verification of drafts. */
typedef struct plan_blocks {
    int32_t size, top, first, local; /* size 0: all positions are attended to */
    bool bounds;
    bool whole; /* a block is one compressed key, which tokens see from its last position on */
} plan_blocks;

/* The number of blocks that a token at position `pos` can attend to. */
static inline int64_t plan_blocks_seen(const plan_blocks *b, int64_t pos) {
    return b->whole ? (pos + 1) / b->size : pos / b->size + 1;
}

/* Most tokens of a session in a ubatch that are decode or the verification of drafts; more are
 * prefill. */
enum { PLAN_DECODE_TOKENS = 16 };

/* For plan_options.attn_blocks. Blocks have the size of Quest's (arXiv 2406.10774). */
enum {
    PLAN_BOUNDS_SIZE = 16,
    PLAN_BOUNDS_FIRST = 1,
    PLAN_BOUNDS_LOCAL = 2,
    PLAN_BOUNDS_LEAST = PLAN_BOUNDS_FIRST + PLAN_BOUNDS_LOCAL + 1
};

static inline plan_blocks plan_bounds(int32_t attn_blocks) {
    if (attn_blocks == 0) return (plan_blocks){0};
    return (plan_blocks){.size = PLAN_BOUNDS_SIZE,
                         .top = attn_blocks,
                         .first = PLAN_BOUNDS_FIRST,
                         .local = PLAN_BOUNDS_LOCAL,
                         .bounds = true};
}

/* Whether a token at position `pos` attends to all positions before it; n_tokens: of its session in
 * the ubatch. */
static inline bool plan_blocks_all(const plan_blocks *b, int n_tokens, int64_t pos) {
    return b->size == 0 || plan_blocks_seen(b, pos) <= b->top ||
           (b->bounds && n_tokens > PLAN_DECODE_TOKENS);
}

/* The experts of a layer. Matrices are those of the first expert; expert_bytes is the distance to
 * the next. */
typedef struct plan_experts {
    pi_mode mode; /* PI_MODE_DENSE; PI_MODE_EXACT: reads rows of up, and of a down with a row per
                     neuron, only where activations are not zero; PI_MODE_PREDICT: also rows of gate
                     only where the expert's predictor selects the neuron */
    int n_expert, n_used, n_group, n_group_used;
    int64_t n_ff, n_embd; /* elements of an expert's hidden vector, of its input and output */
    plan_buffer in;       /* of the input: BUF_Y or BUF_EXPERT_LATENT */
    expert_gating gating;
    bool norm;           /* weights are divided by their sum */
    float scale;         /* then they are multiplied by this */
    int32_t share;       /* adjugate experts: number of experts that share one; 0: others */
    int n_scored;        /* scores of the router: n_expert, or with `share` the model's experts */
    bool weigh_input;    /* weights multiply the input, not the output */
    float sum_scale;     /* of the sum */
    const int32_t *perm; /* [n_expert] source index of each stored expert; NULL: identity */
    const int32_t *by_token;    /* [n_vocab][n_used] experts of each token; NULL: by score */
    const float *select_bias;   /* added to probabilities, only for the choice */
    const float *shared_router; /* [n_embd]: multiplies the shared expert's result by sigmoid(w .
                                   y); NULL: by 1 */
    bool shared;                /* the sum includes a shared expert, in BUF_SHARED */
    plan_matrix gate, up, down; /* w.n_out: rows of one expert; gate.w.data NULL: there is none */
    bool down_rows;             /* down has a row per neuron, of n_embd */
    int64_t up_rows; /* rows of an expert in the tensor of up: 2 * n_ff where the tensor includes
                        gate */
    const float *gate_scales, *up_scales, *down_scales; /* [n_expert] or NULL */
    int64_t hot;          /* experts [0, hot) are on the GPU, the others on the CPU */
    plan_side primary;    /* where the router is */
    bool split;           /* the other device also has experts, and receives the choices */
    plan_step *norm_step; /* the CPU's step that quantizes the input of single tokens; NULL: there
                             is none */
    unsigned in_kinds, down_kinds; /* quantized forms that the products read */
    /* Mode predict: NONE in other modes. */
    predictor_kind predictor;
    plan_matrix fc1, fc2;    /* LOWRANK, RELU_MLP: [n_embd, rank], [rank, n_ff] of one expert */
    const uint8_t *sign;     /* SIGN: [n_expert][n_ff][n_embd / 8] */
    const float *score_bias; /* [n_expert][n_ff] or NULL */
    float threshold;         /* neurons with score + bias >= this are computed */
    unsigned pred_kinds;     /* quantized forms of the predictors' hidden vectors */
} plan_experts;

/* The recurrent mixer of a layer. Heads of a group share key and query (Mamba-2: B and C). */
typedef struct plan_recurrent {
    uint32_t mixer;       /* MIXER_* */
    int n_taps, dilation; /* the convolution reads every dilation-th input */
    int64_t n_conv;
    const float *taps[3];   /* [n_conv][n_taps], the last tap is for the token itself; KDA: for
                               queries, keys and values [n_conv / 3][n_taps] each */
    const float *conv_bias; /* [n_conv] or NULL */
    int n_head, n_group;
    int64_t head_dim, n_state; /* elements of a value, of a key */
    bool groups_alternate;     /* arch_row */
    bool paired;               /* BUF_SSM_BETA has betas and alphas */
    bool sigmoid;              /* arch_row.delta_sigmoid */
    const float *dt_bias;      /* [n_head]; KDA: [n_head * n_state]; MIXER_LIGHTNING: NULL */
    const float *a;            /* [n_head]; with `channels` [n_head][n_state] */
    bool channels;             /* MIXER_SCAN without heads: each channel is one, with head_dim 1 */
    const float *d;            /* [n_head] or NULL */
    const float *norm; /* norm of the result, or NULL: [n_head * head_dim] by groups (Mamba-2) or
                          over all (MIXER_LIGHTNING), or [head_dim] for every head */
    struct plan_wkv {
        const float *erase, *rate_key; /* [n_inner]; RWKV-6: NULL */
        const float *bonus;            /* [n_inner], or NULL */
        const float *norm_bias;        /* [n_inner], as norm, or both NULL */
        bool keeps;                    /* the first layer: keeps its values */
        bool gated; /* the result is multiplied by SSM_GATE; in RWKV-6 by its SiLU, without a bonus
                       by its sigmoid */
        int64_t ffn_at; /* in a session's state: the FFN's last input */
    } wkv;
    /* Offset in floats in a session's state: the last inputs [(n_taps - 1) * dilation][n_conv];
     * [n_head][head_dim][n_state] */
    int64_t conv_at, heads_at;
} plan_recurrent;

/* Embeddings of n-grams; there is one layer that has them. */
typedef struct plan_ngrams {
    const float *key_norm, *query_norm, *conv_norm; /* [n_stream * n_embd] */
    plan_recurrent conv; /* convolution of the gated values, over all streams; mixer 0: SiLU of its
                            result is added to the streams */
    int64_t tokens_at;   /* offset in a session's state: the ids of the last size - 1 tokens plus 1,
                            the last token first; 0: none */
} plan_ngrams;

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct args_none {
    bool unused; /* C has no empty structs */
} args_none;

typedef struct args_norm {
    norm_kind kind; /* NORM_NONE: the input unchanged */
    int64_t width;  /* elements that are normed together */
    int n;          /* vectors of `width` in a row, each with its weights; 0: 1 */
    float eps;
    const float *weight; /* [n][width], or NULL */
    const float *bias;   /* [width], or NULL */
} args_norm;

/* out = x_scale * (out + scale * norm(in)) */
typedef struct args_add {
    args_norm norm;
    float scale;
    bool gated;    /* `in` is multiplied by the sigmoid of BUF_ATTN_GATE */
    float x_scale; /* 1 where `out` is BUF_STREAMS */
} args_add;

/* Several residual streams, n of them. */
typedef struct args_mix {
    const float *coefficients; /* router: OP_PREDICT [n * n][n], OP_CORRECT [n][n] */
    const float *scale;        /* OP_CORRECT: [n_embd], multiplies Y */
} args_mix;

/* Hyper-connections: a stream's weight is factor * sigmoid(scale[0] x + base) + eps, where x is its
 * number in BUF_HYPER. OP_HYPER_IN reads the first n_stream numbers, OP_HYPER_OUT the next
 * n_stream. If OP_HYPER_OUT mixes streams, the n_stream^2 numbers after these, with scale[1] and
 * the rest of the base, give the mixing weights [from][to]. */
typedef struct args_hyper {
    const float *base;  /* [n_stream]; mixing: [n_stream + n_stream^2] */
    const float *scale; /* [1]; mixing: [2] */
    float factor, eps;
    int rounds;    /* OP_HYPER_OUT: model_hparams.hyper_rounds */
    float mix_eps; /* added to weights that mix streams, and to their sums */
} args_hyper;

/* Attention over earlier residuals. */
typedef struct args_past {
    const float *score; /* OP_PAST_IN: [n_embd] */
    int n;              /* OP_PAST_IN: earlier values, in streams 1 to n */
    bool begins;        /* OP_PAST_IN: then stream 0 is copied to stream n + 1; OP_PAST_OUT: stream
                           0 is the block's result */
} args_past;

/* The operation on the vector, in place, before it is quantized. */
typedef struct args_quantize {
    bool relu, silu, tanh, sigmoid;
    const float *divisors; /* [act_width]; NULL: 1 */
    bool layer_embd;       /* its activation is multiplied by the layer's part of BUF_LAYER_EMBD */
    bool gated;            /* it is multiplied by the sigmoid of BUF_ATTN_GATE */
    bool head_gates;       /* gated: one gate per head */
    bool gate_softplus;    /* gated: by the softplus, not the sigmoid */
    bool received; /* `in` came with the RECEIVE before it: nothing to do where that message is in
                      int8 form (plan_message_is_q8) */
} args_quantize;

typedef struct args_matmul {
    bool relu; /* the GPU's: the result is rectified */
} args_matmul;

typedef struct args_top_k {
    float cutoff; /* model_layer_hparams.ffn_cutoff: standard deviations above the mean */
} args_top_k;

/* Rotation of heads, and norms of their vectors. */
typedef struct args_rope {
    rope_set set;                 /* set of angles */
    bool neox;                    /* pairs of ROPE_NEOX, not of ROPE_INTERLEAVED */
    int32_t rot_at;               /* first rotated element of a head */
    bool no_values;               /* keys are also the values; OP_INDEX_STORE: queries only */
    int64_t q_stride;             /* floats from one head of Q to the next */
    norm_kind norm;               /* norms of heads of Q and K */
    const float *q_norm, *k_norm; /* a head's weights are at q_norm + head * norm_stride; or NULL */
    int64_t norm_stride;          /* 0: all heads have the same weights */
    bool norm_late;               /* norm after the rotation */
    bool norm_bare;               /* without weights */
    bool value_norm;              /* RMS norm of values, without weights */
    float clamp;                  /* Q, K and V are first clamped to +-clamp; 0: not */
} args_rope;

/* MLA: rotation of the rotated parts of queries and key, RMS norm of the latent vector. */
typedef struct args_latent_store {
    rope_set set;
    const float *norm;   /* [n_latent] */
    const float *k_norm; /* [n_rot] RMS norm of the key before its rotation; NULL: none */
} args_latent_store;

/* Compressed keys. BUF_COMPRESS has a token's parts of a key and their scores, [n_parts][dim]
 * each, then those of an index key. */
typedef struct args_compress {
    int32_t ratio; /* positions per key */
    int n_parts;   /* 2: a key is a sum over its own positions (part 1) and over those of the key
                      before it (part 0) */
    rope_set set;
    bool neox;
    struct plan_compressed {
        int64_t dim;   /* elements of a key; 0: there are none */
        int64_t at;    /* in BUF_COMPRESS, floats */
        int64_t state; /* in a session's state: [n_parts][3][dim] maximum, sum, weighted sum */
        const float *positions; /* [ratio][n_parts * dim], added to scores; NULL: the key is the
                                   mean of its parts, which have no scores */
        const float *norm;      /* [dim] */
        int32_t rot_at;         /* first rotated element */
    } of[2];                    /* keys, index keys */
} args_compress;

typedef struct args_attention {
    int32_t window;   /* positions that a token attends to, including its own; 0: all */
    bool both_ways;   /* a token also attends to those after it, at most window / 2 away */
    bool chunks;      /* `window` is a fixed range of positions */
    bool latent;      /* values are the keys: MLA, compressed keys */
    int32_t ratio;    /* positions per compressed key; a token also attends to these keys, with
                         `blocks` only to the selected ones; 0: there are none */
    bool temperature; /* scores grow with the position (model_hparams) */
    bool gated; /* only on the GPU: the result is multiplied by the sigmoid of BUF_ATTN_GATE, or of
                   the gates after Q's heads if q_stride is longer than a head */
    bool head_gates;     /* BUF_ATTN_GATE has one gate per head */
    bool gate_softplus;  /* the softplus of a gate, not its sigmoid */
    float scale;         /* of the scores */
    float softcap;       /* of the scores; 0: none */
    int64_t q_stride;    /* floats from one head of Q to the next */
    const float *sinks;  /* [n_head] additional scores without a position; NULL: none */
    const float *slopes; /* [n_head] ALiBi: scores fall by this per position; NULL: none */
    plan_blocks blocks;
} args_attention;

typedef struct args_gate_heads {
    int64_t q_stride; /* floats from one head of Q to the next; its gate comes after it */
} args_gate_heads;

typedef struct args_find_blocks {
    plan_blocks blocks;
    int64_t q_stride; /* with bounds: floats from one head of Q to the next */
} args_find_blocks;

/* MLA: matrix[0] holds the matrices of all heads, one after the other. */
typedef struct args_heads {
    int n;             /* heads */
    plan_part in, out; /* a head's part of its buffer */
} args_heads;

/* Selected neurons. OP_FFN_SPARSE: matrix[0] is gate, or up where there is none; matrix[1]: up. */
typedef struct args_ffn {
    const plan_ffn *ffn;
} args_ffn;

typedef struct args_select {
    const plan_ffn *ffn;
    bool bits; /* the selected neurons came with the last message */
} args_select;

typedef struct args_experts {
    const plan_experts *experts;
} args_experts;

/* out_i = in + (in of the previous token - in) * weight_i, for i < n. */
typedef struct args_shift {
    const float *weights[PLAN_MAX_SHIFTS]; /* [n_embd] */
    int n;
    bool added; /* the numbers in `out` are added to the weights */
    bool keeps; /* the session keeps the last `in` */
    int64_t at; /* in a session's state: the `in` of the previous token */
} args_shift;

typedef struct args_recurrent {
    const plan_recurrent *mixer;
} args_recurrent;

typedef struct args_ngrams {
    const plan_ngrams *ngrams;
} args_ngrams;

/* A message; OP_SEND reads the buffer `in`, OP_RECEIVE writes `out`. */
typedef struct args_message {
    int exchange;                /* its number, counted per direction; -1 for a peer */
    int peer;                    /* messages of GPUs: the GPU at the other end; -1: the CPU */
    bool bits;                   /* includes selected neurons, or choices of experts */
    const plan_experts *experts; /* for messages of a mixture of experts; NULL elsewhere */
    bool q8; /* in ubatches of few tokens the vectors are in int8 form: plan_message_is_q8 */
    /* OP_RECEIVE */
    bool norms;      /* the GPU's, in ubatches of few tokens: its kernel also runs the next step */
    bool add_to_out; /* out += message, not out = message */
    bool answer;     /* the message is the other side's partial sum */
    bool clear_x;    /* X = 0, for this side's partial sum */
    bool helpers; /* answers in layers whose primary is a GPU: the message includes partial sums of
                     helpers, and is sent even if cold steps are skipped. The CPU then starts with
                     the helpers' sums; the GPU adds the message to the cold part */
} args_message;

typedef struct args_softcap {
    float cap;
} args_softcap;

typedef struct args_draft_read {
    int64_t at; /* in BUF_DRAFT_READS, floats */
} args_draft_read;

typedef struct args_draft_in {
    args_norm embd, features;
    bool residual, normed; /* X = the features; the normed features */
} args_draft_in;

/* The output head with a predictor. OP_HEAD_SCORES: matrix[0] is the predictor's fc2;
 * OP_HEAD_ROWS: matrix[0] is the output matrix. */
typedef struct args_head {
    head_kind kind; /* HEAD_SKETCH or HEAD_PROFILER */
    float distance; /* HEAD_SKETCH: candidates are within this of the best score */
} args_head;

/* All argument types, by name. */
#define PLAN_ARGS(X)                                                                               \
    X(none)                                                                                        \
    X(norm)                                                                                        \
    X(add)                                                                                         \
    X(past)                                                                                        \
    X(hyper)                                                                                       \
    X(mix)                                                                                         \
    X(quantize)                                                                                    \
    X(matmul)                                                                                      \
    X(top_k)                                                                                       \
    X(rope)                                                                                        \
    X(latent_store)                                                                                \
    X(compress)                                                                                    \
    X(attention)                                                                                   \
    X(gate_heads)                                                                                  \
    X(find_blocks)                                                                                 \
    X(heads)                                                                                       \
    X(ffn)                                                                                         \
    X(select)                                                                                      \
    X(experts)                                                                                     \
    X(shift)                                                                                       \
    X(recurrent)                                                                                   \
    X(ngrams)                                                                                      \
    X(message)                                                                                     \
    X(softcap)                                                                                     \
    X(head)                                                                                        \
    X(draft_read)                                                                                  \
    X(draft_in)

typedef enum plan_args {
#define ARGS_TAG(name) ARGS_##name,
    PLAN_ARGS(ARGS_TAG)
#undef ARGS_TAG
} plan_args;

plan_args plan_args_of(plan_op op);

/* ---- the step -------------------------------------------------------------------------------- */

struct plan_step {
    plan_op op;
    int layer;  /* -1: before or after the layers */
    int device; /* GPU steps: the device that runs the step; messages: the GPU at one end */
    plan_kernel kernel[PLAN_FORMS];
    bool alone[PLAN_FORMS]; /* one thread runs the step: the last thread to finish the previous
                               step, while the others wait */
    bool cold;  /* the CPU's part of a layer whose primary is the GPU: skipped in ubatches where the
                   GPU computes the whole layer */
    bool early; /* OP_PREFETCH, OP_PREFETCH_EXPERTS, and the steps that they need: skipped if
                   prefetching does not pay off */
    plan_buffer in, out; /* output of steps without matrices; each matrix names its own output */
    int64_t in_at;       /* OP_QUANTIZE and its OP_MATMUL: offset in the input's rows, floats */
    int sends;     /* the GPU's OP_NORM, OP_SELECT, OP_ROUTE: for few tokens the kernel sends its
                      part of the message of the OP_SEND so many steps later; 0: none */
    bool norms;    /* on the GPU, for a single token: includes the next step, a norm of X */
    bool add_to_x; /* OP_MATMUL, OP_FFN_DOWN, OP_EXPERTS_SUM: adds the result to X; otherwise writes
                      it to `out`, or to the matrix's output */
    /* OP_MATMUL, OP_FFN_IN, OP_FFN_SPARSE, OP_HEADS: matrices that share one quantized input */
    int n_matrices;
    plan_matrix *matrix;   /* [PLAN_MAX_GROUP], part of the plan's array */
    uint64_t weight_bytes; /* bytes that this step reads per ubatch; OP_FFN_SPARSE, OP_FFN_DOWN and
                              OP_HEAD_ROWS: maximum, the context counts the actual bytes */
    /* Quantized form of the step's result if it writes one (plan_quantizes), or of its input if it
     * reads one (plan_input_slot). */
    int slot;           /* PLAN_SLOT_* */
    unsigned act_kinds; /* types that later steps read, bits 1 << cpu_act_kind */
    int64_t act_width;  /* elements of the vectors */
    union {
#define ARGS_MEMBER(name) args_##name name;
        PLAN_ARGS(ARGS_MEMBER)
#undef ARGS_MEMBER
    } args; /* access through STEP_ARGS */
};

/* A pointer to the step's arguments of this name; asserts that they belong to its operation:
 * STEP_ARGS(s, norm) is an args_norm *, const where the step is. `step` has no side effects. */
#define STEP_ARGS(step, name) (assert(plan_args_of((step)->op) == ARGS_##name), &(step)->args.name)

/* For a switch over s->op in files that include ops.def: the operation's code, which sees its
 * arguments as `a`. */
#define STEP_CASE(name, its_args, code)                                                            \
    case OP_##name: {                                                                              \
        const args_##its_args *a = STEP_ARGS(s, its_args);                                         \
        (void)a;                                                                                   \
        code;                                                                                      \
        break;                                                                                     \
    }

/* The layer's neurons that a step computes or selects; NULL: dense layer, or other operation. */
static inline const plan_ffn *plan_ffn_of(const plan_step *s) {
    plan_args args = plan_args_of(s->op);
    return args == ARGS_ffn ? s->args.ffn.ffn : args == ARGS_select ? s->args.select.ffn : NULL;
}

/* The layer's experts that a step or a message belongs to; NULL: none. */
static inline const plan_experts *plan_experts_of(const plan_step *s) {
    plan_args args = plan_args_of(s->op);
    return args == ARGS_experts   ? s->args.experts.experts
           : args == ARGS_message ? s->args.message.experts
                                  : NULL;
}

/* The slot with the quantized form of the input of a step's products. */
static inline int plan_input_slot(const plan_step *s) {
    return s->op == OP_MATMUL || s->op == OP_HEAD_SCORES ? s->slot : PLAN_SLOT_MAIN;
}

#endif
