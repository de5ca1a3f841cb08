/* cpu_attention.h: what the ways to compute attention on the CPU share. Private to src/engine. */
#ifndef ENGINE_CPU_ATTENTION_H
#define ENGINE_CPU_ATTENTION_H

#include "cpu_exec.h"

/* Attention of one layer. */
typedef struct attn_layer {
    int layer, n_head, n_head_kv, group;
    int head_dim;   /* of a query and a key */
    int v_dim;      /* of a value and a result */
    int block;      /* tokens per task */
    int64_t window; /* 0: none */
    int64_t q_stride;
    bool chunks, temperature;
    float scale, softcap;
    const float *sinks;
    plan_buffer queries;
    bool latent, may_split;
} attn_layer;

/* The first position that a token at `pos` attends to. */
int64_t attn_first_seen(const attn_layer *a, int64_t pos);
/* What scores of a token at `pos` are multiplied by. */
float attn_score_scale(const engine_context *c, const attn_layer *a, int64_t pos);
/* out [v_dim] = the softmax state (m, l, acc [v_dim]) of one query, divided by its sum. */
void attn_finish_query(const attn_layer *a, int head, float *out, const float *acc, float m,
                       float l);

/* cpu_latent_prompt.c: compressed attention with keys and values of every head made of the cached
 * rows. */
bool attn_expands(const engine_context *c, int layer);
void attn_run_expanded(engine_context *c, const attn_layer *a, int ith);

#endif
