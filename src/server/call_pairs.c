/* call_pairs.c: reads calls whose name stands before their arguments. When the text has grown, the
 * reader parses the name again and continues arguments where they were incomplete. It writes
 * nothing before the call is complete. */
#include "call_pairs.h"

#include <string.h>

#include "mem.h"
#include "os_text.h"

enum { MAX_NAME = 512, MAX_WORD = 64, MAX_REFERENCES = 8 };

typedef struct cursor {
    const char *s;
    size_t n, at;
} cursor;

call_outcome call_pairs_mark(const char *mark, const char *s, size_t n, size_t *used) {
    for (size_t i = 0;; i++, mark++) {
        while (bytes_is_space(*mark)) mark++;
        if (*mark == CALL_WORD_) {
            const size_t begin = i;
            while (i < n && call_is_word(s[i]) && i - begin <= MAX_WORD) i++;
            mark++;
        }
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

/* Takes the first of two marks, which at most MAX_NAME bytes precede; *word is these bytes. */
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

/* Takes a name, which ends at a blank or at the next mark; a name before literals has no blanks. */
static call_outcome take_name(cursor *c, const call_pairs *p, const char **name, size_t *n) {
    const char *end = p->name_end[0];
    skip_spaces(c);
    if (p->literal.equals) {
        for (size_t i = c->at; i < c->n && c->s[i] != *end; i++)
            if (!call_is_word(c->s[i]) && c->s[i] != '.') return CALL_NONE;
    }
    if (end[strspn(end, " \n\t\r")]) return take_word(c, p->name_end, name, n);
    size_t begin = c->at;
    while (c->at < c->n && !bytes_is_space(c->s[c->at]) && c->s[c->at] != '<') c->at++;
    *name = c->s + begin;
    *n = c->at - begin;
    if (*n > MAX_NAME) return CALL_NONE;
    return c->at == c->n ? CALL_MORE : CALL_READ;
}

/* Takes the blanks that end a mark, as far as the text has them. */
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
    const char *s = c->s + c->at, *end = rest >= n_core ? os_find(s, rest, core, n_core) : NULL;
    if (!end) return CALL_MORE;
    *value = s;
    *n = (size_t)(end - s);
    c->at += *n + n_core;
    for (; n_blank > 0 && *n > 0 && s[*n - 1] == value_end[n_blank - 1]; n_blank--) --*n;
    return CALL_READ;
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

const json_node *call_pairs_schema(const json_node *schema, const json_node *root) {
    for (int i = 0; i < MAX_REFERENCES && json_get(schema, "$ref"); i++)
        schema = resolve(json_get(schema, "$ref"), root);
    return schema;
}

/* Python's names of JSON's constants; templates write them as well. */
static const char *constant(const char *value, size_t n) {
    static const char *const names[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i][0]) && memcmp(value, names[i][0], n) == 0) return names[i][1];
    return NULL;
}

/* Parses any JSON value, also a scalar, which json_parse does not accept as a document; an array
 * wraps it. */
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
    /* A text in quotes is a string that contains the quotes. */
    if (node && (allowed & kind) && json_kind_of(node) != JSON_STRING)
        bytes_json_put(w, key, node);
    else
        json_put_string(w, key, value, n);
    json_free(doc);
}

/* Returns the schema of a tool's arguments. */
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

/* The keys that were written; when a key occurs several times, the first occurrence is used. */
typedef struct output {
    json_writer *w; /* NULL: nothing is written */
    const json_node *parameters;
    bytes keys;   /* each with a NUL before and after it */
    bool cut;     /* the text ends within the call */
    size_t whole; /* where the first incomplete pair begins */
    bool failed;
} output;

/* Returns the key with a NUL after it if it must be written, else NULL. *allowed: kinds of its
 * value. */
static const char *new_key(output *o, const char *key, size_t n_key, unsigned *allowed) {
    size_t at = o->keys.used;
    if (memchr(key, 0, n_key)) return NULL;
    if (!bytes_append(&o->keys, "", 1) || !bytes_append(&o->keys, key, n_key) ||
        !bytes_append(&o->keys, "", 1)) {
        o->failed = true;
        return NULL;
    }
    const char *name = o->keys.data + at;
    if (os_find(o->keys.data, at, name, n_key + 2)) return NULL;
    *allowed = call_pairs_kinds(json_get(json_get(o->parameters, "properties"), name + 1),
                                o->parameters);
    return name + 1;
}

static void put_pair(output *o, const char *key, size_t n_key, const char *value, size_t n,
                     bool string, bool differ) {
    unsigned allowed = 0;
    key = new_key(o, key, n_key, &allowed);
    if (!key) return;
    if (differ) allowed = string ? 1U << JSON_STRING : ~0U;
    put_value(o->w, key, value, n, allowed);
}

/* Context for reading an element's content. */
typedef struct element {
    const char *name; /* [n_name] */
    size_t n_name;
    const json_node *schema, *root; /* schema of its value; root of references */
    /* key in the enclosing object; NULL: an array encloses the element */
    const char *key;
    int depth;
} element;

/* Takes the mark that ends an element. */
static call_outcome take_element_end(const call_pairs *p, cursor *c, const element *e) {
    const char *parts[] = {p->value_end, e->name, p->key_end[0]};
    const size_t lengths[] = {strlen(p->value_end), e->n_name, strlen(p->key_end[0])};
    size_t at = c->at;
    for (int i = 0; i < 3; at += lengths[i++]) {
        const size_t rest = c->n - at, n = rest < lengths[i] ? rest : lengths[i];
        if (memcmp(c->s + at, parts[i], n) != 0) return CALL_NONE;
        if (n < lengths[i]) return CALL_MORE;
    }
    c->at = at;
    return CALL_READ;
}

/* Writes an empty value: an empty text, array or object, as the schema allows. */
static void put_nothing(json_writer *w, const char *key, unsigned allowed) {
    if (allowed & 1U << JSON_STRING) {
        json_put_text(w, key, "");
    } else if (allowed & 1U << JSON_ARRAY) {
        json_put_array(w, key);
        json_end_array(w);
    } else {
        json_put_object(w, key);
        json_end_object(w);
    }
}

static call_outcome read_element(const call_pairs *p, cursor *c, const element *e, json_writer *w);

/* Reads the elements of a value, up to the end of the enclosing element. */
static call_outcome read_children(const call_pairs *p, cursor *c, const element *e,
                                  json_writer *w) {
    const json_node *properties = json_get(e->schema, "properties");
    const size_t n_begin = strlen(p->key_begin), n_item = strlen(CALL_ITEM);
    const char *first = c->s + c->at + n_begin;
    const unsigned allowed = call_pairs_kinds(e->schema, e->root);
    const bool item = c->n - c->at - n_begin >= n_item && !memcmp(first, CALL_ITEM, n_item);
    const bool array = allowed & 1U << JSON_ARRAY && (item || !(allowed & 1U << JSON_OBJECT));
    call_outcome outcome = CALL_MORE;
    if (w && array) json_put_array(w, e->key);
    if (w && !array) json_put_object(w, e->key);
    for (skip_spaces(c); (outcome = take_element_end(p, c, e)) == CALL_NONE; skip_spaces(c)) {
        char key[MAX_NAME + 2];
        element child = {.root = e->root, .depth = e->depth + 1};
        const char *const ends[2] = {p->key_end[0], p->key_end[0]};
        outcome = take(c, p->key_begin);
        if (outcome == CALL_READ) outcome = take_word(c, ends, &child.name, &child.n_name);
        if (outcome != CALL_READ) break;
        memcpy(key, child.name, child.n_name);
        key[child.n_name] = 0;
        if (!array) child.key = key;
        child.schema = array ? json_get(e->schema, "items") : json_get(properties, key);
        child.schema = call_pairs_schema(child.schema, e->root);
        outcome = child.n_name && child.depth < JSON_MAX_DEPTH - 8 ? read_element(p, c, &child, w)
                                                                   : CALL_NONE;
        if (outcome != CALL_READ) break;
    }
    if (w && array) json_end_array(w);
    if (w && !array) json_end_object(w);
    return outcome;
}

/* Reads the value after an element's first mark, and the last mark. */
static call_outcome read_element(const call_pairs *p, cursor *c, const element *e, json_writer *w) {
    const char *s = c->s + c->at;
    const size_t n_begin = strlen(p->key_begin), rest = c->n - c->at;
    const char *mark = rest >= n_begin ? os_find(s, rest, p->key_begin, n_begin) : NULL;
    const unsigned allowed = call_pairs_kinds(e->schema, e->root);
    if (!mark || mark + n_begin == s + rest) return CALL_MORE;
    const size_t n = (size_t)(mark - s), before = c->at;
    c->at += n;
    if (mark[n_begin] == '/') {
        call_outcome outcome = take_element_end(p, c, e);
        if (outcome != CALL_READ || !w) return outcome;
        if (n)
            put_value(w, e->key, s, n, allowed);
        else
            put_nothing(w, e->key, allowed);
        return outcome;
    }
    for (size_t i = before; i < c->at; i++)
        if (!bytes_is_space(c->s[i])) return CALL_NONE;
    return read_children(p, c, e, w);
}

static call_outcome read_element_pair(const call_pairs *p, cursor *c, output *o) {
    element e = {.root = o->parameters};
    unsigned allowed = 0;
    call_outcome outcome = take_word(c, p->key_end, &e.name, &e.n_name);
    if (outcome != CALL_READ) return outcome;
    if (e.n_name == 0) return CALL_NONE;
    e.key = o->w ? new_key(o, e.name, e.n_name, &allowed) : NULL;
    e.schema = e.key ? json_get(json_get(o->parameters, "properties"), e.key) : NULL;
    e.schema = call_pairs_schema(e.schema, e.root);
    cursor whole = *c;
    outcome = read_element(p, &whole, &e, NULL);
    if (outcome == CALL_READ && e.key) read_element(p, c, &e, o->w);
    *c = whole;
    return outcome;
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
        o->whole = c->at;
        call_outcome close = take(c, p->close);
        if (close == CALL_READ) return CALL_READ;
        call_outcome key = take(c, p->key_begin);
        if (key == CALL_READ) key = p->elements ? read_element_pair(p, c, o) : read_pair(p, c, o);
        if (key == CALL_READ) continue;
        bool closing = close == CALL_MORE && key == CALL_NONE; /* a prefix of the mark */
        call_outcome outcome = key == CALL_MORE || close == CALL_MORE ? CALL_MORE : CALL_NONE;
        if (outcome == CALL_NONE || end == CALL_GOES_ON || (end == CALL_ENDS && !closing))
            return outcome;
        o->cut = !closing;
        c->at = c->n;
        return CALL_READ;
    }
}

/* Takes the mark after the arguments; at the end of the text, a prefix of the mark is enough. */
static call_outcome take_close(const call_pairs *p, cursor *c, call_end end) {
    call_outcome outcome = take(c, p->close);
    if (outcome != CALL_MORE || end == CALL_GOES_ON) return outcome;
    c->at = c->n;
    return CALL_READ;
}

/* Reads arguments that are one JSON object. */
static call_outcome read_object(const call_pairs *p, call_scan *scan, cursor *c, call_end end,
                                call_found *found) {
    json_doc *doc = NULL;
    bytes_json j;
    skip_spaces(c);
    const char *object = c->s + c->at;
    size_t rest = c->n - c->at;
    if (rest && *object != '{') return CALL_NONE;
    size_t n = call_scan_extent(scan, NULL, object, rest);
    if (n == 0) {
        if (end != CALL_CUT) return CALL_MORE;
        c->at = c->n;
        if (rest && !bytes_append(&found->arguments, object, rest)) found->failed = true;
        return CALL_READ;
    }
    c->at += n;
    call_outcome outcome = take_close(p, c, end);
    if (outcome != CALL_READ) return outcome;
    if (json_parse(object, n, "arguments", &doc, NULL) != PI_OK) return CALL_NONE;
    if (!bytes_json_begin(&j, &found->arguments)) {
        found->failed = true;
    } else {
        bytes_json_put(&j.writer, NULL, json_root(doc));
        if (!bytes_json_end(&j)) found->failed = true;
    }
    json_free(doc);
    return CALL_READ;
}

/* Reads arguments that are literals, from their opening bracket on. In a truncated text, the last
 * literal is complete only when something follows it. */
static call_outcome read_literals(const call_pairs *p, cursor *c, char close, bool cut, output *o) {
    literal_text t = {.s = c->s, .n = c->n, .at = c->at};
    call_outcome outcome = CALL_READ;
    for (bool first = true; !call_literal_take(&t, close); first = false) {
        bytes name = {0};
        unsigned allowed = ~0U;
        bool good = first || call_literal_take(&t, ',');
        /* a comma after the last argument */
        if (good && !first && call_literal_take(&t, close)) break;
        good = good && call_literal_key(&p->literal, &t, &name) && name.used;
        literal_text value = t;
        good = good && call_literal_value(&p->literal, &t, NULL, NULL, ~0U);
        outcome = cut && (!good || t.at == t.n) ? CALL_MORE : good ? CALL_READ : CALL_NONE;
        const char *key = o->w && good ? new_key(o, name.data, name.used, &allowed) : NULL;
        if (outcome == CALL_READ && key &&
            !call_literal_value(&p->literal, &value, o->w, key, allowed))
            o->failed = true;
        bytes_free(&name);
        if (outcome != CALL_READ) break;
    }
    o->cut = outcome == CALL_MORE;
    c->at = o->cut ? c->n : t.at;
    return o->cut ? CALL_READ : outcome;
}

static call_outcome check_literals(const call_pairs *p, call_scan *scan, cursor *c, call_end end,
                                   output *o) {
    size_t begin = c->at - 1; /* the bracket */
    char close = c->s[begin] == '(' ? ')' : '}';
    size_t n = call_scan_extent(scan, &p->literal, c->s + begin, c->n - begin);
    if (n == 0 && end != CALL_CUT) return CALL_MORE;
    call_outcome outcome = read_literals(p, c, close, n == 0, o);
    return outcome == CALL_READ && !o->cut ? take_close(p, c, end) : outcome;
}

static call_outcome read_name(const call_pairs *p, cursor *c, bool again, const char **name,
                              size_t *n) {
    call_outcome outcome = take(c, again ? p->again : p->open);
    if (outcome == CALL_READ && !again) outcome = take(c, p->begin);
    if (outcome == CALL_READ) outcome = take_name(c, p, name, n);
    return outcome == CALL_READ && *n == 0 ? CALL_NONE : outcome;
}

/* Takes the id from the text between the name and `end`, if it fits. */
static void take_id(const call_pairs *p, const char *name, size_t n_name, const char *end,
                    char id[128]) {
    const char *mark = strchr(p->name_end[0], CALL_WORD_), *s = name + n_name;
    size_t used = 0, n = 0, n_begin = p->id_begin ? strlen(p->id_begin) : 0;
    char before[64];
    if (!p->has_id || !mark || mark - p->name_end[0] >= (ptrdiff_t)sizeof before) return;
    memcpy(before, p->name_end[0], (size_t)(mark - p->name_end[0]));
    before[mark - p->name_end[0]] = 0;
    if (call_pairs_mark(before, s, (size_t)(end - s), &used) != CALL_READ) return;
    while (s + used + n < end && call_is_word(s[used + n])) n++;
    const char *begin = p->id_begin ? name : s + used;
    size_t length = (size_t)(s + used + n - begin);
    if (n == 0 || n_begin + length >= 128) return;
    if (n_begin) memcpy(id, p->id_begin, n_begin);
    memcpy(id + n_begin, begin, length);
    id[n_begin + length] = 0;
}

/* Writes the arguments, which are complete or truncated. */
static void write_arguments(const call_pairs *p, cursor *c, call_end end, output *o,
                            call_found *found) {
    bytes_json j;
    bool cut = o->cut;
    if (!bytes_json_begin(&j, &found->arguments)) {
        found->failed = true;
        return;
    }
    o->w = &j.writer;
    json_put_object(o->w, NULL);
    if (p->literal.equals)
        read_literals(p, c, c->s[c->at - 1] == '(' ? ')' : '}', cut, o);
    else
        read_pairs(p, c, end, o);
    json_end_object(o->w);
    if (!bytes_json_end(&j) || o->failed) found->failed = true;
    if (cut && !found->failed) found->arguments.used--; /* the closing brace */
    bytes_free(&o->keys);
}

call_outcome call_pairs_read(const call_pairs *p, call_scan *scan, const char *s, size_t n,
                             bool again, call_end end, const json_node *tools, call_found *found) {
    cursor c = {.s = s, .n = n};
    output o = {.w = NULL};
    const char *word = NULL;
    size_t n_word = 0;
    call_outcome outcome = read_name(p, &c, again, &word, &n_word);
    const size_t begin = c.at;
    *found = (call_found){.used = 0};
    if (outcome == CALL_READ && p->literal.equals) {
        outcome = check_literals(p, scan, &c, end, &o);
    } else if (outcome == CALL_READ && *p->key_begin) {
        if (scan->at) c.at = begin + scan->at; /* whole pairs are not read again */
        outcome = read_pairs(p, &c, end, &o);
        scan->at = o.whole - begin;
    } else if (outcome == CALL_READ) {
        outcome = read_object(p, scan, &c, end, found);
    }
    if (outcome != CALL_READ) return end == CALL_ENDS ? CALL_NONE : outcome;
    found->used = c.at;
    if (!bytes_append(&found->name, word, n_word)) found->failed = true;
    take_id(p, word, n_word, s + begin, found->id);
    if (found->failed || (!*p->key_begin && !p->literal.equals)) return CALL_READ;
    c.at = begin;
    o.parameters = parameters_of(tools, word, n_word);
    write_arguments(p, &c, end, &o, found);
    if (!(p->literal.equals || p->elements) || o.cut || found->failed) return CALL_READ;
    json_doc *doc = NULL; /* JSON objects cannot have one key twice */
    pi_status status = json_parse(found->arguments.data, found->arguments.used, "", &doc, NULL);
    json_free(doc);
    if (status != PI_ERR_FORMAT) return CALL_READ;
    bytes_free(&found->name);
    bytes_free(&found->arguments);
    return CALL_NONE;
}
