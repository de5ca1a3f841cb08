/* gpu_steps.c: plan steps as operations of the device. Nothing here waits or allocates; what
 * differs between ubatches of one shape is read from device memory.
 *
 * Few columns take the matrix-vector operations and lists of neurons. Many take tiled products of
 * all neurons, after which what a token did not choose is set to zero, as on the CPU; so do
 * layers whose matrices come with a scale, which the neuron operations do not know. */
#include <assert.h>
#include <math.h>

#include "gpu_exec_impl.h"

static const gpu_ops *ops_of(const gpu_exec *g) {
    return &g->b->ops;
}

static const gpu_column *columns_of(const gpu_exec *g) {
    return g->header->columns;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static int64_t width_of(const gpu_exec *g, plan_buffer b) {
    return g->plan->gpu_width[b];
}

/* Whether int8 columns are read by this ubatch's operations after step s. */
static void *quantized(const gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    bool wanted = s->act_kinds & (1u << CPU_ACT_Q8);
    if (!p->few && s->layout != LAYOUT_COLUMNS) wanted = false;
    return wanted && s->layout != LAYOUT_TILED ? g->q8[s->slot] : NULL;
}

static void enqueue_norm(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, const float *x,
                         int n_cols, void *q8) {
    const gpu_norm norm = {.x = x,
                           .w = w->norm_weight,
                           .b = w->norm_bias,
                           .ldx = width_of(g, s->in),
                           .ldy = width_of(g, BUF_Y),
                           .n = g->model->hp.n_embd,
                           .eps = g->model->hp.norm_eps,
                           .centred = g->model->hp.norm != NORM_RMS,
                           .n_cols = n_cols,
                           .mark = (int32_t)(g->plan->n_gpu_steps - (s - g->plan->gpu_steps)),
                           .bad = g->bad,
                           .y = g->buf[BUF_Y],
                           .q8 = q8};
    ops_of(g)->norm(g->stream, &norm);
}

static void enqueue_quantize(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    void *q8 = quantized(g, s, p);
    if (s->relu) {
        const gpu_activate relu = {.gate = g->buf[s->in],
                                   .ldg = width_of(g, s->in),
                                   .ldy = width_of(g, s->in),
                                   .n = s->act_width,
                                   .n_cols = p->n_cols,
                                   .f = ACTIVATION_RELU,
                                   .cut = -1,
                                   .y = g->buf[s->in]};
        ops_of(g)->activate(g->stream, &relu);
    }
    if (!q8) return;
    const gpu_encode quantize = {.x = g->buf[s->in],
                                 .ldx = width_of(g, s->in),
                                 .n = s->act_width,
                                 .n_cols = p->n_cols,
                                 .q8 = q8};
    ops_of(g)->encode(g->stream, &quantize);
}

/* ---- products -------------------------------------------------------------------------------- */

static gpu_input input_of(const gpu_exec *g, plan_buffer b, int slot, int n_cols) {
    return (gpu_input){.x = g->buf[b], .ldx = width_of(g, b), .q8 = g->q8[slot], .n_cols = n_cols};
}

static gpu_matmul product_of(const gpu_exec *g, const plan_matrix *pm, const gpu_mat *w,
                             const float *bias, const gpu_input *in, plan_buffer out, bool add) {
    return (gpu_matmul){.w = *w,
                        .in = *in,
                        .bias = bias,
                        .scale = pm->scale,
                        .scale_last = pm->scale_last,
                        .add = add,
                        .y = g->buf[out],
                        .ldy = width_of(g, out),
                        .precise = g->precise,
                        .scratch = g->halves};
}

static void enqueue_products(gpu_exec *g, const gpu_matmul *products, int n, bool few) {
    if (few) {
        ops_of(g)->matvec(g->stream, products, n);
        return;
    }
    for (int i = 0; i < n; i++) ops_of(g)->matmul(g->stream, &products[i]);
}

/* The matrices of a step, which read the same vector. */
static void enqueue_matmul(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                           const gpu_exec_shape *p) {
    const gpu_input in = input_of(g, s->in, PLAN_SLOT_MAIN, p->n_cols);
    gpu_matmul products[GPU_MAX_PRODUCTS];
    assert(s->n_matrices <= GPU_MAX_PRODUCTS);
    for (int k = 0; k < s->n_matrices; k++)
        products[k] = product_of(g, &s->matrix[k], &w->w[k], w->bias[k], &in,
                                 s->add_to_x ? BUF_X : s->matrix[k].out, s->add_to_x);
    enqueue_products(g, products, s->n_matrices, p->few);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void enqueue_rope_store(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                               const gpu_exec_shape *p) {
    const gpu_rope_store a = {.q = g->buf[BUF_Q],
                              .k = g->buf[BUF_K],
                              .v = g->buf[BUF_V],
                              .ldq = width_of(g, BUF_Q),
                              .ldk = width_of(g, BUF_K),
                              .ldv = width_of(g, BUF_V),
                              .q_norm = w->q_norm,
                              .k_norm = w->k_norm,
                              .eps = g->model->hp.norm_eps,
                              .cs = g->angles,
                              .n_rot = g->model->hp.n_rot,
                              .n_head = g->model->layers[s->layer].hp.n_head,
                              .n_cols = p->n_cols,
                              .neox = g->model->hp.rope == ROPE_NEOX,
                              .cols = columns_of(g),
                              .kv = w->kv};
    ops_of(g)->rope_store(g->stream, &a);
}

static void enqueue_attention(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                              const gpu_exec_shape *p) {
    const gpu_attention a = {.q = g->buf[BUF_Q],
                             .ldq = width_of(g, BUF_Q),
                             .ldo = width_of(g, BUF_ATTN),
                             .cols = columns_of(g),
                             .kv = w->kv,
                             .n_head = g->model->layers[s->layer].hp.n_head,
                             .n_cols = p->n_cols,
                             .n_splits = p->n_splits,
                             .scale = 1 / sqrtf((float)g->model->hp.head_dim),
                             .partial = p->n_splits > 1 ? g->attn_partial : NULL,
                             .out = g->buf[BUF_ATTN],
                             .q8 = quantized(g, s, p)};
    ops_of(g)->attention(g->stream, &a);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

/* Words of selected neurons per token: of the layer's neurons where they are predicted, of the
 * GPU's where they come in a message. */
static int64_t words_of(const gpu_exec *g, const plan_step *s) {
    bool home = g->plan->cuts[s->layer].home == SIDE_GPU;
    int64_t n = home ? g->model->layers[s->layer].hp.n_ff : g->plan->gpu_ffn[s->layer].n_ff;
    return plan_bits_words(n);
}

bool gpu_exec_is_sparse(const plan_step *s, bool few) {
    const plan_ffn *f = s->ffn;
    bool plain = few && !(f && f->down.w.data && f->down.scale != 1);
    for (int k = 0; k < s->n_matrices; k++) plain = plain && s->matrix[k].scale == 1;
    return plain;
}

static void enqueue_scores(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                           const gpu_exec_shape *p) {
    const plan_ffn *f = s->ffn;
    if (f->predictor != PREDICTOR_SIGN) {
        const gpu_input in = input_of(g, BUF_PRED, PLAN_SLOT_PREDICTOR, p->n_cols);
        const gpu_matmul scores = product_of(g, &f->fc2, &w->fc2, NULL, &in, BUF_SCORE, false);
        enqueue_products(g, &scores, 1, p->few);
        return;
    }
    int64_t n_in = g->model->hp.n_embd, ld = width_of(g, BUF_SCORE);
    for (int c = 0; c < p->n_cols; c += GPU_MAX_COLS) {
        const uint8_t *q8 = g->q8[PLAN_SLOT_PREDICTOR];
        const gpu_sign_dot dot = {
            .bits = w->sign,
            .n_in = n_in,
            .n_out = f->n_scored,
            .in = {.q8 = q8 + (size_t)c * gpu_q8_bytes(n_in),
                   .n_cols = p->n_cols - c < GPU_MAX_COLS ? p->n_cols - c : GPU_MAX_COLS},
            .y = g->buf[BUF_SCORE] + c * ld,
            .ldy = ld};
        ops_of(g)->sign_dot(g->stream, &dot);
    }
}

static void enqueue_select(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                           const gpu_exec_shape *p) {
    const plan_ffn *f = s->ffn;
    if (s->bits && !p->few) return; /* the bits are there, and nothing reads the list */
    gpu_select select = {.n_list = f->n_ff,
                         .n_cols = p->n_cols,
                         .cut = f->threshold,
                         .list = p->few ? g->list : NULL,
                         .count = p->few ? g->count + s->layer : NULL};
    if (s->bits) {
        select.bits_in = g->bits;
        select.n = f->n_ff;
    } else {
        enqueue_scores(g, s, w, p);
        select.v = g->buf[BUF_SCORE];
        select.ldv = width_of(g, BUF_SCORE);
        select.bias = w->score_bias;
        select.n = f->n_scored;
        select.bitmap = g->bits;
    }
    ops_of(g)->select(g->stream, &select);
}

/* All neurons of all tokens, and zero for what is not wanted. */
static void enqueue_tiles(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, float cut,
                          bool selected, const gpu_exec_shape *p) {
    enqueue_matmul(g, s, w, p);
    const gpu_activate a = {.gate = g->buf[BUF_GATE],
                            .up = s->n_matrices > 1 ? g->buf[BUF_UP] : NULL,
                            .ldg = width_of(g, BUF_GATE),
                            .ldu = width_of(g, BUF_UP),
                            .ldy = width_of(g, BUF_GATE),
                            .n = s->matrix[0].w.n_out,
                            .n_cols = p->n_cols,
                            .f = g->model->hp.activation,
                            .threshold = g->model->hp.activation_threshold,
                            .cut = cut,
                            .bitmap = selected ? g->bits : NULL,
                            .n_words = selected ? words_of(g, s) : 0,
                            .y = g->buf[BUF_GATE]};
    ops_of(g)->activate(g->stream, &a);
}

static void enqueue_rows(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, float cut,
                         const gpu_exec_shape *p) {
    bool gated = s->n_matrices > 1;
    const gpu_ffn_in a = {.gate = w->w[0],
                          .up = gated ? w->w[1] : (gpu_mat){0},
                          .gate_bias = w->bias[0],
                          .up_bias = gated ? w->bias[1] : NULL,
                          .f = g->model->hp.activation,
                          .threshold = g->model->hp.activation_threshold,
                          .cut = cut,
                          .skip = cut >= 0,
                          .in = input_of(g, BUF_Y, PLAN_SLOT_MAIN, p->n_cols),
                          .n = s->matrix[0].w.n_out,
                          .fired = g->read + 2 * s->layer,
                          .h = g->buf[BUF_GATE],
                          .ldh = width_of(g, BUF_GATE)};
    ops_of(g)->ffn_in(g->stream, &a);
}

static void enqueue_selected(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                             const gpu_exec_shape *p) {
    bool gated = s->n_matrices > 1;
    const gpu_sparse_in a = {.gate = w->w[0],
                             .up = gated ? w->w[1] : (gpu_mat){0},
                             .gate_bias = w->bias[0],
                             .up_bias = gated ? w->bias[1] : NULL,
                             .f = g->model->hp.activation,
                             .threshold = g->model->hp.activation_threshold,
                             .cut = s->ffn->cut,
                             .in = input_of(g, BUF_Y, PLAN_SLOT_MAIN, p->n_cols),
                             .list = g->list,
                             .count = g->count + s->layer,
                             .n_max = s->ffn->n_ff,
                             .bitmap = g->bits,
                             .n_words = words_of(g, s),
                             .fired = g->read + 2 * s->layer,
                             .h = g->buf[BUF_GATE],
                             .ldh = width_of(g, BUF_GATE)};
    ops_of(g)->sparse_in(g->stream, &a);
}

static void enqueue_neurons(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                            const gpu_exec_shape *p) {
    bool selected = s->ffn->mode == FFN_PREDICT;
    if (!gpu_exec_is_sparse(s, p->few))
        enqueue_tiles(g, s, w, s->ffn->cut, selected, p);
    else if (selected)
        enqueue_selected(g, s, w, p);
    else
        enqueue_rows(g, s, w, s->ffn->cut, p);
}

static void enqueue_down(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                         const gpu_exec_shape *p) {
    const plan_ffn *f = s->ffn;
    if (!gpu_exec_is_sparse(f->neurons, p->few)) {
        const gpu_input in = {
            .x = g->buf[BUF_GATE], .ldx = width_of(g, BUF_GATE), .n_cols = p->n_cols};
        const gpu_matmul product = product_of(g, &f->down, &w->down, w->down_bias, &in, BUF_X,
                                              true);
        ops_of(g)->matmul_t(g->stream, &product);
        return;
    }
    bool selected = f->mode == FFN_PREDICT;
    const gpu_down_rows a = {.w = w->down,
                             .list = selected ? g->list : NULL,
                             .count = selected ? g->count + s->layer : NULL,
                             .n_max = f->n_ff,
                             .h = g->buf[BUF_GATE],
                             .ldh = width_of(g, BUF_GATE),
                             .n_cols = p->n_cols,
                             .bias = w->down_bias,
                             .add = true,
                             .partial = g->down_partial,
                             .fired = g->read + 2 * s->layer + 1,
                             .y = g->buf[BUF_X],
                             .ldy = width_of(g, BUF_X)};
    ops_of(g)->down_rows(g->stream, &a);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static uint64_t *flag_of(const gpu_exec *g, plan_side sender, int exchange) {
    return (uint64_t *)((uint8_t *)g->flags[sender].device + (size_t)exchange * GPU_FLAG_BYTES);
}

static void enqueue_send(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const gpu_publish a = {.x = g->buf[s->in],
                           .ldx = width_of(g, s->in),
                           .n = g->model->hp.n_embd,
                           .n_cols = p->n_cols,
                           .bits = s->bits ? g->bits : NULL,
                           .n_words = s->bits ? words_of(g, s) : 0,
                           .host_x = g->message_x[SIDE_GPU].device,
                           .host_bits = s->bits ? g->message_bits[SIDE_GPU].device : NULL,
                           .flag = flag_of(g, SIDE_GPU, s->exchange),
                           .epoch = &g->header->epoch};
    ops_of(g)->publish(g->stream, &a);
}

static void enqueue_receive(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    plan_buffer to = s->add_to_x ? BUF_X : s->out;
    if (s->clear_x)
        g->b->fill(g->stream, g->buf[BUF_X], 0,
                   (size_t)(p->n_cols * width_of(g, BUF_X)) * sizeof(float));
    const gpu_receive a = {.host_x = g->message_x[SIDE_CPU].device,
                           .n = g->model->hp.n_embd,
                           .ldy = width_of(g, to),
                           .n_cols = p->n_cols,
                           .set = !s->add_to_x,
                           .host_bits = s->bits ? g->message_bits[SIDE_CPU].device : NULL,
                           .bits = s->bits ? g->bits : NULL,
                           .n_words = s->bits ? words_of(g, s) : 0,
                           .flag = flag_of(g, SIDE_CPU, s->exchange),
                           .epoch = &g->header->epoch,
                           .y = g->buf[to]};
    ops_of(g)->receive(g->stream, &a);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void enqueue_add(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const gpu_add a = {.x = g->buf[s->in],
                       .ldx = width_of(g, s->in),
                       .ldy = width_of(g, BUF_X),
                       .n = g->model->hp.n_embd,
                       .n_cols = p->n_cols,
                       .y = g->buf[BUF_X]};
    ops_of(g)->add(g->stream, &a);
}

static void enqueue_ffn_in(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                           const gpu_exec_shape *p) {
    if (gpu_exec_is_sparse(s, p->few))
        enqueue_rows(g, s, w, -1, p);
    else
        enqueue_tiles(g, s, w, -1, false, p);
}

void gpu_exec_enqueue_start(gpu_exec *g, const gpu_exec_shape *p) {
    g->b->fill(g->stream, g->count, 0, gpu_exec_counts(g) * sizeof *g->count);
    if (!g->angles || g->kv_per_position == 0) return;
    const gpu_rope_angles a = {.cols = columns_of(g),
                               .inv_freq = g->inv_freq,
                               .scale = g->angle_scale,
                               .n_cols = p->n_cols,
                               .n_half = g->model->hp.n_rot / 2,
                               .cs = g->angles};
    ops_of(g)->rope_angles(g->stream, &a);
}

void gpu_exec_enqueue_step(gpu_exec *g, int index, const gpu_exec_shape *p) {
    const plan_step *s = &g->plan->gpu_steps[index];
    const gpu_exec_step *w = &g->steps[index];
    switch (s->op) {
    case OP_NORM:
        enqueue_norm(g, s, w, g->buf[s->in], p->n_cols, quantized(g, s, p));
        break;
    case OP_QUANTIZE:
        enqueue_quantize(g, s, p);
        break;
    case OP_MATMUL:
        enqueue_matmul(g, s, w, p);
        break;
    case OP_FFN_IN:
        enqueue_ffn_in(g, s, w, p);
        break;
    case OP_ROPE_STORE:
        enqueue_rope_store(g, s, w, p);
        break;
    case OP_ATTENTION:
        enqueue_attention(g, s, w, p);
        break;
    case OP_ADD:
        enqueue_add(g, s, p);
        break;
    case OP_FFN_SPARSE:
        enqueue_neurons(g, s, w, p);
        break;
    case OP_FFN_DOWN:
        enqueue_down(g, s, w, p);
        break;
    case OP_SELECT:
        enqueue_select(g, s, w, p);
        break;
    case OP_SEND:
        enqueue_send(g, s, p);
        break;
    case OP_RECEIVE:
        enqueue_receive(g, s, p);
        break;
    case OP_EMBED: /* the CPU's */
    case OP_SOFTCAP:
    case OP_ROUTE:
    case OP_GROUP:
    case OP_EXPERTS_GATHER:
    case OP_EXPERTS_IN:
    case OP_EXPERTS_QUANTIZE:
    case OP_EXPERTS_DOWN:
    case OP_EXPERTS_SUM:
    case OP_HEAD_NORM: /* gpu_exec_enqueue_head */
    case OP_COUNT:
        break;
    }
}

void gpu_exec_enqueue_head(gpu_exec *g, int first, int n) {
    int last = g->plan->n_gpu_steps - 1;
    const plan_step *norm = &g->plan->gpu_steps[last - 1], *head = &g->plan->gpu_steps[last];
    const gpu_exec_shape shape = {.n_cols = n, .few = true};
    enqueue_norm(g, norm, &g->steps[last - 1], g->buf[BUF_X] + first * width_of(g, BUF_X), n,
                 quantized(g, norm, &shape));
    enqueue_matmul(g, head, &g->steps[last], &shape);
}
