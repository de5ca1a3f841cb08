/* schema_text.c: JSON values as text, in the form that constants have in a grammar. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "schema.h"

static bool put(schema_text *out, const char *bytes, size_t n) {
    if (!mem_grow((void **)&out->bytes, &out->capacity, out->n + n + 1, 1, SCHEMA_TEXT_MAX))
        return false;
    memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
    out->bytes[out->n] = '\0';
    return true;
}

const grammar_range schema_escaped[SCHEMA_N_ESCAPED] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

size_t schema_escape(char out[SCHEMA_ESCAPE_MAX], uint32_t code) {
    static const char codes[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *at = code && code < 0x80 ? strchr(codes, (int)code) : NULL;
    if (!at && code >= 0x20) return 0;
    char text[SCHEMA_ESCAPE_MAX + 1];
    if (at)
        snprintf(text, sizeof text, "\\%c", names[at - codes]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code & 0x1f);
    memcpy(out, text, strlen(text));
    return strlen(text);
}

bool schema_write_string(schema_text *out, const char *s, size_t n) {
    bool good = put(out, "\"", 1);
    for (size_t i = 0; i < n && good; i++) {
        char escape[SCHEMA_ESCAPE_MAX];
        size_t length = schema_escape(escape, (unsigned char)s[i]);
        good = length ? put(out, escape, length) : put(out, s + i, 1);
    }
    return good && put(out, "\"", 1);
}

/* Integers have no decimal point, because 1 and 1.0 are equal values. */
static bool write_number(schema_text *out, const json_node *value) {
    char text[40];
    int64_t integer;
    double number = 0;
    if (json_as_int(value, &integer)) {
        snprintf(text, sizeof text, "%lld", (long long)integer);
        return put(out, text, strlen(text));
    }
    json_as_double(value, &number);
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    for (char *p = text; *p; p++) {
        if (*p == ',') *p = '.'; /* the decimal point of the locale */
    }
    return put(out, text, strlen(text));
}

static bool write_list(schema_text *out, const json_node *value, bool object) {
    void *iter = NULL;
    const char *key;
    const json_node *member;
    bool good = put(out, object ? "{" : "[", 1);
    for (size_t i = 0; i < json_count(value) && good; i++) {
        if (i) good = put(out, ",", 1);
        if (!object) {
            good = good && schema_write(out, json_at(value, i));
        } else if (json_next(value, &iter, &key, &member)) {
            good = good && schema_write_string(out, key, strlen(key)) && put(out, ":", 1) &&
                   schema_write(out, member);
        }
    }
    return good && put(out, object ? "}" : "]", 1);
}

bool schema_write(schema_text *out, const json_node *value) {
    const char *s;
    size_t n;
    bool truth = false;
    switch (json_kind_of(value)) {
    case JSON_NULL:
        return put(out, "null", 4);
    case JSON_BOOL:
        json_as_bool(value, &truth);
        return truth ? put(out, "true", 4) : put(out, "false", 5);
    case JSON_INT:
    case JSON_REAL:
        return write_number(out, value);
    case JSON_STRING:
        return json_as_string(value, &s, &n) && schema_write_string(out, s, n);
    case JSON_ARRAY:
    case JSON_OBJECT:
        return write_list(out, value, json_kind_of(value) == JSON_OBJECT);
    }
    return false;
}
