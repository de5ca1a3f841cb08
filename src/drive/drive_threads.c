/* drive_threads.c: reads by threads that take pieces from the queue. */
#include <errno.h>

#include "drive_impl.h"
#include "mem.h"

enum { N_THREADS = 16 }; /* enough for the drive; each needs a stack */

struct drive_threads {
    os_thread thread[N_THREADS];
    int n;
    bool ends;
};

static void serve(void *arg) {
    drive_lane *l = arg;
    drive *d = l->d;
    drive_read p;
    os_mutex_lock(&l->lock);
    while (!d->threads->ends) {
        if (!drive_take(l, &p)) {
            os_condition_wait(&l->work, &l->lock);
            continue;
        }
        for (bool done = false; !done;) {
            os_mutex_unlock(&l->lock);
            size_t got;
            int problem = os_file_read_at(d->file, p.parts->to, p.n_bytes, p.offset, &got);
            int64_t result = problem ? -(int64_t)problem : (int64_t)got;
            os_mutex_lock(&l->lock);
            done = drive_finish(l, &p, result);
        }
        drive_tell(l);
    }
    os_mutex_unlock(&l->lock);
}

bool drive_threads_create(drive *d) {
    drive_threads *t = d->threads = mem_calloc(1, sizeof *t);
    int problem = t ? 0 : ENOMEM;
    while (!problem && t->n < N_THREADS) {
        problem = os_thread_start(&t->thread[t->n], serve, &d->lanes[0]);
        if (!problem) t->n++;
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
    for (int i = 0; i < t->n; i++) os_thread_join(&t->thread[i]);
    mem_free(t);
    d->threads = NULL;
}
