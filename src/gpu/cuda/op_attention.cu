/* op_attention.cu: softmax(Q K^T) V over the cache, by tiles of positions with an online softmax
 * (Milakov and Gimelshein 2018; Dao 2022), long contexts in parts that run side by side and are
 * merged (Dao 2023, flash decoding).
 *
 * A block takes up to HEADS queries that share a KV head, and one part of the positions: so a key
 * is read once for all of them. Its threads take scores by groups of eight lanes per position, and
 * values by elements. Parts depend on pos, read from device memory, and on n_splits. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"

enum { THREADS = 128, WARPS = THREADS / GPU_WARP, HEADS = 8, TILE = GPU_ATTN_TILE };
enum { PER_THREAD = GPU_MAX_HEAD / THREADS }; /* elements of a value that a thread sums */

struct attn_shared {
    float q[HEADS][GPU_MAX_HEAD]; /* scaled */
    float p[HEADS][TILE];         /* scores, then weights */
    float m[HEADS], l[HEADS], shrink[HEADS];
};

/* Eight elements from i (a multiple of 8) of a head at one position. */
static __device__ __forceinline__ void load8(const uint8_t *head, quant_type type, int i,
                                             float *v) {
    if (type == QUANT_F16) {
        const uint4 u = gpu_load16(head + 2 * i);
        const uint32_t w[4] = {u.x, u.y, u.z, u.w};
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            v[2 * j] = gpu_half_float(w[j] & 0xffff);
            v[2 * j + 1] = gpu_half_float(w[j] >> 16);
        }
    } else if (type == QUANT_Q8_0) {
        const uint8_t *block = head + 34 * (i / 32);
        const float d = gpu_half_float(*(const uint16_t *)block);
        GPU_UNROLL
        for (int j = 0; j < 8; j++) v[j] = d * (float)(int8_t)block[2 + i % 32 + j];
    } else {
        GPU_UNROLL
        for (int j = 0; j < 8; j++) v[j] = ((const float *)head)[i + j];
    }
}

static __device__ __forceinline__ float load1(const uint8_t *head, quant_type type, int i) {
    if (type == QUANT_F16) return gpu_half_float(((const uint16_t *)head)[i]);
    if (type != QUANT_Q8_0) return ((const float *)head)[i];
    const uint8_t *block = head + 34 * (i / 32);
    return gpu_half_float(*(const uint16_t *)block) * (float)(int8_t)block[2 + i % 32];
}

static __device__ __forceinline__ size_t head_bytes(quant_type type, int n) {
    return (size_t)(type == QUANT_F32 ? 4 * n : type == QUANT_F16 ? 2 * n : n / 32 * 34);
}

/* Scores of the tile's n positions for n_heads queries; eight lanes share a position. */
static __device__ __forceinline__ void score_tile(const gpu_attention &a, attn_shared &shared,
                                                  const uint8_t *k, int n, int n_heads) {
    const int lane8 = gpu_lane() % 8;
    for (int first = gpu_warp() * 4; first < n; first += WARPS * 4) {
        const int j = first + gpu_lane() / 8;
        const uint8_t *head = k + (size_t)(j < n ? j : n - 1) * a.kv.k_row;
        float s[HEADS];
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++) s[h] = 0.0f;
        for (int i = 8 * lane8; i < a.kv.head_dim; i += 64) {
            float v[8];
            load8(head, a.kv.type_k, i, v);
            GPU_UNROLL
            for (int h = 0; h < HEADS; h++) {
                if (h >= n_heads) break;
                GPU_UNROLL
                for (int d = 0; d < 8; d++) s[h] += shared.q[h][i + d] * v[d];
            }
        }
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++) {
            if (h >= n_heads) break;
            float sum = gpu_group8_sum(s[h]);
            if (a.softcap > 0.0f) sum = a.softcap * tanhf(sum / a.softcap);
            if (lane8 == 0 && j < n) shared.p[h][j] = sum;
        }
    }
}

/* Turns scores into weights; what was summed before shrinks by shrink[h]. A warp takes a head. */
static __device__ __forceinline__ void soften_tile(attn_shared &shared, int n, int n_heads) {
    for (int h = gpu_warp(); h < n_heads; h += WARPS) {
        float top = -INFINITY;
        for (int j = gpu_lane(); j < n; j += GPU_WARP) top = fmaxf(top, shared.p[h][j]);
        top = fmaxf(gpu_warp_max(top), shared.m[h]);
        float sum = 0.0f;
        for (int j = gpu_lane(); j < n; j += GPU_WARP) {
            const float p = expf(shared.p[h][j] - top);
            shared.p[h][j] = p;
            sum += p;
        }
        sum = gpu_warp_sum(sum);
        if (gpu_lane() == 0) {
            const float shrink = expf(shared.m[h] - top); /* 0 at first: m is -inf */
            shared.shrink[h] = shrink;
            shared.l[h] = shared.l[h] * shrink + sum;
            shared.m[h] = top;
        }
    }
}

/* acc[h][e] += weights times element threadIdx.x + e * THREADS of the values. */
static __device__ __forceinline__ void sum_tile(const gpu_attention &a, const attn_shared &shared,
                                                const uint8_t *v, int n, int n_heads,
                                                float (&acc)[HEADS][PER_THREAD]) {
    GPU_UNROLL
    for (int e = 0; e < PER_THREAD; e++) {
        const int d = (int)threadIdx.x + e * THREADS;
        if (d >= a.kv.head_dim) break;
        GPU_UNROLL
        for (int h = 0; h < HEADS; h++)
            if (h < n_heads) acc[h][e] *= shared.shrink[h];
        for (int j = 0; j < n; j++) {
            const float x = load1(v + (size_t)j * a.kv.v_row, a.kv.type_v, d);
            GPU_UNROLL
            for (int h = 0; h < HEADS; h++)
                if (h < n_heads) acc[h][e] += shared.p[h][j] * x;
        }
    }
}

struct attn_task {
    int first_head, n_heads, kv_head, split;
    int64_t c, k0, k1;
};

static __device__ __forceinline__ attn_task task_of(const gpu_attention &a) {
    attn_task t;
    const int group = a.n_head / a.kv.n_head_kv, chunks = (group + HEADS - 1) / HEADS;
    t.c = blockIdx.z;
    t.split = (int)blockIdx.y;
    t.kv_head = (int)blockIdx.x / chunks;
    const int chunk = (int)blockIdx.x % chunks;
    t.first_head = t.kv_head * group + chunk * HEADS;
    t.n_heads = group - chunk * HEADS < HEADS ? group - chunk * HEADS : HEADS;
    const int64_t end = (int64_t)a.cols[t.c].pos + 1;
    const int64_t begin = a.window > 0 && end > a.window ? end - a.window : 0;
    int64_t part = (end - begin + a.n_splits - 1) / a.n_splits;
    part = (part + TILE - 1) / TILE * TILE;
    t.k0 = begin + t.split * part;
    t.k1 = t.k0 + part < end ? t.k0 + part : end;
    return t;
}

/* The result, or this part's state (m, l, sums) for the merge. */
static __device__ __forceinline__ void finish(const gpu_attention &a, const attn_task &t,
                                              const attn_shared &shared,
                                              const float (&acc)[HEADS][PER_THREAD]) {
    const int dim = a.kv.head_dim;
    GPU_UNROLL
    for (int h = 0; h < HEADS; h++) {
        if (h >= t.n_heads) break;
        const int64_t head = t.first_head + h;
        const float scale = shared.l[h] > 0.0f ? 1.0f / shared.l[h] : 0.0f;
        float *state = a.partial + ((t.c * a.n_head + head) * a.n_splits + t.split) * (dim + 2);
        GPU_UNROLL
        for (int e = 0; e < PER_THREAD; e++) {
            const int d = (int)threadIdx.x + e * THREADS;
            if (d >= dim) break;
            if (a.n_splits == 1)
                a.out[t.c * a.ldo + head * dim + d] = acc[h][e] * scale;
            else
                state[2 + d] = acc[h][e];
        }
        if (a.n_splits > 1 && threadIdx.x == 0) {
            state[0] = shared.m[h];
            state[1] = shared.l[h];
        }
    }
}

static __global__ void __launch_bounds__(THREADS) attention_kernel(gpu_attention a) {
    GPU_SHARED(attn_shared, shared);
    const attn_task t = task_of(a);
    const gpu_column col = a.cols[t.c];
    const int dim = a.kv.head_dim;
    const uint8_t *k = col.kv + (size_t)col.n_ctx * a.kv.k_offset +
                       (size_t)t.kv_head * head_bytes(a.kv.type_k, dim);
    const uint8_t *v = col.kv + (size_t)col.n_ctx * a.kv.v_offset +
                       (size_t)t.kv_head * head_bytes(a.kv.type_v, dim);
    for (int i = (int)threadIdx.x; i < t.n_heads * dim; i += THREADS) {
        const int h = i / dim, d = i % dim;
        shared.q[h][d] = a.q[t.c * a.ldq + (int64_t)(t.first_head + h) * dim + d] * a.scale;
    }
    if ((int)threadIdx.x < HEADS) {
        shared.m[threadIdx.x] = -INFINITY;
        shared.l[threadIdx.x] = 0.0f;
    }
    float acc[HEADS][PER_THREAD];
    GPU_UNROLL
    for (int h = 0; h < HEADS; h++) {
        GPU_UNROLL
        for (int e = 0; e < PER_THREAD; e++) acc[h][e] = 0.0f;
    }
    gpu_sync();
    for (int64_t j = t.k0; j < t.k1; j += TILE) {
        const int n = t.k1 - j < TILE ? (int)(t.k1 - j) : (int)TILE;
        score_tile(a, shared, k + (size_t)j * a.kv.k_row, n, t.n_heads);
        gpu_sync();
        soften_tile(shared, n, t.n_heads);
        gpu_sync();
        sum_tile(a, shared, v + (size_t)j * a.kv.v_row, n, t.n_heads, acc);
        gpu_sync();
    }
    finish(a, t, shared, acc);
}

/* Joins the parts of one head of one column. */
static __global__ void __launch_bounds__(THREADS) merge_kernel(gpu_attention a) {
    const int64_t head = blockIdx.x, c = blockIdx.y;
    const int dim = a.kv.head_dim;
    const float *states = a.partial + (c * a.n_head + head) * a.n_splits * (dim + 2);
    float top = -INFINITY, l = 0.0f;
    for (int s = 0; s < a.n_splits; s++) top = fmaxf(top, states[(int64_t)s * (dim + 2)]);
    for (int s = 0; s < a.n_splits; s++) {
        const float *state = states + (int64_t)s * (dim + 2);
        if (state[1] > 0.0f) l += expf(state[0] - top) * state[1];
    }
    for (int d = (int)threadIdx.x; d < dim; d += THREADS) {
        float sum = 0.0f;
        for (int s = 0; s < a.n_splits; s++) {
            const float *state = states + (int64_t)s * (dim + 2);
            if (state[1] > 0.0f) sum += expf(state[0] - top) * state[2 + d];
        }
        a.out[c * a.ldo + head * dim + d] = l > 0.0f ? sum / l : 0.0f;
    }
}

void gpu_op_attention(gpu_stream *s, const gpu_attention *a) {
    const int group = a->n_head / a->kv.n_head_kv, chunks = (group + HEADS - 1) / HEADS;
    assert(a->n_cols >= 1 && a->n_head % a->kv.n_head_kv == 0);
    assert(a->kv.head_dim <= GPU_MAX_HEAD && a->kv.head_dim % 8 == 0);
    assert(a->n_splits >= 1 && (a->n_splits == 1 || a->partial));
    const gpu_grid grid = {(unsigned)(a->kv.n_head_kv * chunks), (unsigned)a->n_splits,
                           (unsigned)a->n_cols, THREADS};
    gpu_launch(s, grid, attention_kernel, *a);
    if (a->n_splits == 1) return;
    const gpu_grid heads = {(unsigned)a->n_head, (unsigned)a->n_cols, 1, THREADS};
    gpu_launch(s, heads, merge_kernel, *a);
}
