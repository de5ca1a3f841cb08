/* plan_recurrent.c: recurrent mixers: short convolutions, Mamba, linear attention; RWKV at the end.
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

/* ---- RWKV: its mixers, and the input of its FFNs --------------------------------------------- */

/*   norm -> [shift -> matmul, tanh -> heads] -> shift -> for every product: quantize -> matmul
 *   -> wkv -> quantize -> matmul out (X +=)
 *
 * The first steps are RWKV-6's: the weights of the shift depend on the token. Some matrices are
 * products of two. FFN: norm -> shift [-> quantize -> matmul receptance] -> quantize. */

/* A matrix product with the whole `in`, or with its n_embd floats from `at` on. */
static plan_step *add_product(plan *p, int layer, plan_buffer in, int64_t at, tensor_role role,
                              tensor_role bias, plan_buffer out) {
    plan_add_step(p, SIDE_CPU, OP_QUANTIZE, layer, in)->in_at = at;
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_MATMUL, layer, in);
    s->in_at = at;
    plan_add_matrix(p, s, role, bias, out);
    return s;
}

typedef enum squash { SQUASH_NONE, SQUASH_TANH, SQUASH_SIGMOID } squash;

/* A matrix that is a product of two: B f(A in) + bias. */
static void add_low_rank(plan *p, int layer, int64_t at, tensor_role first, tensor_role second,
                         tensor_role bias, squash f, plan_buffer out) {
    add_product(p, layer, BUF_SHIFT, at, first, ROLE_COUNT, BUF_SSM_CONV);
    add_product(p, layer, BUF_SSM_CONV, 0, second, bias, out);
    args_quantize *a = STEP_ARGS(&p->steps[p->n_steps - 2], quantize);
    a->tanh = f == SQUASH_TANH;
    a->sigmoid = f == SQUASH_SIGMOID;
}

/* `at`: offset of the previous token's input in a session's state. */
static args_shift *add_shift(plan *p, int layer, plan_buffer in, plan_buffer out, int64_t at) {
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_SHIFT, layer, in);
    s->out = out;
    STEP_ARGS(s, shift)->at = at;
    return STEP_ARGS(s, shift);
}

static void add_weights(args_shift *a, const model_layer *l, tensor_role role) {
    const model_tensor *t = &l->t[role];
    for (int64_t i = 0; i < t->n_out && t->data; i++)
        a->weights[a->n++] = (const float *)t->data + i * t->n_in;
}

/* RWKV-6: computes the part of the weights that depends on the token, in SHIFT. */
static void add_token_weights(plan *p, int layer, int64_t at) {
    const model_layer *l = &p->model->layers[layer];
    const int64_t n_embd = p->model->hp.n_embd, rank = l->t[ROLE_SSM_SHIFT_B].n_in;
    add_weights(add_shift(p, layer, BUF_Y, BUF_SSM_CONV, at), l, ROLE_SSM_SHIFT_X);
    add_product(p, layer, BUF_SSM_CONV, 0, ROLE_SSM_SHIFT_A, ROLE_COUNT, BUF_SSM_LATENT);
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_QUANTIZE, layer, BUF_SSM_LATENT);
    STEP_ARGS(s, quantize)->tanh = true;
    s->act_width = 5 * rank; /* the next step quantizes */
    args_heads *heads = plan_add_heads(p, layer, BUF_SSM_LATENT, ROLE_SSM_SHIFT_B, BUF_SHIFT, 5);
    heads->in = (plan_part){.stride = rank};
    heads->out = (plan_part){.stride = n_embd};
}

void plan_add_wkv(plan *p, int layer) {
    enum { R, W, K, V, A, G, INPUTS };
    static const int rows_of_7[INPUTS] = {0, 1, 2, 3, 4, 5}, rows_of_6[INPUTS] = {3, 0, 1, 2, 0, 4};
    static const struct {
        int input;
        tensor_role role, bias;
        plan_buffer out;
    } plain[] = {{R, ROLE_SSM_IN, ROLE_SSM_IN_BIAS, BUF_SSM_QUERY},
                 {K, ROLE_SSM_IN_K, ROLE_SSM_IN_K_BIAS, BUF_SSM_KEY},
                 {V, ROLE_SSM_IN_V, ROLE_SSM_IN_V_BIAS, BUF_SSM_IN}};
    const int64_t n = p->model->hp.n_embd;
    const model_layer *l = &p->model->layers[layer];
    plan_recurrent *r = plan_describe_recurrent(p, layer);
    r->wkv = (struct plan_wkv){.erase = l->t[ROLE_SSM_ERASE].data,
                               .rate_key = l->t[ROLE_SSM_RATE_KEY].data,
                               .bonus = l->t[ROLE_SSM_BONUS].data,
                               .norm_bias = l->t[ROLE_SSM_NORM_BIAS].data,
                               .keeps = layer == 0,
                               .gated = l->t[ROLE_SSM_GATE].data || l->t[ROLE_SSM_GATE_B].data,
                               .ffn_at = r->heads_at + r->n_head * r->head_dim * r->n_state};
    const bool is_7 = r->wkv.erase;
    const int *row = is_7 ? rows_of_7 : rows_of_6;
    if (!is_7) add_token_weights(p, layer, r->conv_at);
    args_shift *shift = add_shift(p, layer, BUF_Y, BUF_SHIFT, r->conv_at);
    add_weights(shift, l, ROLE_SSM_SHIFT);
    for (int i = ROLE_SSM_SHIFT_W; shift->n < 5 && i <= ROLE_SSM_SHIFT_G; i++)
        add_weights(shift, l, (tensor_role)i);
    shift->added = !is_7;
    shift->keeps = true;
    for (int i = 0; i < 3; i++)
        add_product(p, layer, BUF_SHIFT, row[plain[i].input] * n, plain[i].role, plain[i].bias,
                    plain[i].out);
    add_low_rank(p, layer, row[W] * n, ROLE_SSM_ALPHA_A, ROLE_SSM_ALPHA_B, ROLE_SSM_DT_BIAS,
                 SQUASH_TANH, BUF_SSM_STEP);
    if (is_7)
        add_low_rank(p, layer, row[A] * n, ROLE_SSM_RATE_A, ROLE_SSM_RATE_B, ROLE_SSM_RATE_BIAS,
                     SQUASH_NONE, BUF_SSM_BETA);
    if (is_7 && layer > 0)
        add_low_rank(p, layer, row[V] * n, ROLE_SSM_FIRST_A, ROLE_SSM_FIRST_B, ROLE_SSM_FIRST_BIAS,
                     SQUASH_NONE, BUF_SSM_LATENT);
    if (l->t[ROLE_SSM_GATE].data)
        add_product(p, layer, BUF_SHIFT, row[G] * n, ROLE_SSM_GATE, ROLE_COUNT, BUF_SSM_GATE);
    else if (r->wkv.gated)
        add_low_rank(p, layer, row[G] * n, ROLE_SSM_GATE_A, ROLE_SSM_GATE_B, ROLE_COUNT,
                     SQUASH_SIGMOID, BUF_SSM_GATE);
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_WKV, layer, BUF_SSM_QUERY);
    STEP_ARGS(s, recurrent)->mixer = r;
    add_product(p, layer, BUF_SSM_OUT, 0, ROLE_SSM_OUT, ROLE_COUNT, BUF_Y)->add_to_x = true;
}

plan_step *plan_add_ffn_shift(plan *p, int layer, plan_step *norm) {
    const model_layer *l = &p->model->layers[layer];
    const int64_t at = p->recurrent[layer].wkv.ffn_at;
    norm->out = BUF_SSM_IN;
    if (l->t[ROLE_FFN_RECEPTANCE].data) {
        add_weights(add_shift(p, layer, BUF_SSM_IN, BUF_SHIFT, at), l, ROLE_FFN_SHIFT_R);
        add_product(p, layer, BUF_SHIFT, 0, ROLE_FFN_RECEPTANCE, ROLE_COUNT, BUF_ATTN_GATE);
    }
    args_shift *shift = add_shift(p, layer, BUF_SSM_IN, BUF_Y, at);
    add_weights(shift, l, ROLE_FFN_SHIFT);
    shift->keeps = true;
    return plan_add_step(p, SIDE_CPU, OP_QUANTIZE, layer, BUF_Y);
}
