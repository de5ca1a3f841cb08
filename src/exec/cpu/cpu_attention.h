/* cpu_attention.h: what the files that compute attention on the CPU share. Private to
 * src/exec/cpu. */
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

/* cpu_blocks.c: the block scores [n_blocks] of a token that does not attend to all blocks; head:
 * the choice (n_index_choice), or with bounds the first query head of the KV head. The token
 * attends to every block whose score is not BLOCK_LEFT_OUT; with a list [n_list] to the positions
 * in it. */
float *block_scores_of(const ubatch_item *item, int token, int head);
#define BLOCK_LEFT_OUT (-INFINITY)
/* Leaves out all but the `top` best of n > top blocks; among equal scores the first stay. */
void block_scores_keep_best(float *score, int64_t n, const plan_blocks *b);

/* Converts the cached keys of n positions from `pos` on to floats [n][stride], 64-byte aligned.
 * They stay rotated (kv_rotate). */
void attn_load_keys(const cpu_exec *c, const kv_cache *kv, int layer, int head, int64_t pos, int n,
                    float *out, int64_t stride);
/* The first position that a token at `pos` attends to. */
int64_t attn_first_seen(const attn_layer *a, int64_t pos);
/* The factor of the scores of a token at `pos`. */
float attn_score_scale(const cpu_exec *c, const attn_layer *a, int64_t pos);
/* out [v_dim] = the result of one query from its softmax state (m, l, acc [v_dim]). */
void attn_finish_query(const cpu_exec *c, const attn_layer *a, int head, float *out,
                       const float *acc, float m, float l);

/* cpu_latent.c: whether this ubatch expands the cached rows of compressed attention to keys
 * and values of every head, and attention that does. */
bool attn_expands(const cpu_exec *c, int layer);
void attn_run_expanded(cpu_exec *c, const plan_step *s, const attn_layer *a, int ith);

#endif
