/* plan.h: what will run for one model: a flat array of plain-struct steps, made once. All decisions
 * (which weights, which buffers, which activations) are made here; executing is a loop over steps.
 *
 * A plan borrows the model's weights and is immutable. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include <stdio.h>

#include "cpu.h"
#include "error.h"
#include "model.h"

/* How feed-forward layers are computed (docs/sparse.md). */
typedef enum ffn_mode {
    FFN_AUTO,      /* per layer the fastest whose measured loss is within max_loss */
    FFN_DENSE,     /* everything */
    FFN_EXACT,     /* gate for all neurons, the rest where the activation is not zero */
    FFN_PREDICT,   /* gate for the predictor's candidates, the rest where it is not zero */
    FFN_THRESHOLD, /* as exact, but small activations count as zero */
    FFN_MODE_COUNT
} ffn_mode;

typedef struct plan_options {
    ffn_mode mode;  /* a layer that lacks what the mode needs takes the next one that is exact */
    float max_loss; /* for FFN_AUTO: relative rise of perplexity, 0.01 for 1% */
    bool set_threshold;
    float threshold; /* with set_threshold: instead of the model's predictor threshold */
} plan_options;

const char *ffn_mode_name(ffn_mode mode); /* "auto", "dense", ... */

/* Working buffers, all float32, one row per token of the batch. */
typedef enum plan_buffer {
    BUF_X,        /* residual stream [n_embd] */
    BUF_Y,        /* normed input of a half, or the result that is added to X [n_embd] */
    BUF_Q,        /* [n_head * head_dim] */
    BUF_K,        /* [n_head_kv * head_dim] */
    BUF_V,        /* [n_head_kv * head_dim] */
    BUF_ATTN,     /* attention's result [n_head * head_dim] */
    BUF_ATTN_OUT, /* attention's half where both run in parallel [n_embd] */
    BUF_GATE,     /* [n_ff]; after the activation: the hidden vector */
    BUF_UP,       /* [n_ff] */
    BUF_LOGITS,   /* [n_vocab], one row per wanted row of logits */
    BUF_COUNT
} plan_buffer;

typedef enum plan_op {
    OP_EMBED,       /* X = rows of the embedding table; rotary angles of the positions */
    OP_NORM,        /* out = norm(in), and its encoded form */
    OP_ENCODE,      /* encoded form of `in` */
    OP_MATMUL,      /* out_i = W_i * encoded input (+ bias) (+= add_to) */
    OP_FFN_IN,      /* GATE = f(W_gate * input) * (W_up * input), or f(W_up * input) ungated */
    OP_ROPE_STORE,  /* head norms, rotation, append K and V to the cache */
    OP_ATTENTION,   /* ATTN = softmax(Q K^T) V over the cache */
    OP_ADD,         /* X += in */
    OP_SELECT_NORM, /* Y = norm of the rows of X whose logits are wanted, and their encoded form */
    OP_COUNT
} plan_op;

typedef struct plan_matrix {
    cpu_mat w;
    const float *bias; /* [w.n_out] or NULL */
    float scale;       /* of the product, before the bias or (scale_last) after it */
    bool scale_last;
    plan_buffer out;
    tensor_role role;
} plan_matrix;

enum { PLAN_MAX_GROUP = 3 }; /* Q, K, V */

typedef struct plan_step {
    plan_op op;
    int layer; /* -1: before or after the layers */
    plan_buffer in;
    /* OP_MATMUL, OP_FFN_IN: matrices that share one encoded input */
    int n_matrices;
    plan_matrix matrix[PLAN_MAX_GROUP];
    bool add_to_x; /* the product is added to X afterwards */
    /* OP_NORM, OP_SELECT_NORM */
    const float *norm_weight, *norm_bias;
    /* OP_ROPE_STORE: [head_dim] or NULL */
    const float *q_norm, *k_norm;
    /* OP_NORM, OP_ENCODE, OP_SELECT_NORM: forms that later steps read, bits 1 << cpu_act_kind */
    unsigned encode_kinds;
    int64_t encode_width;  /* elements of the vectors that it encodes */
    uint64_t weight_bytes; /* read by this step in one pass */
} plan_step;

typedef struct plan {
    const model *model;
    ffn_mode mode; /* that most layers run in */
    int n_steps;
    plan_step *steps;         /* [n_steps] */
    int64_t width[BUF_COUNT]; /* floats per row */
    int64_t encode_width;     /* longest vector that is encoded */
    unsigned encode_kinds;    /* all kinds that any step needs */
    /* The type with the most weight bytes per activation kind: what break-even is measured on. */
    const plan_matrix *typical[CPU_ACT_KIND_COUNT];
    uint64_t weight_bytes, ffn_bytes; /* per pass, head included */
} plan;

/* PI_ERR_UNSUPPORTED when a weight's type has no kernels, PI_ERR_NOMEM. */
pi_status plan_create(const model *m, const cpu_kernels *kernels, plan **out, pi_error *err);
void plan_free(plan *p); /* NULL is fine */
/* A line per step, for people. */
void plan_print(const plan *p, FILE *out);
const char *plan_op_name(plan_op op);

#endif
