/* grammar_tree.h: a grammar as a tree: the common form of GBNF and JSON Schema, which
 * grammar_program.h compiles. Private to src/grammar.
 *
 * Nodes are in an arena and are freed with the tree. Functions that create nodes return no error:
 * `status` and `err` keep the first problem, and from then on the functions return a node that
 * matches nothing. Depth and number of nodes are capped. */
#ifndef GRAMMAR_GRAMMAR_TREE_H
#define GRAMMAR_GRAMMAR_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "error.h"
#include "text_table.h"
#include "unicode_class.h"

enum {
    GRAMMAR_MAX_DEPTH = 200,        /* nested nodes; functions recurse over trees */
    GRAMMAR_MAX_NODES = 1 << 20,    /* about 100 MB with all their data */
    GRAMMAR_MAX_RULES = 1 << 16,    /* rules of one grammar */
    GRAMMAR_MAX_BYTES = 1 << 20,    /* bytes of a GBNF text, and of a schema */
    GRAMMAR_MAX_REPEAT = 1 << 24,   /* {m,n} */
    GRAMMAR_CODE_POINTS = 0x110000, /* code points of Unicode are below it */
    GRAMMAR_MAX_WIDENED = 64        /* widened places stored */
};
#define GRAMMAR_NO_BOUND UINT32_MAX

typedef enum grammar_kind {
    GRAMMAR_NEVER,  /* matches no text */
    GRAMMAR_BYTES,  /* these bytes; without bytes: the empty text */
    GRAMMAR_CLASS,  /* one code point of `ranges`, in UTF-8 */
    GRAMMAR_SEQ,    /* one child after the other */
    GRAMMAR_ALT,    /* one of the children */
    GRAMMAR_REPEAT, /* the only child, min to max times */
    GRAMMAR_RULE    /* the body of a rule */
} grammar_kind;

/* Code points first..last; in a class ascending, without overlap. */
typedef unicode_range grammar_range;

typedef struct grammar_node grammar_node;

typedef struct grammar_link {
    grammar_node *node;
    struct grammar_link *previous;
} grammar_link;

struct grammar_node {
    grammar_kind kind;
    int32_t depth; /* 1: a leaf */
    size_t n;      /* bytes, ranges or children */
    union {
        const char *bytes;
        const grammar_range *ranges;
        grammar_link *last; /* last child; children are linked backwards */
        int32_t rule;
    };
    uint32_t min, max; /* for GRAMMAR_REPEAT; max may be GRAMMAR_NO_BOUND */
};

typedef struct grammar_rule {
    const char *name;   /* NUL-terminated, for messages */
    grammar_node *body; /* NULL: not defined yet */
    const char *schema; /* the schema's name in messages, where a schema starts; else NULL */
    /* Set by grammar_tree_check: */
    bool ends;     /* can end */
    bool nullable; /* may be empty */
} grammar_rule;

typedef struct grammar_tree {
    arena memory;
    text_table names; /* names of the rules that have one: entry -> named[entry] */
    int32_t *named;
    size_t named_capacity;
    grammar_rule *rules; /* [n_rules] */
    size_t n_rules, rules_capacity;
    size_t n_nodes;
    uint64_t regex_steps; /* steps for all patterns of its schemas */
    /* Places in schemas whose keywords constrain nothing; in the arena. */
    const char *widened[GRAMMAR_MAX_WIDENED];
    size_t n_widened;
    bool prune; /* leave out alternatives that can never end, which a schema may have */
    pi_status status;
    pi_error err;
} grammar_tree;

bool grammar_tree_init(grammar_tree *t); /* false: out of memory; the tree can still be freed */
void grammar_tree_free(grammar_tree *t);
/* Keeps the first problem; returns the node that matches nothing. */
grammar_node *grammar_fail(grammar_tree *t, pi_status status, const char *format, ...)
    BASE_PRINTF(3, 4);

grammar_node *grammar_no_memory(grammar_tree *t);

grammar_node *grammar_never(void);
bool grammar_is_never(const grammar_node *node);
grammar_node *grammar_bytes(grammar_tree *t, const char *bytes, size_t n); /* copied */
grammar_node *grammar_text(grammar_tree *t, const char *text);
/* This function sorts and joins the ranges. */
grammar_node *grammar_class(grammar_tree *t, const grammar_range *ranges, size_t n, bool negated);
/* Whether a class other than GRAMMAR_NEVER has a code point. */
bool grammar_class_has(const grammar_node *set, uint32_t code);
/* Writes the complement of n ascending ranges to out[n + 1]; returns the number of
 * ranges. */
size_t grammar_complement(const grammar_range *ranges, size_t n, grammar_range *out);
grammar_node *grammar_seq(grammar_tree *t);
grammar_node *grammar_alt(grammar_tree *t);
void grammar_add(grammar_tree *t, grammar_node *list, grammar_node *child);
grammar_node *grammar_repeat(grammar_tree *t, grammar_node *child, uint32_t min, uint32_t max);
grammar_node *grammar_optional(grammar_tree *t, grammar_node *child);
grammar_node *grammar_pair(grammar_tree *t, grammar_node *a, grammar_node *b); /* a, then b */
grammar_node *grammar_ref(grammar_tree *t, int32_t rule);

/* The rule with this name, created if missing; -1 after a problem. */
int32_t grammar_rule_named(grammar_tree *t, const char *name, size_t n_name);
int32_t grammar_rule_find(const grammar_tree *t, const char *name, size_t n_name); /* -1: none */
/* A new rule, with a name that GBNF cannot use; `what` is for messages. -1 after a problem. */
int32_t grammar_rule_new(grammar_tree *t, const char *what);

/* Whether every rule is defined, can end and is not left-recursive; sets `nullable`. With `prune`
 * only the root must be able to end, and alternatives that cannot are removed. PI_ERR_FORMAT names
 * a rule; also PI_ERR_LIMIT, PI_ERR_NOMEM. */
pi_status grammar_tree_check(grammar_tree *t, int32_t root);
/* Uses the rules' `nullable`. */
bool grammar_node_nullable(const grammar_tree *t, const grammar_node *node);

#endif
