/* bytes.c: growing buffers, and JSON written into them. */
#include "bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

bool bytes_append(bytes *b, const void *data, size_t n) {
    size_t need;
    if (!size_add(b->used, n, &need)) return false;
    if (!mem_grow((void **)&b->data, &b->capacity, need, 1, BYTES_MAX)) return false;
    if (n) memcpy(b->data + b->used, data, n);
    b->used = need;
    return true;
}

bool bytes_append_text(bytes *b, const char *text) {
    return bytes_append(b, text, strlen(text));
}

void bytes_remove_front(bytes *b, size_t n) {
    if (n == 0) return;
    memmove(b->data, b->data + n, b->used - n);
    b->used -= n;
}

void bytes_free(bytes *b) {
    mem_free(b->data);
    *b = (bytes){0};
}

bool bytes_print(bytes *b, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) return false;
    return bytes_append(b, text, (size_t)n);
}

static bool write_piece(void *user, const char *data, size_t n) {
    return bytes_append(user, data, n);
}

/* Most documents fit into the first piece of memory. */
bool bytes_json_begin(bytes_json *j, bytes *b) {
    enum { FIRST = 512 };
    size_t need;
    json_begin_into(&j->writer, write_piece, b, true);
    return size_add(b->used, FIRST, &need) &&
           mem_grow((void **)&b->data, &b->capacity, need, 1, BYTES_MAX);
}

bool bytes_json_end(bytes_json *j) {
    return !j->writer.failed;
}

static void put_container(json_writer *w, const char *key, const json_node *node) {
    if (json_kind_of(node) == JSON_ARRAY) {
        json_put_array(w, key);
        for (size_t i = 0; i < json_count(node); i++) bytes_json_put(w, NULL, json_at(node, i));
        json_end_array(w);
        return;
    }
    void *iter = NULL;
    const char *name;
    const json_node *value;
    json_put_object(w, key);
    while (json_next(node, &iter, &name, &value)) bytes_json_put(w, name, value);
    json_end_object(w);
}

void bytes_json_put(json_writer *w, const char *key, const json_node *node) {
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    const char *text = NULL;
    size_t n = 0;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        json_put_text(w, key, NULL);
        break;
    case JSON_BOOL:
        json_as_bool(node, &truth);
        json_put_bool(w, key, truth);
        break;
    case JSON_INT:
        json_as_int(node, &integer);
        json_put_int(w, key, integer);
        break;
    case JSON_REAL:
        json_as_double(node, &number);
        json_put_number(w, key, number);
        break;
    case JSON_STRING:
        json_as_string(node, &text, &n);
        json_put_string(w, key, text, n);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        put_container(w, key, node);
        break;
    }
}

void bytes_json_copy(json_writer *w, const char *key, const json_node *object, const char *name) {
    const json_node *node = json_get(object, name);
    if (node) bytes_json_put(w, key, node);
}

void bytes_json_call(json_writer *w, const json_node *id, const json_node *name,
                     const json_node *arguments) {
    json_put_object(w, NULL);
    bytes_json_put(w, "id", id);
    json_put_object(w, "function");
    bytes_json_put(w, "name", name);
    bytes_json_put(w, "arguments", arguments);
    json_end_object(w);
    json_end_object(w);
}
