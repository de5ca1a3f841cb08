/* hf_config.h: config.json of a Hugging Face folder, checked, and the GGUF keys made of it. */
#ifndef CONVERT_HF_CONFIG_H
#define CONVERT_HF_CONFIG_H

#include "gguf_writer.h"
#include "hf_reader.h"
#include "model.h"

typedef enum hf_rope_kind {
    HF_ROPE_DEFAULT,
    HF_ROPE_LINEAR,
    HF_ROPE_LLAMA3,       /* becomes the tensor rope_freqs */
    HF_ROPE_PROPORTIONAL, /* too: only the first pairs rotate, as fast as if all did */
    HF_ROPE_YARN,
    HF_ROPE_LONGROPE /* becomes the tensors rope_factors_long and _short */
} hf_rope_kind;

enum { HF_MAX_HEAD_DIM = 4096, HF_MAX_NUMBERS = 16 };

typedef struct hf_rope {
    hf_rope_kind kind;
    double theta, local_theta; /* local: of layers with a window; 0: the same */
    int32_t n_rot;             /* rotated elements of a head, even */
    int32_t n_turned;          /* proportional: of these, those that really rotate */
    double factor;             /* >= 1 */
    int32_t orig_ctx;          /* context before scaling */
    double low_freq_factor;    /* Llama 3 */
    double high_freq_factor;   /* Llama 3 */
    double beta_fast, beta_slow;
    double multiplier;  /* YaRN in MLA: a tenth of mscale_all_dim, which scores grow by; 0: none */
    double attn_factor; /* YaRN: on top of the usual 0.1 ln(factor) + 1; 1 unless the file says.
                           LongRoPE: the whole factor */
    float long_factors[HF_MAX_HEAD_DIM / 2], short_factors[HF_MAX_HEAD_DIM / 2]; /* [n_rot / 2] */
} hf_rope;

typedef enum hf_tied { HF_TIED_NO, HF_TIED_YES, HF_TIED_UNSAID } hf_tied;

/* A number that goes into a key of the architecture as it is. */
typedef struct hf_number_key {
    const char *suffix;
    double value;
} hf_number_key;

typedef struct hf_experts {
    int32_t n, n_used, n_shared, n_group, n_group_used; /* 0: none */
    int32_t n_ff;
    expert_gating gating; /* GATING_NONE: as the architecture has it */
    bool norm;
    double scale;    /* 1: none */
    int32_t spacing; /* one of so many layers has experts; 0: unsaid */
} hf_experts;

/* Recurrent mixers: sizes as in model.h. 0: the model has none. */
typedef struct hf_recurrent {
    int32_t n_taps, n_conv, n_inner, n_head, n_group, n_state;
    double least_decay; /* KDA: logarithm of the bound below decays; 0: there is none */
    int32_t period;     /* the last of so many layers attends, unless the file names each */
} hf_recurrent;

/* Parts of a layer. */
enum { HF_ATTENDS = 1, HF_RECURS = 2, HF_FFN = 4 };

/* Rows of the matrix into Mamba-2: gate, values, keys, queries, steps. */
enum { HF_SSM_PARTS = 5 };

typedef struct hf_config {
    const hf_family *family;
    const arch_row *arch;
    char name[256]; /* general.name */
    int32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_ctx, n_vocab;
    int32_t n_head_kv_window;   /* of layers with a window */
    int32_t head_dim_window;    /* the same; 0: as the others */
    int32_t n_kv_shared;        /* last layers that read the cache of others */
    bool wide_shared;           /* whose FFNs are twice as wide */
    int32_t n_embd_layer;       /* embeddings per layer; 0: none */
    int32_t n_vocab_layer;      /* rows of their table, zeros behind them; 0: as the vocabulary */
    int32_t n_stream, n_laurel; /* several residual streams; 0: one, no branch */
    float cutoffs[MODEL_MAX_LAYERS];     /* with these: model_layer_hparams.ffn_cutoff */
    int32_t n_latent, n_latent_q, v_dim; /* MLA, where head_dim is that of queries; n_latent 0: no
                                            MLA, n_latent_q 0: queries are made of the input */
    bool rms;                            /* RMS norms */
    double norm_eps;
    hf_rope rope;
    activation activation;
    bool has_threshold;
    double threshold; /* FATReLU */
    hf_tied tied;
    hf_experts experts;
    hf_recurrent recurrent;
    uint8_t parts[MODEL_MAX_LAYERS];     /* HF_* of every layer */
    float multipliers[ROLE_COUNT];       /* of weights; 0: 1 */
    float ssm_multipliers[HF_SSM_PARTS]; /* of rows of ROLE_SSM_IN, on top; 0: 1 */
    int32_t sections[4];                 /* of rotated pairs (Qwen 3.5, Qwen-VL); 0: none */
    int32_t n_deepstack;                 /* first layers that images add to; 0: none */
    int32_t n_index_head, index_dim, n_index_blocks, index_block; /* sparse attention; 0: none */
    int32_t n_index_local; /* blocks before a token that it always attends to */
    int32_t window;        /* 0: no layer has one */
    bool windowed[MODEL_MAX_LAYERS];
    bool unrotated; /* no layer rotates, in a model that could */
    hf_number_key numbers[HF_MAX_NUMBERS];
    int n_numbers;
    int32_t fp8_block[2]; /* rows and columns that share a scale */
    bool multimodal;      /* has parts that are not about text */
    bool predictors;      /* of active neurons come with it (convert_predictors.h) */
    int32_t n_predictors; /* layers beyond the last one, which guess further tokens */
    /* What only the weights say. */
    int32_t n_ff_shared, n_dense_first; /* leading layers without experts */
    int32_t rank;                       /* of the last layer's predictor that was matched */
} hf_config;

/* Reads dir/config.json. PI_ERR_NOT_FOUND without it, PI_ERR_UNSUPPORTED (model type, activation,
 * rope scaling, quantized checkpoints), PI_ERR_FORMAT naming the key. */
pi_status hf_config_read(const char *dir, const notifier *t, hf_config *out, pi_error *err);
/* The same from a parsed document; `path` is for messages. The name is left empty. */
pi_status hf_config_parse(const json_node *root, const char *path, const notifier *t,
                          hf_config *out, pi_error *err);
/* general.architecture, general.name and the {arch}.* keys. */
void hf_config_put(const hf_config *c, gguf_writer *w);
/* Elements of a tensor of a layer along a symbolic dimension; 0: as the weights have it. */
uint64_t hf_config_dim(const hf_config *c, int layer, arch_dim dim);
/* The numbers by which each frequency is divided, of ROLE_ROPE_FREQS (Llama 3's rule), _LONG or
 * _SHORT. factors: [n_rot / 2]. */
void hf_config_rope_factors(const hf_config *c, tensor_role role, float *factors);
bool hf_config_has_factors(const hf_config *c, tensor_role role);

/* Keys of the architecture. */
void hf_put_u32(gguf_writer *w, const hf_config *c, const char *suffix, int32_t value);
void hf_put_bools(gguf_writer *w, const hf_config *c, const char *suffix,
                  const bool *values /* [n_layer] */);

/* hf_recurrent.c */
void hf_recurrent_read(hf_reader *r, hf_config *c);
void hf_recurrent_put(const hf_config *c, gguf_writer *w);
bool hf_config_layer_has(const hf_config *c, int layer, tensor_role role);
/* hf_rope.c */
void hf_rope_read(hf_reader *r, hf_config *c);
/* hf_layers.c: windows and experts. */
void hf_window_read(hf_reader *r, hf_config *c);
void hf_experts_read(hf_reader *r, hf_config *c);
/* hf_keys.c: scales, soft caps, multipliers and the like. */
void hf_numbers_read(hf_reader *r, hf_config *c);

#endif
