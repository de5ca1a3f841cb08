/* test_drive_faults.c: errors of io_uring. The linker replaces two functions of liburing (--wrap):
 * completions return errors or fewer bytes or stay out for seconds, and submissions are refused for
 * a while. Reads must still return the file's bytes, or one error that names the file; nothing may
 * hang. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <liburing.h>

#include "drive_impl.h"
#include "mem.h"
#include "rng.h"

enum { BLOCK = DRIVE_MAX_BLOCK, BLOCKS = 600, SIZE = BLOCKS * BLOCK, REQUESTS = 400 };

/* The faults of the next calls; fractions are in 256ths. The test has one thread for all lanes, so
 * nothing here needs a lock. */
typedef struct fault {
    unsigned again, few, fails; /* completions: EAGAIN or EINTR; half the bytes; EIO */
    int refused;                /* submissions to refuse before accepting one */
    int stalls;                 /* calls, of 10 ms each, in which nothing completes */
} fault;

static fault now;
static rng dice;
static int n_again, n_few, n_failed, n_refused, n_stalls;

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);
int __real_io_uring_submit(struct io_uring *ring);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);
int __wrap_io_uring_submit(struct io_uring *ring);

unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count) {
    if (now.stalls > 0) {
        now.stalls--;
        n_stalls++;
        usleep(10000);
        return 0;
    }
    unsigned n = __real_io_uring_peek_batch_cqe(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        uint64_t roll = rng_u64(&dice) >> 8;
        unsigned at = (unsigned)(roll % 256);
        if (at < now.again) {
            cqes[i]->res = roll & 256 ? -EAGAIN : -EINTR;
            n_again++;
        } else if (at < now.again + now.few) {
            if (cqes[i]->res < 2 * BLOCK) continue;
            cqes[i]->res /= 2;
            n_few++;
        } else if (at < now.again + now.few + now.fails) {
            cqes[i]->res = -EIO;
            n_failed++;
        }
    }
    return n;
}

int __wrap_io_uring_submit(struct io_uring *ring) {
    if (now.refused > 0) {
        now.refused--;
        n_refused++;
        return now.refused % 2 ? -EAGAIN : -EBUSY;
    }
    return __real_io_uring_submit(ring);
}

static char path[PATH_MAX];
static uint8_t *bytes; /* [SIZE] contents of the file */

static int make_file(void **state) {
    (void)state;
    rng random;
    rng_seed(&random, 11);
    rng_seed(&dice, 12);
    bytes = mem_alloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)rng_u64(&random);
    snprintf(path, sizeof path, "%s/drive-faults-%ld", TEST_BINARY_DIR, (long)getpid());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, SIZE, f) != SIZE || fclose(f) != 0) return -1;
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    mem_free(bytes);
    return 0;
}

static drive *open_uring(void) {
    const drive_options options = {.backend = DRIVE_ASYNC};
    drive *d = NULL;
    now = (fault){.again = 0};
    pi_status status = drive_open(path, &options, &d, NULL);
    if (status == PI_ERR_UNSUPPORTED) skip(); /* kernel or sandbox without io_uring */
    assert_int_equal(status, PI_OK);
    return d;
}

/* Reads one to eight blocks at places all over the file; some requests are joined, over a gap of a
 * block. */
static pi_status read_all_over(drive *d, uint8_t *to, bool compare, pi_error *err) {
    enum { MOST = 8 };
    static drive_request r[2 * REQUESTS];
    atomic_size_t left = 0;
    int n = 0;
    for (int i = 0; i < REQUESTS; i++) {
        r[n++] = (drive_request){.offset = rng_u64(&dice) % (BLOCKS - MOST) * BLOCK,
                                 .n_bytes = (1 + rng_u64(&dice) % MOST) * BLOCK,
                                 .to = to + (size_t)i * MOST * BLOCK,
                                 .left = &left};
        uint64_t end = r[n - 1].offset + r[n - 1].n_bytes;
        if (i % 4 || end + 2 * BLOCK > SIZE) continue;
        r[n++] = (drive_request){.offset = end, .n_bytes = BLOCK, .joined = true, .left = &left};
        r[n++] = (drive_request){.offset = end + BLOCK,
                                 .n_bytes = BLOCK,
                                 .to = to + (size_t)(REQUESTS + i) * MOST * BLOCK,
                                 .joined = true,
                                 .left = &left};
    }
    drive_submit(d, r, (size_t)n);
    drive_wait(d, &left);
    pi_status status = drive_check(d, err);
    for (int i = 0; i < n && compare; i++)
        if (r[i].to) assert_memory_equal(r[i].to, bytes + r[i].offset, r[i].n_bytes);
    return status;
}

static void faults_that_pass(void **state) {
    (void)state;
    static const fault faults[] = {{.again = 100},
                                   {.few = 200},
                                   {.refused = 40},
                                   {.again = 60, .few = 60, .refused = 25},
                                   {.few = 60, .stalls = 1000}};
    drive *d = open_uring();
    uint8_t *to = mem_map((size_t)REQUESTS * 16 * BLOCK);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        pi_error err;
        now = faults[i];
        if (read_all_over(d, to, true, &err) != PI_OK) fail_msg("fault %zu: %s", i, err.message);
    }
    assert_true(n_again > 100 && n_few > 100 && n_refused == 65 && n_stalls == 1000);
    mem_unmap(to, (size_t)REQUESTS * 16 * BLOCK);
    drive_close(d);
}

static void faults_that_stay(void **state) {
    (void)state;
    drive *d = open_uring();
    uint8_t *to = mem_map((size_t)REQUESTS * 16 * BLOCK);
    pi_error err;
    now = (fault){.fails = 20};
    assert_int_equal(read_all_over(d, to, false, &err), PI_ERR_IO);
    assert_true(n_failed > 0);
    assert_non_null(strstr(err.message, "cannot read file"));
    assert_non_null(strstr(err.message, path));
    now = (fault){.again = 0};
    assert_int_equal(read_all_over(d, to, true, &err), PI_OK); /* later reads work */
    mem_unmap(to, (size_t)REQUESTS * 16 * BLOCK);
    drive_close(d);
}

/* Closing waits for reads that return errors. */
static void closing(void **state) {
    (void)state;
    uint8_t *to = mem_map(SIZE);
    for (int i = 0; i < 20; i++) {
        drive *d = open_uring();
        atomic_size_t left = 0;
        const drive_request r = {.n_bytes = SIZE, .to = to, .left = &left};
        now = (fault){.again = 80, .few = 80, .fails = 20, .refused = 3};
        drive_submit(d, &r, 1);
        drive_close(d);
    }
    mem_unmap(to, SIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults_that_pass),
                                       cmocka_unit_test(faults_that_stay),
                                       cmocka_unit_test(closing)};
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
