/* tier_axpy.h: sums of selected rows times factors, for few columns. A template: each tier's
 * _axpy.c includes it once, after its formats.
 *
 * Memory is the limit: rows are not contiguous, and each is a stream that ends after a few KiB. So
 * AX_ROWS rows are processed at a time, as that many streams, and sums are loaded and stored once
 * for all of them. While a group of rows is computed, the corresponding lines of a later group are
 * prefetched one by one between the arithmetic, so that loads are always in flight and the first
 * lines of a row have arrived when it is computed.
 *
 * Each element's sum is one chain of multiply-adds in the order of the list, independent of the
 * groups: a list may be split anywhere. Rows with a factor of 0 are skipped. Several columns
 * process a block of the list in turn; for all columns except the first its rows come from L2. */
#ifndef CPU_TIER_AXPY_H
#define CPU_TIER_AXPY_H

#include <string.h>

#include "simd.h"
#include "tier_floats.h"
#include "tiers.h"

enum {
    AX_ROWS = 4,
    AX_BLOCK = 64, /* rows of a block: 272 KiB of Q8_0 at n_in 4096 */
    AX_LINE = 64
};

/* Rows and their factors; n < AX_ROWS only in the last group of a list. */
typedef struct ax_group {
    const uint8_t *p[AX_ROWS];
    float h[AX_ROWS];
    int n;
} ax_group;

/* Unrolled on tiers whose decoders then shift by constants; the steps that begin a cache line are
 * then also constant. Compilers would gather the prefetches of an unrolled loop into bursts, which
 * costs a tenth of the speed: AX_IN_ORDER is a barrier for the compiler. */
#if defined(__AVX512F__)
#define AX_UNROLL _Pragma("GCC unroll 1")
enum { AX_UNROLLED = 0 };
#else
#define AX_UNROLL SIMD_UNROLL
enum { AX_UNROLLED = 1 };
#endif
#define AX_IN_ORDER __asm__ volatile("" : : : "memory")

/* Offset of the first line to prefetch in a step at byte `at` of a chunk: each line is prefetched
 * once. A loop that is not unrolled would have to compute the offset, and may prefetch a line
 * twice. */
SIMD_INLINE int ax_first_line(int at) {
    return AX_UNROLLED ? (at + AX_LINE - 1) / AX_LINE * AX_LINE : at;
}

/* Adds a chunk of n_rows rows times their factors to acc; prefetches lines at the same place of the
 * rows `next`. */
SIMD_INLINE void ax_chunk(const q_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                          const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc) {
    const int step_bytes = (int)q_bytes(f, Q_CHUNK) / W_STEPS;
    w_scales scales[AX_ROWS];
    for (int r = 0; r < n_rows; r++) w_store_scales(f, p[r], h[r], &scales[r]);
    AX_UNROLL
    for (int j = 0; j < W_STEPS; j++) {
        vf sum[W_VECTORS];
        for (int i = 0; i < W_VECTORS; i++) sum[i] = vf_load(acc + W_STEP * j + VF_N * i);
        for (int r = 0; r < n_rows; r++) {
            vf v[W_VECTORS];
            w_step(f, p[r], j, &scales[r], v);
            for (int b = ax_first_line(step_bytes * j); b < step_bytes * (j + 1); b += AX_LINE)
                SIMD_PREFETCH(next[r] + b);
            for (int i = 0; i < W_VECTORS; i++)
                sum[i] = vf_fma(v[i], vf_set1(w_factor(f, &scales[r], j, i, h[r])), sum[i]);
        }
        for (int i = 0; i < W_VECTORS; i++) vf_store(acc + W_STEP * j + VF_N * i, sum[i]);
        if (AX_UNROLLED) AX_IN_ORDER;
    }
}

/* The last elements of rows, fewer than a chunk, in copies padded with zeros. */
SIMD_INLINE void ax_tail(const q_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                         const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc,
                         int64_t n) {
    uint8_t tail[AX_ROWS][W_BYTES_MAX];
    const uint8_t *at[AX_ROWS];
    float sums[Q_CHUNK];
    size_t size = (size_t)n * sizeof *acc;
    for (int r = 0; r < n_rows; r++) at[r] = w_padded(f, p[r], n, tail[r]);
    memset(sums, 0, sizeof sums);
    memcpy(sums, acc, size);
    ax_chunk(f, n_rows, at, h, next, sums);
    memcpy(acc, sums, size);
}

/* n_rows rows from row `first` of a group on. */
SIMD_INLINE void ax_rows(const q_format *f, const int n_rows, const cpu_mat *w,
                         const ax_group *group, int first, const ax_group *after, float *acc) {
    const uint8_t *p[AX_ROWS], *next[AX_ROWS];
    for (int r = 0; r < n_rows; r++) {
        p[r] = group->p[first + r];
        next[r] = after->p[first + r];
    }
    int64_t j = 0;
    for (; j + Q_CHUNK <= w->n_in; j += Q_CHUNK) {
        ax_chunk(f, n_rows, p, group->h + first, next, acc + j);
        for (int r = 0; r < n_rows; r++) {
            p[r] += q_bytes(f, Q_CHUNK);
            next[r] += q_bytes(f, Q_CHUNK);
        }
    }
    if (j < w->n_in) ax_tail(f, n_rows, p, group->h + first, next, acc + j, w->n_in - j);
}

/* Takes the next rows of the list whose factor is not 0; advances *i. */
SIMD_INLINE void ax_take(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h,
                         int64_t *i, ax_group *out) {
    out->n = 0;
    for (; *i < n_rows && out->n < AX_ROWS; ++*i) {
        if (h[*i] == 0.0f) continue;
        out->p[out->n] = (const uint8_t *)w->data + (size_t)rows[*i] * w->row_bytes;
        out->h[out->n++] = h[*i];
    }
    /* prefetching needs some address */
    for (int r = out->n; r < AX_ROWS; r++) out->p[r] = r ? out->p[r - 1] : w->data;
}

SIMD_INLINE void ax_column(const q_format *f, const cpu_mat *w, const int32_t *rows, int64_t n_rows,
                           const float *h, float *acc) {
    ax_group group[2];
    int64_t taken = 0;
    ax_take(w, rows, n_rows, h, &taken, &group[0]);
    for (int g = 0;; g ^= 1) {
        ax_group *now = &group[g], *next = &group[g ^ 1];
        ax_take(w, rows, n_rows, h, &taken, next);
        if (now->n < AX_ROWS) {
            for (int r = 0; r < now->n; r++) ax_rows(f, 1, w, now, r, next, acc);
            return;
        }
        ax_rows(f, AX_ROWS, w, now, 0, next, acc);
    }
}

SIMD_INLINE void ax_run(const q_format *f, const cpu_mat *w, const int32_t *rows, int64_t n_rows,
                        const float *h, int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc) {
    const int64_t block = n_cols > 1 ? AX_BLOCK : n_rows;
    for (int64_t i = 0; i < n_rows; i += block) {
        int64_t n = n_rows - i < block ? n_rows - i : block;
        for (int64_t c = 0; c < n_cols; c++)
            ax_column(f, w, rows + i, n, h + c * ldh + i, acc + c * ldacc);
    }
}

/* Defines the kernels of a tier for a type. */
#define AX_DEFINE(tier, name, format)                                                              \
    void tier##_axpy_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h, \
                            int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc) {              \
        ax_run(&format, w, rows, n_rows, h, ldh, n_cols, acc, ldacc);                              \
    }

#endif
