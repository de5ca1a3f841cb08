/* json_writer.c: writes JSON to a FILE, one token at a time.
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

void json_begin(json_writer *w, FILE *file) {
    *w = (json_writer){.file = file};
}

void json_begin_compact(json_writer *w, FILE *file) {
    *w = (json_writer){.file = file, .compact = true};
}

static void new_line(json_writer *w) {
    fprintf(w->file, "\n%*s", w->depth * INDENT, "");
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

static void put_string(FILE *f, const char *value, size_t n) {
    const unsigned char *s = (const unsigned char *)value;
    fputc('"', f);
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(s + i, n - i);
        if (length == 0) {
            fputs("\xef\xbf\xbd", f); /* U+FFFD */
            i++;
            continue;
        }
        char escape = short_escape(s[i]);
        if (escape) {
            fputc('\\', f);
            fputc(escape, f);
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            fprintf(f, "\\u%04x", s[i]);
        } else {
            fwrite(s + i, 1, length, f);
        }
        i += length;
    }
    fputc('"', f);
}

/* Writes what precedes a value: comma, line break, key. */
static void begin_item(json_writer *w, const char *key, bool container) {
    if (w->depth == 0) return;
    int d = w->depth - 1;
    assert(w->in_array[d] == (key == NULL));
    if (w->has_item[d]) fputc(',', w->file);
    if (!w->compact && (container || !w->in_array[d])) w->in_lines[d] = true;
    if (w->in_lines[d]) {
        new_line(w);
    } else if (w->has_item[d] && !w->compact) {
        fputc(' ', w->file);
    }
    w->has_item[d] = true;
    if (key) {
        put_string(w->file, key, strlen(key));
        fputs(w->compact ? ":" : ": ", w->file);
    }
}

static void begin_container(json_writer *w, const char *key, bool array) {
    begin_item(w, key, true);
    assert(w->depth < JSON_WRITER_DEPTH);
    w->has_item[w->depth] = false;
    w->in_array[w->depth] = array;
    w->in_lines[w->depth] = false;
    w->depth++;
    fputc(array ? '[' : '{', w->file);
}

static void end_container(json_writer *w, bool array) {
    assert(w->depth > 0 && w->in_array[w->depth - 1] == array);
    w->depth--;
    if (w->in_lines[w->depth]) new_line(w);
    fputc(array ? ']' : '}', w->file);
    if (w->depth == 0 && !w->compact) fputc('\n', w->file);
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
    put_string(w->file, value, n_bytes);
}

void json_put_text(json_writer *w, const char *key, const char *value) {
    begin_item(w, key, false);
    if (value) {
        put_string(w->file, value, strlen(value));
    } else {
        fputs("null", w->file);
    }
}

void json_put_int(json_writer *w, const char *key, int64_t value) {
    begin_item(w, key, false);
    fprintf(w->file, "%" PRId64, value);
}

void json_put_number(json_writer *w, const char *key, double value) {
    begin_item(w, key, false);
    if (!isfinite(value)) {
        fputs("null", w->file);
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
    fprintf(w->file, "%.*s%s%s", (int)n, text, m ? "." : "", text + n + m);
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
    fputs(value ? "true" : "false", w->file);
}
