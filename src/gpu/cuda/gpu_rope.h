/* gpu_rope.h: norms and RoPE of heads in shared memory, and their addresses in the cache. Used by
 * rope_store, and by attention of one token, which has RoPE fused in. */
#ifndef GPU_CUDA_GPU_ROPE_H
#define GPU_CUDA_GPU_ROPE_H

#include "gpu_cache.h"

/* Threads of a block that compute; further threads only take part in barriers. So sums have one
 * order in all kernels. */
enum { ROPE_THREADS = 128, ROPE_WARPS = ROPE_THREADS / GPU_WARP };

static __device__ __forceinline__ int rope_first() {
    return threadIdx.x < ROPE_THREADS ? (int)threadIdx.x : INT32_MAX - ROPE_THREADS;
}

struct rope_sums { /* one per warp */
    float sums[GPU_MAX_HEAD / GPU_WARP], squares[GPU_MAX_HEAD / GPU_WARP];
};

/* Normalizes `head`, in shared memory, in place; w NULL: no weights. Ends with a barrier. */
static __device__ __forceinline__ void
rope_norm_head(rope_sums &shared, float *head, const float *w, int n, bool centred, float eps) {
    float mean = 0.0f, squares = 0.0f;
    if (centred) {
        float sum = 0.0f;
        for (int i = rope_first(); i < n; i += ROPE_THREADS) sum += head[i];
        mean = gpu_block_sum(sum, shared.sums, ROPE_WARPS) / (float)n;
    }
    for (int i = rope_first(); i < n; i += ROPE_THREADS) {
        const float x = head[i] - mean;
        squares += x * x;
    }
    const float scale = 1.0f /
                        sqrtf(gpu_block_sum(squares, shared.squares, ROPE_WARPS) / (float)n + eps);
    for (int i = rope_first(); i < n; i += ROPE_THREADS)
        head[i] = (head[i] - mean) * scale * (w ? w[i] : 1.0f);
    gpu_sync();
}

static __device__ __forceinline__ void rope_rotate_head(float *head, const float *cs, int n_rot,
                                                        bool neox, bool back = false) {
    const int half = n_rot / 2;
    for (int i = rope_first(); i < half; i += ROPE_THREADS) {
        const int even = neox ? i : 2 * i, odd = neox ? i + half : 2 * i + 1;
        const float c = cs[2 * i], s = back ? -cs[2 * i + 1] : cs[2 * i + 1];
        const float x = head[even], y = head[odd];
        head[even] = x * c - y * s;
        head[odd] = x * s + y * c;
    }
    gpu_sync();
}

/* Multiplies a head by the Hadamard matrix of the cache, if it has one. Ends with a barrier. */
static __device__ __forceinline__ void rope_spread(float *head, int n, int block) {
    if (block) gpu_hadamard(head, n, block, (int)threadIdx.x, (int)blockDim.x);
}

/* Clamps `head`, in shared memory, to +-most; 0: not. NaN stays NaN. Ends with a barrier. */
static __device__ __forceinline__ void rope_clamp_head(float *head, int n, float most) {
    if (most == 0.0f) return;
    for (int i = rope_first(); i < n; i += ROPE_THREADS)
        head[i] = head[i] > most ? most : head[i] < -most ? -most : head[i];
    gpu_sync();
}

/* Clamp, norm and RoPE of head h of Q or K, in the order of `norm_late`; w: norm weights of all
 * heads. Then the Hadamard matrix of the cache. */
static __device__ __forceinline__ void rope_turn_head(const gpu_rope_store &a, rope_sums &shared,
                                                      float *head, const float *w, int h, int c) {
    const bool norms = w || a.norm_bare, centred = a.norm == GPU_NORM_LAYER;
    if (w) w += h * a.norm_stride;
    rope_clamp_head(head, a.kv.head_dim, a.clamp);
    if (norms && !a.norm_late) rope_norm_head(shared, head, w, a.kv.head_dim, centred, a.eps);
    if (a.cs)
        rope_rotate_head(head + a.rot_at, a.cs + (int64_t)c * a.n_rot, a.n_rot, a.neox, a.back);
    if (norms && a.norm_late) rope_norm_head(shared, head, w, a.kv.head_dim, centred, a.eps);
    rope_spread(head, a.kv.head_dim, a.kv.k_hadamard);
}

#endif
