/* linux_thread.c: threads of the C library, and futexes. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os_thread.h"

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(os_mutex), "os_mutex is too small");
_Static_assert(alignof(pthread_mutex_t) <= alignof(os_mutex), "os_mutex is not aligned");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(os_condition), "os_condition is too small");
_Static_assert(alignof(pthread_cond_t) <= alignof(os_condition), "os_condition is not aligned");
_Static_assert(sizeof(pthread_once_t) == sizeof(os_once), "os_once has another size");
_Static_assert(PTHREAD_ONCE_INIT == 0, "os_once is initialized to zero");
_Static_assert(sizeof(pthread_t) <= sizeof(uintptr_t), "os_thread.handle is too small");

static pthread_mutex_t *mutex_of(os_mutex *m) {
    return (pthread_mutex_t *)(void *)m->bytes;
}

static pthread_cond_t *condition_of(os_condition *c) {
    return (pthread_cond_t *)(void *)c->bytes;
}

static struct timespec timespec_of(double seconds) {
    double whole = floor(seconds);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
}

int os_mutex_init(os_mutex *m) {
    return pthread_mutex_init(mutex_of(m), NULL);
}

void os_mutex_destroy(os_mutex *m) {
    pthread_mutex_destroy(mutex_of(m));
}

void os_mutex_lock(os_mutex *m) {
    pthread_mutex_lock(mutex_of(m));
}

void os_mutex_unlock(os_mutex *m) {
    pthread_mutex_unlock(mutex_of(m));
}

bool os_mutex_try_lock(os_mutex *m) {
    return pthread_mutex_trylock(mutex_of(m)) == 0;
}

/* Conditions measure time as clock_seconds does: by the monotonic clock. */
int os_condition_init(os_condition *c) {
    pthread_condattr_t attributes;
    int problem = pthread_condattr_init(&attributes);
    if (problem) return problem;
    problem = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!problem) problem = pthread_cond_init(condition_of(c), &attributes);
    pthread_condattr_destroy(&attributes);
    return problem;
}

void os_condition_destroy(os_condition *c) {
    pthread_cond_destroy(condition_of(c));
}

void os_condition_wait(os_condition *c, os_mutex *m) {
    pthread_cond_wait(condition_of(c), mutex_of(m));
}

bool os_condition_wait_until(os_condition *c, os_mutex *m, double until) {
    const struct timespec end = timespec_of(until);
    return pthread_cond_timedwait(condition_of(c), mutex_of(m), &end) != ETIMEDOUT;
}

void os_condition_signal(os_condition *c) {
    pthread_cond_signal(condition_of(c));
}

void os_condition_broadcast(os_condition *c) {
    pthread_cond_broadcast(condition_of(c));
}

static void *run_thread(void *arg) {
    const os_thread *t = arg;
    t->fn(t->arg);
    return NULL;
}

int os_thread_start(os_thread *t, void (*fn)(void *arg), void *arg) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE};
    sigset_t blocked, old;
    pthread_t handle;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    t->fn = fn;
    t->arg = arg;
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    int problem = pthread_create(&handle, NULL, run_thread, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!problem) t->handle = (uintptr_t)handle;
    return problem;
}

void os_thread_join(os_thread *t) {
    pthread_join((pthread_t)t->handle, NULL);
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

void os_yield(void) {
    sched_yield();
}

void os_sleep(double seconds) {
    const struct timespec time = timespec_of(seconds);
    (void)nanosleep(&time, NULL);
}

long os_process_id(void) {
    return getpid();
}

bool os_random(void *out, size_t n) {
    return getrandom(out, n, GRND_NONBLOCK) == (ssize_t)n;
}
