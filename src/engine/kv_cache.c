/* kv_cache.c: one mapping for all layers; pages appear as positions are written. */
#include "kv_cache.h"

#include "mem.h"

/* Bytes of all heads and positions of a layer, padded to a cache line. */
static bool layer_bytes(int64_t n_head_kv, int64_t n_ctx, size_t row, size_t *out) {
    size_t n;
    return size_mul((size_t)n_head_kv, (size_t)n_ctx, &n) && size_mul(n, row, &n) &&
           size_align(n, MEM_CACHE_LINE, out);
}

pi_status kv_cache_create(kv_cache *kv, const plan *p, quant_type type_k, quant_type type_v,
                          int64_t n_ctx, pi_error *err) {
    const model *m = p->model;
    *kv = (kv_cache){.type_k = type_k, .type_v = type_v, .n_ctx = n_ctx};
    uint64_t head_dim = (uint64_t)m->hp.head_dim;
    if (!quant_row_bytes(type_k, head_dim, &kv->row_k) ||
        !quant_row_bytes(type_v, head_dim, &kv->row_v))
        return error_set(
            err, PI_ERR_ARG,
            "cache type does not fit: KV cache: heads of %d elements cannot be stored as "
            "%s/%s; use f16",
            m->hp.head_dim, quant_find(type_k)->name, quant_find(type_v)->name);
    size_t n_layer = (size_t)m->hp.n_layer;
    kv->offset_k = mem_calloc(n_layer, 2 * sizeof *kv->offset_k);
    if (!kv->offset_k) return error_nomem(err, n_layer * 2 * sizeof(size_t), "KV cache");
    kv->offset_v = kv->offset_k + n_layer;
    size_t total = 0;
    bool fits = true;
    for (size_t i = 0; i < n_layer && fits; i++) {
        size_t k, v;
        int64_t heads = p->cuts[i].home == SIDE_CPU ? m->layers[i].hp.n_head_kv : 0;
        fits = layer_bytes(heads, n_ctx, kv->row_k, &k) && layer_bytes(heads, n_ctx, kv->row_v, &v);
        if (!fits) break;
        kv->offset_k[i] = total;
        fits = size_add(total, k, &total);
        kv->offset_v[i] = total;
        fits = fits && size_add(total, v, &total);
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
    mem_free(kv->offset_k);
    *kv = (kv_cache){0};
}
