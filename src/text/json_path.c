/* json_path.c: finds the path of a value within a document. */
#include <stdio.h>
#include <string.h>

#include "json.h"

typedef struct path {
    char *text; /* [capacity], NUL-terminated */
    size_t n, capacity;
} path;

/* Longer texts end with dots. */
static void put(path *p, const char *text, size_t n) {
    static const char dots[] = "...";
    if (p->n + n + sizeof dots > p->capacity) {
        if (p->n + sizeof dots <= p->capacity) memcpy(p->text + p->n, dots, sizeof dots);
        p->n = p->capacity;
        return;
    }
    memcpy(p->text + p->n, text, n);
    p->n += n;
    p->text[p->n] = '\0';
}

static bool is_word(const char *key) {
    for (const char *s = key; *s; s++) {
        bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                    (*s >= '0' && *s <= '9') || *s == '_' || *s == '$';
        if (!word) return false;
    }
    return *key != '\0';
}

static void put_key(path *p, const char *key) {
    bool word = is_word(key);
    put(p, word ? "." : "[\"", word ? 1 : 2);
    put(p, key, strlen(key));
    if (!word) put(p, "\"]", 2);
}

/* Appends the path from `from` to `node`; false: `node` is not within `from`. Recursion is as deep
 * as documents are. */
static bool find(path *p, const json_node *from, const json_node *node) {
    size_t length = p->n;
    void *iter = NULL;
    const char *key;
    const json_node *value;
    char index[24];
    if (from == node) return true;
    for (size_t i = 0; json_kind_of(from) == JSON_ARRAY && i < json_count(from); i++) {
        snprintf(index, sizeof index, "[%zu]", i);
        put(p, index, strlen(index));
        if (find(p, json_at(from, i), node)) return true;
        p->n = length;
    }
    while (json_next(from, &iter, &key, &value)) {
        put_key(p, key);
        if (find(p, value, node)) return true;
        p->n = length;
    }
    return false;
}

bool json_path(const json_node *from, const json_node *node, const char *key, char *out,
               size_t capacity) {
    path p = {.text = out, .capacity = capacity};
    *out = '\0';
    bool found = find(&p, from, node);
    if (!found) p.n = 0;
    if (p.n < capacity) out[p.n] = '\0';
    if (key) put_key(&p, key);
    return found;
}
