/* cli_text.h: text input and output: a growing buffer, escapes, and lists of token ids. */
#ifndef CLI_CLI_TEXT_H
#define CLI_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "error.h"
#include "powerinfer.h"

/* Maximum bytes of a prompt, a file of token ids, or a completion: far larger than any context. */
#define CLI_TEXT_MAX ((size_t)1 << 30)

typedef struct text_buffer {
    char *data; /* [used], not NUL-terminated; mem_free by text_free */
    size_t used, capacity;
} text_buffer;

void text_free(text_buffer *t);

/* Texts of an option that may be repeated. */
typedef struct text_list {
    text_buffer *items; /* [n], each also NUL-terminated */
    int n;
} text_list;

/* Copies values[n]; escapes: replaces escapes in the copies. */
pi_status text_list_create(text_list *l, const char *const *values, int n, bool escapes,
                           pi_error *err);
void text_list_free(text_list *l); /* accepts a zeroed list */

/* Writes a model's text; on a terminal, unprintable characters are escaped, so that no model can
 * send commands to the terminal. */
void text_write(FILE *out, const char *s, size_t n, bool terminal);

/* Appends bytes and a NUL, which is not counted. */
pi_status text_append(text_buffer *t, const char *s, size_t n, pi_error *err);

/* Writes a code point in UTF-8; returns the number of bytes. */
size_t text_put_utf8(uint32_t code, char out[4]);
/* Replaces \n \r \t \\ \' \" \xHH in place and returns the new length; others stay unchanged. */
size_t text_unescape(char *s, size_t n_bytes);
/* Writes text on one line, with quotes and unprintable characters as escapes. */
void text_print_escaped(FILE *out, const char *s, size_t n_bytes);

/* Parses token ids separated by white space, at least one, each within [0, n_vocab). `where` names
 * the text in messages. *tokens: mem_free. PI_ERR_FORMAT, PI_ERR_RANGE, PI_ERR_NOMEM. */
pi_status text_parse_ids(const char *text, size_t n_text, const char *where, int32_t n_vocab,
                         int32_t **tokens, size_t *n_tokens, pi_error *err);

/* Prints a line per token: id and text. */
pi_status text_print_tokens(FILE *out, const pi_model *model, const int32_t *tokens, size_t n,
                            pi_error *err);

/* Tokenizes a text of any length. *tokens: mem_free. */
pi_status text_tokenize(const pi_model *model, const char *text, size_t n_text, uint32_t flags,
                        int32_t **tokens, size_t *n_tokens, pi_error *err);

#endif
