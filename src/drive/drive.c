/* drive.c: opening, the queue, and what becomes of a read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "drive_impl.h"
#include "file.h"
#include "log.h"
#include "mem.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* Whether a direct read at such offsets, to such addresses, is possible. */
static bool reads_by(int fd, size_t block) {
    _Alignas(DRIVE_MAX_BLOCK) uint8_t page[2 * DRIVE_MAX_BLOCK];
    return pread(fd, page + block, block, (off_t)block) >= 0;
}

static bool open_direct(drive *d) {
    static const size_t blocks[] = {512, DRIVE_MAX_BLOCK};
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    for (size_t i = 0; d->fd >= 0 && i < sizeof blocks / sizeof *blocks; i++) {
        if (!reads_by(d->fd, blocks[i])) continue;
        d->direct = true;
        d->block = blocks[i];
        return true;
    }
    if (d->fd >= 0) close(d->fd);
    return false;
}

static pi_status open_file(drive *d, const drive_options *o, pi_error *err) {
    if (o->buffered || !open_direct(d)) {
        d->block = 1;
        d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
        if (d->fd < 0) return error_set_errno(err, errno, "cannot open file: %s", d->path);
        if (!o->buffered)
            log_line(LOG_LEVEL_WARN,
                     "no direct reads on this file system: %s: weights come through the page cache",
                     d->path);
    }
    if (fstat(d->fd, &d->opened) != 0)
        return error_set_errno(err, errno, "cannot read file: %s", d->path);
    if (!S_ISREG(d->opened.st_mode))
        return error_set(err, PI_ERR_IO, "is not a regular file: %s: save it to disk first",
                         d->path);
    if (o->size && (uint64_t)d->opened.st_size != o->size)
        return error_set(err, PI_ERR_IO, "file changed while it was in use: %s", d->path);
    return PI_OK;
}

static pi_status start(drive *d, drive_backend backend, pi_error *err) {
    if (backend != DRIVE_THREADS) d->uring = drive_uring_create();
    if (d->uring) return PI_OK;
    if (backend == DRIVE_URING)
        return error_set(err, PI_ERR_UNSUPPORTED, "io_uring cannot be used: %s: %s", d->path,
                         strerror(errno));
    if (drive_threads_create(d)) return PI_OK;
    return error_set_errno(err, errno, "cannot start threads: %s", d->path);
}

pi_status drive_open(const char *path, const drive_options *options, drive **out, pi_error *err) {
    const drive_options defaults = {.backend = DRIVE_AUTO};
    const drive_options *o = options ? options : &defaults;
    *out = NULL;
    drive *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(err, sizeof *d, path);
    d->fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->arrived, NULL);
    pthread_cond_init(&d->work, NULL);
    d->path = mem_strdup(path);
    pi_status status = d->path ? open_file(d, o, err) : error_nomem(err, strlen(path), path);
    if (status == PI_OK) status = start(d, o->backend, err);
    if (status != PI_OK) {
        drive_close(d);
        return status;
    }
    *out = d;
    return PI_OK;
}

void drive_close(drive *d) {
    if (!d) return;
    if (d->uring) {
        pthread_mutex_lock(&d->lock);
        d->n_queued = 0;
        while (d->n_busy > 0) drive_uring_wait(d);
        pthread_mutex_unlock(&d->lock);
        drive_uring_destroy(d->uring);
    }
    if (d->threads) drive_threads_destroy(d);
    pthread_cond_destroy(&d->work);
    pthread_cond_destroy(&d->arrived);
    pthread_mutex_destroy(&d->lock);
    if (d->fd >= 0) close(d->fd);
    mem_free(d->path);
    mem_free(d);
}

size_t drive_block(const drive *d) {
    return d->block;
}
bool drive_is_direct(const drive *d) {
    return d->direct;
}
const char *drive_backend_name(const drive *d) {
    return d->uring ? "io_uring" : "threads";
}

drive_counts drive_get_counts(drive *d) {
    pthread_mutex_lock(&d->lock);
    drive_counts counts = d->counts;
    if (d->n_busy > 0) counts.busy += clock_seconds() - d->busy_since;
    pthread_mutex_unlock(&d->lock);
    return counts;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

bool drive_take(drive *d, drive_piece *out) {
    if (d->n_queued == 0) return false;
    if (d->n_queued == DRIVE_QUEUE) d->news = true;
    *out = d->queue[d->head];
    d->head = (d->head + 1) % DRIVE_QUEUE;
    d->n_queued--;
    d->counts.reads++;
    if (d->n_busy++ == 0) d->busy_since = clock_seconds();
    return true;
}

static bool end_piece(drive *d, const drive_piece *p) {
    if (--d->n_busy == 0) d->counts.busy += clock_seconds() - d->busy_since;
    /* What has come through the page cache is not needed there. */
    if (!d->direct)
        (void)posix_fadvise(d->fd, (off_t)(p->offset + p->n_bytes - p->total), (off_t)p->total,
                            POSIX_FADV_DONTNEED);
    if (atomic_fetch_sub_explicit(p->left, p->total, memory_order_release) == p->total)
        d->news = true;
    return true;
}

static bool fail_piece(drive *d, const drive_piece *p, int problem) {
    if (d->error.status == PI_OK && problem)
        error_set_errno(&d->error, problem, "cannot read file: %s: at byte %llu", d->path,
                        (unsigned long long)p->offset);
    else if (d->error.status == PI_OK)
        error_set(&d->error, PI_ERR_IO, FILE_MAP_CUT "%s", d->path);
    return end_piece(d, p);
}

bool drive_finish(drive *d, drive_piece *p, int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return false;
    if (result < 0) return fail_piece(d, p, (int)-result);
    uint64_t size = (uint64_t)d->opened.st_size;
    size_t need = p->offset >= size ? 0 : p->n_bytes;
    if (need > size - p->offset && need > 0) need = (size_t)(size - p->offset);
    size_t got = (size_t)result;
    d->counts.bytes += got;
    if (got >= need) return end_piece(d, p);
    got -= got % d->block; /* direct reads go on at a block */
    if (got == 0) return fail_piece(d, p, 0);
    p->offset += got;
    p->to += got;
    p->n_bytes -= got;
    return false;
}

void drive_tell(drive *d) {
    if (d->news) pthread_cond_broadcast(&d->arrived);
    d->news = false;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* With the lock held. */
static void wait_for_some(drive *d) {
    if (d->uring)
        drive_uring_wait(d);
    else
        pthread_cond_wait(&d->arrived, &d->lock);
}

static void put_piece(drive *d, const drive_piece *p) {
    while (d->n_queued == DRIVE_QUEUE) wait_for_some(d);
    d->queue[(d->head + d->n_queued++) % DRIVE_QUEUE] = *p;
    if (d->threads) pthread_cond_signal(&d->work);
}

void drive_submit(drive *d, const drive_request *requests, size_t n) {
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        const drive_request *r = &requests[i];
        atomic_fetch_add_explicit(r->left, r->n_bytes, memory_order_relaxed);
        for (size_t at = 0; at < r->n_bytes; at += DRIVE_PIECE) {
            size_t piece = r->n_bytes - at < DRIVE_PIECE ? r->n_bytes - at : DRIVE_PIECE;
            const drive_piece p = {.offset = r->offset + at,
                                   .n_bytes = piece,
                                   .total = piece,
                                   .to = (uint8_t *)r->to + at,
                                   .left = r->left};
            put_piece(d, &p);
        }
    }
    if (d->uring) drive_uring_send(d);
    pthread_mutex_unlock(&d->lock);
}

void drive_poll(drive *d) {
    if (!d->uring || pthread_mutex_trylock(&d->lock) != 0) return;
    drive_uring_send(d);
    pthread_mutex_unlock(&d->lock);
}

void drive_wait(drive *d, const atomic_size_t *left) {
    if (atomic_load_explicit(left, memory_order_acquire) == 0) return;
    pthread_mutex_lock(&d->lock);
    while (atomic_load_explicit(left, memory_order_acquire) > 0) wait_for_some(d);
    pthread_mutex_unlock(&d->lock);
}

pi_status drive_check(drive *d, pi_error *err) {
    struct stat now;
    pthread_mutex_lock(&d->lock);
    pi_error first = d->error;
    d->error.status = PI_OK;
    pthread_mutex_unlock(&d->lock);
    if (first.status != PI_OK) {
        if (err) *err = first;
        return first.status;
    }
    if (fstat(d->fd, &now) != 0)
        return error_set_errno(err, errno, "cannot read file: %s", d->path);
    if (now.st_size < d->opened.st_size)
        return error_set(err, PI_ERR_IO, FILE_MAP_CUT "%s", d->path);
    if (now.st_size != d->opened.st_size || now.st_mtim.tv_sec != d->opened.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != d->opened.st_mtim.tv_nsec)
        return error_set(err, PI_ERR_IO, "file changed while it was in use: %s", d->path);
    return PI_OK;
}
