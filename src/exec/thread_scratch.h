/* thread_scratch.h: working memory of one thread of the CPU. */
#ifndef EXEC_THREAD_SCRATCH_H
#define EXEC_THREAD_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    /* Decode splits long contexts over threads; states of split ranges are kept and merged. */
    ATTN_SPLIT_LENGTH = 1024, /* positions per task at least, so that merging stays negligible */
    ATTN_MAX_SPLITS = 32,
    ATTN_QUERIES = 128 /* rows of Q per task: amortizes decoding K and V over a prompt's tokens */
};

/* Bytes of weights that a thread read in this ubatch, in steps that do not read all of theirs. */
typedef struct ubatch_bytes {
    uint64_t ffn;       /* rows of gate, up and down */
    uint64_t gathered;  /* non-contiguous rows among these */
    uint64_t predictor; /* second products, signs */
    uint64_t head;      /* rows of the output matrix */
    uint64_t active;    /* not bytes: active neurons of sparse layers */
} ubatch_bytes;

/* Positions whose keys and values are made at once; a multiple of CPU_PANEL. */
enum { LATENT_BLOCK = 128 };

/* Prefill with compressed attention (cpu_latent_prompt.c), one head at a time. head_dim: of a query
 * or of a value, the larger. */
typedef struct latent_scratch {
    int64_t row_stride, head_dim; /* floats; row_stride: of a cached row, whole cache lines */
    float *rows;                  /* [LATENT_BLOCK][row_stride] as floats; also gathered rows of the
                                     cache, where attention reads selected ones */
    float *k, *v;                 /* [LATENT_BLOCK][head_dim] */
    void *act;                    /* latent vectors, quantized */
    float *q, *acc;               /* [n_batch][head_dim] */
    float *m, *l;                 /* [n_batch] */
    int32_t *first, *limit;       /* [n_batch] */
} latent_scratch;

/* Positions whose index scores are computed at once (DSA); a multiple of CPU_ROW_TILE. */
enum { INDEX_PART = 256 };

typedef struct thread_scratch {
    void *kernel; /* for matmul (decoded tiles of weights) and attention kernels */
    /* Queries and softmax states of attention. */
    float *q, *m, *l, *acc; /* attn_queries rows */
    int32_t *first, *limit; /* [attn_queries] */
    void *head;             /* OP_HEADS: quantized input of a head */
    void *index_act;        /* DSA: quantized index queries, attn_queries of them */
    float *index;           /* DSA: [attn_queries][INDEX_PART] products with index keys */
    latent_scratch latent;
    /* One part of an FFN layer. */
    float *gate, *up; /* [PLAN_EXPERT_MAX_COLS tokens][max_part_rows] */
    int32_t *rows;    /* [max_part_rows], selected neurons */
    uint8_t *mark;    /* [max_part_rows], bit c: token c selected the neuron */
    float *recur; /* a head of a recurrent layer, CPU_RECUR_TOKENS: decays, keys, queries, values;
                     then what its kernel needs */
    float *best;  /* [n_batch] OP_HEAD_SCORES: per row of logits, this thread's best score */
    ubatch_bytes counts;
} thread_scratch;

#endif
