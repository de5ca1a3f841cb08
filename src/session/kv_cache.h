/* kv_cache.h: keys and values of one session, all layers. Per layer and KV head the positions are
 * contiguous ([layer][kv head][position][head_dim]), so that attention reads them in order. The
 * cache is always full-length, so any prefix can be kept: rewinding only changes the length. With
 * MLA a layer has one head whose keys are also the values. A layer that reads the cache of an
 * earlier layer has no cache. With sparse attention a layer has one more head, the index: the keys
 * that select blocks of positions. In layers with compressed keys, these
 * and the index have one row for several positions. */
#ifndef SESSION_KV_CACHE_H
#define SESSION_KV_CACHE_H

#include "cpu.h"
#include "plan.h"

/* What a layer caches. */
typedef enum kv_part { KV_KEYS, KV_VALUES, KV_INDEX, KV_COMPRESSED, KV_PARTS } kv_part;

typedef struct kv_layer {
    int32_t n_heads; /* heads of keys and values; 0: the layer reads the cache of another layer */
    int32_t per[KV_PARTS]; /* positions per row; the row belongs to the last of them */
    size_t row[KV_PARTS]; /* bytes of one head at one position; 0: no such part (values that are the
                             keys) */
    size_t offset[KV_PARTS]; /* offset of the part in `data`, bytes; unused for layers on the GPU */
    bool held;               /* plan_holds_cache: this machine has it */
} kv_layer;

static inline int32_t kv_layer_heads(const kv_layer *l, kv_part part) {
    if (part == KV_INDEX || part == KV_COMPRESSED) return l->row[part] > 0;
    return l->n_heads;
}

/* Heads of all parts, in the order of a saved session: keys and values head by head, then the
 * index, then compressed keys. */
static inline int32_t kv_layer_pieces(const kv_layer *l) {
    return 2 * l->n_heads + kv_layer_heads(l, KV_INDEX) + kv_layer_heads(l, KV_COMPRESSED);
}
typedef struct kv_piece {
    kv_part part;
    int head;
} kv_piece;
static inline kv_piece kv_layer_piece(const kv_layer *l, int32_t i) {
    bool index = i == 2 * l->n_heads && kv_layer_heads(l, KV_INDEX) > 0;
    if (i >= 2 * l->n_heads) return (kv_piece){.part = index ? KV_INDEX : KV_COMPRESSED};
    return (kv_piece){.part = (kv_part)(i % 2), .head = i / 2};
}

/* The rows of a part that belong to n positions from `first` on. */
typedef struct kv_row_range {
    int64_t first, n;
} kv_row_range;
static inline kv_row_range kv_layer_rows_at(const kv_layer *l, kv_part part, int64_t first,
                                            int64_t n) {
    int64_t row = first / l->per[part];
    return (kv_row_range){row, (first + n) / l->per[part] - row};
}
/* The most rows that belong to any n positions. */
static inline int64_t kv_layer_room(const kv_layer *l, kv_part part, int64_t n) {
    return n / l->per[part] + (l->per[part] > 1 && n > 0);
}

/* Bytes of room for n positions: all heads of all parts. */
static inline size_t kv_layer_bytes(const kv_layer *l, int64_t n) {
    size_t sum = 0;
    for (int part = 0; part < KV_PARTS; part++)
        sum += (size_t)kv_layer_room(l, (kv_part)part, n) *
               (size_t)kv_layer_heads(l, (kv_part)part) * l->row[part];
    return sum;
}

/* Size of the Hadamard matrix that rotates rows of n elements, block by block, before they are
 * stored; 0: rows are stored unchanged. The rotation spreads an outlier, which would set the scale
 * of its 32 elements, over the whole block. Keys and queries are rotated by the same matrix, so
 * scores do not change. The matrix is its own inverse: rotating the weighted sum of values again
 * restores it.
 *
 * llama.cpp rotates all quantized types if the head size is a multiple of 64: keys by the largest
 * power of two that divides the head, values by 64. Here only types of four and five bits are
 * rotated, with every head size that they can store: Q8_0 gains too little
 * (docs/performance.md). */
static inline int kv_hadamard(quant_type type, int64_t n) {
    if (type == QUANT_Q8_0 || !quant_find((uint32_t)type)->is_quantized) return 0;
    return (int)(n & -n);
}
/* Rotates a row before it is stored, a query before it is multiplied, or a result back. */
static inline void kv_rotate(const cpu_kernels *kernels, quant_type type, float *x, int64_t n) {
    const int block = kv_hadamard(type, n);
    if (block) kernels->hadamard(x, n, block);
}

typedef struct kv_cache {
    quant_type type_k, type_v;
    int64_t n_ctx;    /* positions */
    kv_layer *layers; /* [n_layer] */
    uint8_t *data;
    size_t n_bytes;
} kv_cache;

/* Heads and rows of one layer; n_heads 0: the layer reads another layer's cache. False: a head size
 * is not a multiple of a type's block. */
bool kv_layer_rows(const model *m, int layer, quant_type type_k, quant_type type_v, kv_layer *out);

/* Bytes of a layer's cache that n_tokens read. The last token attends to `seen` positions; with
 * sparse attention (b->size > 0) it reads their index or bounds, and the selected blocks. */
uint64_t kv_layer_read(const model *m, int layer, const kv_layer *l, const plan_blocks *b,
                       uint64_t seen, uint64_t n_tokens);

/* Allocates memory for the held layers whose primary is the CPU. PI_ERR_ARG: a head size is not a
 * multiple of a type's block; PI_ERR_NOMEM. */
pi_status kv_cache_create(kv_cache *kv, const plan *p, quant_type type_k, quant_type type_v,
                          int64_t n_ctx, pi_error *err);
void kv_cache_free(kv_cache *kv); /* accepts a zeroed cache */

/* row: the position in parts with one row per position. */
static inline uint8_t *kv_cache_row(const kv_cache *kv, int layer, kv_part part, int head,
                                    int64_t row) {
    const kv_layer *l = &kv->layers[layer];
    return kv->data + l->offset[part] +
           ((size_t)head * (size_t)(kv->n_ctx / l->per[part]) + (size_t)row) * l->row[part];
}
static inline uint8_t *kv_cache_k(const kv_cache *kv, int layer, int head, int64_t pos) {
    return kv_cache_row(kv, layer, KV_KEYS, head, pos);
}
static inline uint8_t *kv_cache_v(const kv_cache *kv, int layer, int head, int64_t pos) {
    return kv_cache_row(kv, layer, KV_VALUES, head, pos);
}

#endif
