/* plan.c: from an architecture row and bound weights to steps. A layer is its attention half (norm,
 * QKV, rotation and cache, attention, output; or a recurrent mixer) and its FFN half (norm, gate
 * and up, down); both end by adding to the residual stream. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu_ops.h"
#include "mem.h"
#include "plan_build.h"

plan_step *plan_add_step(plan *p, plan_side side, plan_op op, int layer, plan_buffer in) {
    plan_step *s = side == SIDE_CPU ? &p->steps[p->n_steps++] : &p->gpu_steps[p->n_gpu_steps++];
    *s = (plan_step){
        .op = op, .layer = layer, .device = plan_device_of(p, layer), .in = in, .peer = -1};
    plan_set_default_kernel(s, side);
    return s;
}

plan_matrix plan_make_matrix(const plan *p, int layer, tensor_role role, tensor_role bias,
                             plan_buffer out) {
    const model_tensor *tensors = layer < 0 ? p->model->t : p->model->layers[layer].t;
    const arch_tensor *row = arch_tensor_of(p->model->arch, role);
    const model_tensor *t = &tensors[role];
    return (plan_matrix){
        .w = {t->data, t->row_bytes, t->n_in, t->n_out, t->type},
        .row_size = t->n_bytes / (size_t)t->n_out,
        .expert_bytes = t->expert_bytes,
        .bias = bias == ROLE_COUNT ? NULL : tensors[bias].data,
        .scale = t->scale,
        .scale_last = row && row->flags & TENSOR_SCALE_LAST, /* parts of fused ones have no row */
        .out = out,
        .role = role,
    };
}

plan_matrix plan_take_rows(const plan_matrix *m, int64_t first, int64_t n) {
    plan_matrix part = *m;
    part.w.data = (const uint8_t *)m->w.data + (size_t)first * m->w.row_bytes;
    part.w.n_out = n;
    if (m->bias && m->role != ROLE_FFN_DOWN_T) part.bias = m->bias + first;
    return part;
}

plan_matrix plan_take_columns(const plan_matrix *m, int64_t first, int64_t n) {
    const quant_traits *traits = quant_find(m->w.type);
    size_t block_bytes = (size_t)traits->block_bytes;
    plan_matrix part = *m;
    part.w.data = (const uint8_t *)m->w.data + (size_t)(first / traits->block_elems) * block_bytes;
    part.w.n_in = n;
    part.row_size = (size_t)(n / traits->block_elems) * block_bytes;
    return part;
}

void plan_set_matrix(plan_step *s, const plan_matrix *m) {
    s->matrix[s->n_matrices++] = *m;
    s->weight_bytes += m->row_size * (uint64_t)m->w.n_out;
}

void plan_add_matrix(const plan *p, plan_step *s, tensor_role role, tensor_role bias,
                     plan_buffer out) {
    const plan_matrix m = plan_make_matrix(p, s->layer, role, bias, out);
    plan_set_matrix(s, &m);
}

plan_message plan_add_message(plan *p, plan_side from, int layer, plan_buffer in, plan_buffer out) {
    plan_side to = from == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    plan_message m = {.send = plan_add_step(p, from, OP_SEND, layer, in),
                      .receive = plan_add_step(p, to, OP_RECEIVE, layer, out)};
    m.send->exchange = m.receive->exchange = p->n_exchanges[from]++;
    m.receive->out = out;
    return m;
}

plan_message plan_add_answer(plan *p, plan_side from, int layer, bool first) {
    plan_side to = from == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    bool late = plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    plan_message m = plan_add_message(p, from, layer, late ? plan_late_result(from) : BUF_X,
                                      late ? plan_late_result(to) : BUF_X);
    m.receive->answer = true;
    m.receive->add_to_out = !late || !first;
    return m;
}

static void set_norm(const plan *p, plan_step *s, const model_tensor *weight,
                     const model_tensor *bias) {
    s->norm = weight->data ? p->model->hp.norm : NORM_NONE;
    s->norm_width = p->model->hp.n_embd;
    s->norm_weight = weight->data;
    s->norm_bias = bias ? bias->data : NULL;
}

plan_step *plan_add_norm(plan *p, plan_side side, int layer, tensor_role weight, tensor_role bias) {
    const model_tensor *t = p->model->layers[layer].t;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_X);
    set_norm(p, s, &t[weight], &t[bias]);
    s->out = BUF_Y;
    return s;
}

bool plan_adds_late(const plan *p, int layer, tensor_role post_norm) {
    const model_tensor *t = p->model->layers[layer].t;
    bool beside = post_norm == ROLE_FFN_POST_NORM && t[ROLE_FFN_POST_NORM_1].data;
    return p->model->hp.residual_scale != 1 || t[post_norm].data || beside;
}

plan_step *plan_add_addition(plan *p, plan_side side, int layer, plan_buffer in,
                             tensor_role post_norm) {
    static const model_tensor none = {0};
    plan_step *s = plan_add_step(p, side, OP_ADD, layer, in);
    bool normed = post_norm != ROLE_COUNT;
    set_norm(p, s, normed ? &p->model->layers[layer].t[post_norm] : &none, NULL);
    s->add_scale = p->model->hp.residual_scale;
    s->x_scale = 1;
    return s;
}

/* A norm over all heads of Q or K is a step of its own; those of single heads go with the rotation.
 */
static void add_wide_norm(plan *p, plan_side side, int layer, plan_buffer b, tensor_role role) {
    const model_tensor *t = &p->model->layers[layer].t[role];
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, b);
    s->norm = p->model->arch->qk_norm;
    s->norm_width = t->n_in;
    s->norm_weight = t->data;
    s->out = b;
}

/* Floats from a head of Q to the next one, with the gate between them. */
static int64_t q_stride(const plan *p, int layer) {
    return (p->model->arch->gated_queries ? 2 : 1) * (int64_t)p->model->layers[layer].hp.head_dim;
}

static void add_rotation(plan *p, plan_side side, int layer) {
    const model_layer *l = &p->model->layers[layer];
    const model_tensor *q = &l->t[ROLE_ATTN_Q_NORM], *k = &l->t[ROLE_ATTN_K_NORM];
    bool wide = q->data && q->n_in > l->hp.head_dim;
    if (wide) add_wide_norm(p, side, layer, BUF_Q, ROLE_ATTN_Q_NORM);
    if (wide) add_wide_norm(p, side, layer, BUF_K, ROLE_ATTN_K_NORM);
    plan_step *s = plan_add_step(p, side, OP_ROPE_STORE, layer, BUF_Q);
    s->rope = l->hp.rope;
    s->q_stride = q_stride(p, layer);
    s->q_norm = wide ? NULL : q->data;
    s->k_norm = wide ? NULL : k->data;
    s->norm = p->model->arch->qk_norm;
    s->norm_stride = q->n_out > 1 ? q->n_in : 0;
    s->norm_bare = p->model->arch->has & ARCH_BARE_QK_NORM && s->rope != ROPE_SET_NONE &&
                   p->model->hp.n_expert != 128;
    s->norm_late = p->model->arch->has & ARCH_QK_NORM_LATE || s->norm_bare;
    s->value_norm = p->model->arch->has & ARCH_VALUE_NORM;
    if (l->t[ROLE_INDEX_Q].data) plan_set_kernel(s, KERNEL_PLAIN, KERNEL_PLAIN, KERNEL_PLAIN);
}

static void add_projections(const plan *p, plan_step *s) {
    static const tensor_role roles[][2] = {{ROLE_ATTN_Q, ROLE_ATTN_Q_BIAS},
                                           {ROLE_ATTN_K, ROLE_ATTN_K_BIAS},
                                           {ROLE_ATTN_V, ROLE_ATTN_V_BIAS}};
    static const plan_buffer out[] = {BUF_Q, BUF_K, BUF_V};
    const model_layer *l = &p->model->layers[s->layer];
    bool bare = p->model->arch->has & ARCH_QKV_BARE;
    int n = model_kv_heads(&l->hp, s->layer) > 0 ? 3 : 1;
    for (int i = 0; i < n; i++) {
        plan_add_matrix(p, s, roles[i][0], bare ? ROLE_COUNT : roles[i][1], out[i]);
        if (bare) s->matrix[i].scale = 1;
    }
    if (n == 3) s->matrix[2].scale *= p->model->hp.value_scale;
    if (l->t[ROLE_ATTN_GATE].data) plan_add_matrix(p, s, ROLE_ATTN_GATE, ROLE_COUNT, BUF_ATTN_GATE);
    if (l->t[ROLE_LAUREL_A].data) plan_add_matrix(p, s, ROLE_LAUREL_A, ROLE_COUNT, BUF_GATE);
}

/* Q, K and V share one quantized input and one step. */
static void add_attention_in(plan *p, int layer) {
    if (p->model->hp.n_latent > 0) return; /* their products follow each other */
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_MATMUL, layer, BUF_Y);
    add_projections(p, s);
    if (p->model->layers[layer].t[ROLE_INDEX_Q].data) plan_add_index(p, layer);
}

/* From Q, K and V to the addition. Where the halves run in parallel, the residual stays as it was
 * for the other half, and the result waits in a buffer of its own. */
static void add_attention(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    bool parallel = model_layer_is_parallel(p->model, layer);
    bool late = parallel || plan_adds_late(p, layer, ROLE_ATTN_POST_NORM);
    bool latent = p->model->hp.n_latent > 0, branch = l->t[ROLE_LAUREL_A].data;
    if (branch) plan_add_branch(p, layer);
    if (latent)
        plan_add_latents(p, layer);
    else
        add_rotation(p, side, layer);

    plan_step *s = plan_add_step(p, side, OP_ATTENTION, layer, latent ? BUF_LATENT_Q : BUF_Q);
    s->latent = latent;
    s->window = l->hp.window;
    s->scale = p->model->hp.attn_scale;
    s->softcap = p->model->hp.attn_softcap;
    s->temperature = p->model->hp.attn_temperature != 0 &&
                     (!p->model->arch->temperature_length || l->hp.rope == ROPE_SET_NONE);
    s->sinks = l->t[ROLE_ATTN_SINKS].data;
    s->chunks = p->model->arch->has & ARCH_CHUNKS;
    if (l->t[ROLE_INDEX_Q].data) s->blocks = plan_blocks_of(&p->model->hp);
    s->gated = side == SIDE_GPU && (l->t[ROLE_ATTN_GATE].data || p->model->arch->gated_queries);
    s->q_stride = q_stride(p, layer);
    if (p->model->arch->gated_queries && !s->gated) {
        s = plan_add_step(p, side, OP_GATE_HEADS, layer, BUF_ATTN);
        s->q_stride = q_stride(p, layer);
    }

    plan_buffer result = latent ? BUF_V : BUF_ATTN;
    if (latent) plan_add_values(p, layer);
    if (side == SIDE_CPU || latent) /* else attention does */
        plan_add_step(p, side, OP_QUANTIZE, layer, result)->gated = l->t[ROLE_ATTN_GATE].data;
    s = plan_add_step(p, side, OP_MATMUL, layer, result);
    plan_add_matrix(p, s, ROLE_ATTN_OUT,
                    p->model->arch->has & ARCH_OUT_UNBIASED ? ROLE_COUNT : ROLE_ATTN_OUT_BIAS,
                    parallel ? BUF_ATTN_OUT : BUF_Y);
    s->add_to_x = !late;
    if (!late || parallel) return;
    s = plan_add_addition(p, side, layer, BUF_Y, ROLE_ATTN_POST_NORM);
    if (branch) s->x_scale = sqrtf(0.5f);
}

/* What mixes tokens. Mixers of one layer read the same normed input: their first products come
 * before either adds to X. */
static void add_mixers(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    bool attends = l->hp.mixers & MIXER_ATTENTION, recurs = l->hp.mixers & MIXER_RECURRENT;
    if (l->t[ROLE_ROUTER].data && p->model->arch->has & ARCH_ROUTER_EARLY)
        plan_add_router(p, layer, BUF_X);
    if (l->t[ROLE_ATTN_NORM_2].data)
        plan_add_norm(p, side, layer, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS);
    else
        plan_add_norm(p, side, layer, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    if (recurs) plan_add_recurrent_in(p, layer);
    if (attends) add_attention_in(p, layer);
    if (recurs) plan_add_recurrent(p, layer);
    if (attends) add_attention(p, layer);
}

static void add_head(plan *p) {
    const model *m = p->model;
    p->n_layer_steps = p->n_steps;
    plan_step *s = plan_add_step(p, p->head, OP_HEAD_NORM, -1, BUF_X);
    set_norm(p, s, &m->t[ROLE_OUTPUT_NORM], &m->t[ROLE_OUTPUT_NORM_BIAS]);
    s = plan_add_step(p, p->head, OP_MATMUL, -1, BUF_Y);
    plan_add_matrix(p, s, ROLE_OUTPUT, ROLE_OUTPUT_BIAS, BUF_LOGITS);
    s->matrix[0].scale *= m->hp.logit_scale;
    p->head_bytes = s->weight_bytes;
    if (m->hp.logit_softcap == 0) return;
    s = plan_add_step(p, p->head, OP_SOFTCAP, -1, BUF_LOGITS);
    s->softcap = m->hp.logit_softcap;
}

/* The stream is scaled by the addition that ends the layer: architectures with such scales have
 * post-norms. */
static void scale_layer(plan *p, int layer) {
    const float *scale = p->model->layers[layer].t[ROLE_LAYER_SCALE].data;
    if (!scale) return;
    bool gpu = p->splits[layer].primary == SIDE_GPU;
    plan_step *s = gpu ? &p->gpu_steps[p->n_gpu_steps - 1] : &p->steps[p->n_steps - 1];
    assert(s->op == OP_ADD && s->layer == layer);
    s->x_scale = *scale;
}

/* Where the residual stream is. */
typedef struct plan_place {
    plan_side side;
    int device; /* of SIDE_GPU */
} plan_place;

/* A GPU's first layer: it is sent the embeddings of all. */
static bool is_first_of(const plan *p, int device, int layer) {
    for (int i = 0; i < layer; i++)
        if (p->splits[i].primary == SIDE_GPU && p->splits[i].device == device) return false;
    return layer >= 0;
}

static void move_to_peer(plan *p, int from, int to, int layer) {
    plan_step *send = plan_add_step(p, SIDE_GPU, OP_SEND, layer, plan_residual(p));
    plan_step *receive = plan_add_step(p, SIDE_GPU, OP_RECEIVE, layer, plan_residual(p));
    send->exchange = receive->exchange = -1;
    send->device = receive->peer = from;
    send->peer = receive->device = to;
    receive->out = plan_residual(p);
}

/* The stream moves to where a layer, or the head (-1), wants it. From a peer it comes before what
 * the CPU sends, whose message begins the next segment of a ubatch of many tokens. */
static plan_place move_stream(plan *p, plan_place at, plan_side to, int layer) {
    int device = plan_device_of(p, layer);
    const plan_buffer x = plan_residual(p);
    bool embeddings = p->model->hp.n_embd_layer > 0 && to == SIDE_GPU;
    if (at.side == SIDE_GPU && to == SIDE_CPU) {
        plan_message m = plan_add_message(p, SIDE_GPU, layer, x, x);
        m.send->device = m.receive->device = at.device;
    } else if (at.side == SIDE_GPU && at.device != device) {
        move_to_peer(p, at.device, device, layer);
    }
    if (embeddings && is_first_of(p, device, layer))
        plan_add_message(p, SIDE_CPU, layer, BUF_LAYER_EMBD, BUF_LAYER_EMBD);
    if (at.side == SIDE_CPU && to == SIDE_GPU) plan_add_message(p, at.side, layer, x, x);
    return (plan_place){to, device};
}

/* The residual stream starts on the CPU, which has the table of embeddings, and follows the
 * layers' primary devices. */
static void add_all(plan *p, const plan_options *options) {
    plan_place at = {.side = SIDE_CPU};
    plan_add_step(p, at.side, OP_EMBED, -1, BUF_X);
    if (p->model->hp.n_embd_layer > 0) plan_add_layer_embeddings(p);
    if (plan_has_streams(p)) plan_add_spread(p);
    for (int layer = 0; layer < p->model->hp.n_layer; layer++) {
        at = move_stream(p, at, p->splits[layer].primary, layer);
        const model_layer *l = &p->model->layers[layer];
        if (plan_has_streams(p)) plan_add_prediction(p, layer);
        if (options->prefetch) plan_add_prefetch(p, layer, options);
        if (l->hp.mixers) add_mixers(p, layer);
        if (l->t[ROLE_ROUTER].data)
            plan_add_experts(p, layer, options);
        else if (l->hp.ffn)
            plan_add_ffn(p, layer, options);
        if (model_layer_is_parallel(p->model, layer))
            plan_add_addition(p, at.side, layer, BUF_ATTN_OUT, ROLE_ATTN_POST_NORM);
        if (plan_has_streams(p)) plan_add_correction(p, layer);
        if (p->model->hp.n_embd_layer > 0) plan_add_layer_embedding(p, layer);
        scale_layer(p, layer);
    }
    move_stream(p, at, p->head, -1);
    if (plan_has_streams(p)) plan_add_merge(p);
    add_head(p);
}

static pi_status fail_type(const plan *p, const plan_matrix *pm, int layer, pi_error *err) {
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no kernel: %s: type %s of %s in layer %d; quantize the model to another type",
                     gguf_path(p->model->file), quant_find(pm->w.type)->name,
                     tensor_role_name(pm->role), layer);
}

/* The form in which products with a matrix want their input; -1: there is no such product. kernels
 * NULL: the GPU's, which have two forms, floats and int8, whose names are the CPU's. */
static int form_of(const cpu_kernels *kernels, quant_type type) {
    if (!kernels)
        return !gpu_type_supported(type) ? -1 : gpu_type_wants_q8(type) ? CPU_ACT_Q8 : CPU_ACT_F32;
    const cpu_mat_kernels *mk = &kernels->mat[type];
    return mk->matvec ? (int)mk->act : -1;
}

static int form_of_rows(const cpu_kernels *kernels, quant_type type) {
    if (!kernels) return gpu_type_supported(type) ? CPU_ACT_F32 : -1;
    const cpu_mat_t_kernels *mk = &kernels->mat_t[type];
    return mk->axpy_rows ? (int)mk->act : -1;
}

/* Whether a step makes a predictor's scores. On the GPU only OP_SELECT does. */
static bool scores(const plan_step *s, plan_side side) {
    return ((s->op == OP_FFN_SPARSE || s->op == OP_PREFETCH) && side == SIDE_CPU) ||
           (s->op == OP_SELECT && !s->bits);
}

bool plan_quantizes(const plan_step *s, plan_side side) {
    if (s->op == OP_NORM || s->op == OP_QUANTIZE || s->op == OP_HEAD_NORM) return true;
    if (side == SIDE_CPU) return false;
    return s->op == OP_ATTENTION || (s->op == OP_RECEIVE && s->out == BUF_Y) ||
           (s->op != OP_MATMUL && s->slot == PLAN_SLOT_HIDDEN);
}

/* `source` fills its slot with the input of this product too. */
static void need_act(plan_slot *slots, plan_step *source, int form, int64_t width) {
    plan_slot *slot = &slots[source->slot];
    source->act_kinds |= 1u << form;
    source->act_width = width;
    slot->kinds |= 1u << form;
    if (width > slot->width) slot->width = width;
}

/* Every product's input is quantized by the nearest earlier step that writes the slot it reads. */
static pi_status resolve_acts(plan *p, plan_side side, const cpu_kernels *kernels, pi_error *err) {
    plan_step *steps = side == SIDE_CPU ? p->steps : p->gpu_steps;
    int n_steps = side == SIDE_CPU ? p->n_steps : p->n_gpu_steps;
    plan_slot *slots = p->slots[side];
    plan_step *source[PLAN_SLOTS] = {NULL};
    for (int i = 0; i < n_steps; i++) {
        plan_step *s = &steps[i];
        if (plan_quantizes(s, side)) {
            source[s->slot] = s;
            for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
                if (s->act_kinds & (1u << kind)) need_act(slots, s, kind, s->act_width);
        }
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            int form = form_of(kernels, pm->w.type);
            if (form < 0) return fail_type(p, pm, s->layer, err);
            if (s->op == OP_HEADS) continue; /* quantizes its input itself */
            need_act(slots, source[plan_input_slot(s)], form, pm->w.n_in);
        }
        if (scores(s, side) && s->ffn->fc2.w.data) {
            const plan_matrix *pm = &s->ffn->fc2;
            int form = form_of(kernels, pm->w.type);
            if (form < 0) return fail_type(p, pm, s->layer, err);
            need_act(slots, source[PLAN_SLOT_PREDICTOR], form, pm->w.n_in);
        }
        if (s->op == OP_FFN_DOWN) {
            const plan_matrix *pm = &s->ffn->down;
            int form = form_of_rows(kernels, pm->w.type);
            if (form < 0) return fail_type(p, pm, s->layer, err);
            if (side == SIDE_CPU) need_act(slots, source[PLAN_SLOT_MAIN], form, pm->w.n_out);
        }
    }
    return PI_OK;
}

static bool is_ffn_weight(tensor_role role) {
    return role == ROLE_FFN_GATE || role == ROLE_FFN_UP || role == ROLE_FFN_DOWN;
}

/* An odd number of cache lines: what products write, the same elements of neighbouring pairs, is
 * not all in one set of the first cache. */
static int64_t width_of_pairs(int64_t n) {
    enum { LINE = 64 / sizeof(float) };
    return ((n + LINE - 1) / LINE | 1) * LINE;
}

/* Experts' matrices have fixed places in their buffers, and quantized inputs of their own. */
static pi_status set_experts(plan *p, const cpu_kernels *kernels, pi_error *err) {
    for (int layer = 0; layer < p->model->hp.n_layer; layer++) {
        plan_experts *e = &p->experts[layer];
        const plan_matrix *all[] = {&e->gate, &e->up, &e->down};
        if (!e->n_expert) continue;
        for (int k = 0; k < 3; k++) {
            if (!all[k]->w.data) continue;
            int form = k == 2 && e->down_rows ? form_of_rows(kernels, all[k]->w.type)
                                              : form_of(kernels, all[k]->w.type);
            if (form < 0) return fail_type(p, all[k], layer, err);
            *(k < 2 ? &e->in_kinds : &e->down_kinds) |= 1u << form;
            /* single tokens read what the norm has quantized */
            if (k < 2 && e->norm_step) e->norm_step->act_kinds |= 1u << form;
        }
        if (p->n_expert < e->n_expert) p->n_expert = e->n_expert;
        if (p->n_expert_used < e->n_used) p->n_expert_used = e->n_used;
        p->width[BUF_EXPERT_IN] = p->width[BUF_EXPERT_OUT] = width_of_pairs(p->model->hp.n_embd);
        if (p->width[BUF_EXPERT_GATE] < e->n_ff)
            p->width[BUF_EXPERT_GATE] = width_of_pairs(e->n_ff);
        p->width[BUF_EXPERT_UP] = p->width[BUF_EXPERT_GATE];
    }
    return PI_OK;
}

static void widen(int64_t *width, plan_buffer b, int64_t n) {
    if (n > width[b]) width[b] = n;
}

/* Elements of a recurrent mixer's result. */
static int64_t recurrent_width(const plan *p, const plan_recurrent *r) {
    return r->mixer == MIXER_CONV ? p->model->hp.n_embd : r->n_head * r->head_dim;
}

static void set_widths(plan *p, plan_side side) {
    const plan_step *steps = side == SIDE_CPU ? p->steps : p->gpu_steps;
    int n_steps = side == SIDE_CPU ? p->n_steps : p->n_gpu_steps;
    int64_t *width = side == SIDE_CPU ? p->width : p->gpu_width;
    width[BUF_X] = width[BUF_Y] = p->model->hp.n_embd;
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        for (int k = 0; k < s->n_matrices; k++)
            widen(width, s->matrix[k].out, s->matrix[k].out_at + s->matrix[k].w.n_out);
        if (scores(s, side) && s->ffn->predictor != PREDICTOR_NONE)
            widen(width, BUF_SCORE, s->ffn->n_scored);
        if (side == SIDE_GPU && s->op == OP_EXPERTS_IN) {
            widen(width, BUF_EXPERT_GATE, s->experts->n_ff);
            widen(width, BUF_EXPERT_OUT, p->model->hp.n_embd);
        }
        if (s->out == BUF_FFN_OUT) widen(width, BUF_FFN_OUT, p->model->hp.n_embd);
        if (s->out == BUF_STREAMS || s->op == OP_PREDICT)
            widen(width, BUF_STREAMS, plan_residual_width(p->model));
        if (s->out == BUF_LAYER_EMBD) widen(width, BUF_LAYER_EMBD, p->width[BUF_LAYER_EMBD]);
        if (s->op == OP_CONV) widen(width, BUF_SSM_CONV, s->recurrent->n_conv);
        if (s->op == OP_CONV) widen(width, BUF_SSM_OUT, recurrent_width(p, s->recurrent));
        if (s->op == OP_HEADS) widen(width, s->matrix[0].out, s->n_heads * s->out_part.stride);
        if (s->op != OP_ATTENTION) continue;
        const model_layer_hparams *l = &p->model->layers[s->layer].hp;
        widen(width, BUF_ATTN, (int64_t)l->n_head * l->v_dim);
    }
}

void plan_set_gpu_widths(plan *p) {
    memset(p->gpu_width, 0, sizeof p->gpu_width);
    if (p->n_gpu_steps) set_widths(p, SIDE_GPU);
    for (int b = 0; b < BUF_COUNT; b++) /* columns begin at multiples of 16 bytes there */
        p->gpu_width[b] = (p->gpu_width[b] + 3) / 4 * 4;
}

static void count_bytes(plan *p, const plan_step *steps, int n_steps) {
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        bool fixed = !plan_step_is_sparse(s);
        if (fixed) p->fixed_bytes += s->weight_bytes;
        if (!fixed) p->ffn_bytes += s->weight_bytes;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            if (!fixed || !is_ffn_weight(pm->role)) continue;
            p->ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
            p->fixed_ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
        }
    }
}

/* The mode that most layers run in; of equally frequent ones the first in the list. */
static pi_mode most_frequent_mode(const plan *p) {
    int count[PLAN_MODES] = {0}, best = PI_MODE_DENSE;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        if (p->model->layers[i].hp.ffn)
            count[p->experts[i].n_expert ? p->experts[i].mode : p->ffn[i].mode]++;
    for (int mode = 0; mode < PLAN_MODES; mode++)
        if (count[mode] > count[best]) best = mode;
    return (pi_mode)best;
}

static pi_status allocate(const model *m, const plan_options *o, plan **out, pi_error *err) {
    size_t n = (size_t)m->hp.n_layer;
    size_t capacity = n * PLAN_LAYER_STEPS + PLAN_GLOBAL_STEPS;
    for (size_t i = 0; i < n * PLAN_MAX_DEVICES && o->splits; i++)
        if (o->splits[i / PLAN_MAX_DEVICES].helpers[i % PLAN_MAX_DEVICES])
            capacity += PLAN_HELPER_STEPS;
    plan *p = mem_calloc(1, sizeof *p);
    *out = p;
    if (!p) return error_nomem(err, sizeof *p, "plan");
    p->model = m;
    p->device = -1;
    p->steps = mem_calloc(2 * capacity, sizeof *p->steps);
    p->splits = mem_calloc(n, sizeof *p->splits);
    p->experts = mem_calloc(n, sizeof *p->experts);
    p->recurrent = mem_calloc(n, sizeof *p->recurrent);
    if (!p->steps || !p->splits || !p->experts || !p->recurrent)
        return error_nomem(err, 2 * capacity * sizeof *p->steps, "plan");
    p->gpu_steps = p->steps + capacity;
    return PI_OK;
}

static pi_status allocate_ffn(plan *p, pi_error *err) {
    size_t n = (size_t)p->model->hp.n_layer;
    size_t sides = 1 + (p->n_devices > 1 ? (size_t)p->n_devices : 1);
    p->ffn = mem_calloc(sides * n, sizeof *p->ffn);
    if (!p->ffn) return error_nomem(err, sides * n * sizeof *p->ffn, "plan");
    p->gpu_ffn = p->ffn + n;
    return PI_OK;
}

static pi_status build(plan *p, const cpu_kernels *kernels, const plan_options *options,
                       pi_error *err) {
    pi_status status = plan_set_splits(p, options, err);
    if (status == PI_OK) status = allocate_ffn(p, err);
    if (status != PI_OK) return status;
    add_all(p, options);
    status = plan_sort_by_device(p, err);
    if (status != PI_OK) return status;
    p->mode = most_frequent_mode(p);
    plan_set_forms(p, kernels, options->few_only);
    set_widths(p, SIDE_CPU);
    status = set_experts(p, kernels, err);
    if (status != PI_OK) return status;
    p->width[BUF_LOGITS] = p->model->hp.n_vocab;
    plan_set_gpu_widths(p);
    count_bytes(p, p->steps, p->n_steps);
    p->ffn_bytes += p->expert_bytes;
    count_bytes(p, p->gpu_steps, p->n_gpu_steps);
    status = resolve_acts(p, SIDE_CPU, kernels, err);
    if (status == PI_OK) status = resolve_acts(p, SIDE_GPU, NULL, err);
    return status;
}

pi_status plan_create(const model *m, const cpu_kernels *kernels, const plan_options *options,
                      plan **out, pi_error *err) {
    plan *p;
    *out = NULL;
    pi_status status = allocate(m, options, &p, err);
    if (status == PI_OK) status = build(p, kernels, options, err);
    if (status != PI_OK) {
        plan_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void plan_free(plan *p) {
    if (!p) return;
    mem_free(p->splits);
    mem_free(p->experts);
    mem_free(p->recurrent);
    mem_free(p->ffn);
    mem_free(p->steps);
    mem_free(p);
}

const char *ffn_mode_name(pi_mode mode) {
    static const char *const names[PLAN_MODES] = {"auto", "dense", "exact", "predict", "threshold"};
    return (unsigned)mode < PLAN_MODES ? names[mode] : "unknown";
}
