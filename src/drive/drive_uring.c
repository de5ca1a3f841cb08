/* drive_uring.c: reads by io_uring. The ring is used with the drive's lock held, but for waiting:
 * one of the threads that wait does so in the kernel, without the lock, so that others can send,
 * and takes what arrives for all; the others sleep until it has something for them. */
#include <errno.h>

#include "drive_impl.h"

#ifdef DRIVE_HAS_URING

#include <liburing.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

struct drive_uring {
    struct io_uring ring;
    drive_piece pieces[DRIVE_DEPTH]; /* at the drive */
    int free[DRIVE_DEPTH], n_free;   /* places in `pieces` */
};

drive_uring *drive_uring_create(void) {
    drive_uring *u = mem_calloc(1, sizeof *u);
    if (!u) {
        errno = ENOMEM;
        return NULL;
    }
    int problem = io_uring_queue_init(DRIVE_DEPTH, &u->ring, 0);
    if (problem < 0) {
        mem_free(u);
        errno = -problem;
        return NULL;
    }
    for (int i = 0; i < DRIVE_DEPTH; i++) u->free[u->n_free++] = i;
    return u;
}

void drive_uring_destroy(drive_uring *u) {
    io_uring_queue_exit(&u->ring);
    mem_free(u);
}

static void send_piece(drive *d, int place) {
    drive_uring *u = d->uring;
    drive_piece *p = &u->pieces[place];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring); /* as many as pieces */
    io_uring_prep_read(sqe, d->fd, p->to, (unsigned)p->n_bytes, p->offset);
    io_uring_sqe_set_data64(sqe, (unsigned long long)place);
}

static void send_queued(drive *d) {
    drive_uring *u = d->uring;
    while (u->n_free > 0 && drive_take(d, &u->pieces[u->free[u->n_free - 1]]))
        send_piece(d, u->free[--u->n_free]);
}

static void take_arrived(drive *d) {
    drive_uring *u = d->uring;
    struct io_uring_cqe *arrived[DRIVE_DEPTH];
    unsigned n = io_uring_peek_batch_cqe(&u->ring, arrived, DRIVE_DEPTH);
    for (unsigned i = 0; i < n; i++) {
        int place = (int)io_uring_cqe_get_data64(arrived[i]);
        int result = arrived[i]->res;
        io_uring_cqe_seen(&u->ring, arrived[i]);
        if (drive_finish(d, &u->pieces[place], result))
            u->free[u->n_free++] = place;
        else
            send_piece(d, place);
    }
}

static void submit(drive *d) {
    if (io_uring_sq_ready(&d->uring->ring) > 0) (void)io_uring_submit(&d->uring->ring);
}

void drive_uring_send(drive *d) {
    if (!d->leads) take_arrived(d);
    send_queued(d);
    submit(d);
}

/* In the kernel; without the lock, so that others can send. */
static void lead(drive *d) {
    static const struct timespec moment = {.tv_nsec = 1000000};
    struct io_uring *ring = &d->uring->ring;
    /* Nothing was sent: refused for lack of memory for a moment. */
    bool idle = (unsigned)d->n_busy == io_uring_sq_ready(ring);
    d->leads = true;
    pthread_mutex_unlock(&d->lock);
    if (idle)
        (void)nanosleep(&moment, NULL);
    else
        (void)syscall(SYS_io_uring_enter, ring->ring_fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    pthread_mutex_lock(&d->lock);
    d->leads = false;
}

void drive_uring_wait(drive *d) {
    if (d->leads) {
        pthread_cond_wait(&d->arrived, &d->lock);
        return;
    }
    drive_uring_send(d);
    if (!d->news && d->n_busy > 0) {
        lead(d);
        drive_uring_send(d);
    }
    drive_tell(d);
}

#else

drive_uring *drive_uring_create(void) {
    errno = ENOSYS;
    return NULL;
}
void drive_uring_destroy(drive_uring *u) {
    (void)u;
}
void drive_uring_send(drive *d) {
    (void)d;
}
void drive_uring_wait(drive *d) {
    (void)d;
}

#endif
