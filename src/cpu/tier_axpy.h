/* tier_axpy.h: sums of chosen rows times factors, for few columns. A template: each tier's _axpy.c
 * includes it once, after its w_format, and defines ax_block, the arithmetic of one block of
 * elements; what is here decides which rows meet and what is asked for ahead of time.
 *
 * Memory is the limit: rows lie apart, each is a stream that ends after a few KiB. So rows are
 * taken AX_ROWS at a time, which are as many streams, the sums being loaded and stored once for all
 * of them; and while a group of rows is computed, the same places of the rows of a later group are
 * asked for, line by line between the arithmetic, so that requests are always in flight and the
 * first lines of a row have arrived when its turn comes.
 *
 * Each element's sum is one chain of multiply-adds in the order of the list, whatever the grouping:
 * a list may be cut anywhere. Rows with a factor of 0 are left out beforehand. Several columns take
 * turns on a block of the list, whose rows then come from the second cache for all but the first.
 *
 * The tier's w_format comes with w_elems(f), the elements of a block, of which there are at most
 * W_ELEMS_MAX in W_BYTES_MAX bytes; w_bytes(f, n), the bytes of n elements. */
#ifndef CPU_TIER_AXPY_H
#define CPU_TIER_AXPY_H

#include <string.h>

#include "simd.h"
#include "tiers.h"

enum {
    AX_ROWS = 4,
    AX_BLOCK = 64, /* rows that several columns take turns on: 272 KiB of Q8_0 at n_in 4096 */
    AX_LINE = 64
};

/* Rows and their factors; n < AX_ROWS only in the last group of a list. */
typedef struct ax_group {
    const uint8_t *p[AX_ROWS];
    float h[AX_ROWS];
    int n;
} ax_group;

/* A block of n_rows rows times their factors on to acc; lines at the same place of the rows `next`
 * are prefetched. */
SIMD_INLINE void ax_block(const w_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                          const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc);

/* The last elements of rows, fewer than a block, in copies padded with zeros. */
SIMD_INLINE void ax_tail(const w_format *f, const int n_rows, const uint8_t *const p[AX_ROWS],
                         const float h[AX_ROWS], const uint8_t *const next[AX_ROWS], float *acc,
                         int64_t n) {
    uint8_t tail[AX_ROWS][W_BYTES_MAX];
    const uint8_t *at[AX_ROWS];
    float sums[W_ELEMS_MAX];
    size_t size = (size_t)n * sizeof *acc;
    for (int r = 0; r < n_rows; r++) {
        memset(tail[r], 0, w_bytes(f, w_elems(f)));
        memcpy(tail[r], p[r], w_bytes(f, n));
        at[r] = tail[r];
    }
    memset(sums, 0, sizeof sums);
    memcpy(sums, acc, size);
    ax_block(f, n_rows, at, h, next, sums);
    memcpy(acc, sums, size);
}

/* n_rows rows from row `first` of a group on. */
SIMD_INLINE void ax_rows(const w_format *f, const int n_rows, const cpu_mat *w,
                         const ax_group *group, int first, const ax_group *after, float *acc) {
    const uint8_t *p[AX_ROWS], *next[AX_ROWS];
    for (int r = 0; r < n_rows; r++) {
        p[r] = group->p[first + r];
        next[r] = after->p[first + r];
    }
    int64_t j = 0;
    for (; j + w_elems(f) <= w->n_in; j += w_elems(f)) {
        ax_block(f, n_rows, p, group->h + first, next, acc + j);
        for (int r = 0; r < n_rows; r++) {
            p[r] += w_bytes(f, w_elems(f));
            next[r] += w_bytes(f, w_elems(f));
        }
    }
    if (j < w->n_in) ax_tail(f, n_rows, p, group->h + first, next, acc + j, w->n_in - j);
}

/* The next rows of the list whose factor is not 0; moves *i on. */
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

SIMD_INLINE void ax_column(const w_format *f, const cpu_mat *w, const int32_t *rows, int64_t n_rows,
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

SIMD_INLINE void ax_run(const w_format *f, const cpu_mat *w, const int32_t *rows, int64_t n_rows,
                        const float *h, int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc) {
    const int64_t block = n_cols > 1 ? AX_BLOCK : n_rows;
    for (int64_t i = 0; i < n_rows; i += block) {
        int64_t n = n_rows - i < block ? n_rows - i : block;
        for (int64_t c = 0; c < n_cols; c++)
            ax_column(f, w, rows + i, n, h + c * ldh + i, acc + c * ldacc);
    }
}

/* The kernel of a tier for a type. */
#define AX_DEFINE(tier, format)                                                                    \
    void tier##_axpy_##format(const cpu_mat *w, const int32_t *rows, int64_t n_rows,               \
                              const float *h, int64_t ldh, int64_t n_cols, float *acc,             \
                              int64_t ldacc) {                                                     \
        ax_run(&w_##format, w, rows, n_rows, h, ldh, n_cols, acc, ldacc);                          \
    }

#endif
