/* bytes.h: a growing buffer, and JSON written into it. One thread at a time. */
#ifndef SERVER_BYTES_H
#define SERVER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "error.h"
#include "json.h"
#include "json_writer.h"

/* Maximum size of one buffer, which holds an answer, or a request for the template. */
#define BYTES_MAX ((size_t)256 << 20)

typedef struct bytes {
    char *data; /* [used]; NULL while empty */
    size_t used, capacity;
} bytes;

/* White space of JSON. */
static inline bool bytes_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* False: out of memory, or longer than BYTES_MAX; the buffer is unchanged. */
bool bytes_append(bytes *b, const void *data, size_t n);
bool bytes_append_text(bytes *b, const char *text);
void bytes_remove_front(bytes *b, size_t n); /* removes the first n <= used bytes */
/* accepts a zeroed buffer; the buffer is empty afterwards */
void bytes_free(bytes *b);

/* Appends formatted text of less than 1 KiB. False: longer, or as bytes_append. */
bool bytes_print(bytes *b, const char *format, ...) BASE_PRINTF(2, 3);

/* Appends a JSON document to a buffer: call begin, the functions of json_writer.h, then end. */
typedef struct bytes_json {
    json_writer writer;
} bytes_json;

/* False: out of memory; then bytes_json_end must not be called. */
bool bytes_json_begin(bytes_json *j, bytes *b);
/* False: writing failed. */
bool bytes_json_end(bytes_json *j);

/* Writes a parsed value with all its members. NULL: null. Objects keep their order. */
void bytes_json_put(json_writer *w, const char *key, const json_node *node);
/* Writes the member `name` of an object in the same way; writes nothing when the object has no such
 * member. */
void bytes_json_copy(json_writer *w, const char *key, const json_node *object, const char *name);
/* Writes a tool call, as chat templates expect it, as an item of an array. */
void bytes_json_call(json_writer *w, const json_node *id, const json_node *name,
                     const json_node *arguments);

#endif
