/* json.h: reads JSON: a thin layer over jansson with limits and messages. Files and requests are
 * untrusted. Built without jansson, json_parse returns PI_ERR_UNSUPPORTED and names jansson. */
#ifndef TEXT_JSON_H
#define TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { JSON_MAX_DEPTH = 64 };
#define JSON_MAX_BYTES ((size_t)256 << 20)

typedef struct json_doc json_doc;
typedef struct json_node
    json_node; /* borrowed; lives as long as its document; never dereferenced */

typedef enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_INT,
    JSON_REAL,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

/* `name` appears in messages ("config.json") with line and column. PI_ERR_FORMAT (syntax, duplicate
 * keys, depth, bad UTF-8), PI_ERR_LIMIT, PI_ERR_NOMEM. */
pi_status json_parse(const char *text, size_t n_bytes, const char *name, json_doc **out,
                     pi_error *err);
pi_status json_parse_file(const char *path, json_doc **out, pi_error *err);
void json_free(json_doc *doc); /* accepts NULL */
const json_node *json_root(const json_doc *doc);

/* All functions accept NULL nodes, so that look-ups can be chained: they return NULL, 0, JSON_NULL
 * or false. */
json_kind json_kind_of(const json_node *node);
const json_node *json_get(const json_node *object, const char *key);
size_t json_count(const json_node *node); /* items of an array or members of an object */
const json_node *json_at(const json_node *array, size_t i);
/* Members in file order: *iter starts NULL; false at the end. */
bool json_next(const json_node *object, void **iter, const char **key, const json_node **value);
bool json_as_int(const json_node *node, int64_t *out);   /* also a real with an integral value */
bool json_as_double(const json_node *node, double *out); /* any number */
bool json_as_bool(const json_node *node, bool *out);
bool json_as_string(const json_node *node, const char **out, size_t *n_bytes); /* NUL-terminated */

/* Writes the path from `from` to `node` within it, and on to its member `key` (NULL: none), as
 * ".properties.x[2]" or "[\"a b\"]", NUL-terminated; long paths end with dots. False: `node` is not
 * within `from`. In json_path.c. */
bool json_path(const json_node *from, const json_node *node, const char *key, char *out,
               size_t capacity);

#endif
