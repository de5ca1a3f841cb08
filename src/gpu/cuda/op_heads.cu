/* op_heads.cu: products with one matrix per head (MLA), or per group of heads. As in op_matvec.cu,
 * a warp computes two rows at a time. The input of a head is short: every block copies it to shared
 * memory, as floats or quantized, which takes less time than a separate kernel. The input of a
 * group does not fit there: one kernel quantizes the inputs of all groups, and matvec computes the
 * products. */
#include <assert.h>

#include "gpu_block.h"
#include "gpu_dot.h"
#include "op_table.h"

enum { WARPS = 4, ROWS = 2, MIN_BLOCKS = 2 };

template <int C> struct heads_shared {
    alignas(16) float x[C][GPU_MAX_LATENT];
    alignas(16) uint8_t q8[C][2 * GPU_MAX_LATENT]; /* columns, gpu_q8_bytes(n_in) apart */
};

/* Loads the head's part of columns [c0, c0 + n_cols). */
template <class F, int C>
static __device__ __forceinline__ void load_input(const gpu_heads &a, heads_shared<C> &shared,
                                                  int64_t head, int c0, int n_cols) {
    const int n = (int)a.w.n_in, groups = n / 32, threads = WARPS * GPU_WARP;
    for (int c = 0; c < n_cols; c++) {
        const float *x = a.x + (c0 + c) * a.ldx + head * a.x_stride;
        for (int i = (int)threadIdx.x; i < n; i += threads) shared.x[c][i] = x[i];
    }
    gpu_sync();
    if (!F::quantized) return;
    for (int c = 0; c < n_cols; c++) {
        uint8_t *q8 = &shared.q8[0][0] + (size_t)c * gpu_q8_bytes(n);
        for (int at = 4 * gpu_warp(); at < groups; at += 4 * WARPS) { /* four groups per warp */
            const int group = at + gpu_lane() / 8;
            const bool valid = group < groups;
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (valid) gpu_load4(&shared.x[c][32 * group + 4 * (gpu_lane() % 8)], v);
            gpu_quantize_group(v, group, valid, n, q8);
        }
    }
    gpu_sync();
}

template <class F, int C>
static __global__ void GPU_BOUNDS(WARPS *GPU_WARP, MIN_BLOCKS) heads_kernel(gpu_heads a) {
    gpu_begin();
    typedef heads_shared<C> shared_type;
    GPU_SHARED(shared_type, shared);
    const int64_t head = blockIdx.y, rows = a.w.n_out / a.n_heads;
    const int64_t first = ((int64_t)blockIdx.x * WARPS + gpu_warp()) * ROWS;
    const uint8_t *row[ROWS];
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++)
        row[r] = gpu_row<F>(a.w, head * rows + (first + r < rows ? first + r : 0));
    for (int c0 = 0; c0 < a.n_cols; c0 += C) {
        const int n_cols = a.n_cols - c0 < C ? a.n_cols - c0 : C;
        if (c0 > 0) gpu_sync();
        load_input<F, C>(a, shared, head, c0, n_cols);
        const gpu_input in = {&shared.x[0][0], GPU_MAX_LATENT, shared.q8, n_cols};
        float sum[ROWS][C];
        gpu_dot_rows<F, ROWS, C>(row, a.w.n_in, in, sum);
        if (gpu_lane() != 0) continue;
        GPU_UNROLL
        for (int r = 0; r < ROWS; r++) {
            GPU_UNROLL
            for (int c = 0; c < C; c++)
                if (first + r < rows && c < n_cols)
                    a.y[(c0 + c) * a.ldy + head * a.y_stride + first + r] = a.scale * sum[r][c];
        }
    }
}

enum { QUANTIZE_THREADS = 128 };

GPU_BOTH uint8_t *quantized(const gpu_heads &a, int64_t head) {
    return (uint8_t *)a.scratch + (size_t)(head * a.n_cols) * gpu_q8_bytes(a.w.n_in);
}

static __global__ void __launch_bounds__(QUANTIZE_THREADS) quantize_kernel(gpu_heads a) {
    gpu_begin();
    const int64_t c = blockIdx.y, head = blockIdx.z;
    const int64_t at = ((int64_t)blockIdx.x * QUANTIZE_THREADS + threadIdx.x) * 4;
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (at < a.w.n_in) gpu_load4(a.x + c * a.ldx + head * a.x_stride + at, v);
    gpu_quantize_group(v, at / 32, at < a.w.n_in, a.w.n_in,
                       quantized(a, head) + (size_t)c * gpu_q8_bytes(a.w.n_in));
}

static void multiply_groups(gpu_stream *s, const gpu_heads &a) {
    const int64_t rows = a.w.n_out / a.n_heads;
    const bool q8 = gpu_type_wants_q8(a.w.type);
    const gpu_grid grid = {gpu_blocks(a.w.n_in, 4 * QUANTIZE_THREADS), (unsigned)a.n_cols,
                           (unsigned)a.n_heads, QUANTIZE_THREADS};
    assert(a.x_stride % 4 == 0 && (!q8 || a.scratch));
    if (q8) gpu_launch<quantize_kernel>(s, grid, a);
    for (int32_t h = 0; h < a.n_heads;) {
        gpu_matmul products[GPU_MAX_PRODUCTS] = {};
        int32_t n = 0;
        for (; n < GPU_MAX_PRODUCTS && h < a.n_heads; n++, h++) {
            products[n].w = a.w;
            products[n].w.n_out = rows;
            products[n].w.data = (const uint8_t *)a.w.data + (size_t)(h * rows) * a.w.row_bytes;
            products[n].in = {a.x + h * a.x_stride, a.ldx, q8 ? quantized(a, h) : nullptr,
                              a.n_cols};
            products[n].scale = a.scale;
            products[n].y = a.y + h * a.y_stride;
            products[n].ldy = a.ldy;
        }
        gpu_op_matvec(s, products, n);
    }
}

void gpu_op_heads(gpu_stream *s, const gpu_heads *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_COLS && a->w.n_out % a->n_heads == 0);
    if (a->w.n_in > GPU_MAX_LATENT) {
        multiply_groups(s, *a);
        return;
    }
    const gpu_grid grid = {gpu_blocks(a->w.n_out / a->n_heads, WARPS * ROWS), (unsigned)a->n_heads,
                           1, WARPS * GPU_WARP};
#define LAUNCH(F, C) gpu_launch<heads_kernel<F, C>>(s, grid, *a)
#define FORMAT(F)    GPU_COLUMNS_SWITCH(F, a->n_cols, LAUNCH)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
#undef LAUNCH
}
