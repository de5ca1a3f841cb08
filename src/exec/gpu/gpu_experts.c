/* gpu_experts.c: mixtures of experts on the GPU: the router's choices, then gate, up and down
 * products for every choice of an expert that is on the GPU. Buffers have a row per pair of a token
 * and a choice, in the order of tokens. With few pairs each is a matrix-vector product; with many
 * they are sorted by expert and multiplied in tiles, which read an expert's weights once for up to
 * GPU_TILE_COLS pairs. */
#include "gpu_exec_impl.h"

void gpu_exec_route(gpu_exec *g, const plan_step *s, const plan_experts *e, const gpu_exec_step *w,
                    const gpu_exec_shape *p) {
    gpu_send send;
    gpu_route a = {.scores = g->buf[BUF_ROUTER],
                   .select_bias = w->select_bias,
                   .perm = w->perm,
                   .by_token = w->by_token,
                   .cols = gpu_exec_columns(g),
                   .lds = g->plan->gpu_width[BUF_ROUTER],
                   .n_expert = e->n_scored,
                   .n_used = e->n_used,
                   .n_group = e->n_group,
                   .n_group_used = e->n_group_used,
                   .n_cols = p->n_cols,
                   .gating = (gpu_gating)e->gating,
                   .norm = e->norm,
                   .scale = e->scale,
                   .share = e->share,
                   .slots = g->slots ? g->slots + (int64_t)s->layer * e->n_expert : NULL,
                   .uses = g->uses + (int64_t)s->layer * e->n_expert,
                   .choices = g->bits};
    if (e->share > 0) {
        a.slots = NULL;
        a.uses = NULL;
    }
    if (gpu_exec_sends(g, s, p, &send)) a.send = &send;
    g->b->ops.route(g->stream, &a);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Adjugate experts are fewer, but use the memory of the experts. */
static bool uses_tiles(const plan_experts *e, const gpu_exec_shape *p) {
    return p->form == FORM_MANY && gpu_exec_tiles_experts(p->n_cols, e->n_used, e->n_scored);
}

static gpu_expert_lists lists_of(const gpu_exec *g) {
    return gpu_expert_lists_at(g->expert_lists, g->n_batch * g->plan->n_expert_used,
                               g->plan->n_expert);
}

/* What all products of a layer have in common. */
static gpu_expert_matmul tiled_of(const gpu_exec *g, const plan_experts *e,
                                  const gpu_exec_shape *p) {
    return (gpu_expert_matmul){.choices = g->bits,
                               .lists = lists_of(g),
                               .precise = g->precise,
                               .n_used = e->n_used,
                               .n_own = (int32_t)e->hot,
                               .n_cols = p->n_cols,
                               .f = g->model->hp.activation,
                               .threshold = g->model->hp.activation_threshold};
}

/* Sorts the pairs; then gate's activations, and their products with up. */
static void tiled_in(gpu_exec *g, const plan_step *s, const plan_experts *e, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    const gpu_expert_group group = {.choices = g->bits,
                                    .n_used = e->n_used,
                                    .n_own = (int32_t)e->hot,
                                    .n_cols = p->n_cols,
                                    .lists = lists_of(g)};
    g->b->ops.expert_group(g->stream, &group);
    const bool gated = e->gate.w.data;
    gpu_rounding before = GPU_ROUND_NOT;
    for (int k = gated ? 0 : 1; k < 2; k++) {
        gpu_expert_matmul a = tiled_of(g, e, p);
        a.w = w->w[k];
        a.w.n_out = e->n_ff;
        a.step = e->up_rows;
        a.bias = w->bias[k];
        a.scales = w->scales[k];
        a.in = gpu_exec_input(g, e->in, PLAN_SLOT_MAIN, p->n_cols);
        a.weigh = e->weigh_input;
        if (gated) a.clamp = gpu_exec_clamp(g, g->model->layers[s->layer].hp.expert_clamp);
        a.result = k == 1 && gated ? GPU_EXPERT_GATED : GPU_EXPERT_ACTIVATED;
        a.y = g->buf[BUF_EXPERT_GATE];
        a.ldy = g->plan->gpu_width[BUF_EXPERT_GATE];
        a.scratch = g->halves;
        const gpu_rounding to = gpu_matmul_rounding(a.w.type, a.precise, false);
        a.rounded = to != GPU_ROUND_NOT && to == before;
        before = to;
        g->b->ops.expert_matmul(g->stream, &a);
    }
}

/* Down as in the file, or with a row per neuron. */
static void tiled_down(gpu_exec *g, const plan_experts *e, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    gpu_expert_matmul a = tiled_of(g, e, p);
    a.w = w->down;
    a.w.n_out = a.step = e->down_rows ? e->n_ff : e->n_embd;
    a.by_rows = e->down_rows;
    a.bias = w->down_bias;
    a.scales = w->scales[2];
    a.in = (gpu_input){.x = g->buf[BUF_EXPERT_GATE],
                       .ldx = g->plan->gpu_width[BUF_EXPERT_GATE],
                       .n_cols = p->n_cols * e->n_used};
    a.of_pairs = true;
    a.y = g->buf[BUF_EXPERT_OUT];
    a.ldy = g->plan->gpu_width[BUF_EXPERT_OUT];
    a.scratch = g->expert_scratch;
    g->b->ops.expert_matmul(g->stream, &a);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void gpu_exec_experts_in(gpu_exec *g, const plan_step *s, const plan_experts *e,
                         const gpu_exec_step *w, const gpu_exec_shape *p) {
    if (uses_tiles(e, p)) {
        tiled_in(g, s, e, w, p);
        return;
    }
    const bool gated = e->gate.w.data, skip = gated && e->mode == PI_MODE_EXACT;
    const bool quantized = !e->down_rows && gpu_type_wants_q8(e->down.w.type);
    const gpu_expert_in a = {.gate = gated ? w->w[0] : (gpu_mat){0},
                             .up = w->w[1],
                             .n = e->n_ff,
                             .step = e->up_rows,
                             .gate_bias = w->bias[0],
                             .up_bias = w->bias[1],
                             .gate_scales = w->scales[0],
                             .up_scales = w->scales[1],
                             .choices = g->bits,
                             .in = gpu_exec_input(g, e->in, PLAN_SLOT_MAIN, p->n_cols),
                             .weigh = e->weigh_input,
                             .skip = skip,
                             .clamp = gpu_exec_clamp(g, g->model->layers[s->layer].hp.expert_clamp),
                             .n_used = e->n_used,
                             .n_own = (int32_t)e->hot,
                             .n_cols = p->n_cols,
                             .f = g->model->hp.activation,
                             .threshold = g->model->hp.activation_threshold,
                             .fired = skip && !e->down_rows ? g->read + 2 * s->layer + 1 : NULL,
                             .h = g->buf[BUF_EXPERT_GATE],
                             .ldh = g->plan->gpu_width[BUF_EXPERT_GATE],
                             .q8 = quantized ? g->expert_scratch : NULL};
    g->b->ops.expert_in(g->stream, &a);
}

static void sum_rows(gpu_exec *g, const plan_step *s, const plan_experts *e, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    const gpu_expert_down a = {.w = w->down,
                               .n = e->n_ff,
                               .bias = w->down_bias,
                               .scales = w->scales[2],
                               .choices = g->bits,
                               .h = g->buf[BUF_EXPERT_GATE],
                               .ldh = g->plan->gpu_width[BUF_EXPERT_GATE],
                               .n_used = e->n_used,
                               .n_own = (int32_t)e->hot,
                               .n_cols = p->n_cols,
                               .fired = g->read + 2 * s->layer + 1,
                               .y = g->buf[BUF_EXPERT_OUT],
                               .ldy = g->plan->gpu_width[BUF_EXPERT_OUT]};
    g->b->ops.expert_down(g->stream, &a);
}

void gpu_exec_experts_down(gpu_exec *g, const plan_step *s, const plan_experts *e,
                           const gpu_exec_step *w, const gpu_exec_shape *p) {
    if (uses_tiles(e, p)) {
        tiled_down(g, e, w, p);
        return;
    }
    if (e->down_rows) {
        sum_rows(g, s, e, w, p);
        return;
    }
    const int32_t n_pairs = p->n_cols * e->n_used;
    gpu_expert_matvec a = {.w = w->down,
                           .bias = w->down_bias,
                           .scales = w->scales[2],
                           .choices = g->bits,
                           .in = {.x = g->buf[BUF_EXPERT_GATE],
                                  .ldx = g->plan->gpu_width[BUF_EXPERT_GATE],
                                  .q8 = g->expert_scratch,
                                  .n_cols = n_pairs},
                           .n_pairs = n_pairs,
                           .n_own = (int32_t)e->hot,
                           .y = g->buf[BUF_EXPERT_OUT],
                           .ldy = g->plan->gpu_width[BUF_EXPERT_OUT]};
    a.w.n_out = e->n_embd;
    g->b->ops.expert_matvec(g->stream, &a);
}

void gpu_exec_experts_sum(gpu_exec *g, const plan_step *s, const plan_experts *e,
                          const gpu_exec_shape *p) {
    bool shared = e->shared && e->primary == SIDE_GPU;
    const float *scores = g->buf[BUF_ROUTER] + e->n_expert; /* after the scores of the experts */
    const gpu_expert_sum a = {.x = g->buf[BUF_EXPERT_OUT],
                              .choices = g->bits,
                              .ldx = g->plan->gpu_width[BUF_EXPERT_OUT],
                              .ldy = g->plan->gpu_width[s->out],
                              .n = e->n_embd,
                              .n_used = e->n_used,
                              .n_own = (int32_t)e->hot,
                              .n_cols = p->n_cols,
                              .set = !s->add_to_x,
                              .weighed = e->weigh_input,
                              .scale = e->sum_scale,
                              .shared = shared ? g->buf[BUF_SHARED] : NULL,
                              .shared_score = e->shared_router ? scores : NULL,
                              .lds = g->plan->gpu_width[BUF_SHARED],
                              .ld_score = g->plan->gpu_width[BUF_ROUTER],
                              .used = e->share > 0 ? NULL : g->read + 2 * s->layer,
                              .y = g->buf[s->out]};
    g->b->ops.expert_sum(g->stream, &a);
}
