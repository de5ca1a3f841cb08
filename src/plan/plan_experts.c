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

static const float *scales_of(const plan *p, int layer, tensor_role role) {
    return tensors_of(p, layer)[role].scales;
}

/* A matrix of all experts, given as the matrix of the first one; biases of the others follow. */
static plan_matrix first_expert(const plan *p, int layer, tensor_role role, tensor_role bias,
                                int64_t rows, plan_buffer out) {
    plan_matrix m = plan_make_matrix(p, layer, role, bias, out);
    m.w.n_out = rows;
    return m;
}

/* Gate and up in one tensor: contiguous for every expert. */
static void set_gate_and_up(const plan *p, int layer, plan_experts *e) {
    const model_tensor *t = tensors_of(p, layer);
    bool fused = t[ROLE_EXPERT_GATE_UP].data;
    tensor_role gate = fused ? ROLE_EXPERT_GATE_UP : ROLE_EXPERT_GATE;
    tensor_role up = fused ? ROLE_EXPERT_GATE_UP : ROLE_EXPERT_UP;
    e->up_rows = fused ? 2 * e->n_ff : e->n_ff;
    if (t[gate].data)
        e->gate = first_expert(p, layer, gate, fused ? ROLE_COUNT : ROLE_EXPERT_GATE_BIAS, e->n_ff,
                               BUF_EXPERT_GATE);
    e->up = first_expert(p, layer, up, fused ? ROLE_COUNT : ROLE_EXPERT_UP_BIAS, e->n_ff,
                         t[gate].data ? BUF_EXPERT_UP : BUF_EXPERT_GATE);
    if (fused) e->up.w.data = (const uint8_t *)e->up.w.data + (size_t)e->n_ff * e->up.w.row_bytes;
    e->gate_scales = scales_of(p, layer, gate);
    e->up_scales = scales_of(p, layer, up);
}

/* Down as stored in the file. */
static void set_down(const plan *p, int layer, plan_experts *e) {
    tensor_role role = tensors_of(p, layer)[ROLE_EXPERT_DOWN_T].data ? ROLE_EXPERT_DOWN_T
                                                                     : ROLE_EXPERT_DOWN;
    e->down_rows = role == ROLE_EXPERT_DOWN_T;
    e->down = first_expert(p, layer, role, ROLE_EXPERT_DOWN_BIAS,
                           e->down_rows ? e->n_ff : e->n_embd, BUF_EXPERT_OUT);
    e->down_scales = scales_of(p, layer, role);
}

static void set_predictor(const plan *p, int layer, const plan_options *o, plan_experts *e) {
    const model_layer *l = &p->model->layers[layer];
    e->predictor = l->sparse.predictor;
    e->score_bias = l->t[ROLE_EXPERT_FC2_BIAS].data;
    e->threshold = o->set_threshold ? o->threshold : p->model->sparse.predictor_threshold;
    e->sign = l->t[ROLE_EXPERT_SIGN].data;
    if (e->predictor == PREDICTOR_SIGN) return;
    e->fc1 = first_expert(p, layer, ROLE_EXPERT_FC1, ROLE_COUNT, l->sparse.rank, BUF_EXPERT_PRED);
    e->fc2 = first_expert(p, layer, ROLE_EXPERT_FC2, ROLE_COUNT, e->n_ff, BUF_EXPERT_UP);
}

static void describe(const plan *p, int layer, pi_mode mode, plan_experts *e) {
    const model_hparams *hp = &p->model->hp;
    const model_tensor *t = tensors_of(p, layer);
    const plan_split *split = &p->splits[layer];
    bool scaled = t[ROLE_SHARED_DOWN].data && p->model->arch->shared_scale > 0;
    bool latent = t[ROLE_EXPERT_LATENT_IN].data;
    *e = (plan_experts){.mode = mode,
                        .hot = split->hot,
                        .primary = split->primary,
                        .split = split->primary == SIDE_GPU ? split->hot < hp->n_expert
                                                            : split->hot > 0,
                        .n_expert = hp->n_expert,
                        .n_used = hp->n_expert_used,
                        .n_group = hp->n_expert_group,
                        .n_group_used = hp->n_group_used,
                        .n_ff = p->model->layers[layer].hp.n_ff_expert,
                        .n_embd = hp->n_expert_embd,
                        .in = latent ? BUF_EXPERT_LATENT : BUF_Y,
                        .gating = hp->gating,
                        .norm = hp->expert_norm,
                        .scale = hp->expert_scale,
                        .n_scored = hp->n_expert,
                        .weigh_input = p->model->arch->has & ARCH_EXPERT_INPUT,
                        .sum_scale = scaled ? p->model->arch->shared_scale : 1,
                        .perm = p->model->layers[layer].sparse.expert_perm,
                        .by_token = t[ROLE_ROUTER_TABLE].data,
                        .select_bias = t[ROLE_ROUTER_SELECT_BIAS].data,
                        .shared_router = t[ROLE_SHARED_ROUTER].data,
                        .shared = t[ROLE_SHARED_DOWN].data && !latent};
    set_gate_and_up(p, layer, e);
    set_down(p, layer, e);
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

static bool has_beside(const plan *p, int layer) {
    return tensors_of(p, layer)[ROLE_FFN_POST_NORM_1].data;
}

/* An FFN between separate norms; the normed sum of the experts is added to its result. */
static void add_beside(plan *p, int layer) {
    plan_side primary = p->splits[layer].primary;
    plan_add_norm(p, primary, layer, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
    add_shared(p, layer, ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN);
    plan_step *s = plan_add_norm(p, primary, layer, ROLE_FFN_POST_NORM_1, ROLE_FFN_NORM_BIAS);
    s->in = s->out = BUF_SHARED;
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

/* The scores of a `sign` predictor read the norm's output in int8 form, whatever the experts'
 * matrices read. */
static void add_sign_input(plan *p, int layer) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_QUANTIZE, layer, BUF_Y);
    s->slot = PLAN_SLOT_PREDICTOR;
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    s->act_kinds = 1u << CPU_ACT_Q8;
    s->act_width = p->model->hp.n_embd;
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

/* The GPU's experts read the quantized input in all forms. */
static void quantize_for_gpu(const plan_experts *e, plan_step *s) {
    plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    s->act_width = e->n_embd;
    if (gpu_type_wants_q8(e->up.w.type) || gpu_type_wants_q8(e->gate.w.type))
        s->act_kinds |= 1u << CPU_ACT_Q8;
}

/* The step that quantizes the experts' input on a device. */
static void set_input(plan_side side, plan_experts *e, plan_step *s) {
    if (side == SIDE_GPU) {
        quantize_for_gpu(e, s);
    } else {
        s->act_width = e->n_embd;
        e->norm_step = s;
    }
}

static void add_sum(plan *p, plan_side side, int layer) {
    plan_step *s = add_step(p, side, OP_EXPERTS_SUM, layer, BUF_EXPERT_OUT);
    bool latent = p->experts[layer].in == BUF_EXPERT_LATENT;
    s->add_to_x = !latent && !plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    s->out = latent ? BUF_EXPERT_LATENT : s->add_to_x ? BUF_X : plan_late_result(p, side);
}

static void add_cpu_experts(plan *p, int layer) {
    const plan_experts *e = &p->experts[layer];
    if (e->predictor == PREDICTOR_SIGN) add_sign_input(p, layer);
    add_step(p, SIDE_CPU, OP_GROUP, layer, BUF_Y);
    add_step(p, SIDE_CPU, OP_EXPERTS_GATHER, layer, BUF_Y);
    if (e->fc1.w.data) {
        add_step(p, SIDE_CPU, OP_EXPERTS_FC1, layer, BUF_Y);
        add_step(p, SIDE_CPU, OP_EXPERTS_QUANTIZE, layer, BUF_EXPERT_PRED);
    }
    add_step(p, SIDE_CPU, OP_EXPERTS_IN, layer, BUF_Y);
    add_step(p, SIDE_CPU, OP_EXPERTS_QUANTIZE, layer, BUF_EXPERT_GATE);
    add_step(p, SIDE_CPU, OP_EXPERTS_DOWN, layer, BUF_EXPERT_GATE);
    if (e->shared && e->primary == SIDE_CPU)
        add_shared(p, layer, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN);
    add_sum(p, SIDE_CPU, layer);
}

static void add_gpu_experts(plan *p, int layer) {
    const plan_experts *e = &p->experts[layer];
    bool primary = e->primary == SIDE_GPU, late = plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    if (e->hot > 0) {
        add_step(p, SIDE_GPU, OP_EXPERTS_IN, layer, BUF_Y);
        add_step(p, SIDE_GPU, OP_EXPERTS_DOWN, layer, BUF_EXPERT_GATE);
    }
    if (e->shared && primary)
        add_shared(p, layer, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN);
    if (e->hot > 0 || (primary && (e->shared || late))) add_sum(p, SIDE_GPU, layer);
}

static void add_own_experts(plan *p, plan_side side, int layer) {
    if (side == SIDE_CPU)
        add_cpu_experts(p, layer);
    else
        add_gpu_experts(p, layer);
}

/* Sends the input and the choices to the secondary device, which clears X if it accumulates
 * there. */
static void add_arrival(plan *p, plan_side primary, plan_side secondary, int layer) {
    const plan_buffer in = p->experts[layer].in;
    plan_message m = plan_add_message(p, primary, layer, in, in);
    args_message *send = STEP_ARGS(m.send, message), *receive = STEP_ARGS(m.receive, message);
    send->bits = receive->bits = true;
    send->experts = receive->experts = &p->experts[layer];
    receive->clear_x = !plan_adds_late(p, layer, ROLE_FFN_POST_NORM);
    set_input(secondary, &p->experts[layer],
              secondary == SIDE_GPU && in == BUF_Y
                  ? m.receive
                  : plan_add_step(p, secondary, OP_QUANTIZE, layer, in));
    if (secondary == SIDE_CPU) add_step(p, secondary, OP_ROUTE, layer, BUF_ROUTER);
}

static void add_adjugates(plan *p, int layer, plan_buffer sum);

/* Experts of a latent vector: that vector in quantized form, and the shared expert, which reads the
 * block's input. */
static void add_latent(plan *p, int layer) {
    plan_side primary = p->splits[layer].primary;
    plan_step *s = plan_add_step(p, primary, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_EXPERT_LATENT_IN, ROLE_COUNT, BUF_EXPERT_LATENT);
    if (tensors_of(p, layer)[ROLE_SHARED_DOWN].data)
        add_shared(p, layer, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN);
    set_input(primary, &p->experts[layer],
              plan_add_step(p, primary, OP_QUANTIZE, layer, BUF_EXPERT_LATENT));
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

/* Adds the remaining parts to X: the sum of the experts, and the parallel FFN. */
static void add_result(plan *p, int layer) {
    plan_side primary = p->splits[layer].primary;
    plan_buffer result = plan_late_result(p, primary);
    if (p->model->arch->experts_early) return; /* plan_add_beside_early */
    if (p->experts[layer].in == BUF_EXPERT_LATENT) {
        add_latent_result(p, layer);
        return;
    }
    if (has_beside(p, layer)) {
        plan_step *s = plan_add_addition(p, primary, layer, result, ROLE_EXPERT_POST_NORM);
        STEP_ARGS(s, add)->scale = 1;
        s->out = result = BUF_SHARED;
    }
    if (plan_adds_late(p, layer, ROLE_FFN_POST_NORM))
        plan_add_addition(p, primary, layer, result, ROLE_FFN_POST_NORM);
    if (tensors_of(p, layer)[ROLE_ADJUGATE_DOWN].data) add_adjugates(p, layer, result);
}

/* The layer's primary has all adjugate experts. No rows are skipped: their FFNs run dense. */
static void describe_adjugates(const plan *p, int layer, plan_experts *e) {
    const model_hparams *hp = &p->model->hp;
    int64_t n_ff = p->model->layers[layer].hp.n_ff_adjugate;
    plan_side side = p->splits[layer].primary;
    *e = (plan_experts){.mode = PI_MODE_DENSE,
                        .hot = side == SIDE_GPU ? hp->n_adjugate : 0,
                        .primary = side,
                        .n_expert = hp->n_adjugate,
                        .n_used = hp->n_expert_used < hp->n_adjugate ? hp->n_expert_used
                                                                     : hp->n_adjugate,
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
}

/* X += the adjugate experts of the experts' sum, which is in `sum`. The router's scores are those
 * of the experts. */
static void add_adjugates(plan *p, int layer, plan_buffer sum) {
    static const plan_op on_cpu[] = {OP_GROUP, OP_EXPERTS_GATHER, OP_EXPERTS_IN,
                                     OP_EXPERTS_QUANTIZE, OP_EXPERTS_DOWN};
    static const plan_op on_gpu[] = {OP_EXPERTS_IN, OP_EXPERTS_DOWN};
    plan_experts *e = &p->adjugates[layer];
    plan_side side = p->splits[layer].primary;
    bool gpu = side == SIDE_GPU;
    describe_adjugates(p, layer, e);
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
    plan_side primary = p->splits[layer].primary,
              secondary = primary == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    const model_tensor *t = tensors_of(p, layer);
    bool early = p->model->arch->has & ARCH_ROUTER_EARLY;
    bool scaled = t[ROLE_ROUTER_SCALE].data;
    describe(p, layer, plan_choose_mode(p->model, layer, options), e);
    if (e->mode == PI_MODE_PREDICT) set_predictor(p, layer, options, e);
    if ((e->mode != PI_MODE_DENSE || e->down_rows) && p->max_part_rows < PLAN_FFN_PART_ROWS)
        p->max_part_rows = PLAN_FFN_PART_ROWS;
    if (has_beside(p, layer)) add_beside(p, layer);
    if (scaled) add_scaled_router(p, layer);
    plan_step *input = p->model->arch->residual_normed
                           ? plan_add_normed_residual(p, layer, ROLE_FFN_NORM)
                           : add_input_norm(p, layer);
    if (e->in == BUF_Y) set_input(primary, e, input);
    if (!early && !scaled) plan_add_router(p, layer, BUF_Y);
    add_step(p, primary, OP_ROUTE, layer, BUF_ROUTER);
    if (e->in == BUF_EXPERT_LATENT) add_latent(p, layer);
    if (e->split) add_arrival(p, primary, secondary, layer);
    add_own_experts(p, primary, layer);
    if (e->split) {
        add_own_experts(p, secondary, layer);
        plan_message m = plan_add_answer(p, secondary, layer, false);
        if (e->in == BUF_EXPERT_LATENT) m.send->in = m.receive->out = e->in;
        STEP_ARGS(m.send, message)->experts = STEP_ARGS(m.receive, message)->experts = e;
    }
    add_result(p, layer);
    p->expert_bytes += bytes_of_all(e);
    int64_t words = (int64_t)GPU_CHOICE_WORDS * e->n_used;
    if (e->split || primary == SIDE_GPU) plan_need_bits(p, plan_device_of(p, layer), words);
}
