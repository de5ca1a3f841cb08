/* gpu_tile_int8.h: a tile of a prefill matmul of quantized weights on int8 tensor cores.
 *
 * Inputs are the int8 form of the columns (tile_columns.q8), as in decode and on the CPU: groups of
 * 32 elements with a scale each. Tensor cores multiply the integers of 32 terms (16, where weights
 * have a scale per 16), and their exact sums are scaled and added in float:
 *
 *   y += d * (s * sum(q * x) - m * sum(x))    d, sum(x): of the column's group; s, m: the weights'
 *
 * Weights whose minimum is a multiple of their scale (F::centre) are centred when they are decoded.
 * So only formats with separate minimums need the last product.
 *
 * A sum of products starts at the integer INT8_BIAS, the bits of the float 1.5 * 2^23, whose unit
 * in the last place is 1: the sum's bits are the float 1.5 * 2^23 + sum, without a conversion. One
 * multiply-add scales it and subtracts s * 1.5 * 2^23: s has at most 19 significant bits (half
 * times a small integer), so that the product is exact.
 *
 * The block's structure is that of gpu_tile_mma.h. A warp decodes the 64 terms of its 32 rows to
 * signed bytes in shared memory, one row per lane, in *slots* of 16 terms: slots are in an order in
 * which the two of a step of 32 terms are contiguous elements whenever they share a scale. */
#ifndef GPU_CUDA_GPU_TILE_INT8_H
#define GPU_CUDA_GPU_TILE_INT8_H

#include "gpu_tile_mma.h"

#if GPU_MMA_HERE

enum {
    SLOT = 16,
    SLOTS = TILE_SUM / SLOT,
    BYTE_LINE = TILE_SUM + 16, /* padded: eight rows of 16 bytes are in different banks */
    BYTE_CHUNKS = TILE_COLS * SLOTS / TILE_THREADS,
    INT8_BIAS = 0x4b400000
};
#define INT8_BIAS_FLOAT 12582912.0f

/* The place of a unit's group in a tile: units of Q4_K, for example, have groups 32 apart. */
template <class F> struct tile_slots {
    static const int units = TILE_SUM / (16 * F::groups); /* of a tile */
    static const bool apart = F::groups == 2 && F::distance != SLOT;
    static __device__ __forceinline__ int of(int unit, int group) {
        return apart ? group * units + unit : unit * F::groups + group;
    }
    /* First element of a slot of the tile at k0. */
    static __device__ __forceinline__ int64_t element(int64_t k0, int slot) {
        if (!apart || F::per_scale == 32) return k0 + slot * SLOT;
        return F::first(k0 / (16 * F::groups) + slot % units) + slot / units * F::distance;
    }
};

template <class F> struct tile_int8 {
    typedef tile_slots<F> slots;
    typedef tile_weights<F, false, true> weights;
    static const bool has_min = F::has_min && F::centre == 0;
    static const int parts = F::per_scale == 32 ? 1 : 2; /* scales of a row per step */
    static const int scales = STEPS * parts;             /* of a row per tile */
    static const int scale_chunks = TILE_COLS * scales / TILE_THREADS;
    static const int blocks = GPU_TURING ? 2 : weights::blocks;

    struct alignas(16) shared_type {
        uint8_t w[TILE_OUT * BYTE_LINE];
        uint8_t x[2][TILE_COLS * BYTE_LINE];
        float d[2][scales][TILE_COLS];                   /* scales of the columns */
        float total[2][has_min ? scales : 1][TILE_COLS]; /* d * sum(x); only with minimums */
        float s[scales][TILE_OUT];
        float m[has_min ? scales : 1][TILE_OUT];
    };
    typedef tile_sums sums;

    /* ---- columns ---- */

    /* Scales of columns on their way to shared memory. */
    struct column_scales {
        float d[scale_chunks], total[scale_chunks];
    };

    /* The columns whose bytes, and whose scales, a thread copies; -1: none, zeros follow the last
     * column. */
    struct sources {
        int32_t bytes[BYTE_CHUNKS], scales;
    };

    template <class L> static __device__ __forceinline__ void find(const L &lines, sources &from) {
        GPU_UNROLL
        for (int i = 0; i < BYTE_CHUNKS; i++) {
            const int line = ((int)threadIdx.x + i * TILE_THREADS) / SLOTS;
            from.bytes[i] = line < lines.n ? (int32_t)lines.source(line) : -1;
        }
        const int line = (int)threadIdx.x % TILE_COLS;
        from.scales = line < lines.n ? (int32_t)lines.source(line) : -1;
    }

    /* Starts to copy terms from k0 on of the tile's columns; zeros follow the last term. */
    static __device__ __forceinline__ void begin(const gpu_matmul &a, const tile_columns &columns,
                                                 const sources &from, int64_t k0,
                                                 gpu_copy16 (&copy)[BYTE_CHUNKS], uint8_t *to,
                                                 column_scales &scale) {
        const int64_t n = a.w.n_in;
        const size_t ld = gpu_q8_bytes(n);
        GPU_UNROLL
        for (int i = 0; i < BYTE_CHUNKS; i++) {
            const int chunk = (int)threadIdx.x + i * TILE_THREADS;
            const int line = chunk / SLOTS, slot = chunk % SLOTS;
            const int64_t k = slots::element(k0, slot);
            const bool there = from.bytes[i] >= 0 && k < n;
            const uint8_t *q = columns.q8 + (size_t)(there ? from.bytes[i] : 0) * ld;
            gpu_copy16_begin(copy[i], to + line * BYTE_LINE + slot * SLOT, q + (there ? k : 0),
                             there);
        }
        static_assert(TILE_THREADS % TILE_COLS == 0, "a thread has the scales of one column");
        GPU_UNROLL
        for (int i = 0; i < scale_chunks; i++) {
            const int place = (int)threadIdx.x + i * TILE_THREADS;
            const int slot = place / TILE_COLS * (SLOTS / scales);
            const int64_t k = slots::element(k0, slot);
            scale.d[i] = scale.total[i] = 0.0f;
            if (from.scales < 0 || k >= n) continue;
            const uint8_t *q = columns.q8 + (size_t)from.scales * ld;
            scale.d[i] = ((const float *)(q + gpu_q8_d_offset(n)))[k / 32];
            if (!has_min) continue;
            const int32_t *sum = (const int32_t *)(q + gpu_q8_sum_offset(n)) + k / 16;
            scale.total[i] = (float)(parts == 1 ? sum[0] + sum[1] : sum[0]);
        }
    }

    static __device__ __forceinline__ void end(gpu_copy16 (&copy)[BYTE_CHUNKS],
                                               const column_scales &scale, int turn,
                                               shared_type &shared) {
        GPU_UNROLL
        for (int i = 0; i < scale_chunks; i++) {
            const int place = (int)threadIdx.x + i * TILE_THREADS;
            const int line = place % TILE_COLS, at = place / TILE_COLS;
            shared.d[turn][at][line] = scale.d[i];
            if (has_min) shared.total[turn][at][line] = scale.d[i] * scale.total[i];
        }
        gpu_copy16_end(copy);
    }

    /* ---- weights ---- */

    /* Subtracts F::centre from four unsigned bytes: bytes + (128 - centre) do not carry, and the
     * inverted highest bit subtracts 128. */
    static __device__ __forceinline__ uint32_t centred(int q) {
        const uint32_t ones = 0x01010101u;
        return F::centre == 0 ? (uint32_t)q
                              : ((uint32_t)q + ones * (uint32_t)(128 - F::centre)) ^ ones * 128u;
    }

    /* Decodes the lane's row of the tile at k0. */
    static __device__ __forceinline__ void decode(const gpu_mat &mat, int64_t out, int64_t k0,
                                                  weights (&w)[STEPS], shared_type &shared) {
        const int row = gpu_warp() * WARP_OUT + gpu_lane();
        uint8_t *line = shared.w + row * BYTE_LINE;
        GPU_UNROLL
        for (int i = 0; i < slots::units; i++) {
            uint32_t(&words)[F::words] = w[i / weights::count].words[i % weights::count];
            gpu_unit u;
            gpu_hold(words);
            F::make(words, weights::unit_of(mat, out, k0, i), u);
            GPU_UNROLL
            for (int g = 0; g < F::groups; g++) {
                const int slot = slots::of(i, g), *q = u.q + 4 * g;
                const uint4 bytes = {centred(q[0]), centred(q[1]), centred(q[2]), centred(q[3])};
                *(uint4 *)(line + slot * SLOT) = bytes;
                if (slot % (SLOTS / scales)) continue;
                shared.s[slot / (SLOTS / scales)][row] = u.s[g];
                if (has_min) shared.m[slot / (SLOTS / scales)][row] = u.m[g];
            }
        }
    }

    /* ---- the tile ---- */

    /* A scale, and the product that the bias of a sum adds. */
    struct row_scale {
        float s, biased, m;
    };

    /* A thread's part of a step of 16 columns. */
    struct column_part {
        uint32_t x[GPU_MMA_WORDS];
        float d[parts][GPU_MMA_COLUMNS], total[parts][GPU_MMA_COLUMNS];
    };

    /* Loads the bytes of columns from 16 n on; below, the scales of part p. */
    static __device__ __forceinline__ void load(const shared_type &shared, int turn, int h, int n,
                                                column_part &c) {
        gpu_load_bytes_b(c.x, shared.x[turn] + n * MMA * BYTE_LINE + h * STEP, BYTE_LINE);
    }
    static __device__ __forceinline__ void load_scales(const shared_type &shared, int turn, int h,
                                                       int n, int p, column_part &c) {
        const int at = h * parts + p;
        gpu_load_column_values(c.d[p], shared.d[turn][at] + n * MMA);
        if (has_min) gpu_load_column_values(c.total[p], shared.total[turn][at] + n * MMA);
    }

    /* Adds the product of the terms of one scale to the sums of 16 outputs and 16 columns. */
    static __device__ __forceinline__ void add(float (&s)[GPU_MMA_SUMS],
                                               const int32_t (&product)[GPU_MMA_SUMS],
                                               const row_scale *row, const float *d,
                                               const float *total) {
        GPU_UNROLL
        for (int c = 0; c < GPU_MMA_COLUMNS; c++) {
            GPU_UNROLL
            for (int o = 0; o < GPU_MMA_OUTS; o++) {
                const int i = gpu_sum_at(o, c);
                const float biased = gpu_bits_float((uint32_t)product[i]);
                s[i] = gpu_fma(d[c], gpu_fma(row[o].s, biased, -row[o].biased), s[i]);
                if (has_min) s[i] = gpu_fma(-row[o].m, total[c], s[i]);
            }
        }
    }

    /* Adds step h to the sums; n_cols: number of existing columns in the tile. Where there are
     * registers for it, the next 16 columns are loaded before these are multiplied: all lines of
     * shared memory are set. A loop that ended after the last column would let clang move all
     * products behind its end, and hold the operands of all in registers until then. */
    static __device__ __forceinline__ void multiply(const shared_type &shared, int turn, int h,
                                                    int n_cols, sums &s) {
        const int first = (int)threadIdx.x / GPU_MMA_LANES * WAVE_OUT;
        uint32_t w[WAVE_OUT / MMA][GPU_MMA_WORDS];
        row_scale row[parts][WAVE_OUT / MMA][GPU_MMA_OUTS];
        const int ahead = GPU_MMA_COLUMNS == 4; /* eight columns do not fit into registers */
        column_part columns[2];
        GPU_UNROLL
        for (int m = 0; m < WAVE_OUT / MMA; m++) {
            gpu_load_bytes(w[m], shared.w + (first + m * MMA) * BYTE_LINE + h * STEP, BYTE_LINE);
            GPU_UNROLL
            for (int i = 0; i < parts * GPU_MMA_OUTS; i++) {
                const int p = i / GPU_MMA_OUTS, o = i % GPU_MMA_OUTS;
                const int at = first + m * MMA + gpu_sum_output(o);
                row[p][m][o].s = shared.s[h * parts + p][at];
                row[p][m][o].biased = INT8_BIAS_FLOAT * row[p][m][o].s;
                if (has_min) row[p][m][o].m = shared.m[h * parts + p][at];
            }
        }
        if (ahead) {
            load(shared, turn, h, 0, columns[0]);
            GPU_UNROLL
            for (int p = 0; p < parts; p++) load_scales(shared, turn, h, 0, p, columns[0]);
        }
        GPU_UNROLL
        for (int n = 0; n < TILE_COLS / MMA; n++) {
            column_part &c = columns[n % 2], &next = columns[(n + ahead) % 2];
#if defined(GPU_HIP) /* behind `break` clang would move products, with all operands alive */
            if (n * MMA >= n_cols) continue;
#else
            if (n * MMA >= n_cols) break;
#endif
            if (n + ahead < TILE_COLS / MMA) load(shared, turn, h, n + ahead, next);
            GPU_UNROLL
            for (int p = 0; p < parts; p++) {
                if (n + ahead < TILE_COLS / MMA) load_scales(shared, turn, h, n + ahead, p, next);
                GPU_UNROLL
                for (int m = 0; m < WAVE_OUT / MMA; m++) {
                    int32_t product[GPU_MMA_SUMS];
                    if (parts == 1)
                        gpu_multiply_s8(product, w[m], c.x, INT8_BIAS);
                    else
                        gpu_multiply_s8_half(product, w[m], c.x, p, INT8_BIAS);
                    add(s[m][n], product, row[p][m], c.d[p], c.total[p]);
                }
            }
        }
    }

    template <class L>
    static __device__ __forceinline__ void run(const gpu_matmul &a, const tile_columns &columns,
                                               const L &lines) {
        GPU_SHARED(shared_type, shared);
        const int64_t o0 = (int64_t)blockIdx.y * TILE_OUT;
        const int64_t out = o0 + gpu_warp() * WARP_OUT; /* first output of the warp */
        const tile_part part = tile_part_of(a.w.n_in);
        const int64_t end_of = (int64_t)part.end * TILE_SUM;
        weights w[STEPS];
        gpu_copy16 copy[BYTE_CHUNKS];
        column_scales scale;
        sources from;
        sums s;
        int64_t k0 = (int64_t)part.first * TILE_SUM;
        find(lines, from);
        begin(a, columns, from, k0, copy, shared.x[0], scale);
        tile_start(a.w, out, k0, end_of, w, s);
        end(copy, scale, 0, shared);
        gpu_sync();
        for (int turn = 0; k0 < end_of; k0 += TILE_SUM, turn ^= 1) {
            /* The fetch after the last tile repeats that tile, unused. */
            const int64_t next = k0 + TILE_SUM < end_of ? k0 + TILE_SUM : k0;
            decode(a.w, out, k0, w, shared);
            begin(a, columns, from, next, copy, shared.x[turn ^ 1], scale);
            GPU_UNROLL
            for (int h = 0; h < STEPS; h++) {
                w[h].begin(a.w, out, next + h * STEP);
                weights::prefetch(a.w, out, k0 + PREFETCH * TILE_SUM, h, end_of);
            }
            gpu_sync_wave();
            GPU_ROLLED
            for (int h = 0; h < STEPS; h++) multiply(shared, turn, h, lines.n, s);
            end(copy, scale, turn ^ 1, shared);
            gpu_sync();
        }
        tile_mma<F, false>::store(a, columns, lines, o0, s);
    }
};

#endif
#endif
