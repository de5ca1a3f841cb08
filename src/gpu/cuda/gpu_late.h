/* gpu_late.h: frees that are deferred until no program waits for its host.
 *
 * A driver may let a free wait until the device has nothing to do, with locks held that other
 * threads need: while a program (of any context) waits for its host, both would stall. So a free
 * goes on a list while any stream has work that may wait (`begin` to `end`); the end of the last
 * such work empties the list. When an allocation fails, everything on the list is freed at once, at
 * the risk of stalling, and so is memory for which the list has no room. One list for all devices.
 */
#ifndef GPU_CUDA_GPU_LATE_H
#define GPU_CUDA_GPU_LATE_H

#include <pthread.h>

#include "gpu.h"

struct gpu_put_off {
    gpu_device *device; /* of the memory; may be closed by then, unless the backend prevents that */
    int index;
    gpu_pinned pinned; /* host NULL: device memory */
    void *p;
    size_t n_bytes;
};

/* By the backend: frees it. `idle`: no work that waits is under way. */
void gpu_free_now(const gpu_put_off &m, bool idle);

class gpu_late {
    enum { MOST = 1024 };
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all; held while idle frees run */
    int n_busy = 0, n = 0;
    gpu_put_off list[MOST];

  public:
    /* Before a stream gets work that may wait for the host; its `busy` says that it has some. */
    void begin(bool *busy) {
        if (*busy) return;
        *busy = true;
        pthread_mutex_lock(&mutex);
        n_busy++;
        pthread_mutex_unlock(&mutex);
    }
    /* When all work of the stream is done. */
    void end(bool *busy) {
        if (!*busy) return;
        *busy = false;
        pthread_mutex_lock(&mutex);
        if (--n_busy == 0)
            while (n > 0) gpu_free_now(list[--n], true);
        pthread_mutex_unlock(&mutex);
    }
    void put(const gpu_put_off &m) {
        pthread_mutex_lock(&mutex);
        const bool later = n_busy > 0 && n < MOST;
        if (later) list[n++] = m;
        if (n_busy == 0) gpu_free_now(m, true);
        const bool now = n_busy > 0 && !later;
        pthread_mutex_unlock(&mutex);
        if (now) gpu_free_now(m, false);
    }
    /* Frees what was freed from `d`, or everything for NULL; false: there was nothing. Without the
     * lock: programs whose host has to begin another stream go on. */
    bool flush(const gpu_device *d) {
        gpu_put_off m;
        bool any = false;
        while (take(d, &m)) {
            gpu_free_now(m, false);
            any = true;
        }
        return any;
    }
    /* Device memory of a device that is on the list. */
    uint64_t bytes(int index) {
        uint64_t sum = 0;
        pthread_mutex_lock(&mutex);
        for (int i = 0; i < n; i++)
            if (list[i].index == index && !list[i].pinned.host) sum += list[i].n_bytes;
        pthread_mutex_unlock(&mutex);
        return sum;
    }

  private:
    bool take(const gpu_device *d, gpu_put_off *m) {
        pthread_mutex_lock(&mutex);
        int i = n - 1;
        while (i >= 0 && d && list[i].device != d) i--;
        if (i >= 0) {
            *m = list[i];
            list[i] = list[--n];
        }
        pthread_mutex_unlock(&mutex);
        return i >= 0;
    }
};

extern gpu_late gpu_frees;

#endif
