/* tokenizer_plain.c: shared by vocabularies with plain UTF-8 token texts: U+2581 for a space, and
 * tokens such as "<0x0A>" for bytes without a token. */
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

pi_status tokenizer_escape_spaces(const char *text, size_t n_bytes, bool space_prefix,
                                  encode_work *work, size_t *n_escaped, pi_error *err) {
    const size_t max_bytes = (size_t)INT32_MAX / (SPM_SPACE_BYTES + 1);
    if (n_bytes > max_bytes) {
        return error_set(err, PI_ERR_LIMIT,
                         "text of %zu bytes is too long to tokenize: at most %zu", n_bytes,
                         max_bytes);
    }
    size_t n_spaces = space_prefix;
    for (size_t i = 0; i < n_bytes; i++) n_spaces += text[i] == ' ';
    size_t total = n_bytes + n_spaces * SPM_SPACE_BYTES + 1;
    if (!mem_grow((void **)&work->buffer, &work->buffer_capacity, total, 1, SIZE_MAX / 2)) {
        return error_nomem(err, total, "text to be tokenized");
    }
    char *out = work->buffer;
    if (space_prefix) {
        memcpy(out, SPM_SPACE, SPM_SPACE_BYTES);
        out += SPM_SPACE_BYTES;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == ' ') {
            memcpy(out, SPM_SPACE, SPM_SPACE_BYTES);
            out += SPM_SPACE_BYTES;
        } else {
            *out++ = text[i];
        }
    }
    *n_escaped = (size_t)(out - work->buffer);
    return PI_OK;
}

size_t tokenizer_unescape_spaces(gguf_string text, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < text.n_bytes;) {
        if (text.n_bytes - i >= SPM_SPACE_BYTES &&
            memcmp(text.data + i, SPM_SPACE, SPM_SPACE_BYTES) == 0) {
            out[used++] = ' ';
            i += SPM_SPACE_BYTES;
        } else {
            out[used++] = text.data[i++];
        }
    }
    return used;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tokenizer_byte_of(gguf_string text) {
    if (text.n_bytes != strlen("<0x0A>") || memcmp(text.data, "<0x", 3) != 0) return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

void tokenizer_find_byte_tokens(tokenizer *t) {
    for (int c = 0; c < TOKENIZER_BYTES; c++) {
        char text[8];
        int n = snprintf(text, sizeof text, "<0x%02X>", (unsigned)c);
        t->byte_token[c] = tokenizer_find(t, text, (size_t)n);
    }
}
