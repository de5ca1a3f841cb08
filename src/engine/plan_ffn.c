/* plan_ffn.c: the feed-forward half of a layer: which mode it runs in and the steps for it.
 *
 * Dense with a plain down matrix:   norm, FFN_IN (gate, up, activation), encode, matmul down
 * Everything else:                  [predictor: first product, encode], norm, FFN_NEURONS, then
 *   with a row of down per neuron:  encode (passes of many tokens only), FFN_DOWN
 *   with a plain down matrix:       encode, matmul down
 *
 * A mode that a layer lacks the data for becomes one that gives the exact answer: `exact` where
 * activations have exact zeros, else `dense`. */
#include <math.h>

#include "plan_build.h"

static bool has_exact_zeros(activation a) {
    return a == ACTIVATION_RELU || a == ACTIVATION_DRELU || a == ACTIVATION_RELU_SQUARED ||
           a == ACTIVATION_FATRELU;
}

/* NaN, a loss that was not measured, is not within any limit. */
static ffn_mode choose_auto(const model *m, const plan_options *o, bool can_predict, bool can_skip,
                            bool can_cut) {
    if (can_predict && (m->sparse.pwri || m->sparse.predict_loss <= o->max_loss))
        return FFN_PREDICT;
    if (can_skip) return FFN_EXACT;
    return can_cut && m->sparse.threshold_loss <= o->max_loss ? FFN_THRESHOLD : FFN_DENSE;
}

ffn_mode plan_choose_mode(const model *m, int layer, const plan_options *o) {
    const model_layer *l = &m->layers[layer];
    bool can_skip = has_exact_zeros(m->hp.activation);
    bool can_predict = can_skip && l->sparse.predictor != PREDICTOR_NONE &&
                       l->t[ROLE_FFN_DOWN_T].data;
    bool can_cut = !isnan(l->sparse.cut);
    ffn_mode exact = can_skip ? FFN_EXACT : FFN_DENSE;
    switch (o->mode) {
    case FFN_EXACT:
        return exact;
    case FFN_PREDICT:
        return can_predict ? FFN_PREDICT : exact;
    case FFN_THRESHOLD:
        return can_cut ? FFN_THRESHOLD : exact;
    case FFN_AUTO:
        return choose_auto(m, o, can_predict, can_skip, can_cut);
    default:
        return FFN_DENSE;
    }
}

static void set_norm(plan *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    /* In parallel layers both halves may share one norm. */
    bool own = t[ROLE_FFN_NORM].data;
    plan_step *s = plan_add_step(p, OP_NORM, layer, BUF_X);
    s->norm_weight = own ? t[ROLE_FFN_NORM].data : t[ROLE_ATTN_NORM].data;
    s->norm_bias = own ? t[ROLE_FFN_NORM_BIAS].data : t[ROLE_ATTN_NORM_BIAS].data;
}

/* Gate and up, or up alone where there is no gate: what decides comes first. */
static void add_neuron_matrices(plan *p, plan_step *s) {
    if (p->model->layers[s->layer].t[ROLE_FFN_GATE].data)
        plan_add_matrix(p, s, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
    bool gated = s->n_matrices > 0;
    plan_add_matrix(p, s, ROLE_FFN_UP, ROLE_FFN_UP_BIAS, gated ? BUF_UP : BUF_GATE);
}

static void add_plain_down(plan *p, int layer) {
    plan_add_step(p, OP_ENCODE, layer, BUF_GATE);
    plan_step *s = plan_add_step(p, OP_MATMUL, layer, BUF_GATE);
    plan_add_matrix(p, s, ROLE_FFN_DOWN, ROLE_FFN_DOWN_BIAS, BUF_Y);
    s->add_to_x = true;
}

static void add_dense(plan *p, int layer) {
    set_norm(p, layer);
    add_neuron_matrices(p, plan_add_step(p, OP_FFN_IN, layer, BUF_Y));
    add_plain_down(p, layer);
}

/* ---- neurons by need ------------------------------------------------------------------------- */

static void add_first_product(plan *p, int layer, plan_buffer in, bool relu) {
    plan_step *s = plan_add_step(p, OP_MATMUL, layer, in);
    plan_add_matrix(p, s, ROLE_FC1, ROLE_COUNT, BUF_PRED);
    s = plan_add_step(p, OP_ENCODE, layer, BUF_PRED);
    s->slot = PLAN_SLOT_PREDICTOR;
    s->relu = relu;
}

/* The normed input is in BUF_Y, and encoded, when this returns; so is what the predictor needs. */
static void add_predictor(plan *p, int layer, const plan_ffn *ffn) {
    bool low_rank = ffn->predictor == PREDICTOR_LOWRANK || ffn->predictor == PREDICTOR_RELU_MLP;
    bool relu = ffn->predictor == PREDICTOR_RELU_MLP;
    bool residual = p->model->layers[layer].sparse.predictor_residual;
    if (low_rank && residual) {
        plan_add_step(p, OP_ENCODE, layer, BUF_X);
        add_first_product(p, layer, BUF_X, relu);
    }
    set_norm(p, layer);
    if (low_rank && !residual) add_first_product(p, layer, BUF_Y, relu);
    if (ffn->predictor == PREDICTOR_SIGN) {
        plan_step *s = plan_add_step(p, OP_ENCODE, layer, BUF_Y);
        s->slot = PLAN_SLOT_PREDICTOR;
        s->layout = LAYOUT_COLUMNS;
        s->encode_kinds = 1u << CPU_ACT_Q8;
        s->encode_width = p->model->hp.n_embd;
    }
}

static void set_parts(plan_ffn *ffn) {
    int64_t n = ffn->n_ff / PLAN_FFN_PART_ROWS;
    n = n < 1 ? 1 : n > PLAN_FFN_MAX_PARTS ? PLAN_FFN_MAX_PARTS : n;
    int64_t rows = (ffn->n_ff + n - 1) / n;
    ffn->part_rows = (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
    ffn->n_parts = (int)((ffn->n_ff + ffn->part_rows - 1) / ffn->part_rows);
}

static void describe(plan *p, int layer, ffn_mode mode, const plan_options *o, plan_ffn *ffn) {
    const model_layer *l = &p->model->layers[layer];
    *ffn = (plan_ffn){.mode = mode, .n_ff = l->hp.n_ff, .cut = 0};
    if (mode == FFN_DENSE) ffn->cut = -1;
    if (mode == FFN_THRESHOLD) ffn->cut = l->sparse.cut;
    if (l->t[ROLE_FFN_DOWN_T].data)
        ffn->down = plan_make_matrix(p, layer, ROLE_FFN_DOWN_T, ROLE_FFN_DOWN_BIAS, BUF_Y);
    if (mode == FFN_PREDICT) {
        ffn->predictor = l->sparse.predictor;
        ffn->threshold = o->set_threshold ? o->threshold : p->model->sparse.predictor_threshold;
        ffn->score_bias = l->t[ROLE_FC2_BIAS].data;
        ffn->sign = l->t[ROLE_FFN_SIGN].data;
        if (ffn->predictor != PREDICTOR_SIGN)
            ffn->fc2 = plan_make_matrix(p, layer, ROLE_FC2, ROLE_COUNT, BUF_SCORE);
    }
    set_parts(ffn);
    if (ffn->part_rows > p->max_part_rows) p->max_part_rows = ffn->part_rows;
}

static void add_by_need(plan *p, int layer, ffn_mode mode, const plan_options *o) {
    plan_ffn *ffn = &p->ffn[layer];
    describe(p, layer, mode, o, ffn);
    add_predictor(p, layer, ffn);
    plan_step *s = plan_add_step(p, OP_FFN_NEURONS, layer, BUF_Y);
    add_neuron_matrices(p, s);
    s->ffn = ffn;
    ffn->neurons = s;
    if (!ffn->down.w.data) {
        add_plain_down(p, layer);
        return;
    }
    s = plan_add_step(p, OP_ENCODE, layer, BUF_GATE);
    s->layout = LAYOUT_TILED;
    s->ffn = ffn;
    s = plan_add_step(p, OP_FFN_DOWN, layer, BUF_GATE);
    s->ffn = ffn;
    s->weight_bytes = ffn->down.row_size * (uint64_t)ffn->n_ff;
}

void plan_add_ffn(plan *p, int layer, const plan_options *options) {
    ffn_mode mode = plan_choose_mode(p->model, layer, options);
    p->ffn[layer].mode = mode;
    if (mode == FFN_DENSE && p->model->layers[layer].t[ROLE_FFN_DOWN].data)
        add_dense(p, layer);
    else
        add_by_need(p, layer, mode, options);
}
