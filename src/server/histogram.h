/* histogram.h: histograms of durations, as Prometheus defines them: counts of values up to a bound,
 * and their sum. Zero is an empty histogram. The owner guards it. */
#ifndef SERVER_HISTOGRAM_H
#define SERVER_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BOUNDS = 18 };

/* Seconds: from a token of a small model to a long answer of a large one. */
static const double histogram_bounds[HISTOGRAM_BOUNDS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000};

typedef struct histogram {
    /* counts[i]: values above bound i - 1 and up to bound i; the last: above all bounds */
    uint64_t counts[HISTOGRAM_BOUNDS + 1];
    double sum; /* seconds */
} histogram;

static inline void histogram_add(histogram *h, double seconds) {
    int i = 0;
    if (!(seconds > 0)) seconds = 0;
    while (i < HISTOGRAM_BOUNDS && seconds > histogram_bounds[i]) i++;
    h->counts[i]++;
    h->sum += seconds;
}

#endif
