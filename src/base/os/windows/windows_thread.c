/* windows_thread.c: threads, slim locks, and waiting for words of memory. GPU backends link this
 * file without the rest of the folder. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <process.h>
#include <stdlib.h>

#include "windows_call.h"

#include <bcrypt.h>
#include <synchapi.h>

#include "clock.h"
#include "os_thread.h"
#include "windows_thread.h"

_Static_assert(sizeof(SRWLOCK) <= sizeof(os_mutex), "os_mutex is too small");
_Static_assert(sizeof(CONDITION_VARIABLE) <= sizeof(os_condition), "os_condition is too small");
_Static_assert(sizeof(HANDLE) <= sizeof(uintptr_t), "os_thread.handle is too small");

static SRWLOCK *lock_of(os_mutex *m) {
    return (SRWLOCK *)(void *)m->bytes;
}

static CONDITION_VARIABLE *condition_of(os_condition *c) {
    return (CONDITION_VARIABLE *)(void *)c->bytes;
}

int os_mutex_init(os_mutex *m) {
    InitializeSRWLock(lock_of(m));
    return 0;
}

/* Neither locks nor conditions have anything to free. */
void os_mutex_destroy(os_mutex *m) {
    (void)m;
}

void os_mutex_lock(os_mutex *m) {
    AcquireSRWLockExclusive(lock_of(m));
}

void os_mutex_unlock(os_mutex *m) {
    ReleaseSRWLockExclusive(lock_of(m));
}

bool os_mutex_try_lock(os_mutex *m) {
    return TryAcquireSRWLockExclusive(lock_of(m));
}

int os_condition_init(os_condition *c) {
    InitializeConditionVariable(condition_of(c));
    return 0;
}

void os_condition_destroy(os_condition *c) {
    (void)c;
}

void os_condition_wait(os_condition *c, os_mutex *m) {
    SleepConditionVariableSRW(condition_of(c), lock_of(m), INFINITE, 0);
}

/* The system may return up to a tick before the time. */
bool os_condition_wait_until(os_condition *c, os_mutex *m, double until) {
    const double most = 1e9; /* ms, 11 days; then the caller waits again */
    double left = ceil((until - clock_seconds()) * 1e3);
    DWORD ms = left <= 0 ? 0 : (DWORD)(left < most ? left : most);
    if (SleepConditionVariableSRW(condition_of(c), lock_of(m), ms, 0)) return true;
    return clock_seconds() < until;
}

void os_condition_signal(os_condition *c) {
    WakeConditionVariable(condition_of(c));
}

void os_condition_broadcast(os_condition *c) {
    WakeAllConditionVariable(condition_of(c));
}

/* ---- threads --------------------------------------------------------------------------------- */

/* As on Linux; the system's 1 MiB is less than deep recursions in parsers take. It is address
 * space: memory is used when it is touched. */
enum { STACK_BYTES = 8 << 20 };

static _Thread_local thread_settings settings;

thread_settings *windows_thread_settings(void) {
    return &settings;
}

/* What a thread gets from the one that starts it. */
typedef struct thread_start {
    os_thread *thread;
    thread_settings settings;
    HANDLE begun; /* set when this struct has been read */
} thread_start;

static unsigned __stdcall run_thread(void *arg) {
    const thread_start *start = arg;
    const os_thread *t = start->thread;
    settings = start->settings;
    SetEvent(start->begun);
    if (settings.priority) (void)SetThreadPriority(GetCurrentThread(), settings.priority);
    if (settings.place) settings.place();
    t->fn(t->arg);
    return 0;
}

int os_thread_start(os_thread *t, void (*fn)(void *arg), void *arg) {
    thread_start start = {.thread = t, .settings = settings};
    start.begun = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (!start.begun) return EAGAIN;
    t->fn = fn;
    t->arg = arg;
    t->handle = _beginthreadex(NULL, STACK_BYTES, run_thread, &start,
                               STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    int problem = t->handle ? 0 : errno ? errno : EAGAIN;
    if (!problem) WaitForSingleObject(start.begun, INFINITE);
    CloseHandle(start.begun);
    return problem;
}

void os_thread_join(os_thread *t) {
    WaitForSingleObject((HANDLE)t->handle, INFINITE);
    CloseHandle((HANDLE)t->handle);
}

/* ---- once, words ----------------------------------------------------------------------------- */

enum { ONCE_NEW, ONCE_RUNS, ONCE_DONE };

void os_once_run(os_once *once, void (*fn)(void)) {
    volatile LONG *state = (volatile LONG *)&once->state;
    LONG seen = InterlockedCompareExchange(state, ONCE_RUNS, ONCE_NEW);
    if (seen == ONCE_NEW) {
        fn();
        InterlockedExchange(state, ONCE_DONE);
        WakeByAddressAll((void *)&once->state);
        return;
    }
    for (; seen != ONCE_DONE; seen = InterlockedCompareExchange(state, ONCE_DONE, ONCE_DONE)) {
        LONG runs = ONCE_RUNS;
        WaitOnAddress(state, &runs, sizeof runs, INFINITE);
    }
}

_Static_assert(sizeof(int) == sizeof(LONG), "os_once is a LONG");
_Static_assert(sizeof(atomic_uint) == 4, "the system waits for words of 4 bytes");

/* The system compares *word with `seen` again before it puts the thread to sleep. */
void os_word_wait(atomic_uint *word, unsigned seen) {
    (void)WaitOnAddress((volatile void *)word, &seen, sizeof seen, INFINITE);
}

void os_word_wake_all(atomic_uint *word) {
    WakeByAddressAll((void *)word);
}

/* ---- time, processes ------------------------------------------------------------------------- */

void os_yield(void) {
    SwitchToThread();
}

#ifndef CREATE_WAITABLE_TIMER_HIGH_RESOLUTION
#define CREATE_WAITABLE_TIMER_HIGH_RESOLUTION 2
#endif

/* Sleep() may take 16 ms longer; such a timer takes half a millisecond. */
void os_sleep(double seconds) {
    if (seconds <= 0) return;
    LARGE_INTEGER due = {.QuadPart = -(LONGLONG)ceil(seconds * 1e7)}; /* 100 ns, from this moment */
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, CREATE_WAITABLE_TIMER_HIGH_RESOLUTION,
                                          TIMER_ALL_ACCESS);
    if (timer && SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE))
        WaitForSingleObject(timer, INFINITE);
    else
        Sleep((DWORD)ceil(seconds * 1e3));
    if (timer) CloseHandle(timer);
}

long os_process_id(void) {
    return (long)GetCurrentProcessId();
}

bool os_random(void *out, size_t n) {
    return BCryptGenRandom(NULL, out, (ULONG)n, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0;
}
