/* test_text_tokenizer.c: handmade vocabularies with ids calculated by hand, round trips, malformed
 * vocabularies, and every allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "rng.h"
#include "tokenizer.h"
#include "utf8.h"
#include "vocab_bytes.h"

enum { F = VOCAB_FIRST, MAX_TEXT = 4096 };

static vocab_bytes bytes;

static bool have_pcre2(void) {
    gguf_file *file;
    tokenizer *t;
    vocab_bpe(&bytes, NULL);
    assert_int_equal(gguf_open_memory(bytes.data, bytes.n, "probe", &file, NULL), PI_OK);
    pi_error err = {0};
    pi_status status = tokenizer_create(file, NULL, &t, &err);
    if (status == PI_OK) tokenizer_free(t);
    if (status == PI_ERR_UNSUPPORTED) assert_non_null(strstr(err.message, "PCRE2"));
    gguf_close(file);
    return status != PI_ERR_UNSUPPORTED;
}

typedef struct opened {
    gguf_file *file;
    tokenizer *t;
} opened;

static opened open_vocab(const char *pre) {
    opened o;
    pi_error err = {0};
    if (gguf_open_memory(bytes.data, bytes.n, "handmade", &o.file, &err) ||
        tokenizer_create(o.file, pre, &o.t, &err)) {
        fail_msg("%s", err.message);
    }
    return o;
}

enum { KIND_SPM, KIND_BPE, KIND_GEMMA4, N_KINDS };
/* These change the text, so that decoding does not return it. */
enum { KIND_WORDPIECE = N_KINDS, KIND_UNIGRAM, KIND_LONGEST, N_ALL_KINDS };

/* Number of vocabulary kinds that this build supports. */
static int n_kinds(void) {
    return have_pcre2() ? N_KINDS : 1;
}

static void build_vocab(vocab_bytes *b, int kind) {
    if (kind == KIND_SPM) vocab_spm(b);
    if (kind == KIND_BPE) vocab_bpe(b, "llama-bpe");
    if (kind == KIND_GEMMA4) vocab_gemma4(b);
    if (kind == KIND_WORDPIECE) vocab_wordpiece(b);
    if (kind == KIND_UNIGRAM) vocab_unigram(b);
    if (kind == KIND_LONGEST) vocab_longest(b);
}

static void close_vocab(opened o) {
    tokenizer_free(o.t);
    gguf_close(o.file);
}

static void expect_ids(const tokenizer *t, const char *text, uint32_t flags, size_t n,
                       const int32_t *want) {
    int32_t ids[MAX_TEXT];
    size_t n_ids;
    pi_error err = {0};
    if (tokenizer_encode(t, text, strlen(text), flags, ids, MAX_TEXT, &n_ids, &err)) {
        fail_msg("%s", err.message);
    }
    bool same = n_ids == n;
    for (size_t i = 0; same && i < n; i++) same = ids[i] == want[i];
    if (same) return;
    fprintf(stderr, "\"%s\" gave", text);
    for (size_t i = 0; i < n_ids; i++) fprintf(stderr, " %d", (int)ids[i]);
    fail_msg("other ids than expected");
}

#define EXPECT(t, text, flags, ...)                                                                \
    expect_ids(t, text, flags, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t),           \
               (const int32_t[]){__VA_ARGS__})

static void spm_by_hand(void **state) {
    (void)state;
    vocab_spm(&bytes);
    opened o = open_vocab(NULL);
    EXPECT(o.t, "ab", 0, F + 8);
    EXPECT(o.t, "aba", 0, F + 3, F + 4, F + 7);
    EXPECT(o.t, "ab ab", 0, F + 8, F + 8);
    EXPECT(o.t, "c", 0, F + 3, 'c');
    EXPECT(o.t, "\xC3\xA9\xC3\xA8", 0, F + 3, F + 11, 0xC3, 0xA8);
    EXPECT(o.t, "a[x]ab", 0, F + 3, F + 4, F + 9, F + 8);
    EXPECT(o.t, "ab", TOKENIZER_ADD_SPECIAL, F + 1, F + 8);
    EXPECT(o.t, "<s>ab</s>", TOKENIZER_PARSE_SPECIAL, F + 1, F + 8, F + 2);
    EXPECT(o.t, "<|im_end|>", TOKENIZER_PARSE_SPECIAL, F + 10);
    EXPECT(o.t, "<s>", 0, F + 3, '<', 's', '>');
    assert_true(tokenizer_is_end(o.t, F + 2));
    assert_true(tokenizer_is_end(o.t, F + 10));
    assert_false(tokenizer_is_end(o.t, F + 1));
    assert_false(tokenizer_is_end(o.t, -1));
    const tokenizer_info *info = tokenizer_get_info(o.t);
    assert_string_equal(info->model, "llama");
    assert_true(info->add_bos && !info->add_eos && info->add_space_prefix);
    assert_int_equal(info->eot, F + 10);
    close_vocab(o);

    vocab_spm(&bytes);
    vocab_bool(&bytes, "tokenizer.ggml.add_space_prefix", false);
    vocab_bool(&bytes, "tokenizer.ggml.add_bos_token", false);
    vocab_bool(&bytes, "tokenizer.ggml.add_eos_token", true);
    o = open_vocab(NULL);
    EXPECT(o.t, "ab", TOKENIZER_ADD_SPECIAL, F + 6, F + 2);
    EXPECT(o.t, "ab", TOKENIZER_FORCE_BOS, F + 1, F + 6);
    close_vocab(o);
}

/* Tokens that are not normal, and bytes that begin no token, are not matched. */
static void longest_by_hand(void **state) {
    (void)state;
    vocab_longest(&bytes);
    opened o = open_vocab(NULL);
    EXPECT(o.t, "ab", 0, 3);
    EXPECT(o.t, "abaab", 0, 3, 1, 3);
    EXPECT(o.t, "ababab", 0, 4, 3);
    EXPECT(o.t, "aba", 0, 3, 1); /* "aba" only begins a token */
    EXPECT(o.t, "\n\n\n", 0, 8, 7);
    EXPECT(o.t, "\\'\t", 0, 9, 10, 11);
    EXPECT(o.t, "\xC3\xA9\xE4\xBD\xA0\xE4", 0, 5, 12);
    EXPECT(o.t, "<s>[PAD]a", 0, 1);
    EXPECT(o.t, "<s>a", TOKENIZER_PARSE_SPECIAL, 0, 1);
    EXPECT(o.t, "a[x]a", 0, 1, 13, 1);
    EXPECT(o.t, "ab", TOKENIZER_ADD_SPECIAL, 3);
    char text[16];
    size_t n;
    pi_error err;
    const int32_t ids[] = {12, 9, 8, 0, 4};
    assert_int_equal(tokenizer_decode(o.t, ids, 5, false, text, sizeof text, &n, &err), PI_OK);
    assert_int_equal(n, 9);
    assert_memory_equal(text, "\xE4\xBD\\\n\nabab", 9);
    assert_string_equal(tokenizer_get_info(o.t)->model, "rwkv");
    close_vocab(o);
}

/* A byte can need three ids: byte-level vocabularies replace invalid UTF-8 by U+FFFD, the others
 * replace a space by U+2581. Callers count first, or request an array of the right size. */
static void more_ids_than_bytes(void **state) {
    (void)state;
    enum { N_TEXT = 100 };
    char text[N_TEXT];
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 1 && !have_pcre2()) continue;
        if (kind == 0) {
            /* U+2581 has no token */
            vocab_begin(&bytes);
            vocab_string(&bytes, "tokenizer.ggml.model", "llama");
            const vocab_token letters[] = {{"ab", TOKEN_NORMAL, -1}};
            vocab_tokens(&bytes, vocab_hex_byte, TOKEN_BYTE, letters, 1);
            memset(text, ' ', N_TEXT);
        } else {
            vocab_bpe(&bytes, "gpt-2");
            memset(text, '\xFF', N_TEXT);
        }
        opened o = open_vocab(NULL);
        size_t counted = 0, n = 0;
        int32_t *ids = NULL;
        pi_error err = {0};
        assert_int_equal(tokenizer_encode(o.t, text, N_TEXT, 0, NULL, 0, &counted, &err),
                         PI_ERR_LIMIT);
        assert_int_equal(counted, 3 * N_TEXT + 3 * (kind == 0)); /* including the prefix */
        assert_int_equal(tokenizer_encode_new(o.t, text, N_TEXT, 0, "a text", &ids, &n, &err),
                         PI_OK);
        assert_int_equal(n, counted);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(ids[i],
                             (unsigned char)(kind ? "\xEF\xBF\xBD" : "\xE2\x96\x81")[i % 3]);
        mem_free(ids);
        int64_t before = mem_count();
        tokenizer_encode_new(o.t, text, N_TEXT, 0, "a text", &ids, &n, &err);
        int64_t needed = mem_count() - before;
        mem_free(ids);
        for (int64_t i = 1; i <= needed; i++) {
            mem_fail_at(i);
            pi_status status = tokenizer_encode_new(o.t, text, N_TEXT, 0, "a text", &ids, &n, &err);
            mem_fail_at(0);
            assert_int_equal(status, PI_ERR_NOMEM);
            assert_null(ids);
        }
        close_vocab(o);
    }
}

/* The special tokens of one model family remove the blanks after them. */
static void strip_right(void **state) {
    (void)state;
    vocab_spm(&bytes);
    vocab_string(&bytes, "general.name", "Some Phi-3 model");
    opened o = open_vocab(NULL);
    EXPECT(o.t, "[x] \n ab", 0, F + 9, F + 8);
    EXPECT(o.t, "<s> ab", TOKENIZER_PARSE_SPECIAL, F + 1, F + 3, F + 8);
    EXPECT(o.t, "[x] \n ", 0, F + 9);
    close_vocab(o);
}

static void bpe_by_hand(void **state) {
    (void)state;
    if (!have_pcre2()) skip();
    vocab_bpe(&bytes, "gpt-2");
    opened o = open_vocab(NULL);
    EXPECT(o.t, "hello", 0, F + 3);
    EXPECT(o.t, "lll", 0, F + 1, 'l');
    EXPECT(o.t, " hello", 0, ' ', F + 3);
    EXPECT(o.t, " h", TOKENIZER_ADD_SPECIAL, F + 4);
    EXPECT(o.t, "whole", 0, 'w', 'h', 'o', 'l', 'e');
    EXPECT(o.t, "xy", 0, 'x', 'y');
    EXPECT(o.t, "<think><think><think>", 0, F + 8, F + 7);
    EXPECT(o.t, "h<|endoftext|>", TOKENIZER_PARSE_SPECIAL, 'h', F + 6);
    EXPECT(o.t, "\xFF", 0, 0xEF, 0xBF, 0xBD);
    EXPECT(o.t, "ab", TOKENIZER_FORCE_BOS, F + 6, 'a', 'b');
    assert_int_equal(tokenizer_get_info(o.t)->eot, F + 9);
    assert_true(tokenizer_is_end(o.t, F + 6));
    close_vocab(o);
    o = open_vocab("llama-bpe");
    EXPECT(o.t, "whole", TOKENIZER_ADD_SPECIAL, F + 6, F + 5);
    close_vocab(o);
}

static void gemma4_by_hand(void **state) {
    (void)state;
    if (!have_pcre2()) skip();
    vocab_gemma4(&bytes);
    opened o = open_vocab(NULL);
    assert_string_equal(tokenizer_get_info(o.t)->pre, "gemma4");
    EXPECT(o.t, "ab ab", TOKENIZER_ADD_SPECIAL, F + 2, F + 9);
    EXPECT(o.t, "ab  ab", 0, F + 7, F + 4, F + 8);
    EXPECT(o.t, "a\n\nab", 0, F + 5, F + 11,
           F + 7); /* "\n\n" is a token, although no merge makes it */
    EXPECT(o.t, "\n\n\n", 0, F + 10, F + 10, F + 10);
    EXPECT(o.t, "\xC3\xA9\xC3\xA8", 0, F + 12, 0xC3, 0xA8);
    EXPECT(o.t, "ab\xFF", 0, F + 7, 0xEF, 0xBF, 0xBD);
    EXPECT(o.t, "<turn|>", TOKENIZER_PARSE_SPECIAL, F + 3);
    assert_true(tokenizer_is_end(o.t, F + 1) && tokenizer_is_end(o.t, F + 3));
    assert_false(tokenizer_is_end(o.t, F + 13));
    assert_int_equal(tokenizer_role(o.t, TOKEN_ROLE_NL), F + 10);
    char text[32];
    size_t n;
    const int32_t ids[] = {F + 9, 0xC3, 0xA8, F + 10, F + 3, F + 8};
    assert_int_equal(tokenizer_decode(o.t, ids, 6, false, text, sizeof text, &n, NULL), PI_OK);
    assert_int_equal(n, strlen("ab ab\xC3\xA8\n ab"));
    assert_memory_equal(text, "ab ab\xC3\xA8\n ab", n);
    close_vocab(o);
}

static bool have_utf8proc(void) {
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    vocab_wordpiece(&bytes);
    assert_int_equal(gguf_open_memory(bytes.data, bytes.n, "probe", &file, NULL), PI_OK);
    pi_status status = tokenizer_create(file, NULL, &t, &err);
    if (status == PI_OK) tokenizer_free(t);
    if (status) assert_non_null(strstr(err.message, "utf8proc"));
    gguf_close(file);
    return status == PI_OK;
}

static void expect_text(const tokenizer *t, const int32_t *ids, size_t n_ids, const char *want) {
    char text[64];
    size_t n;
    assert_int_equal(tokenizer_decode(t, ids, n_ids, false, text, sizeof text, &n, NULL), PI_OK);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
}

static void wordpiece_by_hand(void **state) {
    (void)state;
    if (!have_utf8proc()) skip();
    opened o = open_vocab(NULL); /* vocab_wordpiece */
    EXPECT(o.t, "The unaffable", TOKENIZER_ADD_SPECIAL, 2, 4, 5, 6, 7, 3);
    EXPECT(o.t, "", TOKENIZER_ADD_SPECIAL, 2, 3);
    EXPECT(o.t, "", 0);
    EXPECT(o.t, "ta", TOKENIZER_FORCE_BOS, 2, 12, 13, 3);
    EXPECT(o.t, "caf\xC3\xA9 CAF\xC3\x89", 0, 8, 8);
    EXPECT(o.t, "cafe\xCC\x81", 0, 1); /* a combining accent stays, and has no token */
    EXPECT(o.t, "un!the't", 0, 5, 9, 4, 10, 12);
    EXPECT(o.t, "\xE6\xBC\xA2\xE6\xBC\xA2un", 0, 11, 11, 5);
    EXPECT(o.t, "unb unaff\xFFt", 0, 1, 1); /* the whole word is unknown */
    EXPECT(o.t,
           "t\xFF"
           "a t\x01"
           "a\xE2\x80\x8B",
           0, 12, 13, 12, 13); /* ill-formed and control characters vanish */
    EXPECT(o.t,
           "\xE2\x82\xAC"
           "5",
           0, 14, 15); /* symbols beyond ASCII do not end a word */
    EXPECT(o.t, "t\xE3\x80\x80t\xC2\xA0t", 0, 12, 12, 12);
    EXPECT(o.t, "[SEP]", TOKENIZER_PARSE_SPECIAL, 3);
    expect_text(o.t, (const int32_t[]){2, 4, 5, 6, 7, 9, 3}, 7, "the unaffable !");
    assert_int_equal(tokenizer_role(o.t, TOKEN_ROLE_SEP), 3);
    close_vocab(o);
    vocab_wordpiece(&bytes);
    vocab_bool(&bytes, "tokenizer.ggml.normalizer.lowercase", false);
    o = open_vocab(NULL);
    EXPECT(o.t, "The the", 0, 1, 4);
    close_vocab(o);
}

static void unigram_by_hand(void **state) {
    (void)state;
    vocab_unigram(&bytes);
    opened o = open_vocab(NULL);
    EXPECT(o.t, "ab", 0, 7, 5);     /* -4 - 2.5, not -3 - 4 */
    EXPECT(o.t, "aba", 0, 7, 5, 4); /* -8.5, not -10 */
    EXPECT(o.t, "a", TOKENIZER_ADD_SPECIAL, 0, 7, 1);
    EXPECT(o.t, "b a", TOKENIZER_FORCE_BOS, 0, 3, 5, 7, 1);
    EXPECT(o.t, "", TOKENIZER_ADD_SPECIAL, 0, 1);
    EXPECT(o.t, "  a \t b  ", 0, 7, 3, 5);
    EXPECT(o.t, "\xC3\xA9 1a1", 0, 7, 7, 2); /* "1" alone is not replaced, and has no token */
    EXPECT(o.t, "xyb", 0, 3, 2, 5);          /* unknown characters in a row */
    EXPECT(o.t, "b\xFF", 0, 3, 5, 2);
    EXPECT(o.t, "bbb", 0, 3, 5, 9); /* an unused token: -1, not -5 */
    EXPECT(o.t, "a[x]a", 0, 7, 10, 7);
    expect_text(o.t, (const int32_t[]){0, 7, 5, 7, 1}, 5, "ab a");
    close_vocab(o);
}

static void limits(void **state) {
    (void)state;
    vocab_spm(&bytes);
    opened o = open_vocab(NULL);
    int32_t ids[2] = {-7, -7};
    size_t n;
    char text[4] = "...";
    pi_error err = {0};
    assert_int_equal(tokenizer_encode(o.t, "cd", 2, 0, ids, 1, &n, &err), PI_ERR_LIMIT);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], F + 3);
    assert_int_equal(ids[1], -7);
    assert_int_equal(tokenizer_encode(o.t, NULL, 0, 0, NULL, 0, &n, &err), PI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(tokenizer_piece(o.t, F + 8, false, text, 2, &n, &err), PI_ERR_LIMIT);
    assert_int_equal(n, 3);
    assert_string_equal(text, "...");
    assert_int_equal(tokenizer_piece(o.t, F + 8, false, text, 3, &n, &err), PI_OK);
    assert_memory_equal(text, " ab", 3);
    assert_int_equal(tokenizer_piece(o.t, -1, false, text, 3, &n, &err), PI_ERR_RANGE);
    assert_int_equal(tokenizer_piece(o.t, 0x0A, false, text, 3, &n, &err), PI_OK);
    assert_true(n == 1 && text[0] == '\n');
    assert_int_equal(tokenizer_piece(o.t, F + 2, false, text, 3, &n, &err), PI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(tokenizer_piece(o.t, F + 2, true, text, 4, &n, &err), PI_OK);
    assert_int_equal(n, 4);
    const int32_t bad[] = {F + 8, 99999};
    assert_int_equal(tokenizer_decode(o.t, bad, 2, false, text, 4, &n, &err), PI_ERR_RANGE);
    assert_int_equal(tokenizer_decode(o.t, bad, 1, false, text, 1, &n, &err), PI_ERR_LIMIT);
    assert_int_equal(n, 2);
    close_vocab(o);
}

static size_t random_text(rng *r, char *text) {
    static const char *const parts[] = {" ",   "  ",   "\n",   "hello", "<think>", "[x]",
                                        "ab",  "é",    "\t",   "漢字",  "12345",   "don't",
                                        "...", "🙂", "\r\n", "<s>"};
    size_t n = 0;
    for (uint64_t left = rng_u64(r) % 30; left > 0; left--) {
        if (rng_u64(r) % 2) {
            const char *part = parts[rng_u64(r) % (sizeof parts / sizeof parts[0])];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        } else {
            uint32_t c = (uint32_t)(rng_u64(r) % (rng_u64(r) % 2 ? 0x80 : 0x110000));
            n += utf8_encode(c == 0x2581 ? 'x' : c, text + n);
        }
    }
    return n;
}

static void round_trip(const tokenizer *t, const char *text, size_t n, uint32_t flags) {
    int32_t ids[MAX_TEXT];
    char back[MAX_TEXT];
    size_t n_ids, n_back;
    assert_int_equal(tokenizer_encode(t, text, n, flags, ids, n + 8, &n_ids, NULL), PI_OK);
    assert_int_equal(tokenizer_decode(t, ids, n_ids, true, back, sizeof back, &n_back, NULL),
                     PI_OK);
    assert_int_equal(n_back, n);
    assert_memory_equal(back, text, n);
}

static void round_trips(void **state) {
    (void)state;
    static const char *const pres[] = {
        "llama-bpe", "deepseek-llm", "deepseek-v3",     "deepseek-coder", "falcon",     "starcoder",
        "refact",    "command-r",    "smollm",          "gpt-2",          "mpt",        "qwen2",
        "qwen35",    "tekken",       "gpt-4o",          "bailingmoe",     "seed-coder", "default",
        "llama3",    "llama-v3",     "deepseek-r1-qwen"};
    size_t n_pres = have_pcre2() ? sizeof pres / sizeof pres[0] : 0;
    rng r;
    rng_seed(&r, 7);
    for (size_t p = 0; p < n_pres + (size_t)n_kinds(); p++) {
        build_vocab(&bytes, p < n_pres ? KIND_BPE : (int)(p - n_pres));
        opened o = open_vocab(p < n_pres ? pres[p] : NULL);
        for (int i = 0; i < 200; i++) {
            char text[MAX_TEXT];
            size_t n = random_text(&r, text);
            round_trip(o.t, text, n, 0);
            round_trip(o.t, text, n, TOKENIZER_PARSE_SPECIAL);
        }
        close_vocab(o);
    }
}

/* Runs of one character as long as a document must neither exhaust the stack nor take long. */
static void long_runs(void **state) {
    (void)state;
    enum { LONG = 200000 };
    static const char *const pres[] = {"deepseek-llm", "tekken", "default"};
    char *text = mem_alloc(LONG);
    int32_t *ids = mem_alloc(sizeof *ids * (LONG * 3 + 8));
    assert_true(text && ids);
    size_t n_pres = have_pcre2() ? sizeof pres / sizeof pres[0] : 0;
    for (size_t p = 0; p < n_pres + (size_t)n_kinds(); p++) {
        build_vocab(&bytes, p < n_pres ? KIND_BPE : (int)(p - n_pres));
        opened o = open_vocab(p < n_pres ? pres[p] : NULL);
        for (const char *c = " a\nA1<\xFF"; *c; c++) {
            memset(text, *c, LONG);
            text[LONG - 1] = 'z';
            size_t n;
            assert_int_equal(tokenizer_encode(o.t, text, LONG, 0, ids, LONG * 3 + 8, &n, NULL),
                             PI_OK);
            assert_true(n > 0);
        }
        close_vocab(o);
    }
    mem_free(text);
    mem_free(ids);
}

static void refuse(pi_status want, const char *pre, const char *hint) {
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    assert_int_equal(gguf_open_memory(bytes.data, bytes.n, "hostile", &file, &err), PI_OK);
    assert_int_equal(tokenizer_create(file, pre, &t, &err), want);
    assert_null(t);
    if (!strstr(err.message, hint)) fail_msg("no \"%s\" in: %s", hint, err.message);
    gguf_close(file);
}

static void one_token_vocab(const char *model) {
    vocab_begin(&bytes);
    if (model) vocab_string(&bytes, "tokenizer.ggml.model", model);
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    vocab_text(&bytes, "a");
}

static void hostile_vocabularies(void **state) {
    (void)state;
    one_token_vocab(NULL);
    refuse(PI_ERR_NOT_FOUND, NULL, "no vocabulary");
    one_token_vocab("none");
    refuse(PI_ERR_NOT_FOUND, NULL, "no vocabulary");
    one_token_vocab("plamo2");
    refuse(PI_ERR_UNSUPPORTED, NULL, "plamo2");
    one_token_vocab("llama");
    vocab_u32(&bytes, "tokenizer.ggml.eos_token_id", 1);
    refuse(PI_ERR_FORMAT, NULL, "eos_token_id");
    one_token_vocab("llama");
    vocab_string(&bytes, "tokenizer.ggml.add_bos_token", "yes");
    refuse(PI_ERR_FORMAT, NULL, "add_bos_token");
    one_token_vocab("llama");
    vocab_array(&bytes, "tokenizer.ggml.scores", GGUF_F32, 2);
    vocab_u(&bytes, 0, 8);
    refuse(PI_ERR_FORMAT, NULL, "scores");
    one_token_vocab("llama");
    vocab_array(&bytes, "tokenizer.ggml.token_type", GGUF_STRING, 1);
    vocab_text(&bytes, "x");
    refuse(PI_ERR_FORMAT, NULL, "token_type");
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "llama");
    refuse(PI_ERR_FORMAT, NULL, "tokens");
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, 0);
    refuse(PI_ERR_FORMAT, NULL, "tokens");
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "gpt2");
    refuse(PI_ERR_UNSUPPORTED, "no-such-pre", "no-such-pre");
    refuse(PI_ERR_UNSUPPORTED, "no-such-pre", "seed-coder");
    if (!have_pcre2()) return;
    one_token_vocab("gpt2");
    refuse(PI_ERR_FORMAT, NULL, "merges");
}

/* A vocabulary that is absurd but valid: nothing crashes, text that no token can represent is
 * dropped, and ids that mean "none" are none. */
/* Tables of replacements whose sizes do not fit. */
static void hostile_charsmaps(void **state) {
    (void)state;
    static const char *const tables[] = {"\1", "\0\0\0\0", "\4\0\0\0zzzz", "\0\0\0\0z",
                                         "\xFF\xFF\xFF\x7Fz"};
    static const size_t sizes[] = {1, 4, 8, 5, 6};
    const vocab_token token = {"a", 1, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        vocab_begin(&bytes);
        vocab_string(&bytes, "tokenizer.ggml.model", "t5");
        vocab_list(&bytes, &token, 1);
        vocab_array(&bytes, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, sizes[i]);
        vocab_raw(&bytes, tables[i], sizes[i]);
        refuse(PI_ERR_FORMAT, NULL, "not a table of replacements");
    }
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "t5");
    vocab_list(&bytes, &token, 1);
    vocab_u32(&bytes, "tokenizer.ggml.precompiled_charsmap", 3);
    refuse(PI_ERR_FORMAT, NULL, "not an array of bytes");
}

static void odd_vocabulary(void **state) {
    (void)state;
    static const char *const texts[] = {"", "a", "a", "\xFF", "<0xZZ>", "<unk>"};
    vocab_begin(&bytes);
    vocab_string(&bytes, "tokenizer.ggml.model", "llama");
    vocab_array(&bytes, "tokenizer.ggml.tokens", GGUF_STRING, 6);
    for (size_t i = 0; i < 6; i++) vocab_text(&bytes, texts[i]);
    vocab_array(&bytes, "tokenizer.ggml.token_type", GGUF_I32, 6);
    const int types[] = {3, 1, 1, 1, 6, 99};
    for (size_t i = 0; i < 6; i++) vocab_u(&bytes, (uint64_t)types[i], 4);
    vocab_u32(&bytes, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    vocab_u32(&bytes, "tokenizer.ggml.unknown_token_id", 5);
    opened o = open_vocab(NULL);
    /* the last of two equal tokens is found; a byte without a byte token becomes the unknown
     * token */
    EXPECT(o.t, "a\xFF", TOKENIZER_ADD_SPECIAL, 5, 5, 5, 2, 3);
    assert_int_equal(tokenizer_get_info(o.t)->bos, -1);
    close_vocab(o);
}

static pi_status whole_life(bool faithful) {
    gguf_file *file;
    tokenizer *t;
    int32_t ids[64];
    char text[64];
    size_t n;
    pi_status status = gguf_open_memory(bytes.data, bytes.n, "handmade", &file, NULL);
    if (status) return status;
    status = tokenizer_create(file, NULL, &t, NULL);
    if (!status) {
        const char *said = "[x] hello <think> ab 12";
        status = tokenizer_encode(t, said, strlen(said), 0, ids, 64, &n, NULL);
        if (!status) status = tokenizer_decode(t, ids, n, true, text, sizeof text, &n, NULL);
        if (!status && faithful) assert_memory_equal(text, said, strlen(said));
        tokenizer_free(t);
    }
    gguf_close(file);
    return status;
}

static bool has_kind(int kind) {
    return kind == KIND_WORDPIECE ? have_utf8proc() : kind >= KIND_UNIGRAM || kind < n_kinds();
}

static void allocations_fail(void **state) {
    (void)state;
    for (int kind = 0; kind < N_ALL_KINDS; kind++) {
        if (!has_kind(kind)) continue;
        build_vocab(&bytes, kind);
        for (int64_t i = 1;; i++) {
            int64_t before = mem_count();
            mem_fail_at(i);
            pi_status status = whole_life(kind < N_KINDS);
            mem_fail_at(0);
            if (mem_count() - before < i) {
                assert_int_equal(status, PI_OK);
                assert_true(i > 5);
                break;
            }
            /* only the JIT compiler of patterns may fail silently (patterns are interpreted) */
            if (status != PI_ERR_NOMEM) assert_true(kind != KIND_SPM && status == PI_OK);
        }
    }
}

/* Random changes to bytes of valid vocabularies: errors are fine, crashes are not. */
static void damaged(void **state) {
    (void)state;
    static vocab_bytes good;
    rng r;
    rng_seed(&r, 11);
    int n_opened = 0;
    for (int i = 0; i < 5000; i++) {
        if (!has_kind(i % N_ALL_KINDS)) continue;
        build_vocab(&good, i % N_ALL_KINDS);
        for (uint64_t k = rng_u64(&r) % 4; k > 0; k--) {
            good.data[rng_u64(&r) % good.n] = (uint8_t)rng_u64(&r);
        }
        gguf_file *file;
        tokenizer *t;
        if (gguf_open_memory(good.data, good.n, "damaged", &file, NULL)) continue;
        if (tokenizer_create(file, NULL, &t, NULL) == PI_OK) {
            int32_t ids[256];
            size_t n;
            const char *text = "[x] hello <think>\xC3\xA9 ab whole\n\n";
            (void)tokenizer_encode(t, text, strlen(text), 7, ids, 256, &n, NULL);
            tokenizer_free(t);
            n_opened++;
        }
        gguf_close(file);
    }
    assert_true(n_opened > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_by_hand),       cmocka_unit_test(strip_right),
        cmocka_unit_test(bpe_by_hand),       cmocka_unit_test(limits),
        cmocka_unit_test(gemma4_by_hand),    cmocka_unit_test(round_trips),
        cmocka_unit_test(long_runs),         cmocka_unit_test(hostile_vocabularies),
        cmocka_unit_test(odd_vocabulary),    cmocka_unit_test(allocations_fail),
        cmocka_unit_test(damaged),           cmocka_unit_test(more_ids_than_bytes),
        cmocka_unit_test(wordpiece_by_hand), cmocka_unit_test(unigram_by_hand),
        cmocka_unit_test(hostile_charsmaps), cmocka_unit_test(longest_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
