/* fuzz_vocab.c: encodes and decodes a text with any vocabulary. fuzz_tokenizer changes the bytes of
 * a file and mostly makes it invalid; here the input describes keys and arrays, from which the
 * target always builds a valid file, so that every change reaches the tokenizer.
 *
 * An input is read front to back, a byte at a time; missing bytes are 0:
 *   options | pre-tokenizer | BOS, EOS, unknown, padding ids | tokens | merges | text
 * Tokens: a count, then the length, text, type and score of each. Merges: a count, then for each
 * two token numbers, or a length and a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../text/vocab_bytes.h"
#include "fuzz_target.h"
#include "pretokenizer.h"
#include "tokenizer.h"
#include "utf8.h"

enum {
    MAX_TOKENS = 64, /* in addition to the 256 bytes */
    MAX_MERGES = 64,
    TEXT_ROOM = 25, /* bytes of a token's text, NUL included */
    MAX_TEXT = 512,
    MAX_TABLE = 4096,
    MAX_IDS = 8192,
    N_TYPES = 8 /* one more than exist */
};

/* Option bits: the first byte. */
enum {
    BPE = 1,
    NO_TYPES = 2,
    NO_SCORES = 4,
    NO_BYTES = 8,
    ADD_BOS = 16,
    ADD_EOS = 32,
    NO_PREFIX = 64,
    ENCODER = 128 /* unigram, with BPE: WordPiece; no byte tokens */
};

typedef struct input {
    const uint8_t *data;
    size_t n, at;
} input;

typedef struct vocabulary {
    int options, pre, ids[4];
    vocab_token tokens[MAX_TOKENS + 1];
    char texts[MAX_TOKENS + 1][TEXT_ROOM];
    size_t n_tokens;
    char merges[MAX_MERGES][2 * TEXT_ROOM];
    size_t n_merges;
    const uint8_t *table; /* unigram: [n_table] */
    size_t n_table;
    bool faithful; /* decoding must return the encoded text */
} vocabulary;

static int take(input *in) {
    return in->at < in->n ? in->data[in->at++] : 0;
}

/* Reads a C string: NUL bytes become 1, which no vocabulary treats specially. */
static void take_text(input *in, char *text, size_t room) {
    size_t n = (size_t)take(in) % room;
    for (size_t i = 0; i < n; i++) {
        int c = take(in);
        text[i] = (char)(c ? c : 1);
    }
    text[n] = 0;
}

/* False for texts that decoding may change: texts of special tokens by convention, texts that look
 * like byte tokens, and the replacement of a space. */
static bool is_plain_token(const vocab_token *t) {
    if (t->type != TOKEN_NORMAL && t->type != TOKEN_USER_DEFINED) return false;
    if (strpbrk(t->text, "<>[]|_")) return false;
    for (const char *c = t->text; t->type == TOKEN_USER_DEFINED && *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return true;
}

static bool has_token(const vocabulary *v, const char *left, const char *right) {
    char joined[2 * TEXT_ROOM];
    snprintf(joined, sizeof joined, "%s%s", left, right);
    for (size_t i = 0; i < v->n_tokens; i++)
        if (strcmp(v->texts[i], joined) == 0) return true;
    return false;
}

static const pretokenizer_row *row_of(const vocabulary *v) {
    return &pretokenizer_rows[(size_t)v->pre % pretokenizer_n_rows];
}

/* True if token texts are plain text with U+2581 for a space. */
static bool is_plain(const vocabulary *v) {
    return v->options & ENCODER || !(v->options & BPE) || (v->pre && row_of(v)->flags & PRE_RAW);
}

static void read_tokens(vocabulary *v, input *in) {
    size_t n = (size_t)take(in) % (MAX_TOKENS + 1);
    if (is_plain(v)) {
        memcpy(v->texts[0], "\xE2\x96\x81", sizeof "\xE2\x96\x81");
        v->tokens[v->n_tokens++] = (vocab_token){v->texts[0], TOKEN_NORMAL, -1};
    }
    for (size_t i = 0; i < n && in->at < in->n && v->n_tokens < MAX_TOKENS; i++) {
        char *text = v->texts[v->n_tokens];
        take_text(in, text, TEXT_ROOM);
        int type = take(in) % N_TYPES;
        v->tokens[v->n_tokens] = (vocab_token){text, type, (float)(take(in) - 128)};
        v->faithful = v->faithful && is_plain_token(&v->tokens[v->n_tokens]);
        v->n_tokens++;
    }
}

static void read_merges(vocabulary *v, input *in) {
    size_t n = (size_t)take(in) % (MAX_MERGES + 1);
    for (; v->n_merges < n && in->at < in->n; v->n_merges++) {
        char *line = v->merges[v->n_merges];
        if (take(in) % 2 || v->n_tokens == 0) {
            take_text(in, line, TEXT_ROOM);
            v->faithful = false;
            continue;
        }
        const char *left = v->texts[(size_t)take(in) % v->n_tokens];
        const char *right = v->texts[(size_t)take(in) % v->n_tokens];
        char both[2 * TEXT_ROOM];
        snprintf(both, sizeof both, "%s %s", left, right);
        memcpy(line, both, sizeof both);
        v->faithful = v->faithful && !strchr(left, ' ') && has_token(v, left, right);
    }
}

static void read_vocabulary(vocabulary *v, input *in) {
    *v = (vocabulary){.options = take(in), .pre = take(in)};
    if (v->options & ENCODER) v->options |= NO_BYTES;
    v->faithful = !(v->options & (NO_BYTES | NO_TYPES));
    for (int i = 0; i < 4; i++) v->ids[i] = take(in);
    read_tokens(v, in);
    read_merges(v, in);
    v->table = in->data + in->at;
    v->n_table = in->n - in->at < MAX_TABLE ? in->n - in->at : MAX_TABLE;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_arrays(vocab_bytes *b, const vocabulary *v) {
    size_t n = v->n_tokens;
    vocab_array(b, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) vocab_text(b, v->texts[i]);
    if (!(v->options & NO_TYPES)) {
        vocab_array(b, "tokenizer.ggml.token_type", GGUF_I32, n);
        for (size_t i = 0; i < n; i++) vocab_u(b, (uint64_t)v->tokens[i].type, 4);
    }
    if (v->options & NO_SCORES) return;
    vocab_array(b, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++) vocab_f32(b, v->tokens[i].score);
}

/* Writes the ids. 0: no key; 1: the id for none; otherwise counted from the end of the byte
 * tokens. */
static void put_ids(vocab_bytes *b, const vocabulary *v) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id",
                                       "tokenizer.ggml.padding_token_id"};
    uint32_t first = v->options & NO_BYTES ? 0 : 256;
    for (int i = 0; i < 4; i++) {
        if (v->ids[i] == 0) continue;
        vocab_u32(b, keys[i], v->ids[i] == 1 ? UINT32_MAX : first + (uint32_t)v->ids[i] - 2);
    }
}

static void build(vocab_bytes *b, const vocabulary *v) {
    bool bpe = v->options & BPE;
    bool encoder = v->options & ENCODER;
    const char *const kinds[] = {"llama", "gpt2", "t5", "bert"};
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", kinds[bpe + 2 * encoder]);
    if (bpe && !encoder && v->pre) vocab_string(b, "tokenizer.ggml.pre", row_of(v)->name);
    if (v->options & NO_BYTES)
        put_arrays(b, v);
    else if (!is_plain(v))
        vocab_tokens(b, vocab_plain_byte, TOKEN_NORMAL, v->tokens, v->n_tokens);
    else
        vocab_tokens(b, vocab_hex_byte, TOKEN_BYTE, v->tokens, v->n_tokens);
    put_ids(b, v);
    if (v->options & ADD_BOS) vocab_bool(b, "tokenizer.ggml.add_bos_token", true);
    if (v->options & ADD_EOS) vocab_bool(b, "tokenizer.ggml.add_eos_token", true);
    if (v->options & NO_PREFIX) vocab_bool(b, "tokenizer.ggml.add_space_prefix", false);
    if (encoder && !bpe) { /* any bytes as the table of replacements */
        vocab_bool(b, "tokenizer.ggml.remove_extra_whitespaces", v->options & ADD_BOS);
        vocab_array(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 4 + v->n_table);
        vocab_u(b, v->n_table ? (v->n_table - 1) / 4 * 4 : 0, 4);
        vocab_raw(b, v->table, v->n_table);
    }
    if (!bpe || encoder) return;
    vocab_array(b, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++) vocab_text(b, v->merges[i]);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void check_decoding(const tokenizer *t, const int32_t *ids, size_t n_ids, char *back,
                           size_t room, size_t *n_back) {
    pi_error err = {0};
    size_t again;
    if (tokenizer_decode(t, ids, n_ids, true, back, room, n_back, &err) != PI_OK) abort();
    pi_status status = tokenizer_decode(t, ids, n_ids, true, NULL, 0, &again, &err);
    if (again != *n_back || status != (again ? PI_ERR_LIMIT : PI_OK)) abort();
}

static void try_text(const tokenizer *t, const vocabulary *v, const char *text, size_t n) {
    static int32_t ids[MAX_IDS];
    static char back[MAX_IDS * TEXT_ROOM];
    int32_t n_vocab = tokenizer_get_info(t)->n_vocab;
    pi_error err = {0};
    for (uint32_t flags = 0; flags < 8; flags++) {
        size_t n_ids, n_counted, n_back;
        if (tokenizer_encode(t, text, n, flags, ids, MAX_IDS, &n_ids, &err) != PI_OK) abort();
        tokenizer_encode(t, text, n, flags, NULL, 0, &n_counted, &err);
        if (n_counted != n_ids) abort();
        for (size_t i = 0; i < n_ids; i++)
            if (ids[i] < 0 || ids[i] >= n_vocab) abort();
        check_decoding(t, ids, n_ids, back, sizeof back, &n_back);
        bool same = n_back == n && memcmp(back, text, n) == 0;
        if (flags == 0 && v->faithful && !same) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static vocabulary v;
    static vocab_bytes bytes;
    input in = {data, n, 0};
    read_vocabulary(&v, &in);
    build(&bytes, &v);
    gguf_file *file;
    tokenizer *t;
    pi_error err = {0};
    if (gguf_open_memory(bytes.data, bytes.n, "fuzz", &file, &err) != PI_OK) abort();
    if (tokenizer_create(file, NULL, &t, &err) == PI_OK) {
        const char *text = (const char *)data + in.at;
        size_t n_text = n - in.at < MAX_TEXT ? n - in.at : MAX_TEXT;
        /* U+2581 decodes to a space, ill-formed text to U+FFFD. */
        bool has_escape = memmem(text, n_text, "\xE2\x96\x81", 3) != NULL;
        v.faithful = v.faithful && utf8_is_valid(text, n_text) && !has_escape;
        try_text(t, &v, text, n_text);
        tokenizer_free(t);
    } else if (err.message[0] == '\0') {
        abort(); /* every error has a message */
    }
    gguf_close(file);
    return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    /* a, b, ab, ba and "[x]"; then merges a+b, b+a; then a text */
#define TOKENS                                                                                     \
    "\5\1a\1\x70\1b\1\x70\2ab\1\x7e\2ba\1\x7f\3"                                                   \
    "xyz\4\x80"
#define MERGES "\2\0\0\1\0\1\0"
    static const struct {
        const char *bytes;
        size_t n;
    } seeds[] = {
#define SEED(text) {text, sizeof text - 1}
        SEED("\0\0\0\0\0\0" TOKENS "\0"
             "abba xyz \xC3\xA9 <s> ab\n"),
        SEED("\x70\0\2\3\4\1" TOKENS "\0"
             "  ab xyzab"),
        SEED("\1\1\0\0\0\0" TOKENS MERGES "abba xyz's 1234 \xC3\xA9\n\n ab"),
        SEED("\1\5\2\3\0\0" TOKENS MERGES "Hello abba, \xE4\xB8\x80\xE4\xB8\x81 x"),
        SEED("\1\x53\0\0\0\0" TOKENS MERGES "abba  xyz\n\n \xC3\xA9\xE4\xB8\x80 x"), /* gemma4 */
        SEED("\x39\0\2\3\4\1" TOKENS MERGES "abba"),
        SEED("\x80\0\2\3\4\1" TOKENS "\0"
             "  ab xyzab \xFF"),
        SEED("\x81\0\2\3\4\1" TOKENS "\0"
             "Abba, b\xC3\xA9 ab"),
        SEED("\x0e\0\2\3\4\1" TOKENS "\0"
             "abba"),
#undef SEED
    };
    if (i >= sizeof seeds / sizeof *seeds || seeds[i].n > max) return 0;
    memcpy(data, seeds[i].bytes, seeds[i].n);
    return seeds[i].n;
}
