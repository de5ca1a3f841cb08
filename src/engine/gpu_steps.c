/* gpu_steps.c: plan steps as operations of the device. Nothing here waits or allocates; what
 * differs between ubatches of one shape is read from device memory. */
#include <assert.h>
#include <math.h>

#include "gpu_exec_impl.h"

static const gpu_column *columns_of(const gpu_exec *g) {
    return g->header->columns;
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* Where the int8 form of a step's result goes; NULL: nothing reads it. */
static void *q8_of(const gpu_exec *g, const plan_step *s) {
    return s->act_kinds & (1u << CPU_ACT_Q8) ? g->q8[s->slot] : NULL;
}

static void norm_of(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, const float *x,
                    int n_cols, void *q8) {
    const gpu_norm norm = {.x = x,
                           .w = w->norm_weight,
                           .b = w->norm_bias,
                           .ldx = g->plan->gpu_width[s->in],
                           .ldy = g->plan->gpu_width[BUF_Y],
                           .n = g->model->hp.n_embd,
                           .eps = g->model->hp.norm_eps,
                           .centred = g->model->hp.norm != NORM_RMS,
                           .n_cols = n_cols,
                           .mark = (int32_t)(g->plan->n_gpu_steps - (s - g->plan->gpu_steps)),
                           .bad = g->bad,
                           .y = g->buf[BUF_Y],
                           .q8 = q8};
    g->b->ops.norm(g->stream, &norm);
}

static void norm_vector(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                        const gpu_exec_shape *p) {
    norm_of(g, s, w, g->buf[s->in], p->n_cols, q8_of(g, s));
}

/* Tiled products read floats. */
static void norm_tiled(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    norm_of(g, s, w, g->buf[s->in], p->n_cols, NULL);
}

static void rectify(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                    const gpu_exec_shape *p) {
    (void)w;
    const gpu_activate relu = {.gate = g->buf[s->in],
                               .ldg = g->plan->gpu_width[s->in],
                               .ldy = g->plan->gpu_width[s->in],
                               .n = s->act_width,
                               .n_cols = p->n_cols,
                               .f = ACTIVATION_RELU,
                               .cut = -1,
                               .y = g->buf[s->in]};
    g->b->ops.activate(g->stream, &relu);
}

static void quantize(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    if (s->relu) rectify(g, s, w, p);
    const gpu_quantize quantize = {.x = g->buf[s->in],
                                   .ldx = g->plan->gpu_width[s->in],
                                   .n = s->act_width,
                                   .n_cols = p->n_cols,
                                   .q8 = q8_of(g, s)};
    if (quantize.q8) g->b->ops.quantize(g->stream, &quantize);
}

/* ---- products -------------------------------------------------------------------------------- */

gpu_input gpu_exec_input(const gpu_exec *g, plan_buffer b, int slot, int n_cols) {
    return (gpu_input){
        .x = g->buf[b], .ldx = g->plan->gpu_width[b], .q8 = g->q8[slot], .n_cols = n_cols};
}

gpu_matmul gpu_exec_product(const gpu_exec *g, const plan_matrix *pm, const gpu_mat *w,
                            const float *bias, const gpu_input *in, plan_buffer out, bool add) {
    return (gpu_matmul){.w = *w,
                        .in = *in,
                        .bias = bias,
                        .scale = pm->scale,
                        .scale_last = pm->scale_last,
                        .add = add,
                        .y = g->buf[out],
                        .ldy = g->plan->gpu_width[out],
                        .precise = g->precise,
                        .scratch = g->halves};
}

static void make_products(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                          const gpu_exec_shape *p, gpu_matmul products[GPU_MAX_PRODUCTS]) {
    const gpu_input in = gpu_exec_input(g, s->in, PLAN_SLOT_MAIN, p->n_cols);
    assert(s->n_matrices <= GPU_MAX_PRODUCTS);
    for (int k = 0; k < s->n_matrices; k++)
        products[k] = gpu_exec_product(g, &s->matrix[k], &w->w[k], w->bias[k], &in,
                                       s->add_to_x ? BUF_X : s->matrix[k].out, s->add_to_x);
}

void gpu_exec_matvec(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    gpu_matmul products[GPU_MAX_PRODUCTS];
    make_products(g, s, w, p, products);
    g->b->ops.matvec(g->stream, products, s->n_matrices);
}

void gpu_exec_matmul(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    gpu_matmul products[GPU_MAX_PRODUCTS];
    make_products(g, s, w, p, products);
    for (int k = 0; k < s->n_matrices; k++) g->b->ops.matmul(g->stream, &products[k]);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void rope_store(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    const gpu_rope_store a = {.q = g->buf[BUF_Q],
                              .k = g->buf[BUF_K],
                              .v = g->buf[BUF_V],
                              .ldq = g->plan->gpu_width[BUF_Q],
                              .ldk = g->plan->gpu_width[BUF_K],
                              .ldv = g->plan->gpu_width[BUF_V],
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
    g->b->ops.rope_store(g->stream, &a);
}

static void attend(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, const gpu_exec_shape *p,
                   void *q8) {
    const gpu_attention a = {.q = g->buf[BUF_Q],
                             .ldq = g->plan->gpu_width[BUF_Q],
                             .ldo = g->plan->gpu_width[BUF_ATTN],
                             .cols = columns_of(g),
                             .kv = w->kv,
                             .n_head = g->model->layers[s->layer].hp.n_head,
                             .n_cols = p->n_cols,
                             .n_splits = p->n_splits,
                             .scale = 1 / sqrtf((float)g->model->hp.head_dim),
                             .partial = p->n_splits > 1 ? g->attn_partial : NULL,
                             .out = g->buf[BUF_ATTN],
                             .q8 = q8};
    g->b->ops.attention(g->stream, &a);
}

static void attention_vector(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                             const gpu_exec_shape *p) {
    attend(g, s, w, p, q8_of(g, s));
}

static void attention_tiled(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                            const gpu_exec_shape *p) {
    attend(g, s, w, p, NULL);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static uint64_t *flag_of(const gpu_exec *g, plan_side sender, int exchange) {
    return (uint64_t *)((uint8_t *)g->flags[sender].device + (size_t)exchange * GPU_FLAG_BYTES);
}

/* A home with all experts that the tokens chose neither sends nor waits for an answer; a remote
 * device with none of them has no answer. */
static gpu_idle idle_of(const gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const plan_experts *e = s->experts;
    if (!e || p->form == FORM_MANY) return (gpu_idle){0};
    if (e->home == SIDE_CPU && s->op == OP_RECEIVE) return (gpu_idle){0};
    return (gpu_idle){.choices = g->bits,
                      .n_used = e->n_used,
                      .n_own = (int32_t)e->hot,
                      .others = e->home == SIDE_CPU};
}

static void send_step(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                      const gpu_exec_shape *p) {
    (void)w;
    const gpu_publish a = {.x = g->buf[s->in],
                           .ldx = g->plan->gpu_width[s->in],
                           .n = g->model->hp.n_embd,
                           .n_cols = p->n_cols,
                           .bits = s->bits ? g->bits : NULL,
                           .n_words = s->bits ? gpu_exec_words(g, s) : 0,
                           .host_x = g->message_x[SIDE_GPU].device,
                           .host_bits = s->bits ? g->message_bits[SIDE_GPU].device : NULL,
                           .flag = flag_of(g, SIDE_GPU, s->exchange),
                           .idle = idle_of(g, s, p),
                           .epoch = &g->header->epoch};
    g->b->ops.publish(g->stream, &a);
}

static void receive_step(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                         const gpu_exec_shape *p) {
    (void)w;
    plan_buffer to = s->add_to_x ? BUF_X : s->out;
    if (s->clear_x)
        g->b->fill(g->stream, g->buf[BUF_X], 0,
                   (size_t)(p->n_cols * g->plan->gpu_width[BUF_X]) * sizeof(float));
    const gpu_receive a = {.host_x = g->message_x[SIDE_CPU].device,
                           .n = g->model->hp.n_embd,
                           .ldy = g->plan->gpu_width[to],
                           .n_cols = p->n_cols,
                           .set = !s->add_to_x,
                           .host_bits = s->bits ? g->message_bits[SIDE_CPU].device : NULL,
                           .bits = s->bits ? g->bits : NULL,
                           .n_words = s->bits ? gpu_exec_words(g, s) : 0,
                           .flag = flag_of(g, SIDE_CPU, s->exchange),
                           .idle = idle_of(g, s, p),
                           .epoch = &g->header->epoch,
                           .y = g->buf[to]};
    g->b->ops.receive(g->stream, &a);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void add_step(gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                     const gpu_exec_shape *p) {
    (void)w;
    const gpu_add a = {.x = g->buf[s->in],
                       .ldx = g->plan->gpu_width[s->in],
                       .ldy = g->plan->gpu_width[BUF_X],
                       .n = g->model->hp.n_embd,
                       .n_cols = p->n_cols,
                       .y = g->buf[BUF_X]};
    g->b->ops.add(g->stream, &a);
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
    g->b->ops.rope_angles(g->stream, &a);
}

#define ONE_WAY(f)                                                                                 \
    { [KERNEL_PLAIN] = (f) }
#define BY_SIZE(few, many)                                                                         \
    { [KERNEL_VECTOR] = (few), [KERNEL_TILED] = (many) }

/* What a step of the plan is on the GPU, by what it runs as. */
static gpu_exec_enqueue *const functions[OP_COUNT][KERNEL_COUNT] = {
    [OP_NORM] = BY_SIZE(norm_vector, norm_tiled),
    [OP_MATMUL] = BY_SIZE(gpu_exec_matvec, gpu_exec_matmul),
    [OP_ROPE_STORE] = ONE_WAY(rope_store),
    [OP_ATTENTION] = BY_SIZE(attention_vector, attention_tiled),
    [OP_QUANTIZE] = BY_SIZE(quantize, rectify),
    [OP_FFN_IN] = {[KERNEL_VECTOR] = gpu_exec_ffn_rows,
                   [KERNEL_MASKED] = gpu_exec_ffn_masked,
                   [KERNEL_TILED] = gpu_exec_ffn_tiled},
    [OP_SELECT] = {[KERNEL_VECTOR] = gpu_exec_select_vector,
                   [KERNEL_UNION] = gpu_exec_list_message,
                   [KERNEL_TILED] = gpu_exec_select_tiled},
    [OP_FFN_SPARSE] = {[KERNEL_VECTOR] = gpu_exec_ffn_rows,
                       [KERNEL_UNION] = gpu_exec_ffn_listed,
                       [KERNEL_MASKED] = gpu_exec_ffn_masked,
                       [KERNEL_TILED] = gpu_exec_ffn_tiled},
    [OP_FFN_DOWN] = {[KERNEL_VECTOR] = gpu_exec_down_rows,
                     [KERNEL_UNION] = gpu_exec_down_listed,
                     [KERNEL_TILED] = gpu_exec_down_tiled},
    [OP_ROUTE] = ONE_WAY(gpu_exec_route),
    [OP_EXPERTS_IN] = ONE_WAY(gpu_exec_experts_in),
    [OP_EXPERTS_QUANTIZE] = ONE_WAY(gpu_exec_experts_quantize),
    [OP_EXPERTS_DOWN] = ONE_WAY(gpu_exec_experts_down),
    [OP_EXPERTS_SUM] = ONE_WAY(gpu_exec_experts_sum),
    [OP_SEND] = ONE_WAY(send_step),
    [OP_RECEIVE] = ONE_WAY(receive_step),
    [OP_ADD] = ONE_WAY(add_step),
};

void gpu_exec_enqueue_step(gpu_exec *g, int index, const gpu_exec_shape *p) {
    const plan_step *s = &g->plan->gpu_steps[index];
    plan_kernel kernel = s->kernel[p->form];
    if (kernel == KERNEL_SKIP) return;
    assert(functions[s->op][kernel]);
    functions[s->op][kernel](g, s, &g->steps[index], p);
}

/* Few rows at a time, whatever the size of the ubatch. */
void gpu_exec_enqueue_head(gpu_exec *g, int first, int n) {
    int last = g->plan->n_gpu_steps - 1;
    const plan_step *norm = &g->plan->gpu_steps[last - 1], *head = &g->plan->gpu_steps[last];
    const gpu_exec_shape shape = {.n_cols = n, .form = FORM_FEW};
    norm_of(g, norm, &g->steps[last - 1], g->buf[BUF_X] + first * g->plan->gpu_width[BUF_X], n,
            q8_of(g, norm));
    gpu_exec_matvec(g, head, &g->steps[last], &shape);
}

void gpu_exec_enqueue_hidden(gpu_exec *g, int first, int n) {
    int index = g->plan->n_gpu_steps - 2; /* the head's norm */
    norm_of(g, &g->plan->gpu_steps[index], &g->steps[index],
            g->buf[BUF_X] + first * g->plan->gpu_width[BUF_X], n, NULL);
}
