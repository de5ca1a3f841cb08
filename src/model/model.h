/* model.h: an opened model: hyperparameters and bound weights. Immutable after model_open; shared
 * between threads. Weights point into the file's mapping; small float vectors of other types than
 * F32 are converted into the model's arena. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "arch.h"
#include "arena.h"
#include "gguf.h"

enum {
    MODEL_MAX_LAYERS = 1024,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_EXPERTS = 1024,
    MODEL_MAX_DIM = 1 << 20, /* n_embd, n_ff */
    MODEL_MAX_HEAD_DIM = 4096,
    MODEL_MAX_VOCAB = 1 << 22,
    MODEL_MAX_STREAMS = 8, /* that layers mix with weights for each pair */
    MODEL_RATIOS = 11,     /* positions per compressed key: 2^i for i below this */
    MODEL_MAX_NGRAM = 8,
    MODEL_MAX_NGRAM_ROWS = 64,
    MODEL_MAX_PASTS = 32 /* earlier values of the residual stream */
};

typedef enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE /* tensors have the divisors for long and for short contexts */
} rope_scaling;

/* The RoPE variant of a layer. */
typedef enum rope_set {
    ROPE_SET_GLOBAL, /* rope_freq_base with the model's scaling */
    ROPE_SET_LOCAL,  /* rope_local_base: layers with a window; not scaled with ARCH_ROPE_LOCAL */
    ROPE_SET_NONE,
    ROPE_SETS = ROPE_SET_NONE
} rope_set;

/* How the vectors of a text's tokens become one: the values of ARCH.pooling_type. */
typedef enum model_pooling {
    MODEL_POOLING_NONE,
    MODEL_POOLING_MEAN,
    MODEL_POOLING_CLS, /* the first token */
    MODEL_POOLING_LAST,
    MODEL_POOLING_RANK, /* the classifier's result */
    MODEL_POOLINGS,
    MODEL_POOLING_UNKNOWN = MODEL_POOLINGS /* no key, or another value */
} model_pooling;

/* Embeddings of n-grams. A token's vector has `n_rows` parts, rows of a table. Parts n * i to
 * n * (i + 1) - 1, with n = n_rows / (size - 1), depend on the last i + 2 tokens: part k is row
 * h mod rows[k] + first[k], where h is the XOR of token * multipliers[distance] over these tokens.
 * Distance 0 is the token itself. */
typedef struct model_ngrams {
    int32_t size;    /* tokens of the longest n-gram; 0: the model has none */
    int32_t n_rows;  /* rows per token */
    int32_t n_embd;  /* elements of a row */
    int32_t n_taps;  /* of the convolution, which reads every size-th token */
    int32_t divider; /* a token that ends texts; it also replaces the tokens before it */
    uint64_t multipliers[MODEL_MAX_NGRAM];
    int64_t first[MODEL_MAX_NGRAM_ROWS], rows[MODEL_MAX_NGRAM_ROWS];
} model_ngrams;

typedef struct model_hparams {
    int32_t n_layer, n_embd, n_vocab, n_ctx_train;
    int32_t n_draft_layer; /* layers after the last one, which predict further tokens; n_layer does
                              not count them (model_drafter.h) */
    /* Sparse attention: number of heads that select blocks of positions; 0: no sparse attention.
     * A token attends to block_top blocks, which always include the last block_local blocks up to
     * its own. */
    int32_t n_index_head, index_dim;
    int32_t n_index_choice; /* selections per token: one per KV head and index head, or with
                               index_sums one for all heads */
    bool index_sums;        /* DSA: the heads' scores are summed; blocks are single positions */
    int32_t index_ratio; /* an index key is the mean of this many positions, which share one score.
                            The positions after the last complete key are always selected. If
                            block_top is not a multiple, only a part of one key's positions is
                            selected, as in llama.cpp. 0: a key for each position */
    rope_kind index_rope;
    int32_t index_rot_at; /* DSA: first rotated element of an index query or key */
    float index_norm_eps; /* of the norm of index keys */
    int32_t block_size, block_top, block_local;
    int32_t n_pos;         /* learned positions, >= n_ctx_train: the maximum context; 0: no limit */
    int32_t n_head;        /* the largest over layers */
    int32_t n_stream;      /* residual streams per token; usually 1 */
    bool hyper;            /* the streams have hyper-connections */
    int32_t hyper_rank;    /* gated hyper-connections: rank of the gates; 0: not gated */
    float hyper_eps;       /* added to their weights */
    float hyper_magnitude; /* of the weights of results */
    int32_t hyper_rounds;  /* how often the weights that mix streams are normed by rows and columns
                              (Sinkhorn); 0: each stream keeps its value */
    /* One head, whose keys are also the values. Attention reads the keys of the window, and
     * compressed keys of all earlier positions. Each group of heads projects its results. */
    bool joint_kv;
    int32_t n_out_group, n_out_rank;
    int32_t past_period;  /* attention over earlier residuals: stream 0 is the residual stream,
                             which is copied to the next stream and begins anew in every layer
                             that this divides; 0: there is one stream, or streams are mixed in
                             another way */
    int32_t n_embd_layer; /* elements of a per-layer embedding; 0: none */
    model_ngrams ngrams;
    int32_t head_dim;     /* the largest over layers */
    int32_t rot_at;       /* the first of them; in MLA's cache it is 0 */
    int32_t n_rot;        /* rotated elements of a head, even, <= head_dim; largest over layers */
    int32_t head_dims[2]; /* of layers without and with a window */
    int32_t n_latent;     /* MLA: elements of a position's latent vector; 0: no MLA */
    int32_t n_latent_q;   /* MLA: elements of queries' latent vector; 0: queries from the input */
    int32_t q_dim;        /* MLA: elements of a head's query, the n_rot rotated ones last */
    int32_t v_dim;        /* MLA: elements of a head's value; 0: no MLA, as many as the key */
    bool bidirectional;   /* a token also attends to the tokens after it */
    model_pooling pooling;
    bool parallel; /* attention and FFN blocks both read the layer's input */
    norm_kind norm;
    float norm_eps;
    float embd_scale, residual_scale, logit_scale; /* 1 where the architecture has no scale */
    float logit_softcap, attn_softcap;             /* 0: none */
    float alibi_bias;                              /* ALiBi: the largest; 0: none */
    float qkv_clamp;                               /* Q, K and V: to +-this; 0: not clamped */
    float value_scale;                             /* multiplies V; usually 1 */
    float attn_scale;                              /* multiplies scores, before the soft cap */
    float attn_temperature; /* scores at position p: times 1 + this * ln(1 + floor(p / length)) */
    int32_t attn_temperature_length, attn_temperature_offset;
    rope_kind rope;
    int32_t rope_sections[ROPE_AXES]; /* pairs of each axis; all 0: there is one axis */
    float rope_freq_base, rope_local_base;
    int32_t n_rots[ROPE_SETS]; /* rotated elements per head for each set */
    rope_scaling rope_scaling;
    float rope_scaling_factor; /* > 0 */
    int32_t rope_orig_ctx;     /* YaRN, LongRoPE: original context */
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    float yarn_scale, yarn_score_scale; /* YaRN's factors of rotated vectors and of scores */
    /* Mixtures of experts. */
    int32_t n_expert, n_expert_used;      /* experts per layer; used per token; 0: dense */
    int32_t n_expert_group, n_group_used; /* experts come from the best groups only; 0: all */
    int32_t n_expert_embd;                /* elements of an expert's input and output */
    int32_t n_adjugate;                   /* adjugate experts per layer; 0: none */
    int32_t adjugate_share;               /* experts that share one */
    float adjugate_scale;                 /* of their sum */
    expert_gating gating;
    bool expert_norm;   /* a token's weights are divided by their sum */
    float expert_scale; /* and then multiplied by this */
    /* Recurrent mixers: a convolution of n_taps over n_conv channels, whose state is the last
     * n_taps - 1 inputs; then (except for MIXER_CONV) n_ssm_head heads, each with a state of
     * [n_inner / n_ssm_head][n_state]. 0: the model has none. */
    int32_t n_taps, n_conv, n_inner, n_ssm_head, n_ssm_group, n_state;
    int32_t n_step_rank;  /* Mamba-1: elements of the latent vector of time steps */
    bool scan_norms;      /* Mamba-1: that vector, keys and queries are normed without weights */
    int32_t n_ffn_shift;  /* MIXER_WKV: elements of the FFN's previous input, which the state keeps;
                             0: none */
    int32_t halve_period; /* the stream is halved after the last of every halve_period layers; 0:
                             never */
    float least_decay;    /* KDA: logarithm of the lower bound of decays; 0: no bound */
    activation activation;
    float activation_threshold; /* FATReLU */
    float soft_gate; /* SiTU (Kimi K3): limit b of the gate, b tanh(gate / b) * sigmoid(gate); 0:
                        another activation */
} model_hparams;

/* xIELU (Huang and Schlag 2024, arXiv 2411.13010): x > 0: positive x^2 + beta x, else
 * negative (e^min(x, eps) - 1 - x) + beta x. */
typedef struct model_xielu {
    float negative, positive, beta, eps;
} model_xielu;

typedef struct model_layer_hparams {
    uint32_t mixers;                 /* MIXER_*; 0: the layer is only an FFN */
    bool ffn;                        /* whether the layer has an FFN */
    int32_t n_head, n_head_kv, n_ff; /* 0 where the layer has no such part */
    int32_t head_dim; /* elements of a head's key in the cache. MLA: n_rot + n_latent, of the one
                         head that all share; its value is part of it */
    int32_t v_dim;    /* elements of a head's value in the cache, at most head_dim. MLA: head_dim */
    int32_t kv_layer; /* the layer whose cache this layer reads: itself or an earlier one */
    int32_t ratio;    /* positions per compressed key or index key; 0: no compressed keys, and one
                         position per index key */
    bool ngrams;      /* adds embeddings of n-grams */
    bool overlaps;    /* a compressed key is also a sum over the `ratio` positions before its own */
    bool index_own;   /* DSA: selects the positions that its tokens attend to */
    bool routes_by_token; /* ROLE_ROUTER_TABLE gives the experts of a token */
    bool index_shared; /* DSA: attends to the positions that the last earlier layer with index_own
                          selected */
    int32_t n_ff_adjugate;            /* 0: no adjugate experts */
    int32_t n_ff_expert, n_ff_shared; /* 0: none in this layer; n_ff is 0 in layers with experts */
    bool ffn_top_k; /* each gate value of a token is reduced by their mean plus ffn_cutoff standard
                       deviations, and only positive results count */
    float ffn_cutoff;
    /* Limits of gate and up (ARCH_FFN_CLAMP, default_swiglu_clamp, clamp_late) of the FFN or shared
     * expert, and of experts; 0: none. With soft_gate: of up, as a tanh; infinity: none. */
    float ffn_clamp, expert_clamp;
    model_xielu xielu; /* arch_row.xielu */
    int32_t window; /* a token attends to this many positions, including its own; bidirectional: to
                        those at most window / 2 away; 0: to all */
    rope_set rope;
} model_layer_hparams;

/* general.architecture of the GPU index files of the original PowerInfer ("*.generated.gpuidx"),
 * which are not models. */
#define MODEL_GPU_INDEX_ARCHITECTURE "generic.gpu_index"
/* general.architecture of EAGLE-3 heads (Li et al. 2025, arXiv 2503.01840). */
#define MODEL_EAGLE3_ARCHITECTURE "eagle3"

/* ---- sparsity -------------------------------------------------------------------------------- */

/* Neuron data of the FFN layers in a prepared file (docs/prepared-files.md) or one of the original
 * PowerInfer. Neurons are stored hottest first. */

/* Kinds of predictors. A neuron is selected when score + bias >= threshold. */
typedef enum predictor_kind {
    PREDICTOR_NONE,
    PREDICTOR_SIGN,     /* x . sign(W_gate) */
    PREDICTOR_LOWRANK,  /* fc2 . fc1 . x */
    PREDICTOR_RELU_MLP, /* fc2 . relu(fc1 . x) */
    PREDICTOR_KIND_COUNT
} predictor_kind;

/* Whether most values after this activation are exactly zero. */
bool model_has_zeros(activation a);

/* "none", "sign", "lowrank", "relu_mlp": as in powerinfer.predictor.kind. */
const char *predictor_kind_name(predictor_kind kind);
/* PI_ERR_FORMAT when `perm` does not contain each of 0 .. n - 1 once; the message names the first
 * index that is out of range or repeated. `where`: the tensor and its file. */
pi_status perm_check(const int32_t *perm, int64_t n, const char *where, pi_error *err);

typedef struct model_layer_sparse {
    predictor_kind predictor;
    bool predictor_residual; /* its input is the residual stream instead of the normed one; in PWRI
                                files of parallel architectures the layer's input */
    int32_t rank;            /* rows of fc1; 0 without fc1 */
    float recall, density;   /* measured by `prepare`; NAN: unknown */
    /* Threshold mode: activations with |f(gate)| cut_weight <= cut count as zero, then hidden
     * values with |f(gate) up| <= cut_down. */
    float cut;                /* NAN: not calibrated */
    float cut_down;           /* NAN: not calibrated */
    float up_rows, down_rows; /* measured fractions of rows of up and down that are read; NAN:
                                 unknown */
    const float *cut_weight;  /* [n_ff], >= 0; NULL: 1 */
    const float *freq;        /* [n_ff], non-increasing, in [0, 1]; NULL: unknown */
    const int32_t *perm;      /* [n_ff], a permutation; NULL: source order */
    /* Layers with experts: fraction of tokens that use each expert, non-increasing; NULL:
     * unknown. */
    const float *expert_freq;
    float expert_active; /* fraction of a chosen expert's neurons that are active; NAN: unknown */
    const int32_t *expert_perm; /* [n_expert], a permutation; NULL: source order */
} model_layer_sparse;

/* Predictors of the output head: scores of all tokens, fc2 . fc1 . x, x the hidden vector after the
 * last norm. */
typedef enum head_kind {
    HEAD_PLAIN,   /* no predictor */
    HEAD_SKETCH,  /* scores approximate the logits; tokens within `distance` of the best one are
                     candidates, whose logits are computed */
    HEAD_PROFILER /* original PowerInfer: candidates are the tokens with positive scores */
} head_kind;

typedef struct model_head {
    head_kind kind;
    int32_t rank;   /* rows of fc1 */
    float distance; /* HEAD_SKETCH: >= 0, in logits, after their scale and before their soft cap */
    /* Measured by `prepare`: relative increase of perplexity, 0.01 for 1%, and fraction of
     * candidates; NAN: unknown. */
    float loss, rows;
} model_head;

typedef struct model_sparse {
    bool pwri;                 /* magic PWRI */
    bool prepared;             /* powerinfer.version is present */
    bool given;                /* predictors came with the model and nothing was measured */
    float predictor_threshold; /* 0, or powerinfer.sparse_threshold */
    /* Relative increase of perplexity on held-out calibration text, 0.01 for 1%; NAN: unknown. */
    float predict_loss, threshold_loss;
    model_head head;
    int64_t calibration_tokens;
    char calibration_sha256[65]; /* "" when unknown */
} model_sparse;

/* Settings that `tune` found fastest and wrote into the file: the TUNE_KEYs of sparse_keys.h. */
typedef struct model_tuning {
    bool here;              /* the file has them, for this machine's CPU; else all others are 0 */
    char mode[16];          /* as ffn_mode_name */
    bool head;              /* with the predictor of the output head */
    int32_t threads, n_ctx; /* threads 0: not tuned */
    int32_t attn_blocks;    /* 0: all positions */
    float loss;             /* of all together with this context, as model_sparse's losses */
} model_tuning;

typedef struct model_tensor {
    const void *data;    /* NULL: absent (optional) */
    size_t n_bytes;      /* of the rows alone: n_bytes / n_out per row */
    size_t row_bytes;    /* distance between rows; larger where other rows are in between */
    size_t expert_bytes; /* experts' matrices: bytes from expert to expert */
    int64_t n_in;        /* elements per row */
    int64_t n_out;       /* rows; 1 for vectors */
    float scale;         /* multiplies the product of a matrix; 1 unless the file has a scale */
    const float *scales; /* one scale per expert, [n_expert]; NULL: 1 */
    quant_type type;     /* F32 for vectors; I8, I32 for raw tensors */
} model_tensor;

/* KV heads that the layer itself caches; 0: it reads another layer's cache. */
static inline int32_t model_kv_heads(const model_layer_hparams *l, int layer) {
    return l->kv_layer == layer ? l->n_head_kv : 0;
}

/* In a layer exactly one of FFN_DOWN and FFN_DOWN_T is bound, and one of EXPERT_DOWN and
 * EXPERT_DOWN_T. ATTN_QKV, FFN_BUNDLE and EXPERT_BUNDLE are never bound, only their parts. */

typedef struct model_layer {
    model_layer_hparams hp;
    model_layer_sparse sparse;
    model_tensor t[ROLE_COUNT];
    const gguf_tensor *bundle; /* the bundle with the rows of gate, up and down_t, which are then
                                  dims[0] bytes apart (bundle.h); NULL: they are separate tensors */
    const gguf_tensor *expert_bundle; /* the bundle of the experts' matrices, or NULL */
    bool fixed; /* in the view of model_places.h: its neurons stay where the file has them */
} model_layer;

/* A LoRA adapter: a GGUF file and its scale. */
typedef struct model_adapter {
    const char *path;
    float scale; /* 1: as trained */
} model_adapter;

/* A head that drafts for another model, as a model of one layer. It reads each token with the
 * features of the token before it, which the model computed or, for drafted tokens, a head. The
 * features are n_embd floats (draft_raw: n_stream * n_embd): the residual stream after the last
 * layer and norm (draft_raw: all streams, before the norm), or with ROLE_DRAFT_FUSE a projection of
 * the stream before the layers `reads`. */
enum { MODEL_DRAFT_READS = 8 };
typedef struct model_draft {
    const struct model *target;       /* NULL: this is no head */
    int32_t n_layers;                 /* heads in its file */
    int32_t n_reads;                  /* 0: after the last layer */
    int32_t reads[MODEL_DRAFT_READS]; /* ascending, in 0..n_layer of the target */
    bool normed_reads;                /* with ROLE_DRAFT_FUSE: its input is normed */
    bool normed_residual;             /* with ROLE_DRAFT_FUSE: the layer adds to normed features */
    /* Tokens that the head can draft, ascending [n_ids]; row i of OUTPUT belongs to ids[i]. NULL:
     * row i belongs to token i. */
    const int32_t *ids;
    int32_t n_ids;
} model_draft;

typedef struct model {
    gguf_file *file;
    bool shares_file; /* the file belongs to another model */
    const arch_row *arch;
    model_hparams hp;
    model_layer *layers;        /* [n_layer] */
    model_tensor t[ROLE_COUNT]; /* global tensors; OUTPUT is TOKEN_EMBD when tied;
                                   OUTPUT_FC1 and OUTPUT_FC2 may be parts of OUTPUT_PROFILER */
    model_sparse sparse;
    model_tuning tuning;
    model_draft draft;
    struct model_split *splits; /* [n_splits] joined tensors of single experts (model_split.h) */
    int n_splits;
    struct lora_set *adapters; /* while the model is opened */
    uint64_t adapters_hash; /* hash of the numbers that were merged into matrices; 0: none were */
    uint64_t n_params, weight_bytes;
    char name[256];
    arena arena;
} model;

/* Floats in a layer's recurrent state: the convolution's, then the heads'. 0: no recurrent
 * state. */
static inline int64_t model_conv_state(const model_hparams *hp, const model_layer_hparams *l) {
    return l->mixers & MIXER_RECURRENT ? (int64_t)(hp->n_taps - 1) * hp->n_conv : 0;
}
/* Floats of the state of incomplete compressed keys of n elements: the current key and, if keys
 * overlap, the next one. Per element: maximum, sum of weights, weighted sum. */
static inline int64_t model_compress_state(const model_layer_hparams *l, int64_t n) {
    return 3 * (l->overlaps ? 2 : 1) * n;
}
/* Floats of the state of embeddings of n-grams: the convolution's, then the last tokens. */
static inline int64_t model_ngram_conv_state(const model_hparams *hp) {
    return (int64_t)(hp->ngrams.n_taps - 1) * hp->ngrams.size * hp->n_stream * hp->n_embd;
}
static inline int64_t model_ngram_state(const model_hparams *hp, const model_layer_hparams *l) {
    return l->ngrams ? model_ngram_conv_state(hp) + hp->ngrams.size - 1 : 0;
}
static inline int64_t model_state(const model_hparams *hp, const model_layer_hparams *l) {
    bool heads = l->mixers & (MIXER_RECURRENT & ~MIXER_CONV);
    bool keys = l->ratio > 0 && hp->joint_kv, index = l->ratio > 0 && l->index_own;
    return model_conv_state(hp, l) + (heads ? (int64_t)hp->n_inner * hp->n_state : 0) +
           (keys ? model_compress_state(l, l->head_dim) : 0) +
           (index ? model_compress_state(l, hp->index_dim) : 0) + model_ngram_state(hp, l) +
           (l->mixers & MIXER_WKV ? hp->n_ffn_shift : 0);
}
/* "silu", "xielu": of the FFNs and experts, for messages. */
static inline const char *model_activation_name(const model *m) {
    return m->arch->xielu ? "xielu" : activation_name(m->hp.activation);
}
/* Whether a layer has the block that tensors of this role belong to. */
bool model_layer_has(const model_layer_hparams *l, tensor_role role);

/* Whether most activations of a layer's neurons are exactly zero. */
bool model_layer_has_zeros(const model *m, int layer);
/* All layers from this one on must have the same home device, because some of them read KV caches
 * or selected positions of earlier ones among them. n_layer: no layer does. */
int model_shared_from(const model *m);
/* Whether attention and FFN blocks of the layer both read its input: in all layers of an
 * architecture, or in layers without the FFN block's norm. */
bool model_layer_is_parallel(const model *m, int layer);
/* Whether some layers use ROPE_SET_LOCAL. */
bool model_has_local_rope(const model *m);
/* Whether layers with RoPE norm the heads of Q and K without weights. */
static inline bool model_has_bare_qk_norm(const model *m) {
    return m->arch->has & ARCH_BARE_QK_NORM && m->hp.n_expert != m->arch->unnormed_experts;
}
/* Whether layers read vectors that are computed from the token's embedding before the first one. */
static inline bool model_keeps_embedding(const model *m) {
    return m->hp.n_embd_layer > 0 || arch_tensor_of(m->arch, ROLE_EMBD_SKIP);
}
/* Whether layers read values that the first layer computes. */
static inline bool model_keeps_values(const model *m) {
    return arch_tensor_of(m->arch, ROLE_SSM_FIRST_A);
}
/* Whether the model's RoPE scaling applies to layers with this set. */
static inline bool model_scales_rope(const model *m, rope_set set) {
    return set == ROPE_SET_GLOBAL || !(m->arch->has & ARCH_ROPE_LOCAL);
}

/* Number of placement units of a layer: neurons, or experts if it has any. */
int64_t model_layer_units(const model *m, int layer);

/* PI_ERR_UNSUPPORTED: architecture (the message lists the known ones) or RoPE scaling;
 * PI_ERR_FORMAT: a missing key or tensor, or a wrong shape (the message names it and the expected
 * shape); also every error of gguf_open. */
pi_status model_open(const char *path, const gguf_open_options *options, model **out,
                     pi_error *err);
/* Like model_open, with n adapters, which are merged (model_lora.h), or only checked. */
pi_status model_open_adapted(gguf_file *file, const model_adapter *adapters, size_t n, bool merge,
                             model **out, pi_error *err);
/* Opens the file of a model again, with adapters merged into layers [first, end), and if first is 0
 * also into the matrices outside of layers. `of` must outlive the result. */
pi_status model_open_part(const model *of, const model_adapter *adapters, size_t n, int first,
                          int end, model **out, pi_error *err);
void model_close(model *m);             /* accepts NULL */
bool model_has_bundles(const model *m); /* in any layer */
/* Reads all weights. PI_ERR_RANGE: one is NaN or infinite; the message names the tensor and row,
 * the first in file order, bundles last. n_threads 0: all cores. */
pi_status model_check_tensors(const model *m, int n_threads, pi_error *err);
/* Reads the hyperparameters only. drafts: n_layer and `layers` include the layers that draft. */
pi_status model_read_hparams(const gguf_file *f, const arch_row *arch, bool drafts,
                             model_hparams *hp,
                             model_layer_hparams *layers /* [hp->n_layer] or NULL */,
                             pi_error *err);

#endif
