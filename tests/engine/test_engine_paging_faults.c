/* test_engine_paging_faults.c: a drive that returns fewer bytes than asked for, asks to try again,
 * stalls, or fails, below prefill and decode of a model with bundles. The linker replaces functions
 * of os_reads.h (--wrap). Answers equal those from memory bit for bit; a call that fails leaves its
 * session unchanged, and the same call succeeds when the drive works again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "os_file.h"
#include "os_reads.h"
#include "os_thread.h"
#include "powerinfer_tools.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_paging_faults.gguf"

enum { N_CTX = 128, N_BATCH = 16, PAGE = 4096, MAX_VOCAB = 512, MIB = 1 << 20 };
enum { STALL_MS = 1500, MOMENT_MS = 10 };

/* Every n-th completion has the fault; 0: none. */
typedef struct faults {
    atomic_int again, few, fails;
    atomic_int stalls; /* collections to come that find nothing */
} faults;

static faults now;
static atomic_int n_seen, n_again, n_few, n_failed, n_stalled, n_joined;

/* Half of the runs read by threads, as where reads do not overlap. */
static bool threads_read;

bool __real_os_reads_overlap(os_file f);
size_t __real_os_reads_take(os_reads *r, os_read_done *done, size_t most);
int __real_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read);
bool __wrap_os_reads_overlap(os_file f);
size_t __wrap_os_reads_take(os_reads *r, os_read_done *done, size_t most);
int __wrap_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read);

bool __wrap_os_reads_overlap(os_file f) {
    return !threads_read && __real_os_reads_overlap(f);
}

static bool stalls(void) {
    int left = atomic_load(&now.stalls);
    if (left <= 0 || !atomic_compare_exchange_strong(&now.stalls, &left, left - 1)) return false;
    atomic_fetch_add(&n_stalled, 1);
    os_sleep(1e-3 * MOMENT_MS);
    return true;
}

static bool hits(atomic_int *every, int number) {
    int n = atomic_load(every);
    return n > 0 && number % n == 0;
}

/* The result that the test gives a read. */
static int64_t spoil(int64_t result) {
    int number = atomic_fetch_add(&n_seen, 1);
    if (hits(&now.fails, number)) {
        atomic_fetch_add(&n_failed, 1);
        return -EIO;
    }
    if (hits(&now.again, number)) {
        atomic_fetch_add(&n_again, 1);
        return -EAGAIN;
    }
    if (hits(&now.few, number) && result >= 2 * PAGE) {
        atomic_fetch_add(&n_few, 1);
        return result / 2 / PAGE * PAGE;
    }
    return result;
}

size_t __wrap_os_reads_take(os_reads *r, os_read_done *done, size_t most) {
    if (stalls()) return 0;
    size_t n = __real_os_reads_take(r, done, most);
    for (size_t i = 0; i < n; i++) done[i].result = spoil(done[i].result);
    return n;
}

int __wrap_os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                          size_t *n_read) {
    while (stalls()) continue;
    int problem = __real_os_reader_read(r, parts, n_parts, offset, n_read);
    int64_t result = spoil(problem ? -problem : (int64_t)*n_read);
    if (n_parts > 1) atomic_fetch_add(&n_joined, 1);
    *n_read = result < 0 ? 0 : (size_t)result;
    return result < 0 ? (int)-result : 0;
}

static void set_faults(int again, int few, int fails, int stalls) {
    atomic_store(&now.again, again);
    atomic_store(&now.few, few);
    atomic_store(&now.fails, fails);
    atomic_store(&now.stalls, stalls);
}

static int remove_model(void **state) {
    (void)state;
    (void)os_path_remove(MODEL_PATH);
    return 0;
}

static int write_model(void **state) {
    (void)state;
    pi_synth_options o = pi_synth_default_options();
    o.shape = "tiny";
    o.type = "f16"; /* bundles of some pages */
    o.bundle = true;
    o.n_layer = 4;
    return pi_synth(MODEL_PATH, &o, NULL) == PI_OK ? 0 : -1;
}

static run_model open_model(bool paged) {
    pi_context_options o = run_exact_options();
    pi_memory n;
    o.kernels = PI_KERNELS_AUTO;
    o.mode = PI_MODE_PREDICT;
    o.n_threads = 2;
    o.n_ctx = N_CTX;
    o.n_batch = N_BATCH;
    o.ram_budget = paged ? 1024 * (uint64_t)MIB : PI_RAM_MAPPED;
    run_model r = run_open(MODEL_PATH, &o);
    if (!paged) return r;
    pi_context_get_memory(r.context, &n);
    assert_true(!threads_read || strcmp(n.backend, "threads") == 0);
    run_close(&r);
    o.ram_budget = n.needed;
    return run_open(MODEL_PATH, &o);
}

/* Prompts and single tokens in turn. */
static const int sizes[] = {1, N_BATCH, 1, 1, 1, N_BATCH - 3, 1, 1};
enum { CALLS = sizeof sizes / sizeof *sizes };

static int32_t tokens[N_CTX];
static float expected[CALLS][MAX_VOCAB];

static pi_session *begin(const run_model *r) {
    assert_true(r->n_vocab <= MAX_VOCAB);
    run_random_tokens(3, r->n_vocab, tokens, N_CTX);
    return run_session(r, N_CTX);
}

static pi_status feed(const run_model *r, pi_session *s, int call, pi_error *err) {
    pi_input in = {.session = s, .tokens = tokens, .logits = PI_LOGITS_LAST};
    for (int i = 0; i < call; i++) in.tokens += sizes[i];
    in.n_tokens = sizes[call];
    return pi_forward(r->context, &in, 1, err);
}

static void record(void) {
    run_model r = open_model(false);
    pi_session *s = begin(&r);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(feed(&r, s, i, NULL), PI_OK);
        memcpy(expected[i], pi_logits(r.context, 0), (size_t)r.n_vocab * sizeof(float));
    }
    pi_session_destroy(s);
    run_close(&r);
}

static void check(const run_model *r, int call) {
    assert_memory_equal(expected[call], pi_logits(r->context, 0),
                        (size_t)r->n_vocab * sizeof(float));
}

/* A stall in every call; some reads come back short, some must be tried again.
 */
static void faults_that_pass(void **state) {
    (void)state;
    pi_error err;
    record();
    n_again = n_few = n_stalled = 0;
    run_model r = open_model(true);
    pi_session *s = begin(&r);
    for (int i = 0; i < CALLS; i++) {
        set_faults(5, 3, 0, STALL_MS / CALLS / MOMENT_MS);
        if (feed(&r, s, i, &err) != PI_OK) fail_msg("call %d: %s", i, err.message);
        check(&r, i);
    }
    set_faults(0, 0, 0, 0);
    assert_true(n_again > 0 && n_few > 0 && n_stalled > 0);
    assert_true(!threads_read || n_joined > 0);
    pi_session_destroy(s);
    run_close(&r);
}

static void a_drive_that_fails(void **state) {
    (void)state;
    pi_error err;
    int64_t length = 0;
    record();
    n_failed = 0;
    run_model r = open_model(true);
    pi_session *s = begin(&r);
    for (int i = 0; i < CALLS; i++) {
        int before = n_failed;
        set_faults(0, 0, 2, 0);
        pi_status status = feed(&r, s, i, &err);
        set_faults(0, 0, 0, 0);
        assert_int_equal(status, n_failed > before ? PI_ERR_IO : PI_OK);
        if (status != PI_OK) {
            assert_non_null(strstr(err.message, MODEL_PATH));
            assert_int_equal(pi_session_length(s), length);
            assert_int_equal(feed(&r, s, i, NULL), PI_OK);
        }
        check(&r, i);
        length += sizes[i];
    }
    assert_true(n_failed > CALLS);
    pi_session_destroy(s);
    run_close(&r);
}

static int let_threads_read(void **state) {
    (void)state;
    threads_read = true;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_that_pass), cmocka_unit_test(a_drive_that_fails),
        cmocka_unit_test_setup(faults_that_pass, let_threads_read),
        cmocka_unit_test_setup(a_drive_that_fails, let_threads_read)};
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
