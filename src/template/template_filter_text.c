/* template_filter_text.c: filters that return a text or a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "os_text.h"
#include "template_eval.h"
#include "template_unicode.h"
#include "utf8.h"

#define FILTER(name)  static tpl_value filter_##name(tpl *t, tpl_value v, const tpl_args *args)
#define NO_ARGS(name) tpl_bind(t, name, args, "", 0, NULL)

static const tpl_value missing = {.kind = TPL_MISSING};

static bool given(tpl_value v) {
    return v.kind != TPL_MISSING && v.kind != TPL_NONE;
}

/* ---- case, blanks, padding ------------------------------------------------------------------- */

FILTER(upper) {
    NO_ARGS("upper");
    return tpl_change_case(t, tpl_soft_str(t, v), CASE_UPPER);
}

FILTER(lower) {
    NO_ARGS("lower");
    return tpl_change_case(t, tpl_soft_str(t, v), CASE_LOWER);
}

FILTER(capitalize) {
    NO_ARGS("capitalize");
    return tpl_change_case(t, tpl_soft_str(t, v), CASE_CAPITALIZE);
}

/* A word begins after white space and after - ( { [ <, unlike in str.title(). */
FILTER(title) {
    NO_ARGS("title");
    tpl_value s = tpl_soft_str(t, v);
    tpl_buffer b = {0};
    size_t step, begin = 0;
    tpl_work(t, s.str->n);
    for (size_t i = 0; i <= s.str->n; i += step) {
        int32_t c = i < s.str->n ? utf8_decode(s.str->s + i, s.str->n - i, &step) : ' ';
        if (i == s.str->n) step = 1;
        bool separates = c >= 0 &&
                         (tpl_is_space((uint32_t)c) || (c && c < 0x80 && strchr("-({[<", c)));
        if (!separates) continue;
        tpl_value word = tpl_string(t, s.str->s + begin, i - begin);
        word = tpl_change_case(t, word, CASE_CAPITALIZE);
        tpl_put(t, &b, word.str->s, word.str->n);
        if (i < s.str->n) tpl_put(t, &b, s.str->s + i, step);
        begin = i + step;
    }
    return tpl_buffer_string(t, &b);
}

FILTER(trim) {
    tpl_value chars;
    tpl_bind(t, "trim", args, "chars", 0, &chars);
    return tpl_strip(t, tpl_soft_str(t, v), chars, SIDE_BOTH);
}

FILTER(center) {
    tpl_value width;
    tpl_bind(t, "center", args, "width", 0, &width);
    return tpl_pad(t, tpl_soft_str(t, v), tpl_int_arg(t, width, 80), missing, SIDE_BOTH);
}

FILTER(indent) {
    tpl_value a[3], by;
    tpl_buffer b = {0};
    tpl_bind(t, "indent", args, "width first blank", 0, a);
    tpl_string_arg(t, v, "the text to indent");
    if (tpl_is_string(a[0]))
        by = a[0];
    else
        by = tpl_repeat(t, tpl_text(t, " "), tpl_int_arg(t, a[0], 4));
    bool first = tpl_bool_arg(a[1], false), blank = tpl_bool_arg(a[2], false);
    /* Jinja adds a newline first: the last line counts even when it is empty. */
    tpl_value text = tpl_binary(t, '+', v, tpl_with_safety(t, tpl_text(t, "\n"), v.str->safe));
    const tpl_list *lines = tpl_split_lines(t, text, false);
    for (size_t i = 0; i < lines->n; i++) {
        const tpl_str *line = lines->items[i].str;
        if (i) tpl_put_text(t, &b, "\n");
        if (i ? blank || line->n : first) tpl_put(t, &b, by.str->s, by.str->n);
        tpl_put(t, &b, line->s, line->n);
    }
    return tpl_with_safety(t, tpl_buffer_string(t, &b), v.str->safe);
}

FILTER(replace) {
    tpl_value a[3];
    tpl_bind(t, "replace", args, "old new count", 2, a);
    return tpl_replace(t, tpl_str_of(t, v), tpl_str_of(t, a[0]), tpl_str_of(t, a[1]),
                       tpl_int_arg(t, a[2], -1));
}

/* ---- kinds of text --------------------------------------------------------------------------- */

FILTER(string) {
    NO_ARGS("string");
    return tpl_soft_str(t, v);
}

FILTER(safe) {
    NO_ARGS("safe");
    return tpl_with_safety(t, tpl_soft_str(t, v), true);
}

FILTER(escape) {
    NO_ARGS("escape");
    return tpl_escape(t, v);
}

FILTER(forceescape) {
    NO_ARGS("forceescape");
    return tpl_escape(t, tpl_str_of(t, v));
}

FILTER(format) {
    tpl_list list = {.items = args->items, .n = args->n};
    tpl_value values = tpl_of_list(TPL_TUPLE, &list);
    if (args->n && args->named)
        tpl_type_error(t, "can't handle positional and keyword arguments at the same time");
    if (args->named) values = tpl_of_dict(args->named);
    return tpl_format_percent(t, tpl_soft_str(t, v), values);
}

/* ---- shortening and wrapping ----------------------------------------------------------------- */

FILTER(truncate) {
    tpl_value a[4];
    tpl_bind(t, "truncate", args, "length killwords end leeway", 0, a);
    tpl_value end = given(a[2]) ? tpl_string_arg(t, a[2], "end") : tpl_text(t, "...");
    int64_t length = tpl_int_arg(t, a[0], 255), n_end = (int64_t)tpl_chars(t, end);
    int64_t leeway = tpl_int_arg(t, a[3], 5), n = (int64_t)tpl_length(t, v);
    if (length < n_end)
        tpl_type_error(t, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) tpl_type_error(t, "expected leeway >= 0, got %lld", (long long)leeway);
    if (n <= length || n - length <= leeway) return v;
    tpl_string_arg(t, v, "the text to truncate");
    tpl_value kept = tpl_substring(t, v, 0, (size_t)(length - n_end));
    if (!tpl_bool_arg(a[1], false)) {
        size_t end_of_words = kept.str->n; /* before the last blank */
        while (end_of_words > 0 && kept.str->s[end_of_words - 1] != ' ') end_of_words--;
        if (end_of_words > 0) kept = tpl_string(t, kept.str->s, end_of_words - 1);
    }
    return tpl_binary(t, '+', kept, end);
}

static bool is_letter(const tpl_list *chars, size_t i) {
    size_t step;
    if (i >= chars->n) return false;
    int32_t c = utf8_decode(chars->items[i].str->s, chars->items[i].str->n, &step);
    return c >= 0 && tpl_is_alpha((uint32_t)c);
}

static bool is_blank(const tpl_list *chars, size_t i) {
    const char *s = chars->items[i].str->s;
    return memchr(" \t\n\v\f\r", *s, 6) != NULL;
}

/* A line may end after a hyphen between letters. */
static bool breaks_after(const tpl_list *c, size_t i) {
    if (i < 2 || *c->items[i].str->s != '-' || !is_letter(c, i - 1) || !is_letter(c, i - 2))
        return false;
    size_t next = i + 2 + (i + 2 < c->n && *c->items[i + 2].str->s == '-');
    return is_letter(c, i + 1) && is_letter(c, next);
}

typedef struct wrapper {
    tpl *t;
    tpl_value line; /* the paragraph */
    const tpl_list *chars;
    size_t width;
    bool break_words, break_hyphens;
    size_t chunk_begin, chunk_end; /* the chunk found last */
} wrapper;

/* The end of the chunk that contains `at`. It is cached, because a word split over many lines asks
 * once per line. */
static size_t chunk_end(wrapper *w, size_t at) {
    if (at >= w->chunk_begin && at < w->chunk_end) return w->chunk_end;
    bool blank = is_blank(w->chars, at);
    size_t i = at;
    for (; i < w->chars->n && is_blank(w->chars, i) == blank; i++) {
        tpl_step(w->t);
        if (blank || !w->break_hyphens || !breaks_after(w->chars, i)) continue;
        i++;
        break;
    }
    w->chunk_begin = at;
    return w->chunk_end = i;
}

/* Where to split a word that is too long for a line, with `room` characters left. */
static size_t cut_word(const wrapper *w, size_t at, size_t room) {
    bool other = false;
    size_t cut = at + room;
    if (!w->break_hyphens) return cut;
    for (size_t i = at; i < at + room; i++) {
        bool hyphen = *w->chars->items[i].str->s == '-';
        if (hyphen && other) cut = i + 1;
        other |= !hyphen;
    }
    return cut;
}

static void wrap_line(wrapper *w, tpl_list *out) {
    size_t n = w->chars->n;
    for (size_t at = 0; at < n;) {
        if (out->n && is_blank(w->chars, at)) at = chunk_end(w, at);
        size_t begin = at;
        while (at < n && chunk_end(w, at) - begin <= w->width) at = chunk_end(w, at);
        if (at < n && chunk_end(w, at) - at > w->width) {
            size_t room = w->width - (at - begin);
            if (w->break_words && room)
                at = cut_word(w, at, room);
            else if (at == begin)
                at = chunk_end(w, at);
        }
        size_t end = at;
        while (end > begin && is_blank(w->chars, end - 1)) end--;
        if (end > begin) tpl_list_add(w->t, out, tpl_substring(w->t, w->line, begin, end));
    }
}

FILTER(wordwrap) {
    tpl_value a[4];
    tpl_bind(t, "wordwrap", args, "width break_long_words wrapstring break_on_hyphens", 0, a);
    tpl_string_arg(t, v, "the text to wrap");
    int64_t width = tpl_int_arg(t, a[0], 79);
    if (width <= 0) tpl_type_error(t, "invalid width %lld (must be > 0)", (long long)width);
    tpl_value newline = given(a[2]) ? tpl_string_arg(t, a[2], "wrapstring") : tpl_text(t, "\n");
    const tpl_list *lines = tpl_split_lines(t, v, false);
    tpl_list *paragraphs = tpl_list_new(t, 0);
    for (size_t i = 0; i < lines->n; i++) {
        wrapper w = {.t = t, .line = lines->items[i], .width = (size_t)width};
        w.chars = tpl_iterate(t, w.line);
        w.break_words = tpl_bool_arg(a[1], true);
        w.break_hyphens = tpl_bool_arg(a[3], true);
        tpl_list *wrapped = tpl_list_new(t, 0);
        wrap_line(&w, wrapped);
        tpl_list_add(t, paragraphs, tpl_join(t, newline, wrapped));
    }
    return tpl_join(t, newline, paragraphs);
}

FILTER(wordcount) {
    NO_ARGS("wordcount");
    tpl_value s = tpl_soft_str(t, v);
    int64_t count = 0;
    bool inside = false;
    size_t step;
    tpl_work(t, s.str->n);
    for (size_t i = 0; i < s.str->n; i += step) {
        int32_t c = utf8_decode(s.str->s + i, s.str->n - i, &step);
        bool word = c >= 0 && tpl_is_word((uint32_t)c);
        count += word && !inside;
        inside = word;
    }
    return tpl_int(count);
}

/* ---- HTML and URLs --------------------------------------------------------------------------- */

/* Writes the text without <...> and <!-- -->. */
static void put_without_tags(tpl *t, tpl_buffer *b, const char *s, size_t n) {
    tpl_work(t, n);
    for (size_t i = 0; i < n;) {
        if (s[i] != '<') {
            size_t from = i;
            while (i < n && s[i] != '<') i++;
            tpl_put(t, b, s + from, i - from);
            continue;
        }
        bool comment = n - i >= 4 && memcmp(s + i, "<!--", 4) == 0;
        const char *end = comment ? os_find(s + i + 4, n - i - 4, "-->", 3)
                                  : memchr(s + i, '>', n - i);
        if (!end) { /* an unterminated tag is text */
            tpl_put(t, b, s + i, n - i);
            return;
        }
        i = (size_t)(end - s) + (comment ? 3 : 1);
    }
}

FILTER(striptags) {
    static const char *const entities[] = {"&lt;",   "<",      "&gt;",  ">",     "&quot;",
                                           "\"",     "&#34;",  "\"",    "&#39;", "'",
                                           "&nbsp;", "\u00a0", "&amp;", "&"};
    NO_ARGS("striptags");
    tpl_value s = tpl_soft_str(t, v);
    tpl_buffer b = {0}, words = {0};
    put_without_tags(t, &b, s.str->s, s.str->n);
    bool gap = false;
    for (size_t i = 0, step; i < b.n; i += step) {
        int32_t c = utf8_decode(b.data + i, b.n - i, &step);
        if (c >= 0 && tpl_is_space((uint32_t)c)) {
            gap = words.n > 0;
            continue;
        }
        if (gap) tpl_put_text(t, &words, " ");
        gap = false;
        tpl_put(t, &words, b.data + i, step);
    }
    tpl_value text = tpl_buffer_string(t, &words);
    for (size_t i = 0; i + 1 < sizeof entities / sizeof entities[0]; i += 2)
        text = tpl_replace(t, text, tpl_text(t, entities[i]), tpl_text(t, entities[i + 1]), -1);
    return text;
}

static void put_quoted(tpl *t, tpl_buffer *b, tpl_value v, bool in_query) {
    tpl_value s = tpl_str_of(t, v);
    for (size_t i = 0; i < s.str->n; i++) {
        unsigned char c = (unsigned char)s.str->s[i];
        char text[4];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
        if (plain || (c == ' ' && in_query)) {
            tpl_put(t, b, plain ? s.str->s + i : "+", 1);
        } else {
            snprintf(text, sizeof text, "%%%02X", c);
            tpl_put(t, b, text, 3);
        }
    }
}

FILTER(urlencode) {
    tpl_buffer b = {0};
    NO_ARGS("urlencode");
    if (tpl_is_string(v) || (!tpl_is_sequence(v) && v.kind != TPL_DICT)) {
        put_quoted(t, &b, v, false);
        return tpl_buffer_string(t, &b);
    }
    size_t n = v.kind == TPL_DICT ? v.dict->n : 0;
    const tpl_list *pairs = v.kind == TPL_DICT ? NULL : tpl_iterate(t, v);
    if (pairs) n = pairs->n;
    for (size_t i = 0; i < n; i++) {
        tpl_value key, value;
        if (pairs) {
            const tpl_list *pair = tpl_iterate(t, pairs->items[i]);
            if (pair->n != 2) tpl_type_error(t, "urlencode takes pairs");
            key = pair->items[0];
            value = pair->items[1];
        } else {
            key = v.dict->entries[i].key;
            value = v.dict->entries[i].value;
        }
        if (i) tpl_put_text(t, &b, "&");
        put_quoted(t, &b, key, true);
        tpl_put_text(t, &b, "=");
        put_quoted(t, &b, value, true);
    }
    return tpl_buffer_string(t, &b);
}

FILTER(xmlattr) {
    tpl_value autospace;
    tpl_buffer b = {0};
    tpl_bind(t, "xmlattr", args, "autospace", 0, &autospace);
    if (v.kind != TPL_DICT) tpl_type_error(t, "xmlattr takes a mapping, not %s", tpl_type(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        const tpl_entry *e = &v.dict->entries[i];
        if (e->value.kind == TPL_NONE || e->value.kind == TPL_UNDEFINED) continue;
        tpl_value key = tpl_string_arg(t, e->key, "an attribute's name");
        for (size_t k = 0; k < key.str->n; k++)
            if (memchr(" \t\n\v\f\r/>=", key.str->s[k], 9))
                tpl_type_error(t, "Invalid character in attribute name: %s", tpl_cstr(t, key));
        if (b.n || tpl_bool_arg(autospace, true)) tpl_put_text(t, &b, " ");
        tpl_put_str(t, &b, tpl_escape(t, key));
        tpl_put_text(t, &b, "=\"");
        tpl_put_str(t, &b, tpl_escape(t, e->value));
        tpl_put_text(t, &b, "\"");
    }
    return tpl_buffer_string(t, &b);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool to_double(tpl *t, tpl_value v, double *out) {
    return tpl_is_string(v) ? tpl_parse_float(t, v, out) : tpl_number(v, out);
}

FILTER(int) {
    tpl_value a[2];
    int64_t i;
    double f;
    tpl_bind(t, "int", args, "default base", 0, a);
    tpl_value standard = a[0].kind == TPL_MISSING ? tpl_int(0) : a[0];
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (tpl_integer(v, &i)) return tpl_int(i);
    if (tpl_is_string(v) && tpl_parse_int(t, v, tpl_int_arg(t, a[1], 10), &i)) return tpl_int(i);
    if (!to_double(t, v, &f) || isnan(f) || isinf(f)) return standard;
    if (!(f >= -0x1p63 && f < 0x1p63)) tpl_fail(t, PI_ERR_LIMIT, "an integer is beyond 64 bits");
    return tpl_int((int64_t)f);
}

FILTER(float) {
    tpl_value standard;
    double f;
    tpl_bind(t, "float", args, "default", 0, &standard);
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (to_double(t, v, &f)) return tpl_float(f);
    return standard.kind == TPL_MISSING ? tpl_float(0) : standard;
}

FILTER(abs) {
    int64_t i;
    NO_ARGS("abs");
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (tpl_integer(v, &i)) return i < 0 ? tpl_negative(t, v) : tpl_int(i);
    if (v.kind != TPL_FLOAT) tpl_type_error(t, "bad operand type for abs(): '%s'", tpl_type(v));
    return tpl_float(fabs(v.f));
}

/* round(): ties go to even, decided by the exact value of the number. */
static double round_to(double f, int64_t places) {
    enum { MAX_PLACES = 330 };
    char text[2 * MAX_PLACES + 64];
    if (isnan(f) || isinf(f) || places > MAX_PLACES) return f;
    if (places < -MAX_PLACES) return copysign(0, f);
    if (places >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)places, f);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-places);
    return nearbyint(f / unit) * unit;
}

FILTER(round) {
    tpl_value a[2];
    int64_t i;
    double f;
    tpl_bind(t, "round", args, "precision method", 0, a);
    int64_t places = tpl_int_arg(t, a[0], 0);
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (!tpl_number(v, &f))
        tpl_type_error(t, "type %s doesn't define __round__ method", tpl_type(v));
    bool common = a[1].kind == TPL_MISSING || tpl_is(a[1], "common");
    if (common && tpl_integer(v, &i) && places >= 0) return tpl_int(i);
    if (common && tpl_integer(v, &i)) return tpl_int((int64_t)round_to(f, places));
    if (common) return tpl_float(round_to(f, places));
    if (!tpl_is(a[1], "ceil") && !tpl_is(a[1], "floor"))
        tpl_type_error(t, "method must be common, ceil or floor");
    double unit = pow(10, (double)places), scaled = f * unit;
    return tpl_float((tpl_is(a[1], "ceil") ? ceil(scaled) : floor(scaled)) / unit);
}

FILTER(filesizeformat) {
    static const char prefixes[] = "kMGTPEZY";
    tpl_value binary;
    char text[64];
    double bytes;
    tpl_bind(t, "filesizeformat", args, "binary", 0, &binary);
    if (!to_double(t, v, &bytes)) tpl_type_error(t, "filesizeformat takes a number");
    bool in_1024 = tpl_bool_arg(binary, false);
    double base = in_1024 ? 1024 : 1000, unit = base;
    if (bytes == 1) return tpl_text(t, "1 Byte");
    if (bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
        return tpl_copy(t, text, strlen(text));
    }
    size_t i = 0;
    while (bytes >= unit * base && prefixes[i + 1]) {
        unit *= base;
        i++;
    }
    char prefix = in_1024 && i == 0 ? 'K' : prefixes[i];
    snprintf(text, sizeof text, "%.1f %c%sB", bytes / unit, prefix, in_1024 ? "i" : "");
    return tpl_copy(t, text, strlen(text));
}

/* ---- any value ------------------------------------------------------------------------------- */

FILTER(default) {
    tpl_value a[2];
    tpl_bind(t, "default", args, "default_value boolean", 0, a);
    if (v.kind != TPL_UNDEFINED && !(tpl_bool_arg(a[1], false) && !tpl_truth(v))) return v;
    return a[0].kind == TPL_MISSING ? tpl_text(t, "") : a[0];
}

/* Attributes only, never the items of a dict. */
FILTER(attr) {
    tpl_value name;
    tpl_bind(t, "attr", args, "name", 1, &name);
    tpl_string_arg(t, name, "an attribute's name");
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (v.kind == TPL_DICT && tpl_method(t, v, name).kind == TPL_MISSING)
        return tpl_undefined_name(t, tpl_owner(v), name);
    return tpl_get_attribute(t, v, name);
}

const tpl_entry_point tpl_text_filters[] = {{"abs", filter_abs},
                                            {"attr", filter_attr},
                                            {"capitalize", filter_capitalize},
                                            {"center", filter_center},
                                            {"d", filter_default},
                                            {"default", filter_default},
                                            {"e", filter_escape},
                                            {"escape", filter_escape},
                                            {"filesizeformat", filter_filesizeformat},
                                            {"float", filter_float},
                                            {"forceescape", filter_forceescape},
                                            {"format", filter_format},
                                            {"from_json", tpl_filter_fromjson},
                                            {"fromjson", tpl_filter_fromjson},
                                            {"indent", filter_indent},
                                            {"int", filter_int},
                                            {"lower", filter_lower},
                                            {"replace", filter_replace},
                                            {"round", filter_round},
                                            {"safe", filter_safe},
                                            {"string", filter_string},
                                            {"striptags", filter_striptags},
                                            {"title", filter_title},
                                            {"tojson", tpl_filter_tojson},
                                            {"trim", filter_trim},
                                            {"truncate", filter_truncate},
                                            {"upper", filter_upper},
                                            {"urlencode", filter_urlencode},
                                            {"wordcount", filter_wordcount},
                                            {"wordwrap", filter_wordwrap},
                                            {"xmlattr", filter_xmlattr},
                                            {NULL, NULL}};
