/* model_places.c: see model_places.h. */
#include "model_places.h"

#include <string.h>

#include "file.h"
#include "mem.h"

/* Rows of weights, in the mapped file; the GPU has those of matrices before `hot`. */
static const tensor_role matrices[] = {ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN_T};
static const tensor_role predictors[] = {ROLE_FC2, ROLE_FFN_SIGN};
/* One float per neuron. */
static const tensor_role vectors[] = {ROLE_FFN_GATE_BIAS, ROLE_FFN_UP_BIAS, ROLE_FC2_BIAS,
                                      ROLE_FFN_CUT};
enum {
    N_MATRICES = sizeof matrices / sizeof matrices[0],
    N_PREDICTORS = sizeof predictors / sizeof predictors[0],
    N_VECTORS = sizeof vectors / sizeof vectors[0]
};

struct model_places {
    const model *source;
    model view;
    file_map *parts; /* [n_parts], private; zeroed if no layer needs the part */
    int n_parts;
    int32_t **neurons; /* [n_layer][n_ff] by place; NULL: the neurons stay */
    float *floats;     /* the vectors */
    void *row;         /* one row */
};

static bool is_located(const model *m, const model_tensor *t) {
    int part;
    uint64_t offset;
    return !t->data || gguf_locate(m->file, t->data, &part, &offset);
}

static bool can_move(const model *m, int layer) {
    const model_tensor *t = m->layers[layer].t;
    bool can = t[ROLE_FFN_DOWN_T].data;
    for (int i = 0; i < N_MATRICES; i++) can = can && is_located(m, &t[matrices[i]]);
    for (int i = 0; i < N_PREDICTORS; i++) can = can && is_located(m, &t[predictors[i]]);
    return can;
}

/* Maps the tensor's part of the file, unless it is mapped, and moves the tensor there. */
static pi_status move_tensor(model_places *p, model_tensor *t, pi_error *err) {
    int part;
    uint64_t offset;
    if (!t->data || !gguf_locate(p->source->file, t->data, &part, &offset)) return PI_OK;
    file_map *map = &p->parts[part];
    const char *path = gguf_part_path(p->source->file, part);
    pi_status status = map->data ? PI_OK : file_map_private(map, path, err);
    if (status != PI_OK) return status;
    if (map->size != gguf_part_bytes(p->source->file, part))
        return error_set(err, PI_ERR_IO, "file has changed since it was opened: %s: open it again",
                         path);
    t->data = map->data + offset;
    return PI_OK;
}

static pi_status move_layer(model_places *p, int layer, pi_error *err) {
    model_tensor *t = p->view.layers[layer].t;
    pi_status status = PI_OK;
    for (int i = 0; i < N_MATRICES && status == PI_OK; i++)
        status = move_tensor(p, &t[matrices[i]], err);
    for (int i = 0; i < N_PREDICTORS && status == PI_OK; i++)
        status = move_tensor(p, &t[predictors[i]], err);
    return status;
}

/* Copies the layer's vectors to `to`; returns the end of the copies. */
static float *copy_vectors(model_layer *l, float *to) {
    for (int i = 0; i < N_VECTORS; i++) {
        model_tensor *t = &l->t[vectors[i]];
        if (!t->data) continue;
        memcpy(to, t->data, (size_t)l->hp.n_ff * sizeof *to);
        if (l->sparse.cut_weight == t->data) l->sparse.cut_weight = to;
        t->data = to;
        to += l->hp.n_ff;
    }
    return to;
}

/* Memory for the vectors, the places and one row of any matrix. */
static pi_status allocate(model_places *p, const int64_t *hot, pi_error *err) {
    size_t n_layer = (size_t)p->source->hp.n_layer, n_places = 0, n_row = 1;
    p->n_parts = gguf_n_parts(p->source->file);
    p->parts = mem_calloc((size_t)p->n_parts, sizeof *p->parts);
    p->view.layers = mem_alloc(n_layer * sizeof *p->view.layers);
    p->neurons = mem_calloc(n_layer, sizeof *p->neurons);
    if (!p->parts || !p->view.layers || !p->neurons)
        return error_nomem(err, n_layer * sizeof *p->view.layers, "moving neurons");
    memcpy(p->view.layers, p->source->layers, n_layer * sizeof *p->view.layers);
    for (size_t i = 0; i < n_layer; i++) {
        model_layer *l = &p->view.layers[i];
        l->fixed = hot[i] == 0 || !can_move(p->source, (int)i);
        if (l->fixed) continue;
        n_places += (size_t)l->hp.n_ff;
        for (int k = 0; k < N_PREDICTORS; k++)
            if (l->t[predictors[k]].row_bytes > n_row) n_row = l->t[predictors[k]].row_bytes;
        p->neurons[i] = mem_alloc((size_t)l->hp.n_ff * sizeof **p->neurons);
        if (!p->neurons[i])
            return error_nomem(err, (size_t)l->hp.n_ff * sizeof **p->neurons, "moving neurons");
    }
    p->row = mem_alloc(n_row);
    p->floats = mem_calloc(n_places ? n_places : 1, N_VECTORS * sizeof *p->floats);
    if (!p->row || !p->floats)
        return error_nomem(err, n_places * N_VECTORS * sizeof *p->floats, "moving neurons");
    return PI_OK;
}

pi_status model_places_create(const model *m, const int64_t *hot, model_places **out,
                              pi_error *err) {
    *out = NULL;
    model_places *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(err, sizeof *p, "moving neurons");
    p->source = m;
    p->view = *m;
    pi_status status = allocate(p, hot, err);
    float *to = p->floats;
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++) {
        model_layer *l = &p->view.layers[i];
        if (l->fixed) continue;
        for (int32_t k = 0; k < l->hp.n_ff; k++) p->neurons[i][k] = k;
        to = copy_vectors(l, to);
        status = move_layer(p, i, err);
    }
    if (status != PI_OK) {
        model_places_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void model_places_free(model_places *p) {
    if (!p) return;
    for (int i = 0; i < p->n_parts && p->parts; i++) file_map_close(&p->parts[i]);
    for (int i = 0; i < p->source->hp.n_layer && p->neurons; i++) mem_free(p->neurons[i]);
    mem_free(p->parts);
    mem_free(p->view.layers);
    mem_free(p->neurons);
    mem_free(p->floats);
    mem_free(p->row);
    mem_free(p);
}

const model *model_places_view(const model_places *p) {
    return &p->view;
}

static void *row_of(const model_tensor *t, int64_t row) {
    return (uint8_t *)(uintptr_t)t->data + (size_t)row * t->row_bytes; /* memory of the view */
}

void model_places_exchange(model_places *p, int layer, int64_t hot, int64_t cold) {
    const model_tensor *from = p->source->layers[layer].t, *t = p->view.layers[layer].t;
    int32_t *neurons = p->neurons[layer], leaves = neurons[hot];
    for (int i = 0; i < N_MATRICES; i++) {
        const model_tensor *m = &t[matrices[i]];
        if (m->data)
            memcpy(row_of(m, cold), row_of(&from[matrices[i]], leaves),
                   m->n_bytes / (size_t)m->n_out);
    }
    for (int i = 0; i < N_PREDICTORS; i++) {
        const model_tensor *m = &t[predictors[i]];
        if (!m->data) continue;
        size_t n = m->n_bytes / (size_t)m->n_out;
        memcpy(p->row, row_of(m, hot), n);
        memcpy(row_of(m, hot), row_of(m, cold), n);
        memcpy(row_of(m, cold), p->row, n);
    }
    for (int i = 0; i < N_VECTORS; i++) {
        float *v = (float *)(uintptr_t)t[vectors[i]].data;
        if (!v) continue;
        float f = v[hot];
        v[hot] = v[cold];
        v[cold] = f;
    }
    neurons[hot] = neurons[cold];
    neurons[cold] = leaves;
}
