/* op_rope.cu: RoPE angles of a ubatch, QK norm and RoPE, and storing keys and values in the cache.
 * One block per head and column: queries first, then keys, then values. MLA: one block per head of
 * queries, then one for the cache row. */
#include <assert.h>

#include "gpu_rope.h"
#include "op_table.h"

enum { ANGLE_THREADS = 64, THREADS = ROPE_THREADS };

/* Angles in double, as on the CPU: at position 100,000 a float angle is off by 0.004. Once per
 * ubatch, so its cost does not matter. */
static __global__ void __launch_bounds__(ANGLE_THREADS) angles_kernel(gpu_rope_angles a) {
    gpu_begin();
    const int c = (int)blockIdx.y, i = (int)(blockIdx.x * ANGLE_THREADS + threadIdx.x);
    if (i >= a.n_half) return;
    const bool far = a.inv_freq_long && a.cols[c].n_ctx > a.long_from;
    const double angle = (double)a.cols[c].pos * (double)(far ? a.inv_freq_long : a.inv_freq)[i];
    float *cs = a.cs + 2 * ((int64_t)c * a.n_half + i);
    cs[0] = (float)cos(angle) * a.scale;
    cs[1] = (float)sin(angle) * a.scale;
}

void gpu_op_rope_angles(gpu_stream *s, const gpu_rope_angles *a) {
    assert(a->n_cols >= 1 && a->n_half >= 1);
    const gpu_grid grid = {gpu_blocks(a->n_half, ANGLE_THREADS), (unsigned)a->n_cols, 1,
                           ANGLE_THREADS};
    gpu_launch<angles_kernel>(s, grid, *a);
}

struct rope_shared {
    alignas(16) float head[GPU_MAX_LATENT];
    rope_sums sums;
};

/* Stores head h in a row of the cache. */
static __device__ __forceinline__ void store_head(const float *x, uint8_t *row, int h,
                                                  quant_type type, int n) {
    typedef gpu_cache_any any;
    any::store(type, x, row + (size_t)h * any::head_bytes(type, n), n, (int)threadIdx.x, THREADS);
}

static __global__ void __launch_bounds__(THREADS) rope_kernel(gpu_rope_store a) {
    gpu_begin();
    GPU_SHARED(rope_shared, shared);
    const int c = (int)blockIdx.y, n_kv = a.kv.n_head_kv;
    int h = (int)blockIdx.x;
    const bool is_q = h < a.n_head, is_k = !is_q && h < a.n_head + n_kv;
    const int n = is_q || is_k ? a.kv.head_dim : a.kv.v_dim;
    float *q = a.q + c * a.ldq + h * (a.q_stride ? a.q_stride : n);
    const float *x = q;
    if (!is_q) {
        h -= is_k ? a.n_head : a.n_head + n_kv;
        x = (is_k ? a.k + c * a.ldk : a.v + c * a.ldv) + (int64_t)h * n;
    }
    for (int i = (int)threadIdx.x; i < n; i += THREADS) shared.head[i] = x[i];
    gpu_sync();
    if (is_q || is_k)
        rope_turn_head(a, shared.sums, shared.head, is_q ? a.q_norm : a.k_norm, h, c);
    else
        rope_clamp_head(shared.head, n, a.clamp);
    if (!is_q && !is_k && a.value_norm)
        rope_norm_head(shared.sums, shared.head, nullptr, n, false, a.eps);
    if (!is_q && !is_k) rope_spread(shared.head, n, a.kv.v_hadamard);
    if (is_q) {
        for (int i = (int)threadIdx.x; i < n; i += THREADS) q[i] = shared.head[i];
        return;
    }
    const gpu_column col = a.cols[c];
    const size_t offset = is_k ? a.kv.k_offset : a.kv.v_offset;
    const size_t row = is_k ? a.kv.k_row : a.kv.v_row;
    const quant_type type = is_k ? a.kv.type_k : a.kv.type_v;
    store_head(shared.head, col.kv + (size_t)col.n_ctx * offset + (size_t)col.pos * row, h, type,
               n);
}

void gpu_op_rope_store(gpu_stream *s, const gpu_rope_store *a) {
    assert(a->n_cols >= 1 && a->kv.head_dim <= GPU_MAX_HEAD && a->kv.head_dim % 8 == 0);
    const bool values = a->kv.v_row > 0;
    assert(!values || (a->kv.v_dim > 0 && a->kv.v_dim <= a->kv.head_dim));
    const gpu_grid grid = {(unsigned)(a->n_head + (values ? 2 : 1) * a->kv.n_head_kv),
                           (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<rope_kernel>(s, grid, *a);
}

/* ---- MLA ------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS) latent_kernel(gpu_latent_store a) {
    gpu_begin();
    GPU_SHARED(rope_shared, shared);
    const int64_t c = blockIdx.y, h = blockIdx.x;
    const bool is_q = h < a.n_head;
    const int n_latent = a.kv.head_dim - a.n_rot;
    const float *k = a.k + c * a.ldk, *q = a.q + c * a.ldq + (h + 1) * a.q_dim - a.n_rot;
    for (int i = (int)threadIdx.x; i < a.n_rot; i += THREADS)
        shared.head[i] = is_q ? q[i] : k[n_latent + i];
    gpu_sync();
    if (!is_q && a.k_norm)
        rope_norm_head(shared.sums, shared.head, a.k_norm, a.n_rot, false, a.eps);
    if (a.cs) rope_rotate_head(shared.head, a.cs + c * a.n_rot, a.n_rot, a.neox);
    if (is_q) {
        float *out = a.out + c * a.ld_out + h * a.kv.head_dim;
        for (int i = (int)threadIdx.x; i < a.n_rot; i += THREADS) out[i] = shared.head[i];
        return;
    }
    for (int i = (int)threadIdx.x; i < n_latent; i += THREADS) shared.head[a.n_rot + i] = k[i];
    gpu_sync();
    rope_norm_head(shared.sums, shared.head + a.n_rot, a.norm, n_latent, false, a.eps);
    rope_spread(shared.head, a.kv.head_dim, a.kv.k_hadamard);
    const gpu_column col = a.cols[c];
    uint8_t *row = col.kv + (size_t)col.n_ctx * a.kv.k_offset + (size_t)col.pos * a.kv.k_row;
    store_head(shared.head, row, 0, a.kv.type_k, a.kv.head_dim);
}

void gpu_op_latent_store(gpu_stream *s, const gpu_latent_store *a) {
    assert(a->n_cols >= 1 && a->kv.head_dim <= GPU_MAX_LATENT && a->kv.head_dim % 8 == 0);
    const gpu_grid grid = {(unsigned)a->n_head + 1, (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<latent_kernel>(s, grid, *a);
}
