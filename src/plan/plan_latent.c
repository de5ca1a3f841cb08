/* plan_latent.c: compressed attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1). A position
 * is cached as one row, [rotated key | latent vector], shared by all heads; each head has matrices
 * that compute its keys and values from the latent vector. The plan absorbs these matrices into the
 * queries and the output:
 *
 *   q . (K c) = (K^T q) . c        sum of p_j (V c_j) = V (sum of p_j c_j)
 *
 *   [matmul q_a -> norm -> matmul q_b] or matmul q -> heads k_b (queries to the latent space)
 *   -> [index: plan_index.c] -> latent_store -> attention (one KV head; values are the keys) ->
 * heads v_b
 *
 * so that keys and values are not computed for each position. */
#include <assert.h>

#include "plan_impl.h"

args_heads *plan_add_heads(plan *p, int layer, plan_buffer in, tensor_role role, plan_buffer out,
                           int n) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_HEADS, layer, in);
    plan_add_matrix(p, s, role, ROLE_COUNT, out);
    STEP_ARGS(s, heads)->n = n;
    return STEP_ARGS(s, heads);
}

/* Queries and index queries from their latent vector. */
void plan_add_latent_queries(plan *p, int layer) {
    const model_tensor *norm = &p->model->layers[layer].t[ROLE_ATTN_Q_A_NORM];
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_LATENT_Q);
    *STEP_ARGS(s, norm) = (args_norm){
        .kind = NORM_RMS, .width = norm->n_in, .eps = p->model->hp.norm_eps, .weight = norm->data};
    s->out = BUF_LATENT_Q;
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_LATENT_Q);
    plan_add_matrix(p, s, ROLE_ATTN_Q_B, ROLE_COUNT, BUF_Q);
    if (p->model->layers[layer].t[ROLE_INDEX_Q].data)
        plan_add_matrix(p, s, ROLE_INDEX_Q, ROLE_COUNT, BUF_INDEX_Q);
}

void plan_add_latents(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    bool two = l->t[ROLE_ATTN_Q_B].data;
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, two ? ROLE_ATTN_Q_A : ROLE_ATTN_Q, ROLE_COUNT,
                    two ? BUF_LATENT_Q : BUF_Q);
    if (p->model->arch->has & ARCH_QKV_BARE) s->matrix[0].scale = 1;
    plan_add_matrix(p, s, ROLE_ATTN_KV_A, ROLE_COUNT, BUF_K);
    if (l->t[ROLE_ATTN_GATE].data) plan_add_matrix(p, s, ROLE_ATTN_GATE, ROLE_COUNT, BUF_ATTN_GATE);
    if (l->t[ROLE_INDEX_Q].data) plan_add_index_inputs(p, layer);
    if (two) plan_add_latent_queries(p, layer);
    if (l->t[ROLE_INDEX_Q].data) plan_add_positions(p, layer);
    args_heads *heads = plan_add_heads(p, layer, BUF_Q, ROLE_ATTN_K_B, BUF_LATENT_Q, l->hp.n_head);
    heads->in = (plan_part){0, hp->q_dim};
    heads->out = (plan_part){hp->n_rot, l->hp.head_dim};
    s = plan_add_step(p, side, OP_LATENT_STORE, layer, BUF_Q);
    *STEP_ARGS(s, latent_store) = (args_latent_store){.set = l->hp.rope,
                                                      .norm = l->t[ROLE_ATTN_KV_A_NORM].data,
                                                      .k_norm = l->t[ROLE_ATTN_K_NORM].data};
}

void plan_add_values(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    args_heads *heads = plan_add_heads(p, layer, BUF_ATTN, ROLE_ATTN_V_B, BUF_V,
                                       p->model->layers[layer].hp.n_head);
    heads->in = (plan_part){hp->n_rot, p->model->layers[layer].hp.head_dim};
    heads->out = (plan_part){0, hp->v_dim};
}

int plan_latent_offset(const plan_step *attention, tensor_role role) {
    const int by = role == ROLE_ATTN_V_B ? 1 : -1;
    int i = by;
    while (attention[i].op != OP_HEADS) i += by;
    assert(attention[i].layer == attention->layer && attention[i].matrix[0].role == role);
    return i;
}
