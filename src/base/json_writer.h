/* json_writer.h: writes one JSON document to a FILE or a function, with commas, indentation,
 * escapes and the shortest round-trip numbers. src/text reads JSON.
 *
 * Errors are sticky (`failed`, and ferror of the FILE); check once at the end. Depth is limited to
 * JSON_WRITER_DEPTH (asserted). NaN and infinities are written as null. Strings need not be valid
 * UTF-8: bad bytes become U+FFFD. Within objects every value has a key; within arrays the key is
 * NULL. */
#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_WRITER_DEPTH = 96 }; /* the reader's limit (64) plus a reply around it */

/* Takes the next bytes of the document; false: it failed. */
typedef bool json_write(void *user, const char *data, size_t n_bytes);

typedef struct json_writer {
    json_write *write;
    void *user;
    bool failed;  /* a write failed; nothing more is written */
    bool compact; /* one line, without spaces and without a final newline */
    int depth;
    bool has_item[JSON_WRITER_DEPTH];
    bool in_array[JSON_WRITER_DEPTH];
    bool in_lines[JSON_WRITER_DEPTH]; /* its items start new lines */
} json_writer;

void json_begin(json_writer *w, FILE *file);
/* Begins a document on one line, as protocol messages are. */
void json_begin_compact(json_writer *w, FILE *file);
void json_begin_into(json_writer *w, json_write *write, void *user, bool compact);
void json_put_object(json_writer *w, const char *key);
void json_end_object(json_writer *w); /* the outermost end adds the newline */
void json_put_array(json_writer *w, const char *key);
void json_end_array(json_writer *w);
void json_put_string(json_writer *w, const char *key, const char *value, size_t n_bytes);
void json_put_text(json_writer *w, const char *key,
                   const char *value); /* NUL-terminated; NULL: null */
void json_put_int(json_writer *w, const char *key, int64_t value);
void json_put_number(json_writer *w, const char *key, double value);
/* Writes the shortest number that reads back as the same float: 0.8, not 0.800000011920929. */
void json_put_float(json_writer *w, const char *key, float value);
void json_put_bool(json_writer *w, const char *key, bool value);

#endif
