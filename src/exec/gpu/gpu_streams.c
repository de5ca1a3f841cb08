/* gpu_streams.c: several residual streams on the GPU (plan_streams.c). */
#include "gpu_exec_impl.h"

/* OP_PREDICT before a layer, OP_CORRECT after it. */
void gpu_exec_mix(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                  const gpu_exec_shape *p) {
    const gpu_mix a = {.corrects = s->op == OP_CORRECT,
                       .router = g->buf[BUF_ROUTER],
                       .coefficients = w->coefficients,
                       .scale = w->norm_weight,
                       .lds = g->plan->gpu_width[BUF_STREAMS],
                       .ldr = g->plan->gpu_width[BUF_ROUTER],
                       .ldx = g->plan->gpu_width[BUF_X],
                       .ldy = g->plan->gpu_width[BUF_Y],
                       .n = g->model->hp.n_embd,
                       .n_stream = g->model->hp.n_stream,
                       .n_cols = p->n_cols,
                       .streams = g->buf[s->in],
                       .x = g->buf[BUF_X],
                       .y = g->buf[BUF_Y]};
    g->b->ops.mix(g->stream, &a);
}

void gpu_exec_merge(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const gpu_merge a = {.streams = g->buf[BUF_STREAMS],
                         .others = g->buf[s->in],
                         .lds = g->plan->gpu_width[BUF_STREAMS],
                         .ldo = g->plan->gpu_width[s->in],
                         .ldx = g->plan->gpu_width[BUF_X],
                         .n = g->model->hp.n_embd,
                         .n_stream = g->model->hp.n_stream,
                         .n_cols = p->n_cols,
                         .x = g->buf[BUF_X]};
    g->b->ops.merge(g->stream, &a);
}
