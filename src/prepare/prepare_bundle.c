/* prepare_bundle.c: the layout of the matrices of neurons and experts in the output: bundled
 * (bundle.h), or in separate tensors; and conversion of a prepared file from one layout to the
 * other, without new measurements. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"
#include "sparse_keys.h"

/* Bundled layers have rows of down, whatever the input has; after prepare all layers have them. */
static bool will_be_bundled(const preparation *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    if (p->experts && !p->rearranges) return l->bundle; /* with experts the rest is copied */
    bool keeps_down = p->rearranges && !l->t[ROLE_FFN_DOWN_T].data;
    return p->bundles && l->t[ROLE_FFN_UP].data && !keeps_down;
}

void prepare_choose_bundles(preparation *p) {
    const pi_bundles wanted = p->options->bundles;
    p->rearranges = p->options->rearrange && p->model->sparse.prepared;
    p->bundles = wanted == PI_BUNDLES_KEEP ? model_has_bundles(p->model) : wanted == PI_BUNDLES_ALL;
}

static bool experts_bundled(const preparation *p, int layer) {
    return p->bundles && p->model->layers[layer].t[ROLE_ROUTER].data;
}

/* The form of the experts' down in the output. */
static tensor_role expert_down(const preparation *p, int layer) {
    bool rows = p->model->layers[layer].t[ROLE_EXPERT_DOWN_T].data ||
                (p->layers && p->layers[layer].transposes);
    return rows ? ROLE_EXPERT_DOWN_T : ROLE_EXPERT_DOWN;
}

/* ---- keys ------------------------------------------------------------------------------------ */

uint32_t prepare_source_alignment(const model *m) {
    const char *key = model_has_bundles(m) ? SPARSE_KEY_SOURCE_ALIGNMENT : GGUF_KEY_ALIGNMENT;
    const gguf_value *v = gguf_find(m->file, key);
    uint64_t alignment;
    return v && gguf_as_u64(v, &alignment) && alignment <= UINT32_MAX ? (uint32_t)alignment : 0;
}

quant_type prepare_choose_down_type(const preparation *p, const model_tensor *plain,
                                    const model_tensor *down_t) {
    size_t row;
    quant_type type = plain->data ? plain->type : down_t->type;
    if (plain->data && (p->quantized || prepare_traits(plain)->is_quantized)) type = QUANT_Q8_0;
    if (p->has_down_type) type = p->down_type;
    return quant_row_bytes(type, (uint64_t)p->model->hp.n_embd, &row) ? type : QUANT_F16;
}

static quant_type choose_down_type(const preparation *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    return prepare_choose_down_type(p, &t[ROLE_FFN_DOWN], &t[ROLE_FFN_DOWN_T]);
}

/* NULL: not bundled, or no such matrix */
static const quant_traits *neuron_traits(const preparation *p, int layer, tensor_role role) {
    const model_tensor *t = &p->model->layers[layer].t[role];
    if (!will_be_bundled(p, layer)) return NULL;
    if (role == ROLE_FFN_DOWN_T) return quant_find((uint32_t)choose_down_type(p, layer));
    return t->data ? prepare_traits(t) : NULL;
}

static const quant_traits *expert_traits(const preparation *p, int layer, tensor_role role) {
    const model_tensor *t = p->model->layers[layer].t;
    bool down = role == ROLE_EXPERT_DOWN || role == ROLE_EXPERT_DOWN_T;
    if (!experts_bundled(p, layer) || (down && role != expert_down(p, layer))) return NULL;
    if (t[role].data) return prepare_traits(&t[role]);
    if (!down) return NULL;
    return quant_find((uint32_t)prepare_choose_down_type(p, &t[ROLE_EXPERT_DOWN], NULL));
}

static const quant_traits *part_traits(const preparation *p, bundle_kind kind, int layer,
                                       int part) {
    tensor_role role = bundle_part_role(kind, part);
    if (role == ROLE_COUNT) return NULL;
    return kind == BUNDLE_NEURONS ? neuron_traits(p, layer, role) : expert_traits(p, layer, role);
}

static bool any_bundled(const preparation *p, bundle_kind kind) {
    bool any = false;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        any = any || (kind == BUNDLE_NEURONS ? will_be_bundled(p, i) : experts_bundled(p, i));
    return any;
}

/* texts: [n_layer] scratch. */
static void put_types(const preparation *p, bundle_kind kind, gguf_string *texts) {
    size_t n = (size_t)p->model->hp.n_layer;
    for (int part = 0; part < BUNDLE_PARTS && bundle_part_key(kind, part); part++) {
        for (size_t i = 0; i < n; i++) {
            const quant_traits *traits = part_traits(p, kind, (int)i, part);
            const char *name = traits ? traits->name : "none";
            texts[i] = (gguf_string){.data = name, .n_bytes = strlen(name)};
        }
        gguf_put_strings(p->writer, bundle_part_key(kind, part), texts, n);
    }
}

static void put_widths(const preparation *p, float *widths) {
    size_t n = (size_t)p->model->hp.n_layer;
    for (size_t i = 0; i < n; i++)
        widths[i] = experts_bundled(p, (int)i) ? (float)p->model->layers[i].hp.n_ff_expert : 0;
    gguf_put_array(p->writer, SPARSE_KEY_BUNDLE_EXPERT_FF, GGUF_F32, widths, n);
}

pi_status prepare_put_bundle_keys(const preparation *p, pi_error *err) {
    size_t n = (size_t)p->model->hp.n_layer;
    uint32_t source = prepare_source_alignment(p->model);
    bool experts = any_bundled(p, BUNDLE_EXPERTS), neurons = any_bundled(p, BUNDLE_NEURONS);
    if (!p->bundles) return PI_OK;
    gguf_string *texts = mem_calloc(n, sizeof *texts);
    float *widths = mem_calloc(n, sizeof *widths);
    pi_status status = texts && widths ? PI_OK
                                       : error_nomem(err, n * sizeof *texts, "keys of layers");
    if (status == PI_OK) {
        if (source) gguf_put_u32(p->writer, SPARSE_KEY_SOURCE_ALIGNMENT, source);
        gguf_put_u32(p->writer, GGUF_KEY_ALIGNMENT,
                     source > BUNDLE_FILE_ALIGN ? source : BUNDLE_FILE_ALIGN);
        if (neurons || !experts) put_types(p, BUNDLE_NEURONS, texts);
        if (experts) put_types(p, BUNDLE_EXPERTS, texts);
        if (experts) put_widths(p, widths);
    }
    mem_free(texts);
    mem_free(widths);
    return status == PI_OK ? prepare_put_order(p, err) : status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

pi_status prepare_add_rows(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    const model_tensor *t = l->p->model->layers[layer].t;
    prepare_part item = prepare_name_part(l->p, PART_ROWS, role, layer);
    bool both = role == ROLE_FFN_GATE_UP;
    item.rows = t[both ? ROLE_FFN_GATE : role];
    if (both) item.more = t[ROLE_FFN_UP];
    item.type = item.rows.type;
    item.dims[0] = (uint64_t)item.rows.n_in;
    item.dims[1] = (uint64_t)(item.rows.n_out + item.more.n_out);
    return prepare_add_part(l, &item, err);
}

pi_status prepare_add_gate_up(prepare_parts *l, int layer, pi_error *err) {
    const model *m = l->p->model;
    pi_status status = PI_OK;
    if (arch_tensor_of(m->arch, ROLE_FFN_GATE_UP))
        return prepare_add_rows(l, ROLE_FFN_GATE_UP, layer, err);
    if (m->layers[layer].t[ROLE_FFN_GATE].data)
        status = prepare_add_rows(l, ROLE_FFN_GATE, layer, err);
    return status == PI_OK ? prepare_add_rows(l, ROLE_FFN_UP, layer, err) : status;
}

static pi_status add_down(prepare_parts *l, int layer, pi_error *err) {
    const model *m = l->p->model;
    prepare_part item = prepare_name_part(l->p, PART_DOWN_T, ROLE_FFN_DOWN_T, layer);
    item.type = choose_down_type(l->p, layer);
    item.dims[0] = (uint64_t)m->hp.n_embd;
    item.dims[1] = (uint64_t)m->layers[layer].hp.n_ff;
    return prepare_add_part(l, &item, err);
}

static pi_status add_bundles(prepare_parts *l, bundle_kind kind, int layer, pi_error *err) {
    const preparation *p = l->p;
    const model *m = p->model;
    bool experts = kind == BUNDLE_EXPERTS;
    prepare_part item = prepare_name_part(p, experts ? PART_EXPERT_BUNDLE : PART_BUNDLE,
                                          bundle_role(kind), layer);
    const quant_traits *traits[BUNDLE_PARTS];
    for (int i = 0; i < BUNDLE_PARTS; i++) traits[i] = part_traits(p, kind, layer, i);
    if (!bundle_lay_out(kind, traits, m->hp.n_embd, m->layers[layer].hp.n_ff_expert, &item.layout))
        return error_set(err, PI_ERR_LIMIT, "bundles are too long: %.300s: layer %d", p->in_path,
                         layer);
    item.type = QUANT_I8;
    item.dims[0] = item.layout.stride;
    item.dims[1] = (uint64_t)(experts ? m->hp.n_expert : m->layers[layer].hp.n_ff);
    return prepare_add_part(l, &item, err);
}

pi_status prepare_add_neurons(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    bool bundles = will_be_bundled(l->p, layer);
    if (role == ROLE_FFN_GATE || role == ROLE_FFN_UP || role == ROLE_FFN_GATE_UP)
        return bundles ? PI_OK : prepare_add_rows(l, role, layer, err);
    if (bundles) return add_bundles(l, BUNDLE_NEURONS, layer, err);
    pi_status status = role == ROLE_FFN_BUNDLE ? prepare_add_gate_up(l, layer, err) : PI_OK;
    return status == PI_OK ? add_down(l, layer, err) : status;
}

/* Each expert's part as a row. */
pi_status prepare_add_expert_rows(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    const model_tensor *t = &l->p->model->layers[layer].t[role];
    int64_t n = l->p->model->hp.n_expert;
    if (!t->data) return PI_OK;
    prepare_part item = prepare_name_part(l->p, PART_ROWS, role, layer);
    item.type = t->type;
    item.n_dims = 3;
    item.dims[0] = (uint64_t)t->n_in;
    item.dims[1] = (uint64_t)(t->n_out / n);
    item.dims[2] = (uint64_t)n;
    item.rows = *t;
    item.rows.row_bytes = t->expert_bytes;
    item.rows.n_out = n;
    return prepare_add_part(l, &item, err);
}

static pi_status add_expert_down_t(prepare_parts *l, int layer, pi_error *err) {
    const model *m = l->p->model;
    prepare_part item = prepare_name_part(l->p, PART_EXPERTS_DOWN, ROLE_EXPERT_DOWN_T, layer);
    item.type = prepare_choose_down_type(l->p, &m->layers[layer].t[ROLE_EXPERT_DOWN], NULL);
    item.n_dims = 3;
    item.dims[0] = (uint64_t)m->hp.n_embd;
    item.dims[1] = (uint64_t)m->layers[layer].hp.n_ff_expert;
    item.dims[2] = (uint64_t)m->hp.n_expert;
    return prepare_add_part(l, &item, err);
}

pi_status prepare_add_experts(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    static const tensor_role up[] = {ROLE_EXPERT_GATE_UP, ROLE_EXPERT_GATE, ROLE_EXPERT_UP};
    const preparation *p = l->p;
    bool down = role >= ROLE_EXPERT_DOWN, apart = role == ROLE_EXPERT_BUNDLE;
    tensor_role down_role = expert_down(p, layer);
    pi_status status = PI_OK;
    if (experts_bundled(p, layer)) /* replaces down, which every layer has exactly once */
        return down ? add_bundles(l, BUNDLE_EXPERTS, layer, err) : PI_OK;
    if (!down) return prepare_add_expert_rows(l, role, layer, err);
    for (int i = 0; i < 3 && apart && status == PI_OK; i++)
        status = prepare_add_expert_rows(l, up[i], layer, err);
    if (status != PI_OK) return status;
    if (down_role == ROLE_EXPERT_DOWN_T && !p->model->layers[layer].t[down_role].data)
        return add_expert_down_t(l, layer, err);
    return prepare_add_expert_rows(l, down_role, layer, err);
}

/* ---- a prepared file again ------------------------------------------------------------------- */

static pi_status add_tensor(prepare_parts *l, const gguf_tensor *t, pi_error *err) {
    int layer = 0;
    const arch_tensor *row = prepare_find_role(l->p->model, t->name, &layer);
    switch (row ? row->role : ROLE_COUNT) {
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_GATE_UP:
    case ROLE_FFN_DOWN_T:
    case ROLE_FFN_BUNDLE:
        return prepare_add_neurons(l, row->role, layer, err);
    case ROLE_EXPERT_GATE_UP:
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP:
    case ROLE_EXPERT_DOWN:
    case ROLE_EXPERT_DOWN_T:
    case ROLE_EXPERT_BUNDLE:
        return prepare_add_experts(l, row->role, layer, err);
    default:
        return prepare_add_copy(l, t, t->name, err);
    }
}

pi_status prepare_write_bundles(preparation *p, pi_prepare_result *result, pi_error *err) {
    prepare_parts l = {.p = p};
    const gguf_file *f = p->model->file;
    notify(&p->notifier,
           "already prepared: only bundles change; give a calibration text to prepare it again");
    prepare_copy_keys(p->model, true, p->writer);
    pi_status status = prepare_put_bundle_keys(p, err);
    *result = (pi_prepare_result){.ppl_before = NAN, .ppl_after = NAN, .kl = NAN, .density = NAN};
    for (uint64_t i = 0; i < gguf_n_tensors(f) && status == PI_OK; i++) {
        result->bytes_in += gguf_tensor_at(f, i)->n_bytes;
        status = add_tensor(&l, gguf_tensor_at(f, i), err);
    }
    if (status == PI_OK)
        status = prepare_put_parts(&l, err);
    else
        mem_free(l.items);
    result->bytes_out = p->bytes_out;
    result->predictor_bytes = p->predictor_bytes;
    return status;
}
