/* gpu_tile_way.h: which tile a type of weights has in a compilation. */
#ifndef GPU_CUDA_GPU_TILE_WAY_H
#define GPU_CUDA_GPU_TILE_WAY_H

#include "gpu_tile_float.h"
#include "gpu_tile_int8.h"

/* The tile for a type, with tensor cores or float units, in this compilation. `sums_groups`: a
 * quantized type whose groups of elements are terms of a sum. */
template <class F, bool transposed, bool sums_groups> struct tile_way {
#if GPU_MMA_HERE
    typedef tile_mma<F, transposed> type;
#else
    typedef tile_float<F, transposed> type;
#endif
};
#if GPU_MMA_HERE
template <class F> struct tile_way<F, false, true> { typedef tile_int8<F> type; };
#endif
template <bool transposed> struct tile_way<gpu_f32, transposed, false> {
    typedef tile_float<gpu_f32, transposed> type;
};
#if GPU_MMA_HERE && !GPU_MMA_BF16
template <bool transposed> struct tile_way<gpu_bf16, transposed, false> {
    typedef tile_float<gpu_bf16, transposed> type;
};
#endif
template <class F, bool transposed>
using tile_of = typename tile_way<F, transposed, F::quantized && !transposed>::type;

#endif
