/* gpu_select.h: the ascending list of neurons that any column selected, from bitmaps, by one thread
 * block: each thread has a word of their union; prefix sums over lanes and warps give the positions
 * in the list. */
#ifndef GPU_CUDA_GPU_SELECT_H
#define GPU_CUDA_GPU_SELECT_H

#include "gpu_block.h"

/* NaN counts as selected. */
static __device__ __forceinline__ bool gpu_is_selected(const gpu_select &a, float score) {
    return !(score < a.cut);
}

/* Word w of the union, limited to neurons below n_list. */
static __device__ __forceinline__ uint32_t gpu_union_word(const gpu_select &a, const uint32_t *bits,
                                                          int64_t w) {
    const int64_t n_words = (a.n + 31) / 32, left = a.n_list - 32 * w;
    uint32_t word = 0;
    if (left <= 0) return 0;
    for (int64_t c = 0; c < a.n_cols; c++) word |= bits[c * n_words + w];
    return left < 32 ? word & ((1u << left) - 1u) : word;
}

/* Sum of v, at most 32, over the lanes before this one. */
static __device__ __forceinline__ int32_t gpu_sum_before(int32_t v) {
    const uint32_t before = (1u << gpu_lane()) - 1u;
    int32_t sum = 0;
    GPU_UNROLL
    for (int b = 0; b < 6; b++) sum += gpu_popcount(gpu_ballot((v >> b & 1) != 0) & before) << b;
    return sum;
}

/* Called by all threads of a block of WARPS warps. bits: [n_cols][n_words]. `counts` is shared
 * memory; its halves alternate, because a warp may be a round ahead. */
template <int WARPS>
static __device__ __forceinline__ void gpu_write_list(const gpu_select &a, const uint32_t *bits,
                                                      int32_t (&counts)[2][WARPS]) {
    const int64_t n_words = (a.n_list + 31) / 32;
    int32_t before = 0; /* neurons listed in earlier rounds */
    int turn = 0;
    for (int64_t first = 0; first < n_words; first += WARPS * GPU_WARP, turn ^= 1) {
        const int64_t w = first + threadIdx.x;
        const uint32_t word = gpu_union_word(a, bits, w);
        const int32_t n = gpu_popcount(word), in_warp = gpu_sum_before(n);
        if (gpu_lane() == GPU_WARP - 1) counts[turn][gpu_warp()] = in_warp + n;
        gpu_sync();
        int32_t place = before + in_warp;
        for (int i = 0; i < WARPS; i++) {
            if (i < gpu_warp()) place += counts[turn][i];
            before += counts[turn][i];
        }
        for (int j = 0; j < 32; j++)
            if (word >> j & 1u) a.list[place++] = (int32_t)(32 * w) + j;
    }
    if (threadIdx.x == 0) *a.count = before;
}

#endif
