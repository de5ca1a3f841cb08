/* test_drive.c: every backend reads the file's bytes; failures are reported exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "drive_impl.h"
#include "log.h"
#include "mem.h"
#include "os_reads.h"
#include "rng.h"

enum { SIZE = (5 << 20) + 4096 + 700, BLOCK = DRIVE_MAX_BLOCK }; /* SIZE ends within a block */

static char path[OS_PATH_MAX];
static uint8_t *bytes; /* [SIZE] contents of the file */

static void write_file(const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int make_file(void **state) {
    (void)state;
    rng random;
    rng_seed(&random, 7);
    bytes = mem_alloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)rng_u64(&random);
    snprintf(path, sizeof path, "%s/drive-%ld", TEST_BINARY_DIR, os_process_id());
    write_file(bytes, SIZE);
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    (void)os_path_remove(path);
    mem_free(bytes);
    return 0;
}

static const drive_options ways[] = {{.backend = DRIVE_ASYNC},
                                     {.backend = DRIVE_THREADS},
                                     {.backend = DRIVE_ASYNC, .buffered = true},
                                     {.backend = DRIVE_THREADS, .buffered = true}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* NULL where this kernel or build has no io_uring. */
static drive *open_way(int way) {
    drive *d = NULL;
    pi_error err;
    pi_status status = drive_open(path, &ways[way], &d, &err);
    if (ways[way].backend == DRIVE_ASYNC && status == PI_ERR_UNSUPPORTED) return NULL;
    assert_int_equal(status, PI_OK);
    return d;
}

/* Requests of all sizes, with more pieces than a lane's queue holds, in one lane and in all lanes,
 * and the partial last block. */
static void reads_are_the_file(void **state) {
    (void)state;
    enum { N = 3 * DRIVE_QUEUE / 2, MOST = 4 * BLOCK, LEFT = 2 * DRIVE_LANES + 1 };
    drive_request *requests = mem_calloc(N, sizeof *requests);
    uint8_t *to = mem_map((size_t)N * MOST), *all = mem_map(SIZE + BLOCK);
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        if (!d) continue;
        rng random;
        rng_seed(&random, 3);
        atomic_size_t left[LEFT] = {0}, whole = 0;
        memset(all, 0x55, SIZE + BLOCK);
        memset(to, 0, (size_t)N * MOST);
        const drive_request one = {
            .n_bytes = (SIZE + BLOCK - 1) / BLOCK * BLOCK, .to = all, .left = &whole};
        drive_submit(d, &one, 1);
        for (int i = 0; i < N; i++)
            requests[i] = (drive_request){.offset = rng_u64(&random) % (SIZE / BLOCK - 4) * BLOCK,
                                          .n_bytes = (1 + rng_u64(&random) % 4) * BLOCK,
                                          .to = to + (size_t)i * MOST,
                                          .left = &left[i < N - LEFT * LEFT ? 0 : i % LEFT]};
        drive_submit(d, requests, N);
        for (int i = 0; i < LEFT; i++) drive_wait(d, &left[i]);
        drive_wait(d, &whole);
        assert_int_equal(drive_check(d, NULL), PI_OK);
        for (int i = 0; i < N; i++)
            assert_memory_equal(requests[i].to, bytes + requests[i].offset, requests[i].n_bytes);
        assert_memory_equal(all, bytes, SIZE);
        drive_counts counts = drive_get_counts(d);
        assert_true(counts.reads >= N + SIZE / DRIVE_PIECE && counts.busy > 0);
        assert_true(counts.bytes >= SIZE && counts.bytes <= SIZE + BLOCK + (uint64_t)N * MOST);
        drive_close(d);
    }
    mem_unmap(to, (size_t)N * MOST);
    mem_unmap(all, SIZE + BLOCK);
    mem_free(requests);
}

/* Runs of joined requests with gaps: every request gets its bytes, gaps go nowhere, and a run takes
 * as few reads as its parts and bytes permit. */
static void joined_requests(void **state) {
    (void)state;
    enum { RUNS = 200, MOST_RUN = 3 * OS_READS_PARTS, N = RUNS * MOST_RUN };
    static const uint8_t none[BLOCK];
    drive_request *requests = mem_calloc(N, sizeof *requests);
    uint8_t *to = mem_map((size_t)N * BLOCK);
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        if (!d) continue;
        rng random;
        rng_seed(&random, 4);
        atomic_size_t left[2] = {0};
        memset(to, 0, (size_t)N * BLOCK);
        size_t n = 0, n_reads = 0;
        for (int run = 0; run < RUNS; run++) {
            size_t n_parts = 1 + rng_u64(&random) % MOST_RUN, first = n;
            uint64_t block = rng_u64(&random) % (SIZE / BLOCK - 3 * MOST_RUN);
            size_t read_parts = OS_READS_PARTS, read_bytes = 0; /* of the last read, if full */
            for (; n < first + n_parts; n++) {
                bool gap = n > first && n + 1 < first + n_parts && n % 3 == 0;
                size_t blocks = gap ? 1 + rng_u64(&random) % 3 : 1;
                if (read_parts == OS_READS_PARTS || read_bytes + blocks * BLOCK > OS_READS_JOINED) {
                    read_parts = read_bytes = 0;
                    n_reads += !gap; /* a read does not begin with a gap */
                }
                bool begins = gap && read_parts == 0;
                read_parts = begins ? OS_READS_PARTS : read_parts + 1;
                read_bytes += blocks * BLOCK;
                requests[n] = (drive_request){.offset = block * BLOCK,
                                              .n_bytes = blocks * BLOCK,
                                              .to = gap ? NULL : to + n * BLOCK,
                                              .joined = n > first,
                                              .left = &left[run % 2]};
                block += blocks;
            }
        }
        drive_submit(d, requests, n);
        drive_wait(d, &left[0]);
        drive_wait(d, &left[1]);
        assert_int_equal(drive_check(d, NULL), PI_OK);
        for (size_t i = 0; i < n; i++)
            assert_memory_equal(to + i * BLOCK, requests[i].to ? bytes + requests[i].offset : none,
                                BLOCK);
        /* A read that begins while the queue is full may have fewer parts, as may overlapped reads
         * on Windows while all buffers are in use. */
        uint64_t reads = drive_get_counts(d).reads;
        bool overlapped = strcmp(drive_backend_name(d), "overlapped") == 0;
        assert_true(reads >= n_reads && reads < (overlapped ? n : 2 * n_reads));
        drive_close(d);
    }
    mem_unmap(to, (size_t)N * BLOCK);
    mem_free(requests);
}

static void worthwhile_gaps(void **state) {
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        size_t gap = 1;
        if (!d) continue;
        assert_int_equal(drive_measure_gap(d, BLOCK, 0.02, &gap, NULL), PI_OK);
        assert_true(gap <= DRIVE_MAX_GAP);
        drive_close(d);
    }
}

/* Reads blocks of 512 bytes if the drive has them, as for bundles. */
static void small_blocks(void **state) {
    (void)state;
    drive *d = open_way(1);
    size_t block = drive_block(d);
    assert_true(block == 512 || block == BLOCK || block == 1);
    uint8_t *to = mem_map(BLOCK);
    atomic_size_t left = 0;
    const drive_request r = {.offset = 3 * block, .n_bytes = block, .to = to, .left = &left};
    drive_submit(d, &r, 1);
    drive_wait(d, &left);
    assert_int_equal(drive_check(d, NULL), PI_OK);
    assert_memory_equal(to, bytes + 3 * block, block);
    mem_unmap(to, BLOCK);
    drive_close(d);
}

typedef struct reader {
    drive *d;
    uint8_t *to;
    atomic_size_t left;
    unsigned seed;
    bool good;
} reader;

static void read_much(void *arg) {
    reader *r = arg;
    rng random;
    rng_seed(&random, r->seed);
    for (int i = 0; i < 300; i++) {
        uint64_t at = rng_u64(&random) % (SIZE / BLOCK - 1) * BLOCK;
        const drive_request q = {.offset = at, .n_bytes = BLOCK, .to = r->to, .left = &r->left};
        drive_submit(r->d, &q, 1);
        drive_wait(r->d, &r->left);
        if (memcmp(r->to, bytes + at, BLOCK) != 0) return;
    }
    r->good = true;
}

static void threads_share_it(void **state) {
    (void)state;
    enum { N = 4 };
    for (int way = 0; way < N_WAYS; way++) {
        reader readers[N];
        os_thread threads[N];
        drive *d = open_way(way);
        if (!d) continue;
        for (int i = 0; i < N; i++) {
            readers[i] = (reader){.d = d, .to = mem_map(BLOCK), .seed = (unsigned)i};
            assert_int_equal(os_thread_start(&threads[i], read_much, &readers[i]), 0);
        }
        for (int i = 0; i < N; i++) {
            os_thread_join(&threads[i]);
            assert_true(readers[i].good);
            mem_unmap(readers[i].to, BLOCK);
        }
        drive_close(d);
    }
}

static void expect_failure(drive *d, uint64_t offset, const char *text) {
    uint8_t *to = mem_map(BLOCK);
    atomic_size_t left = 0;
    pi_error err;
    drive_request r[2] = {{.offset = offset, .n_bytes = BLOCK, .to = to, .left = &left}};
    r[1] = r[0];
    drive_submit(d, r, 2);
    drive_wait(d, &left); /* returns despite the failure */
    assert_int_equal(drive_check(d, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, text));
    assert_non_null(strstr(err.message, path));
    mem_unmap(to, BLOCK);
}

static void cut_file(uint64_t size) {
    os_file f;
    assert_int_equal(os_file_open(path, OS_WRITE, &f), 0);
    assert_int_equal(os_file_resize(f, size), 0);
    assert_int_equal(os_file_close(f), 0);
}

static void a_file_cut_short(void **state) {
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        if (!d) continue;
        cut_file(SIZE / 2);
        expect_failure(d, SIZE / BLOCK * BLOCK - BLOCK, "became shorter");
        assert_int_equal(drive_check(d, NULL), PI_ERR_IO); /* still reported */
        drive_close(d);
        write_file(bytes, SIZE);
    }
}

static void a_file_overwritten(void **state) {
    (void)state;
    pi_error err;
    drive *d = open_way(1);
    assert_int_equal(drive_check(d, NULL), PI_OK);
    os_sleep(0.05); /* longer than a tick of file times */
    write_file(bytes, SIZE);
    assert_int_equal(drive_check(d, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "file changed while it was in use"));
    drive_close(d);
}

#ifdef __linux__
/* Replaces the drive's descriptor by one that cannot be read. */
static void a_drive_that_fails(void **state) {
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        if (!d) continue;
        int deaf = open(path, O_WRONLY), good = dup((int)d->file);
        assert_true(deaf >= 0 && good >= 0);
        dup2(deaf, (int)d->file);
        expect_failure(d, 0, "cannot read file");
        dup2(good, (int)d->file);
        assert_int_equal(drive_check(d, NULL), PI_OK); /* reported once; later reads work */
        uint8_t *to = mem_map(BLOCK);
        atomic_size_t left = 0;
        const drive_request r = {.n_bytes = BLOCK, .to = to, .left = &left};
        drive_submit(d, &r, 1);
        drive_wait(d, &left);
        assert_int_equal(drive_check(d, NULL), PI_OK);
        assert_memory_equal(to, bytes, BLOCK);
        mem_unmap(to, BLOCK);
        close(deaf);
        close(good);
        drive_close(d);
    }
}
#endif

static void what_is_no_file(void **state) {
    (void)state;
    drive *d;
    pi_error err;
    assert_int_equal(drive_open("/no/such/file", NULL, &d, &err), PI_ERR_IO);
    assert_null(d);
    assert_int_equal(drive_open("/dev/null", NULL, &d, &err), PI_ERR_IO);
    assert_null(d);
    const drive_options other = {.size = SIZE + 1};
    assert_int_equal(drive_open(path, &other, &d, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "changed"));
    assert_null(d);
}

/* Threads read when io_uring runs out of memory. */
static void memory_runs_out(void **state) {
    (void)state;
    pi_error err;
    bool over = false;
    int failures = 0;
    for (int64_t n = 1; !over; n++) {
        drive *d = NULL;
        int64_t before = mem_count();
        mem_fail_at(n);
        pi_status status = drive_open(path, NULL, &d, &err);
        over = mem_count() - before < n;
        mem_fail_at(0);
        failures += status == PI_ERR_NOMEM;
        assert_true(status == PI_OK ? d != NULL : status == PI_ERR_NOMEM && !d && !over);
        drive_close(d);
    }
    assert_true(failures >= 2);
}

#ifdef __linux__
static void count_line(void *user, log_level level, const char *line) {
    (void)level;
    *(int *)user += strstr(line, "io_uring cannot be used: ") == line;
}

/* Ends the process with 16 plus the number of correct lines, or with 2 where no filter can be
 * set. */
static void read_in_a_sandbox(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {.len = 4, .filter = filter};
    pi_error err;
    drive *d = NULL;
    int lines = 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
    log_set_sink(count_line, &lines, LOG_LEVEL_WARN);
    if (drive_open(path, NULL, &d, &err) != PI_OK) _exit(3);
    uint8_t *to = mem_map(BLOCK);
    atomic_size_t left = 0;
    const drive_request r = {.n_bytes = BLOCK, .to = to, .left = &left};
    drive_submit(d, &r, 1);
    drive_wait(d, &left);
    if (memcmp(to, bytes, BLOCK) != 0) _exit(4);
    bool threads = strcmp(drive_backend_name(d), "threads") == 0;
    drive_close(d);
    _exit(threads ? 16 + lines : 5);
}

/* Where the kernel refuses io_uring, one log line says so. */
static void a_sandbox(void **state) {
    (void)state;
    drive *d = open_way(0);
    bool uring = d != NULL;
    int status;
    drive_close(d);
    if (!uring) return;
    pid_t child = fork();
    if (child == 0) read_in_a_sandbox();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        print_message("no seccomp here: not tested\n");
    else
        assert_int_equal(WEXITSTATUS(status), 16 + 1);
}
#endif

static void closing_waits(void **state) {
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        if (!d) continue;
        uint8_t *to = mem_map(SIZE);
        atomic_size_t left = 0;
        const drive_request r = {.n_bytes = SIZE / BLOCK * BLOCK, .to = to, .left = &left};
        drive_submit(d, &r, 1);
        drive_close(d); /* no read may write to memory afterwards */
        mem_unmap(to, SIZE);
    }
}

static void measuring(void **state) {
    (void)state;
    pi_error err;
    for (int way = 0; way < N_WAYS; way++) {
        drive *d = open_way(way);
        double rate;
        if (!d) continue;
        assert_int_equal(drive_measure(d, 5000, 0.02, &rate, &err), PI_OK);
        assert_true(rate > 0);
        assert_int_equal(drive_measure(d, 2 * SIZE, 0.02, &rate, &err), PI_ERR_ARG);
        drive_close(d);
    }
}

static void names(void **state) {
    (void)state;
    drive *async = open_way(0), *threads = open_way(1);
    if (async) assert_string_equal(drive_backend_name(async), os_reads_name());
    assert_string_equal(drive_backend_name(threads), "threads");
    drive_close(async);
    drive_close(threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_the_file), cmocka_unit_test(small_blocks),
        cmocka_unit_test(joined_requests),    cmocka_unit_test(worthwhile_gaps),
        cmocka_unit_test(threads_share_it),   cmocka_unit_test(a_file_cut_short),
        cmocka_unit_test(a_file_overwritten), cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(memory_runs_out),    cmocka_unit_test(closing_waits),
        cmocka_unit_test(measuring),          cmocka_unit_test(names),
#ifdef __linux__
        cmocka_unit_test(a_drive_that_fails), cmocka_unit_test(a_sandbox),
#endif
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
