/* hf_family.c: the table of families. To add a family, add a row: its model types, its
 * architecture, and the tensors whose names or layout differ from the usual ones (arch_pieces.h's
 * hf_name, and `usual` below). Names are those of the transformers library, or of the checkpoint's
 * code. */
#include "hf_family.h"

#include <stdio.h>
#include <string.h>

#define LAYER "model.layers.%d."
#define TYPES(...)                                                                                 \
    .types = (const char *const[]) {                                                               \
        __VA_ARGS__, NULL                                                                          \
    }
#define DEFAULTS(...)                                                                              \
    .defaults = (const hf_default[]) {                                                             \
        __VA_ARGS__, {                                                                             \
            NULL, 0                                                                                \
        }                                                                                          \
    }
#define TENSORS(list) .tensors = (list), .n_tensors = (int)(sizeof(list) / sizeof((list)[0]))

/* ---- tensors --------------------------------------------------------------------------------- */

#define EXPERTS(prefix, gate, up, down)                                                            \
    {ROLE_EXPERT_GATE, LAYER prefix gate, HF_ALL, HF_PLAIN, false},                                \
        {ROLE_EXPERT_UP, LAYER prefix up, HF_ALL, HF_PLAIN, false}, {                              \
        ROLE_EXPERT_DOWN, LAYER prefix down, HF_ALL, HF_PLAIN, false                               \
    }
#define SHARED(prefix)                                                                             \
    {ROLE_SHARED_GATE, LAYER prefix "gate_proj.weight", HF_ALL, HF_PLAIN, false},                  \
        {ROLE_SHARED_UP, LAYER prefix "up_proj.weight", HF_ALL, HF_PLAIN, false}, {                \
        ROLE_SHARED_DOWN, LAYER prefix "down_proj.weight", HF_ALL, HF_PLAIN, false                 \
    }
#define WITH_BIAS(role, name)                                                                      \
    {role, name ".weight", HF_ALL, HF_PLAIN, false}, {                                             \
        role##_BIAS, name ".bias", HF_ALL, HF_PLAIN, false                                         \
    }
#define RENAMED(role, name)                                                                        \
    { role, name, HF_ALL, HF_PLAIN, false }

/* Tensors that many families have in addition to the names of the architecture table. */
static const hf_tensor usual[] = {
    EXPERTS("mlp.experts.%e.", "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    /* all experts in one tensor, as newer versions of transformers save them */
    {ROLE_EXPERT_GATE, LAYER "mlp.experts.gate_up_proj", HF_FIRST_HALF, HF_PLAIN, false},
    {ROLE_EXPERT_UP, LAYER "mlp.experts.gate_up_proj", HF_SECOND_HALF, HF_PLAIN, false},
    RENAMED(ROLE_EXPERT_DOWN, LAYER "mlp.experts.down_proj"),
    SHARED("mlp.shared_experts."),
};

static const hf_tensor afmoe_tensors[] = {
    RENAMED(ROLE_FFN_NORM, LAYER "pre_mlp_layernorm.weight"),
    RENAMED(ROLE_FFN_POST_NORM, LAYER "post_mlp_layernorm.weight"),
    RENAMED(ROLE_ROUTER, LAYER "mlp.router.gate.weight"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "mlp.expert_bias"),
};

static const hf_tensor bailing_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.word_embeddings.weight"),
    WITH_BIAS(ROLE_ATTN_QKV, LAYER "attention.query_key_value"),
    RENAMED(ROLE_ATTN_Q_NORM, LAYER "attention.query_layernorm.weight"),
    RENAMED(ROLE_ATTN_K_NORM, LAYER "attention.key_layernorm.weight"),
    WITH_BIAS(ROLE_ATTN_OUT, LAYER "attention.dense"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "mlp.gate.expert_bias"),
};

#define LATENT_KV LAYER "self_attn.kv_b_proj.weight"
static const hf_tensor deepseek_tensors[] = {
    {ROLE_ATTN_K_B, LATENT_KV, HF_HEAD_KEYS, HF_PLAIN, false},
    {ROLE_ATTN_V_B, LATENT_KV, HF_HEAD_VALUES, HF_PLAIN, false},
};

static const hf_tensor ernie_tensors[] = {
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "mlp.moe_statics.e_score_correction_bias"),
};

#define EXAONE "transformer.h.%d."
static const hf_tensor exaone_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "transformer.wte.weight"),
    RENAMED(ROLE_OUTPUT_NORM, "transformer.ln_f.weight"),
    RENAMED(ROLE_ATTN_NORM, EXAONE "ln_1.weight"),
    RENAMED(ROLE_ATTN_Q, EXAONE "attn.attention.q_proj.weight"),
    RENAMED(ROLE_ATTN_K, EXAONE "attn.attention.k_proj.weight"),
    RENAMED(ROLE_ATTN_V, EXAONE "attn.attention.v_proj.weight"),
    RENAMED(ROLE_ATTN_OUT, EXAONE "attn.attention.out_proj.weight"),
    RENAMED(ROLE_FFN_NORM, EXAONE "ln_2.weight"),
    RENAMED(ROLE_FFN_GATE, EXAONE "mlp.c_fc_0.weight"),
    RENAMED(ROLE_FFN_UP, EXAONE "mlp.c_fc_1.weight"),
    RENAMED(ROLE_FFN_DOWN, EXAONE "mlp.c_proj.weight"),
};

static const hf_tensor exaone_moe_tensors[] = {
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "mlp.e_score_correction_bias"),
};

/* With and without the prefix of the whole model. Matrices are stored [in][out]. */
#define GPT2(role, name)      RENAMED(role, "transformer.h.%d." name), RENAMED(role, "h.%d." name)
#define GPT2_NORM(role, name) GPT2(role, name ".weight"), GPT2(role##_BIAS, name ".bias")
#define GPT2_MATRIX(role, name)                                                                    \
    {role, "transformer.h.%d." name ".weight", HF_ALL, HF_TRANSPOSED, false},                      \
        {role, "h.%d." name ".weight", HF_ALL, HF_TRANSPOSED, false},                              \
        GPT2(role##_BIAS, name ".bias")
static const hf_tensor gpt2_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "transformer.wte.weight"),
    RENAMED(ROLE_TOKEN_EMBD, "wte.weight"),
    RENAMED(ROLE_POS_EMBD, "transformer.wpe.weight"),
    RENAMED(ROLE_POS_EMBD, "wpe.weight"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "transformer.ln_f"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "ln_f"),
    GPT2_NORM(ROLE_ATTN_NORM, "ln_1"),
    GPT2_MATRIX(ROLE_ATTN_QKV, "attn.c_attn"),
    GPT2_MATRIX(ROLE_ATTN_OUT, "attn.c_proj"),
    GPT2_NORM(ROLE_FFN_NORM, "ln_2"),
    GPT2_MATRIX(ROLE_FFN_UP, "mlp.c_fc"),
    GPT2_MATRIX(ROLE_FFN_DOWN, "mlp.c_proj"),
};

/* With and without the prefix of the whole model; old checkpoints name norms' numbers gamma, beta.
 */
#define BERT(role, name)        RENAMED(role, "bert." name), RENAMED(role, name)
#define BERT_LINEAR(role, name) BERT(role, name ".weight"), BERT(role##_BIAS, name ".bias")
#define BERT_NORM(role, name)                                                                      \
    BERT_LINEAR(role, name), BERT(role, name ".gamma"), BERT(role##_BIAS, name ".beta")
#define BERT_LAYER "encoder.layer.%d."
static const hf_tensor bert_tensors[] = {
    BERT(ROLE_TOKEN_EMBD, "embeddings.word_embeddings.weight"),
    BERT(ROLE_POS_EMBD, "embeddings.position_embeddings.weight"),
    BERT(ROLE_TOKEN_TYPES, "embeddings.token_type_embeddings.weight"),
    BERT_NORM(ROLE_EMBD_NORM, "embeddings.LayerNorm"),
    BERT_LINEAR(ROLE_ATTN_Q, BERT_LAYER "attention.self.query"),
    BERT_LINEAR(ROLE_ATTN_K, BERT_LAYER "attention.self.key"),
    BERT_LINEAR(ROLE_ATTN_V, BERT_LAYER "attention.self.value"),
    BERT_LINEAR(ROLE_ATTN_OUT, BERT_LAYER "attention.output.dense"),
    BERT_NORM(ROLE_ATTN_SUM_NORM, BERT_LAYER "attention.output.LayerNorm"),
    BERT_LINEAR(ROLE_FFN_UP, BERT_LAYER "intermediate.dense"),
    BERT_LINEAR(ROLE_FFN_DOWN, BERT_LAYER "output.dense"),
    BERT_NORM(ROLE_FFN_SUM_NORM, BERT_LAYER "output.LayerNorm"),
};

/* XLM-RoBERTa: BERT's layers with another prefix. */
#define ROBERTA(role, name)        RENAMED(role, "roberta." name), RENAMED(role, name)
#define ROBERTA_LINEAR(role, name) ROBERTA(role, name ".weight"), ROBERTA(role##_BIAS, name ".bias")
static const hf_tensor roberta_tensors[] = {
    ROBERTA(ROLE_TOKEN_EMBD, "embeddings.word_embeddings.weight"),
    ROBERTA(ROLE_POS_EMBD, "embeddings.position_embeddings.weight"),
    ROBERTA(ROLE_TOKEN_TYPES, "embeddings.token_type_embeddings.weight"),
    ROBERTA_LINEAR(ROLE_EMBD_NORM, "embeddings.LayerNorm"),
    ROBERTA_LINEAR(ROLE_ATTN_Q, BERT_LAYER "attention.self.query"),
    ROBERTA_LINEAR(ROLE_ATTN_K, BERT_LAYER "attention.self.key"),
    ROBERTA_LINEAR(ROLE_ATTN_V, BERT_LAYER "attention.self.value"),
    ROBERTA_LINEAR(ROLE_ATTN_OUT, BERT_LAYER "attention.output.dense"),
    ROBERTA_LINEAR(ROLE_ATTN_SUM_NORM, BERT_LAYER "attention.output.LayerNorm"),
    ROBERTA_LINEAR(ROLE_FFN_UP, BERT_LAYER "intermediate.dense"),
    ROBERTA_LINEAR(ROLE_FFN_DOWN, BERT_LAYER "output.dense"),
    ROBERTA_LINEAR(ROLE_FFN_SUM_NORM, BERT_LAYER "output.LayerNorm"),
};

#define BLOOM_QKV "self_attention.query_key_value."
static const hf_tensor bloom_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "transformer.word_embeddings.weight"),
    RENAMED(ROLE_TOKEN_EMBD, "word_embeddings.weight"),
    WITH_BIAS(ROLE_EMBD_NORM, "transformer.word_embeddings_layernorm"),
    WITH_BIAS(ROLE_EMBD_NORM, "word_embeddings_layernorm"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "transformer.ln_f"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "ln_f"),
    GPT2_NORM(ROLE_ATTN_NORM, "input_layernorm"),
    {ROLE_ATTN_QKV, "transformer.h.%d." BLOOM_QKV "weight", HF_GROUPED_QKV, HF_PLAIN, false},
    {ROLE_ATTN_QKV, "h.%d." BLOOM_QKV "weight", HF_GROUPED_QKV, HF_PLAIN, false},
    {ROLE_ATTN_QKV_BIAS, "transformer.h.%d." BLOOM_QKV "bias", HF_GROUPED_QKV, HF_PLAIN, false},
    {ROLE_ATTN_QKV_BIAS, "h.%d." BLOOM_QKV "bias", HF_GROUPED_QKV, HF_PLAIN, false},
    GPT2_NORM(ROLE_ATTN_OUT, "self_attention.dense"),
    GPT2_NORM(ROLE_FFN_NORM, "post_attention_layernorm"),
    GPT2_NORM(ROLE_FFN_UP, "mlp.dense_h_to_4h"),
    GPT2_NORM(ROLE_FFN_DOWN, "mlp.dense_4h_to_h"),
};

#define FALCON "transformer.h.%d."
static const hf_tensor falcon_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "transformer.word_embeddings.weight"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "transformer.ln_f"),
    RENAMED(ROLE_OUTPUT, "lm_head.weight"),
    /* 40B and larger: one norm for attention, one for the FFN */
    WITH_BIAS(ROLE_ATTN_NORM, FALCON "ln_mlp"),
    WITH_BIAS(ROLE_ATTN_NORM, FALCON "input_layernorm"),
    WITH_BIAS(ROLE_ATTN_NORM_2, FALCON "ln_attn"),
    {ROLE_ATTN_QKV, FALCON "self_attention.query_key_value.weight", HF_GROUPED_QKV, HF_PLAIN,
     false},
    RENAMED(ROLE_ATTN_OUT, FALCON "self_attention.dense.weight"),
    RENAMED(ROLE_FFN_UP, FALCON "mlp.dense_h_to_4h.weight"),
    RENAMED(ROLE_FFN_DOWN, FALCON "mlp.dense_4h_to_h.weight"),
};

#define NEOX "gpt_neox.layers.%d."
static const hf_tensor gptneox_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "gpt_neox.embed_in.weight"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "gpt_neox.final_layer_norm"),
    RENAMED(ROLE_OUTPUT, "embed_out.weight"),
    WITH_BIAS(ROLE_ATTN_NORM, NEOX "input_layernorm"),
    {ROLE_ATTN_QKV, NEOX "attention.query_key_value.weight", HF_GROUPED_QKV, HF_PLAIN, false},
    {ROLE_ATTN_QKV_BIAS, NEOX "attention.query_key_value.bias", HF_GROUPED_QKV, HF_PLAIN, false},
    WITH_BIAS(ROLE_ATTN_OUT, NEOX "attention.dense"),
    WITH_BIAS(ROLE_FFN_NORM, NEOX "post_attention_layernorm"),
    WITH_BIAS(ROLE_FFN_UP, NEOX "mlp.dense_h_to_4h"),
    WITH_BIAS(ROLE_FFN_DOWN, NEOX "mlp.dense_4h_to_h"),
};

/* Mamba-2's block under another name. */
#define MAMBA(prefix)                                                                              \
    RENAMED(ROLE_SSM_IN, LAYER prefix "in_proj.weight"),                                           \
        WITH_BIAS(ROLE_SSM_CONV, LAYER prefix "conv1d"),                                           \
        RENAMED(ROLE_SSM_DT_BIAS, LAYER prefix "dt_bias"),                                         \
        {ROLE_SSM_A, LAYER prefix "A_log", HF_ALL, HF_PLAIN, true},                                \
        RENAMED(ROLE_SSM_D, LAYER prefix "D"), RENAMED(ROLE_SSM_NORM, LAYER prefix "norm.weight"), \
        RENAMED(ROLE_SSM_OUT, LAYER prefix "out_proj.weight")

static const hf_tensor falcon_h1_tensors[] = {
    MAMBA("mamba."),
    RENAMED(ROLE_OUTPUT_NORM, "model.final_layernorm.weight"),
    WITH_BIAS(ROLE_FFN_GATE, LAYER "feed_forward.gate_proj"),
    WITH_BIAS(ROLE_FFN_UP, LAYER "feed_forward.up_proj"),
    WITH_BIAS(ROLE_FFN_DOWN, LAYER "feed_forward.down_proj"),
};

static const hf_tensor gemma2_tensors[] = {
    RENAMED(ROLE_FFN_NORM, LAYER "pre_feedforward_layernorm.weight"),
};

static const hf_tensor gemma3n_tensors[] = {
    RENAMED(ROLE_FFN_NORM, LAYER "pre_feedforward_layernorm.weight"),
    RENAMED(ROLE_STREAM_PROJ, "model.altup_projections.%e.weight"),
    RENAMED(ROLE_STREAM_UNEMBD, "model.altup_unembed_projections.%e.weight"),
};

static const hf_tensor gemma4_tensors[] = {
    RENAMED(ROLE_FFN_NORM, LAYER "pre_feedforward_layernorm.weight"),
    RENAMED(ROLE_ROUTER, LAYER "router.proj.weight"),
    {ROLE_EXPERT_GATE, LAYER "experts.gate_up_proj", HF_FIRST_HALF, HF_PLAIN, false},
    {ROLE_EXPERT_UP, LAYER "experts.gate_up_proj", HF_SECOND_HALF, HF_PLAIN, false},
    RENAMED(ROLE_EXPERT_DOWN, LAYER "experts.down_proj"),
    RENAMED(ROLE_LAYER_SCALE, LAYER "layer_scalar"),
};

static const hf_tensor glm4_tensors[] = {
    RENAMED(ROLE_ATTN_POST_NORM, LAYER "post_self_attn_layernorm.weight"),
    RENAMED(ROLE_FFN_POST_NORM, LAYER "post_mlp_layernorm.weight"),
};

static const hf_tensor gpt_oss_tensors[] = {
    WITH_BIAS(ROLE_ROUTER, LAYER "mlp.router"),
    {ROLE_EXPERT_GATE, LAYER "mlp.experts.gate_up_proj", HF_EVEN, HF_MXFP4, false},
    {ROLE_EXPERT_UP, LAYER "mlp.experts.gate_up_proj", HF_ODD, HF_MXFP4, false},
    {ROLE_EXPERT_DOWN, LAYER "mlp.experts.down_proj", HF_ALL, HF_MXFP4, false},
    {ROLE_EXPERT_GATE, LAYER "mlp.experts.gate_up_proj", HF_EVEN, HF_TRANSPOSED, false},
    {ROLE_EXPERT_UP, LAYER "mlp.experts.gate_up_proj", HF_ODD, HF_TRANSPOSED, false},
    {ROLE_EXPERT_DOWN, LAYER "mlp.experts.down_proj", HF_ALL, HF_TRANSPOSED, false},
    {ROLE_EXPERT_GATE_BIAS, LAYER "mlp.experts.gate_up_proj_bias", HF_EVEN, HF_PLAIN, false},
    {ROLE_EXPERT_UP_BIAS, LAYER "mlp.experts.gate_up_proj_bias", HF_ODD, HF_PLAIN, false},
    RENAMED(ROLE_EXPERT_DOWN_BIAS, LAYER "mlp.experts.down_proj_bias"),
};

#define GRANITE_EXPERTS LAYER "block_sparse_moe.input_linear.weight"
#define GRANITE_SHARED  LAYER "shared_mlp.input_linear.weight"
#define GRANITE_BLOCK                                                                              \
    RENAMED(ROLE_ROUTER, LAYER "block_sparse_moe.router.layer.weight"),                            \
        {ROLE_EXPERT_GATE, GRANITE_EXPERTS, HF_FIRST_HALF, HF_PLAIN, false},                       \
        {ROLE_EXPERT_UP, GRANITE_EXPERTS, HF_SECOND_HALF, HF_PLAIN, false},                        \
        RENAMED(ROLE_EXPERT_DOWN, LAYER "block_sparse_moe.output_linear.weight"),                  \
        {ROLE_SHARED_GATE, GRANITE_SHARED, HF_FIRST_HALF, HF_PLAIN, false},                        \
        {ROLE_SHARED_UP, GRANITE_SHARED, HF_SECOND_HALF, HF_PLAIN, false},                         \
        RENAMED(ROLE_SHARED_DOWN, LAYER "shared_mlp.output_linear.weight")
static const hf_tensor granite_moe_tensors[] = {
    GRANITE_BLOCK,
};

/* In models without experts, the shared expert is the FFN. */
static const hf_tensor granite_hybrid_tensors[] = {
    MAMBA("mamba."),
    GRANITE_BLOCK,
    {ROLE_FFN_GATE, GRANITE_SHARED, HF_FIRST_HALF, HF_PLAIN, false},
    {ROLE_FFN_UP, GRANITE_SHARED, HF_SECOND_HALF, HF_PLAIN, false},
    RENAMED(ROLE_FFN_DOWN, LAYER "shared_mlp.output_linear.weight"),
};

static const hf_tensor hunyuan_tensors[] = {
    RENAMED(ROLE_ATTN_Q_NORM, LAYER "self_attn.query_layernorm.weight"),
    RENAMED(ROLE_ATTN_K_NORM, LAYER "self_attn.key_layernorm.weight"),
    RENAMED(ROLE_ROUTER, LAYER "mlp.gate.wg.weight"),
    SHARED("mlp.shared_mlp."),
};

#define INTERNLM_QKV LAYER "attention.wqkv.weight"
static const hf_tensor internlm2_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.tok_embeddings.weight"),
    RENAMED(ROLE_OUTPUT, "output.weight"),
    RENAMED(ROLE_ATTN_NORM, LAYER "attention_norm.weight"),
    {ROLE_ATTN_Q, INTERNLM_QKV, HF_GROUPED_Q, HF_PLAIN, false},
    {ROLE_ATTN_K, INTERNLM_QKV, HF_GROUPED_K, HF_PLAIN, false},
    {ROLE_ATTN_V, INTERNLM_QKV, HF_GROUPED_V, HF_PLAIN, false},
    {ROLE_ATTN_Q_BIAS, LAYER "attention.wqkv.bias", HF_GROUPED_Q, HF_PLAIN, false},
    {ROLE_ATTN_K_BIAS, LAYER "attention.wqkv.bias", HF_GROUPED_K, HF_PLAIN, false},
    {ROLE_ATTN_V_BIAS, LAYER "attention.wqkv.bias", HF_GROUPED_V, HF_PLAIN, false},
    WITH_BIAS(ROLE_ATTN_OUT, LAYER "attention.wo"),
    RENAMED(ROLE_FFN_NORM, LAYER "ffn_norm.weight"),
    RENAMED(ROLE_FFN_GATE, LAYER "feed_forward.w1.weight"),
    RENAMED(ROLE_FFN_UP, LAYER "feed_forward.w3.weight"),
    RENAMED(ROLE_FFN_DOWN, LAYER "feed_forward.w2.weight"),
};

#define KIMI LAYER "self_attn."
static const hf_tensor kimi_linear_tensors[] = {
    {ROLE_ATTN_K_B, LATENT_KV, HF_HEAD_KEYS, HF_PLAIN, false},
    {ROLE_ATTN_V_B, LATENT_KV, HF_HEAD_VALUES, HF_PLAIN, false},
    RENAMED(ROLE_SSM_IN, KIMI "q_proj.weight"),
    RENAMED(ROLE_SSM_IN_K, KIMI "k_proj.weight"),
    RENAMED(ROLE_SSM_IN_V, KIMI "v_proj.weight"),
    RENAMED(ROLE_SSM_GATE_A, KIMI "g_a_proj.weight"),
    RENAMED(ROLE_SSM_GATE_B, KIMI "g_b_proj.weight"),
    RENAMED(ROLE_SSM_ALPHA_A, KIMI "f_a_proj.weight"),
    RENAMED(ROLE_SSM_ALPHA_B, KIMI "f_b_proj.weight"),
    RENAMED(ROLE_SSM_BETA, KIMI "b_proj.weight"),
    RENAMED(ROLE_SSM_CONV, KIMI "q_conv1d.weight"),
    RENAMED(ROLE_SSM_CONV_K, KIMI "k_conv1d.weight"),
    RENAMED(ROLE_SSM_CONV_V, KIMI "v_conv1d.weight"),
    RENAMED(ROLE_SSM_DT_BIAS, KIMI "dt_bias"),
    {ROLE_SSM_A, KIMI "A_log", HF_ALL, HF_PLAIN, true},
    RENAMED(ROLE_SSM_NORM, KIMI "o_norm.weight"),
    RENAMED(ROLE_SSM_OUT, KIMI "o_proj.weight"),
    RENAMED(ROLE_ROUTER, LAYER "block_sparse_moe.gate.weight"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "block_sparse_moe.gate.e_score_correction_bias"),
    EXPERTS("block_sparse_moe.experts.%e.", "w1.weight", "w3.weight", "w2.weight"),
    SHARED("block_sparse_moe.shared_experts."),
};

static const hf_tensor lfm2_tensors[] = {
    RENAMED(ROLE_ATTN_NORM, LAYER "operator_norm.weight"),
    WITH_BIAS(ROLE_ATTN_OUT, LAYER "self_attn.out_proj"),
    RENAMED(ROLE_ATTN_Q_NORM, LAYER "self_attn.q_layernorm.weight"),
    RENAMED(ROLE_ATTN_K_NORM, LAYER "self_attn.k_layernorm.weight"),
    RENAMED(ROLE_SSM_IN, LAYER "conv.in_proj.weight"),
    RENAMED(ROLE_SSM_CONV, LAYER "conv.conv.weight"),
    RENAMED(ROLE_SSM_OUT, LAYER "conv.out_proj.weight"),
    RENAMED(ROLE_FFN_NORM, LAYER "ffn_norm.weight"),
    RENAMED(ROLE_FFN_GATE, LAYER "feed_forward.w1.weight"),
    RENAMED(ROLE_FFN_UP, LAYER "feed_forward.w3.weight"),
    RENAMED(ROLE_FFN_DOWN, LAYER "feed_forward.w2.weight"),
    RENAMED(ROLE_ROUTER, LAYER "feed_forward.gate.weight"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "feed_forward.expert_bias"),
    EXPERTS("feed_forward.experts.%e.", "w1.weight", "w3.weight", "w2.weight"),
};

static const hf_tensor llama4_tensors[] = {
    RENAMED(ROLE_FFN_GATE, LAYER "feed_forward.gate_proj.weight"),
    RENAMED(ROLE_FFN_UP, LAYER "feed_forward.up_proj.weight"),
    RENAMED(ROLE_FFN_DOWN, LAYER "feed_forward.down_proj.weight"),
    RENAMED(ROLE_ROUTER, LAYER "feed_forward.router.weight"),
    {ROLE_EXPERT_GATE, LAYER "feed_forward.experts.gate_up_proj", HF_FIRST_HALF, HF_TRANSPOSED,
     false},
    {ROLE_EXPERT_UP, LAYER "feed_forward.experts.gate_up_proj", HF_SECOND_HALF, HF_TRANSPOSED,
     false},
    {ROLE_EXPERT_DOWN, LAYER "feed_forward.experts.down_proj", HF_ALL, HF_TRANSPOSED, false},
    /* FP8 checkpoints store experts separately */
    EXPERTS("feed_forward.experts.%e.", "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    SHARED("feed_forward.shared_expert."),
};

static const hf_tensor mimo2_tensors[] = {
    RENAMED(ROLE_ATTN_SINKS, LAYER "self_attn.attention_sink_bias"),
};

static const hf_tensor mamba2_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.embeddings.weight"),
    RENAMED(ROLE_OUTPUT_NORM, "model.norm_f.weight"),
    RENAMED(ROLE_ATTN_NORM, LAYER "norm.weight"),
    MAMBA("mixer."),
};

/* Mixtral's block. */
#define BLOCK_SPARSE                                                                               \
    RENAMED(ROLE_ROUTER, LAYER "block_sparse_moe.gate.weight"),                                    \
        EXPERTS("block_sparse_moe.experts.%e.", "w1.weight", "w3.weight", "w2.weight"),            \
        RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "block_sparse_moe.e_score_correction_bias")
static const hf_tensor block_sparse_tensors[] = {
    BLOCK_SPARSE,
};

static const hf_tensor minimax_m3_tensors[] = {
    BLOCK_SPARSE,
    SHARED("block_sparse_moe.shared_experts."),
};

/* Each layer is a single part, named "mixer". */
static const hf_tensor nemotron_h_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.embeddings.weight"),
    RENAMED(ROLE_OUTPUT_NORM, "model.norm_f.weight"),
    RENAMED(ROLE_ATTN_NORM, LAYER "norm.weight"),
    WITH_BIAS(ROLE_ATTN_Q, LAYER "mixer.q_proj"),
    WITH_BIAS(ROLE_ATTN_K, LAYER "mixer.k_proj"),
    WITH_BIAS(ROLE_ATTN_V, LAYER "mixer.v_proj"),
    WITH_BIAS(ROLE_ATTN_OUT, LAYER "mixer.o_proj"),
    MAMBA("mixer."),
    WITH_BIAS(ROLE_FFN_UP, LAYER "mixer.up_proj"),
    WITH_BIAS(ROLE_FFN_DOWN, LAYER "mixer.down_proj"),
    RENAMED(ROLE_ROUTER, LAYER "mixer.gate.weight"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "mixer.gate.e_score_correction_bias"),
    RENAMED(ROLE_EXPERT_UP, LAYER "mixer.experts.%e.up_proj.weight"),
    RENAMED(ROLE_EXPERT_DOWN, LAYER "mixer.experts.%e.down_proj.weight"),
};

#define OPT       "model.decoder."
#define OPT_LAYER OPT "layers.%d."
static const hf_tensor opt_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, OPT "embed_tokens.weight"),
    RENAMED(ROLE_POS_EMBD, OPT "embed_positions.weight"),
    WITH_BIAS(ROLE_OUTPUT_NORM, OPT "final_layer_norm"),
    RENAMED(ROLE_OUTPUT, "lm_head.weight"),
    WITH_BIAS(ROLE_ATTN_NORM, OPT_LAYER "self_attn_layer_norm"),
    WITH_BIAS(ROLE_ATTN_Q, OPT_LAYER "self_attn.q_proj"),
    WITH_BIAS(ROLE_ATTN_K, OPT_LAYER "self_attn.k_proj"),
    WITH_BIAS(ROLE_ATTN_V, OPT_LAYER "self_attn.v_proj"),
    WITH_BIAS(ROLE_ATTN_OUT, OPT_LAYER "self_attn.out_proj"),
    WITH_BIAS(ROLE_FFN_NORM, OPT_LAYER "final_layer_norm"),
    WITH_BIAS(ROLE_FFN_UP, OPT_LAYER "fc1"),
    WITH_BIAS(ROLE_FFN_DOWN, OPT_LAYER "fc2"),
};

static const hf_tensor phi2_tensors[] = {
    WITH_BIAS(ROLE_OUTPUT_NORM, "model.final_layernorm"),
    WITH_BIAS(ROLE_ATTN_OUT, LAYER "self_attn.dense"),
    WITH_BIAS(ROLE_FFN_UP, LAYER "mlp.fc1"),
    WITH_BIAS(ROLE_FFN_DOWN, LAYER "mlp.fc2"),
};

#define DELTA LAYER "linear_attn."
static const hf_tensor qwen3_next_tensors[] = {
    {ROLE_SSM_IN, DELTA "in_proj_qkvz.weight", HF_DELTA_QKV, HF_PLAIN, false},
    {ROLE_SSM_GATE, DELTA "in_proj_qkvz.weight", HF_DELTA_GATE, HF_PLAIN, false},
    RENAMED(ROLE_SSM_BETA_ALPHA, DELTA "in_proj_ba.weight"),
    RENAMED(ROLE_SSM_CONV, DELTA "conv1d.weight"),
    RENAMED(ROLE_SSM_DT_BIAS, DELTA "dt_bias"),
    {ROLE_SSM_A, DELTA "A_log", HF_ALL, HF_PLAIN, true},
    RENAMED(ROLE_SSM_NORM, DELTA "norm.weight"),
    RENAMED(ROLE_SSM_OUT, DELTA "out_proj.weight"),
};

#define QWEN35_DELTA                                                                               \
    {ROLE_SSM_IN, DELTA "in_proj_qkv.weight", HF_TURNS_BEHIND, HF_PLAIN, false},                   \
        {ROLE_SSM_GATE, DELTA "in_proj_z.weight", HF_TURNS, HF_PLAIN, false},                      \
        {ROLE_SSM_BETA, DELTA "in_proj_b.weight", HF_TURNS, HF_PLAIN, false},                      \
        {ROLE_SSM_ALPHA, DELTA "in_proj_a.weight", HF_TURNS, HF_PLAIN, false},                     \
        {ROLE_SSM_CONV, DELTA "conv1d.weight", HF_TURNS_BEHIND, HF_PLAIN, false},                  \
        {ROLE_SSM_DT_BIAS, DELTA "dt_bias", HF_TURNS, HF_PLAIN, false},                            \
        {ROLE_SSM_A, DELTA "A_log", HF_TURNS, HF_PLAIN, true},                                     \
        RENAMED(ROLE_SSM_NORM, DELTA "norm.weight"), {                                             \
        ROLE_SSM_OUT, DELTA "out_proj.weight", HF_TURNS_COLUMNS, HF_PLAIN, false                   \
    }
static const hf_tensor qwen3_5_tensors[] = {
    QWEN35_DELTA,
};

#define GATED_HYPER(role, name)                                                                    \
    RENAMED(role##_NORM, name ".hc_norm.weight"),                                                  \
        RENAMED(role##_DOWN, name ".input_mix_weight_down.weight"),                                \
        RENAMED(role##_UP, name ".input_mix_weight_up.weight")
#define PLE      LAYER "ple."
#define INDEX_QK LAYER "self_attn.indexer.index_qk_proj.weight"
static const hf_tensor qwen4_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.embed_tokens.weight"),
    RENAMED(ROLE_OUTPUT, "lm_head.weight"),
    GATED_HYPER(ROLE_HYPER_HEAD, "model.hyper_connection_mixer"),
    GATED_HYPER(ROLE_HYPER_ATTN, LAYER "attn_hyper_connection"),
    RENAMED(ROLE_HYPER_ATTN_INJECT, LAYER "attn_hyper_connection.block_inject_weight.weight"),
    GATED_HYPER(ROLE_HYPER_FFN, LAYER "mlp_hyper_connection"),
    RENAMED(ROLE_HYPER_FFN_INJECT, LAYER "mlp_hyper_connection.block_inject_weight.weight"),
    QWEN35_DELTA,
    {ROLE_INDEX_Q, INDEX_QK, HF_FIRST_ROWS, HF_PLAIN, false},
    {ROLE_INDEX_K, INDEX_QK, HF_LAST_ROWS, HF_PLAIN, false},
    RENAMED(ROLE_INDEX_Q_NORM, LAYER "self_attn.indexer.q_layernorm.weight"),
    RENAMED(ROLE_INDEX_K_NORM, LAYER "self_attn.indexer.k_layernorm.weight"),
    RENAMED(ROLE_NGRAM_EMBD, PLE "ple_embedding.ngram_embedding.weight"),
    RENAMED(ROLE_NGRAM_EMBD, PLE "ple_embedding.ngram_embedding.shard_%e.weight"),
    RENAMED(ROLE_NGRAM_KEY, PLE "key_proj.weight"),
    RENAMED(ROLE_NGRAM_VALUE, PLE "value_proj.weight"),
    RENAMED(ROLE_NGRAM_KEY_NORM, PLE "norm_key.weight"),
    RENAMED(ROLE_NGRAM_QUERY_NORM, PLE "norm_query.weight"),
    RENAMED(ROLE_NGRAM_CONV_NORM, PLE "norm_conv.weight"),
    RENAMED(ROLE_NGRAM_CONV, PLE "conv1d.weight"),
};

/* All experts in one tensor, each transposed; FP8 checkpoints may store them separately. */
static const hf_tensor qwen3_vl_moe_tensors[] = {
    {ROLE_EXPERT_GATE, LAYER "mlp.experts.gate_up_proj", HF_FIRST_HALF, HF_TRANSPOSED, false},
    {ROLE_EXPERT_UP, LAYER "mlp.experts.gate_up_proj", HF_SECOND_HALF, HF_TRANSPOSED, false},
    {ROLE_EXPERT_DOWN, LAYER "mlp.experts.down_proj", HF_ALL, HF_TRANSPOSED, false},
};

/* Matrices of low rank are stored [in][out]. */
#define RWKV       "rwkv."
#define RWKV_BLOCK RWKV "blocks.%d."
#define RWKV_TIME  RWKV_BLOCK "attention."
#define TRANSPOSED(role, name)                                                                     \
    { role, name, HF_ALL, HF_TRANSPOSED, false }
static const hf_tensor rwkv6_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, RWKV "embeddings.weight"),
    WITH_BIAS(ROLE_EMBD_NORM, RWKV "blocks.0.pre_ln"),
    WITH_BIAS(ROLE_OUTPUT_NORM, RWKV "ln_out"),
    RENAMED(ROLE_OUTPUT, "head.weight"),
    WITH_BIAS(ROLE_ATTN_NORM, RWKV_BLOCK "ln1"),
    RENAMED(ROLE_SSM_SHIFT_X, RWKV_TIME "time_maa_x"),
    RENAMED(ROLE_SSM_SHIFT, RWKV_TIME "time_maa_%[wkvrg]"),
    TRANSPOSED(ROLE_SSM_SHIFT_A, RWKV_TIME "time_maa_w1"),
    TRANSPOSED(ROLE_SSM_SHIFT_B, RWKV_TIME "time_maa_w2"),
    RENAMED(ROLE_SSM_DT_BIAS, RWKV_TIME "time_decay"),
    TRANSPOSED(ROLE_SSM_ALPHA_A, RWKV_TIME "time_decay_w1"),
    TRANSPOSED(ROLE_SSM_ALPHA_B, RWKV_TIME "time_decay_w2"),
    RENAMED(ROLE_SSM_BONUS, RWKV_TIME "time_faaaa"),
    RENAMED(ROLE_SSM_IN, RWKV_TIME "receptance.weight"),
    RENAMED(ROLE_SSM_IN_K, RWKV_TIME "key.weight"),
    RENAMED(ROLE_SSM_IN_V, RWKV_TIME "value.weight"),
    RENAMED(ROLE_SSM_GATE, RWKV_TIME "gate.weight"),
    RENAMED(ROLE_SSM_OUT, RWKV_TIME "output.weight"),
    WITH_BIAS(ROLE_SSM_NORM, RWKV_TIME "ln_x"),
    WITH_BIAS(ROLE_FFN_NORM, RWKV_BLOCK "ln2"),
    RENAMED(ROLE_FFN_SHIFT, RWKV_BLOCK "feed_forward.time_maa_k"),
    RENAMED(ROLE_FFN_SHIFT_R, RWKV_BLOCK "feed_forward.time_maa_r"),
    RENAMED(ROLE_FFN_UP, RWKV_BLOCK "feed_forward.key.weight"),
    RENAMED(ROLE_FFN_RECEPTANCE, RWKV_BLOCK "feed_forward.receptance.weight"),
    RENAMED(ROLE_FFN_DOWN, RWKV_BLOCK "feed_forward.value.weight"),
};

/* The first layer's values need no weights; like llama.cpp's converter, this one repeats others. */
#define LOW_RANK(role, bias, name)                                                                 \
    RENAMED(role##_A, LAYER "attn." name "_lora.lora.0.weight"),                                   \
        RENAMED(role##_B, LAYER "attn." name "_lora.lora.2.weight"),                               \
        RENAMED(bias, LAYER "attn." name "_lora.lora.2.bias")
static const hf_tensor rwkv7_tensors[] = {
    RENAMED(ROLE_TOKEN_EMBD, "model.embeddings.weight"),
    WITH_BIAS(ROLE_EMBD_NORM, "model.layers.0.pre_norm"),
    WITH_BIAS(ROLE_OUTPUT_NORM, "model.norm"),
    RENAMED(ROLE_OUTPUT, "lm_head.weight"),
    WITH_BIAS(ROLE_ATTN_NORM, LAYER "attn_norm"),
    RENAMED(ROLE_SSM_SHIFT, LAYER "attn.x_%[rwkvag]"),
    LOW_RANK(ROLE_SSM_ALPHA, ROLE_SSM_DT_BIAS, "w"),
    LOW_RANK(ROLE_SSM_RATE, ROLE_SSM_RATE_BIAS, "a"),
    LOW_RANK(ROLE_SSM_FIRST, ROLE_SSM_FIRST_BIAS, "v"),
    LOW_RANK(ROLE_SSM_FIRST, ROLE_SSM_FIRST_BIAS, "a"),
    RENAMED(ROLE_SSM_GATE_A, LAYER "attn.g_lora.lora.0.weight"),
    RENAMED(ROLE_SSM_GATE_B, LAYER "attn.g_lora.lora.2.weight"),
    RENAMED(ROLE_SSM_ERASE, LAYER "attn.k_k"),
    RENAMED(ROLE_SSM_RATE_KEY, LAYER "attn.k_a"),
    RENAMED(ROLE_SSM_BONUS, LAYER "attn.r_k"),
    RENAMED(ROLE_SSM_IN, LAYER "attn.r_proj.weight"),
    RENAMED(ROLE_SSM_IN_K, LAYER "attn.k_proj.weight"),
    RENAMED(ROLE_SSM_IN_V, LAYER "attn.v_proj.weight"),
    RENAMED(ROLE_SSM_OUT, LAYER "attn.o_proj.weight"),
    WITH_BIAS(ROLE_SSM_NORM, LAYER "attn.g_norm"),
    WITH_BIAS(ROLE_FFN_NORM, LAYER "ffn_norm"),
    RENAMED(ROLE_FFN_SHIFT, LAYER "ffn.x_k"),
    RENAMED(ROLE_FFN_UP, LAYER "ffn.key.weight"),
    RENAMED(ROLE_FFN_DOWN, LAYER "ffn.value.weight"),
};

static const hf_tensor smallthinker_tensors[] = {
    RENAMED(ROLE_ROUTER, LAYER "block_sparse_moe.primary_router.weight"),
    EXPERTS("block_sparse_moe.experts.%e.", "gate.weight", "up.weight", "down.weight"),
};

static const hf_tensor stablelm_tensors[] = {
    RENAMED(ROLE_ATTN_Q_NORM, LAYER "self_attn.q_layernorm.norms.%e.weight"),
    RENAMED(ROLE_ATTN_K_NORM, LAYER "self_attn.k_layernorm.norms.%e.weight"),
};

static const hf_tensor starcoder2_tensors[] = {
    WITH_BIAS(ROLE_FFN_UP, LAYER "mlp.c_fc"),
    WITH_BIAS(ROLE_FFN_DOWN, LAYER "mlp.c_proj"),
};

static const hf_tensor step35_tensors[] = {
    RENAMED(ROLE_ROUTER, LAYER "moe.gate.weight"),
    RENAMED(ROLE_ROUTER_SELECT_BIAS, LAYER "moe.router_bias"),
    EXPERTS("moe.", "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    SHARED("share_expert."),
};

/* ---- rows ------------------------------------------------------------------------------------ */

#define PARTLY_ROTATED(share)                                                                      \
    { "partial_rotary_factor", share }

static const hf_family families[] = {
    {TYPES("llama", "sparsellama", "mistral", "internlm3"), .arch = "llama"},
    {TYPES("mixtral"), .arch = "llama", TENSORS(block_sparse_tensors)},
    {TYPES("bamboo"), .arch = "bamboo"},
    {TYPES("qwen2"), .arch = "qwen2"},
    {TYPES("qwen3"), .arch = "qwen3"},
    {TYPES("qwen2_moe"), .arch = "qwen2moe"},
    {TYPES("qwen3_moe"), .arch = "qwen3moe"},
    {TYPES("falcon", "RefinedWeb", "RefinedWebModel"), .arch = "falcon",
     DEFAULTS({"max_position_embeddings", 2048}), TENSORS(falcon_tensors)},
    {TYPES("opt"), .arch = "opt", TENSORS(opt_tensors)},
    {TYPES("apertus"), .arch = "apertus"},
    {TYPES("afmoe"), .arch = "afmoe", TENSORS(afmoe_tensors)},
    {TYPES("arcee"), .arch = "arcee"},
    {TYPES("bailing_moe_v2", "BailingMoeV2ForCausalLM"), .arch = "bailingmoe2",
     DEFAULTS(PARTLY_ROTATED(0.5)), TENSORS(bailing_tensors)},
    {TYPES("cohere"), .arch = "command-r", .flags = HF_INTERLEAVED},
    {TYPES("cohere2"), .arch = "cohere2", .flags = HF_INTERLEAVED},
    {TYPES("cohere2_moe"), .arch = "cohere2moe", .flags = HF_INTERLEAVED},
    {TYPES("deepseek"), .arch = "deepseek"},
    {TYPES("deepseek_v2", "deepseek_v3", "kimi_k2"), .arch = "deepseek2", .flags = HF_INTERLEAVED,
     .pre = "kimi-k2", /* the only family with a tiktoken file */
     TENSORS(deepseek_tensors)},
    {TYPES("deepseek_v32"), .arch = "deepseek32", .flags = HF_INTERLEAVED,
     TENSORS(deepseek_tensors)},
    {TYPES("glm_moe_dsa"), .arch = "glm-dsa", .flags = HF_INTERLEAVED, TENSORS(deepseek_tensors)},
    {TYPES("dots1"), .arch = "dots1"},
    {TYPES("ernie4_5"), .arch = "ernie4_5", .flags = HF_INTERLEAVED},
    {TYPES("ernie4_5_moe"), .arch = "ernie4_5-moe", .flags = HF_INTERLEAVED,
     TENSORS(ernie_tensors)},
    {TYPES("exaone"), .arch = "exaone", TENSORS(exaone_tensors)},
    {TYPES("exaone4"), .arch = "exaone4"},
    {TYPES("exaone_moe"), .arch = "exaone-moe", TENSORS(exaone_moe_tensors)},
    {TYPES("falcon_h1"), .arch = "falcon-h1", .flags = HF_MULTIPLIED, TENSORS(falcon_h1_tensors)},
    {TYPES("gemma"), .arch = "gemma", .flags = HF_NORMS_LESS_ONE},
    {TYPES("gemma2"), .arch = "gemma2", .flags = HF_NORMS_LESS_ONE, TENSORS(gemma2_tensors)},
    /* config.json of the larger models omits defaults of transformers */
    {TYPES("gemma3_text", "gemma3"), .arch = "gemma3", .flags = HF_NORMS_LESS_ONE,
     DEFAULTS({"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 256},
              {"vocab_size", 262208}, {"max_position_embeddings", 131072}, {"rope_theta", 1e6},
              {"rope_local_base_freq", 1e4}, {"query_pre_attn_scalar", 256}),
     TENSORS(gemma2_tensors)},
    {TYPES("gemma3n", "gemma3n_text"), .arch = "gemma3n",
     DEFAULTS({"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"head_dim", 256},
              {"max_position_embeddings", 32768}, {"rope_theta", 1e6},
              {"rope_local_base_freq", 1e4}, {"sliding_window", 512},
              {"final_logit_softcapping", 30}),
     TENSORS(gemma3n_tensors)},
    {TYPES("gemma4", "gemma4_text"), .arch = "gemma4", .pre = "gemma4", TENSORS(gemma4_tensors)},
    {TYPES("glm"), .arch = "chatglm", .flags = HF_INTERLEAVED, DEFAULTS(PARTLY_ROTATED(0.5))},
    {TYPES("glm4"), .arch = "glm4", .flags = HF_INTERLEAVED, DEFAULTS(PARTLY_ROTATED(0.5)),
     TENSORS(glm4_tensors)},
    {TYPES("glm4_moe"), .arch = "glm4moe", DEFAULTS(PARTLY_ROTATED(0.5))},
    {TYPES("bert"), .arch = "bert", TENSORS(bert_tensors)},
    {TYPES("xlm-roberta"), .arch = "bert", .flags = HF_POSITIONS_AFTER_PAD,
     TENSORS(roberta_tensors)},
    {TYPES("bloom"), .arch = "bloom", .flags = HF_WIDTH_FOUR,
     DEFAULTS({"max_position_embeddings", 2048}), TENSORS(bloom_tensors)},
    {TYPES("gpt2"), .arch = "gpt2", .flags = HF_WIDTH_FOUR, TENSORS(gpt2_tensors)},
    {TYPES("gpt_oss"), .arch = "gpt-oss", TENSORS(gpt_oss_tensors)},
    {TYPES("granite"), .arch = "granite"},
    {TYPES("granitemoe", "granitemoeshared"), .arch = "granitemoe", TENSORS(granite_moe_tensors)},
    {TYPES("granitemoehybrid"), .arch = "granitehybrid", TENSORS(granite_hybrid_tensors)},
    {TYPES("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"), .arch = "hunyuan-dense",
     .pre = "hunyuan-dense", TENSORS(hunyuan_tensors)},
    {TYPES("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"), .arch = "hunyuan-moe", .pre = "hunyuan",
     TENSORS(hunyuan_tensors)},
    {TYPES("internlm2"), .arch = "internlm2", TENSORS(internlm2_tensors)},
    {TYPES("jais2"), .arch = "jais2"},
    {TYPES("kimi_linear", "KimiLinearForCausalLM"), .arch = "kimi-linear", .pre = "kimi-k2",
     TENSORS(kimi_linear_tensors)},
    {TYPES("lfm2"), .arch = "lfm2", TENSORS(lfm2_tensors)},
    {TYPES("lfm2_moe"), .arch = "lfm2moe", TENSORS(lfm2_tensors)},
    {TYPES("llama4", "llama4_text"), .arch = "llama4", .flags = HF_INTERLEAVED,
     DEFAULTS({"attention_chunk_size", 8192}, {"attn_scale", 0.1}), TENSORS(llama4_tensors)},
    {TYPES("maincoder"), .arch = "maincoder", .flags = HF_INTERLEAVED},
    {TYPES("mamba2"), .arch = "mamba2", DEFAULTS({"max_position_embeddings", 1 << 20}),
     TENSORS(mamba2_tensors)},
    {TYPES("mellum", "MellumForCausalLM"), .arch = "mellum"},
    {TYPES("mimo_v2_flash", "mimo_v2"), .arch = "mimo2", TENSORS(mimo2_tensors)},
    {TYPES("minicpm"), .arch = "minicpm"},
    {TYPES("minimax_m2", "MiniMaxM2ForCausalLM"), .arch = "minimax-m2",
     TENSORS(block_sparse_tensors)},
    {TYPES("minimax_m3", "minimax_m3_vl", "MiniMaxM3SparseForCausalLM"), .arch = "minimax-m3",
     .flags = HF_NORMS_LESS_ONE, DEFAULTS({"norm_topk_prob", 1}), TENSORS(minimax_m3_tensors)},
    {TYPES("mistral3", "ministral3"), .arch = "mistral3"},
    {TYPES("mistral4"), .arch = "mistral4", .flags = HF_INTERLEAVED, TENSORS(deepseek_tensors)},
    {TYPES("nemotron"), .arch = "nemotron", .flags = HF_NORMS_LESS_ONE,
     DEFAULTS(PARTLY_ROTATED(0.5))},
    {TYPES("nemotron_h"), .arch = "nemotron_h", .with_experts = "nemotron_h_moe",
     TENSORS(nemotron_h_tensors)},
    {TYPES("nemotron_h_moe"), .arch = "nemotron_h_moe", TENSORS(nemotron_h_tensors)},
    {TYPES("gpt_neox"), .arch = "gptneox", DEFAULTS(PARTLY_ROTATED(0.25)),
     TENSORS(gptneox_tensors)},
    {TYPES("olmo"), .arch = "olmo"},
    {TYPES("olmo2", "olmo3"), .arch = "olmo2"},
    {TYPES("olmoe"), .arch = "olmoe"},
    {TYPES("orion", "OrionForCausalLM"), .arch = "orion"},
    {TYPES("PanguEmbedded", "PanguEmbeddedForCausalLM"), .arch = "pangu-embedded"},
    {TYPES("phi"), .arch = "phi2", DEFAULTS(PARTLY_ROTATED(0.5)), TENSORS(phi2_tensors)},
    {TYPES("phi3"), .arch = "phi3"},
    {TYPES("phimoe"), .arch = "phimoe", TENSORS(block_sparse_tensors)},
    {TYPES("qwen3_next"), .arch = "qwen3next", .flags = HF_NORMS_LESS_ONE,
     DEFAULTS(PARTLY_ROTATED(0.25)), TENSORS(qwen3_next_tensors)},
    {TYPES("qwen3_5", "qwen3_5_text"), .arch = "qwen35", .flags = HF_NORMS_LESS_ONE | HF_SECTIONS,
     DEFAULTS(PARTLY_ROTATED(0.25)), TENSORS(qwen3_5_tensors)},
    {TYPES("qwen3_5_moe", "qwen3_5_moe_text"), .arch = "qwen35moe",
     .flags = HF_NORMS_LESS_ONE | HF_SECTIONS, DEFAULTS(PARTLY_ROTATED(0.25)),
     TENSORS(qwen3_5_tensors)},
    {TYPES("qwen4_exp", "qwen4_exp_text"), .arch = "qwen4exp",
     .flags = HF_NORMS_LESS_ONE | HF_SECTIONS,
     DEFAULTS(PARTLY_ROTATED(0.25), {"norm_topk_prob", 1}), TENSORS(qwen4_tensors)},
    {TYPES("qwen2_vl", "qwen2_5_vl"), .arch = "qwen2vl", .flags = HF_SECTIONS},
    {TYPES("qwen3_vl", "qwen3_vl_text"), .arch = "qwen3vl", .flags = HF_SECTIONS},
    {TYPES("qwen3_vl_moe", "qwen3_vl_moe_text"), .arch = "qwen3vlmoe", .flags = HF_SECTIONS,
     TENSORS(qwen3_vl_moe_tensors)},
    {TYPES("rwkv6", "Rwkv6ForCausalLM"), .arch = "rwkv6", .flags = HF_WIDTH_SEVEN_HALVES,
     DEFAULTS({"max_position_embeddings", 1 << 20}), TENSORS(rwkv6_tensors)},
    {TYPES("rwkv7", "Rwkv7ForCausalLM", "RWKV7ForCausalLM"), .arch = "rwkv7",
     .flags = HF_WIDTH_FOUR, DEFAULTS({"max_position_embeddings", 1 << 20}),
     TENSORS(rwkv7_tensors)},
    {TYPES("seed_oss"), .arch = "seed_oss"},
    {TYPES("smallthinker"), .arch = "smallthinker", TENSORS(smallthinker_tensors)},
    {TYPES("smollm3"), .arch = "smollm3"},
    {TYPES("stablelm"), .arch = "stablelm", DEFAULTS(PARTLY_ROTATED(0.25)),
     TENSORS(stablelm_tensors)},
    {TYPES("starcoder2"), .arch = "starcoder2", TENSORS(starcoder2_tensors)},
    {TYPES("step3p5", "Step3p5ForCausalLM"), .arch = "step35", .flags = HF_NORMS_LESS_ONE,
     TENSORS(step35_tensors)},
    {TYPES("xverse"), .arch = "xverse"},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* ---- look-up --------------------------------------------------------------------------------- */

int hf_family_count(void) {
    return N_FAMILIES;
}

const hf_family *hf_family_at(int i) {
    return i >= 0 && i < N_FAMILIES ? &families[i] : NULL;
}

const hf_family *hf_family_find(const char *type) {
    for (int i = 0; i < N_FAMILIES; i++)
        for (const char *const *known = families[i].types; *known; known++)
            if (strcmp(*known, type) == 0) return &families[i];
    return NULL;
}

const arch_row *hf_family_arch(const hf_family *family) {
    return arch_find(family->arch, strlen(family->arch));
}

bool hf_family_source(const hf_family *family, const arch_tensor *row, int i, hf_tensor *out) {
    for (int k = 0; k < family->n_tensors; k++) {
        if (family->tensors[k].role != row->role || i-- > 0) continue;
        *out = family->tensors[k];
        return true;
    }
    if (row->hf_name && i-- == 0) {
        *out = (hf_tensor)RENAMED(row->role, row->hf_name);
        return true;
    }
    for (size_t k = 0; k < sizeof usual / sizeof usual[0]; k++) {
        if (usual[k].role != row->role || i-- > 0) continue;
        *out = usual[k];
        return true;
    }
    return false;
}

/* Names of classes, such as FalconForCausalLM, begin with a capital letter. */
static bool is_class(const char *type) {
    return type[0] >= 'A' && type[0] <= 'Z';
}

const char *hf_family_list(char text[HF_LIST_TEXT]) {
    static const char rest[] = " and others";
    size_t used = 0, room = HF_LIST_TEXT - sizeof rest;
    text[0] = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        for (const char *const *type = families[i].types; *type; type++) {
            if (is_class(*type)) continue;
            if (used + strlen(*type) + 2 > room) {
                memcpy(text + used, rest, sizeof rest);
                return text;
            }
            used += (size_t)snprintf(text + used, HF_LIST_TEXT - used, "%s%s", used ? ", " : "",
                                     *type);
        }
    }
    return text;
}
