/* arch_table.c: the architecture table. To add an architecture, add a row; when something does not
 * fit, extend the vocabulary of arch.h rather than asking for the architecture's name elsewhere. */
#include "arch_table.h"

#include <stddef.h>

/* ---- tensor lists, composed from pieces that architectures share ---------------------------- */

#define HF_LAYER "model.layers.%d."

#define GLOBAL_TENSORS                                                                             \
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0}, \
        {ROLE_OUTPUT_NORM,                                                                         \
         "output_norm.weight",                                                                     \
         "model.norm.weight",                                                                      \
         {DIM_EMBD, DIM_NONE},                                                                     \
         TENSOR_F32},                                                                              \
        {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},  \
    {                                                                                              \
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

/* Tensors added by `prepare`, or in files of the original PowerInfer, for any architecture. */
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
        SPARSE_TENSOR(ROLE_FFN_PERM, "ffn_perm", DIM_FF, DIM_NONE, TENSOR_NEURON_VEC | TENSOR_RAW)

static const arch_tensor qwen2_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(0),
    GATED_FFN_TENSORS,
    {ROLE_OUTPUT_BIAS,
     "output.bias",
     "lm_head.bias",
     {DIM_VOCAB, DIM_NONE},
     TENSOR_OPTIONAL | TENSOR_F32},
    SPARSE_TENSORS,
};

static const arch_tensor qwen3_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD, 0),
    LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD, 0),
    GATED_FFN_TENSORS,
    SPARSE_TENSORS,
};

/* Of Falcon and OPT, whose checkpoints have names of their own (hf_family.c). */
#define PLAIN_VECTOR(role, name, dim, flags)                                                       \
    { role, "blk.%d." name, NULL, {dim, DIM_NONE}, TENSOR_PER_LAYER | TENSOR_F32 | (flags) }
#define PLAIN_MATRIX(role, name, dim_in, dim_out, flags)                                           \
    { role, "blk.%d." name ".weight", NULL, {dim_in, dim_out}, TENSOR_PER_LAYER | (flags) }
#define PLAIN_NORM(role, bias_role, name, flags)                                                   \
    PLAIN_VECTOR(role, name ".weight", DIM_EMBD, flags),                                           \
        PLAIN_VECTOR(bias_role, name ".bias", DIM_EMBD, flags)
#define PLAIN_GLOBALS                                                                              \
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, 0},                        \
        {ROLE_OUTPUT_NORM, "output_norm.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32}, {        \
        ROLE_OUTPUT_NORM_BIAS, "output_norm.bias", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32          \
    }

static const arch_tensor falcon_tensors[] = {
    PLAIN_GLOBALS,
    {ROLE_OUTPUT, "output.weight", NULL, {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    PLAIN_NORM(ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS, "attn_norm", 0),
    PLAIN_NORM(ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS, "attn_norm_2", TENSOR_OPTIONAL),
    PLAIN_MATRIX(ROLE_ATTN_QKV, "attn_qkv", DIM_EMBD, DIM_QKV, 0),
    PLAIN_MATRIX(ROLE_ATTN_OUT, "attn_output", DIM_Q, DIM_EMBD, 0),
    PLAIN_MATRIX(ROLE_FFN_UP, "ffn_up", DIM_EMBD, DIM_FF, TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),
    PLAIN_MATRIX(ROLE_FFN_DOWN, "ffn_down", DIM_FF, DIM_EMBD,
                 TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),
    SPARSE_TENSORS,
};

static const arch_tensor opt_tensors[] = {
    PLAIN_GLOBALS,
    {ROLE_POS_EMBD, "position_embd.weight", NULL, {DIM_EMBD, DIM_POS}, 0},
    {ROLE_OUTPUT, "output.weight", NULL, {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    PLAIN_NORM(ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS, "attn_norm", 0),
    PLAIN_MATRIX(ROLE_ATTN_Q, "attn_q", DIM_EMBD, DIM_Q, 0),
    PLAIN_VECTOR(ROLE_ATTN_Q_BIAS, "attn_q.bias", DIM_Q, 0),
    PLAIN_MATRIX(ROLE_ATTN_K, "attn_k", DIM_EMBD, DIM_KV, 0),
    PLAIN_VECTOR(ROLE_ATTN_K_BIAS, "attn_k.bias", DIM_KV, 0),
    PLAIN_MATRIX(ROLE_ATTN_V, "attn_v", DIM_EMBD, DIM_KV, 0),
    PLAIN_VECTOR(ROLE_ATTN_V_BIAS, "attn_v.bias", DIM_KV, 0),
    PLAIN_MATRIX(ROLE_ATTN_OUT, "attn_output", DIM_Q, DIM_EMBD, 0),
    PLAIN_VECTOR(ROLE_ATTN_OUT_BIAS, "attn_output.bias", DIM_EMBD, 0),
    PLAIN_NORM(ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS, "ffn_norm", 0),
    PLAIN_MATRIX(ROLE_FFN_UP, "ffn_up", DIM_EMBD, DIM_FF, TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),
    PLAIN_VECTOR(ROLE_FFN_UP_BIAS, "ffn_up.bias", DIM_FF, TENSOR_NEURON_VEC),
    PLAIN_MATRIX(ROLE_FFN_DOWN, "ffn_down", DIM_FF, DIM_EMBD,
                 TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),
    PLAIN_VECTOR(ROLE_FFN_DOWN_BIAS, "ffn_down.bias", DIM_EMBD, 0),
    SPARSE_TENSORS,
};

/* ---- further pieces -------------------------------------------------------------------------- */

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

/* Q, K and V, separate or in one, and the output, all of which may have biases. */
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
/* A weight for every head. */
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
/* Over all heads at once. */
#define WIDE_NORMS                                                                                 \
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_Q, 0),     \
        LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_KV, 0)

#define GATED_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,                     \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                       \
                     TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                      \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),                                      \
        SPARSE_TENSORS
#define FUSED_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_GATE_UP, "ffn_up", "mlp.gate_up_proj", DIM_EMBD, DIM_2FF,                \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),                                      \
        SPARSE_TENSORS
#define PLAIN_FFN                                                                                  \
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                           \
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST),                                          \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | TENSOR_SCALE_LAST),                                      \
        SPARSE_TENSORS
#define FFN_BIASES(flags)                                                                          \
    LAYER_VECTOR(ROLE_FFN_UP_BIAS, "ffn_up.bias", "mlp.up_proj.bias", DIM_FF,                      \
                 (flags) | TENSOR_NEURON_VEC),                                                     \
        LAYER_VECTOR(ROLE_FFN_DOWN_BIAS, "ffn_down.bias", "mlp.down_proj.bias", DIM_EMBD, flags)

/* FFNs in some layers, experts in others. */
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
/* What `prepare` adds to experts. */
#define SPARSE_EXPERTS                                                                             \
    SPARSE_TENSOR(ROLE_EXPERT_PERM, "ffn_expert_perm", DIM_EXPERTS, DIM_NONE, TENSOR_RAW),         \
        SPARSE_TENSOR(ROLE_EXPERT_BUNDLE, "ffn_bundle_exps.weight", DIM_BUNDLE, DIM_EXPERTS,       \
                      TENSOR_RAW),                                                                 \
        EXPERT_MATRIX(ROLE_EXPERT_DOWN_T, "ffn_down_t_exps", DIM_EMBD, DIM_EXPERT_FF,              \
                      TENSOR_SPARSE)
#define ROUTER                                                                                     \
    LAYER_MATRIX(ROLE_ROUTER, "ffn_gate_inp", "mlp.gate", DIM_EMBD, DIM_EXPERTS, TENSOR_OPTIONAL), \
        LAYER_VECTOR(ROLE_ROUTER_BIAS, "ffn_gate_inp.bias", "mlp.gate.bias", DIM_EXPERTS,          \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_VECTOR(ROLE_ROUTER_SELECT_BIAS, "exp_probs_b.bias",                                  \
                     "mlp.gate.e_score_correction_bias", DIM_EXPERTS, TENSOR_OPTIONAL)
#define EXPERTS                                                                                    \
    ROUTER, EXPERT_MATRIX(ROLE_EXPERT_GATE_UP, "ffn_gate_up_exps", DIM_EMBD, DIM_EXPERT_2FF, 0),   \
        EXPERT_MATRIX(ROLE_EXPERT_GATE, "ffn_gate_exps", DIM_EMBD, DIM_EXPERT_FF, 0),              \
        EXPERT_BIAS(ROLE_EXPERT_GATE_BIAS, "ffn_gate_exps", DIM_EXPERT_FF),                        \
        EXPERT_MATRIX(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EMBD, DIM_EXPERT_FF, 0),                  \
        EXPERT_BIAS(ROLE_EXPERT_UP_BIAS, "ffn_up_exps", DIM_EXPERT_FF),                            \
        EXPERT_MATRIX(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_EXPERT_FF, DIM_EMBD, 0),              \
        EXPERT_BIAS(ROLE_EXPERT_DOWN_BIAS, "ffn_down_exps", DIM_EMBD), SPARSE_EXPERTS
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

static const arch_tensor arcee_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), PLAIN_FFN,
};

static const arch_tensor cohere_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, EACH_HEAD_NORMS, GATED_FFN,
};

static const arch_tensor gated_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), GATED_FFN,
};

/* The same with norms of heads. */
static const arch_tensor gated_head_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, HEAD_NORMS(0), FFN_NORM(0), GATED_FFN,
};

/* Norms before and after each half. */
static const arch_tensor gemma2_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), POST_NORMS, GATED_FFN,
};

static const arch_tensor gemma3_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, HEAD_NORMS(0), FFN_NORM(0), POST_NORMS, GATED_FFN,
};

static const arch_tensor glm4_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), POST_NORMS, FUSED_FFN,
};

/* Norms after each half only. */
static const arch_tensor exaone4_tensors[] = {
    GLOBAL_TENSORS, PROJECTIONS, HEAD_NORMS(0), POST_NORMS, GATED_FFN,
};

static const arch_tensor olmo2_tensors[] = {
    GLOBAL_TENSORS, PROJECTIONS, WIDE_NORMS, POST_NORMS, GATED_FFN,
};

/* Layer norms, biases, no gate. */
static const arch_tensor biased_tensors[] = {
    GLOBAL_TENSORS,   HEAD_NORM_BIAS, ATTN_NORM,
    ATTN_NORM_BIAS,   PROJECTIONS,    FFN_NORM(0),
    FFN_NORM_BIAS(0), PLAIN_FFN,      FFN_BIASES(TENSOR_OPTIONAL),
};

static const arch_tensor phi2_tensors[] = {
    GLOBAL_TENSORS, HEAD_NORM_BIAS, HEAD_BIAS, ATTN_NORM,
    ATTN_NORM_BIAS, PROJECTIONS,    PLAIN_FFN, FFN_BIASES(0),
};

static const arch_tensor phi3_tensors[] = {
    GLOBAL_TENSORS, ROPE_FACTORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), FUSED_FFN,
};

static const arch_tensor seed_oss_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_VECTOR(ROLE_FFN_NORM, "post_attention_norm.weight", "post_attention_layernorm.weight",
                 DIM_EMBD, 0),
    GATED_FFN,
};

static const arch_tensor stablelm_tensors[] = {
    GLOBAL_TENSORS,
    HEAD_NORM_BIAS,
    ATTN_NORM,
    ATTN_NORM_BIAS,
    PROJECTIONS,
    EACH_HEAD_NORMS,
    FFN_NORM(TENSOR_OPTIONAL),
    FFN_NORM_BIAS(TENSOR_OPTIONAL),
    GATED_FFN,
};

static const arch_tensor moe_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), DENSE_LAYERS_FFN, EXPERTS, SHARED_EXPERT,
};

static const arch_tensor moe_head_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        PROJECTIONS, HEAD_NORMS(TENSOR_OPTIONAL),
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,     SHARED_EXPERT,
};

static const arch_tensor moe_wide_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        PROJECTIONS, WIDE_NORMS,
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,     SHARED_EXPERT,
};

/* The norm between the halves goes by another name. */
static const arch_tensor glm4moe_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_FFN_NORM, "post_attention_norm.weight", "post_attention_layernorm.weight",
                 DIM_EMBD, 0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

static const arch_tensor gpt_oss_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_VECTOR(ROLE_ATTN_SINKS, "attn_sinks.weight", "self_attn.sinks", DIM_HEADS, 0),
    LAYER_VECTOR(ROLE_FFN_NORM, "post_attention_norm.weight", "post_attention_layernorm.weight",
                 DIM_EMBD, 0),
    EXPERTS,
    SPARSE_TENSOR(ROLE_FFN_FREQ, "ffn_freq", DIM_UNITS, DIM_NONE, TENSOR_F32),
};

static const arch_tensor minimax_m3_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(0),
    LAYER_MATRIX(ROLE_INDEX_Q, "indexer.q_proj", "self_attn.index_q_proj", DIM_EMBD, DIM_INDEX_Q,
                 TENSOR_NO_DENSE),
    LAYER_MATRIX(ROLE_INDEX_K, "indexer.k_proj", "self_attn.index_k_proj", DIM_EMBD, DIM_INDEX,
                 TENSOR_NO_DENSE),
    LAYER_VECTOR(ROLE_INDEX_Q_NORM, "indexer.q_norm.weight", "self_attn.index_q_norm.weight",
                 DIM_INDEX, TENSOR_NO_DENSE),
    LAYER_VECTOR(ROLE_INDEX_K_NORM, "indexer.k_norm.weight", "self_attn.index_k_norm.weight",
                 DIM_INDEX, TENSOR_NO_DENSE),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

static const arch_tensor mimo2_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS_OF(DIM_VALUES, DIM_ATTN),
    LAYER_VECTOR(ROLE_ATTN_SINKS, "attn_sinks.weight", "self_attn.sinks", DIM_HEADS,
                 TENSOR_OPTIONAL),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
};

static const arch_tensor phimoe_tensors[] = {
    GLOBAL_TENSORS, HEAD_NORM_BIAS, HEAD_BIAS,        ROPE_FACTORS,     ATTN_NORM, ATTN_NORM_BIAS,
    PROJECTIONS,    FFN_NORM(0),    FFN_NORM_BIAS(0), DENSE_LAYERS_FFN, EXPERTS,
};

static const arch_tensor cohere2moe_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, DENSE_LAYERS_FFN, EXPERTS, SHARED_EXPERT,
};

/* Norms before and after each half, a gate on attention's result. */
static const arch_tensor afmoe_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_MATRIX(ROLE_ATTN_GATE, "attn_gate", "self_attn.gate_proj", DIM_EMBD, DIM_ATTN,
                 TENSOR_UNSCALED),
    HEAD_NORMS(0),
    FFN_NORM(0),
    POST_NORMS,
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

/* Layers may read another one's keys and values. */
#define SHARED_ATTENTION(values)                                                                   \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, 0),                   \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, TENSOR_OWN_KV),  \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, DIM_KV, values),         \
        LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD,  \
                     0),                                                                           \
        LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD,  \
                     TENSOR_OWN_KV),                                                               \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_Q, DIM_EMBD, 0)

/* Of all layers, and of one. */
#define LAYER_EMBD_TENSOR(role, name, hf, dim_in, dim_out, flags)                                  \
    { role, name ".weight", "model." hf ".weight", {dim_in, dim_out}, TENSOR_LAYER_EMBD | (flags) }
#define LAYER_EMBEDDINGS                                                                           \
    LAYER_EMBD_TENSOR(ROLE_LAYER_EMBD, "per_layer_token_embd", "embed_tokens_per_layer",           \
                      DIM_LAYER_EMBDS, DIM_VOCAB, 0),                                              \
        LAYER_EMBD_TENSOR(ROLE_LAYER_EMBD_PROJ, "per_layer_model_proj",                            \
                          "per_layer_model_projection", DIM_EMBD, DIM_LAYER_EMBDS, 0),             \
        LAYER_EMBD_TENSOR(ROLE_LAYER_EMBD_NORM, "per_layer_proj_norm",                             \
                          "per_layer_projection_norm", DIM_LAYER_EMBD, DIM_NONE, TENSOR_F32)
#define LAYER_EMBEDDING                                                                            \
    LAYER_MATRIX(ROLE_LAYER_EMBD_GATE, "inp_gate", "per_layer_input_gate", DIM_EMBD,               \
                 DIM_LAYER_EMBD, TENSOR_LAYER_EMBD),                                               \
        LAYER_MATRIX(ROLE_LAYER_EMBD_OUT, "proj", "per_layer_projection", DIM_LAYER_EMBD,          \
                     DIM_EMBD, TENSOR_LAYER_EMBD),                                                 \
        LAYER_VECTOR(ROLE_LAYER_EMBD_POST_NORM, "post_norm.weight",                                \
                     "post_per_layer_input_norm.weight", DIM_EMBD, TENSOR_LAYER_EMBD)

/* Several residual streams, a branch of low rank beside attention. */
static const arch_tensor gemma3n_tensors[] = {
    GLOBAL_TENSORS,
    LAYER_EMBEDDINGS,
    {ROLE_STREAM_PROJ, "altup_proj.weight", NULL, {DIM_EMBD, DIM_EMBD, DIM_STREAMS_1}, 0},
    {ROLE_STREAM_UNEMBD, "altup_unembd_proj.weight", NULL, {DIM_EMBD, DIM_EMBD, DIM_STREAMS_1}, 0},
    LAYER_VECTOR(ROLE_STREAM_ROUTER_NORM, "altup_router_norm.weight", "altup.router_norm.weight",
                 DIM_EMBD, 0),
    LAYER_MATRIX(ROLE_STREAM_ROUTER, "altup_router", "altup.modality_router", DIM_EMBD, DIM_STREAMS,
                 0),
    LAYER_MATRIX(ROLE_STREAM_PREDICT, "altup_predict_coef", "altup.prediction_coefs", DIM_STREAMS,
                 DIM_STREAMS_2, TENSOR_F32),
    LAYER_MATRIX(ROLE_STREAM_CORRECT, "altup_correct_coef", "altup.correction_coefs", DIM_STREAMS,
                 DIM_STREAMS, TENSOR_F32),
    LAYER_VECTOR(ROLE_STREAM_CORRECT_SCALE, "altup_correct_scale.weight",
                 "altup.correct_output_scale", DIM_EMBD, 0),
    LAYER_MATRIX(ROLE_LAUREL_A, "laurel_l", "laurel.linear_left", DIM_EMBD, DIM_LAUREL, 0),
    LAYER_MATRIX(ROLE_LAUREL_B, "laurel_r", "laurel.linear_right", DIM_LAUREL, DIM_EMBD, 0),
    LAYER_VECTOR(ROLE_LAUREL_NORM, "laurel_post_norm.weight", "laurel.post_laurel_norm.weight",
                 DIM_EMBD, 0),
    ATTN_NORM,
    SHARED_ATTENTION(TENSOR_OWN_KV),
    FFN_NORM(0),
    POST_NORMS,
    GATED_FFN,
    LAYER_EMBEDDING,
};

/* Values may be the keys. Experts have an FFN beside them; both have norms of their own before the
 * post-norm of their sum. */
static const arch_tensor gemma4_tensors[] = {
    GLOBAL_TENSORS,
    LAYER_EMBEDDINGS,
    ATTN_NORM,
    SHARED_ATTENTION(TENSOR_OPTIONAL),
    FFN_NORM(0),
    POST_NORMS,
    GATED_FFN,
    LAYER_VECTOR(ROLE_FFN_POST_NORM_1, "post_ffw_norm_1.weight",
                 "post_feedforward_layernorm_1.weight", DIM_EMBD, TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_EXPERT_PRE_NORM, "pre_ffw_norm_2.weight",
                 "pre_feedforward_layernorm_2.weight", DIM_EMBD, TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_EXPERT_POST_NORM, "post_ffw_norm_2.weight",
                 "post_feedforward_layernorm_2.weight", DIM_EMBD, TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ROUTER_SCALE, "ffn_gate_inp.scale", "router.scale", DIM_EMBD,
                 TENSOR_OPTIONAL),
    EXPERTS,
    LAYER_VECTOR(ROLE_EXPERT_DOWN_SCALE, "ffn_down_exps.scale", "router.per_expert_scale",
                 DIM_EXPERTS, TENSOR_OPTIONAL),
    LAYER_EMBEDDING,
    LAYER_VECTOR(ROLE_LAYER_SCALE, "layer_output_scale.weight", "layer_scalar", DIM_ONE,
                 TENSOR_OPTIONAL),
};

/* A matrix for every head. */
#define HEAD_MATRICES(role, name, dim_in, dim_out)                                                 \
    { role, "blk.%d." name ".weight", NULL, {dim_in, dim_out, DIM_HEADS}, TENSOR_PER_LAYER }
/* Compressed attention. */
#define LATENT_ATTENTION                                                                           \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, 0),                   \
        LAYER_MATRIX(ROLE_ATTN_Q_A, "attn_q_a", "self_attn.q_a_proj", DIM_EMBD, DIM_LATENT_Q,      \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_VECTOR(ROLE_ATTN_Q_A_NORM, "attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", \
                     DIM_LATENT_Q, TENSOR_OPTIONAL),                                               \
        LAYER_MATRIX(ROLE_ATTN_Q_B, "attn_q_b", "self_attn.q_b_proj", DIM_LATENT_Q, DIM_Q,         \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_MATRIX(ROLE_ATTN_KV_A, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", DIM_EMBD,    \
                     DIM_KV_A, 0),                                                                 \
        LAYER_VECTOR(ROLE_ATTN_KV_A_NORM, "attn_kv_a_norm.weight",                                 \
                     "self_attn.kv_a_layernorm.weight", DIM_LATENT, 0),                            \
        PLAIN_MATRIX(ROLE_ATTN_KV_B, "attn_kv_b", DIM_LATENT, DIM_KV_B, TENSOR_OPTIONAL),          \
        HEAD_MATRICES(ROLE_ATTN_K_B, "attn_k_b", DIM_NOPE, DIM_LATENT),                            \
        HEAD_MATRICES(ROLE_ATTN_V_B, "attn_v_b", DIM_LATENT, DIM_V),                               \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_ATTN, DIM_EMBD, 0)

static const arch_tensor latent_moe_tensors[] = {
    GLOBAL_TENSORS,   ATTN_NORM, LATENT_ATTENTION, FFN_NORM(0),
    DENSE_LAYERS_FFN, EXPERTS,   SHARED_EXPERT,
};

static const arch_tensor llama_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ATTN_OUT_BIAS, "attn_output.bias", "self_attn.o_proj.bias", DIM_EMBD,
                 TENSOR_OPTIONAL),
    DENSE_LAYERS_FFN,
    FFN_NORM(0),
    EXPERTS,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    LAYER_VECTOR(ROLE_FFN_UP_BIAS, "ffn_up.bias", "mlp.up_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    LAYER_VECTOR(ROLE_FFN_DOWN_BIAS, "ffn_down.bias", "mlp.down_proj.bias", DIM_EMBD,
                 TENSOR_OPTIONAL),
};

/* ---- recurrent mixers ------------------------------------------------------------------------ */

#define SHORT_CONVOLUTION                                                                          \
    PLAIN_MATRIX(ROLE_SSM_IN, "shortconv.in_proj", DIM_EMBD, DIM_3EMBD, 0),                        \
        {ROLE_SSM_CONV,                                                                            \
         "blk.%d.shortconv.conv.weight",                                                           \
         NULL,                                                                                     \
         {DIM_TAPS, DIM_EMBD},                                                                     \
         TENSOR_PER_LAYER | TENSOR_F32},                                                           \
        PLAIN_MATRIX(ROLE_SSM_OUT, "shortconv.out_proj", DIM_EMBD, DIM_EMBD, 0)

#define SSM_CONVOLUTION                                                                            \
    {                                                                                              \
        ROLE_SSM_CONV, "blk.%d.ssm_conv1d.weight", NULL, {DIM_TAPS, DIM_CONV},                     \
            TENSOR_PER_LAYER | TENSOR_F32                                                          \
    }
#define SSM_PER_HEAD(role, name)                                                                   \
    { role, "blk.%d." name, NULL, {DIM_ONE, DIM_SSM_HEADS}, TENSOR_PER_LAYER | TENSOR_F32 }
#define MAMBA2                                                                                     \
    PLAIN_MATRIX(ROLE_SSM_IN, "ssm_in", DIM_EMBD, DIM_SSM_IN, 0), SSM_CONVOLUTION,                 \
        PLAIN_VECTOR(ROLE_SSM_CONV_BIAS, "ssm_conv1d.bias", DIM_CONV, TENSOR_OPTIONAL),            \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "ssm_dt.bias", DIM_SSM_HEADS, 0),                           \
        SSM_PER_HEAD(ROLE_SSM_A, "ssm_a"), SSM_PER_HEAD(ROLE_SSM_D, "ssm_d"),                      \
        {ROLE_SSM_NORM,                                                                            \
         "blk.%d.ssm_norm.weight",                                                                 \
         NULL,                                                                                     \
         {DIM_SSM_GROUP_INNER, DIM_SSM_GROUPS},                                                    \
         TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_OPTIONAL},                                         \
        PLAIN_MATRIX(ROLE_SSM_OUT, "ssm_out", DIM_SSM_INNER, DIM_EMBD, 0)

#define DELTA_RULE                                                                                 \
    PLAIN_MATRIX(ROLE_SSM_IN, "attn_qkv", DIM_EMBD, DIM_CONV, 0),                                  \
        PLAIN_MATRIX(ROLE_SSM_GATE, "attn_gate", DIM_EMBD, DIM_SSM_INNER, 0), SSM_CONVOLUTION,     \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "ssm_dt.bias", DIM_SSM_HEADS, 0),                           \
        PLAIN_VECTOR(ROLE_SSM_A, "ssm_a", DIM_SSM_HEADS, 0),                                       \
        PLAIN_VECTOR(ROLE_SSM_NORM, "ssm_norm.weight", DIM_SSM_HEAD, 0),                           \
        PLAIN_MATRIX(ROLE_SSM_OUT, "ssm_out", DIM_SSM_INNER, DIM_EMBD, 0)
#define DELTA_SEPARATE                                                                             \
    DELTA_RULE, PLAIN_MATRIX(ROLE_SSM_BETA, "ssm_beta", DIM_EMBD, DIM_SSM_HEADS, 0),               \
        PLAIN_MATRIX(ROLE_SSM_ALPHA, "ssm_alpha", DIM_EMBD, DIM_SSM_HEADS, 0)

#define KDA_CONVOLUTION(role, name)                                                                \
    {                                                                                              \
        role, "blk.%d." name ".weight", NULL, {DIM_TAPS, DIM_ONE, DIM_SSM_INNER},                  \
            TENSOR_PER_LAYER | TENSOR_F32                                                          \
    }
#define KDA                                                                                        \
    PLAIN_MATRIX(ROLE_SSM_IN, "attn_q", DIM_EMBD, DIM_SSM_INNER, 0),                               \
        PLAIN_MATRIX(ROLE_SSM_IN_K, "attn_k", DIM_EMBD, DIM_SSM_INNER, 0),                         \
        PLAIN_MATRIX(ROLE_SSM_IN_V, "attn_v", DIM_EMBD, DIM_SSM_INNER, 0),                         \
        PLAIN_MATRIX(ROLE_SSM_GATE_A, "ssm_g_a", DIM_EMBD, DIM_SSM_HEAD, 0),                       \
        PLAIN_MATRIX(ROLE_SSM_GATE_B, "ssm_g_b", DIM_SSM_HEAD, DIM_SSM_INNER, 0),                  \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_A, "ssm_f_a", DIM_EMBD, DIM_SSM_HEAD, 0),                      \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_B, "ssm_f_b", DIM_SSM_HEAD, DIM_SSM_INNER, 0),                 \
        PLAIN_MATRIX(ROLE_SSM_BETA, "ssm_beta", DIM_EMBD, DIM_SSM_HEADS, 0),                       \
        KDA_CONVOLUTION(ROLE_SSM_CONV, "ssm_conv1d_q"),                                            \
        KDA_CONVOLUTION(ROLE_SSM_CONV_K, "ssm_conv1d_k"),                                          \
        KDA_CONVOLUTION(ROLE_SSM_CONV_V, "ssm_conv1d_v"),                                          \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "ssm_dt.bias", DIM_SSM_INNER, 0),                           \
        SSM_PER_HEAD(ROLE_SSM_A, "ssm_a"),                                                         \
        PLAIN_VECTOR(ROLE_SSM_NORM, "ssm_norm.weight", DIM_SSM_HEAD, 0),                           \
        PLAIN_MATRIX(ROLE_SSM_OUT, "attn_output", DIM_SSM_INNER, DIM_EMBD, 0)

/* A gate behind every head of Q. */
#define GATED_PROJECTIONS                                                                          \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_2Q, 0),                  \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_VECTOR(ROLE_ATTN_Q_BIAS, "attn_q.bias", "self_attn.q_proj.bias", DIM_2Q,             \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_VECTOR(ROLE_ATTN_K_BIAS, "attn_k.bias", "self_attn.k_proj.bias", DIM_KV,             \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_VECTOR(ROLE_ATTN_V_BIAS, "attn_v.bias", "self_attn.v_proj.bias", DIM_KV,             \
                     TENSOR_OPTIONAL),                                                             \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_Q, DIM_EMBD, 0)

static const arch_tensor lfm2_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT_NORM,
     "token_embd_norm.weight",
     "model.embedding_norm.weight",
     {DIM_EMBD, DIM_NONE},
     TENSOR_F32},
    {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(0),
    SHORT_CONVOLUTION,
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
};

static const arch_tensor kimi_linear_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        LATENT_ATTENTION, KDA,
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,          SHARED_EXPERT,
};

static const arch_tensor mamba2_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    MAMBA2,
};

static const arch_tensor granitehybrid_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    MAMBA2,
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    FFN_BIASES(TENSOR_OPTIONAL),
    EXPERTS,
    SHARED_EXPERT,
};

static const arch_tensor falcon_h1_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    MAMBA2,
    LAYER_VECTOR(ROLE_FFN_NORM, "ffn_norm", "pre_ff_layernorm.weight", DIM_EMBD, 0),
    GATED_FFN,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "feed_forward.gate_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    FFN_BIASES(TENSOR_OPTIONAL),
};

/* One norm for whichever part a layer is. */
static const arch_tensor nemotron_h_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    MAMBA2,
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mixer.up_proj", DIM_EMBD, DIM_FF,
                 TENSOR_NEURON_ROWS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),
    LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mixer.down_proj", DIM_FF, DIM_EMBD,
                 TENSOR_NEURON_COLS | TENSOR_SCALE_LAST | TENSOR_NO_EXPERTS),
    SPARSE_TENSORS,
    FFN_BIASES(TENSOR_OPTIONAL),
    ROUTER,
    EXPERT_MATRIX(ROLE_EXPERT_UP, "ffn_up_exps", DIM_EMBD, DIM_EXPERT_FF, 0),
    EXPERT_MATRIX(ROLE_EXPERT_DOWN, "ffn_down_exps", DIM_EXPERT_FF, DIM_EMBD, 0),
    SPARSE_EXPERTS,
    LAYER_MATRIX(ROLE_SHARED_UP, "ffn_up_shexp", "mixer.shared_experts.up_proj", DIM_EMBD,
                 DIM_SHARED_FF, TENSOR_OPTIONAL),
    LAYER_MATRIX(ROLE_SHARED_DOWN, "ffn_down_shexp", "mixer.shared_experts.down_proj",
                 DIM_SHARED_FF, DIM_EMBD, TENSOR_OPTIONAL),
};

#define QWEN3NEXT_NORMS                                                                            \
    ATTN_NORM, HEAD_NORMS(0),                                                                      \
        LAYER_VECTOR(ROLE_FFN_NORM, "post_attention_norm.weight",                                  \
                     "post_attention_layernorm.weight", DIM_EMBD, 0)

static const arch_tensor qwen3next_tensors[] = {
    GLOBAL_TENSORS,
    QWEN3NEXT_NORMS,
    GATED_PROJECTIONS,
    DELTA_RULE,
    PLAIN_MATRIX(ROLE_SSM_QKVZ, "ssm_in", DIM_EMBD, DIM_SSM_QKVZ, TENSOR_OPTIONAL),
    PLAIN_MATRIX(ROLE_SSM_BETA_ALPHA, "ssm_ba", DIM_EMBD, DIM_SSM_2HEADS, 0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

static const arch_tensor qwen35_tensors[] = {
    GLOBAL_TENSORS,   QWEN3NEXT_NORMS, GATED_PROJECTIONS, DELTA_SEPARATE,
    DENSE_LAYERS_FFN, EXPERTS,         SHARED_EXPERT,
};

/* ---- rows ----------------------------------------------------------------------------------- */

#define TENSORS(list) .tensors = (list), .n_tensors = (int)(sizeof(list) / sizeof((list)[0]))

/* The beginning of a row; with another activation in files of the original PowerInfer. */
#define PWRI_ROW(name_, norm_, rope_, activation_, pwri_)                                          \
    .name = (name_), .norm = NORM_##norm_, .rope = ROPE_##rope_,                                   \
    .default_activation = ACTIVATION_##activation_, .pwri_activation = ACTIVATION_##pwri_
#define GGUF_ROW(name_, norm_, rope_, activation_)                                                 \
    PWRI_ROW(name_, norm_, rope_, activation_, activation_)

const arch_row arch_table[] = {
    {PWRI_ROW("llama", RMS, INTERLEAVED, SILU, RELU), /* Llama 1-3, Mistral, ProSparse */
     .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, TENSORS(llama_tensors)},
    {PWRI_ROW("qwen2", RMS, NEOX, SILU, RELU), .has = ARCH_FFN_UNSCALED, TENSORS(qwen2_tensors)},
    {PWRI_ROW("qwen3", RMS, NEOX, SILU, RELU), .qk_norm = NORM_RMS, TENSORS(qwen3_tensors)},
    {PWRI_ROW("falcon", LAYER, NEOX, GELU, RELU), .parallel = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(falcon_tensors)},
    {GGUF_ROW("opt", LAYER, NONE, RELU),
     .default_norm_eps = 1e-5f, /* as trained; the original's files have no key */
     .pos_offset = 2, TENSORS(opt_tensors)},
    {GGUF_ROW("bamboo", RMS, INTERLEAVED, DRELU), TENSORS(llama_tensors)},
    /* The texts of models that also see: an image's positions have parts, a text's are all equal.
     */
    {GGUF_ROW("qwen2vl", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(qwen2_tensors)},
    {GGUF_ROW("qwen3vl", RMS, NEOX, SILU), .qk_norm = NORM_RMS, TENSORS(qwen3_tensors)},
    {GGUF_ROW("qwen3vlmoe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("arcee", RMS, INTERLEAVED, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(arcee_tensors)},
    {GGUF_ROW("cohere2", LAYER, INTERLEAVED, SILU), .parallel = true,
     .has = ARCH_LOGIT_MULTIPLIED | ARCH_ROPE_WINDOWED, .window_period = 4, .qk_norm = NORM_LAYER,
     TENSORS(cohere_tensors)},
    {GGUF_ROW("command-r", LAYER, INTERLEAVED, SILU), .parallel = true,
     .has = ARCH_FFN_UNSCALED | ARCH_LOGIT_MULTIPLIED, .qk_norm = NORM_LAYER,
     TENSORS(cohere_tensors)},
    {GGUF_ROW("ernie4_5", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("exaone", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(llama_tensors)},
    {GGUF_ROW("exaone4", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_ROPE_WINDOWED,
     .window_period = 4, .window_layers = 64, /* the 32B */
     .qk_norm = NORM_RMS, TENSORS(exaone4_tensors)},
    {GGUF_ROW("gemma", RMS, NEOX, GELU), .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SQRT,
     TENSORS(gated_tensors)},
    {GGUF_ROW("gemma2", RMS, NEOX, GELU),
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SQRT | ARCH_ATTN_SOFTCAP | ARCH_LOGIT_SOFTCAP |
            ARCH_ATTN_SCALE,
     .window_period = 2, .wide_scale_layers = 46, TENSORS(gemma2_tensors)},
    {GGUF_ROW("gemma3", RMS, NEOX, GELU),
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SQRT | ARCH_LOGIT_SOFTCAP | ARCH_ATTN_SCALE |
            ARCH_ROPE_LOCAL,
     .qk_norm = NORM_RMS, .window_period = 6, .local_rope_base = 10000, .wide_scale_layers = 62,
     TENSORS(gemma3_tensors)},
    {GGUF_ROW("gemma3n", RMS, NEOX, GELU),
     .has = ARCH_EMBD_SQRT | ARCH_LOGIT_SOFTCAP | ARCH_ATTN_SCALE | ARCH_ROPE_LOCAL |
            ARCH_VALUE_NORM | ARCH_SHARED_KV,
     .qk_norm = NORM_RMS, .window_period = 5, .default_window = 512, .local_rope_base = 10000,
     .default_attn_scale = 1, .default_softcap = 30, .own_kv_layers = 20, .sparse_layers = 10,
     TENSORS(gemma3n_tensors)},
    {GGUF_ROW("gemma4", RMS, NEOX, GELU), .gating = GATING_SOFTMAX,
     .has = ARCH_EMBD_SQRT | ARCH_LOGIT_SOFTCAP | ARCH_ATTN_SCALE | ARCH_ROPE_LOCAL |
            ARCH_HEADS_LOCAL | ARCH_VALUE_NORM | ARCH_SHARED_KV | ARCH_EXPERT_NORM,
     .qk_norm = NORM_RMS, .window_period = 6, .local_rope_base = 10000, .default_attn_scale = 1,
     TENSORS(gemma4_tensors)},
    {GGUF_ROW("glm4", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED | ARCH_ROPE_SECTIONS,
     TENSORS(glm4_tensors)},
    {GGUF_ROW("granite", RMS, INTERLEAVED, SILU),
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SCALE | ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED |
            ARCH_ATTN_SCALE | ARCH_ROPE_SWITCH,
     TENSORS(llama_tensors)},
    {GGUF_ROW("hunyuan-dense", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_QK_NORM_LATE,
     .qk_norm = NORM_RMS, TENSORS(gated_head_norms_tensors)},
    {GGUF_ROW("internlm2", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("jais2", LAYER, NEOX, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(biased_tensors)},
    {GGUF_ROW("minicpm", RMS, INTERLEAVED, SILU), .default_embd_scale = 12,
     .default_depth_scale = 1.4f, .default_logit_width = 256,
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SCALE | ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED |
            ARCH_ATTN_SCALE,
     TENSORS(llama_tensors)},
    {GGUF_ROW("mistral3", RMS, INTERLEAVED, SILU), .has = ARCH_ATTN_TEMPERATURE,
     TENSORS(llama_tensors)},
    {GGUF_ROW("mistral4", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_TEMPERATURE,
     TENSORS(latent_moe_tensors)},
    {GGUF_ROW("nemotron", LAYER, NEOX, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(biased_tensors)},
    {GGUF_ROW("olmo2", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_ROPE_LOCAL,
     .window_period = 4, .qk_norm = NORM_RMS, TENSORS(olmo2_tensors)},
    {GGUF_ROW("phi2", LAYER, NEOX, GELU), .parallel = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(phi2_tensors)},
    {GGUF_ROW("phi3", RMS, NEOX, SILU), .window_period = 1, .has = ARCH_FFN_UNSCALED,
     TENSORS(phi3_tensors)},
    {GGUF_ROW("seed_oss", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(seed_oss_tensors)},
    {GGUF_ROW("smollm3", RMS, INTERLEAVED, SILU), .no_rope_period = 4, .has = ARCH_FFN_UNSCALED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("stablelm", LAYER, NEOX, SILU), .qk_norm = NORM_LAYER, .has = ARCH_FFN_UNSCALED,
     TENSORS(stablelm_tensors)},
    {GGUF_ROW("starcoder2", LAYER, NEOX, GELU), .has = ARCH_FFN_UNSCALED, TENSORS(biased_tensors)},
    {GGUF_ROW("afmoe", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .no_rope_period = 4,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_EMBD_SQRT,
     .qk_norm = NORM_RMS, TENSORS(afmoe_tensors)},
    {GGUF_ROW("bailingmoe2", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("cohere2moe", LAYER, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .parallel = true,
     .window_period = 4, .window_after = true,
     .has = ARCH_NORM_EITHER | ARCH_EXPERT_HALF | ARCH_EXPERT_KEYS | ARCH_LOGIT_MULTIPLIED |
            ARCH_ROPE_WINDOWED,
     TENSORS(cohere2moe_tensors)},
    {GGUF_ROW("deepseek2", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_TEMPERATURE,
     TENSORS(latent_moe_tensors)},
    {GGUF_ROW("dots1", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("ernie4_5-moe", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_OUT_UNBIASED | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM,
     TENSORS(moe_tensors)},
    {GGUF_ROW("exaone-moe", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ROPE_WINDOWED,
     .qk_norm = NORM_RMS, .window_period = 4, TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("glm4moe", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(glm4moe_tensors)},
    {GGUF_ROW("gpt-oss", RMS, NEOX, SILU), .gating = GATING_SOFTMAX_CHOSEN, .window_period = 2,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_CLAMP, TENSORS(gpt_oss_tensors)},
    {GGUF_ROW("granitemoe", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED | ARCH_ATTN_SCALE | ARCH_ROPE_SWITCH,
     TENSORS(moe_tensors)},
    {GGUF_ROW("hunyuan-moe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_QK_NORM_LATE,
     .qk_norm = NORM_RMS, TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("llama4", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .default_window = 8192, .no_rope_period = 4, .default_temperature = 0.1f,
     .has = ARCH_ATTN_TEMPERATURE | ARCH_BARE_QK_NORM | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED |
            ARCH_EXPERT_INPUT | ARCH_CHUNKS,
     .qk_norm = NORM_RMS, .temperature_length = 8192, .temperature_offset = 1,
     TENSORS(moe_tensors)},
    {GGUF_ROW("mimo2", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 1,
     .has = ARCH_QKV_BARE | ARCH_VALUE_SCALE | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED |
            ARCH_EXPERT_NORM | ARCH_ROPE_LOCAL,
     TENSORS(mimo2_tensors)},
    {GGUF_ROW("minimax-m2", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(moe_wide_norms_tensors)},
    {GGUF_ROW("minimax-m3", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_FFN_CLAMP,
     .qk_norm = NORM_RMS, TENSORS(minimax_m3_tensors)},
    {GGUF_ROW("olmoe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED, .qk_norm = NORM_RMS,
     TENSORS(moe_wide_norms_tensors)},
    {GGUF_ROW("phimoe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, TENSORS(phimoe_tensors)},
    {GGUF_ROW("qwen2moe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED, TENSORS(moe_tensors)},
    {GGUF_ROW("qwen3moe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("lfm2", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_CONV,
     .layers = LAYERS_BY_HEADS, .has = ARCH_FFN_UNSCALED, .window_period = 1, .qk_norm = NORM_RMS,
     TENSORS(lfm2_tensors)},
    {GGUF_ROW("lfm2moe", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_CONV,
     .layers = LAYERS_BY_HEADS, .gating = GATING_SIGMOID, .window_period = 1,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(lfm2_tensors)},
    {GGUF_ROW("kimi-linear", RMS, NONE, SILU), .mixers = MIXER_ATTENTION | MIXER_KDA,
     .layers = LAYERS_BY_HEADS, .ssm_unscaled = true, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_EXPERT_NORM |
            ARCH_QKV_BARE,
     TENSORS(kimi_linear_tensors)},
    {GGUF_ROW("mamba2", RMS, NONE, SILU), .mixers = MIXER_SSM, TENSORS(mamba2_tensors)},
    {GGUF_ROW("granitehybrid", RMS, INTERLEAVED, SILU), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_BY_HEADS, .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED | ARCH_ATTN_SCALE | ARCH_ROPE_SWITCH,
     TENSORS(granitehybrid_tensors)},
    {GGUF_ROW("falcon-h1", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED | ARCH_ATTN_SCALE, TENSORS(falcon_h1_tensors)},
    {GGUF_ROW("nemotron_h", RMS, NONE, RELU_SQUARED), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_SINGLE, .has = ARCH_ATTN_SCALE, TENSORS(nemotron_h_tensors)},
    {GGUF_ROW("nemotron_h_moe", RMS, NONE, RELU_SQUARED), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_SINGLE, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_SCALE,
     TENSORS(nemotron_h_tensors)},
    {GGUF_ROW("qwen3next", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_DELTA,
     .layers = LAYERS_BY_PERIOD, .gated_queries = true, .ssm_unscaled = true,
     .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(qwen3next_tensors)},
    {GGUF_ROW("qwen35", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_DELTA,
     .layers = LAYERS_BY_PERIOD, .gated_queries = true, .groups_alternate = true,
     .qk_norm = NORM_RMS, TENSORS(qwen35_tensors)},
    {GGUF_ROW("qwen35moe", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_DELTA,
     .layers = LAYERS_BY_PERIOD, .gated_queries = true, .groups_alternate = true,
     .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(qwen35_tensors)},
    {GGUF_ROW("smallthinker", RMS, NEOX, RELU), .gating = GATING_SOFTMAX, .window_period = 4,
     .window_after = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_ROUTER_EARLY |
            ARCH_ROPE_WINDOWED,
     TENSORS(moe_tensors)},
};

const int arch_table_count = sizeof arch_table / sizeof arch_table[0];
