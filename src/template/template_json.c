/* template_json.c: converts a request's JSON to values, values to JSON (tojson as in Hugging Face:
 * json.dumps without ASCII escapes), and JSON text to values (fromjson, an addition of servers). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "template_eval.h"
#include "utf8.h"

/* ---- from JSON ------------------------------------------------------------------------------- */

static tpl_value json_text(tpl *t, const char *s, size_t n) {
    return t->parsed ? tpl_copy(t, s, n) : tpl_string(t, s, n);
}

static tpl_value from_object(tpl *t, const json_node *node) {
    tpl_dict *d = tpl_dict_new(t);
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(node, &iter, &key, &value))
        tpl_dict_set(t, d, json_text(t, key, strlen(key)), tpl_from_json(t, value));
    return tpl_of_dict(d);
}

static tpl_value from_array(tpl *t, const json_node *node) {
    size_t n = json_count(node);
    tpl_list *list = tpl_list_new(t, n);
    for (size_t i = 0; i < n; i++) tpl_list_add(t, list, tpl_from_json(t, json_at(node, i)));
    return tpl_of_list(TPL_LIST, list);
}

tpl_value tpl_from_json(tpl *t, const json_node *node) {
    bool b = false;
    int64_t i = 0;
    double f = 0;
    const char *s = "";
    size_t n = 0;
    tpl_value v = tpl_none();
    tpl_enter(t);
    switch (json_kind_of(node)) {
    case JSON_NULL:
        break;
    case JSON_BOOL:
        json_as_bool(node, &b);
        v = tpl_bool(b);
        break;
    case JSON_INT:
        json_as_int(node, &i);
        v = tpl_int(i);
        break;
    case JSON_REAL:
        json_as_double(node, &f);
        v = tpl_float(f);
        break;
    case JSON_STRING:
        json_as_string(node, &s, &n);
        v = json_text(t, s, n);
        break;
    case JSON_ARRAY:
        v = from_array(t, node);
        break;
    case JSON_OBJECT:
        v = from_object(t, node);
        break;
    }
    tpl_leave(t);
    return v;
}

tpl_value tpl_filter_fromjson(tpl *t, tpl_value v, const tpl_args *args) {
    enum { MAX_JSON = 4 << 20 };
    pi_error why = {.status = PI_OK};
    tpl_bind(t, "fromjson", args, "", 0, NULL);
    if (!tpl_is_string(v)) tpl_type_error(t, "the JSON object must be str, not %s", tpl_type(v));
    if (v.str->n > MAX_JSON) tpl_fail(t, PI_ERR_LIMIT, "JSON text of more than %d bytes", MAX_JSON);
    tpl_work(t, v.str->n);
    pi_status status = json_parse(v.str->s, v.str->n, "text", &t->parsed, &why);
    if (status != PI_OK) tpl_fail(t, status, "%s", why.message);
    v = tpl_from_json(t, json_root(t->parsed));
    json_free(t->parsed);
    t->parsed = NULL;
    return v;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

typedef struct writer {
    tpl *t;
    tpl_buffer out;
    bool ascii, sorted, indented;
    const tpl_str *indent, *comma, *colon;
    size_t level;
} writer;

static void put_escape(writer *w, uint32_t c) {
    char text[16];
    if (c >= 0x10000) { /* a surrogate pair */
        c -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + (c >> 10)),
                 (unsigned)(0xDC00 + (c & 0x3FF)));
    } else {
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    }
    tpl_put_text(w->t, &w->out, text);
}

static void put_string(writer *w, const char *s, size_t n) {
    static const char from[] = "\"\\\n\r\t\f\b", *const to[] = {"\\\"", "\\\\", "\\n", "\\r",
                                                                "\\t",  "\\f",  "\\b"};
    tpl_put_text(w->t, &w->out, "\"");
    size_t begin = 0, step;
    for (size_t i = 0; i < n; i += step) {
        unsigned char c = (unsigned char)s[i];
        int32_t code = c;
        step = 1;
        if (c >= 0x80 && w->ascii) code = utf8_decode(s + i, n - i, &step);
        const char *special = c && c < 0x80 ? strchr(from, c) : NULL;
        if (!special && c >= 0x20 && (c < 0x80 || !w->ascii)) continue;
        tpl_put(w->t, &w->out, s + begin, i - begin);
        begin = i + step;
        if (special)
            tpl_put_text(w->t, &w->out, to[special - from]);
        else
            put_escape(w, code < 0 ? UTF8_REPLACEMENT : (uint32_t)code);
    }
    tpl_put(w->t, &w->out, s + begin, n - begin);
    tpl_put_text(w->t, &w->out, "\"");
}

static void put_line(writer *w) {
    if (!w->indented) return;
    tpl_put_text(w->t, &w->out, "\n");
    for (size_t i = 0; i < w->level; i++) tpl_put(w->t, &w->out, w->indent->s, w->indent->n);
}

static void put_value(writer *w, tpl_value v);

static void put_float(writer *w, double f) {
    if (isnan(f) || isinf(f))
        tpl_put_text(w->t, &w->out, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        tpl_put_float(w->t, &w->out, f);
}

static void put_key(writer *w, tpl_value key) {
    tpl_buffer text = {0};
    if (key.kind == TPL_STRING) {
        put_string(w, key.str->s, key.str->n);
        return;
    }
    if (key.kind < TPL_NONE || key.kind > TPL_FLOAT) {
        tpl_type_error(w->t, "keys must be str, int, float, bool or None, not %s", tpl_type(key));
    }
    tpl_buffer kept = w->out;
    w->out = text;
    put_value(w, key);
    text = w->out;
    w->out = kept;
    put_string(w, text.data, text.n);
}

static int by_key(const void *a, const void *b) {
    const tpl_str *x = ((const tpl_entry *)a)->key.str, *y = ((const tpl_entry *)b)->key.str;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

static const tpl_entry *sorted_entries(writer *w, const tpl_dict *d) {
    tpl_entry *entries = tpl_alloc_array(w->t, d->n, sizeof *entries);
    for (size_t i = 0; i < d->n; i++) {
        entries[i] = d->entries[i];
        if (!tpl_is_string(entries[i].key))
            tpl_type_error(w->t, "sort_keys takes keys that are strings, not %s",
                           tpl_type(entries[i].key));
    }
    qsort(entries, d->n, sizeof *entries, by_key);
    return entries;
}

static void put_dict(writer *w, const tpl_dict *d) {
    const tpl_entry *entries = w->sorted && d->n ? sorted_entries(w, d) : d->entries;
    tpl_put_text(w->t, &w->out, "{");
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        if (i) tpl_put(w->t, &w->out, w->comma->s, w->comma->n);
        put_line(w);
        put_key(w, entries[i].key);
        tpl_put(w->t, &w->out, w->colon->s, w->colon->n);
        put_value(w, entries[i].value);
    }
    w->level--;
    if (d->n) put_line(w);
    tpl_put_text(w->t, &w->out, "}");
}

static void put_list(writer *w, const tpl_list *list) {
    tpl_put_text(w->t, &w->out, "[");
    w->level++;
    for (size_t i = 0; i < list->n; i++) {
        if (i) tpl_put(w->t, &w->out, w->comma->s, w->comma->n);
        put_line(w);
        put_value(w, list->items[i]);
    }
    w->level--;
    if (list->n) put_line(w);
    tpl_put_text(w->t, &w->out, "]");
}

static void put_value(writer *w, tpl_value v) {
    tpl_step(w->t);
    tpl_enter(w->t);
    switch (v.kind) {
    case TPL_NONE:
        tpl_put_text(w->t, &w->out, "null");
        break;
    case TPL_BOOL:
        tpl_put_text(w->t, &w->out, v.b ? "true" : "false");
        break;
    case TPL_INT:
        tpl_put_str(w->t, &w->out, v);
        break;
    case TPL_FLOAT:
        put_float(w, v.f);
        break;
    case TPL_STRING:
        put_string(w, v.str->s, v.str->n);
        break;
    case TPL_LIST:
    case TPL_TUPLE:
        put_list(w, v.list);
        break;
    case TPL_DICT:
        put_dict(w, v.dict);
        break;
    default:
        tpl_type_error(w->t, "Object of type %s is not JSON serializable", tpl_type(v));
    }
    tpl_leave(w->t);
}

static void set_indent(writer *w, tpl_value indent) {
    enum { MAX_INDENT = 1000 };
    int64_t width;
    if (indent.kind == TPL_MISSING || indent.kind == TPL_NONE) return;
    w->indented = true;
    if (tpl_is_string(indent)) {
        w->indent = indent.str;
        return;
    }
    if (!tpl_integer(indent, &width)) tpl_type_error(w->t, "indent must be int or str");
    if (width > MAX_INDENT) tpl_fail(w->t, PI_ERR_LIMIT, "indent is more than %d", MAX_INDENT);
    w->indent = tpl_repeat(w->t, tpl_text(w->t, " "), width).str;
}

tpl_value tpl_filter_tojson(tpl *t, tpl_value v, const tpl_args *args) {
    tpl_value a[4];
    writer w = {.t = t};
    tpl_bind(t, "tojson", args, "ensure_ascii indent separators sort_keys", 0, a);
    w.ascii = tpl_bool_arg(a[0], false);
    set_indent(&w, a[1]);
    w.comma = tpl_text(t, w.indented ? "," : ", ").str;
    w.colon = tpl_text(t, ": ").str;
    if (a[2].kind != TPL_MISSING && a[2].kind != TPL_NONE) {
        const tpl_list *pair = tpl_iterate(t, a[2]);
        if (pair->n != 2) tpl_type_error(t, "separators must be two strings");
        w.comma = tpl_string_arg(t, pair->items[0], "separator").str;
        w.colon = tpl_string_arg(t, pair->items[1], "separator").str;
    }
    w.sorted = tpl_bool_arg(a[3], false);
    put_value(&w, v);
    return tpl_buffer_string(t, &w.out);
}
