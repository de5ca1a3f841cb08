/* schema.h: the parts of the schema compiler. Private to src/grammar.
 *
 * A value may have to satisfy several schemas at once (allOf, $ref next to other keywords,
 * properties that two schemas name). So the compiler works on sets of schemas and reads the
 * keywords of a set together. Each set becomes one rule; a list of pending rules avoids
 * recursion. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "grammar_tree.h"
#include "json.h"
#include "powerinfer_grammar.h"

enum {
    SCHEMA_MAX_PARTS = 256,   /* schemas that one value must satisfy */
    SCHEMA_DIGITS = 15,       /* digits of a number: a double keeps all of them */
    SCHEMA_TEXT_MAX = 1 << 20 /* bytes of one literal */
};

/* Keywords of a schema that other parts of the set already express. */
enum { SCHEMA_ANY_OF = 1, SCHEMA_ONE_OF = 2 };

typedef struct schema_part {
    const json_node *node;
    uint32_t done;
    int32_t parent; /* the part that refers to it; -1: none */
} schema_part;

typedef struct schema_set {
    schema_part *parts;
    size_t n, capacity;
} schema_set;

typedef struct schema_pending {
    int32_t rule;
    schema_set set;
} schema_pending;

/* Rules that every schema may use, created on first use; -1: not yet. */
typedef struct schema_common {
    int32_t space, value, string, character;
} schema_common;

/* A keyword of the schema that was widened. */
typedef struct schema_place {
    const json_node *node;
    const char *keyword;
} schema_place;

/* A Unicode property that a pattern names. */
typedef struct schema_property {
    char name[64];
    unicode_class set;
} schema_property;
enum { SCHEMA_MAX_PROPERTIES = 8 };

typedef struct schema_compiler {
    grammar_tree *t;
    const json_node *root;
    const pi_grammar_schema *options;
    const json_node *now; /* the current place, for problems that name no place */
    bool told;            /* the tree's problem has its place */
    schema_place widened[GRAMMAR_MAX_WIDENED];
    size_t n_widened;
    schema_property properties[SCHEMA_MAX_PROPERTIES];
    size_t n_properties;
    text_table sets; /* contents of a set -> set_rules[entry] */
    int32_t *set_rules;
    size_t rules_capacity;
    schema_pending *pending;
    size_t n_pending, pending_capacity, next_pending;
    schema_common common;
    uint64_t apart_steps; /* steps of schema_apart */
} schema_compiler;

/* ---- sets; grammar_schema.c ------------------------------------------------------------------ */

/* Adds a schema, and those that it refers to. parent: the part of this set that refers to it; -1:
 * none. */
void schema_add(schema_compiler *c, schema_set *set, const json_node *node, int32_t parent);
/* A reference to the rule of a set; takes ownership of the set. */
grammar_node *schema_rule(schema_compiler *c, schema_set *set);
/* A keyword of part i; NULL: it has none. */
const json_node *schema_get(const schema_set *set, size_t i, const char *keyword);
bool schema_has(const schema_set *set, const char *keyword);
/* The largest or smallest of the parts' integers >= 0; `otherwise` if there is none. */
uint32_t schema_most(schema_compiler *c, const schema_set *set, const char *keyword,
                     uint32_t otherwise);
uint32_t schema_least(schema_compiler *c, const schema_set *set, const char *keyword,
                      uint32_t otherwise);
/* A value, or punctuation such as a comma, and the whitespace after it. */
grammar_node *schema_spaced(schema_compiler *c, grammar_node *value);
grammar_node *schema_sign(schema_compiler *c, const char *text);

/* ---- problems, with their places; schema_place.c --------------------------------------------- */

/* Reports a malformed schema: `what` describes node.keyword (NULL: node itself). */
grammar_node *schema_wrong(schema_compiler *c, const json_node *node, const char *keyword,
                           const char *what);
grammar_node *schema_too_large(schema_compiler *c, const json_node *node, const char *keyword,
                               const char *what);
/* Reports that a grammar cannot express node.keyword. True: the schema may be widened, continue
 * without the keyword; false: the tree has a problem. */
bool schema_widen(schema_compiler *c, const json_node *node, const char *keyword, const char *why);
/* Lists node.keyword as without effect, also in strict schemas. */
void schema_note(schema_compiler *c, const json_node *node, const char *keyword);
/* Adds the current place to a problem without a place. */
void schema_tell_place(schema_compiler *c);
/* "tool f: $.properties.x.keyword", in the tree's arena; NULL: no memory. */
const char *schema_path(schema_compiler *c, const json_node *node, const char *keyword);

/* ---- values ---------------------------------------------------------------------------------- */

grammar_node *schema_object(schema_compiler *c, const schema_set *set);
grammar_node *schema_array(schema_compiler *c, const schema_set *set);
grammar_node *schema_number(schema_compiler *c, const schema_set *set, bool integer);
grammar_node *schema_string(schema_compiler *c, const schema_set *set);
/* The constants of an enum or a const that satisfy all other keywords; NULL: the set has none. */
grammar_node *schema_constants(schema_compiler *c, const schema_set *set);
/* Any string with its quotes; any single character of a string; a given text in quotes.
 * schema_string.c */
grammar_node *schema_any_string(schema_compiler *c);
grammar_node *schema_any_character(schema_compiler *c);
grammar_node *schema_quoted(schema_compiler *c, grammar_node *inside);
/* The characters of a class as written in JSON: with the shortest escape where one is needed. */
grammar_node *schema_characters(grammar_tree *t, const grammar_range *ranges, size_t n,
                                bool negated);

/* Characters that a JSON string contains only as escapes. schema_text.c */
enum { SCHEMA_N_ESCAPED = 3, SCHEMA_ESCAPE_MAX = 6 };
extern const grammar_range schema_escaped[SCHEMA_N_ESCAPED];
/* The shortest escape of such a character; returns its length, 0 for any other character. */
size_t schema_escape(char out[SCHEMA_ESCAPE_MAX], uint32_t code);

/* Text of a JSON value, without blanks; false when memory ran out or it is too long. */
typedef struct schema_text {
    char *bytes;
    size_t n, capacity;
} schema_text;
bool schema_write(schema_text *out, const json_node *value);
bool schema_write_string(schema_text *out, const char *s, size_t n);

/* The constants of a schema, from `enum` or `const`. schema_constant.c */
size_t schema_n_constants(const json_node *schema);
const json_node *schema_constant(const json_node *schema, size_t i);

/* Constants as texts: equal values have equal texts. */
typedef struct schema_list {
    text_table table;
    schema_text *texts; /* [n] */
    size_t n;
} schema_list;
/* `one`, or the items of `list`. False: out of memory, stored in the tree. */
bool schema_list_create(schema_compiler *c, schema_list *l, const json_node *one,
                        const json_node *list);
void schema_list_free(schema_list *l);
bool schema_list_has(const schema_list *l, const schema_text *value);

/* Whether it is easy to prove that no value satisfies both. *known false: the comparison takes too
 * long. schema_apart.c */
bool schema_apart(schema_compiler *c, const json_node *a, const json_node *b, bool *known);
/* The target of the schema's $ref; NULL: none. */
const json_node *schema_resolve(schema_compiler *c, const char *ref);

/* Types as bits. A number that is not an integer has a separate bit. */
enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_FRACTION = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_ALL_TYPES = 127
};
uint32_t schema_type_of(const json_node *value);
/* The types that "type" of one schema allows; SCHEMA_ALL_TYPES without it, 0 when it is
 * malformed. */
uint32_t schema_types(const json_node *schema);
/* The types that "not" of one schema still allows; schema_refused: the schema inside "not" when it
 * consists of constants, else NULL. schema_not.c */
uint32_t schema_types_left(schema_compiler *c, const json_node *schema);
const json_node *schema_refused(const json_node *schema);
/* The types that the keywords of a schema without "type" apply to; 0: no particular type. */
uint32_t schema_implied(const json_node *schema);

#endif
