/* arch.h: an architecture is one constant row of a table. No other code checks which architecture a
 * model has; it reads the row. Loader, validator, planner, converter, synth and inspect all read
 * the same row. */
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

/* Axes of rope.dimension_sections, which divides the pairs of a head among time, height, width and
 * a fourth axis. For text the coordinate on the first three is the position, on the fourth 0. */
typedef enum rope_axes {
    AXES_ONE,        /* the key is not read: all pairs turn by the position */
    AXES_SECTIONS,   /* pairs of an axis are neighbours (Qwen2-VL) */
    AXES_INTERLEAVED /* pairs alternate between the first three axes (Qwen3-VL) */
} rope_axes;
enum { ROPE_AXES = 4 };

/* Roles of tensors, in the order of execution. */
typedef enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_TOKEN_TYPES, /* row 0 is added to the token embedding (BERT) */
    ROLE_EMBD_NORM,   /* of the token embedding */
    ROLE_EMBD_NORM_BIAS,
    ROLE_POS_EMBD, /* learned positions; position p is row p + pos_offset */
    /* Per-layer embeddings (Gemma 3n; Gemma 4 E2B, E4B): each layer adds a vector that depends on
     * the token. */
    ROLE_LAYER_EMBD,      /* table: a row has the vectors of all layers, one after the other */
    ROLE_LAYER_EMBD_PROJ, /* projects the token embedding to a row's shape; added to the row */
    ROLE_LAYER_EMBD_NORM, /* norm of one layer's part of that projection */
    /* Alternating updates (AltUp; Baykal et al. 2023, arXiv 2301.13310): a token has several
     * residual streams. Layers compute one of them; a router's output determines how the others
     * follow. */
    ROLE_STREAM_PROJ,        /* projects stream 0 to the other streams, one matrix each */
    ROLE_STREAM_ROUTER_NORM, /* of the router's input */
    ROLE_STREAM_ROUTER,
    ROLE_STREAM_PREDICT, /* before a layer: coefficients that mix the streams */
    /* Hyper-connections (Zhu et al. 2024, arXiv 2409.19606): a block reads a weighted sum of the
     * residual streams, and its result is added to each of them with another weight. A projection
     * of all streams gives the weights. */
    ROLE_HYPER_ATTN, /* of the attention block: weights of the sum, then of the result; with
                        hyper_rounds, then weights that mix the streams */
    ROLE_HYPER_ATTN_BASE,
    ROLE_HYPER_ATTN_SCALE, /* one number for each of these parts */
    ROLE_HYPER_FFN,
    ROLE_HYPER_FFN_BASE,
    ROLE_HYPER_FFN_SCALE,
    /* Gated hyper-connections (Qwen4): a block reads the mean of the normed streams, each element
     * multiplied by its gate. A low-rank projection of all normed streams gives the gates. */
    ROLE_HYPER_ATTN_NORM,
    ROLE_HYPER_ATTN_DOWN,
    ROLE_HYPER_ATTN_UP,
    ROLE_HYPER_ATTN_INJECT, /* weights of the block's result */
    ROLE_HYPER_FFN_NORM,
    ROLE_HYPER_FFN_DOWN,
    ROLE_HYPER_FFN_UP,
    ROLE_HYPER_FFN_INJECT,
    /* Embeddings of n-grams (Qwen4): hashes of a token and the tokens before it select rows of a
     * table. The layer adds a gated projection of these rows to all streams, and then a convolution
     * of this projection. */
    ROLE_NGRAM_EMBD, /* the table */
    ROLE_NGRAM_KEY,
    ROLE_NGRAM_VALUE,
    ROLE_NGRAM_KEY_NORM,
    ROLE_NGRAM_QUERY_NORM, /* of the streams; their products with the keys give the gates */
    ROLE_NGRAM_CONV_NORM,  /* of the convolution's input */
    ROLE_NGRAM_CONV,
    /* Attention over earlier residuals (Kimi K3): the residual stream begins anew every few layers,
     * and a block reads a weighted sum of its present value and of those kept before. The weight
     * depends on a score, the product of a value's norm with one of these vectors. */
    ROLE_PAST_ATTN,
    ROLE_PAST_FFN,
    ROLE_ATTN_NORM,
    ROLE_ATTN_NORM_BIAS,
    ROLE_ATTN_NORM_2, /* attention's own norm where the blocks are parallel (Falcon 40B) */
    ROLE_ATTN_NORM_2_BIAS,
    ROLE_ATTN_QKV,      /* fused Q, K, V rows; bound as three tensors */
    ROLE_ATTN_QKV_BIAS, /* bias of ATTN_QKV; bound as three */
    ROLE_ATTN_Q,
    ROLE_ATTN_Q_BIAS,
    ROLE_ATTN_K,
    ROLE_ATTN_K_BIAS,
    ROLE_ATTN_V,
    ROLE_ATTN_V_BIAS,
    ROLE_LAUREL_A, /* low-rank branch parallel to attention (LAuReL; Menghani et al. 2024, arXiv
                      2411.07501): down to the rank, and back up */
    ROLE_LAUREL_B,
    ROLE_LAUREL_NORM, /* of the branch's result */
    ROLE_ATTN_GATE,   /* attention's output is multiplied by the sigmoid, or with gate_softplus the
                         softplus, of this projection: per element or per head */
    /* Compressed attention (MLA; DeepSeek-V2, arXiv 2405.04434): the cache holds one latent vector
     * and one rotated key per position, shared by all heads. */
    ROLE_ATTN_Q_A, /* projects to the queries' latent vector; absent: ATTN_Q computes queries from
                      the input */
    ROLE_ATTN_Q_A_NORM,
    ROLE_ATTN_Q_B,  /* expands the latent vector to queries: per head n_nope elements, then n_rot
                       rotated ones */
    ROLE_ATTN_KV_A, /* projects to the latent vector of keys and values, then the rotated key */
    ROLE_ATTN_KV_A_NORM, /* of that latent vector */
    ROLE_ATTN_KV_B,      /* per head rows of keys, then of values; bound as the next two */
    ROLE_ATTN_K_B, /* per head: maps a query to the latent space; the transposed matrix of keys */
    ROLE_ATTN_V_B, /* per head: maps the latent vector to values */
    ROLE_ATTN_Q_NORM,
    ROLE_ATTN_Q_NORM_BIAS, /* of norms over all heads */
    ROLE_ATTN_K_NORM,
    ROLE_ATTN_K_NORM_BIAS,
    /* Compressed keys (DeepSeek-V4): one row for `ratio` positions, a weighted sum of the products
     * of these positions with KV. The weights are a softmax over the positions, per element, of
     * their products with GATE plus POS. */
    ROLE_COMPRESS_KV,
    ROLE_COMPRESS_GATE,
    ROLE_COMPRESS_POS, /* a row for each of the positions */
    ROLE_COMPRESS_NORM,
    ROLE_INDEX_COMPRESS_KV, /* of index keys */
    ROLE_INDEX_COMPRESS_GATE,
    ROLE_INDEX_COMPRESS_POS,
    ROLE_INDEX_COMPRESS_NORM,
    ROLE_ATTN_SINKS,  /* attention sink: an extra score per head */
    ROLE_ATTN_SLOPES, /* ALiBi's slope per head, computed from the hyperparameters */
    ROLE_ATTN_OUT_A,  /* per group of heads: projects their results to a vector that ATTN_OUT reads
                       */
    ROLE_ATTN_OUT,
    ROLE_ATTN_OUT_BIAS,
    /* Sparse attention: selects the blocks of positions that a token attends to (MiniMax-M3), or
     * single positions (DSA; DeepSeek-V3.2, arXiv 2512.02556), in contexts with more than
     * attention.indexer.top_k of them. */
    ROLE_INDEX_Q, /* one query per KV head; DSA: from the queries' latent vector, any number */
    ROLE_INDEX_K, /* one key, shared by these queries */
    ROLE_INDEX_Q_NORM,
    ROLE_INDEX_K_NORM,
    ROLE_INDEX_K_NORM_BIAS,
    ROLE_INDEX_WEIGHTS, /* DSA: a weight per query; a position's score is the weighted sum of its
                           positive products with the queries */
    /* Recurrent mixers. */
    ROLE_SSM_IN,   /* projects to the convolution's input, plus Mamba-2's gate and time steps or
                      LFM2's gates */
    ROLE_SSM_QKVZ, /* SSM_IN and SSM_GATE of the delta rule, fused: per key head its query, its key,
                      the values and the gates of its heads; bound as two tensors */
    ROLE_SSM_IN_K, /* keys and values where they have separate matrices (KDA) */
    ROLE_SSM_IN_V,
    ROLE_SSM_GATE,   /* gate of the output */
    ROLE_SSM_GATE_A, /* SSM_GATE as a product of two matrices */
    ROLE_SSM_GATE_B,
    ROLE_SSM_ALPHA_A, /* alphas, one per element of a key, as a product of two matrices */
    ROLE_SSM_ALPHA_B,
    ROLE_SSM_BETA_ALPHA, /* delta rule: per group the betas of its heads, then their alphas */
    ROLE_SSM_BETA,       /* how much of a head's state is overwritten */
    ROLE_SSM_ALPHA,      /* how much of a head's state is kept */
    ROLE_SSM_X,  /* Mamba-1: from the convolution's result to the latent vector of time steps, keys
                    and queries; with scan_heads keys and queries come first */
    ROLE_SSM_DT, /* Mamba-1: from that latent vector to time steps */
    ROLE_SSM_DT_NORM, /* of the latent vector, of keys and of queries */
    ROLE_SSM_B_NORM,
    ROLE_SSM_C_NORM,
    ROLE_SSM_CONV,
    ROLE_SSM_CONV_K, /* KDA: the convolutions of keys and of values */
    ROLE_SSM_CONV_V,
    ROLE_SSM_CONV_BIAS,
    ROLE_SSM_DT_BIAS, /* added to time steps and alphas */
    ROLE_SSM_A,       /* decay of a head's state */
    ROLE_SSM_D,       /* weight of the input that bypasses the state */
    ROLE_SSM_NORM,    /* of the output */
    ROLE_SSM_NORM_BIAS,
    /* RWKV (MIXER_WKV). Matrix products read y + (y' - y) * weight, where y' is the normed input of
     * the previous token. RWKV-6 adds a term that depends on the token to the weights: SHIFT_B *
     * tanh(SHIFT_A * y''), where y'' is y shifted with the weights SHIFT_X. */
    ROLE_SSM_SHIFT,   /* weights, one row for each product: of queries, decays, keys, values, rates
                         and   gate; RWKV-6: of decays, keys, values, queries and gate */
    ROLE_SSM_SHIFT_W, /* or one tensor for each */
    ROLE_SSM_SHIFT_K,
    ROLE_SSM_SHIFT_V,
    ROLE_SSM_SHIFT_R,
    ROLE_SSM_SHIFT_G,
    ROLE_SSM_SHIFT_X,
    ROLE_SSM_SHIFT_A,
    ROLE_SSM_SHIFT_B, /* one matrix for each product */
    ROLE_SSM_IN_BIAS, /* of queries, keys and values */
    ROLE_SSM_IN_K_BIAS,
    ROLE_SSM_IN_V_BIAS,
    ROLE_SSM_RATE_A, /* learning rates, as a product of two matrices */
    ROLE_SSM_RATE_B,
    ROLE_SSM_RATE_BIAS,
    ROLE_SSM_FIRST_A, /* how far values follow those of the first layer, also a product of two */
    ROLE_SSM_FIRST_B,
    ROLE_SSM_FIRST_BIAS,
    ROLE_SSM_ERASE,    /* key * ROLE_SSM_ERASE is the direction that is erased from the state */
    ROLE_SSM_RATE_KEY, /* how far rates multiply keys */
    ROLE_SSM_BONUS,    /* weights of the token's own key for its own query */
    ROLE_SSM_OUT,
    ROLE_ATTN_POST_NORM, /* post-norm of attention */
    ROLE_ATTN_SUM_NORM,  /* of the residual stream after the addition of attention (BERT) */
    ROLE_ATTN_SUM_NORM_BIAS,
    ROLE_ATTN_SUM_NORM_2, /* of that norm's result plus the layer's input (Jina) */
    ROLE_ATTN_SUM_NORM_2_BIAS,
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_BIAS,
    /* RWKV: the FFN also reads a shifted input (see ROLE_SSM_SHIFT). In RWKV-6 its result is
     * multiplied by the sigmoid of a projection of a second shifted input. */
    ROLE_FFN_SHIFT,
    ROLE_FFN_SHIFT_R,
    ROLE_FFN_RECEPTANCE,
    ROLE_FC1,         /* predictor: residual stream or normed input -> rank */
    ROLE_FC2,         /* predictor: rank -> one score per neuron */
    ROLE_FC2_BIAS,    /* added to the scores */
    ROLE_FFN_SIGN,    /* signs of the gate's weights, one bit each */
    ROLE_FFN_GATE_UP, /* fused gate and up rows; bound as two tensors */
    ROLE_FFN_GATE,
    ROLE_FFN_GATE_BIAS,
    ROLE_FFN_UP,
    ROLE_FFN_UP_BIAS,
    ROLE_FFN_ACT_SCALE, /* divides the hidden vector (AWQ; Lin et al. 2023, arXiv 2306.00978) */
    ROLE_FFN_DOWN,
    ROLE_FFN_DOWN_T, /* FFN_DOWN transposed: one row per neuron */
    ROLE_FFN_BUNDLE, /* rows of gate, up and DOWN_T, neuron by neuron (bundle.h); bound as separate
                        tensors */
    ROLE_FFN_DOWN_BIAS,
    ROLE_FFN_DOWN_T_BIAS, /* another name of FFN_DOWN_BIAS; bound as FFN_DOWN_BIAS */
    ROLE_FFN_SUM_NORM,    /* of the residual stream after the addition of the FFN (BERT) */
    ROLE_FFN_SUM_NORM_BIAS,
    ROLE_FFN_POST_NORM,   /* post-norm of the FFN */
    ROLE_FFN_POST_NORM_1, /* of the dense FFN alone, where the layer also has experts (Gemma 4) */
    ROLE_FFN_FREQ,        /* frequency of each neuron or expert, hottest first */
    ROLE_FFN_PERM,        /* source index of each stored neuron */
    ROLE_FFN_CUT,         /* factor of each neuron's activation in threshold mode */
    ROLE_ROUTER,          /* router; layers that have it are mixtures of experts */
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_SCALE,       /* router input: the unweighted RMS norm times this / sqrt(n_embd) */
    ROLE_ROUTER_SELECT_BIAS, /* added to the scores that select experts, not to their weights */
    ROLE_ROUTER_TABLE,       /* the experts of every token of the vocabulary; the router's scores
                                give only their weights (Roller et al. 2021, arXiv 2106.04426) */
    ROLE_EXPERT_PRE_NORM,    /* norm of the experts' input */
    ROLE_EXPERT_LATENT_IN,   /* experts that read and write a latent vector (Kimi K3): from the
                                input to that vector */
    /* Matrices of all experts, one after the other; biases have one row per expert. */
    ROLE_EXPERT_GATE_UP, /* per expert the rows of gate, then of up */
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_GATE_BIAS,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_UP_BIAS,
    ROLE_EXPERT_DOWN,
    ROLE_EXPERT_DOWN_T, /* EXPERT_DOWN with one row per neuron */
    ROLE_EXPERT_BUNDLE, /* all matrices of an expert together (bundle.h); bound as separate
                           tensors */
    ROLE_EXPERT_DOWN_BIAS,
    ROLE_EXPERT_PERM, /* source index of each stored expert */
    ROLE_EXPERT_FC1,  /* predictors within experts: FC1, FC2, FC2_BIAS, FFN_SIGN of each */
    ROLE_EXPERT_FC2,
    ROLE_EXPERT_FC2_BIAS,
    ROLE_EXPERT_SIGN,
    ROLE_EXPERT_DOWN_SCALE,  /* of each expert's output; also in EXPERT_DOWN's `scales` */
    ROLE_EXPERT_POST_NORM,   /* of the sum of the experts */
    ROLE_EXPERT_LATENT_NORM, /* of the sum of experts of a latent vector */
    ROLE_EXPERT_LATENT_OUT,  /* from that sum to the block's result */
    /* Adjugate experts: a group of experts shares one, which reads the sum of a token's experts
     * (GroveMoE; Wu et al. 2025, arXiv 2508.07785). */
    ROLE_ADJUGATE_GATE,
    ROLE_ADJUGATE_UP,
    ROLE_ADJUGATE_DOWN,
    ROLE_SHARED_ROUTER, /* weight of the shared expert: the sigmoid of this projection */
    ROLE_SHARED_GATE,   /* the shared expert */
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    ROLE_STREAM_CORRECT,       /* after a layer: how far each stream follows the computed one */
    ROLE_STREAM_CORRECT_SCALE, /* scales the computed stream before the per-layer embedding */
    ROLE_LAYER_EMBD_GATE,      /* its activation multiplies the per-layer embedding */
    ROLE_LAYER_EMBD_OUT,       /* projects the product to the residual stream */
    ROLE_LAYER_EMBD_POST_NORM,
    ROLE_EMBD_SKIP,   /* a number: the layer's result is increased by the token's normed embedding
                         times this */
    ROLE_LAYER_SCALE, /* a number that multiplies the residual stream after the layer */
    ROLE_HYPER_HEAD,  /* hyper-connections: of the sum that the output norm reads */
    ROLE_HYPER_HEAD_BASE,
    ROLE_HYPER_HEAD_SCALE,
    ROLE_HYPER_HEAD_NORM, /* gated hyper-connections */
    ROLE_HYPER_HEAD_DOWN,
    ROLE_HYPER_HEAD_UP,
    ROLE_PAST_HEAD,     /* attention over earlier residuals: of what the output norm reads */
    ROLE_STREAM_UNEMBD, /* projects the other streams back before they are merged */
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT, /* not in encoders */
    ROLE_OUTPUT_BIAS,
    ROLE_OUTPUT_FC1,      /* predictor of the output head: the hidden vector's projection */
    ROLE_OUTPUT_FC2,      /* its scores of all tokens */
    ROLE_OUTPUT_PROFILER, /* files of the original PowerInfer: both, in one tensor */
    /* Classifier of a text's vector (models that rank): output * f(cls * vector). */
    ROLE_CLS,
    ROLE_CLS_BIAS,
    ROLE_CLS_NORM,
    ROLE_CLS_OUT,
    ROLE_CLS_OUT_BIAS,
    /* Projections of a text's vector (modules 2_Dense and 3_Dense of Sentence Transformers). */
    ROLE_DENSE_2,
    ROLE_DENSE_2_BIAS,
    ROLE_DENSE_3,
    /* Heads that draft (model_drafter.h): the layer's input is a projection of two normed vectors,
     * the embedding of a token and the features of the token before it. */
    ROLE_DRAFT_EMBD_NORM,
    ROLE_DRAFT_NORM,      /* of the features */
    ROLE_DRAFT_PROJ,      /* absent: Q, K and V read both vectors */
    ROLE_DRAFT_FUSE,      /* features from the inputs of several layers of the model */
    ROLE_DRAFT_FUSE_NORM, /* of these inputs together */
    ROLE_ROPE_FREQS,      /* RoPE frequency divisors */
    ROLE_ROPE_LONG,       /* divisors for contexts longer than the original one */
    ROLE_ROPE_SHORT,      /* divisors for other contexts */
    ROLE_COUNT
} tensor_role;

/* Symbolic sizes for shapes; resolved against a model's hyperparameters. */
typedef enum arch_dim {
    DIM_NONE,           /* no such dimension */
    DIM_EMBD,           /* n_embd */
    DIM_VOCAB,          /* n_vocab */
    DIM_FF,             /* n_ff of the layer */
    DIM_Q,              /* n_head * q_dim */
    DIM_KV,             /* n_head_kv * head_dim */
    DIM_VALUES,         /* n_head_kv * v_dim */
    DIM_ATTN,           /* n_head * v_dim: attention's output */
    DIM_ATTN_GATE,      /* DIM_ATTN or n_head: from the file */
    DIM_HEAD,           /* head_dim */
    DIM_HEADS,          /* n_head */
    DIM_HEADS_KV,       /* n_head_kv */
    DIM_HALF_ROT,       /* n_rot / 2 */
    DIM_ROT,            /* n_rot */
    DIM_HALF_ROTS,      /* half of the largest n_rot of all layers */
    DIM_QKV,            /* DIM_Q + DIM_KV + DIM_VALUES */
    DIM_NOPE,           /* q_dim - n_rot: elements of a head without rotation (MLA) */
    DIM_V,              /* v_dim */
    DIM_LATENT_Q,       /* elements of the queries' latent vector */
    DIM_LATENT,         /* elements of the latent vector of keys and values */
    DIM_KV_A,           /* DIM_LATENT + n_rot */
    DIM_KV_B,           /* n_head * (DIM_NOPE + v_dim) */
    DIM_ONE,            /* 1: a number */
    DIM_2FF,            /* 2 * n_ff */
    DIM_EMBD_8,         /* n_embd / 8: bytes of one bit per element */
    DIM_RANK,           /* rank of the layer's predictors: from the file */
    DIM_PROFILER,       /* elements of ROLE_OUTPUT_PROFILER: from the file */
    DIM_BUNDLE,         /* bytes of a neuron's or an expert's bundle: from the file */
    DIM_EXPERTS,        /* n_expert */
    DIM_UNITS,          /* placement units: n_expert where the layer has experts, otherwise n_ff */
    DIM_EXPERT_FF,      /* n_ff of the layer's experts */
    DIM_EXPERT_2FF,     /* 2 * n_ff of the layer's experts */
    DIM_EXPERT_EMBD,    /* elements of an expert's input and output */
    DIM_SHARED_FF,      /* n_ff of the layer's shared expert */
    DIM_ADJUGATES,      /* adjugate experts */
    DIM_ADJUGATE_FF,    /* n_ff of the layer's adjugate experts */
    DIM_POS,            /* rows of the position table: from the file */
    DIM_TYPES,          /* token types: from the file */
    DIM_OPEN,           /* a size that only the file has, such as the classifier's outputs */
    DIM_2Q,             /* 2 * DIM_Q: queries and gates, head by head */
    DIM_LAYER_EMBD,     /* elements of a layer's embedding */
    DIM_LAYER_EMBDS,    /* n_layer * DIM_LAYER_EMBD */
    DIM_STREAMS,        /* residual streams */
    DIM_STREAMS_1,      /* DIM_STREAMS - 1 */
    DIM_2STREAMS,       /* 2 * DIM_STREAMS */
    DIM_STREAM_EMBD,    /* DIM_STREAMS * n_embd */
    DIM_TWO,            /* 2 */
    DIM_THREE,          /* 3 */
    DIM_HYPER,          /* (2 + DIM_STREAMS) * DIM_STREAMS */
    DIM_STREAMS_2,      /* DIM_STREAMS squared */
    DIM_HYPER_RANK,     /* rank of the gates of hyper-connections */
    DIM_NGRAM_EMBD,     /* elements of a row of ROLE_NGRAM_EMBD */
    DIM_NGRAM_ROWS,     /* its rows: from the file */
    DIM_NGRAM_TAPS,     /* taps of ROLE_NGRAM_CONV */
    DIM_LAUREL,         /* rank of the LAuReL branch: from the file */
    DIM_INDEX,          /* elements of an indexer head */
    DIM_INDEX_Q,        /* elements of all indexer heads */
    DIM_INDEX_HEADS,    /* indexer heads */
    DIM_COMPRESS,       /* elements of the parts of a compressed key: head_dim, or twice that */
    DIM_INDEX_COMPRESS, /* of an index key: index_dim, or twice that */
    DIM_RATIO,          /* positions per compressed key */
    DIM_OUT_GROUPS,     /* groups of heads of ROLE_ATTN_OUT_A */
    DIM_OUT_GROUP,      /* elements of the results of a group */
    DIM_OUT_RANK,       /* elements of a group's vector */
    DIM_OUT_RANKS,      /* DIM_OUT_GROUPS * DIM_OUT_RANK */
    DIM_EXPERTS_USED,   /* experts per token */
    /* Recurrent mixers. */
    DIM_TAPS,            /* taps of the convolution */
    DIM_CONV,            /* channels of the convolution */
    DIM_2EMBD,           /* 2 * n_embd */
    DIM_3EMBD,           /* 3 * n_embd */
    DIM_SSM_IN,          /* DIM_SSM_INNER + DIM_CONV + DIM_SSM_HEADS */
    DIM_SSM_QKVZ,        /* DIM_CONV + DIM_SSM_INNER */
    DIM_SSM_INNER,       /* heads times elements per head */
    DIM_SSM_HEADS,       /* heads, each with its own state */
    DIM_SSM_2HEADS,      /* 2 * DIM_SSM_HEADS */
    DIM_SSM_GROUPS,      /* groups of heads that share keys and queries (Mamba-2: B and C) */
    DIM_SSM_GROUP_INNER, /* DIM_SSM_INNER / DIM_SSM_GROUPS */
    DIM_SSM_HEAD,        /* DIM_SSM_INNER / DIM_SSM_HEADS */
    DIM_SSM_2INNER,      /* 2 * DIM_SSM_INNER */
    DIM_SSM_STATE,       /* elements of a key */
    DIM_SSM_RANK,        /* elements of the latent vector of time steps */
    DIM_SSM_X,           /* DIM_SSM_RANK + 2 * DIM_SSM_STATE */
    DIM_SSM_KEYS,        /* DIM_SSM_GROUPS * DIM_SSM_STATE */
    DIM_FIVE             /* 5 */
} arch_dim;

/* The values of the symbolic sizes in one layer of a model. */
typedef struct arch_sizes {
    int64_t n_embd, n_vocab, n_ff, n_head, n_head_kv, head_dim, n_rot;
    int64_t n_rots;       /* the largest n_rot */
    int64_t q_dim, v_dim; /* of a head's query (MLA) and value; 0: head_dim */
    int64_t n_latent, n_latent_q;
    int64_t n_expert_embd; /* 0: n_embd */
    int64_t n_expert, n_ff_expert, n_ff_shared, n_adjugate, n_ff_adjugate;
    int64_t n_layer, n_embd_layer;
    int64_t n_stream, n_laurel, n_hyper_rank, n_embd_ngram, n_ngram_taps;
    int64_t n_index_head, index_dim;
    int64_t ratio, n_parts; /* compressed keys: positions per key, 2 where keys overlap */
    int64_t n_out_group, n_out_rank, n_expert_used;
    int64_t n_taps, n_conv, n_inner, n_ssm_head, n_ssm_group, n_state, n_step_rank;
    int64_t n_rank, n_pos, n_bundle,
        n_profiler; /* 0: unknown; such a dimension is taken from the file */
} arch_sizes;
int64_t arch_dim_size(arch_dim dim, const arch_sizes *sizes); /* 1 for DIM_NONE */

enum {
    TENSOR_PER_LAYER = 1,
    TENSOR_OPTIONAL = 2,
    TENSOR_NEURON_ROWS = 4,    /* row i belongs to neuron i; with DIM_2FF rows also row n_ff + i */
    TENSOR_NEURON_COLS = 8,    /* element i of each row belongs to neuron i (down) */
    TENSOR_NEURON_VEC = 16,    /* a bias with one element per neuron */
    TENSOR_F32 = 32,           /* small vectors: F32 (or any float type, converted on loading) */
    TENSOR_SCALE_LAST = 64,    /* y = scale * (W x + bias); otherwise y = scale * (W x) + bias */
    TENSOR_UNSCALED = 128,     /* "NAME.scale" is not applied, as in llama.cpp */
    TENSOR_RAW = 256,          /* integers, bound unchanged; I8 (sign) or I32 (perm) */
    TENSOR_NO_EXPERTS = 1024,  /* only in layers without a router */
    TENSOR_NO_DENSE = 8192,    /* only in layers with a router */
    TENSOR_OWN_KV = 2048,      /* only in layers with their own KV cache */
    TENSOR_OWN_INDEX = 131072, /* only in layers that select positions themselves */
    TENSOR_LAYER_EMBD = 4096,  /* only in models with per-layer embeddings */
    TENSOR_ONES = 16384,       /* norms without weights: not in files, bound as ones */
    TENSOR_UNUSED = 32768,     /* may be in files, but is not used, as in llama.cpp */
    TENSOR_IF_FITS = 65536, /* in files where the shape is another, the name is of another role */
    TENSOR_COMPRESSED = 262144, /* only in layers with compressed keys */
    TENSOR_FOURTH = 1048576,    /* dims[1] is the file's fourth dimension; the others are 1 */
    TENSOR_STACKED = 524288,    /* files may store the matrices, or rows, stacked as one */
    TENSOR_NGRAMS = 2097152,    /* only in layers, and models, with embeddings of n-grams */
    TENSOR_SPARSE = 512         /* written by `prepare` or part of a PWRI file: a predictor, a
                                   measurement, or another form of a matrix of the network */
};

/* Mixers combine the tokens of a sequence; one bit each. All except attention keep a state of fixed
 * size. */
enum {
    MIXER_ATTENTION = 1,
    MIXER_CONV = 2,  /* gated short convolution: C * conv(B * x) (LFM2; Liquid AI 2025) */
    MIXER_SSM = 4,   /* Mamba-2 (Dao and Gu 2024, arXiv 2405.21060) */
    MIXER_DELTA = 8, /* gated delta rule (Yang et al. 2024, arXiv 2412.06464) */
    MIXER_KDA = 16,  /* the delta rule with a decay per element of a key (Kimi Linear; Moonshot AI
                        2025, arXiv 2510.26692) */
    MIXER_SCAN = 32, /* Mamba-1 (Gu and Dao 2023, arXiv 2312.00752): every channel is a head and
                        has a decay per element of a key; with scan_heads as in Mamba-2 */
    MIXER_LIGHTNING = 64, /* linear attention with a constant decay per head (Lightning Attention-2;
                             Qin et al. 2024, arXiv 2401.04658) */
    MIXER_WKV = 128, /* RWKV-6 (Peng et al. 2024, arXiv 2404.05892) and RWKV-7 (Peng et al. 2025,
                        arXiv 2503.14456): a decay per element of a key, which also depends on the
                        previous token */
    MIXER_RECURRENT = MIXER_CONV | MIXER_SSM | MIXER_DELTA | MIXER_KDA | MIXER_SCAN |
                      MIXER_LIGHTNING | MIXER_WKV
};

/* Which layers of an architecture have which mixers, and which have an FFN. */
typedef enum arch_layers {
    LAYERS_ALIKE,     /* every layer has all mixers, and an FFN if the architecture has one */
    LAYERS_BY_HEADS,  /* attention where attention.head_count_kv is positive, the recurrent mixer
                         where it is 0; without one also an FFN only where feed_forward_length is
                         positive */
    LAYERS_BY_PERIOD, /* attention where attention.recurrent_layers is false; without the key, in
                         the last of every full_attention_interval layers */
    LAYERS_SINGLE     /* one block per layer: the recurrent mixer where attention.head_count_kv and
                         feed_forward_length are 0, attention where only feed_forward_length is 0,
                         otherwise an FFN */
} arch_layers;

/* Any matrix "NAME.weight" may come with a number "NAME.scale" [1] that multiplies its product
 * (formats with a scale per tensor need it); the binder looks for this tensor. */
typedef struct arch_tensor {
    tensor_role role;
    const char *name;    /* "blk.%d.ffn_up.weight", or without %d */
    const char *hf_name; /* usual Hugging Face name, "model.layers.%d.mlp.up_proj.weight", or NULL;
                            hf_family.c has the others */
    arch_dim dims[3];    /* contiguous first; [1] is DIM_NONE for vectors, [2] except for experts */
    uint32_t flags;      /* TENSOR_* */
} arch_tensor;

/* How a router's scores become probabilities; the numbers are those of expert_gating_func. */
typedef enum expert_gating {
    GATING_NONE,
    GATING_SOFTMAX,
    GATING_SIGMOID,
    GATING_SOFTMAX_CHOSEN, /* experts are selected by score; softmax over the selected */
    GATING_SQRT_SOFTPLUS,  /* sqrt(ln(1 + e^score)) (DeepSeek-V4) */
    GATING_COUNT
} expert_gating;

/* What a classifier reads, and its activation (ROLE_CLS). */
typedef enum classifier_kind {
    CLASSIFIER_FIRST, /* the first token; tanh */
    CLASSIFIER_MEAN,  /* the mean of all tokens; GELU */
    CLASSIFIER_LAST   /* the last token; its scores become probabilities (softmax) */
} classifier_kind;

/* Optional features of an architecture. The loader reads only keys that the row names, because some
 * programs write keys whose values they never use. */
enum {
    /* The residual stream and the logits. */
    ARCH_EMBD_SQRT = 1 << 0,      /* embeddings times sqrt(n_embd) */
    ARCH_EMBD_SCALE = 1 << 1,     /* embeddings times embedding_scale */
    ARCH_RESIDUAL_SCALE = 1 << 2, /* block outputs are multiplied by residual_scale */
    ARCH_NORM_EITHER = 1 << 3,    /* RMS norms where attention.layer_norm_rms_epsilon is positive */
    ARCH_LOGIT_MULTIPLIED = 1 << 4, /* logits times logit_scale */
    ARCH_LOGIT_DIVIDED = 1 << 5,    /* logits over logit_scale */
    ARCH_LOGIT_SOFTCAP = 1 << 6,    /* final_logit_softcapping: cap * tanh(logit / cap) */
    /* Attention. */
    ARCH_ATTN_SOFTCAP = 1 << 7, /* attn_logit_softcapping: soft cap of attention scores */
    ARCH_ATTN_SCALE = 1 << 8,   /* scores times attention.scale; 1 / sqrt(head_dim) without it */
    ARCH_ATTN_TEMPERATURE =
        1 << 9, /* scores grow with the logarithm of the position (attention.temperature_scale) */
    ARCH_VALUE_SCALE = 1 << 10,  /* values times attention.value_scale */
    ARCH_CHUNKS = 1 << 11,       /* windows are fixed ranges of positions, not the last ones */
    ARCH_QK_NORM_LATE = 1 << 12, /* QK norm after RoPE */
    ARCH_BARE_QK_NORM = 1 << 13, /* QK norm without weights in layers with RoPE */
    ARCH_QKV_BARE = 1 << 14,     /* biases and scales of Q, K and V are ignored, as in llama.cpp */
    ARCH_OUT_UNBIASED = 1 << 15, /* the bias of attention's output is not added, as in llama.cpp */
    /* RoPE. */
    ARCH_ROPE_WINDOWED = 1 << 16, /* RoPE only in layers with a sliding window, if there are any */
    ARCH_ROPE_LOCAL = 1 << 17,    /* layers with a window have their own base (rope.freq_base_swa)
                                     and no scaling; without this bit that base applies only to
                                     files with the key */
    ARCH_ROPE_SWITCH = 1 << 18,   /* rope.scaling.finetuned = false: no rotation */
    ARCH_ROPE_SECTIONS = 1 << 19, /* ROPE_NEOX where rope.dimension_sections has positive entries */
    /* FFNs and experts. */
    ARCH_FFN_UNSCALED =
        1 << 20, /* "NAME.scale" of gate, up and down is not applied, as in llama.cpp */
    ARCH_EXPERTS_UNSCALED = 1 << 21, /* "NAME.scale" of experts is not applied, as in llama.cpp */
    ARCH_EXPERT_KEYS = 1 << 22,      /* expert_weights_scale is read, and unless ARCH_EXPERT_NORM
                                        also expert_weights_norm */
    ARCH_EXPERT_NORM = 1 << 23,      /* the weights of a token's experts are divided by their sum */
    ARCH_EXPERT_INPUT = 1 << 24,     /* weights multiply the experts' input, not their output */
    ARCH_QKV_CLAMP = 1 << 25,        /* Q, K and V are clamped to +-attention.clamp_kqv */
    ARCH_FFN_CLAMP = 1 << 26, /* gpt-oss's SwiGLU, in FFNs and experts: with g = min(gate, 7) and u
                                 = clamp(up, -7, 7), g / (1 + e^-1.702g) * (u + 1) */
    ARCH_ROUTER_EARLY = 1 << 27, /* the router reads the input of the layer */
    /* Attention, continued. */
    ARCH_HEADS_LOCAL = 1 << 28, /* layers with a window have their own head sizes
                                   (attention.key_length_swa, rope.dimension_count_swa) */
    ARCH_VALUE_NORM = 1 << 29,  /* RMS norm of values, without weights, before caching */
    ARCH_SHARED_KV = 1 << 30    /* the last attention.shared_kv_layers layers read the KV cache of
                                   the last earlier layer of their kind, with or without a window */
};

typedef struct arch_row {
    const char *name; /* general.architecture: "llama" */
    norm_kind norm;
    float default_norm_eps; /* if the key is missing (OPT); 0: the key is required */
    float post_norm_eps;    /* of post-norms; 0: as of the other norms */
    rope_kind rope;
    rope_axes axes;
    int pos_offset; /* rows of ROLE_POS_EMBD before position 0 */
    bool encoder;   /* no output matrix; tokens attend in both directions unless
                       attention.causal is true */
    classifier_kind classifier;
    bool parallel;          /* attention and FFN blocks both read the layer's input (Falcon) */
    bool parallel_by_key;   /* the same where use_parallel_residual is true (GPT-NeoX) */
    uint32_t mixers;        /* MIXER_*; 0: attention */
    arch_layers layers;     /* with a recurrent mixer: which layers have it */
    int attention_interval; /* LAYERS_BY_PERIOD: full_attention_interval if the key is missing */
    bool scan_heads;        /* MIXER_SCAN: heads with a decay each (PLaMo-2) */
    bool in_by_head;        /* rows of ROLE_SSM_IN come head by head: MIXER_SCAN's gates and inputs;
                               MIXER_LIGHTNING's queries, keys and values */
    bool decays_bounded;    /* kda.gate_lower_bound is a bound without kda.safe_gate (MIXER_KDA) */
    bool xielu; /* FFNs have xIELU (keys xielu.alpha_n, alpha_p, beta, eps) instead of an activation
                   of the list */
    bool gates_soft;        /* SiTU (activation.situ_beta, situ_linear_beta) in FFNs and experts */
    bool decays_positive;   /* ROLE_SSM_A has e^A_log, not its negative (MIXER_KDA) */
    bool residual_normed;   /* blocks add to the normed stream times residual_scale, not to the
                               stream (MiniMax-01) */
    bool gate_softplus;     /* ROLE_ATTN_GATE: softplus, not the sigmoid */
    bool gated_queries;     /* ROLE_ATTN_Q has a gate after each head: attention's output is
                               multiplied by its sigmoid */
    bool groups_alternate;  /* group g has heads g, g + n_group, g + 2 n_group, ... (MIXER_DELTA);
                               otherwise adjacent heads */
    bool ssm_unscaled;      /* "NAME.scale" of recurrent mixers is not applied, as in llama.cpp */
    bool delta_sigmoid;     /* the gate of the result is a sigmoid, not SiLU (MIXER_DELTA) */
    uint32_t has;           /* ARCH_* */
    expert_gating gating;   /* unless expert_gating_func is present */
    float shared_scale;     /* multiplies the sum of the experts and the shared expert; 0: 1 */
    rope_kind index_rope;   /* DSA: of index queries and keys; ROPE_NONE: as of the other heads */
    bool rot_half;          /* layers without a window rotate half of rope.dimension_count */
    bool rot_last;          /* the last elements of queries and keys are rotated, not the first */
    bool index_rot_last;    /* DSA: the last elements of index queries and keys are rotated, not
                               the first */
    bool index_norm_as_all; /* DSA: the norm of index keys has the epsilon of the other norms */
    bool yarn_unscaled;     /* YaRN's factor does not multiply the scores (MLA), or rotated vectors
                               (compressed keys) */
    bool index_pools;       /* an index key is the mean of attention.compress_ratios positions; all
                               index queries together select positions (Qwen4) */
    bool index_by_layer;    /* DSA: layers with 0 in attention.indexer.types attend to the positions
                               that the last earlier layer with 1 selected */
    int index_period_ctx;   /* without that key, in models with at least this context, layers 0, 1,
                               2, 6, 10, ... select (GLM-5.2); in others and with 0 all do */
    norm_kind qk_norm; /* ROLE_ATTN_Q_NORM and K_NORM: per head (one weight for all heads or one per
                          head) or over all heads */
    int window_period; /* attention.sliding_window: the last of every window_period layers has
                          no window, unless attention.sliding_window_pattern is present; 1: all
                          layers have one; 0: none */
    bool window_after; /* the first of window_period layers has no window, not the last */
    int unnormed_experts;  /* ARCH_BARE_QK_NORM: not in models with this number of experts */
    int window_layers;     /* only models with this number of layers have windows; 0: any */
    int default_window;    /* if attention.sliding_window is missing; 0: none */
    int own_kv_layers;     /* ARCH_SHARED_KV, no key: first layer with a shared cache; 0: none */
    int sparse_layers;     /* without activation_sparsity_scale, the FFNs of the first sparse_layers
                              layers keep a twentieth of their neurons (Gemma 3n) */
    float default_softcap; /* ARCH_LOGIT_SOFTCAP: if the key is missing; 0: none */
    float default_attn_softcap; /* ARCH_ATTN_SOFTCAP: if the key is missing; 0: none */
    float default_logit_scale;  /* logit_scale if the key is missing; 0: none */
    bool alibi;                 /* scores fall with the distance (ALiBi; Press et al. 2021, arXiv
                                   2108.12409), by attention.max_alibi_bias */
    float default_alibi;        /* if the key is missing */
    int alibi_layers;           /* only models with this number of layers have it; 0: any */
    bool scale_by_dim;          /* attention.scale if missing: 1 / head_dim, not its root */
    bool ff_of_both;            /* feed_forward_length counts the rows of gate and up together */
    int rope_layers;            /* only models with this number of layers rotate; 0: any */
    int no_rope_period;         /* the last of every N layers has no rotation; 0: all rotate */
    bool rope_by_layer;         /* attention.rope_pattern: 0 in layers without rotation */
    bool one_rope_base;         /* rope.freq_base_swa is not read, as in llama.cpp */
    bool rope_undivided;        /* rope_freqs is not used, as in llama.cpp */
    float local_rope_base;      /* ARCH_ROPE_LOCAL: if the key is missing; 0: rope.freq_base */
    float default_embd_scale;   /* embedding_scale if the key is missing; 0: none */
    float default_depth_scale;  /* residual_scale is this / sqrt(n_layer) if missing; 0: none */
    float default_logit_width;  /* logit_scale is this / n_embd if missing; 0: none */
    float default_attn_scale;   /* attention.scale if missing; 0: from head_dim */
    bool draft_raw;             /* heads that draft read all residual streams before the last
                                   norm */
    bool draft_global;          /* layers for multi-token prediction have no window, and rotate */
    bool experts_early;         /* router and experts read the layer's input, and an FFN, next to
                                   them, the stream after attention (Arctic) */
    const char *attn_scale_key; /* another name of attention.scale */
    /* Limit of each layer's experts where swiglu_clamp_exp is missing: gate is at most this before
     * SiLU, up within +- this. 0: the architecture has no limits, and the key is not read. */
    float default_swiglu_clamp;
    bool clamp_by_key; /* the same with no limits if swiglu_clamp_exp is missing */
    bool clamp_shared; /* limits of shared experts: swiglu_clamp_shexp, or those of experts */
    bool clamp_late;   /* the same after SiLU; FFNs and shared experts have swiglu_clamp_shexp; no
                          limits if the keys are missing */
    float default_temperature; /* attention.temperature_scale if missing */
    int temperature_length;    /* ARCH_ATTN_TEMPERATURE: positions per step, in layers without
                                  rotation; 0: the original context, in all layers */
    int temperature_offset;    /* added to the position */
    int wide_scale_layers;     /* models with this number of layers scale scores by sqrt(n_head /
                                  n_embd) if attention.scale is missing */
    activation default_activation; /* unless {arch}.hidden_activation is present */
    activation pwri_activation;    /* in files of the original PowerInfer (magic PWRI) */
    const arch_tensor *tensors;
    int n_tensors;
} arch_row;

/* NULL when unknown. */
const arch_row *arch_find(const char *name, uint64_t n_bytes);
int arch_count(void);
const arch_row *arch_at(int i);
/* The activation of files without the key hidden_activation. pwri: the file has the magic PWRI;
 * experts: the original PowerInfer's only mixture of experts is TurboSparse-Mixtral. */
activation arch_activation(const arch_row *row, bool pwri, bool experts);
/* Whether a layer has a window, if one of every `period` layers has none; see window_period. */
bool arch_has_window(const arch_row *row, int period, int layer);
/* "falcon, llama, qwen2": for messages. */
enum { ARCH_CLOSEST = 8, ARCH_CLOSEST_TEXT = ARCH_CLOSEST * 32 };
/* The names most like `name`, most alike first, separated by commas; returns `text`. */
const char *arch_closest_names(const char *name, size_t n_name, char text[ARCH_CLOSEST_TEXT]);

/* The row of a role; NULL when the architecture has no such tensor. */
const arch_tensor *arch_tensor_of(const arch_row *row, tensor_role role);
/* Like arch_tensor_of, but returns the fused tensor's row for a part without a row. */
const arch_tensor *arch_tensor_whole(const arch_row *row, tensor_role role);
/* Whether values may be shorter than keys; attention's output then has n_head * v_dim elements. */
bool arch_values_may_differ(const arch_row *row);
/* Writes the tensor's name in layer `layer` (ignored for global tensors) to `name` ([64]). */
void arch_tensor_name(const arch_tensor *t, int layer, char name[64]);
/* Whether tensors of this role belong to a predictor, of a dense layer or within experts. */
bool tensor_role_is_predictor(tensor_role role);
const char *tensor_role_name(tensor_role role); /* "ffn_up" */
/* The part of a layer that a tensor belongs to. */
typedef enum arch_part { PART_ANY, PART_ATTENTION, PART_RECURRENT, PART_FFN } arch_part;
arch_part tensor_role_part(tensor_role role);

#endif
