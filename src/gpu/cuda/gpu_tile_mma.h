/* gpu_tile_mma.h: a tile of a prefill matmul on tensor cores.
 *
 * Weights become 16-bit floats in shared memory: halves, or bfloat16 where they are that in the
 * file. Columns were rounded to the same before (tile_columns). Products are summed in float.
 * Two tiles of each lie there: while one is multiplied, the next is on its way, in registers or by
 * asynchronous copies, and is put into the other. Lines are padded so that eight rows of 16 bytes,
 * which is what a fragment is loaded by, lie in different banks.
 *
 * A warp takes WARP_OUT outputs and all columns: weights are the matrix A of the multiplication
 * (outputs x terms), columns the matrix B. */
#ifndef GPU_CUDA_GPU_TILE_MMA_H
#define GPU_CUDA_GPU_TILE_MMA_H

#include "gpu_dot.h"
#include "gpu_tile.h"

#if GPU_MMA

enum {
    TILE_LINE = TILE_SUM + 8,   /* 16-bit elements */
    TILE_T_LINE = TILE_OUT + 8, /* transposed: lines run along outputs */
    WARP_OUT = TILE_OUT / (TILE_THREADS / GPU_WARP),
    MMA_OUT =
        16, /* a fragment is 16 x 16; a multiplication takes 16 outputs, 8 columns, 16 terms */
    MMA_COLS = 8,
    CHUNK = 8, /* 16-bit elements in 16 bytes */
    COLUMN_CHUNKS = TILE_COLS * TILE_SUM / CHUNK / TILE_THREADS
};

/* ---- weights on their way -------------------------------------------------------------------- */

/* Of 16-bit floats: bytes are copied. */
template <class F, bool transposed, bool quantized> struct tile_weights {
    static const int per_line = (transposed ? TILE_OUT : TILE_SUM) / CHUNK;
    static const int count = TILE_OUT * TILE_SUM / CHUNK / TILE_THREADS;
    static const int stride = transposed ? TILE_T_LINE : TILE_LINE;
    gpu_copy16 copy[count];

    __device__ __forceinline__ void begin(const gpu_mat &w, int64_t o0, int64_t k0,
                                          uint16_t *tile) {
        GPU_UNROLL
        for (int i = 0; i < count; i++) {
            const int chunk = (int)threadIdx.x + i * TILE_THREADS;
            const int line = chunk / per_line, in_line = chunk % per_line * CHUNK;
            const int64_t row = (transposed ? k0 : o0) + line;
            const int64_t element = (transposed ? o0 : k0) + in_line;
            /* Rows end with zeros up to a whole chunk. */
            const bool there = row < w.n_out && element < w.n_in;
            const uint8_t *from = gpu_row<F>(w, there ? row : 0) + 2 * (there ? element : 0);
            gpu_copy16_begin(copy[i], tile + line * stride + in_line, from, there);
        }
    }
    __device__ __forceinline__ void end(uint16_t *tile) {
        (void)tile;
        gpu_copy16_end(copy);
    }
};

/* Of quantized weights: units are loaded, and decoded when the tile before has been multiplied.
 * Outside of the matrix the last row or unit is taken again: such outputs are not stored, and terms
 * beyond the last row (a row has whole units) are multiplied with zeros of x. */
template <class F, bool transposed> struct tile_weights<F, transposed, true> {
    static const int elems = 16 * F::groups;
    static const int per_line = (transposed ? TILE_OUT : TILE_SUM) / elems;
    static const int count = TILE_OUT * TILE_SUM / elems / TILE_THREADS;
    static const int stride = transposed ? TILE_T_LINE : TILE_LINE;
    gpu_unit unit[count];

    __device__ __forceinline__ void begin(const gpu_mat &w, int64_t o0, int64_t k0,
                                          uint16_t *tile) {
        (void)tile;
        GPU_UNROLL
        for (int i = 0; i < count; i++) {
            const int index = (int)threadIdx.x + i * TILE_THREADS;
            const int64_t row = (transposed ? k0 : o0) + index / per_line;
            const int64_t at = (transposed ? o0 : k0) / elems + index % per_line;
            const int64_t units = w.n_in / elems;
            F::load(gpu_row<F>(w, row < w.n_out ? row : w.n_out - 1), w.n_in,
                    at < units ? at : units - 1, unit[i]);
        }
    }
    __device__ __forceinline__ void end(uint16_t *tile) {
        GPU_UNROLL
        for (int i = 0; i < count; i++) {
            const int index = (int)threadIdx.x + i * TILE_THREADS;
            uint16_t *to = tile + index / per_line * stride + index % per_line * elems;
            GPU_UNROLL
            for (int g = 0; g < F::groups; g++) {
                float v[16];
                tile_decode(unit[i], g, v);
                GPU_UNROLL
                for (int j = 0; j < 16; j += CHUNK) {
                    const uint4 packed = {
                        gpu_half_pair(v[j], v[j + 1]), gpu_half_pair(v[j + 2], v[j + 3]),
                        gpu_half_pair(v[j + 4], v[j + 5]), gpu_half_pair(v[j + 6], v[j + 7])};
                    *(uint4 *)(to + 16 * g + j) = packed;
                }
            }
        }
    }
};

/* ---- the tile -------------------------------------------------------------------------------- */

template <bool bf16> struct tile_unit {
    static __device__ __forceinline__ void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1) {
        gpu_mma_f16(c, a, b0, b1);
    }
};
#if GPU_MMA_BF16
template <> struct tile_unit<true> {
    static __device__ __forceinline__ void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1) {
        gpu_mma_bf16(c, a, b0, b1);
    }
};
#endif

template <class F, bool transposed> struct tile_mma {
    typedef tile_product<F, transposed> product;
    typedef tile_unit<tile_is_bf16<F>::yes> unit;
    static const int w_lines = transposed ? TILE_SUM : TILE_OUT;
    static const int w_stride = transposed ? TILE_T_LINE : TILE_LINE;

    struct alignas(16) shared_type {
        uint16_t w[2][w_lines * w_stride];
        uint16_t x[2][TILE_COLS * TILE_LINE];
    };
    /* A thread's: two neighbouring columns of an output, then the same eight outputs further on. */
    typedef float sums[WARP_OUT / MMA_OUT][TILE_COLS / MMA_COLS][4];
    /* What is on its way to shared memory. */
    struct transfer {
        tile_weights<F, transposed, F::quantized> w;
        gpu_copy16 x[COLUMN_CHUNKS];
    };

    static __device__ __forceinline__ void begin(const gpu_matmul &a, const tile_columns &columns,
                                                 int64_t o0, int64_t c0, int64_t k0, transfer &t,
                                                 shared_type &shared, int to) {
        t.w.begin(a.w, o0, k0, shared.w[to]);
        GPU_UNROLL
        for (int i = 0; i < COLUMN_CHUNKS; i++) {
            const int chunk = (int)threadIdx.x + i * TILE_THREADS;
            const int line = chunk / (TILE_SUM / CHUNK),
                      in_line = chunk % (TILE_SUM / CHUNK) * CHUNK;
            const int64_t c = c0 + line < a.in.n_cols ? c0 + line : a.in.n_cols - 1;
            gpu_copy16_begin(t.x[i], shared.x[to] + line * TILE_LINE + in_line,
                             columns.x + c * columns.ld + product::term(k0 + in_line), true);
        }
    }

    static __device__ __forceinline__ void end(transfer &t, shared_type &shared, int to) {
        t.w.end(shared.w[to]);
        gpu_copy16_end(t.x);
    }

    static __device__ __forceinline__ void multiply(const shared_type &shared, int from, sums &s) {
        GPU_UNROLL
        for (int k = 0; k < TILE_SUM; k += 16) {
            uint32_t w[WARP_OUT / MMA_OUT][4];
            GPU_UNROLL
            for (int m = 0; m < WARP_OUT / MMA_OUT; m++) {
                const int o = gpu_warp() * WARP_OUT + m * MMA_OUT;
                if (transposed)
                    gpu_load_fragment_t(w[m], shared.w[from] + k * w_stride + o, w_stride);
                else
                    gpu_load_fragment(w[m], shared.w[from] + o * w_stride + k, w_stride);
            }
            GPU_UNROLL
            for (int n = 0; n < TILE_COLS / MMA_COLS; n += 2) {
                uint32_t x[4]; /* of the first eight columns, of the next eight */
                gpu_load_fragment_b(x, shared.x[from] + n * MMA_COLS * TILE_LINE + k, TILE_LINE);
                GPU_UNROLL
                for (int m = 0; m < WARP_OUT / MMA_OUT; m++) {
                    unit::add(s[m][n], w[m], x[0], x[1]);
                    unit::add(s[m][n + 1], w[m], x[2], x[3]);
                }
            }
        }
    }

    static __device__ __forceinline__ void run(const gpu_matmul &a, const tile_columns &columns) {
        GPU_SHARED(shared_type, shared);
        const int64_t o0 = (int64_t)blockIdx.y * TILE_OUT, c0 = (int64_t)blockIdx.x * TILE_COLS;
        const tile_part part = tile_part_of(product::n_sum(a));
        sums s;
        GPU_UNROLL
        for (int m = 0; m < WARP_OUT / MMA_OUT; m++) {
            GPU_UNROLL
            for (int n = 0; n < TILE_COLS / MMA_COLS; n++) {
                GPU_UNROLL
                for (int i = 0; i < 4; i++) s[m][n][i] = 0.0f;
            }
        }
        transfer t;
        begin(a, columns, o0, c0, (int64_t)part.first * TILE_SUM, t, shared, 0);
        end(t, shared, 0);
        gpu_sync();
        const int n_tiles = part.end - part.first;
        for (int i = 0; i < n_tiles; i++) {
            /* After the last tile it is fetched once more, for nothing: no branch, so that loads
             * and multiplications can be interleaved. */
            const int next = i + 1 < n_tiles ? i + 1 : i;
            begin(a, columns, o0, c0, (int64_t)(part.first + next) * TILE_SUM, t, shared,
                  (i + 1) % 2);
            multiply(shared, i % 2, s);
            end(t, shared, (i + 1) % 2);
            gpu_sync();
        }
        store(a, columns, o0, c0, s);
    }

    static __device__ __forceinline__ void store(const gpu_matmul &a, const tile_columns &columns,
                                                 int64_t o0, int64_t c0, const sums &s) {
        const int64_t o = o0 + gpu_warp() * WARP_OUT + gpu_lane() / 4;
        const int64_t c = c0 + gpu_lane() % 4 * 2;
        GPU_UNROLL
        for (int n = 0; n < TILE_COLS / MMA_COLS; n++) {
            GPU_UNROLL
            for (int i = 0; i < 2; i++) {
                const int64_t column = c + n * MMA_COLS + i;
                if (column >= a.in.n_cols) continue;
                const float undo = columns.undo[column];
                GPU_UNROLL
                for (int m = 0; m < WARP_OUT / MMA_OUT; m++) {
                    GPU_UNROLL
                    for (int half = 0; half < 2; half++) {
                        const int64_t position = o + m * MMA_OUT + half * 8;
                        if (position >= product::n_out(a)) continue;
                        tile_store(a, columns, product::output(position), column,
                                   undo * s[m][n][2 * half + i]);
                    }
                }
            }
        }
    }
};

#endif
#endif
