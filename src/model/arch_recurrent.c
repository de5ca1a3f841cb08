/* arch_recurrent.c: architectures with recurrent layers. */
#include "arch_pieces.h"

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
#define KDA_OF(gates)                                                                              \
    PLAIN_MATRIX(ROLE_SSM_IN, "attn_q", DIM_EMBD, DIM_SSM_INNER, 0),                               \
        PLAIN_MATRIX(ROLE_SSM_IN_K, "attn_k", DIM_EMBD, DIM_SSM_INNER, 0),                         \
        PLAIN_MATRIX(ROLE_SSM_IN_V, "attn_v", DIM_EMBD, DIM_SSM_INNER, 0), gates,                  \
        PLAIN_MATRIX(ROLE_SSM_BETA, "ssm_beta", DIM_EMBD, DIM_SSM_HEADS, 0),                       \
        KDA_CONVOLUTION(ROLE_SSM_CONV, "ssm_conv1d_q"),                                            \
        KDA_CONVOLUTION(ROLE_SSM_CONV_K, "ssm_conv1d_k"),                                          \
        KDA_CONVOLUTION(ROLE_SSM_CONV_V, "ssm_conv1d_v"),                                          \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "ssm_dt.bias", DIM_SSM_INNER, 0),                           \
        SSM_PER_HEAD(ROLE_SSM_A, "ssm_a"),                                                         \
        PLAIN_VECTOR(ROLE_SSM_NORM, "ssm_norm.weight", DIM_SSM_HEAD, 0),                           \
        PLAIN_MATRIX(ROLE_SSM_OUT, "attn_output", DIM_SSM_INNER, DIM_EMBD, 0)
#define KDA KDA_OF(KDA_LOW_RANK)
#define KDA_LOW_RANK                                                                               \
    PLAIN_MATRIX(ROLE_SSM_GATE_A, "ssm_g_a", DIM_EMBD, DIM_SSM_HEAD, 0),                           \
        PLAIN_MATRIX(ROLE_SSM_GATE_B, "ssm_g_b", DIM_SSM_HEAD, DIM_SSM_INNER, 0),                  \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_A, "ssm_f_a", DIM_EMBD, DIM_SSM_HEAD, 0),                      \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_B, "ssm_f_b", DIM_SSM_HEAD, DIM_SSM_INNER, 0)
#define KDA_MIXED_RANK                                                                             \
    PLAIN_MATRIX(ROLE_SSM_GATE, "ssm_g", DIM_EMBD, DIM_SSM_INNER, 0),                              \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_A, "ssm_f_a", DIM_EMBD, DIM_SSM_HEAD, 0),                      \
        PLAIN_MATRIX(ROLE_SSM_ALPHA_B, "ssm_f_b", DIM_SSM_HEAD, DIM_SSM_INNER, 0)
#define KDA_FULL_RANK                                                                              \
    PLAIN_MATRIX(ROLE_SSM_GATE, "ssm_g_a", DIM_EMBD, DIM_SSM_INNER, 0),                            \
        PLAIN_MATRIX(ROLE_SSM_ALPHA, "ssm_f_a", DIM_EMBD, DIM_SSM_INNER, 0)

/* Every head of Q is followed by a gate. */
#define GATED_PROJECTIONS_OF(bias_flags)                                                           \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_2Q, 0),                  \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, DIM_KV, 0),              \
        LAYER_VECTOR(ROLE_ATTN_Q_BIAS, "attn_q.bias", "self_attn.q_proj.bias", DIM_2Q,             \
                     TENSOR_OPTIONAL | (bias_flags)),                                              \
        LAYER_VECTOR(ROLE_ATTN_K_BIAS, "attn_k.bias", "self_attn.k_proj.bias", DIM_KV,             \
                     TENSOR_OPTIONAL | (bias_flags)),                                              \
        LAYER_VECTOR(ROLE_ATTN_V_BIAS, "attn_v.bias", "self_attn.v_proj.bias", DIM_KV,             \
                     TENSOR_OPTIONAL | (bias_flags)),                                              \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_Q, DIM_EMBD, 0)
#define GATED_PROJECTIONS GATED_PROJECTIONS_OF(0)

static const arch_tensor lfm2_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT_NORM,
     "token_embd_norm.weight",
     "model.embedding_norm.weight",
     {DIM_EMBD, DIM_NONE},
     TENSOR_F32},
    {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    OUTPUT_SKETCH,
    DENSE_MODULE,
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

/* Mamba-1. B: keys, C: queries. */
#define MAMBA                                                                                      \
    PLAIN_MATRIX(ROLE_SSM_IN, "ssm_in", DIM_EMBD, DIM_SSM_2INNER, 0), SSM_CONVOLUTION,             \
        PLAIN_VECTOR(ROLE_SSM_CONV_BIAS, "ssm_conv1d.bias", DIM_CONV, TENSOR_OPTIONAL),            \
        PLAIN_MATRIX(ROLE_SSM_X, "ssm_x", DIM_SSM_INNER, DIM_SSM_X, TENSOR_UNSCALED),              \
        PLAIN_MATRIX(ROLE_SSM_DT, "ssm_dt", DIM_SSM_RANK, DIM_SSM_HEADS, TENSOR_UNSCALED),         \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "ssm_dt.bias", DIM_SSM_HEADS, 0),                           \
        PLAIN_VECTOR(ROLE_SSM_D, "ssm_d", DIM_SSM_HEADS, 0),                                       \
        PLAIN_MATRIX(ROLE_SSM_OUT, "ssm_out", DIM_SSM_INNER, DIM_EMBD, 0)
#define MAMBA_DECAYS                                                                               \
    {                                                                                              \
        ROLE_SSM_A, "blk.%d.ssm_a", NULL, {DIM_SSM_STATE, DIM_SSM_HEADS},                          \
            TENSOR_PER_LAYER | TENSOR_F32                                                          \
    }
#define MAMBA_NORMS(ending)                                                                        \
    PLAIN_VECTOR(ROLE_SSM_DT_NORM, "ssm_dt_norm" ending, DIM_SSM_RANK, 0),                         \
        PLAIN_VECTOR(ROLE_SSM_B_NORM, "ssm_b_norm" ending, DIM_SSM_STATE, 0),                      \
        PLAIN_VECTOR(ROLE_SSM_C_NORM, "ssm_c_norm" ending, DIM_SSM_STATE, 0)

/* A gate on each head of attention. */
static const arch_tensor bailingmoe3_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    LATENT_ATTENTION_OF(TENSOR_UNSCALED),
    LAYER_MATRIX(ROLE_ATTN_GATE, "attn_gate", "attention.gate_proj", DIM_EMBD, DIM_ATTN_GATE,
                 TENSOR_UNSCALED),
    KDA_OF(KDA_FULL_RANK),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

/* Experts of a latent vector; blocks read sums of earlier values of the residual stream. */
static const arch_tensor kimi_k3_tensors[] = {
    GLOBAL_TENSORS,
    {ROLE_PAST_HEAD, "output_res_score.weight", NULL, {DIM_EMBD, DIM_NONE}, TENSOR_F32},
    PLAIN_VECTOR(ROLE_PAST_ATTN, "attn_res_score.weight", DIM_EMBD, 0),
    PLAIN_VECTOR(ROLE_PAST_FFN, "ffn_res_score.weight", DIM_EMBD, 0),
    ATTN_NORM,
    LATENT_ATTENTION_OF(TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_ATTN_GATE, "attn_gate", DIM_EMBD, DIM_ATTN_GATE,
                 TENSOR_OPTIONAL | TENSOR_UNSCALED),
    KDA_OF(KDA_MIXED_RANK),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    PLAIN_MATRIX(ROLE_EXPERT_LATENT_IN, "ffn_routed_down", DIM_EMBD, DIM_EXPERT_EMBD,
                 TENSOR_NO_DENSE | TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_EXPERT_LATENT_NORM, "ffn_routed_norm.weight", DIM_EXPERT_EMBD,
                 TENSOR_NO_DENSE | TENSOR_OPTIONAL),
    PLAIN_MATRIX(ROLE_EXPERT_LATENT_OUT, "ffn_routed_up", DIM_EXPERT_EMBD, DIM_EMBD,
                 TENSOR_NO_DENSE | TENSOR_UNSCALED),
    SHARED_EXPERT,
};

static const arch_tensor mamba_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    MAMBA,
    MAMBA_DECAYS,
};

static const arch_tensor jamba_tensors[] = {
    GLOBAL_TENSORS,         ATTN_NORM,   PROJECTIONS,      MAMBA,   MAMBA_DECAYS,
    MAMBA_NORMS(".weight"), FFN_NORM(0), DENSE_LAYERS_FFN, EXPERTS,
};

/* Norms before and after each block; rows of ssm_in come head by head. */
static const arch_tensor plamo2_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS_OF(DIM_VALUES, DIM_ATTN),
    EACH_HEAD_NORMS,
    MAMBA,
    PLAIN_VECTOR(ROLE_SSM_A, "ssm_a", DIM_SSM_HEADS, 0),
    MAMBA_NORMS(""),
    FFN_NORM(0),
    LAYER_VECTOR(ROLE_ATTN_POST_NORM, "post_attention_norm", "post_mixer_norm.weight", DIM_EMBD, 0),
    LAYER_VECTOR(ROLE_FFN_POST_NORM, "post_ffw_norm", "post_mlp_norm.weight", DIM_EMBD, 0),
    FUSED_FFN,
};

/* A convolution of one tap, which is 1, is only the activation. */
static const arch_tensor minimax_01_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    PLAIN_MATRIX(ROLE_SSM_IN, "attn_qkv", DIM_EMBD, DIM_CONV, 0),
    PLAIN_MATRIX(ROLE_SSM_GATE, "attn_gate", DIM_EMBD, DIM_SSM_INNER, 0),
    {ROLE_SSM_CONV,
     "blk.%d.attn_conv1d.weight",
     NULL,
     {DIM_TAPS, DIM_CONV},
     TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_ONES},
    PLAIN_VECTOR(ROLE_SSM_NORM, "attn_norm_2.weight", DIM_SSM_INNER, 0),
    PLAIN_MATRIX(ROLE_SSM_OUT, "attn_output", DIM_SSM_INNER, DIM_EMBD, 0),
    FFN_NORM(0),
    EXPERTS,
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

/* One norm per layer, whichever block the layer is. */
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

/* Norms have biases; the embedding is normed. */
#define WKV_GLOBALS                                                                                \
    PLAIN_GLOBALS, {ROLE_OUTPUT, "output.weight", NULL, {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},   \
        GLOBAL_VECTOR(ROLE_EMBD_NORM, "token_embd_norm.weight", DIM_EMBD, 0),                      \
        GLOBAL_VECTOR(ROLE_EMBD_NORM_BIAS, "token_embd_norm.bias", DIM_EMBD, 0)
#define QWEN_GLOBALS                                                                               \
    GLOBAL_TENSORS,                                                                                \
        GLOBAL_VECTOR(ROLE_OUTPUT_NORM_BIAS, "output_norm.bias", DIM_EMBD, TENSOR_OPTIONAL)
#define WKV_SHIFT(n, flags)                                                                        \
    {                                                                                              \
        ROLE_SSM_SHIFT, "blk.%d.time_mix_lerp_fused.weight", NULL, {DIM_EMBD, n},                  \
            TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_FOURTH | (flags)                                \
    }
/* A matrix as a product of two. */
#define WKV_LOW_RANK(role, first, second, flags)                                                   \
    PLAIN_MATRIX(role##_A, first, DIM_EMBD, DIM_OPEN, TENSOR_UNSCALED | (flags)),                  \
        PLAIN_MATRIX(role##_B, second, DIM_OPEN, DIM_EMBD, TENSOR_UNSCALED | (flags))
#define WKV_PROJECTIONS                                                                            \
    PLAIN_MATRIX(ROLE_SSM_IN, "time_mix_receptance", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED),         \
        PLAIN_MATRIX(ROLE_SSM_IN_K, "time_mix_key", DIM_EMBD, DIM_SSM_KEYS, TENSOR_UNSCALED),      \
        PLAIN_MATRIX(ROLE_SSM_IN_V, "time_mix_value", DIM_EMBD, DIM_SSM_KEYS, TENSOR_UNSCALED),    \
        PLAIN_MATRIX(ROLE_SSM_OUT, "time_mix_output", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED)
#define WKV_NORM(flags)                                                                            \
    PLAIN_VECTOR(ROLE_SSM_NORM, "time_mix_ln.weight", DIM_EMBD, flags),                            \
        PLAIN_VECTOR(ROLE_SSM_NORM_BIAS, "time_mix_ln.bias", DIM_EMBD, flags)
#define WKV_FFN                                                                                    \
    PLAIN_NORM(ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS, "attn_norm_2", 0),                               \
        PLAIN_VECTOR(ROLE_FFN_SHIFT, "channel_mix_lerp_k.weight", DIM_EMBD, 0),                    \
        PLAIN_MATRIX(ROLE_FFN_UP, "channel_mix_key", DIM_EMBD, DIM_FF,                             \
                     TENSOR_NEURON_ROWS | TENSOR_UNSCALED),                                        \
        PLAIN_MATRIX(ROLE_FFN_DOWN, "channel_mix_value", DIM_FF, DIM_EMBD,                         \
                     TENSOR_NEURON_COLS | TENSOR_UNSCALED),                                        \
        SPARSE_TENSORS

#define WKV7_OF(gates)                                                                             \
    WKV_SHIFT(DIM_OPEN, 0), WKV_PROJECTIONS,                                                       \
        WKV_LOW_RANK(ROLE_SSM_ALPHA, "time_mix_w1", "time_mix_w2", 0),                             \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "time_mix_w0.weight", DIM_EMBD, 0),                         \
        WKV_LOW_RANK(ROLE_SSM_RATE, "time_mix_a1", "time_mix_a2", 0),                              \
        PLAIN_VECTOR(ROLE_SSM_RATE_BIAS, "time_mix_a0.weight", DIM_EMBD, 0),                       \
        WKV_LOW_RANK(ROLE_SSM_FIRST, "time_mix_v1", "time_mix_v2", TENSOR_OPTIONAL),               \
        PLAIN_VECTOR(ROLE_SSM_FIRST_BIAS, "time_mix_v0.weight", DIM_EMBD, TENSOR_OPTIONAL),        \
        WKV_LOW_RANK(ROLE_SSM_GATE, "time_mix_g1", "time_mix_g2", gates),                          \
        PLAIN_VECTOR(ROLE_SSM_ERASE, "time_mix_k_k.weight", DIM_EMBD, 0),                          \
        PLAIN_VECTOR(ROLE_SSM_RATE_KEY, "time_mix_k_a.weight", DIM_EMBD, 0),                       \
        PLAIN_VECTOR(ROLE_SSM_BONUS, "time_mix_r_k.weight", DIM_EMBD, 0), WKV_NORM(gates)

static const arch_tensor rwkv7_tensors[] = {
    WKV_GLOBALS,
    PLAIN_NORM(ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS, "attn_norm", 0),
    WKV7_OF(0),
    WKV_FFN,
};

/* RWKV's mixers in Qwen2's layers. */
static const arch_tensor arwkv7_tensors[] = {
    QWEN_GLOBALS, ATTN_NORM, WKV7_OF(TENSOR_OPTIONAL), FFN_NORM(0), GATED_FFN,
};

#define WKV_SHIFT_OF(role, name)                                                                   \
    PLAIN_VECTOR(role, "time_mix_lerp_" name ".weight", DIM_EMBD, TENSOR_OPTIONAL)
#define WKV6                                                                                       \
    PLAIN_VECTOR(ROLE_SSM_SHIFT_X, "time_mix_lerp_x.weight", DIM_EMBD, 0),                         \
        PLAIN_MATRIX(ROLE_SSM_SHIFT_A, "time_mix_w1", DIM_EMBD, DIM_OPEN, TENSOR_UNSCALED),        \
        {ROLE_SSM_SHIFT_B,                                                                         \
         "blk.%d.time_mix_w2.weight",                                                              \
         NULL,                                                                                     \
         {DIM_OPEN, DIM_EMBD, DIM_FIVE},                                                           \
         TENSOR_PER_LAYER | TENSOR_UNSCALED},                                                      \
        WKV_PROJECTIONS,                                                                           \
        WKV_LOW_RANK(ROLE_SSM_ALPHA, "time_mix_decay_w1", "time_mix_decay_w2", 0),                 \
        PLAIN_VECTOR(ROLE_SSM_DT_BIAS, "time_mix_decay.weight", DIM_EMBD, 0),                      \
        PLAIN_MATRIX(ROLE_SSM_GATE, "time_mix_gate", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED)

static const arch_tensor rwkv6_tensors[] = {
    WKV_GLOBALS,
    PLAIN_NORM(ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS, "attn_norm", 0),
    WKV_SHIFT(DIM_FIVE, TENSOR_OPTIONAL),
    WKV_SHIFT_OF(ROLE_SSM_SHIFT_W, "w"),
    WKV_SHIFT_OF(ROLE_SSM_SHIFT_K, "k"),
    WKV_SHIFT_OF(ROLE_SSM_SHIFT_V, "v"),
    WKV_SHIFT_OF(ROLE_SSM_SHIFT_R, "r"),
    WKV_SHIFT_OF(ROLE_SSM_SHIFT_G, "g"),
    WKV6,
    {ROLE_SSM_BONUS,
     "blk.%d.time_mix_first.weight",
     NULL,
     {DIM_SSM_STATE, DIM_SSM_HEADS},
     TENSOR_PER_LAYER | TENSOR_F32},
    WKV_NORM(0),
    WKV_FFN,
    PLAIN_VECTOR(ROLE_FFN_SHIFT_R, "channel_mix_lerp_r.weight", DIM_EMBD, 0),
    PLAIN_MATRIX(ROLE_FFN_RECEPTANCE, "channel_mix_receptance", DIM_EMBD, DIM_EMBD,
                 TENSOR_UNSCALED),
};

/* Heads share keys and values; there is no bonus and no norm. */
static const arch_tensor rwkv6qwen2_tensors[] = {
    QWEN_GLOBALS,
    ATTN_NORM,
    WKV_SHIFT(DIM_FIVE, 0),
    WKV6,
    PLAIN_VECTOR(ROLE_SSM_IN_BIAS, "time_mix_receptance.bias", DIM_EMBD, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_SSM_IN_K_BIAS, "time_mix_key.bias", DIM_SSM_KEYS, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_SSM_IN_V_BIAS, "time_mix_value.bias", DIM_SSM_KEYS, TENSOR_OPTIONAL),
    FFN_NORM(0),
    GATED_FFN,
};

/* Weights of all streams, one after the other; older files have them as one row. */
#define STREAM_VECTOR(role, name, flags)                                                           \
    {                                                                                              \
        role, "blk.%d." name ".weight", NULL, {DIM_EMBD, DIM_STREAMS},                             \
            TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_STACKED | (flags)                               \
    }
#define GATED_HYPER(role, name)                                                                    \
    STREAM_VECTOR(role##_NORM, name "_norm", 0),                                                   \
        PLAIN_MATRIX(role##_DOWN, name "_down", DIM_STREAM_EMBD, DIM_HYPER_RANK, TENSOR_UNSCALED), \
        PLAIN_MATRIX(role##_UP, name "_up", DIM_HYPER_RANK, DIM_STREAM_EMBD, TENSOR_UNSCALED),     \
        PLAIN_MATRIX(role##_INJECT, name "_inject", DIM_STREAM_EMBD, DIM_STREAMS, TENSOR_UNSCALED)
#define NGRAMS                                                                                     \
    {ROLE_NGRAM_EMBD,                                                                              \
     "per_layer_token_embd.weight",                                                                \
     NULL,                                                                                         \
     {DIM_NGRAM_EMBD, DIM_NGRAM_ROWS},                                                             \
     TENSOR_NGRAMS | TENSOR_UNSCALED},                                                             \
        PLAIN_MATRIX(ROLE_NGRAM_KEY, "ple_key", DIM_EMBD, DIM_STREAM_EMBD,                         \
                     TENSOR_NGRAMS | TENSOR_UNSCALED),                                             \
        PLAIN_MATRIX(ROLE_NGRAM_VALUE, "ple_value", DIM_EMBD, DIM_EMBD,                            \
                     TENSOR_NGRAMS | TENSOR_UNSCALED),                                             \
        STREAM_VECTOR(ROLE_NGRAM_KEY_NORM, "ple_norm_key", TENSOR_NGRAMS),                         \
        STREAM_VECTOR(ROLE_NGRAM_QUERY_NORM, "ple_norm_query", TENSOR_NGRAMS),                     \
        STREAM_VECTOR(ROLE_NGRAM_CONV_NORM, "ple_norm_conv", TENSOR_NGRAMS), {                     \
        ROLE_NGRAM_CONV, "blk.%d.ple_conv1d.weight", NULL, {DIM_NGRAM_TAPS, DIM_STREAM_EMBD},      \
            TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_NGRAMS                                          \
    }
static const arch_tensor qwen4exp_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", NULL, {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT, "output.weight", NULL, {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    OUTPUT_SKETCH,
    {ROLE_HYPER_HEAD_NORM,
     "output_hc_norm.weight",
     NULL,
     {DIM_EMBD, DIM_STREAMS},
     TENSOR_F32 | TENSOR_STACKED},
    {ROLE_HYPER_HEAD_DOWN,
     "output_hc_down.weight",
     NULL,
     {DIM_STREAM_EMBD, DIM_HYPER_RANK},
     TENSOR_UNSCALED},
    {ROLE_HYPER_HEAD_UP,
     "output_hc_up.weight",
     NULL,
     {DIM_HYPER_RANK, DIM_STREAM_EMBD},
     TENSOR_UNSCALED},
    GATED_HYPER(ROLE_HYPER_ATTN, "hc_attn"),
    GATED_HYPER(ROLE_HYPER_FFN, "hc_ffn"),
    NGRAMS,
    HEAD_NORMS(0),
    GATED_PROJECTIONS_OF(TENSOR_UNUSED),
    DELTA_SEPARATE,
    PLAIN_MATRIX(ROLE_INDEX_Q, "indexer.q_proj", DIM_EMBD, DIM_INDEX_Q,
                 TENSOR_OWN_INDEX | TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_INDEX_K, "indexer.k_proj", DIM_EMBD, DIM_INDEX,
                 TENSOR_OWN_INDEX | TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_INDEX_Q_NORM, "indexer.q_norm.weight", DIM_INDEX, TENSOR_OWN_INDEX),
    PLAIN_VECTOR(ROLE_INDEX_K_NORM, "indexer.k_norm.weight", DIM_INDEX, TENSOR_OWN_INDEX),
    EXPERTS,
    SHARED_EXPERT,
};

/* ---- rows ----------------------------------------------------------------------------------- */

static const arch_row rows[] = {
    {GGUF_ROW("lfm2", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_CONV,
     .layers = LAYERS_BY_HEADS, .has = ARCH_FFN_UNSCALED, .window_period = 1, .one_rope_base = true,
     .qk_norm = NORM_RMS, TENSORS(lfm2_tensors)},
    {GGUF_ROW("lfm2moe", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_CONV,
     .layers = LAYERS_BY_HEADS, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(lfm2_tensors)},
    {GGUF_ROW("kimi-linear", RMS, NONE, SILU), .mixers = MIXER_ATTENTION | MIXER_KDA,
     .layers = LAYERS_BY_HEADS, .ssm_unscaled = true, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_EXPERT_NORM |
            ARCH_QKV_BARE,
     TENSORS(kimi_linear_tensors)},
    {GGUF_ROW("bailingmoe3", RMS, INTERLEAVED, SILU), .mixers = MIXER_ATTENTION | MIXER_KDA,
     .layers = LAYERS_BY_HEADS, .ssm_unscaled = true, .gating = GATING_SIGMOID, .clamp_late = true,
     .decays_positive = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_QKV_BARE,
     TENSORS(bailingmoe3_tensors)},
    {GGUF_ROW("kimi-k3", RMS, NONE, SILU), .mixers = MIXER_ATTENTION | MIXER_KDA,
     .layers = LAYERS_BY_HEADS, .ssm_unscaled = true, .gating = GATING_SIGMOID,
     .decays_bounded = true, .gates_soft = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_QKV_BARE,
     TENSORS(kimi_k3_tensors)},
    {GGUF_ROW("mamba", RMS, NONE, SILU), .mixers = MIXER_SCAN, TENSORS(mamba_tensors)},
    {GGUF_ROW("jamba", RMS, NONE, SILU), .mixers = MIXER_ATTENTION | MIXER_SCAN,
     .layers = LAYERS_BY_HEADS, .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(jamba_tensors)},
    {GGUF_ROW("plamo2", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_SCAN,
     .layers = LAYERS_BY_HEADS, .scan_heads = true, .in_by_head = true, .ssm_unscaled = true,
     .has = ARCH_FFN_UNSCALED | ARCH_QKV_BARE | ARCH_OUT_UNBIASED, .qk_norm = NORM_RMS,
     TENSORS(plamo2_tensors)},
    {GGUF_ROW("minimax-01", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_LIGHTNING,
     .layers = LAYERS_BY_PERIOD, .attention_interval = 8, .in_by_head = true,
     .residual_normed = true, .ssm_unscaled = true, .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_RESIDUAL_SCALE | ARCH_OUT_UNBIASED,
     TENSORS(minimax_01_tensors)},
    {GGUF_ROW("mamba2", RMS, NONE, SILU), .mixers = MIXER_SSM, TENSORS(mamba2_tensors)},
    {GGUF_ROW("granitehybrid", RMS, INTERLEAVED, SILU), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_BY_HEADS, .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED | ARCH_ATTN_SCALE | ARCH_ROPE_SWITCH,
     TENSORS(granitehybrid_tensors)},
    {GGUF_ROW("falcon-h1", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .rope_undivided = true, .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED | ARCH_ATTN_SCALE,
     TENSORS(falcon_h1_tensors)},
    {GGUF_ROW("nemotron_h", RMS, NONE, RELU_SQUARED), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_SINGLE, .has = ARCH_ATTN_SCALE, TENSORS(nemotron_h_tensors)},
    {GGUF_ROW("nemotron_h_moe", RMS, NONE, RELU_SQUARED), .mixers = MIXER_ATTENTION | MIXER_SSM,
     .layers = LAYERS_SINGLE, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_SCALE,
     TENSORS(nemotron_h_tensors)},
    {GGUF_ROW("rwkv6", LAYER, NONE, RELU_SQUARED), .mixers = MIXER_WKV, TENSORS(rwkv6_tensors)},
    {GGUF_ROW("rwkv6qwen2", RMS, NONE, SILU), .mixers = MIXER_WKV, .has = ARCH_FFN_UNSCALED,
     TENSORS(rwkv6qwen2_tensors)},
    {GGUF_ROW("rwkv7", LAYER, NONE, RELU_SQUARED), .mixers = MIXER_WKV, TENSORS(rwkv7_tensors)},
    {GGUF_ROW("arwkv7", RMS, NONE, SILU), .mixers = MIXER_WKV, .has = ARCH_FFN_UNSCALED,
     TENSORS(arwkv7_tensors)},
    {GGUF_ROW("qwen3next", RMS, NEOX, SILU), .mixers = MIXER_ATTENTION | MIXER_DELTA,
     .layers = LAYERS_BY_PERIOD, .attention_interval = 4, .gated_queries = true,
     .ssm_unscaled = true, .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(qwen3next_tensors)},
    {GGUF_ROW("qwen35", RMS, NEOX, SILU), .axes = AXES_INTERLEAVED,
     .mixers = MIXER_ATTENTION | MIXER_DELTA, .layers = LAYERS_BY_PERIOD, .attention_interval = 4,
     .gated_queries = true, .groups_alternate = true, .qk_norm = NORM_RMS, TENSORS(qwen35_tensors)},
    {GGUF_ROW("qwen35moe", RMS, NEOX, SILU), .axes = AXES_INTERLEAVED,
     .mixers = MIXER_ATTENTION | MIXER_DELTA, .layers = LAYERS_BY_PERIOD, .attention_interval = 4,
     .gated_queries = true, .groups_alternate = true, .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERT_NORM, .qk_norm = NORM_RMS, TENSORS(qwen35_tensors)},
    {GGUF_ROW("qwen4exp", RMS, NEOX, SILU), .axes = AXES_INTERLEAVED,
     .mixers = MIXER_ATTENTION | MIXER_DELTA, .layers = LAYERS_BY_PERIOD, .attention_interval = 4,
     .gated_queries = true, .groups_alternate = true, .delta_sigmoid = true, .index_pools = true,
     .one_rope_base = true, .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(qwen4exp_tensors)},
};

const arch_rows arch_rows_recurrent = ARCH_ROWS(rows);
