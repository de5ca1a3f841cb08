/* model_bundle.c: bundles become strided views of gate, up and ffn_down_t, which the engine reads
 * like any other matrix. */
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "mem.h"
#include "model_sparse.h"
#include "sparse_keys.h"

static const struct {
    tensor_role role;
    const char *key;
} parts[BUNDLE_PARTS] = {
    {ROLE_FFN_GATE, SPARSE_KEY_BUNDLE_GATE_TYPE},
    {ROLE_FFN_UP, SPARSE_KEY_BUNDLE_UP_TYPE},
    {ROLE_FFN_DOWN_T, SPARSE_KEY_BUNDLE_DOWN_TYPE},
};

tensor_role bundle_part_role(int part) {
    return parts[part].role;
}

const char *bundle_part_key(int part) {
    return parts[part].key;
}

bool bundle_lay_out(const quant_traits *const traits[BUNDLE_PARTS], int64_t n_embd,
                    bundle_layout *out) {
    size_t at = 0;
    bool fits = true;
    *out = (bundle_layout){0};
    for (int i = 0; i < BUNDLE_PARTS && fits; i++) {
        bundle_part *p = &out->part[i];
        p->role = parts[i].role;
        if (!traits[i]) continue;
        p->type = traits[i]->type;
        fits = size_align(at, BUNDLE_PART_ALIGN, &p->at) &&
               quant_row_bytes(p->type, (uint64_t)n_embd, &p->n_bytes) &&
               size_add(p->at, p->n_bytes, &at);
    }
    return fits && size_align(at, BUNDLE_BLOCK, &out->stride);
}

static pi_status fail_bundle(const model *m, const gguf_tensor *t, const char *problem,
                             pi_error *err) {
    return error_set(err, PI_ERR_FORMAT, "bad bundle: %s: tensor %s: %s; prepare the model again",
                     gguf_path(m->file), t->name, problem);
}

/* A part's type in a layer; NULL for "none". */
static pi_status read_type(const model *m, const gguf_tensor *t, int layer, int part,
                           const quant_traits **out, pi_error *err) {
    const gguf_value *v;
    char text[24], problem[160];
    const char *key = parts[part].key;
    pi_status status = model_find_array(m, key, true, &v, err);
    if (status != PI_OK) return status;
    if (!v) {
        snprintf(problem, sizeof problem, "key %s is missing", key);
        return fail_bundle(m, t, problem, err);
    }
    gguf_string word = {0};
    const uint8_t *cursor = v->data;
    for (int i = 0; i <= layer; i++) word = gguf_next_string(&cursor);
    int n = word.n_bytes < sizeof text ? (int)word.n_bytes : (int)sizeof text - 1;
    snprintf(text, sizeof text, "%.*s", n, word.data);
    *out = NULL;
    if (strcmp(text, "none") == 0) return PI_OK;
    const quant_traits *traits = quant_find_name(text);
    if (traits && traits->dequantize && strlen(text) == word.n_bytes) {
        *out = traits;
        return PI_OK;
    }
    snprintf(problem, sizeof problem, "key %s is '%s' in layer %d, which is not a weight type", key,
             text, layer);
    return fail_bundle(m, t, problem, err);
}

static pi_status read_layout(const model *m, const gguf_tensor *t, int layer, bundle_layout *out,
                             pi_error *err) {
    const quant_traits *traits[BUNDLE_PARTS];
    char problem[160];
    for (int i = 0; i < BUNDLE_PARTS; i++) {
        pi_status status = read_type(m, t, layer, i, &traits[i], err);
        if (status != PI_OK) return status;
        bool gate = parts[i].role == ROLE_FFN_GATE;
        bool wanted = !gate || arch_tensor_whole(m->arch, ROLE_FFN_GATE);
        if (wanted == (traits[i] != NULL)) continue;
        snprintf(problem, sizeof problem, "key %s is '%s' in layer %d, but the layer has %s%s",
                 parts[i].key, traits[i] ? traits[i]->name : "none", layer, wanted ? "" : "no ",
                 tensor_role_name(parts[i].role));
        return fail_bundle(m, t, problem, err);
    }
    if (arch_tensor_of(m->arch, ROLE_FFN_GATE_UP) && traits[0] != traits[1]) {
        snprintf(problem, sizeof problem,
                 "keys say that gate is %s and up %s in layer %d, but they are rows of one matrix",
                 traits[0]->name, traits[1]->name, layer);
        return fail_bundle(m, t, problem, err);
    }
    if (!bundle_lay_out(traits, m->hp.n_embd, out)) {
        snprintf(problem, sizeof problem, "rows of %d elements are not whole blocks of %s, %s, %s",
                 m->hp.n_embd, traits[0] ? traits[0]->name : "none", traits[1]->name,
                 traits[2]->name);
        return fail_bundle(m, t, problem, err);
    }
    return PI_OK;
}

/* Larger strides than needed are fine. */
static pi_status check_place(const model *m, const gguf_tensor *t, bundle_layout *layout,
                             pi_error *err) {
    char problem[160];
    uint64_t stride = t->dims[0];
    if (stride < layout->stride || stride % BUNDLE_BLOCK) {
        snprintf(problem, sizeof problem,
                 "rows are %llu bytes long, not a multiple of %d from %zu on",
                 (unsigned long long)stride, BUNDLE_BLOCK, layout->stride);
        return fail_bundle(m, t, problem, err);
    }
    if (t->file_offset % BUNDLE_FILE_ALIGN) {
        snprintf(problem, sizeof problem, "begins at byte %llu, not a multiple of %d",
                 (unsigned long long)t->file_offset, BUNDLE_FILE_ALIGN);
        return fail_bundle(m, t, problem, err);
    }
    layout->stride = (size_t)stride;
    return PI_OK;
}

pi_status model_bind_bundle(model *m, int layer, pi_error *err) {
    model_layer *l = &m->layers[layer];
    const model_tensor *whole = &l->t[ROLE_FFN_BUNDLE];
    bundle_layout layout;
    char name[64];
    if (!whole->data) return PI_OK;
    arch_tensor_name(arch_tensor_of(m->arch, ROLE_FFN_BUNDLE), layer, name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    pi_status status = read_layout(m, t, layer, &layout, err);
    if (status == PI_OK) status = check_place(m, t, &layout, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < BUNDLE_PARTS; i++) {
        const bundle_part *part = &layout.part[i];
        if (part->n_bytes == 0) continue;
        l->t[part->role] = (model_tensor){.data = (const uint8_t *)whole->data + part->at,
                                          .n_bytes = part->n_bytes * (size_t)whole->n_out,
                                          .row_bytes = layout.stride,
                                          .n_in = m->hp.n_embd,
                                          .n_out = whole->n_out,
                                          .scale = 1,
                                          .type = part->type};
        m->n_params += (uint64_t)m->hp.n_embd * (uint64_t)whole->n_out;
    }
    l->bundle = t;
    l->t[ROLE_FFN_BUNDLE] = (model_tensor){0};
    return PI_OK;
}

bool model_has_bundles(const model *m) {
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].bundle) return true;
    return false;
}

/* ---- checking weights ------------------------------------------------------------------------ */

static pi_status check_bundle(const model *m, const model_layer *l, pool *workers, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < BUNDLE_PARTS && status == PI_OK; i++) {
        const model_tensor *t = &l->t[parts[i].role];
        const gguf_rows rows = {t->data, t->type, t->n_in, t->n_out, t->row_bytes};
        if (t->data) status = gguf_check_rows(m->file, l->bundle, &rows, workers, err);
    }
    return status;
}

pi_status model_check_tensors(const model *m, int n_threads, pi_error *err) {
    pool *workers = NULL;
    pi_status status = pool_create(n_threads > 0 ? n_threads : cpu_count_physical(), &workers, err);
    for (uint64_t i = 0; i < gguf_n_tensors(m->file) && status == PI_OK; i++)
        status = gguf_check_tensor(m->file, gguf_tensor_at(m->file, i), workers, err);
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++)
        if (m->layers[i].bundle) status = check_bundle(m, &m->layers[i], workers, err);
    pool_destroy(workers);
    return status;
}
