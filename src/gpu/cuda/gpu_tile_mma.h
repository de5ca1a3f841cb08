/* gpu_tile_mma.h: a tile of a prefill matmul on tensor cores, of 16-bit float weights, and of
 * quantized weights in products over rows. (gpu_tile_int8.h has the other products of quantized
 * weights, and loads them as this file does.)
 *
 * Weights become 16-bit floats in shared memory: bfloat16 for BF16 weights, else halves. An earlier
 * kernel has rounded the columns to the type of the weights (tile_columns). Sums are float.
 *
 * A warp computes WARP_OUT outputs of all columns. No other warp reads its weights, so it decodes
 * STEP terms at a time and waits only for its own lanes (on gfx9 for the two warps of a wave,
 * gpu_mma.h). All warps share the columns: two tiles in shared memory, one is multiplied while the
 * other is copied, with one barrier of the block per tile.
 *
 * Weights are loaded in stages: tiles up to PREFETCH ahead to the L2 cache; the next tile to
 * registers, undecoded (each half of it is loaded when the previous half has been decoded); one
 * step of the current tile to shared memory. Lines in shared memory are padded, so that the eight
 * rows of 16 bytes of a fragment load are in different banks. */
#ifndef GPU_CUDA_GPU_TILE_MMA_H
#define GPU_CUDA_GPU_TILE_MMA_H

#include "gpu_dot.h"
#include "gpu_mma.h"
#include "gpu_tile.h"

#if GPU_MMA_HERE

enum {
    WARP_OUT = TILE_OUT / (TILE_THREADS / GPU_WARP),
    STEP = 32, /* terms that a warp decodes at a time: per lane a unit of two groups */
    STEPS = TILE_SUM / STEP,
    PREFETCH = 3,             /* tiles ahead; a tile of 4-bit weights is 4 KB per block */
    TILE_LINE = TILE_SUM + 8, /* 16-bit elements of a column's line */
    STEP_LINE = STEP +
                8, /* of an output's weights; transposed: of a term's weights, WARP_OUT + 8 */
    WAVE_OUT = TILE_OUT / (TILE_THREADS / GPU_MMA_LANES), /* outputs of a wave */
    MMA = 16,  /* outputs, columns and terms of a multiplication */
    CHUNK = 8, /* 16-bit elements in 16 bytes */
    COLUMN_CHUNKS = TILE_COLS * TILE_SUM / CHUNK / TILE_THREADS
};
static_assert((int)WARP_OUT == (int)STEP, "a warp's step is a square, transposed or not");

/* ---- loads of a warp's weights: outputs from o0, terms from k0 ------------------------------ */

/* 16-bit float weights. Outside the matrix it loads the last row, or a row's first elements, again:
 * such outputs are not stored, and such terms are multiplied by zeros of x. */
template <class F, bool transposed, bool quantized> struct tile_weights {
    static const int per_line = STEP / CHUNK, count = STEP * per_line / GPU_WARP;
    static const int blocks = 2;
    uint4 chunk[count];

    static __device__ __forceinline__ int line_of(int i) {
        return (gpu_lane() + i * GPU_WARP) / per_line;
    }
    static __device__ __forceinline__ int place_of(int i) {
        return (gpu_lane() + i * GPU_WARP) % per_line * CHUNK;
    }
    __device__ __forceinline__ void begin(const gpu_mat &w, int64_t o0, int64_t k0) {
        GPU_UNROLL
        for (int i = 0; i < count; i++) {
            const int64_t row = (transposed ? k0 : o0) + line_of(i);
            const int64_t element = (transposed ? o0 : k0) + place_of(i);
            chunk[i] = gpu_load16(gpu_row<F>(w, row < w.n_out ? row : w.n_out - 1) +
                                  2 * (element < w.n_in ? element : 0));
        }
    }
    static __device__ __forceinline__ void prefetch(const gpu_mat &, int64_t, int64_t, int,
                                                    int64_t) {}
    __device__ __forceinline__ void end(const gpu_mat &, int64_t, int64_t, uint16_t *to) {
        GPU_UNROLL
        for (int i = 0; i < count; i++)
            *(uint4 *)(to + line_of(i) * STEP_LINE + place_of(i)) = chunk[i];
    }
};

/* Quantized weights: a line per lane. Outside the matrix it loads the last row or unit again: a row
 * has whole units. */
template <class F, bool transposed> struct tile_weights<F, transposed, true> {
    static const int elems = 16 * F::groups, count = STEP / elems;
    static const int blocks = F::words > 10 ? 2 : 3;
    uint32_t words[count][F::words];

    static __device__ __forceinline__ const uint8_t *row_of(const gpu_mat &w, int64_t o0,
                                                            int64_t k0) {
        const int64_t row = (transposed ? k0 : o0) + gpu_here(gpu_lane());
        return gpu_row<F>(w, row < w.n_out ? row : w.n_out - 1);
    }
    static __device__ __forceinline__ int64_t unit_of(const gpu_mat &w, int64_t o0, int64_t k0,
                                                      int i) {
        const int64_t unit = (transposed ? o0 : k0) / elems + i, units = w.n_in / elems;
        return unit < units ? unit : units - 1;
    }
    __device__ __forceinline__ void begin(const gpu_mat &w, int64_t o0, int64_t k0) {
        GPU_UNROLL
        for (int i = 0; i < count; i++)
            F::fetch(row_of(w, o0, k0), w.n_in, unit_of(w, o0, k0, i), words[i]);
    }
    /* Prefetches step h of the tile at k0, n terms in all. Only quants: other fields of a block are
     * few bytes. A prefetch fetches 32 bytes: a row's part of a tile when its part of a step is 16
     * bytes. */
    static __device__ __forceinline__ void prefetch(const gpu_mat &w, int64_t o0, int64_t k0, int h,
                                                    int64_t n) {
        if (F::unit_bytes == 0 || (!transposed && count == 1 && h > 0)) return;
        const int64_t k = k0 + h * STEP;
        if (k < n) gpu_prefetch(row_of(w, o0, k) + F::unit_bytes * unit_of(w, o0, k, 0));
    }
    __device__ __forceinline__ void end(const gpu_mat &w, int64_t o0, int64_t k0, uint16_t *to) {
        GPU_UNROLL
        for (int i = 0; i < count; i++) {
            gpu_unit u;
            gpu_hold(words[i]);
            F::make(words[i], unit_of(w, o0, k0, i), u);
            uint16_t *line = to + gpu_lane() * STEP_LINE + i * elems;
            GPU_UNROLL
            for (int g = 0; g < F::groups; g++) {
                float v[16];
                tile_decode(u, g, v);
                GPU_UNROLL
                for (int j = 0; j < 16; j += CHUNK) {
                    const uint4 packed = {
                        gpu_half_pair(v[j], v[j + 1]), gpu_half_pair(v[j + 2], v[j + 3]),
                        gpu_half_pair(v[j + 4], v[j + 5]), gpu_half_pair(v[j + 6], v[j + 7])};
                    *(uint4 *)(line + 16 * g + j) = packed;
                }
            }
        }
    }
};

/* ---- the tile -------------------------------------------------------------------------------- */

template <bool bf16> struct tile_unit {
    static __device__ __forceinline__ void add(float (&s)[GPU_MMA_SUMS],
                                               const uint32_t (&w)[GPU_MMA_WORDS],
                                               const uint32_t (&x)[GPU_MMA_WORDS]) {
        gpu_multiply_f16(s, w, x);
    }
};
#if GPU_MMA_BF16
template <> struct tile_unit<true> {
    static __device__ __forceinline__ void add(float (&s)[GPU_MMA_SUMS],
                                               const uint32_t (&w)[GPU_MMA_WORDS],
                                               const uint32_t (&x)[GPU_MMA_WORDS]) {
        gpu_multiply_bf16(s, w, x);
    }
};
#endif

typedef float tile_sums[WAVE_OUT / MMA][TILE_COLS / MMA][GPU_MMA_SUMS]; /* sums of a thread */

/* Starts a tile: zeros the sums, loads the weights at k0, prefetches the next tiles up to `end`. */
template <class W>
static __device__ __forceinline__ void tile_start(const gpu_mat &mat, int64_t out, int64_t k0,
                                                  int64_t end, W (&w)[STEPS], tile_sums &s) {
    GPU_UNROLL
    for (int m = 0; m < WAVE_OUT / MMA; m++) {
        GPU_UNROLL
        for (int n = 0; n < TILE_COLS / MMA; n++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS; i++) s[m][n][i] = 0.0f;
        }
    }
    GPU_UNROLL
    for (int h = 0; h < STEPS; h++) w[h].begin(mat, out, k0 + h * STEP);
    for (int i = 1; i < PREFETCH; i++) {
        GPU_UNROLL
        for (int h = 0; h < STEPS; h++) W::prefetch(mat, out, k0 + i * TILE_SUM, h, end);
    }
}

template <class F, bool transposed> struct tile_mma {
    typedef tile_product<F, transposed> product;
    typedef tile_unit<tile_is_bf16<F>::yes> unit;
    typedef tile_weights<F, transposed, F::quantized> weights;
    /* Blocks per multiprocessor: with all values of a thread in registers; on Turing limited by
     * shared memory. */
    static const int blocks = GPU_TURING ? 2 : weights::blocks;

    struct alignas(16) shared_type {
        uint16_t w[TILE_OUT / WARP_OUT][STEP * STEP_LINE]; /* one per warp */
        uint16_t x[2][TILE_COLS * TILE_LINE];
    };
    typedef tile_sums sums;

    /* The columns that a thread copies, by chunk; -1: none, zeros follow the last column. */
    typedef int32_t sources[COLUMN_CHUNKS];

    template <class L> static __device__ __forceinline__ void find(const L &lines, sources &from) {
        GPU_UNROLL
        for (int i = 0; i < COLUMN_CHUNKS; i++) {
            const int line = ((int)threadIdx.x + i * TILE_THREADS) / (TILE_SUM / CHUNK);
            from[i] = line < lines.n ? (int32_t)lines.source(line) : -1;
        }
    }

    /* Starts to copy terms from k0 on of the tile's columns to shared memory. */
    static __device__ __forceinline__ void begin(const tile_columns &columns, const sources &from,
                                                 int64_t k0, gpu_copy16 (&copy)[COLUMN_CHUNKS],
                                                 uint16_t *to) {
        GPU_UNROLL
        for (int i = 0; i < COLUMN_CHUNKS; i++) {
            const int chunk = (int)threadIdx.x + i * TILE_THREADS;
            const int line = chunk / (TILE_SUM / CHUNK),
                      in_line = chunk % (TILE_SUM / CHUNK) * CHUNK;
            const bool there = from[i] >= 0;
            const int64_t c = there ? from[i] : 0;
            gpu_copy16_begin(copy[i], to + line * TILE_LINE + in_line,
                             columns.x + c * columns.ld + product::term(k0 + in_line), there);
        }
    }

    static __device__ __forceinline__ int wave() { return (int)threadIdx.x / GPU_MMA_LANES; }

    /* Adds a step to the sums. weights: of the wave's first warp, followed by those of its second;
     * n_cols: number of existing columns in the tile. */
    static __device__ __forceinline__ void multiply(const uint16_t *weights, const uint16_t *x,
                                                    int n_cols, sums &s) {
        GPU_UNROLL
        for (int k = 0; k < STEP; k += MMA) {
            uint32_t w[WAVE_OUT / MMA][GPU_MMA_WORDS];
            GPU_UNROLL
            for (int m = 0; m < WAVE_OUT / MMA; m++) {
                const uint16_t *of = weights + m * MMA / WARP_OUT * STEP * STEP_LINE;
                const int o = m * MMA % WARP_OUT;
                if (transposed)
                    gpu_load_fragment_t(w[m], of + k * STEP_LINE + o, STEP_LINE);
                else
                    gpu_load_fragment(w[m], of + o * STEP_LINE + k, STEP_LINE);
            }
            GPU_UNROLL
            for (int n = 0; n < TILE_COLS / MMA; n++) {
                uint32_t b[GPU_MMA_WORDS];
                if (n * MMA >= n_cols) break;
                gpu_load_fragment_b(b, x + n * MMA * TILE_LINE + k, TILE_LINE);
                GPU_UNROLL
                for (int m = 0; m < WAVE_OUT / MMA; m++) unit::add(s[m][n], w[m], b);
            }
        }
    }

    template <class L>
    static __device__ __forceinline__ void run(const gpu_matmul &a, const tile_columns &columns,
                                               const L &lines) {
        GPU_SHARED(shared_type, shared);
        const int64_t o0 = (int64_t)blockIdx.y * TILE_OUT;
        const int64_t out = o0 + gpu_warp() * WARP_OUT; /* first output of the warp */
        const tile_part part = tile_part_of(product::n_sum(a));
        const int64_t end = (int64_t)part.end * TILE_SUM;
        uint16_t *decoded = shared.w[gpu_warp()];
        weights w[STEPS];
        gpu_copy16 copy[COLUMN_CHUNKS];
        sources from;
        sums s;
        int64_t k0 = (int64_t)part.first * TILE_SUM;
        find(lines, from);
        begin(columns, from, k0, copy, shared.x[0]);
        tile_start(a.w, out, k0, end, w, s);
        gpu_copy16_end(copy);
        gpu_sync();
        for (int turn = 0; k0 < end; k0 += TILE_SUM, turn ^= 1) {
            /* The fetch after the last tile repeats that tile, unused: without a branch, loads and
             * multiplications can be interleaved. */
            const int64_t next = k0 + TILE_SUM < end ? k0 + TILE_SUM : k0;
            begin(columns, from, next, copy, shared.x[turn ^ 1]);
            GPU_UNROLL
            for (int h = 0; h < STEPS; h++) {
                w[h].end(a.w, out, k0 + h * STEP, decoded);
                w[h].begin(a.w, out, next + h * STEP);
                weights::prefetch(a.w, out, k0 + PREFETCH * TILE_SUM, h, end);
                gpu_sync_wave();
                multiply(shared.w[wave() * (WAVE_OUT / WARP_OUT)], shared.x[turn] + h * STEP,
                         lines.n, s);
                gpu_sync_wave();
            }
            gpu_copy16_end(copy);
            gpu_sync();
        }
        store(a, columns, lines, o0, s);
    }

    template <class L>
    static __device__ __forceinline__ void store(const gpu_matmul &a, const tile_columns &columns,
                                                 const L &lines, int64_t o0, const sums &s) {
        const int64_t first = o0 + wave() * WAVE_OUT;
        GPU_UNROLL
        for (int n = 0; n < TILE_COLS / MMA; n++) {
            GPU_UNROLL
            for (int i = 0; i < GPU_MMA_SUMS / GPU_MMA_OUTS; i++) {
                const int line = n * MMA + gpu_sum_column(i);
                if (line >= lines.n) continue;
                const float undo = columns.undo ? columns.undo[lines.source(line)] : 1.0f;
                const auto to = lines.target(line);
                GPU_UNROLL
                for (int j = 0; j < WAVE_OUT / MMA * GPU_MMA_OUTS; j++) {
                    const int m = j / GPU_MMA_OUTS, o = j % GPU_MMA_OUTS;
                    const int64_t position = first + m * MMA + gpu_sum_output(o);
                    if (position >= product::n_out(a)) continue;
                    lines.put(a, columns, product::output(position), to,
                              undo * s[m][n][gpu_sum_at(o, i)]);
                }
            }
        }
    }
};

#endif
#endif
