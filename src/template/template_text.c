/* template_text.c: the text form of values: str(), repr(), floats as Python writes them, HTML
 * escapes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template_unicode.h"
#include "template_value.h"
#include "utf8.h"

/* The shortest digits that read back as the same number; with an exponent below 1e-4 and from 1e16
 * on, as in Python. */
void tpl_format_float(double f, char buf[TPL_FLOAT_ROOM]) {
    char digits[TPL_FLOAT_ROOM];
    if (isnan(f) || isinf(f)) {
        snprintf(buf, TPL_FLOAT_ROOM, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    const char *e = strchr(digits, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        snprintf(buf, TPL_FLOAT_ROOM, "%.*se%c%02d", (int)(e - digits), digits,
                 exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int places = precision - exponent;
    snprintf(buf, TPL_FLOAT_ROOM, "%.*f", places < 1 ? 1 : places, f);
}

void tpl_put_float(tpl *t, tpl_buffer *b, double f) {
    char text[TPL_FLOAT_ROOM];
    tpl_format_float(f, text);
    tpl_put_text(t, b, text);
}

static void put_int(tpl *t, tpl_buffer *b, int64_t i) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, i);
    tpl_put_text(t, b, text);
}

static void put_escaped_char(tpl *t, tpl_buffer *b, uint32_t c) {
    char text[16];
    if (c == '\n' || c == '\r' || c == '\t') {
        tpl_put_text(t, b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        return;
    }
    if (c < 0x100)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)c);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\U%08x", (unsigned)c);
    tpl_put_text(t, b, text);
}

static void put_quoted(tpl *t, tpl_buffer *b, const tpl_str *s) {
    bool has_single = s->n && memchr(s->s, '\'', s->n),
         has_double = s->n && memchr(s->s, '"', s->n);
    char quote = has_single && !has_double ? '"' : '\'';
    tpl_put(t, b, &quote, 1);
    for (size_t i = 0, step; i < s->n; i += step) {
        int32_t c = utf8_decode(s->s + i, s->n - i, &step);
        if (c == quote || c == '\\') tpl_put_text(t, b, "\\");
        if (c >= 0 && !tpl_is_printable((uint32_t)c))
            put_escaped_char(t, b, (uint32_t)c);
        else
            tpl_put(t, b, s->s + i, step);
    }
    tpl_put(t, b, &quote, 1);
}

static void put_items(tpl *t, tpl_buffer *b, const tpl_list *list, const char *open,
                      const char *close) {
    tpl_put_text(t, b, open);
    for (size_t k = 0; k < list->n; k++) {
        if (k) tpl_put_text(t, b, ", ");
        tpl_put_repr(t, b, list->items[k]);
    }
    tpl_put_text(t, b, close);
}

static void put_dict(tpl *t, tpl_buffer *b, const tpl_dict *d) {
    tpl_put_text(t, b, "{");
    for (size_t k = 0; k < d->n; k++) {
        if (k) tpl_put_text(t, b, ", ");
        tpl_put_repr(t, b, d->entries[k].key);
        tpl_put_text(t, b, ": ");
        tpl_put_repr(t, b, d->entries[k].value);
    }
    tpl_put_text(t, b, "}");
}

static void put_range(tpl *t, tpl_buffer *b, const tpl_list *list) {
    tpl_put_text(t, b, "range(");
    put_int(t, b, list->start);
    tpl_put_text(t, b, ", ");
    put_int(t, b, list->stop);
    if (list->step != 1) {
        tpl_put_text(t, b, ", ");
        put_int(t, b, list->step);
    }
    tpl_put_text(t, b, ")");
}

static void put_object(tpl *t, tpl_buffer *b, tpl_value v) {
    tpl_put_text(t, b, "<");
    tpl_put_text(t, b, tpl_type(v));
    if (v.kind == TPL_FUNCTION || v.kind == TPL_METHOD) {
        tpl_put_text(t, b, " ");
        tpl_put_text(t, b, v.callable->name);
    }
    tpl_put_text(t, b, ">");
}

void tpl_put_repr(tpl *t, tpl_buffer *b, tpl_value v) {
    tpl_step(t);
    tpl_enter(t);
    switch (v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
        tpl_put_text(t, b, "Undefined");
        break;
    case TPL_NONE:
        tpl_put_text(t, b, "None");
        break;
    case TPL_BOOL:
        tpl_put_text(t, b, v.b ? "True" : "False");
        break;
    case TPL_INT:
        put_int(t, b, v.i);
        break;
    case TPL_FLOAT:
        tpl_put_float(t, b, v.f);
        break;
    case TPL_STRING:
        if (v.str->safe) tpl_put_text(t, b, "Markup(");
        put_quoted(t, b, v.str);
        if (v.str->safe) tpl_put_text(t, b, ")");
        break;
    case TPL_LIST:
        put_items(t, b, v.list, "[", "]");
        break;
    case TPL_TUPLE:
        put_items(t, b, v.list, "(", v.list->n == 1 ? ",)" : ")");
        break;
    case TPL_RANGE:
        put_range(t, b, v.list);
        break;
    case TPL_VIEW:
        tpl_put_text(t, b, v.list->type);
        put_items(t, b, v.list, "([", "])");
        break;
    case TPL_DICT:
        put_dict(t, b, v.dict);
        break;
    case TPL_NAMESPACE:
        tpl_put_text(t, b, "<Namespace ");
        put_dict(t, b, v.dict);
        tpl_put_text(t, b, ">");
        break;
    default:
        put_object(t, b, v);
    }
    tpl_leave(t);
}

void tpl_put_str(tpl *t, tpl_buffer *b, tpl_value v) {
    if (v.kind == TPL_STRING)
        tpl_put(t, b, v.str->s, v.str->n);
    else if (v.kind != TPL_UNDEFINED)
        tpl_put_repr(t, b, v);
}

tpl_value tpl_str_of(tpl *t, tpl_value v) {
    if (v.kind == TPL_STRING) return tpl_with_safety(t, v, false);
    return tpl_soft_str(t, v);
}

tpl_value tpl_soft_str(tpl *t, tpl_value v) {
    tpl_buffer b = {0};
    if (v.kind == TPL_STRING) return v;
    tpl_put_str(t, &b, v);
    return tpl_buffer_string(t, &b);
}

const char *tpl_cstr(tpl *t, tpl_value v) {
    tpl_buffer b = {0};
    tpl_put_repr(t, &b, v);
    tpl_put(t, &b, "", 1);
    return b.data;
}

tpl_value tpl_escape(tpl *t, tpl_value v) {
    tpl_value s = tpl_soft_str(t, v);
    tpl_buffer b = {0};
    if (s.str->safe) return s;
    for (size_t i = 0, from = 0; i <= s.str->n; i++) {
        const char *entity = NULL;
        if (i < s.str->n) {
            switch (s.str->s[i]) {
            case '&':
                entity = "&amp;";
                break;
            case '<':
                entity = "&lt;";
                break;
            case '>':
                entity = "&gt;";
                break;
            case '\'':
                entity = "&#39;";
                break;
            case '"':
                entity = "&#34;";
                break;
            default:
                continue;
            }
        }
        tpl_put(t, &b, s.str->s + from, i - from);
        from = i + 1;
        if (entity) tpl_put_text(t, &b, entity);
    }
    tpl_value out = tpl_buffer_string(t, &b);
    out.str->safe = true;
    return out;
}
