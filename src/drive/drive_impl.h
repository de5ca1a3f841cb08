/* drive_impl.h: types shared by the backends. */
#ifndef DRIVE_DRIVE_IMPL_H
#define DRIVE_DRIVE_IMPL_H

#include "drive.h"
#include "os_file.h"
#include "os_reads.h"
#include "os_thread.h"

/* A queued request, or at most DRIVE_PIECE bytes of one. */
typedef struct drive_piece {
    uint64_t offset;
    size_t n_bytes;
    uint8_t *to;
    atomic_size_t *left;
    bool joined; /* continues the piece before it */
} drive_piece;

/* A read in flight: a piece and those joined to it. */
typedef struct drive_read {
    uint64_t offset;
    size_t n_bytes; /* still missing */
    size_t total;   /* subtracted from `left` on completion */
    atomic_size_t *left;
    os_read_part parts[OS_READS_PARTS + 1]; /* [n_parts]; the last place is drive_take's */
    size_t n_parts;
} drive_read;

enum {
    DRIVE_LANES = 4,
    DRIVE_QUEUE = 2048,                         /* pieces waiting in a lane */
    DRIVE_SHARE = DRIVE_DEPTH / DRIVE_LANES / 2 /* pieces a lane may send even at DRIVE_DEPTH */
};

typedef struct drive_async drive_async;
typedef struct drive_threads drive_threads;

typedef struct drive_lane {
    drive *d;
    drive_async *async;   /* NULL: threads take the pieces */
    os_mutex lock;        /* of the fields below and `async` */
    os_condition arrived; /* signalled when there is news */
    os_condition work;    /* threads: signalled when the queue has pieces */
    drive_piece queue[DRIVE_QUEUE];
    size_t head, n_queued;
    int n_busy; /* pieces in flight */
    bool news;  /* since drive_tell: requests completed, or the queue has room again */
    bool leads; /* a thread waits in the kernel on behalf of all */
    uint64_t reads, bytes;
} drive_lane;

struct drive {
    os_file file;
    uint8_t *dropped; /* [DRIVE_MAX_GAP] bytes of gaps go here, unused */
    size_t block;     /* bytes; 1: reads are not direct */
    char *path;
    os_info opened;         /* the file's state when opened */
    drive_threads *threads; /* NULL: the lanes have `async` */
    drive_lane *lanes;      /* [n_lanes] */
    int n_lanes;
    atomic_int n_sent; /* pieces in flight */

    os_mutex lock; /* of the fields below; lock order: a lane's lock first, then this one */
    int n_busy;    /* lanes that have pieces in flight */
    double busy_since, busy;
    pi_error error; /* the first since drive_check; PI_OK: none */
};

/* Call all three with the lane's lock held. */
bool drive_take(drive_lane *l, drive_read *out); /* the next read to send to the drive */
/* A read returned a number of bytes, or -errno. False: the rest, which `p` now
 * describes, must be read again; true: the read is complete or has failed. */
bool drive_finish(drive_lane *l, drive_read *p, int64_t result);
/* Wakes waiting threads if there is news. */
void drive_tell(drive_lane *l);

/* NULL, with errno set, where the system has no such reads or refuses them. */
drive_async *drive_async_create(const drive *d);
void drive_async_destroy(drive_async *a);
size_t drive_async_parts(const drive_async *a); /* maximum of the next read */
/* Sends queued pieces while there is room. */
void drive_async_send(drive_lane *l);
/* Waits for news (see drive_lane); may return early. */
void drive_async_wait(drive_lane *l);

/* Sets d->threads, which serve the first lane. False, with errno set: no thread was started. */
bool drive_threads_create(drive *d);
void drive_threads_destroy(drive *d);

#endif
