/* plan_index.c: sparse attention: attention reads the blocks of positions with the highest scores.
 *
 * By index (MiniMax-M3): an index query for every head of keys and one index key, which is cached.
 * By bounds, for other models: from the least and the greatest value of each element of a block's
 * keys follows the highest product that a query can have with one of them (Quest, arXiv
 * 2406.10774). Prefill reads all positions: its tokens share what they read, but not their blocks.
 */
#include "plan_impl.h"

plan_blocks plan_attention_blocks(const plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    if (l->t[ROLE_INDEX_Q].data)
        return (plan_blocks){
            .size = hp->block_size, .top = hp->block_top, .local = hp->block_local};
    bool whole = l->hp.mixers & MIXER_ATTENTION && hp->n_latent == 0 && l->hp.window == 0;
    bool fits = l->hp.head_dim % (CPU_ACT_GROUP / 2) == 0; /* rows of bounds: Q8_0 */
    if (p->attn_blocks == 0 || p->splits[layer].primary != SIDE_CPU || !whole || !fits)
        return (plan_blocks){0};
    return (plan_blocks){.size = PLAN_BOUNDS_SIZE,
                         .top = p->attn_blocks,
                         .first = PLAN_BOUNDS_FIRST,
                         .local = PLAN_BOUNDS_LOCAL,
                         .bounds = true};
}

void plan_add_index(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_INDEX_Q, ROLE_COUNT, BUF_INDEX_Q);
    plan_add_matrix(p, s, ROLE_INDEX_K, ROLE_COUNT, BUF_INDEX_K);

    s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){.set = l->hp.rope,
                                      .norm = p->model->arch->qk_norm,
                                      .q_norm = l->t[ROLE_INDEX_Q_NORM].data,
                                      .k_norm = l->t[ROLE_INDEX_K_NORM].data};

    s = plan_add_step(p, side, OP_FIND_BLOCKS, layer, BUF_INDEX_Q);
    STEP_ARGS(s, find_blocks)->blocks = plan_attention_blocks(p, layer);
}

void plan_add_bounds(plan *p, int layer, int64_t q_stride) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_FIND_BLOCKS, layer, BUF_Q);
    *STEP_ARGS(s, find_blocks) = (args_find_blocks){.blocks = plan_attention_blocks(p, layer),
                                                    .q_stride = q_stride};
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_SKIP);
}
