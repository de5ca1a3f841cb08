/* gpu_latent.c: steps of compressed attention (plan_latent.c) as operations of the device. */
#include "gpu_exec_impl.h"

void gpu_exec_heads_vector(gpu_exec *g, const plan_step *s, const args_heads *args,
                           const gpu_exec_step *w, const gpu_exec_shape *p) {
    const gpu_heads a = {.w = w->w[0],
                         .x = g->buf[s->in] + args->in.first,
                         .ldx = g->plan->gpu_width[s->in],
                         .x_stride = args->in.stride,
                         .scale = s->matrix[0].scale,
                         .n_heads = args->n,
                         .n_cols = p->n_cols,
                         .y = g->buf[s->matrix[0].out] + args->out.first,
                         .ldy = g->plan->gpu_width[s->matrix[0].out],
                         .y_stride = args->out.stride,
                         .scratch = g->halves};
    g->b->ops.heads(g->stream, &a);
}

/* One product per head; each has as many columns as the ubatch has tokens. */
void gpu_exec_heads_tiled(gpu_exec *g, const plan_step *s, const args_heads *args,
                          const gpu_exec_step *w, const gpu_exec_shape *p) {
    const plan_matrix *pm = &s->matrix[0];
    gpu_mat head = w->w[0];
    head.n_out /= args->n;
    for (int h = 0; h < args->n; h++) {
        const gpu_input in = {.x = g->buf[s->in] + args->in.first + h * args->in.stride,
                              .ldx = g->plan->gpu_width[s->in],
                              .n_cols = p->n_cols};
        gpu_matmul a = gpu_exec_product(g, pm, &head, NULL, &in, pm->out, false);
        a.y += args->out.first + h * args->out.stride;
        g->b->ops.matmul(g->stream, &a);
        head.data = (const uint8_t *)head.data + (size_t)head.n_out * head.row_bytes;
    }
}

void gpu_exec_latent_store(gpu_exec *g, const plan_step *s, const args_latent_store *args,
                           const gpu_exec_step *w, const gpu_exec_shape *p) {
    bool rotates = g->angles[0] && args->set != ROPE_SET_NONE;
    const gpu_latent_store a = {.q = g->buf[BUF_Q],
                                .k = g->buf[BUF_K],
                                .ldq = g->plan->gpu_width[BUF_Q],
                                .ldk = g->plan->gpu_width[BUF_K],
                                .ld_out = g->plan->gpu_width[BUF_LATENT_Q],
                                .norm = w->k_norm,
                                .k_norm = w->q_norm,
                                .eps = g->model->hp.norm_eps,
                                .cs = rotates ? g->angles[args->set] : NULL,
                                .n_rot = g->model->hp.n_rot,
                                .q_dim = g->model->hp.q_dim,
                                .n_head = g->model->layers[s->layer].hp.n_head,
                                .n_cols = p->n_cols,
                                .neox = g->model->hp.rope == ROPE_NEOX,
                                .cols = gpu_exec_columns(g),
                                .kv = w->kv,
                                .out = g->buf[BUF_LATENT_Q]};
    g->b->ops.latent_store(g->stream, &a);
}
