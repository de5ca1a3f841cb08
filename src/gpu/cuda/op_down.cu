/* op_down.cu: y = sum of h[i] times row list[i]: the second half of an FFN whose down matrix has
 * one row per neuron.
 *
 * Two phases instead of atomic additions, so that equal inputs give equal bits. First a block sums
 * every GPU_DOWN_PARTS-th row (each of its warps a quarter of these) over a stretch of 32 units of
 * outputs, one unit per lane; then a second kernel adds the parts in order, and may norm the result
 * (see op_matvec.cu).
 *
 * With experts every pair of a column and an expert has different rows: a block sums all rows of a
 * pair over such a stretch.
 *
 * A row is at most one load per lane, and the latency of a load equals the transfer time of
 * hundreds of loads. So a warp reads several items of the list at once, then loads all of their
 * rows before it uses one. */
#include <assert.h>

#include "gpu_dot.h"
#include "gpu_norm.h"
#include "op_table.h"

enum {
    WARPS = 4,
    EXPERT_WARPS = 8,
    ADD_OUTPUTS = 64, /* few for a block, so that many multiprocessors read the parts */
    ADD_GROUPS = 4,   /* threads for an output: each adds a quarter of the parts */
    ADD_THREADS = ADD_OUTPUTS * ADD_GROUPS,
    MIN_BLOCKS = 3 /* per multiprocessor: with more, sums would not stay in registers */
};

/* A unit as loaded, its values, and the number of rows that a lane loads at once. */
template <class F, bool quantized> struct unit_of;

template <class F> struct unit_of<F, false> {
    typedef uint4 raw;
    static const int elems = F::floats, ahead = 8;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                uint4 &u) {
        (void)n;
        u = gpu_load16(row + 16 * unit);
    }
    static __device__ __forceinline__ void pin(const uint4 &u) { gpu_pin(u.x); }
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) { F::decode(u, w); }
    static __device__ __forceinline__ int64_t place(int64_t unit, int i) {
        return unit * elems + i;
    }
};

template <class F> struct unit_of<F, true> {
    typedef gpu_unit raw;
    static const int elems = 16 * F::groups, ahead = gpu_is_low<F>::yes ? 2 : 4;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                gpu_unit &u) {
        gpu_load_unit<F>(row, n, unit, u);
    }
    static __device__ __forceinline__ void pin(const gpu_unit &u) {
        gpu_pin((uint32_t)u.q[0]);
        gpu_pin(gpu_float_bits(u.s[0]));
    }
    static __device__ __forceinline__ void decode(const gpu_unit &u, float *w) {
        GPU_UNROLL
        for (int i = 0; i < elems; i++) {
            const int q = (int8_t)(u.q[i / 4] >> 8 * (i % 4) & 0xff);
            w[i] = u.s[i / 16] * (float)q - u.m[i / 16];
        }
    }
    static __device__ __forceinline__ int64_t place(int64_t unit, int i) {
        /* Where a unit's second group starts depends on the format alone. */
        return F::first(unit) + (i < 16 ? i : F::distance + i - 16);
    }
};

/* Sums of all warps of a block except the first, which adds them to its own sums. */
template <class F, int N, int C> struct down_shared {
    float sum[N - 1][C][unit_of<F, F::quantized>::elems][GPU_WARP];
};

template <class F, int N, int C, int elems>
static __device__ __forceinline__ void share_sums(float (&acc)[C][elems],
                                                  down_shared<F, N, C> &shared) {
    if (gpu_warp() > 0) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            GPU_UNROLL
            for (int j = 0; j < elems; j++)
                shared.sum[gpu_warp() - 1][c][j][gpu_lane()] = acc[c][j];
        }
    }
    gpu_sync();
    if (gpu_warp() > 0) return;
    GPU_ROLLED /* unrolled, the values would not stay in registers */
        for (int w = 0; w < N - 1; w++) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            GPU_UNROLL
            for (int j = 0; j < elems; j++) acc[c][j] += shared.sum[w][c][j][gpu_lane()];
        }
    }
}

/* Number of items first, first + stride, .. that are not zero for every column: a lane's part. */
static __device__ __forceinline__ int32_t count_items(const gpu_down_rows &a, int64_t first,
                                                      int64_t stride, int64_t count) {
    int32_t n = 0;
    for (int64_t i = first + gpu_lane() * stride; i < count; i += GPU_WARP * stride) {
        bool any = false;
        for (int c = 0; c < a.n_cols; c++) any = any || a.h[c * a.ldh + i] != 0.0f;
        n += any;
    }
    return n;
}

template <int C> static __device__ __forceinline__ bool is_any(const float (&h)[C]) {
    bool any = false;
    GPU_UNROLL
    for (int c = 0; c < C; c++) any = any || h[c] != 0.0f;
    return any;
}

/* acc += h times rows, in unit `used` of each row. Rows with h = 0 are not read: their loads repeat
 * another row. */
template <class F, int C, int AHEAD>
static __device__ __forceinline__ void
add_rows(const gpu_mat &w, int64_t used, const int64_t (&row)[AHEAD], const float (&h)[AHEAD][C],
         float (&acc)[C][unit_of<F, F::quantized>::elems]) {
    typedef unit_of<F, F::quantized> unit_type;
    int64_t any_row = -1;
    GPU_UNROLL
    for (int j = 0; j < AHEAD; j++)
        if (is_any(h[j])) any_row = row[j];
    if (any_row < 0) return;
    typename unit_type::raw u[AHEAD];
    GPU_UNROLL
    for (int j = 0; j < AHEAD; j++)
        unit_type::load(gpu_row<F>(w, is_any(h[j]) ? row[j] : any_row), w.n_in, used, u[j]);
    GPU_UNROLL
    for (int j = 0; j < AHEAD; j++) unit_type::pin(u[j]);
    GPU_UNROLL
    for (int j = 0; j < AHEAD; j++) {
        float v[unit_type::elems];
        if (!is_any(h[j])) continue;
        unit_type::decode(u[j], v);
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            if (h[j][c] == 0.0f)
                continue; /* h = 0 adds nothing, even when the weight is not finite */
            GPU_UNROLL
            for (int k = 0; k < unit_type::elems; k++) acc[c][k] += h[j][c] * v[k];
        }
    }
}

template <class F, int C>
static __global__ void GPU_BOUNDS(WARPS *GPU_WARP, MIN_BLOCKS) down_kernel(gpu_down_rows a) {
    gpu_begin();
    typedef unit_of<F, F::quantized> unit_type;
    const int AHEAD = unit_type::ahead / C; /* loaded units stay in registers */
    typedef down_shared<F, WARPS, C> shared_type;
    GPU_SHARED(shared_type, shared);
    const int64_t n = a.w.n_in, units = (n + unit_type::elems - 1) / unit_type::elems;
    const int64_t unit = (int64_t)blockIdx.x * GPU_WARP + gpu_lane();
    const int64_t used = unit < units ? unit : units - 1;
    const int part = (int)blockIdx.y, c0 = (int)blockIdx.z * C;
    const int64_t count = a.count ? *a.count : a.n_max;
    const int64_t first = part * WARPS + gpu_warp(), stride = GPU_DOWN_PARTS * WARPS;
    float acc[C][unit_type::elems];
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        GPU_UNROLL
        for (int i = 0; i < unit_type::elems; i++) acc[c][i] = 0.0f;
    }
    for (int64_t i = first; i < count; i += AHEAD * stride) {
        float h[AHEAD][C];
        int64_t row[AHEAD];
        GPU_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t at = i + j * stride;
            row[j] = at >= count ? 0 : a.list ? a.list[at] : at;
            GPU_UNROLL
            for (int c = 0; c < C; c++)
                h[j][c] = at < count && c0 + c < a.n_cols ? a.h[(c0 + c) * a.ldh + at] : 0.0f;
        }
        add_rows<F, C, AHEAD>(a.w, used, row, h, acc);
    }
    if (a.fired && blockIdx.x == 0 &&
        blockIdx.z == 0) { /* counts once for all stretches and columns */
        const int32_t n_read = count_items(a, first, stride, count);
        if (n_read > 0) gpu_count(a.fired, n_read);
    }
    share_sums<F, WARPS, C>(acc, shared);
    if (gpu_warp() > 0 || unit >= units) return;
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        if (c0 + c >= a.n_cols) break;
        float *partial = a.partial + ((int64_t)part * a.n_cols + c0 + c) * n;
        GPU_UNROLL
        for (int j = 0; j < unit_type::elems; j++) {
            const int64_t at = unit_type::place(unit, j);
            if (at < n) partial[at] = acc[c][j];
        }
    }
}

struct add_args {
    gpu_down_rows down;
    gpu_norm_args norm; /* norm.x NULL: none */
};

struct add_shared {
    float sum[ADD_GROUPS][ADD_OUTPUTS];
    gpu_norm_shared norm;
};

/* The sums of the groups are added in order. */
static __global__ void __launch_bounds__(ADD_THREADS) add_parts_kernel(add_args args) {
    gpu_begin();
    GPU_SHARED(add_shared, shared);
    const gpu_down_rows &a = args.down;
    const int64_t n = a.w.n_in, c = blockIdx.y;
    const int output = (int)threadIdx.x % ADD_OUTPUTS, group = (int)threadIdx.x / ADD_OUTPUTS;
    const int64_t j = (int64_t)blockIdx.x * ADD_OUTPUTS + output;
    const int64_t first = (int64_t)group * (GPU_DOWN_PARTS / ADD_GROUPS);
    const float *part = a.partial + (first * a.n_cols + c) * n;
    float v = 0.0f;
    GPU_UNROLL
    for (int p = 0; p < GPU_DOWN_PARTS / ADD_GROUPS; p++)
        v += j < n ? part[(int64_t)p * a.n_cols * n + j] : 0.0f;
    shared.sum[group][output] = v;
    gpu_sync();
    if (group == 0 && j < n) {
        GPU_UNROLL
        for (int g = 1; g < ADD_GROUPS; g++) v += shared.sum[g][output];
        if (a.bias) v += a.bias[j];
        float *y = a.y + c * a.ldy + j;
        *y = a.add ? *y + v : v;
    }
    if (args.norm.norm.x) gpu_norm_by_last(args.norm, a.arrived, shared.norm);
}

template <class F, int C> static void launch(gpu_stream *s, const gpu_down_rows *a) {
    const int elems = unit_of<F, F::quantized>::elems;
    const gpu_grid grid = {gpu_blocks(gpu_blocks(a->w.n_in, elems), GPU_WARP), GPU_DOWN_PARTS,
                           gpu_blocks(a->n_cols, C), WARPS * GPU_WARP};
    gpu_launch<down_kernel<F, C>>(s, grid, *a);
}

void gpu_op_down_rows(gpu_stream *s, const gpu_down_rows *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_COLS && a->partial);
    /* Two columns at a time: the sums of more would not stay in registers. */
#define FORMAT(F)                                                                                  \
    if (a->n_cols == 1)                                                                            \
        launch<F, 1>(s, a);                                                                        \
    else                                                                                           \
        launch<F, 2>(s, a)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
    const gpu_grid grid = {gpu_blocks(a->w.n_in, ADD_OUTPUTS), (unsigned)a->n_cols, 1, ADD_THREADS};
    add_args args = {*a, {}};
    assert(!a->norm || (a->n_cols == 1 && a->norm->x == a->y && a->arrived));
    if (a->norm) args.norm = gpu_norm_args_of(a->norm);
    gpu_launch<add_parts_kernel>(s, grid, args);
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Number of active neurons of a pair: a thread's part. */
static __device__ __forceinline__ int32_t count_active(const float *h, int64_t n) {
    int32_t active = 0;
    for (int64_t i = threadIdx.x; i < n; i += EXPERT_WARPS * GPU_WARP) active += h[i] != 0.0f;
    return active;
}

template <class F>
static __global__ void __launch_bounds__(EXPERT_WARPS *GPU_WARP)
    expert_down_kernel(gpu_expert_down a) {
    gpu_begin();
    typedef unit_of<F, F::quantized> unit_type;
    const int AHEAD = unit_type::ahead;
    typedef down_shared<F, EXPERT_WARPS, 1> shared_type;
    GPU_SHARED(shared_type, shared);
    const int64_t n = a.w.n_in, units = (n + unit_type::elems - 1) / unit_type::elems;
    const unsigned stretches = gridDim.x / (unsigned)(a.n_cols * a.n_used);
    const int64_t pair = blockIdx.x / stretches, stretch = blockIdx.x % stretches;
    const int64_t unit = stretch * GPU_WARP + gpu_lane();
    const int64_t used = unit < units ? unit : units - 1;
    const int64_t expert = a.choices[GPU_CHOICE_WORDS * pair];
    const bool own = expert < a.n_own;
    const float *hidden = a.h + pair * a.ldh;
    float acc[1][unit_type::elems];
    GPU_UNROLL
    for (int i = 0; i < unit_type::elems; i++) acc[0][i] = 0.0f;
    for (int64_t i = gpu_warp(); own && i < a.n; i += AHEAD * EXPERT_WARPS) {
        float h[AHEAD][1];
        int64_t row[AHEAD];
        GPU_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t at = i + j * EXPERT_WARPS;
            row[j] = expert * a.n + (at < a.n ? at : 0);
            h[j][0] = at < a.n ? hidden[at] : 0.0f;
        }
        add_rows<F, 1, AHEAD>(a.w, used, row, h, acc);
    }
    if (a.fired && own && stretch == 0) {
        const int32_t active = count_active(hidden, a.n);
        if (active > 0) gpu_count(a.fired, active);
    }
    share_sums<F, EXPERT_WARPS, 1>(acc, shared);
    if (gpu_warp() > 0 || unit >= units) return;
    const float scale = own && a.scales ? a.scales[expert] : 1.0f;
    GPU_UNROLL
    for (int j = 0; j < unit_type::elems; j++) {
        const int64_t at = unit_type::place(unit, j);
        if (at >= n) continue;
        a.y[pair * a.ldy + at] = acc[0][j] * scale +
                                 (own && a.bias ? a.bias[expert * n + at] : 0.0f);
    }
}

/* The blocks of a pair follow each other in the grid's first dimension: a prompt has more pairs
 * than the other dimensions have room for. */
template <class F> static void launch_experts(gpu_stream *s, const gpu_expert_down *a) {
    const int elems = unit_of<F, F::quantized>::elems;
    const unsigned stretches = gpu_blocks(gpu_blocks(a->w.n_in, elems), GPU_WARP);
    const gpu_grid grid = {stretches * (unsigned)(a->n_cols * a->n_used), 1, 1,
                           EXPERT_WARPS * GPU_WARP};
    gpu_launch<expert_down_kernel<F>>(s, grid, *a);
}

void gpu_op_expert_down(gpu_stream *s, const gpu_expert_down *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n >= 1);
#define FORMAT(F) launch_experts<F>(s, a)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
}
