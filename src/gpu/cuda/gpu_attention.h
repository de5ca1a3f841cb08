/* gpu_attention.h: shared by the attention kernels: the range of positions of a token, factors of
 * scores and results, and the layout of partial sums. */
#ifndef GPU_CUDA_GPU_ATTENTION_H
#define GPU_CUDA_GPU_ATTENTION_H

#include "gpu_kernel.h"

static __device__ __forceinline__ uint32_t attn_first_seen(const gpu_attention &a, uint32_t pos) {
    const uint32_t window = (uint32_t)a.window;
    if (window == 0) return 0;
    if (a.chunks) return pos / window * window;
    return pos >= window ? pos + 1 - window : 0;
}

/* A part of n positions from `first` on: whole tiles, except in the last parts, which may be
 * shorter or empty. `first` is a valid position even when n is 0. */
struct attn_range {
    uint32_t first, n;
};
static __device__ __forceinline__ attn_range attn_part_of(const gpu_attention &a, attn_range all,
                                                          uint32_t split) {
    const uint32_t tiles = (all.n + GPU_ATTN_TILE - 1) / GPU_ATTN_TILE;
    const uint32_t n_splits = (uint32_t)a.n_splits;
    const uint32_t part = (tiles + n_splits - 1) / n_splits * GPU_ATTN_TILE, before = split * part;
    attn_range r = {all.first + (before < all.n ? before : all.n - 1), 0};
    if (before < all.n) r.n = all.n - before < part ? all.n - before : part;
    return r;
}
static __device__ __forceinline__ attn_range attn_range_of(const gpu_attention &a, int32_t pos,
                                                           uint32_t split) {
    const uint32_t end = (uint32_t)pos + 1, begin = attn_first_seen(a, (uint32_t)pos);
    return attn_part_of(a, {begin, end - begin}, split);
}

/* ---- sparse attention ------------------------------------------------------------------------ */

/* Blocks of positions, or compressed keys, that a column can attend to. */
static __device__ __forceinline__ int32_t attn_blocks_seen(const gpu_sparse &s, int32_t pos) {
    return s.whole ? (pos + 1) / s.size : pos / s.size + 1;
}

/* Whether it attends to all of them. */
static __device__ __forceinline__ bool attn_sees_all(const gpu_sparse &s, int32_t pos) {
    return attn_blocks_seen(s, pos) <= s.top;
}

static __device__ __forceinline__ float *attn_scores_of(const gpu_sparse &s, const gpu_column &col,
                                                        int head) {
    const int64_t n_blocks = (col.n_ctx + s.size - 1) / s.size;
    float *scores = (float *)(col.kv + (size_t)col.n_ctx * s.offset);
    return scores + ((int64_t)col.at * s.n_heads + head) * (n_blocks + s.n_list);
}

/* Only with n_list. */
static __device__ __forceinline__ int32_t *attn_list_of(const gpu_sparse &s,
                                                        const gpu_column &col) {
    return (int32_t *)attn_scores_of(s, col, 0) + (col.n_ctx + s.size - 1) / s.size;
}

/* ---- scores and results ---------------------------------------------------------------------- */

static __device__ __forceinline__ float attn_scale_at(const gpu_attention &a, int32_t pos) {
    if (a.temperature == 0.0f) return a.scale;
    const int32_t turns = (pos + a.temperature_offset) / a.temperature_length;
    return a.scale * (1.0f + a.temperature * logf(1.0f + (float)turns));
}

/* Factor of a head's sums over positions with weights e^(score - m) of sum l; 0 without positions.
 * NaN stays NaN. */
static __device__ __forceinline__ float attn_share(const gpu_attention &a, int64_t head, float m,
                                                   float l) {
    if (l == 0.0f) return 0.0f;
    if (!a.sinks) return 1.0f / l;
    const float top = fmaxf(m, a.sinks[head]), keep = expf(m - top);
    return keep / (l * keep + expf(a.sinks[head] - top));
}

static __device__ __forceinline__ const float *attn_query(const gpu_attention &a, int64_t c,
                                                          int64_t head) {
    return a.q + c * a.ldq + head * (a.q_stride ? a.q_stride : a.kv.head_dim);
}

/* Gate factor of element d of a head. */
static __device__ __forceinline__ float attn_gate_at(const gpu_attention &a, int64_t c,
                                                     int64_t head, int d) {
    if (!a.gate) return 1.0f;
    const int64_t at = head * (a.gate_stride ? a.gate_stride : a.kv.v_dim) + (a.head_gates ? 0 : d);
    const float gate = a.gate[c * a.ldg + at];
    if (a.gate_softplus) return gate > 20.0f ? gate : log1pf(expf(gate));
    return 1.0f / (1.0f + expf(-gate));
}

/* Layout of `partial`: the sums [v_dim] of all parts, then (m, l) of all parts. */
static __device__ __forceinline__ float *attn_sums(const gpu_attention &a, int64_t c, int64_t head,
                                                   int split) {
    return a.partial + ((c * a.n_head + head) * a.n_splits + split) * a.kv.v_dim;
}

static __device__ __forceinline__ float *attn_state(const gpu_attention &a, int64_t c, int64_t head,
                                                    int split) {
    const int64_t n = (int64_t)a.n_cols * a.n_head * a.n_splits;
    return a.partial + n * a.kv.v_dim + 2 * ((c * a.n_head + head) * a.n_splits + split);
}

/* op_attention_tile.cu: prefill attention, without the int8 form; false: no kernel for this
 * case. */
bool gpu_attention_tiled(gpu_stream *s, const gpu_attention &a);
/* op_blocks.cu: attention to the blocks that gpu_op_find_blocks selected, without the int8 form. */
void gpu_attention_sparse(gpu_stream *s, const gpu_attention &a);
/* op_attention_latent.cu: MLA, without the int8 form. */
void gpu_attention_latent(gpu_stream *s, const gpu_attention &a);

#endif
