/* cpu_attention.h: what the ways to compute attention on the CPU share. Private to src/exec/cpu. */
#ifndef EXEC_CPU_ATTENTION_H
#define EXEC_CPU_ATTENTION_H

#include "cpu_exec.h"

/* Attention of one layer. */
typedef struct attn_layer {
    int layer, n_head, n_head_kv, group;
    int head_dim; /* of a query and a key */
    int v_dim;    /* of a value and a result */
    int block;    /* tokens per task */
    const args_attention *args;
    plan_buffer queries;
    bool may_split;
    quant_type keys, values; /* of the cache */
} attn_layer;

/* cpu_blocks.c: [n_blocks] of a head of keys and a token of the item that does not attend to all:
 * BLOCK_LEFT_OUT, or whatever else where it attends to the block. */
float *block_scores_of(const cpu_exec *c, const ubatch_item *item, int token, int head);
#define BLOCK_LEFT_OUT (-INFINITY)

/* The first position that a token at `pos` attends to. */
int64_t attn_first_seen(const attn_layer *a, int64_t pos);
/* What scores of a token at `pos` are multiplied by. */
float attn_score_scale(const cpu_exec *c, const attn_layer *a, int64_t pos);
/* out [v_dim] = the softmax state (m, l, acc [v_dim]) of one query, divided by its sum. */
void attn_finish_query(const cpu_exec *c, const attn_layer *a, int head, float *out,
                       const float *acc, float m, float l);

/* cpu_latent_prompt.c: compressed attention with keys and values of every head made of the cached
 * rows. */
bool attn_expands(const cpu_exec *c, int layer);
void attn_run_expanded(cpu_exec *c, const plan_step *s, const attn_layer *a, int ith);

#endif
