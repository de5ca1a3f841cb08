/* gpu_formats.h: readers of packed rows (gpu_mat): one struct per type.
 *
 * A *unit* is 16 bytes of a row's quants, the amount that a lane loads at a time, but at most 32
 * values (two units share 16 bytes of two-bit quants). Two families:
 *   float weights    `floats` values per unit; multiplied with float activations.
 *   quantized ones   one or two groups of 16 values per unit, each a scale s and a minimum m:
 *                    value = s * q - m, q as signed bytes, four to a register, times int8
 *                    inputs: the group's part of a product is d * (s * sum(q * x) - m * sum(x)),
 *                    with d the input's scale, as on the CPU. `per_scale` contiguous elements, 16
 * or 32, have one scale and minimum. `centre`: a constant such that m is always centre * s, so that
 * value = s * (q - centre); 0: there is none. */
#ifndef GPU_CUDA_GPU_FORMATS_H
#define GPU_CUDA_GPU_FORMATS_H

#include "gpu_formats_32.h"
#include "gpu_formats_k.h"
#include "gpu_formats_low.h"

/* ---- float weights --------------------------------------------------------------------------- */

struct gpu_f32 {
    static const bool quantized = false;
    static const int floats = 4;
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        w[0] = gpu_bits_float(u.x);
        w[1] = gpu_bits_float(u.y);
        w[2] = gpu_bits_float(u.z);
        w[3] = gpu_bits_float(u.w);
    }
};

struct gpu_f16 {
    static const bool quantized = false;
    static const int floats = 8;
    static __device__ __forceinline__ float of(uint32_t bits) { return gpu_half_float(bits); }
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        const uint32_t v[4] = {u.x, u.y, u.z, u.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            w[2 * i] = of(v[i] & 0xffff);
            w[2 * i + 1] = of(v[i] >> 16);
        }
    }
};

struct gpu_bf16 {
    static const bool quantized = false;
    static const int floats = 8;
    static __device__ __forceinline__ void decode(const uint4 &u, float *w) {
        const uint32_t v[4] = {u.x, u.y, u.z, u.w};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) {
            w[2 * i] = gpu_bits_float(v[i] << 16);
            w[2 * i + 1] = gpu_bits_float(v[i] & 0xffff0000u);
        }
    }
};

/* Address of row r, as the format's functions expect it. */
template <class F>
static __device__ __forceinline__ const uint8_t *gpu_row(const gpu_mat &w, int64_t r) {
    const uint8_t *row = (const uint8_t *)w.data + (size_t)r * w.row_bytes;
    return gpu_is_low<F>::yes ? row + gpu_low_tag(w.type) : row;
}

/* Expands the macro FORMAT(struct) for the type. */
#define GPU_FORMAT_CASE(type, name, ...)                                                           \
    case QUANT_##type:                                                                             \
        FORMAT(gpu_##name);                                                                        \
        break;
#define GPU_FORMAT_LOW_CASE(type, ...) case QUANT_##type:
#define GPU_FORMAT_SWITCH(type)                                                                    \
    switch (type) {                                                                                \
        QUANT_PLAIN(GPU_FORMAT_CASE)                                                               \
        QUANT_BLOCKS(GPU_FORMAT_CASE)                                                              \
        QUANT_LOW(GPU_FORMAT_LOW_CASE)                                                             \
        FORMAT(gpu_low);                                                                           \
        break;                                                                                     \
    default:                                                                                       \
        assert(!"a type without kernels");                                                         \
    }

#endif
