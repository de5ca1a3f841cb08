/* bandwidth.h: what this machine's memory can deliver, for comparison with what kernels reach.
 *
 * Two kinds of memory (huge pages, and small pages of a mapped file in the page cache), each of
 * BANDWIDTH_BYTES, read by 1, 2, 4, ... t threads. Samples are meant to be taken between the runs
 * that they are compared with, since machines are shared and drift. */
#ifndef TOOLS_BANDWIDTH_H
#define TOOLS_BANDWIDTH_H

#include "cpu.h"
#include "pool.h"

/* Far beyond any last-level cache; TLBs behave as they do under a model of this size. */
#define BANDWIDTH_BYTES ((size_t)1 << 30)

typedef struct bandwidth bandwidth;

/* Allocates and touches both kinds of memory. PI_ERR_NOMEM. */
pi_status bandwidth_create(int n_threads, cpu_tier tier, bandwidth **out, pi_error *err);
void bandwidth_free(bandwidth *b); /* NULL is fine */

/* GB/s of one pass of streaming: the best over kinds of memory and numbers of threads. */
double bandwidth_read(bandwidth *b);
/* The same for rows of row_bytes (rounded up to cache lines), each chosen with probability
 * `density`, read in ascending order. Counts the bytes of the chosen rows. */
double bandwidth_gather(bandwidth *b, size_t row_bytes, double density);

#endif
