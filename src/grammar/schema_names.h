/* schema_names.h: an object's properties, and the keywords that select properties by name:
 * patternProperties and propertyNames. Private to src/grammar. */
#ifndef GRAMMAR_SCHEMA_NAMES_H
#define GRAMMAR_SCHEMA_NAMES_H

#include "schema_regex.h"

/* Each name matches some of the patterns: there is a rule for each such combination. */
enum { NAME_PATTERNS_MAX = 4 };

typedef struct property {
    const char *name;
    bool required;
} property;

typedef struct name_pattern {
    size_t part; /* part of the set */
    const json_node *value;
    regex names;
} name_pattern;

typedef struct properties {
    property *items;
    size_t n, capacity;
    text_table names;
    bool open;         /* members that match no pattern may follow */
    schema_set other;  /* schemas that these members must satisfy; not with names_matter */
    uint32_t min, max; /* maximum number of members */
    bool names_matter; /* the object has patternProperties or propertyNames */
    name_pattern patterns[NAME_PATTERNS_MAX];
    size_t n_patterns;
    regex allowed; /* allowed names, from propertyNames */
    regex_pool pool;
} properties;

/* schema_object.c: the number of a name; adds a new name. SIZE_MAX after a problem. */
size_t schema_note_name(schema_compiler *c, properties *p, const char *name);
grammar_node *schema_member(schema_compiler *c, grammar_node *name, grammar_node *value);

/* Reads patternProperties and propertyNames; names that are listed become properties. */
void schema_names_read(schema_compiler *c, const schema_set *set, properties *p);
/* Whether a name is allowed; *found: the patterns that match it, one bit each. */
bool schema_names_find(properties *p, const char *name, uint32_t *found);
/* Adds the schemas that part i has for a property that the patterns `found` match; own: the part
 * names the property. */
void schema_names_add(schema_compiler *c, const schema_set *set, const properties *p, size_t i,
                      uint32_t found, bool own, schema_set *value);
/* A member outside the named properties. */
grammar_node *schema_names_members(schema_compiler *c, const schema_set *set, properties *p);

#endif
