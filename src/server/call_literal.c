/* call_literal.c: reads Python literals, and literals whose strings stand between marks. */
#include "call_literal.h"

#include <stdlib.h>
#include <string.h>

#include "os_text.h"
#include "utf8.h"

enum { IN_MARKS = 1 /* value of call_scan.quote within a string between marks */ };

static bool has_marks(const call_literal *l) {
    return l && *l->quote;
}

/* Whether s[n] begins with the mark; *part: s[n] is only a prefix of the mark. */
static bool begins_with(const char *mark, const char *s, size_t n, bool *part) {
    size_t m = strlen(mark);
    *part = n < m && memcmp(s, mark, n) == 0;
    return n >= m && memcmp(s, mark, m) == 0;
}

/* Moves c behind the string that it is in. False: the string does not end in s[n]. */
static bool scan_string(call_scan *c, const call_literal *l, const char *s, size_t n) {
    if (c->quote == IN_MARKS) {
        size_t m = strlen(l->quote);
        const char *end = n > c->at ? os_find(s + c->at, n - c->at, l->quote, m) : NULL;
        if (!end && n - c->at >= m) c->at = n - m + 1;
        if (!end) return false;
        c->at = (size_t)(end - s) + m;
    } else {
        for (; c->at < n && s[c->at] != c->quote; c->at++)
            if (s[c->at] == '\\' && c->at + 1 == n)
                return false;
            else if (s[c->at] == '\\')
                c->at++;
        if (c->at == n) return false;
        c->at++;
    }
    c->quote = 0;
    return true;
}

size_t call_scan_extent(call_scan *c, const call_literal *l, const char *s, size_t n) {
    while (c->at < n && !c->extent) {
        bool part = false;
        char one = s[c->at];
        if (c->quote) {
            if (!scan_string(c, l, s, n)) return 0;
            continue;
        }
        if (c->depth == 0 && one != '{' && one != '[' && (!l || one != '(')) return 0;
        if (has_marks(l) && begins_with(l->quote, s + c->at, n - c->at, &part)) {
            c->quote = IN_MARKS;
            c->at += strlen(l->quote);
            continue;
        }
        if (part) return 0;
        c->at++;
        if (!has_marks(l) && (one == '"' || (l && one == '\''))) c->quote = one;
        if (one == '{' || one == '[' || (l && one == '(')) c->depth++;
        if ((one == '}' || one == ']' || (l && one == ')')) && --c->depth == 0) c->extent = c->at;
    }
    return c->extent;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void skip_spaces(literal_text *t) {
    while (t->at < t->n && bytes_is_space(t->s[t->at])) t->at++;
}

bool call_literal_take(literal_text *t, char c) {
    skip_spaces(t);
    if (t->at == t->n || t->s[t->at] != c) return false;
    t->at++;
    return true;
}

/* Takes a string; *s is its content. *escapes: the content has backslash escapes. */
static bool take_string(const call_literal *l, literal_text *t, const char **s, size_t *n,
                        bool *escapes) {
    bool part;
    skip_spaces(t);
    const char *at = t->s + t->at;
    size_t rest = t->n - t->at;
    call_scan c = {.at = 0};
    size_t n_quote = 1;
    if (has_marks(l) && begins_with(l->quote, at, rest, &part)) {
        n_quote = strlen(l->quote);
        c.quote = IN_MARKS;
    } else if (rest && (*at == '"' || *at == '\'')) {
        c.quote = *at;
    } else {
        return false;
    }
    *escapes = c.quote != IN_MARKS;
    c.at = n_quote;
    if (!scan_string(&c, l, at, rest)) return false;
    *s = at + n_quote;
    *n = c.at - 2 * n_quote;
    t->at += c.at;
    return true;
}

/* Length of a word without quotes, which ends at a comma, a bracket or `also`. */
static size_t word_extent(const literal_text *t, char also) {
    size_t n = 0, rest = t->n - t->at;
    const char *s = t->s + t->at;
    while (n < rest && s[n] != ',' && s[n] != also && !strchr("()[]{}\"'", s[n])) n++;
    while (n > 0 && bytes_is_space(s[n - 1])) n--;
    return n;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A hexadecimal number of n digits; -1: the text is shorter, or not such a number. */
static long hex(const char *s, size_t n, size_t rest) {
    char digits[9] = "";
    if (rest < n) return -1;
    memcpy(digits, s, n);
    return strspn(digits, "0123456789abcdefABCDEF") == n ? strtol(digits, NULL, 16) : -1;
}

/* Appends the character of the escape sequence that follows a backslash at s[n]. Returns the length
 * of the sequence; 0: not an escape sequence, so the backslash is literal. */
static size_t put_escape(const char *s, size_t n, bytes *out, bool *failed) {
    static const char from[] = "ntrbfav\\'\"/", to[] = "\n\t\r\b\f\a\v\\'\"/";
    const char *known = n && *s ? strchr(from, *s) : NULL;
    char text[UTF8_MAX_BYTES];
    if (known) {
        if (!bytes_append(out, &to[known - from], 1)) *failed = true;
        return 1;
    }
    if (n && *s == '\n') return 1; /* line continuation */
    size_t digits = !n ? 0 : *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    long code = digits ? hex(s + 1, digits, n - 1) : -1;
    if (code < 0) return 0;
    size_t used = 1 + digits;
    if (code >= 0xd800 && code < 0xdc00 && n > used + 1 && s[used] == '\\' && s[used + 1] == 'u') {
        long low = hex(s + used + 2, 4, n - used - 2);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            used += 6;
        }
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
    if (!bytes_append(out, text, utf8_encode((uint32_t)code, text))) *failed = true;
    return used;
}

/* Appends the value of a string. False: out of memory. */
static bool put_text(const char *s, size_t n, bool escapes, bytes *out) {
    bool failed = false;
    while (n > 0 && !failed) {
        const char *mark = escapes ? memchr(s, '\\', n) : NULL;
        size_t plain = mark ? (size_t)(mark - s) : n, used = plain + (mark != NULL);
        if (!bytes_append(out, s, plain)) failed = true;
        if (mark) {
            size_t length = put_escape(mark + 1, n - plain - 1, out, &failed);
            if (length == 0 && !bytes_append(out, mark, 1)) failed = true;
            used += length;
        }
        s += used;
        n -= used;
    }
    return !failed;
}

bool call_literal_key(const call_literal *l, literal_text *t, bytes *key) {
    const char *s = NULL;
    size_t n = 0;
    bool escapes = false;
    if (!take_string(l, t, &s, &n, &escapes)) {
        s = t->s + t->at;
        n = word_extent(t, l->equals);
        t->at += n;
        if (n == 0) return false;
    }
    return put_text(s, n, escapes, key) && call_literal_take(t, l->equals);
}

/* Writes a constant of Python or JSON, or a number; other words become strings. */
static void put_word(json_writer *w, const char *key, const char *s, size_t n, unsigned allowed) {
    static const char *const names[] = {"True", "true", "False", "false", "None", "null"};
    size_t i = 0;
    while (i < 6 && (strlen(names[i]) != n || memcmp(names[i], s, n) != 0)) i++;
    char number[64], *end = number;
    double value = 0;
    int64_t whole = 0;
    bool digits = n < sizeof number;
    for (size_t k = 0; k < n && digits; k++) digits = s[k] && strchr("+-.eE0123456789", s[k]);
    if (digits) {
        memcpy(number, s, n);
        number[n] = 0;
        value = strtod(number, &end);
        digits = end == number + n && value - value == 0;
    }
    if (allowed == 1U << JSON_STRING || (i == 6 && !digits)) {
        json_put_string(w, key, s, n);
    } else if (i < 4) {
        json_put_bool(w, key, i < 2);
    } else if (i < 6) {
        json_put_text(w, key, NULL);
    } else {
        whole = strtoll(number, &end, 10);
        bool fits = *end == 0 && whole > INT64_MIN && whole < INT64_MAX;
        if (fits)
            json_put_int(w, key, whole);
        else
            json_put_number(w, key, value);
    }
}

static bool take_value(const call_literal *l, literal_text *t, json_writer *w, const char *key,
                       unsigned allowed, int depth);

/* Takes the items of an array, or of an object, after the opening bracket. */
static bool take_items(const call_literal *l, literal_text *t, json_writer *w, bool object,
                       char close, int depth) {
    const call_literal nested = {.equals = ':', .quote = l->quote};
    for (bool first = true; !call_literal_take(t, close); first = false) {
        bytes key = {0};
        if (!first && !call_literal_take(t, ',')) return false;
        if (!first && call_literal_take(t, close)) return true; /* a comma after the last item */
        bool good = !object || (call_literal_key(&nested, t, &key) && bytes_append(&key, "", 1) &&
                                strlen(key.data) + 1 == key.used);
        if (good) good = take_value(l, t, w, key.data, ~0U, depth + 1);
        bytes_free(&key);
        if (!good) return false;
    }
    return true;
}

static bool take_value(const call_literal *l, literal_text *t, json_writer *w, const char *key,
                       unsigned allowed, int depth) {
    const char *s = NULL;
    size_t n = 0, begin = t->at;
    bool escapes = false;
    if (depth > JSON_MAX_DEPTH) return false;
    if (take_string(l, t, &s, &n, &escapes)) {
        bytes string = {0};
        bool good = !w || put_text(s, n, escapes, &string);
        if (w) json_put_string(w, key, string.used ? string.data : "", string.used);
        bytes_free(&string);
        return good;
    }
    char close = call_literal_take(t, '[')   ? ']'
                 : call_literal_take(t, '(') ? ')'
                 : call_literal_take(t, '{') ? '}'
                                             : 0;
    if (!close) {
        n = word_extent(t, 0);
        if (n == 0) return false;
        if (w) put_word(w, key, t->s + t->at, n, allowed);
        t->at += n;
        return true;
    }
    bool text = allowed == 1U << JSON_STRING && depth == 0; /* the text is kept as written */
    if (w && !text && close == '}') json_put_object(w, key);
    if (w && !text && close != '}') json_put_array(w, key);
    if (!take_items(l, t, text ? NULL : w, close == '}', close, depth)) return false;
    while (begin < t->at && bytes_is_space(t->s[begin])) begin++;
    if (w && text) json_put_string(w, key, t->s + begin, t->at - begin);
    if (w && !text && close == '}') json_end_object(w);
    if (w && !text && close != '}') json_end_array(w);
    return true;
}

bool call_literal_value(const call_literal *l, literal_text *t, json_writer *w, const char *key,
                        unsigned allowed) {
    return take_value(l, t, w, key, allowed, 0);
}
