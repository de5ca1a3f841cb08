/* prepare_bundle.c: how neurons' matrices lie in the output: rows of gate, up and ffn_down_t side
 * by side (bundle.h), or in matrices of their own; and a prepared file written again from the one
 * to the other, with all that was measured as it is. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"
#include "sparse_keys.h"

/* Bundled layers have rows of down, whatever form it has in the input; so have all when a model is
 * prepared. */
static bool will_be_bundled(const preparation *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    bool keeps_down = p->rearranges && !l->t[ROLE_FFN_DOWN_T].data;
    return p->bundles && l->t[ROLE_FFN_UP].data && !keeps_down;
}

pi_status prepare_choose_bundles(preparation *p, pi_error *err) {
    const pi_bundles wanted = p->options->bundles;
    p->rearranges = p->options->rearrange && p->model->sparse.prepared;
    /* Beside experts everything is copied. */
    bool keep = wanted == PI_BUNDLES_KEEP || (p->experts && !p->rearranges);
    p->bundles = keep ? model_has_bundles(p->model) : wanted == PI_BUNDLES_ALL;
    if (p->experts && wanted == PI_BUNDLES_ALL)
        return error_set(err, PI_ERR_ARG,
                         "nothing to bundle: %.300s: the rows of an expert are contiguous anyway",
                         p->in_path);
    return PI_OK;
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

/* NULL: not bundled, or no such matrix. */
static const quant_traits *part_traits(const preparation *p, int layer, tensor_role role) {
    const model_tensor *t = &p->model->layers[layer].t[role];
    if (!will_be_bundled(p, layer)) return NULL;
    if (role == ROLE_FFN_DOWN_T) return quant_find((uint32_t)choose_down_type(p, layer));
    return t->data ? prepare_traits(t) : NULL;
}

pi_status prepare_put_bundle_keys(const preparation *p, pi_error *err) {
    size_t n = (size_t)p->model->hp.n_layer;
    uint32_t source = prepare_source_alignment(p->model);
    if (!p->bundles) return PI_OK;
    gguf_string *texts = mem_calloc(n, sizeof *texts);
    if (!texts) return error_nomem(err, n * sizeof *texts, "keys of layers");
    if (source) gguf_put_u32(p->writer, SPARSE_KEY_SOURCE_ALIGNMENT, source);
    gguf_put_u32(p->writer, GGUF_KEY_ALIGNMENT,
                 source > BUNDLE_FILE_ALIGN ? source : BUNDLE_FILE_ALIGN);
    for (int part = 0; part < BUNDLE_PARTS; part++) {
        for (size_t i = 0; i < n; i++) {
            const quant_traits *traits = part_traits(p, (int)i, bundle_part_role(part));
            const char *name = traits ? traits->name : "none";
            texts[i] = (gguf_string){.data = name, .n_bytes = strlen(name)};
        }
        gguf_put_strings(p->writer, bundle_part_key(part), texts, n);
    }
    mem_free(texts);
    return PI_OK;
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

static pi_status add_bundles(prepare_parts *l, int layer, pi_error *err) {
    const preparation *p = l->p;
    prepare_part item = prepare_name_part(p, PART_BUNDLE, ROLE_FFN_BUNDLE, layer);
    const quant_traits *traits[BUNDLE_PARTS];
    for (int i = 0; i < BUNDLE_PARTS; i++) traits[i] = part_traits(p, layer, bundle_part_role(i));
    if (!bundle_lay_out(traits, p->model->hp.n_embd, &item.layout))
        return error_set(err, PI_ERR_LIMIT, "bundles are too long: %.300s: layer %d", p->in_path,
                         layer);
    item.type = QUANT_I8;
    item.dims[0] = item.layout.stride;
    item.dims[1] = (uint64_t)p->model->layers[layer].hp.n_ff;
    return prepare_add_part(l, &item, err);
}

pi_status prepare_add_neurons(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    bool bundles = will_be_bundled(l->p, layer);
    if (role == ROLE_FFN_GATE || role == ROLE_FFN_UP || role == ROLE_FFN_GATE_UP)
        return bundles ? PI_OK : prepare_add_rows(l, role, layer, err);
    if (bundles) return add_bundles(l, layer, err);
    pi_status status = role == ROLE_FFN_BUNDLE ? prepare_add_gate_up(l, layer, err) : PI_OK;
    return status == PI_OK ? add_down(l, layer, err) : status;
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
    default:
        return prepare_add_copy(l, t, t->name, err);
    }
}

pi_status prepare_write_bundles(preparation *p, pi_prepare_result *result, pi_error *err) {
    prepare_parts l = {.p = p};
    const gguf_file *f = p->model->file;
    talk_say(&p->talk,
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
