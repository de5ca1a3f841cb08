/* drive_threads.c: reads by threads that take pieces from the queue. */
#include <errno.h>
#include <unistd.h>

#include "drive_impl.h"
#include "mem.h"

enum { N_THREADS = 16 }; /* enough for the drive; each needs a stack */

struct drive_threads {
    pthread_t thread[N_THREADS];
    int n;
    bool ends;
};

static void *serve(void *arg) {
    drive_lane *l = arg;
    drive *d = l->d;
    drive_piece p;
    pthread_mutex_lock(&l->lock);
    while (!d->threads->ends) {
        if (!drive_take(l, &p)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        for (bool done = false; !done;) {
            pthread_mutex_unlock(&l->lock);
            ssize_t got = pread(d->fd, p.to, p.n_bytes, (off_t)p.offset);
            int64_t result = got < 0 ? -(int64_t)errno : got;
            pthread_mutex_lock(&l->lock);
            done = drive_finish(l, &p, result);
        }
        drive_tell(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

bool drive_threads_create(drive *d) {
    drive_threads *t = d->threads = mem_calloc(1, sizeof *t);
    int problem = t ? 0 : ENOMEM;
    while (!problem && t->n < N_THREADS) {
        problem = pthread_create(&t->thread[t->n], NULL, serve, &d->lanes[0]);
        if (!problem) t->n++;
    }
    if (t && t->n > 0) return true; /* fewer are enough */
    mem_free(t);
    d->threads = NULL;
    errno = problem;
    return false;
}

void drive_threads_destroy(drive *d) {
    drive_threads *t = d->threads;
    drive_lane *l = &d->lanes[0];
    pthread_mutex_lock(&l->lock);
    t->ends = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < t->n; i++) pthread_join(t->thread[i], NULL);
    mem_free(t);
    d->threads = NULL;
}
