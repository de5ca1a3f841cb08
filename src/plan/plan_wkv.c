/* plan_wkv.c: RWKV's mixers, and the input of its FFNs.
 *
 *   norm -> [shift -> matmul, tanh -> heads] -> shift -> for every product: quantize -> matmul
 *   -> wkv -> quantize -> matmul out (X +=)
 *
 * The first steps are RWKV-6's: the weights of the shift depend on the token. Some matrices are
 * products of two. FFN: norm -> shift [-> quantize -> matmul receptance] -> quantize. */
#include "plan_impl.h"

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
