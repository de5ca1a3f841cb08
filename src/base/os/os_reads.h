/* os_reads.h: reads of one file that run at the same time: an os_reads needs no thread for each of
 * them (io_uring on Linux, overlapped reads on Windows), an os_reader is for one of several
 * threads.
 *
 * One thread at a time calls these functions for an os_reads, except that a thread may be in
 * os_reads_wait while another one adds and submits reads. */
#ifndef BASE_OS_READS_H
#define BASE_OS_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os_file.h"

enum { OS_READS_MAX = 256 };

/* A part of a read: its next n bytes go to `to`. */
typedef struct os_read_part {
    void *to;
    size_t n;
} os_read_part;

/* Limits of a read with several parts. */
enum { OS_READS_PARTS = 32, OS_READS_JOINED = 128 << 10 /* bytes */ };

typedef struct os_reads os_reads;

/* Whether reads of `f` run while their caller continues. Some systems complete a read before they
 * return from its start: Windows for compressed and encrypted files, wine for all. */
bool os_reads_overlap(os_file f);

/* What the system calls this way to read: "io_uring", "overlapped". */
const char *os_reads_name(void);

/* For up to `most` (<= OS_READS_MAX) reads of `f` at a time; f stays open until os_reads_destroy.
 * Parts at the address `dropped` need not be written. Returns 0 or an error number; ENOSYS: this
 * system or this build cannot. */
int os_reads_create(os_file f, size_t most, const void *dropped, os_reads **out);
void os_reads_destroy(os_reads *r); /* no read may be running */

/* Maximum parts of the next read: 1, or OS_READS_PARTS. */
size_t os_reads_parts(const os_reads *r);
/* Prepares a read of at most 1 GiB in n_parts parts. The caller chooses its place, < most, which no
 * other read has, and keeps `parts` until the read is complete. A read that returned fewer bytes
 * may be continued at once, with as many parts. */
void os_reads_add(os_reads *r, size_t place, const os_read_part *parts, size_t n_parts,
                  uint64_t offset);
/* Starts prepared reads. The system may refuse some for lack of memory: try again later. */
void os_reads_submit(os_reads *r);
/* Number of prepared reads that have not been started. */
size_t os_reads_prepared(const os_reads *r);

typedef struct os_read_done {
    size_t place;
    int64_t result; /* bytes read, fewer at the end of the file; or minus an error number */
} os_read_done;

/* Takes up to `most` reads that are complete, without waiting; returns their number. */
size_t os_reads_take(os_reads *r, os_read_done *done, size_t most);
/* Waits until a read is complete, which os_reads_take returns; may return early. */
void os_reads_wait(os_reads *r);

/* Reads of one thread, which waits for each. */
typedef struct os_reader os_reader;

/* As os_reads_create. */
int os_reader_create(os_file f, const void *dropped, os_reader **out);
void os_reader_destroy(os_reader *r);
/* One read; *n_read may be less than all parts, 0: the end of the file. Returns 0 or an error
 * number. */
int os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                   size_t *n_read);

#endif
