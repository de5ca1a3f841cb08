/* test_text_linear.c: vocabularies made to be slow. The tests count work, not seconds: lengths of
 * runs in hash tables, steps of the search for special tokens. They also compare the search with a
 * direct implementation of its rule. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"
#include "tokenizer_impl.h"
#include "vocab_bytes.h"

static vocab_bytes bytes;

typedef struct opened {
    gguf_file *file;
    tokenizer *t;
} opened;

static opened open_vocab(void) {
    opened o;
    pi_error err = {0};
    if (gguf_open_memory(bytes.data, bytes.n, "handmade", &o.file, &err) ||
        tokenizer_create(o.file, NULL, &o.t, &err)) {
        fail_msg("%s", err.message);
    }
    return o;
}

static void close_vocab(opened o) {
    tokenizer_free(o.t);
    gguf_close(o.file);
}

static bool have_pcre2(void) { /* required by byte-level vocabularies */
    pretokenizer *pre;
    pi_status status = pretokenizer_create(pretokenizer_find("gpt-2", 5), &pre, NULL);
    if (status == PI_OK) pretokenizer_free(pre);
    return status == PI_OK;
}

/* ---- hash tables ----------------------------------------------------------------------------- */

/* A table half full of random hashes has runs of some dozens; equal hashes form a single run. */
enum { N_COLLIDING = 3000, N_MERGES = 1000, LONGEST_RUN = 250 };

/* An odd factor as an unkeyed multiplicative hash would use, and its inverse. */
#define FACTOR UINT64_C(0x9E3779B97F4A7C15)

static uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x; /* Newton: doubles the number of correct bits */
    return x;
}

/* Solves h ^ h >> shift == x for h. */
static uint64_t undo_shift(uint64_t y, int shift) {
    uint64_t h = y;
    for (int i = 0; i < 64 / shift + 1; i++) h = y ^ h >> shift;
    return h;
}

/* The eight bytes that an unkeyed multiplicative hash maps to `hash`, computed backwards. */
static uint64_t colliding_word(uint64_t hash) {
    uint64_t back = inverse(FACTOR), h = undo_shift(hash * back, 29) * back;
    return undo_shift(h, 32) * back ^ 8 * FACTOR;
}

static void names_of_one_hash(void **state) {
    (void)state;
    assert_int_equal(FACTOR * inverse(FACTOR), 1);
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "llama");
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, N_COLLIDING);
    for (uint64_t i = 0; i < N_COLLIDING; i++) {
        vocab_u(&bytes, 8, 8);
        vocab_u(&bytes, colliding_word(UINT64_C(0x12345678) << 32 | i), 8);
    }
    opened o = open_vocab();
    const text_table *table = &o.t->table;
    assert_int_equal(table->count, N_COLLIDING);
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < 2 * table->n_slots; i++) {
        run = table->slots[i % table->n_slots].entry ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_in_range(longest, 1, LONGEST_RUN);
    close_vocab(o);
}

/* Merges whose pairs of numbers map to one slot in a table of twice their number. */
static void merges_of_one_place(void **state) {
    (void)state;
    enum { SIDE = 50, N_TOKENS = SIDE * SIDE, N_SLOTS = 2048 };
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "gpt2");
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, N_TOKENS);
    char texts[N_TOKENS][3];
    for (int i = 0; i < N_TOKENS; i++) {
        snprintf(texts[i], sizeof texts[i], "%c%c", 'A' + i / SIDE, 'A' + i % SIDE);
        vocab_text(&bytes, texts[i]);
    }
    vocab_array(&bytes, "tokenizer.ggml.merges", GGUF_STRING, N_MERGES);
    int n_merges = 0;
    for (uint64_t left = 0; left < N_TOKENS; left++) {
        for (uint64_t right = 0; right < N_TOKENS && n_merges < N_MERGES; right++) {
            uint64_t h = (left << 32 | right) * FACTOR;
            if (((h ^ h >> 32) & (N_SLOTS - 1)) != 0) continue;
            char line[8];
            snprintf(line, sizeof line, "%.2s %.2s", texts[left], texts[right]);
            vocab_text(&bytes, line);
            n_merges++;
        }
    }
    assert_int_equal(n_merges, N_MERGES);
    if (!have_pcre2()) skip();
    opened o = open_vocab();
    assert_int_equal(o.t->n_merge_slots, N_SLOTS);
    size_t run = 0, longest = 0, filled = 0;
    for (size_t i = 0; i < 2 * N_SLOTS; i++) {
        run = o.t->merges[i % N_SLOTS].result ? run + 1 : 0;
        filled += run > 0;
        if (run > longest) longest = run;
    }
    assert_int_equal(filled, 2 * N_MERGES);
    assert_in_range(longest, 1, LONGEST_RUN);
    close_vocab(o);
}

/* ---- special tokens -------------------------------------------------------------------------- */

/* The rule: in order of priority, each token takes its occurrences from left to right in the
 * remaining text. owner[i]: id of the token that has byte i, -1: free, -2: stripped blank. */
static void split_plainly(const tokenizer *t, const char *text, size_t n, bool parse_special,
                          int32_t *owner) {
    for (size_t i = 0; i < n; i++) owner[i] = -1;
    for (size_t length = n; length > 0; length--) {
        for (int32_t id = 0; id < t->info.n_vocab; id++) {
            const token_entry *token = &t->tokens[id];
            bool wanted = parse_special ? tokenizer_is_special(token)
                                        : token->type == TOKEN_USER_DEFINED;
            if (!wanted || token->text.n_bytes != length) continue;
            for (size_t at = 0; at + length <= n; at++) {
                bool fits = memcmp(text + at, token->text.data, length) == 0;
                for (size_t i = at; i < at + length; i++) fits = fits && owner[i] == -1;
                if (!fits) continue;
                for (size_t i = at; i < at + length; i++) owner[i] = id;
                for (size_t i = at; (token->attributes & TOKEN_STRIP_LEFT) && i > 0 &&
                                    owner[i - 1] == -1 && isspace((unsigned char)text[i - 1]);
                     i--)
                    owner[i - 1] = -2;
                for (size_t i = at + length; (token->attributes & TOKEN_STRIP_RIGHT) && i < n &&
                                             owner[i] == -1 && isspace((unsigned char)text[i]);
                     i++)
                    owner[i] = -2;
            }
        }
    }
}

static void expect_plain_split(const tokenizer *t, const char *text, size_t n, bool parse_special) {
    enum { MAX = 64 };
    int32_t owner[MAX];
    fragment_list f = {0};
    split_plainly(t, text, n, parse_special, owner);
    assert_int_equal(tokenizer_special_split(t, text, n, parse_special, &f, NULL), PI_OK);
    size_t at = 0;
    bool same = true;
    for (size_t k = 0; k < f.n; k++) {
        while (at < n && owner[at] == -2) at++;
        const text_fragment *item = &f.items[k];
        int32_t id = item->id < 0 ? -1 : item->id;
        same = same && item->begin == at && item->n_bytes > 0;
        for (size_t i = 0; i < item->n_bytes && same; i++) same = owner[at + i] == id;
        if (id >= 0) same = same && t->tokens[id].text.n_bytes == item->n_bytes;
        at += item->n_bytes;
        /* free bytes up to the next token are one fragment */
        if (id < 0) same = same && (at == n || owner[at] != -1);
    }
    while (at < n && owner[at] == -2) at++;
    if (!same || at != n) fail_msg("\"%.*s\" is split differently", (int)n, text);
    free(f.items);
}

/* Short tokens over few letters: nested, overlapping, equal, of all types, stripping blanks. */
static void special_follow_the_rule(void **state) {
    (void)state;
    enum { ROUNDS = 400, MAX_TOKENS = 14, TEXTS = 40 };
    static const int types[] = {TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNKNOWN, TOKEN_NORMAL};
    rng r;
    rng_seed(&r, 11);
    for (int round = 0; round < ROUNDS; round++) {
        int n_tokens = 1 + (int)(rng_u64(&r) % MAX_TOKENS), letters = 1 + (int)(rng_u64(&r) % 3);
        vocab_begin(&bytes);
        vocab_string(&bytes, "tokenizer.ggml.model", "llama");
        vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, (size_t)n_tokens);
        for (int i = 0; i < n_tokens; i++) {
            char text[8] = {0};
            size_t n = 1 + rng_u64(&r) % 6;
            for (size_t k = 0; k < n; k++) text[k] = " ab"[rng_u64(&r) % (uint64_t)letters];
            vocab_text(&bytes, text);
        }
        vocab_array(&bytes, "tokenizer.ggml.token_type", GGUF_I32, (size_t)n_tokens);
        for (int i = 0; i < n_tokens; i++) vocab_u(&bytes, (uint64_t)types[rng_u64(&r) % 4], 4);
        opened o = open_vocab();
        for (int i = 0; i < n_tokens; i++)
            if (rng_u64(&r) % 4 == 0) o.t->tokens[i].attributes = (uint8_t)(rng_u64(&r) % 4);
        for (int k = 0; k < TEXTS; k++) {
            char text[40];
            size_t n = rng_u64(&r) % sizeof text;
            for (size_t i = 0; i < n; i++) text[i] = " ab"[rng_u64(&r) % (uint64_t)letters];
            expect_plain_split(o.t, text, n, k % 2);
        }
        close_vocab(o);
    }
}

/* Steps per byte of a text; searching for one token after another takes thousands. */
enum { STEPS_PER_BYTE = 40 };

static void expect_few_steps(const tokenizer *t, const char *text, size_t n, size_t least) {
    fragment_list f = {0};
    assert_int_equal(tokenizer_special_split(t, text, n, true, &f, NULL), PI_OK);
    assert_in_range(f.n, least, n);
    assert_in_range(f.steps, n, STEPS_PER_BYTE * n);
    free(f.items);
}

static void begin_user_defined(size_t n) {
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "llama");
    vocab_array(&bytes, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++) vocab_u(&bytes, TOKEN_USER_DEFINED, 4);
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, n);
}

static void special_take_few_steps(void **state) {
    (void)state;
    enum { LETTERS = 36, LENGTH = 100000, NESTED = 280 };
    static char text[LENGTH];
    rng r;
    rng_seed(&r, 12);

    /* every pair of letters is a token, and all of them occur */
    begin_user_defined(LETTERS * LETTERS);
    for (int i = 0; i < LETTERS * LETTERS; i++) {
        char token[3] = {(char)('0' + i / LETTERS), (char)('0' + i % LETTERS)};
        vocab_text(&bytes, token);
    }
    opened o = open_vocab();
    for (size_t i = 0; i < LENGTH; i++) text[i] = (char)('0' + rng_u64(&r) % LETTERS);
    expect_few_steps(o.t, text, LENGTH, LENGTH / 2);
    close_vocab(o);

    /* each token begins like all shorter ones; the longest, with another end, takes its bytes
     * first, and every place before it must find a shorter one that still fits */
    begin_user_defined(NESTED);
    char nested[NESTED + 1];
    memset(nested, 'a', sizeof nested);
    for (int i = 1; i < NESTED; i++) {
        vocab_u(&bytes, (uint64_t)i, 8);
        vocab_raw(&bytes, nested, (size_t)i);
    }
    nested[NESTED - 1] = 'c';
    vocab_u(&bytes, NESTED, 8);
    vocab_raw(&bytes, nested, NESTED);
    o = open_vocab();
    for (size_t i = 0; i < LENGTH; i++) text[i] = i % (2 * NESTED) == 2 * NESTED - 1 ? 'c' : 'a';
    expect_few_steps(o.t, text, LENGTH, LENGTH / NESTED);
    close_vocab(o);
}

/* Texts of special tokens that would exceed the automaton's memory limit. */
static void special_too_long(void **state) {
    (void)state;
    enum { N = 9 << 20, HEAD = 1 << 10 };
    uint8_t *data = calloc(1, N + HEAD);
    assert_non_null(data);
    begin_user_defined(1);
    vocab_u(&bytes, N, 8);
    memcpy(data, bytes.data, bytes.n);
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    assert_int_equal(gguf_open_memory(data, bytes.n + N, "long", &file, &err), PI_OK);
    assert_int_equal(tokenizer_create(file, NULL, &t, &err), PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "control and user-defined tokens are too long"));
    gguf_close(file);
    free(data);
}

/* ---- words, and texts that are too long ------------------------------------------------------ */

#define W "\xE2\x96\x81"

static opened open_words(const char *more) {
    const vocab_token tokens[] = {{W, 1, -9},    {"a", 1, -8},    {"b", 1, -8}, {"ab", 1, -2},
                                  {"ba", 1, -3}, {W "a", 1, -2},  {W W, 1, -4}, {W W W W, 1, -5},
                                  {"aa", 1, -1}, {W "ab", 1, -1}, {more, 1, -1}};
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "llama");
    vocab_tokens(&bytes, vocab_hex_byte, TOKEN_BYTE, tokens, sizeof tokens / sizeof *tokens);
    return open_vocab();
}

/* Merging word by word equals merging the whole text, for well-formed and ill-formed text. */
static void words_are_merged_alone(void **state) {
    (void)state;
    enum { LONG = 40, N_TEXTS = 5000 };
    static const char *const parts[] = {"a",    "b",        " ",    "  ",      W,
                                        "\xF0", "\xE2\x96", "\x81", "\xC3\xA9"};
    opened o = open_words(W "b");
    assert_true(o.t->words_are_apart);
    rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < N_TEXTS; i++) {
        char text[4 * LONG] = "";
        int32_t by_word[8 * LONG], whole[8 * LONG];
        size_t n_by_word, n_whole;
        for (int k = 0; k < LONG; k++) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s", parts[rng_u64(&r) % 9]);
        }
        o.t->words_are_apart = true;
        assert_int_equal(
            tokenizer_encode(o.t, text, strlen(text), 0, by_word, 8 * LONG, &n_by_word, NULL),
            PI_OK);
        o.t->words_are_apart = false;
        assert_int_equal(
            tokenizer_encode(o.t, text, strlen(text), 0, whole, 8 * LONG, &n_whole, NULL), PI_OK);
        assert_int_equal(n_by_word, n_whole);
        assert_memory_equal(by_word, whole, n_whole * sizeof *whole);
    }
    close_vocab(o);
    o = open_words("b" W "a");
    assert_false(o.t->words_are_apart);
    close_vocab(o);
}

/* With TOKENIZER_STOP, encoding stops early for a text that is too long, and never for one that
 * fits. */
static void expect_stop(const tokenizer *t, const char *part) {
    enum { N = 1 << 20, CAPACITY = 1000 };
    size_t n_part = strlen(part), n = N / n_part * n_part, n_all, n_some;
    char *text = malloc(n);
    int32_t tokens[CAPACITY];
    for (size_t i = 0; i < n; i += n_part) memcpy(text + i, part, n_part);
    assert_int_equal(tokenizer_encode(t, text, n, 0, tokens, CAPACITY, &n_all, NULL), PI_ERR_LIMIT);
    assert_int_equal(tokenizer_encode(t, text, n, TOKENIZER_STOP, tokens, CAPACITY, &n_some, NULL),
                     PI_ERR_LIMIT);
    assert_in_range(n_some, CAPACITY + 1, n_all - 1);
    size_t few = CAPACITY / 3 * n_part, n_stop;
    assert_int_equal(tokenizer_encode(t, text, few, 0, tokens, CAPACITY, &n_some, NULL), PI_OK);
    assert_int_equal(tokenizer_encode(t, text, few, TOKENIZER_STOP, tokens, n_some, &n_stop, NULL),
                     PI_OK);
    assert_int_equal(n_stop, n_some);
    assert_int_equal(
        tokenizer_encode(t, text, few, TOKENIZER_STOP, tokens, n_some - 1, &n_stop, NULL),
        PI_ERR_LIMIT);
    free(text);
}

static void long_texts_stop(void **state) {
    (void)state;
    opened o = open_words(W "b");
    expect_stop(o.t, "ab ");
    expect_stop(o.t, "ab");
    expect_stop(o.t, "\xFF");
    close_vocab(o);
    if (!have_pcre2()) return;
    vocab_bpe(&bytes, "gpt-2");
    o = open_vocab();
    expect_stop(o.t, "ab ");
    expect_stop(o.t, "ab");
    close_vocab(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_merged_alone),  cmocka_unit_test(long_texts_stop),
        cmocka_unit_test(names_of_one_hash),       cmocka_unit_test(merges_of_one_place),
        cmocka_unit_test(special_follow_the_rule), cmocka_unit_test(special_take_few_steps),
        cmocka_unit_test(special_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
