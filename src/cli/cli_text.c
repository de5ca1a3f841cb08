/* cli_text.c: bytes in, bytes out. Nothing here assumes that bytes are well-formed UTF-8. */
#include "cli_text.h"

#include <string.h>

#include "hex_digit.h"
#include "mem.h"
#include "printable.h"

void text_free(text_buffer *t) {
    mem_free(t->data);
    *t = (text_buffer){.data = NULL};
}

pi_status text_list_create(text_list *l, const char *const *values, int n, bool escapes,
                           pi_error *err) {
    *l = (text_list){.items = mem_calloc((size_t)n, sizeof *l->items)};
    if (!l->items) return error_nomem(err, (size_t)n * sizeof *l->items, "list of texts");
    for (; l->n < n; l->n++) {
        size_t length = strlen(values[l->n]);
        text_buffer *t = &l->items[l->n];
        t->data = mem_strndup(values[l->n], length);
        if (!t->data) {
            text_list_free(l);
            return error_nomem(err, length, "list of texts");
        }
        t->used = escapes ? text_unescape(t->data, length) : length;
        t->capacity = length + 1;
        t->data[t->used] = 0;
    }
    return PI_OK;
}

void text_list_free(text_list *l) {
    for (int i = 0; i < l->n; i++) text_free(&l->items[i]);
    mem_free(l->items);
    *l = (text_list){.n = 0};
}

/* The byte of the escape `\c`; -1: not an escape. */
static int short_escape(char c) {
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case '\'':
    case '"':
    case '\\':
        return c;
    default:
        return -1;
    }
}

size_t text_unescape(char *s, size_t n_bytes) {
    size_t out = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (s[i] == '\\' && i + 1 < n_bytes) {
            int byte = short_escape(s[i + 1]);
            if (byte >= 0) {
                s[out++] = (char)byte;
                i++;
                continue;
            }
            const int64_t hex = s[i + 1] == 'x' ? hex_number(s + i + 2, s + n_bytes, 2) : -1;
            if (hex >= 0) {
                s[out++] = (char)hex;
                i += 3;
                continue;
            }
        }
        s[out++] = s[i];
    }
    return out;
}

void text_print_escaped(FILE *out, const char *s, size_t n_bytes) {
    size_t from = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (s[i] != '\'' && s[i] != '\\') continue;
        printable_print(out, s + from, i - from);
        fputc('\\', out);
        from = i;
    }
    printable_print(out, s + from, n_bytes - from);
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Parses one word. False: not an integer of at most 10 digits. */
static bool parse_id(const char *word, size_t n, int64_t *out) {
    int64_t value = 0;
    size_t i = n > 1 && word[0] == '-' ? 1 : 0;
    if (n - i > 10) return false; /* ids have at most 10 digits */
    for (size_t d = i; d < n; d++) {
        if (word[d] < '0' || word[d] > '9') return false;
        value = value * 10 + (word[d] - '0');
    }
    *out = i ? -value : value;
    return true;
}

pi_status text_parse_ids(const char *text, size_t n_text, const char *where, int32_t n_vocab,
                         int32_t **tokens, size_t *n_tokens, pi_error *err) {
    int32_t *ids = NULL;
    size_t capacity = 0, n = 0, line = 1;
    pi_status status = PI_OK;
    *tokens = NULL;
    *n_tokens = 0;
    for (size_t i = 0; i < n_text && status == PI_OK;) {
        if (is_space(text[i])) {
            line += text[i++] == '\n';
            continue;
        }
        size_t end = i;
        while (end < n_text && !is_space(text[end])) end++;
        int64_t id = 0;
        int shown = end - i < 40 ? (int)(end - i) : 40;
        if (!parse_id(text + i, end - i, &id)) {
            status = error_set(err, PI_ERR_FORMAT,
                               "\"%.*s\" is not a token id: %s, line %zu: give whole numbers "
                               "separated by white space",
                               shown, text + i, where, line);
        } else if (id < 0 || id >= n_vocab) {
            status = error_set(err, PI_ERR_RANGE,
                               "token id %.*s is outside the vocabulary: %s, line %zu: this model "
                               "has ids 0 to %d",
                               shown, text + i, where, line, (int)n_vocab - 1);
        } else if (!mem_grow((void **)&ids, &capacity, n + 1, sizeof *ids, INT32_MAX)) {
            status = error_nomem(err, (n + 1) * sizeof *ids, "token ids");
        } else {
            ids[n++] = (int32_t)id;
        }
        i = end;
    }
    if (status == PI_OK && n == 0) {
        status = error_set(err, PI_ERR_FORMAT, "no token ids: %s: give at least one", where);
    }
    if (status != PI_OK) {
        mem_free(ids);
        return status;
    }
    *tokens = ids;
    *n_tokens = n;
    return PI_OK;
}

pi_status text_tokenize(const pi_model *model, const char *text, size_t n_text, uint32_t flags,
                        int32_t **tokens, size_t *n_tokens, pi_error *err) {
    size_t capacity;
    pi_status status;
    *tokens = NULL;
    *n_tokens = n_text + 8; /* enough for most texts; PI_ERR_LIMIT sets the required capacity */
    do {
        capacity = *n_tokens;
        mem_free(*tokens);
        *tokens = mem_calloc(capacity, sizeof **tokens);
        if (!*tokens) return error_nomem(err, capacity * sizeof **tokens, "token ids");
        status = pi_tokenize(model, text, n_text, flags, *tokens, capacity, n_tokens, err);
    } while (status == PI_ERR_LIMIT && *n_tokens > capacity);
    if (status != PI_OK) {
        mem_free(*tokens);
        *tokens = NULL;
    }
    return status;
}

/* Bytes of a token's text; longer texts take a second call. */
enum { PIECE_GUESS = 256 };

static pi_status append_token(text_buffer *t, const pi_model *model, int32_t token, pi_error *err) {
    size_t room = PIECE_GUESS, n_bytes = 0, need;
    for (;;) {
        if (!size_add(t->used, room, &need) ||
            !mem_grow((void **)&t->data, &t->capacity, need, 1, CLI_TEXT_MAX)) {
            return error_nomem(err, room, "text");
        }
        pi_status status = pi_token_text(model, token, true, t->data + t->used, room, &n_bytes,
                                         err);
        if (status == PI_OK) break;
        if (status != PI_ERR_LIMIT || n_bytes <= room) return status;
        room = n_bytes;
    }
    t->used += n_bytes;
    return PI_OK;
}

pi_status text_print_tokens(FILE *out, const pi_model *model, const int32_t *tokens, size_t n,
                            pi_error *err) {
    text_buffer piece = {.data = NULL};
    pi_status status = PI_OK;
    for (size_t i = 0; i < n && status == PI_OK; i++) {
        piece.used = 0;
        status = append_token(&piece, model, tokens[i], err);
        if (status != PI_OK) break;
        fprintf(out, "%6d -> '", (int)tokens[i]);
        text_print_escaped(out, piece.data, piece.used);
        fputs("'\n", out);
    }
    text_free(&piece);
    return status;
}

void text_write(FILE *out, const char *s, size_t n, bool terminal) {
    for (size_t i = 0; i < n && terminal;) {
        size_t length = printable_length(s + i, n - i);
        if (length == 0 && (s[i] == '\n' || s[i] == '\t')) length = 1;
        if (length == 0)
            printable_print(out, s + i, 1);
        else
            fwrite(s + i, 1, length, out);
        i += length ? length : 1;
    }
    if (!terminal) fwrite(s, 1, n, out);
}

size_t text_put_utf8(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(leads[n] | code);
    return n;
}

pi_status text_append(text_buffer *t, const char *s, size_t n, pi_error *err) {
    if (!mem_grow((void **)&t->data, &t->capacity, t->used + n + 1, 1, CLI_TEXT_MAX))
        return error_nomem(err, t->used + n, "text");
    if (n) memcpy(t->data + t->used, s, n);
    t->used += n;
    t->data[t->used] = 0;
    return PI_OK;
}
