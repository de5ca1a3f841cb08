/* json.c: reads JSON with jansson. A document owns the whole tree; a json_node is a jansson value
 * under another name, so that no other file needs jansson's header. Size and depth are checked
 * before jansson parses a byte. Documents are immutable, so several threads may read one. */
#include "json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "mem.h"

#ifdef TEXT_HAVE_JANSSON

/* jansson's type names equal those of json.h; they get another name inside this file. */
#define JSON_OBJECT JANSSON_OBJECT
#define JSON_ARRAY  JANSSON_ARRAY
#define JSON_STRING JANSSON_STRING
#define JSON_REAL   JANSSON_REAL
#define JSON_NULL   JANSSON_NULL
#include <jansson.h>
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_REAL
#undef JSON_NULL

struct json_doc {
    json_t *root;
};

static const json_t *value_of(const json_node *node) {
    return (const json_t *)(const void *)node;
}

static const json_node *node_of(const json_t *value) {
    return (const json_node *)(const void *)value;
}

/* Deepest nesting of brackets outside strings. The result is wrong only for text that is not
 * JSON. */
static size_t nesting_depth(const char *text, size_t n) {
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"' || c == '\n')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest) deepest = depth;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

/* ---- numbers that jansson refuses ------------------------------------------------------------ */

typedef struct buffer {
    char *bytes; /* [n] */
    size_t n, capacity;
} buffer;

static bool put(buffer *b, const char *bytes, size_t n) {
    if (!mem_grow((void **)&b->bytes, &b->capacity, b->n + n, 1, 4 * JSON_MAX_BYTES)) return false;
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return true;
}

/* Writes a number that does not fit: an integer becomes a real, a real the largest real. */
static bool put_number(buffer *b, const char *token, size_t n) {
    static const char largest[] = "1.7976931348623157e308";
    char *end;
    bool integer = strcspn(token, ".eE") == n;
    bool huge = isinf(strtod(token, &end)) && !*end;
    errno = 0;
    if (integer) strtoll(token, NULL, 10);
    bool beyond = integer && errno == ERANGE;
    if (huge) return (*token != '-' || put(b, "-", 1)) && put(b, largest, sizeof largest - 1);
    return put(b, token, n) && (!beyond || put(b, "e0", 2));
}

/* Copies the text and replaces numbers beyond 64 bits or beyond a double (put_number). */
static bool fit_numbers(const char *text, size_t n, buffer *out) {
    static const char digits[] = "0123456789+-.eE";
    bool good = true;
    for (size_t i = 0, end; i < n && good; i = end) {
        end = i + 1;
        if (text[i] == '"') {
            while (end < n && text[end] != '"') end += text[end] == '\\' && end + 1 < n ? 2 : 1;
            end += end < n;
            good = put(out, text + i, end - i);
        } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
            while (end < n && text[end] && strchr(digits, text[end])) end++;
            char *token = mem_strndup(text + i, end - i);
            good = token && put_number(out, token, end - i);
            mem_free(token);
        } else {
            good = put(out, text + i, 1);
        }
    }
    return good;
}

/* NULL: *e has the error, which may be out of memory. */
static json_t *load(const char *text, size_t n, json_error_t *e) {
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *root = json_loadb(text, n, flags, e);
    buffer fitted = {.n = 0};
    if (root || json_error_code(e) != json_error_numeric_overflow) return root;
    if (fit_numbers(text, n, &fitted))
        root = json_loadb(fitted.bytes, fitted.n, flags, e);
    else
        e->text[JSON_ERROR_TEXT_LENGTH - 1] = (char)json_error_out_of_memory;
    mem_free(fitted.bytes);
    return root;
}

pi_status json_parse(const char *text, size_t n_bytes, const char *name, json_doc **out,
                     pi_error *err) {
    *out = NULL;
    if (n_bytes > JSON_MAX_BYTES) {
        return error_set(err, PI_ERR_LIMIT, "JSON text of %zu bytes is too long: %s: at most %zu",
                         n_bytes, name, JSON_MAX_BYTES);
    }
    if (nesting_depth(text, n_bytes) > JSON_MAX_DEPTH) {
        return error_set(err, PI_ERR_FORMAT, "JSON is nested too deeply: %s: at most %d levels",
                         name, JSON_MAX_DEPTH);
    }
    json_doc *doc = mem_calloc(1, sizeof *doc);
    if (!doc) return error_nomem(err, sizeof *doc, name);
    json_error_t e;
    doc->root = load(text, n_bytes, &e);
    if (!doc->root) {
        mem_free(doc);
        if (json_error_code(&e) == json_error_out_of_memory) return error_nomem(err, n_bytes, name);
        return error_set(err, PI_ERR_FORMAT, "bad JSON: %s line %d column %d: %s", name, e.line,
                         e.column, e.text);
    }
    *out = doc;
    return PI_OK;
}

void json_free(json_doc *doc) {
    if (!doc) return;
    json_decref(doc->root);
    mem_free(doc);
}

const json_node *json_root(const json_doc *doc) {
    return doc ? node_of(doc->root) : NULL;
}

json_kind json_kind_of(const json_node *node) {
    if (!node) return JSON_NULL;
    switch (json_typeof(value_of(node))) {
    case JANSSON_OBJECT:
        return JSON_OBJECT;
    case JANSSON_ARRAY:
        return JSON_ARRAY;
    case JANSSON_STRING:
        return JSON_STRING;
    case JSON_INTEGER:
        return JSON_INT;
    case JANSSON_REAL:
        return JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_BOOL;
    case JANSSON_NULL:
        break;
    }
    return JSON_NULL;
}

const json_node *json_get(const json_node *object, const char *key) {
    return json_kind_of(object) == JSON_OBJECT ? node_of(json_object_get(value_of(object), key))
                                               : NULL;
}

size_t json_count(const json_node *node) {
    switch (json_kind_of(node)) {
    case JSON_ARRAY:
        return json_array_size(value_of(node));
    case JSON_OBJECT:
        return json_object_size(value_of(node));
    default:
        return 0;
    }
}

const json_node *json_at(const json_node *array, size_t i) {
    return json_kind_of(array) == JSON_ARRAY ? node_of(json_array_get(value_of(array), i)) : NULL;
}

bool json_next(const json_node *object, void **iter, const char **key, const json_node **value) {
    if (json_kind_of(object) != JSON_OBJECT) return false;
    /* jansson's iterators take a non-const object but do not change it. */
    json_t *o = (json_t *)(uintptr_t)value_of(object);
    *iter = *iter ? json_object_iter_next(o, *iter) : json_object_iter(o);
    if (!*iter) return false;
    *key = json_object_iter_key(*iter);
    *value = node_of(json_object_iter_value(*iter));
    return true;
}

bool json_as_int(const json_node *node, int64_t *out) {
    json_kind kind = json_kind_of(node);
    if (kind == JSON_INT) {
        *out = json_integer_value(value_of(node));
        return true;
    }
    if (kind != JSON_REAL) return false;
    double v = json_real_value(value_of(node));
    /* -2^63 and 2^63 are exact doubles; 2^63 itself is out of range */
    if (!(v >= -0x1p63 && v < 0x1p63) || v != floor(v)) return false;
    *out = (int64_t)v;
    return true;
}

bool json_as_double(const json_node *node, double *out) {
    json_kind kind = json_kind_of(node);
    if (kind != JSON_INT && kind != JSON_REAL) return false;
    *out = json_number_value(value_of(node));
    return true;
}

bool json_as_bool(const json_node *node, bool *out) {
    if (json_kind_of(node) != JSON_BOOL) return false;
    *out = json_typeof(value_of(node)) == JSON_TRUE;
    return true;
}

bool json_as_string(const json_node *node, const char **out, size_t *n_bytes) {
    if (json_kind_of(node) != JSON_STRING) return false;
    *out = json_string_value(value_of(node));
    *n_bytes = json_string_length(value_of(node));
    return true;
}

#else /* without jansson there are no documents, so every node is NULL */

pi_status json_parse(const char *text, size_t n_bytes, const char *name, json_doc **out,
                     pi_error *err) {
    (void)text;
    (void)n_bytes;
    *out = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "cannot read JSON: %s: this program was built without jansson", name);
}

void json_free(json_doc *doc) {
    (void)doc;
}

const json_node *json_root(const json_doc *doc) {
    (void)doc;
    return NULL;
}

json_kind json_kind_of(const json_node *node) {
    (void)node;
    return JSON_NULL;
}

const json_node *json_get(const json_node *object, const char *key) {
    (void)object;
    (void)key;
    return NULL;
}

size_t json_count(const json_node *node) {
    (void)node;
    return 0;
}

const json_node *json_at(const json_node *array, size_t i) {
    (void)array;
    (void)i;
    return NULL;
}

bool json_next(const json_node *object, void **iter, const char **key, const json_node **value) {
    (void)object;
    (void)iter;
    (void)key;
    (void)value;
    return false;
}

bool json_as_int(const json_node *node, int64_t *out) {
    (void)node;
    (void)out;
    return false;
}

bool json_as_double(const json_node *node, double *out) {
    (void)node;
    (void)out;
    return false;
}

bool json_as_bool(const json_node *node, bool *out) {
    (void)node;
    (void)out;
    return false;
}

bool json_as_string(const json_node *node, const char **out, size_t *n_bytes) {
    (void)node;
    (void)out;
    (void)n_bytes;
    return false;
}

#endif

pi_status json_parse_file(const char *path, json_doc **out, pi_error *err) {
    *out = NULL;
    char *text;
    size_t n_bytes;
    pi_status status = file_read(path, JSON_MAX_BYTES, &text, &n_bytes, err);
    if (status) return status;
    status = json_parse(text, n_bytes, path, out, err);
    mem_free(text);
    return status;
}
