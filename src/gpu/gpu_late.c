/* gpu_late.c: see gpu_late.h. */
#include "gpu_late.h"

#include "os_thread.h"

enum { MOST = 1024 };

static struct {
    os_once once;
    os_mutex mutex; /* guards all; held while idle frees run */
    int n_busy, n;
    gpu_put_off list[MOST];
} late;

static void make_mutex(void) {
    os_mutex_init(&late.mutex);
}

static void lock(void) {
    os_once_run(&late.once, make_mutex);
    os_mutex_lock(&late.mutex);
}

static void unlock(void) {
    os_mutex_unlock(&late.mutex);
}

void gpu_late_begin(bool *busy) {
    if (*busy) return;
    *busy = true;
    lock();
    late.n_busy++;
    unlock();
}

void gpu_late_end(bool *busy) {
    if (!*busy) return;
    *busy = false;
    lock();
    if (--late.n_busy == 0)
        while (late.n > 0) gpu_free_now(&late.list[--late.n], true);
    unlock();
}

void gpu_late_put(const gpu_put_off *m) {
    lock();
    const bool idle = late.n_busy == 0, later = !idle && late.n < MOST;
    if (later) late.list[late.n++] = *m;
    if (idle) gpu_free_now(m, true);
    unlock();
    if (!idle && !later) gpu_free_now(m, false);
}

static bool take(const gpu_device *d, gpu_put_off *m) {
    lock();
    int i = late.n - 1;
    while (i >= 0 && d && late.list[i].device != d) i--;
    if (i >= 0) {
        *m = late.list[i];
        late.list[i] = late.list[--late.n];
    }
    unlock();
    return i >= 0;
}

bool gpu_late_flush(const gpu_device *d) {
    gpu_put_off m;
    bool any = false;
    while (take(d, &m)) {
        gpu_free_now(&m, false);
        any = true;
    }
    return any;
}

uint64_t gpu_late_bytes(int index) {
    uint64_t sum = 0;
    lock();
    for (int i = 0; i < late.n; i++)
        if (late.list[i].index == index && !late.list[i].pinned.host) sum += late.list[i].n_bytes;
    unlock();
    return sum;
}
