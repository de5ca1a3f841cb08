/* op_table.h: the functions behind gpu_ops, and the initializer of that part of a backend's table,
 * in its order. They are the same sources for every backend. */
#ifndef GPU_CUDA_OP_TABLE_H
#define GPU_CUDA_OP_TABLE_H

#include "gpu_ops.h"

void gpu_op_pack(gpu_stream *s, const gpu_pack *a);
void gpu_op_quantize(gpu_stream *s, const gpu_quantize *a);
void gpu_op_norm(gpu_stream *s, const gpu_norm *a);
void gpu_op_matvec(gpu_stream *s, const gpu_matmul *a, int32_t n);
void gpu_op_matmul(gpu_stream *s, const gpu_matmul *a);
void gpu_op_matmul_t(gpu_stream *s, const gpu_matmul *a);
void gpu_op_rope_angles(gpu_stream *s, const gpu_rope_angles *a);
void gpu_op_rope_store(gpu_stream *s, const gpu_rope_store *a);
void gpu_op_heads(gpu_stream *s, const gpu_heads *a);
void gpu_op_latent_store(gpu_stream *s, const gpu_latent_store *a);
void gpu_op_find_blocks(gpu_stream *s, const gpu_find_blocks *a);
void gpu_op_attention(gpu_stream *s, const gpu_attention *a);
void gpu_op_conv(gpu_stream *s, const gpu_conv *a);
void gpu_op_recur(gpu_stream *s, const gpu_recur *a);
void gpu_op_gate(gpu_stream *s, const gpu_gate *a);
void gpu_op_ffn_in(gpu_stream *s, const gpu_ffn_in *a);
void gpu_op_activate(gpu_stream *s, const gpu_activate *a);
void gpu_op_sign_dot(gpu_stream *s, const gpu_sign_dot *a);
void gpu_op_select(gpu_stream *s, const gpu_select *a);
void gpu_op_down_rows(gpu_stream *s, const gpu_down_rows *a);
void gpu_op_top_k(gpu_stream *s, const gpu_top_k *a);
void gpu_op_add(gpu_stream *s, const gpu_add *a);
void gpu_op_mix(gpu_stream *s, const gpu_mix *a);
void gpu_op_merge(gpu_stream *s, const gpu_merge *a);
void gpu_op_softcap(gpu_stream *s, const gpu_softcap *a);
void gpu_op_route(gpu_stream *s, const gpu_route *a);
void gpu_op_expert_in(gpu_stream *s, const gpu_expert_in *a);
void gpu_op_expert_matvec(gpu_stream *s, const gpu_expert_matvec *a);
void gpu_op_expert_down(gpu_stream *s, const gpu_expert_down *a);
void gpu_op_expert_sum(gpu_stream *s, const gpu_expert_sum *a);
void gpu_op_publish(gpu_stream *s, const gpu_publish *a);
void gpu_op_receive(gpu_stream *s, const gpu_receive *a);
void gpu_op_stamp(gpu_stream *s, const gpu_stamp *a);

#define GPU_OP_TABLE                                                                               \
    {                                                                                              \
        gpu_op_pack, gpu_op_quantize, gpu_op_norm, gpu_op_matvec, gpu_op_matmul, gpu_op_matmul_t,  \
            gpu_op_rope_angles, gpu_op_rope_store, gpu_op_heads, gpu_op_latent_store,              \
            gpu_op_find_blocks, gpu_op_attention, gpu_op_conv, gpu_op_recur, gpu_op_gate,          \
            gpu_op_ffn_in, gpu_op_activate, gpu_op_sign_dot, gpu_op_select, gpu_op_down_rows,      \
            gpu_op_top_k, gpu_op_add, gpu_op_mix, gpu_op_merge, gpu_op_softcap, gpu_op_route,      \
            gpu_op_expert_in, gpu_op_expert_matvec, gpu_op_expert_down, gpu_op_expert_sum,         \
            gpu_op_publish, gpu_op_receive, gpu_op_stamp,                                          \
    }

#endif
