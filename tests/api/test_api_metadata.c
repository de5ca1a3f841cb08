/* test_api_metadata.c: metadata of a model, models opened from memory, and the progress of
 * loading. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"
#include "gguf_writer.h"
#include "mem.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_metadata.gguf"
#define KEYS_PATH  TEST_BINARY_DIR "/test_api_metadata_keys.gguf"

enum { N_VOCAB = 300, N = 9 };

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static void write_model(void) {
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* A model with a vocabulary and keys of all kinds. */
static void write_keys(void) {
    static const int32_t numbers[] = {1, -2, 3};
    static const gguf_string texts[] = {{"a", 1}, {"say \"b\"\n", 8}};
    gguf_file *from;
    gguf_writer *w;
    write_model();
    ok(gguf_open(MODEL_PATH, NULL, &from, &err));
    ok(gguf_writer_create(KEYS_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(from); i++) gguf_put_value(w, gguf_value_at(from, i));
    gguf_put_string(w, "a.text", "two\nlines, \"quoted\"");
    gguf_put_u32(w, "a.count", 4096);
    gguf_put_i32(w, "a.less", -7);
    gguf_put_u64(w, "a.most", UINT64_MAX);
    gguf_put_f32(w, "a.eps", 1e-5f);
    gguf_put_f32(w, "a.third", 1.0f / 3);
    gguf_put_bool(w, "a.flag", true);
    gguf_put_array(w, "a.numbers", GGUF_I32, numbers, 3);
    gguf_put_array(w, "a.none", GGUF_I32, numbers, 0);
    gguf_put_strings(w, "a.texts", texts, 2);
    gguf_put_u32(w, "tokenizer.ggml.seperator_token_id", 11);
    gguf_put_u32(w, "tokenizer.ggml.fim_pre_token_id", 12);
    gguf_put_u32(w, "tokenizer.ggml.suffix_token_id", 13);
    gguf_put_u32(w, "tokenizer.ggml.mask_token_id", N_VOCAB); /* no such token */
    gguf_put_u32(w, "tokenizer.ggml.eot_token_id", 14);
    ok(gguf_writer_begin_data(w, &err));
    ok(gguf_writer_finish(w, &err));
    gguf_close(from);
}

static pi_model *open_keys(void) {
    pi_model *m;
    pi_model_options o = pi_model_default_options();
    o.vocab_only = true;
    write_keys();
    ok(pi_model_open(KEYS_PATH, &o, &m, &err));
    return m;
}

static void check_value(const pi_model *m, const char *key, const char *want) {
    char text[64];
    size_t n = 99, again;
    ok(pi_model_metadata(m, key, text, sizeof text, &n, &err));
    if (n != strlen(want) || memcmp(text, want, n) != 0)
        fail_msg("%s is %.*s, not %s", key, (int)n, text, want);
    if (n == 0) return;
    assert_int_equal(pi_model_metadata(m, key, NULL, 0, &again, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    assert_int_equal(again, n);
    memset(text, '#', sizeof text);
    assert_int_equal(pi_model_metadata(m, key, text, n - 1, &again, NULL), PI_ERR_LIMIT);
    assert_int_equal(text[n - 1], '#'); /* no bytes beyond the buffer are written */
    ok(pi_model_metadata(m, key, text, n, &again, &err));
    assert_int_equal(text[n], '#');
}

static void test_values(void **state) {
    (void)state;
    pi_model *m = open_keys();
    const char *locale = setlocale(LC_NUMERIC, "de_DE.UTF-8"); /* if the machine has this locale */
    check_value(m, "general.architecture", "llama");
    check_value(m, "a.text", "two\nlines, \"quoted\"");
    check_value(m, "a.count", "4096");
    check_value(m, "a.less", "-7");
    check_value(m, "a.most", "18446744073709551615");
    check_value(m, "a.eps", "1e-05");
    check_value(m, "a.third", "0.33333334");
    check_value(m, "a.flag", "true");
    check_value(m, "a.numbers", "[1, -2, 3]");
    check_value(m, "a.none", "[]");
    check_value(m, "a.texts", "[\"a\", \"say \\\"b\\\"\\u000a\"]");
    if (locale) setlocale(LC_NUMERIC, "C");
    size_t n = 7;
    char text[64];
    assert_int_equal(pi_model_metadata(m, "a.nothing", text, sizeof text, &n, &err),
                     PI_ERR_NOT_FOUND);
    run_check_message(&err, PI_ERR_NOT_FOUND);
    assert_int_equal(n, 0);
    /* Every key is listed, in the order of the file, and has a value. */
    size_t n_keys = pi_model_n_metadata(m), n_value;
    bool seen = false;
    for (size_t i = 0; i < n_keys; i++) {
        memset(text, 0, sizeof text);
        ok(pi_model_metadata_key(m, i, text, sizeof text - 1, &n, &err));
        assert_int_equal(strlen(text), n);
        pi_status status = pi_model_metadata(m, text, NULL, 0, &n_value, NULL);
        assert_true(status == PI_ERR_LIMIT ? n_value > 0 : status == PI_OK && n_value == 0);
        seen = seen || strcmp(text, "a.texts") == 0;
    }
    assert_true(seen && n_keys > 20);
    assert_int_equal(pi_model_metadata_key(m, n_keys, text, sizeof text, &n, &err), PI_ERR_RANGE);
    run_check_message(&err, PI_ERR_RANGE);
    assert_int_equal(pi_model_metadata_key(m, SIZE_MAX, text, sizeof text, &n, &err), PI_ERR_RANGE);
    assert_int_equal(pi_model_metadata_key(m, 0, text, 1, &n, &err), PI_ERR_LIMIT);
    pi_model_close(m);
}

static void test_roles(void **state) {
    (void)state;
    pi_model *m = open_keys();
    int32_t want[PI_TOKEN_ROLES];
    for (int i = 0; i < PI_TOKEN_ROLES; i++) want[i] = -1;
    want[PI_TOKEN_BOS] = 1;
    want[PI_TOKEN_EOS] = 2;
    want[PI_TOKEN_EOT] = 14;
    want[PI_TOKEN_UNK] = 0;
    want[PI_TOKEN_SEP] = 11;
    want[PI_TOKEN_NL] = 3 + '\n'; /* token of the byte */
    want[PI_TOKEN_FIM_PRE] = 12;
    want[PI_TOKEN_FIM_SUF] = 13;
    for (int i = 0; i < PI_TOKEN_ROLES; i++)
        assert_int_equal(pi_model_token(m, (pi_token_role)i), want[i]);
    assert_int_equal(pi_model_token(m, (pi_token_role)-1), -1);
    assert_int_equal(pi_model_token(m, PI_TOKEN_ROLES), -1);
    pi_model_close(m);
    tiny_model t = tiny_default(); /* no vocabulary */
    tiny_write(&t, MODEL_PATH);
    ok(pi_model_open(MODEL_PATH, NULL, &m, &err));
    assert_int_equal(pi_model_token(m, PI_TOKEN_BOS), -1);
    pi_model_close(m);
}

/* ---- from memory ----------------------------------------------------------------------------- */

static void logits_of(pi_model *m, float *logits) {
    static const int32_t ids[N] = {1, 260, 261, 30, 31, 270, 280, 3, 4};
    pi_context_options o = run_exact_options();
    run_model r = {.model = m, .n_vocab = N_VOCAB};
    ok(pi_context_create(m, &o, &r.context, &err));
    run_tokens(&r, ids, N, 0, logits);
    pi_context_destroy(r.context);
}

static void test_from_memory(void **state) {
    (void)state;
    static float want[N * N_VOCAB], got[N * N_VOCAB];
    char *file;
    size_t n;
    pi_model *m;
    write_model();
    ok(pi_model_open(MODEL_PATH, NULL, &m, &err));
    logits_of(m, want);
    pi_model_close(m);
    ok(file_read(MODEL_PATH, 1 << 24, &file, &n, &err));
    uint8_t *data = mem_map(n + 1); /* aligned to a page */
    memcpy(data, file, n);
    ok(pi_model_open_memory(data, n, NULL, &m, &err));
    logits_of(m, got);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(pi_model_token(m, PI_TOKEN_BOS), 1);
    pi_model_close(m);
    /* Bytes that are copied need no alignment and may be freed. */
    pi_model_options o = pi_model_default_options();
    memmove(data + 1, data, n);
    assert_int_equal(pi_model_open_memory(data + 1, n, &o, &m, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    assert_null(m);
    o.no_mmap = o.mlock = true;
    ok(pi_model_open_memory(data + 1, n, &o, &m, &err));
    memset(data, 0xee, n + 1);
    logits_of(m, got);
    assert_memory_equal(got, want, sizeof want);
    pi_model_close(m);
    o = pi_model_default_options();
    o.vocab_only = true;
    memcpy(data, file, n);
    ok(pi_model_open_memory(data, n, &o, &m, &err));
    assert_int_equal(pi_model_token(m, PI_TOKEN_EOS), 2);
    pi_model_close(m);
    /* Truncated models and other bytes. */
    for (size_t length = 0; length < n; length += length < 64 ? 1 : n / 7) {
        pi_status status = pi_model_open_memory(data, length, NULL, &m, &err);
        assert_int_equal(status, PI_ERR_FORMAT);
        run_check_message(&err, status);
        assert_null(m);
    }
    mem_unmap(data, n + 1);
    mem_free(file);
}

/* Each allocation fails in turn, also that of the copy. */
static void test_no_memory(void **state) {
    (void)state;
    char *file;
    size_t n;
    pi_model *m;
    pi_model_options o = pi_model_default_options();
    o.no_mmap = true;
    write_model();
    ok(file_read(MODEL_PATH, 1 << 24, &file, &n, &err));
    int64_t before = mem_count();
    ok(pi_model_open_memory(file, n, &o, &m, &err));
    int64_t needed = mem_count() - before;
    pi_model_close(m);
    for (int64_t i = 1; i <= needed; i++) {
        mem_fail_at(i);
        pi_status status = pi_model_open_memory(file, n, &o, &m, &err);
        mem_fail_at(0);
        if (status == PI_OK) fail_msg("allocation %d of %d is not needed", (int)i, (int)needed);
        assert_int_equal(status, PI_ERR_NOMEM);
        assert_null(m);
    }
    mem_free(file);
}

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct watch {
    int n_calls, stop_at; /* 0: never */
    double last;
    bool orderly;
} watch;

static bool look(void *user, const char *stage, double fraction) {
    watch *w = user;
    w->n_calls++;
    w->orderly = w->orderly && stage && *stage && fraction >= w->last && fraction <= 1;
    w->last = fraction;
    return w->n_calls != w->stop_at;
}

/* Copying, locking, mapping: progress is the fraction of the bytes and ends with 1. */
static void test_progress(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_embd = 1024; /* 40 MB: three pieces of a copy */
    t.head_dim = t.n_rot = 256;
    t.n_ff[0] = t.n_ff[1] = 1024;
    tiny_write(&t, MODEL_PATH);
    for (int way = 0; way < 3; way++) {
        watch w = {.orderly = true};
        pi_model *m;
        pi_model_options o = pi_model_default_options();
        o.no_mmap = way == 1;
        o.mlock = way == 2;
        o.progress = look;
        o.progress_user = &w;
        ok(pi_model_open(MODEL_PATH, &o, &m, &err));
        pi_model_close(m);
        assert_true(w.orderly && w.last == 1);
        int n_calls = w.n_calls;
        assert_true(n_calls >= (way == 0 ? 1 : 2));
        for (int stop = 1; stop <= n_calls; stop++) {
            w = (watch){.orderly = true, .stop_at = stop};
            pi_status status = pi_model_open(MODEL_PATH, &o, &m, &err);
            if (w.n_calls < stop) { /* reports depend on time: there were fewer */
                assert_int_equal(status, PI_OK);
                pi_model_close(m);
                continue;
            }
            assert_int_equal(status, PI_ERR_CANCELLED);
            run_check_message(&err, PI_ERR_CANCELLED);
            assert_null(m);
            assert_int_equal(w.n_calls, stop);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_roles),
        cmocka_unit_test(test_from_memory), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests_name("api_metadata", tests, NULL, NULL);
}
