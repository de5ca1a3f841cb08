/* gpu_tile_float.h: a tile of a prefill matmul on float units: for float32 weights, whose precision
 * and range tensor cores lack, and for types without tensor cores on this GPU.
 *
 * Weights and columns are floats in shared memory, term by term. A thread computes 8 x 8 results as
 * two halves in each dimension, so that the 16-byte loads of a warp use all banks. */
#ifndef GPU_CUDA_GPU_TILE_FLOAT_H
#define GPU_CUDA_GPU_TILE_FLOAT_H

#include "gpu_dot.h"
#include "gpu_tile.h"

enum {
    QUAD = 4,                                 /* floats in 16 bytes */
    FLOAT_SUM = 32,                           /* terms in shared memory at a time */
    OUT_THREADS = TILE_OUT / (2 * QUAD),      /* threads that share a column */
    COL_THREADS = TILE_THREADS / OUT_THREADS, /* threads that share an output */
    COL_QUADS = TILE_COLS /
                (COL_THREADS * QUAD), /* quads of columns per thread, and quads of outputs */
    OUT_QUADS = TILE_OUT / (OUT_THREADS * QUAD)
};

/* A piece is `elems` contiguous positions of a row, decoded at once. */
template <class F, bool quantized> struct tile_piece {
    static const int elems = F::floats;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t piece,
                                                float *v) {
        (void)n;
        F::decode(gpu_load16(row + 16 * piece), v);
    }
};

template <class F> struct tile_piece<F, true> {
    static const int elems = 16 * F::groups;
    static __device__ __forceinline__ void load(const uint8_t *row, int64_t n, int64_t piece,
                                                float *v) {
        gpu_unit u;
        gpu_load_unit<F>(row, n, piece, u);
        GPU_UNROLL
        for (int g = 0; g < F::groups; g++) tile_decode(u, g, v + 16 * g);
    }
};

template <class F, bool transposed> struct tile_float {
    typedef tile_product<F, transposed> product;
    typedef tile_piece<F, F::quantized> piece;
    static const int blocks = 2; /* per multiprocessor: fits Turing's shared memory */

    /* Lines are padded by 16 bytes, so that they start in different banks and stay aligned. */
    struct alignas(16) shared_type {
        float w[FLOAT_SUM][TILE_OUT + QUAD];
        float x[FLOAT_SUM][TILE_COLS + QUAD];
    };
    typedef float sums[COL_QUADS * QUAD][OUT_QUADS * QUAD];

    /* Neighbouring threads load neighbouring pieces of a row. Zeros outside the matrix. */
    static __device__ __forceinline__ void load_weights(const gpu_mat &w, shared_type &shared,
                                                        int64_t o0, int64_t k0) {
        const int per_line = (transposed ? (int)TILE_OUT : (int)FLOAT_SUM) / piece::elems;
        for (int i = (int)threadIdx.x; i < TILE_OUT * FLOAT_SUM / piece::elems; i += TILE_THREADS) {
            const int line = i / per_line, in_line = i % per_line * piece::elems;
            const int64_t row = (transposed ? k0 : o0) + line;
            const int64_t position = (transposed ? o0 : k0) + in_line;
            float v[piece::elems];
            if (row < w.n_out && position < w.n_in) {
                piece::load(gpu_row<F>(w, row), w.n_in, position / piece::elems, v);
            } else {
                GPU_UNROLL
                for (int j = 0; j < piece::elems; j++) v[j] = 0.0f;
            }
            GPU_UNROLL
            for (int j = 0; j < piece::elems; j++) {
                if (transposed)
                    shared.w[line][in_line + j] = v[j];
                else
                    shared.w[in_line + j][line] = v[j];
            }
        }
    }

    template <class L>
    static __device__ __forceinline__ void load_columns(const gpu_matmul &a, const L &lines,
                                                        shared_type &shared, int64_t k0) {
        const int64_t n = product::n_sum(a);
        for (int i = (int)threadIdx.x; i < TILE_COLS * FLOAT_SUM; i += TILE_THREADS) {
            const int k = i % FLOAT_SUM, c = i / FLOAT_SUM;
            const bool there = c < lines.n && k0 + k < n;
            shared.x[k][c] = there ? a.in.x[lines.source(c) * a.in.ldx + product::term(k0 + k)]
                                   : 0.0f;
        }
    }

    static __device__ __forceinline__ void load_quad(const float *p, float *v) {
        const uint4 u = gpu_load16(p);
        v[0] = gpu_bits_float(u.x), v[1] = gpu_bits_float(u.y);
        v[2] = gpu_bits_float(u.z), v[3] = gpu_bits_float(u.w);
    }

    /* Offsets of a thread's quads of outputs, and of columns. */
    static __device__ __forceinline__ int out_at(int quad) {
        return ((int)threadIdx.x % OUT_THREADS + quad * OUT_THREADS) * QUAD;
    }
    static __device__ __forceinline__ int col_at(int quad) {
        return ((int)threadIdx.x / OUT_THREADS + quad * COL_THREADS) * QUAD;
    }

    static __device__ __forceinline__ void multiply(const shared_type &shared, sums &s) {
        for (int k = 0; k < FLOAT_SUM; k++) {
            float w[OUT_QUADS * QUAD], x[COL_QUADS * QUAD];
            GPU_UNROLL
            for (int q = 0; q < OUT_QUADS; q++) load_quad(&shared.w[k][out_at(q)], w + q * QUAD);
            GPU_UNROLL
            for (int q = 0; q < COL_QUADS; q++) load_quad(&shared.x[k][col_at(q)], x + q * QUAD);
            GPU_UNROLL
            for (int i = 0; i < COL_QUADS * QUAD; i++) {
                GPU_UNROLL
                for (int j = 0; j < OUT_QUADS * QUAD; j++) s[i][j] += x[i] * w[j];
            }
        }
    }

    template <class L>
    static __device__ __forceinline__ void run(const gpu_matmul &a, const tile_columns &columns,
                                               const L &lines) {
        GPU_SHARED(shared_type, shared);
        const int64_t o0 = (int64_t)blockIdx.y * TILE_OUT;
        sums s;
        GPU_UNROLL
        for (int i = 0; i < COL_QUADS * QUAD; i++) {
            GPU_UNROLL
            for (int j = 0; j < OUT_QUADS * QUAD; j++) s[i][j] = 0.0f;
        }
        const tile_part part = tile_part_of(product::n_sum(a));
        const int64_t end = (int64_t)part.end * TILE_SUM;
        for (int64_t k0 = (int64_t)part.first * TILE_SUM; k0 < end; k0 += FLOAT_SUM) {
            load_weights(a.w, shared, o0, k0);
            load_columns(a, lines, shared, k0);
            gpu_sync();
            multiply(shared, s);
            gpu_sync();
        }
        GPU_UNROLL
        for (int i = 0; i < COL_QUADS * QUAD; i++) {
            const int line = col_at(i / QUAD) + i % QUAD;
            if (line >= lines.n) continue;
            const auto to = lines.target(line);
            GPU_UNROLL
            for (int j = 0; j < OUT_QUADS * QUAD; j++) {
                const int64_t position = o0 + out_at(j / QUAD) + j % QUAD;
                if (position < product::n_out(a))
                    lines.put(a, columns, product::output(position), to, s[i][j]);
            }
        }
    }
};

#endif
