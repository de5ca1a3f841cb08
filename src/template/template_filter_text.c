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

static bool given(tpl_value v) {
    return v.kind != TPL_MISSING && v.kind != TPL_NONE;
}

/* ---- case and blanks ------------------------------------------------------------------------- */

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

FILTER(format) {
    tpl_list list = {.items = args->items, .n = args->n};
    tpl_value values = tpl_of_list(TPL_TUPLE, &list);
    if (args->n && args->named)
        tpl_type_error(t, "can't handle positional and keyword arguments at the same time");
    if (args->named) values = tpl_of_dict(args->named);
    return tpl_format_percent(t, tpl_soft_str(t, v), values);
}

/* ---- shortening and counting ----------------------------------------------------------------- */

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
                                            {"d", filter_default},
                                            {"default", filter_default},
                                            {"e", filter_escape},
                                            {"escape", filter_escape},
                                            {"float", filter_float},
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
                                            {"title", filter_title},
                                            {"tojson", tpl_filter_tojson},
                                            {"trim", filter_trim},
                                            {"truncate", filter_truncate},
                                            {"upper", filter_upper},
                                            {"wordcount", filter_wordcount},
                                            {NULL, NULL}};
