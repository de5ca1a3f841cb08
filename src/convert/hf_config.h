/* hf_config.h: config.json of a Hugging Face folder, checked, and the GGUF keys made from it. */
#ifndef CONVERT_HF_CONFIG_H
#define CONVERT_HF_CONFIG_H

#include "gguf_writer.h"
#include "hf_reader.h"
#include "model.h"

typedef enum hf_rope_kind {
    HF_ROPE_DEFAULT,
    HF_ROPE_LINEAR,
    HF_ROPE_LLAMA3, /* stored as the tensor rope_freqs */
    /* stored as rope_freqs: only the first pairs rotate, at the frequencies of full rotation */
    HF_ROPE_PROPORTIONAL,
    HF_ROPE_YARN,
    HF_ROPE_LONGROPE /* stored as the tensors rope_factors_long and _short */
} hf_rope_kind;

enum { HF_MAX_HEAD_DIM = 4096, HF_MAX_NUMBERS = 16 };

typedef struct hf_rope {
    hf_rope_kind kind;
    double theta, local_theta; /* local: of layers with a window; 0: equal to theta */
    int32_t n_rot;             /* rotated elements of a head, even */
    int32_t n_turned;          /* proportional: number of elements that actually rotate */
    double factor;             /* >= 1 */
    int32_t orig_ctx;          /* context before scaling */
    double low_freq_factor;    /* Llama 3 */
    double high_freq_factor;   /* Llama 3 */
    double beta_fast, beta_slow;
    /* YaRN in MLA: a tenth of mscale_all_dim, a factor of the scores; 0: none */
    double multiplier;
    double attn_factor; /* YaRN: multiplies the usual 0.1 ln(factor) + 1; default 1. LongRoPE: the
                           whole factor */
    float long_factors[HF_MAX_HEAD_DIM / 2], short_factors[HF_MAX_HEAD_DIM / 2]; /* [n_rot / 2] */
} hf_rope;

typedef enum hf_tied { HF_TIED_NO, HF_TIED_YES, HF_TIED_UNSAID } hf_tied;

/* A number that is copied into a key of the architecture. */
typedef struct hf_number_key {
    const char *suffix;
    double value;
} hf_number_key;

typedef struct hf_experts {
    int32_t n, n_used, n_shared, n_group, n_group_used; /* 0: none */
    int32_t n_ff;
    expert_gating gating; /* GATING_NONE: the architecture's default */
    bool norm;
    double scale;    /* 1: none */
    int32_t spacing; /* every spacing-th layer has experts; 0: not given */
} hf_experts;

/* Recurrent mixers: sizes as in model.h. 0: the model has none. */
typedef struct hf_recurrent {
    int32_t n_taps, n_conv, n_inner, n_head, n_group, n_state;
    double least_decay;   /* KDA: logarithm of the lower bound of decays; 0: no bound */
    int32_t halve_period; /* RWKV-6: the residual stream is halved after so many layers; 0: never */
    /* the last layer of each period attends, unless the file lists the layers */
    int32_t period;
} hf_recurrent;

enum { HF_XIELU = 4 }; /* numbers of the activation xIELU */

/* Qwen4: embeddings of n-grams. */
typedef struct hf_ngrams {
    int32_t layer; /* -1: none */
    int32_t size, n_head, n_taps, n_embd, n_rows, divider;
    int64_t multipliers[MODEL_MAX_NGRAM];                             /* [size] */
    int64_t first[MODEL_MAX_NGRAM_ROWS], sizes[MODEL_MAX_NGRAM_ROWS]; /* [n_rows] */
} hf_ngrams;

/* Parts of a layer. */
enum { HF_ATTENDS = 1, HF_RECURS = 2, HF_FFN = 4 };

/* Row groups of Mamba-2's input matrix: gate, values, keys, queries, steps. */
enum { HF_SSM_PARTS = 5 };

typedef struct hf_config {
    const hf_family *family;
    const arch_row *arch;
    char name[256]; /* general.name */
    int32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_ctx, n_vocab;
    int32_t n_head_kv_window; /* in layers with a window */
    int32_t n_head_window;    /* in layers with a window; 0: as in other layers */
    int32_t head_dim_window;  /* in layers with a window; 0: as in other layers */
    int32_t n_kv_shared;      /* number of last layers that read the cache of earlier layers */
    bool wide_shared;         /* the FFNs of these layers are twice as wide */
    int32_t n_embd_layer;     /* width of per-layer embeddings; 0: none */
    /* rows of the per-layer table, followed by zeros; 0: the vocabulary */
    int32_t n_vocab_layer;
    /* number of residual streams, rank of the laurel branch; 0: one stream, no branch */
    int32_t n_stream, n_laurel;
    float cutoffs[MODEL_MAX_LAYERS]; /* see model_layer_hparams.ffn_cutoff */
    /* MLA, where head_dim is the head size of queries; n_latent 0: no MLA, n_latent_q 0: queries
     * are projected from the input */
    int32_t n_latent, n_latent_q, v_dim;
    bool rms;      /* norms are RMS norms */
    bool parallel; /* where the file says so: attention and FFN blocks read the layer's input */
    double norm_eps;
    hf_rope rope;
    activation activation;
    bool has_threshold;
    double threshold; /* threshold of FATReLU */
    hf_tied tied;
    hf_experts experts;
    hf_recurrent recurrent;
    hf_ngrams ngrams;
    int32_t n_hyper_rank;                /* of gated hyper-connections; 0: none */
    int32_t index_ratio;                 /* positions per index key; 0: one */
    uint8_t parts[MODEL_MAX_LAYERS];     /* HF_* bits of every layer */
    float multipliers[ROLE_COUNT];       /* factors of weights; 0: 1 */
    float ssm_multipliers[HF_SSM_PARTS]; /* additional factors of the rows of ROLE_SSM_IN; 0: 1 */
    /* sections of rotated pairs (Qwen 3.5, Qwen-VL); 0: none */
    int32_t sections[4];
    /* number of first layers that image features are added to; 0: none */
    int32_t n_deepstack;
    int32_t n_index_head, index_dim, n_index_blocks, index_block; /* sparse attention; 0: none */
    int32_t n_index_local;             /* last blocks that a token always attends to */
    int32_t n_token_types;             /* encoders; 0: none */
    int32_t first_position;            /* row of the first position in the folder's table */
    float clamps[2][MODEL_MAX_LAYERS]; /* limits of experts and of other FFNs; 0: none */
    bool clamped;                      /* the limits are in config.json */
    int32_t pooling;                   /* pooling_type of encoders; -1: not known */
    bool index_types;                  /* the list of layers is in config.json */
    bool index_own[MODEL_MAX_LAYERS];  /* DSA: layers that select positions themselves */
    int32_t window;                    /* 0: no layer has a window */
    bool windowed[MODEL_MAX_LAYERS];
    bool unrotated; /* no layer rotates, although the architecture supports RoPE */
    hf_number_key numbers[HF_MAX_NUMBERS];
    int n_numbers;
    int32_t fp8_block[2]; /* rows and columns that share a scale */
    bool multimodal;      /* has parts for other modalities */
    /* predictors of active neurons are converted with the model (convert_predictors.h) */
    bool predictors;
    int32_t n_predictors; /* layers after the last one, for multi-token prediction */
    /* Known only from the weights. */
    int32_t n_ff_shared, n_dense_first;      /* n_dense_first: leading layers without experts */
    int32_t rank;                            /* rank of the predictor that was matched last */
    int64_t n_profiler;                      /* elements of the output head's predictor */
    int32_t ranks[ROLE_COUNT];               /* sizes of DIM_OPEN */
    float xielu[HF_XIELU][MODEL_MAX_LAYERS]; /* alpha_n, alpha_p, beta, eps */
} hf_config;

/* Reads dir/config.json. PI_ERR_NOT_FOUND: no such file; PI_ERR_UNSUPPORTED: model type,
 * activation, rope scaling, or quantized checkpoint; PI_ERR_FORMAT: names the key. */
pi_status hf_config_read(const char *dir, const notifier *t, hf_config *out, pi_error *err);
/* Reads a parsed document; `path` is for messages. The name stays empty. */
pi_status hf_config_parse(const json_node *root, const char *path, const notifier *t,
                          hf_config *out, pi_error *err);
/* Writes general.architecture, general.name and the {arch}.* keys. */
void hf_config_put(const hf_config *c, gguf_writer *w);
/* Size of a layer's tensor along a symbolic dimension; 0: determined by the weights. */
uint64_t hf_config_dim(const hf_config *c, int layer, arch_dim dim);
/* Computes the divisors of the frequencies for ROLE_ROPE_FREQS (Llama 3's rule), _LONG or _SHORT.
 * factors: [n_rot / 2]. */
void hf_config_rope_factors(const hf_config *c, tensor_role role, float *factors);
bool hf_config_has_factors(const hf_config *c, tensor_role role);

/* Write keys of the architecture. */
enum { HF_KEY_TEXT = 128 };
const char *hf_key(char key[HF_KEY_TEXT], const hf_config *c, const char *suffix);
void hf_put_u32(gguf_writer *w, const hf_config *c, const char *suffix, int32_t value);
void hf_put_bools(gguf_writer *w, const hf_config *c, const char *suffix,
                  const bool *values /* [n_layer] */);

/* In hf_recurrent.c. */
void hf_recurrent_read(hf_reader *r, hf_config *c);
void hf_recurrent_put(const hf_config *c, gguf_writer *w);
bool hf_config_layer_has(const hf_config *c, int layer, tensor_role role);
/* In hf_rope.c. */
void hf_rope_read(hf_reader *r, hf_config *c);
/* In hf_layers.c: windows and experts. */
void hf_window_read(hf_reader *r, hf_config *c);
void hf_experts_read(hf_reader *r, hf_config *c);
/* In hf_ngram.c. */
void hf_ngrams_read(hf_reader *r, hf_config *c);
void hf_ngrams_put(const hf_config *c, gguf_writer *w);
/* In hf_keys.c: scales, soft caps, multipliers and similar numbers. */
void hf_numbers_read(hf_reader *r, hf_config *c);

#endif
