/* arch.h: what an architecture is: one constant row of a table. No code elsewhere asks which
 * architecture it has; it asks the row. Loader, validator, planner, converter, synth and inspect
 * all read the same row. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"

typedef enum norm_kind { NORM_NONE, NORM_RMS, NORM_LAYER } norm_kind;
typedef enum rope_kind {
    ROPE_NONE,
    ROPE_INTERLEAVED, /* pairs (2i, 2i+1): Q and K rows are permuted by converters */
    ROPE_NEOX         /* pairs (i, i + n_rot/2) */
} rope_kind;

/* Roles of tensors. The order is that of execution. */
typedef enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_POS_EMBD, /* learned positions; row of position p is p + pos_offset */
    /* Embeddings per layer (Gemma 3n; Gemma 4 E2B, E4B): each layer adds a vector that depends on
     * the token. */
    ROLE_LAYER_EMBD,      /* table: a row has the vectors of all layers, one after the other */
    ROLE_LAYER_EMBD_PROJ, /* makes the same of the token's embedding; both are added */
    ROLE_LAYER_EMBD_NORM, /* of one layer's part of the product */
    /* Alternating updates (AltUp; Baykal et al. 2023, arXiv 2301.13310): a token has several
     * residual streams, of which layers compute one; the others follow by what a router says. */
    ROLE_STREAM_PROJ,        /* the other streams of the first one, a matrix for each */
    ROLE_STREAM_ROUTER_NORM, /* of the router's input */
    ROLE_STREAM_ROUTER,
    ROLE_STREAM_PREDICT, /* before a layer: coefficients by which streams are mixed */
    ROLE_ATTN_NORM,
    ROLE_ATTN_NORM_BIAS,
    ROLE_ATTN_NORM_2, /* attention's own norm where the halves run in parallel (Falcon 40B) */
    ROLE_ATTN_NORM_2_BIAS,
    ROLE_ATTN_QKV,      /* fused Q, K, V rows; bound as three tensors */
    ROLE_ATTN_QKV_BIAS, /* of these; bound as three */
    ROLE_ATTN_Q,
    ROLE_ATTN_Q_BIAS,
    ROLE_ATTN_K,
    ROLE_ATTN_K_BIAS,
    ROLE_ATTN_V,
    ROLE_ATTN_V_BIAS,
    ROLE_LAUREL_A, /* a branch of low rank beside attention (LAuReL; Menghani et al. 2024, arXiv
                      2411.07501): into it, and back */
    ROLE_LAUREL_B,
    ROLE_LAUREL_NORM, /* of its result */
    ROLE_ATTN_GATE,   /* attention's result is multiplied by the sigmoid of this product */
    /* Compressed attention (MLA; DeepSeek-V2, arXiv 2405.04434): a position is cached as one latent
     * vector and one rotated key that all heads share. */
    ROLE_ATTN_Q_A, /* queries' latent vector; absent: ATTN_Q makes queries of the input */
    ROLE_ATTN_Q_A_NORM,
    ROLE_ATTN_Q_B,       /* queries of it: per head n_nope elements, then n_rot rotated ones */
    ROLE_ATTN_KV_A,      /* the latent vector of keys and values, then the rotated key */
    ROLE_ATTN_KV_A_NORM, /* of the latent vector */
    ROLE_ATTN_KV_B,      /* per head rows of keys, then of values; bound as the next two */
    ROLE_ATTN_K_B, /* per head: from a query to the latent vector, the transposed matrix of keys */
    ROLE_ATTN_V_B, /* per head: from the latent vector to values */
    ROLE_ATTN_Q_NORM,
    ROLE_ATTN_K_NORM,
    ROLE_ATTN_SINKS, /* attention sink: an extra score per head */
    ROLE_ATTN_OUT,
    ROLE_ATTN_OUT_BIAS,
    /* Sparse attention (MiniMax-M3): which blocks of positions a token attends to, in contexts of
     * more than attention.indexer.top_k of them. */
    ROLE_INDEX_Q, /* a query for each head of keys */
    ROLE_INDEX_K, /* the key that these share */
    ROLE_INDEX_Q_NORM,
    ROLE_INDEX_K_NORM,
    /* Recurrent mixers. */
    ROLE_SSM_IN,   /* what is convolved, with Mamba-2's gate and steps or LFM2's gates */
    ROLE_SSM_QKVZ, /* SSM_IN and SSM_GATE of the delta rule, head of keys by head of keys: its
                      query, its key, the values and the gates of its heads; bound as these two */
    ROLE_SSM_IN_K, /* keys and values where these are matrices of their own (KDA) */
    ROLE_SSM_IN_V,
    ROLE_SSM_GATE,   /* gate of the result */
    ROLE_SSM_GATE_A, /* the same in two products */
    ROLE_SSM_GATE_B,
    ROLE_SSM_ALPHA_A, /* alphas, one per element of a key, in two products */
    ROLE_SSM_ALPHA_B,
    ROLE_SSM_BETA_ALPHA, /* delta rule: per group the betas of its heads, then their alphas */
    ROLE_SSM_BETA,       /* how much of a head's state is written anew */
    ROLE_SSM_ALPHA,      /* how much of it stays */
    ROLE_SSM_CONV,
    ROLE_SSM_CONV_K, /* KDA: of keys and of values */
    ROLE_SSM_CONV_V,
    ROLE_SSM_CONV_BIAS,
    ROLE_SSM_DT_BIAS, /* added to steps and alphas */
    ROLE_SSM_A,       /* decay of a head's state */
    ROLE_SSM_D,       /* how much of its input goes past the state */
    ROLE_SSM_NORM,    /* of the result */
    ROLE_SSM_OUT,
    ROLE_ATTN_POST_NORM, /* post-norm of attention */
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_BIAS,
    ROLE_FC1,         /* predictor: residual or normed input -> rank */
    ROLE_FC2,         /* predictor: rank -> one score per neuron */
    ROLE_FC2_BIAS,    /* added to the scores */
    ROLE_FFN_SIGN,    /* signs of the gate's weights, one bit each */
    ROLE_FFN_GATE_UP, /* fused gate and up rows; bound as two tensors */
    ROLE_FFN_GATE,
    ROLE_FFN_GATE_BIAS,
    ROLE_FFN_UP,
    ROLE_FFN_UP_BIAS,
    ROLE_FFN_DOWN,
    ROLE_FFN_DOWN_T, /* the same transposed: a row per neuron */
    ROLE_FFN_BUNDLE, /* rows of gate, up and DOWN_T neuron by neuron (bundle.h); bound as these */
    ROLE_FFN_DOWN_BIAS,
    ROLE_FFN_DOWN_T_BIAS, /* the same under another name; bound as that */
    ROLE_FFN_POST_NORM,   /* post-norm of the FFN */
    ROLE_FFN_POST_NORM_1, /* of the FFN alone, where a layer has experts beside it (Gemma 4) */
    ROLE_FFN_FREQ,        /* frequency of each neuron, or expert, hottest first */
    ROLE_FFN_PERM,        /* source index of each stored neuron */
    ROLE_ROUTER,          /* router; where present, the layer is a mixture of experts */
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_SCALE, /* the router reads the layer's bare RMS norm times this / sqrt(n_embd) */
    ROLE_ROUTER_SELECT_BIAS, /* added to the scores for selecting experts, not to their weights */
    ROLE_EXPERT_PRE_NORM,    /* the experts' own norm */
    /* Matrices of all experts, one after the other; biases a row per expert. */
    ROLE_EXPERT_GATE_UP, /* per expert rows of gate, then of up */
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_GATE_BIAS,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_UP_BIAS,
    ROLE_EXPERT_DOWN,
    ROLE_EXPERT_DOWN_T, /* the same, a row per neuron */
    ROLE_EXPERT_BUNDLE, /* all matrices of an expert side by side (bundle.h); bound as these */
    ROLE_EXPERT_DOWN_BIAS,
    ROLE_EXPERT_PERM,       /* source index of each stored expert */
    ROLE_EXPERT_DOWN_SCALE, /* of each expert's output; the matrix has it too */
    ROLE_EXPERT_POST_NORM,  /* of the experts' sum */
    ROLE_SHARED_ROUTER,     /* the shared expert's weight: sigmoid of a product */
    ROLE_SHARED_GATE,       /* the shared expert */
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    ROLE_STREAM_CORRECT,       /* after a layer: how far each stream follows the computed one */
    ROLE_STREAM_CORRECT_SCALE, /* of the computed one, for the layer's embedding */
    ROLE_LAYER_EMBD_GATE,      /* the layer's embedding is times the activation of this product */
    ROLE_LAYER_EMBD_OUT,       /* from there to the residual stream */
    ROLE_LAYER_EMBD_POST_NORM,
    ROLE_LAYER_SCALE,   /* the residual stream is multiplied by this number after the layer */
    ROLE_STREAM_UNEMBD, /* the way back of STREAM_PROJ */
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT,
    ROLE_OUTPUT_BIAS,
    ROLE_ROPE_FREQS, /* RoPE frequency divisors */
    ROLE_ROPE_LONG,  /* the same, for contexts longer than the original one */
    ROLE_ROPE_SHORT, /* the same, for others */
    ROLE_COUNT
} tensor_role;

/* Symbolic sizes for shapes; resolved against a model's hyperparameters. */
typedef enum arch_dim {
    DIM_NONE,        /* no such dimension */
    DIM_EMBD,        /* n_embd */
    DIM_VOCAB,       /* n_vocab */
    DIM_FF,          /* n_ff of the layer */
    DIM_Q,           /* n_head * q_dim */
    DIM_KV,          /* n_head_kv * head_dim */
    DIM_VALUES,      /* n_head_kv * v_dim */
    DIM_ATTN,        /* n_head * v_dim: attention's result */
    DIM_HEAD,        /* head_dim */
    DIM_HEADS,       /* n_head */
    DIM_HEADS_KV,    /* n_head_kv */
    DIM_HALF_ROT,    /* n_rot / 2 */
    DIM_QKV,         /* DIM_Q + DIM_KV + DIM_VALUES */
    DIM_NOPE,        /* q_dim - n_rot: elements of a head that are not rotated (MLA) */
    DIM_V,           /* v_dim */
    DIM_LATENT_Q,    /* elements of queries' latent vector */
    DIM_LATENT,      /* of that of keys and values */
    DIM_KV_A,        /* DIM_LATENT + n_rot */
    DIM_KV_B,        /* n_head * (DIM_NOPE + v_dim) */
    DIM_ONE,         /* 1: a number */
    DIM_2FF,         /* 2 * n_ff */
    DIM_EMBD_8,      /* n_embd / 8: bytes of one bit per element */
    DIM_RANK,        /* of the layer's predictor: as the file has it, a multiple of 32 */
    DIM_BUNDLE,      /* bytes of a neuron's or an expert's bundle: as the file has it */
    DIM_EXPERTS,     /* n_expert */
    DIM_UNITS,       /* what is placed: n_expert where the layer has experts, else n_ff */
    DIM_EXPERT_FF,   /* n_ff of an expert of the layer */
    DIM_EXPERT_2FF,  /* twice that */
    DIM_SHARED_FF,   /* n_ff of the layer's shared expert */
    DIM_POS,         /* rows of the table of positions: as the file has it */
    DIM_2Q,          /* 2 * DIM_Q: queries and gates, head by head */
    DIM_LAYER_EMBD,  /* of a layer's embedding */
    DIM_LAYER_EMBDS, /* n_layer times that */
    DIM_STREAMS,     /* residual streams */
    DIM_STREAMS_1,   /* one less */
    DIM_STREAMS_2,   /* their square */
    DIM_LAUREL,      /* of a branch of low rank: as the file has it */
    DIM_INDEX,       /* of a head that finds blocks */
    DIM_INDEX_Q,     /* all of these */
    /* Recurrent mixers. */
    DIM_TAPS,            /* of the convolution */
    DIM_CONV,            /* channels that are convolved */
    DIM_3EMBD,           /* 3 * n_embd */
    DIM_SSM_IN,          /* DIM_SSM_INNER + DIM_CONV + DIM_SSM_HEADS */
    DIM_SSM_QKVZ,        /* DIM_CONV + DIM_SSM_INNER */
    DIM_SSM_INNER,       /* heads times their elements */
    DIM_SSM_HEADS,       /* heads, each with a state of its own */
    DIM_SSM_2HEADS,      /* twice that */
    DIM_SSM_GROUPS,      /* groups of heads that share what is written and read */
    DIM_SSM_GROUP_INNER, /* DIM_SSM_INNER / DIM_SSM_GROUPS */
    DIM_SSM_HEAD         /* DIM_SSM_INNER / DIM_SSM_HEADS */
} arch_dim;

/* What symbolic sizes stand for, in one layer of one model. */
typedef struct arch_sizes {
    int64_t n_embd, n_vocab, n_ff, n_head, n_head_kv, head_dim, n_rot;
    int64_t q_dim, v_dim; /* of a head's query (MLA) and value; 0: head_dim */
    int64_t n_latent, n_latent_q;
    int64_t n_expert, n_ff_expert, n_ff_shared;
    int64_t n_layer, n_embd_layer;
    int64_t n_stream, n_laurel;
    int64_t n_index_head, index_dim;
    int64_t n_taps, n_conv, n_inner, n_ssm_head, n_ssm_group;
    int64_t n_rank, n_pos, n_bundle; /* 0 where not known: such a dimension is as the file has it */
} arch_sizes;
int64_t arch_dim_size(arch_dim dim, const arch_sizes *sizes); /* 1 for DIM_NONE */

enum {
    TENSOR_PER_LAYER = 1,
    TENSOR_OPTIONAL = 2,
    TENSOR_NEURON_ROWS = 4,   /* row i belongs to neuron i; of DIM_2FF rows, row n_ff + i too */
    TENSOR_NEURON_COLS = 8,   /* element i of each row belongs to neuron i (down) */
    TENSOR_NEURON_VEC = 16,   /* a bias with one element per neuron */
    TENSOR_F32 = 32,          /* small vectors: F32 (or any float type, converted on loading) */
    TENSOR_SCALE_LAST = 64,   /* y = scale * (W x + bias); otherwise y = scale * (W x) + bias */
    TENSOR_UNSCALED = 128,    /* "NAME.scale" is not applied, as in llama.cpp */
    TENSOR_RAW = 256,         /* integers: bound as they are; I8 (sign) or I32 (perm) */
    TENSOR_NO_EXPERTS = 1024, /* only of layers without a router */
    TENSOR_NO_DENSE = 8192,   /* only of layers with one */
    TENSOR_OWN_KV = 2048,     /* only of layers with a KV cache of their own */
    TENSOR_LAYER_EMBD = 4096, /* only of models with embeddings per layer */
    TENSOR_SPARSE = 512       /* written by `prepare`, or part of a PWRI file: a predictor, what was
                                 measured, or another form of a matrix of the network */
};

/* What mixes the tokens of a layer; bits. All but attention keep a state of fixed size. */
enum {
    MIXER_ATTENTION = 1,
    MIXER_CONV = 2,  /* gated short convolution: C * conv(B * x) (LFM2; Liquid AI 2025) */
    MIXER_SSM = 4,   /* Mamba-2 (Dao and Gu 2024, arXiv 2405.21060) */
    MIXER_DELTA = 8, /* gated delta rule (Yang et al. 2024, arXiv 2412.06464) */
    MIXER_KDA = 16,  /* the same with a decay for each element of a key (Kimi Linear; Moonshot AI
                        2025, arXiv 2510.26692) */
    MIXER_RECURRENT = MIXER_CONV | MIXER_SSM | MIXER_DELTA | MIXER_KDA
};

/* Which layers have which of an architecture's mixers, and an FFN. */
typedef enum arch_layers {
    LAYERS_ALIKE,    /* all have all mixers, and an FFN if the architecture has one */
    LAYERS_BY_HEADS, /* attention where attention.head_count_kv is positive, the recurrent one where
                        it is 0 */
    LAYERS_BY_PERIOD, /* attention where attention.recurrent_layers is false, else in the last of
                         every full_attention_interval layers (4) */
    LAYERS_SINGLE     /* one half each: the recurrent mixer where attention.head_count_kv and
                         feed_forward_length are 0, attention where the latter is, else an FFN */
} arch_layers;

/* Any matrix "NAME.weight" may come with a number "NAME.scale" [1] that its product is multiplied
 * by (formats with a scale per tensor need it); the binder looks for it. */
typedef struct arch_tensor {
    tensor_role role;
    const char *name;    /* "blk.%d.ffn_up.weight", or without %d */
    const char *hf_name; /* usual Hugging Face name, "model.layers.%d.mlp.up_proj.weight", or NULL;
                            hf_family.c has the others */
    arch_dim dims[3];    /* contiguous first; [1] is DIM_NONE for vectors, [2] unless experts */
    uint32_t flags;      /* TENSOR_* */
} arch_tensor;

/* From a router's scores to probabilities; the numbers are those of expert_gating_func. */
typedef enum expert_gating {
    GATING_NONE,
    GATING_SOFTMAX,
    GATING_SIGMOID,
    GATING_SOFTMAX_CHOSEN, /* experts are chosen by score; the softmax is over the chosen */
    GATING_COUNT
} expert_gating;

/* Optional features of an architecture. A key that its row does not name is not read: programs
 * write keys with values that they never use. */
enum {
    /* The residual stream and the logits. */
    ARCH_EMBD_SQRT = 1 << 0,      /* embeddings times sqrt(n_embd) */
    ARCH_EMBD_SCALE = 1 << 1,     /* embeddings times embedding_scale */
    ARCH_RESIDUAL_SCALE = 1 << 2, /* each half's result times residual_scale, then added */
    ARCH_NORM_EITHER = 1 << 3,    /* RMS norms where attention.layer_norm_rms_epsilon is positive */
    ARCH_LOGIT_MULTIPLIED = 1 << 4, /* logits times logit_scale */
    ARCH_LOGIT_DIVIDED = 1 << 5,    /* logits over logit_scale */
    ARCH_LOGIT_SOFTCAP = 1 << 6,    /* final_logit_softcapping: cap * tanh(logit / cap) */
    /* Attention. */
    ARCH_ATTN_SOFTCAP = 1 << 7, /* attn_logit_softcapping, the same for attention's scores */
    ARCH_ATTN_SCALE = 1 << 8,   /* scores times attention.scale; 1 / sqrt(head_dim) without it */
    ARCH_ATTN_TEMPERATURE =
        1 << 9, /* scores grow with the logarithm of the position (attention.temperature_scale) */
    ARCH_VALUE_SCALE = 1 << 10,  /* values times attention.value_scale */
    ARCH_CHUNKS = 1 << 11,       /* windows are fixed ranges of positions, not the last ones */
    ARCH_QK_NORM_LATE = 1 << 12, /* QK norm after RoPE */
    ARCH_BARE_QK_NORM = 1 << 13, /* QK norm without weights on layers with RoPE; not in models of
                                    128 experts (Llama 4) */
    ARCH_QKV_BARE = 1 << 14,     /* biases and scales of Q, K and V do not count, as in llama.cpp */
    ARCH_OUT_UNBIASED = 1 << 15, /* the bias of attention's output is not added, as in llama.cpp */
    /* RoPE. */
    ARCH_ROPE_WINDOWED = 1 << 16, /* RoPE only in layers with a sliding window, if there are any */
    ARCH_ROPE_LOCAL = 1 << 17, /* layers with a window have a base of their own (rope.freq_base_swa)
                                  and no scaling; without this bit the base is for files that have
                                  the key */
    ARCH_ROPE_SWITCH = 1 << 18,   /* rope.scaling.finetuned = false: nothing is rotated */
    ARCH_ROPE_SECTIONS = 1 << 19, /* ROPE_NEOX where rope.dimension_sections has positive ones: for
                                     text the sections' positions are equal */
    /* FFNs and experts. */
    ARCH_FFN_UNSCALED =
        1 << 20, /* "NAME.scale" of gate, up and down is not applied, as in llama.cpp */
    ARCH_EXPERTS_UNSCALED = 1 << 21, /* "NAME.scale" of experts is not applied, as in llama.cpp */
    ARCH_EXPERT_KEYS = 1 << 22,      /* expert_weights_scale is read, and without the next
                                        bit expert_weights_norm */
    ARCH_EXPERT_NORM = 1 << 23,      /* the weights of a token's experts are divided by their sum */
    ARCH_EXPERT_INPUT = 1 << 24,     /* weights multiply the experts' input, not their output */
    ARCH_EXPERT_HALF = 1 << 25,      /* half of the sum of the experts and the shared one */
    ARCH_FFN_CLAMP = 1 << 26, /* gpt-oss's SwiGLU, in FFNs and experts: with g = min(gate, 7) and u
                                 = clamp(up, -7, 7), g / (1 + e^-1.702g) * (u + 1) */
    ARCH_ROUTER_EARLY = 1 << 27, /* the router reads the layer's input */
    /* Attention, continued. */
    ARCH_HEADS_LOCAL = 1 << 28, /* layers with a window have head sizes of their own
                                   (attention.key_length_swa, rope.dimension_count_swa) */
    ARCH_VALUE_NORM = 1 << 29,  /* RMS norm of values, without weights, before they are cached */
    ARCH_SHARED_KV = 1 << 30    /* the last attention.shared_kv_layers layers read the cache of the
                                   last earlier one of their kind, with a window or without */
};

typedef struct arch_row {
    const char *name; /* general.architecture: "llama" */
    norm_kind norm;
    float default_norm_eps; /* where the key may be missing (OPT); 0: the key is required */
    rope_kind rope;
    int pos_offset;        /* rows of ROLE_POS_EMBD before position 0 */
    bool parallel;         /* both halves read the layer's input (Falcon) */
    uint32_t mixers;       /* MIXER_*; 0: attention */
    arch_layers layers;    /* with a recurrent mixer: which layers have it */
    bool gated_queries;    /* ROLE_ATTN_Q has a gate behind each head: attention's result is
                              times its sigmoid */
    bool groups_alternate; /* heads h, h + n_group, h + 2 n_group ... are a group's (MIXER_DELTA);
                              else neighbours are */
    bool ssm_unscaled;     /* "NAME.scale" of recurrent mixers is not applied, as in llama.cpp */
    uint32_t has;          /* ARCH_* */
    expert_gating gating;  /* unless expert_gating_func says otherwise */
    norm_kind qk_norm;     /* of ROLE_ATTN_Q_NORM and K_NORM, which may be per head (a
                              shared or an own weight) or over all heads */
    int window_period;     /* attention.sliding_window: the last of so many layers has none,
                              unless attention.sliding_window_pattern says otherwise; 1: all
                              layers have one; 0: none has */
    bool window_after;     /* the first of window_period layers has none, instead of the last */
    int window_layers;     /* only models of so many layers have windows; 0: any */
    int default_window;    /* where attention.sliding_window is missing; 0: none */
    int own_kv_layers; /* ARCH_SHARED_KV: where the key is missing, layers from this one on share
                          caches; 0: none does */
    int sparse_layers; /* where activation_sparsity_scale is missing, so many layers have
                          FFNs that keep a twentieth of their neurons (Gemma 3n) */
    float default_softcap;     /* ARCH_LOGIT_SOFTCAP: where the key is missing; 0: none */
    int no_rope_period;        /* the last of so many layers does not rotate; 0: all do */
    bool one_rope_base;        /* rope.freq_base_swa is not read, as in llama.cpp */
    bool rope_undivided;       /* rope_freqs is not used, as in llama.cpp */
    float local_rope_base;     /* ARCH_ROPE_LOCAL: where the key is missing; 0: rope.freq_base */
    float default_embd_scale;  /* where the keys are missing: embedding_scale; residual_scale */
    float default_depth_scale; /* is this / sqrt(n_layer); logit_scale is */
    float default_logit_width; /* this / n_embd. 0: none */
    float default_attn_scale;  /* attention.scale is this; 0: by head_dim */
    float default_temperature; /* where attention.temperature_scale is missing */
    int temperature_length;    /* ARCH_ATTN_TEMPERATURE: positions per step, in layers that do not
                                  rotate; 0: the original context, in all layers */
    int temperature_offset;    /* added to the position */
    int wide_scale_layers;     /* in models of so many layers, scores are times
                                  sqrt(n_head / n_embd) where attention.scale is missing */
    activation default_activation; /* unless {arch}.hidden_activation says otherwise */
    activation pwri_activation;    /* in files of the original PowerInfer (magic PWRI) */
    const arch_tensor *tensors;
    int n_tensors;
} arch_row;

/* NULL when unknown. */
const arch_row *arch_find(const char *name, uint64_t n_bytes);
int arch_count(void);
const arch_row *arch_at(int i);
/* Has a layer a window, where one of every `period` layers has none? As window_period. */
bool arch_has_window(const arch_row *row, int period, int layer);
/* "falcon, llama, qwen2": for messages. */
enum { ARCH_CLOSEST = 8, ARCH_CLOSEST_TEXT = ARCH_CLOSEST * 32 };
/* The names most like `name`, most alike first, separated by commas; returns `text`. */
const char *arch_closest_names(const char *name, size_t n_name, char text[ARCH_CLOSEST_TEXT]);

/* Row of a role, NULL when the architecture has no such tensor. */
const arch_tensor *arch_tensor_of(const arch_row *row, tensor_role role);
/* The same; of a part of a fused tensor that has no row of its own, the fused tensor's. */
const arch_tensor *arch_tensor_whole(const arch_row *row, tensor_role role);
/* Whether values may be shorter than keys: what attention gives is n_head * v_dim long then. */
bool arch_values_may_differ(const arch_row *row);
/* Fills `name` ([64]) with the tensor's name in layer `layer` (ignored for global ones). */
void arch_tensor_name(const arch_tensor *t, int layer, char name[64]);
const char *tensor_role_name(tensor_role role); /* "ffn_up" */
/* The part of a layer that a tensor belongs to. */
typedef enum arch_part { PART_ANY, PART_ATTENTION, PART_RECURRENT, PART_FFN } arch_part;
arch_part tensor_role_part(tensor_role role);

#endif
