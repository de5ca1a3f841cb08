/* schema_pattern.c: regular expressions of ECMA-262 with the flag u, as far as they are regular: no
 * back references, no lookbehind, no word boundaries.
 *
 *     pattern  = sequence { "|" sequence }
 *     sequence = { atom [ * | + | ? | {m,n} ] }
 *     atom     = ^ | $ | character | . | \escape | [class]
 *              | "(" [ ?: | ?<name> | ?= | ?! ] pattern ")" */
#include <string.h>

#include "grammar_notation.h"
#include "hex_digit.h"
#include "mem.h"
#include "schema_regex.h"
#include "unicode_class.h"

enum { CLASS_MAX = 4096, PATTERN_MAX_DEPTH = 48 }; /* ranges of a class; groups */

typedef struct parser {
    notation n; /* first member, so that the dialect's functions can cast it to the parser */
    regex_pool *pool;
    int depth;
} parser;

/* Reports a pattern that a grammar cannot express. */
static regex refuse(parser *p, const char *what) {
    notation_fail(&p->n, PI_ERR_UNSUPPORTED, what);
    return REGEX_NEVER;
}

static regex wrong(parser *p, const char *what) {
    notation_fail(&p->n, PI_ERR_FORMAT, what);
    return REGEX_NEVER;
}

static bool failed(const parser *p) {
    return p->n.why || p->pool->status != PI_OK;
}

/* ---- characters ------------------------------------------------------------------------------ */

/* Looking up a Unicode property takes milliseconds, so a schema may have few of them. */
static const unicode_class *find_property(parser *p, const char *name, size_t n) {
    schema_compiler *c = p->pool->c;
    for (size_t i = 0; i < c->n_properties; i++)
        if (strlen(c->properties[i].name) == n && memcmp(c->properties[i].name, name, n) == 0)
            return &c->properties[i].set;
    schema_property *one = &c->properties[c->n_properties];
    if (c->n_properties == SCHEMA_MAX_PROPERTIES || n >= sizeof one->name) {
        refuse(p, "too many Unicode properties");
        return NULL;
    }
    pi_status status = unicode_class_find(name, n, &one->set);
    if (status == PI_ERR_NOMEM) regex_fail(p->pool, PI_ERR_NOMEM, "out of memory");
    if (status != PI_OK) {
        refuse(p, "this Unicode property");
        return NULL;
    }
    memcpy(one->name, name, n);
    one->name[n] = '\0';
    c->n_properties++;
    return &one->set;
}

/* \p{name}, \P{name} */
static void add_property(parser *p, bool negated) {
    notation *n = &p->n;
    if (!notation_take(n, "{")) {
        refuse(p, "\\p without braces");
        return;
    }
    const char *name = n->at;
    while (n->at < n->end && *n->at != '}') n->at++;
    const unicode_class *set = NULL;
    if (n->at == n->end)
        wrong(p, "\\p without its closing }");
    else
        set = find_property(p, name, (size_t)(n->at++ - name));
    if (set && !failed(p)) notation_add_ranges(n, set->ranges, set->n, negated);
}

static bool begins_named(const notation *n) {
    return n->end - n->at > 1 && n->at[0] == '\\' && n->at[1] && strchr("dDwWsSpP", n->at[1]);
}

/* \d \w \s \p{...} and their complements. */
static void add_named(notation *n) {
    static const grammar_range digits[] = {{'0', '9'}};
    static const grammar_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const grammar_range spaces[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    char name = n->at[1], low = (char)(name | 0x20);
    n->at += 2;
    if (low == 'p')
        add_property((parser *)n, name != low);
    else if (low == 'w')
        notation_add_ranges(n, words, sizeof words / sizeof *words, name != low);
    else if (low == 's')
        notation_add_ranges(n, spaces, sizeof spaces / sizeof *spaces, name != low);
    else
        notation_add_ranges(n, digits, 1, name != low);
}

/* Reads \u{10ffff}, \uD83D\uDE00 or \u0041, after the u. */
static uint32_t take_unicode(parser *p) {
    notation *n = &p->n;
    uint32_t value = 0;
    if (notation_take(n, "{")) {
        const char *start = n->at;
        for (; n->at < n->end && hex_digit(*n->at) >= 0 && value < GRAMMAR_CODE_POINTS; n->at++)
            value = value * 16 + (uint32_t)hex_digit(*n->at);
        if (n->at == start || value >= GRAMMAR_CODE_POINTS || !notation_take(n, "}"))
            wrong(p, "escape that is no code point");
        return value;
    }
    value = notation_hex(n, 4);
    if (value >= 0xd800 && value <= 0xdbff && notation_take(n, "\\u")) {
        uint32_t low = notation_hex(n, 4);
        if (low >= 0xdc00 && low <= 0xdfff)
            return 0x10000 + ((value - 0xd800) << 10) + low - 0xdc00;
    }
    if (value >= 0xd800 && value <= 0xdfff) refuse(p, "surrogates");
    return value;
}

static uint32_t take_escape(notation *n, bool in_class) {
    static const char names[] = "tnvfr", codes[] = "\t\n\v\f\r";
    parser *p = (parser *)n;
    char c = notation_peek(n);
    if (c == '\0') {
        wrong(p, "\\ at its end");
        return 0;
    }
    const char *name = strchr(names, c);
    if (name || c == 'x' || c == 'u') n->at++;
    if (name) return (uint32_t)codes[name - names];
    if (c == 'x') return notation_hex(n, 2);
    if (c == 'u') return take_unicode(p);
    if (c == 'b' && in_class) {
        n->at++;
        return '\b';
    }
    bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word) refuse(p, c == 'b' || c == 'B' ? "word boundaries" : "this kind of escape");
    return notation_code_point(n);
}

static const notation_dialect ecma = {.escape = take_escape,
                                      .begins_named = begins_named,
                                      .add_named = add_named,
                                      .loose_braces = true,
                                      .max_ranges = CLASS_MAX};

/* ---- structure ------------------------------------------------------------------------------- */

static regex parse_choice(parser *p);

/* The kind of a group. REGEX_IS_SEQUENCE: grouping only. */
static regex_kind parse_group_kind(parser *p) {
    notation *n = &p->n;
    if (!notation_take(n, "?") || notation_take(n, ":")) return REGEX_IS_SEQUENCE;
    if (notation_take(n, "=")) return REGEX_IS_AHEAD;
    if (notation_take(n, "!")) return REGEX_IS_NOT_AHEAD;
    if (!notation_take(n, "<")) {
        refuse(p, "flags");
    } else if (notation_peek(n) == '=' || notation_peek(n) == '!') {
        refuse(p, "lookbehind");
    } else {
        while (n->at < n->end && *n->at != '>') n->at++;
        if (!notation_take(n, ">")) wrong(p, "group whose name does not end");
    }
    return REGEX_IS_SEQUENCE;
}

static regex parse_group(parser *p) {
    regex_kind kind = parse_group_kind(p);
    if (failed(p)) return REGEX_NEVER;
    if (++p->depth > PATTERN_MAX_DEPTH) return refuse(p, "groups nested too deeply");
    regex inside = parse_choice(p);
    p->depth--;
    if (!failed(p) && !notation_take(&p->n, ")")) return wrong(p, "group without its closing )");
    return kind == REGEX_IS_SEQUENCE || failed(p) ? inside : regex_look(p->pool, kind, inside);
}

static regex parse_atom(parser *p) {
    static const grammar_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    notation *n = &p->n;
    bool negated = false;
    char c = notation_peek(n);
    if (notation_take(n, "(")) return parse_group(p);
    if (notation_take(n, ".")) return regex_class(p->pool, lines, 3, true);
    if (notation_take(n, "^")) return regex_look(p->pool, REGEX_IS_BEGIN, REGEX_NEVER);
    if (notation_take(n, "$")) return regex_look(p->pool, REGEX_IS_NOT_AHEAD, REGEX_CHAR);
    if (c == '*' || c == '+' || c == '?') return wrong(p, "repetition of nothing");
    n->n_ranges = 0;
    if (notation_take(n, "[")) {
        notation_class(n, &negated);
    } else if (begins_named(n)) {
        add_named(n);
    } else {
        uint32_t code = notation_character(n, false);
        notation_add_ranges(n, &(grammar_range){code, code}, 1, false);
    }
    return failed(p) ? REGEX_NEVER : regex_class(p->pool, n->ranges, n->n_ranges, negated);
}

static regex parse_repeat(parser *p, regex atom) {
    uint32_t min, max;
    if (!notation_repeat(&p->n, &min, &max)) return atom;
    notation_take(&p->n, "?"); /* lazy repetition: equal texts */
    char c = notation_peek(&p->n);
    if (c == '*' || c == '+' || c == '?') return wrong(p, "repetition of a repetition");
    return failed(p) ? REGEX_NEVER : regex_repeat(p->pool, atom, min, max);
}

typedef struct items {
    regex *list; /* [n] */
    size_t n, capacity;
} items;

static void add_item(parser *p, items *all, regex r) {
    if (failed(p)) return;
    if (mem_grow((void **)&all->list, &all->capacity, all->n + 1, sizeof *all->list,
                 REGEX_MAX_NODES))
        all->list[all->n++] = r;
    else if (all->n + 1 > REGEX_MAX_NODES)
        refuse(p, "too long");
    else
        regex_fail(p->pool, PI_ERR_NOMEM, "out of memory");
}

static regex parse_sequence(parser *p) {
    items all = {.n = 0};
    while (!failed(p) && p->n.at < p->n.end && *p->n.at != '|' && *p->n.at != ')')
        add_item(p, &all, parse_repeat(p, parse_atom(p)));
    regex sequence = failed(p) ? REGEX_NEVER : REGEX_EMPTY;
    while (all.n > 0 && !failed(p)) sequence = regex_then(p->pool, all.list[--all.n], sequence);
    mem_free(all.list);
    return sequence;
}

static regex parse_choice(parser *p) {
    items all = {.n = 0};
    do add_item(p, &all, parse_sequence(p));
    while (!failed(p) && notation_take(&p->n, "|"));
    regex choice = failed(p) ? REGEX_NEVER : regex_choice(p->pool, all.list, all.n);
    mem_free(all.list);
    return choice;
}

regex schema_pattern(regex_pool *pool, const char *pattern, size_t n, bool *malformed,
                     const char **why) {
    parser p = {.n = {.dialect = &ecma, .at = pattern, .end = pattern + n}, .pool = pool};
    regex all = memchr(pattern, 0, n) ? refuse(&p, "NUL") : parse_choice(&p);
    if (!failed(&p) && p.n.at < p.n.end) wrong(&p, "unexpected )");
    mem_free(p.n.ranges);
    if (p.n.status == PI_ERR_NOMEM) regex_fail(pool, PI_ERR_NOMEM, "out of memory");
    *malformed = p.n.status == PI_ERR_FORMAT;
    *why = p.n.status == PI_ERR_NOMEM ? NULL : p.n.why;
    return failed(&p) ? REGEX_NEVER : all;
}
