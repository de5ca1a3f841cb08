/* test_base_pool.c: runs, barriers and shared counters, with more threads than this machine may
 * have cores, and with runs of changing width. Also run under ThreadSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "cpu_topology.h"
#include "mem.h"
#include "pool.h"

enum { MAX_THREADS = 8, N_ITEMS = 1000 };

typedef struct job {
    pool *pool;
    int n_rounds;
    int64_t chunk;
    int64_t cells[MAX_THREADS]; /* not atomic: only the barrier makes them visible */
    atomic_int calls[MAX_THREADS];
    atomic_int taken[N_ITEMS]; /* how often each index was handed out over all rounds */
    atomic_int bad;
} job;

/* Every thread writes one cell per round and reads its neighbour's cell after a barrier. */
static void barrier_rounds(void *arg, int ith, int nth) {
    job *j = arg;
    atomic_fetch_add(&j->calls[ith], 1);
    for (int round = 0; round < j->n_rounds; round++) {
        j->cells[ith] = (int64_t)round * MAX_THREADS + ith;
        pool_barrier(j->pool);
        int other = (ith + 1) % nth;
        if (j->cells[other] != (int64_t)round * MAX_THREADS + other) atomic_fetch_add(&j->bad, 1);
        pool_barrier(j->pool);
    }
}

static void take_rounds(void *arg, int ith, int nth) {
    job *j = arg;
    (void)ith;
    (void)nth;
    for (int round = 0; round < j->n_rounds; round++) {
        for (;;) {
            int64_t first = pool_take(j->pool, j->chunk);
            if (first >= N_ITEMS) break;
            int64_t end = first + j->chunk < N_ITEMS ? first + j->chunk : N_ITEMS;
            for (int64_t i = first; i < end; i++) atomic_fetch_add(&j->taken[i], 1);
        }
        pool_barrier(j->pool);
    }
}

static void count_call(void *arg, int ith, int nth) {
    job *j = arg;
    (void)nth;
    atomic_fetch_add(&j->calls[ith], 1);
}

static job *new_job(int n_threads) {
    job *j = mem_calloc(1, sizeof *j);
    assert_non_null(j);
    assert_int_equal(pool_create(n_threads, &j->pool, NULL), PI_OK);
    assert_int_equal(pool_size(j->pool), n_threads);
    return j;
}

static void free_job(job *j) {
    pool_destroy(j->pool);
    mem_free(j);
}

static void test_barrier_orders_memory(void **state) {
    (void)state;
    for (int n = 1; n <= MAX_THREADS; n++) {
        job *j = new_job(n);
        j->n_rounds = 500;
        pool_run(j->pool, n, barrier_rounds, j);
        assert_int_equal(atomic_load(&j->bad), 0);
        for (int i = 0; i < MAX_THREADS; i++) {
            assert_int_equal(atomic_load(&j->calls[i]), i < n ? 1 : 0);
        }
        free_job(j);
    }
}

static void test_take_covers_each_index_once(void **state) {
    (void)state;
    static const int64_t chunks[] = {1, 7, 64, N_ITEMS, N_ITEMS + 5};
    for (int n = 1; n <= MAX_THREADS; n++) {
        job *j = new_job(n);
        j->n_rounds = 10;
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
            j->chunk = chunks[k];
            memset(j->taken, 0, sizeof j->taken);
            pool_run(j->pool, n, take_rounds, j);
            for (int i = 0; i < N_ITEMS; i++) {
                assert_int_equal(atomic_load(&j->taken[i]), j->n_rounds);
            }
        }
        free_job(j);
    }
}

static void test_runs_of_changing_width(void **state) {
    (void)state;
    job *j = new_job(MAX_THREADS);
    int expected[MAX_THREADS] = {0};
    for (int run = 0; run < 400; run++) {
        int nth = run * 5 % MAX_THREADS + 1;
        for (int i = 0; i < nth; i++) expected[i]++;
        pool_run(j->pool, nth, count_call, j);
        /* All threads are done when pool_run returns, and no thread outside the run was called. */
        for (int i = 0; i < MAX_THREADS; i++) {
            assert_int_equal(atomic_load(&j->calls[i]), expected[i]);
        }
    }
    j->n_rounds = 20;
    for (int run = 0; run < 50; run++) {
        pool_run(j->pool, run % MAX_THREADS + 1, barrier_rounds, j);
    }
    assert_int_equal(atomic_load(&j->bad), 0);
    free_job(j);
}

static void test_wakes_after_sleep(void **state) {
    (void)state;
    job *j = new_job(4);
    for (int run = 1; run <= 10; run++) {
        /* Longer than workers stay awake, so each run must wake them. */
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
        pool_run(j->pool, 4, count_call, j);
        for (int i = 0; i < 4; i++) assert_int_equal(atomic_load(&j->calls[i]), run);
    }
    free_job(j);
}

/* Thread 0 arrives at the barrier long after the others. */
static void late_rounds(void *arg, int ith, int nth) {
    job *j = arg;
    (void)nth;
    for (int round = 0; round < j->n_rounds; round++) {
        if (ith == 0) nanosleep(&(struct timespec){.tv_nsec = 4 * 1000 * 1000}, NULL);
        pool_barrier(j->pool);
    }
}

static uint64_t sleeps_of_late_rounds(job *j, bool awake) {
    uint64_t before = pool_sleeps(j->pool);
    pool_stay_awake(j->pool, awake);
    pool_run(j->pool, pool_size(j->pool), late_rounds, j);
    return pool_sleeps(j->pool) - before;
}

/* Waits of 4 ms put threads to sleep. Runs that stay awake do not sleep, unless other programs need
 * the core or there are more threads than CPUs. */
static void test_stays_awake(void **state) {
    (void)state;
    int n_cpus = cpu_count_available();
    if (n_cpus < 2) skip();
    job *j = new_job(2);
    j->n_rounds = 5;
    uint64_t most = 0, least = UINT64_MAX; /* sleeps without staying awake; sleeps when awake */
    for (int i = 0; i < 20 && least > 0; i++) {
        uint64_t n = sleeps_of_late_rounds(j, false), n_awake = sleeps_of_late_rounds(j, true);
        assert_true(n > 0);
        if (n > most) most = n;
        if (n_awake < least) least = n_awake;
    }
    assert_true(least < most);
    assert_true(sleeps_of_late_rounds(j, false) > 0);
    free_job(j);
    if (n_cpus + 1 > POOL_MAX_THREADS) return;
    j = new_job(n_cpus + 1);
    j->n_rounds = 5;
    assert_true(sleeps_of_late_rounds(j, true) > 0);
    free_job(j);
}

static void test_create_and_destroy(void **state) {
    (void)state;
    pi_error err = {0};
    pool *p = NULL;
    assert_int_equal(pool_create(0, &p, &err), PI_ERR_ARG);
    assert_null(p);
    assert_non_null(strstr(err.message, "threads"));
    assert_int_equal(pool_create(POOL_MAX_THREADS + 1, &p, NULL), PI_ERR_ARG);
    pool_destroy(NULL);
    for (int i = 0; i < 20; i++) { /* destroyed before, while and after the workers fall asleep */
        assert_int_equal(pool_create(4, &p, NULL), PI_OK);
        nanosleep(&(struct timespec){.tv_nsec = i * 300 * 1000}, NULL);
        pool_destroy(p);
    }
    mem_fail_at(1);
    assert_int_equal(pool_create(2, &p, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
    assert_null(p);
}

typedef struct seats {
    cpu_set of[3]; /* CPUs that thread i may use */
} seats;

static void note_seat(void *arg, int ith, int nth) {
    (void)nth;
    cpu_set_own(&((seats *)arg)->of[ith]);
}

static void test_pinned_workers(void **state) {
    (void)state;
    static seats before, after;
    pool *p = NULL;
    assert_int_equal(pool_create(3, &p, NULL), PI_OK);
    pool_run(p, 3, note_seat, &before);
    pool_pin(p);
    pool_run(p, 3, note_seat, &after);
    pool_destroy(p);
    int n = cpu_set_count(&before.of[0]);
    assert_int_equal(cpu_set_count(&after.of[0]), n); /* the caller */
    for (int i = 1; i < 3; i++) {
        assert_int_equal(cpu_set_count(&before.of[i]), n);
        assert_int_equal(cpu_set_count(&after.of[i]), 1);
        for (int cpu = 0; cpu < CPU_TOPOLOGY_MAX; cpu++)
            assert_true(!after.of[i].has[cpu] || before.of[0].has[cpu]);
    }
    assert_int_equal(memcmp(&after.of[1], &after.of[2], sizeof after.of[1]) == 0, n == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_orders_memory),
        cmocka_unit_test(test_take_covers_each_index_once),
        cmocka_unit_test(test_runs_of_changing_width),
        cmocka_unit_test(test_wakes_after_sleep),
        cmocka_unit_test(test_stays_awake),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_pinned_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
