/* test_api_errors.c: every error that the public header names. No error changes a session: after
 * failures it gives the answer of a session without failures. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_errors.gguf"

#define INPUT(s, ids, n, rows)                                                                     \
    { .session = (s), .tokens = (ids), .n_tokens = (n), .logits = (rows) }

enum { N_CTX = 16, N_BATCH = 6, N_LOGITS = 4 };

static pi_error err;

static run_model open_small(void) {
    tiny_model t = tiny_default();
    t.n_vocab = 300;
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    o.n_batch = N_BATCH;
    o.n_logits = N_LOGITS;
    return run_open(MODEL_PATH, &o);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void refuse(pi_context *c, const pi_input *inputs, int n_inputs, pi_status want) {
    int32_t before[8];
    for (int i = 0; i < n_inputs && i < 8; i++) before[i] = pi_session_length(inputs[i].session);
    memset(&err, 0, sizeof err);
    assert_int_equal(pi_forward(c, inputs, n_inputs, &err), want);
    run_check_message(&err, want);
    assert_int_equal(pi_forward(c, inputs, n_inputs, NULL), want);
    assert_int_equal(pi_logits_rows(c), 0);
    for (int i = 0; i < n_inputs && i < 8; i++)
        assert_int_equal(pi_session_length(inputs[i].session), before[i]);
}

static void test_forward(void **state) {
    (void)state;
    run_model r = open_small(), other = open_small();
    pi_session *s[2] = {run_session(&r, N_CTX), run_session(&r, N_CTX)};
    pi_session *foreign = run_session(&other, N_CTX);
    int32_t ids[N_CTX + 1] = {5, 4, 3, 299, 1, 0, 7};
    int32_t bad[] = {5, 4, 300}, negative[] = {5, -1, 4}, lowest[] = {INT32_MIN},
            highest[] = {INT32_MAX};
    float want[8 * 300], got[8 * 300];
    run_tokens(&r, ids, 8, 4, want);
    run_feed(&r, s[0], ids, 4, 4, got);

    refuse(r.context, &(pi_input)INPUT(s[0], bad, 3, PI_LOGITS_LAST), 1, PI_ERR_RANGE);
    refuse(r.context, &(pi_input)INPUT(s[0], negative, 3, PI_LOGITS_LAST), 1, PI_ERR_RANGE);
    refuse(r.context, &(pi_input)INPUT(s[0], lowest, 1, PI_LOGITS_LAST), 1, PI_ERR_RANGE);
    refuse(r.context, &(pi_input)INPUT(s[0], highest, 1, PI_LOGITS_NONE), 1, PI_ERR_RANGE);
    refuse(r.context, &(pi_input)INPUT(s[0], ids, 0, PI_LOGITS_LAST), 1, PI_ERR_ARG);
    refuse(r.context, &(pi_input)INPUT(s[0], ids, -3, PI_LOGITS_LAST), 1, PI_ERR_ARG);
    refuse(r.context, &(pi_input)INPUT(s[0], ids, N_CTX - 3, PI_LOGITS_LAST), 1, PI_ERR_LIMIT);
    refuse(r.context, &(pi_input)INPUT(s[0], ids, INT32_MAX, PI_LOGITS_LAST), 1, PI_ERR_LIMIT);
    refuse(r.context, &(pi_input)INPUT(s[0], ids, N_LOGITS + 1, PI_LOGITS_ALL), 1, PI_ERR_LIMIT);
    refuse(r.context, &(pi_input)INPUT(foreign, ids, 1, PI_LOGITS_LAST), 1, PI_ERR_ARG);
    static const int choices[] = {-1, PI_LOGITS_ALL + 1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++)
        refuse(r.context, &(pi_input)INPUT(s[0], ids, 1, (pi_logits_wanted)choices[i]), 1,
               PI_ERR_ARG);
    pi_input twice[] = {INPUT(s[0], ids, 1, PI_LOGITS_LAST), INPUT(s[0], ids, 1, PI_LOGITS_LAST)};
    refuse(r.context, twice, 2, PI_ERR_ARG);
    pi_input good_then_bad[] = {INPUT(s[1], ids, 2, PI_LOGITS_LAST),
                                INPUT(s[0], bad, 3, PI_LOGITS_LAST)};
    refuse(r.context, good_then_bad, 2, PI_ERR_RANGE);
    pi_input many_rows[] = {INPUT(s[1], ids, 2, PI_LOGITS_ALL), INPUT(s[0], ids, 3, PI_LOGITS_ALL)};
    refuse(r.context, many_rows, 2, PI_ERR_LIMIT);
    refuse(r.context, twice, 0, PI_ERR_LIMIT);
    refuse(r.context, twice, -1, PI_ERR_LIMIT);

    /* More inputs than a batch has rows; the sessions in the array are not read. */
    pi_input crowd[N_BATCH + 1];
    for (int i = 0; i <= N_BATCH; i++) crowd[i] = twice[0];
    refuse(r.context, crowd, N_BATCH + 1, PI_ERR_LIMIT);

    /* After these errors the sessions still work, alone and together, with the right tokens. */
    pi_input both[] = {INPUT(s[0], ids + 4, 4, PI_LOGITS_LAST),
                       INPUT(s[1], ids, 8, PI_LOGITS_LAST)};
    assert_int_equal(pi_forward(r.context, both, 2, &err), PI_OK);
    for (int i = 0; i < 2; i++)
        assert_true(run_nmse(pi_logits(r.context, i), want + 7 * 300, 300) < 1e-11);

    /* A context that is exactly full. */
    pi_input fill = INPUT(s[0], ids, N_CTX - 8, PI_LOGITS_NONE);
    assert_int_equal(pi_forward(r.context, &fill, 1, &err), PI_OK);
    assert_int_equal(pi_session_length(s[0]), pi_session_capacity(s[0]));
    refuse(r.context, &(pi_input)INPUT(s[0], ids, 1, PI_LOGITS_LAST), 1, PI_ERR_LIMIT);
    pi_session_destroy(s[0]);
    pi_session_destroy(s[1]);
    pi_session_destroy(foreign);
    run_close(&r);
    run_close(&other);
}

/* ---- contexts and sessions ------------------------------------------------------------------- */

static void refuse_context(const pi_model *m, const pi_context_options *o, pi_status want) {
    pi_context *c = (pi_context *)&err;
    assert_int_equal(pi_context_create(m, o, &c, &err), want);
    run_check_message(&err, want);
    assert_null(c);
}

static void test_context_options(void **state) {
    (void)state;
    run_model r = open_small();
    const pi_context_options good = run_exact_options();
    pi_context_options o;
#define REFUSE(field, value)                                                                       \
    o = good;                                                                                      \
    o.field = value;                                                                               \
    refuse_context(r.model, &o, PI_ERR_ARG)
    REFUSE(n_threads, -1);
    REFUSE(n_threads, 513);
    REFUSE(n_threads, INT32_MAX);
    REFUSE(n_threads_batch, -1);
    REFUSE(n_threads_batch, INT32_MAX);
    REFUSE(n_batch, 0);
    REFUSE(n_batch, -1);
    REFUSE(n_batch, INT32_MAX);
    REFUSE(n_logits, -1);
    REFUSE(kernels, (pi_kernels)5);
    REFUSE(kernels, (pi_kernels)-1);
    REFUSE(mode, (pi_mode)(PI_MODE_THRESHOLD + 1));
    REFUSE(max_loss, -1);
    REFUSE(cache_k, (pi_cache_type)(PI_CACHE_IQ4_NL + 1));
    REFUSE(cache_v, (pi_cache_type)-1);
#undef REFUSE
    /* No CPU supports both of these. */
    int lacking = 0;
    static const pi_kernels kernels[] = {PI_KERNELS_AVX2, PI_KERNELS_NEON};
    for (int i = 0; i < 2; i++) lacking += !run_has_kernels(MODEL_PATH, kernels[i]);
    assert_true(lacking >= 1);
    run_close(&r);
}

static void test_sessions(void **state) {
    (void)state;
    run_model r = open_small();
    static const int32_t sizes[] = {0, -1, INT32_MIN};
    pi_session *s;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pi_session_create(r.context, sizes[i], &s, &err), PI_ERR_ARG);
        run_check_message(&err, PI_ERR_ARG);
        assert_null(s);
    }
    s = run_session(&r, 8);
    assert_int_equal(pi_session_length(s), 0);
    assert_int_equal(pi_session_capacity(s), 8);
    static const int32_t lengths[] = {1, -1, 9, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pi_session_rewind(s, lengths[i], &err), PI_ERR_RANGE);
        run_check_message(&err, PI_ERR_RANGE);
    }
    assert_int_equal(pi_session_rewind(s, 0, &err), PI_OK);
    pi_session_destroy(s);
    pi_session_destroy(NULL);
    /* Heads of 8 elements do not fill blocks of 32. */
    pi_context_options o = run_exact_options();
    o.cache_v = PI_CACHE_Q8_0;
    pi_context *c;
    pi_status status = pi_context_create(r.model, &o, &c, &err);
    if (status == PI_OK) status = pi_session_create(c, 8, &s, &err);
    assert_int_equal(status, PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    pi_context_destroy(c);
    run_close(&r);
}

/* ---- models and samplers --------------------------------------------------------------------- */

static void test_models(void **state) {
    (void)state;
    run_model r = open_small();
    pi_model *m = (pi_model *)&err;
    assert_int_equal(pi_model_open(TEST_BINARY_DIR "/no-such-file.gguf", NULL, &m, &err),
                     PI_ERR_IO);
    run_check_message(&err, PI_ERR_IO);
    assert_null(m);
    assert_int_equal(pi_model_open(TEST_BINARY_DIR, NULL, &m, &err), PI_ERR_IO);
    run_check_message(&err, PI_ERR_IO);

    pi_model_options o = pi_model_default_options();
    o.vocab_only = true;
    if (pi_model_open(MODEL_PATH, &o, &m, &err) != PI_OK) fail_msg("%s", err.message);
    refuse_context(m, NULL, PI_ERR_ARG);
    pi_model_info info;
    pi_model_get_info(m, &info);
    assert_int_equal(info.n_vocab, 300);
    assert_true(info.has_tokenizer);
    pi_model_close(m);
    pi_model_close(NULL);
    run_close(&r);
}

#if !defined(_WIN32) /* which has no list of mappings as a file */
/* An address in the mapping of the file, from /proc/self/maps; NULL: not mapped. */
static void *mapped_at(const char *path) {
    char line[8192];
    unsigned long begin = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (!begin && fgets(line, sizeof line, maps))
        if (strstr(line, path)) sscanf(line, "%lx", &begin);
    fclose(maps);
    return (void *)begin;
}

/* pi_mapped_file, as a handler of SIGBUS calls it. */
static void test_mapped_file(void **state) {
    (void)state;
    run_model r = open_small(); /* writes the file */
    run_close(&r);
    pi_model_options o = pi_model_default_options();
    pi_model *m = NULL;
    assert_null(mapped_at(MODEL_PATH));
    o.check_tensors = true;
    assert_int_equal(pi_model_open(MODEL_PATH, &o, &m, &err), PI_OK);
    void *inside = mapped_at(MODEL_PATH);
    assert_non_null(inside);
    assert_string_equal(pi_mapped_file((char *)inside + 100), MODEL_PATH);
    assert_null(pi_mapped_file(&o));
    pi_model_close(m);
    assert_null(pi_mapped_file((char *)inside + 100));
    o.no_mmap = true;
    assert_int_equal(pi_model_open(MODEL_PATH, &o, &m, &err), PI_OK);
    assert_null(mapped_at(MODEL_PATH));
    pi_model_close(m);
}
#endif

static void test_text(void **state) {
    (void)state;
    run_model r = open_small();
    int32_t ids[32];
    char text[8];
    size_t n = 0;
    assert_int_equal(pi_tokenize(r.model, "abcdef", 6, PI_TOKENIZE_BOS, ids, 2, &n, &err),
                     PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    assert_true(n > 2 && n <= 6 + 8);
    assert_int_equal(pi_tokenize(r.model, "abcdef", 6, PI_TOKENIZE_BOS, ids, 32, &n, &err), PI_OK);
    static const int32_t outside[] = {-1, 300, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        size_t bytes;
        assert_int_equal(pi_token_text(r.model, outside[i], true, text, sizeof text, &bytes, &err),
                         PI_ERR_RANGE);
        run_check_message(&err, PI_ERR_RANGE);
        assert_false(pi_token_is_end(r.model, outside[i]));
    }
    size_t bytes = 0;
    assert_int_equal(pi_detokenize(r.model, ids, n, false, text, 2, &bytes, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    assert_int_equal(bytes, 6);
    assert_true(pi_token_is_end(r.model, 2));
    run_close(&r);

    tiny_model t = tiny_default(); /* no vocabulary */
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    r = run_open(MODEL_PATH, &o);
    assert_int_equal(pi_tokenize(r.model, "a", 1, 0, ids, 32, &n, &err), PI_ERR_UNSUPPORTED);
    run_check_message(&err, PI_ERR_UNSUPPORTED);
    assert_false(pi_token_is_end(r.model, 2));
    run_close(&r);
}

static void test_sampler_options(void **state) {
    (void)state;
    run_model r = open_small();
    pi_sampler_options o = pi_sampler_default_options();
    pi_sampler *s = (pi_sampler *)&err;
    volatile float zero = 0;
    o.temp = zero / zero;
    assert_int_equal(pi_sampler_create(r.model, &o, &s, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    assert_null(s);
    pi_sampler_destroy(NULL);
    run_close(&r);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

typedef struct canceller {
    pi_context *context;
    atomic_bool started;
} canceller;

static void *cancel_soon(void *arg) {
    canceller *c = arg;
    while (!atomic_load(&c->started)) {}
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    pi_context_cancel(c->context);
    return NULL;
}

/* A prompt of many batches, seconds of work for scalar kernels, is cancelled within a batch. */
static void test_cancel(void **state) {
    (void)state;
    enum { PROMPT = 30000, BEFORE = 5 };
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    o.n_threads = 2;
    run_model r = run_open(MODEL_PATH, &o);
    int32_t *ids = calloc(PROMPT, sizeof *ids);
    float want[12 * 40], got[12 * 40];
    run_random_tokens(3, r.n_vocab, ids, PROMPT);
    run_tokens(&r, ids, 12, 0, want);
    pi_session *s = run_session(&r, PROMPT + BEFORE);
    run_feed(&r, s, ids, BEFORE, 0, got);
    for (int round = 0; round < 3; round++) {
        canceller c = {.context = r.context};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
        pi_input in = {.session = s, .tokens = ids, .n_tokens = PROMPT, .logits = PI_LOGITS_LAST};
        atomic_store(&c.started, true);
        assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_ERR_CANCELLED);
        run_check_message(&err, PI_ERR_CANCELLED);
        pthread_join(thread, NULL);
        assert_int_equal(pi_session_length(s), BEFORE);
        assert_int_equal(pi_logits_rows(r.context), 0);
    }
    run_feed(&r, s, ids + BEFORE, 12 - BEFORE, 0, got);
    assert_true(run_nmse(got, want + BEFORE * 40, (12 - BEFORE) * 40) < 1e-11);

    /* A cancellation between calls applies to the next call only. */
    pi_context_cancel(r.context);
    pi_input in = {.session = s, .tokens = ids, .n_tokens = 1, .logits = PI_LOGITS_LAST};
    assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_ERR_CANCELLED);
    assert_int_equal(pi_session_length(s), 12);
    assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_OK);
    pi_session_destroy(s);
    free(ids);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_context_options),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_models),
#if !defined(_WIN32)
        cmocka_unit_test(test_mapped_file),
#endif
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_sampler_options),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests_name("api_errors", tests, NULL, NULL);
}
