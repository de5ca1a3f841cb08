/* tiny_model.h: model files of any shape that the format allows, with seeded random weights, for
 * tests. A description says everything; tests start from tiny_default() and change what they are
 * about. */
#ifndef TEST_TINY_MODEL_H
#define TEST_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { TINY_MAX_LAYERS = 4 };

typedef enum tiny_scaling {
    TINY_SCALING_NONE,
    TINY_SCALING_LINEAR,      /* rope.scaling.type "linear" */
    TINY_SCALING_LINEAR_OLD,  /* rope.scale_linear, as old files say it */
    TINY_SCALING_LINEAR_BARE, /* rope.scaling.factor without a type */
    TINY_SCALING_YARN
} tiny_scaling;

/* What `prepare` adds to a file; all zero: an ordinary model. */
typedef struct tiny_sparse {
    bool pwri;             /* a file of the original PowerInfer: its magic, no keys of ours */
    bool down_t;           /* ffn_down_t in place of ffn_down, of experts too */
    const char *predictor; /* "sign", "lowrank", "relu_mlp"; NULL: none */
    bool residual;         /* the predictor reads the residual stream */
    bool no_bias;          /* no fc2.bias */
    int rank;
    float threshold; /* of scores, powerinfer.sparse_threshold; 0: no key */
    float cut;       /* of threshold mode; 0: none */
} tiny_sparse;

/* A mixture of experts in layers from `n_dense` on; n 0: none. */
typedef struct tiny_experts {
    int n, n_used, n_ff; /* n_ff: of an expert */
    int n_dense;
    int n_ff_shared; /* of a shared expert; 0: there is none */
    int n_group, n_group_used;
    bool fused;  /* gate and up in one tensor */
    bool biased; /* router and experts */
    bool select_bias;
    bool twins; /* routers' rows come in equal pairs: ties */
} tiny_experts;

/* Sparse attention of layers with experts (minimax-m3); dim 0: none. */
typedef struct tiny_index {
    int dim, size, top, local; /* of a key; blocks of `size` positions, of which `top` are used */
} tiny_index;

typedef struct tiny_model {
    const char *arch;        /* "llama", "qwen2", "qwen3", "falcon", "opt", "bamboo", "deepseek2" */
    const char *type;        /* of matrices: "f32", "q4_0", ... */
    const char *head_type;   /* of output.weight; NULL: as the others */
    const char *vector_type; /* of norms and biases: "f32", "f16", "bf16" */
    int n_layer, n_embd, n_vocab;
    int head_dim, n_rot;         /* written as keys when they are not n_embd / n_head, head_dim */
    int n_head[TINY_MAX_LAYERS]; /* written as arrays when they differ between layers */
    int n_head_kv[TINY_MAX_LAYERS];
    int n_ff[TINY_MAX_LAYERS];
    int v_dim; /* of a head's value: deepseek2, mimo2; 0: head_dim */
    /* deepseek2, whose head_dim is that of queries */
    int n_latent, n_latent_q; /* n_latent_q 0: queries are made of the input */
    bool kv_b;                /* an older file: keys and values in one matrix */
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
        ext_factor;         /* of scaling; the last four: YaRN, 0: unset */
    int original_context;   /* YaRN */
    const char *activation; /* NULL: the architecture's own */
    float threshold;        /* of fatrelu */
    float eps, freq_base;
    tiny_sparse sparse;
    tiny_experts experts;
    tiny_index index;
    bool vocabulary; /* a SentencePiece one of n_vocab tokens */
    uint64_t seed;
} tiny_model;

/* llama, f32, 2 layers, n_embd 32, 4 heads of 8 in 2 groups, n_ff 64, vocabulary 40. */
tiny_model tiny_default(void);
void tiny_set_heads(tiny_model *t, int n_head, int n_head_kv); /* the same in every layer */

/* LayerNorm with biases in place of RMSNorm. */
bool tiny_has_layer_norm(const tiny_model *t);
bool tiny_is_gated(const tiny_model *t);
/* The activation that a reader must use. */
const char *tiny_activation(const tiny_model *t);

/* The keys of a SentencePiece vocabulary: <unk>, <s>, </s>, 256 bytes, the blank, words. */
struct gguf_writer;
void tiny_put_vocabulary(struct gguf_writer *w, int n_vocab);

/* Fails the running test when it cannot. */
void tiny_write(const tiny_model *t, const char *path);

#endif
