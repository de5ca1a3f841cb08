/* gpu_steps.c: plan steps as operations of the device. Nothing here waits or allocates; what
 * differs between passes of one shape is read from device memory.
 *
 * Few columns take the matrix-vector operations and lists of neurons. Many take tiled products of
 * all neurons, after which what a token did not choose is set to zero, as on the processor; so do
 * layers whose matrices come with a scale, which the neuron operations do not know. */
#include <assert.h>
#include <math.h>

#include "gpu_exec_impl.h"

static const gpu_ops *ops_of(const hybrid *h) {
    return &h->b->ops;
}

static const gpu_column *columns_of(const hybrid *h) {
    return h->header->columns;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static int64_t width_of(const hybrid *h, plan_buffer b) {
    return h->plan->gpu_width[b];
}

/* Whether int8 columns are read by this pass's operations after step s. */
static void *encoded(const hybrid *h, const plan_step *s, const hybrid_shape *p) {
    bool wanted = s->encode_kinds & (1u << CPU_ACT_Q8);
    if (!p->few && s->layout != LAYOUT_COLUMNS) wanted = false;
    return wanted && s->layout != LAYOUT_TILED ? h->q8[s->slot] : NULL;
}

static void enqueue_norm(hybrid *h, const plan_step *s, const hybrid_step *w, const float *x,
                         int n_cols, void *q8) {
    const gpu_norm norm = {.x = x,
                           .w = w->norm_weight,
                           .b = w->norm_bias,
                           .ldx = width_of(h, s->in),
                           .ldy = width_of(h, BUF_Y),
                           .n = h->model->hp.n_embd,
                           .eps = h->model->hp.norm_eps,
                           .centred = h->model->hp.norm != NORM_RMS,
                           .n_cols = n_cols,
                           .mark = (int32_t)(h->plan->n_gpu_steps - (s - h->plan->gpu_steps)),
                           .bad = h->bad,
                           .y = h->buf[BUF_Y],
                           .q8 = q8};
    ops_of(h)->norm(h->stream, &norm);
}

static void enqueue_encode(hybrid *h, const plan_step *s, const hybrid_shape *p) {
    void *q8 = encoded(h, s, p);
    if (s->relu) {
        const gpu_activate relu = {.gate = h->buf[s->in],
                                   .ldg = width_of(h, s->in),
                                   .ldy = width_of(h, s->in),
                                   .n = s->encode_width,
                                   .n_cols = p->n_cols,
                                   .f = ACTIVATION_RELU,
                                   .cut = -1,
                                   .y = h->buf[s->in]};
        ops_of(h)->activate(h->stream, &relu);
    }
    if (!q8) return;
    const gpu_encode encode = {.x = h->buf[s->in],
                               .ldx = width_of(h, s->in),
                               .n = s->encode_width,
                               .n_cols = p->n_cols,
                               .q8 = q8};
    ops_of(h)->encode(h->stream, &encode);
}

/* ---- products -------------------------------------------------------------------------------- */

static gpu_input input_of(const hybrid *h, plan_buffer b, int slot, int n_cols) {
    return (gpu_input){.x = h->buf[b], .ldx = width_of(h, b), .q8 = h->q8[slot], .n_cols = n_cols};
}

static gpu_matmul product_of(const hybrid *h, const plan_matrix *pm, const gpu_mat *w,
                             const float *bias, const gpu_input *in, plan_buffer out, bool add) {
    return (gpu_matmul){.w = *w,
                        .in = *in,
                        .bias = bias,
                        .scale = pm->scale,
                        .scale_last = pm->scale_last,
                        .add = add,
                        .y = h->buf[out],
                        .ldy = width_of(h, out),
                        .precise = h->precise,
                        .scratch = h->halves};
}

static void enqueue_products(hybrid *h, const gpu_matmul *products, int n, bool few) {
    if (few) {
        ops_of(h)->matvec(h->stream, products, n);
        return;
    }
    for (int i = 0; i < n; i++) ops_of(h)->matmul(h->stream, &products[i]);
}

/* The matrices of a step, which read the same vector. */
static void enqueue_matmul(hybrid *h, const plan_step *s, const hybrid_step *w,
                           const hybrid_shape *p) {
    const gpu_input in = input_of(h, s->in, PLAN_SLOT_MAIN, p->n_cols);
    gpu_matmul products[GPU_MAX_PRODUCTS];
    assert(s->n_matrices <= GPU_MAX_PRODUCTS);
    for (int k = 0; k < s->n_matrices; k++)
        products[k] = product_of(h, &s->matrix[k], &w->w[k], w->bias[k], &in,
                                 s->add_to_x ? BUF_X : s->matrix[k].out, s->add_to_x);
    enqueue_products(h, products, s->n_matrices, p->few);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void enqueue_rope_store(hybrid *h, const plan_step *s, const hybrid_step *w,
                               const hybrid_shape *p) {
    const gpu_rope_store a = {.q = h->buf[BUF_Q],
                              .k = h->buf[BUF_K],
                              .v = h->buf[BUF_V],
                              .ldq = width_of(h, BUF_Q),
                              .ldk = width_of(h, BUF_K),
                              .ldv = width_of(h, BUF_V),
                              .q_norm = w->q_norm,
                              .k_norm = w->k_norm,
                              .eps = h->model->hp.norm_eps,
                              .cs = h->angles,
                              .n_rot = h->model->hp.n_rot,
                              .n_head = h->model->layers[s->layer].hp.n_head,
                              .n_cols = p->n_cols,
                              .neox = h->model->hp.rope == ROPE_NEOX,
                              .cols = columns_of(h),
                              .kv = w->kv};
    ops_of(h)->rope_store(h->stream, &a);
}

static void enqueue_attention(hybrid *h, const plan_step *s, const hybrid_step *w,
                              const hybrid_shape *p) {
    const gpu_attention a = {.q = h->buf[BUF_Q],
                             .ldq = width_of(h, BUF_Q),
                             .ldo = width_of(h, BUF_ATTN),
                             .cols = columns_of(h),
                             .kv = w->kv,
                             .n_head = h->model->layers[s->layer].hp.n_head,
                             .n_cols = p->n_cols,
                             .n_splits = p->n_splits,
                             .scale = 1 / sqrtf((float)h->model->hp.head_dim),
                             .partial = p->n_splits > 1 ? h->attn_partial : NULL,
                             .out = h->buf[BUF_ATTN],
                             .q8 = encoded(h, s, p)};
    ops_of(h)->attention(h->stream, &a);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

/* Words of candidates per token: of the layer's neurons where they are predicted, of the GPU's
 * where they come in a message. */
static int64_t words_of(const hybrid *h, const plan_step *s) {
    bool home = h->plan->cuts[s->layer].home == SIDE_GPU;
    int64_t n = home ? h->model->layers[s->layer].hp.n_ff : h->plan->gpu_ffn[s->layer].n_ff;
    return plan_bits_words(n);
}

bool hybrid_by_neuron(const plan_step *s, bool few) {
    const plan_ffn *f = s->ffn;
    bool plain = few && !(f && f->down.w.data && f->down.scale != 1);
    for (int k = 0; k < s->n_matrices; k++) plain = plain && s->matrix[k].scale == 1;
    return plain;
}

static void enqueue_scores(hybrid *h, const plan_step *s, const hybrid_step *w,
                           const hybrid_shape *p) {
    const plan_ffn *f = s->ffn;
    if (f->predictor != PREDICTOR_SIGN) {
        const gpu_input in = input_of(h, BUF_PRED, PLAN_SLOT_PREDICTOR, p->n_cols);
        const gpu_matmul scores = product_of(h, &f->fc2, &w->fc2, NULL, &in, BUF_SCORE, false);
        enqueue_products(h, &scores, 1, p->few);
        return;
    }
    int64_t n_in = h->model->hp.n_embd, ld = width_of(h, BUF_SCORE);
    for (int c = 0; c < p->n_cols; c += GPU_MAX_COLS) {
        const uint8_t *q8 = h->q8[PLAN_SLOT_PREDICTOR];
        const gpu_sign_dot dot = {
            .bits = w->sign,
            .n_in = n_in,
            .n_out = f->n_scored,
            .in = {.q8 = q8 + (size_t)c * gpu_q8_bytes(n_in),
                   .n_cols = p->n_cols - c < GPU_MAX_COLS ? p->n_cols - c : GPU_MAX_COLS},
            .y = h->buf[BUF_SCORE] + c * ld,
            .ldy = ld};
        ops_of(h)->sign_dot(h->stream, &dot);
    }
}

static void enqueue_choose(hybrid *h, const plan_step *s, const hybrid_step *w,
                           const hybrid_shape *p) {
    const plan_ffn *f = s->ffn;
    if (s->bits && !p->few) return; /* the bits are there, and nothing reads the list */
    gpu_select select = {.n_list = f->n_ff,
                         .n_cols = p->n_cols,
                         .cut = f->threshold,
                         .list = p->few ? h->list : NULL,
                         .count = p->few ? h->count + s->layer : NULL};
    if (s->bits) {
        select.bits_in = h->bits;
        select.n = f->n_ff;
    } else {
        enqueue_scores(h, s, w, p);
        select.v = h->buf[BUF_SCORE];
        select.ldv = width_of(h, BUF_SCORE);
        select.bias = w->score_bias;
        select.n = f->n_scored;
        select.bitmap = h->bits;
    }
    ops_of(h)->select(h->stream, &select);
}

/* All neurons of all tokens, and zero for what is not wanted. */
static void enqueue_tiles(hybrid *h, const plan_step *s, const hybrid_step *w, float cut,
                          bool chosen, const hybrid_shape *p) {
    enqueue_matmul(h, s, w, p);
    const gpu_activate a = {.gate = h->buf[BUF_GATE],
                            .up = s->n_matrices > 1 ? h->buf[BUF_UP] : NULL,
                            .ldg = width_of(h, BUF_GATE),
                            .ldu = width_of(h, BUF_UP),
                            .ldy = width_of(h, BUF_GATE),
                            .n = s->matrix[0].w.n_out,
                            .n_cols = p->n_cols,
                            .f = h->model->hp.activation,
                            .threshold = h->model->hp.activation_threshold,
                            .cut = cut,
                            .bitmap = chosen ? h->bits : NULL,
                            .n_words = chosen ? words_of(h, s) : 0,
                            .y = h->buf[BUF_GATE]};
    ops_of(h)->activate(h->stream, &a);
}

static void enqueue_rows(hybrid *h, const plan_step *s, const hybrid_step *w, float cut,
                         const hybrid_shape *p) {
    bool gated = s->n_matrices > 1;
    const gpu_ffn_in a = {.gate = w->w[0],
                          .up = gated ? w->w[1] : (gpu_mat){0},
                          .gate_bias = w->bias[0],
                          .up_bias = gated ? w->bias[1] : NULL,
                          .f = h->model->hp.activation,
                          .threshold = h->model->hp.activation_threshold,
                          .cut = cut,
                          .skip = cut >= 0,
                          .in = input_of(h, BUF_Y, PLAN_SLOT_MAIN, p->n_cols),
                          .n = s->matrix[0].w.n_out,
                          .fired = h->read + 2 * s->layer,
                          .h = h->buf[BUF_GATE],
                          .ldh = width_of(h, BUF_GATE)};
    ops_of(h)->ffn_in(h->stream, &a);
}

static void enqueue_candidates(hybrid *h, const plan_step *s, const hybrid_step *w,
                               const hybrid_shape *p) {
    bool gated = s->n_matrices > 1;
    const gpu_sparse_in a = {.gate = w->w[0],
                             .up = gated ? w->w[1] : (gpu_mat){0},
                             .gate_bias = w->bias[0],
                             .up_bias = gated ? w->bias[1] : NULL,
                             .f = h->model->hp.activation,
                             .threshold = h->model->hp.activation_threshold,
                             .cut = s->ffn->cut,
                             .in = input_of(h, BUF_Y, PLAN_SLOT_MAIN, p->n_cols),
                             .list = h->list,
                             .count = h->count + s->layer,
                             .n_max = s->ffn->n_ff,
                             .bitmap = h->bits,
                             .n_words = words_of(h, s),
                             .fired = h->read + 2 * s->layer,
                             .h = h->buf[BUF_GATE],
                             .ldh = width_of(h, BUF_GATE)};
    ops_of(h)->sparse_in(h->stream, &a);
}

static void enqueue_neurons(hybrid *h, const plan_step *s, const hybrid_step *w,
                            const hybrid_shape *p) {
    bool chosen = s->ffn->mode == FFN_PREDICT;
    if (!hybrid_by_neuron(s, p->few))
        enqueue_tiles(h, s, w, s->ffn->cut, chosen, p);
    else if (chosen)
        enqueue_candidates(h, s, w, p);
    else
        enqueue_rows(h, s, w, s->ffn->cut, p);
}

static void enqueue_down(hybrid *h, const plan_step *s, const hybrid_step *w,
                         const hybrid_shape *p) {
    const plan_ffn *f = s->ffn;
    if (!hybrid_by_neuron(f->neurons, p->few)) {
        const gpu_input in = {
            .x = h->buf[BUF_GATE], .ldx = width_of(h, BUF_GATE), .n_cols = p->n_cols};
        const gpu_matmul product = product_of(h, &f->down, &w->down, w->down_bias, &in, BUF_X,
                                              true);
        ops_of(h)->matmul_t(h->stream, &product);
        return;
    }
    bool chosen = f->mode == FFN_PREDICT;
    const gpu_down_rows a = {.w = w->down,
                             .list = chosen ? h->list : NULL,
                             .count = chosen ? h->count + s->layer : NULL,
                             .n_max = f->n_ff,
                             .h = h->buf[BUF_GATE],
                             .ldh = width_of(h, BUF_GATE),
                             .n_cols = p->n_cols,
                             .bias = w->down_bias,
                             .add = true,
                             .partial = h->down_partial,
                             .fired = h->read + 2 * s->layer + 1,
                             .y = h->buf[BUF_X],
                             .ldy = width_of(h, BUF_X)};
    ops_of(h)->down_rows(h->stream, &a);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static uint64_t *flag_of(const hybrid *h, plan_side sender, int exchange) {
    return (uint64_t *)((uint8_t *)h->flags[sender].device + (size_t)exchange * GPU_FLAG_BYTES);
}

static void enqueue_send(hybrid *h, const plan_step *s, const hybrid_shape *p) {
    const gpu_publish a = {.x = h->buf[s->in],
                           .ldx = width_of(h, s->in),
                           .n = h->model->hp.n_embd,
                           .n_cols = p->n_cols,
                           .bits = s->bits ? h->bits : NULL,
                           .n_words = s->bits ? words_of(h, s) : 0,
                           .host_x = h->message_x[SIDE_GPU].device,
                           .host_bits = s->bits ? h->message_bits[SIDE_GPU].device : NULL,
                           .flag = flag_of(h, SIDE_GPU, s->exchange),
                           .epoch = &h->header->epoch};
    ops_of(h)->publish(h->stream, &a);
}

static void enqueue_receive(hybrid *h, const plan_step *s, const hybrid_shape *p) {
    plan_buffer to = s->add_to_x ? BUF_X : s->out;
    if (s->clear_x)
        h->b->fill(h->stream, h->buf[BUF_X], 0,
                   (size_t)(p->n_cols * width_of(h, BUF_X)) * sizeof(float));
    const gpu_receive a = {.host_x = h->message_x[SIDE_CPU].device,
                           .n = h->model->hp.n_embd,
                           .ldy = width_of(h, to),
                           .n_cols = p->n_cols,
                           .set = !s->add_to_x,
                           .host_bits = s->bits ? h->message_bits[SIDE_CPU].device : NULL,
                           .bits = s->bits ? h->bits : NULL,
                           .n_words = s->bits ? words_of(h, s) : 0,
                           .flag = flag_of(h, SIDE_CPU, s->exchange),
                           .epoch = &h->header->epoch,
                           .y = h->buf[to]};
    ops_of(h)->receive(h->stream, &a);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void enqueue_add(hybrid *h, const plan_step *s, const hybrid_shape *p) {
    const gpu_add a = {.x = h->buf[s->in],
                       .ldx = width_of(h, s->in),
                       .ldy = width_of(h, BUF_X),
                       .n = h->model->hp.n_embd,
                       .n_cols = p->n_cols,
                       .y = h->buf[BUF_X]};
    ops_of(h)->add(h->stream, &a);
}

static void enqueue_ffn_in(hybrid *h, const plan_step *s, const hybrid_step *w,
                           const hybrid_shape *p) {
    if (hybrid_by_neuron(s, p->few))
        enqueue_rows(h, s, w, -1, p);
    else
        enqueue_tiles(h, s, w, -1, false, p);
}

void hybrid_enqueue_start(hybrid *h, const hybrid_shape *p) {
    h->b->fill(h->stream, h->count, 0, hybrid_counts(h) * sizeof *h->count);
    if (!h->angles || h->kv_per_position == 0) return;
    const gpu_rope_angles a = {.cols = columns_of(h),
                               .inv_freq = h->inv_freq,
                               .scale = h->angle_scale,
                               .n_cols = p->n_cols,
                               .n_half = h->model->hp.n_rot / 2,
                               .cs = h->angles};
    ops_of(h)->rope_angles(h->stream, &a);
}

void hybrid_enqueue_step(hybrid *h, int index, const hybrid_shape *p) {
    const plan_step *s = &h->plan->gpu_steps[index];
    const hybrid_step *w = &h->steps[index];
    switch (s->op) {
    case OP_NORM:
        enqueue_norm(h, s, w, h->buf[s->in], p->n_cols, encoded(h, s, p));
        break;
    case OP_ENCODE:
        enqueue_encode(h, s, p);
        break;
    case OP_MATMUL:
        enqueue_matmul(h, s, w, p);
        break;
    case OP_FFN_IN:
        enqueue_ffn_in(h, s, w, p);
        break;
    case OP_ROPE_STORE:
        enqueue_rope_store(h, s, w, p);
        break;
    case OP_ATTENTION:
        enqueue_attention(h, s, w, p);
        break;
    case OP_ADD:
        enqueue_add(h, s, p);
        break;
    case OP_FFN_NEURONS:
        enqueue_neurons(h, s, w, p);
        break;
    case OP_FFN_DOWN:
        enqueue_down(h, s, w, p);
        break;
    case OP_CHOOSE:
        enqueue_choose(h, s, w, p);
        break;
    case OP_SEND:
        enqueue_send(h, s, p);
        break;
    case OP_RECEIVE:
        enqueue_receive(h, s, p);
        break;
    case OP_EMBED: /* the processor's */
    case OP_SOFTCAP:
    case OP_ROUTE:
    case OP_GROUP:
    case OP_EXPERTS_GATHER:
    case OP_EXPERTS_IN:
    case OP_EXPERTS_ENCODE:
    case OP_EXPERTS_DOWN:
    case OP_EXPERTS_SUM:
    case OP_SELECT_NORM: /* hybrid_enqueue_head */
    case OP_COUNT:
        break;
    }
}

void hybrid_enqueue_head(hybrid *h, int first, int n) {
    int last = h->plan->n_gpu_steps - 1;
    const plan_step *norm = &h->plan->gpu_steps[last - 1], *head = &h->plan->gpu_steps[last];
    const hybrid_shape shape = {.n_cols = n, .few = true};
    enqueue_norm(h, norm, &h->steps[last - 1], h->buf[BUF_X] + first * width_of(h, BUF_X), n,
                 encoded(h, norm, &shape));
    enqueue_matmul(h, head, &h->steps[last], &shape);
}
