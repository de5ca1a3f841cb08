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
} cpu_rows;

/* Result i is row rows_index(s, i) of the matrix. */
ROWS_INLINE int64_t rows_index(const cpu_rows *s, int64_t i) {
    return s->list != NULL ? s->list[i] : s->first + i;
}

ROWS_INLINE const uint8_t *rows_at(const cpu_rows *s, int64_t i) {
    return (const uint8_t *)s->w->data + (size_t)rows_index(s, i) * s->w->row_bytes;
}

/* The row that comes after i, for prefetching: i itself at the end. */
ROWS_INLINE const uint8_t *rows_after(const cpu_rows *s, int64_t i) {
    return rows_at(s, i + 1 < s->n ? i + 1 : i);
}

#endif
