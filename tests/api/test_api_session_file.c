/* test_api_session_file.c: a saved and loaded session continues unchanged; files that are
 * truncated, damaged, forged or of another kind are refused without effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "mem.h"
#include "run_model.h"
#include "session_file.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_session_file.gguf"
#define OTHER_PATH TEST_BINARY_DIR "/test_api_session_file_other.gguf"
#define WIDE_PATH  TEST_BINARY_DIR "/test_api_session_file_wide.gguf"
#define SAVED      TEST_BINARY_DIR "/test_api_session_file.session"
#define HOSTILE    TEST_BINARY_DIR "/test_api_session_file.hostile"

enum { N_CTX = 32, N = 12, MORE = 6, N_VOCAB = 40 };

static pi_error err;
static int32_t ids[N + MORE];

static run_model open_with(const char *path, pi_cache_type k, pi_cache_type v, int threads) {
    pi_context_options o = run_exact_options();
    o.cache_k = k;
    o.cache_v = v;
    o.n_threads = threads;
    return run_open(path, &o);
}

static int write_models(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_head_kv[1] = 4; /* layers of different widths */
    tiny_write(&t, MODEL_PATH);
    t.seed++; /* the same shapes, other weights */
    tiny_write(&t, OTHER_PATH);
    run_random_tokens(1, N_VOCAB, ids, N + MORE);
    return 0;
}

static void save(const run_model *r, int n, const char *path) {
    float logits[N * N_VOCAB];
    pi_session *s = run_session(r, N_CTX);
    run_feed(r, s, ids, N, 0, logits);
    memset(&err, 0, sizeof err);
    if (pi_session_save(s, path, ids, n, &err) != PI_OK) fail_msg("%s", err.message);
    pi_session_destroy(s);
}

static void test_goes_on_as_before(void **state) {
    (void)state;
    static const pi_cache_type types[][2] = {{PI_CACHE_F32, PI_CACHE_F32},
                                             {PI_CACHE_F16, PI_CACHE_F32},
                                             {PI_CACHE_F16, PI_CACHE_F16},
                                             {PI_CACHE_BF16, PI_CACHE_Q8_0},
                                             {PI_CACHE_Q4_0, PI_CACHE_Q5_1}};
    tiny_model t = tiny_default();
    t.head_dim = 32; /* a block */
    tiny_write(&t, WIDE_PATH);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        run_model r = open_with(WIDE_PATH, types[i][0], types[i][1], 1);
        float want[(N + MORE) * N_VOCAB], got[MORE * N_VOCAB];
        run_tokens(&r, ids, N + MORE, 0, want);
        save(&r, N, SAVED);
        run_model again = open_with(WIDE_PATH, types[i][0], types[i][1], 2);
        pi_session *s = run_session(&again, N + MORE); /* another size, other threads */
        float other[N_VOCAB];
        run_feed(&again, s, ids + 3, 1, 0, other); /* replaces the contents */
        int32_t tokens[N_CTX], n = -1;
        assert_int_equal(pi_session_load(s, SAVED, tokens, N_CTX, &n, &err), PI_OK);
        assert_int_equal(n, N);
        assert_int_equal(pi_session_length(s), N);
        assert_memory_equal(tokens, ids, N * sizeof *ids);
        run_feed(&again, s, ids + N, MORE, 0, got);
        assert_true(run_nmse(got, want + N * N_VOCAB, MORE * N_VOCAB) < 1e-10);
        pi_session_destroy(s);
        run_close(&again);
        run_close(&r);
    }
}

static void test_only_a_beginning(void **state) {
    (void)state;
    run_model r = open_with(MODEL_PATH, PI_CACHE_F32, PI_CACHE_F32, 1);
    float want[N * N_VOCAB], got[N * N_VOCAB];
    run_tokens(&r, ids, N, 0, want);
    save(&r, 7, SAVED); /* fewer tokens than were fed */
    int32_t tokens[N_CTX], n;
    pi_session *s = run_session(&r, N_CTX), *small = run_session(&r, 5);
    assert_int_equal(pi_session_load(s, SAVED, tokens, N_CTX, &n, &err), PI_OK);
    assert_int_equal(n, 7);
    run_feed(&r, s, ids + 7, N - 7, 0, got);
    assert_true(run_nmse(got, want + 7 * N_VOCAB, (N - 7) * N_VOCAB) < 1e-10);
    /* A session that is rewound to a prefix continues from there. */
    assert_int_equal(pi_session_load(s, SAVED, tokens, N_CTX, &n, &err), PI_OK);
    assert_int_equal(pi_session_rewind(s, 2, &err), PI_OK);
    run_feed(&r, s, ids + 2, N - 2, 0, got);
    assert_true(run_nmse(got, want + 2 * N_VOCAB, (N - 2) * N_VOCAB) < 1e-10);
    /* A small session, or a small array, receives as many tokens as fit. */
    assert_int_equal(pi_session_load(small, SAVED, tokens, N_CTX, &n, &err), PI_OK);
    assert_int_equal(n, 5);
    assert_int_equal(pi_session_load(s, SAVED, tokens, 3, &n, &err), PI_OK);
    assert_int_equal(n, 3);
    run_feed(&r, s, ids + 3, N - 3, 0, got);
    assert_true(run_nmse(got, want + 3 * N_VOCAB, (N - 3) * N_VOCAB) < 1e-10);
    /* Tokens that were not fed cannot be saved. */
    assert_int_equal(pi_session_save(s, SAVED, ids, N + 1, &err), PI_ERR_RANGE);
    run_check_message(&err, PI_ERR_RANGE);
    assert_int_equal(pi_session_save(s, SAVED, ids, 0, &err), PI_ERR_RANGE);
    assert_int_equal(pi_session_save(s, "/nowhere/at/all", ids, 3, &err), PI_ERR_IO);
    run_check_message(&err, PI_ERR_IO);
    pi_session_destroy(s);
    pi_session_destroy(small);
    run_close(&r);
}

/* ---- hostile files --------------------------------------------------------------------------- */

/* Checks that loading is refused with this status and does not change the session. */
static void refuse(const run_model *r, const char *path, pi_status want) {
    float all[4 * N_VOCAB], after[2 * N_VOCAB];
    int32_t tokens[N_CTX], n = 77;
    pi_session *s = run_session(r, N_CTX);
    run_feed(r, s, ids, 2, 0, all);
    memset(&err, 0, sizeof err);
    assert_int_equal(pi_session_load(s, path, tokens, N_CTX, &n, &err), want);
    run_check_message(&err, want);
    assert_int_equal(n, 0);
    assert_int_equal(pi_session_length(s), 2);
    run_tokens(r, ids, 4, 0, all);
    run_feed(r, s, ids + 2, 2, 0, after);
    assert_true(run_nmse(after, all + 2 * N_VOCAB, 2 * N_VOCAB) < 1e-10);
    pi_session_destroy(s);
}

static void write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_other_models_and_types(void **state) {
    (void)state;
    run_model r = open_with(MODEL_PATH, PI_CACHE_F16, PI_CACHE_F16, 1);
    save(&r, N, SAVED);
    run_model other = open_with(OTHER_PATH, PI_CACHE_F16, PI_CACHE_F16, 1);
    refuse(&other, SAVED, PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "another model"));
    run_model wide = open_with(MODEL_PATH, PI_CACHE_F16, PI_CACHE_F32, 1);
    refuse(&wide, SAVED, PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cache types"));
    refuse(&r, TEST_BINARY_DIR "/no_such.session", PI_ERR_NOT_FOUND);
    refuse(&r, MODEL_PATH, PI_ERR_FORMAT);
    refuse(&r, TEST_BINARY_DIR, PI_ERR_IO);
    run_close(&wide);
    run_close(&other);
    run_close(&r);
}

static void test_damaged_files(void **state) {
    (void)state;
    run_model r = open_with(MODEL_PATH, PI_CACHE_F16, PI_CACHE_F16, 1);
    save(&r, N, SAVED);
    char *data;
    size_t n;
    assert_int_equal(file_read(SAVED, 1 << 20, &data, &n, &err), PI_OK);
    /* Truncated at any length, or longer. */
    for (size_t length = 0; length < n; length += length < 80 ? 1 : 97) {
        write_file(HOSTILE, data, length);
        refuse(&r, HOSTILE, PI_ERR_FORMAT);
    }
    write_file(HOSTILE, data, n + 1); /* the NUL that file_read adds */
    refuse(&r, HOSTILE, PI_ERR_FORMAT);
    /* Any bit changed. */
    for (size_t i = 0; i < n; i += i < SESSION_HEADER_BYTES + 8 ? 1 : 211) {
        data[i] ^= (char)(1 << (i % 8));
        write_file(HOSTILE, data, n);
        bool version = i >= 8 && i < 12;
        refuse(&r, HOSTILE, version ? PI_ERR_UNSUPPORTED : PI_ERR_FORMAT);
        data[i] ^= (char)(1 << (i % 8));
    }
    mem_free(data);
    run_close(&r);
}

/* Wrong contents with right hashes. */
static void test_forged_files(void **state) {
    (void)state;
    enum { TOKEN_BYTES = 12 };
    const session_shape shape = {.model = 5,
                                 .settings = 6,
                                 .type_k = 1,
                                 .type_v = 1,
                                 .token_bytes = TOKEN_BYTES,
                                 .n_vocab = 10};
    uint8_t file[SESSION_HEADER_BYTES + 2 * (4 + TOKEN_BYTES)] = {0};
    uint8_t *payload = file + SESSION_HEADER_BYTES;
    const size_t n_payload = sizeof file - SESSION_HEADER_BYTES;
    session_view view;
    static const int32_t bad_ids[] = {10, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 5; i++) {
        int32_t id = i < 4 ? bad_ids[i] : 9;
        memcpy(payload + 4, &id, 4);
        session_hash h = {0};
        session_hash_add(&h, payload, n_payload);
        session_header_write(file, &shape, 2, session_hash_end(&h));
        pi_status want = i < 4 ? PI_ERR_FORMAT : PI_OK;
        assert_int_equal(session_parse(file, sizeof file, "forged", &shape, &view, &err), want);
    }
    assert_int_equal(view.n_tokens, 2);
    assert_ptr_equal(view.cache, payload + 8);
    session_hash h = {0};
    session_hash_add(&h, payload, n_payload);
    static const int32_t counts[] = {0, 1, 3, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        session_header_write(file, &shape, counts[i], session_hash_end(&h));
        assert_int_equal(session_parse(file, sizeof file, "forged", &shape, &view, &err),
                         PI_ERR_FORMAT);
    }
    /* Sizes that overflow. */
    session_shape huge = shape;
    huge.token_bytes = UINT64_MAX - 3;
    session_header_write(file, &huge, 2, session_hash_end(&h));
    assert_int_equal(session_parse(file, sizeof file, "forged", &huge, &view, &err), PI_ERR_FORMAT);
    huge.token_bytes = UINT64_MAX / 2;
    session_header_write(file, &huge, INT32_MAX, session_hash_end(&h));
    assert_int_equal(session_parse(file, sizeof file, "forged", &huge, &view, &err), PI_ERR_FORMAT);
}

static void test_no_memory(void **state) {
    (void)state;
    run_model r = open_with(MODEL_PATH, PI_CACHE_F16, PI_CACHE_F16, 1);
    save(&r, N, SAVED);
    pi_session *s = run_session(&r, N_CTX);
    int32_t tokens[N_CTX], n;
    assert_int_equal(pi_session_load(s, SAVED, tokens, N_CTX, &n, &err), PI_OK);
    int64_t before = mem_count();
    assert_int_equal(pi_session_save(s, HOSTILE, tokens, N, &err), PI_OK);
    int64_t needed = mem_count() - before;
    for (int64_t i = 1; i <= needed; i++) {
        unlink(HOSTILE);
        mem_fail_at(i);
        pi_status status = pi_session_save(s, HOSTILE, tokens, N, &err);
        mem_fail_at(0);
        if (status == PI_OK) continue;
        assert_int_equal(status, PI_ERR_NOMEM);
        assert_false(file_exists(HOSTILE));
    }
    pi_session_destroy(s);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_as_before),      cmocka_unit_test(test_only_a_beginning),
        cmocka_unit_test(test_other_models_and_types), cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_forged_files),           cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, write_models, NULL);
}
