/* plan_index.c: sparse attention: attention reads the blocks of positions with the highest scores.
 *
 * By index (MiniMax-M3): an index query for every head of keys and one index key, which is cached.
 * By index, single positions (DSA; DeepSeek-V3.2): index queries from the queries' latent vector,
 * one index key, and a weight for each query. Later layers may use the same positions. Qwen4 has no
 * weights, and its index keys are means of several positions (plan_compress.c). By bounds (other
 * models): the minimum and the maximum of each key element in a block bound the product of a query
 * with any key of the block (Quest, arXiv 2406.10774). */
#include "plan_impl.h"

plan_blocks plan_attention_blocks(const plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    if (l->t[ROLE_INDEX_Q].data || l->hp.index_shared)
        return (plan_blocks){.size = hp->block_size,
                             .top = hp->block_top,
                             .local = hp->block_local,
                             .whole = hp->joint_kv};
    bool whole = l->hp.mixers & MIXER_ATTENTION && hp->n_latent == 0 && hp->n_index_head == 0 &&
                 l->hp.window == 0 && !l->t[ROLE_ATTN_SLOPES].data;
    bool fits = l->hp.head_dim % (CPU_ACT_GROUP / 2) == 0; /* rows of bounds: Q8_0 */
    bool on_cpu = p->splits[layer].primary == SIDE_CPU && plan_owns(p, layer);
    return on_cpu && whole && fits ? plan_bounds(p->attn_blocks) : (plan_blocks){0};
}

static void add_selection(plan *p, int layer) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_FIND_BLOCKS, layer, BUF_INDEX_Q);
    STEP_ARGS(s, find_blocks)->blocks = plan_attention_blocks(p, layer);
}

void plan_add_index(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_INDEX_Q, ROLE_COUNT, BUF_INDEX_Q);
    const bool pools = p->model->hp.index_ratio > 0;
    if (pools)
        plan_add_pools(p, layer, s);
    else
        plan_add_matrix(p, s, ROLE_INDEX_K, ROLE_COUNT, BUF_INDEX_K);

    s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){.set = l->hp.rope,
                                      .no_values = pools,
                                      .neox = p->model->hp.index_rope == ROPE_NEOX,
                                      .norm = p->model->arch->qk_norm,
                                      .q_norm = l->t[ROLE_INDEX_Q_NORM].data,
                                      .k_norm = l->t[ROLE_INDEX_K_NORM].data};
    add_selection(p, layer);
}

void plan_add_index_inputs(plan *p, int layer) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_INDEX_K, ROLE_COUNT, BUF_INDEX_K);
    plan_add_matrix(p, s, ROLE_INDEX_WEIGHTS, ROLE_COUNT, BUF_INDEX_W);
}

void plan_add_positions(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_INDEX_K);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_LAYER,
                                      .width = hp->index_dim,
                                      .eps = hp->index_norm_eps,
                                      .weight = l->t[ROLE_INDEX_K_NORM].data,
                                      .bias = l->t[ROLE_INDEX_K_NORM_BIAS].data};
    s->out = BUF_INDEX_K;

    s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){.set = l->hp.rope, .neox = hp->index_rope == ROPE_NEOX};
    add_selection(p, layer);
}

void plan_add_selected_keys(plan *p, int layer) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){.set = p->model->layers[layer].hp.rope,
                                      .neox = p->model->hp.index_rope == ROPE_NEOX,
                                      .no_values = true};
    add_selection(p, layer);
}

void plan_add_bounds(plan *p, int layer, int64_t q_stride) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_FIND_BLOCKS, layer, BUF_Q);
    *STEP_ARGS(s, find_blocks) = (args_find_blocks){.blocks = plan_attention_blocks(p, layer),
                                                    .q_stride = q_stride};
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
}
