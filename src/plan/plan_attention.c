/* plan_attention.c: attention other than that of an ordinary layer (plan_layer.c): sparse
 * attention, compressed attention (MLA), compressed keys.
 *
 * Sparse attention: OP_FIND_BLOCKS finds the blocks of positions with the highest scores, and
 * attention reads only these.
 *   - By index (MiniMax-M3): an index query for every KV head and one index key, which is cached.
 *   - By index, single positions (DSA; DeepSeek-V3.2): index queries from the queries' latent
 *     vector, one index key, and a weight for each query. Later layers may use the same positions.
 *   - By index, means of keys (Qwen4): no weights, and an index key is the mean of the keys of
 *     several positions.
 *   - By bounds (other models): the minimum and the maximum of each key element in a block bound
 * the product of a query with any key of the block (Quest, arXiv 2406.10774).
 *
 * Compressed attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1): a position is cached as
 * one row, [rotated key | latent vector], shared by all heads; each head has matrices that compute
 * its keys and values from the latent vector. The plan absorbs these matrices into the queries and
 * the output, so that keys and values are not computed for each position:
 *
 *   q . (K c) = (K^T q) . c        sum of p_j (V c_j) = V (sum of p_j c_j)
 *
 *   [matmul q_a -> norm -> matmul q_b] or matmul q -> heads k_b (queries to the latent space)
 *   -> [index] -> latent_store -> attention (one KV head; values are the keys) -> heads v_b
 *
 * Compressed keys (DeepSeek-V4): there is one KV head, whose keys are also the values. A token
 * attends to the last `window` positions, and to compressed keys, each of `ratio` positions; if
 * there are many, only to those that an index selects. A compressed key is a weighted sum over its
 * positions; the weights of each element are a softmax. The parts of an incomplete key are in the
 * session's state, like the states of recurrent layers. Attention's result is rotated back by the
 * token's own position; then each group of heads is projected together:
 *
 *   matmul q_a,kv -> [matmul parts of keys] -> norm -> matmul q_b -> [compress -> index]
 *   -> rope_store -> attention -> rope_back -> heads out_a -> quantize -> matmul out */
#include <assert.h>

#include "plan_impl.h"

/* ---- sparse attention ------------------------------------------------------------------------ */

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

static void add_find_blocks(plan *p, int layer) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_FIND_BLOCKS, layer, BUF_INDEX_Q);
    STEP_ARGS(s, find_blocks)->blocks = plan_attention_blocks(p, layer);
}

void plan_add_bounds(plan *p, int layer, int64_t q_stride) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_FIND_BLOCKS, layer, BUF_Q);
    *STEP_ARGS(s, find_blocks) = (args_find_blocks){.blocks = plan_attention_blocks(p, layer),
                                                    .q_stride = q_stride};
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
}

/* ---- compressed keys ------------------------------------------------------------------------- */

enum { KEYS, INDEX, KINDS };

static const struct {
    tensor_role kv, gate, positions, norm;
} key_roles[KINDS] = {
    {ROLE_COMPRESS_KV, ROLE_COMPRESS_GATE, ROLE_COMPRESS_POS, ROLE_COMPRESS_NORM},
    {ROLE_INDEX_COMPRESS_KV, ROLE_INDEX_COMPRESS_GATE, ROLE_INDEX_COMPRESS_POS,
     ROLE_INDEX_COMPRESS_NORM},
};

/* The compressed keys of a layer: the attention keys, the index keys. Their part of a session's
 * state comes after the parts of earlier layers. */
static args_compress describe_keys(plan *p, int layer) {
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
        a.of[i].positions = l->t[key_roles[i].positions].data;
        a.of[i].norm = l->t[hp->index_ratio > 0 ? ROLE_INDEX_K_NORM : key_roles[i].norm].data;
        a.of[i].rot_at = i == KEYS ? hp->rot_at : hp->index_rot_at;
        at += 2 * a.n_parts * dims[i];
        state += model_compress_state(&l->hp, dims[i]);
    }
    p->n_state += model_state(hp, &l->hp);
    return a;
}

void plan_add_index(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    const bool means = p->model->hp.index_ratio > 0; /* index keys are means of several positions */
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_INDEX_Q, ROLE_COUNT, BUF_INDEX_Q);
    plan_add_matrix(p, s, ROLE_INDEX_K, ROLE_COUNT, means ? BUF_COMPRESS : BUF_INDEX_K);
    if (means) {
        s = plan_add_step(p, side, OP_COMPRESS, layer, BUF_COMPRESS);
        *STEP_ARGS(s, compress) = describe_keys(p, layer);
    }
    s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){.set = l->hp.rope,
                                      .no_values = means,
                                      .neox = p->model->hp.index_rope == ROPE_NEOX,
                                      .norm = p->model->arch->qk_norm,
                                      .q_norm = l->t[ROLE_INDEX_Q_NORM].data,
                                      .k_norm = l->t[ROLE_INDEX_K_NORM].data};
    add_find_blocks(p, layer);
}

/* Queries and index queries from their latent vector. */
static void add_latent_queries(plan *p, int layer) {
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

void plan_add_compressed(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    const args_compress a = describe_keys(p, layer);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_ATTN_Q_A, ROLE_COUNT, BUF_LATENT_Q);
    plan_add_matrix(p, s, ROLE_ATTN_K, ROLE_COUNT, BUF_K);
    if (l->hp.index_own) plan_add_matrix(p, s, ROLE_INDEX_WEIGHTS, ROLE_COUNT, BUF_INDEX_W);
    if (l->hp.ratio > 0) { /* parts of keys */
        s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
        for (int i = 0; i < KINDS && a.of[i].dim > 0; i++) {
            plan_add_matrix(p, s, key_roles[i].kv, ROLE_COUNT, BUF_COMPRESS);
            plan_add_matrix(p, s, key_roles[i].gate, ROLE_COUNT, BUF_COMPRESS);
            s->matrix[2 * i].out_at = a.of[i].at;
            s->matrix[2 * i + 1].out_at = a.of[i].at + a.n_parts * a.of[i].dim;
        }
    }
    add_latent_queries(p, layer);
    if (l->hp.ratio > 0) {
        s = plan_add_step(p, side, OP_COMPRESS, layer, BUF_COMPRESS);
        *STEP_ARGS(s, compress) = a;
    }
    if (!l->hp.index_own) return;
    s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
    *STEP_ARGS(s, rope) = (args_rope){
        .set = l->hp.rope, .neox = p->model->hp.index_rope == ROPE_NEOX, .no_values = true};
    add_find_blocks(p, layer);
}

args_heads *plan_add_heads(plan *p, int layer, plan_buffer in, tensor_role role, plan_buffer out,
                           int n) {
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_HEADS, layer, in);
    plan_add_matrix(p, s, role, ROLE_COUNT, out);
    STEP_ARGS(s, heads)->n = n;
    return STEP_ARGS(s, heads);
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

/* ---- compressed attention -------------------------------------------------------------------- */

void plan_add_latents(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    const bool two = l->t[ROLE_ATTN_Q_B].data, index = l->t[ROLE_INDEX_Q].data;
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, two ? ROLE_ATTN_Q_A : ROLE_ATTN_Q, ROLE_COUNT,
                    two ? BUF_LATENT_Q : BUF_Q);
    if (p->model->arch->has & ARCH_QKV_BARE) s->matrix[0].scale = 1;
    plan_add_matrix(p, s, ROLE_ATTN_KV_A, ROLE_COUNT, BUF_K);
    if (l->t[ROLE_ATTN_GATE].data) plan_add_matrix(p, s, ROLE_ATTN_GATE, ROLE_COUNT, BUF_ATTN_GATE);
    if (index) {
        s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
        plan_add_matrix(p, s, ROLE_INDEX_K, ROLE_COUNT, BUF_INDEX_K);
        plan_add_matrix(p, s, ROLE_INDEX_WEIGHTS, ROLE_COUNT, BUF_INDEX_W);
    }
    if (two) add_latent_queries(p, layer);
    if (index) {
        s = plan_add_step(p, side, OP_NORM, layer, BUF_INDEX_K);
        *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_LAYER,
                                          .width = hp->index_dim,
                                          .eps = hp->index_norm_eps,
                                          .weight = l->t[ROLE_INDEX_K_NORM].data,
                                          .bias = l->t[ROLE_INDEX_K_NORM_BIAS].data};
        s->out = BUF_INDEX_K;
        s = plan_add_step(p, side, OP_INDEX_STORE, layer, BUF_INDEX_Q);
        *STEP_ARGS(s, rope) = (args_rope){.set = l->hp.rope, .neox = hp->index_rope == ROPE_NEOX};
        add_find_blocks(p, layer);
    }
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
