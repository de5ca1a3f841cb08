/* arch_encoder.c: encoders, which compute a vector of a text (or of each of its tokens) and no next
 * token. A token attends to the tokens before and after it. In BERT's layers the norms come after
 * the additions to the residual stream. */
#include "arch_pieces.h"

/* The classifier of models that rank: cls has n_embd rows, or is the whole classifier. */
#define CLASSIFIER                                                                                 \
    {ROLE_CLS, "cls.weight", NULL, {DIM_EMBD, DIM_OPEN}, TENSOR_OPTIONAL},                         \
        GLOBAL_VECTOR(ROLE_CLS_BIAS, "cls.bias", DIM_OPEN, TENSOR_OPTIONAL),                       \
        GLOBAL_VECTOR(ROLE_CLS_NORM, "cls.norm.weight", DIM_EMBD, TENSOR_OPTIONAL),                \
        CLASSIFIER_OUTPUT,                                                                         \
        GLOBAL_VECTOR(ROLE_CLS_OUT_BIAS, "cls.output.bias", DIM_OPEN, TENSOR_OPTIONAL)

#define ENCODER_GLOBALS(norm_bias)                                                                 \
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, 0},                        \
        GLOBAL_VECTOR(ROLE_EMBD_NORM, "token_embd_norm.weight", DIM_EMBD, 0),                      \
        GLOBAL_VECTOR(ROLE_EMBD_NORM_BIAS, "token_embd_norm.bias", DIM_EMBD, norm_bias),           \
        CLASSIFIER

#define TOKEN_TYPES                                                                                \
    { ROLE_TOKEN_TYPES, "token_types.weight", NULL, {DIM_EMBD, DIM_TYPES}, TENSOR_OPTIONAL }

/* Norms of the residual stream after each block. */
#define SUM_NORMS                                                                                  \
    PLAIN_NORM(ROLE_ATTN_SUM_NORM, ROLE_ATTN_SUM_NORM_BIAS, "attn_output_norm", 0),                \
        PLAIN_NORM(ROLE_FFN_SUM_NORM, ROLE_FFN_SUM_NORM_BIAS, "layer_output_norm", 0)

static const arch_tensor bert_tensors[] = {
    ENCODER_GLOBALS(0),
    TOKEN_TYPES,
    {ROLE_POS_EMBD, "position_embd.weight", NULL, {DIM_EMBD, DIM_POS}, 0},
    PROJECTIONS,
    SUM_NORMS,
    PLAIN_FFN,
    FFN_BIASES(TENSOR_OPTIONAL),
};

/* Rotation in place of learned positions. */
static const arch_tensor jina_bert_v3_tensors[] = {
    ENCODER_GLOBALS(0), TOKEN_TYPES, PROJECTIONS, SUM_NORMS, PLAIN_FFN, FFN_BIASES(TENSOR_OPTIONAL),
};

static const arch_tensor nomic_bert_tensors[] = {
    ENCODER_GLOBALS(0), TOKEN_TYPES, PROJECTIONS, SUM_NORMS, GATED_FFN,
};

/* Every second layer has experts without a gate. */
static const arch_tensor nomic_bert_moe_tensors[] = {
    ENCODER_GLOBALS(0),
    TOKEN_TYPES,
    PROJECTIONS,
    SUM_NORMS,
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),
    LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,
                 TENSOR_NEURON_COLS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),
    SPARSE_TENSORS,
    FFN_BIASES(TENSOR_OPTIONAL),
    LAYER_MATRIX(ROLE_ROUTER, "ffn_gate_inp", "mlp.gate", DIM_EMBD, DIM_EXPERTS, TENSOR_OPTIONAL),
    EXPERT_MATRIX(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EMBD, DIM_EXPERT_FF, 0),
    EXPERT_MATRIX(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_EXPERT_FF, DIM_EMBD, 0),
    SPARSE_EXPERTS,
};

/* Norms over all heads of Q and K, a second norm of attention's sum, and the gate, with the up rows
 * or apart, are optional. */
static const arch_tensor jina_bert_v2_tensors[] = {
    ENCODER_GLOBALS(0),
    TOKEN_TYPES,
    PROJECTIONS,
    PLAIN_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", DIM_Q, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_Q_NORM_BIAS, "attn_q_norm.bias", DIM_Q, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", DIM_KV, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_K_NORM_BIAS, "attn_k_norm.bias", DIM_KV, TENSOR_OPTIONAL),
    SUM_NORMS,
    PLAIN_NORM(ROLE_ATTN_SUM_NORM_2, ROLE_ATTN_SUM_NORM_2_BIAS, "attn_norm_2", TENSOR_OPTIONAL),
    LAYER_MATRIX(ROLE_FFN_GATE_UP, "ffn_up", "mlp.gate_up_proj", DIM_EMBD, DIM_2FF,
                 TENSOR_OPTIONAL | TENSOR_IF_FITS | TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),
    PLAIN_FFN,
    FFN_BIASES(TENSOR_OPTIONAL),
};

/* Norms before each block; the first layer's attention reads the normed embedding. */
static const arch_tensor modern_bert_tensors[] = {
    ENCODER_GLOBALS(TENSOR_OPTIONAL),
    {ROLE_OUTPUT_NORM, "output_norm.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32},
    PLAIN_VECTOR(ROLE_ATTN_NORM, "attn_norm.weight", DIM_EMBD, TENSOR_OPTIONAL),
    PROJECTIONS,
    FFN_NORM(0),
    FUSED_FFN,
};

/* Norms before and after each block; two projections of a text's vector. */
static const arch_tensor gemma_embedding_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT_NORM, "output_norm.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32},
    CLASSIFIER,
    DENSE_MODULE,
    {ROLE_DENSE_3, "dense_3.weight", NULL, {DIM_OPEN, DIM_OPEN}, TENSOR_OPTIONAL},
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(0),
    FFN_NORM(0),
    POST_NORMS,
    GATED_FFN,
};

/* ---- rows ----------------------------------------------------------------------------------- */

static const arch_row rows[] = {
    {GGUF_ROW("bert", LAYER, NONE, GELU), .encoder = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(bert_tensors)},
    {GGUF_ROW("gemma-embedding", RMS, NEOX, GELU), .encoder = true,
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SQRT | ARCH_ATTN_SCALE | ARCH_ROPE_LOCAL,
     .qk_norm = NORM_RMS, .window_period = 6, .local_rope_base = 10000,
     TENSORS(gemma_embedding_tensors)},
    {GGUF_ROW("jina-bert-v2", LAYER, NONE, GELU), .encoder = true, .alibi = true,
     .default_alibi = 8, .has = ARCH_FFN_UNSCALED, .qk_norm = NORM_LAYER,
     TENSORS(jina_bert_v2_tensors)},
    {GGUF_ROW("jina-bert-v3", LAYER, NEOX, GELU), .encoder = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(jina_bert_v3_tensors)},
    {GGUF_ROW("modern-bert", LAYER, NEOX, GELU), .encoder = true, .window_period = 3,
     .window_after = true, .classifier = CLASSIFIER_MEAN,
     .has = ARCH_FFN_UNSCALED | ARCH_ROPE_LOCAL, TENSORS(modern_bert_tensors)},
    {GGUF_ROW("nomic-bert", LAYER, NEOX, SILU), .encoder = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(nomic_bert_tensors)},
    {GGUF_ROW("nomic-bert-moe", LAYER, NEOX, GELU), .encoder = true, .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERTS_UNSCALED, TENSORS(nomic_bert_moe_tensors)},
};

const arch_rows arch_rows_encoder = ARCH_ROWS(rows);
