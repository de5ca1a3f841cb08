/* op_compress.cu: compressed keys. First a thread computes an element of a key: it sums the parts
 * of the key's columns in order, beginning with the session's state if the key has earlier
 * positions. The threads of a session's first column also write the states. Then one block per
 * column stores the key that the column completes. */
#include <assert.h>

#include "gpu_rope.h"
#include "op_table.h"

enum { SUM_THREADS = 64, THREADS = ROPE_THREADS };

/* Softmax state of one element: largest score, sum of weights, weighted sum. */
struct key_sum {
    float m, l, sum;
};

/* The sum of key `key` over the columns [0, end) of a session, of element i. */
static __device__ __forceinline__ key_sum sum_key(const gpu_compress &a, const gpu_column &col,
                                                  int64_t c0, int i, int32_t key, int32_t end) {
    const int32_t first = (key - a.n_parts + 1) * a.ratio - col.pos; /* its first column */
    const int32_t last = (key + 1) * a.ratio - col.pos, part = key - col.pos / a.ratio;
    const int width = a.n_parts * a.dim;
    key_sum s = {-INFINITY, 0.0f, 0.0f};
    if (first < 0 && part < a.n_parts && col.state_from) {
        const float *from = col.state_from + a.at + 3 * part * a.dim + i;
        s.m = from[0];
        s.l = from[a.dim];
        s.sum = from[2 * a.dim];
    }
    for (int32_t t = first > 0 ? first : 0; t < end && t < last; t++) {
        const bool before = t < last - a.ratio; /* a position of the key before */
        const int at = (before ? 0 : (a.n_parts - 1) * a.dim) + i;
        const float *x = a.x + (c0 + t) * a.ldx + at;
        if (!a.positions) {
            s.l += 1.0f;
            s.sum += *x;
            continue;
        }
        const float score = x[width] + a.positions[(col.pos + t) % a.ratio * width + at];
        const float m = fmaxf(s.m, score), old = expf(s.m - m), now = expf(score - m);
        s.m = m;
        s.l = s.l * old + now;
        s.sum = s.sum * old + now * *x;
    }
    return s;
}

/* The state after `end` columns. */
static __device__ __forceinline__ void put_state(const gpu_compress &a, const gpu_column &col,
                                                 int64_t c0, int i, int32_t end, float *to) {
    const int32_t key = (col.pos + end) / a.ratio;
    const key_sum now = sum_key(a, col, c0, i, key, end);
    key_sum next = {0.0f, 0.0f, 0.0f};
    if (a.n_parts > 1) next = sum_key(a, col, c0, i, key + 1, end);
    to += a.at + i; /* it may be state_from: both sums have been read */
    to[0] = now.m;
    to[a.dim] = now.l;
    to[2 * a.dim] = now.sum;
    if (a.n_parts == 1) return;
    to[3 * a.dim] = next.m;
    to[4 * a.dim] = next.l;
    to[5 * a.dim] = next.sum;
}

/* Keys that begin in a state are computed by the threads that write the states. The place of a
 * complete key is read by no other thread. */
static __global__ void __launch_bounds__(SUM_THREADS) sum_kernel(gpu_compress a) {
    gpu_begin();
    const int64_t c = blockIdx.y;
    const int i = (int)(blockIdx.x * SUM_THREADS + threadIdx.x);
    const gpu_column col = a.cols[c];
    if (i >= a.dim || (col.at != 0 && col.pos % a.ratio != 0)) return;
    gpu_column start = col; /* the session's first column */
    start.pos -= col.at;
    const int32_t first = start.pos / a.ratio;
    int32_t key = col.pos / a.ratio, n = 1;
    if (col.at == 0) n = a.n_parts;
    if (col.at != 0 && key - first < a.n_parts) return;
    for (; n > 0; n--, key++) {
        const int32_t end = (key + 1) * a.ratio - start.pos;
        if (end > col.run) break;
        const key_sum s = sum_key(a, start, c - col.at, i, key, end);
        a.x[(c - col.at + end - 1) * a.ldx + (a.n_parts - 1) * a.dim + i] = s.sum / s.l;
    }
    if (col.at != 0) return;
    if (col.state_before) put_state(a, col, c, i, col.n_before, col.state_before);
    put_state(a, col, c, i, col.run, col.state_to);
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
    const float *x = a.x + c * a.ldx + (a.n_parts - 1) * a.dim;
    for (int i = (int)threadIdx.x; i < a.dim; i += THREADS) shared.head[i] = x[i];
    gpu_sync();
    rope_norm_head(shared.sums, shared.head, a.norm, a.dim, false, a.eps);
    rope_rotate_head(shared.head + a.rot_at, shared.cs, a.n_rot, a.neox);
    rope_spread(shared.head, a.dim, a.kv.k_hadamard);
    uint8_t *row = col.kv + (size_t)col.n_ctx * a.kv.k_offset +
                   (size_t)(col.pos / a.ratio) * a.kv.k_row;
    gpu_cache_any::store(a.kv.type_k, shared.head, row, a.dim, (int)threadIdx.x, THREADS);
}

void gpu_op_compress(gpu_stream *s, const gpu_compress *a) {
    assert(a->n_cols >= 1 && a->ratio >= 1 && (a->n_parts == 1 || a->n_parts == 2));
    assert(a->positions || a->n_parts == 1);
    assert(a->dim <= GPU_MAX_HEAD && a->dim % 8 == 0 && a->rot_at + a->n_rot <= a->dim);
    const gpu_grid parts = {gpu_blocks(a->dim, SUM_THREADS), (unsigned)a->n_cols, 1, SUM_THREADS};
    const gpu_grid keys = {(unsigned)a->n_cols, 1, 1, THREADS};
    gpu_launch<sum_kernel>(s, parts, *a);
    gpu_launch<key_kernel>(s, keys, *a);
}
