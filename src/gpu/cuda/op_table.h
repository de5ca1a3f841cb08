/* op_table.h: parts of all backends' tables: the functions of gpu_ops, whose sources all backends
 * share, and the members of gpu_backend that each backend defines separately, as prefix_NAME. */
#ifndef GPU_CUDA_OP_TABLE_H
#define GPU_CUDA_OP_TABLE_H

#include "gpu.h"

#define GPU_OP_DECLARE(name, NAME, args) void gpu_op_##name(gpu_stream *s, const args *a);
#define GPU_OP_DECLARE_N(name, NAME, args)                                                         \
    void gpu_op_##name(gpu_stream *s, const args *a, int32_t n);
GPU_OPS(GPU_OP_DECLARE, GPU_OP_DECLARE_N)
#undef GPU_OP_DECLARE
#undef GPU_OP_DECLARE_N

/* The initializer of gpu_backend.ops. */
#define GPU_OP_ADDRESS(name, NAME, args) gpu_op_##name,
#define GPU_OP_TABLE                                                                               \
    { GPU_OPS(GPU_OP_ADDRESS, GPU_OP_ADDRESS) }

/* Members of gpu_backend for streams, events, copies and programs, in order. */
#define GPU_STREAM_MEMBERS(F, prefix)                                                              \
    F(prefix, stream_create)                                                                       \
    F(prefix, stream_destroy)                                                                      \
    F(prefix, stream_sync)                                                                         \
    F(prefix, event_create)                                                                        \
    F(prefix, event_destroy)                                                                       \
    F(prefix, event_record)                                                                        \
    F(prefix, event_done)                                                                          \
    F(prefix, stream_wait)                                                                         \
    F(prefix, event_elapsed)                                                                       \
    F(prefix, upload)                                                                              \
    F(prefix, download)                                                                            \
    F(prefix, copy)                                                                                \
    F(prefix, fill)                                                                                \
    F(prefix, record_begin)                                                                        \
    F(prefix, record_end)                                                                          \
    F(prefix, program_launch)                                                                      \
    F(prefix, program_free)

/* Declares a member's function; below, its address and a comma. */
template <class F> struct gpu_pointed;
template <class F> struct gpu_pointed<F *> { typedef F type; };
#define GPU_MEMBER_DECLARE(prefix, name)                                                           \
    gpu_pointed<decltype(gpu_backend::name)>::type prefix##_##name;
#define GPU_MEMBER_ADDRESS(prefix, name) prefix##_##name,

#endif
