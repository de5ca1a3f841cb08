/* gpu_dot.h: products of rows and columns by one warp: the inner loop of all matrix-vector kernels.
 *
 * Lanes read interleaved units of a row, so that a warp reads 512 contiguous bytes at a time. A
 * lane loads several units of all R rows before it uses one: a load takes about 700 ns, and a fast
 * GPU needs 3 MB in flight to use its bandwidth: 100 bytes per lane at 8 warps per multiprocessor.
 * A lane loads its part of an input column once for all rows. The warp's sum is added in a fixed
 * tree. */
#ifndef GPU_CUDA_GPU_DOT_H
#define GPU_CUDA_GPU_DOT_H

#include "gpu_formats.h"

/* Units of each row that a lane loads before it uses one; fewer when more columns need
 * registers. */
template <int R, int C, int loads> struct gpu_ahead {
    static const int units = C > 1 || loads < R ? 1 : loads / R;
};

template <bool quantized> struct gpu_dot_kind;

template <> struct gpu_dot_kind<false> {
    /* One unit of R rows times C columns; only values [k, n) exist. */
    template <class F, int R, int C>
    static __device__ __forceinline__ void add(const uint4 (&raw)[R], int64_t k, int64_t n,
                                               const gpu_input &in, float (&acc)[R][C]) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            const float *x = in.x + (c < in.n_cols ? c : 0) * in.ldx + k;
            float v[F::floats];
            if (k + F::floats <= n) {
                GPU_UNROLL
                for (int i = 0; i < F::floats; i += 4) gpu_load4(x + i, v + i);
            } else { /* does not read beyond the column */
                GPU_UNROLL
                for (int i = 0; i < F::floats; i++) v[i] = k + i < n ? x[i] : 0.0f;
            }
            GPU_UNROLL
            for (int r = 0; r < R; r++) {
                float w[F::floats];
                F::decode(raw[r], w);
                GPU_UNROLL
                for (int i = 0; i < F::floats; i++) acc[r][c] += w[i] * v[i];
            }
        }
    }

    template <class F, int R, int C>
    static __device__ __forceinline__ void run(const uint8_t *const (&row)[R], int64_t n,
                                               const gpu_input &in, float (&acc)[R][C]) {
        const int AHEAD = gpu_ahead<R, C, 8>::units;
        const int64_t units = (n + F::floats - 1) / F::floats;
        for (int64_t unit = gpu_here(gpu_lane()); unit < units; unit += AHEAD * GPU_WARP) {
            uint4 raw[AHEAD][R];
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t at = unit + j * GPU_WARP;
                GPU_UNROLL
                for (int r = 0; r < R; r++)
                    raw[j][r] = gpu_load16(row[r] + 16 * (at < units ? at : unit));
            }
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                GPU_UNROLL
                for (int r = 0; r < R; r++) gpu_pin(raw[j][r].x);
            }
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t at = unit + j * GPU_WARP;
                if (at < units) add<F, R, C>(raw[j], at * F::floats, n, in, acc);
            }
        }
    }
};

template <> struct gpu_dot_kind<true> {
    template <class F, int R, int C>
    static __device__ __forceinline__ void add(const gpu_unit (&u)[R], int64_t unit, int64_t n,
                                               const gpu_input &in, float (&acc)[R][C]) {
        const size_t column = gpu_q8_bytes(n);
        GPU_UNROLL
        for (int c = 0; c < C; c++) {
            const uint8_t *q8 = (const uint8_t *)in.q8 + (size_t)(c < in.n_cols ? c : 0) * column;
            const float *d = (const float *)(q8 + gpu_q8_d_offset(n));
            const int32_t *sum = (const int32_t *)(q8 + gpu_q8_sum_offset(n));
            GPU_UNROLL
            for (int g = 0; g < F::groups; g++) {
                const int64_t k = F::first(unit) + g * F::distance;
                const uint4 x = gpu_load16(q8 + k);
                const float scale = d[k / 32];
                const float total = F::has_min ? (float)sum[k / 16] : 0.0f;
                GPU_UNROLL
                for (int r = 0; r < R; r++) {
                    const int *q = u[r].q + 4 * g;
                    int s = gpu_dp4a(q[0], (int)x.x, 0);
                    s = gpu_dp4a(q[1], (int)x.y, s);
                    s = gpu_dp4a(q[2], (int)x.z, s);
                    s = gpu_dp4a(q[3], (int)x.w, s);
                    float v = u[r].s[g] * (float)s;
                    if (F::has_min) v -= u[r].m[g] * total;
                    acc[r][c] += scale * v;
                }
            }
        }
    }

    template <class F, int R, int C>
    static __device__ __forceinline__ void run(const uint8_t *const (&row)[R], int64_t n,
                                               const gpu_input &in, float (&acc)[R][C]) {
        /* formats of three bits and less load when they decode */
        const int AHEAD = gpu_is_low<F>::yes ? 1 : gpu_ahead<R, C, 8 / F::groups>::units;
        const int64_t units = F::units(n);
        for (int64_t unit = gpu_here(gpu_lane()); unit < units; unit += AHEAD * GPU_WARP) {
            gpu_unit u[AHEAD][R];
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t at = unit + j * GPU_WARP;
                GPU_UNROLL
                for (int r = 0; r < R; r++)
                    gpu_load_unit<F>(row[r], n, at < units ? at : unit, u[j][r]);
            }
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                GPU_UNROLL
                for (int r = 0; r < R; r++) {
                    gpu_pin((uint32_t)u[j][r].q[0]);
                    gpu_pin(gpu_float_bits(u[j][r].s[0]));
                }
            }
            GPU_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t at = unit + j * GPU_WARP;
                if (at < units) add<F, R, C>(u[j], at, n, in, acc);
            }
        }
    }
};

/* out[r][c] = row r . column c of the input, n elements, for c < in.n_cols <= C; in all lanes. */
template <class F, int R, int C>
static __device__ __forceinline__ void gpu_dot_rows(const uint8_t *const (&row)[R], int64_t n,
                                                    const gpu_input &in, float (&out)[R][C]) {
    GPU_UNROLL
    for (int r = 0; r < R; r++) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) out[r][c] = 0.0f;
    }
    gpu_dot_kind<F::quantized>::template run<F, R, C>(row, n, in, out);
    GPU_UNROLL
    for (int r = 0; r < R; r++) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) out[r][c] = gpu_warp_sum(out[r][c]);
    }
}

/* More columns at a time would spill registers: kernels loop over groups of columns, and rows come
 * from the cache after the first group. */
enum { GPU_COLS_AT_ONCE = 4 };

/* The input's columns from c0 on. */
static __device__ __forceinline__ gpu_input gpu_input_from(const gpu_input &in, int c0, int64_t n) {
    gpu_input rest = in;
    rest.x = in.x + c0 * in.ldx;
    rest.q8 = (const uint8_t *)in.q8 + (size_t)c0 * gpu_q8_bytes(n);
    rest.n_cols = in.n_cols - c0;
    return rest;
}

/* Expands DO(format, columns) for the smallest number of columns that has a kernel. */
#define GPU_COLUMNS_SWITCH(F, n_cols, DO)                                                          \
    do {                                                                                           \
        if ((n_cols) == 1)                                                                         \
            DO(F, 1);                                                                              \
        else if ((n_cols) == 2)                                                                    \
            DO(F, 2);                                                                              \
        else                                                                                       \
            DO(F, GPU_COLS_AT_ONCE);                                                               \
    } while (0)

#endif
