/* cpu_attention.h: what the ways to compute attention on the CPU share. Private to src/engine. */
#ifndef ENGINE_CPU_ATTENTION_H
#define ENGINE_CPU_ATTENTION_H

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

/* cpu_blocks.c: a session's room for what OP_FIND_BLOCKS finds. */
pi_status block_scores_create(block_scores *b, const model_hparams *hp, int n_batch, int64_t n_ctx,
                              pi_error *err);
void block_scores_free(block_scores *b); /* a zeroed one is fine */
/* [n_blocks] of a head of keys and a token of the item that does not attend to all: BLOCK_LEFT_OUT,
 * or whatever else where it attends to the block. */
float *block_scores_of(const engine_context *c, const ubatch_item *item, int token, int head);
#define BLOCK_LEFT_OUT (-INFINITY)

/* The first position that a token at `pos` attends to. */
int64_t attn_first_seen(const attn_layer *a, int64_t pos);
/* What scores of a token at `pos` are multiplied by. */
float attn_score_scale(const engine_context *c, const attn_layer *a, int64_t pos);
/* out [v_dim] = the softmax state (m, l, acc [v_dim]) of one query, divided by its sum. */
void attn_finish_query(const engine_context *c, const attn_layer *a, int head, float *out,
                       const float *acc, float m, float l);

/* cpu_latent_prompt.c: compressed attention with keys and values of every head made of the cached
 * rows. */
bool attn_expands(const engine_context *c, int layer);
void attn_run_expanded(engine_context *c, const plan_step *s, const attn_layer *a, int ith);

#endif
