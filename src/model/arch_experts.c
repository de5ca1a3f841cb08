/* arch_experts.c: architectures with mixtures of experts. */
#include "arch_pieces.h"

static const arch_tensor moe_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), DENSE_LAYERS_FFN, EXPERTS, SHARED_EXPERT,
};

/* The predictor of the output head in files of the original PowerInfer. */
static const arch_tensor smallthinker_tensors[] = {
    GLOBAL_TENSORS,
    {ROLE_OUTPUT_PROFILER,
     "lm_head_profiler.weight",
     "model.lm_head_profiler.weight",
     {DIM_PROFILER, DIM_ONE},
     TENSOR_OPTIONAL | TENSOR_SPARSE},
    ATTN_NORM,
    PROJECTIONS,
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

static const arch_tensor moe_head_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        PROJECTIONS, HEAD_NORMS(TENSOR_OPTIONAL),
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,     SHARED_EXPERT,
};

/* The table leaves out attention biases, because other programs do not add them: they are unknown
 * tensors. */
static const arch_tensor qwen3vlmoe_tensors[] = {
    GLOBAL_TENSORS, ATTENTION_TENSORS, HEAD_NORMS(0), FFN_NORM(0), DENSE_LAYERS_FFN, EXPERTS,
};

static const arch_tensor hy_v3_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(0),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS_OF(ROUTER_OF("exp_probs_b")),
    SHARED_EXPERT,
};

static const arch_tensor moe_wide_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        PROJECTIONS, WIDE_NORMS,
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,     SHARED_EXPERT,
};

/* The FFN block's norm has another name. */
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

/* Norms before and after each block, a gate on attention's output. */
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

static const arch_tensor dbrx_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_VECTOR(ROLE_FFN_NORM, "attn_output_norm.weight", "norm_attn_norm.norm_2.weight", DIM_EMBD,
                 0),
    EXPERTS,
};

/* Grok-1. The dense FFN next to the experts is like a shared expert. */
static const arch_tensor grok_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_VECTOR(ROLE_ATTN_POST_NORM, "attn_output_norm.weight", "post_attn_norm.weight", DIM_EMBD,
                 0),
    FFN_NORM(0),
    LAYER_VECTOR(ROLE_FFN_POST_NORM, "layer_output_norm.weight", "post_moe_norm.weight", DIM_EMBD,
                 0),
    EXPERTS,
    LAYER_MATRIX(ROLE_SHARED_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_SHARED_FF,
                 TENSOR_OPTIONAL),
    LAYER_MATRIX(ROLE_SHARED_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_SHARED_FF, TENSOR_OPTIONAL),
    LAYER_MATRIX(ROLE_SHARED_DOWN, "ffn_down", "mlp.down_proj", DIM_SHARED_FF, DIM_EMBD,
                 TENSOR_OPTIONAL),
};

/* A gate on each element or head of attention's output. */
static const arch_tensor laguna_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_MATRIX(ROLE_ATTN_GATE, "attn_gate", "self_attn.g_proj", DIM_EMBD, DIM_ATTN_GATE,
                 TENSOR_UNSCALED),
    HEAD_NORMS(0),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

/* Layers with and without a window have different numbers of heads and of rotated elements. */
static const arch_tensor step35_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT_NORM, "output_norm.weight", "model.norm.weight", {DIM_EMBD, DIM_NONE}, TENSOR_F32},
    {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    OUTPUT_SKETCH,
    {ROLE_ROPE_FREQS,
     "rope_freqs.weight",
     NULL,
     {DIM_HALF_ROTS, DIM_NONE},
     TENSOR_OPTIONAL | TENSOR_F32},
    ATTN_NORM,
    PROJECTIONS,
    LAYER_MATRIX(ROLE_ATTN_GATE, "attn_gate", "self_attn.g_proj", DIM_EMBD, DIM_HEADS,
                 TENSOR_OPTIONAL | TENSOR_UNSCALED),
    HEAD_NORMS(TENSOR_OPTIONAL),
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

/* A dense FFN, as wide as the embedding, next to experts that read the layer's input. */
static const arch_tensor arctic_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    FFN_NORM(0),
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "residual_mlp.w1", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED),
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "residual_mlp.w3", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED),
    LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "residual_mlp.w2", DIM_EMBD, DIM_EMBD, TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_EXPERT_PRE_NORM, "ffn_norm_exps.weight", DIM_EMBD, 0),
    EXPERTS,
};

#define ADJUGATE(role, name, dim_in, dim_out)                                                      \
    {                                                                                              \
        role, "blk.%d." name ".weight", NULL, {dim_in, dim_out, DIM_ADJUGATES},                    \
            TENSOR_PER_LAYER | TENSOR_UNSCALED                                                     \
    }
static const arch_tensor grovemoe_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    HEAD_NORMS(0),
    FFN_NORM(0),
    EXPERTS,
    ADJUGATE(ROLE_ADJUGATE_GATE, "ffn_gate_chexps", DIM_EMBD, DIM_ADJUGATE_FF),
    ADJUGATE(ROLE_ADJUGATE_UP, "ffn_up_chexps", DIM_EMBD, DIM_ADJUGATE_FF),
    ADJUGATE(ROLE_ADJUGATE_DOWN, "ffn_down_chexps", DIM_ADJUGATE_FF, DIM_EMBD),
};

static const arch_tensor latent_moe_tensors[] = {
    GLOBAL_TENSORS,   ATTN_NORM, LATENT_ATTENTION, FFN_NORM(0),
    DENSE_LAYERS_FFN, EXPERTS,   SHARED_EXPERT,
};

static const arch_tensor dsa_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM,        LATENT_ATTENTION, LIGHTNING_INDEX,
    FFN_NORM(0),    DENSE_LAYERS_FFN, EXPERTS,          SHARED_EXPERT,
};

/* A norm of the rotated key and a gate per head. Layers with a window have no index. */
static const arch_tensor dots3note_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    LATENT_ATTENTION,
    PLAIN_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", DIM_ROT, 0),
    PLAIN_MATRIX(ROLE_ATTN_GATE, "attn_gate", DIM_EMBD, DIM_HEADS, TENSOR_UNSCALED),
    LIGHTNING_INDEX,
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

/* Hyper-connections: the matrix has n_out rows in n_parts parts, and a scale for each part. */
#define HYPER(role, name, n_out, n_parts)                                                          \
    PLAIN_MATRIX(role, name "_fn", DIM_STREAM_EMBD, n_out, TENSOR_UNSCALED),                       \
        PLAIN_VECTOR(role##_BASE, name "_base.weight", n_out, 0),                                  \
        PLAIN_VECTOR(role##_SCALE, name "_scale.weight", n_parts, 0)
#define HYPER_HEAD                                                                                 \
    {ROLE_HYPER_HEAD,                                                                              \
     "output_hc_fn.weight",                                                                        \
     NULL,                                                                                         \
     {DIM_STREAM_EMBD, DIM_STREAMS},                                                               \
     TENSOR_UNSCALED},                                                                             \
        GLOBAL_VECTOR(ROLE_HYPER_HEAD_BASE, "output_hc_base.weight", DIM_STREAMS, 0),              \
        GLOBAL_VECTOR(ROLE_HYPER_HEAD_SCALE, "output_hc_scale.weight", DIM_ONE, 0)
static const arch_tensor hy_v4_tensors[] = {
    GLOBAL_TENSORS,
    HYPER_HEAD,
    HYPER(ROLE_HYPER_ATTN, "hc_attn", DIM_2STREAMS, DIM_TWO),
    HYPER(ROLE_HYPER_FFN, "hc_ffn", DIM_2STREAMS, DIM_TWO),
    ATTN_NORM,
    LATENT_ATTENTION_OF(TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_ATTN_GATE, "attn_gate", DIM_EMBD, DIM_ATTN, TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_ATTN_SINKS, "attn_sinks.weight", DIM_HEADS, 0),
    LIGHTNING_INDEX,
    FFN_NORM(0),
    DENSE_LAYERS_FFN,
    EXPERTS,
    SHARED_EXPERT,
};

#define COMPRESSOR(role, name, dim, norm_dim, flags)                                               \
    PLAIN_MATRIX(role##_KV, name "_kv", DIM_EMBD, dim, TENSOR_UNSCALED | (flags)),                 \
        PLAIN_MATRIX(role##_GATE, name "_gate", DIM_EMBD, dim, TENSOR_UNSCALED | (flags)),         \
        {role##_POS,                                                                               \
         "blk.%d." name "_ape.weight",                                                             \
         NULL,                                                                                     \
         {dim, DIM_RATIO},                                                                         \
         TENSOR_PER_LAYER | TENSOR_F32 | (flags)},                                                 \
        PLAIN_VECTOR(role##_NORM, name "_norm.weight", norm_dim, flags)
/* Keys are also the values, and their last elements are rotated. attn_output_a has a matrix per
 * group of heads, or all of them as one. */
static const arch_tensor deepseek4_tensors[] = {
    GLOBAL_TENSORS,
    HYPER_HEAD,
    HYPER(ROLE_HYPER_ATTN, "hc_attn", DIM_HYPER, DIM_THREE),
    HYPER(ROLE_HYPER_FFN, "hc_ffn", DIM_HYPER, DIM_THREE),
    ATTN_NORM,
    PLAIN_MATRIX(ROLE_ATTN_K, "attn_kv", DIM_EMBD, DIM_HEAD, TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_ATTN_Q_A, "attn_q_a", DIM_EMBD, DIM_LATENT_Q, TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_ATTN_Q_A_NORM, "attn_q_a_norm.weight", DIM_LATENT_Q, 0),
    PLAIN_MATRIX(ROLE_ATTN_Q_B, "attn_q_b", DIM_LATENT_Q, DIM_Q, TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", DIM_HEAD, TENSOR_ONES),
    PLAIN_VECTOR(ROLE_ATTN_K_NORM, "attn_kv_a_norm.weight", DIM_HEAD, 0),
    COMPRESSOR(ROLE_COMPRESS, "attn_compressor", DIM_COMPRESS, DIM_HEAD, TENSOR_COMPRESSED),
    COMPRESSOR(ROLE_INDEX_COMPRESS, "indexer_compressor", DIM_INDEX_COMPRESS, DIM_INDEX,
               TENSOR_OWN_INDEX),
    PLAIN_MATRIX(ROLE_INDEX_Q, "indexer.attn_q_b", DIM_LATENT_Q, DIM_INDEX_Q,
                 TENSOR_OWN_INDEX | TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_INDEX_WEIGHTS, "indexer.proj", DIM_EMBD, DIM_INDEX_HEADS,
                 TENSOR_OWN_INDEX | TENSOR_UNSCALED),
    PLAIN_VECTOR(ROLE_ATTN_SINKS, "attn_sinks.weight", DIM_HEADS, 0),
    {ROLE_ATTN_OUT_A,
     "blk.%d.attn_output_a.weight",
     NULL,
     {DIM_OUT_GROUP, DIM_OUT_RANK, DIM_OUT_GROUPS},
     TENSOR_PER_LAYER | TENSOR_STACKED | TENSOR_UNSCALED},
    PLAIN_MATRIX(ROLE_ATTN_OUT, "attn_output_b", DIM_OUT_RANKS, DIM_EMBD, TENSOR_UNSCALED),
    FFN_NORM(0),
    {ROLE_ROUTER_TABLE,
     "blk.%d.ffn_gate_tid2eid.weight",
     NULL,
     {DIM_EXPERTS_USED, DIM_VOCAB},
     TENSOR_PER_LAYER | TENSOR_OPTIONAL | TENSOR_RAW},
    PLAIN_VECTOR(ROLE_FFN_GATE_BIAS, "exp_probs_b_vl.bias", DIM_EXPERTS, TENSOR_UNUSED),
    EXPERTS,
    SHARED_EXPERT,
};

/* ---- rows ----------------------------------------------------------------------------------- */

static const arch_row rows[] = {
    {GGUF_ROW("qwen3vlmoe", RMS, NEOX, SILU), .axes = AXES_INTERLEAVED, .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS, TENSORS(qwen3vlmoe_tensors)},
    {GGUF_ROW("mistral4", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_TEMPERATURE,
     TENSORS(latent_moe_tensors)},
    {GGUF_ROW("afmoe", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .no_rope_period = 4,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_EMBD_SQRT,
     .qk_norm = NORM_RMS, TENSORS(afmoe_tensors)},
    {GGUF_ROW("bailingmoe2", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("cohere2moe", LAYER, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .parallel = true,
     .shared_scale = 0.5f, .window_period = 4, .window_after = true, .one_rope_base = true,
     .draft_global = true,
     .has = ARCH_NORM_EITHER | ARCH_EXPERT_KEYS | ARCH_LOGIT_MULTIPLIED | ARCH_ROPE_WINDOWED,
     TENSORS(cohere2moe_tensors)},
    {GGUF_ROW("deepseek2", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ATTN_TEMPERATURE,
     TENSORS(latent_moe_tensors)},
    {GGUF_ROW("deepseek32", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID,
     .index_rope = ROPE_NEOX, .has = ARCH_EXPERT_KEYS, TENSORS(dsa_tensors)},
    {GGUF_ROW("glm-dsa", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .index_by_layer = true,
     .index_period_ctx = 1048576, .has = ARCH_EXPERT_KEYS, TENSORS(dsa_tensors)},
    {GGUF_ROW("dots3note", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .window_period = 1,
     .index_rope = ROPE_NEOX, .index_by_layer = true, .yarn_unscaled = true,
     .has = ARCH_EXPERT_KEYS, TENSORS(dots3note_tensors)},
    {GGUF_ROW("dots1", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("ernie4_5-moe", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_OUT_UNBIASED | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM,
     TENSORS(moe_tensors)},
    {GGUF_ROW("exaone-moe", RMS, NEOX, SILU), .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ROPE_WINDOWED,
     .qk_norm = NORM_RMS, .window_period = 4, .one_rope_base = true,
     TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("glm4moe", RMS, NEOX, SILU), .axes = AXES_SECTIONS, .gating = GATING_SIGMOID,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, .qk_norm = NORM_RMS,
     TENSORS(glm4moe_tensors)},
    {GGUF_ROW("gpt-oss", RMS, NEOX, SILU), .gating = GATING_SOFTMAX_CHOSEN, .window_period = 2,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_CLAMP, TENSORS(gpt_oss_tensors)},
    {GGUF_ROW("granitemoe", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED | ARCH_ATTN_SCALE,
     TENSORS(moe_tensors)},
    {GGUF_ROW("hunyuan-moe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_QK_NORM_LATE,
     .qk_norm = NORM_RMS, TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("llama4", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .default_window = 8192, .no_rope_period = 4, .default_temperature = 0.1f,
     .unnormed_experts = 128, /* Maverick */
     .has = ARCH_ATTN_TEMPERATURE | ARCH_BARE_QK_NORM | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED |
            ARCH_EXPERT_INPUT | ARCH_CHUNKS,
     .qk_norm = NORM_RMS, .temperature_length = 8192, .temperature_offset = 1,
     TENSORS(moe_tensors)},
    {GGUF_ROW("mimo2", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 1,
     .draft_raw = true,
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
    {GGUF_ROW("smallthinker", RMS, NEOX, RELU), .gating = GATING_SOFTMAX, .window_period = 4,
     .window_after = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_NORM | ARCH_ROUTER_EARLY |
            ARCH_ROPE_WINDOWED,
     TENSORS(smallthinker_tensors)},
    {GGUF_ROW("bailingmoe", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, TENSORS(moe_tensors)},
    {GGUF_ROW("deepseek", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, TENSORS(moe_tensors)},
    {GGUF_ROW("hy_v3", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .has = ARCH_EXPERT_KEYS,
     .qk_norm = NORM_RMS, TENSORS(hy_v3_tensors)},
    {GGUF_ROW("hy_v4", RMS, INTERLEAVED, SILU), .gating = GATING_SIGMOID, .index_by_layer = true,
     .index_rot_last = true, .index_norm_as_all = true, .yarn_unscaled = true, .clamp_by_key = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS, TENSORS(hy_v4_tensors)},
    {GGUF_ROW("deepseek4", RMS, INTERLEAVED, SILU), .gating = GATING_SQRT_SOFTPLUS,
     .window_period = 1, .qk_norm = NORM_RMS, .rot_last = true, .index_rot_last = true,
     .one_rope_base = true, .yarn_unscaled = true, .clamp_by_key = true, .clamp_shared = true,
     .draft_raw = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ROPE_LOCAL,
     TENSORS(deepseek4_tensors)},
    {GGUF_ROW("dbrx", LAYER, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_QKV_CLAMP | ARCH_EXPERTS_UNSCALED | ARCH_OUT_UNBIASED | ARCH_EXPERT_NORM,
     TENSORS(dbrx_tensors)},
    {GGUF_ROW("grok", RMS, NEOX, GELU), .gating = GATING_SOFTMAX, .shared_scale = 0.70710678f,
     .attn_scale_key = "attention.output_scale", .default_attn_scale = 0.088388348f,
     .default_embd_scale = 78.383672f, .default_logit_scale = 0.57735027f,
     .default_attn_softcap = 30,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE | ARCH_LOGIT_MULTIPLIED |
            ARCH_ATTN_SOFTCAP | ARCH_LOGIT_SOFTCAP | ARCH_ATTN_SCALE,
     TENSORS(grok_tensors)},
    {GGUF_ROW("laguna", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .window_after = true, .gate_softplus = true,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED | ARCH_EXPERT_KEYS | ARCH_ROPE_LOCAL |
            ARCH_HEADS_LOCAL,
     .qk_norm = NORM_RMS, TENSORS(laguna_tensors)},
    {GGUF_ROW("step35", RMS, NEOX, SILU), .gating = GATING_SIGMOID, .window_period = 4,
     .local_rope_base = 10000, .rot_half = true, .clamp_late = true, .draft_raw = true,
     .has = ARCH_QKV_BARE | ARCH_OUT_UNBIASED | ARCH_EXPERTS_UNSCALED | ARCH_FFN_UNSCALED |
            ARCH_EXPERT_KEYS | ARCH_ROPE_LOCAL,
     .qk_norm = NORM_RMS, TENSORS(step35_tensors)},
    {GGUF_ROW("arctic", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX, .parallel = true,
     .experts_early = true, .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_OUT_UNBIASED,
     TENSORS(arctic_tensors)},
    {GGUF_ROW("grovemoe", RMS, NEOX, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM, .qk_norm = NORM_RMS,
     TENSORS(grovemoe_tensors)},
    {GGUF_ROW("maple", RMS, NEOX, SILU), .gating = GATING_SOFTMAX, .window_period = 1,
     .default_swiglu_clamp = 7,
     .has = ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_ROPE_WINDOWED | ARCH_OUT_UNBIASED,
     .qk_norm = NORM_RMS, TENSORS(moe_head_norms_tensors)},
    {GGUF_ROW("mellum", RMS, NEOX, SILU), .gating = GATING_SOFTMAX, .window_period = 4,
     .has = ARCH_EXPERT_NORM | ARCH_ROPE_LOCAL, .qk_norm = NORM_RMS,
     TENSORS(moe_head_norms_tensors)},
};

const arch_rows arch_rows_experts = ARCH_ROWS(rows);
