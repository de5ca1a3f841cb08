/* call_pairs.c: reads calls whose arguments are marked keys and values. A text that has grown is
 * read again from the beginning of its call; nothing is written before the call is complete. */
#include "call_pairs.h"

#include <string.h>

#include "mem.h"

enum { MAX_NAME = 512, MAX_REFERENCES = 8 };

typedef struct cursor {
    const char *s;
    size_t n, at;
} cursor;

call_outcome call_pairs_mark(const char *mark, const char *s, size_t n, size_t *used) {
    for (size_t i = 0;; i++, mark++) {
        while (bytes_is_space(*mark)) mark++;
        if (!*mark) {
            *used = i;
            return CALL_READ;
        }
        while (i < n && bytes_is_space(s[i])) i++;
        if (i == n) return CALL_MORE;
        if (s[i] != *mark) return CALL_NONE;
    }
}

static void skip_spaces(cursor *c) {
    while (c->at < c->n && bytes_is_space(c->s[c->at])) c->at++;
}

static call_outcome take(cursor *c, const char *mark) {
    size_t used = 0;
    call_outcome outcome = call_pairs_mark(mark, c->s + c->at, c->n - c->at, &used);
    c->at += used;
    return outcome;
}

/* The first of two marks, behind at most MAX_NAME bytes, which are the word. */
static call_outcome take_word(cursor *c, const char *const marks[2], const char **word, size_t *n) {
    skip_spaces(c);
    *word = c->s + c->at;
    for (size_t begin = c->at; c->at < c->n && c->at - begin <= MAX_NAME; c->at++) {
        *n = c->at - begin;
        call_outcome one = take(c, marks[0]), two = CALL_NONE;
        if (one == CALL_READ) return CALL_READ;
        two = take(c, marks[1]);
        if (two == CALL_READ) return CALL_READ;
        if (one == CALL_MORE || two == CALL_MORE) return CALL_MORE;
    }
    return c->at == c->n ? CALL_MORE : CALL_NONE;
}

/* A name that nothing but a blank or the next mark ends. */
static call_outcome take_name(cursor *c, const char *name_end, const char **name, size_t *n) {
    const char *const ends[2] = {name_end, name_end};
    if (name_end[strspn(name_end, " \n\t\r")]) return take_word(c, ends, name, n);
    skip_spaces(c);
    size_t begin = c->at;
    while (c->at < c->n && !bytes_is_space(c->s[c->at]) && c->s[c->at] != '<') c->at++;
    *name = c->s + begin;
    *n = c->at - begin;
    if (*n > MAX_NAME) return CALL_NONE;
    return c->at == c->n ? CALL_MORE : CALL_READ;
}

/* The blanks that end a mark, as far as the text has them. */
static call_outcome take_blanks(cursor *c, const char *mark) {
    const char *blank = mark + strlen(mark);
    while (blank > mark && bytes_is_space(blank[-1])) blank--;
    for (; *blank; blank++) {
        if (c->at == c->n) return CALL_MORE;
        if (c->s[c->at] == *blank) c->at++;
    }
    return CALL_READ;
}

static call_outcome take_value(cursor *c, const char *value_end, const char **value, size_t *n) {
    size_t n_blank = 0;
    while (bytes_is_space(value_end[n_blank])) n_blank++;
    const char *core = value_end + n_blank;
    size_t n_core = strlen(core), rest = c->n - c->at;
    const char *s = c->s + c->at, *end = rest >= n_core ? memmem(s, rest, core, n_core) : NULL;
    if (!end) return CALL_MORE;
    *value = s;
    *n = (size_t)(end - s);
    c->at += *n + n_core;
    for (; n_blank > 0 && *n > 0 && s[*n - 1] == value_end[n_blank - 1]; n_blank--) --*n;
    return CALL_READ;
}

size_t call_json_extent(const char *s, size_t n) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) {
            return depth == 0 ? i + 1 : 0;
        }
        if (depth == 0 && !in_string) return 0;
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static unsigned kinds_of_name(const char *type) {
    static const struct {
        const char *name;
        unsigned kinds;
    } types[] = {{"string", 1U << JSON_STRING},
                 {"integer", 1U << JSON_INT | 1U << JSON_REAL},
                 {"number", 1U << JSON_INT | 1U << JSON_REAL},
                 {"boolean", 1U << JSON_BOOL},
                 {"null", 1U << JSON_NULL},
                 {"array", 1U << JSON_ARRAY},
                 {"object", 1U << JSON_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0) return types[i].kinds;
    return 0;
}

static const json_node *resolve(const json_node *reference, const json_node *root) {
    const char *path = "", *slash;
    size_t n = 0;
    if (!json_as_string(reference, &path, &n) || *path != '#') return NULL;
    for (path++; *path == '/' && root; path = slash) {
        char key[256];
        slash = path + 1 + strcspn(path + 1, "/");
        if (slash - path > (ptrdiff_t)sizeof key) return NULL;
        memcpy(key, path + 1, (size_t)(slash - path - 1));
        key[slash - path - 1] = 0;
        root = json_get(root, key);
    }
    return root;
}

static unsigned kinds(const json_node *schema, const json_node *root, int depth) {
    const unsigned all = ~0U;
    const json_node *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    const json_node *either = json_get(schema, "anyOf");
    const char *name = NULL;
    size_t n = 0;
    unsigned found = 0;
    if (depth > MAX_REFERENCES) return all;
    if (json_get(schema, "$ref"))
        return kinds(resolve(json_get(schema, "$ref"), root), root, depth + 1);
    if (json_as_string(type, &name, &n)) return kinds_of_name(name);
    for (size_t i = 0; i < json_count(type); i++)
        if (json_as_string(json_at(type, i), &name, &n)) found |= kinds_of_name(name);
    if (found) return found;
    if (json_get(schema, "const")) return 1U << json_kind_of(json_get(schema, "const"));
    for (size_t i = 0; i < json_count(values); i++) found |= 1U << json_kind_of(json_at(values, i));
    if (found) return found;
    if (!either) either = json_get(schema, "oneOf");
    for (size_t i = 0; i < json_count(either); i++)
        found |= kinds(json_at(either, i), root, depth + 1);
    either = json_get(schema, "allOf");
    for (size_t i = 0; i < json_count(either) && !found; i++) {
        unsigned one = kinds(json_at(either, i), root, depth + 1);
        if (one != all) found = one;
    }
    return found ? found : all;
}

unsigned call_pairs_kinds(const json_node *schema, const json_node *root) {
    return kinds(schema, root, 0);
}

/* Python's names of JSON's constants, which templates write too. */
static const char *constant(const char *value, size_t n) {
    static const char *const names[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i][0]) && memcmp(value, names[i][0], n) == 0) return names[i][1];
    return NULL;
}

/* Any JSON value, also one that is no document for json_parse: within an array. */
static json_doc *parse_value(const char *value, size_t n) {
    bytes text = {0};
    json_doc *doc = NULL;
    const char *name = constant(value, n);
    if (bytes_append(&text, "[", 1) &&
        bytes_append(&text, name ? name : value, name ? strlen(name) : n) &&
        bytes_append(&text, "]", 1))
        json_parse(text.data, text.used, "value", &doc, NULL);
    bytes_free(&text);
    if (json_count(json_root(doc)) == 1) return doc;
    json_free(doc);
    return NULL;
}

static void put_value(json_writer *w, const char *key, const char *value, size_t n,
                      unsigned allowed) {
    json_doc *doc = allowed == 1U << JSON_STRING ? NULL : parse_value(value, n);
    const json_node *node = json_at(json_root(doc), 0);
    unsigned kind = 1U << json_kind_of(node);
    /* A text in quotes is a string with quotes. */
    if (node && (allowed & kind) && json_kind_of(node) != JSON_STRING)
        bytes_json_put(w, key, node);
    else
        json_put_string(w, key, value, n);
    json_free(doc);
}

/* The schema of a tool's arguments. */
static const json_node *parameters_of(const json_node *tools, const char *name, size_t n_name) {
    for (size_t i = 0; i < json_count(tools); i++) {
        const json_node *function = json_get(json_at(tools, i), "function");
        const char *own = NULL;
        size_t n = 0;
        if (json_as_string(json_get(function, "name"), &own, &n) && n == n_name &&
            memcmp(own, name, n) == 0)
            return json_get(function, "parameters");
    }
    return NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Keys that were written; of several with one name the first counts. */
typedef struct output {
    json_writer *w; /* NULL: nothing is written */
    const json_node *parameters;
    bytes keys; /* each with a NUL before and after it */
    bool cut;   /* the text ends before the call does */
    bool failed;
} output;

static void put_pair(output *o, const char *key, size_t n_key, const char *value, size_t n,
                     bool string, bool differ) {
    size_t at = o->keys.used;
    if (memchr(key, 0, n_key)) return;
    if (!bytes_append(&o->keys, "", 1) || !bytes_append(&o->keys, key, n_key) ||
        !bytes_append(&o->keys, "", 1)) {
        o->failed = true;
        return;
    }
    const char *name = o->keys.data + at;
    if (memmem(o->keys.data, at, name, n_key + 2)) return;
    unsigned allowed = call_pairs_kinds(json_get(json_get(o->parameters, "properties"), name + 1),
                                        o->parameters);
    if (differ) allowed = string ? 1U << JSON_STRING : ~0U;
    put_value(o->w, name + 1, value, n, allowed);
}

static call_outcome read_pair(const call_pairs *p, cursor *c, output *o) {
    const char *key = NULL, *value = NULL;
    size_t n_key = 0, n = 0, before = c->at;
    bool differ = strcmp(p->key_end[0], p->key_end[1]) != 0;
    call_outcome outcome = take_word(c, p->key_end, &key, &n_key);
    if (outcome != CALL_READ) return outcome;
    if (n_key == 0) return CALL_NONE;
    before = (size_t)(key - c->s) + n_key;
    size_t used = 0;
    bool string = call_pairs_mark(p->key_end[0], c->s + before, c->n - before, &used) == CALL_READ;
    outcome = take_blanks(c, p->key_end[!string]);
    if (outcome == CALL_READ) outcome = take_value(c, p->value_end, &value, &n);
    if (outcome == CALL_READ && o->w) put_pair(o, key, n_key, value, n, string, differ);
    return outcome;
}

static call_outcome read_pairs(const call_pairs *p, cursor *c, call_end end, output *o) {
    for (;;) {
        call_outcome close = take(c, p->close);
        if (close == CALL_READ) return CALL_READ;
        call_outcome key = take(c, p->key_begin);
        if (key == CALL_READ) key = read_pair(p, c, o);
        if (key == CALL_READ) continue;
        bool closing = close == CALL_MORE && key == CALL_NONE; /* the beginning of the mark */
        call_outcome outcome = key == CALL_MORE || close == CALL_MORE ? CALL_MORE : CALL_NONE;
        if (outcome == CALL_NONE || end == CALL_GOES_ON || (end == CALL_ENDS && !closing))
            return outcome;
        o->cut = !closing;
        c->at = c->n;
        return CALL_READ;
    }
}

/* Arguments that are one JSON object. */
static call_outcome read_object(const call_pairs *p, cursor *c, call_end end, bytes *arguments,
                                bool *failed) {
    json_doc *doc = NULL;
    bytes_json j;
    skip_spaces(c);
    const char *object = c->s + c->at;
    size_t rest = c->n - c->at, n = call_json_extent(object, rest);
    if (rest && *object != '{') return CALL_NONE;
    if (n == 0) {
        if (end != CALL_CUT) return CALL_MORE;
        c->at = c->n;
        if (rest && !bytes_append(arguments, object, rest)) *failed = true;
        return CALL_READ;
    }
    c->at += n;
    call_outcome outcome = take(c, p->close);
    if (outcome == CALL_MORE && end != CALL_GOES_ON) {
        c->at = c->n;
        outcome = CALL_READ;
    }
    if (outcome != CALL_READ) return outcome;
    if (json_parse(object, n, "arguments", &doc, NULL) != PI_OK) return CALL_NONE;
    if (!bytes_json_begin(&j, arguments)) {
        *failed = true;
    } else {
        bytes_json_put(&j.writer, NULL, json_root(doc));
        if (!bytes_json_end(&j)) *failed = true;
    }
    json_free(doc);
    return CALL_READ;
}

static call_outcome read_name(const call_pairs *p, cursor *c, bool again, const char **name,
                              size_t *n) {
    call_outcome outcome = take(c, again ? p->again : p->open);
    if (outcome == CALL_READ && !again) outcome = take(c, p->begin);
    if (outcome == CALL_READ) outcome = take_name(c, p->name_end, name, n);
    return outcome == CALL_READ && *n == 0 ? CALL_NONE : outcome;
}

call_outcome call_pairs_read(const call_pairs *p, const char *s, size_t n, bool again, call_end end,
                             const json_node *tools, bytes *name, bytes *arguments, size_t *used,
                             bool *failed) {
    cursor c = {.s = s, .n = n};
    output o = {.w = NULL};
    bytes_json j;
    const char *word = NULL;
    size_t n_word = 0;
    call_outcome outcome = read_name(p, &c, again, &word, &n_word);
    size_t begin = c.at;
    bool object = !*p->key_begin;
    if (outcome == CALL_READ)
        outcome = object ? read_object(p, &c, end, arguments, failed) : read_pairs(p, &c, end, &o);
    if (outcome != CALL_READ) return end == CALL_ENDS ? CALL_NONE : outcome;
    *used = c.at;
    if (!bytes_append(name, word, n_word)) *failed = true;
    if (object || *failed) return CALL_READ;
    if (!bytes_json_begin(&j, arguments)) {
        *failed = true;
        return CALL_READ;
    }
    c.at = begin;
    o.w = &j.writer;
    o.parameters = parameters_of(tools, word, n_word);
    json_put_object(o.w, NULL);
    read_pairs(p, &c, end, &o);
    json_end_object(o.w);
    if (!bytes_json_end(&j) || o.failed) *failed = true;
    if (o.cut && !*failed) arguments->used--; /* the brace that closes them */
    bytes_free(&o.keys);
    return CALL_READ;
}
