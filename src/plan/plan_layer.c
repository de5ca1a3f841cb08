/* plan_layer.c: a layer, step by step.
 *
 *   attention block   norm -> Q, K, V -> rotation and cache -> attention -> output      X +=
 *   FFN block         norm -> gate and up -> down                                       X +=
 *
 * Other files add steps for some models or placements: plan_attention.c sparse and compressed
 * attention, plan_recurrent.c recurrent mixers, plan_experts.c mixtures of experts, plan_ffn.c
 * selected neurons and layers on several devices, plan_streams.c several residual streams. */
#include <assert.h>
#include <math.h>

#include "plan_impl.h"

/* ---- attention block ------------------------------------------------------------------------- */

/* Q, K, V, their gate and the low-rank branch's first product share one quantized input and one
 * step. A layer that reads another layer's cache has no K and V. */
static void add_projections(plan *p, int layer) {
    static const struct {
        tensor_role weight, bias;
        plan_buffer out;
    } qkv[] = {{ROLE_ATTN_Q, ROLE_ATTN_Q_BIAS, BUF_Q},
               {ROLE_ATTN_K, ROLE_ATTN_K_BIAS, BUF_K},
               {ROLE_ATTN_V, ROLE_ATTN_V_BIAS, BUF_V}};
    const model_layer *l = &p->model->layers[layer];
    bool bare = p->model->arch->has & ARCH_QKV_BARE;
    int n = model_kv_heads(&l->hp, layer) > 0 ? 3 : 1;
    bool wide = l->t[ROLE_ATTN_Q].n_in > p->model->hp.n_embd; /* in a head */
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_MATMUL, layer,
                                 wide ? BUF_DRAFT_IN : BUF_Y);
    for (int i = 0; i < n; i++) {
        plan_add_matrix(p, s, qkv[i].weight, bare ? ROLE_COUNT : qkv[i].bias, qkv[i].out);
        if (bare) s->matrix[i].scale = 1;
    }
    if (n == 3) s->matrix[2].scale *= p->model->hp.value_scale;
    if (l->t[ROLE_ATTN_GATE].data) plan_add_matrix(p, s, ROLE_ATTN_GATE, ROLE_COUNT, BUF_ATTN_GATE);
    if (l->t[ROLE_LAUREL_A].data) plan_add_matrix(p, s, ROLE_LAUREL_A, ROLE_COUNT, BUF_GATE);
    if (l->t[ROLE_INDEX_Q].data) plan_add_index(p, layer);
}

/* Floats from one head of Q to the next, including the gate between them. */
static int64_t q_stride(const plan *p, int layer) {
    return (p->model->arch->gated_queries ? 2 : 1) * (int64_t)p->model->layers[layer].hp.head_dim;
}

/* A norm over all heads of Q or K. */
static void add_wide_norm(plan *p, int layer, plan_buffer b, tensor_role role, tensor_role bias) {
    const model_tensor *t = &p->model->layers[layer].t[role];
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_NORM, layer, b);
    *STEP_ARGS(s, norm) = (args_norm){.kind = p->model->arch->qk_norm,
                                      .width = t->n_in,
                                      .eps = p->model->hp.norm_eps,
                                      .weight = t->data,
                                      .bias = p->model->layers[layer].t[bias].data};
    s->out = b;
}

/* Norms of single heads are part of the rotation, norms over all heads are separate steps. */
static void add_rotation(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    const model_tensor *q = &l->t[ROLE_ATTN_Q_NORM], *k = &l->t[ROLE_ATTN_K_NORM];
    bool wide = q->data && (q->n_in > l->hp.head_dim || l->t[ROLE_ATTN_Q_NORM_BIAS].data);
    bool bare = model_has_bare_qk_norm(p->model) && l->hp.rope != ROPE_SET_NONE;
    if (wide) add_wide_norm(p, layer, BUF_Q, ROLE_ATTN_Q_NORM, ROLE_ATTN_Q_NORM_BIAS);
    if (wide) add_wide_norm(p, layer, BUF_K, ROLE_ATTN_K_NORM, ROLE_ATTN_K_NORM_BIAS);
    plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_ROPE_STORE, layer, BUF_Q);
    *STEP_ARGS(s, rope) = (args_rope){
        .set = l->hp.rope,
        .neox = p->model->hp.rope == ROPE_NEOX,
        .rot_at = p->model->hp.rot_at,
        .no_values = p->model->hp.joint_kv,
        .q_stride = q_stride(p, layer),
        .norm = p->model->arch->qk_norm,
        .q_norm = wide ? NULL : q->data,
        .k_norm = wide || !q->data ? NULL : k->data, /* both or none, as in llama.cpp */
        .norm_stride = q->n_out > 1 ? q->n_in : 0,
        .norm_late = p->model->arch->has & ARCH_QK_NORM_LATE || bare,
        .norm_bare = bare,
        .value_norm = p->model->arch->has & ARCH_VALUE_NORM,
        .clamp = p->model->hp.qkv_clamp,
    };
    /* On the GPU, sparse attention needs this step also for single tokens. */
    if (l->t[ROLE_INDEX_Q].data || p->model->hp.joint_kv)
        plan_set_kernel(s, KERNEL_PLAIN, KERNEL_PLAIN, KERNEL_PLAIN);
}

/* ATTN = attention of Q, or of LATENT_Q, times the sigmoid of a gate, quantized; MLA: V = ATTN
 * times v_b. Returns the buffer of the result. */
static plan_buffer add_scores(plan *p, int layer) {
    const model_hparams *hp = &p->model->hp;
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    bool latent = hp->n_latent > 0, joint = hp->joint_kv;
    bool inside = p->model->arch->gated_queries, apart = l->t[ROLE_ATTN_GATE].data; /* gates */
    bool head_gates = apart && l->t[ROLE_ATTN_GATE].n_out == l->hp.n_head;
    const plan_blocks blocks = plan_attention_blocks(p, layer);
    if (blocks.bounds) plan_add_bounds(p, layer, q_stride(p, layer));
    plan_step *s = plan_add_step(p, side, OP_ATTENTION, layer, latent ? BUF_LATENT_Q : BUF_Q);
    *STEP_ARGS(s, attention) = (args_attention){
        .window = l->hp.window,
        .both_ways = hp->bidirectional,
        .chunks = p->model->arch->has & ARCH_CHUNKS,
        .latent = latent || joint,
        .ratio = joint ? l->hp.ratio : 0,
        .temperature = hp->attn_temperature != 0 &&
                       (!p->model->arch->temperature_length || l->hp.rope == ROPE_SET_NONE),
        .gated = side == SIDE_GPU && !latent && (inside || apart),
        .head_gates = head_gates,
        .gate_softplus = p->model->arch->gate_softplus,
        .scale = hp->attn_scale,
        .softcap = hp->attn_softcap,
        .q_stride = q_stride(p, layer),
        .sinks = l->t[ROLE_ATTN_SINKS].data,
        .slopes = l->t[ROLE_ATTN_SLOPES].data,
        .blocks = blocks,
    };
    if (inside && side == SIDE_CPU) {
        s = plan_add_step(p, side, OP_GATE_HEADS, layer, BUF_ATTN);
        STEP_ARGS(s, gate_heads)->q_stride = q_stride(p, layer);
    }
    plan_buffer result = latent || joint ? BUF_V : BUF_ATTN;
    if (latent) plan_add_values(p, layer);
    if (joint) plan_add_groups(p, layer);
    if (side == SIDE_CPU || latent || joint) { /* otherwise attention quantizes its result */
        s = plan_add_step(p, side, OP_QUANTIZE, layer, result);
        STEP_ARGS(s, quantize)->gated = apart;
        STEP_ARGS(s, quantize)->head_gates = head_gates;
        STEP_ARGS(s, quantize)->gate_softplus = p->model->arch->gate_softplus;
        /* on the GPU this step gates in every form, also where tiles read floats */
        if (apart && side == SIDE_GPU)
            plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
    }
    return result;
}

/* X = norm_2(norm(X + Y) + X) */
static void add_two_sum_norms(plan *p, int layer) {
    plan_side side = p->splits[layer].primary;
    plan_step *s = plan_add_addition(p, side, layer, BUF_X, ROLE_COUNT);
    s->out = BUF_Y;
    s = plan_add_norm(p, side, layer, ROLE_ATTN_SUM_NORM, ROLE_ATTN_SUM_NORM_BIAS);
    s->in = BUF_Y;
    plan_add_addition(p, side, layer, BUF_Y, ROLE_COUNT);
    plan_add_sum_norm(p, layer, ROLE_ATTN_SUM_NORM_2, ROLE_ATTN_SUM_NORM_2_BIAS);
}

/* From Q, K and V to the residual stream. If both blocks run in parallel, the FFN block reads the
 * unchanged stream, and the result stays in ATTN_OUT. */
static void add_attention(plan *p, int layer) {
    plan_side side = p->splits[layer].primary;
    bool parallel = model_layer_is_parallel(p->model, layer);
    bool twice = p->model->layers[layer].t[ROLE_ATTN_SUM_NORM_2].data;
    bool late = parallel || twice || plan_adds_late(p, layer, ROLE_ATTN_POST_NORM);
    bool branch = p->model->layers[layer].t[ROLE_LAUREL_A].data;
    bool biased = !(p->model->arch->has & ARCH_OUT_UNBIASED);
    if (branch) plan_add_branch(p, layer);
    if (p->model->hp.n_latent > 0)
        plan_add_latents(p, layer);
    else
        add_rotation(p, layer);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, add_scores(p, layer));
    plan_add_matrix(p, s, ROLE_ATTN_OUT, biased ? ROLE_ATTN_OUT_BIAS : ROLE_COUNT,
                    parallel ? BUF_ATTN_OUT : BUF_Y);
    s->add_to_x = !late;
    if (!late) plan_add_sum_norm(p, layer, ROLE_ATTN_SUM_NORM, ROLE_ATTN_SUM_NORM_BIAS);
    if (twice) add_two_sum_norms(p, layer);
    if (!late || parallel || twice) return;
    s = plan_add_addition(p, side, layer, BUF_Y, ROLE_ATTN_POST_NORM);
    if (branch) STEP_ARGS(s, add)->x_scale = sqrtf(0.5f);
}

/* Attention, a recurrent mixer, or both. Both read the same normed input, so their first products
 * come before either adds to X. */
static void add_attention_block(plan *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    plan_side side = p->splits[layer].primary;
    bool attends = l->hp.mixers & MIXER_ATTENTION, recurs = l->hp.mixers & MIXER_RECURRENT;
    if (l->t[ROLE_ROUTER].data && p->model->arch->has & ARCH_ROUTER_EARLY)
        plan_add_router(p, layer, BUF_X);
    if (p->model->arch->residual_normed)
        plan_add_normed_residual(p, layer, ROLE_ATTN_NORM);
    else if (p->model->draft.target && !p->model->t[ROLE_DRAFT_PROJ].data)
        plan_add_step(p, side, OP_QUANTIZE, layer, BUF_DRAFT_IN);
    else if (l->t[ROLE_ATTN_NORM_2].data)
        plan_add_norm(p, side, layer, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS);
    else
        plan_add_norm(p, side, layer, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    if (l->hp.mixers & MIXER_WKV) {
        plan_add_wkv(p, layer);
        return;
    }
    if (recurs) plan_add_recurrent_in(p, layer);
    if (attends && p->model->hp.joint_kv)
        plan_add_compressed(p, layer);
    else if (attends && p->model->hp.n_latent == 0)
        add_projections(p, layer); /* MLA: single steps */
    if (recurs) plan_add_recurrent(p, layer);
    if (attends) add_attention(p, layer);
}

/* ---- FFN block ------------------------------------------------------------------------------- */

/* `hidden` computes the hidden vector in GATE. */
void plan_add_down(const plan_slice *h, plan_step *hidden) {
    plan_step *s;
    if (h->side == SIDE_CPU) {
        s = plan_add_slice_step(h, OP_QUANTIZE, BUF_GATE);
        STEP_ARGS(s, quantize)->divisors = h->ffn->divisors;
    }
    s = plan_add_slice_step(h, OP_MATMUL, BUF_GATE);
    const plan_matrix whole = plan_make_matrix(h->p, h->layer, ROLE_FFN_DOWN,
                                               h->biased ? ROLE_FFN_DOWN_BIAS : ROLE_COUNT,
                                               plan_late_result(h->p, h->side));
    const plan_matrix part = plan_take_columns(&whole, h->first, h->n);
    plan_set_matrix(s, &part);
    s->add_to_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    if (h->side == SIDE_GPU) s->slot = hidden->slot = PLAN_SLOT_HIDDEN;
}

/* The layer's primary norms the input; the other devices with neurons receive it and return their
 * partial sums. */
static void add_ffn_block(plan *p, int layer, const plan_options *options) {
    const model_layer *l = &p->model->layers[layer];
    const pi_mode mode = plan_choose_mode(p->model, layer, options);
    const bool predicts = mode == PI_MODE_PREDICT;
    const bool dense = mode == PI_MODE_DENSE && l->t[ROLE_FFN_DOWN].data && !l->hp.ffn_top_k;
    const plan_slices f = plan_make_slices(p, layer, mode);
    const plan_side primary = f.slice[0].side;
    p->ffn[layer].mode = mode; /* mode of the layer, even if the CPU has none of its neurons */
    plan_add_ffn_norm(&f.slice[0], predicts ? l->sparse.predictor : PREDICTOR_NONE);
    if (predicts) plan_add_selection(&f, options);
    if (f.n > 1) plan_add_arrivals(&f);
    for (int i = 0; i < f.n; i++) {
        const plan_slice *h = &f.slice[i];
        if (h->n > 0 && dense) { /* all neurons of the device, from the quantized Y to X += */
            plan_step *hidden = plan_add_slice_step(h, OP_FFN_IN, BUF_Y);
            plan_add_neuron_matrices(h, hidden);
            plan_set_neuron_kernel(h, hidden);
            plan_add_down(h, hidden);
        } else if (h->n > 0) {
            plan_add_sparse_neurons(h);
        }
    }
    if (f.n > 1) plan_add_answers(&f);
    if (!plan_adds_late(p, layer, ROLE_FFN_POST_NORM)) return;
    plan_step *s = plan_add_addition(p, primary, layer, plan_late_result(p, primary),
                                     ROLE_FFN_POST_NORM);
    if (l->t[ROLE_FFN_RECEPTANCE].data) STEP_ARGS(s, add)->gated = true;
}

/* ---- the layer ------------------------------------------------------------------------------- */

/* Embeddings per layer (Gemma 3n and 4; Google DeepMind 2025): in addition to its embedding, a
 * token has a short vector for every layer: the sum of a table's row and a projection of the
 * embedding (plan.c),
 *
 *   e = (norm(W x) + sqrt(n) table[token]) / sqrt(2)        n elements for each layer
 *
 * At its end a layer adds norm(W_out (f(W_gate x) * e)) to the residual stream x; with several
 * streams, to all except the first. Only single rows of the table are read, so that it may stay on
 * disk. */
static void add_layer_embedding(plan *p, int layer) {
    plan_side side = p->splits[layer].primary;
    plan_buffer from = plan_has_streams(p) ? BUF_Y : BUF_X;
    plan_add_step(p, side, OP_QUANTIZE, layer, from);
    plan_step *s = plan_add_step(p, side, OP_MATMUL, layer, from);
    plan_add_matrix(p, s, ROLE_LAYER_EMBD_GATE, ROLE_COUNT, BUF_GATE);
    s = plan_add_step(p, side, OP_QUANTIZE, layer, BUF_GATE);
    STEP_ARGS(s, quantize)->layer_embd = true;
    if (side == SIDE_GPU) plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    s = plan_add_step(p, side, OP_MATMUL, layer, BUF_GATE);
    plan_add_matrix(p, s, ROLE_LAYER_EMBD_OUT, ROLE_COUNT, BUF_Y);
    s = plan_add_addition(p, side, layer, BUF_Y, ROLE_LAYER_EMBD_POST_NORM);
    if (plan_has_streams(p)) s->out = BUF_STREAMS;
}

void plan_add_layer(plan *p, int layer, const plan_options *options) {
    const model_layer *l = &p->model->layers[layer];
    if (plan_has_streams(p)) plan_add_prediction(p, layer);
    if (options->prefetch && !plan_prefetches_early(p, layer, options))
        plan_add_prefetch(p, layer, options);
    if (l->hp.ngrams) plan_add_ngrams(p, layer);
    const bool hyper = p->model->hp.hyper;
    const bool past = p->model->hp.past_period > 0;
    if (hyper) plan_add_hyper_in(p, p->splits[layer].primary, layer, ROLE_HYPER_ATTN);
    if (past) plan_add_past_in(p, p->splits[layer].primary, layer, ROLE_PAST_ATTN);
    if (l->hp.mixers) add_attention_block(p, layer);
    if (hyper) plan_add_hyper_in(p, p->splits[layer].primary, layer, ROLE_HYPER_FFN);
    if (past) plan_add_past_in(p, p->splits[layer].primary, layer, ROLE_PAST_FFN);
    if (plan_prefetches_early(p, layer + 1, options)) plan_add_prefetch(p, layer + 1, options);
    if (l->t[ROLE_ROUTER].data)
        plan_add_experts(p, layer, options);
    else if (l->hp.ffn)
        add_ffn_block(p, layer, options);
    plan_add_sum_norm(p, layer, ROLE_FFN_SUM_NORM, ROLE_FFN_SUM_NORM_BIAS);
    if (model_layer_is_parallel(p->model, layer))
        plan_add_addition(p, p->splits[layer].primary, layer, BUF_ATTN_OUT, ROLE_ATTN_POST_NORM);
    if (p->model->arch->experts_early) plan_add_beside_early(p, layer);
    if (plan_has_streams(p)) plan_add_correction(p, layer);
    if (p->model->hp.n_embd_layer > 0) add_layer_embedding(p, layer);
    if (l->t[ROLE_EMBD_SKIP].data) { /* X += the embedding times a number (Talkie) */
        const float *scale = l->t[ROLE_EMBD_SKIP].data;
        plan_step *s = plan_add_step(p, p->splits[layer].primary, OP_ADD, layer, BUF_LAYER_EMBD);
        *STEP_ARGS(s, add) = (args_add){.norm = {.kind = NORM_NONE, .width = p->model->hp.n_embd},
                                        .scale = *scale,
                                        .x_scale = 1};
    }
    /* The last addition of the layer also scales the stream: architectures with this scale have
     * post-norms, or a gate (RWKV-6). */
    const int32_t period = p->model->hp.halve_period;
    const bool halves = period > 0 && (layer + 1) % period == 0;
    const float *scale = l->t[ROLE_LAYER_SCALE].data;
    if (!halves && !scale) return;
    const bool gpu = p->splits[layer].primary == SIDE_GPU;
    plan_step *last = gpu ? &p->gpu_steps[p->n_gpu_steps - 1] : &p->steps[p->n_steps - 1];
    assert(last->layer == layer);
    STEP_ARGS(last, add)->x_scale = halves ? 0.5f : *scale;
}
