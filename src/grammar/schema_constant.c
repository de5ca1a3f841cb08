/* schema_constant.c: enum and const: the values that satisfy all other keywords of the set. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "schema_regex.h"
#include "utf8.h"

/* The constants of a schema, from `enum` or `const`. */
size_t schema_n_constants(const json_node *schema) {
    return json_get(schema, "const") ? 1 : json_count(json_get(schema, "enum"));
}

const json_node *schema_constant(const json_node *schema, size_t i) {
    const json_node *one = json_get(schema, "const");
    return one ? one : json_at(json_get(schema, "enum"), i);
}

void schema_list_free(schema_list *l) {
    for (size_t i = 0; i < l->n; i++) mem_free(l->texts[i].bytes);
    mem_free(l->texts);
    text_table_free(&l->table);
    *l = (schema_list){.n = 0};
}

bool schema_list_create(schema_compiler *c, schema_list *l, const json_node *one,
                        const json_node *list) {
    size_t n = one ? 1 : json_count(list);
    *l = (schema_list){.n = 0};
    l->texts = mem_calloc(n + 1, sizeof *l->texts);
    bool good = l->texts && text_table_init(&l->table, n);
    for (size_t i = 0; i < n && good; i++) {
        schema_text *text = &l->texts[l->n++];
        good = schema_write(text, one ? one : json_at(list, i)) &&
               text_table_add(&l->table, text->bytes, text->n) != TEXT_TABLE_NONE;
    }
    if (good) return true;
    schema_list_free(l);
    grammar_no_memory(c->t);
    return false;
}

bool schema_list_has(const schema_list *l, const schema_text *value) {
    return text_table_find(&l->table, value->bytes, value->n) != TEXT_TABLE_NONE;
}

static bool within(const json_node *schema, double number) {
    double bound;
    if (json_as_double(json_get(schema, "minimum"), &bound) && number < bound) return false;
    if (json_as_double(json_get(schema, "maximum"), &bound) && number > bound) return false;
    if (json_as_double(json_get(schema, "exclusiveMinimum"), &bound) && number <= bound)
        return false;
    return !json_as_double(json_get(schema, "exclusiveMaximum"), &bound) || number < bound;
}

static bool has_length(const json_node *schema, const char *s, size_t n) {
    int64_t length = 0, bound;
    for (size_t i = 0, step; i < n; i += step) {
        utf8_decode(s + i, n - i, &step);
        length++;
    }
    if (json_as_int(json_get(schema, "minLength"), &bound) && length < bound) return false;
    return !json_as_int(json_get(schema, "maxLength"), &bound) || length <= bound;
}

/* Keywords that are not checked here, in addition to constants of a type. */
static const char *beyond(const json_node *schema, uint32_t type) {
    static const char *const of_arrays[] = {"items",    "prefixItems", "minItems",
                                            "maxItems", "uniqueItems", NULL};
    static const char *const of_objects[] = {"properties",
                                             "required",
                                             "additionalProperties",
                                             "patternProperties",
                                             "propertyNames",
                                             "minProperties",
                                             "maxProperties",
                                             "unevaluatedProperties",
                                             NULL};
    const char *const *list = type & SCHEMA_ARRAY ? of_arrays : of_objects;
    if (!(type & (SCHEMA_ARRAY | SCHEMA_OBJECT))) return NULL;
    for (; *list; list++) {
        if (json_get(schema, *list)) return *list;
    }
    return NULL;
}

static bool is_multiple(const json_node *schema, double number) {
    double step;
    if (!json_as_double(json_get(schema, "multipleOf"), &step) || step <= 0) return true;
    double times = number / step;
    return fabs(times - round(times)) < 1e-9;
}

static bool meets(schema_compiler *c, const json_node *schema, const json_node *value) {
    uint32_t type = schema_type_of(value);
    const char *s, *keyword = beyond(schema, type);
    double number;
    size_t n;
    if (!(schema_types(schema) & type)) return false;
    if (json_as_double(value, &number) && !(within(schema, number) && is_multiple(schema, number)))
        return false;
    if (json_as_string(value, &s, &n) && !has_length(schema, s, n)) return false;
    return !keyword || schema_widen(c, schema, keyword, "not together with enum or const");
}

/* Lists of constants: those that contain every value of the set, and those that contain none. */
typedef struct constants {
    schema_list *lists; /* [n]; the first n_allowed lists contain every value of the set */
    size_t n_allowed, n;
    regex_pool pool;
    regex texts; /* texts that the patterns of the set allow */
} constants;

static bool is_allowed(schema_compiler *c, const schema_set *set, constants *k,
                       const json_node *value, const schema_text *text) {
    const char *s;
    size_t n;
    for (size_t i = 0; i < k->n; i++)
        if (schema_list_has(&k->lists[i], text) != (i < k->n_allowed)) return false;
    for (size_t i = 0; i < set->n; i++)
        if (!meets(c, set->parts[i].node, value)) return false;
    return !json_as_string(value, &s, &n) || k->texts == REGEX_ANY ||
           regex_matches(&k->pool, k->texts, s, n);
}

/* Adds those constants of a schema that every part of the set accepts. */
static void add_constants(schema_compiler *c, const schema_set *set, const json_node *schema,
                          constants *k, grammar_node *choice) {
    for (size_t i = 0; i < schema_n_constants(schema) && c->t->status == PI_OK; i++) {
        const json_node *value = schema_constant(schema, i);
        schema_text text = {.n = 0};
        if (!schema_write(&text, value))
            grammar_no_memory(c->t);
        else if (is_allowed(c, set, k, value, &text) && c->t->status == PI_OK)
            grammar_add(c->t, choice, grammar_bytes(c->t, text.bytes, text.n));
        mem_free(text.bytes);
    }
    if (k->pool.status == PI_ERR_NOMEM) grammar_no_memory(c->t);
    if (k->pool.status != PI_OK) schema_too_large(c, schema, "pattern", "too large a pattern");
}

/* The lists of all parts except `first`, whose constants are tried. */
static void add_lists(schema_compiler *c, const schema_set *set, const json_node *first,
                      constants *k) {
    for (size_t i = 0; i < set->n && c->t->status == PI_OK; i++) {
        const json_node *one = schema_get(set, i, "const"), *list = schema_get(set, i, "enum");
        bool is_first = set->parts[i].node == first;
        if (one && !is_first) k->n += schema_list_create(c, &k->lists[k->n], one, NULL);
        if (list && (one || !is_first)) k->n += schema_list_create(c, &k->lists[k->n], NULL, list);
    }
    k->n_allowed = k->n;
    for (size_t i = 0; i < set->n && c->t->status == PI_OK; i++) {
        const json_node *no = schema_refused(set->parts[i].node);
        if (no)
            k->n += schema_list_create(c, &k->lists[k->n], json_get(no, "const"),
                                       json_get(no, "enum"));
    }
}

grammar_node *schema_constants(schema_compiler *c, const schema_set *set) {
    const json_node *first = NULL;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *list = schema_get(set, i, "enum");
        if (list && json_kind_of(list) != JSON_ARRAY)
            return schema_wrong(c, set->parts[i].node, "enum", "not an array");
        if (!first && schema_n_constants(set->parts[i].node)) first = set->parts[i].node;
    }
    if (!first) return schema_has(set, "enum") ? grammar_never() : NULL;
    constants k = {.lists = mem_calloc(3 * set->n, sizeof *k.lists), .texts = REGEX_ANY};
    schema_language language;
    grammar_node *choice = grammar_alt(c->t);
    if (!k.lists || !regex_pool_init(&k.pool, c)) grammar_no_memory(c->t);
    if (c->t->status == PI_OK) add_lists(c, set, first, &k);
    /* Formats are not checked: authors of constants know their values. */
    if (schema_has(set, "pattern") && c->t->status == PI_OK &&
        schema_read_language(&k.pool, set, &language))
        k.texts = language.patterns;
    if (c->t->status == PI_OK) add_constants(c, set, first, &k, choice);
    for (size_t i = 0; i < k.n; i++) schema_list_free(&k.lists[i]);
    mem_free(k.lists);
    regex_pool_free(&k.pool);
    return choice;
}
