/* kv_cache.h: keys and values of one session, all layers. Per layer and KV head the positions are
 * contiguous ([layer][kv head][position][head_dim]), so that attention streams them. The cache is
 * always full-length, so any prefix can be kept (rewind is only a change of length). In MLA a layer
 * has one head and no values: keys are both. Layers that read an earlier one's cache add none. */
#ifndef ENGINE_KV_CACHE_H
#define ENGINE_KV_CACHE_H

#include "plan.h"

typedef struct kv_layer {
    int32_t n_heads;           /* 0: the layer reads another one's */
    size_t row_k, row_v;       /* bytes of one head at one position; row_v 0: values are the keys */
    size_t offset_k, offset_v; /* where they start in `data`, bytes; not for layers on the GPU */
} kv_layer;

typedef struct kv_cache {
    quant_type type_k, type_v;
    int64_t n_ctx;    /* positions */
    kv_layer *layers; /* [n_layer] */
    uint8_t *data;
    size_t n_bytes;
} kv_cache;

/* Of one layer; n_heads 0 where the layer reads another one's. False: sizes do not fit the types'
 * blocks. */
bool kv_layer_rows(const model *m, int layer, quant_type type_k, quant_type type_v, kv_layer *out);

/* For the layers whose home is the CPU. PI_ERR_ARG when a head size does not fit the type's
 * blocks, PI_ERR_NOMEM. */
pi_status kv_cache_create(kv_cache *kv, const plan *p, quant_type type_k, quant_type type_v,
                          int64_t n_ctx, pi_error *err);
void kv_cache_free(kv_cache *kv); /* a zeroed one is fine */

static inline uint8_t *kv_cache_k(const kv_cache *kv, int layer, int head, int64_t pos) {
    const kv_layer *l = &kv->layers[layer];
    return kv->data + l->offset_k + ((size_t)head * (size_t)kv->n_ctx + (size_t)pos) * l->row_k;
}
static inline uint8_t *kv_cache_v(const kv_cache *kv, int layer, int head, int64_t pos) {
    const kv_layer *l = &kv->layers[layer];
    return kv->data + l->offset_v + ((size_t)head * (size_t)kv->n_ctx + (size_t)pos) * l->row_v;
}

#endif
