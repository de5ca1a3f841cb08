/* test_engine_lent.c: prefill's working buffers borrow memory of the cache of neurons or experts.
 * Prompts and decode in turn, in one session and in several, with logits of one row and of all,
 * equal those from memory bit for bit; also after calls that were cancelled or failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"
#include "powerinfer_tools.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_lent.gguf"

enum { N_CTX = 160, N_BATCH = 16, LONG = N_BATCH + 2, MAX_ROWS = 160, MAX_VOCAB = 512 };
enum { MIB = 1 << 20 };

/* Logits of a script's calls, in order. */
typedef struct recording {
    run_model r;
    pi_session *a, *b;
    int n_rows, n_fed;
    float logits[MAX_ROWS * MAX_VOCAB];
} recording;

static recording expected, got;
static int32_t tokens[2 * N_CTX];

static int remove_model(void **state) {
    (void)state;
    unlink(MODEL_PATH);
    return 0;
}

static pi_mode mode;

static int write_shape(const char *shape, pi_mode m) {
    pi_synth_options o = pi_synth_default_options();
    mode = m;
    o.shape = shape;
    o.type = "q4_0";
    o.bundle = true;
    o.n_layer = 4;
    return pi_synth(MODEL_PATH, &o, NULL) == PI_OK ? 0 : -1;
}

static int write_neurons(void **state) {
    (void)state;
    return write_shape("tiny", PI_MODE_PREDICT);
}

static int write_experts(void **state) {
    (void)state;
    return write_shape("tiny-moe", PI_MODE_AUTO);
}

static pi_context_options options_for(int n_batch) {
    pi_context_options o = run_exact_options();
    o.kernels = PI_KERNELS_AUTO;
    o.mode = mode;
    o.n_threads = 2;
    o.n_ctx = N_CTX;
    o.n_batch = n_batch;
    return o;
}

static pi_memory sizes_for(pi_context_options o, uint64_t budget) {
    pi_model *m;
    pi_context *c;
    pi_memory n;
    pi_error err;
    o.ram_budget = budget;
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
    if (pi_context_create(m, &o, &c, &err) != PI_OK) fail_msg("%s", err.message);
    pi_context_get_memory(c, &n);
    pi_context_destroy(c);
    pi_model_close(m);
    return n;
}

static uint64_t least_budget(pi_context_options o) {
    return sizes_for(o, 1024 * (uint64_t)MIB).needed;
}

/* ---- scripts --------------------------------------------------------------------------------- */

static void open_recording(recording *k, const pi_context_options *o) {
    k->r = run_open(MODEL_PATH, o);
    assert_true(k->r.n_vocab <= MAX_VOCAB);
    run_random_tokens(9, k->r.n_vocab, tokens, 2 * N_CTX);
    k->a = run_session(&k->r, N_CTX);
    k->b = run_session(&k->r, N_CTX);
    k->n_rows = k->n_fed = 0;
}

static void close_recording(recording *k) {
    pi_session_destroy(k->a);
    pi_session_destroy(k->b);
    run_close(&k->r);
}

static pi_input next_input(recording *k, pi_session *s, int n, pi_logits_wanted logits) {
    pi_input in = {.session = s, .tokens = tokens + k->n_fed, .n_tokens = n, .logits = logits};
    k->n_fed += n;
    return in;
}

static void call(recording *k, const pi_input *in, int n) {
    pi_error err;
    int rows = 0;
    for (int i = 0; i < n; i++) rows += in[i].logits == PI_LOGITS_ALL ? in[i].n_tokens : 1;
    if (pi_forward(k->r.context, in, n, &err) != PI_OK) fail_msg("%s", err.message);
    assert_true(k->n_rows + rows <= MAX_ROWS);
    for (int i = 0; i < rows; i++, k->n_rows++)
        memcpy(k->logits + (size_t)k->n_rows * MAX_VOCAB, pi_logits(k->r.context, i),
               (size_t)k->r.n_vocab * sizeof(float));
}

static void feed(recording *k, pi_session *s, int n, pi_logits_wanted logits) {
    pi_input in = next_input(k, s, n, logits);
    call(k, &in, 1);
}

static void decode(recording *k, pi_session *s, int n) {
    for (int i = 0; i < n; i++) feed(k, s, 1, PI_LOGITS_LAST);
}

static void cancel(recording *k, pi_session *s, int n) {
    pi_input in = {.session = s, .tokens = tokens, .n_tokens = n, .logits = PI_LOGITS_LAST};
    pi_context_cancel(k->r.context);
    assert_int_equal(pi_forward(k->r.context, &in, 1, NULL), PI_ERR_CANCELLED);
}

/* Ubatches of many tokens, of few, and of both in one call. */
static void alternate(recording *k) {
    decode(k, k->a, 4);
    feed(k, k->a, N_BATCH, PI_LOGITS_LAST);
    decode(k, k->a, 3);
    pi_input both[] = {next_input(k, k->a, 1, PI_LOGITS_LAST),
                       next_input(k, k->b, N_BATCH - 4, PI_LOGITS_ALL)};
    call(k, both, 2);
    decode(k, k->b, 2);
    feed(k, k->a, N_BATCH, PI_LOGITS_ALL);
    feed(k, k->b, LONG, PI_LOGITS_LAST); /* the second ubatch has few tokens */
    decode(k, k->b, 3);
    cancel(k, k->a, N_BATCH);
    cancel(k, k->b, 1);
    decode(k, k->a, 1);
    pi_input two[] = {next_input(k, k->b, 1, PI_LOGITS_LAST),
                      next_input(k, k->a, 1, PI_LOGITS_LAST)};
    call(k, two, 2);
    feed(k, k->b, LONG - 3, PI_LOGITS_ALL);
    decode(k, k->a, 3);
}

/* Rows of logits of the first ubatch stay valid while the next one selects neurons. */
static void keep_logits(recording *k) {
    decode(k, k->a, 2);
    for (int i = 0; i < 2; i++) {
        pi_input in[] = {next_input(k, k->a, N_BATCH - 6, PI_LOGITS_ALL),
                         next_input(k, k->b, 6 + 2, PI_LOGITS_LAST)};
        call(k, in, 2);
        decode(k, k->b, 2);
    }
}

static void check_equal(const char *what, uint64_t budget) {
    assert_int_equal(expected.n_rows, got.n_rows);
    for (int i = 0; i < got.n_rows; i++) {
        size_t at = (size_t)i * MAX_VOCAB;
        if (memcmp(expected.logits + at, got.logits + at, (size_t)got.r.n_vocab * sizeof(float)) !=
            0)
            fail_msg("%s: row %d differs with %llu bytes", what, i, (unsigned long long)budget);
    }
}

static void check_script(const char *what, void script(recording *), int n_batch) {
    pi_context_options o = options_for(n_batch);
    uint64_t least = least_budget(o);
    const uint64_t budgets[] = {least, least + 256 * 1024, least + MIB, least + 64 * (uint64_t)MIB};
    o.ram_budget = PI_RAM_MAPPED;
    open_recording(&expected, &o);
    script(&expected);
    close_recording(&expected);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        pi_memory n;
        o.ram_budget = budgets[i];
        open_recording(&got, &o);
        script(&got);
        pi_context_get_memory(got.r.context, &n);
        assert_true(n.buffers + n.always + n.pinned + n.ring + n.cache <= n.budget);
        assert_true(i > 0 || (n.hits > 0 && (n.misses > 0 || n.cache > n.cached)));
        close_recording(&got);
        check_equal(what, budgets[i]);
    }
}

static void prompts_and_decode(void **state) {
    (void)state;
    check_script("alternating", alternate, N_BATCH);
    check_script("alternating, one ubatch per prompt", alternate, 64);
}

static void logits_of_a_call(void **state) {
    (void)state;
    check_script("logits of two ubatches", keep_logits, N_BATCH);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Only a few arrays of the 512 tokens are not lent: as many experts as before fit into memory. */
static void buffers_of_experts(void **state) {
    (void)state;
    pi_context_options few = options_for(N_BATCH), many = options_for(512);
    uint64_t budget = least_budget(many) + 256 * 1024;
    pi_memory small = sizes_for(few, budget), large = sizes_for(many, budget);
    assert_true(large.buffers - small.buffers < 512 * 1024);
    assert_true(large.cache + 512 * 1024 > small.cache);
    pi_memory all = sizes_for(many, budget + 64 * (uint64_t)MIB);
    assert_int_equal(all.cache, all.cached);
    assert_true(all.buffers > large.buffers);
}

static void buffers_are_lent(void **state) {
    (void)state;
    pi_context_options few = options_for(N_BATCH), many = options_for(512), dense = many;
    dense.mode = PI_MODE_DENSE;
    uint64_t budget = least_budget(many);
    pi_memory small = sizes_for(few, budget), large = sizes_for(many, budget);
    pi_memory own = sizes_for(dense, least_budget(dense));
    uint64_t more = large.buffers - small.buffers; /* 256 vectors and the lists of tokens */
    assert_true(large.buffers >= small.buffers && own.buffers > large.buffers);
    assert_true(more < (own.buffers - large.buffers) / 2);
    assert_true(large.cache >= own.buffers - large.buffers);
    /* with all neurons in memory there is no cache to borrow from */
    pi_memory all = sizes_for(many, budget + 64 * (uint64_t)MIB);
    assert_int_equal(all.cache, 0);
    assert_true(all.buffers > large.buffers + more);
}

/* ---- failures -------------------------------------------------------------------------------- */

#if !defined(_WIN32) /* where an open file cannot be shortened */
/* Calls fail while the file is short, and work again when it is restored. */
static void the_file_changes(void **state) {
    (void)state;
    pi_context_options o = options_for(N_BATCH);
    struct stat st;
    pi_error err;
    o.ram_budget = PI_RAM_MAPPED;
    open_recording(&expected, &o);
    alternate(&expected);
    feed(&expected, expected.a, N_BATCH, PI_LOGITS_ALL);
    close_recording(&expected);
    o.ram_budget = least_budget(o);
    open_recording(&got, &o);
    alternate(&got);
    assert_int_equal(stat(MODEL_PATH, &st), 0);
    int fd = open(MODEL_PATH, O_RDWR);
    uint8_t *all = mem_alloc((size_t)st.st_size);
    assert_true(fd >= 0 && all);
    assert_int_equal(pread(fd, all, (size_t)st.st_size, 0), st.st_size);
    assert_int_equal(ftruncate(fd, st.st_size / 8), 0);
    for (int n = 1; n <= N_BATCH; n += N_BATCH - 1)
        for (int i = 0; i < 2; i++) {
            pi_input in = {.session = got.a, .tokens = tokens, .n_tokens = n};
            assert_int_equal(pi_forward(got.r.context, &in, 1, &err), PI_ERR_IO);
            assert_non_null(strstr(err.message, MODEL_PATH));
        }
    assert_int_equal(pwrite(fd, all, (size_t)st.st_size, 0), st.st_size);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    mem_free(all);
    feed(&got, got.a, N_BATCH, PI_LOGITS_ALL);
    close_recording(&got);
    check_equal("after failures", o.ram_budget);
}
#endif

static void memory_runs_out(void **state) {
    (void)state;
    pi_context_options o = options_for(64);
    uint64_t least = least_budget(o);
    const uint64_t budgets[] = {least, least + 64 * (uint64_t)MIB};
    for (int i = 0; i < 2; i++) {
        pi_model *m;
        pi_error err;
        int failures = 0;
        bool over = false;
        o.ram_budget = budgets[i];
        assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
        for (int64_t n = 1; !over; n++) {
            pi_context *c = NULL;
            int64_t before = mem_count();
            mem_fail_at(n);
            pi_status status = pi_context_create(m, &o, &c, &err);
            over = mem_count() - before < n;
            mem_fail_at(0);
            failures += status == PI_ERR_NOMEM;
            if (status != PI_OK && status != PI_ERR_NOMEM) fail_msg("%s", err.message);
            pi_context_destroy(c);
        }
        assert_true(failures > 20);
        pi_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest experts[] = {
        cmocka_unit_test(prompts_and_decode),
        cmocka_unit_test(logits_of_a_call),
        cmocka_unit_test(buffers_of_experts),
#if !defined(_WIN32)
        cmocka_unit_test(the_file_changes),
#endif
        cmocka_unit_test(memory_runs_out),
    };
    const struct CMUnitTest neurons[] = {
        cmocka_unit_test(prompts_and_decode),
        cmocka_unit_test(logits_of_a_call),
        cmocka_unit_test(buffers_are_lent),
#if !defined(_WIN32)
        cmocka_unit_test(the_file_changes),
#endif
        cmocka_unit_test(memory_runs_out),
    };
    int n_failed = cmocka_run_group_tests(neurons, write_neurons, remove_model);
    return n_failed + cmocka_run_group_tests(experts, write_experts, remove_model);
}
