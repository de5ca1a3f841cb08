/* model_split.c: joins the tensors of single experts. */
#include "model_split.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"

static const struct {
    tensor_role role;
    const char *name;
} kinds[] = {{ROLE_EXPERT_GATE, "ffn_gate"}, {ROLE_EXPERT_UP, "ffn_up"},
             {ROLE_EXPERT_DOWN, "ffn_down"}, {ROLE_EXPERT_DOWN_T, "ffn_down_t"},
             {ROLE_EXPERT_FC1, "fc1"},       {ROLE_EXPERT_FC2, "fc2"}};

enum { KINDS = sizeof kinds / sizeof *kinds };

const model_split *model_find_split(const model *m, tensor_role role, int layer) {
    for (int i = 0; i < m->n_splits; i++)
        if (m->splits[i].role == role && m->splits[i].layer == layer) return &m->splits[i];
    return NULL;
}

const model_split *model_split_of(const model *m, const char *name, int *expert) {
    char kind[16], whole[GGUF_MAX_NAME];
    int layer;
    if (sscanf(name, "blk.%9d.%15[a-z0-9_].%9d.", &layer, kind, expert) != 3) return NULL;
    /* the name that join looked for: no other spelling, no other layer or expert */
    snprintf(whole, sizeof whole, "blk.%d.%s.%d.weight", layer, kind, *expert);
    if (strcmp(whole, name) != 0 || *expert < 0 || *expert >= m->hp.n_expert) return NULL;
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kind, kinds[i].name) == 0) return model_find_split(m, kinds[i].role, layer);
    return NULL;
}

static const gguf_tensor *find_expert(const model *m, int kind, int layer, int expert,
                                      char name[GGUF_MAX_NAME]) {
    snprintf(name, GGUF_MAX_NAME, "blk.%d.%s.%d.weight", layer, kinds[kind].name, expert);
    return gguf_find_tensor(m->file, name);
}

static pi_status check_expert(const model *m, const gguf_tensor *first, const gguf_tensor *t,
                              const char *name, pi_error *err) {
    if (!t)
        return error_set(err, PI_ERR_FORMAT,
                         "missing tensor: %s: %s is not in the file, but %s is; is it complete?",
                         gguf_path(m->file), name, first->name);
    if (t->type == first->type && memcmp(t->dims, first->dims, sizeof t->dims) == 0) return PI_OK;
    return error_set(
        err, PI_ERR_UNSUPPORTED,
        "experts differ: %s: tensor %s has another type or shape than %s; this version "
        "needs equal ones for all experts of a layer",
        gguf_path(m->file), name, first->name);
}

/* Copies the experts' tensors to the model's memory, one after the other. */
static pi_status copy_experts(model *m, int kind, model_split *s, pi_error *err) {
    char name[GGUF_MAX_NAME];
    uint8_t *copy = arena_alloc(&m->arena, s->all.n_bytes);
    if (!copy) return error_nomem(err, s->all.n_bytes, s->all.name);
    s->all.data = copy;
    s->expert_bytes = s->all.n_bytes / (size_t)m->hp.n_expert;
    for (int e = 0; e < m->hp.n_expert; e++)
        memcpy(copy + (size_t)e * s->expert_bytes, find_expert(m, kind, s->layer, e, name)->data,
               s->expert_bytes);
    return PI_OK;
}

static pi_status join(model *m, int kind, int layer, pi_error *err) {
    char name[GGUF_MAX_NAME];
    const gguf_tensor *first = find_expert(m, kind, layer, 0, name);
    const arch_tensor *row = arch_tensor_of(m->arch, kinds[kind].role);
    size_t n = (size_t)m->hp.n_expert, n_bytes;
    if (!first || !row) return PI_OK;
    model_split *s = &m->splits[m->n_splits];
    *s = (model_split){
        .all = *first, .expert_bytes = first->n_bytes, .role = kinds[kind].role, .layer = layer};
    arch_tensor_name(row, layer, s->all.name);
    if (gguf_find_tensor(m->file, s->all.name))
        return error_set(err, PI_ERR_FORMAT, "experts twice: %s: %s and %s are both present",
                         gguf_path(m->file), first->name, s->all.name);
    bool even = first->dims[2] == 1 && size_mul(first->n_bytes, n, &n_bytes);
    if (!even)
        return error_set(err, PI_ERR_FORMAT, "wrong shape: %s: tensor %s is not a matrix",
                         gguf_path(m->file), first->name);
    s->all.n_dims = 3;
    s->all.dims[2] = n;
    s->all.n_bytes = n_bytes;
    s->all.n_elems = first->n_elems * n;
    for (int e = 1; e < m->hp.n_expert; e++) {
        const gguf_tensor *t = find_expert(m, kind, layer, e, name);
        pi_status status = check_expert(m, first, t, name, err);
        if (status != PI_OK) return status;
        if (e == 1 && t->data > first->data) s->expert_bytes = (size_t)(t->data - first->data);
        even = even && t->part == first->part &&
               t->data == first->data + (size_t)e * s->expert_bytes;
    }
    m->n_splits++;
    if (even && !tensor_role_is_predictor(s->role)) return PI_OK;
    return copy_experts(m, kind, s, err);
}

pi_status model_join_experts(model *m, pi_error *err) {
    size_t most = (size_t)m->hp.n_layer * KINDS;
    pi_status status = PI_OK;
    if (m->hp.n_expert == 0) return PI_OK;
    m->splits = arena_calloc(&m->arena, most, sizeof *m->splits);
    if (!m->splits) return error_nomem(err, most * sizeof *m->splits, "experts");
    for (int layer = 0; layer < m->hp.n_layer && status == PI_OK; layer++)
        for (int kind = 0; kind < KINDS && status == PI_OK; kind++)
            status = join(m, kind, layer, err);
    return status;
}
