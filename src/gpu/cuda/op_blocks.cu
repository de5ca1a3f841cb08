/* op_blocks.cu: sparse attention (MiniMax-M3): scores of blocks of positions, selection of the best
 * blocks, and attention to these. For MLA (DSA; DeepSeek-V3.2) it scores and selects single
 * positions, for DeepSeek-V4 compressed keys; op_attention_latent.cu attends to them. In Qwen4 an
 * index key belongs to several positions.
 *
 * A block's score is the highest product of a head's index query with the index keys of its
 * positions. A warp scores a block of positions, with eight elements of a key per lane. Then a
 * thread block finds, bit by bit, the cutoff that exactly the wanted number of blocks reaches, and
 * marks the others. In attention a thread block computes a head; each warp has every WARPS-th
 * position of the selected blocks and a separate online softmax; the results of the warps are
 * merged at the end. */
#include <assert.h>

#include "gpu_attention.h"
#include "gpu_block.h"
#include "gpu_cache.h"
#include "gpu_select.h"
#include "op_table.h"

enum { WARPS = 8, THREADS = WARPS * GPU_WARP };

/* Loads eight elements of a head per lane; zeros in lanes after the end. */
template <class C>
static __device__ __forceinline__ void load_eight(quant_type type, const uint8_t *head, int n,
                                                  float (&v)[8]) {
    GPU_UNROLL
    for (int d = 0; d < 8; d++) v[d] = 0.0f;
    if (gpu_lane() >= n / 8) return;
    typename C::raw raw;
    C::load(type, head, gpu_lane(), raw);
    C::prepare(type, gpu_lane(), raw);
    C::decode(type, raw, head, gpu_lane(), v);
}

static __device__ __forceinline__ void load_query(const float *q, int n, float scale,
                                                  float (&v)[8]) {
    GPU_UNROLL
    for (int d = 0; d < 8; d++) v[d] = gpu_lane() < n / 8 ? q[8 * gpu_lane() + d] * scale : 0.0f;
}

static __device__ __forceinline__ float dot_eight(const float (&a)[8], const float (&b)[8]) {
    float sum = 0.0f;
    GPU_UNROLL
    for (int d = 0; d < 8; d++) sum += a[d] * b[d];
    return gpu_warp_sum(sum);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

template <class K>
static __global__ void __launch_bounds__(THREADS) score_kernel(gpu_find_blocks a) {
    gpu_begin();
    const gpu_column col = a.cols[blockIdx.z];
    const int head = (int)blockIdx.y, dim = a.kv.head_dim, size = a.blocks.size;
    if (attn_sees_all(a.blocks, col.pos)) return;
    const uint8_t *keys = (const uint8_t *)gpu_global(col.kv) + (size_t)col.n_ctx * a.kv.k_offset;
    float *scores = attn_scores_of(a.blocks, col, head), q[8], k[8];
    load_query(a.q + blockIdx.z * a.ldq + (int64_t)head * dim, dim, 1.0f, q);
    const int step = a.n_parts * WARPS;
    for (int b = (int)blockIdx.x * WARPS + gpu_warp(); b <= col.pos / size; b += step) {
        const int end = (b + 1) * size <= col.pos ? (b + 1) * size : col.pos + 1;
        float top = -INFINITY;
        for (int p = b * size; p < end; p++) {
            load_eight<K>(a.kv.type_k, keys + (size_t)p * a.kv.k_row, dim, k);
            top = fmaxf(top, dot_eight(q, k));
        }
        if (gpu_lane() == 0) scores[b] = top;
    }
}

/* A warp scores an index key for all queries. */
template <class K>
static __global__ void __launch_bounds__(THREADS) position_kernel(gpu_find_blocks a) {
    gpu_begin();
    const int64_t c = blockIdx.z;
    const gpu_column col = a.cols[c];
    const int dim = a.kv.head_dim, per = a.ratio > 0 ? a.ratio : 1;
    if (attn_sees_all(a.blocks, col.pos)) return;
    const uint8_t *keys = (const uint8_t *)gpu_global(col.kv) + (size_t)col.n_ctx * a.kv.k_offset;
    const float *queries = a.q + c * a.ldq;
    float *scores = attn_scores_of(a.blocks, col, 0), q[8], k[8];
    const int n = attn_blocks_seen(a.blocks, col.pos), n_keys = n / per;
    const int first = (int)blockIdx.x * WARPS + gpu_warp();
    for (int p = first; p < n_keys; p += a.n_parts * WARPS) {
        float sum = 0.0f;
        load_eight<K>(a.kv.type_k, keys + (size_t)p * a.kv.k_row, dim, k);
        for (int h = 0; h < a.n_queries; h++) {
            load_query(queries + (int64_t)h * dim, dim, 1.0f, q);
            sum += (a.weights ? a.weights[c * a.ldw + h] : 1.0f) * fmaxf(dot_eight(q, k), 0.0f);
        }
        for (int i = gpu_lane(); i < per; i += GPU_WARP) scores[p * per + i] = sum;
    }
    for (int p = n_keys * per + gpu_lane(); first == 0 && p < n; p += GPU_WARP)
        scores[p] = INFINITY;
}

/* An integer with the order of the floats. */
static __device__ __forceinline__ uint32_t ordered(float x) {
    const uint32_t bits = gpu_float_bits(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct choose_shared {
    float part[WARPS];
    int32_t counts[2][WARPS]; /* they alternate, because a warp may be a round ahead */
};

static __device__ __forceinline__ int count_from(const float *scores, int n, uint32_t least,
                                                 choose_shared &shared) {
    float count = 0.0f;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        count += ordered(scores[i]) >= least ? 1.0f : 0.0f;
    gpu_sync();
    return (int)gpu_block_sum(count, shared.part, WARPS);
}

/* Puts `value` where entry `at` of the heap was: cpu_blocks.c. */
static __device__ __forceinline__ void heap_put(int32_t *heap, int n, const float *scores, int at,
                                                int32_t value) {
    const int from = at;
    for (int child; (child = 2 * at + 2) <= n; at = child) {
        if (child == n || scores[heap[child]] > scores[heap[child - 1]]) child--;
        heap[at] = heap[child];
    }
    for (; at > from && scores[heap[(at - 1) / 2]] > scores[value]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* Of the scores that equal the cutoff, raises those that the CPU would keep. Such scores are rare
 * in models with many index heads: one thread does it. */
static __device__ __forceinline__ void raise_equal(float *scores, int n, int32_t *heap, int top,
                                                   uint32_t cut) {
    for (int i = 0; i < top; i++) heap[i] = i;
    for (int i = top / 2 - 1; i >= 0; i--) heap_put(heap, top, scores, i, heap[i]);
    for (int i = top; i < n; i++)
        if (scores[i] > scores[heap[0]]) heap_put(heap, top, scores, 0, i);
    for (int i = 0; i < top; i++)
        if (ordered(scores[heap[i]]) == cut) scores[heap[i]] = INFINITY;
}

/* Lists the positions of n scores that are not left out, ascending. */
static __device__ __forceinline__ void list_positions(const float *scores, int n, int32_t *list,
                                                      choose_shared &shared) {
    int32_t before = 0; /* positions listed in earlier rounds */
    int turn = 0;
    for (int first = 0; first < n; first += THREADS, turn ^= 1) {
        const int i = first + (int)threadIdx.x;
        const int32_t keep = i < n && scores[i] != GPU_LEFT_OUT ? 1 : 0;
        const int32_t in_warp = gpu_sum_before(keep);
        if (gpu_lane() == GPU_WARP - 1) shared.counts[turn][gpu_warp()] = in_warp + keep;
        gpu_sync();
        int32_t place = before + in_warp;
        for (int w = 0; w < WARPS; w++) {
            if (w < gpu_warp()) place += shared.counts[turn][w];
            before += shared.counts[turn][w];
        }
        if (keep) list[place] = i;
    }
}

static __global__ void __launch_bounds__(THREADS) choose_kernel(gpu_find_blocks a) {
    gpu_begin();
    GPU_SHARED(choose_shared, shared);
    const gpu_column col = a.cols[blockIdx.y];
    const int n = attn_blocks_seen(a.blocks, col.pos), top = a.blocks.top;
    if (attn_sees_all(a.blocks, col.pos)) return;
    float *scores = attn_scores_of(a.blocks, col, (int)blockIdx.x);
    int32_t *list = attn_list_of(a.blocks, col); /* with n_list */
    for (int i = (int)threadIdx.x; i < a.local; i += THREADS) scores[n - 1 - i] = INFINITY;
    gpu_sync();
    uint32_t cut = 0; /* the largest number that at least `top` scores reach */
    for (uint32_t bit = 0x80000000u; bit > 0; bit >>= 1)
        if (count_from(scores, n, cut | bit, shared) >= top) cut |= bit;
    int more = count_from(scores, n, cut, shared) -
               top; /* surplus scores, which equal the cutoff */
    gpu_sync();
    if (a.sums && more > 0) {
        if (threadIdx.x == 0) raise_equal(scores, n, list, top, cut);
        cut++;
    } else if (more > 0 && threadIdx.x == 0) {
        for (int i = n - 1; more > 0; i--)
            if (ordered(scores[i]) == cut) scores[i] = GPU_LEFT_OUT, more--;
    }
    gpu_sync();
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        if (ordered(scores[i]) < cut) scores[i] = GPU_LEFT_OUT;
    gpu_sync();
    if (a.sums) list_positions(scores, n, list, shared);
}

void gpu_op_find_blocks(gpu_stream *s, const gpu_find_blocks *a) {
    const unsigned n_heads = (unsigned)a->blocks.n_heads, n_cols = (unsigned)a->n_cols;
    const gpu_grid parts = {(unsigned)a->n_parts, n_heads, n_cols, THREADS};
    const gpu_grid heads = {n_heads, n_cols, 1, THREADS};
    assert(a->n_cols >= 1 && a->n_parts >= 1 && a->blocks.size > 0 && a->local <= a->blocks.top);
    assert(a->kv.head_dim <= GPU_MAX_SPARSE && a->kv.head_dim % 8 == 0);
    assert(!a->sums || (n_heads == 1 && a->local == 0));
    assert(!a->sums || a->blocks.size == 1 || (a->blocks.whole && a->ratio == 0));
    assert(a->blocks.n_list == (a->sums ? a->blocks.top : 0));
#define CACHE(K)                                                                                   \
    do {                                                                                           \
        if (a->sums)                                                                               \
            gpu_launch<position_kernel<K>>(s, parts, *a);                                          \
        else                                                                                       \
            gpu_launch<score_kernel<K>>(s, parts, *a);                                             \
    } while (0)
    GPU_CACHE_SWITCH(a->kv.type_k);
#undef CACHE
    gpu_launch<choose_kernel>(s, heads, *a);
}

/* ---- attention ------------------------------------------------------------------------------- */

struct join_shared {
    float m[WARPS], l[WARPS], acc[WARPS][GPU_MAX_SPARSE];
};

/* Softmax state of one head over a warp's positions, and the sums of a lane's eight elements. */
struct warp_sums {
    float m, l, acc[8];
};

static __device__ __forceinline__ void add_value(warp_sums &t, float score, const float (&v)[8]) {
    if (score == -INFINITY) return;
    const float m = fmaxf(t.m, score), shrink = expf(t.m - m), w = expf(score - m);
    t.m = m;
    t.l = t.l * shrink + w;
    GPU_UNROLL
    for (int d = 0; d < 8; d++) t.acc[d] = t.acc[d] * shrink + w * v[d];
}

/* Merges the warps' results. One thread per element d of a head. */
static __device__ __forceinline__ void join(const gpu_attention &a, const join_shared &shared,
                                            int64_t c, int64_t head, int d) {
    float m = -INFINITY, l = 0.0f, sum = 0.0f;
    for (int w = 0; w < WARPS; w++) m = fmaxf(m, shared.m[w]);
    for (int w = 0; w < WARPS; w++) {
        const float share = shared.l[w] != 0.0f ? expf(shared.m[w] - m) : 0.0f;
        l += share * shared.l[w];
        sum += share * shared.acc[w][d];
    }
    a.out[c * a.ldo + head * a.kv.v_dim + d] = sum * attn_share(a, head, m, l) *
                                               attn_gate_at(a, c, head, d);
}

/* Minimum blocks per multiprocessor. ptxas would choose more, and registers would spill. Caches
 * whose types are known at run time only need up to 147 registers, others 58 to 99. */
template <class K, class V> struct attend_blocks {
    static const bool decodes = gpu_same<K, gpu_cache_any>::value ||
                                gpu_same<V, gpu_cache_any>::value;
    static const int n = decodes ? 1 : 2;
};

template <class K, class V>
static __global__ void GPU_BOUNDS(THREADS, (attend_blocks<K, V>::n))
    attend_kernel(gpu_attention a) {
    gpu_begin();
    GPU_SHARED(join_shared, shared);
    const int64_t head = blockIdx.x, c = blockIdx.y;
    const gpu_column col = a.cols[c];
    const int kv_head = (int)head / (a.n_head / a.kv.n_head_kv), size = a.sparse.size;
    const uint8_t *cache = (const uint8_t *)gpu_global(col.kv);
    const uint8_t *keys = cache + (size_t)col.n_ctx * a.kv.k_offset +
                          (size_t)kv_head * K::head_bytes(a.kv.type_k, a.kv.head_dim);
    const uint8_t *values = cache + (size_t)col.n_ctx * a.kv.v_offset +
                            (size_t)kv_head * V::head_bytes(a.kv.type_v, a.kv.v_dim);
    const float *scores = attn_scores_of(a.sparse, col, a.sparse.n_list > 0 ? 0 : kv_head);
    const bool all = attn_sees_all(a.sparse, col.pos);
    warp_sums t = {-INFINITY, 0.0f, {0.0f}};
    float q[8], x[8];
    load_query(attn_query(a, c, head), a.kv.head_dim, attn_scale_at(a, col.pos), q);
    for (int b = 0; b <= col.pos / size; b++) {
        if (!all && scores[b] == GPU_LEFT_OUT) continue;
        const int end = (b + 1) * size <= col.pos ? (b + 1) * size : col.pos + 1;
        for (int p = b * size + gpu_warp(); p < end; p += WARPS) {
            load_eight<K>(a.kv.type_k, keys + (size_t)p * a.kv.k_row, a.kv.head_dim, x);
            float score = dot_eight(q, x);
            if (a.softcap > 0.0f) score = a.softcap * tanhf(score / a.softcap);
            load_eight<V>(a.kv.type_v, values + (size_t)p * a.kv.v_row, a.kv.v_dim, x);
            add_value(t, score, x);
        }
    }
    if (gpu_lane() == 0) {
        shared.m[gpu_warp()] = t.m;
        shared.l[gpu_warp()] = t.l;
    }
    GPU_UNROLL
    for (int d = 0; d < 8; d++) shared.acc[gpu_warp()][8 * gpu_lane() + d] = t.acc[d];
    gpu_sync();
    for (int d = (int)threadIdx.x; d < a.kv.v_dim; d += THREADS) join(a, shared, c, head, d);
}

void gpu_attention_sparse(gpu_stream *s, const gpu_attention &a) {
    assert(a.n_splits == 1 && !a.turns && a.window == 0 && a.kv.v_row > 0);
    assert(a.kv.head_dim <= GPU_MAX_SPARSE);
    const gpu_grid grid = {(unsigned)a.n_head, (unsigned)a.n_cols, 1, THREADS};
#define CACHE(K, V) gpu_launch<attend_kernel<K, V>>(s, grid, a)
    GPU_CACHE_PAIR_SWITCH(a.kv.type_k, a.kv.type_v);
#undef CACHE
}
