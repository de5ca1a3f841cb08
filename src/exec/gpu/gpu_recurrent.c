/* gpu_recurrent.c: steps of recurrent mixers (plan_recurrent.c) as operations of the device. */
#include "gpu_exec_impl.h"

static int64_t width_of(const gpu_exec *g, plan_buffer b) {
    return g->plan->gpu_width[b];
}

void gpu_exec_conv(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                   const gpu_exec_shape *p) {
    bool is_short = r->mixer == MIXER_CONV;
    plan_buffer out = is_short ? BUF_SSM_OUT : BUF_SSM_CONV;
    const gpu_conv a = {.x = g->buf[BUF_SSM_IN],
                        .by = is_short ? g->buf[BUF_SSM_STEP] : NULL,
                        .gate = is_short ? g->buf[BUF_SSM_GATE] : NULL,
                        .ldx = width_of(g, BUF_SSM_IN),
                        .ldb = width_of(g, BUF_SSM_STEP),
                        .ldg = width_of(g, BUF_SSM_GATE),
                        .ldy = width_of(g, out),
                        .taps = {w->taps[0], w->taps[1], w->taps[2]},
                        .bias = w->bias[0],
                        .n = r->n_conv,
                        .part = r->mixer == MIXER_KDA ? r->n_conv / 3 : r->n_conv,
                        .at = w->state_at,
                        .n_taps = r->n_taps,
                        .n_cols = p->n_cols,
                        .cols = gpu_exec_columns(g),
                        .y = g->buf[out]};
    g->b->ops.conv(g->stream, &a);
}

void gpu_exec_recur(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                    const gpu_exec_shape *p) {
    const bool scan = r->mixer == MIXER_SCAN; /* channels are rows of one head */
    const gpu_recur a = {.kind = r->channels               ? GPU_RECUR_SCAN
                                 : r->mixer == MIXER_KDA   ? GPU_RECUR_KDA
                                 : r->mixer == MIXER_DELTA ? GPU_RECUR_DELTA
                                                           : GPU_RECUR_SSM,
                         .x = g->buf[BUF_SSM_CONV],
                         .step = r->dt_bias ? g->buf[BUF_SSM_STEP] : NULL,
                         .beta = g->buf[BUF_SSM_BETA],
                         .keys = scan ? g->buf[BUF_SSM_KEY] : NULL,
                         .queries = scan ? g->buf[BUF_SSM_QUERY] : NULL,
                         .ldk = width_of(g, BUF_SSM_KEY),
                         .ldx = width_of(g, BUF_SSM_CONV),
                         .lds = width_of(g, BUF_SSM_STEP),
                         .ldb = width_of(g, BUF_SSM_BETA),
                         .ldy = width_of(g, BUF_SSM_OUT),
                         .at = w->state_at,
                         .dt_bias = w->dt_bias,
                         .a = w->decay,
                         .skip = w->skip,
                         .n_head = r->channels ? 1 : r->n_head,
                         .n_group = r->n_group,
                         .head_dim = r->channels ? r->n_head : (int32_t)r->head_dim,
                         .n_state = (int32_t)r->n_state,
                         .n_cols = p->n_cols,
                         .groups_alternate = r->groups_alternate,
                         .paired = r->paired,
                         .eps = g->model->hp.norm_eps,
                         .least_decay = g->model->hp.least_decay,
                         .cols = gpu_exec_columns(g),
                         .y = g->buf[BUF_SSM_OUT]};
    g->b->ops.recur(g->stream, &a);
}

void gpu_exec_gate_ssm(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    int64_t n = r->n_head * r->head_dim;
    bool first = r->mixer & (MIXER_SSM | MIXER_SCAN), all = r->mixer == MIXER_LIGHTNING;
    const gpu_gate a = {.gate = g->buf[BUF_SSM_GATE],
                        .norm = w->norm_weight,
                        .ldg = width_of(g, BUF_SSM_GATE),
                        .ldx = width_of(g, BUF_SSM_OUT),
                        .n = n,
                        .width = first ? n / r->n_group
                                 : all ? n
                                       : r->head_dim,
                        .share = 1,
                        .first = first,
                        .sigmoid = r->mixer & (MIXER_KDA | MIXER_LIGHTNING) || r->sigmoid,
                        .eps = g->model->hp.norm_eps,
                        .n_cols = p->n_cols,
                        .x = g->buf[BUF_SSM_OUT]};
    g->b->ops.gate(g->stream, &a);
}
