/* template_string.c: string functions shared by filters and methods. Indexes and widths count code
 * points. A safe string gives a safe string, like the methods of Markup. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "os_text.h"
#include "template_eval.h"
#include "template_unicode.h"
#include "utf8.h"

enum { SHARP_S = 0xdf };

static bool in_set(tpl *t, tpl_value chars, int32_t c) {
    size_t step;
    if (chars.kind == TPL_MISSING) return c >= 0 && tpl_is_space((uint32_t)c);
    tpl_work(t, chars.str->n);
    for (size_t i = 0; i < chars.str->n; i += step)
        if (utf8_decode(chars.str->s + i, chars.str->n - i, &step) == c) return true;
    return false;
}

/* chars MISSING or None: strips white space. */
tpl_value tpl_strip(tpl *t, tpl_value v, tpl_value chars, tpl_side side) {
    const char *s = v.str->s;
    size_t from = 0, to = v.str->n, step;
    if (chars.kind == TPL_NONE) chars.kind = TPL_MISSING;
    if (chars.kind != TPL_MISSING) tpl_string_arg(t, chars, "strip arg");
    tpl_work(t, to);
    while ((side & SIDE_LEFT) && from < to) {
        if (!in_set(t, chars, utf8_decode(s + from, to - from, &step))) break;
        from += step;
    }
    while ((side & SIDE_RIGHT) && from < to) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s[at] & 0xC0) == 0x80) at--;
        if (!in_set(t, chars, utf8_decode(s + at, to - at, &step))) break;
        to = at;
    }
    if (from == 0 && to == v.str->n) return v;
    tpl_value out = tpl_string(t, s + from, to - from);
    out.str->safe = v.str->safe;
    return out;
}

/* count < 0: all. */
tpl_value tpl_replace(tpl *t, tpl_value v, tpl_value from, tpl_value to, int64_t count) {
    const char *s = v.str->s, *end = s + v.str->n, *found;
    tpl_buffer b = {0};
    size_t step;
    tpl_work(t, v.str->n);
    if (from.str->n == 0) { /* insert between all characters and at both ends */
        while (count != 0) {
            tpl_put(t, &b, to.str->s, to.str->n);
            tpl_step(t);
            if (count > 0) count--;
            if (s == end) break;
            utf8_decode(s, (size_t)(end - s), &step);
            tpl_put(t, &b, s, step);
            s += step;
        }
    } else {
        while (count != 0 && (found = os_find(s, (size_t)(end - s), from.str->s, from.str->n))) {
            tpl_put(t, &b, s, (size_t)(found - s));
            tpl_put(t, &b, to.str->s, to.str->n);
            tpl_step(t);
            s = found + from.str->n;
            if (count > 0) count--;
        }
        if (s == v.str->s) return v;
    }
    tpl_put(t, &b, s, (size_t)(end - s));
    return tpl_with_safety(t, tpl_buffer_string(t, &b), v.str->safe);
}

static void put_upper(tpl *t, tpl_buffer *b, uint32_t c, bool title) {
    if (c == SHARP_S)
        tpl_put_text(t, b, title ? "Ss" : "SS");
    else
        tpl_put_char(t, b, title ? tpl_to_title(c) : tpl_to_upper(c));
}

tpl_value tpl_change_case(tpl *t, tpl_value v, tpl_case kind) {
    tpl_buffer b = {0};
    bool inside = false; /* in a word (title), or after the first character */
    size_t step;
    tpl_work(t, v.str->n);
    for (size_t i = 0; i < v.str->n; i += step) {
        int32_t code = utf8_decode(v.str->s + i, v.str->n - i, &step);
        uint32_t c = code < 0 ? UTF8_REPLACEMENT : (uint32_t)code;
        bool upper = kind == CASE_UPPER || (kind != CASE_LOWER && !inside);
        if (upper)
            put_upper(t, &b, c, kind != CASE_UPPER);
        else
            tpl_put_char(t, &b, tpl_to_lower(c));
        inside = kind == CASE_CAPITALIZE || tpl_is_upper(c) || tpl_is_lower(c) || tpl_is_title(c);
    }
    return tpl_with_safety(t, tpl_buffer_string(t, &b), v.str->safe);
}

tpl_list *tpl_split_lines(tpl *t, tpl_value v, bool keep_ends) {
    tpl_list *lines = tpl_list_new(t, 0);
    const char *s = v.str->s;
    size_t n = v.str->n, begin = 0, step;
    tpl_work(t, n);
    for (size_t i = 0; i < n; i += step) {
        int32_t c = utf8_decode(s + i, n - i, &step);
        if (c < 0 || !tpl_is_line_end((uint32_t)c)) continue;
        if (c == '\r' && i + 1 < n && s[i + 1] == '\n') step = 2;
        tpl_value line = tpl_string(t, s + begin, (keep_ends ? i + step : i) - begin);
        line.str->safe = v.str->safe;
        tpl_list_add(t, lines, line);
        begin = i + step;
    }
    if (begin < n) {
        tpl_value line = tpl_string(t, s + begin, n - begin);
        line.str->safe = v.str->safe;
        tpl_list_add(t, lines, line);
    }
    return lines;
}

tpl_value tpl_repeat(tpl *t, tpl_value v, int64_t times) {
    size_t n;
    if (times <= 0 || v.str->n == 0) return tpl_with_safety(t, tpl_text(t, ""), v.str->safe);
    if (!size_mul(v.str->n, (size_t)times, &n)) n = SIZE_MAX;
    char *s = tpl_alloc(t, n);
    tpl_work(t, n);
    memcpy(s, v.str->s, v.str->n);
    for (size_t done = v.str->n; done < n;) { /* doubles each time */
        size_t more = done < n - done ? done : n - done;
        memcpy(s + done, s, more);
        done += more;
    }
    tpl_value out = tpl_string(t, s, n);
    out.str->safe = v.str->safe;
    return out;
}

/* `side` is the position of the string: LEFT means ljust. */
tpl_value tpl_pad(tpl *t, tpl_value v, int64_t width, tpl_value fill, tpl_side side) {
    int64_t n = (int64_t)tpl_chars(t, v);
    tpl_buffer b = {0};
    if (fill.kind == TPL_MISSING) fill = tpl_text(t, " ");
    tpl_string_arg(t, fill, "the fill character");
    if (tpl_chars(t, fill) != 1)
        tpl_type_error(t, "The fill character must be exactly one character long");
    if (width <= n) return v;
    int64_t pad = width - n, left = side == SIDE_RIGHT ? pad : 0;
    if (side == SIDE_BOTH) left = pad / 2 + (pad & width & 1); /* rounds like CPython */
    tpl_value before = tpl_repeat(t, fill, left), after = tpl_repeat(t, fill, pad - left);
    tpl_put(t, &b, before.str->s, before.str->n);
    tpl_put(t, &b, v.str->s, v.str->n);
    tpl_put(t, &b, after.str->s, after.str->n);
    return tpl_with_safety(t, tpl_buffer_string(t, &b), v.str->safe);
}

/* str(separator).join(str(item) ...) */
tpl_value tpl_join(tpl *t, tpl_value separator, const tpl_list *items) {
    tpl_buffer b = {0};
    tpl_work(t, items->n * sizeof *items->items);
    for (size_t i = 0; i < items->n; i++) {
        if (i) tpl_put_str(t, &b, separator);
        tpl_put_str(t, &b, items->items[i]);
    }
    return tpl_buffer_string(t, &b);
}

bool tpl_all_cased(tpl *t, tpl_value v, bool upper) {
    bool cased = false;
    size_t step;
    tpl_work(t, v.str->n);
    for (size_t i = 0; i < v.str->n; i += step) {
        int32_t code = utf8_decode(v.str->s + i, v.str->n - i, &step);
        if (code < 0) continue;
        uint32_t c = (uint32_t)code;
        if (tpl_is_title(c) || (upper ? tpl_is_lower(c) : tpl_is_upper(c))) return false;
        cased |= upper ? tpl_is_upper(c) : tpl_is_lower(c);
    }
    return cased;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The text without surrounding blanks and underscores between digits; NULL: not a number. */
static char *number_text(tpl *t, tpl_value v) {
    tpl_value s = tpl_strip(t, v, (tpl_value){.kind = TPL_MISSING}, SIDE_BOTH);
    char *text = tpl_alloc(t, s.str->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.str->n; i++) {
        char c = s.str->s[i];
        bool between = i > 0 && i + 1 < s.str->n && s.str->s[i - 1] != '_';
        if (c == 0 || (c == '_' && !between)) return NULL;
        if (c != '_') text[n++] = c;
    }
    return n ? text : NULL;
}

bool tpl_parse_int(tpl *t, tpl_value v, int64_t base, int64_t *out) {
    char *text = number_text(t, v), *end;
    if (!text || (base != 0 && (base < 2 || base > 36))) return false;
    bool negative = *text == '-';
    const char *digits = text + (*text == '-' || *text == '+');
    if (digits[0] == '0' && digits[1]) {
        int64_t named = strchr("xX", digits[1])   ? 16
                        : strchr("oO", digits[1]) ? 8
                        : strchr("bB", digits[1]) ? 2
                                                  : 0;
        if (named && (base == 0 || base == named)) {
            base = named;
            digits += 2;
        }
    }
    if (base == 0) base = 10;
    char first = *digits | 0x20;
    if (!((first >= '0' && first <= '9') || (first >= 'a' && first <= 'z'))) return false;
    if (base == 16 && digits[0] == '0' && first && strchr("xX", digits[1]) && digits[1])
        return false; /* strtoull would accept a second 0x */
    errno = 0;
    unsigned long long u = strtoull(digits, &end, (int)base);
    if (*end || end == digits) return false;
    if (errno || u > (unsigned long long)INT64_MAX + negative)
        tpl_fail(t, PI_ERR_LIMIT, "an integer is beyond 64 bits");
    *out = negative ? (int64_t)(0 - u) : (int64_t)u;
    return true;
}

bool tpl_parse_float(tpl *t, tpl_value v, double *out) {
    char *text = number_text(t, v), *end;
    if (!text) return false;
    for (const char *p = text; *p; p++)
        if (strchr("xXpP()", *p)) return false; /* accepted by strtod but not by Python */
    *out = strtod(text, &end);
    return end != text && !*end;
}
