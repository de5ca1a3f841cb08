/* gpu_tile.h: shared by the two prefill matmuls: the shape of tiles, the order of a row's elements,
 * and the end of a sum.
 *
 * A block computes TILE_OUT outputs of TILE_COLS columns, with TILE_SUM terms of the sums in shared
 * memory at a time. The order of terms and of outputs in a tile is free: elements of quantized rows
 * are in the order of units and their groups (gpu_formats.h), so that a thread decodes a whole unit
 * when it has loaded it. A *position* is an index in that order.
 *
 * `transposed` is the product over rows (down_t): a row's elements are outputs, and rows are terms;
 * otherwise a row's elements are terms, and rows are outputs. */
#ifndef GPU_CUDA_GPU_TILE_H
#define GPU_CUDA_GPU_TILE_H

#include "gpu_formats.h"

enum {
    TILE_OUT = GPU_TILE_OUT,
    TILE_COLS = GPU_TILE_COLS,
    TILE_SUM = GPU_SUM_ALIGN,
    TILE_THREADS = 128
};

/* Columns for tensor cores, in one of two forms.
 *
 * 16-bit floats, padded with zeros to a whole tile, and the factor that undoes the scale of each
 * column. Half has few exponents: a power of two scales a column so that its largest value is in
 * [2^14, 2^15). bfloat16 has the exponents of float, and a scale of 1.
 *
 * int8 (GPU_ROUND_INT8): the form of gpu_input.q8. */
struct tile_columns {
    uint16_t *x;       /* [n_cols][ld] */
    float *undo;       /* [n_cols]; NULL: columns are int8 */
    int64_t ld;        /* the sum's terms, rounded up to a multiple of TILE_SUM */
    const uint8_t *q8; /* [n_cols], gpu_q8_bytes apart */
    float *partial;    /* [gridDim.z][n_cols][n_out] partial sums; NULL: sums are not split */
    int64_t n_out;
};

/* The columns in memory of gpu_matmul_columns bytes, without partial sums. */
static inline tile_columns tile_columns_at(void *memory, gpu_rounding to, int64_t n_sum,
                                           int32_t n_cols) {
    tile_columns c = tile_columns();
    c.ld = (n_sum + TILE_SUM - 1) / TILE_SUM * TILE_SUM;
    c.x = static_cast<uint16_t *>(memory);
    c.undo = to == GPU_ROUND_INT8 ? nullptr : reinterpret_cast<float *>(c.x + c.ld * n_cols);
    c.q8 = static_cast<const uint8_t *>(memory);
    return c;
}

/* Rounds columns of n elements, or only the first *n_listed columns of a list, for tensor cores
 * (op_matmul.cu). */
struct tile_round {
    gpu_input in;
    int64_t n;
    const int32_t *list, *n_listed; /* NULL: all columns */
    tile_columns columns;
};
void tile_round_columns(gpu_stream *s, gpu_rounding to, const tile_round &a);

/* Whether tensor cores multiply the weights as bfloat16. All other 16-bit and quantized weights are
 * halves. */
template <class F> struct tile_is_bf16 { static const bool yes = false; };
template <> struct tile_is_bf16<gpu_bf16> { static const bool yes = true; };

/* The element of a row at a position. Sixteen positions from a multiple of 16 on are contiguous
 * elements. */
template <class F, bool quantized> struct tile_order;

template <class F> struct tile_order<F, false> {
    static __device__ __forceinline__ int64_t element(int64_t position) { return position; }
};

template <class F> struct tile_order<F, true> {
    static __device__ __forceinline__ int64_t element(int64_t position) {
        const uint32_t p = (uint32_t)position, in_unit = p % (16 * F::groups);
        return F::first(p / (16 * F::groups)) + (int64_t)(in_unit / 16) * F::distance + p % 16;
    }
};

/* Maps positions of tiles to elements of the product. */
template <class F, bool transposed> struct tile_product {
    typedef tile_order<F, F::quantized> order;
    static __device__ __forceinline__ int64_t n_sum(const gpu_matmul &a) {
        return transposed ? a.w.n_out : a.w.n_in;
    }
    static __device__ __forceinline__ int64_t n_out(const gpu_matmul &a) {
        return transposed ? a.w.n_in : a.w.n_out;
    }
    /* Index in a column of x of the term at a position; below, index in a column of y of the
     * output. */
    static __device__ __forceinline__ int64_t term(int64_t position) {
        return transposed ? position : order::element(position);
    }
    static __device__ __forceinline__ int64_t output(int64_t position) {
        return transposed ? order::element(position) : position;
    }
};

/* The block's part of the n tiles of a split sum: [first, end), never empty (gpu_matmul_splits). */
struct tile_part {
    int first, end;
};
static __device__ __forceinline__ tile_part tile_part_of(int64_t n_sum) {
    const int n = (int)((n_sum + TILE_SUM - 1) / TILE_SUM), parts = (int)gridDim.z;
    const int each = (n + parts - 1) / parts, first = (int)blockIdx.z * each;
    tile_part p = {first, first + each < n ? first + each : n};
    return p;
}

/* Stores y[c][o] from the complete sum. */
static __device__ __forceinline__ void tile_finish(const gpu_matmul &a, int64_t o, int64_t c,
                                                   float sum) {
    const float bias = a.bias ? a.bias[o] : 0.0f;
    const float v = a.scale_last ? a.scale * (sum + bias) : a.scale * sum + bias;
    gpu_put_product(a, a.y + c * a.ldy + o, v);
}

/* The columns of a block's tile, and what becomes of their sums. A tile takes them as an argument
 * of any type with these members: line l, 0 <= l < n <= TILE_COLS, is column source(l) of the
 * input; put takes a sum of the column's output o (with a split sum the block's part), and
 * target(l). These are the columns of a matmul; op_experts_tile.cu has those of an expert. */
struct tile_range {
    int64_t c0; /* the first column */
    int n;
    __device__ __forceinline__ int64_t source(int line) const { return c0 + line; }
    __device__ __forceinline__ int64_t target(int line) const { return c0 + line; }
    __device__ __forceinline__ void put(const gpu_matmul &a, const tile_columns &columns, int64_t o,
                                        int64_t c, float sum) const {
        if (columns.partial)
            columns.partial[((int64_t)blockIdx.z * a.in.n_cols + c) * columns.n_out + o] = sum;
        else
            tile_finish(a, o, c, sum);
    }
};
static __device__ __forceinline__ tile_range tile_range_of(const gpu_matmul &a) {
    const int64_t c0 = (int64_t)blockIdx.x * TILE_COLS, left = a.in.n_cols - c0;
    tile_range r = {c0, left < TILE_COLS ? (int)left : (int)TILE_COLS};
    return r;
}

/* Converts four signed bytes to floats. Conversion instructions are slow; instead, byte + 128
 * (unsigned) in the low bits of 2^23 gives the float 2^23 + 128 + byte. */
static __device__ __forceinline__ void tile_floats(int bytes, float *v) {
    const uint32_t biased = (uint32_t)bytes ^ 0x80808080u,
                   exponent = 0x4b000000u; /* bits of 2^23 */
    GPU_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = gpu_bits_float(gpu_bytes(biased, exponent, 0x7540u | (uint32_t)i)) - 8388736.0f;
}

/* Decodes the 16 values of a unit's group. */
static __device__ __forceinline__ void tile_decode(const gpu_unit &u, int g, float *v) {
    GPU_UNROLL
    for (int i = 0; i < 4; i++) tile_floats(u.q[4 * g + i], v + 4 * i);
    GPU_UNROLL
    for (int i = 0; i < 16; i++) v[i] = u.s[g] * v[i] - u.m[g];
}

#endif
