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

/* OP_HYPER_IN before a block, OP_HYPER_OUT after it. */
void gpu_exec_hyper(gpu_exec *g, const plan_step *s, const args_hyper *args, const gpu_exec_step *w,
                    const gpu_exec_shape *p) {
    const bool adds = s->op == OP_HYPER_OUT;
    const plan_buffer x = adds ? s->in : BUF_X;
    const gpu_hyper a = {.adds = adds,
                         .weights = g->buf[BUF_HYPER] + (adds ? g->model->hp.n_stream : 0),
                         .base = w->coefficients,
                         .scale = w->norm_weight,
                         .factor = args->factor,
                         .eps = args->eps,
                         .mix_eps = args->mix_eps,
                         .rounds = args->rounds,
                         .lds = g->plan->gpu_width[BUF_STREAMS],
                         .ldw = g->plan->gpu_width[BUF_HYPER],
                         .ldx = g->plan->gpu_width[x],
                         .n = g->model->hp.n_embd,
                         .n_stream = g->model->hp.n_stream,
                         .n_cols = p->n_cols,
                         .streams = g->buf[BUF_STREAMS],
                         .x = g->buf[x]};
    g->b->ops.hyper(g->stream, &a);
}

void gpu_exec_hyper_mean(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const gpu_hyper_mean a = {.y = g->buf[s->in],
                              .gate = g->buf[BUF_HYPER_GATE],
                              .ldy = g->plan->gpu_width[s->in],
                              .ldg = g->plan->gpu_width[BUF_HYPER_GATE],
                              .ldx = g->plan->gpu_width[BUF_X],
                              .n = g->model->hp.n_embd,
                              .n_stream = g->model->hp.n_stream,
                              .n_cols = p->n_cols,
                              .x = g->buf[BUF_X]};
    g->b->ops.hyper_mean(g->stream, &a);
}

void gpu_exec_past(gpu_exec *g, const plan_step *s, const args_past *args, const gpu_exec_step *w,
                   const gpu_exec_shape *p) {
    const bool adds = s->op == OP_PAST_OUT;
    const plan_buffer x = adds ? s->in : BUF_X;
    const gpu_past a = {.adds = adds,
                        .begins = args->begins,
                        .score = w->norm_weight,
                        .eps = g->model->hp.norm_eps,
                        .lds = g->plan->gpu_width[BUF_STREAMS],
                        .ldx = g->plan->gpu_width[x],
                        .n = g->model->hp.n_embd,
                        .n_past = args->n,
                        .n_cols = p->n_cols,
                        .streams = g->buf[BUF_STREAMS],
                        .x = g->buf[x]};
    g->b->ops.past(g->stream, &a);
}
