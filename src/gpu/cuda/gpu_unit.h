/* gpu_unit.h: building blocks of the readers of quantized formats: bits to bytes, tables, scales.
 *
 * They process four small integers at a time, one per byte of a register. */
#ifndef GPU_CUDA_GPU_UNIT_H
#define GPU_CUDA_GPU_UNIT_H

#include "gpu_kernel.h"
#include "quant_blocks.h"

/* A decoded unit: `groups` groups of 16 values. The first starts at element first(unit) of the row,
 * the second `distance` elements later. */
struct gpu_unit {
    int q[8]; /* group g: q[4g .. 4g+3] */
    float s[2], m[2];
};

/* Loads 16 bytes as words. */
static __device__ __forceinline__ void gpu_words16(const uint8_t *p, uint32_t *w) {
    const uint4 v = gpu_load16(p);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
static __device__ __forceinline__ uint32_t gpu_short_at(const uint8_t *p) {
    return *(const uint16_t *)p;
}

/* A format's `fetch` only loads the F::words words of a unit, so that many loads can be in flight;
 * `make` decodes them. This function does both: */
template <class F>
static __device__ __forceinline__ void gpu_load_unit(const uint8_t *row, int64_t n, int64_t unit,
                                                     gpu_unit &u) {
    uint32_t w[F::words];
    F::fetch(row, n, unit, w);
    F::make(w, unit, u);
}

/* 2^(e - 128), like quant_e8m0_half: the table of E2M1 holds doubled values. */
static __device__ __forceinline__ float gpu_e8m0_half(uint32_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : e == 255 ? 0x7fc00000u : (e - 1) << 23;
    return gpu_bits_float(bits);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Four bytes' low and high nibbles. */
static __device__ __forceinline__ void gpu_split_nibbles(const uint32_t *w, int *q) {
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = (int)(w[i] & 0x0f0f0f0fu);
        q[4 + i] = (int)(w[i] >> 4 & 0x0f0f0f0fu);
    }
}

/* Adds one more bit above each of four integers, from bytes of 0 or 1. With `centred` integers the
 * bit is the inverted sign: `above` is all ones from this bit upward. */
template <bool centred>
static __device__ __forceinline__ int gpu_add_bit(int q, uint32_t bits, uint32_t above) {
    const uint32_t set = centred ? bits ^ 0x01010101u : bits;
    return (int)((uint32_t)q | set * above);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Entries 4w .. 4w + 3 of a table of 16 signed bytes. */
constexpr uint32_t gpu_table_word(const int8_t (&t)[16], int w) {
    return (uint32_t)(t[4 * w] & 0xff) | (uint32_t)(t[4 * w + 1] & 0xff) << 8 |
           (uint32_t)(t[4 * w + 2] & 0xff) << 16 | (uint32_t)(t[4 * w + 3] & 0xff) << 24;
}

constexpr int8_t gpu_iq4_values[16] = {QUANT_IQ4_VALUES};
constexpr int8_t gpu_e2m1_values[16] = {QUANT_E2M1_VALUES};

struct gpu_iq4_table {
    static constexpr uint32_t w0 = gpu_table_word(gpu_iq4_values, 0);
    static constexpr uint32_t w1 = gpu_table_word(gpu_iq4_values, 1);
    static constexpr uint32_t w2 = gpu_table_word(gpu_iq4_values, 2);
    static constexpr uint32_t w3 = gpu_table_word(gpu_iq4_values, 3);
};

struct gpu_e2m1_table {
    static constexpr uint32_t w0 = gpu_table_word(gpu_e2m1_values, 0);
    static constexpr uint32_t w1 = gpu_table_word(gpu_e2m1_values, 1);
    static constexpr uint32_t w2 = gpu_table_word(gpu_e2m1_values, 2);
    static constexpr uint32_t w3 = gpu_table_word(gpu_e2m1_values, 3);
};

/* Looks up four nibbles: in both halves of the table by the low three bits, then selects one of the
 * two results by the fourth bit. */
template <class T> static __device__ __forceinline__ uint32_t gpu_look_up(uint32_t nibbles) {
    const uint32_t index = nibbles & 0x7777u;
    const uint32_t low = gpu_bytes(T::w0, T::w1, index), high = gpu_bytes(T::w2, T::w3, index);
    const uint32_t mask = gpu_bytes(0, 0xffffffffu, nibbles >> 1 & 0x4444u);
    return (low & ~mask) | (high & mask);
}

#endif
