/* os_thread.h: threads, locks and waiting.
 *
 * Objects have a fixed size, so that they can be members of structs; no object may be copied or
 * moved after its initialization. Functions that return int return 0 or an error number of
 * <errno.h>. */
#ifndef BASE_OS_THREAD_H
#define BASE_OS_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OS_MUTEX_BYTES = 64, OS_CONDITION_BYTES = 64 }; /* enough for every system */

/* A lock that its thread must not take twice. */
typedef struct os_mutex {
    _Alignas(16) unsigned char bytes[OS_MUTEX_BYTES];
} os_mutex;

int os_mutex_init(os_mutex *m);
void os_mutex_destroy(os_mutex *m);
void os_mutex_lock(os_mutex *m);
void os_mutex_unlock(os_mutex *m);
bool os_mutex_try_lock(os_mutex *m); /* false: another thread has it */

/* Threads wait for a condition with its mutex locked; waiting unlocks the mutex, returning locks it
 * again. A wait may also end without a signal: call it in a loop that checks the condition. */
typedef struct os_condition {
    _Alignas(16) unsigned char bytes[OS_CONDITION_BYTES];
} os_condition;

int os_condition_init(os_condition *c);
void os_condition_destroy(os_condition *c);
void os_condition_wait(os_condition *c, os_mutex *m);
/* `until` in seconds of clock_seconds; false: timed out. */
bool os_condition_wait_until(os_condition *c, os_mutex *m, double until);
void os_condition_signal(os_condition *c);    /* wakes one thread */
void os_condition_broadcast(os_condition *c); /* wakes all threads */

/* A thread reads its os_thread, which stays in place until os_thread_join. */
typedef struct os_thread {
    uintptr_t handle;
    void (*fn)(void *arg);
    void *arg;
} os_thread;

/* Starts a thread that runs fn(arg). The thread blocks all signals except faults, so that other
 * signals reach the program's own threads. (A fault whose signal is blocked would end the program
 * without its handler.) */
int os_thread_start(os_thread *t, void (*fn)(void *arg), void *arg);
void os_thread_join(os_thread *t);

/* Runs fn once per os_once; other callers wait until it has returned. Initialize to zero. */
typedef struct os_once {
    int state;
} os_once;

void os_once_run(os_once *once, void (*fn)(void));

/* Sleeps while *word is `seen`; may also return early. os_word_wake_all wakes all threads that
 * sleep on the word: call it after changing *word. */
void os_word_wait(atomic_uint *word, unsigned seen);
void os_word_wake_all(atomic_uint *word);

void os_yield(void); /* lets other threads use this core */
/* Returns early when a signal arrives. */
void os_sleep(double seconds);

/* Identifies this process; different in a forked child. */
long os_process_id(void);
/* Fills `out` with random bytes of the system; false: it has none at this moment. n <= 256. */
bool os_random(void *out, size_t n);

#endif
