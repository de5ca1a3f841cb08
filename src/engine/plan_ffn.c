/* plan_ffn.c: the FFN half of a layer: the steps for the mode that it runs in, on all devices.
 *
 * Dense with a plain down matrix:   norm, FFN_IN (gate, up, activation), quantize, matmul down
 * Everything else:                  [predictor: first product, quantize], norm, FFN_SPARSE, or
 *   where a cutoff depends on all neurons: norm, matmul gate, TOP_K, FFN_SPARSE of up; then
 *   with a row of down per neuron:  quantize (ubatches of many tokens only), FFN_DOWN
 *   with a plain down matrix:       quantize, matmul down
 *
 * Which mode that is: plan_mode.c; what FFN_SPARSE does: cpu_ffn_sparse.c, gpu_ffn.c. */
#include "plan_build.h"

/* ---- pieces -----------------------------------------------------------------------------------*/

/* One device's neurons of a layer while its steps are made. */
typedef struct ffn_slice {
    plan *p;
    int layer;
    plan_side side;
    int device;       /* of SIDE_GPU */
    bool primary;     /* of the layer */
    bool biased;      /* adds the bias of down */
    int64_t first, n; /* neurons */
    plan_ffn *ffn;
} ffn_slice;

static const model_tensor *tensors_of(const ffn_slice *h) {
    return h->p->model->layers[h->layer].t;
}

/* A layer of whose gate only what is above a cutoff counts: one device has all of its neurons, and
 * rows of them are not copied to another. */
static bool has_cutoff(const ffn_slice *h) {
    return h->p->model->layers[h->layer].hp.ffn_top_k;
}

static plan_step *add_step(const ffn_slice *h, plan_op op, plan_buffer in) {
    plan_step *s = plan_add_step(h->p, h->side, op, h->layer, in);
    s->cold = !h->primary && h->side == SIDE_CPU && !has_cutoff(h);
    if (h->side == SIDE_GPU) s->device = h->device;
    return s;
}

static plan_step *add_norm(const ffn_slice *h) {
    /* In parallel layers both halves may share one norm. */
    bool own = tensors_of(h)[ROLE_FFN_NORM].data;
    plan_step *s = plan_add_norm(h->p, h->side, h->layer, own ? ROLE_FFN_NORM : ROLE_ATTN_NORM,
                                 own ? ROLE_FFN_NORM_BIAS : ROLE_ATTN_NORM_BIAS);
    s->cold = !h->primary && h->side == SIDE_CPU;
    return s;
}

static void add_neuron_matrix(const ffn_slice *h, plan_step *s, tensor_role role, tensor_role bias,
                              plan_buffer out) {
    const plan_matrix whole = plan_make_matrix(h->p, h->layer, role, bias, out);
    const plan_matrix part = plan_take_rows(&whole, h->first, h->n);
    plan_set_matrix(s, &part);
}

/* Gate and up, or up alone where there is no gate: what decides comes first. */
static void add_neuron_matrices(const ffn_slice *h, plan_step *s) {
    bool gated = tensors_of(h)[ROLE_FFN_GATE].data;
    if (gated && !has_cutoff(h))
        add_neuron_matrix(h, s, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
    add_neuron_matrix(h, s, ROLE_FFN_UP, ROLE_FFN_UP_BIAS, gated ? BUF_UP : BUF_GATE);
}

/* Of what `hidden` makes. */
static void add_plain_down(const ffn_slice *h, plan_step *hidden) {
    if (h->side == SIDE_CPU) add_step(h, OP_QUANTIZE, BUF_GATE);
    plan_step *s = add_step(h, OP_MATMUL, BUF_GATE);
    const plan_matrix whole = plan_make_matrix(h->p, h->layer, ROLE_FFN_DOWN,
                                               h->biased ? ROLE_FFN_DOWN_BIAS : ROLE_COUNT,
                                               plan_late_result(h->side));
    const plan_matrix part = plan_take_columns(&whole, h->first, h->n);
    plan_set_matrix(s, &part);
    s->add_to_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    if (h->side == SIDE_GPU) s->slot = hidden->slot = PLAN_SLOT_HIDDEN;
}

/* ---- selected neurons ------------------------------------------------------------------------ */

static void add_first_product(const ffn_slice *h, plan_buffer in, bool relu) {
    plan_step *s = add_step(h, OP_MATMUL, in);
    plan_add_matrix(h->p, s, ROLE_FC1, ROLE_COUNT, BUF_PRED);
    STEP_ARGS(s, matmul)->relu = relu && h->side == SIDE_GPU;
    s = add_step(h, OP_QUANTIZE, BUF_PRED);
    s->slot = PLAN_SLOT_PREDICTOR;
    STEP_ARGS(s, quantize)->relu = relu && h->side == SIDE_CPU;
}

/* The normed input is in BUF_Y, and quantized, when this returns; so is what the predictor needs.
 */
static void add_predictor(const ffn_slice *h, predictor_kind kind) {
    bool low_rank = kind == PREDICTOR_LOWRANK || kind == PREDICTOR_RELU_MLP;
    bool relu = kind == PREDICTOR_RELU_MLP;
    bool residual = h->p->model->layers[h->layer].sparse.predictor_residual;
    if (low_rank && residual) {
        add_step(h, OP_QUANTIZE, BUF_X);
        add_first_product(h, BUF_X, relu);
    }
    plan_step *s = add_norm(h);
    if (low_rank && !residual) add_first_product(h, BUF_Y, relu);
    if (kind == PREDICTOR_SIGN) { /* on the GPU of what the norm quantizes */
        if (h->side == SIDE_CPU) {
            s = add_step(h, OP_QUANTIZE, BUF_Y);
            s->slot = PLAN_SLOT_PREDICTOR;
        }
        plan_set_kernel(s, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_VECTOR);
        s->act_kinds = 1u << CPU_ACT_Q8;
        s->act_width = h->p->model->hp.n_embd;
    }
}

/* Scores for neurons [first, first + n). */
static void describe_predictor(const ffn_slice *h, const plan_options *o, int64_t first, int64_t n,
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

static void set_parts(plan_ffn *ffn) {
    if (ffn->n_ff == 0) return;
    int64_t n = ffn->n_ff / PLAN_FFN_PART_ROWS;
    n = n < 1 ? 1 : n > PLAN_FFN_MAX_PARTS ? PLAN_FFN_MAX_PARTS : n;
    int64_t rows = (ffn->n_ff + n - 1) / n;
    ffn->part_rows = (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
    ffn->n_parts = (int)((ffn->n_ff + ffn->part_rows - 1) / ffn->part_rows);
}

static void describe(const ffn_slice *h, pi_mode mode) {
    const model_layer *l = &h->p->model->layers[h->layer];
    plan_ffn *ffn = h->ffn;
    *ffn = (plan_ffn){.mode = mode, .first = h->first, .n_ff = h->n, .cut = 0};
    ffn->given = has_cutoff(h);
    if (mode == PI_MODE_DENSE) ffn->cut = -1;
    if (mode == PI_MODE_THRESHOLD) ffn->cut = l->sparse.cut;
    if (l->t[ROLE_FFN_DOWN_T].data) {
        const plan_matrix whole = plan_make_matrix(
            h->p, h->layer, ROLE_FFN_DOWN_T, h->biased ? ROLE_FFN_DOWN_BIAS : ROLE_COUNT, BUF_Y);
        ffn->down = plan_take_rows(&whole, h->first, h->n);
    }
    set_parts(ffn);
    if (h->side == SIDE_CPU && ffn->part_rows > h->p->max_part_rows)
        h->p->max_part_rows = ffn->part_rows;
}

/* Kernels of selected neurons know no scales and no clamped pairs: with these, all neurons are
 * computed. */
static bool is_plain(const plan *p, const plan_step *s) {
    bool plain = !(p->model->arch->has & ARCH_FFN_CLAMP);
    for (int k = 0; k < s->n_matrices; k++) plain = plain && s->matrix[k].scale == 1;
    return plain;
}

void plan_set_gpu_neurons(const plan *p, plan_step *s) {
    plan_kernel few = is_plain(p, s) ? KERNEL_VECTOR : KERNEL_MASKED;
    plan_set_kernel(s, few, few, KERNEL_TILED);
}

/* What gate and up run as on the GPU. */
static void set_gpu_kernel(const ffn_slice *h, plan_step *s) {
    const plan_ffn *f = plan_ffn_of(s);
    bool scaled = f && f->down.w.data && f->down.scale != 1;
    bool listed = f && f->selection != SELECT_ALL;
    plan_kernel few = scaled || !is_plain(h->p, s) ? KERNEL_MASKED
                      : listed                     ? KERNEL_UNION
                                                   : KERNEL_VECTOR;
    if (h->side == SIDE_GPU) plan_set_kernel(s, few, few, KERNEL_TILED);
}

static void add_sparse(const ffn_slice *h) {
    plan_step *sparse = add_step(h, OP_FFN_SPARSE, BUF_Y);
    add_neuron_matrices(h, sparse);
    STEP_ARGS(sparse, ffn)->ffn = h->ffn;
    h->ffn->sparse = sparse;
    set_gpu_kernel(h, sparse);
    if (!h->ffn->down.w.data) {
        add_plain_down(h, sparse);
        return;
    }
    if (h->side == SIDE_CPU) { /* only the tiled product reads a quantized hidden vector */
        plan_step *hidden = add_step(h, OP_QUANTIZE, BUF_GATE);
        plan_set_kernel(hidden, KERNEL_SKIP, KERNEL_SKIP, KERNEL_TILED);
    }
    plan_step *s = add_step(h, OP_FFN_DOWN, BUF_GATE);
    if (h->side == SIDE_GPU) {
        plan_kernel few = sparse->kernel[FORM_FEW];
        if (few == KERNEL_MASKED) few = KERNEL_TILED;
        plan_set_kernel(s, few, few, KERNEL_TILED);
    }
    STEP_ARGS(s, ffn)->ffn = h->ffn;
    s->add_to_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    s->out = s->add_to_x ? BUF_X : plan_late_result(h->side);
    s->weight_bytes = h->ffn->down.row_size * (uint64_t)h->ffn->n_ff;
}

/* A slice's neurons, from the quantized input in BUF_Y to X +=. */
static void add_neurons(const ffn_slice *h, pi_mode mode) {
    if (has_cutoff(h)) {
        plan_step *s = add_step(h, OP_MATMUL, BUF_Y);
        add_neuron_matrix(h, s, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
        s = add_step(h, OP_TOP_K, BUF_GATE);
        STEP_ARGS(s, top_k)->cutoff = h->p->model->layers[h->layer].hp.ffn_cutoff;
        add_sparse(h);
    } else if (mode == PI_MODE_DENSE && tensors_of(h)[ROLE_FFN_DOWN].data) {
        plan_step *s = add_step(h, OP_FFN_IN, BUF_Y);
        add_neuron_matrices(h, s);
        set_gpu_kernel(h, s);
        add_plain_down(h, s);
    } else {
        add_sparse(h);
    }
}

/* ---- the half, on all devices ---------------------------------------------------------------- */

/* The primary's slice, then those of the other devices, as far as they have neurons; where the
 * primary is a GPU, first the CPU's, which passes messages on to the helpers and back, with neurons
 * or without. */
typedef struct ffn_block {
    pi_mode mode;
    int n;
    ffn_slice slice[1 + PLAN_MAX_DEVICES];
} ffn_block;

static void add_slice(ffn_block *f, plan *p, int layer, plan_side side, int device, int64_t first,
                      int64_t n) {
    ffn_slice *h = &f->slice[f->n++];
    *h = (ffn_slice){.p = p,
                     .layer = layer,
                     .side = side,
                     .device = device,
                     .primary = f->n == 1,
                     .first = first,
                     .n = n,
                     .ffn = side == SIDE_CPU ? &p->ffn[layer] : plan_gpu_ffn(p, device, layer)};
}

static ffn_block make_block(plan *p, int layer, pi_mode mode) {
    const plan_split *split = &p->splits[layer];
    int64_t end = plan_split_end(split), at = split->hot;
    int64_t cold = p->model->layers[layer].hp.n_ff - end;
    ffn_block f = {.mode = mode};
    bool gpu = split->primary == SIDE_GPU;
    if (gpu) add_slice(&f, p, layer, SIDE_GPU, split->device, 0, split->hot);
    if (!gpu || cold > 0 || end > at) add_slice(&f, p, layer, SIDE_CPU, split->device, end, cold);
    if (!gpu && split->hot > 0) add_slice(&f, p, layer, SIDE_GPU, split->device, 0, split->hot);
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) {
        if (split->helpers[i] > 0) add_slice(&f, p, layer, SIDE_GPU, i, at, split->helpers[i]);
        at += split->helpers[i];
    }
    bool biased = false; /* the first one with neurons is */
    for (int i = 0; i < f.n; i++) {
        f.slice[i].biased = !biased && f.slice[i].n > 0;
        biased = biased || f.slice[i].biased;
        describe(&f.slice[i], mode);
    }
    return f;
}

/* Scores of a slice's neurons, as bits of its next message; on the GPU of all of the layer's. */
static void add_scores(const ffn_slice *primary, const plan_options *o, const ffn_slice *of,
                       int64_t n, int64_t first) {
    describe_predictor(primary, o, first, n, of->ffn);
    plan_need_bits(primary->p, of->device, plan_bits_words(n));
    plan_step *s = add_step(primary, OP_SELECT, BUF_Y);
    s->device = of->device;
    STEP_ARGS(s, select)->ffn = of->ffn;
    if (primary->side == SIDE_CPU) return; /* its threads count what they read */
    size_t row = of->ffn->sign ? (size_t)primary->p->model->hp.n_embd / 8 : of->ffn->fc2.row_size;
    s->weight_bytes = row * (uint64_t)n;
}

/* The scores that steps of their own make before the input is sent: on the GPU of all neurons, on
 * the CPU of those on other devices; its own it scores part by part. */
static void add_selection(const ffn_block *f, const plan_options *o) {
    const ffn_slice *primary = &f->slice[0];
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

/* Where another device's slice begins: its input arrives and X is cleared to add to. */
static void add_arrival(const ffn_slice *h, plan_side from, pi_mode mode, bool cold) {
    bool bits = mode == PI_MODE_PREDICT;
    plan_message m = at_device(plan_add_message(h->p, from, h->layer, BUF_Y, BUF_Y), h->device);
    STEP_ARGS(m.send, message)->bits = STEP_ARGS(m.receive, message)->bits = bits;
    STEP_ARGS(m.receive, message)->clear_x = !plan_adds_late(h->p, h->layer, ROLE_FFN_POST_NORM);
    m.receive->cold = m.send->cold = cold;
    if (bits) h->ffn->selection = SELECT_MESSAGE;
    if (!bits || h->side == SIDE_CPU) return;
    plan_need_bits(h->p, h->device, plan_bits_words(h->n));
    plan_step *s = add_step(h, OP_SELECT, BUF_Y); /* only lists are made of the bits */
    *STEP_ARGS(s, select) = (args_select){.ffn = h->ffn, .bits = true};
    plan_set_kernel(s, KERNEL_UNION, KERNEL_UNION, KERNEL_SKIP);
}

/* Messages of a layer with helpers, whose parts come by way of the CPU, are never left out. */
static void add_arrivals(const ffn_block *f) {
    bool gpu = f->slice[0].side == SIDE_GPU;
    bool cold = f->n == 2 && !has_cutoff(&f->slice[0]);
    if (gpu) add_arrival(&f->slice[1], SIDE_GPU, f->mode, cold);
    for (int i = 1 + gpu; i < f->n; i++) add_arrival(&f->slice[i], SIDE_CPU, f->mode, false);
    for (int i = 1; i < f->n; i++)
        if (f->slice[i].n > 0 && f->slice[i].side == SIDE_CPU)
            add_step(&f->slice[i], OP_QUANTIZE, BUF_Y);
}

/* Sums of the other devices' neurons, to the primary. */
static void add_answers(const ffn_block *f) {
    bool gpu = f->slice[0].side == SIDE_GPU;
    const ffn_slice *primary = &f->slice[0], *cpu = &f->slice[gpu];
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

static void prefetch_neurons(plan *p, int layer) {
    const ffn_slice h = {.p = p, .layer = layer, .side = SIDE_CPU, .primary = true};
    int first = p->n_steps;
    add_predictor(&h, p->model->layers[layer].sparse.predictor);
    plan_step *s = add_step(&h, OP_PREFETCH, BUF_Y);
    STEP_ARGS(s, ffn)->ffn = &p->ffn[layer];
    for (int i = first; i < p->n_steps; i++) p->steps[i].kernel[FORM_MANY] = KERNEL_SKIP;
}

/* Predictor or router reads the residual stream as it is before the layer's first half, which is
 * close to what it will be after it (PowerInfer-2; LLM in a flash). */
void plan_add_prefetch(plan *p, int layer, const plan_options *options) {
    const model_layer *l = &p->model->layers[layer];
    const plan_split *split = &p->splits[layer];
    int first = p->n_steps;
    if (split->primary != SIDE_CPU || plan_split_end(split) > 0) return;
    if (l->t[ROLE_ROUTER].data)
        plan_prefetch_experts(p, layer);
    else if (l->bundle && plan_choose_mode(p->model, layer, options) == PI_MODE_PREDICT)
        prefetch_neurons(p, layer);
    for (int i = first; i < p->n_steps; i++) p->steps[i].early = true;
}

void plan_add_ffn(plan *p, int layer, const plan_options *options) {
    pi_mode mode = plan_choose_mode(p->model, layer, options);
    p->ffn[layer].mode = mode; /* of the layer, also where the CPU has no part in it */
    const ffn_block f = make_block(p, layer, mode);
    const ffn_slice *primary = &f.slice[0];
    add_predictor(primary, mode == PI_MODE_PREDICT ? p->model->layers[layer].sparse.predictor
                                                   : PREDICTOR_NONE);
    if (mode == PI_MODE_PREDICT) add_selection(&f, options);
    if (f.n > 1) add_arrivals(&f);
    for (int i = 0; i < f.n; i++)
        if (f.slice[i].n > 0) add_neurons(&f.slice[i], mode);
    if (f.n > 1) add_answers(&f);
    if (plan_adds_late(p, layer, ROLE_FFN_POST_NORM))
        plan_add_addition(p, primary->side, layer, plan_late_result(primary->side),
                          ROLE_FFN_POST_NORM);
}
