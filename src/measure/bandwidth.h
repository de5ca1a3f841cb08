/* bandwidth.h: memory bandwidth of this machine, the reference for the speed of kernels.
 *
 * Plain loops that use one word of every cache line: 1, 2, 4 or 8 streams per thread,
 * software prefetch of 0, 8 or 16 lines or 1 to 4 rows ahead, huge or small pages, 1, 2, 4, ... t
 * threads. The best way is searched once and measured again with every sample, together with its
 * neighbours, which replace it when they are faster. A sample takes some 30 ms. Take samples
 * between the runs that they are compared with, since machines are shared and drift.
 *
 * The buffer is separate anonymous memory: the model is not read, and the buffer takes at most a
 * quarter of the memory that the machine and limits leave free. A byte is read again only after all
 * others, so that few reads hit the cache. */
#ifndef MEASURE_BANDWIDTH_H
#define MEASURE_BANDWIDTH_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct bandwidth bandwidth;

typedef struct bandwidth_options {
    int n_threads;
    size_t row_bytes; /* of a neuron, at least 1 */
    /* Frequencies of the neurons, in the order of their rows: rows at a density are selected in
     * proportion, like those of a sparse layer. NULL: all equal. Copied. */
    const float *freq; /* [n_freq] */
    int64_t n_freq;
    size_t keep_bytes; /* bytes of page cache that must stay: the model */
} bandwidth_options;

/* Intended size of the buffer: four times the last-level cache, at least 256 MiB. */
size_t bandwidth_wanted(void);
/* Allocates and touches at most that size; less when memory or limits leave little. PI_ERR_NOMEM:
 * less than BANDWIDTH_LEAST is left. */
pi_status bandwidth_create(const bandwidth_options *options, bandwidth **out, pi_error *err);
void bandwidth_free(bandwidth *b);          /* NULL is fine */
size_t bandwidth_bytes(const bandwidth *b); /* of the allocated memory */

enum { BANDWIDTH_LEAST = 8 << 20 }; /* bytes */

/* GB/s of a sample of contiguous reads. */
double bandwidth_read(bandwidth *b);
/* GB/s of a sample of reads of single rows in ascending order; `density` is the share of rows. */
double bandwidth_gather(bandwidth *b, double density);

#endif
