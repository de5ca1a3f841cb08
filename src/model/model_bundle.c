/* model_bundle.c: binds bundles as strided views of gate, up and ffn_down_t, which the engine reads
 * like any other matrix. */
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "cpu_topology.h"
#include "mem.h"
#include "model_sparse.h"
#include "sparse_keys.h"

/* Gate and up before down: parts that are used together are adjacent. */
static const struct {
    tensor_role role;
    const char *key;
} parts[BUNDLE_KINDS][BUNDLE_PARTS] = {
    [BUNDLE_NEURONS] = {{ROLE_FFN_GATE, SPARSE_KEY_BUNDLE_GATE_TYPE},
                        {ROLE_FFN_UP, SPARSE_KEY_BUNDLE_UP_TYPE},
                        {ROLE_FFN_DOWN_T, SPARSE_KEY_BUNDLE_DOWN_TYPE},
                        {ROLE_COUNT, NULL},
                        {ROLE_COUNT, NULL}},
    [BUNDLE_EXPERTS] = {{ROLE_EXPERT_GATE_UP, SPARSE_KEYS_BUNDLE_EXPERT "gate_up_type"},
                        {ROLE_EXPERT_GATE, SPARSE_KEYS_BUNDLE_EXPERT "gate_type"},
                        {ROLE_EXPERT_UP, SPARSE_KEYS_BUNDLE_EXPERT "up_type"},
                        {ROLE_EXPERT_DOWN, SPARSE_KEYS_BUNDLE_EXPERT "down_type"},
                        {ROLE_EXPERT_DOWN_T, SPARSE_KEYS_BUNDLE_EXPERT "down_t_type"}},
};

tensor_role bundle_part_role(bundle_kind kind, int part) {
    return parts[kind][part].role;
}

const char *bundle_part_key(bundle_kind kind, int part) {
    return parts[kind][part].key;
}

/* Elements per row, and number of rows. */
static void set_shape(bundle_part *p, int64_t n_embd, int64_t n_ff) {
    bool down = p->role == ROLE_EXPERT_DOWN;
    bool neuron = p->role < ROLE_EXPERT_GATE_UP;
    p->n_in = down ? n_ff : n_embd;
    p->n_rows = down ? n_embd : neuron ? 1 : p->role == ROLE_EXPERT_GATE_UP ? 2 * n_ff : n_ff;
}

bool bundle_lay_out(bundle_kind kind, const quant_traits *const traits[BUNDLE_PARTS],
                    int64_t n_embd, int64_t n_ff, bundle_layout *out) {
    size_t at = 0, row;
    bool fits = true;
    *out = (bundle_layout){0};
    for (int i = 0; i < BUNDLE_PARTS && fits; i++) {
        bundle_part *p = &out->part[i];
        p->role = parts[kind][i].role;
        if (p->role == ROLE_COUNT || !traits[i]) continue;
        bool down = p->role == ROLE_EXPERT_DOWN || p->role == ROLE_EXPERT_DOWN_T;
        p->type = traits[i]->type;
        set_shape(p, n_embd, n_ff);
        fits = size_align(at, down ? BUNDLE_FILE_ALIGN : BUNDLE_PART_ALIGN, &p->at) &&
               quant_row_bytes(p->type, (uint64_t)p->n_in, &row) &&
               size_mul(row, (size_t)p->n_rows, &p->n_bytes) && size_add(p->at, p->n_bytes, &at);
    }
    return fits &&
           size_align(at, kind == BUNDLE_EXPERTS ? BUNDLE_FILE_ALIGN : BUNDLE_BLOCK, &out->stride);
}

static pi_status fail_bundle(const model *m, const gguf_tensor *t, const char *problem,
                             pi_error *err) {
    return error_set(err, PI_ERR_FORMAT, "bad bundle: %s: tensor %s: %s; prepare the model again",
                     gguf_path(m->file), t->name, problem);
}

/* The type of a part in a layer; NULL for "none". */
static pi_status read_type(const model *m, const gguf_tensor *t, int layer, const char *key,
                           const quant_traits **out, pi_error *err) {
    const gguf_value *v;
    char text[24], problem[160];
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

/* Checks that the types match the matrices of the layer and that required parts have one. For
 * experts, check_experts finds missing parts. */
static pi_status check_parts(const model *m, const gguf_tensor *t, bundle_kind kind, int layer,
                             const quant_traits *const traits[BUNDLE_PARTS], pi_error *err) {
    char problem[160];
    bool experts = kind == BUNDLE_EXPERTS;
    for (int i = 0; i < BUNDLE_PARTS && parts[kind][i].key; i++) {
        tensor_role role = parts[kind][i].role;
        bool known = role == ROLE_FFN_DOWN_T || arch_tensor_whole(m->arch, role);
        if (traits[i] ? known : !known || experts) continue;
        snprintf(problem, sizeof problem, "key %s is '%s' in layer %d, but the layer has %s%s",
                 parts[kind][i].key, traits[i] ? traits[i]->name : "none", layer,
                 known ? "" : "no ", tensor_role_name(role));
        return fail_bundle(m, t, problem, err);
    }
    if (experts && ((traits[0] && (traits[1] || traits[2])) || (traits[3] && traits[4])))
        return fail_bundle(m, t, "has the same matrix in two forms", err);
    if (experts || !arch_tensor_of(m->arch, ROLE_FFN_GATE_UP) || traits[0] == traits[1])
        return PI_OK;
    snprintf(problem, sizeof problem,
             "keys say that gate is %s and up %s in layer %d, but they are rows of one matrix",
             traits[0]->name, traits[1]->name, layer);
    return fail_bundle(m, t, problem, err);
}

static pi_status read_layout(const model *m, const gguf_tensor *t, bundle_kind kind, int layer,
                             bundle_layout *out, pi_error *err) {
    const quant_traits *traits[BUNDLE_PARTS] = {NULL};
    char problem[160];
    int32_t n_ff = m->layers[layer].hp.n_ff_expert;
    for (int i = 0; i < BUNDLE_PARTS && parts[kind][i].key; i++) {
        pi_status status = read_type(m, t, layer, parts[kind][i].key, &traits[i], err);
        if (status != PI_OK) return status;
    }
    if (kind == BUNDLE_EXPERTS && n_ff == 0)
        return fail_bundle(
            m, t, "key " SPARSE_KEY_BUNDLE_EXPERT_FF " has no valid number of neurons for it", err);
    pi_status status = check_parts(m, t, kind, layer, traits, err);
    if (status != PI_OK) return status;
    if (bundle_lay_out(kind, traits, m->hp.n_embd, n_ff, out)) return PI_OK;
    int used = snprintf(problem, sizeof problem, "rows of %d", m->hp.n_embd);
    if (kind == BUNDLE_EXPERTS)
        used += snprintf(problem + used, sizeof problem - (size_t)used, " or %d", n_ff);
    used += snprintf(problem + used, sizeof problem - (size_t)used,
                     " elements are not whole blocks of");
    for (int i = 0; i < BUNDLE_PARTS && parts[kind][i].key; i++)
        used += snprintf(problem + used, sizeof problem - (size_t)used, "%s %s", i ? "," : "",
                         traits[i] ? traits[i]->name : "none");
    return fail_bundle(m, t, problem, err);
}

void model_bundle_width(const model *m, int layer, int32_t *out) {
    const gguf_value *v;
    char name[64];
    double width = 0;
    const arch_tensor *row = arch_tensor_of(m->arch, ROLE_EXPERT_BUNDLE);
    if (!row) return;
    arch_tensor_name(row, layer, name);
    if (!gguf_find_tensor(m->file, name)) return;
    pi_status status = model_find_array(m, SPARSE_KEY_BUNDLE_EXPERT_FF, false, &v, NULL);
    if (status == PI_OK && v) gguf_item_f64(v, (uint64_t)layer, &width);
    *out = width >= 1 && width <= MODEL_MAX_DIM ? (int32_t)width : 0;
}

/* Strides larger than needed are valid. */
static pi_status check_place(const model *m, const gguf_tensor *t, bundle_kind kind,
                             bundle_layout *layout, pi_error *err) {
    char problem[160];
    uint64_t stride = t->dims[0];
    int block = kind == BUNDLE_EXPERTS ? BUNDLE_FILE_ALIGN : BUNDLE_BLOCK;
    if (stride < layout->stride || stride % (uint64_t)block) {
        snprintf(problem, sizeof problem,
                 "rows are %llu bytes long, not a multiple of %d from %zu on",
                 (unsigned long long)stride, block, layout->stride);
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

static void bind_part(model *m, bundle_kind kind, int layer, const bundle_layout *layout,
                      const bundle_part *part) {
    const model_tensor *whole = &m->layers[layer].t[bundle_role(kind)];
    bool experts = kind == BUNDLE_EXPERTS;
    size_t n = (size_t)whole->n_out;
    m->layers[layer].t[part->role] = (model_tensor){
        .data = (const uint8_t *)whole->data + part->at,
        .n_bytes = part->n_bytes * n,
        .row_bytes = experts ? part->n_bytes / (size_t)part->n_rows : layout->stride,
        .expert_bytes = experts ? layout->stride : 0,
        .n_in = part->n_in,
        .n_out = part->n_rows * whole->n_out,
        .scale = 1,
        .type = part->type};
    m->n_params += (uint64_t)part->n_in * (uint64_t)part->n_rows * n;
}

pi_status model_bind_bundle(model *m, bundle_kind kind, int layer, pi_error *err) {
    model_layer *l = &m->layers[layer];
    model_tensor *whole = &l->t[bundle_role(kind)];
    bundle_layout layout;
    char name[64];
    if (!whole->data) return PI_OK;
    arch_tensor_name(arch_tensor_of(m->arch, bundle_role(kind)), layer, name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    pi_status status = read_layout(m, t, kind, layer, &layout, err);
    if (status == PI_OK) status = check_place(m, t, kind, &layout, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < BUNDLE_PARTS; i++)
        if (layout.part[i].n_bytes > 0) bind_part(m, kind, layer, &layout, &layout.part[i]);
    if (kind == BUNDLE_EXPERTS)
        l->expert_bundle = t;
    else
        l->bundle = t;
    *whole = (model_tensor){0};
    return PI_OK;
}

bool model_has_bundles(const model *m) {
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].bundle || m->layers[i].expert_bundle) return true;
    return false;
}

/* ---- checking weights ------------------------------------------------------------------------ */

/* Checks the rows of a part, for experts one expert at a time. */
static pi_status check_rows(const model *m, const gguf_tensor *bundle, const model_tensor *t,
                            pool *workers, pi_error *err) {
    int64_t n = t->expert_bytes ? (int64_t)bundle->dims[1] : 1;
    pi_status status = PI_OK;
    for (int64_t i = 0; i < n && status == PI_OK; i++) {
        const uint8_t *data = (const uint8_t *)t->data + (size_t)i * t->expert_bytes;
        const gguf_rows rows = {data, t->type, t->n_in, t->n_out / n, t->row_bytes};
        status = gguf_check_rows(m->file, bundle, &rows, workers, err);
        if (status != PI_OK && n > 1)
            status = error_set(
                err, status, "not a finite number: %.200s: tensor %s, row %lld: get the file again",
                gguf_part_path(m->file, bundle->part), bundle->name, (long long)i);
    }
    return status;
}

static pi_status check_bundle(const model *m, const model_layer *l, bundle_kind kind, pool *workers,
                              pi_error *err) {
    const gguf_tensor *bundle = model_bundle(l, kind);
    pi_status status = PI_OK;
    for (int i = 0; i < BUNDLE_PARTS && bundle && status == PI_OK; i++) {
        tensor_role role = parts[kind][i].role;
        if (role != ROLE_COUNT && l->t[role].data)
            status = check_rows(m, bundle, &l->t[role], workers, err);
    }
    return status;
}

pi_status model_check_tensors(const model *m, int n_threads, pi_error *err) {
    pool *workers = NULL;
    pi_status status = pool_create(n_threads > 0 ? n_threads : cpu_count_physical(), &workers, err);
    for (uint64_t i = 0; i < gguf_n_tensors(m->file) && status == PI_OK; i++)
        status = gguf_check_tensor(m->file, gguf_tensor_at(m->file, i), workers, err);
    for (int i = 0; i < BUNDLE_KINDS * m->hp.n_layer && status == PI_OK; i++)
        status = check_bundle(m, &m->layers[i / BUNDLE_KINDS], (bundle_kind)(i % BUNDLE_KINDS),
                              workers, err);
    pool_destroy(workers);
    return status;
}
