/* plan_layer_embd.c: embeddings per layer (Gemma 3n and 4; Google DeepMind 2025). In addition to
 * its embedding, a token has a short vector for every layer: the sum of a table's row and a
 * projection of the embedding,
 *
 *   e = (norm(W x) + sqrt(n) table[token]) / sqrt(2)        n elements for each layer
 *
 * At its end a layer adds norm(W_out (f(W_gate x) * e)) to the residual stream x; with several
 * streams, to all except the first. Only single rows of the table are read, so that it may stay on
 * disk.
 *
 * Other models keep the embedding itself, and each layer adds it times a number (Talkie). */
#include <math.h>

#include "plan_impl.h"

void plan_add_layer_embeddings(plan *p) {
    plan_add_step(p, SIDE_CPU, OP_QUANTIZE, -1, BUF_X);
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_MATMUL, -1, BUF_X);
    plan_add_matrix(p, s, ROLE_LAYER_EMBD_PROJ, ROLE_COUNT, BUF_LAYER_EMBD);
    s->matrix[0].scale /= sqrtf((float)p->model->hp.n_embd);
    s = plan_add_step(p, SIDE_CPU, OP_EMBED_LAYERS, -1, BUF_LAYER_EMBD);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_RMS,
                                      .eps = p->model->hp.norm_eps,
                                      .width = p->model->hp.n_embd_layer,
                                      .weight = p->model->t[ROLE_LAYER_EMBD_NORM].data};
}

void plan_add_layer_embedding(plan *p, int layer) {
    plan_side side = p->splits[layer].primary;
    plan_buffer from = plan_has_streams(p) ? BUF_Y : BUF_X;
    plan_add_step(p, side, OP_QUANTIZE, layer, from);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, from);
    plan_add_matrix(p, s, ROLE_LAYER_EMBD_GATE, ROLE_COUNT, BUF_GATE);
    s = plan_add_step(p, side, OP_QUANTIZE, layer, BUF_GATE);
    STEP_ARGS(s, quantize)->layer_embd = true;
    if (side == SIDE_GPU) plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_GATE);
    plan_add_matrix(p, s, ROLE_LAYER_EMBD_OUT, ROLE_COUNT, BUF_Y);
    s = plan_add_addition(p, side, layer, BUF_Y, ROLE_LAYER_EMBD_POST_NORM);
    if (plan_has_streams(p)) s->out = BUF_STREAMS;
}

void plan_add_kept_embedding(plan *p) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_NORM, -1, BUF_X);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_NONE, .width = p->model->hp.n_embd};
    s->out = BUF_LAYER_EMBD;
}

void plan_add_embedding_skip(plan *p, int layer) {
    const float *scale = p->model->layers[layer].t[ROLE_EMBD_SKIP].data;
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_ADD, layer, BUF_LAYER_EMBD);
    *STEP_ARGS(s, add) = (args_add){
        .norm = {.kind = NORM_NONE, .width = p->model->hp.n_embd}, .scale = *scale, .x_scale = 1};
}
