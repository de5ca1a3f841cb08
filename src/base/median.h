/* median.h: order and median of measurements. */
#ifndef BASE_MEDIAN_H
#define BASE_MEDIAN_H

#include <stdlib.h>

/* For qsort: ascending, no NaN. */
static inline int median_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v[n], n >= 1. */
static inline double median_of(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, median_compare);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

#endif
