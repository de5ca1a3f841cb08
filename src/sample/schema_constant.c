/* schema_constant.c: enum and const: the values that meet everything else that is asked of them. */
#include <string.h>

#include "mem.h"
#include "schema.h"
#include "utf8.h"

/* The constants of a schema: an enum, or the one of `const`. */
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
    const char *s, *keyword = beyond(schema, type);
    double number;
    size_t n;
    if (!(schema_types(schema) & type)) return false;
    if (json_as_double(value, &number) && !within(schema, number)) return false;
    if (json_as_string(value, &s, &n) && !has_length(schema, s, n)) return false;
    if (keyword) schema_unsupported(c, keyword, "not beside enum or const");
    return true;
}

/* Adds those constants of a schema that every part of the set accepts; lists[n_lists]: the
 * constants of those parts that have some. */
static void add_constants(schema_compiler *c, const schema_set *set, const json_node *schema,
                          const schema_list *lists, size_t n_lists, grammar_node *choice) {
    for (size_t i = 0; i < schema_n_constants(schema) && c->t->status == PI_OK; i++) {
        const json_node *value = schema_constant(schema, i);
        schema_text text = {.n = 0};
        bool fits = true;
        if (!schema_write(&text, value)) grammar_no_memory(c->t);
        for (size_t k = 0; k < n_lists && fits && c->t->status == PI_OK; k++)
            fits = schema_list_has(&lists[k], &text);
        for (size_t k = 0; k < set->n && fits; k++) fits = meets(c, set->parts[k].node, value);
        if (fits && c->t->status == PI_OK)
            grammar_add(c->t, choice, grammar_bytes(c->t, text.bytes, text.n));
        mem_free(text.bytes);
    }
}

grammar_node *schema_constants(schema_compiler *c, const schema_set *set) {
    const json_node *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *list = schema_get(set, i, "enum");
        if (list && json_kind_of(list) != JSON_ARRAY)
            return grammar_fail(c->t, PI_ERR_FORMAT, "JSON Schema: enum is not an array");
        if (!first && schema_n_constants(set->parts[i].node)) first = set->parts[i].node;
    }
    if (!first) return schema_has(set, "enum") ? grammar_never() : NULL;
    schema_list *lists = mem_calloc(2 * set->n, sizeof *lists);
    if (!lists) return grammar_no_memory(c->t);
    for (size_t i = 0; i < set->n && c->t->status == PI_OK; i++) {
        const json_node *one = schema_get(set, i, "const"), *list = schema_get(set, i, "enum");
        bool is_first = set->parts[i].node == first;
        if (one && !is_first) n += schema_list_create(c, &lists[n], one, NULL);
        if (list && (one || !is_first)) n += schema_list_create(c, &lists[n], NULL, list);
    }
    grammar_node *choice = grammar_alt(c->t);
    add_constants(c, set, first, lists, n, choice);
    for (size_t i = 0; i < n; i++) schema_list_free(&lists[i]);
    mem_free(lists);
    return choice;
}
