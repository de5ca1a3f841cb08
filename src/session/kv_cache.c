/* kv_cache.c: one mapping for all layers; the system allocates pages when positions are written. */
#include "kv_cache.h"

#include "mem.h"

/* Bytes of all heads and positions of a layer, padded to a cache line. */
static bool layer_bytes(int64_t n_head_kv, int64_t n_ctx, size_t row, size_t *out) {
    size_t n;
    return size_mul((size_t)n_head_kv, (size_t)n_ctx, &n) && size_mul(n, row, &n) &&
           size_align(n, MEM_CACHE_LINE, out);
}

bool kv_layer_rows(const model *m, int layer, quant_type type_k, quant_type type_v, kv_layer *out) {
    const model_layer_hparams *l = &m->layers[layer].hp;
    uint64_t n = (uint64_t)l->head_dim;
    *out = (kv_layer){.n_heads = model_kv_heads(l, layer), .per = {1, 1, 1, 1}};
    if (l->n_head_kv == 0) return true; /* a layer without attention */
    if (!quant_row_bytes(type_k, n, &out->row[KV_KEYS])) return false;
    if (m->layers[layer].t[ROLE_INDEX_Q].data && out->n_heads > 0 &&
        !quant_row_bytes(type_k, (uint64_t)m->hp.index_dim, &out->row[KV_INDEX]))
        return false;
    if (l->ratio > 0) out->per[KV_INDEX] = out->per[KV_COMPRESSED] = l->ratio;
    if (l->ratio > 0 && m->hp.joint_kv) out->row[KV_COMPRESSED] = out->row[KV_KEYS];
    return m->hp.n_latent > 0 || m->hp.joint_kv ||
           quant_row_bytes(type_v, (uint64_t)l->v_dim, &out->row[KV_VALUES]);
}

uint64_t kv_layer_read(const model *m, int layer, const kv_layer *l, const plan_blocks *b,
                       uint64_t seen, uint64_t n_tokens) {
    const model_layer_hparams *lhp = &m->layers[layer].hp;
    uint64_t heads = (uint64_t)lhp->n_head_kv;
    uint64_t row = heads * (l->row[KV_KEYS] + l->row[KV_VALUES]);
    uint64_t most = (uint64_t)b->top * (uint64_t)b->size;
    if (m->hp.joint_kv) {
        uint64_t window = seen < (uint64_t)lhp->window ? seen : (uint64_t)lhp->window;
        uint64_t rows = lhp->ratio > 0 ? seen / (uint64_t)lhp->ratio : 0;
        bool selects = b->size > 0 && rows > (uint64_t)b->top;
        return (window + (selects ? (uint64_t)b->top : rows)) * row +
               (selects ? rows * l->row[KV_INDEX] : 0);
    }
    if (b->size == 0 || seen <= most) return seen * row;
    size_t bounds = 0;
    uint64_t choice = seen / (uint64_t)l->per[KV_INDEX] * l->row[KV_INDEX];
    if (b->bounds && quant_row_bytes(QUANT_Q8_0, 2 * (uint64_t)lhp->head_dim, &bounds))
        choice = seen / (uint64_t)b->size * heads * bounds;
    return (seen < n_tokens * most ? seen : n_tokens * most) * row + choice;
}

/* Sets the offsets of a layer's parts and adds their bytes to `total`, unless another layer has
 * them. */
static bool place_layer(kv_cache *kv, const plan *p, int layer, size_t *total) {
    kv_layer *l = &kv->layers[layer];
    const kv_layer *own = &kv->layers[p->model->layers[layer].hp.kv_layer];
    for (int part = 0; part < KV_PARTS; part++) {
        size_t bytes;
        bool here = l->held && p->splits[layer].primary == SIDE_CPU;
        int64_t heads = here ? kv_layer_heads(l, (kv_part)part) : 0;
        if (own != l) {
            l->offset[part] = own->offset[part];
            continue;
        }
        if (!layer_bytes(heads, kv->n_ctx / l->per[part], l->row[part], &bytes)) return false;
        l->offset[part] = *total;
        if (!size_add(*total, bytes, total)) return false;
    }
    return true;
}

pi_status kv_cache_create(kv_cache *kv, const plan *p, quant_type type_k, quant_type type_v,
                          int64_t n_ctx, pi_error *err) {
    const model *m = p->model;
    *kv = (kv_cache){.type_k = type_k, .type_v = type_v, .n_ctx = n_ctx};
    size_t n_layer = (size_t)m->hp.n_layer;
    kv->layers = mem_calloc(n_layer, sizeof *kv->layers);
    if (!kv->layers) return error_nomem(err, n_layer * sizeof *kv->layers, "KV cache");
    size_t total = 0;
    bool fits = true;
    for (int i = 0; i < m->hp.n_layer && fits; i++) {
        if (!kv_layer_rows(m, i, type_k, type_v, &kv->layers[i])) {
            kv_cache_free(kv);
            return error_set(
                err, PI_ERR_ARG,
                "cache type does not fit: KV cache: heads of %d elements cannot be stored as "
                "%s/%s; use f16",
                m->layers[i].hp.head_dim, quant_find(type_k)->name, quant_find(type_v)->name);
        }
        kv->layers[i].held = plan_holds_cache(m, p->first_layer, p->end_layer, i);
        fits = place_layer(kv, p, i, &total);
    }
    kv->n_bytes = total;
    if (fits && total > 0) kv->data = mem_map(total);
    if (!fits || (total > 0 && !kv->data)) {
        kv_cache_free(kv);
        return error_set(err, PI_ERR_NOMEM,
                         "out of memory: KV cache of %lld tokens: %zu bytes could not be "
                         "allocated; use a smaller context",
                         (long long)n_ctx, total);
    }
    return PI_OK;
}

void kv_cache_free(kv_cache *kv) {
    mem_unmap(kv->data, kv->n_bytes);
    mem_free(kv->layers);
    *kv = (kv_cache){0};
}
