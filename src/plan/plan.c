/* plan.c: makes the steps from an architecture row and bound weights: helpers for steps, the
 * residual stream before, between and after the layers (plan_layer.c), and properties of the whole
 * plan: widths of buffers, quantized forms, bytes. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu_ops.h"
#include "mem.h"
#include "plan_impl.h"

plan_step *plan_add_step(plan *p, plan_side side, plan_op op, int layer, plan_buffer in) {
    plan_step *s = side == SIDE_CPU ? &p->steps[p->n_steps++] : &p->gpu_steps[p->n_gpu_steps++];
    *s = (plan_step){.op = op,
                     .layer = layer,
                     .device = plan_device_of(p, layer),
                     .in = in,
                     .matrix = p->matrices + (s - p->steps) * PLAN_MAX_GROUP};
    if (plan_args_of(op) == ARGS_message) s->args.message.peer = -1;
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
        .scale_last = row && row->flags & TENSOR_SCALE_LAST, /* no row for fused parts */
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
    int exchange = p->n_exchanges[from]++;
    STEP_ARGS(m.send, message)->exchange = STEP_ARGS(m.receive, message)->exchange = exchange;
    m.receive->out = out;
    return m;
}

plan_message plan_add_answer(plan *p, plan_side from, int layer, bool first) {
    plan_side to = from == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    bool late = plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    plan_message m = plan_add_message(p, from, layer, late ? plan_late_result(p, from) : BUF_X,
                                      late ? plan_late_result(p, to) : BUF_X);
    STEP_ARGS(m.receive, message)->answer = true;
    STEP_ARGS(m.receive, message)->add_to_out = !late || !first;
    return m;
}

args_norm plan_make_norm(const plan *p, const model_tensor *weight, const model_tensor *bias) {
    return (args_norm){.kind = weight->data ? p->model->hp.norm : NORM_NONE,
                       .width = p->model->hp.n_embd,
                       .eps = p->model->hp.norm_eps,
                       .weight = weight->data,
                       .bias = bias ? bias->data : NULL};
}

plan_step *plan_add_norm(plan *p, plan_side side, int layer, tensor_role weight, tensor_role bias) {
    const model_tensor *t = p->model->layers[layer].t;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_X);
    *STEP_ARGS(s, norm) = plan_make_norm(p, &t[weight], &t[bias]);
    s->out = BUF_Y;
    return s;
}

plan_step *plan_add_normed_residual(plan *p, int layer, tensor_role weight) {
    plan_side side = p->splits[layer].primary;
    plan_add_norm(p, side, layer, weight, ROLE_ATTN_NORM_BIAS)->out = BUF_X;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_X);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_NONE, .width = p->model->hp.n_embd};
    s->out = BUF_Y;
    return s;
}

void plan_add_sum_norm(plan *p, int layer, tensor_role weight, tensor_role bias) {
    if (!p->model->layers[layer].t[weight].data) return;
    plan_step *s = plan_add_norm(p, p->splits[layer].primary, layer, weight, bias);
    s->out = BUF_X;
}

bool plan_adds_late(const plan *p, int layer, tensor_role post_norm) {
    const model_tensor *t = p->model->layers[layer].t;
    bool beside = post_norm == ROLE_FFN_POST_NORM && t[ROLE_FFN_POST_NORM_1].data;
    bool early = post_norm == ROLE_FFN_POST_NORM &&
                 (p->model->arch->experts_early || t[ROLE_ADJUGATE_DOWN].data ||
                  t[ROLE_FFN_RECEPTANCE].data);
    return p->model->hp.residual_scale != 1 || plan_sums_streams(p) || t[post_norm].data ||
           beside || early;
}

plan_step *plan_add_addition(plan *p, plan_side side, int layer, plan_buffer in,
                             tensor_role post_norm) {
    static const model_tensor none = {0};
    if (p->model->hp.hyper)
        return plan_add_hyper_out(
            p, side, layer, post_norm == ROLE_ATTN_POST_NORM ? ROLE_HYPER_ATTN : ROLE_HYPER_FFN,
            in);
    if (p->model->hp.past_period > 0)
        return plan_add_past_out(
            p, side, layer, post_norm == ROLE_ATTN_POST_NORM ? ROLE_PAST_ATTN : ROLE_PAST_FFN, in);
    plan_step *s = plan_add_step(p, side, OP_ADD, layer, in);
    bool normed = post_norm != ROLE_COUNT;
    *STEP_ARGS(s, add) = (args_add){
        .norm = plan_make_norm(p, normed ? &p->model->layers[layer].t[post_norm] : &none, NULL),
        .scale = p->model->hp.residual_scale,
        .x_scale = 1};
    if (p->model->arch->residual_normed) { /* the stream is scaled instead */
        STEP_ARGS(s, add)->x_scale = p->model->hp.residual_scale;
        STEP_ARGS(s, add)->scale = 1 / p->model->hp.residual_scale;
    }
    if (p->model->arch->post_norm_eps > 0)
        STEP_ARGS(s, add)->norm.eps = p->model->arch->post_norm_eps;
    return s;
}

/* A step of a head with a predictor. Products with its matrices and their quantized inputs stay in
 * the layout of matrix-vector products, so that a row of logits is the same in every ubatch. */
static plan_step *add_head_step(plan *p, plan_op op, plan_buffer in, int slot) {
    plan_step *s = plan_add_step(p, SIDE_CPU, op, -1, in);
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    s->slot = slot;
    return s;
}

/* Scores of all tokens by the predictor, then the logits of the candidates: matrix `out`. */
static void add_predicted_logits(plan *p, const plan_matrix *out) {
    const model_head *h = &p->model->sparse.head;
    const args_head args = {.kind = h->kind, .distance = h->distance};
    plan_set_kernel(&p->steps[p->n_layer_steps], KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    plan_step *fc1 = add_head_step(p, OP_MATMUL, BUF_Y, PLAN_SLOT_MAIN);
    plan_add_matrix(p, fc1, ROLE_OUTPUT_FC1, ROLE_COUNT, BUF_PRED);
    add_head_step(p, OP_QUANTIZE, BUF_PRED, PLAN_SLOT_PREDICTOR);
    plan_step *scores = add_head_step(p, OP_HEAD_SCORES, BUF_PRED, PLAN_SLOT_PREDICTOR);
    plan_add_matrix(p, scores, ROLE_OUTPUT_FC2, ROLE_COUNT, BUF_LOGITS);
    if (h->kind == HEAD_SKETCH) { /* the scores are logits */
        scores->matrix[0].scale *= out->scale;
        scores->matrix[0].scale_last = out->scale_last;
        scores->matrix[0].bias = out->bias;
    }
    plan_step *rows = add_head_step(p, OP_HEAD_ROWS, BUF_Y, PLAN_SLOT_MAIN);
    plan_set_matrix(rows, out);
    *STEP_ARGS(scores, head) = *STEP_ARGS(rows, head) = args;
    p->head_bytes = fc1->weight_bytes + scores->weight_bytes;
}

static void add_head(plan *p, const plan_options *options) {
    const model *m = p->model;
    p->n_layer_steps = p->n_steps;
    plan_step *s = plan_add_step(p, p->head, OP_HEAD_NORM, -1, BUF_X);
    *STEP_ARGS(s, norm) = plan_make_norm(p, &m->t[ROLE_OUTPUT_NORM], &m->t[ROLE_OUTPUT_NORM_BIAS]);
    if (!m->t[ROLE_OUTPUT].data) return;
    plan_matrix out = plan_make_matrix(p, -1, ROLE_OUTPUT, ROLE_OUTPUT_BIAS, BUF_LOGITS);
    out.scale *= m->hp.logit_scale;
    p->predicts_head = plan_predicts_head(p, options);
    if (p->predicts_head) {
        add_predicted_logits(p, &out);
    } else {
        s = plan_add_step(p, p->head, OP_MATMUL, -1, BUF_Y);
        plan_set_matrix(s, &out);
        p->head_bytes = s->weight_bytes;
    }
    if (m->draft.ids) plan_add_draft_logits(p);
    if (m->hp.logit_softcap == 0) return;
    s = plan_add_step(p, p->head, OP_SOFTCAP, -1, BUF_LOGITS);
    STEP_ARGS(s, softcap)->cap = m->hp.logit_softcap;
}

/* The location of the residual stream. */
typedef struct plan_place {
    plan_side side;
    int device; /* for SIDE_GPU */
} plan_place;

/* Moves the stream to the device that a layer, or the head (-1), needs it on. A message from a peer
 * comes before the CPU's message, which begins the next segment of a ubatch of many tokens. */
static plan_place move_stream(plan *p, plan_place at, plan_side to, int layer) {
    int device = plan_device_of(p, layer);
    const plan_buffer x = plan_residual(p);
    if (at.side == SIDE_GPU && to == SIDE_CPU) {
        plan_message m = plan_add_message(p, SIDE_GPU, layer, x, x);
        m.send->device = m.receive->device = at.device;
    } else if (at.side == SIDE_GPU && at.device != device) { /* to another GPU */
        plan_step *send = plan_add_step(p, SIDE_GPU, OP_SEND, layer, x);
        plan_step *receive = plan_add_step(p, SIDE_GPU, OP_RECEIVE, layer, x);
        send->device = at.device;
        receive->device = device;
        receive->out = x;
        *STEP_ARGS(send, message) = (args_message){.exchange = -1, .peer = device};
        *STEP_ARGS(receive, message) = (args_message){.exchange = -1, .peer = at.device};
    }
    /* Before its first layer a GPU receives what all its layers need of the embeddings. */
    bool embeddings = model_keeps_embedding(p->model) && to == SIDE_GPU && layer >= 0;
    for (int i = 0; i < layer; i++)
        if (p->splits[i].primary == SIDE_GPU && p->splits[i].device == device) embeddings = false;
    if (embeddings) plan_add_message(p, SIDE_CPU, layer, BUF_LAYER_EMBD, BUF_LAYER_EMBD);
    if (at.side == SIDE_CPU && to == SIDE_GPU) plan_add_message(p, at.side, layer, x, x);
    return (plan_place){to, device};
}

/* X = the token's embedding, and what models compute from it once: embeddings per layer
 * (plan_layer.c), a copy of it that layers add again, several streams, the input of a head. */
static void add_embedding(plan *p) {
    plan_add_step(p, SIDE_CPU, OP_EMBED, -1, BUF_X);
    if (p->model->t[ROLE_EMBD_NORM].data) {
        plan_step *s = plan_add_step(p, SIDE_CPU, OP_NORM, -1, BUF_X);
        *STEP_ARGS(s, norm) = plan_make_norm(p, &p->model->t[ROLE_EMBD_NORM],
                                             &p->model->t[ROLE_EMBD_NORM_BIAS]);
        s->out = BUF_X;
    }
    if (p->model->hp.n_embd_layer > 0) {
        plan_add_step(p, SIDE_CPU, OP_QUANTIZE, -1, BUF_X);
        plan_step *s = plan_add_step(p, SIDE_CPU, OP_MATMUL, -1, BUF_X);
        plan_add_matrix(p, s, ROLE_LAYER_EMBD_PROJ, ROLE_COUNT, BUF_LAYER_EMBD);
        s->matrix[0].scale /= sqrtf((float)p->model->hp.n_embd);
        s = plan_add_step(p, SIDE_CPU, OP_EMBED_LAYERS, -1, BUF_LAYER_EMBD);
        *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_RMS,
                                          .eps = p->model->hp.norm_eps,
                                          .width = p->model->hp.n_embd_layer,
                                          .weight = p->model->t[ROLE_LAYER_EMBD_NORM].data};
    } else if (model_keeps_embedding(p->model)) {
        plan_step *s = plan_add_step(p, SIDE_CPU, OP_NORM, -1, BUF_X);
        *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_NONE, .width = p->model->hp.n_embd};
        s->out = BUF_LAYER_EMBD;
    }
    if (plan_has_streams(p)) plan_add_spread(p);
    if (p->model->draft.target)
        plan_add_draft_in(p);
    else if (plan_sums_streams(p))
        plan_add_hyper_start(p);
}

/* The residual stream starts on the CPU, which has the embedding table or receives the stream of
 * another machine, and follows the primary devices of the layers. */
static void add_all(plan *p, const plan_options *options) {
    plan_place at = {.side = SIDE_CPU};
    const bool first = p->first_layer == 0;
    if (first)
        add_embedding(p);
    else
        plan_add_step(p, SIDE_CPU, OP_ANGLES, -1, BUF_X);
    for (int layer = p->first_layer; layer <= p->end_layer; layer++) {
        if (plan_draft_reads(options->drafter, layer)) {
            at = move_stream(p, at, SIDE_CPU, layer < p->end_layer ? layer : -1);
            plan_add_draft_reads(p, options->drafter, layer);
        }
        if (layer == p->end_layer) break;
        at = move_stream(p, at, p->splits[layer].primary, layer);
        plan_add_layer(p, layer, options);
    }
    if (p->model->draft.target) plan_add_draft_features(p);
    move_stream(p, at, p->head, -1);
    p->n_stage_steps = p->n_layer_steps = p->n_steps;
    if (!first) return;
    if (plan_has_streams(p)) plan_add_merge(p);
    if (p->model->hp.hyper) plan_add_hyper_in(p, p->head, -1, ROLE_HYPER_HEAD);
    if (p->model->hp.past_period > 0) plan_add_past_in(p, p->head, -1, ROLE_PAST_HEAD);
    add_head(p, options);
}

static pi_status fail_type(const plan *p, const plan_matrix *pm, int layer, pi_error *err) {
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no kernel: %s: type %s of %s in layer %d; quantize the model to another type",
                     gguf_path(p->model->file), quant_find(pm->w.type)->name,
                     tensor_role_name(pm->role), layer);
}

/* The type of activations for products with a matrix; -1: there is no such product. kernels NULL:
 * the GPU's types, floats and int8, under the CPU's names. */
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

/* Whether a step computes a predictor's scores. On the GPU only OP_SELECT does. */
static bool scores(const plan_step *s, plan_side side) {
    return ((s->op == OP_FFN_SPARSE || s->op == OP_PREFETCH) && side == SIDE_CPU) ||
           (s->op == OP_SELECT && !STEP_ARGS(s, select)->bits);
}

bool plan_quantizes(const plan_step *s, plan_side side) {
    if (s->op == OP_NORM || s->op == OP_QUANTIZE || s->op == OP_HEAD_NORM) return true;
    if (side == SIDE_CPU) return false;
    return s->op == OP_ATTENTION || (s->op == OP_RECEIVE && s->out == BUF_Y) ||
           (s->op != OP_MATMUL && s->slot == PLAN_SLOT_HIDDEN);
}

/* `source` also stores the quantized input of this product in its slot. */
static void need_act(plan_slot *slots, plan_step *source, int form, int64_t width) {
    plan_slot *slot = &slots[source->slot];
    source->act_kinds |= 1u << form;
    source->act_width = width;
    slot->kinds |= 1u << form;
    if (width > slot->width) slot->width = width;
}

/* The nearest earlier step that writes a product's slot quantizes the product's input. */
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
            if (s->op == OP_HEADS) continue; /* the step quantizes its input itself */
            need_act(slots, source[plan_input_slot(s)], form, pm->w.n_in);
        }
        const plan_ffn *f = plan_ffn_of(s);
        if (scores(s, side) && f->fc2.w.data) {
            const plan_matrix *pm = &f->fc2;
            int form = form_of(kernels, pm->w.type);
            if (form < 0) return fail_type(p, pm, s->layer, err);
            if (side == SIDE_CPU) /* on the GPU OP_SELECT quantizes the hidden vector */
                need_act(slots, source[PLAN_SLOT_PREDICTOR], form, pm->w.n_in);
        }
        if (s->op == OP_FFN_DOWN) {
            const plan_matrix *pm = &f->down;
            int form = form_of_rows(kernels, pm->w.type);
            if (form < 0) return fail_type(p, pm, s->layer, err);
            if (side == SIDE_CPU) need_act(slots, source[PLAN_SLOT_MAIN], form, pm->w.n_out);
        }
    }
    return PI_OK;
}

/* An odd number of cache lines per row: otherwise equal elements of neighbouring pairs, which
 * products write together, would map to one set of the L1 cache. */
static int64_t width_of_pairs(int64_t n) {
    enum { LINE = 64 / sizeof(float) };
    return ((n + LINE - 1) / LINE | 1) * LINE;
}

/* Experts' matrices have fixed places in their buffers, and separate quantized inputs. */
static pi_status set_experts(plan *p, const cpu_kernels *kernels, pi_error *err) {
    int n_layer = p->model->hp.n_layer;
    for (int i = 0; i < 2 * n_layer; i++) { /* then adjugate experts */
        plan_experts *e = &p->experts[i];
        int layer = i % n_layer;
        const plan_matrix *all[] = {&e->gate, &e->up, &e->fc1, &e->down, &e->fc2};
        unsigned *const kinds[] = {&e->in_kinds, &e->in_kinds, &e->in_kinds, &e->down_kinds,
                                   &e->pred_kinds};
        if (!e->n_expert) continue;
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            if (!all[k]->w.data) continue;
            int form = all[k] == &e->down && e->down_rows ? form_of_rows(kernels, all[k]->w.type)
                                                          : form_of(kernels, all[k]->w.type);
            if (form < 0) return fail_type(p, all[k], layer, err);
            *kinds[k] |= 1u << form;
            /* a single token uses the norm's quantized output */
            if (kinds[k] == &e->in_kinds && e->norm_step) e->norm_step->act_kinds |= 1u << form;
        }
        if (p->n_expert < e->n_expert) p->n_expert = e->n_expert;
        if (p->n_expert_used < e->n_used) p->n_expert_used = e->n_used;
        if (p->width[BUF_EXPERT_IN] < e->n_embd)
            p->width[BUF_EXPERT_IN] = width_of_pairs(e->n_embd);
        p->width[BUF_EXPERT_OUT] = p->width[BUF_EXPERT_IN];
        if (p->width[BUF_EXPERT_GATE] < e->n_ff)
            p->width[BUF_EXPERT_GATE] = width_of_pairs(e->n_ff);
        p->width[BUF_EXPERT_UP] = p->width[BUF_EXPERT_GATE];
        if (e->fc1.w.data && p->width[BUF_EXPERT_PRED] < e->fc1.w.n_out)
            p->width[BUF_EXPERT_PRED] = width_of_pairs(e->fc1.w.n_out);
    }
    return PI_OK;
}

static void widen(int64_t *width, plan_buffer b, int64_t n) {
    if (n > width[b]) width[b] = n;
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
        const plan_ffn *f = plan_ffn_of(s);
        bool stored = side == SIDE_CPU ? f && f->predictor != PREDICTOR_NONE : f && f->fc2.w.data;
        if (scores(s, side) && stored) widen(width, BUF_SCORE, f->n_scored);
        if (side == SIDE_GPU && s->op == OP_EXPERTS_IN) {
            widen(width, BUF_EXPERT_GATE, STEP_ARGS(s, experts)->experts->n_ff);
            widen(width, BUF_EXPERT_OUT, STEP_ARGS(s, experts)->experts->n_embd);
        }
        if (s->out == BUF_FFN_OUT) widen(width, BUF_FFN_OUT, p->model->hp.n_embd);
        if (s->out == BUF_STREAMS || s->op == OP_PREDICT)
            widen(width, BUF_STREAMS, plan_residual_width(p->model));
        if (s->out == BUF_EXPERT_LATENT) widen(width, s->out, p->model->hp.n_expert_embd);
        if (s->op == OP_NORM) {
            const args_norm *norm = STEP_ARGS(s, norm);
            widen(width, s->out, norm->width * (norm->n > 0 ? norm->n : 1));
        }
        if (s->op == OP_DRAFT_READ)
            widen(width, BUF_DRAFT_READS, STEP_ARGS(s, draft_read)->at + p->model->hp.n_embd);
        if (s->op == OP_DRAFT_IN) widen(width, BUF_DRAFT_IN, 2 * plan_residual_width(p->model));
        if (s->out == BUF_LAYER_EMBD) widen(width, BUF_LAYER_EMBD, p->width[BUF_LAYER_EMBD]);
        if (s->op == OP_CONV) {
            const plan_recurrent *mixer = STEP_ARGS(s, recurrent)->mixer;
            widen(width, BUF_SSM_CONV, mixer->n_conv);
            widen(width, BUF_SSM_OUT,
                  mixer->mixer == MIXER_CONV ? p->model->hp.n_embd
                                             : mixer->n_head * mixer->head_dim);
        }
        if (s->op == OP_SHIFT)
            widen(width, s->out, STEP_ARGS(s, shift)->n * (int64_t)p->model->hp.n_embd);
        if (s->op == OP_WKV) widen(width, BUF_SSM_OUT, p->model->hp.n_inner);
        if (s->op == OP_WKV && model_keeps_values(p->model))
            widen(width, BUF_LAYER_EMBD, p->model->hp.n_inner);
        if (s->op == OP_HEADS) {
            const args_heads *heads = STEP_ARGS(s, heads);
            widen(width, s->matrix[0].out, heads->n * heads->out.stride);
        }
        if (s->op != OP_ATTENTION) continue;
        const model_layer_hparams *l = &p->model->layers[s->layer].hp;
        widen(width, BUF_ATTN, (int64_t)l->n_head * l->v_dim);
    }
}

void plan_set_gpu_widths(plan *p) {
    memset(p->gpu_width, 0, sizeof p->gpu_width);
    if (p->n_gpu_steps) set_widths(p, SIDE_GPU);
    for (int b = 0; b < BUF_COUNT; b++) /* rows there begin at multiples of 16 bytes */
        p->gpu_width[b] = (p->gpu_width[b] + 3) / 4 * 4;
}

static void count_bytes(plan *p, const plan_step *steps, int n_steps) {
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        bool fixed = !plan_step_is_sparse(s);
        if (plan_op_reads(s->op) == READS_CANDIDATES) continue;
        if (fixed) p->fixed_bytes += s->weight_bytes;
        if (!fixed) p->ffn_bytes += s->weight_bytes;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            const tensor_role r = pm->role;
            bool ffn = r == ROLE_FFN_GATE || r == ROLE_FFN_UP || r == ROLE_FFN_DOWN;
            if (!fixed || !ffn) continue;
            p->ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
            p->fixed_ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
        }
    }
}

/* The mode that most layers run in; among equally frequent modes, the first in the list. */
static pi_mode most_frequent_mode(const plan *p) {
    int count[PLAN_MODES] = {0}, best = PI_MODE_DENSE;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        if (p->model->layers[i].hp.ffn && plan_owns(p, i)) count[plan_mode_of_layer(p, i)]++;
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
    p->matrices = mem_calloc(2 * capacity * PLAN_MAX_GROUP, sizeof *p->matrices);
    p->splits = mem_calloc(n, sizeof *p->splits);
    p->experts = mem_calloc(2 * n, sizeof *p->experts);
    p->adjugates = p->experts ? p->experts + n : NULL;
    p->recurrent = mem_calloc(n, sizeof *p->recurrent);
    if (!p->steps || !p->matrices || !p->splits || !p->experts || !p->recurrent)
        return error_nomem(err, 2 * capacity * sizeof *p->steps, "plan");
    p->gpu_steps = p->steps + capacity;
    return PI_OK;
}

/* Where the kernel for a single token can also norm the X that it completes, it does. For a single
 * token only: the last block norms one column after the other, separate kernels all at once. */
static void merge_norms(plan *p, uint32_t devices) {
    for (int i = 0; i + 1 < p->n_gpu_steps; i++) {
        plan_step *s = &p->gpu_steps[i], *next = s + 1;
        const plan_kernel kernel = s->kernel[FORM_ONE];
        bool down = s->op == OP_FFN_DOWN && (kernel == KERNEL_VECTOR || kernel == KERNEL_UNION);
        bool matmul = s->op == OP_MATMUL && s->n_matrices == 1 && kernel == KERNEL_VECTOR;
        if (!(devices >> s->device & 1) || next->device != s->device) continue;
        if (!s->add_to_x || !(down || matmul)) continue;
        if (next->op != OP_NORM || next->in != BUF_X || next->out != BUF_Y) continue;
        s->norms = true;
        next->kernel[FORM_ONE] = KERNEL_SKIP;
    }
}

static pi_status build(plan *p, const cpu_kernels *kernels, const plan_options *options,
                       pi_error *err) {
    const model *m = p->model;
    p->attn_blocks = options->attn_blocks;
    p->first_layer = options->first_layer;
    p->end_layer = options->end_layer > 0 ? options->end_layer : m->hp.n_layer;
    assert(p->first_layer >= 0 && p->first_layer < p->end_layer && p->end_layer <= m->hp.n_layer);
    pi_status status = plan_set_splits(p, options, err);
    if (status != PI_OK) return status;
    const size_t n_layer = (size_t)m->hp.n_layer;
    const size_t sides = 1 + (p->n_devices > 1 ? (size_t)p->n_devices : 1);
    p->ffn = mem_calloc(sides * n_layer, sizeof *p->ffn);
    if (!p->ffn) return error_nomem(err, sides * n_layer * sizeof *p->ffn, "plan");
    p->gpu_ffn = p->ffn + n_layer;
    assert(!plan_is_stage(p) || p->head == SIDE_CPU);
    add_all(p, options);
    p->n_own_state = p->n_state;
    for (int i = 0; i < m->hp.n_layer && p->n_state == 0; i++)
        p->n_state = model_state(&m->hp, &m->layers[i].hp) > 0;
    status = plan_sort_by_device(p, err);
    if (status != PI_OK) return status;
    merge_norms(p, options->merge_norms);
    p->mode = most_frequent_mode(p);
    plan_set_forms(p, kernels, options->few_only);
    if (p->first_layer > 0 && model_keeps_embedding(m)) /* received */
        p->width[BUF_LAYER_EMBD] = m->hp.n_embd_layer > 0
                                       ? (int64_t)m->hp.n_embd_layer * m->hp.n_layer
                                       : m->hp.n_embd;
    set_widths(p, SIDE_CPU);
    status = set_experts(p, kernels, err);
    if (status != PI_OK) return status;
    p->width[BUF_LOGITS] = p->model->t[ROLE_OUTPUT].data ? p->model->hp.n_vocab : 0;
    plan_set_gpu_widths(p);
    count_bytes(p, p->steps, p->n_steps);
    p->ffn_bytes += p->expert_bytes;
    count_bytes(p, p->gpu_steps, p->n_gpu_steps);
    status = resolve_acts(p, SIDE_CPU, kernels, err);
    if (status == PI_OK) status = resolve_acts(p, SIDE_GPU, NULL, err);
    if (status == PI_OK) plan_join_messages(p);
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

bool plan_holds_cache(const model *m, int first_layer, int end_layer, int layer) {
    if (layer >= first_layer) return layer < end_layer;
    for (int i = first_layer; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.kv_layer == layer) return true;
    return false;
}

void plan_free(plan *p) {
    if (!p) return;
    mem_free(p->splits);
    mem_free(p->experts);
    mem_free(p->recurrent);
    mem_free(p->ffn);
    mem_free(p->matrices);
    mem_free(p->steps);
    mem_free(p);
}

const char *ffn_mode_name(pi_mode mode) {
    static const char *const names[PLAN_MODES] = {"auto", "dense", "exact", "predict", "threshold"};
    return (unsigned)mode < PLAN_MODES ? names[mode] : "unknown";
}
