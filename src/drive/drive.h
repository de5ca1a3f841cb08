/* drive.h: direct reads of one file with many requests in flight.
 *
 * For weights that are not in memory. Requests go into a queue; up to DRIVE_DEPTH of them are at
 * the drive at a time. Reads are asynchronous: io_uring on Linux, overlapped reads on Windows.
 * Where the kernel refuses io_uring (sandboxes), the library is missing, or the system completes
 * overlapped reads one after the other (os_reads_overlap), a pool of threads reads.
 * Reads bypass the page cache where the file system supports direct reads. Submitting a read costs
 * a thread microseconds in the kernel, so there are several lanes, each with its own queue and
 * lock: the address of `left` selects the lane.
 *
 * All functions except open and close may be called from any thread. Nothing is mapped: truncating
 * the file makes reads fail and never raises SIGBUS. */
#ifndef DRIVE_DRIVE_H
#define DRIVE_DRIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum {
    DRIVE_DEPTH = 192,         /* reads in flight */
    DRIVE_PIECE = 1 << 20,     /* maximum bytes of a read of one request; longer ones are split */
    DRIVE_MAX_BLOCK = 1 << 12, /* bytes; largest block size of any drive */
    DRIVE_MAX_GAP = 1 << 16    /* bytes; longest gap within a read */
};

typedef enum drive_backend { DRIVE_AUTO, DRIVE_ASYNC, DRIVE_THREADS } drive_backend;

typedef struct drive_options {
    drive_backend backend; /* AUTO: asynchronous where it works */
    bool buffered;         /* always read through the page cache */
    uint64_t size;         /* required file size in bytes; 0: any */
} drive_options;

typedef struct drive drive;

/* Offset, size and address are multiples of drive_block. The last block of the file may be partial:
 * memory past the end of the file is not written. */
typedef struct drive_request {
    uint64_t offset;
    size_t n_bytes;
    void *to;    /* NULL: a gap of at most DRIVE_MAX_GAP bytes, which are read and dropped */
    bool joined; /* begins where the previous request of this call ends, and has the same `left`:
                    both can be one read. A gap and the request after it are joined */
    atomic_size_t *left; /* grows by n_bytes when the request is queued, falls as bytes arrive */
} drive_request;

/* Totals since the file was opened. */
typedef struct drive_counts {
    uint64_t reads, bytes;
    double busy; /* seconds with at least one read in flight */
} drive_counts;

/* options NULL: defaults. PI_ERR_IO: cannot be opened, or has another size; PI_ERR_UNSUPPORTED: the
 * requested backend is not available; PI_ERR_NOMEM. Logs once when reads are not direct. */
pi_status drive_open(const char *path, const drive_options *options, drive **out, pi_error *err);
/* Waits for reads in flight. NULL is fine. */
void drive_close(drive *d);

size_t drive_block(const drive *d); /* bytes: 512 or 4096; 1 where reads are not direct */
const char *drive_backend_name(const drive *d); /* "io_uring", "overlapped", "threads" */
drive_counts drive_get_counts(drive *d);

/* Queues requests; those with the same `left` stay in order. Waits while the queue is full.
 * drive_check reports failures. */
void drive_submit(drive *d, const drive_request *requests, size_t n);
/* Collects completed reads and sends queued ones, for times when no thread waits. Does nothing
 * while another thread does the same. */
void drive_poll(drive *d);
/* Waits until *left is 0: all its requests have arrived or failed. */
void drive_wait(drive *d, const atomic_size_t *left);
/* The first failure since the last call, or that the file changed since it was opened (size,
 * modification time): PI_ERR_IO. */
pi_status drive_check(drive *d, pi_error *err);

/* Measures bytes per second of reads of `n_bytes` each (rounded up to blocks) at random places of
 * the file, DRIVE_DEPTH reads or 16 MiB in flight, over about `seconds`. */
pi_status drive_measure(drive *d, size_t n_bytes, double seconds, double *rate, pi_error *err);
/* Measures the longest gap between two pieces of n_bytes for which one read of both pieces and the
 * gap takes less time than two reads. Takes about `seconds`. *gap: at most DRIVE_MAX_GAP. */
pi_status drive_measure_gap(drive *d, size_t n_bytes, double seconds, size_t *gap, pi_error *err);

#endif
