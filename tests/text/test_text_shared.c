/* test_text_shared.c: vocabularies of other programs, with texts and their ids, which must
 * match exactly. Skips loudly when the shared data is absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "shared_data.h"
#include "tokenizer.h"

enum { MAX_TEXT_IDS = 4096 };

static const char separator[] = "\n__ggml_vocab_test__\n";

/* Compares the ids of one text with one line of ids. Returns the start of the next line. */
static const char *check_line(const tokenizer *t, const char *text, size_t n, uint32_t flags,
                              const char *line) {
    int32_t ids[MAX_TEXT_IDS];
    size_t n_ids;
    pi_error err = {0};
    if (tokenizer_encode(t, text, n, flags, ids, MAX_TEXT_IDS, &n_ids, &err)) {
        fail_msg("%s", err.message);
    }
    const char *end = strchr(line, '\n');
    assert_non_null(end);
    for (size_t i = 0; i < n_ids; i++) {
        char *after;
        long want = strtol(line, &after, 10);
        if (after == line || after > end || want != ids[i]) {
            fail_msg("text \"%.*s\": id %zu is %d, not %ld", (int)n, text, i, (int)ids[i], want);
        }
        line = after;
    }
    while (*line == ' ') line++;
    if (line != end) fail_msg("text \"%.*s\": ids are missing", (int)n, text);
    return end + 1;
}

/* One word that is far too long is refused by its length: nearly every byte is a token. */
static void check_long_word(const tokenizer *t) {
    enum { N = 1 << 20, FEW = 100 };
    char *text = mem_alloc(N);
    int32_t ids[FEW];
    size_t n;
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) text[i] = "qzxj"[i % 4];
    assert_int_equal(tokenizer_encode(t, text, N, TOKENIZER_STOP, ids, FEW, &n, NULL),
                     PI_ERR_LIMIT);
    assert_in_range(n, FEW + 1, N / 8);
    mem_free(text);
}

static void check_vocabulary(const char *name) {
    char path[1024], file_name[256];
    snprintf(file_name, sizeof file_name, "conformance/tokenizer/ggml-vocab-%s.gguf", name);
    if (!shared_path(path, sizeof path, file_name)) skip();
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    gguf_open_options options = {.header_only = true};
    if (gguf_open(path, &options, &file, &err)) fail_msg("%s", err.message);
    double start = clock_seconds();
    pi_status status = tokenizer_create(file, NULL, &t, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "PCRE2")) {
        fprintf(stderr, "*** SKIPPED: %s ***\n", err.message);
        gguf_close(file);
        skip();
    }
    if (status) fail_msg("%s", err.message);
    printf("%s: created in %.1f ms\n", name, (clock_seconds() - start) * 1e3);

    char *texts, *ids;
    size_t n_texts, n_ids, n_path = strlen(path);
    memcpy(path + n_path, ".inp", 5);
    assert_int_equal(file_read(path, 1 << 20, &texts, &n_texts, &err), PI_OK);
    memcpy(path + n_path, ".out", 5);
    assert_int_equal(file_read(path, 1 << 20, &ids, &n_ids, &err), PI_OK);
    const char *line = ids, *text = texts;
    int n_lines = 0;
    for (;;) {
        const char *next = strstr(text, separator);
        if (!next && *text == '\0' && *line == '\0') break; /* the file ends with a separator */
        line = check_line(t, text, next ? (size_t)(next - text) : strlen(text), 0, line);
        n_lines++;
        if (!next) break;
        text = next + strlen(separator);
    }
    assert_true(n_lines > 10);
    check_long_word(t);
    assert_int_equal(line - ids, n_ids);
    mem_free(texts);
    mem_free(ids);
    tokenizer_free(t);
    gguf_close(file);
}

#define VOCABULARY(function, name)                                                                 \
    static void function(void **state) {                                                           \
        (void)state;                                                                               \
        check_vocabulary(name);                                                                    \
    }
VOCABULARY(llama_spm, "llama-spm")
VOCABULARY(llama_bpe, "llama-bpe")
VOCABULARY(gpt_2, "gpt-2")
VOCABULARY(falcon, "falcon")
VOCABULARY(qwen2, "qwen2")

/* Vocabularies of encoders: a text per line, and its ids with the special tokens. */
static void check_encoder(const char *model, const char *ids_name) {
    char path[1024], *texts, *ids;
    size_t n_texts, n_ids;
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    const gguf_open_options options = {.header_only = true};
    if (!shared_path(path, sizeof path, "conformance/encode/texts.txt")) skip();
    assert_int_equal(file_read(path, 1 << 20, &texts, &n_texts, &err), PI_OK);
    assert_true(shared_path(path, sizeof path, ids_name));
    assert_int_equal(file_read(path, 1 << 20, &ids, &n_ids, &err), PI_OK);
    assert_true(shared_path(path, sizeof path, model));
    if (gguf_open(path, &options, &file, &err)) fail_msg("%s", err.message);
    pi_status status = tokenizer_create(file, NULL, &t, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "utf8proc")) {
        fprintf(stderr, "*** SKIPPED: %s ***\n", err.message);
        gguf_close(file);
        skip();
    }
    if (status) fail_msg("%s", err.message);
    const char *line = ids;
    int n_lines = 0;
    for (char *text = texts, *end; *line && (end = strchr(text, '\n')); text = end + 1, n_lines++)
        line = check_line(t, text, (size_t)(end - text), TOKENIZER_ADD_SPECIAL, line);
    assert_true(n_lines > 10);
    assert_int_equal(*line, 0);
    mem_free(texts);
    mem_free(ids);
    tokenizer_free(t);
    gguf_close(file);
}

static void wordpiece(void **state) {
    (void)state;
    check_encoder("conformance/encode/bert-mean.gguf", "conformance/encode/bert-mean.ids.txt");
}

static void unigram(void **state) {
    (void)state;
    check_encoder("conformance/encode/unigram.vocab.gguf", "conformance/encode/unigram.ids.txt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_spm), cmocka_unit_test(llama_bpe), cmocka_unit_test(gpt_2),
        cmocka_unit_test(falcon),    cmocka_unit_test(qwen2),     cmocka_unit_test(wordpiece),
        cmocka_unit_test(unigram),
    };
    char folder[1024];
    if (!shared_path(folder, sizeof folder, "conformance/tokenizer")) return SHARED_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
