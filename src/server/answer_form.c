/* answer_form.c: builds the grammar of an answer.
 *
 * The fields of a request are grammar (GBNF) and json_schema from llama.cpp's API, response_format
 * from OpenAI's, and tools. Optional calls use a lazy grammar, whose trigger is the mark that opens
 * a call. An answer that follows reasoning also uses a lazy grammar; its trigger is the mark that
 * ends the reasoning. */
#include "answer_form.h"

#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "mem.h"

enum {
    MAX_SCHEMAS = 1024, /* limit of pi_grammar_options */
    OWNER_BYTES = 96,
    PATH_BYTES = 192
};

typedef struct grammar_text {
    bytes gbnf;
    bytes rules;   /* rules of the parts of literals; appended to gbnf */
    bool in_rules; /* put() writes to `rules` */
    int n_rules;
    bytes schema_texts[MAX_SCHEMAS];
    char names[MAX_SCHEMAS][16];
    char paths[MAX_SCHEMAS][PATH_BYTES]; /* path within the owner's schema */
    char owners[MAX_SCHEMAS][OWNER_BYTES];
    char owner[OWNER_BYTES]; /* request field or tool whose schemas are being added: "tool f" */
    bool strict;             /* the schemas must not be widened */
    pi_grammar_schema schemas[MAX_SCHEMAS];
    size_t n_schemas;
    bool failed;   /* out of memory */
    bool too_many; /* more than MAX_SCHEMAS schemas */
} grammar_text;

static void put(grammar_text *g, const char *text) {
    if (!bytes_append_text(g->in_rules ? &g->rules : &g->gbnf, text)) g->failed = true;
}

/* Writes a text as a GBNF literal; CALL_WORD_ in a mark becomes a rule for any word. */
static void put_literal(grammar_text *g, const char *text) {
    put(g, "\"");
    for (; *text; text++) {
        const char one[2] = {*text, 0};
        if (*text == CALL_WORD_)
            put(g, "\" [a-zA-Z0-9_-]{1,64} \"");
        else if (*text == '\n')
            put(g, "\\n");
        else if (*text == '\t')
            put(g, "\\t");
        else if (*text == '\r')
            put(g, "\\r");
        else {
            if (*text == '"' || *text == '\\') put(g, "\\");
            put(g, one);
        }
    }
    put(g, "\"");
}

/* Writes a text as a GBNF literal of its JSON form, quotes included. */
static void put_json_literal(grammar_text *g, const char *text) {
    bytes json = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &json)) {
        g->failed = true;
        return;
    }
    json_put_text(&j.writer, NULL, text);
    if (!bytes_json_end(&j) || !bytes_append(&json, "", 1)) g->failed = true;
    if (!g->failed) put_literal(g, json.data);
    bytes_free(&json);
}

/* Adds a rule for a schema, which may refer to definitions of `root`; NULL: any object. Returns the
 * name of the rule. */
static const char *add_part(grammar_text *g, const json_node *schema, const json_node *root) {
    static const char *const definitions[] = {"$defs", "definitions"};
    void *member = NULL;
    const char *key = NULL;
    const json_node *value = NULL;
    if (g->n_schemas == MAX_SCHEMAS) {
        g->too_many = true;
        return g->names[0];
    }
    size_t k = g->n_schemas++;
    bytes *text = &g->schema_texts[k];
    bytes_json j;
    snprintf(g->names[k], sizeof g->names[k], "schema-%zu", k);
    if (!schema) {
        if (!bytes_append_text(text, "{\"type\":\"object\"}")) g->failed = true;
    } else if (!bytes_json_begin(&j, text)) {
        g->failed = true;
    } else {
        if (json_kind_of(schema) != JSON_OBJECT) { /* the schema is true or false */
            bytes_json_put(&j.writer, NULL, schema);
        } else {
            json_put_object(&j.writer, NULL);
            while (json_next(schema, &member, &key, &value)) bytes_json_put(&j.writer, key, value);
            for (size_t i = 0; i < 2 && root; i++)
                if (!json_get(schema, definitions[i]))
                    bytes_json_copy(&j.writer, definitions[i], root, definitions[i]);
            json_end_object(&j.writer);
        }
        if (!bytes_json_end(&j)) g->failed = true;
    }
    char path[PATH_BYTES - 1] = "";
    if (root && schema) json_path(root, schema, NULL, path, sizeof path);
    snprintf(g->paths[k], sizeof g->paths[k], "$%s", path);
    memcpy(g->owners[k], g->owner, sizeof g->owner);
    g->schemas[k] = (pi_grammar_schema){.rule = g->names[k],
                                        .schema = text->data,
                                        .n_schema = text->used,
                                        .widen = !g->strict,
                                        .name = g->owners[k],
                                        .path = g->paths[k]};
    return g->names[k];
}

static const char *add_schema(grammar_text *g, const json_node *schema) {
    return add_part(g, schema, NULL);
}

/* Sets the owner of the schemas that are added from here on. */
static void set_owner(grammar_text *g, const char *kind, const char *name, bool strict) {
    snprintf(g->owner, sizeof g->owner, "%s%.64s", kind, name);
    g->strict = strict;
}

/* ---- tool calls ------------------------------------------------------------------------------ */

static const char *tool_text(const json_node *tool, const char *key) {
    const char *text = "";
    size_t n = 0;
    json_as_string(json_get(json_get(tool, "function"), key), &text, &n);
    return text;
}

/* Writes the rules raw-0, raw-1, ...: any text up to and including the first `mark`. In state raw-i
 * the text so far ends with the first i characters of the mark. */
static void put_raw(grammar_text *g, const char *mark) {
    size_t begins[129], n = 0, n_bytes = strlen(mark);
    for (size_t i = 0; i < n_bytes && n < 128; i++)
        if (((unsigned char)mark[i] & 0xc0) != 0x80) begins[n++] = i;
    begins[n] = n_bytes;
    for (size_t i = 0; i < n; i++) {
        char text[64];
        bytes others = {0};
        snprintf(text, sizeof text, "\nraw-%zu ::= ", i);
        put(g, text);
        /* after character k the text ends with `next` characters of the mark */
        for (size_t k = 0; k <= i; k++) {
            size_t next = 0, n_char = begins[k + 1] - begins[k];
            const char *c = mark + begins[k];
            bool seen = false;
            for (size_t e = 0; e < k; e++)
                seen |= begins[e + 1] - begins[e] == n_char && !memcmp(mark + begins[e], c, n_char);
            for (size_t e = i + 1; e > 0 && next == 0; e--)
                if (begins[e] - begins[e - 1] == n_char &&
                    !memcmp(mark + begins[e - 1], c, n_char) &&
                    !memcmp(mark, mark + begins[i + 1 - e], begins[e - 1]))
                    next = e;
            if (seen || next == 0) continue;
            char one[16];
            if (n_char == 1)
                snprintf(one, sizeof one, "\\x%02x", (unsigned)(unsigned char)*c);
            else
                snprintf(one, sizeof one, "%.*s", (int)n_char, c);
            if (next == n)
                snprintf(text, sizeof text, "\"%s\" | ", one);
            else
                snprintf(text, sizeof text, "\"%s\" raw-%zu | ", one, next);
            put(g, text);
            if (!bytes_append_text(&others, one)) g->failed = true;
        }
        put(g, "[^");
        if (!bytes_append(&others, "", 1)) g->failed = true;
        if (!g->failed) put(g, others.data);
        put(g, "] raw-0");
        bytes_free(&others);
    }
}

/* Writes the value of a marked argument and the mark that ends the value. Strings are raw text;
 * their schemas are enforced only in enum and const. */
static void put_value(grammar_text *g, const call_pairs *p, const json_node *schema,
                      const json_node *root) {
    const json_node *one = json_get(schema, "const"), *some = json_get(schema, "enum");
    unsigned kinds = call_pairs_kinds(schema, root);
    size_t n = one ? 1 : json_count(some);
    const char *text = NULL;
    if (!(kinds & 1U << JSON_STRING)) {
        put(g, add_part(g, schema, root));
    } else if (kinds == 1U << JSON_STRING && n > 0) {
        put(g, "(");
        for (size_t i = 0; i < n; i++) {
            size_t length = 0;
            if (!json_as_string(one ? one : json_at(some, i), &text, &length)) continue;
            if (i) put(g, " | ");
            put_literal(g, text);
        }
        put(g, ")");
    } else {
        put(g, "raw-0");
        return;
    }
    put(g, " ");
    put_literal(g, p->value_end);
}

static bool is_required(const json_node *schema, const char *key) {
    const json_node *list = json_get(schema, "required");
    const char *text = NULL;
    size_t n = 0;
    for (size_t i = 0; i < json_count(list); i++)
        if (json_as_string(json_at(list, i), &text, &n) && strcmp(text, key) == 0) return true;
    return false;
}

/* ---- literals -------------------------------------------------------------------------------- */

/* A rule's name. */
typedef struct rule_name {
    char text[24];
} rule_name;

static rule_name add_value(grammar_text *g, const call_pairs *p, const json_node *schema,
                           const json_node *root, int depth);

static rule_name new_rule(grammar_text *g, char kind) {
    rule_name name;
    snprintf(name.text, sizeof name.text, "%c%d", kind, g->n_rules++);
    return name;
}

typedef struct member {
    const char *key;
    const json_node *schema;
    bool required;
} member;

static int by_key(const void *a, const void *b) {
    return strcmp(((const member *)a)->key, ((const member *)b)->key);
}

/* Writes the arguments, or the members of an object, separated by commas, in the order of the
 * schema or sorted. Members may be missing, so each member starts two rules: o-f (no member before)
 * and o-m (some member before). */
static rule_name add_members(grammar_text *g, const call_pairs *p, const json_node *schema,
                             const json_node *root, char equals, int depth) {
    const json_node *properties = json_get(schema, "properties"), *one = NULL;
    size_t n = 0;
    void *property = NULL;
    const char *key = NULL;
    char text[200];
    rule_name name = new_rule(g, 'o');
    member *all = mem_calloc(json_count(properties) + 1, sizeof *all);
    if (!all) g->failed = true;
    while (all && json_next(properties, &property, &key, &one))
        all[n++] = (member){key, one, is_required(schema, key)};
    if (p->sorted && n) qsort(all, n, sizeof *all, by_key);
    for (size_t i = 0; i < n && !g->failed; i++) {
        rule_name value = add_value(g, p, all[i].schema, root, depth + 1);
        for (int begun = 0; begun < 2; begun++) {
            char kind = begun ? 'm' : 'f';
            snprintf(text, sizeof text, "\n%s-%c%zu ::= %s", name.text, kind, i,
                     begun ? "\",\" ws " : "");
            put(g, text);
            put_literal(g, all[i].key);
            snprintf(text, sizeof text, " \"%c\" %s%s ws %s-m%zu", equals,
                     equals == '=' ? "" : "ws ", value.text, name.text, i + 1);
            put(g, text);
            snprintf(text, sizeof text, " | %s-%c%zu", name.text, kind, i + 1);
            if (!all[i].required) put(g, text);
        }
    }
    snprintf(text, sizeof text, "\n%s-f%zu ::= \"\"\n%s-m%zu ::= \"\"\n%s ::= %s-f0", name.text, n,
             name.text, n, name.text, name.text);
    put(g, text);
    mem_free(all);
    return name;
}

static size_t count_of(const json_node *schema, const char *key, size_t none) {
    int64_t n = 0;
    return json_as_int(json_get(schema, key), &n) && n >= 0 && n < 1000 ? (size_t)n : none;
}

/* Writes an array whose items have one schema. */
static void put_items(grammar_text *g, const json_node *schema, const char *item) {
    size_t least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", SIZE_MAX);
    char text[160], limit[32] = "";
    if (most != SIZE_MAX) snprintf(limit, sizeof limit, "%zu", most ? most - 1 : 0);
    snprintf(text, sizeof text, "(%s ws (\",\" ws %s ws){%zu,%s})%s ", item, item,
             least ? least - 1 : 0, limit, least ? "" : "?");
    put(g, "\"[\" ws ");
    if (most) put(g, text);
    put(g, "\"]\"");
}

/* Writes the values of a schema with enum or const. */
static void put_constants(grammar_text *g, const call_pairs *p, const json_node *schema) {
    const json_node *one = json_get(schema, "const"), *some = json_get(schema, "enum");
    size_t n = one ? 1 : json_count(some);
    for (size_t i = 0; i < n; i++) {
        const json_node *value = one ? one : json_at(some, i);
        const char *s = NULL;
        size_t length = 0;
        bytes text = {0};
        bytes_json j;
        if (i) put(g, " | ");
        if (json_as_string(value, &s, &length)) {
            put_literal(g, p->literal.quote);
            put(g, " ");
            put_literal(g, s);
            put(g, " ");
            put_literal(g, p->literal.quote);
        } else if (bytes_json_begin(&j, &text)) {
            bytes_json_put(&j.writer, NULL, value);
            if (!bytes_json_end(&j) || !bytes_append(&text, "", 1)) g->failed = true;
            if (!g->failed) put_literal(g, text.data);
        } else {
            g->failed = true;
        }
        bytes_free(&text);
    }
}

/* Starts the next alternative of a rule. */
static void put_or(grammar_text *g, bool *any, const char *text) {
    if (*any) put(g, " | ");
    *any = true;
    put(g, text);
}

/* Writes the alternatives that a schema allows where strings stand between marks. */
static void put_marked_value(grammar_text *g, const call_pairs *p, const json_node *schema,
                             rule_name nested, unsigned kinds) {
    static const char members[] = "(word \":\" ws any ws (\",\" ws word \":\" ws any ws)*)?";
    bool any = false;
    if (kinds & 1U << JSON_STRING) {
        put_or(g, &any, "");
        put_literal(g, p->literal.quote);
        put(g, " raw-0");
    }
    if (kinds & (1U << JSON_INT | 1U << JSON_REAL)) put_or(g, &any, "number");
    if (kinds & 1U << JSON_BOOL) put_or(g, &any, "boolean");
    if (kinds & 1U << JSON_NULL) put_or(g, &any, "nothing");
    if (kinds & 1U << JSON_ARRAY) {
        put_or(g, &any, "");
        put_items(g, schema, json_get(schema, "items") ? nested.text : "any");
    }
    if (kinds & 1U << JSON_OBJECT) {
        put_or(g, &any, "\"{\" ws ");
        put(g, json_get(schema, "properties") ? nested.text : members);
        put(g, " \"}\"");
    }
    if (!kinds) put(g, "any");
}

enum { MAX_LITERAL_DEPTH = 8 /* schemas nested deeper are not enforced */ };

/* Adds a rule for a value. Strings in quotes are JSON strings, so their schemas are enforced.
 * Strings between marks are raw text; only enum and const of their schemas are enforced. */
static rule_name add_value(grammar_text *g, const call_pairs *p, const json_node *schema,
                           const json_node *root, int depth) {
    const unsigned kinds = call_pairs_kinds(schema, root);
    const unsigned numbers = 1U << JSON_INT | 1U << JSON_REAL;
    rule_name name, nested = {""};
    const json_node *either = NULL;
    bool constant;
    char text[64];
    schema = call_pairs_schema(schema, root);
    constant = json_get(schema, "enum") || json_get(schema, "const");
    either = json_get(schema, "anyOf");
    if (!either) either = json_get(schema, "oneOf");
    if (depth > MAX_LITERAL_DEPTH) return (rule_name){"any"};
    if (!*p->literal.quote || (!(kinds & ~numbers) && !constant)) {
        const char *part = add_part(g, schema, root);
        name = new_rule(g, 'v');
        snprintf(text, sizeof text, "\n%s ::= %s%s%s", name.text, part,
                 kinds & 1U << JSON_BOOL && !constant ? " | \"True\" | \"False\"" : "",
                 kinds & 1U << JSON_NULL && !constant ? " | \"None\"" : "");
        put(g, text);
        return name;
    }
    rule_name parts[16];
    size_t n = json_count(either) < 16 ? json_count(either) : 0;
    for (size_t i = 0; i < n; i++) parts[i] = add_value(g, p, json_at(either, i), root, depth + 1);
    if (!n && json_get(schema, "properties") && kinds & 1U << JSON_OBJECT)
        nested = add_members(g, p, schema, root, ':', depth + 1);
    else if (!n && json_get(schema, "items"))
        nested = add_value(g, p, json_get(schema, "items"), root, depth + 1);
    name = new_rule(g, 'v');
    put(g, "\n");
    put(g, name.text);
    put(g, " ::= ");
    for (size_t i = 0; i < n; i++) {
        if (i) put(g, " | ");
        put(g, parts[i].text);
    }
    if (!n && constant) put_constants(g, p, schema);
    if (!n && !constant) put_marked_value(g, p, schema, nested, kinds);
    return name;
}

/* Writes the arguments that follow the opening bracket, and the closing bracket. */
static void put_literals(grammar_text *g, const call_pairs *p, const json_node *root) {
    const char *end = p->name_end[0] + strlen(p->name_end[0]) - 1;
    g->in_rules = true;
    rule_name members = add_members(g, p, root, root, p->literal.equals, 0);
    g->in_rules = false;
    put(g, members.text);
    put(g, *end == '(' ? " \")\"" : " \"}\"");
}

/* Writes the rules of literals between marks where no schema applies. */
static void put_any_literal(grammar_text *g, const call_pairs *p) {
    put(g, "\nword ::= [a-zA-Z0-9_.$-]{1,64}\nnumber ::= \"-\"? [0-9]{1,18} (\".\" [0-9]{1,18})? "
           "([eE] [-+]? [0-9]{1,3})?\nboolean ::= \"true\" | \"false\"\n"
           "nothing ::= \"null\" | \"None\"\nany ::= number | boolean | nothing | ");
    put_literal(g, p->literal.quote);
    put(g, " raw-0 | \"[\" ws (any ws (\",\" ws any ws)*)? \"]\" | "
           "\"{\" ws (word \":\" ws any ws (\",\" ws word \":\" ws any ws)*)? \"}\"");
    put_raw(g, p->literal.quote);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void put_element(grammar_text *g, const call_pairs *p, const json_node *schema,
                        const json_node *root, const char *key, int depth);

/* Writes the members of an object as elements, in the order of the schema. */
static void put_elements(grammar_text *g, const call_pairs *p, const json_node *schema,
                         const json_node *root, int depth) {
    const json_node *one = NULL;
    void *property = NULL;
    const char *key = NULL;
    while (json_next(json_get(schema, "properties"), &property, &key, &one)) {
        put(g, "(");
        put_element(g, p, one, root, key, depth);
        put(g, is_required(schema, key) ? " ws) " : " ws)? ");
    }
}

/* Writes an element. Strings are raw text; objects with properties and arrays with items consist of
 * elements; everything else is JSON. */
static void put_element(grammar_text *g, const call_pairs *p, const json_node *schema,
                        const json_node *root, const char *key, int depth) {
    schema = call_pairs_schema(schema, root);
    const unsigned kinds = call_pairs_kinds(schema, root), string = 1U << JSON_STRING;
    const json_node *items = json_get(schema, "items");
    const bool constant = json_get(schema, "enum") || json_get(schema, "const");
    const bool deep = depth > MAX_LITERAL_DEPTH;
    const bool raw = kinds & string && !(kinds == string && constant);
    size_t least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", SIZE_MAX);
    char text[64];
    put_literal(g, p->key_begin);
    put(g, " ");
    put_literal(g, key);
    put(g, " ");
    put_literal(g, p->key_end[0]);
    if (raw) { /* raw text up to the next mark */
        put(g, " raw-0 \"/\" ");
    } else if (kinds == string) {
        put(g, " (");
        put_constants(g, p, schema);
        put(g, ") ");
    } else if (kinds == 1U << JSON_OBJECT && json_count(json_get(schema, "properties")) && !deep) {
        put(g, " ws ");
        put_elements(g, p, schema, root, depth + 1);
    } else if (kinds == 1U << JSON_ARRAY && json_kind_of(items) == JSON_OBJECT && !deep) {
        put(g, " ws (");
        put_element(g, p, items, root, CALL_ITEM, depth + 1);
        snprintf(text, sizeof text, most == SIZE_MAX ? " ws){%zu,} " : " ws){%zu,%zu} ", least,
                 most);
        put(g, text);
    } else {
        put(g, " ");
        put(g, add_part(g, schema, root));
        put(g, " ");
    }
    if (!raw) put_literal(g, p->value_end);
    put(g, " ");
    put_literal(g, key);
    put(g, " ");
    put_literal(g, p->key_end[0]);
}

static void put_name_end(grammar_text *g, const call_pairs *p) {
    bool two = strcmp(p->name_end[0], p->name_end[1]) != 0;
    if (two) put(g, "(");
    put_literal(g, p->name_end[0]);
    if (two) put(g, " | ");
    if (two) put_literal(g, p->name_end[1]);
    if (two) put(g, ")");
}

/* Writes a call whose name stands before its arguments, from the name on. Properties follow the
 * order of the schema. */
static void put_pairs(grammar_text *g, const call_pairs *p, const json_node *tool) {
    const json_node *root = json_get(json_get(tool, "function"), "parameters"), *schema = NULL;
    void *property = NULL;
    const char *key = NULL;
    put_literal(g, tool_text(tool, "name"));
    put(g, " ");
    put_name_end(g, p);
    put(g, " ws ");
    if (p->literal.equals) {
        put_literals(g, p, root);
        put(g, " ws ");
    } else if (!*p->key_begin) {
        put(g, add_schema(g, json_count(root) ? root : NULL));
        put(g, " ws ");
    }
    if (p->elements) put_elements(g, p, root, root, 0);
    while (*p->key_begin && !p->elements &&
           json_next(json_get(root, "properties"), &property, &key, &schema)) {
        bool string = call_pairs_kinds(schema, root) & 1U << JSON_STRING;
        put(g, "(");
        put_literal(g, p->key_begin);
        put(g, " ");
        put_literal(g, key);
        put(g, " ");
        put_literal(g, p->key_end[!string]);
        put(g, " ");
        put_value(g, p, schema, root);
        put(g, is_required(root, key) ? " ws) " : " ws)? ");
    }
    put_literal(g, p->close);
}

/* Writes the rule `name`: the calls of an answer whose arguments are pairs. The rule `call` is one
 * call from its name on. */
static void put_marked_pairs(grammar_text *g, const call_pairs *p, bool several, const char *name) {
    put(g, "\nmarked ::= ");
    put_literal(g, p->open);
    put(g, " ws ");
    put_literal(g, p->begin);
    put(g, " call");
    if (*p->again) {
        if (several) {
            put(g, " (ws ");
            put_literal(g, p->again);
            put(g, p->literal.equals ? " ws call)*" : " call)*");
        }
        put(g, " ws ");
        put_literal(g, p->end);
    }
    put(g, "\n");
    put(g, name);
    put(g, several && !*p->again ? " ::= marked (ws marked)*" : " ::= marked");
    const char *core = p->elements ? p->key_begin : p->value_end;
    if (*core) put_raw(g, core + strspn(core, " \n\t\r"));
    if (p->literal.equals && *p->literal.quote) put_any_literal(g, p);
    if (g->rules.used && !bytes_append(&g->gbnf, g->rules.data, g->rules.used)) g->failed = true;
    put(g, "\n");
}

/* Writes the id that the template puts into the JSON; the model may write one as well. */
static void put_id(grammar_text *g, const call_format *f) {
    put(g, f->id_first ? "(" : " (ws \",\" ws ");
    put_json_literal(g, f->id_key);
    put(g, " ws \":\" ws \"\\\"\" [a-zA-Z0-9_-]");
    put(g, f->short_ids ? "{9}" : "{1,64}");
    put(g, f->id_first ? " \"\\\"\" ws \",\" ws)? " : " \"\\\"\")?");
}

/* Writes one call of one tool, without the marks around the call. */
static void put_call(grammar_text *g, const call_format *f, const json_node *tool) {
    const json_node *parameters = json_get(json_get(tool, "function"), "parameters");
    const char *name = tool_text(tool, "name");
    if (f->pairs) {
        put_pairs(g, f->pairs, tool);
        return;
    }
    if (json_count(parameters) == 0) parameters = NULL;
    put(g, "\"{\" ws ");
    if (*f->id_key && f->id_first) put_id(g, f);
    if (*f->name_key) {
        put_json_literal(g, f->name_key);
        put(g, " ws \":\" ws ");
        put_json_literal(g, name);
        put(g, " ws \",\" ws ");
    }
    put_json_literal(g, *f->name_key ? f->args_key : name);
    put(g, " ws \":\" ws ");
    put(g, add_schema(g, parameters));
    if (*f->id_key && !f->id_first) put_id(g, f);
    put(g, " ws \"}\"");
}

/* Writes the rule `name`: all calls of an answer. */
static void put_calls(grammar_text *g, const chat_tools *tools, const call_format *f,
                      const char *name) {
    bool first = true;
    put(g, "ws ::= [ \\n]{0,2}\ncall ::= ");
    for (size_t i = 0; i < json_count(tools->list); i++) {
        const json_node *tool = json_at(tools->list, i);
        if (!chat_tool_allowed(tools, i)) continue;
        bool strict = false;
        json_as_bool(json_get(json_get(tool, "function"), "strict"), &strict);
        set_owner(g, "tool ", tool_text(tool, "name"), strict);
        if (!first) put(g, " | ");
        first = false;
        put_call(g, f, tool);
    }
    bool several = tools->parallel && tools->choice != TOOLS_NAMED && !f->single;
    if (f->pairs) {
        put_marked_pairs(g, f->pairs, several, name);
        return;
    }
    put(g, "\nmarked ::= ");
    put_literal(g, f->open);
    put(g, " ws ");
    if (f->list) /* each object may stand on its own indented line */
        put(g, several ? "\"[\" [ \\n]{0,8} call (ws \",\" [ \\n]{0,8} call)* ws \"]\""
                       : "\"[\" [ \\n]{0,8} call ws \"]\"");
    else
        put(g, several && f->further ? "call (ws call)*" : "call");
    if (*f->close) {
        put(g, " ws ");
        put_literal(g, f->close);
    }
    put(g, "\n");
    put(g, name);
    put(g, several && !f->list && !f->further && *f->open ? " ::= marked (ws marked)*\n"
                                                          : " ::= marked\n");
}

/* ---- compilation ----------------------------------------------------------------------------- */

static void grammar_text_free(grammar_text *g) {
    bytes_free(&g->gbnf);
    bytes_free(&g->rules);
    for (size_t i = 0; i < g->n_schemas; i++) bytes_free(&g->schema_texts[i]);
    mem_free(g);
}

/* Compiles the rules that define `answer`. The grammar applies from the start of the text, or from
 * a trigger on. */
static pi_status compile(const answer_form *f, grammar_text *g, const char *trigger,
                         pi_grammar **out, pi_error *err) {
    pi_grammar_options o = {.schemas = g->schemas, .n_schemas = g->n_schemas};
    put(g, "\nroot ::= ");
    if (f->reasoning_end) {
        put_literal(g, f->reasoning_end);
        put(g, " [ \\n]{0,4} ");
        trigger = f->reasoning_end;
    }
    put(g, "answer\n");
    o.trigger_words = &trigger;
    o.n_trigger_words = trigger ? 1 : 0;
    if (g->failed) return error_nomem(err, g->gbnf.used, "grammar");
    if (g->too_many)
        return error_set(err, PI_ERR_LIMIT, "tools: more than %d arguments with schemas",
                         MAX_SCHEMAS);
    const grammar_source source = {f->model, f->owner, g->gbnf.data, g->gbnf.used, &o};
    return grammar_cache_get(f->grammars, &source, out, err);
}

/* Form of an answer without calls. */
typedef struct wanted_form {
    bool given;
    const char *name;        /* field of the request */
    const json_node *schema; /* NULL: any object */
    bool strict;
} wanted_form;

static pi_status compile_calls(const answer_form *f, const wanted_form *w, pi_grammar **out,
                               pi_error *err) {
    bool optional = f->tools->choice == TOOLS_AUTO;
    bool formed = w->given && optional;
    if (optional && !formed && !*f->format->open) return PI_OK; /* nothing announces a call */
    grammar_text *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(err, sizeof *g, "grammar");
    answer_form form = *f;
    if (optional && !formed) form.reasoning_end = NULL;
    put_calls(g, f->tools, f->format, formed ? "calls" : "answer");
    if (formed) {
        put(g, "answer ::= calls | ");
        set_owner(g, w->name, "", w->strict);
        put(g, add_schema(g, w->schema));
        put(g, "\n");
    }
    pi_status status = compile(&form, g, optional && !formed ? f->format->open : NULL, out, err);
    grammar_text_free(g);
    return status;
}

static pi_status compile_schema(const answer_form *f, const wanted_form *w, pi_grammar **out,
                                pi_error *err) {
    grammar_text *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(err, sizeof *g, "grammar");
    put(g, "answer ::= ");
    set_owner(g, w->name, "", w->strict);
    put(g, add_schema(g, w->schema));
    pi_status status = compile(f, g, NULL, out, err);
    grammar_text_free(g);
    return status;
}

/* Reads response_format. */
static pi_status read_format(const json_node *body, wanted_form *w, pi_error *err) {
    const json_node *format = json_get(body, "response_format");
    const char *type = NULL;
    pi_status status = field_kind(body, "response_format", JSON_OBJECT, err);
    if (json_kind_of(format) == JSON_NULL || status != PI_OK) return status;
    status = field_text(format, "type", &type, err);
    if (status == PI_OK && !type)
        status = error_set(err, PI_ERR_ARG, "response_format: type is missing");
    if (status != PI_OK || strcmp(type, "text") == 0) return status;
    w->given = true;
    w->name = "response_format";
    if (strcmp(type, "json_object") == 0) {
        w->schema = json_get(format, "schema");
        return field_kind(format, "schema", JSON_OBJECT, err);
    }
    if (strcmp(type, "json_schema") != 0)
        return error_set(err, PI_ERR_UNSUPPORTED, "response_format: type %s is not supported",
                         type);
    status = field_kind(format, "json_schema", JSON_OBJECT, err);
    const json_node *given = json_get(format, "json_schema");
    if (status == PI_OK) status = field_bool(given, "strict", &w->strict, err);
    w->schema = json_get(given, "schema");
    if (status == PI_OK && json_kind_of(w->schema) != JSON_OBJECT)
        status = error_set(err, PI_ERR_ARG, "response_format: json_schema needs a schema");
    return status;
}

pi_status answer_form_create(const answer_form *f, pi_grammar **out, pi_error *err) {
    const char *gbnf = "";
    const json_node *own = json_get(f->body, "json_schema");
    wanted_form format = {.given = false};
    pi_status status = field_text(f->body, "grammar", &gbnf, err);
    if (status == PI_OK) status = field_kind(f->body, "json_schema", JSON_OBJECT, err);
    if (status == PI_OK) status = read_format(f->body, &format, err);
    if (status != PI_OK) return status;
    bool has_own = json_kind_of(own) == JSON_OBJECT;
    bool tools = f->tools && f->tools->choice != TOOLS_NONE;
    if ((*gbnf != 0) + has_own + format.given > 1 || (*gbnf && tools))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "grammar, json_schema and response_format exclude each other, and grammar "
                         "excludes tools");
    const grammar_source source = {f->model, f->owner, gbnf, strlen(gbnf), NULL};
    if (*gbnf) return grammar_cache_get(f->grammars, &source, out, err);
    if (has_own) format = (wanted_form){.given = true, .name = "json_schema", .schema = own};
    if (tools) return compile_calls(f, &format, out, err);
    return format.given ? compile_schema(f, &format, out, err) : PI_OK;
}
