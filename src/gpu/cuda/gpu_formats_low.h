/* gpu_formats_low.h: the formats of three bits and less, from their description in quant_low.h.
 *
 * These formats are rare, and their decoders long. So kernels are compiled once for all of them,
 * and one function decodes a unit of any type; the lowest bits of a row's address hold the type
 * (rows are aligned to GPU_ROW_ALIGN). Rows are as on the host; a unit is 32 elements. */
#ifndef GPU_CUDA_GPU_FORMATS_LOW_H
#define GPU_CUDA_GPU_FORMATS_LOW_H

#include "gpu_unit.h"
#include "quant_grids.h"

/* Code books stay packed: extracting a byte takes few instructions. */
#define GPU_GRID_POINT(v) (uint16_t)(v)
#define GPU_GRID_ROW(...) QUANT_GRID_ROW(GPU_GRID_POINT, __VA_ARGS__)
static __device__ GPU_TABLE uint16_t gpu_grid_iq2_xxs[256] = {QUANT_GRID_IQ2_XXS(GPU_GRID_ROW)};
static __device__ GPU_TABLE uint16_t gpu_grid_iq2_xs[512] = {QUANT_GRID_IQ2_XS(GPU_GRID_ROW)};
static __device__ GPU_TABLE uint16_t gpu_grid_iq2_s[1024] = {QUANT_GRID_IQ2_S(GPU_GRID_ROW)};
static __device__ GPU_TABLE uint16_t gpu_grid_iq1[2048] = {QUANT_GRID_IQ1(GPU_GRID_ROW)};
static __device__ GPU_TABLE uint16_t gpu_grid_iq3_xxs[256] = {QUANT_GRID_IQ3_XXS(GPU_GRID_ROW)};
static __device__ GPU_TABLE uint16_t gpu_grid_iq3_s[512] = {QUANT_GRID_IQ3_S(GPU_GRID_ROW)};

#define low_point_iq2_xxs low_point_iq2
#define low_point_iq2_xs  low_point_iq2
#define low_point_iq2_s   low_point_iq2

#define LOW_FN            static __device__ __forceinline__
#define LOW_HALF(h)       gpu_half_float(h)
#define LOW_GRID(name, i) low_point_##name(gpu_grid_##name[i])
#include "quant_low.h"

#define GPU_LOW_TAG(type, ...) GPU_LOW_##type,
enum { GPU_LOW_NONE, QUANT_LOW(GPU_LOW_TAG) GPU_LOW_END };
#undef GPU_LOW_TAG
static_assert((int)GPU_LOW_END <= (int)GPU_ROW_ALIGN, "tags are the low bits of addresses");

static __device__ __forceinline__ size_t gpu_low_tag(quant_type type) {
    switch (type) {
#define GPU_LOW_TAG(type, ...)                                                                     \
    case QUANT_##type:                                                                             \
        return GPU_LOW_##type;
        QUANT_LOW(GPU_LOW_TAG)
#undef GPU_LOW_TAG
    default:
        return GPU_LOW_NONE;
    }
}

static __device__ GPU_NOINLINE void gpu_low_load(const uint8_t *tagged, int64_t unit, gpu_unit &u) {
    const size_t tag = (size_t)tagged % GPU_ROW_ALIGN;
    quant_group group;
    switch (tag) {
#define GPU_LOW_CASE(type, name, number, elems, ...)                                               \
    case GPU_LOW_##type: {                                                                         \
        const block_##name *b = (const block_##name *)(tagged - tag) + unit / (elems / 32);        \
        name##_group(b, (int)(unit % (elems / 32)), name##_unit(b), &group);                       \
        break;                                                                                     \
    }
        QUANT_LOW(GPU_LOW_CASE)
#undef GPU_LOW_CASE
    default:
        return;
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        u.q[2 * i] = (int)(uint32_t)group.q[i];
        u.q[2 * i + 1] = (int)(uint32_t)(group.q[i] >> 32);
    }
    u.s[0] = group.scale[0], u.s[1] = group.scale[1];
    u.m[0] = u.m[1] = 0;
}

struct gpu_low {
    static const bool quantized = true;
    static const int groups = 2, words = 3, unit_bytes = 0;
    static const int per_scale = 16, centre = 0;
    static const bool has_min = false;
    static __device__ __forceinline__ int64_t units(int64_t n) { return n / 32; }
    static const int distance = 16;
    static __device__ __forceinline__ int64_t first(int64_t unit) { return 32 * unit; }
    /* Only keeps the address: blocks differ too much to load their fields here. */
    static __device__ __forceinline__ void fetch(const uint8_t *row, int64_t n, int64_t unit,
                                                 uint32_t *w) {
        (void)n;
        w[0] = (uint32_t)(uintptr_t)row, w[1] = (uint32_t)((uint64_t)(uintptr_t)row >> 32);
        w[2] = (uint32_t)unit;
    }
    static __device__ __forceinline__ void make(const uint32_t *w, int64_t unit, gpu_unit &u) {
        (void)unit;
        gpu_low_load((const uint8_t *)(uintptr_t)((uint64_t)w[1] << 32 | w[0]), (int64_t)w[2], u);
    }
};

template <class F> struct gpu_is_low { static const bool yes = false; };
template <> struct gpu_is_low<gpu_low> { static const bool yes = true; };

#endif
