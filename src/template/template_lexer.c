/* template_lexer.c: the rules of Jinja's lexer, written as a scanner. Line ends are converted to \n
 * first, and one newline at the very end of the source is dropped. */
#include "template_lexer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "hex_digit.h"
#include "template_unicode.h"
#include "utf8.h"

enum { MAX_BRACKETS = 512, NUMBER_ROOM = 128 };

typedef struct lexer {
    tpl *t;
    const char *s;
    size_t n, at;
    bool line_starting;          /* the last text or tag ended with a newline */
    char brackets[MAX_BRACKETS]; /* the closing brackets expected */
    int n_brackets;
    tpl_tokens *out;
} lexer;

static tpl_token *add(lexer *x, tpl_token_type type) {
    tpl_tokens *o = x->out;
    if (o->n == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 64;
        tpl_token *items = tpl_alloc_array(x->t, capacity, sizeof *items);
        if (o->n) memcpy(items, o->items, o->n * sizeof *items);
        o->items = items;
        o->capacity = capacity;
    }
    tpl_token *token = &o->items[o->n++];
    *token = (tpl_token){.type = type, .line = x->t->line};
    return token;
}

static bool looking_at(const lexer *x, size_t at, const char *word) {
    size_t n = strlen(word);
    return at <= x->n && x->n - at >= n && memcmp(x->s + at, word, n) == 0;
}

/* Advances and counts lines. */
static void advance(lexer *x, size_t to) {
    for (; x->at < to; x->at++) x->t->line += x->s[x->at] == '\n';
    x->line_starting = to > 0 && x->s[to - 1] == '\n';
}

static size_t skip_space(const lexer *x, size_t at) {
    size_t step;
    while (at < x->n) {
        int32_t c = utf8_decode(x->s + at, x->n - at, &step);
        if (c < 0 || !tpl_is_space((uint32_t)c)) break;
        at += step;
    }
    return at;
}

/* Start of the blanks at the end of s[from, to). */
static size_t rstrip(const lexer *x, size_t from, size_t to) {
    while (to > from) {
        size_t at = to - 1, step;
        while (at > from && ((unsigned char)x->s[at] & 0xC0) == 0x80) at--;
        int32_t c = utf8_decode(x->s + at, to - at, &step);
        if (c < 0 || !tpl_is_space((uint32_t)c)) break;
        to = at;
    }
    return to;
}

/* Adds the text before a tag; `sign` follows the opening of the tag, `tag` is false for {{. */
static void add_data(lexer *x, size_t from, size_t to, char sign, bool tag) {
    if (sign == '-') {
        to = rstrip(x, from, to);
    } else if (sign != '+' && tag) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n') line--;
        if ((line > from || x->line_starting) && rstrip(x, line, to) == line) to = line;
    }
    if (to == from) return;
    tpl_token *token = add(x, TOKEN_DATA);
    token->s = x->s + from;
    token->n = to - from;
}

/* End of a closing delimiter at `at` (two bytes, with optional - or + before them), including the
 * blanks it removes. 0: no closing delimiter. */
static size_t closing(const lexer *x, size_t at, const char *delimiter, bool plus, bool trim) {
    if (at < x->n && x->s[at] == '-' && looking_at(x, at + 1, delimiter))
        return skip_space(x, at + 3);
    if (plus && at < x->n && x->s[at] == '+' && looking_at(x, at + 1, delimiter)) return at + 3;
    if (!looking_at(x, at, delimiter)) return 0;
    at += 2;
    return trim && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

/* Matches {% word %} at `at`, which is at "{%"; returns its end, or 0 for any other tag. */
static size_t word_tag(const lexer *x, size_t at, const char *word, bool plus, bool trim) {
    at += 2;
    if (at < x->n && (x->s[at] == '-' || x->s[at] == '+')) at++;
    at = skip_space(x, at);
    if (!looking_at(x, at, word)) return 0;
    return closing(x, skip_space(x, at + strlen(word)), "%}", plus, trim);
}

static char sign_at(const lexer *x, size_t at) {
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

static void comment(lexer *x, size_t at) {
    for (; at < x->n; at++) {
        size_t end = closing(x, at, "#}", true, true);
        if (end) {
            advance(x, end);
            return;
        }
    }
    tpl_type_error(x->t, "Missing end of comment tag");
}

static void raw(lexer *x, size_t begin) {
    advance(x, begin);
    for (size_t at = begin; at < x->n; at++) {
        size_t end = looking_at(x, at, "{%") ? word_tag(x, at, "endraw", true, true) : 0;
        if (end) {
            add_data(x, begin, at, sign_at(x, at + 2), true);
            advance(x, end);
            return;
        }
    }
    tpl_type_error(x->t, "Missing end of raw directive");
}

/* ---- inside tags ----------------------------------------------------------------------------- */

static bool is_digit(char c, int base) {
    const int value = hex_digit(c);
    return value >= 0 && value < base;
}

/* Scans digits of a base with single underscores between them; returns their end. */
static size_t digits(const lexer *x, size_t at, int base) {
    if (at >= x->n || !is_digit(x->s[at], base)) return at;
    for (;;) {
        while (at < x->n && is_digit(x->s[at], base)) at++;
        if (at + 1 < x->n && x->s[at] == '_' && is_digit(x->s[at + 1], base))
            at++;
        else
            return at;
    }
}

static void integer(lexer *x, size_t from, size_t to, int base) {
    int64_t value = 0;
    for (size_t i = from; i < to; i++) {
        if (x->s[i] == '_') continue;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)hex_digit(x->s[i]), &value))
            tpl_type_error(x->t, "an integer is beyond 64 bits");
    }
    add(x, TOKEN_INTEGER)->integer = value;
    advance(x, to);
}

static void number(lexer *x) {
    size_t at = x->at, end = digits(x, at, 10), exponent;
    bool after_dot = at > 0 && x->s[at - 1] == '.', is_float = false;
    char text[NUMBER_ROOM];
    int base = 10;
    if (x->s[at] == '0' && at + 1 < x->n) {
        char c = x->s[at + 1] | 0x20;
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (base != 10) {
            size_t from = at + 2 + (at + 2 < x->n && x->s[at + 2] == '_');
            size_t to = digits(x, from, base);
            if (to > from) {
                integer(x, from, to, base);
                return;
            }
        }
    }
    if (!after_dot) {
        if (end + 1 < x->n && x->s[end] == '.' && digits(x, end + 1, 10) > end + 1) {
            end = digits(x, end + 1, 10);
            is_float = true;
        }
        if (end < x->n && (x->s[end] | 0x20) == 'e') {
            exponent = end + 1;
            if (exponent < x->n && (x->s[exponent] == '+' || x->s[exponent] == '-')) exponent++;
            if (digits(x, exponent, 10) > exponent) {
                end = digits(x, exponent, 10);
                is_float = true;
            }
        }
    }
    if (!is_float) {
        integer(x, at, end, 10);
        return;
    }
    size_t n = 0;
    for (size_t i = at; i < end && n + 1 < sizeof text; i++)
        if (x->s[i] != '_') text[n++] = x->s[i];
    text[n] = 0;
    add(x, TOKEN_FLOAT)->real = strtod(text, NULL);
    advance(x, end);
}

/* Decodes \xHH, \uHHHH, \UHHHHHHHH; returns the end. */
static size_t hex_escape(lexer *x, size_t at, size_t end, tpl_buffer *b) {
    const int n = x->s[at] == 'x' ? 2 : x->s[at] == 'u' ? 4 : 8;
    const int64_t c = hex_number(x->s + at + 1, x->s + end, n);
    if (c < 0) tpl_type_error(x->t, "a string has a truncated \\x, \\u or \\U escape");
    tpl_put_char(x->t, b, (uint32_t)c);
    return at + 1 + (size_t)n;
}

static size_t escape(lexer *x, size_t at, size_t end, tpl_buffer *b) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = x->s[at];
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        tpl_put(x->t, b, &to[found - from], 1);
        return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x' || c == 'u' || c == 'U') return hex_escape(x, at, end, b);
    if (c >= '0' && c <= '7') {
        uint32_t value = 0;
        size_t n = 0;
        for (; n < 3 && at < end && x->s[at] >= '0' && x->s[at] <= '7'; n++, at++)
            value = value * 8 + (uint32_t)(x->s[at] - '0');
        tpl_put_char(x->t, b, value);
        return at;
    }
    if (c == 'N') tpl_fail(x->t, PI_ERR_UNSUPPORTED, "characters by name (\\N) are not supported");
    tpl_put(x->t, b, "\\", 1);
    return at;
}

static void string(lexer *x) {
    char quote = x->s[x->at];
    size_t from = x->at + 1, end = from;
    bool escapes = false;
    while (end < x->n && x->s[end] != quote) {
        if (x->s[end] == '\\') {
            escapes = true;
            end++;
        }
        end++;
    }
    if (end >= x->n) tpl_type_error(x->t, "unexpected char %s", quote == '"' ? "'\"'" : "\"'\"");
    tpl_token *token = add(x, TOKEN_STRING);
    token->s = x->s + from;
    token->n = end - from;
    if (escapes) {
        tpl_buffer b = {0};
        for (size_t at = from; at < end;) {
            if (x->s[at] == '\\')
                at = escape(x, at + 1, end, &b);
            else
                tpl_put(x->t, &b, x->s + at++, 1);
        }
        token->s = b.n ? b.data : "";
        token->n = b.n;
    }
    advance(x, end + 1);
}

static void bracket(lexer *x, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_brackets == MAX_BRACKETS)
            tpl_fail(x->t, PI_ERR_LIMIT, "more than %d brackets are open", MAX_BRACKETS);
        x->brackets[x->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (x->n_brackets == 0) tpl_type_error(x->t, "unexpected '%c'", c);
        char expected = x->brackets[--x->n_brackets];
        if (c != expected) tpl_type_error(x->t, "unexpected '%c', expected '%c'", c, expected);
    }
}

static void operator_token(lexer *x) {
    static const struct {
        const char *text;
        int op;
    } doubles[] = {{"//", OP_FLOORDIV}, {"**", OP_POW}, {"==", OP_EQ},
                   {"!=", OP_NE},       {">=", OP_GE},  {"<=", OP_LE}};
    char c = x->s[x->at];
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        if (!looking_at(x, x->at, doubles[i].text)) continue;
        add(x, TOKEN_OPERATOR)->op = doubles[i].op;
        advance(x, x->at + 2);
        return;
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        tpl_type_error(
            x->t, "unexpected char %s",
            tpl_cstr(x->t,
                     tpl_substring(x->t, tpl_string(x->t, x->s + x->at, x->n - x->at), 0, 1)));
    }
    bracket(x, c);
    add(x, TOKEN_OPERATOR)->op = c;
    advance(x, x->at + 1);
}

static size_t name_end(const lexer *x, size_t at) {
    size_t step;
    while (at < x->n) {
        int32_t c = utf8_decode(x->s + at, x->n - at, &step);
        if (c < 0 || !tpl_is_word((uint32_t)c)) break;
        at += step;
    }
    return at;
}

/* Tokenizes the content between an opening and a closing delimiter. */
static void tag(lexer *x, bool block) {
    x->n_brackets = 0;
    int line = x->t->line;
    for (;;) {
        size_t next = skip_space(x, x->at), end;
        if (next > x->at) {
            advance(x, next);
            continue;
        }
        if (x->at >= x->n) {
            x->t->line = line;
            tpl_type_error(x->t, "unexpected end of template, expected '%s'", block ? "%}" : "}}");
        }
        end = x->n_brackets ? 0 : closing(x, x->at, block ? "%}" : "}}", block, block);
        if (end) {
            add(x, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
            advance(x, end);
            return;
        }
        char c = x->s[x->at];
        if (c >= '0' && c <= '9') {
            number(x);
        } else if (c == '"' || c == '\'') {
            string(x);
        } else if ((end = name_end(x, x->at)) > x->at) {
            tpl_token *token = add(x, TOKEN_NAME);
            token->s = x->s + x->at;
            token->n = end - x->at;
            advance(x, end);
        } else {
            operator_token(x);
        }
    }
}

/* Tokenizes the tag that starts at `at` and the text before it. */
static void text_and_tag(lexer *x, size_t at) {
    char kind = x->s[at + 1], sign = sign_at(x, at + 2);
    size_t after_raw = kind == '%' ? word_tag(x, at, "raw", false, false) : 0;
    add_data(x, x->at, at, sign, kind != '{');
    advance(x, at);
    if (after_raw) {
        raw(x, after_raw);
    } else if (kind == '#') {
        comment(x, at + 2 + (sign != 0));
    } else {
        add(x, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN);
        advance(x, at + 2 + (sign != 0));
        tag(x, kind == '%');
    }
}

/* Converts \r\n and \r to \n; drops one newline at the end. */
static const char *normalize(tpl *t, const char *source, size_t *n) {
    char *s = tpl_alloc(t, *n + 1);
    size_t m = 0;
    for (size_t i = 0; i < *n; i++) {
        if (source[i] == '\r') {
            s[m++] = '\n';
            if (i + 1 < *n && source[i + 1] == '\n') i++;
        } else {
            s[m++] = source[i];
        }
    }
    *n = m && s[m - 1] == '\n' ? m - 1 : m;
    return s;
}

void tpl_tokenize(tpl *t, const char *source, size_t n, tpl_tokens *out) {
    lexer x = {.t = t, .line_starting = true, .out = out};
    x.s = normalize(t, source, &n);
    x.n = n;
    t->line = 1;
    while (x.at < n) {
        size_t at = x.at;
        while (at + 1 < n && !(x.s[at] == '{' &&
                               (x.s[at + 1] == '{' || x.s[at + 1] == '%' || x.s[at + 1] == '#')))
            at++;
        if (at + 1 >= n) {
            add_data(&x, x.at, n, '+', false);
            advance(&x, n);
        } else {
            text_and_tag(&x, at);
        }
    }
    add(&x, TOKEN_END);
}
