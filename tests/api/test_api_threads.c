/* test_api_threads.c: a model shared by threads that have separate contexts and tokenize at the
 * same time: every thread gets the answers of a single thread, with ordinary attention, compressed
 * and sparse attention, experts and recurrent layers. The test is mainly for the thread
 * sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "recurrent_model.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_threads.gguf"

enum { N_THREADS = 4, ROUNDS = 5, N_VOCAB = 300, N_IDS = 24, N_DECODED = 3 };

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
    in.n_tokens = 1;
    for (int i = 0; i < N_DECODED && ok; i++) ok = pi_forward(c, &in, 1, NULL) == PI_OK;
    pi_model_info info;
    pi_model_get_info(r->model, &info);
    if (ok) memcpy(r->logits, pi_logits(c, 0), (size_t)info.n_vocab * sizeof(float));
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

/* The model at MODEL_PATH, read by one thread and then by several at once. */
static void share(const char *what) {
    pi_model *m;
    pi_error err;
    if (pi_model_open(MODEL_PATH, NULL, &m, &err) != PI_OK) fail_msg("%s: %s", what, err.message);
    reader alone = {.model = m}, readers[N_THREADS];
    pthread_t threads[N_THREADS];
    read_much(&alone);
    assert_false(alone.failed);
    for (int i = 0; i < N_THREADS; i++) {
        readers[i] = (reader){.model = m};
        assert_int_equal(pthread_create(&threads[i], NULL, read_much, &readers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].failed);
        if (memcmp(readers[i].logits, alone.logits, sizeof alone.logits) != 0)
            fail_msg("%s: another answer in thread %d", what, i);
    }
    pi_model_close(m);
}

static tiny_model shared_model(void) {
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    return t;
}

static void test_attention(void **state) {
    (void)state;
    tiny_model plain = shared_model(), latent = plain, blocks = plain;
    latent.arch = "deepseek2";
    latent.n_embd = 64;
    latent.head_dim = latent.n_latent = 24;
    latent.n_rot = 8;
    latent.n_latent_q = 32;
    latent.v_dim = 16;
    tiny_set_heads(&latent, 4, 1);
    latent.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1};
    blocks.arch = "minimax-m3";
    blocks.n_embd = 64;
    blocks.head_dim = 32;
    blocks.n_rot = 16;
    tiny_set_heads(&blocks, 6, 2);
    blocks.experts = latent.experts;
    blocks.index = (tiny_index){.dim = 64, .size = 2, .top = 2, .local = 1};
    tiny_write(&latent, MODEL_PATH);
    share("compressed attention");
    tiny_write(&blocks, MODEL_PATH);
    share("sparse attention");
    tiny_write(&plain, MODEL_PATH);
    share("attention");
}

static void test_recurrent(void **state) {
    (void)state;
    for (int i = 0; i < RECURRENT_ARCHS; i++) {
        recurrent_write(recurrent_archs[i], NULL, MODEL_PATH);
        share(recurrent_archs[i]);
    }
}

/* Cancels from another thread at random moments, repeatedly: every call ends, cancelled or not, and
 * its session can continue. */
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
    tiny_model t = shared_model();
    tiny_write(&t, MODEL_PATH);
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
    pi_status status = pi_forward(r.context, &in, 1, NULL); /* may be cancelled late */
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
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_cancelled_often),
    };
    return cmocka_run_group_tests_name("api_threads", tests, NULL, NULL);
}
