/* vulkan_ops.h: the operations, one function for each in files vulkan_op_*.c, and what they launch
 * shaders with. */
#ifndef GPU_VULKAN_VULKAN_OPS_H
#define GPU_VULKAN_VULKAN_OPS_H

#include "args.h"
#include "gpu.h"
#include "vulkan_kernels.h"

#define VULKAN_OP_DECLARE(name, NAME, args) void vulkan_op_##name(gpu_stream *s, const args *a);
#define VULKAN_OP_DECLARE_N(name, NAME, args)                                                      \
    void vulkan_op_##name(gpu_stream *s, const args *a, int32_t n);
GPU_OPS(VULKAN_OP_DECLARE, VULKAN_OP_DECLARE_N)
#undef VULKAN_OP_DECLARE
#undef VULKAN_OP_DECLARE_N

/* The operations that there are: OP(member of gpu_ops, MEMBER of gpu_op). */
#define VULKAN_OPS(OP)                                                                             \
    OP(pack, PACK)                                                                                 \
    OP(quantize, QUANTIZE)                                                                         \
    OP(norm, NORM)                                                                                 \
    OP(matvec, MATVEC)                                                                             \
    OP(matmul, MATMUL)                                                                             \
    OP(matmul_t, MATMUL_T)                                                                         \
    OP(rope_angles, ROPE_ANGLES)                                                                   \
    OP(rope_store, ROPE_STORE)                                                                     \
    OP(heads, HEADS)                                                                               \
    OP(latent_store, LATENT_STORE)                                                                 \
    OP(compress, COMPRESS)                                                                         \
    OP(find_blocks, FIND_BLOCKS)                                                                   \
    OP(attention, ATTENTION)                                                                       \
    OP(conv, CONV)                                                                                 \
    OP(recur, RECUR)                                                                               \
    OP(gate, GATE)                                                                                 \
    OP(ffn_in, FFN_IN)                                                                             \
    OP(activate, ACTIVATE)                                                                         \
    OP(predict, PREDICT)                                                                           \
    OP(select, SELECT)                                                                             \
    OP(down_rows, DOWN_ROWS)                                                                       \
    OP(top_k, TOP_K)                                                                               \
    OP(mix, MIX)                                                                                   \
    OP(merge, MERGE)                                                                               \
    OP(hyper, HYPER)                                                                               \
    OP(hyper_mean, HYPER_MEAN)                                                                     \
    OP(past, PAST)                                                                                 \
    OP(add, ADD)                                                                                   \
    OP(softcap, SOFTCAP)                                                                           \
    OP(route, ROUTE)                                                                               \
    OP(expert_in, EXPERT_IN)                                                                       \
    OP(expert_matvec, EXPERT_MATVEC)                                                               \
    OP(expert_down, EXPERT_DOWN)                                                                   \
    OP(expert_sum, EXPERT_SUM)                                                                     \
    OP(expert_group, EXPERT_GROUP)                                                                 \
    OP(expert_matmul, EXPERT_MATMUL)                                                               \
    OP(publish, PUBLISH)                                                                           \
    OP(receive, RECEIVE)                                                                           \
    OP(stamp, STAMP)

/* Enqueues a shader behind everything that the stream has: x * y * z workgroups, each at most
 * VULKAN_MOST_GROUPS. args: n_args bytes, pushed (PUSHED_BYTES at most) or stored, as the shader
 * says.
 */
enum { VULKAN_MOST_GROUPS = 65535 };
void vulkan_dispatch(gpu_stream *s, vulkan_kernel k, vulkan_variant v, const void *args,
                     size_t n_args, int64_t x, int64_t y, int64_t z);
/* A dispatch that may run together with the dispatch before it. */
void vulkan_dispatch_beside(gpu_stream *s, vulkan_kernel k, vulkan_variant v, const void *args,
                            size_t n_args, int64_t x, int64_t y, int64_t z);

/* vulkan_op_exchange.c: behind an operation that has written a message: raises its flag, if it has
 * one. */
void vulkan_raise(gpu_stream *s, const gpu_send *a, int32_t n_cols);

/* The specialization constant WEIGHTS of shaders that read this matrix. */
static inline uint32_t vulkan_weights(const gpu_mat *w) {
    return (uint32_t)w->type | (w->in_file ? WEIGHTS_IN_FILE : 0u);
}
static inline uint64_t vulkan_address(const void *device) {
    return (uint64_t)(uintptr_t)device;
}
/* Workgroups for n items, at most VULKAN_MOST_GROUPS: shaders loop over the others. */
static inline int64_t vulkan_groups(int64_t n, int64_t per_group) {
    const int64_t groups = (n + per_group - 1) / per_group;
    return groups < VULKAN_MOST_GROUPS ? groups : VULKAN_MOST_GROUPS;
}
/* Workgroups of down.glsl for a row: 32 units of 8 floats or 32 quantized values each. */
static inline int64_t vulkan_stretches(const gpu_mat *w) {
    const int64_t elems = 32 * (gpu_type_wants_q8(w->type) ? 32 : 8);
    return (w->n_in + elems - 1) / elems;
}
/* The variant of matrix-vector shaders: COLS for this many columns. */
static inline uint32_t vulkan_cols(int32_t n_cols) {
    return n_cols == 1 ? 1 : n_cols == 2 ? 2 : 4;
}

#endif
