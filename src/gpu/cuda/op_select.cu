/* op_select.cu: bitmaps of selected neurons, and the ascending list of neurons that any column
 * selected.
 *
 * For bitmaps alone there is one thread per neuron and column. With a list one block makes bitmaps
 * and list, in rounds of 16 K neurons: launching a second kernel would take longer. A warp makes a
 * word from 32 scores, with loads of AHEAD words in flight. Then each thread has a word; prefix
 * sums over lanes and warps give the positions in the list. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum { BIT_THREADS = 256, WARPS = 16, LIST_THREADS = WARPS * GPU_WARP, AHEAD = 8 };

static __device__ __forceinline__ float score_of(const gpu_select &a, int64_t c, int64_t i) {
    return a.v[c * a.ldv + i] + (a.bias ? a.bias[i] : 0.0f);
}
/* NaN counts as selected. */
static __device__ __forceinline__ bool is_selected(const gpu_select &a, float score) {
    return !(score < a.cut);
}

static __global__ void __launch_bounds__(BIT_THREADS) bits_kernel(gpu_select a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * BIT_THREADS + threadIdx.x;
    const uint32_t word = gpu_ballot(i < a.n && is_selected(a, score_of(a, c, i)));
    if (gpu_lane() == 0 && i < a.n) a.bitmap[c * ((a.n + 31) / 32) + i / 32] = word;
}

struct select_shared {
    uint32_t word[LIST_THREADS]; /* words of this round: union over columns */
    int32_t count[2][WARPS];     /* alternating: a warp may be a round ahead */
};

/* Makes words first + warp, first + warp + WARPS, .. of the bitmaps, and in `words` of their
 * union. */
static __device__ __forceinline__ void make_words(const gpu_select &a, int64_t first,
                                                  uint32_t *words) {
    const int64_t n_words = (a.n + 31) / 32;
    for (int j = gpu_warp(); j < LIST_THREADS; j += AHEAD * WARPS) {
        uint32_t any[AHEAD] = {0};
        if (first + j >= n_words) break;
        for (int64_t c = 0; c < a.n_cols; c++) {
            float v[AHEAD];
            GPU_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                const int64_t i = 32 * (first + j + k * WARPS) + gpu_lane();
                v[k] = i < a.n ? score_of(a, c, i) : 0.0f;
            }
            GPU_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                const int64_t w = first + j + k * WARPS;
                const uint32_t word = gpu_ballot(32 * w + gpu_lane() < a.n && is_selected(a, v[k]));
                if (a.bitmap && gpu_lane() == 0 && w < n_words) a.bitmap[c * n_words + w] = word;
                any[k] |= word;
            }
        }
        GPU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (gpu_lane() == 0) words[j + k * WARPS] = any[k];
    }
}

/* Word w of the union, limited to neurons below n_list. */
static __device__ __forceinline__ uint32_t union_word(const gpu_select &a, int64_t w,
                                                      const uint32_t *words) {
    const int64_t n_words = (a.n + 31) / 32, left = a.n_list - 32 * w;
    uint32_t word = 0;
    if (left <= 0) return 0;
    if (a.v) word = words[threadIdx.x];
    for (int64_t c = 0; !a.v && c < a.n_cols; c++) word |= a.bits_in[c * n_words + w];
    return left < 32 ? word & ((1u << left) - 1u) : word;
}

/* Sum of v, at most 32, over the lanes before this one. */
static __device__ __forceinline__ int32_t sum_before(int32_t v) {
    const uint32_t before = (1u << gpu_lane()) - 1u;
    int32_t sum = 0;
    GPU_UNROLL
    for (int b = 0; b < 6; b++) sum += gpu_popcount(gpu_ballot((v >> b & 1) != 0) & before) << b;
    return sum;
}

struct list_args {
    gpu_select select;
    gpu_send send; /* epoch NULL: no message */
};

/* Sends the bitmaps, which other threads have written before a barrier. */
static __device__ __forceinline__ void send_bitmaps(const list_args &args) {
    const int64_t n = args.select.n_cols * ((args.select.n + 31) / 32);
    const uint64_t epoch = gpu_send_epoch(args.send);
    for (int64_t i = threadIdx.x; epoch && i < n; i += LIST_THREADS)
        args.send.host_bits[i] = args.select.bitmap[i];
    gpu_send_end(args.send, epoch, 1, nullptr);
}

static __global__ void __launch_bounds__(LIST_THREADS) list_kernel(list_args args) {
    gpu_begin();
    GPU_SHARED(select_shared, shared);
    const gpu_select &a = args.select;
    const int64_t n_words = ((a.bitmap ? a.n : a.n_list) + 31) / 32;
    int32_t before = 0; /* neurons listed in earlier rounds */
    int turn = 0;
    for (int64_t first = 0; first < n_words; first += LIST_THREADS, turn ^= 1) {
        const int64_t w = first + threadIdx.x;
        if (a.v) make_words(a, first, shared.word);
        gpu_sync();
        const uint32_t word = union_word(a, w, shared.word);
        const int32_t n = gpu_popcount(word), in_warp = sum_before(n);
        if (gpu_lane() == GPU_WARP - 1) shared.count[turn][gpu_warp()] = in_warp + n;
        gpu_sync();
        int32_t place = before + in_warp;
        for (int i = 0; i < WARPS; i++) {
            if (i < gpu_warp()) place += shared.count[turn][i];
            before += shared.count[turn][i];
        }
        for (int j = 0; j < 32; j++)
            if (word >> j & 1u) a.list[place++] = (int32_t)(32 * w) + j;
    }
    if (threadIdx.x == 0) *a.count = before;
    if (args.send.epoch) send_bitmaps(args); /* behind the barriers of the last round */
}

void gpu_op_select(gpu_stream *s, const gpu_select *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->n_list <= a->n);
    assert(a->v ? !a->bits_in : a->bits_in && !a->bitmap);
    assert(!a->list || a->count);
    if (!a->list && a->bitmap && a->n > 0) {
        const gpu_grid grid = {gpu_blocks(a->n, BIT_THREADS), (unsigned)a->n_cols, 1, BIT_THREADS};
        gpu_launch<bits_kernel>(s, grid, *a);
    }
    if (!a->list) return;
    const gpu_grid grid = {1, 1, 1, LIST_THREADS};
    assert(!a->send || (a->bitmap && !a->send->idle.choices));
    list_args args = {*a, {}};
    if (a->send) args.send = *a->send;
    gpu_launch<list_kernel>(s, grid, args);
}
