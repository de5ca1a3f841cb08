/* test_api_threads.c: a model shared by threads that have contexts of their own and tokenize at the
 * same time: every thread gets the answers that a single one gets. For the thread sanitizer above
 * all. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_threads.gguf"

enum { N_THREADS = 4, ROUNDS = 5, N_VOCAB = 300, N_IDS = 24 };

static const char text[] = "a text that all of them read";

typedef struct reader {
    const pi_model *model;
    int32_t ids[N_IDS];
    float logits[N_VOCAB];
    bool failed; /* cmocka's assertions are for the main thread */
} reader;

static bool read_once(reader *r, pi_context *c) {
    pi_session *s;
    size_t n, bytes;
    char back[64];
    if (pi_tokenize(r->model, text, N_IDS / 2, PI_TOKENIZE_BOS, r->ids, N_IDS, &n, NULL))
        return false;
    if (pi_detokenize(r->model, r->ids, n, false, back, sizeof back, &bytes, NULL)) return false;
    if (bytes != N_IDS / 2 || memcmp(back, text, bytes) != 0) return false;
    if (pi_session_create(c, N_IDS, &s, NULL)) return false;
    pi_input in = {
        .session = s, .tokens = r->ids, .n_tokens = (int32_t)n, .logits = PI_LOGITS_LAST};
    bool ok = pi_forward(c, &in, 1, NULL) == PI_OK;
    if (ok) memcpy(r->logits, pi_logits(c, 0), sizeof r->logits);
    pi_session_destroy(s);
    return ok;
}

static void *read_much(void *arg) {
    reader *r = arg;
    pi_context_options o = run_exact_options();
    pi_context *c;
    o.n_threads = 2;
    o.n_batch = 5;
    r->failed = pi_context_create(r->model, &o, &c, NULL) != PI_OK;
    for (int i = 0; i < ROUNDS && !r->failed; i++) r->failed = !read_once(r, c);
    pi_context_destroy(c);
    return NULL;
}

static void test_shared_model(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
    pi_model *m;
    pi_error err;
    if (pi_model_open(MODEL_PATH, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    static reader alone, readers[N_THREADS];
    pthread_t threads[N_THREADS];
    alone.model = m;
    read_much(&alone);
    assert_false(alone.failed);
    for (int i = 0; i < N_THREADS; i++) {
        readers[i].model = m;
        assert_int_equal(pthread_create(&threads[i], NULL, read_much, &readers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].failed);
        assert_memory_equal(readers[i].logits, alone.logits, sizeof alone.logits);
    }
    pi_model_close(m);
}

/* Cancelling from outside at any moment, again and again: every call ends, either way, and leaves a
 * session that can go on. */
typedef struct pest {
    pi_context *context;
    atomic_bool stop;
} pest;

static void *cancel_always(void *arg) {
    pest *p = arg;
    while (!atomic_load(&p->stop)) pi_context_cancel(p->context);
    return NULL;
}

static void test_cancelled_often(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    o.n_threads = 2;
    o.n_batch = 4;
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, 64);
    int32_t ids[20];
    run_random_tokens(2, r.n_vocab, ids, 20);
    pest p = {.context = r.context};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_always, &p), 0);
    int cancelled = 0;
    for (int i = 0; i < 200; i++) {
        pi_input in = {.session = s, .tokens = ids, .n_tokens = 20, .logits = PI_LOGITS_LAST};
        pi_status status = pi_forward(r.context, &in, 1, NULL);
        cancelled += status == PI_ERR_CANCELLED;
        assert_true(status == PI_OK || status == PI_ERR_CANCELLED);
        assert_int_equal(pi_session_length(s), status == PI_OK ? 20 : 0);
        assert_int_equal(pi_session_rewind(s, 0, NULL), PI_OK);
    }
    atomic_store(&p.stop, true);
    pthread_join(thread, NULL);
    assert_true(cancelled > 0);
    pi_input in = {.session = s, .tokens = ids, .n_tokens = 20, .logits = PI_LOGITS_LAST};
    pi_status status = pi_forward(r.context, &in, 1, NULL); /* perhaps one that was left over */
    if (status == PI_ERR_CANCELLED) status = pi_forward(r.context, &in, 1, NULL);
    assert_int_equal(status, PI_OK);
    float want[20 * N_VOCAB];
    memcpy(want, pi_logits(r.context, 0), N_VOCAB * sizeof(float));
    float all[20 * N_VOCAB];
    run_tokens(&r, ids, 20, 4, all);
    assert_memory_equal(want, all + 19 * N_VOCAB, N_VOCAB * sizeof(float));
    pi_session_destroy(s);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_model),
        cmocka_unit_test(test_cancelled_often),
    };
    return cmocka_run_group_tests_name("api_threads", tests, NULL, NULL);
}
