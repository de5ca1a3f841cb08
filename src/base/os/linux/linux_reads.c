/* linux_reads.c: io_uring. */
#include <errno.h>
#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem.h"
#include "os_reads.h"
#include "posix/posix_parts.h"

struct os_reads {
    struct io_uring ring;
    int fd;
};

const char *os_reads_name(void) {
    return "io_uring";
}

/* The kernel passes reads that would wait to its threads. */
bool os_reads_overlap(os_file f) {
    (void)f;
    return true;
}

int os_reads_create(os_file f, size_t most, const void *dropped, os_reads **out) {
    (void)dropped;
    os_reads *r = *out = mem_calloc(1, sizeof *r);
    if (!r) return ENOMEM;
    r->fd = (int)f;
    int problem = io_uring_queue_init((unsigned)most, &r->ring, 0);
    if (problem == 0) return 0;
    mem_free(r);
    *out = NULL;
    return -problem;
}

void os_reads_destroy(os_reads *r) {
    io_uring_queue_exit(&r->ring);
    mem_free(r);
}

size_t os_reads_parts(const os_reads *r) {
    (void)r;
    return OS_READS_PARTS;
}

void os_reads_add(os_reads *r, size_t place, const os_read_part *parts, size_t n_parts,
                  uint64_t offset) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring); /* never NULL: one entry per place */
    if (n_parts == 1)
        io_uring_prep_read(sqe, r->fd, parts->to, (unsigned)parts->n, offset);
    else
        io_uring_prep_readv(sqe, r->fd, posix_parts(parts), (unsigned)n_parts, offset);
    io_uring_sqe_set_data64(sqe, place);
}

void os_reads_submit(os_reads *r) {
    if (io_uring_sq_ready(&r->ring) > 0) (void)io_uring_submit(&r->ring);
}

size_t os_reads_prepared(const os_reads *r) {
    return io_uring_sq_ready(&r->ring);
}

size_t os_reads_take(os_reads *r, os_read_done *done, size_t most) {
    struct io_uring_cqe *arrived[OS_READS_MAX];
    unsigned n = io_uring_peek_batch_cqe(&r->ring, arrived,
                                         (unsigned)(most < OS_READS_MAX ? most : OS_READS_MAX));
    for (unsigned i = 0; i < n; i++) {
        done[i] = (os_read_done){(size_t)io_uring_cqe_get_data64(arrived[i]), arrived[i]->res};
        io_uring_cqe_seen(&r->ring, arrived[i]);
    }
    return n;
}

/* liburing lacks this call in the versions of some distributions. */
void os_reads_wait(os_reads *r) {
    (void)syscall(SYS_io_uring_enter, r->ring.ring_fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}
