/* posix_thread.c: threads of the C library. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "os_thread.h"
#include "posix_thread.h"

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(os_mutex), "os_mutex is too small");
_Static_assert(alignof(pthread_mutex_t) <= alignof(os_mutex), "os_mutex is not aligned");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(os_condition), "os_condition is too small");
_Static_assert(alignof(pthread_cond_t) <= alignof(os_condition), "os_condition is not aligned");
_Static_assert(sizeof(pthread_t) <= sizeof(uintptr_t), "os_thread.handle is too small");

int os_mutex_init(os_mutex *m) {
    return pthread_mutex_init(posix_mutex(m), NULL);
}

void os_mutex_destroy(os_mutex *m) {
    pthread_mutex_destroy(posix_mutex(m));
}

void os_mutex_lock(os_mutex *m) {
    pthread_mutex_lock(posix_mutex(m));
}

void os_mutex_unlock(os_mutex *m) {
    pthread_mutex_unlock(posix_mutex(m));
}

bool os_mutex_try_lock(os_mutex *m) {
    return pthread_mutex_trylock(posix_mutex(m)) == 0;
}

void os_condition_destroy(os_condition *c) {
    pthread_cond_destroy(posix_condition(c));
}

void os_condition_wait(os_condition *c, os_mutex *m) {
    pthread_cond_wait(posix_condition(c), posix_mutex(m));
}

void os_condition_signal(os_condition *c) {
    pthread_cond_signal(posix_condition(c));
}

void os_condition_broadcast(os_condition *c) {
    pthread_cond_broadcast(posix_condition(c));
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
    pthread_attr_t attributes;
    int problem = pthread_attr_init(&attributes);
    if (problem) return problem;
    posix_thread_inherit(&attributes);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    problem = pthread_create(&handle, &attributes, run_thread, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    if (!problem) t->handle = (uintptr_t)handle;
    return problem;
}

void os_thread_join(os_thread *t) {
    pthread_join((pthread_t)t->handle, NULL);
}

void os_yield(void) {
    sched_yield();
}

void os_sleep(double seconds) {
    const struct timespec time = posix_timespec(seconds);
    (void)nanosleep(&time, NULL);
}

long os_process_id(void) {
    return getpid();
}
