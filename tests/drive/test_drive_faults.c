/* test_drive_faults.c: errors of reads. The linker replaces three functions of os_reads.h (--wrap):
 * reads return errors or fewer bytes or stay out for seconds, and submissions are refused for a
 * while. Every backend must still return the file's bytes, or one error that names the file;
 * nothing may hang. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "drive_impl.h"
#include "mem.h"
#include "os_reads.h"
#include "rng.h"

enum { BLOCK = DRIVE_MAX_BLOCK, BLOCKS = 600, SIZE = BLOCKS * BLOCK, REQUESTS = 400 };

/* The faults of the next calls; fractions are in 256ths. */
typedef struct fault {
    unsigned again, few, fails; /* reads: EAGAIN or EINTR; half the bytes; EIO */
    int refused;                /* submissions to refuse before accepting one */
    int stalls;                 /* calls, of 10 ms each, in which nothing completes */
} fault;

static os_mutex lock; /* of the variables below: threads of the drive read them */
static fault now;
static rng dice;
static int n_again, n_few, n_failed, n_refused, n_stalls;

static bool stalls(void) {
    os_mutex_lock(&lock);
    bool stall = now.stalls > 0;
    now.stalls -= stall;
    n_stalls += stall;
    os_mutex_unlock(&lock);
    if (stall) os_sleep(0.01);
    return stall;
}

/* The result that the test gives a read: `result`, half of it, or minus an error number. */
static int64_t spoil(int64_t result) {
    os_mutex_lock(&lock);
    uint64_t roll = rng_u64(&dice) >> 8;
    unsigned at = (unsigned)(roll % 256);
    if (at < now.again) {
        result = roll & 256 ? -EAGAIN : -EINTR;
        n_again++;
    } else if (at < now.again + now.few) {
        if (result >= 2 * BLOCK) {
            result /= 2;
            n_few++;
        }
    } else if (at < now.again + now.few + now.fails) {
        result = -EIO;
        n_failed++;
    }
    os_mutex_unlock(&lock);
    return result;
}

size_t __real_os_reads_take(os_reads *r, os_read_done *done, size_t most);
void __real_os_reads_submit(os_reads *r);
int __real_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read);
size_t __wrap_os_reads_take(os_reads *r, os_read_done *done, size_t most);
void __wrap_os_reads_submit(os_reads *r);
int __wrap_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read);

size_t __wrap_os_reads_take(os_reads *r, os_read_done *done, size_t most) {
    if (stalls()) return 0;
    size_t n = __real_os_reads_take(r, done, most);
    for (size_t i = 0; i < n; i++) done[i].result = spoil(done[i].result);
    return n;
}

void __wrap_os_reads_submit(os_reads *r) {
    if (now.refused > 0) {
        now.refused--;
        n_refused++;
    } else {
        __real_os_reads_submit(r);
    }
}

/* A thread's read that returns fewer bytes does not write the others. */
int __wrap_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read) {
    os_read_part begin[OS_READS_PARTS];
    size_t n = 0, total = 0;
    for (size_t i = 0; i < n_parts; i++) total += parts[i].n;
    while (stalls()) continue;
    int64_t wanted = spoil((int64_t)total);
    *n_read = 0;
    if (wanted < 0) return (int)-wanted;
    for (size_t left = (size_t)wanted / BLOCK * BLOCK; left > 0; left -= begin[n++].n) {
        begin[n] = parts[n];
        if (begin[n].n > left) begin[n].n = left;
    }
    return __real_os_reader_read(r, begin, n, offset, n_read);
}

static char path[OS_PATH_MAX];
static uint8_t *bytes; /* [SIZE] contents of the file */

static int make_file(void **state) {
    (void)state;
    rng random;
    rng_seed(&random, 11);
    rng_seed(&dice, 12);
    bytes = mem_alloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)rng_u64(&random);
    snprintf(path, sizeof path, "%s/drive-faults-%ld", TEST_BINARY_DIR, os_process_id());
    os_mutex_init(&lock);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, SIZE, f) != SIZE || fclose(f) != 0) return -1;
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    (void)os_path_remove(path);
    os_mutex_destroy(&lock);
    mem_free(bytes);
    return 0;
}

/* NULL where this kernel or build has no io_uring. */
static drive *open_with(drive_backend backend) {
    const drive_options options = {.backend = backend};
    drive *d = NULL;
    now = (fault){.again = 0};
    pi_status status = drive_open(path, &options, &d, NULL);
    if (backend == DRIVE_ASYNC && status == PI_ERR_UNSUPPORTED) {
        print_message("no %s here: not tested\n", os_reads_name());
        return NULL;
    }
    assert_int_equal(status, PI_OK);
    return d;
}

static const drive_backend backends[] = {DRIVE_ASYNC, DRIVE_THREADS};
enum { BACKENDS = sizeof backends / sizeof *backends };

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
    uint8_t *to = mem_map((size_t)REQUESTS * 16 * BLOCK);
    for (int k = 0; k < BACKENDS; k++) {
        drive *d = open_with(backends[k]);
        if (!d) continue;
        n_again = n_few = n_refused = n_stalls = 0;
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            pi_error err;
            now = faults[i];
            if (read_all_over(d, to, true, &err) != PI_OK)
                fail_msg("fault %zu: %s", i, err.message);
        }
        assert_true(n_again > 100 && n_few > 100 && n_stalls == 1000);
#if !defined(_WIN32) /* Windows starts reads when they are added */
        assert_int_equal(n_refused, backends[k] == DRIVE_ASYNC ? 65 : 0);
#endif
        drive_close(d);
    }
    mem_unmap(to, (size_t)REQUESTS * 16 * BLOCK);
}

static void faults_that_stay(void **state) {
    (void)state;
    uint8_t *to = mem_map((size_t)REQUESTS * 16 * BLOCK);
    for (int k = 0; k < BACKENDS; k++) {
        pi_error err;
        drive *d = open_with(backends[k]);
        if (!d) continue;
        n_failed = 0;
        now = (fault){.fails = 20};
        assert_int_equal(read_all_over(d, to, false, &err), PI_ERR_IO);
        assert_true(n_failed > 0);
        assert_non_null(strstr(err.message, "cannot read file"));
        assert_non_null(strstr(err.message, path));
        now = (fault){.again = 0};
        assert_int_equal(read_all_over(d, to, true, &err), PI_OK); /* later reads work */
        drive_close(d);
    }
    mem_unmap(to, (size_t)REQUESTS * 16 * BLOCK);
}

/* Closing waits for reads that return errors. */
static void closing(void **state) {
    (void)state;
    uint8_t *to = mem_map(SIZE);
    for (int i = 0; i < 20 * BACKENDS; i++) {
        drive *d = open_with(backends[i % BACKENDS]);
        atomic_size_t left = 0;
        const drive_request r = {.n_bytes = SIZE, .to = to, .left = &left};
        if (!d) continue;
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
