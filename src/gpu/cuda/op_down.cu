/* op_down.cu: y = sum of h[i] times row list[i]: the second half of a feed-forward layer whose down
 * matrix has a row per neuron.
 *
 * In two phases instead of atomic additions, so that the same input gives the same bits. First a
 * block sums every GPU_DOWN_PARTS-th row (each of its warps a quarter of these) over a stretch of
 * 32 units of outputs, a unit per lane; then the parts are added up in order. */
#include <assert.h>

#include "gpu_dot.h"
#include "op_table.h"

enum {
    WARPS = 4,
    ADD_THREADS = 256,
    MIN_BLOCKS = 3 /* per multiprocessor: with more, sums would not stay in registers */
};

/* Elements per unit, and the unit's values times a factor added to acc. */
template <class F, bool quantized> struct unit_of;

template <class F> struct unit_of<F, false> {
    static const int elems = F::floats;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                float *w) {
        (void)n;
        F::decode(gpu_load16(row + 16 * unit), w);
    }
    static __device__ __forceinline__ int64_t place(int64_t unit, int i) {
        return unit * elems + i;
    }
};

template <class F> struct unit_of<F, true> {
    static const int elems = 16 * F::groups;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t unit,
                                                float *w) {
        gpu_unit u;
        F::load(row, n, unit, u);
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

template <class F, int C> struct down_shared {
    float sum[WARPS - 1][C][unit_of<F, F::quantized>::elems][GPU_WARP];
};

/* Whether item i is not zero for a column from c on. */
static __device__ __forceinline__ bool any_from(const gpu_down_rows &a, int c, int64_t i) {
    bool any = false;
    for (; c < a.n_cols; c++) any = any || a.h[c * a.ldh + i] != 0.0f;
    return any;
}

template <class F, int C>
static __global__ void __launch_bounds__(WARPS *GPU_WARP, MIN_BLOCKS) down_kernel(gpu_down_rows a) {
    typedef unit_of<F, F::quantized> unit_type;
    typedef down_shared<F, C> shared_type;
    GPU_SHARED(shared_type, shared);
    const int64_t n = a.w.n_in, units = (n + unit_type::elems - 1) / unit_type::elems;
    const int64_t unit = (int64_t)blockIdx.x * GPU_WARP + gpu_lane();
    const int64_t used = unit < units ? unit : units - 1;
    const int part = (int)blockIdx.y, c0 = (int)blockIdx.z * C;
    const int64_t count = a.count ? *a.count : a.n_max;
    const bool counts = a.fired && blockIdx.x == 0 && blockIdx.z == 0; /* for all stretches */
    int32_t n_read = 0;
    float acc[C][unit_type::elems];
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        GPU_UNROLL
        for (int i = 0; i < unit_type::elems; i++) acc[c][i] = 0.0f;
    }
    for (int64_t i = part * WARPS + gpu_warp(); i < count; i += GPU_DOWN_PARTS * WARPS) {
        float h[C];
        bool any = false;
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            h[c] = c0 + c < a.n_cols ? a.h[(c0 + c) * a.ldh + i] : 0.0f;
            any = any || h[c] != 0.0f;
        }
        if (counts) n_read += any || any_from(a, C, i);
        if (!any) continue;
        float w[unit_type::elems];
        unit_type::load(gpu_row(a.w, a.list ? a.list[i] : i), n, used, w);
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            if (h[c] == 0.0f) continue; /* adds nothing, even to a weight that is not finite */
            GPU_UNROLL
            for (int j = 0; j < unit_type::elems; j++) acc[c][j] += h[c] * w[j];
        }
    }
    if (n_read > 0 && gpu_lane() == 0) gpu_count(a.fired, n_read);
    if (gpu_warp() > 0) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            GPU_UNROLL
            for (int j = 0; j < unit_type::elems; j++)
                shared.sum[gpu_warp() - 1][c][j][gpu_lane()] = acc[c][j];
        }
    }
    gpu_sync();
    if (gpu_warp() > 0 || unit >= units) return;
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        if (c0 + c >= a.n_cols) break;
        float *partial = a.partial + ((int64_t)part * a.n_cols + c0 + c) * n;
        GPU_UNROLL
        for (int j = 0; j < unit_type::elems; j++) {
            float v = acc[c][j];
            GPU_UNROLL
            for (int w = 0; w < WARPS - 1; w++) v += shared.sum[w][c][j][gpu_lane()];
            const int64_t at = unit_type::place(unit, j);
            if (at < n) partial[at] = v;
        }
    }
}

static __global__ void __launch_bounds__(ADD_THREADS) add_parts_kernel(gpu_down_rows a) {
    const int64_t n = a.w.n_in, c = blockIdx.y;
    const int64_t j = (int64_t)blockIdx.x * ADD_THREADS + threadIdx.x;
    if (j >= n) return;
    float v = 0.0f;
    for (int p = 0; p < GPU_DOWN_PARTS; p++) v += a.partial[((int64_t)p * a.n_cols + c) * n + j];
    if (a.bias) v += a.bias[j];
    float *y = a.y + c * a.ldy + j;
    *y = a.add ? *y + v : v;
}

template <class F, int C> static void launch(gpu_stream *s, const gpu_down_rows *a) {
    const int elems = unit_of<F, F::quantized>::elems;
    const gpu_grid grid = {gpu_blocks(gpu_blocks(a->w.n_in, elems), GPU_WARP), GPU_DOWN_PARTS,
                           gpu_blocks(a->n_cols, C), WARPS * GPU_WARP};
    gpu_launch(s, grid, down_kernel<F, C>, *a);
}

void gpu_op_down_rows(gpu_stream *s, const gpu_down_rows *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_COLS && a->partial);
    /* Two columns at a time: the sums of more would not stay in registers. */
#define FORMAT(F)                                                                                  \
    if (a->n_cols == 1)                                                                            \
        launch<F, 1>(s, a);                                                                        \
    else                                                                                           \
        launch<F, 2>(s, a)
    GPU_FORMAT_SWITCH(a->w.type, FORMAT);
#undef FORMAT
    const gpu_grid grid = {gpu_blocks(a->w.n_in, ADD_THREADS), (unsigned)a->n_cols, 1, ADD_THREADS};
    gpu_launch(s, grid, add_parts_kernel, *a);
}
