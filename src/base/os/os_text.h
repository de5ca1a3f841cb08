/* os_text.h: searching in bytes, name patterns, streams that write to memory, the environment: what
 * C libraries have and ISO C lacks. */
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

/* The environment's variables as "NAME=VALUE" in UTF-8; NULL ends the list. The same list in each
 * call: later changes are not in it on every system. */
char *const *os_environment(void);
/* The program's arguments in UTF-8, from those of main; they are valid until the program ends. */
char **os_arguments(int *argc, char **argv);

#endif
