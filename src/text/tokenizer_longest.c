/* tokenizer_longest.c: RWKV's vocabularies. The text is divided from left to right into the longest
 * tokens that match. The file writes the bytes of a token as Python does: \t, \n, \r, \xHH, and a
 * backslash before other characters. */
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

static int hex_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Writes the bytes of an escaped text, at most as many as it has; returns their number. */
static size_t unescape(gguf_string text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        char c = text.data[i];
        if (c == '\\' && i + 1 < text.n_bytes) {
            c = text.data[++i];
            c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            int high = i + 2 < text.n_bytes ? hex_value(text.data[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text.data[i + 2]) : -1;
            if (text.data[i] == 'x' && low >= 0) {
                c = (char)(high << 4 | low);
                i += 2;
            }
        }
        out[n++] = c;
    }
    return n;
}

pi_status tokenizer_longest_unescape(tokenizer *t, pi_error *err) {
    size_t n_bytes = 0;
    for (int32_t i = 0; i < t->info.n_vocab; i++) n_bytes += (size_t)t->tokens[i].text.n_bytes;
    char *at = arena_alloc(&t->memory, n_bytes + 1);
    if (!at) return error_nomem(err, n_bytes, "vocabulary");
    for (int32_t i = 0; i < t->info.n_vocab; i++) {
        gguf_string *text = &t->tokens[i].text;
        size_t n = unescape(*text, at);
        *text = (gguf_string){at, n};
        at += n;
    }
    return PI_OK;
}

pi_status tokenizer_longest_load(tokenizer *t, pi_error *err) {
    for (int32_t i = 0; i < t->info.n_vocab; i++) {
        const token_entry *token = &t->tokens[i];
        if (token->type == TOKEN_NORMAL && token->text.n_bytes == 1)
            t->byte_token[(unsigned char)token->text.data[0]] = i;
    }
    return tokenizer_prefixes_build(t, 1u << TOKEN_NORMAL, err);
}

void tokenizer_longest_encode(const tokenizer *t, const char *text, size_t n_bytes,
                              token_sink *sink) {
    for (size_t i = 0, next; i < n_bytes && !token_sink_done(sink); i = next) {
        prefix_walk w = tokenizer_prefix_begin(t);
        int32_t id, longest = t->info.unk;
        next = i + 1;
        for (size_t end = i; end < n_bytes && tokenizer_prefix_next(t, &w, text[end], &id); end++) {
            if (id < 0) continue;
            longest = id;
            next = end + 1;
        }
        if (longest >= 0) token_sink_put(sink, longest);
    }
}
