/* schema_not.c: "not" of what a grammar can express: a schema that allows everything, types, and
 * constants. Constants are removed from the set's own constants, and from its strings. */
#include "schema.h"

static bool is_empty(const json_node *schema) {
    bool truth = false;
    return (json_as_bool(schema, &truth) && truth) ||
           (json_kind_of(schema) == JSON_OBJECT && json_count(schema) == 0);
}

/* The schema has only this keyword, except annotations. */
static bool is_only(const json_node *schema, const char *keyword) {
    static const char *const texts[] = {"description", "title", "$comment"};
    size_t n = json_get(schema, keyword) != NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        n += json_get(schema, texts[i]) != NULL;
    return json_get(schema, keyword) && n == json_count(schema);
}

static uint32_t types_of_constants(const json_node *schema) {
    uint32_t types = 0;
    for (size_t i = 0; i < schema_n_constants(schema); i++)
        types |= schema_type_of(schema_constant(schema, i));
    return types;
}

uint32_t schema_types_left(schema_compiler *c, const json_node *schema) {
    const json_node *no = json_get(schema, "not");
    bool truth = true;
    if (!no || (json_as_bool(no, &truth) && !truth)) return SCHEMA_ALL_TYPES;
    if (is_empty(no)) return 0;
    if (is_only(no, "type")) {
        uint32_t types = schema_types(no), numbers = SCHEMA_INTEGER | SCHEMA_FRACTION;
        if (!(types & SCHEMA_INTEGER) || (types & SCHEMA_FRACTION))
            return SCHEMA_ALL_TYPES & ~types;
        if (!(schema_types(schema) & SCHEMA_FRACTION)) return SCHEMA_ALL_TYPES & ~numbers;
    }
    if (is_only(no, "const") || is_only(no, "enum")) {
        uint32_t types = types_of_constants(no);
        uint32_t left = SCHEMA_ALL_TYPES & ~(types & SCHEMA_NULL);
        bool own = schema_n_constants(schema) > 0;
        if (own || !(types & schema_types(schema) & ~(uint32_t)(SCHEMA_NULL | SCHEMA_STRING)))
            return left;
    }
    schema_widen(c, schema, "not", "only types, constants and `true` are supported");
    return SCHEMA_ALL_TYPES;
}

const json_node *schema_refused(const json_node *schema) {
    const json_node *no = json_get(schema, "not");
    return is_only(no, "const") || is_only(no, "enum") ? no : NULL;
}
