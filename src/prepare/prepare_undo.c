/* prepare_undo.c: from a prepared file, or one of the original PowerInfer, back to an ordinary one:
 * neurons in the source's order, ffn_down in place of ffn_down_t, without the tensors and keys that
 * only a sparse engine reads. All other tensors and keys are copied unchanged. If ffn_down had a
 * float type, the result equals the source; a quantized ffn_down is quantized again from
 * ffn_down_t. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cpu_topology.h"
#include "mem.h"
#include "model_split.h"
#include "prepare.h"
#include "quant_mix.h"
#include "sparse_keys.h"

/* order[s] = stored index of the neuron (expert) with source index s. */
static pi_status invert_orders(preparation *p, pi_error *err) {
    size_t n_layer = (size_t)p->model->hp.n_layer;
    p->layers = mem_calloc(n_layer, sizeof *p->layers);
    if (!p->layers) return error_nomem(err, n_layer * sizeof *p->layers, "layers");
    for (size_t l = 0; l < n_layer; l++) {
        const model_layer *layer = &p->model->layers[l];
        bool experts = layer->t[ROLE_ROUTER].data;
        const int32_t *perm = experts ? layer->sparse.expert_perm : layer->sparse.perm;
        int32_t n = experts ? p->model->hp.n_expert : layer->hp.n_ff;
        if (n == 0) continue; /* a layer without an FFN */
        int32_t *order = mem_calloc((size_t)n, sizeof *order);
        if (!order) return error_nomem(err, (size_t)n * sizeof *order, "the order of neurons");
        p->layers[l].order = order;
        p->layers[l].n = n;
        for (int32_t i = 0; i < n; i++) order[perm ? perm[i] : i] = i;
    }
    return PI_OK;
}

/* The type from the file, one name or one per layer; else, in PWRI files, the type of
 * ffn_down_t. */
quant_type prepare_source_down_type(const model *m, int layer) {
    const gguf_value *v = gguf_find(m->file, SPARSE_KEY_SOURCE_DOWN_TYPE);
    gguf_string name = {.data = "", .n_bytes = 0};
    if (v && v->type == GGUF_ARRAY && v->item_type == GGUF_STRING && v->count > (uint64_t)layer) {
        const uint8_t *cursor = v->data;
        for (int i = 0; i <= layer; i++) name = gguf_next_string(&cursor);
    } else if (v) {
        gguf_as_string(v, &name);
    }
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)(name.n_bytes < 15 ? name.n_bytes : 15), name.data);
    const quant_traits *traits = quant_find_name(text);
    if (traits && traits->quantize) return traits->type;
    const model_tensor *t = m->layers[layer].t;
    return t[t[ROLE_EXPERT_DOWN_T].data ? ROLE_EXPERT_DOWN_T : ROLE_FFN_DOWN_T].type;
}

static pi_status add_down(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    const model *m = l->p->model;
    const model_layer_hparams *hp = &m->layers[layer].hp;
    size_t row;
    bool experts = role == ROLE_EXPERT_DOWN;
    prepare_part item = prepare_name_part(l->p, experts ? PART_EXPERTS_DOWN : PART_DOWN, role,
                                          layer);
    item.type = l->p->has_down_type ? l->p->down_type : prepare_source_down_type(m, layer);
    item.dims[0] = (uint64_t)(experts ? hp->n_ff_expert : hp->n_ff);
    item.dims[1] = (uint64_t)m->hp.n_embd;
    if (experts) item.dims[item.n_dims++] = (uint64_t)m->hp.n_expert;
    if (!quant_row_bytes(item.type, item.dims[0], &row))
        return error_set(err, PI_ERR_ARG,
                         "%s does not fit: %s: its rows of %llu are not whole blocks: choose "
                         "another type for ffn_down",
                         quant_find((uint32_t)item.type)->name, item.name,
                         (unsigned long long)item.dims[0]);
    return prepare_add_part(l, &item, err);
}

/* Experts' matrices; all of them for a bundle. */
static pi_status add_experts(prepare_parts *l, tensor_role role, int layer, pi_error *err) {
    static const tensor_role all[] = {ROLE_EXPERT_GATE_UP, ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                      ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_T};
    pi_status status = PI_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == PI_OK; i++) {
        const model_tensor *t = &l->p->model->layers[layer].t[all[i]];
        if (!t->data || (role != ROLE_EXPERT_BUNDLE && role != all[i])) continue;
        status = all[i] == ROLE_EXPERT_DOWN_T ? add_down(l, ROLE_EXPERT_DOWN, layer, err)
                                              : prepare_add_expert_rows(l, all[i], layer, err);
    }
    return status;
}

/* A tensor with a part per expert. */
static pi_status add_of_experts(prepare_parts *l, const gguf_tensor *t, int layer, pi_error *err) {
    char name[GGUF_MAX_NAME];
    const arch_tensor *row = prepare_find_role(l->p->model, t->name, &layer);
    if (row && prepare_is_expert_matrix(row->role)) return add_experts(l, row->role, layer, err);
    prepare_rename(t->name, ".ffn_down_t_exps.scale", ".ffn_down_exps.scale", name);
    return prepare_add_moved(l, t, name, layer, err);
}

static pi_status add_tensor(prepare_parts *l, const gguf_tensor *t, pi_error *err) {
    int layer = 0, expert;
    pi_status status;
    const model_split *split = model_split_of(l->p->model, t->name, &expert);
    if (split) /* the first one represents all experts */
        return expert > 0 || tensor_role_is_predictor(split->role)
                   ? PI_OK
                   : add_experts(l, split->role, split->layer, err);
    if (prepare_is_of_experts(l->p->model, t, &layer)) return add_of_experts(l, t, layer, err);
    const arch_tensor *row = prepare_find_role(l->p->model, t->name, &layer);
    char name[GGUF_MAX_NAME];
    if (prepare_is_sketch(t->name)) return PI_OK;
    if (!row || row->role == ROLE_FFN_DOWN_T_BIAS) {
        if (!prepare_rename(t->name, ".ffn_down_t.scale", ".ffn_down.scale", name))
            prepare_rename(t->name, ".ffn_down_t.bias", ".ffn_down.bias", name);
        return prepare_add_copy(l, t, name, err);
    }
    /* the order applies to experts: an additional FFN is unchanged */
    bool has_experts = l->p->model->layers[layer].t[ROLE_ROUTER].data;
    switch (row->role) {
    case ROLE_FFN_FREQ:
    case ROLE_FFN_PERM:
    case ROLE_FFN_CUT:
    case ROLE_EXPERT_PERM:
    case ROLE_FC1:
    case ROLE_FC2:
    case ROLE_FC2_BIAS:
    case ROLE_FFN_SIGN:
    case ROLE_EXPERT_FC1:
    case ROLE_EXPERT_FC2:
    case ROLE_EXPERT_FC2_BIAS:
    case ROLE_EXPERT_SIGN:
        return PI_OK;
    case ROLE_FFN_GATE_BIAS:
    case ROLE_FFN_UP_BIAS:
        if (has_experts) return prepare_add_copy(l, t, t->name, err);
        return prepare_add_moved(l, t, t->name, layer, err);
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_GATE_UP:
        if (has_experts) return prepare_add_copy(l, t, t->name, err);
        return prepare_add_rows(l, row->role, layer, err);
    case ROLE_FFN_DOWN_T:
        return add_down(l, ROLE_FFN_DOWN, layer, err);
    case ROLE_FFN_BUNDLE:
        status = prepare_add_gate_up(l, layer, err);
        return status == PI_OK ? add_down(l, ROLE_FFN_DOWN, layer, err) : status;
    case ROLE_FFN_DOWN:
        if (!l->p->model->layers[layer].sparse.perm) return prepare_add_copy(l, t, t->name, err);
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "neurons are permuted, but ffn_down is not transposed: %.200s: layer %d: "
                         "not a file of prepare",
                         l->p->in_path, layer);
    default:
        return prepare_add_copy(l, t, t->name, err);
    }
}

static pi_status open_input(preparation *p, pi_error *err) {
    const pi_prepare_options *o = p->options;
    pi_status status = prepare_check_threads(o, err);
    if (status == PI_OK && o->down_type) {
        status = quant_mix_find_type(o->down_type, "type of ffn_down", &p->down_type, err);
        p->has_down_type = true;
    }
    if (status == PI_OK) status = model_open(p->in_path, NULL, &p->model, err);
    if (status == PI_OK) status = model_check_tensors(p->model, o->n_threads, err);
    if (status != PI_OK) return status;
    if (!p->model->sparse.prepared && !gguf_is_pwri(p->model->file))
        return error_set(err, PI_ERR_FORMAT, "not a prepared model: %.300s: nothing to undo",
                         p->in_path);
    int n = o->n_threads > 0 ? o->n_threads : cpu_count_physical();
    status = pool_create(n, &p->pool, err);
    return status == PI_OK ? prepare_open_output(p, err) : status;
}

pi_status pi_prepare_undo(const char *in_path, const char *out_path,
                          const pi_prepare_options *options, pi_error *err) {
    assert(in_path && out_path);
    pi_prepare_options defaults = pi_prepare_default_options();
    preparation p = {
        .options = options ? options : &defaults, .in_path = in_path, .out_path = out_path};
    p.notifier = (notifier){p.options->message, p.options->user};
    p.progress = (progress){.fn = p.options->progress, .user = p.options->user};
    prepare_parts l = {.p = &p};
    pi_status status = open_input(&p, err);
    if (status == PI_OK) status = invert_orders(&p, err);
    if (status == PI_OK) prepare_copy_keys(p.model, false, p.writer);
    for (uint64_t i = 0; status == PI_OK && i < gguf_n_tensors(p.model->file); i++)
        status = add_tensor(&l, gguf_tensor_at(p.model->file, i), err);
    if (status == PI_OK)
        status = prepare_put_parts(&l, err);
    else
        mem_free(l.items);
    if (status == PI_OK) {
        gguf_writer *writer = p.writer;
        p.writer = NULL; /* finish frees it in every case */
        status = gguf_writer_finish(writer, err);
    }
    prepare_release(&p);
    return status;
}
