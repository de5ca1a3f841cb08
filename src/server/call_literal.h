/* call_literal.h: arguments of calls as literals of a programming language, between brackets:
 * (city="Paris", n=3), as Python has them, or {city:<|"|>Paris<|"|>,n:3}. Text of a model is
 * hostile: nesting has a limit, and what has been looked at is not looked at again. */
#ifndef SERVER_CALL_LITERAL_H
#define SERVER_CALL_LITERAL_H

#include "bytes.h"

/* How literals look. */
typedef struct call_literal {
    char equals;       /* between the name of an argument and its value: '=', ':' */
    const char *quote; /* begins and ends strings, in which nothing is escaped; "": ' or ", with
                          Python's escapes */
} call_literal;

/* Where looking for the end of a bracket has come to; zeroed at first. */
typedef struct call_scan {
    size_t at, depth;
    size_t extent; /* what was found; 0: nothing yet */
    char quote;    /* of the string that the text is within; 0: none */
} call_scan;

/* Length of the JSON object or array, of the literal in brackets (l not NULL), that s[n] begins
 * with; 0: not complete, or none. The text may have grown since the last call. */
size_t call_scan_extent(call_scan *c, const call_literal *l, const char *s, size_t n);

typedef struct literal_text {
    const char *s;
    size_t n, at;
} literal_text;

/* White space is skipped. True: `c` follows, which is taken. */
bool call_literal_take(literal_text *t, char c);
/* The name of an argument that follows, up to l->equals, which is taken. It is appended to `key`.
 * False: there is none, or no memory. */
bool call_literal_key(const call_literal *l, literal_text *t, bytes *key);
/* Takes the value that follows, and writes it (w NULL: does not) as JSON. allowed: bits 1 <<
 * json_kind of what the tool's schema says: what must be a string is one. False: there is none. */
bool call_literal_value(const call_literal *l, literal_text *t, json_writer *w, const char *key,
                        unsigned allowed);

#endif
