/* arch_pieces.h: building blocks for the rows of the architecture table and their tensor lists.
 * Hugging Face names are those that most families use; hf_family.c has the others. */
#ifndef MODEL_ARCH_PIECES_H
#define MODEL_ARCH_PIECES_H

#include <stddef.h>

#include "arch_table.h"

#define HF_LAYER "model.layers.%d."

/* The output head's predictor, from `prepare`. */
#define OUTPUT_SKETCH                                                                              \
    {ROLE_OUTPUT_FC1,                                                                              \
     "output_sketch.fc1.weight",                                                                   \
     NULL,                                                                                         \
     {DIM_EMBD, DIM_RANK},                                                                         \
     TENSOR_OPTIONAL | TENSOR_SPARSE},                                                             \
    {                                                                                              \
        ROLE_OUTPUT_FC2, "output_sketch.fc2.weight", NULL, {DIM_RANK, DIM_VOCAB},                  \
            TENSOR_OPTIONAL | TENSOR_SPARSE                                                        \
    }

#define GLOBAL_TENSORS                                                                             \
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0}, \
        {ROLE_OUTPUT_NORM,                                                                         \
         "output_norm.weight",                                                                     \
         "model.norm.weight",                                                                      \
         {DIM_EMBD, DIM_NONE},                                                                     \
         TENSOR_F32},                                                                              \
        {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},  \
        OUTPUT_SKETCH, {                                                                           \
        ROLE_ROPE_FREQS, "rope_freqs.weight", NULL, {DIM_HALF_ROT, DIM_NONE},                      \
            TENSOR_OPTIONAL | TENSOR_F32                                                           \
    }

#define LAYER_VECTOR(role, name, hf, dim, flags)                                                   \
    { role, "blk.%d." name, HF_LAYER hf, {dim, DIM_NONE}, TENSOR_PER_LAYER | TENSOR_F32 | (flags) }
#define LAYER_MATRIX(role, name, hf, dim_in, dim_out, flags)                                       \
    {                                                                                              \
        role, "blk.%d." name ".weight", HF_LAYER hf ".weight", {dim_in, dim_out},                  \
            TENSOR_PER_LAYER | (flags)                                                             \
    }

#define ATTENTION_TENSORS                                                                          \
    LAYER_VECTOR(ROLE_ATTN_NORM, "attn_norm.weight", "input_layernorm.weight", DIM_EMBD, 0),       \
        LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, 0),               \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_Q, DIM_EMBD, 0)

#define ATTENTION_QKV_BIASES(flags)                                                                \
    LAYER_VECTOR(ROLE_ATTN_Q_BIAS, "attn_q.bias", "self_attn.q_proj.bias", DIM_Q, flags),          \
        LAYER_VECTOR(ROLE_ATTN_K_BIAS, "attn_k.bias", "self_attn.k_proj.bias", DIM_KV, flags),     \
        LAYER_VECTOR(ROLE_ATTN_V_BIAS, "attn_v.bias", "self_attn.v_proj.bias", DIM_VALUES, flags)

#define GATED_FFN_TENSORS                                                                          \
    LAYER_VECTOR(ROLE_FFN_NORM, "ffn_norm.weight", "post_attention_layernorm.weight", DIM_EMBD,    \
                 0),                                                                               \
        LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,                 \
                     TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                      \
        LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                       \
                     TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                      \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | TENSOR_SCALE_LAST)

#define SPARSE_TENSOR(role, name, dim_in, dim_out, flags)                                          \
    {                                                                                              \
        role, "blk.%d." name, NULL, {dim_in, dim_out},                                             \
            TENSOR_PER_LAYER | TENSOR_OPTIONAL | TENSOR_SPARSE | (flags)                           \
    }

/* Tensors added by `prepare`, or present in files of the original PowerInfer, for any
 * architecture. */
#define SPARSE_TENSORS                                                                             \
    SPARSE_TENSOR(ROLE_FC1, "fc1.weight", DIM_EMBD, DIM_RANK, 0),                                  \
        SPARSE_TENSOR(ROLE_FC2, "fc2.weight", DIM_RANK, DIM_FF, TENSOR_NEURON_ROWS),               \
        SPARSE_TENSOR(ROLE_FC2_BIAS, "fc2.bias", DIM_FF, DIM_NONE,                                 \
                      TENSOR_NEURON_VEC | TENSOR_F32),                                             \
        SPARSE_TENSOR(ROLE_FFN_SIGN, "ffn_sign", DIM_EMBD_8, DIM_FF,                               \
                      TENSOR_NEURON_ROWS | TENSOR_RAW),                                            \
        SPARSE_TENSOR(ROLE_FFN_DOWN_T, "ffn_down_t.weight", DIM_EMBD, DIM_FF,                      \
                      TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                     \
        SPARSE_TENSOR(ROLE_FFN_BUNDLE, "ffn_bundle.weight", DIM_BUNDLE, DIM_FF,                    \
                      TENSOR_NEURON_ROWS | TENSOR_RAW),                                            \
        SPARSE_TENSOR(ROLE_FFN_DOWN_T_BIAS, "ffn_down_t.bias", DIM_EMBD, DIM_NONE, TENSOR_F32),    \
        SPARSE_TENSOR(ROLE_FFN_FREQ, "ffn_freq", DIM_UNITS, DIM_NONE,                              \
                      TENSOR_NEURON_VEC | TENSOR_F32),                                             \
        SPARSE_TENSOR(ROLE_FFN_PERM, "ffn_perm", DIM_FF, DIM_NONE,                                 \
                      TENSOR_NEURON_VEC | TENSOR_RAW),                                             \
        SPARSE_TENSOR(ROLE_FFN_CUT, "ffn_cut", DIM_FF, DIM_NONE, TENSOR_NEURON_VEC | TENSOR_F32)

/* For checkpoints with other tensor names (hf_family.c). */
#define PLAIN_VECTOR(role, name, dim, flags)                                                       \
    { role, "blk.%d." name, NULL, {dim, DIM_NONE}, TENSOR_PER_LAYER | TENSOR_F32 | (flags) }
#define PLAIN_MATRIX(role, name, dim_in, dim_out, flags)                                           \
    { role, "blk.%d." name ".weight", NULL, {dim_in, dim_out}, TENSOR_PER_LAYER | (flags) }
#define PLAIN_NORM(role, bias_role, name, flags)                                                   \
    PLAIN_VECTOR(role, name ".weight", DIM_EMBD, flags),                                           \
        PLAIN_VECTOR(bias_role, name ".bias", DIM_EMBD, flags)
#define PLAIN_GLOBALS                                                                              \
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, 0},                        \
        {ROLE_OUTPUT_NORM, "output_norm.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32},          \
        OUTPUT_SKETCH, {                                                                           \
        ROLE_OUTPUT_NORM_BIAS, "output_norm.bias", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32          \
    }

#define HEAD_BIAS                                                                                  \
    {                                                                                              \
        ROLE_OUTPUT_BIAS, "output.bias", "lm_head.bias", {DIM_VOCAB, DIM_NONE},                    \
            TENSOR_OPTIONAL | TENSOR_F32                                                           \
    }
#define HEAD_NORM_BIAS                                                                             \
    {                                                                                              \
        ROLE_OUTPUT_NORM_BIAS, "output_norm.bias", "model.norm.bias", {DIM_EMBD, DIM_NONE},        \
            TENSOR_F32                                                                             \
    }

#define GLOBAL_VECTOR(role, name, dim, flags)                                                      \
    { role, name, NULL, {dim, DIM_NONE}, TENSOR_F32 | (flags) }
/* The last part of the classifier of models that rank. */
#define CLASSIFIER_OUTPUT                                                                          \
    { ROLE_CLS_OUT, "cls.output.weight", NULL, {DIM_EMBD, DIM_OPEN}, TENSOR_OPTIONAL }
/* The first projection of a text's vector. */
#define DENSE_MODULE                                                                               \
    {ROLE_DENSE_2, "dense_2.weight", NULL, {DIM_EMBD, DIM_OPEN}, TENSOR_OPTIONAL},                 \
        GLOBAL_VECTOR(ROLE_DENSE_2_BIAS, "dense_2.bias", DIM_OPEN, TENSOR_OPTIONAL)

/* Norms without weights. */
#define BARE_NORM(role, name)                                                                      \
    { role, name ".weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32 | TENSOR_ONES }
#define BARE_LAYER_NORM(role, name) PLAIN_VECTOR(role, name ".weight", DIM_EMBD, TENSOR_ONES)

/* Q, K and V, separate or fused, and the output; all may have biases. */
#define PROJECTIONS_OF(values, result)                                                             \
    LAYER_MATRIX(ROLE_ATTN_QKV, "attn_qkv", "self_attn.qkv_proj", DIM_EMBD, DIM_QKV,               \
                 TENSOR_OPTIONAL),                                                                 \
        LAYER_VECTOR(ROLE_ATTN_QKV_BIAS, "attn_qkv.bias", "self_attn.qkv_proj.bias", DIM_QKV,      \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, 0),               \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, values, 0),              \
        ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),                                                     \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", result, DIM_EMBD, 0),       \
        LAYER_VECTOR(ROLE_ATTN_OUT_BIAS, "attn_output.bias", "self_attn.o_proj.bias", DIM_EMBD,    \
                     TENSOR_OPTIONAL)
#define PROJECTIONS PROJECTIONS_OF(DIM_KV, DIM_Q)

#define ATTN_NORM                                                                                  \
    LAYER_VECTOR(ROLE_ATTN_NORM, "attn_norm.weight", "input_layernorm.weight", DIM_EMBD, 0)
#define ATTN_NORM_BIAS                                                                             \
    LAYER_VECTOR(ROLE_ATTN_NORM_BIAS, "attn_norm.bias", "input_layernorm.bias", DIM_EMBD, 0)
#define FFN_NORM(flags)                                                                            \
    LAYER_VECTOR(ROLE_FFN_NORM, "ffn_norm.weight", "post_attention_layernorm.weight", DIM_EMBD,    \
                 flags)
#define FFN_NORM_BIAS(flags)                                                                       \
    LAYER_VECTOR(ROLE_FFN_NORM_BIAS, "ffn_norm.bias", "post_attention_layernorm.bias", DIM_EMBD,   \
                 flags)
#define POST_NORMS                                                                                 \
    LAYER_VECTOR(ROLE_ATTN_POST_NORM, "post_attention_norm.weight",                                \
                 "post_attention_layernorm.weight", DIM_EMBD, 0),                                  \
        LAYER_VECTOR(ROLE_FFN_POST_NORM, "post_ffw_norm.weight",                                   \
                     "post_feedforward_layernorm.weight", DIM_EMBD, 0)

#define HEAD_NORMS(flags)                                                                          \
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD,      \
                 flags),                                                                           \
        LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD,  \
                     flags)
/* One weight vector per head. */
#define EACH_HEAD_NORMS                                                                            \
    {ROLE_ATTN_Q_NORM,                                                                             \
     "blk.%d.attn_q_norm.weight",                                                                  \
     HF_LAYER "self_attn.q_norm.weight",                                                           \
     {DIM_HEAD, DIM_HEADS},                                                                        \
     TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_OPTIONAL},                                             \
    {                                                                                              \
        ROLE_ATTN_K_NORM, "blk.%d.attn_k_norm.weight", HF_LAYER "self_attn.k_norm.weight",         \
            {DIM_HEAD, DIM_HEADS_KV}, TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_OPTIONAL              \
    }
/* Over all heads together. */
#define WIDE_NORMS                                                                                 \
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_Q, 0),     \
        LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_KV, 0)

#define FFN_DOWN                                                                                   \
    LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                     \
                 TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),                                          \
        SPARSE_TENSORS
#define PLAIN_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                           \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        FFN_DOWN
#define GATED_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,                     \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        PLAIN_FFN
#define FUSED_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_GATE_UP, "ffn_up", "mlp.gate_up_proj", DIM_EMBD, DIM_2FF,                \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        FFN_DOWN
#define FFN_BIASES(flags)                                                                          \
    LAYER_VECTOR(ROLE_FFN_UP_BIAS, "ffn_up.bias", "mlp.up_proj.bias", DIM_FF,                      \
                 (flags) | TENSOR_NEURON_VEC),                                                     \
        LAYER_VECTOR(ROLE_FFN_DOWN_BIAS, "ffn_down.bias", "mlp.down_proj.bias", DIM_EMBD, flags)

/* FFNs in some layers, experts in the others. */
#define DENSE_LAYERS_FFN                                                                           \
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,                     \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),                      \
        LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                       \
                     TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),                  \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),                  \
        SPARSE_TENSORS
#define EXPERT_MATRIX(role, name, dim_in, dim_out, flags)                                          \
    {                                                                                              \
        role, "blk.%d." name ".weight", NULL, {dim_in, dim_out, DIM_EXPERTS},                      \
            TENSOR_PER_LAYER | TENSOR_OPTIONAL | (flags)                                           \
    }
#define EXPERT_BIAS(role, name, dim)                                                               \
    {                                                                                              \
        role, "blk.%d." name ".bias", NULL, {dim, DIM_EXPERTS},                                    \
            TENSOR_PER_LAYER | TENSOR_OPTIONAL | TENSOR_F32                                        \
    }
/* Tensors that `prepare` adds to experts. */
#define SPARSE_EXPERTS                                                                             \
    SPARSE_TENSOR(ROLE_EXPERT_PERM, "ffn_expert_perm", DIM_EXPERTS, DIM_NONE, TENSOR_RAW),         \
        SPARSE_TENSOR(ROLE_EXPERT_BUNDLE, "ffn_bundle_exps.weight", DIM_BUNDLE, DIM_EXPERTS,       \
                      TENSOR_RAW),                                                                 \
        EXPERT_MATRIX(ROLE_EXPERT_DOWN_T, "ffn_down_t_exps", DIM_EXPERT_EMBD, DIM_EXPERT_FF,       \
                      TENSOR_SPARSE),                                                              \
        EXPERT_MATRIX(ROLE_EXPERT_FC1, "fc1_exps", DIM_EXPERT_EMBD, DIM_RANK,                      \
                      TENSOR_SPARSE | TENSOR_UNSCALED),                                            \
        EXPERT_MATRIX(ROLE_EXPERT_FC2, "fc2_exps", DIM_RANK, DIM_EXPERT_FF,                        \
                      TENSOR_SPARSE | TENSOR_UNSCALED),                                            \
        SPARSE_TENSOR(ROLE_EXPERT_FC2_BIAS, "fc2_exps.bias", DIM_EXPERT_FF, DIM_EXPERTS,           \
                      TENSOR_F32),                                                                 \
    {                                                                                              \
        ROLE_EXPERT_SIGN, "blk.%d.ffn_sign_exps", NULL, {DIM_EMBD_8, DIM_EXPERT_FF, DIM_EXPERTS},  \
            TENSOR_PER_LAYER | TENSOR_OPTIONAL | TENSOR_SPARSE | TENSOR_RAW                        \
    }
#define ROUTER_OF(select_bias)                                                                     \
    LAYER_MATRIX(ROLE_ROUTER, "ffn_gate_inp", "mlp.gate", DIM_EMBD, DIM_EXPERTS, TENSOR_OPTIONAL), \
        LAYER_VECTOR(ROLE_ROUTER_BIAS, "ffn_gate_inp.bias", "mlp.gate.bias", DIM_EXPERTS,          \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_VECTOR(ROLE_ROUTER_SELECT_BIAS, select_bias, "mlp.gate.e_score_correction_bias",     \
                     DIM_EXPERTS, TENSOR_OPTIONAL)
#define ROUTER ROUTER_OF("exp_probs_b.bias")
#define EXPERTS_OF(router)                                                                         \
    router,                                                                                        \
        EXPERT_MATRIX(ROLE_EXPERT_GATE_UP, "ffn_gate_up_exps", DIM_EXPERT_EMBD, DIM_EXPERT_2FF,    \
                      0),                                                                          \
        EXPERT_MATRIX(ROLE_EXPERT_GATE, "ffn_gate_exps", DIM_EXPERT_EMBD, DIM_EXPERT_FF, 0),       \
        EXPERT_BIAS(ROLE_EXPERT_GATE_BIAS, "ffn_gate_exps", DIM_EXPERT_FF),                        \
        EXPERT_MATRIX(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EXPERT_EMBD, DIM_EXPERT_FF, 0),           \
        EXPERT_BIAS(ROLE_EXPERT_UP_BIAS, "ffn_up_exps", DIM_EXPERT_FF),                            \
        EXPERT_MATRIX(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_EXPERT_FF, DIM_EXPERT_EMBD, 0),       \
        EXPERT_BIAS(ROLE_EXPERT_DOWN_BIAS, "ffn_down_exps", DIM_EXPERT_EMBD), SPARSE_EXPERTS
#define EXPERTS EXPERTS_OF(ROUTER)
#define SHARED_EXPERT                                                                              \
    LAYER_VECTOR(ROLE_SHARED_ROUTER, "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", \
                 DIM_EMBD, TENSOR_OPTIONAL),                                                       \
        LAYER_MATRIX(ROLE_SHARED_GATE, "ffn_gate_shexp", "mlp.shared_expert.gate_proj", DIM_EMBD,  \
                     DIM_SHARED_FF, TENSOR_OPTIONAL),                                              \
        LAYER_MATRIX(ROLE_SHARED_UP, "ffn_up_shexp", "mlp.shared_expert.up_proj", DIM_EMBD,        \
                     DIM_SHARED_FF, TENSOR_OPTIONAL),                                              \
        LAYER_MATRIX(ROLE_SHARED_DOWN, "ffn_down_shexp", "mlp.shared_expert.down_proj",            \
                     DIM_SHARED_FF, DIM_EMBD, TENSOR_OPTIONAL)

#define ROPE_FACTORS                                                                               \
    {ROLE_ROPE_LONG,                                                                               \
     "rope_factors_long.weight",                                                                   \
     NULL,                                                                                         \
     {DIM_HALF_ROT, DIM_NONE},                                                                     \
     TENSOR_OPTIONAL | TENSOR_F32},                                                                \
    {                                                                                              \
        ROLE_ROPE_SHORT, "rope_factors_short.weight", NULL, {DIM_HALF_ROT, DIM_NONE},              \
            TENSOR_OPTIONAL | TENSOR_F32                                                           \
    }

/* One matrix per head. */
#define HEAD_MATRICES(role, name, dim_in, dim_out)                                                 \
    { role, "blk.%d." name ".weight", NULL, {dim_in, dim_out, DIM_HEADS}, TENSOR_PER_LAYER }
/* Compressed attention (MLA). */
#define LATENT_ATTENTION_OF(flags)                                                                 \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, flags),               \
        LAYER_MATRIX(ROLE_ATTN_Q_A, "attn_q_a", "self_attn.q_a_proj", DIM_EMBD, DIM_LATENT_Q,      \
                     TENSOR_OPTIONAL | (flags)),                                                   \
        LAYER_VECTOR(ROLE_ATTN_Q_A_NORM, "attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", \
                     DIM_LATENT_Q, TENSOR_OPTIONAL),                                               \
        LAYER_MATRIX(ROLE_ATTN_Q_B, "attn_q_b", "self_attn.q_b_proj", DIM_LATENT_Q, DIM_Q,         \
                     TENSOR_OPTIONAL | (flags)),                                                   \
        LAYER_MATRIX(ROLE_ATTN_KV_A, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", DIM_EMBD,    \
                     DIM_KV_A, flags),                                                             \
        LAYER_VECTOR(ROLE_ATTN_KV_A_NORM, "attn_kv_a_norm.weight",                                 \
                     "self_attn.kv_a_layernorm.weight", DIM_LATENT, 0),                            \
        PLAIN_MATRIX(ROLE_ATTN_KV_B, "attn_kv_b", DIM_LATENT, DIM_KV_B, TENSOR_OPTIONAL),          \
        HEAD_MATRICES(ROLE_ATTN_K_B, "attn_k_b", DIM_NOPE, DIM_LATENT),                            \
        HEAD_MATRICES(ROLE_ATTN_V_B, "attn_v_b", DIM_LATENT, DIM_V),                               \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_ATTN, DIM_EMBD, flags)
#define LATENT_ATTENTION LATENT_ATTENTION_OF(0)
/* Its index (DSA). */
#define LIGHTNING_INDEX                                                                            \
    LAYER_MATRIX(ROLE_INDEX_Q, "indexer.attn_q_b", "self_attn.indexer.wq_b", DIM_LATENT_Q,         \
                 DIM_INDEX_Q, TENSOR_OWN_INDEX | TENSOR_UNSCALED),                                 \
        LAYER_MATRIX(ROLE_INDEX_K, "indexer.attn_k", "self_attn.indexer.wk", DIM_EMBD, DIM_INDEX,  \
                     TENSOR_OWN_INDEX | TENSOR_UNSCALED),                                          \
        LAYER_VECTOR(ROLE_INDEX_K_NORM, "indexer.k_norm.weight",                                   \
                     "self_attn.indexer.k_norm.weight", DIM_INDEX, TENSOR_OWN_INDEX),              \
        LAYER_VECTOR(ROLE_INDEX_K_NORM_BIAS, "indexer.k_norm.bias",                                \
                     "self_attn.indexer.k_norm.bias", DIM_INDEX, TENSOR_OWN_INDEX),                \
        LAYER_MATRIX(ROLE_INDEX_WEIGHTS, "indexer.proj", "self_attn.indexer.weights_proj",         \
                     DIM_EMBD, DIM_INDEX_HEADS, TENSOR_OWN_INDEX | TENSOR_UNSCALED)

/* ---- rows ----------------------------------------------------------------------------------- */

#define TENSORS(list) .tensors = (list), .n_tensors = (int)(sizeof(list) / sizeof((list)[0]))

/* The start of a row; files of the original PowerInfer use another activation. */
#define PWRI_ROW(name_, norm_, rope_, activation_, pwri_)                                          \
    .name = (name_), .norm = NORM_##norm_, .rope = ROPE_##rope_,                                   \
    .default_activation = ACTIVATION_##activation_, .pwri_activation = ACTIVATION_##pwri_
#define GGUF_ROW(name_, norm_, rope_, activation_)                                                 \
    PWRI_ROW(name_, norm_, rope_, activation_, activation_)

#define ARCH_ROWS(list)                                                                            \
    { .rows = (list), .n = (int)(sizeof(list) / sizeof((list)[0])) }

#endif
