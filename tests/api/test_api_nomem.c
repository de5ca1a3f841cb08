/* test_api_nomem.c: each allocation of a whole program fails in turn. The call that needed it must
 * return PI_ERR_NOMEM with a message and have no other effect, and all earlier objects can be freed
 * (ASan finds leaks). pi_forward and sampling allocate nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "mem.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_nomem.gguf"

typedef struct life {
    pi_model *model;
    pi_context *context;
    pi_session *session;
    pi_sampler *sampler;
} life;

static pi_status create(life *l, const pi_model_options *mo, pi_error *err) {
    pi_context_options co = run_exact_options();
    pi_sampler_options so = pi_sampler_default_options();
    pi_status status = pi_model_open(MODEL_PATH, mo, &l->model, err);
    if (status != PI_OK || mo->vocab_only) return status;
    co.n_threads = 2;
    co.n_batch = 8;
    so.repeat_penalty = 1.1f;
    so.seed = 1;
    status = pi_context_create(l->model, &co, &l->context, err);
    if (status == PI_OK) status = pi_session_create(l->context, 16, &l->session, err);
    if (status == PI_OK) status = pi_sampler_create(l->model, &so, &l->sampler, err);
    return status;
}

static pi_status use(life *l, pi_error *err) {
    int32_t ids[32];
    size_t n, bytes;
    char text[64];
    pi_status status = pi_tokenize(l->model, "a text", 6, PI_TOKENIZE_BOS, ids, 32, &n, err);
    if (status == PI_OK) status = pi_detokenize(l->model, ids, n, true, text, 64, &bytes, err);
    if (status != PI_OK || !l->session) return status;
    int64_t before = mem_count();
    pi_input in = {
        .session = l->session, .tokens = ids, .n_tokens = (int32_t)n, .logits = PI_LOGITS_LAST};
    status = pi_forward(l->context, &in, 1, err);
    assert_int_equal(status, PI_OK);
    int32_t next = pi_sampler_sample(l->sampler, pi_logits(l->context, 0));
    assert_in_range(next, 0, 299);
    assert_int_equal(mem_count(), before);
    const pi_stop_text stop = {"no such text", 12};
    pi_generate_options generate = pi_generate_default_options();
    generate.prompt = "a";
    generate.max_tokens = 3;
    generate.stops = &stop;
    generate.n_stops = 1;
    generate.shift = true;
    status = pi_session_rewind(l->session, 0, err);
    return status == PI_OK ? pi_generate(l->context, l->session, &generate, NULL, err) : status;
}

static void destroy(life *l) {
    pi_sampler_destroy(l->sampler);
    pi_session_destroy(l->session);
    pi_context_destroy(l->context);
    pi_model_close(l->model);
}

static void torture(const pi_model_options *mo) {
    failing f = failing_each(1);
    while (failing_next(&f)) {
        life l = {0};
        pi_error err = {0};
        pi_status status = create(&l, mo, &err);
        if (status == PI_OK) status = use(&l, &err);
        bool hit = failing_hit(&f, status, &err);
        destroy(&l);
        if (!hit) break;
        run_check_message(&err, PI_ERR_NOMEM);
    }
    assert_true(f.n > 10);
}

static void test_mapped(void **state) {
    (void)state;
    pi_model_options o = pi_model_default_options();
    torture(&o);
}

static void test_copied(void **state) {
    (void)state;
    pi_model_options o = pi_model_default_options();
    o.no_mmap = true;
    torture(&o);
}

static void test_vocabulary(void **state) {
    (void)state;
    pi_model_options o = pi_model_default_options();
    o.vocab_only = true;
    torture(&o);
}

/* Small vectors of other types are converted to memory of the model. */
static int setup(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.vector_type = "f16";
    t.n_vocab = 300;
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_copied),
        cmocka_unit_test(test_vocabulary),
    };
    return cmocka_run_group_tests_name("api_nomem", tests, setup, NULL);
}
