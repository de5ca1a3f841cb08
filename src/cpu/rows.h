/* rows.h: the rows that a matrix-vector kernel computes, and their order: a range (matvec) or an
 * ascending list (matvec_rows). One body computes both, so that a row's result does not depend on
 * how it was requested. Private to src/cpu; everything is inlined into each tier. */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "cpu.h"

#define ROWS_INLINE static inline __attribute__((always_inline))

typedef struct cpu_rows {
    const cpu_mat *w;
    const int32_t *list; /* [n], or NULL: first, first + 1, ... */
    int64_t first, n;
    bool near; /* for a range: a group is neighbouring rows */
} cpu_rows;

/* Result i is row rows_index(s, i) of the matrix. */
ROWS_INLINE int64_t rows_index(const cpu_rows *s, int64_t i) {
    return s->list != NULL ? s->list[i] : s->first + i;
}

ROWS_INLINE const uint8_t *rows_at(const cpu_rows *s, int64_t i) {
    return (const uint8_t *)s->w->data + (size_t)rows_index(s, i) * s->w->row_bytes;
}

/* Whether groups are neighbouring rows. A group is several rows, computed at once. In a range, the
 * rows of a group are far apart, so that each is a separate stream through memory: group g is rows
 * g, g + stride, ... Rows of a list are apart anyway, and neighbours sometimes share a page, so
 * groups are in order. A range is also in order when arithmetic is the limit, because its results
 * are then adjacent. */
ROWS_INLINE bool rows_in_order(const cpu_rows *s) {
    return s->list != NULL || s->near;
}
ROWS_INLINE int64_t rows_first(const cpu_rows *s, int64_t group, int n_rows) {
    return rows_in_order(s) ? group * n_rows : group;
}
ROWS_INLINE int64_t rows_stride(const cpu_rows *s, int64_t n_groups) {
    return rows_in_order(s) ? 1 : n_groups;
}

/* The row that follows row i in the next group, for prefetching; after the end the last row. */
ROWS_INLINE const uint8_t *rows_next(const cpu_rows *s, int64_t i, int n_rows) {
    int64_t next = rows_in_order(s) ? i + n_rows : i + 1;
    return rows_at(s, next < s->n ? next : s->n - 1);
}

/* Defines the two kernels of a tier for a type, computed by run(&NAME_format, rows, x, y, ldy).
 * Both share one body, to limit code size. */
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
