/* pool.h: the worker pool. Created once per context; workers spin during a forward pass and sleep
 * between runs, or when a phase takes much longer than usual.
 *
 * A run executes one function on all threads at once (SPMD): the caller is thread 0. Inside a run,
 * pool_barrier separates phases; within a phase, pool_take hands out work in chunks, so that a slow
 * core takes fewer. All threads must call pool_barrier the same number of times. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int ith, int nth);

enum { POOL_MAX_THREADS = 512 };

/* n_threads is 1..POOL_MAX_THREADS, else PI_ERR_ARG. PI_ERR_NOMEM: threads cannot be created. */
pi_status pool_create(int n_threads, pool **out, pi_error *err);
/* Joins the threads (in a forked child: only frees memory). Not from inside a run; NULL is fine. */
void pool_destroy(pool *p);
/* False in a process forked from the pool's creator: the child has no threads. */
bool pool_has_threads(const pool *p);
int pool_size(const pool *p);
/* Pins every worker to one of the CPUs that the caller may use, in turn. The caller, thread 0,
 * stays as it is. Not from inside a run. */
void pool_pin(pool *p);

/* Runs fn(arg, ith, nth) on the first nth threads (1..pool_size) and returns when all are done. One
 * run at a time per pool. */
void pool_run(pool *p, int nth, pool_fn fn, void *arg);

/* Between runs: whether waiting threads stay awake for the length of a token. Needed when one of
 * them waits for another device: its answer comes after hundreds of microseconds, and a wakeup
 * would take as long as the work. Threads yield their core now and then. Without effect when there
 * are more threads than CPUs. False at first. */
void pool_stay_awake(pool *p, bool awake);
/* Number of times that threads went to sleep within runs since the pool was created. */
uint64_t pool_sleeps(const pool *p);

/* From inside a run: waits for all its threads. Writes before the barrier are visible after it.
 * Resets the counter of pool_take to 0. */
void pool_barrier(pool *p);
/* Like pool_barrier, and the last thread to arrive runs fn(arg) before the others continue: work
 * that is not worth sharing then needs no second barrier. pool_take starts at 0 within fn and again
 * after it. */
void pool_barrier_run(pool *p, void (*fn)(void *arg), void *arg);
/* From inside the fn of pool_barrier_run: resets pool_take to 0 for fn's next piece of work. */
void pool_restart(pool *p);

/* From inside a run: reserves the next `chunk` items of this phase and returns the first index;
 * the caller stops when it is >= its own total. */
int64_t pool_take(pool *p, int64_t chunk);

/* For loops that wait for something other than threads of a pool: pool_pause waits a moment on the
 * core, pool_yield lets other threads use it. */
void pool_pause(void);
void pool_yield(void);
/* Spins at first, then sleeps for some tens of microseconds at a time; *round counts from 0. */
void pool_wait(int *round);

#endif
