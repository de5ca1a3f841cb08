/* rows.h: which rows a matrix-vector kernel computes, in which order: a range (matvec) or an
 * ascending list (matvec_rows). Both run through the same code, so that a row's result does not
 * depend on how it was asked for. Private to src/cpu; everything is inlined into each tier. */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "cpu.h"

#define ROWS_INLINE static inline __attribute__((always_inline))

typedef struct cpu_rows {
    const cpu_mat *w;
    const int32_t *list; /* [n], or NULL: first, first + 1, ... */
    int64_t first, n;
    bool near; /* of a range: neighbours are computed together */
} cpu_rows;

/* Result i is row rows_index(s, i) of the matrix. */
ROWS_INLINE int64_t rows_index(const cpu_rows *s, int64_t i) {
    return s->list != NULL ? s->list[i] : s->first + i;
}

ROWS_INLINE const uint8_t *rows_at(const cpu_rows *s, int64_t i) {
    return (const uint8_t *)s->w->data + (size_t)rows_index(s, i) * s->w->row_bytes;
}

/* Several rows are computed at once, as a group. Rows of a range come from far apart, so that each
 * is a stream of its own through memory: group g is g, g + stride, ... Rows of a list lie apart
 * anyway, and neighbours share a page now and then: they are taken one after the other. So are
 * those of a range where arithmetic is the limit: their results lie side by side. */
ROWS_INLINE bool rows_in_order(const cpu_rows *s) {
    return s->list != NULL || s->near;
}
ROWS_INLINE int64_t rows_first(const cpu_rows *s, int64_t group, int n_rows) {
    return rows_in_order(s) ? group * n_rows : group;
}
ROWS_INLINE int64_t rows_stride(const cpu_rows *s, int64_t n_groups) {
    return rows_in_order(s) ? 1 : n_groups;
}

/* What takes the place of row i in the next group, for prefetching; the last row at the end. */
ROWS_INLINE const uint8_t *rows_next(const cpu_rows *s, int64_t i, int n_rows) {
    int64_t next = rows_in_order(s) ? i + n_rows : i + 1;
    return rows_at(s, next < s->n ? next : s->n - 1);
}

/* The two kernels of a tier for a type, which run(&NAME_format, rows, x, y, ldy) computes. One body
 * for both: there are many of them, and they are long. */
#define ROWS_DEFINE(storage, tier, name, run)                                                      \
    static __attribute__((noinline)) void tier##_run_##name(const cpu_rows *s, const cpu_act *x,   \
                                                            float *y, int64_t ldy) {               \
        run(&name##_format, s, x, y, ldy);                                                         \
    }                                                                                              \
    storage void tier##_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1,                \
                                      const cpu_act *x, float *y, int64_t ldy) {                   \
        const cpu_rows s = {w, NULL, row0, row1 - row0, false};                                    \
        tier##_run_##name(&s, x, y + row0, ldy);                                                   \
    }                                                                                              \
    storage void tier##_matvec_rows_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows,  \
                                           const cpu_act *x, float *y, int64_t ldy) {              \
        const cpu_rows s = {w, rows, 0, n_rows, false};                                            \
        tier##_run_##name(&s, x, y, ldy);                                                          \
    }

#endif
