/* prepare_write.c: the prepared file. Every tensor of the input that does not belong to neurons is
 * copied byte for byte, in the input's order; rows of gate and up and elements of their biases are
 * reordered; ffn_down is transposed; predictors, thresholds and statistics are added at the end.
 *
 * The list of output tensors comes first, because a GGUF file begins with it. Memory: one layer's
 * ffn_down_t and a chunk. Values that come from a measurement are first written as NaN and replaced
 * before the file appears. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "model_split.h"
#include "prepare.h"
#include "sparse_keys.h"

/* ---- keys ------------------------------------------------------------------------------------ */

static gguf_string text_of(const char *s) {
    return (gguf_string){.data = s, .n_bytes = strlen(s)};
}

/* Values of a layer that depend on the chosen thresholds. */
static const char *const cut_keys[] = {SPARSE_KEY_THRESHOLD_CUT, SPARSE_KEY_THRESHOLD_DOWN,
                                       SPARSE_KEY_THRESHOLD_UP_ROWS,
                                       SPARSE_KEY_THRESHOLD_DOWN_ROWS};
enum { N_CUT_KEYS = sizeof cut_keys / sizeof *cut_keys };

static float cut_value(const prepare_layer *l, const char *key) {
    if (!l->cuts || (l->cut == 0 && l->cut_down == 0)) return NAN;
    if (key == cut_keys[0]) return l->cuts->activation[l->cut];
    if (key == cut_keys[1]) return l->cuts->hidden[l->cut_down];
    return (float)(key == cut_keys[2] ? l->density : l->summed);
}

/* Kind, input, recall and density of the predictors, thresholds, and the fraction of active neurons
 * within experts; one value per layer, in the order of the model. */
static pi_status put_layer_keys(const preparation *p, pi_error *err) {
    size_t n = (size_t)p->model->hp.n_layer;
    gguf_string *texts = mem_calloc(2 * n, sizeof *texts);
    float *numbers = mem_calloc(3 * n, sizeof *numbers);
    if (!texts || !numbers) {
        mem_free(texts);
        mem_free(numbers);
        return error_nomem(err, n * (2 * sizeof *texts + 3 * sizeof *numbers), "keys of layers");
    }
    for (size_t i = 0; i < n; i++) {
        const prepare_layer *l = &p->layers[i];
        const model_layer_sparse *old = &p->model->layers[i].sparse;
        bool predicts = l->fit.kind != PREDICTOR_NONE;
        bool residual = l->keeps_predictor && old->predictor_residual;
        texts[i] = text_of(predictor_kind_name(l->fit.kind));
        texts[n + i] = text_of(residual ? "residual" : "normed");
        numbers[i] = predicts ? (float)l->fit.quality.contribution_recall : NAN;
        numbers[n + i] = predicts ? (float)l->fit.quality.selected : NAN;
        numbers[2 * n + i] = p->experts && l->n > 0 ? (float)l->fires : NAN;
    }
    gguf_put_strings(p->writer, SPARSE_KEY_PREDICTOR_KIND, texts, n);
    gguf_put_strings(p->writer, SPARSE_KEY_PREDICTOR_INPUT, texts + n, n);
    gguf_put_array(p->writer, SPARSE_KEY_PREDICTOR_RECALL, GGUF_F32, numbers, n);
    gguf_put_array(p->writer, SPARSE_KEY_PREDICTOR_DENSITY, GGUF_F32, numbers + n, n);
    for (int i = 0; i < N_CUT_KEYS && p->thresholds; i++) /* written by prepare_patch */
        gguf_put_array(p->writer, cut_keys[i], GGUF_F32, numbers, n);
    if (p->experts)
        gguf_put_array(p->writer, SPARSE_KEY_EXPERT_ACTIVE, GGUF_F32, numbers + 2 * n, n);
    mem_free(texts);
    mem_free(numbers);
    return PI_OK;
}

/* The original types of down. Experts' types are needed only if their down is or was transposed. */
static pi_status put_source_types(const preparation *p, pi_error *err) {
    size_t n = (size_t)p->model->hp.n_layer;
    bool any = !p->experts;
    gguf_string *names = mem_calloc(n, sizeof *names);
    if (!names) return error_nomem(err, n * sizeof *names, "keys of layers");
    for (size_t i = 0; i < n; i++) {
        names[i] = text_of(quant_find((uint32_t)p->source_down_type[i])->name);
        any = any || p->layers[i].transposes || p->model->layers[i].t[ROLE_EXPERT_DOWN_T].data;
    }
    if (any) gguf_put_strings(p->writer, SPARSE_KEY_SOURCE_DOWN_TYPE, names, n);
    mem_free(names);
    return PI_OK;
}

static pi_status put_keys(const preparation *p, pi_error *err) {
    gguf_writer *w = p->writer;
    prepare_copy_keys(p->model, false, w);
    gguf_put_u32(w, SPARSE_KEY_VERSION, SPARSE_VERSION);
    gguf_put_u32(w, SPARSE_KEY_CALIBRATION_TOKENS, (uint32_t)prepare_text_count(&p->text));
    gguf_put_string(w, SPARSE_KEY_CALIBRATION_SHA256, p->text.sha256);
    gguf_put_f32(w, p->thresholds ? SPARSE_KEY_THRESHOLD_LOSS : SPARSE_KEY_CALIBRATION_LOSS, NAN);
    bool keeps = false;
    for (int i = 0; i < p->model->hp.n_layer; i++) keeps = keeps || p->layers[i].keeps_predictor;
    const gguf_value *threshold = gguf_find(p->model->file, SPARSE_KEY_PREDICTOR_THRESHOLD);
    if (keeps && threshold) gguf_put_value(w, threshold);
    bool layers = !p->experts || prepare_is_sparse(p->model);
    pi_status status = layers ? put_layer_keys(p, err) : PI_OK;
    if (status == PI_OK) status = put_source_types(p, err);
    return status == PI_OK ? prepare_put_bundle_keys(p, err) : status;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* A tensor with a part per expert. */
static pi_status add_of_experts(prepare_parts *l, const gguf_tensor *t, int layer, pi_error *err) {
    char name[GGUF_MAX_NAME];
    const arch_tensor *row = prepare_find_role(l->p->model, t->name, &layer);
    if (row && prepare_is_expert_matrix(row->role))
        return prepare_add_experts(l, row->role, layer, err);
    if (!l->p->layers[layer].transposes) return prepare_add_moved(l, t, t->name, layer, err);
    prepare_rename(t->name, ".ffn_down_exps.scale", ".ffn_down_t_exps.scale", name);
    return prepare_add_moved(l, t, name, layer, err);
}

static pi_status add_predictor_tensor(prepare_parts *l, const gguf_tensor *t, tensor_role role,
                                      int layer, pi_error *err) {
    if (!l->p->layers[layer].keeps_predictor) return PI_OK;
    return role == ROLE_FC1 ? prepare_add_copy(l, t, t->name, err)
                            : prepare_add_moved(l, t, t->name, layer, err);
}

/* A tensor of a single expert: the first one represents all of a layer. */
static pi_status add_split(prepare_parts *l, const model_split *s, int expert, pi_error *err) {
    if (expert > 0) return PI_OK;
    if (!tensor_role_is_predictor(s->role)) return prepare_add_experts(l, s->role, s->layer, err);
    if (!l->p->layers[s->layer].keeps_predictor) return PI_OK;
    return prepare_add_moved(l, &s->all, s->all.name, s->layer, err);
}

static pi_status add_tensor(prepare_parts *l, const gguf_tensor *t, pi_error *err) {
    int layer = 0, expert;
    const model_split *split = model_split_of(l->p->model, t->name, &expert);
    if (split) return add_split(l, split, expert, err);
    if (prepare_is_of_experts(l->p->model, t, &layer)) return add_of_experts(l, t, layer, err);
    const arch_tensor *row = prepare_find_role(l->p->model, t->name, &layer);
    bool found = row && (row->role == ROLE_FFN_FREQ || row->role == ROLE_EXPERT_PERM ||
                         (row->role >= ROLE_EXPERT_FC1 && row->role <= ROLE_EXPERT_SIGN));
    if (prepare_is_sketch(t->name)) return PI_OK; /* from an earlier preparation */
    if (l->p->experts && !found) return prepare_add_copy(l, t, t->name, err);
    if (!row) {
        char name[GGUF_MAX_NAME];
        prepare_rename(t->name, ".ffn_down.scale", ".ffn_down_t.scale", name);
        return prepare_add_copy(l, t, name, err);
    }
    switch (row->role) {
    case ROLE_FFN_FREQ:
    case ROLE_FFN_PERM:
    case ROLE_FFN_CUT:
    case ROLE_EXPERT_PERM:
        return PI_OK; /* from an earlier preparation */
    case ROLE_FC1:
    case ROLE_FC2:
    case ROLE_FC2_BIAS:
    case ROLE_FFN_SIGN:
    case ROLE_EXPERT_FC1: /* moved like the experts */
    case ROLE_EXPERT_FC2:
    case ROLE_EXPERT_FC2_BIAS:
    case ROLE_EXPERT_SIGN:
        return add_predictor_tensor(l, t, row->role, layer, err);
    case ROLE_FFN_GATE_BIAS:
    case ROLE_FFN_UP_BIAS:
        return prepare_add_moved(l, t, t->name, layer, err);
    case ROLE_FFN_UP:
    case ROLE_FFN_GATE:
    case ROLE_FFN_GATE_UP:
    case ROLE_FFN_DOWN:
    case ROLE_FFN_DOWN_T:
    case ROLE_FFN_BUNDLE:
        return prepare_add_neurons(l, row->role, layer, err);
    default:
        return prepare_add_copy(l, t, t->name, err);
    }
}

/* Adds one number per neuron or expert. */
static pi_status add_vector(prepare_parts *l, tensor_role role, int layer, quant_type type,
                            const void *bytes, pi_error *err) {
    prepare_part item = prepare_name_part(l->p, PART_BYTES, role, layer);
    item.type = type;
    item.n_dims = 1;
    item.dims[0] = (uint64_t)l->p->layers[layer].n;
    item.bytes = bytes;
    return prepare_add_part(l, &item, err);
}

/* Ends at the first dimension of 0. */
static pi_status add_spilled(prepare_parts *l, tensor_role role, int layer, quant_type type,
                             const int64_t dims[3], uint64_t at, pi_error *err) {
    prepare_part item = prepare_name_part(l->p, PART_SPILLED, role, layer);
    item.type = type;
    for (item.n_dims = 0; item.n_dims < 3 && dims[item.n_dims]; item.n_dims++)
        item.dims[item.n_dims] = (uint64_t)dims[item.n_dims];
    item.at = at;
    return prepare_add_part(l, &item, err);
}

static pi_status add_fitted(prepare_parts *l, int layer, pi_error *err) {
    const prepare_layer *found = &l->p->layers[layer];
    const model_layer *m = &l->p->model->layers[layer];
    const predictor_fit *fit = &found->fit;
    bool experts = m->t[ROLE_ROUTER].data;
    int64_t n_embd = l->p->model->hp.n_embd, n_ff = experts ? m->hp.n_ff_expert : m->hp.n_ff;
    int64_t n = experts ? l->p->model->hp.n_expert : 0;
    const int64_t fc1[] = {n_embd, fit->rank, n}, fc2[] = {fit->rank, n_ff, n};
    const int64_t sign[] = {n_embd / 8, n_ff, n}, bias[] = {n_ff, n, 0};
    pi_status status = PI_OK;
    if (fit->kind == PREDICTOR_NONE || found->keeps_predictor) return PI_OK;
    if (fit->kind == PREDICTOR_SIGN) {
        status = add_spilled(l, experts ? ROLE_EXPERT_SIGN : ROLE_FFN_SIGN, layer, QUANT_I8, sign,
                             found->at.sign, err);
    } else {
        status = add_spilled(l, experts ? ROLE_EXPERT_FC1 : ROLE_FC1, layer, fit->type_fc1, fc1,
                             found->at.fc1, err);
        if (status == PI_OK)
            status = add_spilled(l, experts ? ROLE_EXPERT_FC2 : ROLE_FC2, layer, fit->type_fc2, fc2,
                                 found->at.fc2, err);
    }
    if (status != PI_OK) return status;
    return add_spilled(l, experts ? ROLE_EXPERT_FC2_BIAS : ROLE_FC2_BIAS, layer, QUANT_F32, bias,
                       found->at.bias, err);
}

static pi_status add_findings(prepare_parts *l, int layer, const int32_t *perm, pi_error *err) {
    tensor_role order = l->p->experts ? ROLE_EXPERT_PERM : ROLE_FFN_PERM;
    pi_status status = add_fitted(l, layer, err);
    if (status == PI_OK)
        status = add_vector(l, ROLE_FFN_FREQ, layer, QUANT_F32, l->p->layers[layer].freq, err);
    if (status == PI_OK) status = add_vector(l, order, layer, QUANT_I32, perm, err);
    if (status == PI_OK && l->p->thresholds)
        status = add_vector(l, ROLE_FFN_CUT, layer, QUANT_F32, l->p->layers[layer].cut_weight, err);
    return status;
}

/* Source indices of the stored neurons (experts): indices in the input, mapped through the input's
 * permutation. perms: every layer's permutation, one after the other. */
static pi_status add_all_findings(prepare_parts *l, int32_t *perms, pi_error *err) {
    const model *m = l->p->model;
    pi_status status = PI_OK;
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++) {
        const model_layer_sparse *s = &m->layers[i].sparse;
        const int32_t *old = l->p->experts ? s->expert_perm : s->perm;
        const prepare_layer *layer = &l->p->layers[i];
        if (layer->n == 0) continue;
        for (int64_t k = 0; k < layer->n; k++)
            perms[k] = old ? old[layer->order[k]] : layer->order[k];
        status = add_findings(l, i, perms, err);
        perms += layer->n;
    }
    return status;
}

/* The output head's predictor. */
static pi_status add_head(prepare_parts *l, pi_error *err) {
    const prepare_head *h = &l->p->head;
    const model_hparams *hp = &l->p->model->hp;
    prepare_part fc1 = prepare_name_part(l->p, PART_BYTES, ROLE_OUTPUT_FC1, -1);
    prepare_part fc2 = prepare_name_part(l->p, PART_BYTES, ROLE_OUTPUT_FC2, -1);
    if (h->rank == 0) return PI_OK;
    fc1.type = h->type_fc1;
    fc1.dims[0] = (uint64_t)hp->n_embd;
    fc1.dims[1] = fc2.dims[0] = (uint64_t)h->rank;
    fc1.bytes = h->fc1;
    fc2.type = h->type_fc2;
    fc2.dims[1] = (uint64_t)hp->n_vocab;
    fc2.bytes = h->fc2;
    gguf_put_f32(l->p->writer, SPARSE_KEY_HEAD_DISTANCE, h->distance);
    gguf_put_f32(l->p->writer, SPARSE_KEY_HEAD_LOSS, NAN);
    gguf_put_f32(l->p->writer, SPARSE_KEY_HEAD_ROWS, (float)h->rows);
    pi_status status = prepare_add_part(l, &fc1, err);
    return status == PI_OK ? prepare_add_part(l, &fc2, err) : status;
}

pi_status prepare_write(preparation *p, pi_error *err) {
    prepare_parts l = {.p = p};
    const model *m = p->model;
    size_t n = 0;
    for (int i = 0; i < m->hp.n_layer; i++) n += (size_t)p->layers[i].n;
    int32_t *perms = mem_calloc(n, sizeof *perms);
    if (!perms) return error_nomem(err, n * sizeof *perms, "permutations");
    pi_status status = put_keys(p, err);
    for (uint64_t i = 0; i < gguf_n_tensors(m->file) && status == PI_OK; i++)
        status = add_tensor(&l, gguf_tensor_at(m->file, i), err);
    if (status == PI_OK) status = add_all_findings(&l, perms, err);
    if (status == PI_OK) status = add_head(&l, err);
    if (status == PI_OK)
        status = prepare_put_parts(&l, err);
    else
        mem_free(l.items);
    mem_free(perms);
    return status;
}

pi_status prepare_patch(preparation *p, double loss, pi_error *err) {
    float value = (float)loss;
    if (!p->thresholds)
        return gguf_writer_patch(p->writer, SPARSE_KEY_CALIBRATION_LOSS, &value, sizeof value, err);
    size_t n = (size_t)p->model->hp.n_layer, n_bytes = n * sizeof(float);
    float *values = mem_alloc(n_bytes);
    if (!values) return error_nomem(err, n_bytes, "thresholds");
    pi_status status = PI_OK;
    for (int k = 0; k < N_CUT_KEYS && status == PI_OK; k++) {
        for (size_t i = 0; i < n; i++) values[i] = cut_value(&p->layers[i], cut_keys[k]);
        status = gguf_writer_patch(p->writer, cut_keys[k], values, n_bytes, err);
    }
    if (status == PI_OK)
        status = gguf_writer_patch(p->writer, SPARSE_KEY_THRESHOLD_LOSS, &value, sizeof value, err);
    mem_free(values);
    return status;
}
