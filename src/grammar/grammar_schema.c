/* grammar_schema.c: the schema compiler: sets of schemas, references, choices and types. */
#include "grammar_schema.h"

#include <math.h>
#include <string.h>

#include "hex_digit.h"
#include "mem.h"
#include "schema.h"

/* ---- references ------------------------------------------------------------------------------ */

/* The next part of a JSON pointer (RFC 6901, in a URI); returns its end. */
static const char *take_segment(const char *at, char *out, size_t capacity) {
    size_t n = 0;
    for (; *at && *at != '/'; at++) {
        char c = *at;
        if (c == '%' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0) {
            c = (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
            at += 2;
        }
        if (c == '~' && (at[1] == '0' || at[1] == '1')) c = *++at == '0' ? '~' : '/';
        if (n + 1 < capacity) out[n++] = c;
    }
    out[n] = '\0';
    return at;
}

static const json_node *array_item(const json_node *array, const char *index) {
    size_t i = 0;
    if (!*index || strlen(index) > 9) return NULL;
    for (; *index; index++) {
        if (*index < '0' || *index > '9') return NULL;
        i = i * 10 + (size_t)(*index - '0');
    }
    return json_at(array, i);
}

const json_node *schema_resolve(schema_compiler *c, const char *ref) {
    char segment[512];
    const json_node *node = c->root;
    if (ref[0] != '#') return NULL;
    for (const char *at = ref + 1; *at && node;) {
        if (*at != '/') return NULL; /* an anchor */
        at = take_segment(at + 1, segment, sizeof segment);
        node = json_kind_of(node) == JSON_ARRAY ? array_item(node, segment)
                                                : json_get(node, segment);
    }
    return node;
}

/* ---- sets ------------------------------------------------------------------------------------ */

const json_node *schema_get(const schema_set *set, size_t i, const char *keyword) {
    return json_get(set->parts[i].node, keyword);
}

bool schema_has(const schema_set *set, const char *keyword) {
    for (size_t i = 0; i < set->n; i++) {
        if (schema_get(set, i, keyword)) return true;
    }
    return false;
}

static uint32_t count_of(schema_compiler *c, const json_node *part, const char *keyword) {
    double value;
    if (!json_as_double(json_get(part, keyword), &value) || value < 0 || value != floor(value)) {
        schema_wrong(c, part, keyword, "not an integer >= 0");
        return 0;
    }
    return value > GRAMMAR_MAX_REPEAT ? GRAMMAR_NO_BOUND : (uint32_t)value;
}

/* A minimum beyond the countable range is an error; a maximum beyond it has no effect. */
uint32_t schema_most(schema_compiler *c, const schema_set *set, const char *keyword,
                     uint32_t otherwise) {
    for (size_t i = 0; i < set->n; i++) {
        const json_node *part = set->parts[i].node;
        if (!json_get(part, keyword)) continue;
        uint32_t value = count_of(c, part, keyword);
        if (value == GRAMMAR_NO_BOUND) schema_too_large(c, part, keyword, "too large a number");
        if (value > otherwise) otherwise = value;
    }
    return otherwise;
}

uint32_t schema_least(schema_compiler *c, const schema_set *set, const char *keyword,
                      uint32_t otherwise) {
    for (size_t i = 0; i < set->n; i++) {
        const json_node *part = set->parts[i].node;
        uint32_t value = json_get(part, keyword) ? count_of(c, part, keyword) : otherwise;
        if (value < otherwise) otherwise = value;
    }
    return otherwise;
}

static void check_keywords(schema_compiler *c, const json_node *node) {
    static const char *const beyond[] = {
        "if",          "dependentRequired", "dependencies",    "contains", "dependentSchemas",
        "$dynamicRef", "$recursiveRef",     "unevaluatedItems"};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        if (json_get(node, beyond[i]))
            schema_widen(c, node, beyond[i], "allowed values depend on other values");
    }
    if (schema_types(node) == 0) schema_wrong(c, node, "type", "not the name of a type");
}

/* Whether a part came from this schema, through references and choices. */
static bool comes_from(const schema_set *set, int32_t part, const json_node *node) {
    for (; part >= 0; part = set->parts[part].parent) {
        if (set->parts[part].node == node) return true;
    }
    return false;
}

static void add_referred(schema_compiler *c, schema_set *set, const json_node *node, int32_t self) {
    const json_node *ref = json_get(node, "$ref"), *all = json_get(node, "allOf");
    const char *text;
    size_t n;
    if (ref && !json_as_string(ref, &text, &n)) {
        schema_wrong(c, node, "$ref", "not a string");
    } else if (ref) {
        const json_node *target = schema_resolve(c, text);
        if (target)
            schema_add(c, set, target, self);
        else
            schema_widen(c, node, "$ref", "the reference has no target");
    }
    if (all && json_kind_of(all) != JSON_ARRAY) schema_wrong(c, node, "allOf", "not an array");
    for (size_t i = 0; i < json_count(all) && c->t->status == PI_OK; i++)
        schema_add(c, set, json_at(all, i), self);
}

void schema_add(schema_compiler *c, schema_set *set, const json_node *node, int32_t parent) {
    bool allowed = false;
    if (c->t->status != PI_OK || (json_as_bool(node, &allowed) && allowed)) return;
    if (json_kind_of(node) != JSON_OBJECT && json_kind_of(node) != JSON_BOOL) {
        schema_wrong(c, node, NULL, "a schema must be an object or a boolean");
        return;
    }
    if (comes_from(set, parent, node)) {
        schema_wrong(c, node, NULL, "refers to itself: infinite recursion");
        return;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (set->parts[i].node == node && set->parts[i].done == 0) return;
    }
    check_keywords(c, node);
    if (set->n == SCHEMA_MAX_PARTS) {
        schema_too_large(c, node, NULL, "a value must satisfy too many schemas");
        return;
    }
    if (!mem_grow((void **)&set->parts, &set->capacity, set->n + 1, sizeof *set->parts,
                  SCHEMA_MAX_PARTS)) {
        grammar_no_memory(c->t);
        return;
    }
    set->parts[set->n] = (schema_part){.node = node, .parent = parent};
    set->n++;
    add_referred(c, set, node, (int32_t)set->n - 1);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* The number of a set, from its key: the schemas and their `done` bits. */
static uint32_t set_number(schema_compiler *c, const schema_set *set) {
    size_t n = set->n * (sizeof(void *) + sizeof(uint32_t));
    char *key = arena_alloc(&c->t->memory, n);
    if (!key) return TEXT_TABLE_NONE;
    for (size_t i = 0; i < set->n; i++) {
        char *at = key + i * (sizeof(void *) + sizeof(uint32_t));
        memcpy(at, &set->parts[i].node, sizeof(void *));
        memcpy(at + sizeof(void *), &set->parts[i].done, sizeof(uint32_t));
    }
    return text_table_add(&c->sets, key, n);
}

static grammar_node *any_value(schema_compiler *c);

grammar_node *schema_rule(schema_compiler *c, schema_set *set) {
    size_t known = c->sets.count;
    if (set->n == 0 || c->t->status != PI_OK) {
        mem_free(set->parts);
        *set = (schema_set){.n = 0};
        return any_value(c);
    }
    uint32_t number = set_number(c, set);
    bool fresh = number != TEXT_TABLE_NONE && number == known;
    int32_t rule = -1;
    if (number != TEXT_TABLE_NONE && !fresh) rule = c->set_rules[number];
    if (fresh &&
        mem_grow((void **)&c->set_rules, &c->rules_capacity, c->sets.count, sizeof *c->set_rules,
                 GRAMMAR_MAX_RULES + 1) &&
        mem_grow((void **)&c->pending, &c->pending_capacity, c->n_pending + 1, sizeof *c->pending,
                 GRAMMAR_MAX_RULES + 1)) {
        rule = c->set_rules[number] = grammar_rule_new(c->t, "of the schema");
        if (rule >= 0) {
            c->pending[c->n_pending++] = (schema_pending){rule, *set};
            *set = (schema_set){.n = 0};
        }
    }
    mem_free(set->parts);
    *set = (schema_set){.n = 0};
    if (rule < 0) {
        grammar_no_memory(c->t); /* unless there was an earlier problem */
        return grammar_never();
    }
    return grammar_ref(c->t, rule);
}

/* Whitespace between tokens: none, a space, or at most two newlines and some indentation. */
static grammar_node *space(schema_compiler *c) {
    static const grammar_range blanks[] = {{'\t', '\t'}, {' ', ' '}};
    grammar_tree *t = c->t;
    if (c->common.space < 0) {
        c->common.space = grammar_rule_new(t, "space");
        if (c->common.space < 0) return grammar_never();
        grammar_node *choice = grammar_alt(t), *line = grammar_seq(t);
        grammar_add(t, line, grammar_repeat(t, grammar_text(t, "\n"), 1, 2));
        grammar_add(t, line, grammar_repeat(t, grammar_class(t, blanks, 2, false), 0, 20));
        grammar_add(t, choice, grammar_text(t, ""));
        grammar_add(t, choice, grammar_text(t, " "));
        grammar_add(t, choice, line);
        t->rules[c->common.space].body = choice;
    }
    return grammar_ref(t, c->common.space);
}

grammar_node *schema_spaced(schema_compiler *c, grammar_node *value) {
    return grammar_pair(c->t, value, space(c));
}

grammar_node *schema_sign(schema_compiler *c, const char *text) {
    return schema_spaced(c, grammar_text(c->t, text));
}

static grammar_node *by_types(schema_compiler *c, const schema_set *set, uint32_t types) {
    grammar_tree *t = c->t;
    grammar_node *choice = grammar_alt(t);
    if (types & SCHEMA_OBJECT) grammar_add(t, choice, schema_object(c, set));
    if (types & SCHEMA_ARRAY) grammar_add(t, choice, schema_array(c, set));
    if (types & SCHEMA_STRING) grammar_add(t, choice, schema_string(c, set));
    if (types & (SCHEMA_INTEGER | SCHEMA_FRACTION))
        grammar_add(t, choice, schema_number(c, set, !(types & SCHEMA_FRACTION)));
    if (types & SCHEMA_BOOLEAN) {
        grammar_add(t, choice, grammar_text(t, "true"));
        grammar_add(t, choice, grammar_text(t, "false"));
    }
    if (types & SCHEMA_NULL) grammar_add(t, choice, grammar_text(t, "null"));
    return choice;
}

/* The set without schemas. */
static grammar_node *any_value(schema_compiler *c) {
    const schema_set empty = {.n = 0};
    if (c->common.value < 0) {
        int32_t rule = c->common.value = grammar_rule_new(c->t, "value");
        if (rule < 0) return grammar_never();
        grammar_node *body = by_types(c, &empty, SCHEMA_ALL_TYPES);
        if (c->t->status == PI_OK) c->t->rules[rule].body = body;
    }
    return grammar_ref(c->t, c->common.value);
}

/* ---- values that a set allows ---------------------------------------------------------------- */

/* A oneOf equals an anyOf if no value can satisfy two of its schemas. */
static void check_one_of(schema_compiler *c, const json_node *part) {
    const json_node *list = json_get(part, "oneOf");
    for (size_t i = 0; i < json_count(list) && c->t->status == PI_OK; i++) {
        for (size_t k = 0; k < i && c->t->status == PI_OK; k++) {
            bool known = true, apart = schema_apart(c, json_at(list, i), json_at(list, k), &known);
            if (apart && known) continue;
            schema_widen(c, part, "oneOf",
                         known ? "a value may match two of its schemas: use anyOf, or give each a "
                                 "required constant that only it has"
                               : "too much to compare: use anyOf, or fewer schemas");
            return;
        }
    }
}

/* The choices of part i, each together with all other parts. */
static grammar_node *choices(schema_compiler *c, const schema_set *set, size_t i, uint32_t which) {
    const char *keyword = which == SCHEMA_ANY_OF ? "anyOf" : "oneOf";
    const json_node *list = schema_get(set, i, keyword);
    grammar_node *choice = grammar_alt(c->t);
    if (json_kind_of(list) != JSON_ARRAY)
        return schema_wrong(c, set->parts[i].node, keyword, "not an array");
    if (which == SCHEMA_ONE_OF) check_one_of(c, set->parts[i].node);
    for (size_t k = 0; k < json_count(list) && c->t->status == PI_OK; k++) {
        schema_set one = {.n = 0};
        if (!mem_grow((void **)&one.parts, &one.capacity, set->n, sizeof *one.parts,
                      SCHEMA_MAX_PARTS)) {
            grammar_no_memory(c->t);
            break;
        }
        memcpy(one.parts, set->parts, set->n * sizeof *one.parts);
        one.n = set->n;
        one.parts[i].done |= which;
        schema_add(c, &one, json_at(list, k), (int32_t)i);
        grammar_add(c->t, choice, schema_rule(c, &one));
    }
    return choice;
}

static grammar_node *allowed_by(schema_compiler *c, const schema_set *set) {
    uint32_t types = SCHEMA_ALL_TYPES, implied = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (json_kind_of(set->parts[i].node) == JSON_BOOL) return grammar_never();
    }
    for (size_t i = 0; i < set->n; i++) {
        uint32_t done = set->parts[i].done;
        if (schema_get(set, i, "anyOf") && !(done & SCHEMA_ANY_OF))
            return choices(c, set, i, SCHEMA_ANY_OF);
        if (schema_get(set, i, "oneOf") && !(done & SCHEMA_ONE_OF))
            return choices(c, set, i, SCHEMA_ONE_OF);
        types &= schema_types(set->parts[i].node) & schema_types_left(c, set->parts[i].node);
        implied |= schema_implied(set->parts[i].node);
    }
    if (types == 0) return grammar_never();
    grammar_node *constants = schema_constants(c, set);
    if (constants) return constants;
    return by_types(c, set, schema_has(set, "type") || !implied ? types : types & implied);
}

static void compile(schema_compiler *c, int32_t rule) {
    schema_set first = {.n = 0};
    schema_add(c, &first, c->root, -1);
    grammar_node *body = schema_rule(c, &first);
    if (c->t->status == PI_OK) c->t->rules[rule].body = body;
    for (; c->next_pending < c->n_pending && c->t->status == PI_OK; c->next_pending++) {
        schema_pending one = c->pending[c->next_pending];
        c->now = one.set.parts[0].node;
        body = allowed_by(c, &one.set);
        c->t->rules[one.rule].body = body;
    }
    for (size_t i = 0; i < c->n_pending; i++) mem_free(c->pending[i].set.parts);
}

void grammar_add_schema(grammar_tree *t, int32_t rule, const pi_grammar_schema *schema) {
    schema_compiler c = {.t = t, .options = schema, .common = {-1, -1, -1, -1}};
    const char *name = schema->name ? schema->name : "JSON Schema";
    json_doc *doc;
    pi_error err;
    if (schema->n_schema > GRAMMAR_MAX_BYTES) {
        grammar_fail(t, PI_ERR_LIMIT, "%s: %zu bytes are too long: at most %d", name,
                     schema->n_schema, GRAMMAR_MAX_BYTES);
        return;
    }
    if (t->rules[rule].body) {
        grammar_fail(t, PI_ERR_FORMAT, "grammar rule %s is defined twice", t->rules[rule].name);
        return;
    }
    pi_status status = json_parse(schema->schema, schema->n_schema, name, &doc, &err);
    if (status != PI_OK) {
        grammar_fail(t, status, "%s", err.message);
        return;
    }
    c.root = c.now = json_root(doc);
    t->prune = true;
    if (text_table_init(&c.sets, 16))
        compile(&c, rule);
    else
        grammar_no_memory(t);
    schema_tell_place(&c);
    t->rules[rule].schema = schema_path(&c, c.root, NULL);
    if (!t->rules[rule].schema) grammar_no_memory(t);
    for (size_t i = 0; i < c.n_properties; i++) unicode_class_free(&c.properties[i].set);
    text_table_free(&c.sets);
    mem_free(c.set_rules);
    mem_free(c.pending);
    json_free(doc);
}
