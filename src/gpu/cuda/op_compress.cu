/* op_compress.cu: compressed keys. First one thread per element of a key goes through a session's
 * columns in order; then one block per column stores the key that the column completes. */
#include <assert.h>

#include "gpu_rope.h"
#include "op_table.h"

enum { SUM_THREADS = 64, THREADS = ROPE_THREADS };

static __global__ void __launch_bounds__(SUM_THREADS) sum_kernel(gpu_compress a) {
    gpu_begin();
    const int64_t c0 = blockIdx.y;
    const int i = (int)(blockIdx.x * SUM_THREADS + threadIdx.x);
    const gpu_column col = a.cols[c0];
    if (col.at != 0 || i >= a.dim) return;
    float n = 0.0f, sum = 0.0f; /* of the key that is not complete */
    const int64_t at_n = a.at + a.dim + i, at_sum = at_n + a.dim;
    if (col.state_from) {
        n = col.state_from[at_n];
        sum = col.state_from[at_sum];
    }
    for (int t = 0; t < col.run; t++) {
        if (t == col.n_before && col.state_before) {
            col.state_before[at_n] = n;
            col.state_before[at_sum] = sum;
        }
        float *x = a.x + (c0 + t) * a.ldx + i;
        n += 1.0f;
        sum += *x;
        if ((col.pos + t + 1) % a.ratio != 0) continue;
        *x = sum / n;
        n = sum = 0.0f;
    }
    col.state_to[at_n] = n;
    col.state_to[at_sum] = sum;
}

struct key_shared {
    alignas(16) float head[GPU_MAX_HEAD];
    float cs[GPU_MAX_HEAD];
    rope_sums sums;
};

static __global__ void __launch_bounds__(THREADS) key_kernel(gpu_compress a) {
    gpu_begin();
    GPU_SHARED(key_shared, shared);
    const int64_t c = blockIdx.x;
    const gpu_column col = a.cols[c];
    if ((col.pos + 1) % a.ratio != 0) return;
    const bool far = a.inv_freq_long && col.n_ctx > a.long_from;
    for (int i = (int)threadIdx.x; i < a.n_rot / 2; i += THREADS) {
        const double angle = (double)(col.pos + 1 - a.ratio) *
                             (double)(far ? a.inv_freq_long : a.inv_freq)[i];
        shared.cs[2 * i] = (float)cos(angle) * a.scale;
        shared.cs[2 * i + 1] = (float)sin(angle) * a.scale;
    }
    for (int i = (int)threadIdx.x; i < a.dim; i += THREADS) shared.head[i] = a.x[c * a.ldx + i];
    gpu_sync();
    rope_norm_head(shared.sums, shared.head, a.norm, a.dim, false, a.eps);
    rope_rotate_head(shared.head + a.rot_at, shared.cs, a.n_rot, a.neox);
    rope_spread(shared.head, a.dim, a.kv.k_hadamard);
    uint8_t *row = col.kv + (size_t)col.n_ctx * a.kv.k_offset +
                   (size_t)(col.pos / a.ratio) * a.kv.k_row;
    gpu_cache_any::store(a.kv.type_k, shared.head, row, a.dim, (int)threadIdx.x, THREADS);
}

void gpu_op_compress(gpu_stream *s, const gpu_compress *a) {
    assert(a->n_cols >= 1 && a->ratio >= 1);
    assert(a->dim <= GPU_MAX_HEAD && a->dim % 8 == 0 && a->rot_at + a->n_rot <= a->dim);
    const gpu_grid parts = {gpu_blocks(a->dim, SUM_THREADS), (unsigned)a->n_cols, 1, SUM_THREADS};
    const gpu_grid keys = {(unsigned)a->n_cols, 1, 1, THREADS};
    gpu_launch<sum_kernel>(s, parts, *a);
    gpu_launch<key_kernel>(s, keys, *a);
}
