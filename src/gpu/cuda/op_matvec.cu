/* op_matvec.cu: y = W x for few columns: every weight is read once, for all columns.
 *
 * A warp computes two rows at a time: one row would have half as many bytes in flight. Products of
 * one input share a kernel: small matrices together fill the device better, and one launch takes
 * less time than three.
 *
 * The product that a block of the model adds to the residual stream is normed next. Where kernels
 * of a program do not overlap, the last block to finish does that: a fence, a counter and loads
 * from the L2 cache take about 1 us, a separate kernel 2.3 us (docs/placement.md). 128 threads read
 * 4,096 elements, 16 KB, twice: at 64 bytes per clock 0.3 us, and 0.6 us for 8,192. */
#include <assert.h>

#include "gpu_dot.h"
#include "gpu_norm.h"
#include "op_table.h"

enum {
    WARPS = 4,
    ROWS = 2,
    MIN_BLOCKS = 2 /* per multiprocessor: allows the maximum registers per thread */
};

/* Stores y of the rows from `first` on, for the columns from c0 on. */
template <int C>
static __device__ __forceinline__ void store(const gpu_matmul &a, int64_t first, int c0,
                                             const float (&sum)[ROWS][C]) {
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= a.w.n_out) break;
        const float bias = a.bias ? a.bias[first + r] : 0.0f;
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            if (c0 + c >= a.in.n_cols) break;
            float *y = a.y + (c0 + c) * a.ldy + first + r;
            const float v = a.scale_last ? a.scale * (sum[r][c] + bias)
                                         : a.scale * sum[r][c] + bias;
            gpu_put_product(a, y, v);
        }
    }
}

/* Products with matrices of one type; their thread blocks are contiguous. */
struct matvec_args {
    gpu_matmul product[GPU_MAX_PRODUCTS];
    unsigned first[GPU_MAX_PRODUCTS]; /* first block of each product; UINT32_MAX: no product */
    gpu_norm_args norm;               /* of a single product; norm.x NULL: none */
};

template <class F, int C>
static __global__ void GPU_BOUNDS(WARPS *GPU_WARP, MIN_BLOCKS) matvec_kernel(matvec_args all) {
    gpu_begin();
    gpu_matmul a = all.product[0];
    unsigned block = blockIdx.x;
    GPU_UNROLL
    for (int i = 1; i < GPU_MAX_PRODUCTS;
         i++) { /* constant indices: arguments stay in parameter memory */
        if (blockIdx.x < all.first[i]) continue;
        a = all.product[i];
        block = blockIdx.x - all.first[i];
    }
    const int64_t first = ((int64_t)block * WARPS + gpu_warp()) * ROWS;
    if (first < a.w.n_out) {
        const uint8_t *row[ROWS];
        GPU_UNROLL
        for (int r = 0; r < ROWS; r++) { /* a last odd row is computed twice and stored once */
            row[r] = gpu_row<F>(a.w, first + r < a.w.n_out ? first + r : first);
        }
        for (int c0 = 0; c0 < a.in.n_cols; c0 += C) {
            float sum[ROWS][C];
            gpu_dot_rows<F, ROWS, C>(row, a.w.n_in, gpu_input_from(a.in, c0, a.w.n_in), sum);
            if (gpu_lane() == 0) store<C>(a, first, c0, sum);
        }
    }
    if (C == 1 && all.norm.norm.x) {
        GPU_SHARED(gpu_norm_shared, shared);
        gpu_norm_by_last(all.norm, a.arrived, shared);
    }
}

/* Number of products at the start of n whose matrices have the type of the first. */
static int32_t count_alike(const gpu_matmul *a, int32_t n) {
    int32_t k = 1;
    while (k < n && a[k].w.type == a[0].w.type) k++;
    return k;
}

static void launch_alike(gpu_stream *s, const gpu_matmul *a, int32_t n) {
    matvec_args all = {};
    unsigned blocks = 0;
    if (a->norm) all.norm = gpu_norm_args_of(a->norm);
    for (int i = 0; i < GPU_MAX_PRODUCTS; i++) {
        all.first[i] = i < n ? blocks : UINT32_MAX;
        if (i >= n) continue;
        all.product[i] = a[i];
        blocks += gpu_blocks(a[i].w.n_out, WARPS * ROWS);
    }
    const gpu_grid grid = {blocks, 1, 1, WARPS * GPU_WARP};
#define LAUNCH(F, C) gpu_launch<matvec_kernel<F, C>>(s, grid, all)
#define FORMAT(F)    GPU_COLUMNS_SWITCH(F, a->in.n_cols, LAUNCH)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
#undef LAUNCH
}

void gpu_op_matvec(gpu_stream *s, const gpu_matmul *a, int32_t n) {
    assert(n >= 1 && n <= GPU_MAX_PRODUCTS);
    for (int32_t i = 0; i < n; i++) {
        assert(a[i].in.n_cols >= 1 && a[i].in.n_cols <= GPU_MAX_COLS);
        assert(a[i].in.n_cols == a->in.n_cols && a[i].w.n_in == a->w.n_in);
        assert(!gpu_type_wants_q8(a[i].w.type) || a[i].in.q8);
        assert(gpu_type_wants_q8(a[i].w.type) || (a[i].in.x && a[i].in.ldx % 4 == 0));
        assert(!a[i].norm || (n == 1 && a->in.n_cols == 1 && a->norm->x == a->y && a->arrived));
    }
    for (int32_t i = 0; i < n;) {
        const int32_t k = count_alike(a + i, n - i);
        launch_alike(s, a + i, k);
        i += k;
    }
}
