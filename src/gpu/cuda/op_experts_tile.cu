/* op_experts_tile.cu: prompts of mixtures of experts. One kernel sorts the pairs of a column and an
 * expert by expert; then tiles of an expert's pairs are multiplied as in a prefill matmul, so that
 * an expert's weights are read once for up to TILE_COLS pairs. op_experts.cu reads them once per
 * pair. */
#include <assert.h>

#include "gpu_tile_way.h"
#include "op_table.h"

/* ---- sorting --------------------------------------------------------------------------------- */

/* One block, a counting sort: every warp counts, and later places, the pairs of its part of the
 * list in order, so the sort is stable. */
enum { SORT_WARPS = 8, SORT_THREADS = SORT_WARPS * GPU_WARP };
enum { ACTIVATE_THREADS = 256 };

struct sort_shared {
    /* of a warp's part: number of pairs of each expert; then the place of the next one */
    int32_t at[SORT_WARPS][GPU_MAX_EXPERTS];
    /* of each expert: number of pairs; then pairs and tiles of all experts before it */
    int32_t pairs[GPU_MAX_EXPERTS + 1], tiles[GPU_MAX_EXPERTS + 1];
    int32_t lane_pairs[GPU_WARP], lane_tiles[GPU_WARP];
};

/* The lanes of the warp with an equal value below 2^n_bits, as bits. */
static __device__ __forceinline__ uint32_t equal_lanes(int value, int n_bits) {
    uint32_t equal = 0xffffffffu;
    for (int b = 0; b < n_bits; b++) {
        const bool bit = (value >> b & 1) != 0;
        const uint32_t lanes = gpu_ballot(bit);
        equal &= bit ? lanes : ~lanes;
    }
    return equal;
}

/* Goes through the warp's part of the pairs; with `place` it writes the lists. */
static __device__ __forceinline__ void walk(const gpu_expert_group &a, int n_bits, bool place,
                                            int32_t *at) {
    const int n_pairs = a.n_cols * a.n_used, chunks = (n_pairs + GPU_WARP - 1) / GPU_WARP;
    const int each = (chunks + SORT_WARPS - 1) / SORT_WARPS * GPU_WARP;
    const int first = gpu_warp() * each, end = first + each < n_pairs ? first + each : n_pairs;
    const uint32_t lower = (1u << gpu_lane()) - 1u;
    for (int i = first; i < end; i += GPU_WARP) {
        const int pair = i + gpu_lane();
        const uint32_t choice = pair < end ? a.choices[GPU_CHOICE_WORDS * (int64_t)pair]
                                           : (uint32_t)a.n_own;
        const int expert = choice < (uint32_t)a.n_own ? (int)choice : a.n_own;
        const uint32_t equal = equal_lanes(expert, n_bits);
        const bool own = expert < a.n_own;
        if (own && place) {
            const int to = at[expert] + gpu_popcount(equal & lower);
            a.lists.pair[to] = pair;
            a.lists.column[to] = pair / a.n_used;
        }
        gpu_sync_warp(); /* all lanes have read before the last lane of an expert writes */
        if (own && (equal & ~lower) == 1u << gpu_lane()) at[expert] += gpu_popcount(equal);
        gpu_sync_warp();
    }
}

/* Turns the numbers of pairs into sums over all experts before, and counts tiles likewise. One
 * warp; a lane sums a range of experts. */
static __device__ __forceinline__ void sum_before(const gpu_expert_group &a, sort_shared &s) {
    const int each = (a.n_own + GPU_WARP - 1) / GPU_WARP, first = gpu_lane() * each;
    const int end = first + each < a.n_own ? first + each : a.n_own;
    int pairs = 0, tiles = 0;
    for (int e = first; e < end; e++) {
        pairs += s.pairs[e];
        tiles += (s.pairs[e] + TILE_COLS - 1) / TILE_COLS;
    }
    s.lane_pairs[gpu_lane()] = pairs;
    s.lane_tiles[gpu_lane()] = tiles;
    gpu_sync_warp();
    pairs = tiles = 0;
    for (int i = 0; i < gpu_lane(); i++) {
        pairs += s.lane_pairs[i];
        tiles += s.lane_tiles[i];
    }
    for (int e = first; e < end; e++) {
        const int n = s.pairs[e];
        s.pairs[e] = pairs;
        s.tiles[e] = tiles;
        pairs += n;
        tiles += (n + TILE_COLS - 1) / TILE_COLS;
    }
    if (gpu_lane() != GPU_WARP - 1) return;
    s.pairs[a.n_own] = pairs;
    s.tiles[a.n_own] = tiles;
    *a.lists.n_listed = pairs;
}

/* Tile t of all experts' tiles. */
static __device__ __forceinline__ gpu_expert_tile tile_at(const gpu_expert_group &a,
                                                          const sort_shared &s, int t) {
    gpu_expert_tile tile = {0, 0, 0, 0};
    if (t >= s.tiles[a.n_own]) return tile;
    int low = 0, high = a.n_own; /* the last expert whose first tile is not after t */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (s.tiles[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    tile.expert = low;
    tile.first = s.pairs[low] + (t - s.tiles[low]) * TILE_COLS;
    const int left = s.pairs[low + 1] - tile.first;
    tile.n = left < TILE_COLS ? left : (int)TILE_COLS;
    return tile;
}

struct group_args : gpu_expert_group {
    int32_t n_tiles; /* memory for */
};

static __global__ void __launch_bounds__(SORT_THREADS) group_kernel(group_args a) {
    gpu_begin();
    GPU_SHARED(sort_shared, s);
    int n_bits = 1;
    while (1 << n_bits <= a.n_own) n_bits++; /* all other experts have the number n_own */
    int32_t *at = s.at[gpu_warp()];
    for (int e = gpu_lane(); e < a.n_own; e += GPU_WARP) at[e] = 0;
    gpu_sync_warp();
    walk(a, n_bits, false, at);
    gpu_sync();
    for (int e = (int)threadIdx.x; e < a.n_own; e += SORT_THREADS) {
        int n = 0;
        for (int w = 0; w < SORT_WARPS; w++) n += s.at[w][e];
        s.pairs[e] = n;
    }
    gpu_sync();
    if (gpu_warp() == 0) sum_before(a, s);
    gpu_sync();
    for (int e = (int)threadIdx.x; e < a.n_own; e += SORT_THREADS) {
        int place = s.pairs[e];
        for (int w = 0; w < SORT_WARPS; w++) {
            const int n = s.at[w][e];
            s.at[w][e] = place;
            place += n;
        }
    }
    gpu_sync();
    walk(a, n_bits, true, at);
    for (int t = (int)threadIdx.x; t < a.n_tiles; t += SORT_THREADS)
        a.lists.tile[t] = tile_at(a, s, t);
}

void gpu_op_expert_group(gpu_stream *s, const gpu_expert_group *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1);
    assert(a->n_own >= 1 && a->n_own <= GPU_MAX_EXPERTS);
    group_args all = group_args();
    static_cast<gpu_expert_group &>(all) = *a;
    all.n_tiles = gpu_expert_tiles(a->n_cols * a->n_used, a->n_own);
    const gpu_grid grid = {1, 1, 1, SORT_THREADS};
    gpu_launch<group_kernel>(s, grid, all);
}

/* ---- products -------------------------------------------------------------------------------- */

struct expert_tile_args {
    gpu_expert_matmul e;
    tile_columns columns;
};

/* The columns of a tile, as tile_range for matmul: pairs [first, first + n) of the list. */
struct tile_pairs {
    const gpu_expert_matmul &e;
    int64_t expert;
    int first, n;

    struct row {
        float *y;
        float factor;
    };
    __device__ __forceinline__ int64_t source(int line) const {
        return (e.of_pairs ? e.lists.pair : e.lists.column)[first + line];
    }
    __device__ __forceinline__ row target(int line) const {
        const int64_t pair = e.lists.pair[first + line];
        const float weight = e.weigh ? gpu_bits_float(e.choices[GPU_CHOICE_WORDS * pair + 1])
                                     : 1.0f;
        const row r = {e.y + pair * e.ldy, (e.scales ? e.scales[expert] : 1.0f) * weight};
        return r;
    }
    __device__ __forceinline__ void put(const gpu_matmul &, const tile_columns &columns, int64_t o,
                                        const row &r, float sum) const {
        const float bias = e.bias ? e.bias[expert * columns.n_out + o] : 0.0f;
        const float v = sum * r.factor + bias;
        r.y[o] = e.result == GPU_EXPERT_GATED ? gpu_gated(e.f, r.y[o], gpu_clamp_up(e.clamp, v))
                                              : v;
    }
};

template <class T> static __device__ __forceinline__ void run_tile(const expert_tile_args &m) {
    const gpu_expert_tile tile = m.e.lists.tile[blockIdx.x];
    if (tile.n == 0) return;
    gpu_matmul a = gpu_matmul();
    a.w = m.e.w;
    a.w.data = (const uint8_t *)m.e.w.data +
               (size_t)tile.expert * (size_t)m.e.step * m.e.w.row_bytes;
    a.in = m.e.in;
    const tile_pairs pairs = {m.e, tile.expert, tile.first, tile.n};
    T::run(a, m.columns, pairs);
}

template <class F, bool transposed>
static __global__ void GPU_BOUNDS(TILE_THREADS, (tile_of<F, transposed>::blocks))
    expert_tile_kernel(expert_tile_args m) {
    gpu_begin();
    run_tile<tile_of<F, transposed>>(m);
}

template <bool transposed>
static __global__ void GPU_BOUNDS(TILE_THREADS, (tile_float<gpu_f16, transposed>::blocks))
    precise_expert_kernel(expert_tile_args m) {
    gpu_begin();
    run_tile<tile_float<gpu_f16, transposed>>(m);
}

/* Applies the activation to a part of a listed pair's products. In the kernels of tiles it would be
 * inlined for every sum and type, and be most of their code. */
static __global__ void __launch_bounds__(ACTIVATE_THREADS) activate_kernel(gpu_expert_matmul e) {
    gpu_begin();
    const unsigned parts = gridDim.x / (unsigned)(e.n_cols * e.n_used);
    const int32_t place = (int32_t)(blockIdx.x / parts);
    if (place >= *e.lists.n_listed) return;
    const int64_t o = (int64_t)(blockIdx.x % parts) * ACTIVATE_THREADS + threadIdx.x;
    if (o >= e.w.n_out) return;
    float *y = e.y + e.lists.pair[place] * e.ldy + o;
    *y = gpu_clamp_activation(e.clamp, e.f, e.threshold, *y);
}

template <bool transposed> static void run(gpu_stream *s, const gpu_expert_matmul *a) {
    const int64_t n_out = transposed ? a->w.n_in : a->w.n_out;
    const int64_t n_sum = transposed ? a->w.n_out : a->w.n_in;
    const int32_t n_pairs = a->n_cols * a->n_used;
    const gpu_rounding to = gpu_matmul_rounding(a->w.type, a->precise, transposed);
    expert_tile_args m = {*a, tile_columns_at(a->scratch, to, n_sum, a->in.n_cols)};
    m.columns.n_out = n_out;
    const tile_round round = {a->in, n_sum, a->of_pairs ? a->lists.pair : nullptr,
                              a->lists.n_listed, m.columns};
    if (!a->rounded) tile_round_columns(s, to, round);
    const gpu_grid grid = {(unsigned)gpu_expert_tiles(n_pairs, a->n_own),
                           gpu_blocks(n_out, TILE_OUT), 1, TILE_THREADS};
    if (a->precise && a->w.type == QUANT_F16) {
        gpu_launch<precise_expert_kernel<transposed>>(s, grid, m);
        return;
    }
#define FORMAT(F) gpu_launch<expert_tile_kernel<F, transposed>>(s, grid, m)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
}

void gpu_op_expert_matmul(gpu_stream *s, const gpu_expert_matmul *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->in.x && a->scratch);
    assert(a->in.n_cols == (a->of_pairs ? a->n_cols * a->n_used : a->n_cols));
    assert(a->clamp.most == 0 || a->f == ACTIVATION_SILU);
    assert(!a->by_rows || a->result == GPU_EXPERT_PRODUCT);
    if (a->by_rows)
        run<true>(s, a);
    else
        run<false>(s, a);
    if (a->result != GPU_EXPERT_ACTIVATED) return;
    const unsigned blocks = gpu_blocks(a->w.n_out, ACTIVATE_THREADS);
    const gpu_grid grid = {blocks * (unsigned)(a->n_cols * a->n_used), 1, 1, ACTIVATE_THREADS};
    gpu_launch<activate_kernel>(s, grid, *a);
}
