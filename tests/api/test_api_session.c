/* test_api_session.c: sessions that are copied, edited and kept in memory.
 *
 * In a model of one layer keys and values depend only on a token and its position, so a session
 * from which tokens were removed must equal one that was never fed them. In deeper layers values
 * move unchanged, and keys are compared with the RoPE formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if !defined(_WIN32)
#include <sys/wait.h>
#endif

#include <cmocka.h>

#include "file.h"
#include "mem.h"
#include "run_model.h"
#include "session_file.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_session.gguf"
#define SAVED      TEST_BINARY_DIR "/test_api_session.saved"

enum { N_CTX = 40, N = 24, N_VOCAB = 40, FIRST = 5, END = 12, LEFT = N - (END - FIRST), MORE = 4 };

#ifdef TEST_HAS_SIM
enum { HAS_SIM = 1 };
#else
enum { HAS_SIM = 0 };
#endif

static pi_error err;
static int32_t ids[N + MORE], left[LEFT + MORE]; /* without FIRST .. END - 1 */

static int make_tokens(void **state) {
    (void)state;
    run_random_tokens(7, N_VOCAB, ids, N + MORE);
    for (int i = 0, n = 0; i < N + MORE; i++)
        if (i < FIRST || i >= END) left[n++] = ids[i];
    return 0;
}

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* Feeds the last MORE tokens into `s` and stores their logits. */
static void feed_more(const run_model *r, pi_session *s, float *logits) {
    run_feed(r, s, ids + N, MORE, 0, logits);
}

static pi_session *fed(const run_model *r, const int32_t *tokens, int n) {
    float logits[N * N_VOCAB];
    pi_session *s = run_session(r, N_CTX);
    run_feed(r, s, tokens, n, 0, logits);
    return s;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* Removes tokens from the middle, the beginning and the end. */
static void check_remove(const run_model *r, double bound) {
    float want[MORE * N_VOCAB], got[MORE * N_VOCAB];
    pi_session *s = fed(r, ids, N), *plain = fed(r, left, LEFT);
    ok(pi_session_remove(s, FIRST, END, &err));
    assert_int_equal(pi_session_length(s), LEFT);
    feed_more(r, plain, want);
    feed_more(r, s, got);
    assert_true(run_nmse(got, want, MORE * N_VOCAB) < bound);
    /* Removes from tokens that have moved already. */
    ok(pi_session_rewind(s, LEFT, &err));
    ok(pi_session_remove(s, 0, FIRST, &err));
    pi_session *tail = fed(r, left + FIRST, LEFT - FIRST);
    feed_more(r, tail, want);
    feed_more(r, s, got);
    assert_true(run_nmse(got, want, MORE * N_VOCAB) < bound);
    ok(pi_session_remove(s, 3, -1, &err));
    assert_int_equal(pi_session_length(s), 3);
    ok(pi_session_remove(s, 1, 1, &err));
    assert_int_equal(pi_session_length(s), 3);
    pi_session_destroy(tail);
    pi_session_destroy(plain);
    pi_session_destroy(s);
}

static pi_context_options options_of(pi_cache_type k, pi_cache_type v, pi_device_choice device) {
    pi_context_options o = run_exact_options();
    o.cache_k = k;
    o.cache_v = v;
    o.n_threads = 2;
    o.device = device;
    o.n_ctx = 4 * N_CTX;
    return o;
}

static tiny_model one_layer(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.n_layer = 1;
    t.n_embd = 64;
    t.head_dim = 32; /* a block of q8_0 */
    tiny_set_heads(&t, 2, 1);
    return t;
}

static void test_remove(void **state) {
    (void)state;
    static const struct {
        pi_cache_type k, v;
        double bound; /* squared error of rounding keys once more */
    } caches[] = {{PI_CACHE_F32, PI_CACHE_F32, 1e-10},  {PI_CACHE_F16, PI_CACHE_F32, 1e-5},
                  {PI_CACHE_Q8_0, PI_CACHE_Q8_0, 3e-3}, {PI_CACHE_BF16, PI_CACHE_BF16, 1e-3},
                  {PI_CACHE_Q5_1, PI_CACHE_Q4_0, 5e-2}, {PI_CACHE_IQ4_NL, PI_CACHE_Q5_0, 0.1}};
    static const char *const archs[] = {"llama", "qwen3", "falcon"};
    for (size_t a = 0; a < 3; a++) {
        tiny_model t = one_layer(archs[a]);
        if (a == 0) {
            t.n_rot = 16; /* of 32 */
            t.scaling = TINY_SCALING_YARN;
            t.factor = 4;
            t.original_context = 16;
        }
        tiny_write(&t, MODEL_PATH);
        for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
            pi_context_options o = options_of(caches[i].k, caches[i].v, PI_DEVICE_CPU);
            run_model r = run_open(MODEL_PATH, &o);
            check_remove(&r, caches[i].bound);
            run_close(&r);
        }
    }
}

/* The cache in the format of saved sessions. */
static uint8_t *state_of(const pi_session *s, const int32_t *tokens, int n, size_t *n_bytes) {
    assert_int_equal(pi_session_get_state(s, NULL, n, NULL, 0, n_bytes, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    uint8_t *data = mem_calloc(*n_bytes + 1, 1);
    size_t again = 0;
    assert_int_equal(pi_session_get_state(s, tokens, n, data, *n_bytes - 1, &again, &err),
                     PI_ERR_LIMIT);
    ok(pi_session_get_state(s, tokens, n, data, *n_bytes, &again, &err));
    assert_int_equal(again, *n_bytes);
    assert_int_equal(data[*n_bytes], 0);
    return data;
}

static void test_remove_in_deep_layers(void **state) {
    (void)state;
    enum { HEADS = 2, DIM = 8 };
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = fed(&r, ids, N);
    size_t n_before, n_after;
    uint8_t *before = state_of(s, ids, N, &n_before);
    ok(pi_session_remove(s, FIRST, END, &err));
    uint8_t *after = state_of(s, left, LEFT, &n_after);
    const float *was = (const float *)(before + SESSION_HEADER_BYTES + 4 * N);
    const float *is = (const float *)(after + SESSION_HEADER_BYTES + 4 * LEFT);
    for (int block = 0; block < 2 * HEADS * 2; block++, was += N * DIM, is += LEFT * DIM) {
        bool keys = block % 2 == 0;
        for (int pos = 0; pos < LEFT; pos++) {
            int gap = pos < FIRST ? 0 : END - FIRST;
            const float *x = was + (pos + gap) * DIM, *y = is + pos * DIM;
            for (int i = 0; i < DIM / 2; i++) {
                double angle = keys ? -gap * pow((double)t.freq_base, -2.0 * i / DIM) : 0;
                double a = (double)x[2 * i], b = (double)x[2 * i + 1];
                assert_true(fabs(a * cos(angle) - b * sin(angle) - (double)y[2 * i]) < 1e-5);
                assert_true(fabs(a * sin(angle) + b * cos(angle) - (double)y[2 * i + 1]) < 1e-5);
            }
        }
    }
    mem_free(after);
    mem_free(before);
    pi_session_destroy(s);
    run_close(&r);
}

static void test_remove_refused(void **state) {
    (void)state;
    static const int32_t bad[][2] = {{-1, 3},     {4, 3},         {0, N + 1},    {N + 1, N + 1},
                                     {N + 1, -1}, {INT32_MIN, 0}, {0, INT32_MAX}};
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = fed(&r, ids, N);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi_session_remove(s, bad[i][0], bad[i][1], &err), PI_ERR_RANGE);
        run_check_message(&err, PI_ERR_RANGE);
        assert_int_equal(pi_session_length(s), N);
    }
    float want[MORE * N_VOCAB], got[MORE * N_VOCAB];
    mem_fail_at(1);
    assert_int_equal(pi_session_remove(s, FIRST, END, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
    pi_session *same = fed(&r, ids, N);
    feed_more(&r, same, want);
    feed_more(&r, s, got);
    assert_memory_equal(got, want, sizeof want); /* no token has moved */
    pi_session_destroy(same);
    pi_session_destroy(s);
    run_close(&r);

    t = tiny_default(); /* learned positions: tokens can only be removed from the end */
    t.arch = "opt";
    t.n_pos = N_CTX;
    t.qkv_bias = t.out_bias = t.ffn_bias = true;
    tiny_write(&t, MODEL_PATH);
    r = run_open(MODEL_PATH, &o);
    s = fed(&r, ids, N);
    assert_int_equal(pi_session_remove(s, FIRST, END, &err), PI_ERR_UNSUPPORTED);
    run_check_message(&err, PI_ERR_UNSUPPORTED);
    ok(pi_session_remove(s, FIRST, -1, &err));
    assert_int_equal(pi_session_length(s), FIRST);
    pi_session_destroy(s);
    run_close(&r);
}

/* ---- copying --------------------------------------------------------------------------------- */

static void check_copy(const run_model *r) {
    float want[MORE * N_VOCAB], got[MORE * N_VOCAB];
    pi_session *s = fed(r, ids, N), *copy = run_session(r, N + MORE), *small = run_session(r, 4);
    ok(pi_session_copy(copy, s, N, &err));
    assert_int_equal(pi_session_length(copy), N);
    feed_more(r, s, want);
    feed_more(r, copy, got);
    assert_memory_equal(got, want, sizeof want);
    /* Both continue independently; a prefix replaces the earlier contents. */
    ok(pi_session_copy(copy, s, 3, &err));
    pi_session *plain = fed(r, ids, 3);
    feed_more(r, plain, want);
    feed_more(r, copy, got);
    assert_true(run_nmse(got, want, MORE * N_VOCAB) < 1e-9);
    assert_int_equal(pi_session_length(s), N + MORE);
    ok(pi_session_copy(s, s, 3, &err)); /* to itself: a rewind */
    assert_int_equal(pi_session_length(s), 3);
    ok(pi_session_copy(small, s, 0, &err));
    assert_int_equal(pi_session_length(small), 0);
    assert_int_equal(pi_session_copy(small, copy, 5, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    static const int32_t lengths[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pi_session_copy(copy, s, lengths[i], &err), PI_ERR_RANGE);
        run_check_message(&err, PI_ERR_RANGE);
    }
    assert_int_equal(pi_session_length(copy), 3 + MORE);
    pi_session_destroy(plain);
    pi_session_destroy(small);
    pi_session_destroy(copy);
    pi_session_destroy(s);
}

static void test_copy(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_head_kv[1] = 4; /* layers of different widths */
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o), other = run_open(MODEL_PATH, &o);
    check_copy(&r);
    pi_session *s = run_session(&r, N_CTX), *foreign = run_session(&other, N_CTX);
    assert_int_equal(pi_session_copy(s, foreign, 0, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    pi_session_destroy(s);
    pi_session_destroy(foreign);
    run_close(&other);
    run_close(&r);
}

/* ---- in memory ------------------------------------------------------------------------------- */

static void test_state(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = fed(&r, ids, N), *again = run_session(&r, N_CTX);
    size_t n, n_file;
    uint8_t *data = state_of(s, ids, N, &n);
    char *file;
    ok(pi_session_save(s, SAVED, ids, N, &err));
    ok(file_read(SAVED, 1 << 20, &file, &n_file, &err));
    assert_int_equal(n, n_file);
    assert_memory_equal(data, file, n);
    float want[MORE * N_VOCAB], got[MORE * N_VOCAB];
    int32_t tokens[N_CTX], n_tokens = -1;
    ok(pi_session_set_state(again, data, n, tokens, N_CTX, &n_tokens, &err));
    assert_int_equal(n_tokens, N);
    assert_memory_equal(tokens, ids, N * sizeof *ids);
    feed_more(&r, s, want);
    feed_more(&r, again, got);
    assert_memory_equal(got, want, sizeof want);
    /* Damage is detected, and the session is unchanged. */
    data[n / 2] ^= 1;
    assert_int_equal(pi_session_set_state(again, data, n, tokens, N_CTX, &n_tokens, &err),
                     PI_ERR_FORMAT);
    run_check_message(&err, PI_ERR_FORMAT);
    assert_int_equal(n_tokens, 0);
    assert_int_equal(pi_session_length(again), N + MORE);
    assert_int_equal(pi_session_set_state(again, data, 0, tokens, N_CTX, &n_tokens, &err),
                     PI_ERR_FORMAT);
    /* Sessions that cannot be loaded are not saved. */
    static const int32_t bad_ids[] = {-1, N_VOCAB, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        int32_t bad[] = {1, 2, bad_ids[i]};
        unlink(SAVED);
        assert_int_equal(pi_session_save(s, SAVED, bad, 3, &err), PI_ERR_RANGE);
        run_check_message(&err, PI_ERR_RANGE);
        assert_false(file_exists(SAVED));
        assert_int_equal(pi_session_get_state(s, bad, 3, data, n, &n_file, &err), PI_ERR_RANGE);
        ok(pi_session_save(s, SAVED, bad, 2, &err));
    }
    assert_int_equal(pi_session_get_state(s, ids, 0, NULL, 0, &n, &err), PI_ERR_RANGE);
    assert_int_equal(pi_session_get_state(s, ids, N + MORE + 1, NULL, 0, &n, &err), PI_ERR_RANGE);
    assert_int_equal(n, 0);
    mem_free(file);
    mem_free(data);
    pi_session_destroy(again);
    pi_session_destroy(s);
    run_close(&r);
}

/* ---- GPU ------------------------------------------------------------------------------------- */

/* All layers on the GPU, and one of two layers. */
static void test_gpu(void **state) {
    (void)state;
    if (!HAS_SIM) skip();
    pi_context_options o = options_of(PI_CACHE_F16, PI_CACHE_F16, PI_DEVICE_SIM);
    for (int layers = 1; layers <= 2; layers++) {
        tiny_model t = one_layer("llama");
        t.n_layer = layers;
        tiny_write(&t, MODEL_PATH);
        o.gpu_layers = 1;
        run_model r = run_open(MODEL_PATH, &o);
        pi_placement p;
        pi_context_get_placement(r.context, &p);
        assert_int_equal(p.gpu_layers, 1);
        check_copy(&r);
        if (layers == 1) check_remove(&r, 1e-5);
        run_close(&r);
    }
}

/* ---- fork ------------------------------------------------------------------------------------ */

#if !defined(_WIN32) /* which has no fork */
/* A child has the memory of the context, but not its threads. */
static int in_child(const run_model *r, pi_session *s) {
    pi_input in = {.session = s, .tokens = ids, .n_tokens = 1, .logits = PI_LOGITS_LAST};
    pi_session *none, *other = s;
    size_t n;
    int32_t tokens[N_CTX], n_tokens;
    uint8_t byte;
    if (pi_forward(r->context, &in, 1, &err) != PI_ERR_ARG || !strstr(err.message, "fork"))
        return 1;
    if (pi_session_create(r->context, 4, &none, &err) != PI_ERR_ARG) return 2;
    if (pi_session_remove(s, 0, 1, &err) != PI_ERR_ARG) return 3;
    if (pi_session_copy(other, s, 1, &err) != PI_ERR_ARG) return 4;
    if (pi_session_save(s, SAVED, ids, 1, &err) != PI_ERR_ARG) return 5;
    if (pi_session_load(s, SAVED, tokens, 4, &n_tokens, &err) != PI_ERR_ARG) return 6;
    if (pi_session_get_state(s, ids, 1, &byte, 1, &n, &err) != PI_ERR_ARG) return 7;
    if (pi_session_set_state(s, &byte, 1, tokens, 4, &n_tokens, &err) != PI_ERR_ARG) return 8;
    if (pi_session_length(s) != N) return 9;
    pi_session_destroy(s);
    pi_context_destroy(r->context);
    pi_context *own; /* the model still works */
    pi_context_options o = run_exact_options();
    if (pi_context_create(r->model, &o, &own, &err) != PI_OK) return 10;
    if (pi_session_create(own, 4, &s, &err) != PI_OK) return 11;
    in.session = s;
    if (pi_forward(own, &in, 1, &err) != PI_OK) return 12;
    pi_session_destroy(s);
    pi_context_destroy(own);
    return 0;
}

static void check_fork(pi_device_choice device) {
    pi_context_options o = options_of(PI_CACHE_F16, PI_CACHE_F16, device);
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = fed(&r, ids, N);
    ok(pi_session_save(s, SAVED, ids, 1, &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(in_child(&r, s));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    float logits[MORE * N_VOCAB];
    feed_more(&r, s, logits); /* the parent's session still works */
    pi_session_destroy(s);
    run_close(&r);
}

static void test_fork(void **state) {
    (void)state;
    tiny_model t = one_layer("llama");
    tiny_write(&t, MODEL_PATH);
    check_fork(PI_DEVICE_CPU);
    if (HAS_SIM) check_fork(PI_DEVICE_SIM);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_remove_in_deep_layers),
        cmocka_unit_test(test_remove_refused),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_gpu),
#if !defined(_WIN32)
        cmocka_unit_test(test_fork),
#endif
    };
    return cmocka_run_group_tests_name("api_session", tests, make_tokens, NULL);
}
