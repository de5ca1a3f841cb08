/* gpu_steps.c: plan steps as operations of the device. Nothing here waits or allocates; kernels
 * read from device memory what differs between ubatches of one shape. */
#include <assert.h>

#include "gpu_exec_impl.h"

/* ---- vectors --------------------------------------------------------------------------------- */

void *gpu_exec_q8(const gpu_exec *g, const plan_step *s, plan_form form) {
    const bool wanted = s->act_kinds & (1u << CPU_ACT_Q8) && s->kernel[form] != KERNEL_TILED;
    return wanted ? g->q8[s->slot] : NULL;
}

static gpu_norm_kind kind_of(norm_kind kind) {
    return kind == NORM_RMS ? GPU_NORM_RMS : kind == NORM_LAYER ? GPU_NORM_LAYER : GPU_NORM_NONE;
}

static gpu_norm norm_of(const gpu_exec *g, const plan_step *s, const args_norm *args,
                        const gpu_exec_step *w, const float *x, plan_buffer out, int n_cols) {
    return (gpu_norm){.x = x,
                      .w = w->norm_weight,
                      .b = w->norm_bias,
                      .ldx = g->plan->gpu_width[s->in],
                      .ldy = g->plan->gpu_width[out],
                      .n = args->width,
                      .eps = args->eps,
                      .kind = kind_of(args->kind),
                      .n_cols = n_cols,
                      .mark = (int32_t)(g->plan->n_gpu_steps - (s - g->plan->gpu_steps)),
                      .bad = plan_is_residual(s->in) ? g->bad : NULL,
                      .y = g->buf[out]};
}

void gpu_exec_norm(gpu_exec *g, const plan_step *s, const args_norm *args, const gpu_exec_step *w,
                   const gpu_exec_shape *p) {
    gpu_send send;
    gpu_norm a = norm_of(g, s, args, w, g->buf[s->in], s->out, p->n_cols);
    a.q8 = gpu_exec_q8(g, s, p->form);
    if (gpu_exec_sends(g, s, p, &send)) a.send = &send;
    g->b->ops.norm(g->stream, &a);
    for (int k = 1; k < args->n; k++) { /* a later step quantizes them together */
        a.x += args->width;
        a.y += args->width;
        a.w += args->width;
        g->b->ops.norm(g->stream, &a);
    }
}

void gpu_exec_head_norm(gpu_exec *g, const plan_step *s, const args_norm *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p) {
    const float *x = g->buf[BUF_X] + p->first_out * g->plan->gpu_width[BUF_X];
    gpu_norm a = norm_of(g, s, args, w, x, BUF_Y, p->n_cols);
    a.q8 = gpu_exec_q8(g, s, p->form);
    g->b->ops.norm(g->stream, &a);
}

/* The activation, multiplied by the layer's embedding. */
void gpu_exec_activate(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p) {
    const gpu_activate a = {.gate = g->buf[s->in],
                            .up = g->buf[BUF_LAYER_EMBD] + s->layer * g->model->hp.n_embd_layer,
                            .ldg = g->plan->gpu_width[s->in],
                            .ldu = g->plan->gpu_width[BUF_LAYER_EMBD],
                            .ldy = g->plan->gpu_width[s->in],
                            .n = s->act_width,
                            .n_cols = p->n_cols,
                            .f = g->model->hp.activation,
                            .cut = -1,
                            .y = g->buf[s->in],
                            .q8 = gpu_exec_q8(g, s, p->form)};
    g->b->ops.activate(g->stream, &a);
}

void gpu_exec_quantize(gpu_exec *g, const plan_step *s, const args_quantize *args,
                       const gpu_exec_shape *p) {
    const gpu_quantize quantize = {.x = g->buf[s->in] + s->in_at,
                                   .ldx = g->plan->gpu_width[s->in],
                                   .n = s->act_width,
                                   .n_cols = p->n_cols,
                                   .q8 = gpu_exec_q8(g, s, p->form)};
    const gpu_gate gate = {
        .gate = g->buf[BUF_ATTN_GATE],
        .ldg = g->plan->gpu_width[BUF_ATTN_GATE],
        .ldx = g->plan->gpu_width[s->in],
        .n = s->act_width,
        .width = s->act_width,
        .share = args->head_gates ? s->act_width / g->model->layers[s->layer].hp.n_head : 1,
        .sigmoid = true,
        .n_cols = p->n_cols,
        .x = g->buf[s->in]};
    const gpu_activate silu = {.gate = g->buf[s->in],
                               .ldg = g->plan->gpu_width[s->in],
                               .ldy = g->plan->gpu_width[s->in],
                               .n = s->act_width,
                               .n_cols = p->n_cols,
                               .f = ACTIVATION_SILU,
                               .cut = -1,
                               .y = g->buf[s->in],
                               .q8 = quantize.q8};
    if (args->gated) g->b->ops.gate(g->stream, &gate);
    if (args->silu) {
        g->b->ops.activate(g->stream, &silu);
        return;
    }
    if (args->layer_embd)
        gpu_exec_activate(g, s, p);
    else if (quantize.q8)
        g->b->ops.quantize(g->stream, &quantize);
}

/* The norm of the next step, which this step's kernel includes. */
static const gpu_norm *next_norm(const gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                                 const gpu_exec_shape *p, gpu_norm *norm, gpu_send *send) {
    const plan_step *next = &s[1];
    *norm = norm_of(g, next, STEP_ARGS(next, norm), &w[1], g->buf[next->in], next->out, p->n_cols);
    norm->q8 = gpu_exec_q8(g, next, p->form);
    if (gpu_exec_sends(g, next, p, send)) norm->send = send;
    return norm;
}

const gpu_norm *gpu_exec_norm_after(const gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                                    const gpu_exec_shape *p, gpu_norm *norm, gpu_send *send) {
    return s->norms && p->form == FORM_ONE ? next_norm(g, s, w, p, norm, send) : NULL;
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

static void make_products(gpu_exec *g, const plan_step *s, const args_matmul *args,
                          const gpu_exec_step *w, const gpu_exec_shape *p,
                          gpu_matmul products[GPU_MAX_PRODUCTS]) {
    gpu_input in = gpu_exec_input(g, s->in, plan_input_slot(s), p->n_cols);
    in.x += s->in_at;
    assert(s->n_matrices <= GPU_MAX_PRODUCTS);
    for (int k = 0; k < s->n_matrices; k++) {
        products[k] = gpu_exec_product(g, &s->matrix[k], &w->w[k], w->bias[k], &in,
                                       s->add_to_x ? BUF_X : s->matrix[k].out, s->add_to_x);
        products[k].y += s->matrix[k].out_at;
        products[k].relu = args->relu;
    }
}

void gpu_exec_matvec(gpu_exec *g, const plan_step *s, const args_matmul *args,
                     const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_matmul products[GPU_MAX_PRODUCTS];
    gpu_norm norm;
    gpu_send send;
    make_products(g, s, args, w, p, products);
    products[0].norm = gpu_exec_norm_after(g, s, w, p, &norm, &send);
    products[0].arrived = g->parts_in;
    g->b->ops.matvec(g->stream, products, s->n_matrices);
}

void gpu_exec_matmul(gpu_exec *g, const plan_step *s, const args_matmul *args,
                     const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_matmul products[GPU_MAX_PRODUCTS];
    gpu_rounding before = GPU_ROUND_NOT;
    make_products(g, s, args, w, p, products);
    for (int k = 0; k < s->n_matrices; k++) {
        const gpu_rounding to = gpu_matmul_rounding(products[k].w.type, products[k].precise, false);
        /* The product before may have left the rounded columns in the scratch memory. */
        products[k].rounded = to != GPU_ROUND_NOT && to == before;
        before = to == GPU_ROUND_NOT ? before : to;
        g->b->ops.matmul(g->stream, &products[k]);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static gpu_rope_store rope_of(const gpu_exec *g, const plan_step *s, const args_rope *args,
                              const gpu_exec_step *w, const gpu_exec_shape *p) {
    bool rotates = g->angles[0] && args->set != ROPE_SET_NONE;
    return (gpu_rope_store){.q = g->buf[BUF_Q],
                            .k = g->buf[BUF_K],
                            .v = g->buf[BUF_V],
                            .ldq = g->plan->gpu_width[BUF_Q],
                            .ldk = g->plan->gpu_width[BUF_K],
                            .ldv = g->plan->gpu_width[BUF_V],
                            .q_stride = args->q_stride,
                            .q_norm = w->q_norm,
                            .k_norm = w->k_norm,
                            .norm_stride = args->norm_stride,
                            .norm = kind_of(args->norm),
                            .norm_bare = args->norm_bare,
                            .norm_late = args->norm_late,
                            .value_norm = args->value_norm,
                            .clamp = args->clamp,
                            .eps = g->model->hp.norm_eps,
                            .cs = rotates ? g->angles[args->set] : NULL,
                            .n_rot = rotates ? g->model->hp.n_rots[args->set] : 0,
                            .n_head = g->model->layers[s->layer].hp.n_head,
                            .n_cols = p->n_cols,
                            .rot_at = args->rot_at,
                            .neox = args->neox,
                            .cols = gpu_exec_columns(g),
                            .kv = w->kv};
}

void gpu_exec_rope_store(gpu_exec *g, const plan_step *s, const args_rope *args,
                         const gpu_exec_step *w, const gpu_exec_shape *p) {
    const gpu_rope_store a = rope_of(g, s, args, w, p);
    g->b->ops.rope_store(g->stream, &a);
}

void gpu_exec_rope_back(gpu_exec *g, const plan_step *s, const args_rope *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_rope_store a = rope_of(g, s, args, w, p);
    a.q = g->buf[s->in];
    a.ldq = g->plan->gpu_width[s->in];
    a.back = true;
    a.kv = (gpu_kv_layout){.head_dim = (int32_t)args->q_stride};
    g->b->ops.rope_store(g->stream, &a);
}

static gpu_sparse sparse_of(const gpu_exec *g, const plan_blocks *b) {
    return (gpu_sparse){.size = b->size,
                        .top = b->top,
                        .n_heads = g->model->hp.n_index_choice,
                        .n_list = g->model->hp.index_sums ? b->top : 0,
                        .offset = g->scores_at,
                        .whole = b->whole};
}

void gpu_exec_index_store(gpu_exec *g, const plan_step *s, const args_rope *args,
                          const gpu_exec_step *w, const gpu_exec_shape *p) {
    gpu_rope_store a = rope_of(g, s, args, w, p);
    a.q = g->buf[BUF_INDEX_Q];
    a.k = g->buf[BUF_INDEX_K];
    a.ldq = g->plan->gpu_width[BUF_INDEX_Q];
    a.ldk = g->plan->gpu_width[BUF_INDEX_K];
    a.n_head = g->model->hp.n_index_head;
    a.rot_at = g->model->hp.index_rot_at;
    g->b->ops.rope_store(g->stream, &a);
}

void gpu_exec_compress(gpu_exec *g, const args_compress *args, const gpu_exec_step *w,
                       const gpu_exec_shape *p) {
    const model_hparams *hp = &g->model->hp;
    const bool global = args->set == ROPE_SET_GLOBAL;
    for (int kind = 0; kind < 2; kind++) {
        const struct plan_compressed *of = &args->of[kind];
        if (of->dim == 0) continue;
        const gpu_compress a = {.x = g->buf[BUF_COMPRESS] + of->at,
                                .ldx = g->plan->gpu_width[BUF_COMPRESS],
                                .positions = w->positions[kind],
                                .norm = w->key_norm[kind],
                                .inv_freq = gpu_exec_frequencies(g, args->set),
                                .inv_freq_long = global ? gpu_exec_frequencies(g, ROPE_SETS) : NULL,
                                .long_from = hp->rope_orig_ctx,
                                .scale = model_scales_rope(g->model, args->set) ? g->angle_scale
                                                                                : 1,
                                .eps = hp->norm_eps,
                                .ratio = args->ratio,
                                .n_parts = args->n_parts,
                                .dim = (int32_t)of->dim,
                                .n_rot = hp->n_rot,
                                .rot_at = of->rot_at,
                                .n_cols = p->n_cols,
                                .neox = args->neox,
                                .at = w->state_at + of->state - args->of[0].state,
                                .cols = gpu_exec_columns(g),
                                .kv = kind == 0 ? w->compressed : w->kv};
        g->b->ops.compress(g->stream, &a);
    }
}

void gpu_exec_find_blocks(gpu_exec *g, const plan_blocks *blocks, const gpu_exec_step *w,
                          const gpu_exec_shape *p) {
    const bool sums = g->model->hp.index_sums;
    const gpu_find_blocks a = {
        .q = g->buf[BUF_INDEX_Q],
        .ldq = g->plan->gpu_width[BUF_INDEX_Q],
        .sums = sums,
        .ratio = g->model->hp.index_ratio,
        .weights = sums && g->model->hp.index_ratio == 0 ? g->buf[BUF_INDEX_W] : NULL,
        .ldw = g->plan->gpu_width[BUF_INDEX_W],
        .n_queries = g->model->hp.n_index_head,
        .cols = gpu_exec_columns(g),
        .kv = w->kv,
        .blocks = sparse_of(g, blocks),
        .local = blocks->local,
        .n_cols = p->n_cols,
        .n_parts = p->n_splits};
    g->b->ops.find_blocks(g->stream, &a);
}

int gpu_exec_attention_splits(const args_attention *a, int n_splits) {
    const int64_t window = a->window;
    int most = window > 0 && a->ratio == 0 ? gpu_attention_splits(window) : GPU_ATTN_SPLITS;
    if (a->blocks.size > 0 && !a->latent) return 1;
    if (a->blocks.size > 0) most = gpu_attention_splits(a->blocks.top + window);
    return n_splits < most ? n_splits : most;
}

void gpu_exec_attention(gpu_exec *g, const plan_step *s, const args_attention *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p) {
    const model_hparams *hp = &g->model->hp;
    const model_tensor *t = g->model->layers[s->layer].t;
    const quant_type type = t[t[ROLE_ATTN_Q].data ? ROLE_ATTN_Q : ROLE_ATTN_Q_A].type;
    bool quantized = quant_find((uint32_t)type)->is_quantized;
    const bool sparse = args->blocks.size > 0;
    const int n_splits = gpu_exec_attention_splits(args, p->n_splits);
    int64_t head_dim = g->model->layers[s->layer].hp.head_dim;
    bool inside = args->q_stride > head_dim; /* gates lie behind the heads of Q */
    const plan_buffer gates = inside ? BUF_Q : BUF_ATTN_GATE;
    const bool turns = !args->latent && !sparse && p->form == FORM_ONE;
    const plan_step *before = &s[-1]; /* OP_ROPE_STORE, if turns */
    const gpu_attention a = {.q = g->buf[s->in],
                             .ldq = g->plan->gpu_width[s->in],
                             .ldo = g->plan->gpu_width[BUF_ATTN],
                             .q_stride = args->q_stride,
                             .gate_stride = args->head_gates ? 1 : args->q_stride,
                             .head_gates = args->head_gates,
                             .gate_softplus = args->gate_softplus,
                             .cols = gpu_exec_columns(g),
                             .kv = w->kv,
                             .n_head = g->model->layers[s->layer].hp.n_head,
                             .n_cols = p->n_cols,
                             .n_splits = n_splits,
                             .precise = g->precise && !quantized,
                             .window = args->window,
                             .chunks = args->chunks,
                             .scale = args->scale,
                             .softcap = args->softcap,
                             .temperature = args->temperature ? hp->attn_temperature : 0,
                             .temperature_length = hp->attn_temperature_length,
                             .temperature_offset = hp->attn_temperature_offset,
                             .sinks = w->sinks,
                             .slopes = w->slopes,
                             .gate = args->gated ? g->buf[gates] + (inside ? head_dim : 0) : NULL,
                             .ldg = g->plan->gpu_width[gates],
                             .partial = n_splits > 1 ? g->attn_partial : NULL,
                             .arrived = g->parts_in + 1,
                             .out = g->buf[BUF_ATTN],
                             .q8 = gpu_exec_q8(g, s, p->form),
                             .turns = turns,
                             .rope = turns ? rope_of(g, before, STEP_ARGS(before, rope), w - 1, p)
                                           : (gpu_rope_store){0},
                             .sparse = sparse_of(g, &args->blocks),
                             .ratio = args->ratio,
                             .compressed = w->compressed.k_offset};
    g->b->ops.attention(g->stream, &a);
}

/* ---- compressed attention -------------------------------------------------------------------- */

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

/* ---- exchange -------------------------------------------------------------------------------- */

static uint64_t *flag_of(const gpu_exec *g, plan_side sender, int exchange) {
    return (uint64_t *)((uint8_t *)g->flags[sender].device + (size_t)exchange * GPU_FLAG_BYTES);
}

/* A primary that has all chosen experts neither sends nor waits for an answer; a secondary device
 * that has none of them sends no answer. */
static gpu_idle idle_of(const gpu_exec *g, const plan_step *s, const plan_experts *e,
                        const gpu_exec_shape *p) {
    if (!e || p->form == FORM_MANY) return (gpu_idle){0};
    if (e->primary == SIDE_CPU && s->op == OP_RECEIVE) return (gpu_idle){0};
    return (gpu_idle){.choices = g->bits,
                      .n_used = e->n_used,
                      .n_own = (int32_t)e->hot,
                      .others = e->primary == SIDE_CPU};
}

void gpu_exec_send(gpu_exec *g, const plan_step *s, const args_message *args,
                   const gpu_exec_shape *p) {
    bool direct = args->peer >= 0;
    const gpu_publish a = {.x = g->buf[s->in],
                           .ldx = g->plan->gpu_width[s->in],
                           .n = plan_message_width(g->plan, s->in),
                           .n_cols = p->n_cols,
                           .bits = args->bits ? g->bits : NULL,
                           .n_words = args->bits ? gpu_exec_words(g, s) : 0,
                           .host_x = direct ? gpu_exec_box_x(&g->outbox)
                                            : g->message_x[SIDE_GPU].device,
                           .host_bits = args->bits ? g->message_bits[SIDE_GPU].device : NULL,
                           .flag = direct ? g->outbox.device : flag_of(g, SIDE_GPU, args->exchange),
                           .idle = idle_of(g, s, args->experts, p),
                           .epoch = &g->header->epoch};
    g->b->ops.publish(g->stream, &a);
}

bool gpu_exec_sends(const gpu_exec *g, const plan_step *s, const gpu_exec_shape *p, gpu_send *out) {
    if (s->sends == 0 || p->form == FORM_MANY) return false;
    const plan_step *send = s + s->sends;
    const args_message *args = STEP_ARGS(send, message);
    const bool q8 = plan_message_is_q8(g->plan, args, p->n_cols), norm = s->op == OP_NORM;
    void *x = g->message_x[SIDE_GPU].device;
    *out = (gpu_send){.host_x = norm && !q8 ? x : NULL,
                      .host_q8 = norm && q8 ? x : NULL,
                      .host_bits = norm ? NULL : g->message_bits[SIDE_GPU].device,
                      .flag = norm == args->bits ? NULL : flag_of(g, SIDE_GPU, args->exchange),
                      .epoch = &g->header->epoch,
                      .arrived = g->parts_in,
                      .idle = idle_of(g, send, args->experts, p)};
    return true;
}

void gpu_exec_receive(gpu_exec *g, const plan_step *s, const args_message *args,
                      const gpu_exec_step *w, const gpu_exec_shape *p) {
    bool direct = args->peer >= 0;
    gpu_norm norm;
    gpu_send send;
    gpu_receive a = {.host_x = direct ? gpu_exec_box_x(&g->inbox)
                                      : gpu_exec_outbox(g, s->out)->device,
                     .n = plan_message_width(g->plan, s->out),
                     .ldy = g->plan->gpu_width[s->out],
                     .n_cols = p->n_cols,
                     .set = !args->add_to_out && !(s->cold && g->streaming),
                     .host_bits = args->bits ? g->message_bits[SIDE_CPU].device : NULL,
                     .bits = args->bits ? g->bits : NULL,
                     .n_words = args->bits ? gpu_exec_words(g, s) : 0,
                     .flag = direct ? g->inbox.device : flag_of(g, SIDE_CPU, args->exchange),
                     .idle = idle_of(g, s, args->experts, p),
                     .epoch = &g->header->epoch,
                     .y = g->buf[s->out],
                     .q8 = gpu_exec_q8(g, s, p->form),
                     .clear = args->clear_x ? g->buf[BUF_X] : NULL,
                     .ld_clear = g->plan->gpu_width[BUF_X]};
    if (args->norms && p->form != FORM_MANY) a.norm = next_norm(g, s, w, p, &norm, &send);
    g->b->ops.receive(g->stream, &a);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void gpu_exec_add(gpu_exec *g, const plan_step *s, const args_add *args, const gpu_exec_step *w,
                  const gpu_exec_shape *p) {
    int64_t n_embd = g->model->hp.n_embd;
    bool others = s->out == BUF_STREAMS; /* all streams except the first */
    if (others) {
        const gpu_norm norm = norm_of(g, s, &args->norm, w, g->buf[s->in], s->in, p->n_cols);
        assert(args->scale == 1);
        g->b->ops.norm(g->stream, &norm);
    } else if (args->norm.kind != NORM_NONE || args->scale != 1 || args->x_scale != 1) {
        gpu_norm norm = norm_of(g, s, &args->norm, w, g->buf[s->in], s->out, p->n_cols);
        norm.add = true;
        norm.scale = args->scale;
        norm.y_scale = args->x_scale;
        g->b->ops.norm(g->stream, &norm);
        return;
    }
    const gpu_add a = {.x = g->buf[s->in],
                       .ldx = g->plan->gpu_width[s->in],
                       .ldy = g->plan->gpu_width[s->out],
                       .n = n_embd,
                       .n_cols = p->n_cols,
                       .n_more = others ? g->model->hp.n_stream - 2 : 0,
                       .step = n_embd,
                       .y = g->buf[s->out] + (others ? n_embd : 0)};
    g->b->ops.add(g->stream, &a);
}

void gpu_exec_softcap(gpu_exec *g, const plan_step *s, const args_softcap *args,
                      const gpu_exec_shape *p) {
    const gpu_softcap a = {.ldy = g->plan->gpu_width[s->in],
                           .n = g->model->hp.n_vocab,
                           .n_cols = p->n_cols,
                           .cap = args->cap,
                           .y = g->buf[s->in]};
    g->b->ops.softcap(g->stream, &a);
}

void gpu_exec_enqueue_start(gpu_exec *g, const gpu_exec_shape *p) {
    g->b->upload(g->stream, g->header, g->header_host.host, gpu_exec_header_bytes(p->n_cols));
    g->b->fill(g->stream, g->parts_in, 0,
               (gpu_exec_counts(g) + gpu_exec_arrivals(g)) * sizeof *g->count);
    for (int set = 0; set < ROPE_SETS && g->kv_per_position > 0; set++) {
        bool global = set == ROPE_SET_GLOBAL;
        bool scaled = model_scales_rope(g->model, (rope_set)set);
        const gpu_rope_angles a = {.cols = gpu_exec_columns(g),
                                   .inv_freq = gpu_exec_frequencies(g, set),
                                   .inv_freq_long = global ? gpu_exec_frequencies(g, ROPE_SETS)
                                                           : NULL,
                                   .long_from = g->model->hp.rope_orig_ctx,
                                   .scale = scaled ? g->angle_scale : 1,
                                   .n_cols = p->n_cols,
                                   .n_half = g->model->hp.n_rots[set] / 2,
                                   .cs = g->angles[set]};
        if (a.cs) g->b->ops.rope_angles(g->stream, &a);
    }
}

void gpu_exec_enqueue_step(gpu_exec *g, int index, const gpu_exec_shape *p) {
    const plan_step *s = &g->plan->gpu_steps[index];
    const gpu_exec_step *w = &g->steps[index];
    const plan_kernel kernel = s->kernel[p->form];
    if (kernel == KERNEL_SKIP) return;
    switch (s->op) {
/* clang-format off */
#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu)                                   \
    STEP_CASE(name, args, switch (kernel) { gpu default: assert(!"the kernel has no function"); })
#define ON_GPU(one, few, many, ways, upload, launches) ways
#define NOT_ON_GPU
#define NOTHING
#define BY(its_kernel, call) case KERNEL_##its_kernel: call; break;
#define BY_BOTH(call) case KERNEL_VECTOR: case KERNEL_TILED: call; break;
/* clang-format on */
#include "ops.def"
    case OP_COUNT:
        break;
    }
}

int gpu_exec_head_at(const gpu_exec *g) {
    int index = g->plan->n_gpu_steps;
    do index--;
    while (g->plan->gpu_steps[index].op != OP_HEAD_NORM);
    return index;
}

/* Few rows at a time, whatever the size of the ubatch. */
static gpu_exec_shape head_shape(int first, int n) {
    return (gpu_exec_shape){.n_cols = n, .form = FORM_FEW, .first_out = first, .n_out = n};
}

void gpu_exec_enqueue_results(gpu_exec *g, int first, int n) {
    const gpu_exec_shape shape = head_shape(first, n);
    for (int i = n > 0 ? gpu_exec_head_at(g) : g->plan->n_gpu_steps; i < g->plan->n_gpu_steps;
         i++) {
        gpu_exec_enqueue_step(g, i, &shape);
        gpu_exec_mark_step(g, i, false);
    }
    g->b->download(g->stream, g->results_host.host, g->count,
                   gpu_exec_counts_bytes(g) +
                       (size_t)(n * g->plan->gpu_width[BUF_LOGITS]) * sizeof(float));
}

void gpu_exec_enqueue_hidden(gpu_exec *g, int first, int n) {
    const gpu_exec_shape shape = head_shape(first, n);
    gpu_exec_enqueue_step(g, gpu_exec_head_at(g), &shape);
}
