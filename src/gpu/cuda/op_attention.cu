/* op_attention.cu: attention of few tokens, and of many tokens where floats are not to be rounded
 * or tensor cores are missing (op_attention_tile.cu has the rest): softmax(Q K^T) V over the cache,
 * in tiles of positions with an online softmax (Milakov and Gimelshein 2018; Dao 2022); long
 * contexts are split into parts that run in parallel and are merged (Dao 2023, flash decoding).
 *
 * A thread block computes up to H queries that share a KV head, over one part of the positions, so
 * it reads a key once for all of them. It has DIM threads, for heads of up to DIM elements. Eight
 * lanes share a key and sum its scores. DIM / 8 lanes share a value, eight elements each: so there
 * are eight groups of threads, which sum eight values of a tile each; the groups are added at the
 * end. For keys and for values, a thread loads eight vectors of eight elements ("eights") per tile.
 * For heads of more than 256 elements a thread has 128 registers, and the sums of four queries
 * would need 64 KiB of shared memory. There H is 2, a tile has 32 positions, a thread loads four
 * eights, and 16 lanes share a key.
 *
 * Latency is the limit: a load takes about 700 ns, and there are few blocks. So a thread issues all
 * its loads of a tile before it uses one: keys and values of the first tile together, keys of the
 * next tile before the softmax, its values after the sums. A part of two tiles waits for memory
 * once; its computation on the first tile (0.5 us) hides most of the second wait. To keep loads in
 * registers, types, heads and lengths are compile-time constants.
 *
 * In decode (one token) RoPE is fused in: every block rotates its queries. Blocks of the last part
 * also rotate the token's key and round it to the type of the cache; the first block of a KV head
 * stores it. This costs one more load and some instructions, and saves a kernel.
 *
 * When cached values are multiplied by a Hadamard matrix, another kernel multiplies the results by
 * its inverse and applies the gate.
 *
 * Parts depend on pos, which is in device memory, and on n_splits. The last block to finish merges
 * the parts of its queries, in a fixed order. */
#include <assert.h>

#include "gpu_attention.h"
#include "gpu_rope.h"
#include "op_table.h"

enum {
    GROUPS = 8, /* groups of threads with separate sums of values */
    HEADS = 4   /* queries per block: more would not fit the registers */
};

/* Sizes for heads of up to DIM elements. */
template <int DIM> struct attn_shape {
    static const bool wide = DIM > 256;
    static const int tile = wide ? GPU_ATTN_TILE / 2 : GPU_ATTN_TILE; /* positions */
    static const int eights = tile / GROUPS; /* of a tile's keys, and of its values, of a thread */
    static const int key_lanes = wide ? 16 : 8;
};

/* ---- a block --------------------------------------------------------------------------------- */

/* For merging parts. */
template <int DIM> struct merge_shared {
    float w[GPU_ATTN_SPLITS], share;
    bool last;
    alignas(16) float x[DIM];
};

/* For norms and RoPE: the token's key and value as floats, and as stored in the cache. */
template <int DIM> struct attn_turn {
    float k[DIM], v[DIM], cs[DIM];
    rope_sums sums;
    alignas(16) uint8_t rows[2][4 * DIM + 16];
};

template <int H, int DIM> struct attn_shared {
    alignas(16) float q[H][DIM]; /* scaled, padded with zeros; at the end the result */
    alignas(16) float p[2][H][attn_shape<DIM>::tile]; /* scores, then weights; alternating tiles */
    float m[H], l[H], shrink[2][H];
    union {
        alignas(16) float sums[H][GROUPS][DIM]; /* used at the end */
        attn_turn<DIM> turn;
    };
    merge_shared<DIM> merge;
};

struct attn_task {
    int first_head, n_heads, kv_head, split;
    int64_t c;
    attn_range at;
};

template <int H>
static __device__ __forceinline__ attn_task task_of(const gpu_attention &a, int32_t pos) {
    attn_task t;
    const unsigned group = (unsigned)a.n_head / (unsigned)a.kv.n_head_kv;
    const unsigned chunks = (group + H - 1) / H, chunk = blockIdx.x % chunks;
    t.c = blockIdx.z;
    t.split = (int)blockIdx.y;
    t.kv_head = (int)(blockIdx.x / chunks);
    t.first_head = t.kv_head * (int)group + (int)chunk * H;
    t.n_heads = H == 1 ? 1 : (int)(group - chunk * H < H ? group - chunk * H : H);
    t.at = attn_range_of(a, pos, blockIdx.y);
    return t;
}

/* A thread's positions in a tile, and its eights of elements. */
template <int DIM> struct key_share : attn_shape<DIM> {
    static const int lanes = attn_shape<DIM>::key_lanes;
    static const int slabs = DIM / 8 / lanes, per_pass = DIM / lanes;
    static __device__ __forceinline__ int position(int x) {
        return (int)threadIdx.x / lanes + x / slabs * per_pass;
    }
    static __device__ __forceinline__ int eight(int x) {
        return (int)threadIdx.x % lanes + x % slabs * lanes;
    }
};

template <int DIM> struct value_share : attn_shape<DIM> {
    static const int lanes = DIM / 8;
    static __device__ __forceinline__ int position(int x) {
        return (int)threadIdx.x / lanes * attn_shape<DIM>::eights + x;
    }
    static __device__ __forceinline__ int eight(int) { return (int)threadIdx.x % lanes; }
};

template <int DIM> static __device__ __forceinline__ int tile_length(uint32_t left) {
    return left < (uint32_t)attn_shape<DIM>::tile ? (int)left : (int)attn_shape<DIM>::tile;
}

/* With fewer positions or elements, a thread reads existing ones again: their results have weight
 * zero or are not stored. */
template <class S>
static __device__ __forceinline__ const uint8_t *head_of(const uint8_t *tile, size_t row, int n,
                                                         int x) {
    const int j = gpu_here(S::position(x));
    return tile + (size_t)(uint32_t)(j < n ? j : n - 1) * row;
}

template <class S> static __device__ __forceinline__ int eight_of(int dim, int x) {
    const int i = gpu_here(S::eight(x));
    return i < dim / 8 ? i : dim / 8 - 1;
}

template <class S, class C>
static __device__ __forceinline__ void load_tile(quant_type type, const uint8_t *tile, size_t row,
                                                 int n, int dim,
                                                 typename C::raw (&raw)[S::eights]) {
    GPU_UNROLL
    for (int x = 0; x < S::eights; x++)
        C::load(type, head_of<S>(tile, row, n, x), eight_of<S>(dim, x), raw[x]);
}

/* Address of the token's own key or value in shared memory, with the alignment (modulo 4 bytes) of
 * its address in the cache, because the code that reads it depends on that. */
static __device__ __forceinline__ uint8_t *own_row(uint8_t *rows, const uint8_t *place) {
    return rows + ((uintptr_t)place & 2);
}

/* The last of n positions of a tile is the token's own, in shared memory; threads with later
 * positions also read it. */
template <class S, class C>
static __device__ __forceinline__ void load_own(quant_type type, uint8_t *rows, const uint8_t *tile,
                                                size_t row, int n, int dim,
                                                typename C::raw (&raw)[S::eights]) {
    const uint8_t *own = own_row(rows, tile + (size_t)(uint32_t)(n - 1) * row);
    GPU_UNROLL
    for (int x = 0; x < S::eights; x++) {
        typename C::raw here;
        C::load(type, own, eight_of<S>(dim, x), here);
        if (S::position(x) >= n - 1) raw[x] = here;
    }
}

/* Loads a tile of n positions; the last may be the token's own. */
template <class S, class C>
static __device__ __forceinline__ void load_next(quant_type type, uint8_t *rows,
                                                 const uint8_t *tile, size_t row, int n, bool own,
                                                 int dim, typename C::raw (&raw)[S::eights]) {
    if (n > own) load_tile<S, C>(type, tile, row, n - own, dim, raw);
    if (n > 0 && own) load_own<S, C>(type, rows, tile, row, n, dim, raw);
}

/* Once per tile, for all queries. */
template <class S, class C>
static __device__ __forceinline__ void prepare_tile(quant_type type, int dim,
                                                    typename C::raw (&raw)[S::eights]) {
    GPU_UNROLL
    for (int x = 0; x < S::eights; x++) C::prepare(type, eight_of<S>(dim, x), raw[x]);
}

/* Scores of one query for a tile. */
template <class C, int DIM>
static __device__ __forceinline__ void
score_head(const gpu_attention &a, const uint8_t *tile, int n,
           const typename C::raw (&raw)[attn_shape<DIM>::eights], const float (&q)[DIM],
           float (&p)[attn_shape<DIM>::tile]) {
    typedef key_share<DIM> share;
    const int keys = share::eights / share::slabs;
    float s[share::eights / share::slabs];
    GPU_UNROLL
    for (int k = 0; k < keys; k++) s[k] = 0.0f;
    GPU_UNROLL
    for (int b = 0; b < share::slabs; b++) {
        float w[8];
        gpu_load4(q + 8 * share::eight(b), w);
        gpu_load4(q + 8 * share::eight(b) + 4, w + 4);
        GPU_UNROLL
        for (int k = 0; k < keys; k++) {
            const int x = k * share::slabs + b;
            float v[8];
            C::decode(a.kv.type_k, raw[x], head_of<share>(tile, a.kv.k_row, n, x),
                      eight_of<share>(a.kv.head_dim, x), v);
            GPU_UNROLL
            for (int d = 0; d < 8; d++) s[k] += w[d] * v[d];
        }
    }
    GPU_UNROLL
    for (int k = 0; k < keys; k++) {
        const float sum = share::wide ? gpu_group16_sum(s[k]) : gpu_group8_sum(s[k]);
        if (gpu_lane() % share::lanes == 0) p[share::position(k * share::slabs)] = sum;
    }
}

/* Converts scores to weights, 0 from n on; shrink[h] is the factor of earlier sums. One warp per
 * head. slopes: ALiBi's [n_heads], or NULL; distance: from the token to the tile's first position,
 * not positive. */
template <int H, int DIM>
static __device__ __forceinline__ void soften_tile(attn_shared<H, DIM> &shared, int turn, int n,
                                                   int n_heads, float softcap, const float *slopes,
                                                   int distance) {
    const int per_lane = attn_shape<DIM>::tile / GPU_WARP;
    for (int h = gpu_warp(); h < n_heads; h += DIM / GPU_WARP) {
        float *p = shared.p[turn][h], s[attn_shape<DIM>::tile / GPU_WARP];
        float top = shared.m[h], sum = 0.0f;
        const float before = top;
        GPU_UNROLL
        for (int i = 0; i < per_lane; i++) {
            s[i] = p[gpu_lane() + i * GPU_WARP];
            if (softcap > 0.0f) s[i] = softcap * tanhf(s[i] / softcap);
            if (slopes) s[i] += slopes[h] * (float)(distance + gpu_lane() + i * GPU_WARP);
            if (gpu_lane() + i * GPU_WARP < n) top = fmaxf(top, s[i]);
        }
        top = gpu_warp_max(top);
        GPU_UNROLL
        for (int i = 0; i < per_lane; i++) {
            const float w = gpu_lane() + i * GPU_WARP < n ? expf(s[i] - top) : 0.0f;
            p[gpu_lane() + i * GPU_WARP] = w;
            sum += w;
        }
        sum = gpu_warp_sum(sum);
        if (gpu_lane() == 0) {
            const float shrink = expf(before - top); /* 0 at first: before is -inf */
            shared.shrink[turn][h] = shrink;
            shared.l[h] = shared.l[h] * shrink + sum;
            shared.m[h] = top;
        }
    }
}

/* acc: sums of one query over the values of this thread's group, for the thread's eight
 * elements. */
template <class C, int DIM>
static __device__ __forceinline__ void
sum_head(const gpu_attention &a, const uint8_t *tile, int n,
         const typename C::raw (&raw)[attn_shape<DIM>::eights],
         const float (&p)[attn_shape<DIM>::tile], float shrink, float (&acc)[8]) {
    typedef value_share<DIM> share;
    float w[share::eights];
    GPU_UNROLL
    for (int x = 0; x < share::eights; x += 4) gpu_load4(p + share::position(x), w + x);
    GPU_UNROLL
    for (int d = 0; d < 8; d++) acc[d] *= shrink;
    GPU_UNROLL
    for (int x = 0; x < share::eights; x++) {
        float v[8];
        C::decode(a.kv.type_v, raw[x], head_of<share>(tile, a.kv.v_row, n, x),
                  eight_of<share>(a.kv.v_dim, x), v);
        GPU_UNROLL
        for (int d = 0; d < 8; d++) acc[d] += w[x] * v[d];
    }
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

/* Stores a head of the token in the format of cache `C`: in shared memory, and in the cache. */
template <class C>
static __device__ __forceinline__ void put_own(quant_type type, const float *x, uint8_t *rows,
                                               int n, uint8_t *place, bool stores) {
    uint8_t *row = own_row(rows, place);
    C::store(type, x, row, n, (int)threadIdx.x, (int)blockDim.x);
    gpu_sync();
    const int halves = (int)(C::head_bytes(type, n) / 2);
    for (int i = (int)threadIdx.x; stores && i < halves; i += (int)blockDim.x)
        ((uint16_t *)place)[i] = ((const uint16_t *)row)[i];
}

/* A thread's loads for RoPE: an element of the angles, and with `own` an element of the token's key
 * and value. */
struct turn_part {
    float cs, k, v;
};

static __device__ __forceinline__ turn_part load_turn(const gpu_rope_store &r, int kv_head,
                                                      bool own) {
    const int d = (int)threadIdx.x, dim = r.kv.head_dim, v_dim = r.kv.v_dim;
    turn_part p = {0.0f, 0.0f, 0.0f};
    if (d < r.n_rot) p.cs = r.cs[d];
    if (own) p.k = r.k[(int64_t)kv_head * dim + (d < dim ? d : dim - 1)];
    if (own) p.v = r.v[(int64_t)kv_head * v_dim + (d < v_dim ? d : v_dim - 1)];
    return p;
}

/* Norm and RoPE of the loaded queries, and with `own` of the token's key; stores key and value at
 * k_place and v_place. Ends with a barrier. */
template <class K, class V, int H, int DIM>
static __device__ __forceinline__ void
turn_heads(const gpu_attention &a, const attn_task &t, const turn_part &part,
           attn_shared<H, DIM> &shared, bool own, uint8_t *k_place, uint8_t *v_place) {
    gpu_rope_store r = a.rope;
    attn_turn<DIM> &turn = shared.turn;
    const int d = (int)threadIdx.x, dim = a.kv.head_dim;
    turn.cs[d] = part.cs;
    turn.k[d] = part.k;
    turn.v[d] = part.v;
    if (r.cs) r.cs = turn.cs;
    gpu_sync();
    for (int h = 0; h < t.n_heads; h++)
        rope_turn_head(r, turn.sums, shared.q[h], r.q_norm, t.first_head + h, 0);
    if (!own) return;
    rope_turn_head(r, turn.sums, turn.k, r.k_norm, t.kv_head, 0);
    rope_clamp_head(turn.v, a.kv.v_dim, r.clamp);
    if (r.value_norm) rope_norm_head(turn.sums, turn.v, nullptr, a.kv.v_dim, false, r.eps);
    const bool stores = t.first_head == t.kv_head * (a.n_head / a.kv.n_head_kv);
    rope_spread(turn.v, a.kv.v_dim, r.kv.v_hadamard);
    put_own<K>(a.kv.type_k, turn.k, turn.rows[0], dim, k_place, stores);
    put_own<V>(a.kv.type_v, turn.v, turn.rows[1], a.kv.v_dim, v_place, stores);
}

/* Writes queries to shared memory, scaled; with a.turns also applies RoPE and ends with a
 * barrier. */
template <class K, class V, int H, int DIM>
static __device__ __forceinline__ void load_queries(const gpu_attention &a, const attn_task &t,
                                                    int32_t pos, attn_shared<H, DIM> &shared,
                                                    bool own, uint8_t *k_place, uint8_t *v_place) {
    const int dim = a.kv.head_dim, d = (int)threadIdx.x;
    turn_part part = {0.0f, 0.0f, 0.0f};
    if (a.turns) part = load_turn(a.rope, t.kv_head, own);
    const float scale = attn_scale_at(a, pos);
    const float *q = attn_query(a, t.c, t.first_head) + (d < dim ? d : dim - 1);
    const int64_t q_step = a.q_stride ? a.q_stride : dim;
    GPU_UNROLL
    for (int h = 0; h < H; h++) {
        const float x = q[(h < t.n_heads ? h : t.n_heads - 1) * q_step];
        shared.q[h][d] = d >= dim ? 0.0f : a.turns ? x : x * scale;
    }
    if (!a.turns) return;
    turn_heads<K, V, H, DIM>(a, t, part, shared, own, k_place, v_place);
    GPU_UNROLL
    for (int h = 0; h < H; h++) shared.q[h][d] *= scale;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Stores elements [first, first + n) of column c in int8 form; first and n are multiples of 32; x
 * is shared memory. */
static __device__ __forceinline__ void put_q8(const gpu_attention &a, int64_t c, int64_t first,
                                              int n, const float *x) {
    const int64_t total = (int64_t)a.n_head * a.kv.v_dim;
    uint8_t *q8 = (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(total);
    for (int at = 4 * (int)threadIdx.x; at - 4 * gpu_lane() < n; at += 4 * (int)blockDim.x) {
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (at < n) gpu_load4(x + at, v);
        gpu_quantize_group(v, (first + at) / 32, at < n, total, q8);
    }
}

/* Stores element d of head h: the result, or a part's sum and softmax state. */
template <int H, int DIM>
static __device__ __forceinline__ void put(const gpu_attention &a, const attn_task &t,
                                           attn_shared<H, DIM> &shared, int h, int d, float sum) {
    const int64_t head = t.first_head + h;
    if (a.n_splits == 1) {
        const int64_t at = head * a.kv.v_dim + d;
        const float x = sum * attn_share(a, head, shared.m[h], shared.l[h]) *
                        attn_gate_at(a, t.c, head, d);
        a.out[t.c * a.ldo + at] = x;
        (&shared.q[0][0])[h * a.kv.v_dim + d] = x;
        return;
    }
    attn_sums(a, t.c, head, t.split)[d] = sum;
    if (d > 0) return;
    float *state = attn_state(a, t.c, head, t.split);
    state[0] = shared.m[h];
    state[1] = shared.l[h];
}

/* Adds the groups in a fixed order. */
template <int H, int DIM>
static __device__ __forceinline__ void finish(const gpu_attention &a, const attn_task &t,
                                              attn_shared<H, DIM> &shared,
                                              const float (&acc)[H][8]) {
    typedef value_share<DIM> share;
    const int dim = a.kv.v_dim, d = (int)threadIdx.x, group = d / share::lanes;
    GPU_UNROLL
    for (int h = 0; h < H; h++) {
        GPU_UNROLL
        for (int e = 0; e < 8; e++) shared.sums[h][group][8 * share::eight(0) + e] = acc[h][e];
    }
    gpu_sync();
    GPU_UNROLL
    for (int h = 0; h < H; h++) {
        float sum = 0.0f;
        GPU_UNROLL
        for (int g = 0; g < GROUPS; g++) sum += shared.sums[h][g][d];
        if (h < t.n_heads && d < dim) put(a, t, shared, h, d, sum);
    }
    if (a.n_splits > 1 || !a.q8) return;
    gpu_sync();
    put_q8(a, t.c, (int64_t)t.first_head * dim, t.n_heads * dim, &shared.q[0][0]);
}

/* Merges the parts of a head. One thread per element d loads this element of all parts while the
 * first warp computes the weights of the parts. */
template <int DIM>
static __device__ __forceinline__ void merge_head(const gpu_attention &a, int64_t c, int64_t head,
                                                  int d, merge_shared<DIM> &shared) {
    const int dim = a.kv.v_dim, last = gpu_same_here(a.n_splits - 1);
    const float *sums = attn_sums(a, c, head, 0) + (d < dim ? d : dim - 1);
    float x[GPU_ATTN_SPLITS];
    GPU_UNROLL
    for (int s = 0; s < GPU_ATTN_SPLITS; s++) x[s] = s <= last ? sums[s * dim] : 0.0f;
    if (gpu_warp() == 0) {
        const int s = gpu_lane();
        const float *state = attn_state(a, c, head, s < last ? s : last);
        const float m = state[0], l = s <= last ? state[1] : 0.0f; /* 0: an empty part; NaN stays */
        const float top = gpu_warp_max(m);
        const float w = l != 0.0f ? expf(m - top) : 0.0f;
        const float sum = gpu_warp_sum(w * l);
        shared.w[s] = w;
        if (s == 0) shared.share = attn_share(a, head, top, sum);
    }
    gpu_sync();
    float sum = 0.0f;
    GPU_UNROLL
    for (int s = 0; s < GPU_ATTN_SPLITS; s++) sum += shared.w[s] * x[s];
    sum *= shared.share;
    if (d < dim) {
        sum *= attn_gate_at(a, c, head, d);
        a.out[c * a.ldo + head * dim + d] = sum;
    }
    if (!a.q8) return; /* otherwise the block has all elements of the head */
    shared.x[d] = sum;
    gpu_sync();
    put_q8(a, c, head * dim, dim, shared.x);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Minimum blocks per multiprocessor; 0: the compiler decides. Two blocks of 256 threads would leave
 * 128 registers per thread, which is not enough; with block types (Q8_0 ..) a third block of 128
 * threads would spill. One block of 512 threads fits. */
template <class K, class V, int DIM> struct attn_blocks {
    template <class C> static constexpr bool has() {
        return gpu_same<K, C>::value || gpu_same<V, C>::value;
    }
    static const bool decodes = has<gpu_cache_q8_0>() || has<gpu_cache_any>();
    static const int n = DIM > 128 ? 1 : decodes ? 2 : 0;
};

template <class K, class V, int H, int DIM>
static __global__ void GPU_BOUNDS(DIM, (attn_blocks<K, V, DIM>::n))
    attention_kernel(gpu_attention a) {
    gpu_begin();
    typedef attn_shared<H, DIM> shared_type;
    GPU_SHARED(shared_type, shared);
    const gpu_column col = a.cols[blockIdx.z];
    const attn_task t = task_of<H>(a, col.pos);
    const int dim = a.kv.head_dim, v_dim = a.kv.v_dim, d = (int)threadIdx.x;
    const uint8_t *cache = (const uint8_t *)gpu_global(col.kv);
    const uint8_t *k = cache + (size_t)col.n_ctx * a.kv.k_offset +
                       (size_t)t.kv_head * K::head_bytes(a.kv.type_k, dim) +
                       (size_t)t.at.first * a.kv.k_row;
    const uint8_t *v = cache + (size_t)col.n_ctx * a.kv.v_offset +
                       (size_t)t.kv_head * V::head_bytes(a.kv.type_v, v_dim) +
                       (size_t)t.at.first * a.kv.v_row;
    const quant_type type_k = a.kv.type_k, type_v = a.kv.type_v;
    typename K::raw keys[attn_shape<DIM>::eights];
    typename V::raw values[attn_shape<DIM>::eights];
    int n = tile_length<DIM>(t.at.n > 0 ? t.at.n : 1);
    /* The last position of the last tile is the token's own; an empty part reads none. */
    const bool own = a.turns && a.rope.kv.n_head_kv > 0 && t.at.n > 0 &&
                     t.at.first + t.at.n == (uint32_t)col.pos + 1;
    const int there = a.turns && t.at.n == 0 ? 0 : n - (own && (uint32_t)n == t.at.n);
    if (there > 0) {
        load_tile<key_share<DIM>, K>(type_k, k, a.kv.k_row, there, dim, keys);
        load_tile<value_share<DIM>, V>(type_v, v, a.kv.v_row, there, v_dim, values);
    }
    load_queries<K, V, H, DIM>(a, t, col.pos, shared, own,
                               (uint8_t *)(uintptr_t)k + (t.at.n - 1) * a.kv.k_row,
                               (uint8_t *)(uintptr_t)v + (t.at.n - 1) * a.kv.v_row);
    if (own && (uint32_t)n == t.at.n) {
        load_own<key_share<DIM>, K>(type_k, shared.turn.rows[0], k, a.kv.k_row, n, dim, keys);
        load_own<value_share<DIM>, V>(type_v, shared.turn.rows[1], v, a.kv.v_row, n, v_dim, values);
    }
    if (d < H) {
        shared.m[d] = -INFINITY;
        shared.l[d] = 0.0f;
    }
    float acc[H][8];
    GPU_UNROLL
    for (int h = 0; h < H; h++) {
        GPU_UNROLL
        for (int e = 0; e < 8; e++) acc[h][e] = 0.0f;
    }
    gpu_sync();
    const float *slopes = DIM <= GPU_MAX_ALIBI && a.slopes ? a.slopes + t.first_head : nullptr;
    int turn = 0;
    for (uint32_t left = t.at.n; left > 0; turn ^= 1) {
        left -= (uint32_t)n;
        const int next = tile_length<DIM>(left);
        const bool last = own && left == (uint32_t)next;
        prepare_tile<key_share<DIM>, K>(type_k, dim, keys);
        GPU_UNROLL
        for (int h = 0; h < H; h++)
            if (h < t.n_heads) score_head<K, DIM>(a, k, n, keys, shared.q[h], shared.p[turn][h]);
        k += attn_shape<DIM>::tile * a.kv.k_row;
        load_next<key_share<DIM>, K>(type_k, shared.turn.rows[0], k, a.kv.k_row, next, last, dim,
                                     keys);
        gpu_sync();
        soften_tile(shared, turn, n, t.n_heads, a.softcap, slopes,
                    (int)(t.at.first + t.at.n - left) - n - (int)col.pos);
        gpu_sync();
        prepare_tile<value_share<DIM>, V>(type_v, v_dim, values);
        GPU_UNROLL
        for (int h = 0; h < H; h++)
            if (h < t.n_heads)
                sum_head<V, DIM>(a, v, n, values, shared.p[turn][h], shared.shrink[turn][h],
                                 acc[h]);
        v += attn_shape<DIM>::tile * a.kv.v_row;
        load_next<value_share<DIM>, V>(type_v, shared.turn.rows[1], v, a.kv.v_row, next, last,
                                       v_dim, values);
        n = next;
    }
    finish(a, t, shared, acc);
    if (a.n_splits == 1) return;
    int32_t *arrived = a.arrived + t.c * gridDim.x + blockIdx.x;
    if (!gpu_is_last(arrived, a.n_splits, &shared.merge.last)) return;
    for (int h = 0; h < t.n_heads; h++) {
        merge_head(a, t.c, t.first_head + h, d, shared.merge);
        gpu_sync();
    }
}

/* MLA and prefill: merges all parts of one head of one column, GPU_MAX_HEAD elements per block. */
static __global__ void __launch_bounds__(GPU_MAX_HEAD) merge_kernel(gpu_attention a) {
    gpu_begin();
    typedef merge_shared<GPU_MAX_HEAD> shared_type;
    GPU_SHARED(shared_type, shared);
    merge_head(a, blockIdx.y, blockIdx.x, (int)blockIdx.z * GPU_MAX_HEAD + (int)threadIdx.x,
               shared);
}

enum { TURN_THREADS = 256 };

/* Multiplies the results of a head by the inverse Hadamard matrix, and applies the gate. */
static __global__ void __launch_bounds__(TURN_THREADS) hadamard_kernel(gpu_attention a) {
    gpu_begin();
    struct turn_shared {
        alignas(16) float x[GPU_MAX_LATENT];
    };
    GPU_SHARED(turn_shared, shared);
    const int64_t head = blockIdx.x, c = blockIdx.y;
    const int dim = a.kv.v_dim, threads = (int)blockDim.x;
    float *out = a.out + c * a.ldo + head * dim;
    for (int i = (int)threadIdx.x; i < dim; i += threads) shared.x[i] = out[i];
    gpu_sync();
    gpu_hadamard(shared.x, dim, a.kv.v_hadamard, (int)threadIdx.x, threads);
    for (int i = (int)threadIdx.x; i < dim; i += threads)
        out[i] = shared.x[i] * attn_gate_at(a, c, head, i);
}

/* ---- choice of the kernel -------------------------------------------------------------------- */

template <class K, class V, int H, int DIM>
static void launch(gpu_stream *s, const gpu_attention &a) {
    const int chunks = (a.n_head / a.kv.n_head_kv + H - 1) / H;
    const gpu_grid grid = {(unsigned)(a.kv.n_head_kv * chunks), (unsigned)a.n_splits,
                           (unsigned)a.n_cols, DIM};
    gpu_launch<attention_kernel<K, V, H, DIM>>(s, grid, a);
}

/* F32 with another type is rare: one kernel for all numbers of heads, with few queries per block,
 * because floats take many registers. */
template <class K, class V, int DIM>
static void launch_heads(gpu_stream *s, const gpu_attention &a) {
    if constexpr (gpu_same<K, V>::value) {
        if (a.n_head == a.kv.n_head_kv)
            launch<K, V, 1, DIM>(s, a);
        else
            launch<K, V, HEADS, DIM>(s, a);
    } else {
        launch<K, V, HEADS / 2, DIM>(s, a);
    }
}

template <class K, class V> static void launch_types(gpu_stream *s, const gpu_attention &a) {
    if (a.kv.head_dim <= 128)
        launch_heads<K, V, 128>(s, a);
    else if (a.kv.head_dim <= 256)
        launch_heads<K, V, 256>(s, a);
    else
        launch<K, V, HEADS / 2, GPU_MAX_HEAD>(s, a);
}

static void merge(gpu_stream *s, const gpu_attention &a) {
    const int dim = a.kv.v_dim < GPU_MAX_HEAD ? a.kv.v_dim : GPU_MAX_HEAD;
    const unsigned threads = gpu_blocks(dim, GPU_WARP) * GPU_WARP;
    const gpu_grid heads = {(unsigned)a.n_head, (unsigned)a.n_cols,
                            gpu_blocks(a.kv.v_dim, GPU_MAX_HEAD), threads};
    gpu_launch<merge_kernel>(s, heads, a);
}

static void turn_back(gpu_stream *s, const gpu_attention &a) {
    const unsigned threads = a.kv.v_dim > 128 ? TURN_THREADS : 64;
    const gpu_grid heads = {(unsigned)a.n_head, (unsigned)a.n_cols, 1, threads};
    gpu_launch<hadamard_kernel>(s, heads, a);
}

void gpu_op_attention(gpu_stream *s, const gpu_attention *a) {
    gpu_attention inner = *a;
    assert(a->n_cols >= 1 && a->n_head % a->kv.n_head_kv == 0);
    const bool latent = a->kv.v_row == 0;
    assert((latent && !a->q8) || a->kv.head_dim <= GPU_MAX_HEAD);
    assert(a->kv.head_dim % 8 == 0 && a->kv.v_dim % 8 == 0);
    assert(a->kv.v_dim > 0 && a->kv.v_dim <= a->kv.head_dim);
    assert(a->n_splits >= 1 && (a->n_splits == 1 || (a->partial && (latent || a->arrived))));
    assert(a->n_splits <= GPU_ATTN_SPLITS);
    assert(!a->turns || (a->n_cols == 1 && !latent));
    const bool sparse = a->sparse.size > 0;
    const bool turned = a->kv.v_hadamard > 0;
    if (turned) inner.gate = NULL;
    const bool tiled = (!sparse || latent) && gpu_attention_tiled(s, inner);
    const bool by_heads = a->kv.v_dim % 32 == 0 && /* a group of 32 is within one head */
                          !sparse && !turned && (!tiled || a->n_splits > 1);
    if (!by_heads) inner.q8 = NULL;
#define CACHE(K, V) launch_types<K, V>(s, inner)
    if (!tiled && latent)
        gpu_attention_latent(s, inner);
    else if (!tiled && sparse)
        gpu_attention_sparse(s, inner);
    else if (!tiled)
        GPU_CACHE_PAIR_SWITCH(a->kv.type_k, a->kv.type_v);
#undef CACHE
    if (a->n_splits > 1 && (latent || tiled)) merge(s, inner);
    if (turned) turn_back(s, *a);
    if (!a->q8 || by_heads) return;
    const gpu_quantize quantize = {
        a->out, a->ldo, (int64_t)a->n_head * a->kv.v_dim, a->n_cols, a->q8, nullptr, nullptr};
    gpu_op_quantize(s, &quantize);
}
