/* arch_dense.c: architectures whose layers have attention and an FFN (and, in some of their models,
 * experts). */
#include "arch_pieces.h"

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
    CLASSIFIER_OUTPUT,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD, 0),
    LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD, 0),
    GATED_FFN_TENSORS,
    SPARSE_TENSORS,
};

/* The table leaves out biases that other programs load but do not add: they are unknown tensors. */
static const arch_tensor qwen2vl_tensors[] = {
    GLOBAL_TENSORS, ATTENTION_TENSORS, ATTENTION_QKV_BIASES(0), GATED_FFN_TENSORS, SPARSE_TENSORS,
};

static const arch_tensor qwen3vl_tensors[] = {
    GLOBAL_TENSORS, CLASSIFIER_OUTPUT, ATTENTION_TENSORS,
    HEAD_NORMS(0),  GATED_FFN_TENSORS, SPARSE_TENSORS,
};

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

static const arch_tensor arcee_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), PLAIN_FFN,
};

static const arch_tensor apertus_tensors[] = {
    GLOBAL_TENSORS,
    ROPE_FACTORS,
    LAYER_VECTOR(ROLE_ATTN_NORM, "attn_norm.weight", "attention_layernorm.weight", DIM_EMBD, 0),
    PROJECTIONS,
    HEAD_NORMS(0),
    LAYER_VECTOR(ROLE_FFN_NORM, "ffn_norm.weight", "feedforward_layernorm.weight", DIM_EMBD, 0),
    PLAIN_FFN,
};

static const arch_tensor cohere_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, EACH_HEAD_NORMS, GATED_FFN,
};

static const arch_tensor gated_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), GATED_FFN,
};

/* Norms without weights, a number per head after the norm of queries, and the normed embedding that
 * every layer adds. */
static const arch_tensor talkie_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_UNSCALED},
    OUTPUT_SKETCH,
    BARE_NORM(ROLE_EMBD_NORM, "token_embd_norm"),
    BARE_NORM(ROLE_OUTPUT_NORM, "output_norm"),
    BARE_LAYER_NORM(ROLE_ATTN_NORM, "attn_norm"),
    PROJECTIONS,
    {ROLE_ATTN_Q_NORM,
     "blk.%d.attn_q_norm.weight",
     NULL,
     {DIM_ONE, DIM_HEADS},
     TENSOR_PER_LAYER | TENSOR_F32},
    {ROLE_ATTN_K_NORM,
     "blk.%d.attn_k_norm.weight",
     NULL,
     {DIM_HEAD, DIM_HEADS_KV},
     TENSOR_PER_LAYER | TENSOR_F32 | TENSOR_ONES},
    BARE_LAYER_NORM(ROLE_FFN_NORM, "ffn_norm"),
    LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,
                 TENSOR_NEURON_ROWS | TENSOR_UNSCALED),
    LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,
                 TENSOR_NEURON_ROWS | TENSOR_UNSCALED),
    FFN_DOWN,
    PLAIN_VECTOR(ROLE_EMBD_SKIP, "layer_output_scale.weight", DIM_ONE, 0),
};

/* Gated FFN and norms of attention heads. */
static const arch_tensor gated_head_norms_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, HEAD_NORMS(0), FFN_NORM(0), GATED_FFN,
};

/* Norms before and after each block. */
static const arch_tensor gemma2_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), POST_NORMS, GATED_FFN,
};

static const arch_tensor gemma3_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, HEAD_NORMS(0), FFN_NORM(0), POST_NORMS, GATED_FFN,
};

static const arch_tensor glm4_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), POST_NORMS, FUSED_FFN,
};

/* Norms only after each block. */
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

/* Layer norms, biases, no gate, learned positions. */
static const arch_tensor gpt2_tensors[] = {
    {ROLE_POS_EMBD, "position_embd.weight", NULL, {DIM_EMBD, DIM_POS}, 0},
    GLOBAL_TENSORS,
    HEAD_NORM_BIAS,
    ATTN_NORM,
    ATTN_NORM_BIAS,
    PROJECTIONS,
    FFN_NORM(0),
    FFN_NORM_BIAS(0),
    PLAIN_FFN,
    FFN_BIASES(TENSOR_OPTIONAL),
};

/* Layer norms with optional biases, optional learned positions, norms over all heads, scales of
 * activations. */
static const arch_tensor mpt_tensors[] = {
    {ROLE_POS_EMBD, "position_embd.weight", NULL, {DIM_EMBD, DIM_POS}, TENSOR_OPTIONAL},
    GLOBAL_TENSORS,
    {ROLE_OUTPUT_NORM_BIAS,
     "output_norm.bias",
     NULL,
     {DIM_EMBD, DIM_NONE},
     TENSOR_F32 | TENSOR_OPTIONAL},
    ATTN_NORM,
    PLAIN_VECTOR(ROLE_ATTN_NORM_BIAS, "attn_norm.bias", DIM_EMBD, TENSOR_OPTIONAL),
    PROJECTIONS,
    PLAIN_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", DIM_Q, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_Q_NORM_BIAS, "attn_q_norm.bias", DIM_Q, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", DIM_KV, TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_ATTN_K_NORM_BIAS, "attn_k_norm.bias", DIM_KV, TENSOR_OPTIONAL),
    FFN_NORM(0),
    FFN_NORM_BIAS(TENSOR_OPTIONAL),
    PLAIN_FFN,
    FFN_BIASES(TENSOR_OPTIONAL),
    PLAIN_VECTOR(ROLE_FFN_ACT_SCALE, "ffn.act.scales", DIM_FF, TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
};

/* One norm for both blocks, which are parallel. */
static const arch_tensor plamo_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    GATED_FFN,
};

/* Norms without weights. */
static const arch_tensor olmo_tensors[] = {
    {ROLE_TOKEN_EMBD, "token_embd.weight", "model.embed_tokens.weight", {DIM_EMBD, DIM_VOCAB}, 0},
    {ROLE_OUTPUT, "output.weight", "lm_head.weight", {DIM_EMBD, DIM_VOCAB}, TENSOR_OPTIONAL},
    BARE_NORM(ROLE_OUTPUT_NORM, "output_norm"),
    BARE_LAYER_NORM(ROLE_ATTN_NORM, "attn_norm"),
    BARE_LAYER_NORM(ROLE_FFN_NORM, "ffn_norm"),
    PROJECTIONS,
    GATED_FFN,
};

#define ATTENTION_GATE                                                                             \
    LAYER_MATRIX(ROLE_ATTN_GATE, "attn_gate", "self_attn.gate_proj", DIM_EMBD, DIM_ATTN_GATE,      \
                 TENSOR_UNSCALED)

/* A norm of the embedding, norms before and after each block, a gate on attention's output. */
static const arch_tensor muse_glimmer_tensors[] = {
    GLOBAL_TENSORS, BARE_NORM(ROLE_EMBD_NORM, "token_embd_norm"),
    ATTN_NORM,      PROJECTIONS,
    ATTENTION_GATE, HEAD_NORMS(0),
    FFN_NORM(0),    POST_NORMS,
    GATED_FFN,
};

/* A gate on each head of attention's output. */
static const arch_tensor spark2_5_tensors[] = {
    GLOBAL_TENSORS, ATTN_NORM, PROJECTIONS, ATTENTION_GATE, FFN_NORM(0), GATED_FFN,
};

static const arch_tensor bloom_tensors[] = {
    GLOBAL_TENSORS,
    HEAD_NORM_BIAS,
    {ROLE_EMBD_NORM,
     "token_embd_norm.weight",
     "model.word_embeddings_layernorm.weight",
     {DIM_EMBD, DIM_NONE},
     TENSOR_F32},
    {ROLE_EMBD_NORM_BIAS,
     "token_embd_norm.bias",
     "model.word_embeddings_layernorm.bias",
     {DIM_EMBD, DIM_NONE},
     TENSOR_F32},
    ATTN_NORM,
    ATTN_NORM_BIAS,
    PROJECTIONS,
    FFN_NORM(0),
    FFN_NORM_BIAS(0),
    PLAIN_FFN,
    FFN_BIASES(0),
};

static const arch_tensor jais_tensors[] = {
    GLOBAL_TENSORS,
    HEAD_NORM_BIAS,
    ATTN_NORM,
    ATTN_NORM_BIAS,
    PROJECTIONS,
    FFN_NORM(0),
    FFN_NORM_BIAS(0),
    GATED_FFN,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,
                 TENSOR_NEURON_VEC),
    FFN_BIASES(0),
};

/* Attention sinks. */
static const arch_tensor granite_swa_tensors[] = {
    GLOBAL_TENSORS,
    ROPE_FACTORS,
    ATTN_NORM,
    PROJECTIONS,
    LAYER_VECTOR(ROLE_ATTN_SINKS, "attn_sinks.weight", "self_attn.sinks", DIM_HEADS, 0),
    FFN_NORM(0),
    GATED_FFN,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    FFN_BIASES(TENSOR_OPTIONAL),
};

/* Compressed attention. */
static const arch_tensor minicpm3_tensors[] = {
    GLOBAL_TENSORS, ROPE_FACTORS, ATTN_NORM, LATENT_ATTENTION, FFN_NORM(0), GATED_FFN,
};

static const arch_tensor phi2_tensors[] = {
    GLOBAL_TENSORS, HEAD_NORM_BIAS, HEAD_BIAS, ATTN_NORM,
    ATTN_NORM_BIAS, PROJECTIONS,    PLAIN_FFN, FFN_BIASES(0),
};

static const arch_tensor phi3_tensors[] = {
    GLOBAL_TENSORS, ROPE_FACTORS, ATTN_NORM, PROJECTIONS, FFN_NORM(0), FUSED_FFN,
};

/* Norms before and after each block, with names that have no ".weight". */
static const arch_tensor plamo3_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS_OF(DIM_VALUES, DIM_ATTN),
    HEAD_NORMS(0),
    FFN_NORM(0),
    LAYER_VECTOR(ROLE_ATTN_POST_NORM, "post_attention_norm", "post_mixer_norm.weight", DIM_EMBD, 0),
    LAYER_VECTOR(ROLE_FFN_POST_NORM, "post_ffw_norm", "post_mlp_norm.weight", DIM_EMBD, 0),
    FUSED_FFN,
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

/* Layers may read the keys and values of another layer. */
#define SHARED_ATTENTION(values)                                                                   \
    LAYER_MATRIX(ROLE_ATTN_Q, "attn_q", "self_attn.q_proj", DIM_EMBD, DIM_Q, 0),                   \
        LAYER_MATRIX(ROLE_ATTN_K, "attn_k", "self_attn.k_proj", DIM_EMBD, DIM_KV, TENSOR_OWN_KV),  \
        LAYER_MATRIX(ROLE_ATTN_V, "attn_v", "self_attn.v_proj", DIM_EMBD, DIM_KV, values),         \
        LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD,  \
                     0),                                                                           \
        LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD,  \
                     TENSOR_OWN_KV),                                                               \
        LAYER_MATRIX(ROLE_ATTN_OUT, "attn_output", "self_attn.o_proj", DIM_Q, DIM_EMBD, 0)

/* Per-layer embeddings: tensors of all layers, and of one layer. */
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

/* Several residual streams, and a low-rank branch parallel to attention. */
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

/* Values may be the keys. Layers with experts also have a dense FFN; both have their own norms
 * before the post-norm of their sum. */
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

#define LLAMA_TENSORS                                                                              \
    GLOBAL_TENSORS, ATTENTION_TENSORS, ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),                      \
        LAYER_VECTOR(ROLE_ATTN_OUT_BIAS, "attn_output.bias", "self_attn.o_proj.bias", DIM_EMBD,    \
                     TENSOR_OPTIONAL),                                                             \
        DENSE_LAYERS_FFN, FFN_NORM(0), EXPERTS,                                                    \
        LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,            \
                     TENSOR_OPTIONAL | TENSOR_NEURON_VEC),                                         \
        FFN_BIASES(TENSOR_OPTIONAL)
static const arch_tensor llama_tensors[] = {LLAMA_TENSORS};
static const arch_tensor granite_tensors[] = {LLAMA_TENSORS, SHARED_EXPERT};

/* Biases of the FFN are not used. */
static const arch_tensor refact_tensors[] = {
    GLOBAL_TENSORS,
    ATTN_NORM,
    PROJECTIONS,
    FFN_NORM(0),
    GATED_FFN,
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF, TENSOR_UNUSED),
    FFN_BIASES(TENSOR_UNUSED),
};

/* ---- rows ----------------------------------------------------------------------------------- */

static const arch_row rows[] = {
    {PWRI_ROW("llama", RMS, INTERLEAVED, SILU, RELU), /* Llama 1-3, Mistral, ProSparse */
     .gating = GATING_SOFTMAX, .has = ARCH_EXPERT_NORM, TENSORS(llama_tensors)},
    {PWRI_ROW("qwen2", RMS, NEOX, SILU, RELU), .has = ARCH_FFN_UNSCALED, TENSORS(qwen2_tensors)},
    {PWRI_ROW("qwen3", RMS, NEOX, SILU, RELU), .qk_norm = NORM_RMS, .classifier = CLASSIFIER_LAST,
     TENSORS(qwen3_tensors)},
    {PWRI_ROW("falcon", LAYER, NEOX, GELU, RELU), .parallel = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(falcon_tensors)},
    {GGUF_ROW("opt", LAYER, NONE, RELU),
     .default_norm_eps = 1e-5f, /* as trained; files of the original PowerInfer lack the key */
     .pos_offset = 2, TENSORS(opt_tensors)},
    {GGUF_ROW("bamboo", RMS, INTERLEAVED, DRELU), TENSORS(llama_tensors)},
    /* The text parts of multimodal models. */
    {GGUF_ROW("qwen2vl", RMS, NEOX, SILU), .axes = AXES_SECTIONS, .has = ARCH_FFN_UNSCALED,
     TENSORS(qwen2vl_tensors)},
    {GGUF_ROW("qwen3vl", RMS, NEOX, SILU), .axes = AXES_INTERLEAVED, .qk_norm = NORM_RMS,
     .classifier = CLASSIFIER_LAST, TENSORS(qwen3vl_tensors)},
    {GGUF_ROW("arcee", RMS, INTERLEAVED, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(arcee_tensors)},
    {GGUF_ROW("apertus", RMS, NEOX, SILU), .xielu = true, .has = ARCH_FFN_UNSCALED,
     .qk_norm = NORM_RMS, TENSORS(apertus_tensors)},
    {GGUF_ROW("cohere2", LAYER, INTERLEAVED, SILU), .parallel = true,
     .has = ARCH_LOGIT_MULTIPLIED | ARCH_ROPE_WINDOWED, .window_period = 4, .one_rope_base = true,
     .qk_norm = NORM_LAYER, TENSORS(cohere_tensors)},
    {GGUF_ROW("command-r", LAYER, INTERLEAVED, SILU), .parallel = true,
     .has = ARCH_FFN_UNSCALED | ARCH_LOGIT_MULTIPLIED, .qk_norm = NORM_LAYER,
     TENSORS(cohere_tensors)},
    {GGUF_ROW("ernie4_5", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("exaone", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(llama_tensors)},
    {GGUF_ROW("exaone4", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_ROPE_WINDOWED,
     .one_rope_base = true, .window_period = 4, .window_layers = 64, /* only the 32B model */
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
    {GGUF_ROW("glm4", RMS, INTERLEAVED, SILU), .axes = AXES_SECTIONS,
     .has = ARCH_FFN_UNSCALED | ARCH_ROPE_SECTIONS, TENSORS(glm4_tensors)},
    {GGUF_ROW("granite", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED | ARCH_ATTN_SCALE | ARCH_ROPE_SWITCH,
     TENSORS(granite_tensors)},
    {GGUF_ROW("hunyuan-dense", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_QK_NORM_LATE,
     .qk_norm = NORM_RMS, TENSORS(gated_head_norms_tensors)},
    {GGUF_ROW("internlm2", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("jais2", LAYER, NEOX, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(biased_tensors)},
    {GGUF_ROW("minicpm", RMS, INTERLEAVED, SILU), .default_embd_scale = 12,
     .default_depth_scale = 1.4f, .default_logit_width = 256, .gating = GATING_SOFTMAX,
     .has = ARCH_FFN_UNSCALED | ARCH_EXPERTS_UNSCALED | ARCH_EXPERT_NORM | ARCH_EMBD_SCALE |
            ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED,
     TENSORS(llama_tensors)},
    {GGUF_ROW("mistral3", RMS, INTERLEAVED, SILU), .gating = GATING_SOFTMAX,
     .has = ARCH_ATTN_TEMPERATURE | ARCH_EXPERT_NORM, TENSORS(llama_tensors)},
    {GGUF_ROW("nemotron", LAYER, NEOX, RELU_SQUARED), .has = ARCH_FFN_UNSCALED,
     TENSORS(biased_tensors)},
    {GGUF_ROW("olmo2", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_ROPE_LOCAL,
     .one_rope_base = true, .window_period = 4, .qk_norm = NORM_RMS, TENSORS(olmo2_tensors)},
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
    {GGUF_ROW("chatglm", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(phi3_tensors)},
    {GGUF_ROW("codeshell", LAYER, NEOX, GELU), .has = ARCH_FFN_UNSCALED, TENSORS(biased_tensors)},
    {GGUF_ROW("gpt2", LAYER, NONE, GELU), .has = ARCH_FFN_UNSCALED, TENSORS(gpt2_tensors)},
    {GGUF_ROW("starcoder", LAYER, NONE, GELU), .has = ARCH_FFN_UNSCALED, TENSORS(gpt2_tensors)},
    {GGUF_ROW("maincoder", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED | ARCH_QK_NORM_LATE,
     .qk_norm = NORM_RMS, TENSORS(gated_head_norms_tensors)},
    {GGUF_ROW("minicpm3", RMS, NEOX, SILU), .default_embd_scale = 12, .default_depth_scale = 1.4f,
     .default_logit_width = 256,
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SCALE | ARCH_RESIDUAL_SCALE | ARCH_LOGIT_MULTIPLIED,
     TENSORS(minicpm3_tensors)},
    {GGUF_ROW("orion", LAYER, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(stablelm_tensors)},
    {GGUF_ROW("pangu-embedded", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(gated_tensors)},
    {GGUF_ROW("xverse", RMS, INTERLEAVED, SILU), .has = ARCH_FFN_UNSCALED, TENSORS(gated_tensors)},
    {GGUF_ROW("baichuan", RMS, INTERLEAVED, SILU), .rope_layers = 32, .alibi = true,
     .alibi_layers = 40, .default_alibi = 8, /* RoPE in the 7B model, ALiBi in the 13B model */
     .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(gated_tensors)},
    {GGUF_ROW("bloom", LAYER, NONE, GELU), .alibi = true, .default_alibi = 8,
     .has = ARCH_FFN_UNSCALED, TENSORS(bloom_tensors)},
    {GGUF_ROW("jais", LAYER, NONE, SILU), .alibi = true, .scale_by_dim = true,
     .has = ARCH_FFN_UNSCALED, TENSORS(jais_tensors)},
    {GGUF_ROW("refact", RMS, NONE, SILU), .alibi = true, .default_alibi = 8,
     .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(refact_tensors)},
    {GGUF_ROW("deci", RMS, INTERLEAVED, SILU), .mixers = MIXER_ATTENTION, .layers = LAYERS_BY_HEADS,
     .has = ARCH_FFN_UNSCALED | ARCH_ATTN_SCALE, TENSORS(llama_tensors)},
    {GGUF_ROW("gptneox", LAYER, NEOX, GELU), .parallel_by_key = true, .has = ARCH_FFN_UNSCALED,
     TENSORS(biased_tensors)},
    {GGUF_ROW("granite_swa", RMS, INTERLEAVED, SILU), .window_period = 1, .rope_by_layer = true,
     .one_rope_base = true,
     .has = ARCH_FFN_UNSCALED | ARCH_EMBD_SCALE | ARCH_RESIDUAL_SCALE | ARCH_LOGIT_DIVIDED |
            ARCH_ATTN_SCALE,
     TENSORS(granite_swa_tensors)},
    {GGUF_ROW("hunyuan_vl", RMS, NEOX, SILU), .axes = AXES_SECTIONS,
     .has = ARCH_FFN_UNSCALED | ARCH_QK_NORM_LATE, .qk_norm = NORM_RMS,
     TENSORS(gated_head_norms_tensors)},
    {GGUF_ROW("mpt", LAYER, NONE, GELU), .alibi = true, .has = ARCH_FFN_UNSCALED | ARCH_QKV_CLAMP,
     .qk_norm = NORM_LAYER, TENSORS(mpt_tensors)},
    {GGUF_ROW("muse-glimmer", RMS, INTERLEAVED, SILU), .post_norm_eps = 1e-8f, .window_period = 4,
     .has = ARCH_FFN_UNSCALED | ARCH_LOGIT_MULTIPLIED | ARCH_LOGIT_SOFTCAP | ARCH_ROPE_WINDOWED,
     .qk_norm = NORM_RMS, TENSORS(muse_glimmer_tensors)},
    {GGUF_ROW("nanbeige", RMS, INTERLEAVED, SILU), .has = ARCH_ATTN_SCALE, TENSORS(gated_tensors)},
    {GGUF_ROW("olmo", LAYER, INTERLEAVED, SILU), .default_norm_eps = 1e-5f,
     .has = ARCH_QKV_CLAMP | ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(olmo_tensors)},
    {GGUF_ROW("openelm", RMS, NEOX, SILU), .has = ARCH_FFN_UNSCALED | ARCH_QKV_BARE,
     .qk_norm = NORM_RMS, TENSORS(gated_head_norms_tensors)},
    {GGUF_ROW("paddleocr", RMS, NEOX, SILU), .axes = AXES_SECTIONS, .has = ARCH_FFN_UNSCALED,
     TENSORS(gated_tensors)},
    {GGUF_ROW("plamo", RMS, NEOX, SILU), .parallel = true,
     .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(plamo_tensors)},
    {GGUF_ROW("plamo3", RMS, NEOX, SILU), .window_period = 8, .local_rope_base = 10000,
     .has = ARCH_FFN_UNSCALED | ARCH_QKV_BARE | ARCH_ROPE_LOCAL, .qk_norm = NORM_RMS,
     TENSORS(plamo3_tensors)},
    {GGUF_ROW("qwen", RMS, NEOX, SILU), .ff_of_both = true,
     .has = ARCH_FFN_UNSCALED | ARCH_OUT_UNBIASED, TENSORS(gated_tensors)},
    {GGUF_ROW("talkie", RMS, NEOX, SILU),
     .has = ARCH_QK_NORM_LATE | ARCH_LOGIT_MULTIPLIED | ARCH_OUT_UNBIASED, .qk_norm = NORM_RMS,
     TENSORS(talkie_tensors)},
    {GGUF_ROW("spark2_5", RMS, NEOX, GELU), .window_period = 1, .has = ARCH_FFN_UNSCALED,
     TENSORS(spark2_5_tensors)},
};

const arch_rows arch_rows_dense = ARCH_ROWS(rows);
