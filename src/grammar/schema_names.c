/* schema_names.c: patternProperties and propertyNames. Names outside `properties` fall into classes
 * by the patterns that match them; each class has a regular language and a schema for its
 * values. */
#include "schema_names.h"

#include <string.h>

#include "mem.h"

/* ---- reading --------------------------------------------------------------------------------- */

static void add_pattern(schema_compiler *c, const schema_set *set, size_t i, properties *p,
                        const char *pattern, const json_node *value) {
    const json_node *part = set->parts[i].node;
    const char *why = NULL;
    bool malformed;
    regex names = schema_pattern(&p->pool, pattern, strlen(pattern), &malformed, &why);
    if (!why) names = regex_find(&p->pool, names);
    if (!why && p->pool.status == PI_ERR_UNSUPPORTED) {
        why = p->pool.why;
        p->pool.status = PI_OK;
    }
    if (!why && p->n_patterns == NAME_PATTERNS_MAX) why = "too many patterns";
    if (why) {
        schema_widen(c, part, "patternProperties", why);
        return;
    }
    p->patterns[p->n_patterns++] = (name_pattern){i, value, names};
}

static void read_patterns(schema_compiler *c, const schema_set *set, properties *p) {
    for (size_t i = 0; i < set->n; i++) {
        const json_node *patterns = schema_get(set, i, "patternProperties"), *value;
        void *iter = NULL;
        const char *pattern;
        if (patterns && json_kind_of(patterns) != JSON_OBJECT)
            schema_wrong(c, set->parts[i].node, "patternProperties", "not an object");
        while (c->t->status == PI_OK && json_next(patterns, &iter, &pattern, &value))
            add_pattern(c, set, i, p, pattern, value);
    }
}

/* Reads the strings among the constants of a schema for names; true: it has constants. */
static bool read_listed(schema_compiler *c, const schema_set *names, properties *p) {
    bool any = false;
    for (size_t i = 0; i < names->n; i++) {
        const json_node *schema = names->parts[i].node;
        size_t n = schema_n_constants(schema), n_text;
        regex list = REGEX_NEVER;
        const char *text;
        any = any || n > 0;
        for (size_t k = 0; k < n && c->t->status == PI_OK; k++) {
            if (!json_as_string(schema_constant(schema, k), &text, &n_text)) continue;
            list = regex_or(&p->pool, list, regex_text(&p->pool, text, n_text));
            schema_note_name(c, p, text);
        }
        if (n > 0) p->allowed = regex_both(&p->pool, p->allowed, list);
    }
    return any;
}

static void read_names(schema_compiler *c, const schema_set *set, properties *p) {
    static const char *const beyond[] = {"anyOf", "oneOf"};
    schema_set names = {.n = 0};
    schema_language l;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *node = schema_get(set, i, "propertyNames");
        bool allowed = true;
        if (!node) continue;
        if (json_as_bool(node, &allowed) && !allowed) p->allowed = REGEX_NEVER;
        if (allowed) schema_add(c, &names, node, -1);
        for (size_t k = 0; k < 2; k++)
            if (json_get(node, beyond[k]))
                schema_widen(c, set->parts[i].node, "propertyNames", "choices");
    }
    if (names.n && c->t->status == PI_OK && schema_read_language(&p->pool, &names, &l)) {
        regex_pool *pool = &p->pool;
        p->allowed = regex_both(pool, p->allowed, regex_both(pool, l.patterns, l.formats));
        p->allowed = regex_both(pool, p->allowed, l.lengths);
        read_listed(c, &names, p);
    }
    mem_free(names.parts);
}

void schema_names_read(schema_compiler *c, const schema_set *set, properties *p) {
    p->allowed = REGEX_ANY;
    read_patterns(c, set, p);
    if (c->t->status == PI_OK) read_names(c, set, p);
    p->names_matter = p->n_patterns > 0 || p->allowed != REGEX_ANY;
}

/* ---- values ---------------------------------------------------------------------------------- */

bool schema_names_find(properties *p, const char *name, uint32_t *found) {
    size_t n = strlen(name);
    *found = 0;
    for (size_t i = 0; i < p->n_patterns; i++)
        *found |= (uint32_t)regex_matches(&p->pool, p->patterns[i].names, name, n) << i;
    return p->allowed == REGEX_ANY || regex_matches(&p->pool, p->allowed, name, n);
}

void schema_names_add(schema_compiler *c, const schema_set *set, const properties *p, size_t i,
                      uint32_t found, bool own, schema_set *value) {
    const json_node *more = schema_get(set, i, "additionalProperties");
    for (size_t k = 0; k < p->n_patterns; k++) {
        if (p->patterns[k].part != i || !(found >> k & 1)) continue;
        schema_add(c, value, p->patterns[k].value, -1);
        own = true;
    }
    if (!own && more) schema_add(c, value, more, -1);
}

/* Members whose names match exactly the patterns `found`. */
static grammar_node *members_found(schema_compiler *c, const schema_set *set, properties *p,
                                   regex names, uint32_t found) {
    schema_set value = {.n = 0};
    for (size_t k = 0; k < p->n_patterns; k++) {
        regex one = p->patterns[k].names;
        names = regex_both(&p->pool, names, found >> k & 1 ? one : regex_not(&p->pool, one));
    }
    for (size_t i = 0; i < set->n; i++) schema_names_add(c, set, p, i, found, false, &value);
    grammar_node *name = regex_emit(&p->pool, names, REGEX_MAX_STATES);
    if (!name && p->pool.status == PI_OK) regex_fail(&p->pool, PI_ERR_LIMIT, "too large");
    if (!name) {
        mem_free(value.parts);
        return grammar_never();
    }
    return schema_member(c, schema_quoted(c, name), schema_rule(c, &value));
}

grammar_node *schema_names_members(schema_compiler *c, const schema_set *set, properties *p) {
    grammar_node *choice = grammar_alt(c->t);
    regex named = REGEX_NEVER;
    for (size_t i = 0; i < p->n && p->pool.status == PI_OK; i++)
        named = regex_or(&p->pool, named,
                         regex_text(&p->pool, p->items[i].name, strlen(p->items[i].name)));
    regex names = regex_both(&p->pool, p->allowed, regex_not(&p->pool, named));
    for (uint32_t found = p->open ? 0 : 1; found < 1u << p->n_patterns; found++)
        grammar_add(c->t, choice, members_found(c, set, p, names, found));
    return choice;
}
