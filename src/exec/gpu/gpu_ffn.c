/* gpu_ffn.c: FFN layers on the GPU. For few tokens, sparse layers read rows of the neurons that any
 * token selected, from a list that the device makes of predictor scores or of the bits in the CPU's
 * message; without a predictor, they read rows of up and down where gate's activations are not
 * zero. For many tokens they compute all neurons and set those that a token did not select to zero,
 * as on the CPU (cpu_ffn_sparse.c, cpu_ffn_dense.c). Layers whose matrices have a scale do that
 * also for few tokens, because the kernels for selected neurons apply no scales. */
#include "gpu_exec_impl.h"

int64_t gpu_exec_words(const gpu_exec *g, const plan_step *s) {
    const plan_experts *e = &g->plan->experts[s->layer];
    if (e->n_expert > 0) return (int64_t)GPU_CHOICE_WORDS * e->n_used;
    bool primary = g->plan->splits[s->layer].primary == SIDE_GPU && plan_has(g->plan, s->layer);
    int64_t n = primary ? g->model->layers[s->layer].hp.n_ff : g->plan->gpu_ffn[s->layer].n_ff;
    return plan_bits_words(n);
}

/* ---- scores and selection -------------------------------------------------------------------- */

/* The selection of columns [first, first + n), without a list. */
static gpu_select selection_of(const gpu_exec *g, const plan_ffn *f, const gpu_exec_step *w,
                               int first, int n) {
    return (gpu_select){.bias = w->score_bias,
                        .n = f->n_scored,
                        .n_list = f->n_ff,
                        .n_cols = n,
                        .cut = f->threshold,
                        .bitmap = g->bits + first * plan_bits_words(f->n_scored)};
}

static gpu_predict prediction_of(const gpu_exec *g, const plan_ffn *f, const gpu_exec_step *w,
                                 int first, int n) {
    const int64_t n_embd = g->model->hp.n_embd;
    const bool signs = f->predictor == PREDICTOR_SIGN;
    const uint8_t *q8 = g->q8[PLAN_SLOT_MAIN];
    return (gpu_predict){.w = signs ? (gpu_mat){.n_in = n_embd, .n_out = f->n_scored} : w->fc2,
                         .signs = w->sign,
                         .in = {.x = g->buf[BUF_PRED]
                                         ? g->buf[BUF_PRED] + first * g->plan->gpu_width[BUF_PRED]
                                         : NULL,
                                .ldx = g->plan->gpu_width[BUF_PRED],
                                .q8 = signs ? q8 + (size_t)first * gpu_q8_bytes(n_embd) : NULL,
                                .n_cols = n},
                         .scale = signs ? 1 : f->fc2.scale,
                         .select = selection_of(g, f, w, first, n),
                         .arrived = g->parts_in};
}

void gpu_exec_select_vector(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                            const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_predict a = prediction_of(g, f, w, 0, p->n_cols);
    gpu_send send;
    a.select.list = g->list;
    a.select.count = g->count + s->layer;
    if (gpu_exec_sends(g, s, p, &send)) a.send = &send;
    g->b->ops.predict(g->stream, &a);
}

/* Makes bits only: nothing reads a list. */
void gpu_exec_select_tiled(gpu_exec *g, const plan_ffn *f, const gpu_exec_step *w,
                           const gpu_exec_shape *p) {
    for (int c = 0; c < p->n_cols && f->predictor == PREDICTOR_SIGN; c += GPU_MAX_COLS) {
        const int n = p->n_cols - c < GPU_MAX_COLS ? p->n_cols - c : GPU_MAX_COLS;
        const gpu_predict a = prediction_of(g, f, w, c, n);
        g->b->ops.predict(g->stream, &a);
    }
    if (f->predictor == PREDICTOR_SIGN) return;
    const gpu_input in = {
        .x = g->buf[BUF_PRED], .ldx = g->plan->gpu_width[BUF_PRED], .n_cols = p->n_cols};
    const gpu_matmul product = gpu_exec_product(g, &f->fc2, &w->fc2, NULL, &in, BUF_SCORE, false);
    gpu_select select = selection_of(g, f, w, 0, p->n_cols);
    select.v = g->buf[BUF_SCORE];
    select.ldv = g->plan->gpu_width[BUF_SCORE];
    g->b->ops.matmul(g->stream, &product);
    g->b->ops.select(g->stream, &select);
}

/* Makes the list from the bits of a message. */
void gpu_exec_list_message(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                           const gpu_exec_shape *p) {
    const gpu_select select = {.bits_in = g->bits,
                               .n = f->n_ff,
                               .n_list = f->n_ff,
                               .n_cols = p->n_cols,
                               .cut = f->threshold,
                               .list = g->list,
                               .count = g->count + s->layer};
    g->b->ops.select(g->stream, &select);
}

/* ---- gate and up ----------------------------------------------------------------------------- */

/* Activations of at most this magnitude count as zero; in a dense layer (-1) none do. */
static float cut_of(const plan_ffn *f) {
    return f ? f->cut : -1;
}

void gpu_exec_top_k(gpu_exec *g, const plan_step *s, const args_top_k *args,
                    const gpu_exec_shape *p) {
    const gpu_top_k a = {.x = g->buf[s->in],
                         .ldx = g->plan->gpu_width[s->in],
                         .n = g->model->layers[s->layer].hp.n_ff,
                         .n_cols = p->n_cols,
                         .deviations = args->cutoff,
                         .f = g->model->hp.activation,
                         .threshold = g->model->hp.activation_threshold};
    g->b->ops.top_k(g->stream, &a);
}

static gpu_ffn_in ffn_in_of(const gpu_exec *g, const plan_step *s, const plan_ffn *f,
                            const gpu_exec_step *w, const gpu_exec_shape *p) {
    const int up = s->n_matrices > 1;
    const bool given = f && f->given;
    int64_t ldh;
    float *h = gpu_exec_hidden_of(g, s->layer, &ldh);
    return (gpu_ffn_in){.gate = given ? (gpu_mat){0} : w->w[0],
                        .up = given || up ? w->w[up] : (gpu_mat){0},
                        .gate_bias = given ? NULL : w->bias[0],
                        .up_bias = given || up ? w->bias[up] : NULL,
                        .given = given,
                        .f = g->model->hp.activation,
                        .threshold = g->model->hp.activation_threshold,
                        .cut = cut_of(f),
                        .cut_weight = w->cut_weight,
                        .cut_down = f ? f->cut_down : 0,
                        .skip = cut_of(f) >= 0,
                        .in = gpu_exec_input(g, BUF_Y, PLAN_SLOT_MAIN, p->n_cols),
                        .n = s->matrix[0].w.n_out,
                        .fired = g->read + 2 * s->layer,
                        .h = h,
                        .ldh = ldh};
}

void gpu_exec_ffn_rows(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    gpu_ffn_in a = ffn_in_of(g, s, f, w, p);
    a.q8 = gpu_exec_q8(g, s, p->form);
    g->b->ops.ffn_in(g->stream, &a);
}

void gpu_exec_ffn_listed(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p) {
    gpu_ffn_in a = ffn_in_of(g, s, f, w, p);
    a.list = g->list;
    a.count = g->count + s->layer;
    a.bitmap = g->bits;
    a.n_words = gpu_exec_words(g, s);
    g->b->ops.ffn_in(g->stream, &a);
}

/* Hidden values from gate and up of all neurons, zero for neurons that were not selected. */
static void mask_hidden(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                        const gpu_exec_shape *p) {
    const bool selected = f && f->selection != SELECT_ALL, given = f && f->given;
    const gpu_activate a = {.gate = g->buf[BUF_GATE],
                            .up = s->n_matrices > 1 || given ? g->buf[BUF_UP] : NULL,
                            .given = given,
                            .ldg = g->plan->gpu_width[BUF_GATE],
                            .ldu = g->plan->gpu_width[BUF_UP],
                            .ldy = g->plan->gpu_width[BUF_GATE],
                            .n = s->matrix[0].w.n_out,
                            .n_cols = p->n_cols,
                            .f = g->model->hp.activation,
                            .clamp = gpu_exec_clamp(g, g->model->layers[s->layer].hp.ffn_clamp),
                            .threshold = g->model->hp.activation_threshold,
                            .cut = cut_of(f),
                            .cut_weight = w->cut_weight,
                            .cut_down = f ? f->cut_down : 0,
                            .divisors = w->divisors,
                            .bitmap = selected ? g->bits : NULL,
                            .n_words = selected ? gpu_exec_words(g, s) : 0,
                            .y = g->buf[BUF_GATE],
                            .q8 = gpu_exec_q8(g, s, p->form)};
    g->b->ops.activate(g->stream, &a);
}

void gpu_exec_ffn_masked(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p) {
    gpu_exec_matvec(g, s, &(const args_matmul){.relu = false}, w, p);
    mask_hidden(g, s, f, w, p);
}

void gpu_exec_ffn_tiled(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                        const gpu_exec_shape *p) {
    gpu_exec_matmul(g, s, &(const args_matmul){.relu = false}, w, p);
    mask_hidden(g, s, f, w, p);
}

/* ---- down ------------------------------------------------------------------------------------ */

static gpu_down_rows down_of(const gpu_exec *g, const plan_step *s, const plan_ffn *f,
                             const gpu_exec_step *w, const gpu_exec_shape *p) {
    int64_t ldh;
    const float *h = gpu_exec_hidden_of(g, s->layer, &ldh);
    return (gpu_down_rows){.w = w->down,
                           .n_max = f->n_ff,
                           .h = h,
                           .ldh = ldh,
                           .n_cols = p->n_cols,
                           .bias = w->down_bias,
                           .add = s->add_to_x,
                           .partial = g->down_partial,
                           .fired = g->read + 2 * s->layer + 1,
                           .y = g->buf[s->out],
                           .ldy = g->plan->gpu_width[s->out],
                           .arrived = g->parts_in};
}

void gpu_exec_down_rows(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                        const gpu_exec_shape *p) {
    gpu_norm norm;
    gpu_send send;
    gpu_down_rows a = down_of(g, s, f, w, p);
    a.norm = gpu_exec_norm_after(g, s, w, p, &norm, &send);
    g->b->ops.down_rows(g->stream, &a);
}

void gpu_exec_down_listed(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                          const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_norm norm;
    gpu_send send;
    gpu_down_rows a = down_of(g, s, f, w, p);
    a.norm = gpu_exec_norm_after(g, s, w, p, &norm, &send);
    a.list = g->list;
    a.count = g->count + s->layer;
    g->b->ops.down_rows(g->stream, &a);
}

void gpu_exec_down_tiled(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p) {
    const gpu_input in = {
        .x = g->buf[BUF_GATE], .ldx = g->plan->gpu_width[BUF_GATE], .n_cols = p->n_cols};
    const gpu_matmul product = gpu_exec_product(g, &f->down, &w->down, w->down_bias, &in, s->out,
                                                s->add_to_x);
    g->b->ops.matmul_t(g->stream, &product);
}
