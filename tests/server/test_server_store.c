/* test_server_store.c: the prompt store by itself, compared with sessions that read everything; and
 * conversations that return to a server with one slot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "os_file.h"
#include "prompt_disk.h"
#include "prompt_store.h"
#include "recurrent_model.h"
#include "run_model.h"
#include "server_case.h"

enum { N_CTX = 512, N_TEXT = 300 };

static pi_model *model;
static pi_context *context;
static pi_model_info info;

static int open_context(void **state) {
    (void)state;
    pi_context_options o = pi_context_default_options();
    pi_error err;
    o.device = PI_DEVICE_CPU;
    o.n_threads = 2;
    if (pi_model_open(CASE_MODEL, NULL, &model, &err) != PI_OK ||
        pi_context_create(model, &o, &context, &err) != PI_OK)
        fail_msg("%s", err.message);
    pi_model_get_info(model, &info);
    return 0;
}

static int close_context(void **state) {
    (void)state;
    pi_context_destroy(context);
    pi_model_close(model);
    return 0;
}

static pi_session *new_session(void) {
    pi_session *s = NULL;
    assert_int_equal(pi_session_create(context, N_CTX, &s, NULL), PI_OK);
    return s;
}

static prompt_store *new_store_with(const prompt_store_options *o, const pi_session *session) {
    prompt_store *store = NULL;
    pi_error err;
    if (prompt_store_create(o, session, &store, &err) != PI_OK) fail_msg("%s", err.message);
    return store;
}

static prompt_store *new_store(uint64_t max_bytes, const pi_session *session) {
    return new_store_with(&(prompt_store_options){.max_bytes = max_bytes}, session);
}

/* Feeds tokens [from, to); returns the logits of the last one, valid until the next call. */
static const float *feed(pi_session *s, const int32_t *tokens, int32_t from, int32_t to) {
    pi_input in = {
        .session = s, .tokens = tokens + from, .n_tokens = to - from, .logits = PI_LOGITS_LAST};
    assert_int_equal(pi_forward(context, &in, 1, NULL), PI_OK);
    return pi_logits(context, 0);
}

/* Texts of one family have a common beginning of n_common tokens. */
static void make_text(int32_t *tokens, int text, int32_t n_common) {
    for (int32_t i = 0; i < N_TEXT; i++)
        tokens[i] = 10 + (i * 37 + (i < n_common ? 0 : 1000 * (text + 1) + i * text)) % 4000;
}

/* A restored session continues with the logits of the session that was saved, bit for bit. */
static void test_same_state(void **state) {
    (void)state;
    static const int32_t cuts[] = {1, 63, 64, 65, 128, 200};
    int32_t tokens[N_TEXT];
    make_text(tokens, 0, 0);
    pi_session *s = new_session(), *r = new_session();
    prompt_store *store = new_store(UINT64_MAX, s);
    feed(s, tokens, 0, N_TEXT - 1);
    prompt_store_save(store, s, tokens, N_TEXT - 1, 0);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT - 1);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 1), 0); /* another owner */
    const size_t n = (size_t)info.n_vocab * sizeof(float);
    float *want = mem_alloc(n);
    memcpy(want, feed(s, tokens, N_TEXT - 1, N_TEXT), n);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        /* The session has the first tokens itself, then other ones. */
        assert_int_equal(pi_session_rewind(r, 0, NULL), PI_OK);
        feed(r, tokens, 0, cuts[i]);
        feed(r, tokens, 0, 9);
        int32_t have = prompt_store_restore(store, r, cuts[i], tokens, N_TEXT - 1, 0);
        assert_int_equal(have, N_TEXT - 1);
        assert_int_equal(pi_session_length(r), have);
        if (cuts[i] == 1) assert_memory_equal(feed(r, tokens, have, have + 1), want, n);
        pi_session_rewind(r, have, NULL);
    }
    mem_free(want);
    pi_session_destroy(s);
    pi_session_destroy(r);
    prompt_store_free(store);
}

/* Ten texts over one beginning take the memory of the beginning once. */
static void test_shared_beginning(void **state) {
    (void)state;
    enum { TEXTS = 10, COMMON = 256 };
    int32_t tokens[N_TEXT];
    pi_session *s = new_session();
    prompt_store *store = new_store(UINT64_MAX, s);
    for (int t = 0; t < TEXTS; t++) {
        make_text(tokens, t, COMMON);
        pi_session_rewind(s, t ? COMMON : 0, NULL);
        feed(s, tokens, t ? COMMON : 0, N_TEXT);
        prompt_store_save(store, s, tokens, N_TEXT, 0);
    }
    const prompt_store_stats stats = prompt_store_get_stats(store);
    assert_int_equal(stats.n_blocks, COMMON / PROMPT_BLOCK + TEXTS);
    assert_int_equal(stats.saved, COMMON + TEXTS * (N_TEXT - COMMON));
    assert_in_range(stats.n_bytes, pi_session_range_bytes(s, (int32_t)stats.saved),
                    pi_session_range_bytes(s, (int32_t)stats.saved) + stats.n_blocks * 1024);
    for (int t = 0; t < TEXTS; t++) {
        make_text(tokens, t, COMMON);
        assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT);
    }
    make_text(tokens, TEXTS, COMMON);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), COMMON);
    /* A longer text replaces the shorter last block of the text that it continues. */
    make_text(tokens, 0, COMMON);
    pi_session_rewind(s, 0, NULL);
    feed(s, tokens, 0, N_TEXT);
    feed(s, tokens, 0, 10);
    int32_t longer[N_TEXT + 10];
    memcpy(longer, tokens, sizeof tokens);
    memcpy(longer + N_TEXT, tokens, 10 * sizeof *tokens);
    prompt_store_save(store, s, longer, N_TEXT + 10, 0);
    assert_int_equal(prompt_store_get_stats(store).n_blocks, stats.n_blocks);
    assert_int_equal(prompt_store_find(store, longer, N_TEXT + 10, 0), N_TEXT + 10);
    pi_session_destroy(s);
    prompt_store_free(store);
}

/* A full store evicts the ends of the texts that were not used for longest. */
static void test_eviction(void **state) {
    (void)state;
    enum { TEXTS = 6 };
    int32_t tokens[N_TEXT];
    pi_session *s = new_session();
    const uint64_t room = pi_session_range_bytes(s, 3 * N_TEXT) + 3 * 5 * 600;
    prompt_store *store = new_store(room, s);
    for (int t = 0; t < TEXTS; t++) {
        make_text(tokens, t, 0);
        pi_session_rewind(s, 0, NULL);
        feed(s, tokens, 0, N_TEXT);
        prompt_store_save(store, s, tokens, N_TEXT, 0);
        assert_true(prompt_store_get_stats(store).n_bytes <= room);
        make_text(tokens, 0, 0); /* stays in use */
        assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT);
    }
    make_text(tokens, TEXTS - 1, 0);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT);
    make_text(tokens, 1, 0);
    assert_true(prompt_store_find(store, tokens, N_TEXT, 0) < N_TEXT);
    assert_true(prompt_store_get_stats(store).evicted > N_TEXT);
    prompt_store_free(store);
    /* A text that needs more than half of the store is not saved: it would evict all others. */
    store = new_store(pi_session_range_bytes(s, 2 * N_TEXT), s);
    prompt_store_save(store, s, tokens, N_TEXT, 0);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), 0);
    prompt_store_free(store);
    pi_session_destroy(s);
}

/* Every allocation fails in turn: what can be found is right, and the rest is not stored. */
static void test_no_memory(void **state) {
    (void)state;
    int32_t tokens[N_TEXT];
    make_text(tokens, 0, 0);
    pi_session *s = new_session(), *r = new_session();
    feed(s, tokens, 0, N_TEXT);
    for (int64_t n = 1;; n++) {
        const prompt_store_options o = {.max_bytes = UINT64_MAX};
        prompt_store *store = NULL;
        mem_fail_at(n);
        if (prompt_store_create(&o, s, &store, NULL) != PI_OK) continue;
        prompt_store_save(store, s, tokens, N_TEXT, 0);
        int32_t found = prompt_store_find(store, tokens, N_TEXT, 0);
        int32_t have = found ? prompt_store_restore(store, r, 0, tokens, found, 0) : 0;
        mem_fail_at(0);
        assert_true(have == 0 || have == found);
        prompt_store_free(store);
        if (have == N_TEXT) break;
        assert_true(n < 100);
    }
    pi_session_destroy(s);
    pi_session_destroy(r);
}

/* ---- files ----------------------------------------------------------------------------------- */

#define FOLDER TEST_BINARY_DIR "/test_server_store.folder"

static void leave(const char *path) {
    (void)path;
}

/* Changes the last byte, which belongs to the values. */
static void damage(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int last = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(last ^ 1, f);
    fclose(f);
}

static void cut(const char *path) {
    FILE *f = fopen(path, "wb");
    fputs("x", f);
    fclose(f);
}

/* A store that begins with the files of an earlier one restores the same state. */
static void test_files(void **state) {
    (void)state;
    static const uint64_t memory[] = {0, 400 << 10, UINT64_MAX};
    int32_t tokens[N_TEXT];
    make_text(tokens, 0, 0);
    pi_session *s = new_session(), *r = new_session();
    const size_t n = (size_t)info.n_vocab * sizeof(float);
    float *want = mem_alloc(n);
    feed(s, tokens, 0, N_TEXT - 1);
    memcpy(want, feed(s, tokens, N_TEXT - 1, N_TEXT), n);
    for (int i = 0; i < 3; i++) {
        const prompt_store_options o = {
            .max_bytes = memory[i], .folder = FOLDER, .max_file_bytes = UINT64_MAX};
        store_empty_folder(FOLDER);
        prompt_store *store = new_store_with(&o, s);
        prompt_store_save(store, s, tokens, N_TEXT - 1, 0);
        const prompt_store_stats stats = prompt_store_get_stats(store);
        assert_int_equal(stats.n_blocks, 5);
        assert_true(stats.n_bytes <= memory[i]);
        assert_true(stats.n_file_bytes > pi_session_range_bytes(s, N_TEXT - 1));
        prompt_store_free(store);
        assert_int_equal(store_each_file(FOLDER, leave), 5);
        store = new_store_with(&o, s);
        assert_int_equal(prompt_store_get_stats(store).n_file_bytes, stats.n_file_bytes);
        assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT - 1);
        pi_session_rewind(r, 0, NULL);
        assert_int_equal(prompt_store_restore(store, r, 0, tokens, N_TEXT - 1, 0), N_TEXT - 1);
        assert_memory_equal(feed(r, tokens, N_TEXT - 1, N_TEXT), want, n);
        prompt_store_free(store);
    }
    mem_free(want);
    pi_session_destroy(s);
    pi_session_destroy(r);
}

/* Damaged, cut and missing files, and what a killed server left: nothing wrong is restored, and the
 * files go. */
static void test_bad_files(void **state) {
    (void)state;
    const prompt_store_options o = {.folder = FOLDER, .max_file_bytes = UINT64_MAX};
    int32_t tokens[N_TEXT];
    char path[1024];
    make_text(tokens, 0, 0);
    pi_session *s = new_session(), *r = new_session();
    feed(s, tokens, 0, N_TEXT);
    store_empty_folder(FOLDER);
    prompt_store *store = new_store_with(&o, s);
    prompt_store_save(store, s, tokens, N_TEXT, 0);
    store_each_file(FOLDER, damage);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT);
    assert_int_equal(prompt_store_restore(store, r, 0, tokens, N_TEXT, 0), 0);
    assert_true(prompt_store_find(store, tokens, N_TEXT, 0) < N_TEXT);
    prompt_store_save(store, s, tokens, N_TEXT,
                      0); /* what is damaged is not seen before it is read */
    prompt_store_free(store);
    store_each_file(FOLDER, cut);
    store = new_store_with(&o, s);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), 0);
    assert_int_equal(store_each_file(FOLDER, leave), 0);
    prompt_store_save(store, s, tokens, N_TEXT, 0);
    prompt_store_free(store);
    /* Without its first block a text cannot be restored. */
    prompt_block first = {.n = PROMPT_BLOCK};
    first.name = prompt_block_name((prompt_name){{0, 0}}, tokens, PROMPT_BLOCK);
    snprintf(path, sizeof path, "%s/%016llx/%016llx%016llx", FOLDER,
             (unsigned long long)pi_session_state_id(s), (unsigned long long)first.name.word[0],
             (unsigned long long)first.name.word[1]);
    assert_int_equal(os_path_remove(path), 0);
    snprintf(path + strlen(path), 8, ".new");
    cut(path);
    store = new_store_with(&o, s);
    assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), 0);
    assert_int_equal(prompt_store_get_stats(store).n_file_bytes, 0);
    assert_int_equal(store_each_file(FOLDER, leave), 0);
    prompt_store_free(store);
    pi_session_destroy(s);
    pi_session_destroy(r);
    const prompt_store_options none = {.folder = TEST_BINARY_DIR "/no/such/folder"};
    pi_error err;
    s = new_session();
    assert_int_equal(prompt_store_create(&none, s, &store, &err), PI_ERR_IO);
    pi_session_destroy(s);
}

/* The files stay below their limit, also when the store begins with more; shared beginnings stay
 * longest. */
static void test_file_limit(void **state) {
    (void)state;
    enum { TEXTS = 6, COMMON = 128 };
    int32_t tokens[N_TEXT];
    pi_session *s = new_session();
    prompt_store_options o = {
        .folder = FOLDER, .max_file_bytes = pi_session_range_bytes(s, 3 * N_TEXT) + 3 * 5 * 600};
    store_empty_folder(FOLDER);
    prompt_store *store = new_store_with(&o, s);
    for (int t = 0; t < TEXTS; t++) {
        make_text(tokens, t, COMMON);
        pi_session_rewind(s, 0, NULL);
        feed(s, tokens, 0, N_TEXT);
        prompt_store_save(store, s, tokens, N_TEXT, 0);
        assert_true(prompt_store_get_stats(store).n_file_bytes <= o.max_file_bytes);
        assert_int_equal(prompt_store_find(store, tokens, N_TEXT, 0), N_TEXT);
    }
    make_text(tokens, 0, COMMON);
    assert_in_range(prompt_store_find(store, tokens, N_TEXT, 0), COMMON, N_TEXT - 1);
    prompt_store_free(store);
    o.max_file_bytes /= 2;
    store = new_store_with(&o, s);
    assert_true(prompt_store_get_stats(store).n_file_bytes <= o.max_file_bytes);
    assert_true(prompt_store_find(store, tokens, N_TEXT, 0) >= COMMON);
    prompt_store_free(store);
    pi_session_destroy(s);
}

/* Recurrent layers: a prefix ends where their state is known, and continues as if it had been read.
 */
static void test_recurrent(void **state) {
    (void)state;
    enum { V = RECURRENT_VOCAB, LONG = 200 };
    static const char path[] = TEST_BINARY_DIR "/test_server_store.gguf";
    static float logits[LONG * V], want[LONG * V];
    const pi_context_options o = run_exact_options();
    for (int a = 0; a < RECURRENT_ARCHS; a++) {
        int32_t tokens[LONG], other[LONG];
        recurrent_write(recurrent_archs[a], NULL, path);
        run_model r = run_open(path, &o);
        run_random_tokens(5, V, tokens, LONG);
        run_tokens(&r, tokens, LONG, 50, want);
        pi_session *s = run_session(&r, LONG), *back = run_session(&r, LONG);
        store_empty_folder(FOLDER);
        const prompt_store_options in_files = {.folder = FOLDER, .max_file_bytes = UINT64_MAX};
        prompt_store *store = a % 2 ? new_store_with(&in_files, s) : new_store(UINT64_MAX, s);
        run_feed(&r, s, tokens, 150, 50, logits);
        run_feed(&r, s, tokens + 150, 30, 0, logits);
        prompt_store_save(store, s, tokens, 180, 0);
        if (a % 2) {
            prompt_store_free(store);
            store = new_store_with(&in_files, s);
        }
        assert_int_equal(prompt_store_find(store, tokens, LONG, 0), 180);
        memcpy(other, tokens, sizeof tokens);
        other[170] = (other[170] + 1) % V;
        assert_int_equal(prompt_store_find(store, other, LONG, 0), 150); /* before the last call */
        other[100] = (other[100] + 1) % V;
        assert_int_equal(prompt_store_find(store, other, LONG, 0), 0);
        run_feed(&r, back, tokens, 70, 35, logits);
        assert_int_equal(prompt_store_restore(store, back, 70, tokens, 180, 0), 180);
        run_feed(&r, back, tokens + 180, 20, 0, logits);
        assert_true(run_nmse(logits, want + 180 * V, 20 * V) < 1e-10);
        assert_int_equal(
            pi_session_put_ranges(back, 0, &(pi_session_range){NULL, 1}, 1, tokens, NULL, NULL),
            PI_ERR_ARG);
        pi_session_destroy(s);
        pi_session_destroy(back);
        prompt_store_free(store);
        run_close(&r);
    }
}

static void test_ranges_refused(void **state) {
    (void)state;
    int32_t tokens[N_TEXT];
    make_text(tokens, 0, 0);
    pi_session *s = new_session();
    pi_error err;
    feed(s, tokens, 0, 20);
    uint8_t *rows = mem_alloc(pi_session_range_bytes(s, 20));
    assert_int_equal(pi_session_get_range(s, 5, 16, rows, &err), PI_ERR_RANGE);
    assert_int_equal(pi_session_get_range(s, -1, 2, rows, &err), PI_ERR_RANGE);
    assert_int_equal(pi_session_get_range(s, 0, 20, rows, &err), PI_OK);
    const pi_session_range range = {.data = rows, .n_tokens = 20};
    assert_int_equal(pi_session_put_ranges(s, 21, &range, 1, tokens, NULL, &err), PI_ERR_RANGE);
    const pi_session_range long_range = {.data = rows, .n_tokens = N_CTX};
    assert_int_equal(pi_session_put_ranges(s, 1, &long_range, 1, tokens, NULL, &err), PI_ERR_RANGE);
    assert_int_equal(pi_session_length(s), 20);
    assert_int_equal(pi_session_recurrent_bytes(s), 0);
    mem_free(rows);
    pi_session_destroy(s);
}

/* ---- the server ------------------------------------------------------------------------------ */

static char *converse(const server_case *c, int who, const char *more, int64_t *cached) {
    char body[2048];
    snprintf(body, sizeof body,
             "{\"prompt\":\"Chapter %d. There once was a lighthouse at the edge of the sea, where "
             "the winds of %d winters had worn the stones away, and the keeper, who was number "
             "%d of his family, sat at the window and counted the ships.%s\",\"max_tokens\":12,"
             "\"temperature\":0}",
             who, who, who, more);
    http_reply r = http_post(c, "/v1/completions", body);
    assert_int_equal(r.status, 200);
    char *text = strdup(http_text(&r, "choices.0.text"));
    *cached = http_int(&r, "usage.prompt_tokens_details.cached_tokens");
    http_free(&r);
    return text;
}

static void run_conversations(uint64_t bytes, bool returns) {
    enum { PEOPLE = 4 };
    server_case c;
    char *first[PEOPLE];
    int64_t cached = 0;
    case_open(&c);
    c.options.served.n_slots = 1;
    c.options.served.store.max_bytes = bytes;
    c.options.served.context.kernels = PI_KERNELS_SCALAR; /* sums do not depend on the step */
    case_start(&c);
    for (int i = 0; i < PEOPLE; i++) first[i] = converse(&c, 100 + i, "", &cached);
    for (int i = 0; i < PEOPLE; i++) {
        char *again = converse(&c, 100 + i, "", &cached);
        assert_string_equal(again, first[i]);
        assert_true(returns ? cached > 40 : cached < 16);
        free(again);
    }
    free(converse(&c, 100, " One night", &cached)); /* the conversation goes on */
    assert_true(returns ? cached > 40 : cached < 16);
    assert_int_equal(case_metric(&c, "prompt_tokens_restored_total") > 100, returns);
    assert_int_equal(case_metric(&c, "prompt_store_bytes") > 0, returns);
    for (int i = 0; i < PEOPLE; i++) free(first[i]);
    case_close(&c);
}

static void test_conversations_return(void **state) {
    (void)state;
    run_conversations((uint64_t)256 << 20, true);
}

/* A conversation continues after a restart, with the same text. */
static void test_restart(void **state) {
    (void)state;
    server_case c;
    char *before = NULL;
    int64_t cached = 0;
    store_empty_folder(FOLDER);
    for (int run = 0; run < 2; run++) {
        case_open(&c);
        c.options.served.store = (prompt_store_options){.folder = FOLDER,
                                                        .max_file_bytes = (uint64_t)64 << 20};
        c.options.served.context.kernels = PI_KERNELS_SCALAR;
        case_start(&c);
        char *text = converse(&c, 100, "", &cached);
        assert_int_equal(cached > 40, run == 1);
        if (before) assert_string_equal(text, before);
        free(before);
        before = text;
        case_close(&c);
    }
    free(before);
}

static void test_without_a_store(void **state) {
    (void)state;
    run_conversations(0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_state),
                                       cmocka_unit_test(test_shared_beginning),
                                       cmocka_unit_test(test_eviction),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_bad_files),
                                       cmocka_unit_test(test_file_limit),
                                       cmocka_unit_test(test_restart),
                                       cmocka_unit_test(test_recurrent),
                                       cmocka_unit_test(test_ranges_refused),
                                       cmocka_unit_test(test_conversations_return),
                                       cmocka_unit_test(test_without_a_store)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
