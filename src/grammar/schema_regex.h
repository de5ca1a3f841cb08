/* schema_regex.h: regular languages over code points: expressions with intersection and complement,
 * and their derivatives (Brzozowski, "Derivatives of Regular Expressions", 1964). Everything that a
 * string must satisfy at once is one expression: patterns with lookaheads, a format, a length.
 * Private to src/grammar.
 *
 * A pool interns expressions: equal ones have equal numbers. Functions that make expressions report
 * no failure: the first problem stays in `status`, and they return REGEX_NEVER from then on. */
#ifndef GRAMMAR_SCHEMA_REGEX_H
#define GRAMMAR_SCHEMA_REGEX_H

#include "schema.h"

typedef int32_t regex;

enum {
    REGEX_NEVER, /* no text */
    REGEX_EMPTY, /* the empty text */
    REGEX_CHAR,  /* any one character */
    REGEX_ANY    /* any text */
};

enum {
    REGEX_MAX_NODES = 1 << 19, /* expressions of a pool */
    REGEX_MAX_DEPTH = 4000,    /* of one: functions recurse */
    REGEX_MAX_LIST = 8192,     /* members of one choice */
    REGEX_MAX_STATES = 4000    /* rules that an expression may become */
};

typedef enum regex_kind {
    REGEX_IS_NEVER,
    REGEX_IS_EMPTY,
    REGEX_IS_CLASS,
    REGEX_IS_SEQUENCE, /* a, then b */
    REGEX_IS_CHOICE,   /* a or b */
    REGEX_IS_BOTH,     /* a and b */
    REGEX_IS_NOT,      /* every text but those of a */
    REGEX_IS_REPEAT,   /* a, min to max times */
    /* Only before regex_find: */
    REGEX_IS_AHEAD,     /* empty; a text of a follows */
    REGEX_IS_NOT_AHEAD, /* empty; no text of a follows */
    REGEX_IS_BEGIN      /* empty, at the beginning of the text */
} regex_kind;

typedef struct regex_node {
    regex_kind kind;
    regex a, b;
    uint32_t min, max;       /* of REGEX_IS_REPEAT; max may be GRAMMAR_NO_BOUND */
    const grammar_node *set; /* of REGEX_IS_CLASS */
    uint32_t least, most;    /* characters of its texts; most may be GRAMMAR_NO_BOUND */
    int32_t depth;
    bool nullable; /* the empty text is one of its texts */
    bool looks;    /* has AHEAD, NOT_AHEAD or BEGIN in it */
    bool sets;     /* has BOTH or NOT in it */
} regex_node;

typedef struct regex_pool {
    schema_compiler *c;
    arena memory;
    text_table known; /* entry: number of the node */
    regex_node *nodes;
    size_t n, capacity;
    pi_status status; /* PI_ERR_NOMEM, PI_ERR_LIMIT; PI_ERR_UNSUPPORTED: see `why` */
    const char *why;
} regex_pool;

bool regex_pool_init(regex_pool *p, schema_compiler *c); /* false: no memory; it can be freed */
void regex_pool_free(regex_pool *p);

/* Keeps the first problem; returns REGEX_NEVER. */
regex regex_fail(regex_pool *p, pi_status status, const char *why);
const regex_node *regex_get(const regex_pool *p, regex r);

regex regex_class(regex_pool *p, const grammar_range *ranges, size_t n, bool negated);
regex regex_then(regex_pool *p, regex a, regex b);
regex regex_choice(regex_pool *p, const regex *list, size_t n);
regex regex_or(regex_pool *p, regex a, regex b);
regex regex_both(regex_pool *p, regex a, regex b);
regex regex_not(regex_pool *p, regex a);
regex regex_repeat(regex_pool *p, regex a, uint32_t min, uint32_t max);
regex regex_look(regex_pool *p, regex_kind kind, regex a); /* a: of the two AHEADs */
regex regex_text(regex_pool *p, const char *text, size_t n);

/* The texts in which a parsed pattern is found. REGEX_NEVER with PI_ERR_UNSUPPORTED: it looks ahead
 * or for the beginning where that cannot be expressed. */
regex regex_find(regex_pool *p, regex pattern);
/* Texts of r that begin with `code`, without it. */
regex regex_after(regex_pool *p, regex r, uint32_t code);
bool regex_matches(regex_pool *p, regex r, const char *text, size_t n);

/* Some of the texts of an intersection of a length, or of a lookahead that is no more than one, and
 * one expression: that with its repetitions bounded, so that the length need not be counted.
 * REGEX_NEVER: it is no such intersection. schema_regex_narrow.c */
regex regex_narrow(regex_pool *p, regex r);

/* The texts as they stand in a JSON string, without quotes. NULL: more than max_states rules, or a
 * problem of the pool. schema_regex_emit.c */
grammar_node *regex_emit(regex_pool *p, regex r, size_t max_states);

/* A regular expression of ECMA-262, before regex_find. *why: what is wrong with it, NULL: nothing;
 * *malformed: it is no expression at all. schema_pattern.c */
regex schema_pattern(regex_pool *p, const char *pattern, size_t n, bool *malformed,
                     const char **why);

/* What the strings of a set must satisfy. schema_string.c */
typedef struct schema_language {
    regex patterns, formats, lengths; /* REGEX_ANY: nothing */
    /* The first parts that have these, for messages; NULL: none. */
    const json_node *pattern_at, *format_at, *length_at;
    const char *length_keyword;
} schema_language;

/* False: the tree has a problem. */
bool schema_read_language(regex_pool *p, const schema_set *set, schema_language *out);

/* The problem of a pool as the tree's, with its place. Returns true when there is none. */
bool regex_check(regex_pool *p, const json_node *node, const char *keyword);

#endif
