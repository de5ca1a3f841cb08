/* op_matvec.cu: y = W x for few columns: every weight is read once, for all of them.
 *
 * A warp makes two rows at a time: with one, half as many bytes are in flight. */
#include <assert.h>

#include "gpu_dot.h"
#include "op_table.h"

enum {
    WARPS = 4,
    ROWS = 2,
    MIN_BLOCKS = 2 /* per multiprocessor: allows all the registers that a thread can have */
};

/* y of the rows from `first` on, for the columns from c0 on. */
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
            *y = a.add ? *y + v : v;
        }
    }
}

template <class F, int C>
static __global__ void __launch_bounds__(WARPS *GPU_WARP, MIN_BLOCKS) matvec_kernel(gpu_matmul a) {
    const int64_t first = ((int64_t)blockIdx.x * WARPS + gpu_warp()) * ROWS;
    if (first >= a.w.n_out) return;
    const uint8_t *row[ROWS];
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) { /* a last odd row is computed twice and stored once */
        row[r] = gpu_row(a.w, first + r < a.w.n_out ? first + r : first);
    }
    for (int c0 = 0; c0 < a.in.n_cols; c0 += C) {
        float sum[ROWS][C];
        gpu_dot_rows<F, ROWS, C>(row, a.w.n_in, gpu_input_from(a.in, c0, a.w.n_in), sum);
        if (gpu_lane() == 0) store<C>(a, first, c0, sum);
    }
}

void gpu_op_matvec(gpu_stream *s, const gpu_matmul *a) {
    assert(a->in.n_cols >= 1 && a->in.n_cols <= GPU_MAX_COLS);
    assert(!gpu_type_wants_q8(a->w.type) || a->in.q8);
    assert(gpu_type_wants_q8(a->w.type) || (a->in.x && a->in.ldx % 4 == 0));
    const gpu_grid grid = {gpu_blocks(a->w.n_out, WARPS * ROWS), 1, 1, WARPS * GPU_WARP};
#define LAUNCH(F, C) gpu_launch(s, grid, matvec_kernel<F, C>, *a)
#define FORMAT(F)    GPU_COLUMNS_SWITCH(F, a->in.n_cols, LAUNCH)
    GPU_FORMAT_SWITCH(a->w.type, FORMAT);
#undef FORMAT
#undef LAUNCH
}
