/* drive.h: direct reads of one file, many at a time.
 *
 * For weights that are not in memory. Requests go into a queue, DRIVE_DEPTH of them are at the
 * drive at a time, by io_uring or, where the kernel refuses it (sandboxes) or the library is
 * missing, by a pool of threads. The page cache is not used where the file system has direct reads.
 * Sending takes microseconds of a thread in the kernel per read, so io_uring has several lanes,
 * each with a queue, a ring and a lock of its own: the address of `left` says which.
 *
 * All functions but open and close may be called from any thread. Nothing is mapped: a file that is
 * cut short is an error of the reads, never SIGBUS. */
#ifndef DRIVE_DRIVE_H
#define DRIVE_DRIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum {
    DRIVE_DEPTH = 192,        /* reads at the drive at a time */
    DRIVE_PIECE = 1 << 20,    /* bytes of a read at most: longer requests are cut */
    DRIVE_MAX_BLOCK = 1 << 12 /* bytes, of any drive */
};

typedef enum drive_backend { DRIVE_AUTO, DRIVE_URING, DRIVE_THREADS } drive_backend;

typedef struct drive_options {
    drive_backend backend; /* AUTO: io_uring where it works */
    bool buffered;         /* through the page cache in any case */
    uint64_t size;         /* bytes that the file must have; 0: any */
} drive_options;

typedef struct drive drive;

/* Offset, size and address are multiples of drive_block; the last block of the file may be partial:
 * what lies after the end of the file is not written. */
typedef struct drive_request {
    uint64_t offset;
    size_t n_bytes;
    void *to;
    atomic_size_t *left; /* grows by n_bytes when the request is queued, falls as bytes arrive */
} drive_request;

/* What was read since the file was opened. */
typedef struct drive_counts {
    uint64_t reads, bytes;
    double busy; /* seconds in which at least one read was at the drive */
} drive_counts;

/* options NULL: defaults. PI_ERR_IO: cannot be opened, has another size; PI_ERR_UNSUPPORTED: the
 * backend that is named; PI_ERR_NOMEM. Says once (log) when reads are not direct. */
pi_status drive_open(const char *path, const drive_options *options, drive **out, pi_error *err);
/* Waits for what is at the drive. NULL is fine. */
void drive_close(drive *d);

size_t drive_block(const drive *d); /* bytes: 512 or 4096; 1 where reads are not direct */
bool drive_is_direct(const drive *d);
const char *drive_backend_name(const drive *d); /* "io_uring", "threads" */
drive_counts drive_get_counts(drive *d);

/* Queues requests, in order among those of one `left`. Waits where the queue is full. Failures show
 * in drive_check. */
void drive_submit(drive *d, const drive_request *requests, size_t n);
/* Takes what has arrived and sends what is queued, for times in which nobody waits; does nothing
 * where another thread is at it. */
void drive_poll(drive *d);
/* Until *left is 0: all of its requests have arrived or failed. */
void drive_wait(drive *d, const atomic_size_t *left);
/* The first failure since the last call, or that the file is not the one that was opened any more
 * (size, time of change): PI_ERR_IO. */
pi_status drive_check(drive *d, pi_error *err);

/* Bytes per second of reads of `n_bytes` (rounded up to blocks) each at places all over the file,
 * DRIVE_DEPTH or 16 MiB at a time, over about `seconds`. */
pi_status drive_measure(drive *d, size_t n_bytes, double seconds, double *rate, pi_error *err);

#endif
