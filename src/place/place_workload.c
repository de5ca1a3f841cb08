/* place_workload.c: describes a model as bytes and probabilities. The architecture's row determines
 * which tensors belong to neurons; everything else in a layer is read for every token.
 *
 * Probabilities, from the file's statistics of neuron i in a layer of n neurons:
 *   fires      freq[i]; without statistics, an equal fraction for all
 *   selected   min(1, c freq[i]), with c such that the mean is the predictor's measured fraction
 *
 * The matrix that determines active neurons (gate, or up without a gate) is read for all neurons,
 * or with a predictor for selected neurons; the other matrices are read for active neurons. A down
 * matrix with a row per neuron can be skipped by rows; a down matrix with neurons along its rows is
 * read as a whole, and neurons are placed in groups of its blocks. Layers with experts have experts
 * instead of neurons: a whole expert is read with the probability that the router chooses it. */
#include <math.h>
#include <string.h>

#include "engine.h"
#include "gpu_ops.h"
#include "kv_cache.h"
#include "mem.h"
#include "place.h"
#include "plan_support.h"
#include "recurrent_state.h"

/* The condition under which a neuron's part of a tensor is read. */
typedef enum reading { READ_ALWAYS, READ_SELECTED, READ_FIRED, READINGS } reading;

enum { ACT_GROUP = 32 /* elements of an int8 group */ };

typedef struct neuron_bytes {
    uint64_t all;          /* bytes of a group */
    uint64_t by[READINGS]; /* bytes of a group by read condition */
} neuron_bytes;

static bool is_statistic(tensor_role role) {
    return role == ROLE_FFN_FREQ || role == ROLE_FFN_PERM || role == ROLE_EXPERT_PERM;
}

static reading reading_of(const model_layer *l, tensor_role role, const arch_tensor *t,
                          pi_mode mode) {
    bool gated = l->t[ROLE_FFN_GATE].data;
    bool decides = role == (gated ? ROLE_FFN_GATE : ROLE_FFN_UP);
    if (mode == PI_MODE_DENSE && role == ROLE_FFN_DOWN_T) return READ_FIRED; /* zeros are skipped */
    if (mode == PI_MODE_DENSE || !(t->flags & TENSOR_NEURON_ROWS)) return READ_ALWAYS;
    if (decides) return mode == PI_MODE_PREDICT ? READ_SELECTED : READ_ALWAYS;
    return READ_FIRED;
}

/* Neurons per group: the block of matrices with neurons along their rows, and the block of their
 * int8 input. */
static int64_t unit_of(const model *m, const model_layer *l) {
    int64_t unit = 1;
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const arch_tensor *t = &m->arch->tensors[i];
        const model_tensor *tensor = &l->t[t->role];
        if (!(t->flags & TENSOR_NEURON_COLS) || !tensor->data) continue;
        unit = (int64_t)quant_find((uint32_t)tensor->type)->block_elems;
        if (unit > 1 && unit < ACT_GROUP) unit = ACT_GROUP;
    }
    return l->hp.n_ff % unit == 0 ? unit : l->hp.n_ff;
}

/* Vectors, signs and lists of indices are copied to the GPU unchanged, unlike matrices. */
static bool is_matrix(const arch_tensor *t, const model_tensor *tensor) {
    return tensor->n_out > 1 && !(t && t->flags & TENSOR_RAW);
}

/* Additional bytes of the GPU's copy of a tensor, whose rows are packed there. (Not for a tensor
 * that is split across its rows: its size depends on the split point.) */
static uint64_t padding_of(const arch_tensor *t, const model_tensor *tensor) {
    if (!is_matrix(t, tensor) || (t && t->flags & TENSOR_NEURON_COLS)) return 0;
    size_t row = tensor->n_bytes / (size_t)tensor->n_out;
    return (uint64_t)tensor->n_out * (gpu_mat_row_bytes(row) - row);
}

/* Sums cannot overflow, because sizes were checked against the file when the model was opened. */
static void sum_layer(const model *m, const model_layer *l, pi_mode mode, place_layer *out,
                      neuron_bytes *bytes) {
    out->experts = l->t[ROLE_ROUTER].data;
    out->n = out->experts ? m->hp.n_expert : l->hp.n_ff;
    out->unit = out->experts ? 1 : unit_of(m, l);
    for (int role = 0; role < ROLE_COUNT; role++) {
        const arch_tensor *t = arch_tensor_whole(m->arch, (tensor_role)role);
        const model_tensor *tensor = &l->t[role];
        if (!tensor->data || is_statistic((tensor_role)role)) continue;
        if (role == ROLE_FFN_CUT && mode != PI_MODE_THRESHOLD) continue;
        bool moves = plan_tensor_moves(l, (tensor_role)role, t);
        if (tensor_role_is_predictor((tensor_role)role)) {
            /* predictors within experts stay on the CPU */
            if (mode != PI_MODE_PREDICT || out->experts) continue;
            out->predictor_bytes += tensor->n_bytes;
            out->always_padding += padding_of(t, tensor);
        } else if (moves && out->experts) {
            bytes->all += tensor->n_bytes / (uint64_t)out->n;
            out->unit_padding += padding_of(t, tensor) / (uint64_t)out->n;
        } else if (moves) {
            uint64_t n_groups = (uint64_t)(out->n / out->unit);
            uint64_t group = tensor->n_bytes / n_groups;
            bytes->all += group;
            bytes->by[reading_of(l, (tensor_role)role, t, mode)] += group;
            out->unit_padding += padding_of(t, tensor) / n_groups;
        } else {
            out->always_bytes += tensor->n_bytes;
            out->always_padding += padding_of(t, tensor);
        }
    }
    out->unit_bytes = bytes->all;
    out->unit_stream = (double)bytes->by[READ_ALWAYS];
}

/* The factor c for which the mean of min(1, c freq) is `selected`: the hottest neurons, for which c
 * freq would exceed 1, are excluded one by one. */
static double selection_factor(const model_layer *l, double selected) {
    const float *freq = l->sparse.freq; /* non-increasing */
    double left = selected * (double)l->hp.n_ff, sum = 0;
    for (int64_t i = 0; i < l->hp.n_ff; i++) sum += (double)freq[i];
    for (int64_t i = 0; i < l->hp.n_ff; i++) {
        if (left <= 0 || left * (double)freq[i] <= sum) break;
        left -= 1;
        sum -= (double)freq[i];
    }
    return sum > 0 && left > 0 ? left / sum : left > 0 ? INFINITY : 0;
}

/* Without statistics all experts have equal probabilities. */
static void fill_experts(const model *m, const model_layer *l, const neuron_bytes *bytes,
                         place_layer *out) {
    const float *freq = l->sparse.expert_freq;
    double even = (double)m->hp.n_expert_used / m->hp.n_expert;
    for (int64_t i = 0; i < out->n; i++)
        out->selected[i + 1] = out->selected[i] + (freq ? (double)freq[i] : even);
    for (int64_t i = 1; i <= out->n; i++) out->gather[i] = (double)bytes->all * out->selected[i];
}

static bool fill_gather(const model *m, const model_layer *l, const neuron_bytes *bytes,
                        double density, place_layer *out, arena *a) {
    int64_t n_units = out->n / out->unit;
    out->gather = arena_calloc(a, (size_t)n_units + 1, sizeof *out->gather);
    out->selected = arena_calloc(a, (size_t)n_units + 1, sizeof *out->selected);
    if (!out->gather || !out->selected) return false;
    if (out->experts) {
        fill_experts(m, l, bytes, out);
        return true;
    }
    bool known = l->sparse.freq;
    double selected = isnan(l->sparse.density) ? density : (double)l->sparse.density;
    double factor = known && bytes->by[READ_SELECTED] ? selection_factor(l, selected) : 0;
    double on_selected = (double)bytes->by[READ_SELECTED] / (double)out->unit;
    double on_fired = (double)bytes->by[READ_FIRED] / (double)out->unit;
    double sum = 0, n_selected = 0;
    for (int64_t i = 0; i < out->n; i++) {
        double fires = known ? (double)l->sparse.freq[i] : fmin(density, selected);
        double chosen = selected;
        if (known)
            chosen = fires > 0 ? fmin(1, factor * fires) : 0; /* the factor may be infinite */
        n_selected += chosen;
        sum += on_selected * chosen;
        sum += on_fired * (bytes->by[READ_SELECTED] ? fmin(fires, chosen) : fires);
        if ((i + 1) % out->unit) continue;
        out->gather[(i + 1) / out->unit] = sum;
        out->selected[(i + 1) / out->unit] = n_selected;
    }
    return true;
}

/* ---- KV cache and buffers -------------------------------------------------------------------- */

static pi_status size_kv(const model *m, int i, const place_use *use, place_layer *out,
                         pi_error *err) {
    const model_layer_hparams *l = &m->layers[i].hp;
    kv_layer kv;
    if (!kv_layer_rows(m, i, use->type_k, use->type_v, &kv))
        return error_set(
            err, PI_ERR_ARG,
            "head size %d is not a multiple of the KV cache type's block: place: use f16 or f32",
            l->head_dim);
    size_t all;
    if (!size_mul(kv_layer_bytes(&kv, 1), (size_t)use->n_ctx, &all)) /* at least the exact size */
        return error_set(err, PI_ERR_RANGE,
                         "KV cache too large: %lld positions: use a smaller context",
                         (long long)use->n_ctx);
    uint64_t state = (uint64_t)model_state(&m->hp, l) * sizeof(float);
    out->kv_bytes = kv_layer_bytes(&kv,
                                   use->n_ctx); /* 0 where the layer reads another layer's cache */
    out->kv_bytes += RECURRENT_SLOTS * state;
    uint64_t depth = (uint64_t)(use->depth < use->n_ctx ? use->depth : use->n_ctx);
    const plan_blocks blocks = {.size = kv.row[KV_INDEX] || l->index_shared ? m->hp.block_size : 0,
                                .top = m->hp.block_top,
                                .whole = m->hp.joint_kv};
    out->kv_read = kv_layer_read(m, i, &kv, &blocks, depth, 1);
    out->kv_read += 2 * state; /* also written */
    return PI_OK;
}

/* Buffers of a ubatch, as in the CPU's plan: float32 rows of x, y, attention's input and output,
 * gate and up, and a predictor's scores; one row of logits. */
static uint64_t scratch_of(const model *m, const place_use *use) {
    int64_t width = 0;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer *l = &m->layers[i];
        int64_t heads = 2 * (l->hp.n_head + l->hp.n_head_kv);
        int64_t w = heads * l->hp.head_dim + 2 * l->hp.n_ff;
        if (l->t[ROLE_ROUTER].data) /* a row for every expert that a token uses */
            w += m->hp.n_expert +
                 m->hp.n_expert_used * (2 * l->hp.n_ff_expert + m->hp.n_expert_embd);
        if (use->modes[i] == PI_MODE_PREDICT) w += l->hp.n_ff + l->sparse.rank;
        if (w > width) width = w;
    }
    width += 3 * (int64_t)m->hp.n_embd;
    return sizeof(float) * ((uint64_t)use->n_batch * (uint64_t)width + (uint64_t)m->hp.n_vocab);
}

/* ---- the whole model ------------------------------------------------------------------------- */

static void sum_ends(const model *m, place_workload *w) {
    static const tensor_role ends[] = {ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS, ROLE_OUTPUT,
                                       ROLE_OUTPUT_BIAS};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const model_tensor *tensor = &m->t[ends[i]];
        if (!tensor->data) continue;
        w->head_bytes += tensor->n_bytes;
        w->head_padding += padding_of(NULL, tensor);
    }
    static const tensor_role tables[] = {ROLE_TOKEN_EMBD, ROLE_TOKEN_TYPES, ROLE_POS_EMBD,
                                         ROLE_LAYER_EMBD, ROLE_NGRAM_EMBD,  ROLE_OUTPUT_FC1,
                                         ROLE_OUTPUT_FC2};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (m->t[tables[i]].data) w->table_bytes += m->t[tables[i]].n_bytes;
    if (m->t[ROLE_OUTPUT].data && m->t[ROLE_OUTPUT].data == m->t[ROLE_TOKEN_EMBD].data)
        w->tied_bytes = m->t[ROLE_TOKEN_EMBD].n_bytes;
}

/* Input and partial sum of a token's neurons: in int8 form where their weights are quantized, and
 * floats; with the bits of selected neurons, or choices. */
static uint64_t exchange_of(const model *m, const model_layer *l, pi_mode mode) {
    static const tensor_role in[] = {ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                     ROLE_EXPERT_GATE_UP};
    const int32_t n = l->t[ROLE_ROUTER].data ? m->hp.n_expert_embd : m->hp.n_embd;
    const uint64_t floats = sizeof(float) * (uint64_t)n;
    bool q8 = true;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (l->t[in[i]].data) q8 = q8 && quant_find((uint32_t)l->t[in[i]].type)->is_quantized;
    uint64_t bytes = floats + (q8 ? gpu_q8_bytes(n) : floats);
    if (l->t[ROLE_ROUTER].data)
        bytes += sizeof(uint32_t) * GPU_CHOICE_WORDS * (uint64_t)m->hp.n_expert_used;
    else if (mode == PI_MODE_PREDICT)
        bytes += (uint64_t)l->hp.n_ff / 8;
    return bytes;
}

static pi_status add_layer(const model *m, int i, const place_use *use, place_workload *w,
                           pi_error *err) {
    neuron_bytes bytes = {0};
    place_layer *out = &w->layers[i];
    out->with_previous = i > model_shared_from(m);
    out->exchange_bytes = exchange_of(m, &m->layers[i], use->modes[i]);
    sum_layer(m, &m->layers[i], use->modes[i], out, &bytes);
    if (use->plan->stays && use->plan->stays[i] & PLAN_STAY_ALWAYS) out->always_stays = true;
    if (use->plan->stays && use->plan->stays[i] & PLAN_STAY_NEURONS) out->neurons_stay = true;
    w->has_predictor = w->has_predictor || out->predictor_bytes > 0;
    if (!fill_gather(m, &m->layers[i], &bytes, use->density, out, &w->arena))
        return error_nomem(err, (size_t)out->n * sizeof(double), "neurons");
    return size_kv(m, i, use, out, err);
}

/* Kernels and barriers, from the plans of the layers. */
static pi_status count_steps(const model *m, const place_use *use, place_workload *w,
                             pi_error *err) {
    size_t n = (size_t)m->hp.n_layer + 1;
    step_counts *steps = mem_calloc(n, sizeof *steps);
    if (!steps) return error_nomem(err, n * sizeof *steps, "layers");
    pi_status status = step_count_layers(m, use->plan, use->depth, steps, err);
    for (int i = 0; i < m->hp.n_layer; i++) {
        memcpy(w->layers[i].always_steps, steps[i].always, sizeof steps[i].always);
        memcpy(w->layers[i].neuron_steps, steps[i].neurons, sizeof steps[i].neurons);
        w->layers[i].merged_norms = steps[i].norms;
    }
    memcpy(w->head_steps, steps[n - 1].always, sizeof w->head_steps);
    mem_free(steps);
    return status;
}

pi_status place_workload_create(const model *m, const place_use *use, place_workload *out,
                                pi_error *err) {
    *out = (place_workload){.n_layers = m->hp.n_layer};
    arena_init(&out->arena);
    out->layers = arena_calloc(&out->arena, (size_t)m->hp.n_layer, sizeof *out->layers);
    pi_status status = PI_OK;
    if (!out->layers)
        status = error_nomem(err, (size_t)m->hp.n_layer * sizeof *out->layers, "layers");
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++)
        status = add_layer(m, i, use, out, err);
    if (status == PI_OK) status = count_steps(m, use, out, err);
    if (status != PI_OK) {
        place_workload_free(out);
        return status;
    }
    sum_ends(m, out);
    out->stream_bytes = sizeof(float) * (uint64_t)plan_residual_width(m);
    if (use->plan->stays && use->plan->stays[m->hp.n_layer]) out->head_stays = true;
    out->scratch_bytes = scratch_of(m, use);
    return PI_OK;
}

void place_workload_free(place_workload *w) {
    arena_free(&w->arena);
    *w = (place_workload){0};
}
