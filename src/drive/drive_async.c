/* drive_async.c: reads that the system runs at the same time (os_reads.h). They are used with the
 * lane's lock held, except for waiting: one waiting thread waits in the kernel without the lock, so
 * that others can send, and collects what arrives for all. The other waiting threads sleep until it
 * has news for them. */
#include <errno.h>

#include "drive_impl.h"
#include "mem.h"
#include "os_reads.h"

_Static_assert((int)DRIVE_DEPTH <= (int)OS_READS_MAX, "a lane may have all reads of a drive");

struct drive_async {
    os_reads *reads;
    drive_read reads_sent[DRIVE_DEPTH]; /* in flight */
    size_t free[DRIVE_DEPTH], n_free;   /* unused indices of `reads_sent` */
};

drive_async *drive_async_create(const drive *d) {
    drive_async *a = mem_calloc(1, sizeof *a);
    int problem = a ? os_reads_create(d->file, DRIVE_DEPTH, d->dropped, &a->reads) : ENOMEM;
    if (problem) {
        mem_free(a);
        errno = problem;
        return NULL;
    }
    for (size_t i = 0; i < DRIVE_DEPTH; i++) a->free[a->n_free++] = i;
    return a;
}

void drive_async_destroy(drive_async *a) {
    os_reads_destroy(a->reads);
    mem_free(a);
}

size_t drive_async_parts(const drive_async *a) {
    return os_reads_parts(a->reads);
}

static void send_piece(drive_async *a, size_t place) {
    const drive_read *p = &a->reads_sent[place];
    os_reads_add(a->reads, place, p->parts, p->n_parts, p->offset);
}

static void take_arrived(drive_lane *l) {
    drive_async *a = l->async;
    os_read_done done[DRIVE_DEPTH];
    size_t n = os_reads_take(a->reads, done, DRIVE_DEPTH);
    for (size_t i = 0; i < n; i++) {
        size_t place = done[i].place;
        if (drive_finish(l, &a->reads_sent[place], done[i].result))
            a->free[a->n_free++] = place;
        else
            send_piece(a, place);
    }
}

void drive_async_send(drive_lane *l) {
    drive_async *a = l->async;
    if (!l->leads) take_arrived(l);
    while (a->n_free > 0 && drive_take(l, &a->reads_sent[a->free[a->n_free - 1]]))
        send_piece(a, a->free[--a->n_free]);
    os_reads_submit(a->reads);
}

/* Waits in the kernel, without the lock, so that others can send. */
static void lead(drive_lane *l) {
    static const double moment = 1e-3; /* seconds */
    drive_async *a = l->async;
    /* The kernel accepted no piece: it lacked memory for a moment. */
    bool idle = (size_t)l->n_busy == os_reads_prepared(a->reads);
    l->leads = true;
    os_mutex_unlock(&l->lock);
    if (idle)
        os_sleep(moment);
    else
        os_reads_wait(a->reads);
    os_mutex_lock(&l->lock);
    l->leads = false;
}

void drive_async_wait(drive_lane *l) {
    if (l->leads) {
        os_condition_wait(&l->arrived, &l->lock);
        return;
    }
    drive_async_send(l);
    if (!l->news && l->n_busy > 0) {
        lead(l);
        drive_async_send(l);
    }
    drive_tell(l);
}
