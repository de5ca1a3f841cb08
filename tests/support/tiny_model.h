/* tiny_model.h: writes model files of any shape that the format allows, with seeded random weights.
 * A struct describes the whole model; tests start from tiny_default() and change the fields they
 * test. */
#ifndef TEST_TINY_MODEL_H
#define TEST_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { TINY_MAX_LAYERS = 4 };

typedef enum tiny_scaling {
    TINY_SCALING_NONE,
    TINY_SCALING_LINEAR,      /* rope.scaling.type "linear" */
    TINY_SCALING_LINEAR_OLD,  /* rope.scale_linear of old files */
    TINY_SCALING_LINEAR_BARE, /* rope.scaling.factor without a type */
    TINY_SCALING_YARN
} tiny_scaling;

/* Data that `prepare` adds to a file; all zero: an ordinary model. */
typedef struct tiny_sparse {
    bool pwri;             /* a file of the original PowerInfer: its magic, none of our keys */
    bool down_t;           /* ffn_down_t in place of ffn_down, also for experts */
    const char *predictor; /* "sign", "lowrank", "relu_mlp"; NULL: none */
    bool residual;         /* the predictor reads the residual stream */
    bool no_bias;          /* no fc2.bias */
    int rank;
    float threshold;  /* score threshold, powerinfer.sparse_threshold; 0: no key */
    float cut;        /* cutoff of threshold mode; 0: none */
    float cut_down;   /* second cutoff, of hidden values; 0: no key */
    bool cut_factors; /* with a factor for every neuron, ffn_cut */
} tiny_sparse;

/* A predictor of the output head. */
typedef struct tiny_head {
    int rank;             /* 0: none */
    const char *type;     /* of its matrices */
    bool profiler;        /* one tensor, as in files of the original PowerInfer; smallthinker */
    float distance, loss; /* powerinfer.head.*; loss NAN: not measured */
} tiny_head;

/* Mixture of experts in layers from `n_dense` on; n 0: none. */
typedef struct tiny_experts {
    int n, n_used, n_ff; /* n_ff: neurons of an expert */
    int n_dense;
    int n_ff_shared; /* neurons of the shared expert; 0: none */
    int n_group, n_group_used;
    bool fused;  /* gate and up in one tensor */
    bool biased; /* biases in router and experts */
    bool select_bias;
    bool twins; /* router rows come in equal pairs, for ties */
} tiny_experts;

/* Sparse attention of layers with experts (minimax-m3), or of all layers (deepseek32, glm-dsa);
 * dim 0: none. */
typedef struct tiny_index {
    int dim, size, top, local;    /* dim: of a key; size: positions of a block; top: blocks used */
    int heads;                    /* deepseek32, glm-dsa: any number of queries; others: 0 */
    bool shared[TINY_MAX_LAYERS]; /* glm-dsa: layers that use an earlier layer's selection */
} tiny_index;

/* Heads that draft: layers for multi-token prediction, or a file of arch "eagle3". */
typedef struct tiny_draft {
    int n;         /* layers after the last of n_layer */
    bool own_norm; /* with nextn.shared_head_norm */
    bool own_head; /* with nextn.shared_head_head */
    bool agrees;   /* blocks add nothing to the stream, and the head passes the embedding on: it
                      drafts   the tokens that the model prefers */
    /* eagle3 */
    int reads[3];   /* layers of the target */
    int n_target;   /* n_embd of the target */
    int n_ids;      /* tokens of the head's vocabulary: 0, 2, 4, ...; 0: all, without d2t */
    bool normed;    /* norm_before_residual */
    bool newer;     /* norm_before_fc, and the newer name of extract_layers */
    bool own_table; /* with token_embd */
} tiny_draft;

typedef struct tiny_model {
    const char *arch;        /* "llama", "qwen2", "qwen3", "falcon", "opt", "bamboo", "deepseek2" */
    const char *type;        /* type of matrices: "f32", "q4_0", ... */
    const char *head_type;   /* type of output.weight; NULL: `type` */
    const char *vector_type; /* type of norms and biases: "f32", "f16", "bf16" */
    int n_layer, n_embd, n_vocab;
    int head_dim, n_rot;         /* keys if they differ from n_embd / n_head and head_dim */
    int n_head[TINY_MAX_LAYERS]; /* arrays if layers differ */
    int n_head_kv[TINY_MAX_LAYERS];
    int n_ff[TINY_MAX_LAYERS];
    int v_dim; /* head size of values: deepseek2, mimo2; 0: head_dim */
    /* deepseek2; head_dim is the query's */
    int n_latent, n_latent_q; /* n_latent_q 0: queries project the input directly */
    bool kv_b;                /* older file: keys and values in one matrix */
    float yarn_multiplier;    /* a tenth of mscale_all_dim; 0: unset */
    bool qkv_bias, out_bias, ffn_bias, head_bias;
    bool tied;           /* no output.weight */
    bool fused_ffn;      /* phi3: gate and up in one tensor */
    bool two_norms;      /* falcon: attention has a separate norm */
    int n_pos;           /* opt: learned positions */
    bool rope_freqs;     /* divisors per pair */
    int32_t sections[4]; /* rope.dimension_sections: qwen2vl, qwen3vl; all 0: no key */
    bool scales;         /* a NAME.scale for every matrix of the layers */
    tiny_scaling scaling;
    float factor, beta_fast, beta_slow, attn_factor,
        ext_factor;         /* scaling; the last four: YaRN, 0: unset */
    int original_context;   /* YaRN */
    const char *activation; /* NULL: the architecture's default */
    float threshold;        /* fatrelu's */
    float eps, freq_base;
    tiny_sparse sparse;
    tiny_head head;
    tiny_experts experts;
    tiny_index index;
    tiny_draft draft;
    bool vocabulary; /* SentencePiece vocabulary of n_vocab tokens */
    uint64_t seed;
} tiny_model;

/* llama, f32, 2 layers, n_embd 32, 4 heads of 8 in 2 groups, n_ff 64, vocabulary 40. */
tiny_model tiny_default(void);
void tiny_set_heads(tiny_model *t, int n_head, int n_head_kv); /* for all layers */

/* LayerNorm with biases in place of RMSNorm. */
bool tiny_has_layer_norm(const tiny_model *t);
bool tiny_is_gated(const tiny_model *t);
/* apertus: alpha_n, alpha_p, beta and eps of xIELU in each layer. */
enum { TINY_XIELU = 4 };
extern const float tiny_xielu[TINY_XIELU][TINY_MAX_LAYERS];
/* The activation that a reader must use; "xielu": tiny_xielu. */
const char *tiny_activation(const tiny_model *t);

/* Writes the keys of a SentencePiece vocabulary: <unk>, <s>, </s>, 256 bytes, the blank, words. */
struct gguf_writer;
void tiny_put_vocabulary(struct gguf_writer *w, int n_vocab);

/* Writes the file; fails the running test on errors. */
void tiny_write(const tiny_model *t, const char *path);

#endif
