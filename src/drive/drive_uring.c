/* drive_uring.c: reads by io_uring. A ring is used with its lane's lock held, except for waiting:
 * one waiting thread waits in the kernel without the lock, so that others can send, and collects
 * what arrives for all. The other waiting threads sleep until it has news for them. */
#include <errno.h>

#include "drive_impl.h"

#ifdef DRIVE_HAS_URING

#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem.h"

struct drive_uring {
    struct io_uring ring;
    drive_piece pieces[DRIVE_DEPTH]; /* in flight */
    int free[DRIVE_DEPTH], n_free;   /* unused indices of `pieces` */
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

static void send_piece(const drive_lane *l, int place) {
    drive_uring *u = l->uring;
    drive_piece *p = &u->pieces[place];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring); /* never NULL: one entry per piece */
    io_uring_prep_read(sqe, (int)l->d->file, p->to, (unsigned)p->n_bytes, p->offset);
    io_uring_sqe_set_data64(sqe, (unsigned long long)place);
}

static void take_arrived(drive_lane *l) {
    drive_uring *u = l->uring;
    struct io_uring_cqe *arrived[DRIVE_DEPTH];
    unsigned n = io_uring_peek_batch_cqe(&u->ring, arrived, DRIVE_DEPTH);
    for (unsigned i = 0; i < n; i++) {
        int place = (int)io_uring_cqe_get_data64(arrived[i]);
        int result = arrived[i]->res;
        io_uring_cqe_seen(&u->ring, arrived[i]);
        if (drive_finish(l, &u->pieces[place], result))
            u->free[u->n_free++] = place;
        else
            send_piece(l, place);
    }
}

void drive_uring_send(drive_lane *l) {
    drive_uring *u = l->uring;
    if (!l->leads) take_arrived(l);
    while (u->n_free > 0 && drive_take(l, &u->pieces[u->free[u->n_free - 1]]))
        send_piece(l, u->free[--u->n_free]);
    if (io_uring_sq_ready(&u->ring) > 0) (void)io_uring_submit(&u->ring);
}

/* Waits in the kernel, without the lock, so that others can send. */
static void lead(drive_lane *l) {
    static const double moment = 1e-3; /* seconds */
    struct io_uring *ring = &l->uring->ring;
    /* The kernel accepted no piece: it lacked memory for a moment. */
    bool idle = (unsigned)l->n_busy == io_uring_sq_ready(ring);
    l->leads = true;
    os_mutex_unlock(&l->lock);
    if (idle)
        os_sleep(moment);
    else
        (void)syscall(SYS_io_uring_enter, ring->ring_fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    os_mutex_lock(&l->lock);
    l->leads = false;
}

void drive_uring_wait(drive_lane *l) {
    if (l->leads) {
        os_condition_wait(&l->arrived, &l->lock);
        return;
    }
    drive_uring_send(l);
    if (!l->news && l->n_busy > 0) {
        lead(l);
        drive_uring_send(l);
    }
    drive_tell(l);
}

#else

drive_uring *drive_uring_create(void) {
    errno = ENOSYS;
    return NULL;
}
void drive_uring_destroy(drive_uring *u) {
    (void)u;
}
void drive_uring_send(drive_lane *l) {
    (void)l;
}
void drive_uring_wait(drive_lane *l) {
    (void)l;
}

#endif
