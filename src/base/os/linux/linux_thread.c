/* linux_thread.c: futexes, conditions with the monotonic clock, random bytes. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "posix/posix_thread.h"

_Static_assert(sizeof(pthread_once_t) == sizeof(os_once), "os_once has another size");
_Static_assert(PTHREAD_ONCE_INIT == 0, "os_once is initialized to zero");

/* The kernel gives a new thread the niceness and the CPUs of the one that creates it. */
void posix_thread_inherit(pthread_attr_t *attributes) {
    (void)attributes;
}

/* Conditions measure time as clock_seconds does: by the monotonic clock. */
int os_condition_init(os_condition *c) {
    pthread_condattr_t attributes;
    int problem = pthread_condattr_init(&attributes);
    if (problem) return problem;
    problem = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!problem) problem = pthread_cond_init(posix_condition(c), &attributes);
    pthread_condattr_destroy(&attributes);
    return problem;
}

bool os_condition_wait_until(os_condition *c, os_mutex *m, double until) {
    const struct timespec end = posix_timespec(until);
    return pthread_cond_timedwait(posix_condition(c), posix_mutex(m), &end) != ETIMEDOUT;
}

void os_once_run(os_once *once, void (*fn)(void)) {
    pthread_once(&once->state, fn);
}

/* The kernel compares *word with `seen` again before it puts the thread to sleep. */
void os_word_wait(atomic_uint *word, unsigned seen) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void os_word_wake_all(atomic_uint *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool os_random(void *out, size_t n) {
    return getrandom(out, n, GRND_NONBLOCK) == (ssize_t)n;
}
