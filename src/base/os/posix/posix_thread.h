/* posix_thread.h: casts the objects of os_thread.h to those of the C library. Each system has its
 * own file for waiting on words of memory, time limits and random bytes. */
#ifndef BASE_POSIX_THREAD_H
#define BASE_POSIX_THREAD_H

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "os_thread.h"

static inline pthread_mutex_t *posix_mutex(os_mutex *m) {
    return (pthread_mutex_t *)(void *)m->bytes;
}

static inline pthread_cond_t *posix_condition(os_condition *c) {
    return (pthread_cond_t *)(void *)c->bytes;
}

static inline struct timespec posix_timespec(double seconds) {
    double whole = floor(seconds);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
}

/* Gives a new thread the priority of the calling thread, where the system does not do so. Each
 * system's folder defines this function. */
void posix_thread_inherit(pthread_attr_t *attributes);

#endif
