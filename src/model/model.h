/* model.h: an opened model: hyperparameters and bound weights. Immutable after model_open; shared
 * between threads. Weights point into the file's mapping; small float vectors that are not F32
 * there are converted into the model's arena. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "arch.h"
#include "arena.h"
#include "gguf.h"

enum {
    MODEL_MAX_LAYERS = 1024,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_DIM = 1 << 20, /* n_embd, n_ff, head_dim */
    MODEL_MAX_VOCAB = 1 << 22
};

typedef enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN
} rope_scaling;

typedef struct model_hparams {
    int32_t n_layer, n_embd, n_vocab, n_ctx_train;
    int32_t n_head; /* the largest over layers */
    int32_t head_dim;
    int32_t n_rot; /* rotated elements of a head, even, <= head_dim */
    float norm_eps;
    float rope_freq_base;
    rope_scaling rope_scaling;
    float rope_scaling_factor; /* > 0 */
    int32_t rope_orig_ctx;     /* YaRN: original context */
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    activation activation;
    float activation_threshold; /* FATReLU */
} model_hparams;

typedef struct model_layer_hparams {
    int32_t n_head, n_head_kv, n_ff;
} model_layer_hparams;

typedef struct model_tensor {
    const void *data; /* NULL: absent (optional) */
    size_t n_bytes, row_bytes;
    int64_t n_in;    /* elements per row */
    int64_t n_out;   /* rows; 1 for vectors */
    float scale;     /* of a matrix: its product is multiplied by this; 1 unless the file says so */
    quant_type type; /* F32 for vectors */
} model_tensor;

typedef struct model_layer {
    model_layer_hparams hp;
    model_tensor t[ROLE_COUNT];
} model_layer;

typedef struct model {
    gguf_file *file;
    const arch_row *arch;
    model_hparams hp;
    model_layer *layers;        /* [n_layer] */
    model_tensor t[ROLE_COUNT]; /* global tensors; OUTPUT is TOKEN_EMBD when tied */
    uint64_t n_params, weight_bytes;
    char name[256];
    arena arena;
} model;

/* PI_ERR_UNSUPPORTED: architecture (the message lists the known ones) or rope scaling;
 * PI_ERR_FORMAT: a missing key or tensor, a shape that does not fit (the message names it and says
 * what was expected); also everything of gguf_open. */
pi_status model_open(const char *path, const gguf_open_options *options, model **out,
                     pi_error *err);
void model_close(model *m); /* NULL is fine */
/* Reads the hyperparameters only. */
pi_status model_read_hparams(const gguf_file *f, const arch_row *arch, model_hparams *hp,
                             model_layer_hparams *layers /* [hp->n_layer] or NULL */,
                             pi_error *err);

#endif
