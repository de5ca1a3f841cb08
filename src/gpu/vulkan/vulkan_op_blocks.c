/* vulkan_op_blocks.c: the index of sparse attention: scores, the choice of blocks. */
#include <assert.h>

#include "vulkan_ops.h"

void vulkan_op_find_blocks(gpu_stream *s, const gpu_find_blocks *a) {
    const gpu_sparse *b = &a->blocks;
    assert(a->n_cols >= 1 && a->n_parts >= 1 && b->size > 0 && a->local <= b->top);
    assert(a->kv.head_dim <= GPU_MAX_SPARSE && a->kv.head_dim % 8 == 0);
    assert(!a->sums || (b->n_heads == 1 && b->size == 1 && a->local == 0));
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
                                     .sparse_list = b->n_list};
    const vulkan_variant v = {.way = a->sums ? BLOCKS_SUMS : 0};
    vulkan_dispatch(s, VULKAN_BLOCKS_SCORE, v, &args, sizeof args, a->n_parts, b->n_heads,
                    a->n_cols);
    vulkan_dispatch(s, VULKAN_BLOCKS_CHOOSE, v, &args, sizeof args, b->n_heads, a->n_cols, 1);
}
