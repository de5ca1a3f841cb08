/* os_text.h: searching in bytes, name patterns, and streams that write to memory: what C libraries
 * have and ISO C lacks. */
#ifndef BASE_OS_TEXT_H
#define BASE_OS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* First occurrence of what[n_what] in in[n]; NULL: none. An empty `what` is found at once. */
void *os_find(const void *in, size_t n, const void *what, size_t n_what);

/* Whether a name matches a pattern of *, ? and [characters] as a whole. */
bool os_pattern_matches(const char *pattern, const char *name);

/* A stream whose bytes go to memory: open, write to `file`, close. */
typedef struct os_text {
    FILE *file;
    char *text; /* [n] and a NUL, complete after os_text_close; mem_free it in any case */
    size_t n;
} os_text;

bool os_text_open(os_text *t); /* false: no memory; then there is nothing to close */
/* False: not everything could be written. */
bool os_text_close(os_text *t);

/* A stream whose bytes go to a function, when its buffer is full, flushed or closed. `write`
 * returns false when it fails, which is an error of the stream. NULL: no memory. */
typedef bool os_stream_write(void *user, const char *data, size_t n);
FILE *os_stream_open(os_stream_write *write, void *user);
bool os_stream_flush(FILE *stream); /* false: something could not be written */
bool os_stream_close(FILE *stream); /* also false then */

#endif
