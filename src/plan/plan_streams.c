/* plan_streams.c: several residual streams (AltUp; Baykal et al. 2023, arXiv 2301.13310) and a
 * low-rank branch (LAuReL; Menghani et al. 2024, arXiv 2411.07501), as in Gemma 3n.
 *
 * Between layers BUF_STREAMS has a token's n streams and moves between devices; a layer computes
 * stream 0 in BUF_X as in any other model. A router computes n numbers in (-1, 1) from a stream:
 * r(x) = tanh(W norm(x) / n_embd). A layer begins with OP_PREDICT and ends with OP_CORRECT:
 *
 *   p_a = x_a + sum_b (P r(x_0))_ab x_b          into BUF_STREAMS, p_0 also into X
 *   y   = the layer's result for p_0             in X
 *   x_a = p_a + (1 + (C r(y))_a) (y - p_0)
 *
 * The layer's own embedding (plan_layer.c), computed from x_0, is added to all streams except
 * x_0. Before the layers OP_SPREAD computes x_a from x_0. After the layers OP_MERGE computes X, the
 * mean of x_0 and the other streams, each multiplied by its matrix. Both rescale the products to
 * the norm of x_0.
 *
 * With hyper-connections (Zhu et al. 2024, arXiv 2409.19606) each block reads a weighted sum of the
 * streams, x, and adds its result to every stream with a weight. All weights come from a projection
 * of all streams, normed together; streams begin as copies of the embedding:
 *
 *   norm -> matmul fn -> hyper_in -> [the block, without x +=] -> hyper_out
 *
 * Gated hyper-connections (Qwen4): each stream is normed separately, x is the mean of the normed
 * streams, each element times a gate, and a projection of low rank gives the gates:
 *
 *   norm -> matmul down,inject -> quantize (SiLU) -> matmul up -> hyper_mean -> [the block]
 *   -> hyper_out
 *
 * One layer of Qwen4 also adds embeddings of n-grams to the streams, before its attention block:
 *
 *   ngram_rows -> quantize -> matmul key,value -> ngram_gate -> ngram_conv
 *
 * DeepSeek-V4 also mixes the streams in hyper_out, with a matrix of weights whose rows and columns
 * each sum to nearly 1 (Xie et al. 2025, arXiv 2512.24880).
 *
 * With attention over earlier residuals (Kimi K3) stream 0 is the residual stream. In every
 * past_period-th layer it is copied to the next stream and begins anew with the attention block's
 * result. Each block reads the sum of all values so far, s_k, with weights softmax(norm(s_k) . w):
 *
 *   past_in -> [the block, without x +=] -> past_out
 *
 * The low-rank branch, with the normed input y: x + y + norm(B A y) + attention, over sqrt(2). */
#include <math.h>

#include "plan_impl.h"

bool plan_has_streams(const plan *p) {
    return p->model->hp.n_stream > 1 && !plan_sums_streams(p);
}

void plan_add_spread(plan *p) {
    plan_add_step(p, SIDE_CPU, OP_QUANTIZE, -1, BUF_X);
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_MATMUL, -1, BUF_X);
    plan_add_matrix(p, s, ROLE_STREAM_PROJ, ROLE_COUNT, BUF_STREAMS);
    s->matrix[0].out_at = p->model->hp.n_embd;
    plan_add_step(p, SIDE_CPU, OP_SPREAD, -1, BUF_STREAMS);
}

/* The router's product of a stream, in BUF_ROUTER. */
static void add_router(plan *p, int layer, plan_buffer of) {
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_norm(p, side, layer, ROLE_STREAM_ROUTER_NORM, ROLE_ATTN_NORM_BIAS);
    s->in = of;
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_STREAM_ROUTER, ROLE_COUNT, BUF_ROUTER);
    s->matrix[0].scale /= (float)p->model->hp.n_embd;
}

void plan_add_prediction(plan *p, int layer) {
    add_router(p, layer, BUF_STREAMS);
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_PREDICT, layer, BUF_STREAMS);
    STEP_ARGS(s, mix)->coefficients = p->model->layers[layer].t[ROLE_STREAM_PREDICT].data;
}

void plan_add_correction(plan *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    add_router(p, layer, BUF_X);
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_CORRECT, layer, BUF_STREAMS);
    *STEP_ARGS(s, mix) = (args_mix){.coefficients = t[ROLE_STREAM_CORRECT].data,
                                    .scale = t[ROLE_STREAM_CORRECT_SCALE].data};
}

/* Each other stream has a matrix; a separate step quantizes the stream. */
void plan_add_merge(plan *p) {
    int64_t n_embd = p->model->hp.n_embd;
    const plan_matrix all = plan_make_matrix(p, -1, ROLE_STREAM_UNEMBD, ROLE_COUNT, BUF_GATE);
    for (int k = 1; k < p->model->hp.n_stream; k++) {
        plan_add_step(p, p->head, OP_QUANTIZE, -1, BUF_STREAMS)->in_at = k * n_embd;
        plan_step *s = plan_add_step(p, p->head, OP_MATMUL, -1, BUF_STREAMS);
        s->in_at = k * n_embd;
        plan_matrix one = plan_take_rows(&all, (k - 1) * n_embd, n_embd);
        one.out_at = (k - 1) * n_embd;
        plan_set_matrix(s, &one);
    }
    plan_add_step(p, p->head, OP_MERGE, -1, BUF_GATE);
}

/* Adds the branch to X immediately, because no step reads X or Y before attention's result. */
void plan_add_branch(plan *p, int layer) {
    plan_side side = p->splits[layer].primary;
    plan_add_addition(p, side, layer, BUF_Y, ROLE_COUNT);
    plan_add_step(p, side, OP_QUANTIZE, layer, BUF_GATE);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, BUF_GATE);
    plan_add_matrix(p, s, ROLE_LAUREL_B, ROLE_COUNT, BUF_Y);
    plan_add_addition(p, side, layer, BUF_Y, ROLE_LAUREL_NORM);
}

void plan_add_hyper_start(plan *p) {
    plan_add_step(p, SIDE_CPU, OP_HYPER_START, -1, BUF_X)->out = BUF_STREAMS;
}

/* The tensors of gated hyper-connections of a block. */
static tensor_role first_of_gated(tensor_role fn) {
    return fn == ROLE_HYPER_ATTN  ? ROLE_HYPER_ATTN_NORM
           : fn == ROLE_HYPER_FFN ? ROLE_HYPER_FFN_NORM
                                  : ROLE_HYPER_HEAD_NORM;
}

/* Weights of the block's result are where others have them in BUF_HYPER. */
static void add_gated_hyper_in(plan *p, plan_side side, int layer, tensor_role norm) {
    const model_hparams *hp = &p->model->hp;
    const model_tensor *t = layer < 0 ? p->model->t : p->model->layers[layer].t;
    const tensor_role down = norm + 1, up = norm + 2, inject = norm + 3;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_STREAMS);
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_RMS,
                                      .width = hp->n_embd,
                                      .n = hp->n_stream,
                                      .eps = hp->norm_eps,
                                      .weight = t[norm].data};
    s->out = BUF_HYPER_IN;
    if (side == SIDE_GPU) plan_add_step(p, side, OP_QUANTIZE, layer, BUF_HYPER_IN);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_HYPER_IN);
    plan_matrix m = plan_make_matrix(p, layer, down, ROLE_COUNT, BUF_HYPER_LOW);
    m.scale /= (float)hp->n_stream;
    plan_set_matrix(s, &m);
    if (layer >= 0) {
        m = plan_make_matrix(p, layer, inject, ROLE_COUNT, BUF_HYPER);
        m.scale /= (float)hp->n_stream;
        m.out_at = hp->n_stream;
        plan_set_matrix(s, &m);
    }
    s = plan_add_step(p, side, OP_QUANTIZE, layer, BUF_HYPER_LOW);
    STEP_ARGS(s, quantize)->silu = true;
    if (side == SIDE_GPU) plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_HYPER_LOW);
    m = plan_make_matrix(p, layer, up, ROLE_COUNT, BUF_HYPER_GATE);
    plan_set_matrix(s, &m);
    plan_add_step(p, side, OP_HYPER_MEAN, layer, BUF_HYPER_IN);
}

void plan_add_hyper_in(plan *p, plan_side side, int layer, tensor_role fn) {
    if (p->model->hp.hyper_rank > 0) {
        add_gated_hyper_in(p, side, layer, first_of_gated(fn));
        return;
    }
    const model_tensor *t = layer < 0 ? p->model->t : p->model->layers[layer].t;
    plan_step *s = plan_add_step(p, side, OP_NORM, layer, BUF_STREAMS);
    *STEP_ARGS(s, norm) = (args_norm){
        .kind = NORM_RMS, .width = plan_residual_width(p->model), .eps = p->model->hp.norm_eps};
    s->out = BUF_HYPER_IN;
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_HYPER_IN);
    const plan_matrix weights = plan_make_matrix(p, layer, fn, ROLE_COUNT, BUF_HYPER);
    plan_set_matrix(s, &weights);
    s = plan_add_step(p, side, OP_HYPER_IN, layer, BUF_STREAMS);
    *STEP_ARGS(s, hyper) = (args_hyper){.base = t[fn + 1].data,
                                        .scale = t[fn + 2].data,
                                        .factor = 1,
                                        .eps = p->model->hp.hyper_eps};
}

plan_step *plan_add_hyper_out(plan *p, plan_side side, int layer, tensor_role fn, plan_buffer in) {
    const model_hparams *hp = &p->model->hp;
    const model_tensor *t = p->model->layers[layer].t;
    plan_step *s = plan_add_step(p, side, OP_HYPER_OUT, layer, in);
    s->out = BUF_STREAMS;
    if (hp->hyper_rank > 0) {
        static const float zeros[MODEL_MAX_STREAMS], one = 1;
        *STEP_ARGS(s, hyper) = (args_hyper){
            .base = zeros, .scale = &one, .factor = hp->hyper_magnitude};
        return s;
    }
    *STEP_ARGS(s, hyper) = (args_hyper){.base = (const float *)t[fn + 1].data + hp->n_stream,
                                        .scale = (const float *)t[fn + 2].data + 1,
                                        .factor = hp->hyper_magnitude,
                                        .eps = hp->hyper_rounds > 0 ? 0 : hp->hyper_eps,
                                        .rounds = hp->hyper_rounds,
                                        .mix_eps = hp->hyper_eps};
    return s;
}

void plan_add_ngrams(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    const plan_side side = p->splits[layer].primary;
    plan_ngrams *g = &p->ngrams;
    const int64_t end = p->n_state + model_state(hp, &l->hp); /* the layer's mixer comes first */
    *g = (plan_ngrams){.key_norm = l->t[ROLE_NGRAM_KEY_NORM].data,
                       .query_norm = l->t[ROLE_NGRAM_QUERY_NORM].data,
                       .conv_norm = l->t[ROLE_NGRAM_CONV_NORM].data,
                       .conv = {.n_taps = hp->ngrams.n_taps,
                                .dilation = hp->ngrams.size,
                                .n_conv = (int64_t)hp->n_stream * hp->n_embd,
                                .taps = {l->t[ROLE_NGRAM_CONV].data},
                                .conv_at = end - model_ngram_state(hp, &l->hp)},
                       .tokens_at = end - (hp->ngrams.size - 1)};
    plan_step *s = plan_add_step(p, side, OP_NGRAM_ROWS, layer, BUF_Y);
    s->out = BUF_Y;
    plan_add_step(p, side, OP_QUANTIZE, layer, BUF_Y);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_NGRAM_KEY, ROLE_COUNT, BUF_HYPER_GATE);
    plan_add_matrix(p, s, ROLE_NGRAM_VALUE, ROLE_COUNT, BUF_X);
    s = plan_add_step(p, side, OP_NGRAM_GATE, layer, BUF_HYPER_GATE);
    STEP_ARGS(s, ngrams)->ngrams = g;
    s->out = BUF_STREAMS;
    s = plan_add_step(p, side, OP_NGRAM_CONV, layer, BUF_HYPER_IN);
    STEP_ARGS(s, ngrams)->ngrams = g;
    s->out = BUF_STREAMS;
}

void plan_add_past_in(plan *p, plan_side side, int layer, tensor_role score) {
    const int period = p->model->hp.past_period;
    const int at = layer < 0 ? p->model->hp.n_layer - 1 : layer; /* its value is kept by now */
    const bool begins = score == ROLE_PAST_ATTN && layer % period == 0;
    const model_tensor *t = layer < 0 ? p->model->t : p->model->layers[layer].t;
    plan_step *s = plan_add_step(p, side, OP_PAST_IN, layer, BUF_STREAMS);
    *STEP_ARGS(s, past) = (args_past){
        .score = t[score].data, .n = at / period + (begins ? 0 : 1), .begins = begins};
}

plan_step *plan_add_past_out(plan *p, plan_side side, int layer, tensor_role score,
                             plan_buffer in) {
    plan_step *s = plan_add_step(p, side, OP_PAST_OUT, layer, in);
    s->out = BUF_STREAMS;
    STEP_ARGS(s, past)->begins = score == ROLE_PAST_ATTN && layer % p->model->hp.past_period == 0;
    return s;
}
