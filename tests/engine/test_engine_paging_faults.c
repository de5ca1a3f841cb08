/* test_engine_paging_faults.c: a drive that returns fewer bytes than asked for,
 * asks to try again, stalls, or fails, below prefill and decode of a model with
 * bundles. The linker replaces a function of liburing (--wrap). Answers equal
 * those from memory bit for bit; a call that fails leaves its session
 * unchanged, and the same call succeeds when the drive works again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <liburing.h>

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
static atomic_int n_seen, n_again, n_few, n_failed, n_stalled;

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);

static bool hits(atomic_int *every, int number) {
    int n = atomic_load(every);
    return n > 0 && number % n == 0;
}

unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count) {
    if (atomic_load(&now.stalls) > 0) {
        atomic_fetch_sub(&now.stalls, 1);
        atomic_fetch_add(&n_stalled, 1);
        usleep(1000 * MOMENT_MS);
        return 0;
    }
    unsigned n = __real_io_uring_peek_batch_cqe(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        int number = atomic_fetch_add(&n_seen, 1);
        if (hits(&now.fails, number)) {
            cqes[i]->res = -EIO;
            atomic_fetch_add(&n_failed, 1);
        } else if (hits(&now.again, number)) {
            cqes[i]->res = -EAGAIN;
            atomic_fetch_add(&n_again, 1);
        } else if (hits(&now.few, number) && cqes[i]->res >= 2 * PAGE) {
            cqes[i]->res = cqes[i]->res / 2 / PAGE * PAGE;
            atomic_fetch_add(&n_few, 1);
        }
    }
    return n;
}

static void set_faults(int again, int few, int fails, int stalls) {
    atomic_store(&now.again, again);
    atomic_store(&now.few, few);
    atomic_store(&now.fails, fails);
    atomic_store(&now.stalls, stalls);
}

static int remove_model(void **state) {
    (void)state;
    unlink(MODEL_PATH);
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
    bool async = strcmp(n.backend, "io_uring") == 0;
    run_close(&r);
    if (!async) skip(); /* kernel or sandbox without io_uring */
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
    run_model r = open_model(true);
    pi_session *s = begin(&r);
    for (int i = 0; i < CALLS; i++) {
        set_faults(5, 3, 0, STALL_MS / CALLS / MOMENT_MS);
        if (feed(&r, s, i, &err) != PI_OK) fail_msg("call %d: %s", i, err.message);
        check(&r, i);
    }
    set_faults(0, 0, 0, 0);
    assert_true(n_again > 0 && n_few > 0 && n_stalled > 0);
    pi_session_destroy(s);
    run_close(&r);
}

static void a_drive_that_fails(void **state) {
    (void)state;
    pi_error err;
    int64_t length = 0;
    record();
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults_that_pass),
                                       cmocka_unit_test(a_drive_that_fails)};
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
