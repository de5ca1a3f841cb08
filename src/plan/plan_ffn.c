/* plan_ffn.c: the pieces of an FFN block (plan_layer.c): each device's neurons, the exchange of the
 * input and the partial sums, predictors, and sparse layers:
 *
 *   [predictor: first product, on the CPU quantize], norm, FFN_SPARSE, or
 *   where a cutoff depends on all neurons: norm, matmul gate, TOP_K, FFN_SPARSE of up; then
 *   with a row of down per neuron:  quantize (ubatches of many tokens only), FFN_DOWN
 *   with a plain down matrix:       quantize, matmul down
 *
 * plan_mode.c chooses the mode; cpu_ffn_sparse.c and gpu_ffn.c run FFN_SPARSE. */
#include <math.h>

#include "plan_impl.h"

/* ---- pieces -----------------------------------------------------------------------------------*/

static const model_tensor *tensors_of(const plan_slice *h) {
    return h->p->model->layers[h->layer].t;
}

/* The layer uses only gate values above a cutoff: one device has all its neurons, and no rows are
 * copied to another device. */
static bool has_cutoff(const plan_slice *h) {
    return h->p->model->layers[h->layer].hp.ffn_top_k;
}

plan_step *plan_add_slice_step(const plan_slice *h, plan_op op, plan_buffer in) {
    plan_step *s = plan_add_step(h->p, h->side, op, h->layer, in);
    s->cold = !h->primary && h->side == SIDE_CPU && !has_cutoff(h);
    if (h->side == SIDE_GPU) s->device = h->device;
    return s;
}

/* The slice's rows of a matrix that has a row per neuron. */
static void add_neuron_matrix(const plan_slice *h, plan_step *s, tensor_role role, tensor_role bias,
                              plan_buffer out) {
    const plan_matrix whole = plan_make_matrix(h->p, h->layer, role, bias, out);
    const plan_matrix part = plan_take_rows(&whole, h->first, h->n);
    plan_set_matrix(s, &part);
}

/* The matrix that determines active neurons comes first. */
void plan_add_neuron_matrices(const plan_slice *h, plan_step *s) {
    bool gated = tensors_of(h)[ROLE_FFN_GATE].data;
    if (gated && !has_cutoff(h))
        add_neuron_matrix(h, s, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
    add_neuron_matrix(h, s, ROLE_FFN_UP, ROLE_FFN_UP_BIAS, gated ? BUF_UP : BUF_GATE);
}

/* ---- selected neurons ------------------------------------------------------------------------ */

static void add_first_product(const plan_slice *h, plan_buffer in, bool relu) {
    plan_step *s = plan_add_slice_step(h, OP_MATMUL, in);
    plan_add_matrix(h->p, s, ROLE_FC1, ROLE_COUNT, BUF_PRED);
    STEP_ARGS(s, matmul)->relu = relu && h->side == SIDE_GPU;
    if (h->side == SIDE_GPU) return; /* OP_SELECT quantizes PRED */
    s = plan_add_slice_step(h, OP_QUANTIZE, BUF_PRED);
    s->slot = PLAN_SLOT_PREDICTOR;
    STEP_ARGS(s, quantize)->relu = relu;
}

void plan_add_ffn_norm(const plan_slice *h, predictor_kind kind) {
    bool low_rank = kind == PREDICTOR_LOWRANK || kind == PREDICTOR_RELU_MLP;
    bool relu = kind == PREDICTOR_RELU_MLP;
    bool residual = h->p->model->layers[h->layer].sparse.predictor_residual;
    if (low_rank && residual) {
        plan_add_slice_step(h, OP_QUANTIZE, BUF_X);
        add_first_product(h, BUF_X, relu);
    }
    const model_tensor *t = tensors_of(h);
    const bool own = t[ROLE_FFN_NORM].data; /* in parallel layers both blocks may share one norm */
    plan_step *s = plan_add_norm(h->p, h->side, h->layer, own ? ROLE_FFN_NORM : ROLE_ATTN_NORM,
                                 own ? ROLE_FFN_NORM_BIAS : ROLE_ATTN_NORM_BIAS);
    s->cold = !h->primary && h->side == SIDE_CPU;
    if (t[ROLE_FFN_SHIFT].data) s = plan_add_ffn_shift(h->p, h->layer, s);
    if (low_rank && !residual) add_first_product(h, BUF_Y, relu);
    if (kind == PREDICTOR_SIGN) { /* on the GPU, from the values that the norm quantizes */
        if (h->side == SIDE_CPU) {
            s = plan_add_slice_step(h, OP_QUANTIZE, BUF_Y);
            s->slot = PLAN_SLOT_PREDICTOR;
        }
        plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
        s->act_kinds = 1u << CPU_ACT_Q8;
        s->act_width = h->p->model->hp.n_embd;
    }
}

/* Scores of neurons [first, first + n). */
static void describe_predictor(const plan_slice *h, const plan_options *o, int64_t first, int64_t n,
                               plan_ffn *ffn) {
    const model_layer *l = &h->p->model->layers[h->layer];
    const float *bias = l->t[ROLE_FC2_BIAS].data;
    const uint8_t *sign = l->t[ROLE_FFN_SIGN].data;
    ffn->predictor = l->sparse.predictor;
    ffn->n_scored = n;
    ffn->threshold = o->set_threshold ? o->threshold : h->p->model->sparse.predictor_threshold;
    if (bias) ffn->score_bias = bias + first;
    if (sign) ffn->sign = sign + first * (h->p->model->hp.n_embd / 8);
    if (ffn->predictor == PREDICTOR_SIGN) return;
    const plan_matrix whole = plan_make_matrix(h->p, h->layer, ROLE_FC2, ROLE_COUNT, BUF_SCORE);
    ffn->fc2 = plan_take_rows(&whole, first, n);
}

/* ---- sparse layers --------------------------------------------------------------------------- */

static void describe(const plan_slice *h, pi_mode mode) {
    const model_layer *l = &h->p->model->layers[h->layer];
    plan_ffn *ffn = h->ffn;
    *ffn = (plan_ffn){.mode = mode, .first = h->first, .n_ff = h->n, .cut = 0};
    ffn->given = has_cutoff(h);
    if (l->t[ROLE_FFN_ACT_SCALE].data)
        ffn->divisors = (const float *)l->t[ROLE_FFN_ACT_SCALE].data + h->first;
    if (mode == PI_MODE_DENSE) ffn->cut = -1;
    if (mode == PI_MODE_THRESHOLD) {
        ffn->cut = l->sparse.cut;
        if (l->sparse.cut_weight) ffn->cut_weight = l->sparse.cut_weight + h->first;
        if (!isnan(l->sparse.cut_down)) ffn->cut_down = l->sparse.cut_down;
    }
    if (l->t[ROLE_FFN_DOWN_T].data) {
        const plan_matrix whole = plan_make_matrix(
            h->p, h->layer, ROLE_FFN_DOWN_T, h->biased ? ROLE_FFN_DOWN_BIAS : ROLE_COUNT, BUF_Y);
        ffn->down = plan_take_rows(&whole, h->first, h->n);
    }
    if (ffn->n_ff > 0) { /* the parts that threads of the CPU take */
        int64_t n = ffn->n_ff / PLAN_FFN_PART_ROWS;
        n = n < 1 ? 1 : n > PLAN_FFN_MAX_PARTS ? PLAN_FFN_MAX_PARTS : n;
        const int64_t rows = (ffn->n_ff + n - 1) / n;
        ffn->part_rows = (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
        ffn->n_parts = (int)((ffn->n_ff + ffn->part_rows - 1) / ffn->part_rows);
    }
    if (h->side == SIDE_CPU && ffn->part_rows > h->p->max_part_rows)
        h->p->max_part_rows = ffn->part_rows;
}

/* Kernels for selected neurons support neither scales, clamped pairs nor divisors: with these, all
 * neurons are computed. */
static bool is_plain(const plan *p, const plan_step *s) {
    const model_layer *l = &p->model->layers[s->layer];
    bool plain = l->hp.ffn_clamp == 0 && !l->t[ROLE_FFN_ACT_SCALE].data;
    for (int k = 0; k < s->n_matrices; k++) plain = plain && s->matrix[k].scale == 1;
    return plain;
}

void plan_set_gpu_neurons(const plan *p, plan_step *s) {
    plan_kernel few = is_plain(p, s) ? KERNEL_VECTOR : KERNEL_MASKED;
    plan_set_kernel(s, few, few, KERNEL_TILED);
}

void plan_set_neuron_kernel(const plan_slice *h, plan_step *s) {
    const plan_ffn *f = plan_ffn_of(s);
    bool scaled = f && f->down.w.data && f->down.scale != 1;
    bool listed = f && f->selection != SELECT_ALL;
    plan_kernel few = scaled || !is_plain(h->p, s) ? KERNEL_MASKED
                      : listed                     ? KERNEL_UNION
                                                   : KERNEL_VECTOR;
    if (h->side == SIDE_GPU) plan_set_kernel(s, few, few, KERNEL_TILED);
}

void plan_add_sparse_neurons(const plan_slice *h) {
    if (has_cutoff(h)) { /* activations from all values of gate */
        plan_step *gate = plan_add_slice_step(h, OP_MATMUL, BUF_Y);
        add_neuron_matrix(h, gate, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
        plan_step *top_k = plan_add_slice_step(h, OP_TOP_K, BUF_GATE);
        STEP_ARGS(top_k, top_k)->cutoff = h->p->model->layers[h->layer].hp.ffn_cutoff;
    }
    plan_step *sparse = plan_add_slice_step(h, OP_FFN_SPARSE, BUF_Y);
    plan_add_neuron_matrices(h, sparse);
    STEP_ARGS(sparse, ffn)->ffn = h->ffn;
    h->ffn->sparse = sparse;
    plan_set_neuron_kernel(h, sparse);
    if (!h->ffn->down.w.data) {
        plan_add_down(h, sparse);
        return;
    }
    if (h->side == SIDE_CPU) { /* only the tiled product reads a quantized hidden vector */
        plan_step *hidden = plan_add_slice_step(h, OP_QUANTIZE, BUF_GATE);
        plan_set_kernel(hidden, KERNEL_SKIP, KERNEL_SKIP, KERNEL_TILED);
    }
    plan_step *s = plan_add_slice_step(h, OP_FFN_DOWN, BUF_GATE);
    if (h->side == SIDE_GPU) {
        plan_kernel few = sparse->kernel[FORM_FEW];
        if (few == KERNEL_MASKED) few = KERNEL_TILED;
        plan_set_kernel(s, few, few, KERNEL_TILED);
    }
    STEP_ARGS(s, ffn)->ffn = h->ffn;
    s->add_to_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    s->out = s->add_to_x ? BUF_X : plan_late_result(h->p, h->side);
    s->weight_bytes = h->ffn->down.row_size * (uint64_t)h->ffn->n_ff;
}

/* ---- several devices ------------------------------------------------------------------------- */

static void add_slice(plan_slices *f, plan *p, int layer, plan_side side, int device, int64_t first,
                      int64_t n) {
    plan_slice *h = &f->slice[f->n++];
    *h = (plan_slice){.p = p,
                      .layer = layer,
                      .side = side,
                      .device = device,
                      .primary = f->n == 1,
                      .first = first,
                      .n = n,
                      .ffn = side == SIDE_CPU ? &p->ffn[layer] : plan_gpu_ffn(p, device, layer)};
}

plan_slices plan_make_slices(plan *p, int layer, pi_mode mode) {
    const plan_split *split = &p->splits[layer];
    int64_t end = plan_split_end(split), at = split->hot;
    int64_t cold = p->model->layers[layer].hp.n_ff - end;
    plan_slices f = {.mode = mode};
    bool gpu = split->primary == SIDE_GPU;
    if (gpu) add_slice(&f, p, layer, SIDE_GPU, split->device, 0, split->hot);
    if (!gpu || cold > 0 || end > at) add_slice(&f, p, layer, SIDE_CPU, split->device, end, cold);
    if (!gpu && split->hot > 0) add_slice(&f, p, layer, SIDE_GPU, split->device, 0, split->hot);
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) {
        if (split->helpers[i] > 0) add_slice(&f, p, layer, SIDE_GPU, i, at, split->helpers[i]);
        at += split->helpers[i];
    }
    bool biased = false; /* the first device with neurons adds it */
    for (int i = 0; i < f.n; i++) {
        f.slice[i].biased = !biased && f.slice[i].n > 0;
        biased = biased || f.slice[i].biased;
        describe(&f.slice[i], mode);
    }
    return f;
}

/* Scores of a slice's neurons, as bits of its next message; on the GPU, of all neurons of the
 * layer. */
static void add_scores(const plan_slice *primary, const plan_options *o, const plan_slice *of,
                       int64_t n, int64_t first) {
    describe_predictor(primary, o, first, n, of->ffn);
    plan_need_bits(primary->p, of->device, plan_bits_words(n));
    plan_step *s = plan_add_slice_step(primary, OP_SELECT, BUF_Y);
    s->device = of->device;
    STEP_ARGS(s, select)->ffn = of->ffn;
    if (primary->side == SIDE_CPU) return; /* threads count the bytes that they read */
    size_t row = of->ffn->sign ? (size_t)primary->p->model->hp.n_embd / 8 : of->ffn->fc2.row_size;
    s->weight_bytes = row * (uint64_t)n;
}

void plan_add_selection(const plan_slices *f, const plan_options *o) {
    const plan_slice *primary = &f->slice[0];
    primary->ffn->selection = SELECT_SCORES;
    if (primary->side == SIDE_GPU) {
        add_scores(primary, o, primary, primary->p->model->layers[primary->layer].hp.n_ff, 0);
        return;
    }
    if (primary->n > 0) describe_predictor(primary, o, primary->first, primary->n, primary->ffn);
    for (int i = 1; i < f->n; i++)
        add_scores(primary, o, &f->slice[i], f->slice[i].n, f->slice[i].first);
}

static plan_message at_device(plan_message m, int device) {
    m.send->device = m.receive->device = device;
    return m;
}

/* Beginning of another device's slice: receives the input, and clears X for the partial sum. */
static void add_arrival(const plan_slice *h, plan_side from, pi_mode mode, bool cold) {
    bool bits = mode == PI_MODE_PREDICT;
    plan_message m = at_device(plan_add_message(h->p, from, h->layer, BUF_Y, BUF_Y), h->device);
    STEP_ARGS(m.send, message)->bits = STEP_ARGS(m.receive, message)->bits = bits;
    STEP_ARGS(m.receive, message)->clear_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    m.receive->cold = m.send->cold = cold;
    if (bits) h->ffn->selection = SELECT_MESSAGE;
    if (!bits || h->side == SIDE_CPU) return;
    plan_need_bits(h->p, h->device, plan_bits_words(h->n));
    plan_step *s = plan_add_slice_step(h, OP_SELECT, BUF_Y); /* only converts the bits to lists */
    *STEP_ARGS(s, select) = (args_select){.ffn = h->ffn, .bits = true};
    plan_set_kernel(s, KERNEL_UNION, KERNEL_UNION, KERNEL_SKIP);
}

/* A layer with helpers always sends its messages, because the CPU forwards the partial sums. */
void plan_add_arrivals(const plan_slices *f) {
    bool gpu = f->slice[0].side == SIDE_GPU;
    bool cold = f->n == 2 && !has_cutoff(&f->slice[0]);
    if (gpu) add_arrival(&f->slice[1], SIDE_GPU, f->mode, cold);
    for (int i = 1 + gpu; i < f->n; i++) add_arrival(&f->slice[i], SIDE_CPU, f->mode, false);
    for (int i = 1; i < f->n; i++)
        if (f->slice[i].n > 0 && f->slice[i].side == SIDE_CPU)
            plan_add_slice_step(&f->slice[i], OP_QUANTIZE, BUF_Y);
}

/* Sends the sums of the other devices' neurons to the primary. */
void plan_add_answers(const plan_slices *f) {
    bool gpu = f->slice[0].side == SIDE_GPU;
    const plan_slice *primary = &f->slice[0], *cpu = &f->slice[gpu];
    for (int i = 1 + gpu; i < f->n; i++) {
        bool first = i == 1 + gpu;
        plan_message m = plan_add_answer(cpu->p, SIDE_GPU, cpu->layer, first && cpu->n == 0);
        m = at_device(m, f->slice[i].device);
        STEP_ARGS(m.receive, message)->helpers = gpu && first;
    }
    if (!gpu) return;
    plan_message m = plan_add_answer(cpu->p, SIDE_CPU, cpu->layer, primary->n == 0);
    m.send->cold = f->n == 2 && !has_cutoff(primary);
    m.receive->cold = cpu->n > 0 && !has_cutoff(primary);
    STEP_ARGS(m.receive, message)->helpers = f->n > 2;
}

/* What a layer may prefetch: experts, neurons, nothing. */
static tensor_role prefetched(const plan *p, int layer, const plan_options *options) {
    const model_layer *l = &p->model->layers[layer];
    if (p->splits[layer].primary != SIDE_CPU || plan_split_end(&p->splits[layer]) > 0)
        return ROLE_COUNT;
    if (l->t[ROLE_ROUTER].data) return ROLE_ROUTER;
    bool predicts = plan_choose_mode(p->model, layer, options) == PI_MODE_PREDICT;
    return l->bundle && predicts ? ROLE_FC1 : ROLE_COUNT;
}

bool plan_prefetches_early(const plan *p, int layer, const plan_options *options) {
    const model_hparams *hp = &p->model->hp;
    bool stream = !hp->hyper && hp->past_period == 0 && !plan_has_streams(p);
    return options->prefetch && stream && layer > p->first_layer && layer < p->end_layer &&
           !model_layer_is_parallel(p->model, layer - 1) &&
           !(p->model->arch->has & ARCH_ROUTER_EARLY) && !p->model->arch->experts_early &&
           prefetched(p, layer, options) != ROLE_COUNT &&
           prefetched(p, layer - 1, options) == prefetched(p, layer, options);
}

/* For prefetching, the predictor or router reads the residual stream before the attention block, or
 * before the FFN of the layer before it: it is close to the stream that the layer's FFN reads
 * (PowerInfer-2; LLM in a flash). */
void plan_add_prefetch(plan *p, int layer, const plan_options *options) {
    tensor_role what = prefetched(p, layer, options);
    int first = p->n_steps;
    if (plan_sums_streams(p)) return;                           /* X is not the layer's input */
    if (p->model->layers[layer].t[ROLE_FFN_SHIFT].data) return; /* it also reads the last token */
    if (what == ROLE_ROUTER) plan_prefetch_experts(p, layer);
    if (what == ROLE_FC1) { /* neurons */
        const plan_slice h = {.p = p, .layer = layer, .side = SIDE_CPU, .primary = true};
        plan_add_ffn_norm(&h, p->model->layers[layer].sparse.predictor);
        plan_step *s = plan_add_slice_step(&h, OP_PREFETCH, BUF_Y);
        STEP_ARGS(s, ffn)->ffn = &p->ffn[layer];
        for (int i = first; i < p->n_steps; i++) p->steps[i].kernel[FORM_MANY] = KERNEL_SKIP;
    }
    for (int i = first; i < p->n_steps; i++) p->steps[i].early = true;
}
