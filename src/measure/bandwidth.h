/* bandwidth.h: memory bandwidth of this machine, the reference for what kernels reach.
 *
 * Plain loops that use one word of every cache line: 1, 2, 4 or 8 streams per thread,
 * software prefetch of 0, 8 or 16 lines or 1 to 4 rows ahead, huge or small pages, 1, 2, 4, ... t
 * threads. The best way is looked for once and measured again with every sample, beside ways next
 * to it that take its place when they are faster. A sample takes some 30 ms; samples are meant to
 * be taken between the runs that they are compared with, since machines are shared and drift.
 *
 * The memory is its own and anonymous: nothing of the model is read, and no more is taken than a
 * quarter of what memory and limits leave beside it. A byte comes again only after all others, so
 * that little is read from cache. */
#ifndef MEASURE_BANDWIDTH_H
#define MEASURE_BANDWIDTH_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct bandwidth bandwidth;

typedef struct bandwidth_options {
    int n_threads;
    size_t row_bytes; /* of a neuron, at least 1 */
    /* Frequencies of the neurons, in the order of their rows: rows at a density are taken in
     * proportion, as a sparse layer takes them. NULL: all alike. Copied. */
    const float *freq; /* [n_freq] */
    int64_t n_freq;
    size_t keep_bytes; /* of page cache that is to stay: the model's */
} bandwidth_options;

/* Memory that is wanted: four times the last-level cache, at least 256 MiB. */
size_t bandwidth_wanted(void);
/* Takes and touches at most that; less when memory or limits leave little. PI_ERR_NOMEM: not even
 * BANDWIDTH_LEAST are left. */
pi_status bandwidth_create(const bandwidth_options *options, bandwidth **out, pi_error *err);
void bandwidth_free(bandwidth *b);          /* NULL is fine */
size_t bandwidth_bytes(const bandwidth *b); /* of memory that it took */

enum { BANDWIDTH_LEAST = 8 << 20 }; /* bytes */

/* GB/s of a sample of reading in order. */
double bandwidth_read(bandwidth *b);
/* GB/s of a sample of reading single rows, in ascending order, of which `density` are taken. */
double bandwidth_gather(bandwidth *b, double density);

#endif
