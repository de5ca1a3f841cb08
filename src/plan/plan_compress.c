/* plan_compress.c: attention with compressed keys (DeepSeek-V4). There is one KV
 * head, whose keys are also the values. A token attends to the last `window` positions, and to
 * compressed keys, each of `ratio` positions; if there are many, only to those that an index
 * selects. A compressed key is a weighted sum over its positions; the weights of each element are a
 * softmax. Attention's result is rotated back by the token's own position; then each group of heads
 * is projected together:
 *
 *   matmul q_a,kv -> [matmul parts of keys] -> norm -> matmul q_b -> [compress -> index]
 *   -> rope_store -> attention -> rope_back -> heads out_a -> quantize -> matmul out
 *
 * The parts of an incomplete key are in the session's state, like the states of recurrent layers.
 *
 * In Qwen4 only index keys are compressed: each is the mean of a block of positions. */
#include "plan_impl.h"

enum { KEYS, INDEX, KINDS };

static const struct {
    tensor_role kv, gate, positions, norm;
} roles[KINDS] = {
    {ROLE_COMPRESS_KV, ROLE_COMPRESS_GATE, ROLE_COMPRESS_POS, ROLE_COMPRESS_NORM},
    {ROLE_INDEX_COMPRESS_KV, ROLE_INDEX_COMPRESS_GATE, ROLE_INDEX_COMPRESS_POS,
     ROLE_INDEX_COMPRESS_NORM},
};

/* The layer's part of a session's state comes after the parts of earlier layers. */
static args_compress describe(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    const int64_t dims[KINDS] = {hp->joint_kv ? l->hp.head_dim : 0,
                                 l->hp.index_own ? hp->index_dim : 0};
    args_compress a = {.ratio = l->hp.ratio,
                       .n_parts = l->hp.overlaps ? 2 : 1,
                       .set = hp->index_ratio > 0 ? ROPE_SET_LOCAL : l->hp.rope,
                       .neox = hp->rope == ROPE_NEOX};
    int64_t at = 0, state = p->n_state;
    for (int i = 0; i < KINDS; i++) {
        a.of[i].dim = dims[i];
        a.of[i].at = at;
        a.of[i].state = state;
        a.of[i].positions = l->t[roles[i].positions].data;
        a.of[i].norm = l->t[hp->index_ratio > 0 ? ROLE_INDEX_K_NORM : roles[i].norm].data;
        a.of[i].rot_at = i == KEYS ? hp->rot_at : hp->index_rot_at;
        at += 2 * a.n_parts * dims[i];
        state += model_compress_state(&l->hp, dims[i]);
    }
    p->n_state += model_state(hp, &l->hp);
    return a;
}

/* Adds steps that compute parts of keys from the quantized Y, and complete the keys. */
static void add_parts(plan *p, int layer, const args_compress *a) {
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    for (int i = 0; i < KINDS && a->of[i].dim > 0; i++) {
        plan_add_matrix(p, s, roles[i].kv, ROLE_COUNT, BUF_COMPRESS);
        plan_add_matrix(p, s, roles[i].gate, ROLE_COUNT, BUF_COMPRESS);
        s->matrix[2 * i].out_at = a->of[i].at;
        s->matrix[2 * i + 1].out_at = a->of[i].at + a->n_parts * a->of[i].dim;
    }
}

void plan_add_compressed(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    const args_compress a = describe(p, layer);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_ATTN_Q_A, ROLE_COUNT, BUF_LATENT_Q);
    plan_add_matrix(p, s, ROLE_ATTN_K, ROLE_COUNT, BUF_K);
    if (l->hp.index_own) plan_add_matrix(p, s, ROLE_INDEX_WEIGHTS, ROLE_COUNT, BUF_INDEX_W);
    if (l->hp.ratio > 0) add_parts(p, layer, &a);
    plan_add_latent_queries(p, layer);
    if (l->hp.ratio > 0) {
        s = plan_add_step(p, side, OP_COMPRESS, layer, BUF_COMPRESS);
        *STEP_ARGS(s, compress) = a;
    }
    if (l->hp.index_own) plan_add_selected_keys(p, layer);
}

void plan_add_pools(plan *p, int layer, plan_step *products) {
    const args_compress a = describe(p, layer);
    plan_add_matrix(p, products, ROLE_INDEX_K, ROLE_COUNT, BUF_COMPRESS);
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_COMPRESS, layer, BUF_COMPRESS);
    *STEP_ARGS(s, compress) = a;
}

void plan_add_groups(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer_hparams *l = &p->model->layers[layer].hp;
    const int64_t group = (int64_t)l->n_head * l->v_dim / hp->n_out_group;
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_ROPE_BACK, layer, BUF_ATTN);
    *STEP_ARGS(s, rope) = (args_rope){
        .set = l->rope, .neox = hp->rope == ROPE_NEOX, .rot_at = hp->rot_at, .q_stride = l->v_dim};
    args_heads *heads = plan_add_heads(p, layer, BUF_ATTN, ROLE_ATTN_OUT_A, BUF_V, hp->n_out_group);
    heads->in = (plan_part){0, group};
    heads->out = (plan_part){0, hp->n_out_rank};
}
