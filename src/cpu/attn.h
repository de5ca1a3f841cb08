/* attn.h: shared by the attention kernels of all tiers: the block of positions and the layout of
 * the caller's scratch. Private to src/cpu.
 *
 * scratch, in floats: scores [ATTN_TILE][ATTN_SCORES] | K block [ATTN_BLOCK][hd] | V block
 * [ATTN_BLOCK][hd], with hd = head_dim rounded up to 16, so that every part is 64-byte aligned. */
#ifndef CPU_ATTN_H
#define CPU_ATTN_H

#include "cpu.h"

enum {
    /* Positions per step of the online softmax: enough to amortise the loads and stores of the
     * states, and few enough that a block of F16 keys and one of values (head_dim 128: 16 KiB each)
     * fit into L1 together. */
    ATTN_BLOCK = 64,
    ATTN_TILE = 8,                 /* maximum queries per tile, multiplied with a block at once */
    ATTN_SCORES = ATTN_BLOCK + 16, /* floats per query: the last vector may extend beyond the end */
};

static inline size_t attn_padded_dim(int head_dim) {
    return ((size_t)head_dim + 15) & ~(size_t)15;
}

static inline int attn_value_dim(const cpu_attn *a) {
    return a->v_dim ? a->v_dim : a->head_dim;
}

/* Part [lo, hi) of block [j, j + n), relative to j, to which query i attends. False: none. */
static inline bool attn_visible(const cpu_attn *a, int i, int64_t j, int n, int *lo, int *hi) {
    int64_t from = a->first[i] - j, to = a->limit[i] - j;
    *lo = from < 0 ? 0 : from > n ? n : (int)from;
    *hi = to > n ? n : to < 0 ? 0 : (int)to;
    return *lo < *hi;
}

/* ALiBi's slope of query i; 0: none. */
static inline float attn_slope(const cpu_attn *a, int i) {
    return a->slopes ? a->slopes[i % a->n_slopes] : 0;
}

#endif
