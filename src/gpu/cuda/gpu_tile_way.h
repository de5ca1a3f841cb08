/* gpu_tile_way.h: which tile a type of weights has in a compilation. */
#ifndef GPU_CUDA_GPU_TILE_WAY_H
#define GPU_CUDA_GPU_TILE_WAY_H

#include "gpu_tile_float.h"
#include "gpu_tile_mma.h"

/* The tile for a type, with tensor cores or float units, in this compilation. */
template <class F, bool transposed> struct tile_way {
#if GPU_MMA_HERE
    typedef tile_mma<F, transposed> type;
#else
    typedef tile_float<F, transposed> type;
#endif
};
template <bool transposed> struct tile_way<gpu_f32, transposed> {
    typedef tile_float<gpu_f32, transposed> type;
};
#if GPU_MMA_HERE && !GPU_MMA_BF16
template <bool transposed> struct tile_way<gpu_bf16, transposed> {
    typedef tile_float<gpu_bf16, transposed> type;
};
#endif

#endif
