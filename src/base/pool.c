/* pool.c: the worker pool.
 *
 * Each worker has a wakeup counter on its own cache line. pool_run describes the run in the pool,
 * then increments the counters of the workers that take part (release); a worker that sees its
 * counter change (acquire) may read the description. Workers outside the run are not touched: they
 * neither read a description that is about to change nor wake up. A run ends when n_done, which
 * every worker increments, reaches the number that the caller waits for.
 *
 * Waiting: a thread first spins on pause instructions, to react within tens of nanoseconds, then
 * sleeps (on a futex; wakeup counters use a condition variable). Phases of a run last microseconds.
 * A thread that waits long enough to sleep is on a machine busy with other work, and the thread it
 * waits for needs the core more. Yielding instead would not help: with other programs running every
 * sched_yield costs a time slice, milliseconds, whatever happens meanwhile. Only idle workers
 * yield, because nobody waits for them, and only while a yield returns at once. When another device
 * takes part, phases last as long as its kernels: threads then stay awake (pool_stay_awake) and
 * yield now and then, until a long yield shows that others need the core.
 *
 * The barrier counts arrivals on one cache line and publishes a phase number on another, which the
 * waiting threads hold in their caches until it changes. The last thread to arrive resets both
 * counters before it publishes, so nobody can see the old values in the new phase. */
#include "pool.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#include "clock.h"
#include "cpu_topology.h"
#include "mem.h"
#include "os_thread.h"

/* A pause takes 10 to 140 cycles, so this is 3 to 50 microseconds: longer than the difference
 * between threads in a phase of a small model, shorter than a time slice. */
enum { SPIN_PAUSES = 1024 };
/* With more threads than CPUs, the awaited thread may need this core. */
enum { SPIN_PAUSES_CROWDED = 16 };

/* A yield takes longer than this only when others need the core. */
static const double long_yield = 50e-6; /* seconds */

/* How long an idle worker stays awake: longer than sampling and printing one token, so that a
 * stream of tokens never pays for a wakeup (about 50 microseconds per thread). */
static const double stay_awake = 2e-3; /* seconds */

/* How long waiting threads spin after pool_stay_awake(p, true), within and between runs: longer
 * than any token for which staying awake pays off. */
static const double stay_awake_long = 50e-3; /* seconds */

typedef struct worker {
    alignas(MEM_CACHE_LINE) atomic_uint wakeups; /* runs that this worker was called to */
    atomic_bool asleep;                          /* or about to sleep: the caller must signal */
    os_mutex mutex;
    os_condition wake;
    os_thread thread;
    struct pool *pool;
    int ith;
} worker;

struct pool {
    int size;
    int spin_pauses;
    bool crowded;      /* more threads than CPUs */
    atomic_bool awake; /* pool_stay_awake */
    size_t n_bytes;    /* size of this allocation */
    long process;      /* os_process_id of the creator */

    /* The run. The caller writes it while no worker is in a run; fn NULL: the thread ends. */
    pool_fn fn;
    void *arg;
    int nth;

    alignas(MEM_CACHE_LINE) atomic_int n_arrived; /* at the barrier */
    alignas(MEM_CACHE_LINE) atomic_uint phase;    /* barriers passed, modulo 2^32 */
    alignas(MEM_CACHE_LINE) atomic_uint n_done;   /* workers that finished the run */
    atomic_int n_asleep;                          /* threads sleeping on phase or n_done */
    atomic_uint_fast64_t n_sleeps;                /* times a thread went to sleep */
    alignas(MEM_CACHE_LINE) atomic_int_fast64_t next_item;
    alignas(MEM_CACHE_LINE) worker workers[]; /* [size]; workers[0] is the caller, unused */
};

void pool_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

void pool_yield(void) {
    os_yield();
}

void pool_wait(int *round) {
    static const double moment = 20e-6; /* seconds */
    if (++*round < SPIN_PAUSES)
        pool_pause();
    else
        os_sleep(moment);
}

static bool is_awake(const pool *p) {
    return atomic_load_explicit(&p->awake, memory_order_relaxed);
}

/* Yields the core. True: it took long, so others needed the core. *now: when the yield began. */
static bool yield_is_long(double *now) {
    *now = clock_seconds();
    os_yield();
    return clock_seconds() - *now > long_yield;
}

/* Spins until *word differs from `seen`, at most stay_awake_long and only while nobody else needs
 * the core. */
static void spin_for_change(const pool *p, const atomic_uint *word, unsigned seen) {
    double start = clock_seconds(), now;
    do {
        for (int i = 0; i < p->spin_pauses; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
            pool_pause();
        }
    } while (!yield_is_long(&now) && now - start < stay_awake_long);
}

/* Blocks until *word differs from `seen`. */
static void wait_for_change(pool *p, atomic_uint *word, unsigned seen) {
    int round = 0;
    if (is_awake(p)) spin_for_change(p, word, seen);
    while (atomic_load_explicit(word, memory_order_acquire) == seen) {
        if (round++ < p->spin_pauses) {
            pool_pause();
            continue;
        }
        /* The waker changes *word, then checks for sleepers; the sleeper registers, then checks
         * *word. Both are sequentially consistent, and the kernel compares *word again. */
        atomic_fetch_add(&p->n_asleep, 1);
        atomic_fetch_add_explicit(&p->n_sleeps, 1, memory_order_relaxed);
        os_word_wait(word, seen);
        atomic_fetch_sub(&p->n_asleep, 1);
    }
}

/* Call after changing *word (sequentially consistent). */
static void wake_sleepers(pool *p, atomic_uint *word) {
    if (atomic_load(&p->n_asleep) > 0) os_word_wake_all(word);
}

/* Blocks until the wakeup counter differs from `seen`. */
static void wait_for_wakeup(worker *w, unsigned seen) {
    int round = 0;
    double start = clock_seconds(), limit = is_awake(w->pool) ? stay_awake_long : stay_awake;
    double now = start;
    bool shared = false; /* others need the core */
    while (atomic_load_explicit(&w->wakeups, memory_order_acquire) == seen) {
        if (round++ < w->pool->spin_pauses) {
            pool_pause();
            continue;
        }
        if (now - start < limit && !shared) {
            shared = yield_is_long(&now);
            continue;
        }
        /* The caller stores wakeups, then reads asleep; the worker stores asleep, then reads
         * wakeups. Both are sequentially consistent: one of the two sees the other's store. */
        os_mutex_lock(&w->mutex);
        atomic_store(&w->asleep, true);
        while (atomic_load(&w->wakeups) == seen) os_condition_wait(&w->wake, &w->mutex);
        atomic_store(&w->asleep, false);
        os_mutex_unlock(&w->mutex);
    }
}

static void send_wakeup(worker *w) {
    atomic_fetch_add(&w->wakeups, 1);
    if (!atomic_load(&w->asleep)) return;
    os_mutex_lock(&w->mutex);
    os_condition_signal(&w->wake);
    os_mutex_unlock(&w->mutex);
}

static void worker_main(void *arg) {
    worker *w = arg;
    pool *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        wait_for_wakeup(w, seen);
        if (!p->fn) return;
        p->fn(p->arg, w->ith, p->nth);
        atomic_fetch_add(&p->n_done, 1);
        wake_sleepers(p, &p->n_done);
    }
}

/* Starts workers[i]. Returns 0 or an error number. */
static int start_worker(pool *p, int i) {
    worker *w = &p->workers[i];
    w->pool = p;
    w->ith = i;
    int problem = os_mutex_init(&w->mutex);
    if (problem) return problem;
    problem = os_condition_init(&w->wake);
    if (problem) {
        os_mutex_destroy(&w->mutex);
        return problem;
    }
    problem = os_thread_start(&w->thread, worker_main, w);
    if (problem) {
        os_condition_destroy(&w->wake);
        os_mutex_destroy(&w->mutex);
    }
    return problem;
}

pi_status pool_create(int n_threads, pool **out, pi_error *err) {
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS) {
        return error_set(err, PI_ERR_ARG,
                         "number of threads out of range: %d: 1 to %d are possible", n_threads,
                         (int)POOL_MAX_THREADS);
    }
    size_t n_bytes = sizeof(pool) + (size_t)n_threads * sizeof(worker);
    pool *p = mem_map(n_bytes); /* zeroed; page alignment covers the cache lines */
    if (!p) return error_nomem(err, n_bytes, "worker pool");
    p->n_bytes = n_bytes;
    p->process = os_process_id();
    p->size = 1;
    p->crowded = n_threads > cpu_count_available();
    p->spin_pauses = p->crowded ? SPIN_PAUSES_CROWDED : SPIN_PAUSES;
    while (p->size < n_threads) {
        int problem = start_worker(p, p->size);
        if (problem) {
            int n = p->size;
            pool_destroy(p);
            return error_set(err, PI_ERR_NOMEM,
                             "cannot create thread %d of %d: error %d: use fewer threads", n + 1,
                             n_threads, problem);
        }
        p->size++;
    }
    *out = p;
    return PI_OK;
}

void pool_destroy(pool *p) {
    if (!p) return;
    bool joins = pool_has_threads(p);
    p->fn = NULL;
    for (int i = 1; i < p->size && joins; i++) send_wakeup(&p->workers[i]);
    for (int i = 1; i < p->size && joins; i++) {
        os_thread_join(&p->workers[i].thread);
        os_condition_destroy(&p->workers[i].wake);
        os_mutex_destroy(&p->workers[i].mutex);
    }
    mem_unmap(p, p->n_bytes);
}

static void pin_worker(void *arg, int ith, int nth) {
    const cpu_set *allowed = arg;
    cpu_set one = {{false}};
    (void)nth;
    if (ith == 0) return;
    int n = ith % cpu_set_count(allowed), cpu = 0;
    for (;; cpu++)
        if (allowed->has[cpu] && n-- == 0) break;
    one.has[cpu] = true;
    (void)cpu_set_use(&one); /* if the system refuses, the thread keeps its CPUs */
}

void pool_pin(pool *p) {
    cpu_set allowed;
    cpu_set_own(&allowed);
    pool_run(p, p->size, pin_worker, &allowed);
}

bool pool_has_threads(const pool *p) {
    return p->process == os_process_id();
}

int pool_size(const pool *p) {
    return p->size;
}

void pool_stay_awake(pool *p, bool awake) {
    atomic_store_explicit(&p->awake, awake && !p->crowded, memory_order_relaxed);
}

uint64_t pool_sleeps(const pool *p) {
    return atomic_load_explicit(&p->n_sleeps, memory_order_relaxed);
}

void pool_run(pool *p, int nth, pool_fn fn, void *arg) {
    assert(nth >= 1 && nth <= p->size && fn);
    p->fn = fn;
    p->arg = arg;
    p->nth = nth;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->next_item, 0, memory_order_relaxed);
    for (int i = 1; i < nth; i++) send_wakeup(&p->workers[i]);
    fn(arg, 0, nth);
    for (;;) {
        unsigned done = atomic_load_explicit(&p->n_done, memory_order_acquire);
        if (done == (unsigned)nth - 1) break;
        wait_for_change(p, &p->n_done, done);
    }
}

void pool_barrier(pool *p) {
    pool_barrier_run(p, NULL, NULL);
}

void pool_barrier_run(pool *p, void (*fn)(void *arg), void *arg) {
    /* No other thread can leave this phase before this one arrives, so the load is not stale. */
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed);
    int before = atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel);
    if (before == p->nth - 1) {
        atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->next_item, 0, memory_order_relaxed);
        if (fn) {
            fn(arg);
            pool_restart(p);
        }
        atomic_store(&p->phase, phase + 1);
        wake_sleepers(p, &p->phase);
        return;
    }
    wait_for_change(p, &p->phase, phase);
}

void pool_restart(pool *p) {
    atomic_store_explicit(&p->next_item, 0, memory_order_relaxed);
}

int64_t pool_take(pool *p, int64_t chunk) {
    assert(chunk > 0);
    return atomic_fetch_add_explicit(&p->next_item, chunk, memory_order_relaxed);
}
