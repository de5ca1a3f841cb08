/* vulkan_op_blocks.c: the index of sparse attention: compressed keys, scores, the choice of blocks.
 */
#include <assert.h>

#include "vulkan_ops.h"

void vulkan_op_compress(gpu_stream *s, const gpu_compress *a) {
    enum { PER_GROUP = 64 };
    assert(a->n_cols >= 1 && a->ratio >= 1 && (a->n_parts == 1 || a->n_parts == 2));
    assert(a->positions || a->n_parts == 1);
    assert(a->dim <= GPU_MAX_HEAD && a->dim % 8 == 0 && a->rot_at + a->n_rot <= a->dim);
    const vulkan_compress_args args = {.x = vulkan_address(a->x),
                                       .positions = vulkan_address(a->positions),
                                       .norm = vulkan_address(a->norm),
                                       .inv_freq = vulkan_address(a->inv_freq),
                                       .inv_freq_long = vulkan_address(a->inv_freq_long),
                                       .cols = vulkan_address(a->cols),
                                       .k_offset = a->kv.k_offset,
                                       .k_row = a->kv.k_row,
                                       .at = a->at,
                                       .ldx = (int32_t)a->ldx,
                                       .long_from = (int32_t)a->long_from,
                                       .ratio = a->ratio,
                                       .n_parts = a->n_parts,
                                       .dim = a->dim,
                                       .n_rot = a->n_rot,
                                       .rot_at = a->rot_at,
                                       .type_k = a->kv.type_k,
                                       .k_hadamard = a->kv.k_hadamard,
                                       .scale = a->scale,
                                       .eps = a->eps,
                                       .flags = a->neox ? ROPE_NEOX : 0u};
    vulkan_dispatch(s, VULKAN_COMPRESS_SUM, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->dim, PER_GROUP), a->n_cols, 1);
    vulkan_dispatch(s, VULKAN_COMPRESS, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
}

void vulkan_op_find_blocks(gpu_stream *s, const gpu_find_blocks *a) {
    const gpu_sparse *b = &a->blocks;
    assert(a->n_cols >= 1 && a->n_parts >= 1 && b->size > 0 && a->local <= b->top);
    assert(a->kv.head_dim <= GPU_MAX_SPARSE && a->kv.head_dim % 8 == 0);
    assert(!a->sums || (b->n_heads == 1 && a->local == 0));
    assert(!a->sums || b->size == 1 || (b->whole && a->ratio == 0));
    assert(b->n_list == (a->sums ? b->top : 0));
    const vulkan_blocks_args args = {.q = vulkan_address(a->q),
                                     .weights = vulkan_address(a->weights),
                                     .cols = vulkan_address(a->cols),
                                     .k_offset = a->kv.k_offset,
                                     .k_row = a->kv.k_row,
                                     .sparse_offset = b->offset,
                                     .ldq = (int32_t)a->ldq,
                                     .ldw = (int32_t)a->ldw,
                                     .head_dim = a->kv.head_dim,
                                     .type_k = a->kv.type_k,
                                     .ratio = a->ratio,
                                     .n_queries = a->n_queries,
                                     .local = a->local,
                                     .sparse_size = b->size,
                                     .sparse_top = b->top,
                                     .sparse_heads = b->n_heads,
                                     .sparse_list = b->n_list,
                                     .sparse_whole = b->whole};
    const vulkan_variant v = {.way = a->sums ? BLOCKS_SUMS : 0};
    vulkan_dispatch(s, VULKAN_BLOCKS_SCORE, v, &args, sizeof args, a->n_parts, b->n_heads,
                    a->n_cols);
    vulkan_dispatch(s, VULKAN_BLOCKS_CHOOSE, v, &args, sizeof args, b->n_heads, a->n_cols, 1);
}
