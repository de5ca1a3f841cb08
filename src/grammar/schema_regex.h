/* schema_regex.h: regular languages over code points: expressions with intersection and complement,
 * and their derivatives (Brzozowski, "Derivatives of Regular Expressions", 1964). Everything that a
 * string must satisfy at once is one expression: patterns with lookaheads, a format, a length.
 * Private to src/grammar.
 *
 * A pool interns expressions: equal ones have equal numbers. Functions that create expressions
 * return no error: `status` keeps the first problem, and from then on they return REGEX_NEVER. */
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
    REGEX_MAX_DEPTH = 4000,    /* depth of an expression: functions recurse */
    REGEX_MAX_LIST = 8192,     /* members of one choice */
    REGEX_MAX_STATES = 4000    /* rules of an expression */
};

typedef enum regex_kind {
    REGEX_IS_NEVER,
    REGEX_IS_EMPTY,
    REGEX_IS_CLASS,
    REGEX_IS_SEQUENCE, /* a, then b */
    REGEX_IS_CHOICE,   /* a or b */
    REGEX_IS_BOTH,     /* a and b */
    REGEX_IS_NOT,      /* all texts that a does not match */
    REGEX_IS_REPEAT,   /* a, min to max times */
    /* Only before regex_find: */
    REGEX_IS_AHEAD,     /* empty; a text of a follows */
    REGEX_IS_NOT_AHEAD, /* empty; no text of a follows */
    REGEX_IS_BEGIN      /* empty, at the beginning of the text */
} regex_kind;

typedef struct regex_node {
    regex_kind kind;
    regex a, b;
    uint32_t min, max;       /* for REGEX_IS_REPEAT; max may be GRAMMAR_NO_BOUND */
    const grammar_node *set; /* for REGEX_IS_CLASS */
    uint32_t least, most;    /* lengths of its texts; most may be GRAMMAR_NO_BOUND */
    int32_t depth;
    bool nullable; /* the empty text is one of its texts */
    bool looks;    /* contains AHEAD, NOT_AHEAD or BEGIN */
    bool sets;     /* contains BOTH or NOT */
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

bool regex_pool_init(regex_pool *p, schema_compiler *c); /* false: no memory; p can be freed */
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

/* The texts that contain a match of a parsed pattern. REGEX_NEVER with PI_ERR_UNSUPPORTED: an
 * assertion (lookahead, or ^) stands where a grammar cannot express it. */
regex regex_find(regex_pool *p, regex pattern);
/* Derivative by `code`: the texts of r that begin with `code`, without it. */
regex regex_after(regex_pool *p, regex r, uint32_t code);
bool regex_matches(regex_pool *p, regex r, const char *text, size_t n);

/* A subset of an intersection of one expression and a length (or a lookahead that only limits the
 * length): the expression with bounded repetitions, so that the length need not be counted.
 * REGEX_NEVER: it is not such an intersection. schema_regex_narrow.c */
regex regex_narrow(regex_pool *p, regex r);

/* The texts as written in a JSON string, without quotes. NULL: more than max_states rules, or a
 * problem of the pool. schema_regex_emit.c */
grammar_node *regex_emit(regex_pool *p, regex r, size_t max_states);

/* A regular expression of ECMA-262, before regex_find. *why: the problem, NULL: none; *malformed: a
 * syntax error. schema_pattern.c */
regex schema_pattern(regex_pool *p, const char *pattern, size_t n, bool *malformed,
                     const char **why);

/* The constraints on the strings of a set. schema_string.c */
typedef struct schema_language {
    regex patterns, formats, lengths; /* REGEX_ANY: no constraint */
    /* The first parts that have these constraints, for messages; NULL: none. */
    const json_node *pattern_at, *format_at, *length_at;
    const char *length_keyword;
} schema_language;

/* False: the tree has a problem. */
bool schema_read_language(regex_pool *p, const schema_set *set, schema_language *out);

/* Copies the problem of a pool to the tree, with its place. Returns true when there is none. */
bool regex_check(regex_pool *p, const json_node *node, const char *keyword);

#endif
