/* arch.c: the architecture table. To add an architecture, add a row; when something does not fit,
 * extend the vocabulary of arch.h rather than asking for the architecture's name elsewhere. */
#include "arch.h"

#include <stdio.h>
#include <string.h>

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
        LAYER_VECTOR(ROLE_ATTN_V_BIAS, "attn_v.bias", "self_attn.v_proj.bias", DIM_KV, flags)

/* `scaling`: TENSOR_SCALE_LAST or TENSOR_UNSCALED. */
#define GATED_FFN_TENSORS(scaling)                                                                 \
    LAYER_VECTOR(ROLE_FFN_NORM, "ffn_norm.weight", "post_attention_layernorm.weight", DIM_EMBD,    \
                 0),                                                                               \
        LAYER_MATRIX(ROLE_FFN_GATE, "ffn_gate", "mlp.gate_proj", DIM_EMBD, DIM_FF,                 \
                     TENSOR_NEURON_ROWS | (scaling)),                                              \
        LAYER_MATRIX(ROLE_FFN_UP, "ffn_up", "mlp.up_proj", DIM_EMBD, DIM_FF,                       \
                     TENSOR_NEURON_ROWS | (scaling)),                                              \
        LAYER_MATRIX(ROLE_FFN_DOWN, "ffn_down", "mlp.down_proj", DIM_FF, DIM_EMBD,                 \
                     TENSOR_NEURON_COLS | (scaling))

#define SPARSE_TENSOR(role, name, dim_in, dim_out, flags)                                          \
    {                                                                                              \
        role, "blk.%d." name, NULL, {dim_in, dim_out},                                             \
            TENSOR_PER_LAYER | TENSOR_OPTIONAL | TENSOR_SPARSE | (flags)                           \
    }

/* What `prepare` adds, and what files of the original PowerInfer have, in any architecture. */
#define SPARSE_TENSORS(scaling)                                                                    \
    SPARSE_TENSOR(ROLE_FC1, "fc1.weight", DIM_EMBD, DIM_RANK, 0),                                  \
        SPARSE_TENSOR(ROLE_FC2, "fc2.weight", DIM_RANK, DIM_FF, TENSOR_NEURON_ROWS),               \
        SPARSE_TENSOR(ROLE_FC2_BIAS, "fc2.bias", DIM_FF, DIM_NONE,                                 \
                      TENSOR_NEURON_VEC | TENSOR_F32),                                             \
        SPARSE_TENSOR(ROLE_FFN_SIGN, "ffn_sign", DIM_EMBD_8, DIM_FF,                               \
                      TENSOR_NEURON_ROWS | TENSOR_RAW),                                            \
        SPARSE_TENSOR(ROLE_FFN_DOWN_T, "ffn_down_t.weight", DIM_EMBD, DIM_FF,                      \
                      TENSOR_NEURON_ROWS | (scaling)),                                             \
        SPARSE_TENSOR(ROLE_FFN_DOWN_T_BIAS, "ffn_down_t.bias", DIM_EMBD, DIM_NONE, TENSOR_F32),    \
        SPARSE_TENSOR(ROLE_FFN_UP_DOWN, "ffn_up_down.weight", DIM_EMBD, DIM_2FF, TENSOR_UNSCALED), \
        SPARSE_TENSOR(ROLE_FFN_FREQ, "ffn_freq", DIM_FF, DIM_NONE,                                 \
                      TENSOR_NEURON_VEC | TENSOR_F32),                                             \
        SPARSE_TENSOR(ROLE_FFN_PERM, "ffn_perm", DIM_FF, DIM_NONE, TENSOR_NEURON_VEC | TENSOR_RAW)

static const arch_tensor llama_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ATTN_OUT_BIAS, "attn_output.bias", "self_attn.o_proj.bias", DIM_EMBD,
                 TENSOR_OPTIONAL),
    GATED_FFN_TENSORS(TENSOR_SCALE_LAST),
    LAYER_VECTOR(ROLE_FFN_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    LAYER_VECTOR(ROLE_FFN_UP_BIAS, "ffn_up.bias", "mlp.up_proj.bias", DIM_FF,
                 TENSOR_OPTIONAL | TENSOR_NEURON_VEC),
    LAYER_VECTOR(ROLE_FFN_DOWN_BIAS, "ffn_down.bias", "mlp.down_proj.bias", DIM_EMBD,
                 TENSOR_OPTIONAL),
    SPARSE_TENSORS(TENSOR_SCALE_LAST),
};

static const arch_tensor qwen2_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(0),
    GATED_FFN_TENSORS(TENSOR_UNSCALED),
    {ROLE_OUTPUT_BIAS,
     "output.bias",
     "lm_head.bias",
     {DIM_VOCAB, DIM_NONE},
     TENSOR_OPTIONAL | TENSOR_F32},
    SPARSE_TENSORS(TENSOR_UNSCALED),
};

static const arch_tensor qwen3_tensors[] = {
    GLOBAL_TENSORS,
    ATTENTION_TENSORS,
    ATTENTION_QKV_BIASES(TENSOR_OPTIONAL),
    LAYER_VECTOR(ROLE_ATTN_Q_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", DIM_HEAD, 0),
    LAYER_VECTOR(ROLE_ATTN_K_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", DIM_HEAD, 0),
    GATED_FFN_TENSORS(TENSOR_SCALE_LAST),
    SPARSE_TENSORS(TENSOR_SCALE_LAST),
};

/* Of Falcon and OPT, whose checkpoints other programs rearrange (Falcon's heads of Q, K and V take
 * turns; OPT's table of positions is longer): they come as GGUF or PWRI files only and have no
 * Hugging Face names here. */
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
    PLAIN_MATRIX(ROLE_FFN_UP, "ffn_up", DIM_EMBD, DIM_FF, TENSOR_NEURON_ROWS | TENSOR_UNSCALED),
    PLAIN_MATRIX(ROLE_FFN_DOWN, "ffn_down", DIM_FF, DIM_EMBD, TENSOR_NEURON_COLS | TENSOR_UNSCALED),
    SPARSE_TENSORS(TENSOR_UNSCALED),
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
    SPARSE_TENSORS(TENSOR_SCALE_LAST),
};

/* ---- rows ----------------------------------------------------------------------------------- */

#define TENSORS(list) .tensors = (list), .n_tensors = (int)(sizeof(list) / sizeof((list)[0]))

static const arch_row arch_table[] = {
    {.name = "llama", /* Llama 1-3, Mistral, ProSparse */
     .hf_types = (const char *const[]){"llama", "sparsellama", "mistral", NULL},
     .norm = NORM_RMS,
     .rope = ROPE_INTERLEAVED,
     .default_activation = ACTIVATION_SILU,
     .pwri_activation = ACTIVATION_RELU,
     TENSORS(llama_tensors)},
    {.name = "qwen2",
     .hf_types = (const char *const[]){"qwen2", NULL},
     .norm = NORM_RMS,
     .rope = ROPE_NEOX,
     .default_activation = ACTIVATION_SILU,
     .pwri_activation = ACTIVATION_RELU,
     TENSORS(qwen2_tensors)},
    {.name = "qwen3",
     .hf_types = (const char *const[]){"qwen3", NULL},
     .norm = NORM_RMS,
     .rope = ROPE_NEOX,
     .default_activation = ACTIVATION_SILU,
     .pwri_activation = ACTIVATION_RELU,
     TENSORS(qwen3_tensors)},
    {.name = "falcon",
     .hf_types = (const char *const[]){NULL},
     .norm = NORM_LAYER,
     .rope = ROPE_NEOX,
     .parallel = true,
     .default_activation = ACTIVATION_GELU,
     .pwri_activation = ACTIVATION_RELU,
     TENSORS(falcon_tensors)},
    {.name = "opt",
     .hf_types = (const char *const[]){NULL},
     .norm = NORM_LAYER,
     .default_norm_eps = 1e-5f, /* as trained; the original's files have no key */
     .rope = ROPE_NONE,
     .pos_offset = 2,
     .default_activation = ACTIVATION_RELU,
     .pwri_activation = ACTIVATION_RELU,
     TENSORS(opt_tensors)},
    {.name = "bamboo",
     .hf_types = (const char *const[]){"bamboo", NULL},
     .norm = NORM_RMS,
     .rope = ROPE_INTERLEAVED,
     .default_activation = ACTIVATION_DRELU,
     .pwri_activation = ACTIVATION_DRELU,
     TENSORS(llama_tensors)},
};

enum { ARCH_COUNT = sizeof arch_table / sizeof arch_table[0] };

/* ---- look-ups ------------------------------------------------------------------------------- */

int arch_count(void) {
    return ARCH_COUNT;
}

const arch_row *arch_at(int i) {
    return i >= 0 && i < ARCH_COUNT ? &arch_table[i] : NULL;
}

const arch_row *arch_find(const char *name, uint64_t n_bytes) {
    for (int i = 0; i < ARCH_COUNT; i++) {
        const char *candidate = arch_table[i].name;
        if (strlen(candidate) == n_bytes && memcmp(candidate, name, n_bytes) == 0)
            return &arch_table[i];
    }
    return NULL;
}

const arch_row *arch_find_hf(const char *model_type) {
    for (int i = 0; i < ARCH_COUNT; i++) {
        for (const char *const *type = arch_table[i].hf_types; *type; type++)
            if (strcmp(*type, model_type) == 0) return &arch_table[i];
    }
    return NULL;
}

const char *arch_list_names(char text[ARCH_LIST_TEXT]) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < ARCH_COUNT && used < ARCH_LIST_TEXT; i++)
        used += (size_t)snprintf(text + used, ARCH_LIST_TEXT - used, "%s%s", i ? ", " : "",
                                 arch_table[i].name);
    return text;
}

int64_t arch_dim_size(arch_dim dim, const arch_sizes *s) {
    switch (dim) {
    case DIM_EMBD:
        return s->n_embd;
    case DIM_VOCAB:
        return s->n_vocab;
    case DIM_FF:
        return s->n_ff;
    case DIM_Q:
        return s->n_head * s->head_dim;
    case DIM_KV:
        return s->n_head_kv * s->head_dim;
    case DIM_HEAD:
        return s->head_dim;
    case DIM_HALF_ROT:
        return s->n_rot / 2;
    case DIM_QKV:
        return (s->n_head + 2 * s->n_head_kv) * s->head_dim;
    case DIM_2FF:
        return 2 * s->n_ff;
    case DIM_EMBD_8:
        return s->n_embd / 8;
    case DIM_RANK:
        return s->n_rank;
    case DIM_POS:
        return s->n_pos;
    case DIM_NONE:
        break;
    }
    return 1;
}

const arch_tensor *arch_tensor_of(const arch_row *row, tensor_role role) {
    for (int i = 0; i < row->n_tensors; i++)
        if (row->tensors[i].role == role) return &row->tensors[i];
    return NULL;
}

void arch_tensor_name(const arch_tensor *t, int layer, char name[64]) {
    if (t->flags & TENSOR_PER_LAYER) {
        const char *rest = strstr(t->name, "%d");
        snprintf(name, 64, "%.*s%d%s", (int)(rest - t->name), t->name, layer, rest + 2);
    } else {
        snprintf(name, 64, "%s", t->name);
    }
}

const char *tensor_role_name(tensor_role role) {
    static const char *const names[ROLE_COUNT] = {
        [ROLE_TOKEN_EMBD] = "token_embd",
        [ROLE_POS_EMBD] = "position_embd",
        [ROLE_ATTN_NORM_BIAS] = "attn_norm.bias",
        [ROLE_ATTN_NORM_2] = "attn_norm_2",
        [ROLE_ATTN_NORM_2_BIAS] = "attn_norm_2.bias",
        [ROLE_ATTN_QKV] = "attn_qkv",
        [ROLE_FFN_NORM_BIAS] = "ffn_norm.bias",
        [ROLE_FC1] = "fc1",
        [ROLE_FC2] = "fc2",
        [ROLE_FC2_BIAS] = "fc2.bias",
        [ROLE_FFN_SIGN] = "ffn_sign",
        [ROLE_FFN_DOWN_T] = "ffn_down_t",
        [ROLE_FFN_UP_DOWN] = "ffn_up_down",
        [ROLE_FFN_FREQ] = "ffn_freq",
        [ROLE_FFN_PERM] = "ffn_perm",
        [ROLE_OUTPUT_NORM_BIAS] = "output_norm.bias",
        [ROLE_ATTN_NORM] = "attn_norm",
        [ROLE_ATTN_Q] = "attn_q",
        [ROLE_ATTN_Q_BIAS] = "attn_q.bias",
        [ROLE_ATTN_K] = "attn_k",
        [ROLE_ATTN_K_BIAS] = "attn_k.bias",
        [ROLE_ATTN_V] = "attn_v",
        [ROLE_ATTN_V_BIAS] = "attn_v.bias",
        [ROLE_ATTN_Q_NORM] = "attn_q_norm",
        [ROLE_ATTN_K_NORM] = "attn_k_norm",
        [ROLE_ATTN_OUT] = "attn_output",
        [ROLE_ATTN_OUT_BIAS] = "attn_output.bias",
        [ROLE_FFN_NORM] = "ffn_norm",
        [ROLE_FFN_GATE] = "ffn_gate",
        [ROLE_FFN_GATE_BIAS] = "ffn_gate.bias",
        [ROLE_FFN_UP] = "ffn_up",
        [ROLE_FFN_UP_BIAS] = "ffn_up.bias",
        [ROLE_FFN_DOWN] = "ffn_down",
        [ROLE_FFN_DOWN_BIAS] = "ffn_down.bias",
        [ROLE_FFN_DOWN_T_BIAS] = "ffn_down_t.bias",
        [ROLE_OUTPUT_NORM] = "output_norm",
        [ROLE_OUTPUT] = "output",
        [ROLE_OUTPUT_BIAS] = "output.bias",
        [ROLE_ROPE_FREQS] = "rope_freqs",
    };
    return (unsigned)role < ROLE_COUNT ? names[role] : "unknown";
}
