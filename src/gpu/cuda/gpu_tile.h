/* gpu_tile.h: what the two prefill matmuls share: the shape of tiles, the order in which a row's
 * elements are taken, and what is done with a finished sum.
 *
 * A block makes OUT_TILE outputs for COL_TILE columns; SUM_TILE terms of the sums lie in shared
 * memory at a time. Neither the order of a sum's terms nor that of a tile's outputs matters:
 * elements of quantized rows are taken in the order of units and their groups (gpu_formats.h), so
 * that a thread decodes all of a unit when it has loaded it. A *position* is a
 * place in that order.
 *
 * `transposed` is the product over rows (down_t): outputs run along a row's elements, terms from
 * row to row; else it is the other way round. */
#ifndef GPU_CUDA_GPU_TILE_H
#define GPU_CUDA_GPU_TILE_H

#include "gpu_formats.h"

enum {
    TILE_OUT = GPU_TILE_OUT,
    TILE_COLS = GPU_TILE_COLS,
    TILE_SUM = GPU_SUM_ALIGN,
    TILE_THREADS = 128
};

/* Columns as tensor cores take them: 16-bit floats, zeros behind the last up to a whole tile, and
 * for each the factor that undoes its scale. Half has few exponents: a column is scaled by a power
 * of two that puts its largest value into [2^14, 2^15). bfloat16 has float's, and a scale of 1. */
struct tile_columns {
    uint16_t *x;    /* [n_cols][ld] */
    float *undo;    /* [n_cols] */
    int64_t ld;     /* the sum's terms, rounded up to a multiple of TILE_SUM */
    float *partial; /* [gridDim.z][n_cols][n_out] sums of parts; NULL: there is one */
    int64_t n_out;
};

/* Whether tensor cores take the weights as bfloat16. All other 16-bit and quantized ones are
 * halves. */
template <class F> struct tile_is_bf16 { static const bool yes = false; };
template <> struct tile_is_bf16<gpu_bf16> { static const bool yes = true; };

/* The element of a row at a position. Sixteen positions from a multiple of 16 on are neighbours. */
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

/* The product as tiles see it. */
template <class F, bool transposed> struct tile_product {
    typedef tile_order<F, F::quantized> order;
    static __device__ __forceinline__ int64_t n_sum(const gpu_matmul &a) {
        return transposed ? a.w.n_out : a.w.n_in;
    }
    static __device__ __forceinline__ int64_t n_out(const gpu_matmul &a) {
        return transposed ? a.w.n_in : a.w.n_out;
    }
    /* Where in a column of x the term at a position is, and in one of y the output. */
    static __device__ __forceinline__ int64_t term(int64_t position) {
        return transposed ? position : order::element(position);
    }
    static __device__ __forceinline__ int64_t output(int64_t position) {
        return transposed ? order::element(position) : position;
    }
};

/* The block's part of n tiles of a sum: [first, end), never empty (gpu_matmul_splits). */
struct tile_part {
    int first, end;
};
static __device__ __forceinline__ tile_part tile_part_of(int64_t n_sum) {
    const int n = (int)((n_sum + TILE_SUM - 1) / TILE_SUM), parts = (int)gridDim.z;
    const int each = (n + parts - 1) / parts, first = (int)blockIdx.z * each;
    tile_part p = {first, first + each < n ? first + each : n};
    return p;
}

/* y[c][o] from the finished sum. */
static __device__ __forceinline__ void tile_finish(const gpu_matmul &a, int64_t o, int64_t c,
                                                   float sum) {
    const float bias = a.bias ? a.bias[o] : 0.0f;
    const float v = a.scale_last ? a.scale * (sum + bias) : a.scale * sum + bias;
    gpu_put_product(a, a.y + c * a.ldy + o, v);
}

/* y[c][o], or a part of its sum, from the block's part of the sum. */
static __device__ __forceinline__ void tile_store(const gpu_matmul &a, const tile_columns &columns,
                                                  int64_t o, int64_t c, float sum) {
    if (columns.partial)
        columns.partial[((int64_t)blockIdx.z * a.in.n_cols + c) * columns.n_out + o] = sum;
    else
        tile_finish(a, o, c, sum);
}

/* Four signed bytes as floats. Conversions are slow instructions; a byte (plus 128, to be unsigned)
 * put into the low bits of 2^23 makes a float that is too large by just that. */
static __device__ __forceinline__ void tile_floats(int bytes, float *v) {
    const uint32_t biased = (uint32_t)bytes ^ 0x80808080u, exponent = 0x4b000000u; /* of 2^23 */
    GPU_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = gpu_bits_float(gpu_bytes(biased, exponent, 0x7540u | (uint32_t)i)) - 8388736.0f;
}

/* The sixteen values of a unit's group. */
static __device__ __forceinline__ void tile_decode(const gpu_unit &u, int g, float *v) {
    GPU_UNROLL
    for (int i = 0; i < 4; i++) tile_floats(u.q[4 * g + i], v + 4 * i);
    GPU_UNROLL
    for (int i = 0; i < 16; i++) v[i] = u.s[g] * v[i] - u.m[g];
}

#endif
