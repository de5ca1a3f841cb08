/* prepare_parts.c: the tensors of an output file: listed first, because a GGUF file begins with the
 * list, then written one after the other. Memory: one matrix in the output's type, and a chunk. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "mem.h"
#include "prepare.h"
#include "sparse_keys.h"

enum { CHUNK_BYTES = 16 << 20 }; /* bytes of rows gathered before they are written */

/* ---- keys ------------------------------------------------------------------------------------ */

static bool is_own_key(gguf_string key) {
    static const char *const keys[] = {
        SPARSE_KEY_VERSION,
        SPARSE_KEY_CALIBRATION_TOKENS,
        SPARSE_KEY_CALIBRATION_SHA256,
        SPARSE_KEY_CALIBRATION_LOSS,
        SPARSE_KEY_PREDICTOR_KIND,
        SPARSE_KEY_PREDICTOR_INPUT,
        SPARSE_KEY_PREDICTOR_RECALL,
        SPARSE_KEY_PREDICTOR_DENSITY,
        SPARSE_KEY_SOURCE_DOWN_TYPE,
        SPARSE_KEY_PREDICTOR_THRESHOLD,
        SPARSE_KEY_EXPERT_ACTIVE,
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (gguf_string_is(key, keys[i])) return true;
    return gguf_string_starts(key, SPARSE_KEYS_THRESHOLD) ||
           gguf_string_starts(key, SPARSE_KEYS_HEAD);
}

/* Parts of split files are joined; bundles have their own alignment; another layout has another
 * speed. */
static bool is_layout_key(gguf_string key) {
    return gguf_string_starts(key, "split.") || gguf_string_starts(key, TUNE_KEYS) ||
           gguf_string_starts(key, SPARSE_KEYS_BUNDLE) ||
           gguf_string_is(key, SPARSE_KEY_SOURCE_ALIGNMENT) ||
           gguf_string_is(key, SPARSE_KEY_SOURCE_TENSORS);
}

void prepare_copy_keys(const model *m, bool measured, gguf_writer *w) {
    for (uint64_t i = 0; i < gguf_n_values(m->file); i++) {
        const gguf_value *v = gguf_value_at(m->file, i);
        uint32_t alignment = prepare_source_alignment(m);
        if (is_layout_key(v->key) || (is_own_key(v->key) && !measured)) continue;
        if (!gguf_string_is(v->key, GGUF_KEY_ALIGNMENT))
            gguf_put_value(w, v);
        else if (alignment)
            gguf_put_u32(w, GGUF_KEY_ALIGNMENT, alignment);
    }
    /* A GGUF file needs keys for facts that the magic PWRI implies. */
    char key[2 * GGUF_MAX_NAME];
    snprintf(key, sizeof key, "%s.hidden_activation", m->arch->name);
    if (gguf_is_pwri(m->file)) gguf_put_string(w, key, activation_name(m->hp.activation));
}

/* ---- the list -------------------------------------------------------------------------------- */

const arch_tensor *prepare_find_role(const model *m, const char *name, int *layer) {
    char expected[GGUF_MAX_NAME];
    int used = 0;
    if (sscanf(name, "blk.%9d.%n", layer, &used) != 1 || used == 0) return NULL;
    if (*layer < 0 || *layer >= m->hp.n_layer) return NULL;
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const arch_tensor *t = &m->arch->tensors[i];
        if (!(t->flags & TENSOR_PER_LAYER)) continue;
        arch_tensor_name(t, *layer, expected);
        if (strcmp(expected, name) == 0) return t;
    }
    return NULL;
}

pi_status prepare_add_part(prepare_parts *l, const prepare_part *item, pi_error *err) {
    if (!mem_grow((void **)&l->items, &l->capacity, l->n + 1, sizeof *l->items, GGUF_MAX_TENSORS))
        return error_nomem(err, (l->n + 1) * sizeof *l->items, "tensors of the output");
    l->items[l->n++] = *item;
    return PI_OK;
}

bool prepare_rename(const char *name, const char *ending, const char *other,
                    char out[GGUF_MAX_NAME]) {
    size_t n = strlen(name), m = strlen(ending);
    bool fits = ends_with(name, ending);
    snprintf(out, GGUF_MAX_NAME, "%.*s%s", (int)(fits ? n - m : n), name, fits ? other : "");
    return fits;
}

prepare_part prepare_name_part(const preparation *p, prepare_part_kind kind, tensor_role role,
                               int layer) {
    prepare_part item = {.kind = kind, .layer = layer, .n_dims = 2};
    arch_tensor_name(arch_tensor_of(p->model->arch, role), layer, item.name);
    return item;
}

pi_status prepare_add_copy(prepare_parts *l, const gguf_tensor *t, const char *name,
                           pi_error *err) {
    prepare_part item = {.kind = PART_COPY, .type = t->type, .n_dims = t->n_dims, .source = t};
    snprintf(item.name, sizeof item.name, "%s", name);
    memcpy(item.dims, t->dims, sizeof item.dims);
    return prepare_add_part(l, &item, err);
}

/* Includes the scales per expert of experts' matrices. */
bool prepare_is_of_experts(const model *m, const gguf_tensor *t, int *layer) {
    char name[GGUF_MAX_NAME];
    if (!prepare_rename(t->name, "_exps.scale", "_exps.weight", name))
        snprintf(name, sizeof name, "%s", t->name);
    const arch_tensor *row = prepare_find_role(m, name, layer);
    if (!row || !m->layers[*layer].t[ROLE_ROUTER].data) return false;
    if (row->flags & TENSOR_SPARSE)
        return row->role == ROLE_EXPERT_DOWN_T || row->role == ROLE_EXPERT_BUNDLE;
    for (int d = 0; d < 3; d++)
        if (row->dims[d] == DIM_EXPERTS) return true;
    return false;
}

pi_status prepare_add_moved(prepare_parts *l, const gguf_tensor *t, const char *name, int layer,
                            pi_error *err) {
    prepare_part item = {.kind = PART_ROWS, .type = t->type, .n_dims = t->n_dims, .layer = layer};
    snprintf(item.name, sizeof item.name, "%s", name);
    memcpy(item.dims, t->dims, sizeof item.dims);
    int64_t n = l->p->layers[layer].n;
    item.rows = (model_tensor){.data = t->data,
                               .n_bytes = t->n_bytes,
                               .row_bytes = t->n_bytes / (size_t)n,
                               .n_in = (int64_t)t->n_elems / n,
                               .n_out = n,
                               .scale = 1,
                               .type = t->type};
    return prepare_add_part(l, &item, err);
}

/* ---- data ------------------------------------------------------------------------------------ */

static size_t part_bytes(const prepare_part *item) {
    size_t row = 0;
    bool fits = quant_row_bytes(item->type, item->dims[0], &row);
    assert(fits); /* checked by the writer */
    (void)fits;
    for (int d = 1; d < item->n_dims; d++) row *= item->dims[d];
    return row;
}

static pi_status advance(prepare_parts *l, size_t n_bytes, pi_error *err) {
    l->bytes_done += n_bytes;
    return prepare_step(l->p, "writing", (double)l->bytes_done / (double)l->bytes_all, err);
}

static pi_status put_bytes(prepare_parts *l, const void *data, size_t n_bytes, pi_error *err) {
    const uint8_t *p = data;
    pi_status status = PI_OK;
    for (size_t n; n_bytes && status == PI_OK; p += n, n_bytes -= n) {
        n = n_bytes < CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
        status = gguf_write_data(l->p->writer, p, n, err);
        if (status == PI_OK) status = advance(l, n, err);
    }
    return status;
}

static pi_status put_spilled(prepare_parts *l, const prepare_part *item, pi_error *err) {
    size_t left = part_bytes(item), room = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    uint64_t at = item->at;
    void *chunk = mem_alloc(room);
    if (!chunk) return error_nomem(err, room, "a predictor");
    pi_status status = PI_OK;
    for (size_t n; left && status == PI_OK; at += n, left -= n) {
        n = left < room ? left : room;
        status = prepare_spill_read(l->p, at, chunk, n, err);
        if (status == PI_OK) status = put_bytes(l, chunk, n, err);
    }
    mem_free(chunk);
    return status;
}

/* Matrices with equal numbers of rows: the output's row i contains row i of each. */
typedef struct row_group {
    const model_tensor *matrix[BUNDLE_PARTS]; /* NULL: none */
    size_t at[BUNDLE_PARTS];                  /* offset in the output's row */
    size_t stride;                            /* bytes of the output's rows */
    int64_t n_out;
} row_group;

static void gather_row(const row_group *g, size_t row, uint8_t *out) {
    memset(out, 0, g->stride);
    for (int i = 0; i < BUNDLE_PARTS; i++) {
        const model_tensor *a = g->matrix[i];
        if (!a) continue;
        const uint8_t *from = (const uint8_t *)a->data + row * a->row_bytes;
        memcpy(out + g->at[i], from, a->n_bytes / (size_t)a->n_out);
    }
}

/* Rows order[0..n_out); NULL: rows in their present order. */
static pi_status put_group(prepare_parts *l, const row_group *g, const int32_t *order,
                           pi_error *err) {
    size_t used = 0;
    uint8_t *chunk = mem_alloc(CHUNK_BYTES + g->stride);
    if (!chunk) return error_nomem(err, CHUNK_BYTES + g->stride, "rows of a matrix");
    pi_status status = PI_OK;
    for (int64_t i = 0; i < g->n_out && status == PI_OK; i++) {
        gather_row(g, order ? (size_t)order[i] : (size_t)i, chunk + used);
        used += g->stride;
        if (used < CHUNK_BYTES && i + 1 < g->n_out) continue;
        status = gguf_write_data(l->p->writer, chunk, used, err);
        if (status == PI_OK) status = advance(l, used, err);
        used = 0;
    }
    mem_free(chunk);
    return status;
}

static pi_status put_rows(prepare_parts *l, const model_tensor *a, const int32_t *order,
                          pi_error *err) {
    const row_group g = {.matrix = {a}, .stride = a->n_bytes / (size_t)a->n_out, .n_out = a->n_out};
    return put_group(l, &g, order, err);
}

/* The layer's down as ffn_down_t in `type`, in the input's order of neurons. *own: mem_free. */
static pi_status make_down_t(const preparation *p, int layer, quant_type type, model_tensor *out,
                             void **own, pi_error *err) {
    const model_layer *l = &p->model->layers[layer];
    const model_tensor *down_t = &l->t[ROLE_FFN_DOWN_T], *down = &l->t[ROLE_FFN_DOWN];
    size_t row = 0, n_bytes = 0, n_ff = (size_t)l->hp.n_ff;
    if (down_t->data && down_t->type == type) {
        *out = *down_t;
        return PI_OK;
    }
    bool fits = quant_row_bytes(type, (uint64_t)p->model->hp.n_embd, &row);
    if (!fits || !size_mul(row, n_ff, &n_bytes)) n_bytes = SIZE_MAX;
    *own = mem_alloc(n_bytes);
    if (!*own) return error_nomem(err, n_bytes, "a transposed matrix");
    *out = (model_tensor){.data = *own,
                          .n_bytes = n_bytes,
                          .row_bytes = row,
                          .n_in = p->model->hp.n_embd,
                          .n_out = l->hp.n_ff,
                          .scale = 1,
                          .type = type};
    return down_t->data ? prepare_convert_rows(p->pool, down_t, type, *own, err)
                        : prepare_transpose(p->pool, down, NULL, type, *own, err);
}

/* ffn_down again, in the source's order of neurons. */
static pi_status put_plain_down(prepare_parts *l, const prepare_part *item, pi_error *err) {
    const model_layer *layer = &l->p->model->layers[item->layer];
    size_t n_bytes = part_bytes(item);
    void *bytes = mem_alloc(n_bytes);
    if (!bytes) return error_nomem(err, n_bytes, "a transposed matrix");
    pi_status status = prepare_transpose(l->p->pool, &layer->t[ROLE_FFN_DOWN_T], layer->sparse.perm,
                                         item->type, bytes, err);
    if (status == PI_OK) status = put_bytes(l, bytes, n_bytes, err);
    mem_free(bytes);
    return status;
}

static pi_status put_down(prepare_parts *l, const prepare_part *item, pi_error *err) {
    preparation *p = l->p;
    model_tensor down_t;
    void *own = NULL;
    pi_status status = make_down_t(p, item->layer, item->type, &down_t, &own, err);
    const int32_t *order = p->layers[item->layer].order;
    if (status == PI_OK) status = put_rows(l, &down_t, order, err);
    mem_free(own);
    return status;
}

/* Experts' down transposed to the other form, in the output's order. */
static pi_status put_experts_down(prepare_parts *l, const prepare_part *item, pi_error *err) {
    const prepare_layer *layer = &l->p->layers[item->layer];
    const model_tensor *t = l->p->model->layers[item->layer].t;
    const model_tensor *all = &t[t[ROLE_EXPERT_DOWN].data ? ROLE_EXPERT_DOWN : ROLE_EXPERT_DOWN_T];
    size_t n_bytes = part_bytes(item) / (size_t)layer->n;
    void *bytes = mem_alloc(n_bytes);
    if (!bytes) return error_nomem(err, n_bytes, "a transposed matrix");
    pi_status status = PI_OK;
    for (int64_t i = 0; i < layer->n && status == PI_OK; i++) {
        const model_tensor expert = prepare_expert_of(all, layer->n, layer->order[i]);
        status = prepare_transpose(l->p->pool, &expert, NULL, item->type, bytes, err);
        if (status == PI_OK) status = put_bytes(l, bytes, n_bytes, err);
    }
    mem_free(bytes);
    return status;
}

/* A bundle's parts; down may be transposed. */
static pi_status gather_expert(preparation *p, const prepare_part *item, int64_t index,
                               uint8_t *out, pi_error *err) {
    const model_tensor *t = p->model->layers[item->layer].t;
    int64_t n = p->model->hp.n_expert;
    memset(out, 0, item->layout.stride);
    for (int i = 0; i < BUNDLE_PARTS; i++) {
        const bundle_part *part = &item->layout.part[i];
        if (part->n_bytes == 0) continue;
        bool turned = !t[part->role].data;
        const model_tensor *all = &t[turned ? ROLE_EXPERT_DOWN : part->role];
        const model_tensor expert = prepare_expert_of(all, n, index);
        if (!turned) memcpy(out + part->at, expert.data, part->n_bytes);
        if (!turned) continue;
        pi_status status = prepare_transpose(p->pool, &expert, NULL, part->type, out + part->at,
                                             err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

static pi_status put_expert_bundles(prepare_parts *l, const prepare_part *item, pi_error *err) {
    const int32_t *order = l->p->layers[item->layer].order;
    size_t stride = item->layout.stride;
    uint8_t *bundle = mem_alloc(stride);
    if (!bundle) return error_nomem(err, stride, "an expert");
    pi_status status = PI_OK;
    for (int64_t i = 0; i < l->p->model->hp.n_expert && status == PI_OK; i++) {
        status = gather_expert(l->p, item, order ? order[i] : i, bundle, err);
        if (status == PI_OK) status = put_bytes(l, bundle, stride, err);
    }
    mem_free(bundle);
    return status;
}

static pi_status put_bundles(prepare_parts *l, const prepare_part *item, pi_error *err) {
    const model_layer *layer = &l->p->model->layers[item->layer];
    row_group g = {.stride = item->layout.stride, .n_out = layer->hp.n_ff};
    model_tensor down_t;
    void *own = NULL;
    pi_status status = PI_OK;
    for (int i = 0; i < BUNDLE_PARTS && status == PI_OK; i++) {
        const bundle_part *part = &item->layout.part[i];
        bool down = part->role == ROLE_FFN_DOWN_T;
        g.at[i] = part->at;
        if (down) status = make_down_t(l->p, item->layer, part->type, &down_t, &own, err);
        if (part->n_bytes) g.matrix[i] = down ? &down_t : &layer->t[part->role];
    }
    if (status == PI_OK) status = put_group(l, &g, l->p->layers[item->layer].order, err);
    mem_free(own);
    return status;
}

static pi_status put_part(prepare_parts *l, const prepare_part *item, pi_error *err) {
    switch (item->kind) {
    case PART_COPY: {
        pi_status status = put_bytes(l, item->source->data, item->source->n_bytes, err);
        gguf_forget(l->p->model->file, item->source, 0, item->source->n_bytes);
        return status;
    }
    case PART_ROWS: {
        const int32_t *order = l->p->layers[item->layer].order;
        pi_status status = put_rows(l, &item->rows, order, err);
        if (status == PI_OK && item->more.data) status = put_rows(l, &item->more, order, err);
        return status;
    }
    case PART_BYTES:
        return put_bytes(l, item->bytes, part_bytes(item), err);
    case PART_SPILLED:
        return put_spilled(l, item, err);
    case PART_DOWN:
        return put_plain_down(l, item, err);
    case PART_EXPERTS_DOWN:
        return put_experts_down(l, item, err);
    case PART_BUNDLE:
        return put_bundles(l, item, err);
    case PART_EXPERT_BUNDLE:
        return put_expert_bundles(l, item, err);
    default:
        return put_down(l, item, err);
    }
}

static bool is_predictor(const prepare_part *item, const preparation *p) {
    int layer;
    const arch_tensor *row = prepare_find_role(p->model, item->name, &layer);
    return prepare_is_sketch(item->name) || (row && tensor_role_is_predictor(row->role));
}

static pi_status declare(prepare_parts *l, pi_error *err) {
    pi_status status = PI_OK;
    for (size_t i = 0; i < l->n && status == PI_OK; i++) {
        const prepare_part *item = &l->items[i];
        status = gguf_add_tensor(l->p->writer, item->name, item->type, item->n_dims, item->dims,
                                 err);
        if (status != PI_OK) return status;
        l->bytes_all += part_bytes(item);
        if (is_predictor(item, l->p)) l->p->predictor_bytes += part_bytes(item);
    }
    l->p->bytes_out = l->bytes_all;
    return gguf_writer_begin_data(l->p->writer, err);
}

pi_status prepare_put_parts(prepare_parts *l, pi_error *err) {
    pi_status status = prepare_restore_order(l, err);
    if (status == PI_OK) status = declare(l, err);
    for (size_t i = 0; i < l->n && status == PI_OK; i++) status = put_part(l, &l->items[i], err);
    mem_free(l->items);
    l->items = NULL;
    return status;
}
