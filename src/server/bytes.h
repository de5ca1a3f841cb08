/* bytes.h: a growing buffer, and a stream that writes JSON into it. One thread at a time. */
#ifndef SERVER_BYTES_H
#define SERVER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "error.h"
#include "json.h"
#include "json_writer.h"

/* Most bytes of one buffer: an answer, or a request as a template sees it. */
#define BYTES_MAX ((size_t)256 << 20)

typedef struct bytes {
    char *data; /* [used]; NULL while empty */
    size_t used, capacity;
} bytes;

/* White space, as JSON has it. */
static inline bool bytes_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* False: out of memory, or longer than BYTES_MAX; the buffer is as it was. */
bool bytes_append(bytes *b, const void *data, size_t n);
bool bytes_append_text(bytes *b, const char *text);
void bytes_remove_front(bytes *b, size_t n); /* n <= used */
void bytes_free(bytes *b);                   /* a zeroed one is fine; it is empty afterwards */

/* A stream whose bytes are appended; closed by the caller. NULL: out of memory. */
FILE *bytes_stream(bytes *b);

/* A JSON document that is appended to a buffer: begin, the calls of json_writer.h, end. */
typedef struct bytes_json {
    json_writer writer;
    FILE *file;
} bytes_json;

/* False: out of memory; then there is nothing to end. */
bool bytes_json_begin(bytes_json *j, bytes *b);
/* False: something could not be written. */
bool bytes_json_end(bytes_json *j);

/* A float as it would be typed: 0.8, not 0.800000011920929. */
void bytes_json_float(json_writer *w, const char *key, float value);
/* Writes a value that was read, with all that is in it. NULL: null. Objects keep their order. */
void bytes_json_put(json_writer *w, const char *key, const json_node *node);
/* The same for the member `name` of an object; nothing when it has none. */
void bytes_json_copy(json_writer *w, const char *key, const json_node *object, const char *name);
/* A tool call as chat templates read it, in an array. */
void bytes_json_call(json_writer *w, const json_node *id, const json_node *name,
                     const json_node *arguments);

#endif
