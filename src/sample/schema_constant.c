/* schema_constant.c: enum and const: the values that meet everything else that is asked of them. */
#include <string.h>

#include "mem.h"
#include "schema.h"
#include "utf8.h"

static bool in_list(schema_compiler *c, const json_node *value, const json_node *list) {
    for (size_t i = 0; i < json_count(list); i++) {
        if (schema_same(c, value, json_at(list, i))) return true;
    }
    return false;
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

/* What is not looked at here, beside constants of a type. */
static const char *beyond(const json_node *schema, uint32_t type) {
    static const char *const of_strings[] = {"pattern", "format", NULL};
    static const char *const of_numbers[] = {"multipleOf", NULL};
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
    const char *const *list = type & SCHEMA_STRING   ? of_strings
                              : type & SCHEMA_ARRAY  ? of_arrays
                              : type & SCHEMA_OBJECT ? of_objects
                                                     : of_numbers;
    for (; *list; list++) {
        if (json_get(schema, *list)) return *list;
    }
    return NULL;
}

static bool meets(schema_compiler *c, const json_node *schema, const json_node *value) {
    uint32_t type = schema_type_of(value);
    const json_node *only = json_get(schema, "const");
    const json_node *list = json_get(schema, "enum");
    const char *s, *keyword = beyond(schema, type);
    double number;
    size_t n;
    if (!(schema_types(schema) & type)) return false;
    if (only && !schema_same(c, value, only)) return false;
    if (list && !in_list(c, value, list)) return false;
    if (json_as_double(value, &number) && !within(schema, number)) return false;
    if (json_as_string(value, &s, &n) && !has_length(schema, s, n)) return false;
    if (keyword) schema_unsupported(c, keyword, "not beside enum or const");
    return true;
}

grammar_node *schema_constants(schema_compiler *c, const schema_set *set) {
    const json_node *only = NULL, *list = NULL;
    for (size_t i = 0; i < set->n && !only && !list; i++) {
        only = schema_get(set, i, "const");
        list = schema_get(set, i, "enum");
    }
    if (!only && !list) return NULL;
    if (!only && json_kind_of(list) != JSON_ARRAY)
        return grammar_fail(c->t, PI_ERR_FORMAT, "JSON Schema: enum is not an array");
    grammar_node *choice = grammar_alt(c->t);
    size_t n = only ? 1 : json_count(list);
    for (size_t i = 0; i < n && c->t->status == PI_OK; i++) {
        const json_node *value = only ? only : json_at(list, i);
        schema_text text = {.n = 0};
        bool fits = true;
        for (size_t k = 0; k < set->n && fits; k++) fits = meets(c, set->parts[k].node, value);
        if (fits && schema_write(&text, value))
            grammar_add(c->t, choice, grammar_bytes(c->t, text.bytes, text.n));
        else if (fits)
            grammar_no_memory(c->t);
        mem_free(text.bytes);
    }
    return choice;
}
