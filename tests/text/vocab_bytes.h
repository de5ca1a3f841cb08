/* vocab_bytes.h: builds a GGUF file in memory that has only keys: valid and invalid handmade
 * vocabularies. The caller keeps the buffer while the file is open. */
#ifndef TEST_VOCAB_BYTES_H
#define TEST_VOCAB_BYTES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gguf.h"

enum { VOCAB_BYTES_MAX = 1 << 16, VOCAB_N_KEYS_OFFSET = 16 };

typedef struct vocab_bytes {
    uint8_t data[VOCAB_BYTES_MAX];
    size_t n;
} vocab_bytes;

static inline void vocab_raw(vocab_bytes *b, const void *p, size_t n) {
    assert(n <= VOCAB_BYTES_MAX - b->n);
    if (n) memcpy(b->data + b->n, p, n);
    b->n += n;
}

static inline void vocab_u(vocab_bytes *b, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)(v >> (8 * i));
        vocab_raw(b, &byte, 1);
    }
}

static inline void vocab_text(vocab_bytes *b, const char *s) {
    vocab_u(b, strlen(s), 8);
    vocab_raw(b, s, strlen(s));
}

static inline void vocab_begin(vocab_bytes *b) {
    b->n = 0;
    vocab_raw(b, "GGUF", 4);
    vocab_u(b, 3, 4);
    vocab_u(b, 0, 8); /* tensors */
    vocab_u(b, 0, 8); /* keys, counted by vocab_key */
}

static inline void vocab_key(vocab_bytes *b, const char *key, gguf_value_type type) {
    b->data[VOCAB_N_KEYS_OFFSET]++;
    vocab_text(b, key);
    vocab_u(b, type, 4);
}

static inline void vocab_array(vocab_bytes *b, const char *key, gguf_value_type item,
                               size_t count) {
    vocab_key(b, key, GGUF_ARRAY);
    vocab_u(b, item, 4);
    vocab_u(b, count, 8);
}

static inline void vocab_string(vocab_bytes *b, const char *key, const char *value) {
    vocab_key(b, key, GGUF_STRING);
    vocab_text(b, value);
}

static inline void vocab_u32(vocab_bytes *b, const char *key, uint32_t value) {
    vocab_key(b, key, GGUF_U32);
    vocab_u(b, value, 4);
}

static inline void vocab_bool(vocab_bytes *b, const char *key, bool value) {
    vocab_key(b, key, GGUF_BOOL);
    vocab_u(b, value, 1);
}

static inline void vocab_f32(vocab_bytes *b, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    vocab_u(b, bits, 4);
}

/* A token of a handmade vocabulary: text, type and score. */
typedef struct vocab_token {
    const char *text;
    int type;
    float score;
} vocab_token;

/* The three arrays: 256 byte tokens (with texts from `byte_text`), then the given tokens. */
static inline void vocab_tokens(vocab_bytes *b, void (*byte_text)(unsigned c, char *out),
                                int byte_type, const vocab_token *tokens, size_t n) {
    vocab_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 256 + n);
    for (unsigned c = 0; c < 256; c++) {
        char text[16];
        byte_text(c, text);
        vocab_text(b, text);
    }
    for (size_t i = 0; i < n; i++) vocab_text(b, tokens[i].text);
    vocab_array(b, "tokenizer.ggml.token_type", GGUF_I32, 256 + n);
    for (size_t i = 0; i < 256 + n; i++) {
        vocab_u(b, (uint64_t)(i < 256 ? byte_type : tokens[i - 256].type), 4);
    }
    vocab_array(b, "tokenizer.ggml.scores", GGUF_F32, 256 + n);
    for (size_t i = 0; i < 256 + n; i++) vocab_f32(b, i < 256 ? 0 : tokens[i - 256].score);
}

static inline void vocab_hex_byte(unsigned c, char *out) {
    const char *digits = "0123456789ABCDEF";
    memcpy(out, "<0x", 3);
    out[3] = digits[c >> 4];
    out[4] = digits[c & 15];
    memcpy(out + 5, ">", 2);
}

/* The printable character for a byte in byte-level vocabularies. */
static inline void vocab_plain_byte(unsigned c, char *out) {
    unsigned next = 0x100, code = c;
    for (unsigned i = 0; i <= c; i++) {
        bool plain = (i >= '!' && i <= '~') || (i >= 0xA1 && i != 0xAD);
        code = plain ? i : next++;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        out[1] = 0;
    } else {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        out[2] = 0;
    }
}

/* Ids of the handmade vocabularies below. */
enum { VOCAB_FIRST = 256 };

/* A complete SentencePiece vocabulary. */
static inline void vocab_spm(vocab_bytes *b) {
    static const vocab_token tokens[] = {
        {"<unk>", 2, 0},
        {"<s>", 3, 0},
        {"</s>", 3, 0},
        {"\xE2\x96\x81", 1, -5},
        {"a", 1, -10},
        {"b", 1, -10},
        {"ab", 1, -2},
        {"ba", 1, -1},
        {"\xE2\x96\x81"
         "ab",
         1, -3},
        {"[x]", 4, 0},
        {"<|im_end|>", 4, 0},
        {"\xC3\xA9", 1, -10},
    };
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "llama");
    vocab_tokens(b, vocab_hex_byte, 6, tokens, sizeof tokens / sizeof tokens[0]);
    vocab_u32(b, "tokenizer.ggml.bos_token_id", VOCAB_FIRST + 1);
    vocab_u32(b, "tokenizer.ggml.eos_token_id", VOCAB_FIRST + 2);
    vocab_u32(b, "tokenizer.ggml.unknown_token_id", VOCAB_FIRST);
}

/* A complete WordPiece vocabulary; U+2581 begins words. No byte tokens. */
#define VOCAB_WORD "\xE2\x96\x81"
static inline void vocab_list(vocab_bytes *b, const vocab_token *tokens, size_t n) {
    vocab_array(b, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) vocab_text(b, tokens[i].text);
    vocab_array(b, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++) vocab_u(b, (uint64_t)tokens[i].type, 4);
    vocab_array(b, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++) vocab_f32(b, tokens[i].score);
}
static inline void vocab_wordpiece(vocab_bytes *b) {
    static const vocab_token tokens[] = {
        {"[PAD]", 3, 0},
        {"[UNK]", 2, 0},
        {"[CLS]", 3, 0},
        {"[SEP]", 3, 0},
        {VOCAB_WORD "the", 1, 0},
        {VOCAB_WORD "un", 1, 0},
        {"aff", 1, 0},
        {"able", 1, 0},
        {VOCAB_WORD "cafe", 1, 0},
        {VOCAB_WORD "!", 1, 0},
        {VOCAB_WORD "'", 1, 0},
        {VOCAB_WORD "\xE6\xBC\xA2", 1, 0},
        {VOCAB_WORD "t", 1, 0},
        {"a", 1, 0},
        {VOCAB_WORD "\xE2\x82\xAC", 1, 0},
        {"5", 1, 0},
    };
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "bert");
    vocab_list(b, tokens, sizeof tokens / sizeof tokens[0]);
    vocab_u32(b, "tokenizer.ggml.cls_token_id", 2);
    vocab_u32(b, "tokenizer.ggml.seperator_token_id", 3);
    vocab_u32(b, "tokenizer.ggml.unknown_token_id", 1);
    vocab_u32(b, "tokenizer.ggml.padding_token_id", 0);
}

/* A complete vocabulary of longest matches; é, and single bytes of other texts, are no tokens. */
static inline void vocab_longest(vocab_bytes *b) {
    static const vocab_token tokens[] = {
        {"<s>", 3, 0},        {"a", 1, 0},     {"b", 1, 0},     {"ab", 1, 0},
        {"abab", 1, 0},       {"\\xc3", 1, 0}, {" ", 1, 0},     {"\\n", 1, 0},
        {"\\n\\n", 1, 0},     {"\\\\", 1, 0},  {"\\'", 1, 0},   {"\\t", 1, 0},
        {"\\xe4\\xBD", 1, 0}, {"[x]", 4, 0},   {"[PAD]", 5, 0}, {"x", 1, 0},
    };
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "rwkv");
    vocab_list(b, tokens, sizeof tokens / sizeof tokens[0]);
}

/* A complete unigram vocabulary, whose table replaces U+00E9 and "1a" by "a", and a tab by a
 * space. */
static inline void vocab_unigram(vocab_bytes *b) {
    static const vocab_token tokens[] = {
        {"<s>", 3, 0},
        {"</s>", 3, 0},
        {"<unk>", 2, 0},
        {VOCAB_WORD, 1, -3},
        {"a", 1, -2},
        {"b", 1, -2.5f},
        {"ab", 1, -4},
        {VOCAB_WORD "a", 1, -4},
        {VOCAB_WORD "aba", 1, -10},
        {"bb", 5, -1},
        {"[x]", 4, 0},
    };
    /* node i: its byte, 1 << 8 where a match ends, the base's XOR with i << 10 */
    enum { ROOT = 256, N_NODES = 768, MATCH = 1 << 8, LEAF = 31 };
    uint32_t nodes[N_NODES] = {ROOT << 10};
    const uint32_t first = ROOT ^ 0xC3, second = 0x200 ^ 0xA9, one = ROOT ^ '1',
                   one_a = 0x200 ^ 'a', tab = ROOT ^ '\t';
    nodes[first] = 0xC3 | (first ^ 0x200) << 10;
    nodes[one] = '1' | (one ^ 0x200) << 10;
    nodes[second] = 0xA9 | MATCH | (second ^ 0x120) << 10;
    nodes[one_a] = 'a' | MATCH | (one_a ^ 0x120) << 10;
    nodes[0x120] = 1u << LEAF | 0; /* "a" */
    nodes[tab] = '\t' | MATCH | (tab ^ 0x121) << 10;
    nodes[0x121] = 1u << LEAF | 2; /* " " */
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "t5");
    vocab_list(b, tokens, sizeof tokens / sizeof tokens[0]);
    vocab_array(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 4 + sizeof nodes + 4);
    vocab_u(b, sizeof nodes, 4);
    for (int i = 0; i < N_NODES; i++) vocab_u(b, nodes[i], 4);
    vocab_raw(b, "a\0 ", 4);
    vocab_u32(b, "tokenizer.ggml.bos_token_id", 0);
    vocab_u32(b, "tokenizer.ggml.eos_token_id", 1);
    vocab_u32(b, "tokenizer.ggml.unknown_token_id", 2);
    vocab_bool(b, "tokenizer.ggml.add_bos_token", true);
    vocab_bool(b, "tokenizer.ggml.add_space_prefix", true);
    vocab_bool(b, "tokenizer.ggml.remove_extra_whitespaces", true);
}

/* A complete byte-level vocabulary. `pre` may be NULL. */
static inline void vocab_bpe(vocab_bytes *b, const char *pre) {
    static const vocab_token tokens[] = {
        {"he", 1, 0},
        {"ll", 1, 0},
        {"hell", 1, 0},
        {"hello", 1, 0},
        {"\xC4\xA0h", 1, 0},
        {"whole", 1, 0},
        {"<|endoftext|>", 3, 0},
        {"<think>", 4, 0},
        {"<think><think>", 4, 0},
        {"<|im_end|>", 4, 0},
    };
    static const char *const merges[] = {"h e",        "l l", "he ll",   "hell o",
                                         "\xC4\xA0 h", "x y", "nospace", "trailing "};
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "gpt2");
    if (pre) vocab_string(b, "tokenizer.ggml.pre", pre);
    vocab_tokens(b, vocab_plain_byte, 1, tokens, sizeof tokens / sizeof tokens[0]);
    vocab_array(b, "tokenizer.ggml.merges", GGUF_STRING, sizeof merges / sizeof merges[0]);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) vocab_text(b, merges[i]);
    vocab_u32(b, "tokenizer.ggml.bos_token_id", VOCAB_FIRST + 6);
    vocab_u32(b, "tokenizer.ggml.eos_token_id", VOCAB_FIRST + 6);
}

/* A complete vocabulary of plain text with merges, like Gemma 4's. */
static inline void vocab_gemma4(vocab_bytes *b) {
    static const vocab_token tokens[] = {
        {"<pad>", 3, 0},
        {"<eos>", 3, 0},
        {"<bos>", 3, 0},
        {"<turn|>", 3, 0},
        {"\xE2\x96\x81", 1, 0},
        {"a", 1, 0},
        {"b", 1, 0},
        {"ab", 1, 0},
        {"\xE2\x96\x81"
         "ab",
         1, 0},
        {"ab\xE2\x96\x81"
         "ab",
         1, 0},
        {"\n", 1, 0},
        {"\n\n", 1, 0},
        {"\xC3\xA9", 1, 0},
        {"</s>", 1, 0}, /* an HTML tag */
    };
    static const char *const merges[] = {"a b", "\xE2\x96\x81 ab",
                                         "ab \xE2\x96\x81"
                                         "ab"};
    vocab_begin(b);
    vocab_string(b, "tokenizer.ggml.model", "gemma4");
    vocab_tokens(b, vocab_hex_byte, 6, tokens, sizeof tokens / sizeof tokens[0]);
    vocab_array(b, "tokenizer.ggml.merges", GGUF_STRING, sizeof merges / sizeof merges[0]);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) vocab_text(b, merges[i]);
    vocab_u32(b, "tokenizer.ggml.bos_token_id", VOCAB_FIRST + 2);
    vocab_u32(b, "tokenizer.ggml.eos_token_id", VOCAB_FIRST + 1);
    vocab_bool(b, "tokenizer.ggml.add_bos_token", true);
}

#endif
