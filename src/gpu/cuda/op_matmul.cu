/* op_matmul.cu: products for prompts: tiles of weights are decoded to floats in shared memory once
 * and meet a tile of columns; a thread makes 4 x 4 results. `transposed` is the product over rows
 * (down_t): there outputs run along a row's elements. Inputs are floats for every type. */
#include <assert.h>

#include "gpu_formats.h"
#include "op_table.h"

enum {
    OUT_TILE = 64, /* outputs */
    COL_TILE = 64, /* columns of x */
    SUM_TILE = 32, /* elements of the sum */
    THREADS = 256, /* 16 x 16, of 4 x 4 results */
    SIDE = 4,
    PAD = 4 /* words between lines, so that lines start in different banks, aligned to 16 bytes */
};

struct alignas(16) matmul_shared {
    float w[SUM_TILE][OUT_TILE + PAD];
    float x[SUM_TILE][COL_TILE + PAD];
};

/* w[k][o] = weight of output o0 + o and element k0 + k; zero outside of the matrix. Neighbouring
 * threads take neighbouring elements of a row. */
template <class F, bool transposed>
static __device__ __forceinline__ void load_weights(const gpu_mat &m, matmul_shared &shared,
                                                    int64_t o0, int64_t k0) {
    const int along = transposed ? OUT_TILE : SUM_TILE;
    for (int i = (int)threadIdx.x; i < OUT_TILE * SUM_TILE; i += THREADS) {
        const int in_row = i % along, of_row = i / along;
        const int o = transposed ? in_row : of_row, k = transposed ? of_row : in_row;
        const int64_t row = transposed ? k0 + k : o0 + o, at = transposed ? o0 + o : k0 + k;
        float v = 0.0f;
        if (row < m.n_out && at < m.n_in)
            v = F::value((const uint8_t *)m.data + (size_t)row * m.row_bytes, m.n_in, at);
        shared.w[k][o] = v;
    }
}

static __device__ __forceinline__ void load_columns(const gpu_input &in, int64_t n,
                                                    matmul_shared &shared, int64_t c0, int64_t k0) {
    for (int i = (int)threadIdx.x; i < COL_TILE * SUM_TILE; i += THREADS) {
        const int k = i % SUM_TILE, c = i / SUM_TILE;
        const bool there = c0 + c < in.n_cols && k0 + k < n;
        shared.x[k][c] = there ? in.x[(c0 + c) * in.ldx + k0 + k] : 0.0f;
    }
}

template <class F, bool transposed>
static __global__ void __launch_bounds__(THREADS) matmul_kernel(gpu_matmul a) {
    GPU_SHARED(matmul_shared, shared);
    const int64_t o0 = (int64_t)blockIdx.x * OUT_TILE, c0 = (int64_t)blockIdx.y * COL_TILE;
    const int64_t n_sum = transposed ? a.w.n_out : a.w.n_in;
    const int64_t n_out = transposed ? a.w.n_in : a.w.n_out;
    const int o = (int)threadIdx.x % 16 * SIDE, c = (int)threadIdx.x / 16 * SIDE;
    float sum[SIDE][SIDE];
    GPU_UNROLL
    for (int i = 0; i < SIDE; i++) {
        GPU_UNROLL
        for (int j = 0; j < SIDE; j++) sum[i][j] = 0.0f;
    }
    for (int64_t k0 = 0; k0 < n_sum; k0 += SUM_TILE) {
        load_weights<F, transposed>(a.w, shared, o0, k0);
        load_columns(a.in, n_sum, shared, c0, k0);
        gpu_sync();
        GPU_UNROLL
        for (int k = 0; k < SUM_TILE; k++) {
            const uint4 w4 = gpu_load16(&shared.w[k][o]), x4 = gpu_load16(&shared.x[k][c]);
            const float w[SIDE] = {gpu_bits_float(w4.x), gpu_bits_float(w4.y), gpu_bits_float(w4.z),
                                   gpu_bits_float(w4.w)};
            const float x[SIDE] = {gpu_bits_float(x4.x), gpu_bits_float(x4.y), gpu_bits_float(x4.z),
                                   gpu_bits_float(x4.w)};
            GPU_UNROLL
            for (int i = 0; i < SIDE; i++) {
                GPU_UNROLL
                for (int j = 0; j < SIDE; j++) sum[i][j] += x[i] * w[j];
            }
        }
        gpu_sync();
    }
    GPU_UNROLL
    for (int i = 0; i < SIDE; i++) {
        GPU_UNROLL
        for (int j = 0; j < SIDE; j++) {
            if (c0 + c + i >= a.in.n_cols || o0 + o + j >= n_out) continue;
            const float bias = a.bias ? a.bias[o0 + o + j] : 0.0f;
            const float v = a.scale_last ? a.scale * (sum[i][j] + bias)
                                         : a.scale * sum[i][j] + bias;
            float *y = a.y + (c0 + c + i) * a.ldy + o0 + o + j;
            *y = a.add ? *y + v : v;
        }
    }
}

template <bool transposed> static void run(gpu_stream *s, const gpu_matmul *a) {
    const int64_t n_out = transposed ? a->w.n_in : a->w.n_out;
    assert(a->in.n_cols >= 1 && a->in.x);
    const gpu_grid grid = {gpu_blocks(n_out, OUT_TILE), gpu_blocks(a->in.n_cols, COL_TILE), 1,
                           THREADS};
#define FORMAT(F) gpu_launch(s, grid, matmul_kernel<F, transposed>, *a)
    GPU_FORMAT_SWITCH(a->w.type, FORMAT);
#undef FORMAT
}

void gpu_op_matmul(gpu_stream *s, const gpu_matmul *a) {
    run<false>(s, a);
}

void gpu_op_matmul_t(gpu_stream *s, const gpu_matmul *a) {
    run<true>(s, a);
}
