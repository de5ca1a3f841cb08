/* hf_rwkv.c: see hf_rwkv.h. GGUF stores the tokens as Python's repr of their bytes, without the
 * quotes. */
#include "hf_rwkv.h"

#include <stdlib.h>
#include <string.h>

#include "hex_digit.h"
#include "utf8.h"

enum { MAX_TOKEN = 1024, MAX_SPELLED = 4 * MAX_TOKEN };

/* Evaluates 'text', "text" or b'bytes' between at and end; returns the number of bytes, 0: not
 * valid. */
static size_t read_literal(const char *at, const char *end, char out[MAX_TOKEN]) {
    const bool bytes = at < end && *at == 'b';
    at += bytes;
    if (end - at < 2 || (*at != '\'' && *at != '"') || end[-1] != *at) return 0;
    size_t n = 0;
    for (at++, end--; at < end; at++) {
        if (n + 4 > MAX_TOKEN) return 0;
        if (*at != '\\') {
            out[n++] = *at;
            continue;
        }
        if (++at == end) return 0;
        const int n_hex = *at == 'x' ? 2 : *at == 'u' && !bytes ? 4 : *at == 'U' && !bytes ? 8 : 0;
        if (n_hex == 0) {
            if (!*at || !strchr("nrt\\'\"", *at)) return 0;
            out[n++] = *at == 'n' ? '\n' : *at == 'r' ? '\r' : *at == 't' ? '\t' : *at;
            continue;
        }
        const int64_t code = hex_number(at + 1, end, n_hex);
        if (code < 0 || code > 0x10ffff) return 0;
        if (bytes)
            out[n++] = (char)code;
        else
            n += utf8_encode((uint32_t)code, out + n);
        at += n_hex;
    }
    return n;
}

/* Python escapes a ' in bytes only if they also have a ". */
static size_t spell(const char *bytes, size_t n, char out[MAX_SPELLED]) {
    static const char hex[] = "0123456789abcdef";
    const bool both = memchr(bytes, '\'', n) && memchr(bytes, '"', n);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '\n' || c == '\r' || c == '\t' || c == '\\' || (c == '\'' && both)) {
            out[used++] = '\\';
            out[used++] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : (char)c;
        } else if (c >= 0x20 && c < 0x7f) {
            out[used++] = (char)c;
        } else {
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = hex[c >> 4];
            out[used++] = hex[c & 15];
        }
    }
    return used;
}

/* Reads a line: "261 '\n\n' 2". */
static bool read_line(const char *line, const char *end, vocab *v, int32_t *id,
                      char spelled[MAX_SPELLED], size_t *n) {
    char bytes[MAX_TOKEN], *rest;
    const long long number = strtoll(line, &rest, 10);
    const char *last = end;
    while (last > line && last[-1] != ' ') last--;
    if (rest == line || *rest != ' ' || last <= rest + 1) return false;
    const long long length = strtoll(last, NULL, 10);
    const size_t n_bytes = read_literal(rest + 1, last - 1, bytes);
    if (n_bytes == 0 || length != (long long)n_bytes) return false;
    if (number < 1 || number >= v->n_tokens || v->tokens[number].text.data) return false;
    *id = (int32_t)number;
    *n = spell(bytes, n_bytes, spelled);
    return true;
}

pi_status hf_rwkv_parse(const char *text, size_t n_bytes, const char *path, vocab *v,
                        pi_error *err) {
    const char *end = text + n_bytes;
    pi_status status = vocab_set(v, 0, "<s>", 3, 0, TOKEN_CONTROL, err);
    for (size_t number = 1; text < end && status == PI_OK; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *last = stop ? stop : end;
        if (last > text && last[-1] == '\r') last--;
        char spelled[MAX_SPELLED];
        int32_t id;
        size_t n;
        if (!read_line(text, last, v, &id, spelled, &n))
            return error_set(err, PI_ERR_FORMAT,
                             "bad tokenizer: %s: line %zu: is not a new id below %d, a text, and "
                             "its number of bytes",
                             path, number, v->n_tokens);
        status = vocab_set(v, id, spelled, n, 0, TOKEN_NORMAL, err);
        text = stop ? stop + 1 : end;
    }
    if (status == PI_OK) status = vocab_build_index(v, path, err);
    if (status != PI_OK) return status;
    v->model = "rwkv";
    v->bos = v->eos = 0;
    v->eot = vocab_find(v, "\\n\\n", 4); /* between the turns of a conversation */
    return PI_OK;
}
