/* hf_tiktoken.c: see hf_tiktoken.h. */
#include "hf_tiktoken.h"

#include <string.h>

#include "base64.h"

enum { MAX_TOKEN = 1024 }; /* bytes; the longest published tokens are runs of 128 spaces */

static pi_status bad_line(pi_error *err, const char *path, size_t line, const char *problem) {
    return error_set(err, PI_ERR_FORMAT, "bad tokenizer: %s: line %zu: %s", path, line, problem);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads a line: "aGVsbG8= 15339". */
static pi_status read_line(const char *line, size_t n, size_t number, const char *path, vocab *v,
                           pi_error *err) {
    uint8_t bytes[MAX_TOKEN];
    char text[2 * MAX_TOKEN]; /* each byte becomes a character of up to two bytes */
    size_t n_text = 0;
    const char *space = memchr(line, ' ', n);
    size_t n_bytes = space ? base64_decode(line, (size_t)(space - line), bytes, MAX_TOKEN) : 0;
    if (n_bytes == 0) return bad_line(err, path, number, "is not a token in base64 and a rank");
    int64_t rank = 0;
    const char *at = space + 1, *end = line + n;
    if (at == end) return bad_line(err, path, number, "has no rank");
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return bad_line(err, path, number, "has no rank");
        rank = rank * 10 + (*at - '0');
        if (rank >= v->n_tokens)
            return bad_line(err, path, number,
                            "has a rank beyond the rows of the embedding matrix");
    }
    if (v->tokens[rank].text.data) return bad_line(err, path, number, "has a duplicate rank");
    for (size_t i = 0; i < n_bytes; i++) n_text += tokenizer_spell_byte(bytes[i], text + n_text);
    pi_status status = vocab_set(v, (int32_t)rank, text, n_text, 0, TOKEN_NORMAL, err);
    return status == PI_OK ? PI_OK : error_prefix(err, status, "%s", path);
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Finds the starts of the characters of a token's text; returns their number. */
static size_t cut_letters(const char *text, size_t n, uint16_t *starts) {
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i++)
        if (((uint8_t)text[i] & 0xC0) != 0x80) starts[n_parts++] = (uint16_t)i;
    starts[n_parts] = (uint16_t)n;
    return n_parts;
}

/* Finds the last merge that creates token `id`: the two parts left after all better merges. */
static bool find_merge(const vocab *v, int32_t id, size_t *cut) {
    gguf_string token = v->tokens[id].text;
    uint16_t starts[MAX_TOKEN + 1];
    size_t n_parts = cut_letters(token.data, (size_t)token.n_bytes, starts);
    while (n_parts > 2) {
        int32_t best = id;
        size_t at = 0;
        for (size_t i = 0; i + 2 <= n_parts; i++) {
            int32_t found = vocab_find(v, token.data + starts[i],
                                       (size_t)(starts[i + 2] - starts[i]));
            if (found < 0 || found >= best) continue;
            best = found;
            at = i + 1;
        }
        if (at == 0) return false;
        memmove(&starts[at], &starts[at + 1], (n_parts - at) * sizeof *starts);
        n_parts--;
    }
    *cut = starts[1];
    return n_parts == 2;
}

pi_status hf_tiktoken_parse(const char *text, size_t n_bytes, const char *path, vocab *v,
                            pi_error *err) {
    const char *end = text + n_bytes;
    size_t number = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop ? stop : end) - line);
        size_t n_text = n > 0 && line[n - 1] == '\r' ? n - 1 : n;
        pi_status status = PI_OK;
        number++;
        if (n_text > 0) status = read_line(line, n_text, number, path, v, err);
        if (status != PI_OK) return status;
        line += n + 1;
    }
    pi_status status = vocab_build_index(v, path, err);
    for (int32_t id = 0; id < v->n_tokens && status == PI_OK; id++) {
        gguf_string token = v->tokens[id].text;
        size_t cut;
        if (!token.data || !find_merge(v, id, &cut)) continue;
        status = vocab_add_merge(v, token.data, cut, token.data + cut, (size_t)token.n_bytes - cut,
                                 err);
    }
    v->model = "gpt2";
    return status;
}
