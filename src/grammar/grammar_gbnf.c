/* grammar_gbnf.c: the GBNF parser.
 *
 *     rules    = { name "::=" choice newline }
 *     choice   = sequence { "|" sequence }
 *     sequence = { ( "literal" | [class] | . | name | "(" choice ")" ) [ * + ? {m} {m,} {m,n} ] }
 *
 * A newline ends a rule, except in parentheses, after "::=" and around "|". Comments go from # to
 * the end of the line. */
#include "grammar_gbnf.h"

#include <string.h>

#include "hex_digit.h"
#include "mem.h"
#include "utf8.h"

typedef struct parser {
    grammar_tree *t;
    const char *at, *end;
    int line, depth;
} parser;

static grammar_node *wrong(parser *p, const char *what) {
    return grammar_fail(p->t, PI_ERR_FORMAT, "%s: grammar, line %d", what, p->line);
}

static bool failed(const parser *p) {
    return p->t->status != PI_OK;
}

static char peek(const parser *p) {
    return p->at < p->end ? *p->at : '\0';
}

static void skip_space(parser *p, bool newlines) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#') {
            while (p->at + 1 < p->end && p->at[1] != '\n' && p->at[1] != '\r') p->at++;
        } else if (newlines && (*p->at == '\n' || *p->at == '\r')) {
            p->line += *p->at == '\n';
        } else if (*p->at != ' ' && *p->at != '\t') {
            return;
        }
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_length(const parser *p) {
    size_t n = 0;
    while (p->at + n < p->end && is_name_char(p->at[n])) n++;
    return n;
}

static bool take(parser *p, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

/* ---- characters ------------------------------------------------------------------------------ */

static uint32_t take_hex(parser *p, int n_digits) {
    const int64_t value = hex_number(p->at, p->end, n_digits);
    if (value < 0) {
        wrong(p, "escape with too few hexadecimal digits");
        return 0;
    }
    p->at += n_digits;
    if (value >= GRAMMAR_CODE_POINTS || (value >= 0xd800 && value <= 0xdfff)) {
        wrong(p, "escape of an invalid code point");
        return 0;
    }
    return (uint32_t)value;
}

static uint32_t take_escape(parser *p) {
    static const char plain[] = "\\\"[]-^/'";
    char c = peek(p);
    if (p->at < p->end) p->at++;
    switch (c) {
    case 'x':
        return take_hex(p, 2);
    case 'u':
        return take_hex(p, 4);
    case 'U':
        return take_hex(p, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    default:
        if (c == '\0' || !strchr(plain, c)) wrong(p, "unknown escape");
        return (uint32_t)c;
    }
}

/* One character of a literal or a class. */
static uint32_t take_char(parser *p) {
    size_t step;
    if (take(p, "\\")) return take_escape(p);
    int32_t code = utf8_decode(p->at, (size_t)(p->end - p->at), &step);
    if (code < 0) wrong(p, "not UTF-8");
    if (code == '\n') p->line++;
    p->at += step;
    return (uint32_t)code;
}

static grammar_node *parse_literal(parser *p) {
    const char *start = p->at;
    size_t room = 0, n = 0;
    while (start + room < p->end && start[room] != '"') room += start[room] == '\\' ? 2 : 1;
    char *bytes = mem_alloc(room + UTF8_MAX_BYTES); /* escapes are longer than what they say */
    if (!bytes) return grammar_no_memory(p->t);
    while (!failed(p) && peek(p) != '"') {
        if (p->at >= p->end)
            wrong(p, "literal without its closing \"");
        else
            n += utf8_encode(take_char(p), bytes + n);
    }
    p->at++;
    grammar_node *node = grammar_bytes(p->t, bytes, n);
    mem_free(bytes);
    return node;
}

static grammar_node *parse_class(parser *p) {
    grammar_range *ranges = NULL;
    size_t n = 0, capacity = 0;
    bool negated = take(p, "^");
    grammar_node *node = grammar_never();
    while (!failed(p) && peek(p) != ']') {
        if (p->at >= p->end) {
            wrong(p, "class without its closing ]");
            break;
        }
        grammar_range r;
        r.first = r.last = take_char(p);
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            r.last = take_char(p);
            if (r.last < r.first) wrong(p, "range that ends before it begins");
        }
        if (!mem_grow((void **)&ranges, &capacity, n + 1, sizeof *ranges, GRAMMAR_MAX_BYTES)) {
            grammar_no_memory(p->t);
            break;
        }
        ranges[n++] = r;
    }
    p->at++;
    if (!failed(p) && n == 0 && !negated) wrong(p, "empty class");
    if (!failed(p)) node = grammar_class(p->t, ranges, n, negated);
    mem_free(ranges);
    return node;
}

/* ---- structure ------------------------------------------------------------------------------- */

static grammar_node *parse_choice(parser *p, bool nested);

static grammar_node *parse_item(parser *p) {
    if (take(p, "\"")) return parse_literal(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return grammar_class(p->t, NULL, 0, true);
    if (take(p, "(")) {
        if (++p->depth > GRAMMAR_MAX_DEPTH)
            return grammar_fail(p->t, PI_ERR_LIMIT,
                                "nested too deeply: grammar, line %d: at most %d levels", p->line,
                                GRAMMAR_MAX_DEPTH);
        skip_space(p, true);
        grammar_node *node = parse_choice(p, true);
        p->depth--;
        if (!failed(p) && !take(p, ")")) return wrong(p, "group without its closing )");
        return node;
    }
    size_t n = name_length(p);
    int32_t rule = grammar_rule_named(p->t, p->at, n);
    p->at += n;
    return grammar_ref(p->t, rule);
}

static uint32_t take_count(parser *p) {
    uint32_t value = 0;
    if (peek(p) < '0' || peek(p) > '9') {
        wrong(p, "repetition without a number");
        return 0;
    }
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        value = value * 10 + (uint32_t)(*p->at - '0');
        if (value > GRAMMAR_MAX_REPEAT) {
            grammar_fail(p->t, PI_ERR_LIMIT, "too many repetitions: grammar, line %d: at most %d",
                         p->line, GRAMMAR_MAX_REPEAT);
            return 0;
        }
    }
    return value;
}

/* What follows an item says how often it comes. */
static grammar_node *parse_repeat(parser *p, grammar_node *item, bool nested) {
    uint32_t min = 0, max = GRAMMAR_NO_BOUND;
    if (take(p, "?")) {
        max = 1;
    } else if (take(p, "+")) {
        min = 1;
    } else if (take(p, "{")) {
        skip_space(p, nested);
        min = max = take_count(p);
        skip_space(p, nested);
        if (!failed(p) && take(p, ",")) {
            skip_space(p, nested);
            max = peek(p) == '}' ? GRAMMAR_NO_BOUND : take_count(p);
            skip_space(p, nested);
        }
        if (failed(p)) return item;
        if (!take(p, "}")) return wrong(p, "repetition without its closing }");
        if (max < min) return wrong(p, "repetition with a maximum below its minimum");
    } else if (!take(p, "*")) {
        return item;
    }
    return grammar_repeat(p->t, item, min, max);
}

static bool begins_item(const parser *p) {
    char c = peek(p);
    return c == '"' || c == '[' || c == '.' || c == '(' || name_length(p) > 0;
}

static bool begins_repeat(const parser *p) {
    char c = peek(p);
    return c == '*' || c == '+' || c == '?' || c == '{';
}

static grammar_node *parse_sequence(parser *p, bool nested) {
    grammar_node *list = grammar_seq(p->t), *only = NULL;
    size_t n = 0;
    while (!failed(p) && begins_item(p)) {
        grammar_node *item = parse_item(p);
        skip_space(p, nested);
        while (!failed(p) && begins_repeat(p)) {
            item = parse_repeat(p, item, nested);
            skip_space(p, nested);
        }
        grammar_add(p->t, list, item);
        only = item;
        n++;
    }
    if (!failed(p) && n == 0) return grammar_text(p->t, "");
    return n == 1 ? only : list;
}

/* Whether a "|" stands at the beginning of a following line. */
static bool continues(parser *p) {
    const parser before = *p;
    skip_space(p, true);
    if (peek(p) == '|') return true;
    p->at = before.at;
    p->line = before.line;
    return false;
}

static grammar_node *parse_choice(parser *p, bool nested) {
    grammar_node *list = grammar_alt(p->t), *only = parse_sequence(p, nested);
    size_t n = 1;
    grammar_add(p->t, list, only);
    while (!failed(p) && continues(p)) {
        p->at++;
        skip_space(p, true);
        grammar_add(p->t, list, parse_sequence(p, nested));
        n++;
    }
    return n == 1 ? only : list;
}

static void parse_rule(parser *p) {
    size_t n = name_length(p);
    if (n == 0) {
        if (peek(p) == '<' || peek(p) == '!')
            wrong(p, "tokens as <...> are not supported");
        else
            wrong(p, "expected the name of a rule");
        return;
    }
    int32_t rule = grammar_rule_named(p->t, p->at, n);
    p->at += n;
    skip_space(p, false);
    if (failed(p)) return;
    if (!take(p, "::=")) {
        wrong(p, "expected ::= after the name of a rule");
        return;
    }
    if (p->t->rules[rule].body) {
        grammar_fail(p->t, PI_ERR_FORMAT, "grammar rule %s is defined twice: line %d",
                     p->t->rules[rule].name, p->line);
        return;
    }
    skip_space(p, true);
    grammar_node *body = parse_choice(p, false);
    if (failed(p)) return;
    if (p->at < p->end && *p->at != '\n' && *p->at != '\r') {
        wrong(p, *p->at == '<' || *p->at == '!' ? "tokens as <...> are not supported"
                                                : "expected an item, | or the end of the line");
        return;
    }
    p->t->rules[rule].body = body;
    skip_space(p, true);
}

void grammar_parse_gbnf(grammar_tree *t, const char *text, size_t n) {
    parser p = {.t = t, .at = text, .end = text + n, .line = 1};
    if (n > GRAMMAR_MAX_BYTES) {
        grammar_fail(t, PI_ERR_LIMIT, "grammar of %zu bytes is too long: at most %d", n,
                     GRAMMAR_MAX_BYTES);
        return;
    }
    skip_space(&p, true);
    while (!failed(&p) && p.at < p.end) parse_rule(&p);
}
