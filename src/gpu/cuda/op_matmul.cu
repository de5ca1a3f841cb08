/* op_matmul.cu: prefill matmuls, y = W x for any number of columns, and the product over rows
 * (down_t).
 *
 * With tensor cores, a separate kernel first rounds the columns: to int8 for quantized weights
 * (gpu_tile_int8.h), else to 16-bit floats (gpu_tile_mma.h). In products over rows the scales of
 * quantized weights differ from term to term; they are decoded to halves (gpu_tile_mma.h). Float
 * units multiply float32 weights, and types that the tensor cores lack (gpu_tile_float.h). The
 * choice is made when a kernel is compiled for an architecture; all have one grid. Tiles of columns
 * are its first dimension, so that concurrent blocks share weights. */
#include <assert.h>

#include "gpu_tile_way.h"
#include "op_table.h"

enum { ROUND_WARPS = 8, PART_THREADS = 256 };

struct matmul_args {
    gpu_matmul a;
    tile_columns columns;
};

/* ---- columns --------------------------------------------------------------------------------- */

#if GPU_MMA
/* The power of two that scales `largest` to [2^14, 2^15), as exponent bits: half ends at 2^16. 1
 * when there is nothing to scale; at most 2^126, whose inverse is a normal number. */
static __device__ __forceinline__ uint32_t scale_exponent(float largest) {
    const uint32_t one = 127, most = one + 126;
    const uint32_t exponent = gpu_float_bits(largest) >> 23;
    if (largest == 0.0f || !(largest < INFINITY)) return one;
    const uint32_t wanted = 2 * one + 14 - exponent;
    return wanted < most ? wanted : most;
}

/* One block per column. */
template <bool bf16>
static __global__ void __launch_bounds__(ROUND_WARPS *GPU_WARP) round_kernel(tile_round a) {
    gpu_begin();
    if (!GPU_MMA_HERE) return; /* HIP: a family without matrix units */
    if (a.list && (int32_t)blockIdx.x >= *a.n_listed) return;
    struct shared_type {
        float largest[ROUND_WARPS];
    };
    GPU_SHARED(shared_type, shared);
    const int64_t c = a.list ? a.list[blockIdx.x] : (int32_t)blockIdx.x;
    const float *x = a.in.x + c * a.in.ldx;
    uint32_t *out = (uint32_t *)(a.columns.x + c * a.columns.ld);
    float scale = 1.0f, undo = 1.0f;
    if (!bf16) {
        float largest = 0.0f;
        for (int64_t i = threadIdx.x; i < a.n; i += ROUND_WARPS * GPU_WARP)
            largest = fmaxf(largest, fabsf(x[i]));
        largest = gpu_warp_max(largest);
        if (gpu_lane() == 0) shared.largest[gpu_warp()] = largest;
        gpu_sync();
        for (int i = 0; i < ROUND_WARPS; i++) largest = fmaxf(largest, shared.largest[i]);
        const uint32_t exponent = scale_exponent(largest);
        scale = gpu_bits_float(exponent << 23);
        undo = gpu_bits_float((254 - exponent) << 23);
    }
    for (int64_t i = threadIdx.x; i < a.columns.ld / 2; i += ROUND_WARPS * GPU_WARP) {
        const float low = 2 * i < a.n ? scale * x[2 * i] : 0.0f;
        const float high = 2 * i + 1 < a.n ? scale * x[2 * i + 1] : 0.0f;
        out[i] = bf16 ? gpu_bf16_pair(low, high) : gpu_half_pair(low, high);
    }
    if (threadIdx.x == 0) a.columns.undo[c] = undo;
}
#endif

void tile_round_columns(gpu_stream *s, gpu_rounding to, const tile_round &a) {
#if GPU_MMA
    if (to == GPU_ROUND_NOT) return;
    if (to == GPU_ROUND_INT8) {
        const gpu_quantize q = {a.in.x, a.in.ldx,  a.n, a.in.n_cols, (void *)a.columns.q8,
                                a.list, a.n_listed};
        if (gpu_stream_tensor_cores(s)) gpu_op_quantize(s, &q);
        return;
    }
    const gpu_grid grid = {(unsigned)a.in.n_cols, 1, 1, ROUND_WARPS * GPU_WARP};
    if (to == GPU_ROUND_BF16)
        gpu_launch<round_kernel<true>>(s, grid, a);
    else
        gpu_launch<round_kernel<false>>(s, grid, a);
#else
    (void)s, (void)to, (void)a;
#endif
}

/* ---- tiles ----------------------------------------------------------------------------------- */

template <class F, bool transposed>
static __global__ void GPU_BOUNDS(TILE_THREADS, (tile_of<F, transposed>::blocks))
    matmul_kernel(matmul_args m) {
    gpu_begin();
    tile_of<F, transposed>::run(m.a, m.columns, tile_range_of(m.a));
}

template <bool transposed>
static __global__ void GPU_BOUNDS(TILE_THREADS, (tile_float<gpu_f16, transposed>::blocks))
    precise_kernel(matmul_args m) {
    gpu_begin();
    tile_float<gpu_f16, transposed>::run(m.a, m.columns, tile_range_of(m.a));
}

/* For adding partial sums, in order. */
struct parts_args {
    matmul_args m;
    int32_t n;
};

static __global__ void __launch_bounds__(PART_THREADS) parts_kernel(parts_args a) {
    gpu_begin();
    const tile_columns &columns = a.m.columns;
    const int64_t o = (int64_t)blockIdx.x * PART_THREADS + threadIdx.x, c = blockIdx.y;
    const int64_t step = columns.n_out * a.m.a.in.n_cols;
    if (o >= columns.n_out) return;
    float sum = 0.0f;
    for (int i = 0; i < a.n; i++) sum += columns.partial[i * step + c * columns.n_out + o];
    tile_finish(a.m.a, o, c, sum);
}

template <bool transposed> static void run(gpu_stream *s, const gpu_matmul *a) {
    const int64_t n_out = transposed ? a->w.n_in : a->w.n_out;
    const int64_t n_sum = transposed ? a->w.n_out : a->w.n_in;
    assert(a->in.n_cols >= 1 && a->in.x && a->scratch);
    const int32_t n_splits = gpu_matmul_splits(n_sum, n_out, a->in.n_cols);
    const gpu_rounding to = gpu_matmul_rounding(a->w.type, a->precise, transposed);
    matmul_args m = {*a, tile_columns_at(a->scratch, to, n_sum, a->in.n_cols)};
    m.columns.n_out = n_out;
    if (n_splits > 1)
        m.columns.partial = reinterpret_cast<float *>(static_cast<uint8_t *>(a->scratch) +
                                                      gpu_matmul_columns(n_sum, a->in.n_cols));
    const gpu_grid grid = {gpu_blocks(a->in.n_cols, TILE_COLS), gpu_blocks(n_out, TILE_OUT),
                           (unsigned)n_splits, TILE_THREADS};
    if (a->precise && a->w.type == QUANT_F16) {
        gpu_launch<precise_kernel<transposed>>(s, grid, m);
    } else {
        const tile_round round = {a->in, n_sum, nullptr, nullptr, m.columns};
        if (!a->rounded) tile_round_columns(s, to, round);
#define FORMAT(F) gpu_launch<matmul_kernel<F, transposed>>(s, grid, m)
        GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
    }
    if (n_splits == 1) return;
    const parts_args parts = {m, n_splits};
    const gpu_grid all = {gpu_blocks(n_out, PART_THREADS), (unsigned)a->in.n_cols, 1, PART_THREADS};
    gpu_launch<parts_kernel>(s, all, parts);
}

void gpu_op_matmul(gpu_stream *s, const gpu_matmul *a) {
    run<false>(s, a);
}

void gpu_op_matmul_t(gpu_stream *s, const gpu_matmul *a) {
    run<true>(s, a);
}
