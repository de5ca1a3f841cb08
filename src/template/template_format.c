/* template_format.c: "%d" % value and "{:d}".format(value), as in Python. Widths and precisions are
 * limited to MAX_WIDTH, far above any template's needs. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template_eval.h"

enum { MAX_WIDTH = 10000, NUMBER_ROOM = 400 + MAX_WIDTH };

typedef struct spec {
    tpl_value fill; /* one character; MISSING: a blank */
    char align;     /* < > ^ =; 0: the default of the type */
    char sign;      /* + - blank; 0: - */
    char grouping;  /* , _; 0: none */
    char type;      /* 0: not given */
    bool alternate, zero;
    int64_t width, precision; /* precision -1: none */
} spec;

/* Writes the digits of a number (without sign) with its sign and prefix, padded. */
static void put_number(tpl *t, tpl_buffer *b, const spec *f, bool negative, const char *prefix,
                       const char *digits) {
    char sign[4] = "";
    if (negative || f->sign == '+' || f->sign == ' ')
        snprintf(sign, sizeof sign, "%c", negative ? '-' : f->sign);
    tpl_buffer head = {0}, body = {0};
    tpl_put_text(t, &head, sign);
    tpl_put_text(t, &head, prefix);
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), every = 3;
    if (f->type && strchr("xXbo", f->type)) every = 4;
    if (f->type && strchr("xX", f->type) == NULL) whole = strspn(digits, "0123456789");
    if (!f->type) whole = strspn(digits, "0123456789");
    for (size_t i = 0; digits[i]; i++) {
        if (f->grouping && i && i < whole && (whole - i) % every == 0)
            tpl_put(t, &body, &f->grouping, 1);
        tpl_put(t, &body, digits + i, 1);
    }
    char align = f->align ? f->align : f->zero ? '=' : '>';
    if (align == '=') {
        int64_t have = (int64_t)(head.n + body.n);
        tpl_value fill = f->fill.kind != TPL_MISSING ? f->fill : tpl_text(t, f->zero ? "0" : " ");
        tpl_value pad = tpl_repeat(t, fill, f->width - have);
        tpl_put(t, b, head.data, head.n);
        tpl_put(t, b, pad.str->s, pad.str->n);
        tpl_put(t, b, body.data, body.n);
        return;
    }
    tpl_put(t, &head, body.data, body.n);
    tpl_value text = tpl_buffer_string(t, &head);
    tpl_side side = align == '<' ? SIDE_LEFT : align == '^' ? SIDE_BOTH : SIDE_RIGHT;
    text = tpl_pad(t, text, f->width, f->fill, side);
    tpl_put(t, b, text.str->s, text.str->n);
}

static void put_integer(tpl *t, tpl_buffer *b, const spec *f, int64_t i) {
    char digits[72], *p = digits + sizeof digits;
    char type = f->type ? f->type : 'd';
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    uint64_t base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *set = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char *prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "0b";
    *--p = 0;
    do *--p = set[u % base];
    while ((u /= base) != 0);
    if (f->precision > (int64_t)strlen(p)) { /* the precision of %.5d */
        tpl_buffer padded = {0};
        tpl_value zeros = tpl_repeat(t, tpl_text(t, "0"), f->precision - (int64_t)strlen(p));
        tpl_put(t, &padded, zeros.str->s, zeros.str->n);
        tpl_put(t, &padded, p, strlen(p) + 1);
        p = padded.data;
    }
    put_number(t, b, f, i < 0, f->alternate && base != 10 ? prefix : "", p);
}

static void put_real(tpl *t, tpl_buffer *b, const spec *f, double x) {
    char *text = tpl_alloc(t, NUMBER_ROOM), pattern[8];
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    double size = fabs(x);
    char type = f->type;
    if (isnan(x) || isinf(x)) {
        bool upper = type == 'F' || type == 'E' || type == 'G';
        snprintf(text, NUMBER_ROOM, "%s",
                 isnan(x) ? (upper ? "NAN" : "nan")
                 : upper  ? "INF"
                          : "inf");
    } else if (type == 0 && f->precision < 0) {
        tpl_format_float(size, text);
    } else {
        char kind = type == '%' ? 'f' : type ? type : 'g';
        if (type == '%') size *= 100;
        if (kind == 'n') kind = 'g';
        if ((kind == 'g' || kind == 'G') && precision == 0) precision = 1;
        snprintf(pattern, sizeof pattern, f->alternate ? "%%#.*%c" : "%%.*%c", kind);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        size_t n = (size_t)snprintf(text, NUMBER_ROOM, pattern, precision, size);
#pragma GCC diagnostic pop
        if (type == '%') snprintf(text + n, NUMBER_ROOM - n, "%%");
        if (type == 0 && !strpbrk(text, ".e")) snprintf(text + n, NUMBER_ROOM - n, ".0");
    }
    put_number(t, b, f, signbit(x) && !isnan(x), "", text);
}

static void put_text(tpl *t, tpl_buffer *b, const spec *f, tpl_value s) {
    if (f->precision >= 0 && (size_t)f->precision < tpl_chars(t, s))
        s = tpl_substring(t, s, 0, (size_t)f->precision);
    tpl_side side = f->align == '>' ? SIDE_RIGHT : f->align == '^' ? SIDE_BOTH : SIDE_LEFT;
    s = tpl_pad(t, s, f->width, f->fill, side);
    tpl_put(t, b, s.str->s, s.str->n);
}

static int64_t checked_width(tpl *t, int64_t n) {
    if (n > MAX_WIDTH) tpl_fail(t, PI_ERR_LIMIT, "a width is more than %d", MAX_WIDTH);
    return n;
}

/* Parses decimal digits at *at, before n. */
static int64_t digits_at(tpl *t, const char *s, size_t n, size_t *at) {
    int64_t value = 0;
    for (; *at < n && isdigit((unsigned char)s[*at]); ++*at)
        value = checked_width(t, value * 10 + (s[*at] - '0'));
    return value;
}

/* ---- percent --------------------------------------------------------------------------------- */

typedef struct percent {
    tpl *t;
    const char *s;
    size_t n, at;
    tpl_value values;
    size_t used; /* of a tuple's values */
    tpl_buffer out;
} percent;

static tpl_value next_value(percent *p) {
    if (p->values.kind == TPL_TUPLE && p->used < p->values.list->n)
        return p->values.list->items[p->used++];
    if (p->values.kind != TPL_TUPLE && p->used++ == 0) return p->values;
    tpl_type_error(p->t, "not enough arguments for format string");
}

static tpl_value keyed_value(percent *p) {
    size_t begin = ++p->at;
    for (int depth = 1; p->at < p->n; p->at++) {
        if (p->s[p->at] == '(') depth++;
        if (p->s[p->at] == ')' && --depth == 0) break;
    }
    if (p->at >= p->n) tpl_type_error(p->t, "incomplete format key");
    if (p->values.kind != TPL_DICT) tpl_type_error(p->t, "format requires a mapping");
    tpl_value key = tpl_string(p->t, p->s + begin, p->at++ - begin);
    tpl_entry *e = tpl_dict_find(p->t, p->values.dict, key);
    if (!e) tpl_type_error(p->t, "key error: %s", tpl_cstr(p->t, key));
    return e->value;
}

static int64_t percent_number(percent *p, spec *f, bool width) {
    if (p->at < p->n && p->s[p->at] == '*') {
        p->at++;
        int64_t n = tpl_int_arg(p->t, next_value(p), 0);
        if (width && n < 0) {
            f->align = '<';
            n = -n;
        }
        return checked_width(p->t, n < 0 ? 0 : n);
    }
    return digits_at(p->t, p->s, p->n, &p->at);
}

static void percent_value(percent *p, spec *f, tpl_value v) {
    double x;
    int64_t i;
    tpl_buffer text = {0};
    switch (f->type) {
    case 's':
        put_text(p->t, &p->out, f, tpl_str_of(p->t, v));
        return;
    case 'r':
    case 'a':
        tpl_put_repr(p->t, &text, v);
        put_text(p->t, &p->out, f, tpl_buffer_string(p->t, &text));
        return;
    case 'c':
        if (tpl_integer(v, &i)) {
            if (i < 0 || i > 0x10FFFF) tpl_type_error(p->t, "%%c arg not in range(0x110000)");
            tpl_put_char(p->t, &text, (uint32_t)i);
            v = tpl_buffer_string(p->t, &text);
        }
        if (!tpl_is_string(v) || tpl_chars(p->t, v) != 1)
            tpl_type_error(p->t, "%%c requires int or char");
        put_text(p->t, &p->out, f, v);
        return;
    default:
        break;
    }
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(p->t, v);
    if (!tpl_number(v, &x))
        tpl_type_error(p->t, "%%%c format: a real number is required, not %s", f->type,
                       tpl_type(v));
    if (strchr("eEfFgG", f->type)) {
        f->grouping = 0;
        put_real(p->t, &p->out, f, x);
        return;
    }
    if (!tpl_integer(v, &i)) {
        if (strchr("xXo", f->type))
            tpl_type_error(p->t, "%%%c format: an integer is required, not float", f->type);
        if (!(x >= -0x1p63 && x < 0x1p63))
            tpl_fail(p->t, PI_ERR_LIMIT, "an integer is beyond 64 bits");
        i = (int64_t)x;
    }
    put_integer(p->t, &p->out, f, i);
}

static void percent_spec(percent *p) {
    spec f = {.precision = -1};
    tpl_value v = {.kind = TPL_MISSING};
    if (p->at < p->n && p->s[p->at] == '(') v = keyed_value(p);
    for (; p->at < p->n && p->s[p->at] && strchr("#0- +", p->s[p->at]); p->at++) {
        char c = p->s[p->at];
        if (c == '#') f.alternate = true;
        if (c == '0') f.zero = true;
        if (c == '-') f.align = '<';
        if (c == '+' || (c == ' ' && f.sign != '+')) f.sign = c;
    }
    f.width = percent_number(p, &f, true);
    if (p->at < p->n && p->s[p->at] == '.') {
        p->at++;
        f.precision = percent_number(p, &f, false);
    }
    while (p->at < p->n && p->s[p->at] && strchr("hlL", p->s[p->at])) p->at++;
    if (p->at >= p->n) tpl_type_error(p->t, "incomplete format");
    f.type = p->s[p->at++];
    if (f.type == '%') {
        tpl_put_text(p->t, &p->out, "%");
        return;
    }
    if (f.type == 'i' || f.type == 'u') f.type = 'd';
    if (!f.type || !strchr("srcadoxXeEfFgG", f.type))
        tpl_type_error(p->t, "unsupported format character '%c'", f.type);
    if (strchr("srac", f.type) && f.align != '<') f.align = '>';
    if (v.kind == TPL_MISSING) v = next_value(p);
    percent_value(p, &f, v);
}

tpl_value tpl_format_percent(tpl *t, tpl_value format, tpl_value values) {
    percent p = {.t = t, .s = format.str->s, .n = format.str->n, .values = values};
    bool safe = format.str->safe;
    tpl_work(t, p.n);
    if (safe && tpl_is_string(values)) p.values = tpl_escape(t, values);
    while (p.at < p.n) {
        const char *mark = memchr(p.s + p.at, '%', p.n - p.at);
        size_t end = mark ? (size_t)(mark - p.s) : p.n;
        tpl_put(t, &p.out, p.s + p.at, end - p.at);
        p.at = end + 1;
        if (mark) percent_spec(&p);
    }
    /* Any value with items may be a mapping, so it may remain unused. */
    bool mapping = values.kind == TPL_DICT || values.kind == TPL_LIST || values.kind == TPL_RANGE ||
                   values.kind == TPL_UNDEFINED;
    if ((values.kind == TPL_TUPLE && p.used < values.list->n) ||
        (values.kind != TPL_TUPLE && !mapping && p.used == 0))
        tpl_type_error(t, "not all arguments converted during string formatting");
    return tpl_with_safety(t, tpl_buffer_string(t, &p.out), safe);
}

/* ---- braces ---------------------------------------------------------------------------------- */

typedef struct braces {
    tpl *t;
    const tpl_args *args;
    size_t next;
    bool automatic, numbered;
} braces;

static void put_format(braces *b, tpl_buffer *out, const char *s, size_t n, int depth);

static void parse_spec(tpl *t, const char *s, size_t n, spec *f) {
    size_t at = 0, first = 0;
    while (first < n && (first == 0 || ((unsigned char)s[first] & 0xC0) == 0x80)) first++;
    if (first < n && strchr("<>^=", s[first])) {
        f->fill = tpl_string(t, s, first);
        f->align = s[first];
        at = first + 1;
    } else if (n && strchr("<>^=", s[0])) {
        f->align = s[0];
        at = 1;
    }
    if (at < n && strchr("+- ", s[at])) f->sign = s[at++];
    if (at < n && s[at] == '#') {
        f->alternate = true;
        at++;
    }
    if (at < n && s[at] == '0') {
        f->zero = true;
        at++;
    }
    f->width = digits_at(t, s, n, &at);
    if (at < n && (s[at] == ',' || s[at] == '_')) f->grouping = s[at++];
    if (at < n && s[at] == '.') {
        size_t begin = ++at;
        f->precision = digits_at(t, s, n, &at);
        if (at == begin) tpl_type_error(t, "Format specifier missing precision");
    }
    if (at < n) f->type = s[at++];
    if (at < n) tpl_type_error(t, "Invalid format specifier '%.*s'", (int)(n < 80 ? n : 80), s);
}

static void put_formatted(tpl *t, tpl_buffer *out, tpl_value v, const char *s, size_t n) {
    spec f = {.precision = -1};
    int64_t i;
    double x;
    parse_spec(t, s, n, &f);
    if (n == 0) {
        tpl_put_str(t, out, v);
        return;
    }
    if (tpl_is_string(v) && (f.type == 0 || f.type == 's')) {
        if (f.zero && f.fill.kind == TPL_MISSING) f.fill = tpl_text(t, "0");
        put_text(t, out, &f, v);
    } else if (tpl_integer(v, &i) && f.type == 'c') {
        f.type = 0;
        tpl_buffer text = {0};
        tpl_put_char(t, &text, i < 0 || i > 0x10FFFF ? 0xFFFD : (uint32_t)i);
        put_text(t, out, &f, tpl_buffer_string(t, &text));
    } else if (tpl_integer(v, &i) && (f.type == 0 || strchr("dxXobn", f.type))) {
        if (f.precision >= 0)
            tpl_type_error(t, "Precision not allowed in integer format specifier");
        if (f.type == 'n') f.type = 'd';
        put_integer(t, out, &f, i);
    } else if (tpl_number(v, &x) && (f.type == 0 || strchr("eEfFgGn%", f.type))) {
        put_real(t, out, &f, x);
    } else if (tpl_is_string(v) || tpl_number(v, &x)) {
        tpl_type_error(t, "Unknown format code '%c' for object of type '%s'", f.type, tpl_type(v));
    } else {
        tpl_type_error(t, "unsupported format string passed to %s.__format__", tpl_type(v));
    }
}

static tpl_value field_root(braces *b, const char *s, size_t n) {
    bool number = n > 0;
    for (size_t i = 0; i < n; i++) number &= isdigit((unsigned char)s[i]) != 0;
    size_t index = b->next;
    if (n == 0) {
        b->automatic = true;
        b->next++;
    } else if (number) {
        size_t at = 0;
        b->numbered = true;
        index = (size_t)digits_at(b->t, s, n, &at);
    } else {
        tpl_value key = tpl_string(b->t, s, n);
        tpl_entry *e = b->args->named ? tpl_dict_find(b->t, b->args->named, key) : NULL;
        if (!e) tpl_type_error(b->t, "key error: %s", tpl_cstr(b->t, key));
        return e->value;
    }
    if (b->automatic && b->numbered)
        tpl_type_error(b->t, "cannot switch between manual field specification and automatic field "
                             "numbering");
    if (index >= b->args->n)
        tpl_type_error(b->t, "Replacement index %zu out of range for positional args tuple", index);
    return b->args->items[index];
}

static tpl_value field_value(braces *b, const char *s, size_t n) {
    size_t end = 0;
    while (end < n && s[end] != '.' && s[end] != '[') end++;
    tpl_value v = field_root(b, s, end);
    while (end < n) {
        size_t begin = end + 1;
        bool item = s[end] == '[';
        end = begin;
        while (end < n && (item ? s[end] != ']' : s[end] != '.' && s[end] != '[')) end++;
        if (end == begin || (item && end == n))
            tpl_type_error(b->t, "Empty attribute in format string");
        tpl_value part = tpl_string(b->t, s + begin, end - begin);
        size_t at = begin;
        int64_t number = digits_at(b->t, s, end, &at);
        if (item)
            v = tpl_get_item(b->t, v, at == end ? tpl_int(number) : part);
        else
            v = tpl_get_attribute(b->t, v, part);
        end += item;
    }
    return v;
}

/* "field!r:spec" between braces. */
static void put_field(braces *b, tpl_buffer *out, const char *s, size_t n, int depth) {
    size_t name = 0;
    tpl_buffer inner = {0}, text = {0};
    for (const char *close; name < n && s[name] != '!' && s[name] != ':';) {
        if (s[name] == '[') tpl_work(b->t, n - name);
        close = s[name] == '[' ? memchr(s + name, ']', n - name) : NULL;
        name = close ? (size_t)(close - s) : name + 1;
    }
    tpl_value v = field_value(b, s, name);
    size_t at = name;
    if (at < n && s[at] == '!') {
        char kind = at + 1 < n ? s[at + 1] : 0;
        at += 2;
        if (kind != 'r' && kind != 's' && kind != 'a')
            tpl_type_error(b->t, "unknown conversion in a format string");
        if (kind == 's')
            tpl_put_str(b->t, &text, v);
        else
            tpl_put_repr(b->t, &text, v);
        v = tpl_buffer_string(b->t, &text);
    }
    if (at < n && s[at] != ':') tpl_type_error(b->t, "expected ':' after conversion specifier");
    if (at < n) put_format(b, &inner, s + at + 1, n - at - 1, depth + 1);
    put_formatted(b->t, out, v, inner.data, inner.n);
}

static void put_format(braces *b, tpl_buffer *out, const char *s, size_t n, int depth) {
    if (depth > 2) tpl_type_error(b->t, "Max string recursion exceeded");
    tpl_work(b->t, n);
    for (size_t i = 0; i < n;) {
        size_t plain = i;
        while (i < n && s[i] != '{' && s[i] != '}') i++;
        tpl_put(b->t, out, s + plain, i - plain);
        if (i == n) break;
        if (i + 1 < n && s[i + 1] == s[i] && depth == 0) {
            tpl_put(b->t, out, s + i, 1);
            i += 2;
            continue;
        }
        if (s[i] == '}') tpl_type_error(b->t, "Single '}' encountered in format string");
        size_t begin = ++i;
        for (int open = 1; i < n; i++) {
            if (s[i] == '{') open++;
            if (s[i] == '}' && --open == 0) break;
        }
        if (i == n) tpl_type_error(b->t, "expected '}' before end of string");
        put_field(b, out, s + begin, i - begin, depth);
        i++;
    }
}

tpl_value tpl_format_braces(tpl *t, tpl_value format, const tpl_args *args) {
    braces b = {.t = t, .args = args};
    tpl_buffer out = {0};
    put_format(&b, &out, format.str->s, format.str->n, 0);
    return tpl_with_safety(t, tpl_buffer_string(t, &out), format.str->safe);
}
