/* drive.c: opening a file, the request queue, and completion of reads. */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "drive_impl.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "os_reads.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* Direct reads take offsets and addresses that are multiples of a block size. The smallest size
 * that works is the drive's. */
static bool open_direct(drive *d) {
    static const size_t blocks[] = {512, DRIVE_MAX_BLOCK};
    _Alignas(DRIVE_MAX_BLOCK) uint8_t page[2 * DRIVE_MAX_BLOCK];
    if (os_file_open(d->path, OS_READ | OS_DIRECT, &d->file) != 0) return false;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        size_t block = blocks[i], n;
        if (os_file_read_at(d->file, page + block, block, block, &n) != 0) continue;
        d->block = block;
        return true;
    }
    os_file_close(d->file);
    return false;
}

static pi_status open_file(drive *d, const drive_options *o, pi_error *err) {
    int problem;
    if (o->buffered || !open_direct(d)) {
        d->block = 1;
        problem = os_file_open(d->path, OS_READ, &d->file);
        if (problem) return error_set_errno(err, problem, "cannot open file: %s", d->path);
        if (!o->buffered)
            log_line(
                LOG_LEVEL_WARN,
                "no direct reads on this file system: %s: weights are read through the page cache",
                d->path);
    }
    problem = os_file_info(d->file, &d->opened);
    if (problem) return error_set_errno(err, problem, "cannot read file: %s", d->path);
    if (d->opened.kind != OS_REGULAR)
        return error_set(err, PI_ERR_IO, "is not a regular file: %s: save it to disk first",
                         d->path);
    if (o->size && d->opened.size != o->size)
        return error_set(err, PI_ERR_IO, "file changed while it was in use: %s", d->path);
    return PI_OK;
}

static bool make_lanes(drive *d) {
    d->lanes = mem_calloc(DRIVE_LANES, sizeof *d->lanes);
    for (int i = 0; i < DRIVE_LANES && d->lanes; i++) {
        drive_lane *l = &d->lanes[i];
        l->d = d;
        os_mutex_init(&l->lock);
        os_condition_init(&l->arrived);
        os_condition_init(&l->work);
    }
    d->n_lanes = 1;
    return d->lanes;
}

static pi_status start(drive *d, drive_backend backend, pi_error *err) {
    int n = 0; /* fewer than DRIVE_LANES are enough */
    d->dropped = mem_map(DRIVE_MAX_GAP);
    if (!d->dropped) return error_nomem(err, DRIVE_MAX_GAP, "gaps between reads");
    errno = ENOSYS;
    if (backend == DRIVE_ASYNC || (backend == DRIVE_AUTO && os_reads_overlap(d->file)))
        while (n < DRIVE_LANES && (d->lanes[n].async = drive_async_create(d)) != NULL) n++;
    if (n > 1) d->n_lanes = n;
    if (d->lanes[0].async) return PI_OK;
    const char *name = os_reads_name();
    if (backend == DRIVE_ASYNC)
        return error_set(err, PI_ERR_UNSUPPORTED, "%s cannot be used: %s: %s", name, d->path,
                         strerror(errno));
    /* ENOSYS: the kernel or the build lacks it, or reads do not overlap; others: a sandbox */
    if (backend == DRIVE_AUTO && errno != ENOSYS)
        log_line(LOG_LEVEL_WARN, "%s cannot be used: %s: %s: falling back to threads", name,
                 d->path, strerror(errno));
    if (drive_threads_create(d)) return PI_OK;
    return error_set_errno(err, errno, "cannot start threads: %s", d->path);
}

pi_status drive_open(const char *path, const drive_options *options, drive **out, pi_error *err) {
    const drive_options defaults = {.backend = DRIVE_AUTO};
    const drive_options *o = options ? options : &defaults;
    *out = NULL;
    drive *d = mem_calloc(1, sizeof *d);
    if (!d) return error_nomem(err, sizeof *d, path);
    d->file = OS_FILE_NONE;
    os_mutex_init(&d->lock);
    d->path = mem_strdup(path);
    bool ok = d->path && make_lanes(d);
    pi_status status = ok ? open_file(d, o, err) : error_nomem(err, sizeof *d->lanes, path);
    if (status == PI_OK) status = start(d, o->backend, err);
    if (status != PI_OK) {
        drive_close(d);
        return status;
    }
    *out = d;
    return PI_OK;
}

static void close_lane(drive_lane *l) {
    if (l->async) {
        os_mutex_lock(&l->lock);
        l->n_queued = 0;
        while (l->n_busy > 0) drive_async_wait(l);
        os_mutex_unlock(&l->lock);
        drive_async_destroy(l->async);
    }
    os_condition_destroy(&l->work);
    os_condition_destroy(&l->arrived);
    os_mutex_destroy(&l->lock);
}

void drive_close(drive *d) {
    if (!d) return;
    if (d->threads) drive_threads_destroy(d);
    for (int i = 0; i < DRIVE_LANES && d->lanes; i++) close_lane(&d->lanes[i]);
    os_mutex_destroy(&d->lock);
    mem_free(d->lanes);
    mem_unmap(d->dropped, DRIVE_MAX_GAP);
    if (d->file != OS_FILE_NONE) os_file_close(d->file);
    mem_free(d->path);
    mem_free(d);
}

size_t drive_block(const drive *d) {
    return d->block;
}
const char *drive_backend_name(const drive *d) {
    return d->lanes[0].async ? os_reads_name() : "threads";
}

drive_counts drive_get_counts(drive *d) {
    drive_counts counts = {0};
    for (int i = 0; i < d->n_lanes; i++) {
        drive_lane *l = &d->lanes[i];
        os_mutex_lock(&l->lock);
        counts.reads += l->reads;
        counts.bytes += l->bytes;
        os_mutex_unlock(&l->lock);
    }
    os_mutex_lock(&d->lock);
    counts.busy = d->busy;
    if (d->n_busy > 0) counts.busy += clock_seconds() - d->busy_since;
    os_mutex_unlock(&d->lock);
    return counts;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Counts lanes with reads in flight: n is 1 when the lane's first piece was sent, -1 when its last
 * one completed. */
static void count_busy(drive *d, int n) {
    os_mutex_lock(&d->lock);
    double now = clock_seconds();
    if (d->n_busy > 0) d->busy += now - d->busy_since;
    d->busy_since = now;
    d->n_busy += n;
    os_mutex_unlock(&d->lock);
}

/* Adds the next piece of the queue to a read. */
static void take_piece(drive_lane *l, drive_read *out) {
    drive_piece *p = &l->queue[l->head];
    if (out->n_parts == 0) *out = (drive_read){.offset = p->offset, .left = p->left};
    out->parts[out->n_parts++] = (os_read_part){p->to ? p->to : l->d->dropped, p->n_bytes};
    out->n_bytes += p->n_bytes;
    out->total += p->n_bytes;
    if (l->n_queued == DRIVE_QUEUE) l->news = true;
    l->head = (l->head + 1) % DRIVE_QUEUE;
    l->n_queued--;
}

/* Whether the queue's next piece begins where the read ends. */
static bool adjoins(const drive_lane *l, const drive_read *r) {
    const drive_piece *p = &l->queue[l->head];
    return l->n_queued > 0 && p->joined && p->left == r->left &&
           p->offset == r->offset + r->n_bytes;
}

static bool fits(const drive_lane *l, const drive_read *r) {
    size_t most_parts = l->async ? drive_async_parts(l->async) : OS_READS_PARTS;
    return r->n_parts < most_parts && r->n_bytes + l->queue[l->head].n_bytes <= OS_READS_JOINED;
}

/* Nothing reads a gap between two reads. */
static void leave_gap(drive_lane *l, drive_read *r) {
    if (adjoins(l, r) && !l->queue[l->head].to) take_piece(l, r);
    const os_read_part *last = &r->parts[r->n_parts - 1];
    if (r->n_parts == 1 || last->to != l->d->dropped) return;
    r->n_parts--;
    r->n_bytes -= last->n;
    r->total -= last->n;
    atomic_fetch_sub_explicit(r->left, last->n, memory_order_relaxed);
}

bool drive_take(drive_lane *l, drive_read *out) {
    atomic_int *n_sent = &l->d->n_sent;
    if (l->n_queued == 0) return false;
    if (l->n_busy >= DRIVE_SHARE &&
        atomic_load_explicit(n_sent, memory_order_relaxed) >= DRIVE_DEPTH)
        return false;
    atomic_fetch_add_explicit(n_sent, 1, memory_order_relaxed);
    out->n_parts = 0;
    do take_piece(l, out);
    while (adjoins(l, out) && fits(l, out));
    leave_gap(l, out);
    l->reads++;
    if (l->n_busy++ == 0) count_busy(l->d, 1);
    return true;
}

static bool end_read(drive_lane *l, const drive_read *p) {
    drive *d = l->d;
    atomic_fetch_sub_explicit(&d->n_sent, 1, memory_order_relaxed);
    if (--l->n_busy == 0) count_busy(l->d, -1);
    /* The page cache need not keep bytes that were read through it. */
    if (d->block == 1) os_file_forget(d->file, p->offset + p->n_bytes - p->total, p->total);
    if (atomic_fetch_sub_explicit(p->left, p->total, memory_order_release) == p->total)
        l->news = true;
    return true;
}

static bool fail_read(drive_lane *l, const drive_read *p, int problem) {
    drive *d = l->d;
    os_mutex_lock(&d->lock);
    if (d->error.status == PI_OK && problem)
        error_set_errno(&d->error, problem, "cannot read file: %s: at byte %llu", d->path,
                        (unsigned long long)p->offset);
    else if (d->error.status == PI_OK)
        error_set(&d->error, PI_ERR_IO, FILE_MAP_CUT "%s", d->path);
    os_mutex_unlock(&d->lock);
    return end_read(l, p);
}

/* Drops the first n bytes, which have arrived. */
static void drop_bytes(drive_read *p, size_t n) {
    size_t done = 0;
    p->offset += n;
    p->n_bytes -= n;
    for (; n >= p->parts[done].n; done++) n -= p->parts[done].n;
    p->n_parts -= done;
    memmove(p->parts, p->parts + done, p->n_parts * sizeof *p->parts);
    p->parts->to = (uint8_t *)p->parts->to + n;
    p->parts->n -= n;
}

bool drive_finish(drive_lane *l, drive_read *p, int64_t result) {
    const drive *d = l->d;
    if (result == -EINTR || result == -EAGAIN) return false;
    if (result < 0) return fail_read(l, p, (int)-result);
    uint64_t size = d->opened.size;
    size_t need = p->offset >= size ? 0 : p->n_bytes;
    if (need > size - p->offset && need > 0) need = (size_t)(size - p->offset);
    size_t got = (size_t)result;
    l->bytes += got;
    if (got >= need) return end_read(l, p);
    got -= got % d->block; /* direct reads continue at a block boundary */
    if (got == 0) return fail_read(l, p, 0);
    drop_bytes(p, got);
    return false;
}

void drive_tell(drive_lane *l) {
    if (l->news) os_condition_broadcast(&l->arrived);
    l->news = false;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Neighbouring counters map to different lanes, also when they are members of larger structs. */
static drive_lane *lane_of(const drive *d, const atomic_size_t *left) {
    size_t at = (uintptr_t)left / sizeof *left;
    return &d->lanes[(at ^ at / DRIVE_LANES) % (size_t)d->n_lanes];
}

/* With the lock held. */
static void wait_for_some(drive_lane *l) {
    if (l->async)
        drive_async_wait(l);
    else
        os_condition_wait(&l->arrived, &l->lock);
}

/* Submits the requests of one lane. */
static void submit_to(drive_lane *l, const drive_request *requests, size_t n) {
    os_mutex_lock(&l->lock);
    for (size_t i = 0; i < n; i++) {
        const drive_request *r = &requests[i];
        atomic_fetch_add_explicit(r->left, r->n_bytes, memory_order_relaxed);
        for (size_t at = 0; at < r->n_bytes; at += DRIVE_PIECE) {
            size_t piece = r->n_bytes - at < DRIVE_PIECE ? r->n_bytes - at : DRIVE_PIECE;
            while (l->n_queued == DRIVE_QUEUE) wait_for_some(l);
            l->queue[(l->head + l->n_queued++) % DRIVE_QUEUE] = (drive_piece){
                .offset = r->offset + at,
                .n_bytes = piece,
                .to = r->to ? (uint8_t *)r->to + at : NULL,
                .left = r->left,
                .joined = r->joined && at == 0};
            if (!l->async) os_condition_signal(&l->work);
        }
    }
    if (l->async) drive_async_send(l);
    os_mutex_unlock(&l->lock);
}

void drive_submit(drive *d, const drive_request *requests, size_t n) {
    for (size_t i = 0, end; i < n; i = end) {
        drive_lane *l = lane_of(d, requests[i].left);
        for (end = i + 1; end < n && lane_of(d, requests[end].left) == l;) end++;
        submit_to(l, requests + i, end - i);
    }
}

void drive_poll(drive *d) {
    for (int i = 0; i < d->n_lanes; i++) {
        drive_lane *l = &d->lanes[i];
        if (!l->async || !os_mutex_try_lock(&l->lock)) continue;
        drive_async_send(l);
        os_mutex_unlock(&l->lock);
    }
}

void drive_wait(drive *d, const atomic_size_t *left) {
    if (atomic_load_explicit(left, memory_order_acquire) == 0) return;
    drive_lane *l = lane_of(d, left);
    os_mutex_lock(&l->lock);
    while (atomic_load_explicit(left, memory_order_acquire) > 0) wait_for_some(l);
    os_mutex_unlock(&l->lock);
}

pi_status drive_check(drive *d, pi_error *err) {
    os_info now;
    os_mutex_lock(&d->lock);
    pi_error first = d->error;
    d->error.status = PI_OK;
    os_mutex_unlock(&d->lock);
    if (first.status != PI_OK) {
        if (err) *err = first;
        return first.status;
    }
    int problem = os_file_info(d->file, &now);
    if (problem) return error_set_errno(err, problem, "cannot read file: %s", d->path);
    if (now.size < d->opened.size) return error_set(err, PI_ERR_IO, FILE_MAP_CUT "%s", d->path);
    if (now.size != d->opened.size || now.modified != d->opened.modified)
        return error_set(err, PI_ERR_IO, "file changed while it was in use: %s", d->path);
    return PI_OK;
}
