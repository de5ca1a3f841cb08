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

#include "grammar_notation.h"
#include "mem.h"
#include "utf8.h"

typedef struct parser {
    notation n; /* first member, so that the dialect's functions can cast it to the parser */
    grammar_tree *t;
    int depth; /* depth of parentheses */
} parser;

static grammar_node *wrong(parser *p, const char *what) {
    notation_fail(&p->n, PI_ERR_FORMAT, what);
    return grammar_never();
}

static bool failed(const parser *p) {
    return p->n.why || p->t->status != PI_OK;
}

static bool at_end(const parser *p) {
    return p->n.at >= p->n.end;
}

static void skip_space(parser *p, bool newlines) {
    notation *n = &p->n;
    for (; n->at < n->end; n->at++) {
        if (*n->at == '#') {
            while (n->at + 1 < n->end && n->at[1] != '\n' && n->at[1] != '\r') n->at++;
        } else if (newlines && (*n->at == '\n' || *n->at == '\r')) {
            n->line += *n->at == '\n';
        } else if (*n->at != ' ' && *n->at != '\t') {
            return;
        }
    }
}

static void skip_between(notation *n) {
    parser *p = (parser *)n;
    skip_space(p, p->depth > 0);
}

static size_t name_length(const parser *p) {
    size_t n = 0;
    for (; p->n.at + n < p->n.end; n++) {
        char c = p->n.at[n], letter = (char)(c | 0x20);
        bool in_name = (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_';
        if (!in_name) break;
    }
    return n;
}

/* ---- characters ------------------------------------------------------------------------------ */

static uint32_t take_code_point(notation *n, int n_digits) {
    uint32_t code = notation_hex(n, n_digits);
    if (code >= GRAMMAR_CODE_POINTS || (code >= 0xd800 && code <= 0xdfff))
        notation_fail(n, PI_ERR_FORMAT, "escape of an invalid code point");
    return code;
}

static uint32_t take_escape(notation *n, bool in_class) {
    static const char plain[] = "\\\"[]-^/'";
    char c = notation_peek(n);
    (void)in_class;
    if (n->at < n->end) n->at++;
    switch (c) {
    case 'x':
        return take_code_point(n, 2);
    case 'u':
        return take_code_point(n, 4);
    case 'U':
        return take_code_point(n, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    default:
        if (c == '\0' || !strchr(plain, c)) notation_fail(n, PI_ERR_FORMAT, "unknown escape");
        return (uint32_t)c;
    }
}

static const notation_dialect gbnf = {
    .escape = take_escape, .skip = skip_between, .max_ranges = GRAMMAR_MAX_BYTES};

static grammar_node *parse_literal(parser *p) {
    const char *start = p->n.at;
    size_t room = 0, n = 0;
    while (start + room < p->n.end && start[room] != '"') room += start[room] == '\\' ? 2 : 1;
    char *bytes = mem_alloc(room + UTF8_MAX_BYTES); /* escapes are longer than characters */
    if (!bytes) return grammar_no_memory(p->t);
    while (!failed(p) && notation_peek(&p->n) != '"') {
        if (at_end(p))
            wrong(p, "literal without its closing \"");
        else
            n += utf8_encode(notation_character(&p->n, false), bytes + n);
    }
    p->n.at++;
    grammar_node *node = grammar_bytes(p->t, bytes, n);
    mem_free(bytes);
    return node;
}

static grammar_node *parse_class(parser *p) {
    bool negated;
    notation_class(&p->n, &negated);
    if (p->n.n_ranges == 0 && !negated) wrong(p, "empty class");
    return failed(p) ? grammar_never() : grammar_class(p->t, p->n.ranges, p->n.n_ranges, negated);
}

/* ---- structure ------------------------------------------------------------------------------- */

static grammar_node *parse_choice(parser *p);

static grammar_node *parse_item(parser *p) {
    notation *n = &p->n;
    if (notation_take(n, "\"")) return parse_literal(p);
    if (notation_take(n, "[")) return parse_class(p);
    if (notation_take(n, ".")) return grammar_class(p->t, NULL, 0, true);
    if (notation_take(n, "(")) {
        if (++p->depth > GRAMMAR_MAX_DEPTH)
            return grammar_fail(p->t, PI_ERR_LIMIT,
                                "nested too deeply: grammar, line %d: at most %d levels", n->line,
                                GRAMMAR_MAX_DEPTH);
        skip_space(p, true);
        grammar_node *node = parse_choice(p);
        p->depth--;
        if (!failed(p) && !notation_take(n, ")")) return wrong(p, "group without its closing )");
        return node;
    }
    size_t length = name_length(p);
    int32_t rule = grammar_rule_named(p->t, n->at, length);
    n->at += length;
    return grammar_ref(p->t, rule);
}

static grammar_node *parse_sequence(parser *p) {
    grammar_node *list = grammar_seq(p->t), *only = NULL;
    size_t n = 0;
    for (;;) {
        uint32_t min, max;
        char c = notation_peek(&p->n);
        bool item_begins = c == '"' || c == '[' || c == '.' || c == '(' || name_length(p) > 0;
        if (failed(p) || !item_begins) break;
        only = parse_item(p);
        skip_between(&p->n);
        while (!failed(p) && notation_repeat(&p->n, &min, &max)) {
            only = grammar_repeat(p->t, only, min, max);
            skip_between(&p->n);
        }
        grammar_add(p->t, list, only);
        n++;
    }
    if (!failed(p) && n == 0) return grammar_text(p->t, "");
    return n == 1 ? only : list;
}

/* Whether a "|" follows, perhaps at the beginning of a later line. */
static bool continues(parser *p) {
    const notation before = p->n;
    skip_space(p, true);
    if (notation_peek(&p->n) == '|') return true;
    p->n = before;
    return false;
}

static grammar_node *parse_choice(parser *p) {
    grammar_node *list = grammar_alt(p->t), *only = parse_sequence(p);
    size_t n = 1;
    grammar_add(p->t, list, only);
    while (!failed(p) && continues(p)) {
        p->n.at++;
        skip_space(p, true);
        grammar_add(p->t, list, parse_sequence(p));
        n++;
    }
    return n == 1 ? only : list;
}

static void parse_rule(parser *p) {
    static const char tokens[] = "tokens as <...> are not supported";
    notation *n = &p->n;
    size_t length = name_length(p);
    if (length == 0) {
        bool is_token = notation_peek(n) == '<' || notation_peek(n) == '!';
        wrong(p, is_token ? tokens : "expected the name of a rule");
        return;
    }
    int32_t rule = grammar_rule_named(p->t, n->at, length);
    n->at += length;
    skip_space(p, false);
    if (failed(p)) return;
    if (!notation_take(n, "::=")) {
        wrong(p, "expected ::= after the name of a rule");
        return;
    }
    if (p->t->rules[rule].body) {
        grammar_fail(p->t, PI_ERR_FORMAT, "grammar rule %s is defined twice: line %d",
                     p->t->rules[rule].name, n->line);
        return;
    }
    skip_space(p, true);
    grammar_node *body = parse_choice(p);
    if (failed(p)) return;
    if (!at_end(p) && *n->at != '\n' && *n->at != '\r') {
        bool is_token = *n->at == '<' || *n->at == '!';
        wrong(p, is_token ? tokens : "expected an item, | or the end of the line");
        return;
    }
    p->t->rules[rule].body = body;
    skip_space(p, true);
}

void grammar_parse_gbnf(grammar_tree *t, const char *text, size_t n) {
    parser p = {.n = {.dialect = &gbnf, .at = text, .end = text + n, .line = 1}, .t = t};
    if (n > GRAMMAR_MAX_BYTES) {
        grammar_fail(t, PI_ERR_LIMIT, "grammar of %zu bytes is too long: at most %d", n,
                     GRAMMAR_MAX_BYTES);
        return;
    }
    skip_space(&p, true);
    while (!failed(&p) && !at_end(&p)) parse_rule(&p);
    mem_free(p.n.ranges);
    if (p.n.status == PI_ERR_NOMEM)
        grammar_no_memory(t);
    else if (p.n.status == PI_ERR_LIMIT)
        grammar_fail(t, PI_ERR_LIMIT, "%s: grammar, line %d: at most %d", p.n.why, p.n.why_line,
                     GRAMMAR_MAX_REPEAT);
    else if (p.n.why)
        grammar_fail(t, PI_ERR_FORMAT, "%s: grammar, line %d", p.n.why, p.n.why_line);
}
