/* grammar_notation.h: the notation that GBNF and the regular expressions of schemas share:
 * characters with escapes, classes and repetitions. Private to src/grammar.
 *
 * A parser has a notation as its first member and sets its dialect, whose functions cast the
 * notation to the parser. `status`, `why` and `why_line` keep the first problem. */
#ifndef GRAMMAR_GRAMMAR_NOTATION_H
#define GRAMMAR_GRAMMAR_NOTATION_H

#include "grammar_tree.h"

typedef struct notation notation;

typedef struct notation_dialect {
    /* Reads an escape after its backslash, returns its character. */
    uint32_t (*escape)(notation *n, bool in_class);
    /* Classes with names, such as \d: returns whether one begins here, and adds its ranges. NULL:
     * none. */
    bool (*begins_named)(const notation *n);
    void (*add_named)(notation *n);
    /* Skips separators between the parts of a repetition in braces. NULL: there are none. */
    void (*skip)(notation *n);
    bool loose_braces; /* braces that are not a repetition are characters */
    size_t max_ranges; /* maximum ranges of one class */
} notation_dialect;

struct notation {
    const notation_dialect *dialect;
    const char *at, *end;
    int line;              /* line of `at` */
    grammar_range *ranges; /* [n_ranges] ranges of the current class; the parser frees them */
    size_t n_ranges, capacity;
    pi_status status; /* PI_ERR_FORMAT, PI_ERR_LIMIT, PI_ERR_NOMEM, PI_ERR_UNSUPPORTED */
    const char *why;  /* NULL: no problem so far */
    int why_line;
};

void notation_fail(notation *n, pi_status status, const char *why); /* keeps the first problem */

static inline char notation_peek(const notation *n) {
    return n->at < n->end ? *n->at : '\0';
}
bool notation_take(notation *n, const char *text); /* false: the text does not follow */

/* Read one code point: unescaped; from n hexadecimal digits; with or without an escape. */
uint32_t notation_code_point(notation *n);
uint32_t notation_hex(notation *n, int n_digits);
uint32_t notation_character(notation *n, bool in_class);

/* Adds ascending ranges, or with `negated` all code points outside them, to the class. */
void notation_add_ranges(notation *n, const grammar_range *ranges, size_t n_ranges, bool negated);
/* Reads a class after its [ into `ranges`. */
void notation_class(notation *n, bool *negated);
/* Reads * + ? {m} {m,} {m,n}; false: none of these follows, or a problem. max may become
 * GRAMMAR_NO_BOUND. */
bool notation_repeat(notation *n, uint32_t *min, uint32_t *max);

#endif
