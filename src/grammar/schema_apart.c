/* schema_apart.c: whether two schemas of a oneOf have no value in common, so that the oneOf is an
 * anyOf: they have different types, different constants, or objects that a required property
 * distinguishes. If this cannot be proved, compiling fails, since a text that satisfies both
 * schemas would be invalid. */
#include <string.h>

#include "mem.h"
#include "schema.h"

enum {
    APART_DEPTH = 8,           /* depth of properties and references */
    APART_MAX_STEPS = 1 << 21, /* steps of all comparisons of a schema: about 0.5 s */
};

uint32_t schema_type_of(const json_node *value) {
    int64_t integer;
    switch (json_kind_of(value)) {
    case JSON_NULL:
        return SCHEMA_NULL;
    case JSON_BOOL:
        return SCHEMA_BOOLEAN;
    case JSON_INT:
        return SCHEMA_INTEGER;
    case JSON_REAL:
        return json_as_int(value, &integer) ? SCHEMA_INTEGER : SCHEMA_FRACTION;
    case JSON_STRING:
        return SCHEMA_STRING;
    case JSON_ARRAY:
        return SCHEMA_ARRAY;
    case JSON_OBJECT:
        return SCHEMA_OBJECT;
    }
    return 0;
}

static uint32_t named_type(const json_node *name) {
    static const struct {
        const char *name;
        uint32_t types;
    } all[] = {{"null", SCHEMA_NULL},       {"boolean", SCHEMA_BOOLEAN},
               {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_INTEGER | SCHEMA_FRACTION},
               {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
               {"object", SCHEMA_OBJECT}};
    const char *s;
    size_t n;
    if (!json_as_string(name, &s, &n)) return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, s) == 0) return all[i].types;
    }
    return 0;
}

uint32_t schema_types(const json_node *schema) {
    const json_node *type = json_get(schema, "type");
    uint32_t types = 0;
    if (!type) return SCHEMA_ALL_TYPES;
    if (json_kind_of(type) != JSON_ARRAY) return named_type(type);
    for (size_t i = 0; i < json_count(type); i++) {
        uint32_t one = named_type(json_at(type, i));
        if (!one) return 0;
        types |= one;
    }
    return types;
}

uint32_t schema_implied(const json_node *schema) {
    static const struct {
        const char *keyword;
        uint32_t types;
    } all[] = {{"properties", SCHEMA_OBJECT},
               {"required", SCHEMA_OBJECT},
               {"additionalProperties", SCHEMA_OBJECT},
               {"patternProperties", SCHEMA_OBJECT},
               {"propertyNames", SCHEMA_OBJECT},
               {"minProperties", SCHEMA_OBJECT},
               {"maxProperties", SCHEMA_OBJECT},
               {"unevaluatedProperties", SCHEMA_OBJECT},
               {"items", SCHEMA_ARRAY},
               {"prefixItems", SCHEMA_ARRAY},
               {"minItems", SCHEMA_ARRAY},
               {"maxItems", SCHEMA_ARRAY},
               {"uniqueItems", SCHEMA_ARRAY},
               {"minLength", SCHEMA_STRING},
               {"maxLength", SCHEMA_STRING},
               {"pattern", SCHEMA_STRING},
               {"format", SCHEMA_STRING},
               {"minimum", SCHEMA_INTEGER | SCHEMA_FRACTION},
               {"maximum", SCHEMA_INTEGER | SCHEMA_FRACTION},
               {"exclusiveMinimum", SCHEMA_INTEGER | SCHEMA_FRACTION},
               {"exclusiveMaximum", SCHEMA_INTEGER | SCHEMA_FRACTION},
               {"multipleOf", SCHEMA_INTEGER | SCHEMA_FRACTION}};
    uint32_t types = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (json_get(schema, all[i].keyword)) types |= all[i].types;
    }
    return types;
}

/* The types of values that a schema accepts. */
static uint32_t accepted_types(const json_node *schema) {
    uint32_t types = schema_types(schema), constants = 0;
    for (size_t i = 0; i < schema_n_constants(schema); i++)
        constants |= schema_type_of(schema_constant(schema, i));
    return schema_n_constants(schema) ? types & constants : types;
}

/* The types of the texts that a schema generates. */
static uint32_t written_types(const json_node *schema) {
    uint32_t implied = schema_implied(schema);
    bool open = !schema_n_constants(schema) && !json_get(schema, "type") && implied;
    return open ? implied : accepted_types(schema);
}

static bool constants_apart(schema_compiler *c, const json_node *a, const json_node *b) {
    size_t n = schema_n_constants(a);
    bool apart = n > 0 && schema_n_constants(b) > 0;
    schema_list known;
    if (!apart) return false;
    if (!schema_list_create(c, &known, json_get(b, "const"), json_get(b, "enum"))) return false;
    for (size_t i = 0; i < n && apart; i++) {
        schema_text text = {.n = 0};
        if (!schema_write(&text, schema_constant(a, i))) grammar_no_memory(c->t);
        apart = c->t->status == PI_OK && !schema_list_has(&known, &text);
        mem_free(text.bytes);
    }
    schema_list_free(&known);
    return apart;
}

static bool requires(schema_compiler *c, const json_node *schema, const char *name) {
    const json_node *list = json_get(schema, "required");
    for (size_t i = 0; i < json_count(list); i++) {
        const char *s;
        size_t n;
        c->apart_steps++;
        if (json_as_string(json_at(list, i), &s, &n) && strcmp(s, name) == 0) return true;
    }
    return false;
}

/* Whether texts of the schema never have a property of this name. */
static bool never_writes(schema_compiler *c, const json_node *schema, const char *name) {
    const json_node *named = json_get(schema, "properties");
    const json_node *more = json_get(schema, "additionalProperties");
    static const char *const others[] = {"$ref", "allOf", "anyOf", "oneOf"};
    bool allowed = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (json_get(schema, others[i])) return false; /* may name this property */
    }
    bool closed = !more || (json_as_bool(more, &allowed) && !allowed);
    return closed && json_count(named) > 0 && !json_get(named, name) && !requires(c, schema, name);
}

/* Whether b requires some property that a never writes. */
static bool lacks(schema_compiler *c, const json_node *a, const json_node *b) {
    const json_node *list = json_get(b, "required");
    for (size_t i = 0; i < json_count(list); i++) {
        const char *s;
        size_t n;
        if (json_as_string(json_at(list, i), &s, &n) && never_writes(c, a, s)) return true;
    }
    return false;
}

static bool apart(schema_compiler *c, const json_node *a, const json_node *b, int depth);

static bool property_apart(schema_compiler *c, const json_node *a, const json_node *b, int depth) {
    const json_node *list = json_get(a, "required");
    for (size_t i = 0; i < json_count(list); i++) {
        const char *s;
        size_t n;
        if (!json_as_string(json_at(list, i), &s, &n) || !requires(c, b, s)) continue;
        const json_node *x = json_get(json_get(a, "properties"), s);
        const json_node *y = json_get(json_get(b, "properties"), s);
        if (x && y && apart(c, x, y, depth + 1)) return true;
    }
    return false;
}

static const json_node *follow(schema_compiler *c, const json_node *schema) {
    for (int i = 0; i < APART_DEPTH; i++) {
        const char *ref;
        size_t n;
        if (json_count(schema) != 1 || !json_as_string(json_get(schema, "$ref"), &ref, &n)) break;
        schema = schema_resolve(c, ref);
    }
    return schema;
}

static bool apart(schema_compiler *c, const json_node *a, const json_node *b, int depth) {
    if (depth > APART_DEPTH) return false;
    a = follow(c, a);
    b = follow(c, b);
    c->apart_steps += 8 + schema_n_constants(a) + schema_n_constants(b);
    if (json_kind_of(a) != JSON_OBJECT || json_kind_of(b) != JSON_OBJECT) return false;
    uint32_t both = (written_types(a) & accepted_types(b)) | (written_types(b) & accepted_types(a));
    if (both == 0) return true;
    if (constants_apart(c, a, b)) return true;
    if (both != SCHEMA_OBJECT) return false;
    return property_apart(c, a, b, depth) || (lacks(c, a, b) && lacks(c, b, a));
}

bool schema_apart(schema_compiler *c, const json_node *a, const json_node *b, bool *known) {
    bool is = apart(c, a, b, 0);
    *known = c->apart_steps <= APART_MAX_STEPS;
    return is;
}
