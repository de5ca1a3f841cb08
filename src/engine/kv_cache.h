/* kv_cache.h: keys and values of one session, all layers. Per layer and KV head the positions are
 * contiguous ([layer][kv head][position][head_dim]), so that attention streams them. The cache is
 * always full-length, so any prefix can be kept (rewind is only a change of length). */
#ifndef ENGINE_KV_CACHE_H
#define ENGINE_KV_CACHE_H

#include "plan.h"

typedef struct kv_cache {
    quant_type type_k, type_v;
    size_t row_k, row_v;         /* bytes of one head at one position */
    int64_t n_ctx;               /* positions */
    size_t *offset_k, *offset_v; /* [n_layer]: where a layer starts in `data`, bytes */
    uint8_t *data;
    size_t n_bytes;
} kv_cache;

/* For the layers whose home is the CPU. PI_ERR_ARG when head_dim does not fit the type's
 * blocks, PI_ERR_NOMEM. */
pi_status kv_cache_create(kv_cache *kv, const plan *p, quant_type type_k, quant_type type_v,
                          int64_t n_ctx, pi_error *err);
void kv_cache_free(kv_cache *kv); /* a zeroed one is fine */

static inline uint8_t *kv_cache_k(const kv_cache *kv, int layer, int head, int64_t pos) {
    return kv->data + kv->offset_k[layer] +
           ((size_t)head * (size_t)kv->n_ctx + (size_t)pos) * kv->row_k;
}
static inline uint8_t *kv_cache_v(const kv_cache *kv, int layer, int head, int64_t pos) {
    return kv->data + kv->offset_v[layer] +
           ((size_t)head * (size_t)kv->n_ctx + (size_t)pos) * kv->row_v;
}

#endif
