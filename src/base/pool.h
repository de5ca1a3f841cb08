/* pool.h: the worker pool. Created once per context; workers spin during a forward pass and sleep
 * between runs, or when a phase takes much longer than phases do.
 *
 * A run executes one function on all threads at once (SPMD): the caller is thread 0. Inside a run,
 * phases are separated by pool_barrier; within a phase, work is handed out in chunks by pool_take,
 * so that a slow core takes fewer. All threads must call pool_barrier the same number of times. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int ith, int nth);

enum { POOL_MAX_THREADS = 512 };

/* n_threads in 1..POOL_MAX_THREADS; PI_ERR_ARG otherwise, PI_ERR_NOMEM when threads cannot be made.
 */
pi_status pool_create(int n_threads, pool **out, pi_error *err);
/* Joins; not from inside a run; NULL is fine. In a child that was forked only memory is freed. */
void pool_destroy(pool *p);
/* False in a process that was forked from the one that made the pool: threads stay behind. */
bool pool_has_threads(const pool *p);
int pool_size(const pool *p);
/* Keeps every worker on one CPU of those that the caller may use, one after the other; the caller,
 * which is thread 0, stays as it is. Not from inside a run. */
void pool_pin(pool *p);

/* Runs fn(arg, ith, nth) on the first nth threads (1..pool_size), returns when all are done. One
 * run at a time per pool. */
void pool_run(pool *p, int nth, pool_fn fn, void *arg);

/* Between runs: whether threads that wait stay awake for the length of a token, because what one of
 * them waits for is another device: it comes after hundreds of microseconds, and then waking up
 * would take as long as the work. They give their core to others now and then. Nothing changes
 * where there are more threads than CPUs. False at first. */
void pool_stay_awake(pool *p, bool awake);
/* How many times threads have gone to sleep within runs since the pool was made. */
uint64_t pool_sleeps(const pool *p);

/* From inside a run: waits for all threads of it. Everything written before is seen after. Also
 * resets the counter of pool_take to 0. */
void pool_barrier(pool *p);
/* The same, and the last thread to arrive runs fn(arg) before the others go on: work that is not
 * worth sharing costs no barrier of its own. pool_take starts at 0 within fn and again after it. */
void pool_barrier_run(pool *p, void (*fn)(void *arg), void *arg);
/* From inside the fn of pool_barrier_run: the next piece of its work takes from 0 again. */
void pool_restart(pool *p);

/* From inside a run: reserves the next `chunk` items of this phase and returns the first index;
 * the caller stops when it is >= its own total. */
int64_t pool_take(pool *p, int64_t chunk);

/* For loops that wait for something else than threads of a pool: a moment within the core, and a
 * chance for other threads of it. */
void pool_pause(void);
void pool_yield(void);
/* Pauses at first, then sleeps for some tens of microseconds at a time; *round counts, from 0. */
void pool_wait(int *round);

/* Physical cores this process may use (affinity respected, SMT siblings counted once; on hybrid
 * CPUs the performance cores only). At least 1. */
int cpu_count_physical(void);

#endif
