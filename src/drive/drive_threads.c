/* drive_threads.c: reads by threads that take pieces from the queue. */
#include <errno.h>

#include "drive_impl.h"
#include "mem.h"
#include "os_reads.h"

enum { N_THREADS = 16 }; /* enough for the drive; each needs a stack */

typedef struct drive_thread {
    os_thread thread;
    drive_lane *lane;
    os_reader *reader;
    uint8_t *dropped; /* [DRIVE_MAX_GAP] replaces the drive's buffer `dropped` */
} drive_thread;

struct drive_threads {
    drive_thread thread[N_THREADS];
    int n;
    bool ends;
};

static void serve(void *arg) {
    const drive_thread *t = arg;
    drive_lane *l = t->lane;
    drive_read p;
    os_mutex_lock(&l->lock);
    while (!l->d->threads->ends) {
        if (!drive_take(l, &p)) {
            os_condition_wait(&l->work, &l->lock);
            continue;
        }
        for (size_t i = 0; i < p.n_parts; i++)
            if (p.parts[i].to == l->d->dropped) p.parts[i].to = t->dropped;
        for (bool done = false; !done;) {
            os_mutex_unlock(&l->lock);
            size_t got;
            int problem = os_reader_read(t->reader, p.parts, p.n_parts, p.offset, &got);
            int64_t result = problem ? -(int64_t)problem : (int64_t)got;
            os_mutex_lock(&l->lock);
            done = drive_finish(l, &p, result);
        }
        drive_tell(l);
    }
    os_mutex_unlock(&l->lock);
}

static void free_thread(drive_thread *t) {
    if (t->reader) os_reader_destroy(t->reader);
    mem_unmap(t->dropped, DRIVE_MAX_GAP);
}

bool drive_threads_create(drive *d) {
    drive_threads *t = d->threads = mem_calloc(1, sizeof *t);
    int problem = t ? 0 : ENOMEM;
    while (!problem && t->n < N_THREADS) {
        drive_thread *one = &t->thread[t->n];
        one->lane = &d->lanes[0];
        one->dropped = mem_map(DRIVE_MAX_GAP);
        problem = one->dropped ? os_reader_create(d->file, one->dropped, &one->reader) : ENOMEM;
        if (!problem) problem = os_thread_start(&one->thread, serve, one);
        if (problem)
            free_thread(one);
        else
            t->n++;
    }
    if (t && t->n > 0) return true; /* fewer threads also work */
    mem_free(t);
    d->threads = NULL;
    errno = problem;
    return false;
}

void drive_threads_destroy(drive *d) {
    drive_threads *t = d->threads;
    drive_lane *l = &d->lanes[0];
    os_mutex_lock(&l->lock);
    t->ends = true;
    os_condition_broadcast(&l->work);
    os_mutex_unlock(&l->lock);
    for (int i = 0; i < t->n; i++) {
        os_thread_join(&t->thread[i].thread);
        free_thread(&t->thread[i]);
    }
    mem_free(t);
    d->threads = NULL;
}
