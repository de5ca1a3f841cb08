/* schema_object.c: objects.
 *
 * Properties come in the order in which the schema names them, each at most once. Additional
 * properties come after them if a schema has "additionalProperties" (or names no properties); their
 * names differ from all named properties. Texts are a subset of what a schema allows, never
 * more. */
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "schema_names.h"
#include "utf8.h"

enum { PROPERTIES_MAX = 4096 };

/* ---- the properties -------------------------------------------------------------------------- */

size_t schema_note_name(schema_compiler *c, properties *p, const char *name) {
    uint32_t entry = text_table_add(&p->names, name, strlen(name));
    if (entry == TEXT_TABLE_NONE || !mem_grow((void **)&p->items, &p->capacity, p->names.count,
                                              sizeof *p->items, PROPERTIES_MAX)) {
        if (p->names.count > PROPERTIES_MAX)
            schema_too_large(c, c->now, NULL, "too many properties");
        else
            grammar_no_memory(c->t);
        return SIZE_MAX;
    }
    if (entry == p->n) p->items[p->n++] = (property){.name = name};
    return entry;
}

static void note_properties(schema_compiler *c, const schema_set *set, properties *p) {
    for (size_t i = 0; i < set->n; i++) {
        const json_node *named = schema_get(set, i, "properties"), *value;
        void *iter = NULL;
        const char *name;
        if (named && json_kind_of(named) != JSON_OBJECT)
            schema_wrong(c, set->parts[i].node, "properties", "not an object");
        while (c->t->status == PI_OK && json_next(named, &iter, &name, &value))
            schema_note_name(c, p, name);
    }
    for (size_t i = 0; i < set->n; i++) {
        const json_node *list = schema_get(set, i, "required");
        if (list && json_kind_of(list) != JSON_ARRAY)
            schema_wrong(c, set->parts[i].node, "required", "not an array");
        for (size_t k = 0; k < json_count(list) && c->t->status == PI_OK; k++) {
            const char *name;
            size_t n;
            if (!json_as_string(json_at(list, k), &name, &n)) {
                schema_wrong(c, set->parts[i].node, "required", "not an array of strings");
                return;
            }
            size_t entry = schema_note_name(c, p, name);
            if (entry != SIZE_MAX) p->items[entry].required = true;
        }
    }
}

static void note_others(schema_compiler *c, const schema_set *set, properties *p) {
    bool forbidden = false, asked = false;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *more = schema_get(set, i, "additionalProperties");
        const json_node *rest = schema_get(set, i, "unevaluatedProperties");
        bool allowed = true;
        bool closed = rest && json_as_bool(rest, &allowed) && !allowed;
        if (rest && json_kind_of(rest) != JSON_BOOL)
            schema_widen(c, set->parts[i].node, "unevaluatedProperties", "only false and true");
        if (closed) forbidden = true;
        if (!more) continue;
        if (json_as_bool(more, &allowed)) {
            forbidden = forbidden || !allowed;
            asked = asked || allowed;
        } else {
            asked = true;
            if (!p->names_matter) schema_add(c, &p->other, more, -1);
        }
    }
    p->open = !forbidden && (asked || (p->n == 0 && p->n_patterns == 0));
    p->min = schema_most(c, set, "minProperties", 0);
    p->max = schema_least(c, set, "maxProperties", GRAMMAR_NO_BOUND);
}

/* ---- names and values ------------------------------------------------------------------------ */

static grammar_node *literal(schema_compiler *c, const char *s, size_t n) {
    schema_text text = {.n = 0};
    grammar_node *node = schema_write_string(&text, s, n) ? grammar_bytes(c->t, text.bytes, text.n)
                                                          : grammar_no_memory(c->t);
    mem_free(text.bytes);
    return node;
}

/* The schemas that a property must satisfy: its schema in every part that names it, and the schema
 * for additional properties in the other parts. */
static grammar_node *property_value(schema_compiler *c, const schema_set *set, properties *p,
                                    const char *name) {
    schema_set value = {.n = 0};
    uint32_t found = 0;
    if (p->names_matter && !schema_names_find(p, name, &found)) return grammar_never();
    for (size_t i = 0; i < set->n; i++) {
        const json_node *own = json_get(schema_get(set, i, "properties"), name);
        if (own) schema_add(c, &value, own, -1);
        schema_names_add(c, set, p, i, found, own != NULL, &value);
    }
    return schema_rule(c, &value);
}

grammar_node *schema_member(schema_compiler *c, grammar_node *name, grammar_node *value) {
    grammar_node *all = grammar_seq(c->t);
    grammar_add(c->t, all, schema_spaced(c, name));
    grammar_add(c->t, all, schema_sign(c, ":"));
    grammar_add(c->t, all, schema_spaced(c, value));
    return all;
}

/* Names that differ from all properties' names: once a text is not a prefix of any name, any
 * characters may follow. Each prefix of a name has one rule, identified by the range of sorted
 * names that share it. Names have no escapes, since with escapes a name can be written in two
 * ways. */
typedef struct name_range {
    size_t first, end, depth; /* names[first..end) agree on `depth` bytes */
    int32_t rule;
} name_range;

typedef struct other_names {
    schema_compiler *c;
    const char **names; /* [n] sorted */
    size_t n;
    name_range *open;
    size_t n_open, capacity;
    grammar_node *rest; /* any characters and the closing quote */
} other_names;

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int32_t open_range(other_names *o, name_range r) {
    r.rule = grammar_rule_new(o->c->t, "name");
    if (r.rule < 0) return -1;
    if (!mem_grow((void **)&o->open, &o->capacity, o->n_open + 1, sizeof r, GRAMMAR_MAX_RULES)) {
        grammar_no_memory(o->c->t);
        return -1;
    }
    o->open[o->n_open++] = r;
    return r.rule;
}

/* The body of a range's rule. Names branch between code points: branching inside a code point would
 * allow invalid UTF-8. */
static void fill_range(other_names *o, name_range r) {
    grammar_tree *t = o->c->t;
    grammar_node *choice = grammar_alt(t);
    grammar_range *taken = mem_calloc(r.end - r.first + SCHEMA_N_ESCAPED, sizeof *taken);
    size_t n = SCHEMA_N_ESCAPED, at = r.first;
    if (!taken) {
        grammar_no_memory(t);
        return;
    }
    memcpy(taken, schema_escaped, sizeof schema_escaped);
    bool is_name = at < r.end && !o->names[at][r.depth];
    if (is_name) at++;
    while (at < r.end && t->status == PI_OK) {
        const char *here = o->names[at] + r.depth;
        const char *nul = memchr(here, '\0', UTF8_MAX_BYTES);
        size_t length, end = at + 1, n_here = nul ? (size_t)(nul - here) : UTF8_MAX_BYTES;
        uint32_t code = (uint32_t)utf8_decode(here, n_here, &length);
        while (end < r.end && strncmp(o->names[end] + r.depth, here, length) == 0) end++;
        int32_t rule = open_range(o, (name_range){at, end, r.depth + length, -1});
        grammar_add(t, choice,
                    grammar_pair(t, grammar_bytes(t, here, length), grammar_ref(t, rule)));
        taken[n++] = (grammar_range){code, code};
        at = end;
    }
    grammar_add(t, choice, grammar_pair(t, grammar_class(t, taken, n, true), o->rest));
    if (!is_name) grammar_add(t, choice, grammar_text(t, "\""));
    if (t->status == PI_OK) t->rules[r.rule].body = choice;
    mem_free(taken);
}

/* Names that cannot be written without escapes need no check. */
static bool needs_escape(const char *name) {
    char escape[SCHEMA_ESCAPE_MAX];
    while (*name && !schema_escape(escape, (unsigned char)*name)) name++;
    return *name;
}

static grammar_node *names_but(schema_compiler *c, const properties *p) {
    grammar_tree *t = c->t;
    other_names o = {.c = c, .names = mem_calloc(p->n, sizeof *o.names)};
    if (!o.names) return grammar_no_memory(t);
    for (size_t i = 0; i < p->n; i++) {
        if (!needs_escape(p->items[i].name)) o.names[o.n++] = p->items[i].name;
    }
    if (o.n) qsort(o.names, o.n, sizeof *o.names, compare_names);
    o.rest = grammar_pair(c->t,
                          grammar_repeat(t,
                                         grammar_class(t, schema_escaped, SCHEMA_N_ESCAPED, true),
                                         0, GRAMMAR_NO_BOUND),
                          grammar_text(t, "\""));
    int32_t rule = open_range(&o, (name_range){0, o.n, 0, -1});
    while (o.n_open && t->status == PI_OK) fill_range(&o, o.open[--o.n_open]);
    mem_free(o.names);
    mem_free(o.open);
    return grammar_pair(c->t, grammar_text(t, "\""), grammar_ref(t, rule));
}

/* ---- the object ------------------------------------------------------------------------------ */

static grammar_node *as_rule(schema_compiler *c, grammar_node *body) {
    if (grammar_is_never(body)) return body;
    int32_t rule = grammar_rule_new(c->t, "members");
    if (rule < 0) return grammar_never();
    c->t->rules[rule].body = body;
    return grammar_ref(c->t, rule);
}

/* Builds members from the last property to the first: `rest` may follow at least one member,
 * `first` may follow none. */
static grammar_node *members(schema_compiler *c, const schema_set *set, properties *p) {
    grammar_tree *t = c->t;
    grammar_node *rest = grammar_text(t, ""), *first = rest;
    if (p->open || p->n_patterns) {
        grammar_node *one; /* a member that no schema names */
        if (p->names_matter) {
            one = schema_names_members(c, set, p);
        } else {
            grammar_node *name = p->n ? names_but(c, p) : schema_any_string(c);
            one = schema_member(c, name, schema_rule(c, &p->other));
        }
        one = as_rule(c, one);
        uint32_t more = p->n == 0 && p->max != GRAMMAR_NO_BOUND ? p->max - (p->max > 0)
                                                                : GRAMMAR_NO_BOUND;
        rest = as_rule(c, grammar_repeat(t, grammar_pair(c->t, schema_sign(c, ","), one), 0, more));
        first = grammar_pair(c->t, one, rest);
        if (p->min == 0) first = grammar_optional(t, first);
        if (p->n == 0 && p->max == 0) first = grammar_text(t, "");
    } else if (p->min > 0) {
        first = grammar_never();
    }
    for (size_t i = p->n; i-- > 0 && t->status == PI_OK;) {
        const property *q = &p->items[i];
        grammar_node *value = property_value(c, set, p, q->name);
        grammar_node *one = schema_member(c, literal(c, q->name, strlen(q->name)), value);
        grammar_node *begin = grammar_alt(t), *go_on = grammar_alt(t);
        grammar_add(t, begin, grammar_pair(c->t, one, rest));
        grammar_add(t, go_on,
                    grammar_pair(c->t, grammar_pair(c->t, schema_sign(c, ","), one), rest));
        if (!q->required) {
            grammar_add(t, begin, first);
            grammar_add(t, go_on, rest);
        }
        first = as_rule(c, begin);
        rest = as_rule(c, go_on);
    }
    return first;
}

/* Limits the number of members where that needs no counting. */
static void check_counts(schema_compiler *c, const schema_set *set, properties *p) {
    size_t n_required = 0;
    bool more = p->open || p->n_patterns;
    for (size_t i = 0; i < p->n; i++) n_required += p->items[i].required;
    bool least = p->min <= n_required || p->min == 1;
    bool most = p->max == GRAMMAR_NO_BOUND || (more ? p->n == 0 : p->max >= p->n);
    for (size_t i = 0; i < set->n && !(least && most); i++) {
        const json_node *part = set->parts[i].node;
        if (!least && json_get(part, "minProperties"))
            schema_widen(c, part, "minProperties", "only up to 1, or to the required properties");
        if (!most && json_get(part, "maxProperties"))
            schema_widen(c, part, "maxProperties", "not together with optional properties");
    }
    if (!least) p->min = 1;
    if (!most) p->max = GRAMMAR_NO_BOUND;
}

grammar_node *schema_object(schema_compiler *c, const schema_set *set) {
    properties p = {.n = 0};
    grammar_node *all = grammar_seq(c->t);
    if (!text_table_init(&p.names, 16) || !regex_pool_init(&p.pool, c))
        grammar_no_memory(c->t);
    else
        note_properties(c, set, &p);
    if (c->t->status == PI_OK) schema_names_read(c, set, &p);
    if (c->t->status == PI_OK) note_others(c, set, &p);
    if (c->t->status == PI_OK) check_counts(c, set, &p);
    if (c->t->status == PI_OK) {
        grammar_add(c->t, all, schema_sign(c, "{"));
        grammar_add(c->t, all, members(c, set, &p));
        grammar_add(c->t, all, grammar_text(c->t, "}"));
        regex_check(&p.pool, c->now, NULL);
    }
    text_table_free(&p.names);
    regex_pool_free(&p.pool);
    mem_free(p.items);
    mem_free(p.other.parts);
    return all;
}
