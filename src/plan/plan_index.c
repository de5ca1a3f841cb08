/* plan_index.c: steps of sparse attention: an index query for every head of keys and one index key,
 * which is cached; attention reads the blocks of positions with the highest products of query and
 * key. */
#include "plan_impl.h"

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
    STEP_ARGS(s, find_blocks)->blocks = plan_blocks_of(&p->model->hp);
}
