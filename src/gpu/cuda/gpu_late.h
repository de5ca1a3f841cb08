/* gpu_late.h: defers frees until no program waits for its host.
 *
 * In a driver a free may wait until the device is idle, and hold locks that other threads need:
 * while a program (of any context) waits for its host, both would stall. So frees go on a list
 * while any stream has work that may wait for the host (between `begin` and `end`); the end of the
 * last such work frees the list. When an allocation fails, the whole list is freed at once, at the
 * risk of a stall; so is memory that does not fit on the list. One list for all devices. */
#ifndef GPU_CUDA_GPU_LATE_H
#define GPU_CUDA_GPU_LATE_H

#include <pthread.h>

#include "gpu.h"

struct gpu_put_off {
    gpu_device *device; /* owner of the memory; may be closed before the free, unless the backend
                           prevents that */
    int index;
    gpu_pinned pinned; /* host NULL: device memory */
    void *p;
    size_t n_bytes;
};

/* Defined by the backend: frees the memory. `idle`: no work that may wait is running. */
void gpu_free_now(const gpu_put_off &m, bool idle);

class gpu_late {
    enum { MOST = 1024 };
    pthread_mutex_t mutex =
        PTHREAD_MUTEX_INITIALIZER; /* guards all members; held while idle frees run */
    int n_busy = 0, n = 0;
    gpu_put_off list[MOST];

  public:
    /* Call before enqueueing work that may wait for the host; sets the stream's `busy`. */
    void begin(bool *busy) {
        if (*busy) return;
        *busy = true;
        pthread_mutex_lock(&mutex);
        n_busy++;
        pthread_mutex_unlock(&mutex);
    }
    /* Call when all work of the stream is done. */
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
    /* Frees the deferred memory of `d`, for NULL of all devices; false: there was none. Does not
     * hold the lock, so that hosts of waiting programs can call `begin`. */
    bool flush(const gpu_device *d) {
        gpu_put_off m;
        bool any = false;
        while (take(d, &m)) {
            gpu_free_now(m, false);
            any = true;
        }
        return any;
    }
    /* Bytes of a device's memory on the list. */
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
