/* json_writer.c: writes JSON, one token at a time.
 *
 * Layout: members of objects, and containers within arrays, start a new line, indented by two
 * spaces per level. Scalars of an array share one line, so that a list of a thousand tokens stays
 * one line. */
#include "json_writer.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "utf8_length.h"

enum { INDENT = 2 };

void json_begin_into(json_writer *w, json_write *write, void *user, bool compact) {
    *w = (json_writer){.write = write, .user = user, .compact = compact};
}

static bool write_file(void *user, const char *data, size_t n_bytes) {
    return fwrite(data, 1, n_bytes, user) == n_bytes;
}

void json_begin(json_writer *w, FILE *file) {
    json_begin_into(w, write_file, file, false);
}

void json_begin_compact(json_writer *w, FILE *file) {
    json_begin_into(w, write_file, file, true);
}

static void put(json_writer *w, const char *data, size_t n_bytes) {
    if (!w->failed) w->failed = !w->write(w->user, data, n_bytes);
}

static void put_text(json_writer *w, const char *text) {
    put(w, text, strlen(text));
}

static void new_line(json_writer *w) {
    char line[1 + INDENT * JSON_WRITER_DEPTH + 1];
    int n = snprintf(line, sizeof line, "\n%*s", w->depth * INDENT, "");
    put(w, line, (size_t)n);
}

/* Letters of the short escapes of RFC 8259 section 7; 0: none. */
static char short_escape(unsigned char c) {
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

/* Whether a byte of a string is written unchanged. */
static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Plain runs are written in one piece. */
static void put_string(json_writer *w, const char *value, size_t n) {
    const unsigned char *s = (const unsigned char *)value;
    put(w, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t plain = 0;
        while (i + plain < n && is_plain(s[i + plain])) plain++;
        if (plain > 0) {
            put(w, value + i, plain);
            i += plain;
            continue;
        }
        char escape = short_escape(s[i]), text[8];
        size_t length = utf8_length(s + i, n - i);
        if (length == 0) {
            put_text(w, "\xef\xbf\xbd"); /* U+FFFD */
            i++;
            continue;
        }
        if (length > 1) {
            put(w, value + i, length);
        } else if (escape) {
            text[0] = '\\';
            text[1] = escape;
            put(w, text, 2);
        } else {
            snprintf(text, sizeof text, "\\u%04x", s[i]);
            put_text(w, text);
        }
        i += length;
    }
    put(w, "\"", 1);
}

/* Writes what precedes a value: comma, line break, key. */
static void begin_item(json_writer *w, const char *key, bool container) {
    if (w->depth == 0) return;
    int d = w->depth - 1;
    assert(w->in_array[d] == (key == NULL));
    if (w->has_item[d]) put_text(w, ",");
    if (!w->compact && (container || !w->in_array[d])) w->in_lines[d] = true;
    if (w->in_lines[d]) {
        new_line(w);
    } else if (w->has_item[d] && !w->compact) {
        put_text(w, " ");
    }
    w->has_item[d] = true;
    if (key) {
        put_string(w, key, strlen(key));
        put_text(w, w->compact ? ":" : ": ");
    }
}

static void begin_container(json_writer *w, const char *key, bool array) {
    begin_item(w, key, true);
    assert(w->depth < JSON_WRITER_DEPTH);
    w->has_item[w->depth] = false;
    w->in_array[w->depth] = array;
    w->in_lines[w->depth] = false;
    w->depth++;
    put_text(w, array ? "[" : "{");
}

static void end_container(json_writer *w, bool array) {
    assert(w->depth > 0 && w->in_array[w->depth - 1] == array);
    w->depth--;
    if (w->in_lines[w->depth]) new_line(w);
    put_text(w, array ? "]" : "}");
    if (w->depth == 0 && !w->compact) put_text(w, "\n");
}

void json_put_object(json_writer *w, const char *key) {
    begin_container(w, key, false);
}

void json_end_object(json_writer *w) {
    end_container(w, false);
}

void json_put_array(json_writer *w, const char *key) {
    begin_container(w, key, true);
}

void json_end_array(json_writer *w) {
    end_container(w, true);
}

void json_put_string(json_writer *w, const char *key, const char *value, size_t n_bytes) {
    begin_item(w, key, false);
    put_string(w, value, n_bytes);
}

void json_put_text(json_writer *w, const char *key, const char *value) {
    begin_item(w, key, false);
    if (value) {
        put_string(w, value, strlen(value));
    } else {
        put_text(w, "null");
    }
}

void json_put_int(json_writer *w, const char *key, int64_t value) {
    begin_item(w, key, false);
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_text(w, text);
}

void json_put_number(json_writer *w, const char *key, double value) {
    begin_item(w, key, false);
    if (!isfinite(value)) {
        put_text(w, "null");
        return;
    }
    /* %g drops trailing zeros, so one attempt with 15 digits, which every normal double has, finds
     * the shortest form of up to 15 digits. Subnormal numbers have fewer; 17 always suffice. */
    int digits = value != 0 && fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    char text[40];
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (++digits <= DBL_DECIMAL_DIG && strtod(text, NULL) != value);
    /* The locale may use another decimal point. */
    size_t n = strspn(text, "-0123456789");
    size_t m = strcspn(text + n, "0123456789e");
    put(w, text, n);
    if (m) put_text(w, ".");
    put_text(w, text + n + m);
}

void json_put_float(json_writer *w, const char *key, float value) {
    char text[32];
    int digits = FLT_DIG;
    do {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
    } while (++digits <= FLT_DECIMAL_DIG && strtof(text, NULL) != value);
    json_put_number(w, key, strtod(text, NULL));
}

void json_put_bool(json_writer *w, const char *key, bool value) {
    begin_item(w, key, false);
    put_text(w, value ? "true" : "false");
}
