/* plan_recurrent.c: the steps of a recurrent mixer.
 *
 *   matmul in -> conv -> [recur -> gate_ssm] -> quantize -> matmul out (X +=)
 *
 * Mamba-1 computes keys, queries and steps between convolution and recurrence.
 *
 * A matrix whose rows give several vectors is split into one matrix per vector. */
#include "plan_impl.h"

static void add_rows(const plan *p, plan_step *s, int64_t first, int64_t n, plan_buffer out) {
    plan_matrix whole = plan_make_matrix(p, s->layer, ROLE_SSM_IN, ROLE_COUNT, out);
    const plan_matrix part = plan_take_rows(&whole, first, n);
    plan_set_matrix(s, &part);
}

/* The matrix of a role, where the layer has it. */
static void add_matrix(const plan *p, plan_step *s, tensor_role role, plan_buffer out) {
    if (p->model->layers[s->layer].t[role].data) plan_add_matrix(p, s, role, ROLE_COUNT, out);
}

/* KDA: queries, keys and values next to each other; alphas and gates, in some models as two
 * products each, whose first results use buffers that are free at this point. */
static void add_kda(plan *p, plan_step *s) {
    static const tensor_role in[] = {ROLE_SSM_IN, ROLE_SSM_IN_K, ROLE_SSM_IN_V};
    static const struct {
        plan_buffer between, out;
        tensor_role first, second;
    } pairs[] = {{BUF_SSM_CONV, BUF_SSM_STEP, ROLE_SSM_ALPHA_A, ROLE_SSM_ALPHA_B},
                 {BUF_SSM_OUT, BUF_SSM_GATE, ROLE_SSM_GATE_A, ROLE_SSM_GATE_B}};
    int layer = s->layer;
    for (int i = 0; i < 3; i++) {
        add_matrix(p, s, in[i], BUF_SSM_IN);
        s->matrix[i].out_at = i * (int64_t)p->model->hp.n_inner;
    }
    add_matrix(p, s, ROLE_SSM_BETA, BUF_SSM_BETA);
    plan_side side = p->splits[layer].primary;
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    add_matrix(p, s, ROLE_SSM_ALPHA, BUF_SSM_STEP);
    add_matrix(p, s, ROLE_SSM_GATE, BUF_SSM_GATE);
    for (int i = 0; i < 2; i++) add_matrix(p, s, pairs[i].first, pairs[i].between);
    for (int i = 0; i < 2; i++) {
        if (!p->model->layers[layer].t[pairs[i].first].data) continue;
        plan_add_step(p, side, OP_QUANTIZE, layer, pairs[i].between);
        s = plan_add_step(p, side, OP_MATMUL, layer, pairs[i].between);
        add_matrix(p, s, pairs[i].second, pairs[i].out);
    }
}

void plan_add_recurrent_in(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    int64_t n = hp->n_embd, inner = hp->n_inner, conv = hp->n_conv;
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_MATMUL, layer, BUF_Y);
    switch (p->model->layers[layer].hp.mixers & MIXER_RECURRENT) {
    case MIXER_CONV:
        add_rows(p, s, 0, n, BUF_SSM_STEP);
        add_rows(p, s, n, n, BUF_SSM_GATE);
        add_rows(p, s, 2 * n, n, BUF_SSM_IN);
        break;
    case MIXER_SSM:
        add_rows(p, s, 0, inner, BUF_SSM_GATE);
        add_rows(p, s, inner, conv, BUF_SSM_IN);
        add_rows(p, s, inner + conv, hp->n_ssm_head, BUF_SSM_STEP);
        break;
    case MIXER_SCAN:
        add_rows(p, s, 0, inner, BUF_SSM_IN);
        add_rows(p, s, inner, inner, BUF_SSM_GATE);
        break;
    case MIXER_KDA:
        add_kda(p, s);
        break;
    default:
        add_matrix(p, s, ROLE_SSM_IN, BUF_SSM_IN);
        add_matrix(p, s, ROLE_SSM_GATE, BUF_SSM_GATE);
        add_matrix(p, s, ROLE_SSM_BETA_ALPHA, BUF_SSM_BETA);
        add_matrix(p, s, ROLE_SSM_BETA, BUF_SSM_BETA);
        add_matrix(p, s, ROLE_SSM_ALPHA, BUF_SSM_STEP);
    }
}

plan_recurrent *plan_describe_recurrent(plan *p, int layer) {
    plan_recurrent *out = &p->recurrent[layer];
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    bool heads = hp->n_ssm_head > 0;
    *out = (plan_recurrent){
        .mixer = l->hp.mixers & MIXER_RECURRENT,
        .n_taps = hp->n_taps,
        .dilation = 1,
        .n_conv = hp->n_conv,
        .taps = {l->t[ROLE_SSM_CONV].data, l->t[ROLE_SSM_CONV_K].data, l->t[ROLE_SSM_CONV_V].data},
        .conv_bias = l->t[ROLE_SSM_CONV_BIAS].data,
        .n_head = hp->n_ssm_head,
        .n_group = hp->n_ssm_group,
        .head_dim = heads ? hp->n_inner / hp->n_ssm_head : 0,
        .n_state = hp->n_state,
        .groups_alternate = p->model->arch->groups_alternate,
        .paired = l->t[ROLE_SSM_BETA_ALPHA].data,
        .sigmoid = p->model->arch->delta_sigmoid,
        .dt_bias = l->t[ROLE_SSM_DT_BIAS].data,
        .a = l->t[ROLE_SSM_A].data,
        .channels = l->hp.mixers & MIXER_SCAN && !p->model->arch->scan_heads,
        .d = l->t[ROLE_SSM_D].data,
        .norm = l->t[ROLE_SSM_NORM].data,
        .conv_at = p->n_state,
        .heads_at = p->n_state + model_conv_state(hp, &l->hp)};
    p->n_state += model_state(hp, &l->hp);
    return out;
}

/* Mamba-1: keys, queries and steps from the convolution's result. */
static void add_scan_inputs(plan *p, int layer) {
    static const struct {
        plan_buffer buffer;
        tensor_role norm;
    } parts[] = {{BUF_SSM_KEY, ROLE_SSM_B_NORM},
                 {BUF_SSM_QUERY, ROLE_SSM_C_NORM},
                 {BUF_SSM_LATENT, ROLE_SSM_DT_NORM}};
    const model_hparams *hp = &p->model->hp;
    const model_tensor *t = p->model->layers[layer].t;
    plan_side side = p->splits[layer].primary;
    int64_t n[] = {hp->n_state, hp->n_state, hp->n_step_rank};
    int64_t first = p->model->arch->scan_heads ? 0 : hp->n_step_rank; /* row of the first key */
    int64_t at[] = {first, first + hp->n_state, first > 0 ? 0 : 2 * (int64_t)hp->n_state};
    plan_add_step(p, side, OP_QUANTIZE, layer, BUF_SSM_CONV);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_SSM_CONV);
    for (int i = 0; i < 3; i++) {
        plan_matrix whole = plan_make_matrix(p, layer, ROLE_SSM_X, ROLE_COUNT, parts[i].buffer);
        const plan_matrix part = plan_take_rows(&whole, at[i], n[i]);
        plan_set_matrix(s, &part);
    }
    bool normed = hp->scan_norms || t[ROLE_SSM_DT_NORM].data;
    for (int i = 0; i < 3 && normed; i++) { /* the last one also quantizes */
        s = plan_add_step(p, side, OP_NORM, layer, parts[i].buffer);
        *STEP_ARGS(s, norm) = (args_norm){
            .kind = NORM_RMS, .width = n[i], .eps = hp->norm_eps, .weight = t[parts[i].norm].data};
        s->out = parts[i].buffer;
    }
    if (!normed) plan_add_step(p, side, OP_QUANTIZE, layer, BUF_SSM_LATENT);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_SSM_LATENT);
    add_matrix(p, s, ROLE_SSM_DT, BUF_SSM_STEP);
}

void plan_add_recurrent(plan *p, int layer) {
    static const plan_op ops[] = {OP_CONV, OP_RECUR, OP_GATE_SSM};
    static const plan_buffer in[] = {BUF_SSM_IN, BUF_SSM_CONV, BUF_SSM_OUT};
    const plan_recurrent *r = plan_describe_recurrent(p, layer);
    plan_side side = p->splits[layer].primary;
    bool late = plan_adds_late(p, layer, ROLE_ATTN_POST_NORM);
    for (int i = 0; i < (r->mixer == MIXER_CONV ? 1 : 3); i++) {
        plan_step *s = plan_add_step(p, side, ops[i], layer, in[i]);
        STEP_ARGS(s, recurrent)->mixer = r;
        if (ops[i] == OP_CONV && r->mixer == MIXER_SCAN) add_scan_inputs(p, layer);
    }
    plan_add_step(p, side, OP_QUANTIZE, layer, BUF_SSM_OUT);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_SSM_OUT);
    add_matrix(p, s, ROLE_SSM_OUT, BUF_Y);
    s->add_to_x = !late;
    if (late) plan_add_addition(p, side, layer, BUF_Y, ROLE_ATTN_POST_NORM);
}
