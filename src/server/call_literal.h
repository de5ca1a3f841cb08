/* call_literal.h: reads the arguments of calls that are literals of a programming language in
 * brackets: (city="Paris", n=3), as in Python, or {city:<|"|>Paris<|"|>,n:3}. A model's text is
 * hostile: nesting has a limit, and no byte is scanned twice. */
#ifndef SERVER_CALL_LITERAL_H
#define SERVER_CALL_LITERAL_H

#include "bytes.h"

/* Syntax of the literals. */
typedef struct call_literal {
    char equals;       /* separates the name of an argument from its value: '=', ':' */
    const char *quote; /* delimits strings without escapes; "": ' or ", with Python's escapes */
} call_literal;

/* State of the search for the end of a bracket; zero it before the first call. */
typedef struct call_scan {
    size_t at, depth;
    size_t extent; /* length that was found; 0: not yet */
    char quote;    /* delimiter of the string that `at` is in; 0: outside strings */
} call_scan;

/* Returns the length of the JSON object or array (l not NULL: also of the literal in brackets) that
 * s[n] begins with. 0: incomplete, or something else. The text may have grown since the last
 * call. */
size_t call_scan_extent(call_scan *c, const call_literal *l, const char *s, size_t n);

typedef struct literal_text {
    const char *s;
    size_t n, at;
} literal_text;

/* Skips white space, then takes `c`. False: `c` does not follow. */
bool call_literal_take(literal_text *t, char c);
/* Takes the name of an argument and the l->equals after it, and appends the name to `key`. False:
 * no name follows, or out of memory. */
bool call_literal_key(const call_literal *l, literal_text *t, bytes *key);
/* Takes the value that follows and writes it as JSON (w NULL: does not write). allowed: bits 1 <<
 * json_kind that the tool's schema allows; where only strings are allowed, the value becomes a
 * string. False: no value follows. */
bool call_literal_value(const call_literal *l, literal_text *t, json_writer *w, const char *key,
                        unsigned allowed);

#endif
