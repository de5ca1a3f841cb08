/* plan_experts.c: the FFN block of a layer that is a mixture of experts.
 *
 *   matmul router -> route -> group -> experts_in (gate, up, activation) -> experts_quantize
 *   -> experts_down -> experts_sum (X +=)
 *
 * with the shared expert, an ordinary FFN, before the sum. A router that reads the layer's input
 * comes at the beginning of the layer.
 *
 * On two devices, the primary runs the router and the shared expert. The secondary device receives
 * the input and the choices (experts and weights) in one message, and sends its partial sum. In
 * ubatches of few tokens whose chosen experts are all on the primary, the flags signal "no work":
 * no data is sent, and the primary does not wait. */
#include <math.h>

#include "gpu_ops.h"
#include "plan_impl.h"

static const model_tensor *tensors_of(const plan *p, int layer) {
    return p->model->layers[layer].t;
}

void plan_add_router(plan *p, int layer, plan_buffer in) {
    plan_side side = p->splits[layer].primary;
    if (in == BUF_X) plan_add_step(p, side, OP_QUANTIZE, layer, BUF_X);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, in);
    plan_add_matrix(p, s, ROLE_ROUTER, ROLE_ROUTER_BIAS, BUF_ROUTER);
    if (side == SIDE_CPU || !tensors_of(p, layer)[ROLE_SHARED_ROUTER].data) return;
    plan_add_matrix(p, s, ROLE_SHARED_ROUTER, ROLE_COUNT, BUF_ROUTER);
    s->matrix[1].out_at = s->matrix[0].w.n_out;
    s->matrix[1].scale = 1; /* vectors have none */
}

/* A matrix of all experts, given as the matrix of the first one; biases of the others follow. */
static plan_matrix first_expert(const plan *p, int layer, tensor_role role, tensor_role bias,
                                int64_t rows, plan_buffer out) {
    plan_matrix m = plan_make_matrix(p, layer, role, bias, out);
    m.w.n_out = rows;
    return m;
}

static void describe(const plan *p, int layer, const plan_options *o, plan_experts *e) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    const model_tensor *t = l->t;
    const plan_split *split = &p->splits[layer];
    const bool scaled = t[ROLE_SHARED_DOWN].data && p->model->arch->shared_scale > 0;
    const bool latent = t[ROLE_EXPERT_LATENT_IN].data;
    *e = (plan_experts){.mode = plan_choose_mode(p->model, layer, o),
                        .hot = split->hot,
                        .primary = split->primary,
                        .split = split->primary == SIDE_GPU ? split->hot < hp->n_expert
                                                            : split->hot > 0,
                        .n_expert = hp->n_expert,
                        .n_used = hp->n_expert_used,
                        .n_group = hp->n_expert_group,
                        .n_group_used = hp->n_group_used,
                        .n_ff = l->hp.n_ff_expert,
                        .n_embd = hp->n_expert_embd,
                        .in = latent ? BUF_EXPERT_LATENT : BUF_Y,
                        .gating = hp->gating,
                        .norm = hp->expert_norm,
                        .scale = hp->expert_scale,
                        .n_scored = hp->n_expert,
                        .weigh_input = p->model->arch->has & ARCH_EXPERT_INPUT,
                        .sum_scale = scaled ? p->model->arch->shared_scale : 1,
                        .perm = l->sparse.expert_perm,
                        .by_token = t[ROLE_ROUTER_TABLE].data,
                        .select_bias = t[ROLE_ROUTER_SELECT_BIAS].data,
                        .shared_router = t[ROLE_SHARED_ROUTER].data,
                        .shared = t[ROLE_SHARED_DOWN].data && !latent};
    /* Gate and up may be one tensor: then they are contiguous for every expert. */
    const bool fused = t[ROLE_EXPERT_GATE_UP].data;
    const tensor_role gate = fused ? ROLE_EXPERT_GATE_UP : ROLE_EXPERT_GATE;
    const tensor_role up = fused ? ROLE_EXPERT_GATE_UP : ROLE_EXPERT_UP;
    e->up_rows = fused ? 2 * e->n_ff : e->n_ff;
    if (t[gate].data)
        e->gate = first_expert(p, layer, gate, fused ? ROLE_COUNT : ROLE_EXPERT_GATE_BIAS, e->n_ff,
                               BUF_EXPERT_GATE);
    e->up = first_expert(p, layer, up, fused ? ROLE_COUNT : ROLE_EXPERT_UP_BIAS, e->n_ff,
                         t[gate].data ? BUF_EXPERT_UP : BUF_EXPERT_GATE);
    if (fused) e->up.w.data = (const uint8_t *)e->up.w.data + (size_t)e->n_ff * e->up.w.row_bytes;
    e->gate_scales = t[gate].scales;
    e->up_scales = t[up].scales;
    /* Down as stored in the file. */
    e->down_rows = t[ROLE_EXPERT_DOWN_T].data;
    const tensor_role down = e->down_rows ? ROLE_EXPERT_DOWN_T : ROLE_EXPERT_DOWN;
    e->down = first_expert(p, layer, down, ROLE_EXPERT_DOWN_BIAS,
                           e->down_rows ? e->n_ff : e->n_embd, BUF_EXPERT_OUT);
    e->down_scales = t[down].scales;
    if (e->mode != PI_MODE_PREDICT) return;
    e->predictor = l->sparse.predictor;
    e->score_bias = t[ROLE_EXPERT_FC2_BIAS].data;
    e->threshold = o->set_threshold ? o->threshold : p->model->sparse.predictor_threshold;
    e->sign = t[ROLE_EXPERT_SIGN].data;
    if (e->predictor == PREDICTOR_SIGN) return;
    e->fc1 = first_expert(p, layer, ROLE_EXPERT_FC1, ROLE_COUNT, l->sparse.rank, BUF_EXPERT_PRED);
    e->fc2 = first_expert(p, layer, ROLE_EXPERT_FC2, ROLE_COUNT, e->n_ff, BUF_EXPERT_UP);
}

/* The sum of the experts adds the shared expert's result. */
static void add_shared(plan *p, int layer, tensor_role gate, tensor_role up, tensor_role down) {
    bool gated = tensors_of(p, layer)[gate].data;
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, side, OP_FFN_IN, layer, BUF_Y), *hidden = s;
    if (gated) plan_add_matrix(p, s, gate, ROLE_COUNT, BUF_GATE);
    plan_add_matrix(p, s, up, ROLE_COUNT, gated ? BUF_UP : BUF_GATE);
    if (side == SIDE_GPU) plan_set_gpu_neurons(p, s);
    if (side == SIDE_CPU) plan_add_step(p, side, OP_QUANTIZE, layer, BUF_GATE);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_GATE);
    plan_add_matrix(p, s, down, ROLE_COUNT, BUF_SHARED);
    if (side == SIDE_GPU) s->slot = hidden->slot = PLAN_SLOT_HIDDEN;
}

/* A router with a separate norm, whose weights lack the factor 1 / sqrt(n_embd). */
static void add_scaled_router(plan *p, int layer) {
    plan_side primary = p->splits[layer].primary;
    plan_add_norm(p, primary, layer, ROLE_ROUTER_SCALE, ROLE_FFN_NORM_BIAS);
    plan_step *s = plan_add_step(p, primary, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_ROUTER, ROLE_ROUTER_BIAS, BUF_ROUTER);
    s->matrix[0].scale = (float)(1 / sqrt((double)p->model->hp.n_embd));
}

/* Y = input of the experts, and of the router unless it has a separate norm. */
static plan_step *add_input_norm(plan *p, int layer) {
    const model_tensor *t = tensors_of(p, layer);
    bool own = t[ROLE_FFN_NORM].data;
    tensor_role norm = t[ROLE_EXPERT_PRE_NORM].data ? ROLE_EXPERT_PRE_NORM
                       : own                        ? ROLE_FFN_NORM
                                                    : ROLE_ATTN_NORM;
    return plan_add_norm(p, p->splits[layer].primary, layer, norm,
                         own ? ROLE_FFN_NORM_BIAS : ROLE_ATTN_NORM_BIAS);
}

static uint64_t bytes_of_all(const plan_experts *e) {
    uint64_t in = (uint64_t)(e->gate.w.data ? 2 : 1) * e->up.w.row_bytes * (uint64_t)e->n_ff;
    return (in + e->down.w.row_bytes * (uint64_t)e->down.w.n_out) * (uint64_t)e->n_expert;
}

static plan_step *add_step_of(plan *p, plan_side side, plan_op op, int layer, plan_buffer in,
                              const plan_experts *e) {
    plan_step *s = plan_add_step(p, side, op, layer, in);
    STEP_ARGS(s, experts)->experts = e;
    return s;
}

static plan_step *add_step(plan *p, plan_side side, plan_op op, int layer, plan_buffer in) {
    return add_step_of(p, side, op, layer, in, &p->experts[layer]);
}

/* Step `s` quantizes the experts' input on a device. The GPU's experts read it in all forms. */
static void set_input(plan_side side, plan_experts *e, plan_step *s) {
    s->act_width = e->n_embd;
    if (side == SIDE_CPU) {
        e->norm_step = s;
        return;
    }
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    if (gpu_type_wants_q8(e->up.w.type) || gpu_type_wants_q8(e->gate.w.type))
        s->act_kinds |= 1u << CPU_ACT_Q8;
}

/* A device's experts, from the choices to their weighted sum; on the primary with the shared
 * expert, whose result the sum adds. */
static void add_own_experts(plan *p, plan_side side, int layer) {
    const plan_experts *e = &p->experts[layer];
    const bool late = plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    const bool shared = e->shared && e->primary == side;
    if (side == SIDE_CPU) {
        if (e->predictor == PREDICTOR_SIGN) { /* reads int8, whatever the experts' matrices read */
            plan_step *s = plan_add_step(p, SIDE_CPU, OP_QUANTIZE, layer, BUF_Y);
            s->slot = PLAN_SLOT_PREDICTOR;
            plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
            s->act_kinds = 1u << CPU_ACT_Q8;
            s->act_width = p->model->hp.n_embd;
        }
        add_step(p, SIDE_CPU, OP_GROUP, layer, BUF_Y);
        add_step(p, SIDE_CPU, OP_EXPERTS_GATHER, layer, BUF_Y);
        if (e->fc1.w.data) {
            add_step(p, SIDE_CPU, OP_EXPERTS_FC1, layer, BUF_Y);
            add_step(p, SIDE_CPU, OP_EXPERTS_QUANTIZE, layer, BUF_EXPERT_PRED);
        }
        add_step(p, SIDE_CPU, OP_EXPERTS_IN, layer, BUF_Y);
        add_step(p, SIDE_CPU, OP_EXPERTS_QUANTIZE, layer, BUF_EXPERT_GATE);
        add_step(p, SIDE_CPU, OP_EXPERTS_DOWN, layer, BUF_EXPERT_GATE);
    } else if (e->hot > 0) {
        add_step(p, SIDE_GPU, OP_EXPERTS_IN, layer, BUF_Y);
        add_step(p, SIDE_GPU, OP_EXPERTS_DOWN, layer, BUF_EXPERT_GATE);
    }
    if (shared) add_shared(p, layer, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN);
    if (side == SIDE_GPU && e->hot == 0 && !shared && !(late && e->primary == SIDE_GPU)) return;
    const bool latent = e->in == BUF_EXPERT_LATENT;
    plan_step *sum = add_step(p, side, OP_EXPERTS_SUM, layer, BUF_EXPERT_OUT);
    sum->add_to_x = !latent && !late;
    sum->out = latent ? BUF_EXPERT_LATENT : sum->add_to_x ? BUF_X : plan_late_result(p, side);
}

/* Adds the sum of experts of a latent vector, and the shared expert. */
static void add_latent_result(plan *p, int layer) {
    const model_tensor *t = tensors_of(p, layer), *norm = &t[ROLE_EXPERT_LATENT_NORM];
    plan_side primary = p->splits[layer].primary;
    plan_buffer result = plan_late_result(p, primary);
    plan_step *s = plan_add_step(p, primary, OP_NORM, layer, BUF_EXPERT_LATENT);
    *STEP_ARGS(s, norm) = (args_norm){.kind = norm->data ? NORM_RMS : NORM_NONE,
                                      .width = p->model->hp.n_expert_embd,
                                      .eps = p->model->hp.norm_eps,
                                      .weight = norm->data};
    s->out = BUF_EXPERT_LATENT;
    s = plan_add_step(p, primary, OP_MATMUL, layer, BUF_EXPERT_LATENT);
    plan_add_matrix(p, s, ROLE_EXPERT_LATENT_OUT, ROLE_COUNT, result);
    plan_add_addition(p, primary, layer, result, ROLE_COUNT);
    if (t[ROLE_SHARED_DOWN].data) plan_add_addition(p, primary, layer, BUF_SHARED, ROLE_COUNT);
}

/* X += the adjugate experts of the experts' sum, which is in `sum`. The router's scores are those
 * of the experts. The layer's primary has all adjugate experts. No rows are skipped: their FFNs run
 * dense. */
static void add_adjugates(plan *p, int layer, plan_buffer sum) {
    static const plan_op on_cpu[] = {OP_GROUP, OP_EXPERTS_GATHER, OP_EXPERTS_IN,
                                     OP_EXPERTS_QUANTIZE, OP_EXPERTS_DOWN};
    static const plan_op on_gpu[] = {OP_EXPERTS_IN, OP_EXPERTS_DOWN};
    const model_hparams *hp = &p->model->hp;
    const int64_t n_ff = p->model->layers[layer].hp.n_ff_adjugate;
    const int n = hp->n_adjugate;
    plan_experts *e = &p->adjugates[layer];
    plan_side side = p->splits[layer].primary;
    bool gpu = side == SIDE_GPU;
    *e = (plan_experts){.mode = PI_MODE_DENSE,
                        .hot = gpu ? n : 0,
                        .primary = side,
                        .n_expert = n,
                        .n_used = hp->n_expert_used < n ? hp->n_expert_used : n,
                        .share = hp->adjugate_share,
                        .n_scored = hp->n_expert,
                        .n_ff = n_ff,
                        .n_embd = hp->n_embd,
                        .in = BUF_Y,
                        .up_rows = n_ff,
                        .gating = hp->gating,
                        .norm = hp->expert_norm,
                        .scale = hp->expert_scale,
                        .sum_scale = hp->adjugate_scale,
                        .perm = p->model->layers[layer].sparse.expert_perm};
    e->gate = first_expert(p, layer, ROLE_ADJUGATE_GATE, ROLE_COUNT, n_ff, BUF_EXPERT_GATE);
    e->up = first_expert(p, layer, ROLE_ADJUGATE_UP, ROLE_COUNT, n_ff, BUF_EXPERT_UP);
    e->down = first_expert(p, layer, ROLE_ADJUGATE_DOWN, ROLE_COUNT, hp->n_embd, BUF_EXPERT_OUT);
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, sum);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_NONE, .width = p->model->hp.n_embd};
    s->out = BUF_Y;
    set_input(side, e, s);
    add_step_of(p, side, OP_ROUTE, layer, BUF_ROUTER, e);
    for (size_t i = 0; i < (gpu ? sizeof on_gpu : sizeof on_cpu) / sizeof *on_cpu; i++) {
        plan_op op = gpu ? on_gpu[i] : on_cpu[i];
        bool hidden = op == OP_EXPERTS_QUANTIZE || op == OP_EXPERTS_DOWN;
        add_step_of(p, side, op, layer, hidden ? BUF_EXPERT_GATE : BUF_Y, e);
    }
    s = add_step_of(p, side, OP_EXPERTS_SUM, layer, BUF_EXPERT_OUT, e);
    s->add_to_x = true;
    s->out = BUF_X;
    p->expert_bytes += bytes_of_all(e);
}

void plan_add_beside_early(plan *p, int layer) {
    plan_side primary = p->splits[layer].primary;
    plan_add_norm(p, primary, layer, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
    add_shared(p, layer, ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN);
    plan_add_addition(p, primary, layer, BUF_SHARED, ROLE_COUNT);
    plan_add_addition(p, primary, layer, plan_late_result(p, primary), ROLE_COUNT);
}

void plan_prefetch_experts(plan *p, int layer) {
    if (p->model->arch->has & ARCH_ROUTER_EARLY) {
        plan_add_router(p, layer, BUF_X);
    } else if (tensors_of(p, layer)[ROLE_ROUTER_SCALE].data) {
        add_scaled_router(p, layer);
    } else {
        add_input_norm(p, layer);
        plan_add_router(p, layer, BUF_Y);
    }
    add_step(p, SIDE_CPU, OP_ROUTE, layer, BUF_ROUTER);
    add_step(p, SIDE_CPU, OP_PREFETCH_EXPERTS, layer, BUF_ROUTER);
}

void plan_add_experts(plan *p, int layer, const plan_options *options) {
    plan_experts *e = &p->experts[layer];
    const plan_side primary = p->splits[layer].primary;
    const plan_side secondary = primary == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    const model_tensor *t = tensors_of(p, layer);
    const bool early = p->model->arch->has & ARCH_ROUTER_EARLY;
    const bool scaled = t[ROLE_ROUTER_SCALE].data;
    const bool beside = t[ROLE_FFN_POST_NORM_1].data; /* an FFN next to the experts */
    describe(p, layer, options, e);
    const bool latent = e->in == BUF_EXPERT_LATENT;
    if ((e->mode != PI_MODE_DENSE || e->down_rows) && p->max_part_rows < PLAN_FFN_PART_ROWS)
        p->max_part_rows = PLAN_FFN_PART_ROWS;
    if (beside) { /* SHARED = its result, between separate norms */
        plan_add_norm(p, primary, layer, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
        add_shared(p, layer, ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN);
        plan_step *s = plan_add_norm(p, primary, layer, ROLE_FFN_POST_NORM_1, ROLE_FFN_NORM_BIAS);
        s->in = s->out = BUF_SHARED;
    }
    if (scaled) add_scaled_router(p, layer);
    plan_step *input = p->model->arch->residual_normed
                           ? plan_add_normed_residual(p, layer, ROLE_FFN_NORM)
                           : add_input_norm(p, layer);
    if (!latent) set_input(primary, e, input);
    if (!early && !scaled) plan_add_router(p, layer, BUF_Y);
    add_step(p, primary, OP_ROUTE, layer, BUF_ROUTER);
    if (latent) { /* the experts read a latent vector, the shared expert the block's input */
        plan_step *s = plan_add_step(p, primary, OP_MATMUL, layer, BUF_Y);
        plan_add_matrix(p, s, ROLE_EXPERT_LATENT_IN, ROLE_COUNT, BUF_EXPERT_LATENT);
        if (t[ROLE_SHARED_DOWN].data)
            add_shared(p, layer, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN);
        set_input(primary, e, plan_add_step(p, primary, OP_QUANTIZE, layer, BUF_EXPERT_LATENT));
    }
    if (e->split) { /* the secondary receives the input and the choices; it clears X to add to it */
        plan_message m = plan_add_message(p, primary, layer, e->in, e->in);
        args_message *send = STEP_ARGS(m.send, message), *receive = STEP_ARGS(m.receive, message);
        send->bits = receive->bits = true;
        send->experts = receive->experts = e;
        receive->clear_x = !plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
        set_input(secondary, e,
                  secondary == SIDE_GPU && !latent
                      ? m.receive
                      : plan_add_step(p, secondary, OP_QUANTIZE, layer, e->in));
        if (secondary == SIDE_CPU) add_step(p, secondary, OP_ROUTE, layer, BUF_ROUTER);
    }
    add_own_experts(p, primary, layer);
    if (e->split) {
        add_own_experts(p, secondary, layer);
        plan_message m = plan_add_answer(p, secondary, layer, false);
        if (latent) m.send->in = m.receive->out = e->in;
        STEP_ARGS(m.send, message)->experts = STEP_ARGS(m.receive, message)->experts = e;
    }
    p->expert_bytes += bytes_of_all(e);
    const int64_t words = (int64_t)GPU_CHOICE_WORDS * e->n_used;
    if (e->split || primary == SIDE_GPU) plan_need_bits(p, plan_device_of(p, layer), words);

    /* The sum of the experts, and of what is next to them, to X. */
    plan_buffer result = plan_late_result(p, primary);
    if (p->model->arch->experts_early) return; /* plan_add_beside_early */
    if (latent) {
        add_latent_result(p, layer);
        return;
    }
    if (beside) {
        plan_step *s = plan_add_addition(p, primary, layer, result, ROLE_EXPERT_POST_NORM);
        STEP_ARGS(s, add)->scale = 1;
        s->out = result = BUF_SHARED;
    }
    if (plan_adds_late(p, layer, ROLE_FFN_POST_NORM))
        plan_add_addition(p, primary, layer, result, ROLE_FFN_POST_NORM);
    if (t[ROLE_ADJUGATE_DOWN].data) add_adjugates(p, layer, result);
}
