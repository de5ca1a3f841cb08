/* schema_pattern.c: regular expressions of ECMA-262 with the flag u, as far as they are regular: no
 * back references, no looking behind, no word boundaries.
 *
 *     pattern  = sequence { "|" sequence }
 *     sequence = { atom [ * | + | ? | {m,n} ] }
 *     atom     = ^ | $ | character | . | \escape | [class]
 *              | "(" [ ?: | ?<name> | ?= | ?! ] pattern ")" */
#include <string.h>

#include "hex_digit.h"
#include "mem.h"
#include "schema_regex.h"
#include "unicode_class.h"
#include "utf8.h"

enum { CLASS_MAX = 4096, PATTERN_MAX_DEPTH = 48 }; /* ranges of a class; groups */

typedef struct parser {
    regex_pool *pool;
    const char *at, *end;
    int depth;
    bool malformed;
    const char *why;       /* NULL: all is well so far */
    grammar_range *ranges; /* [n_ranges] of the class that is being read */
    size_t n_ranges, capacity;
} parser;

static regex refuse(parser *p, const char *what) {
    if (!p->why) p->why = what;
    return REGEX_NEVER;
}

static regex wrong(parser *p, const char *what) {
    if (!p->why) p->malformed = true;
    return refuse(p, what);
}

static bool failed(const parser *p) {
    return p->why || p->pool->status != PI_OK;
}

static bool take(parser *p, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

static char peek(const parser *p) {
    return p->at < p->end ? *p->at : '\0';
}

/* ---- characters ------------------------------------------------------------------------------ */

static void put_range(parser *p, uint32_t first, uint32_t last) {
    if (p->n_ranges == CLASS_MAX)
        refuse(p, "class of too many ranges");
    else if (mem_grow((void **)&p->ranges, &p->capacity, p->n_ranges + 1, sizeof *p->ranges,
                      CLASS_MAX))
        p->ranges[p->n_ranges++] = (grammar_range){first, last};
    else
        regex_fail(p->pool, PI_ERR_NOMEM, "out of memory");
}

/* Ranges, ascending, or all code points outside of them. */
static void put_set(parser *p, const grammar_range *r, size_t n, bool negated) {
    uint32_t next = 0;
    for (size_t i = 0; i < n && !failed(p); i++) {
        if (!negated) put_range(p, r[i].first, r[i].last);
        if (negated && r[i].first > next) put_range(p, next, r[i].first - 1);
        next = r[i].last + 1;
    }
    if (negated && next < GRAMMAR_CODE_POINTS) put_range(p, next, GRAMMAR_CODE_POINTS - 1);
}

/* Looking them up takes milliseconds, so a schema has few of them. */
static const unicode_class *find_property(parser *p, const char *name, size_t n) {
    schema_compiler *c = p->pool->c;
    for (size_t i = 0; i < c->n_properties; i++)
        if (strlen(c->properties[i].name) == n && memcmp(c->properties[i].name, name, n) == 0)
            return &c->properties[i].set;
    schema_property *one = &c->properties[c->n_properties];
    if (c->n_properties == SCHEMA_MAX_PROPERTIES || n >= sizeof one->name) {
        refuse(p, "too many properties of characters");
        return NULL;
    }
    pi_status status = unicode_class_find(name, n, &one->set);
    if (status == PI_ERR_NOMEM) regex_fail(p->pool, PI_ERR_NOMEM, "out of memory");
    if (status != PI_OK) {
        refuse(p, "this property of characters");
        return NULL;
    }
    memcpy(one->name, name, n);
    one->name[n] = '\0';
    c->n_properties++;
    return &one->set;
}

/* \p{name}, \P{name} */
static void put_property(parser *p, bool negated) {
    const char *name = ++p->at;
    if (name >= p->end || *name != '{') {
        refuse(p, "\\p without braces");
        return;
    }
    while (p->at < p->end && *p->at != '}') p->at++;
    name++;
    size_t n = (size_t)(p->at - name);
    if (!take(p, "}")) {
        wrong(p, "\\p without its closing }");
        return;
    }
    const unicode_class *set = find_property(p, name, n);
    if (set && !failed(p)) put_set(p, set->ranges, set->n, negated);
}

static bool begins_named(const parser *p) {
    return p->end - p->at > 1 && p->at[0] == '\\' && p->at[1] && strchr("dDwWsSpP", p->at[1]);
}

/* \d \w \s \p{...} and their opposites. */
static void put_named(parser *p) {
    static const grammar_range digits[] = {{'0', '9'}};
    static const grammar_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const grammar_range spaces[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    char name = p->at[1], low = (char)(name | 0x20);
    p->at++;
    if (low == 'p') {
        put_property(p, name != low);
        return;
    }
    p->at++;
    if (low == 'w')
        put_set(p, words, sizeof words / sizeof *words, name != low);
    else if (low == 's')
        put_set(p, spaces, sizeof spaces / sizeof *spaces, name != low);
    else
        put_set(p, digits, 1, name != low);
}

static uint32_t take_hex(parser *p, int n_digits) {
    const int64_t value = hex_number(p->at, p->end, n_digits);
    if (value < 0) {
        wrong(p, "escape with too few hexadecimal digits");
        return 0;
    }
    p->at += n_digits;
    return (uint32_t)value;
}

/* \u{10ffff}, \uD83D\uDE00 or \u0041, after the u. */
static uint32_t take_unicode(parser *p) {
    if (take(p, "{")) {
        uint32_t value = 0;
        const char *start = p->at;
        for (; p->at < p->end && hex_digit(*p->at) >= 0 && value < GRAMMAR_CODE_POINTS; p->at++)
            value = value * 16 + (uint32_t)hex_digit(*p->at);
        if (p->at == start || value >= GRAMMAR_CODE_POINTS || !take(p, "}"))
            wrong(p, "escape that is no code point");
        return value;
    }
    uint32_t value = take_hex(p, 4);
    if (value >= 0xd800 && value <= 0xdbff && take(p, "\\u")) {
        uint32_t low = take_hex(p, 4);
        if (low >= 0xdc00 && low <= 0xdfff)
            return 0x10000 + ((value - 0xd800) << 10) + low - 0xdc00;
    }
    if (value >= 0xd800 && value <= 0xdfff) refuse(p, "surrogates");
    return value;
}

/* After a backslash: one character. */
static uint32_t take_escape(parser *p, bool in_class) {
    static const char names[] = "tnvfr", codes[] = "\t\n\v\f\r";
    char c = peek(p);
    if (c == '\0') {
        wrong(p, "\\ at its end");
        return 0;
    }
    const char *name = strchr(names, c);
    if (name || c == 'x' || c == 'u') p->at++;
    if (name) return (uint32_t)codes[name - names];
    if (c == 'x') return take_hex(p, 2);
    if (c == 'u') return take_unicode(p);
    if (c == 'b' && in_class) {
        p->at++;
        return '\b';
    }
    bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word) refuse(p, c == 'b' || c == 'B' ? "word boundaries" : "this kind of escape");
    size_t step;
    int32_t code = utf8_decode(p->at, (size_t)(p->end - p->at), &step);
    p->at += step;
    return (uint32_t)code;
}

static uint32_t take_char(parser *p, bool in_class) {
    size_t step;
    if (take(p, "\\")) return take_escape(p, in_class);
    int32_t code = utf8_decode(p->at, (size_t)(p->end - p->at), &step);
    p->at += step;
    return (uint32_t)code;
}

static regex end_class(parser *p, bool negated) {
    return failed(p) ? REGEX_NEVER : regex_class(p->pool, p->ranges, p->n_ranges, negated);
}

static regex parse_class(parser *p) {
    bool negated = take(p, "^");
    p->n_ranges = 0;
    while (!failed(p) && peek(p) != ']') {
        if (p->at >= p->end) return wrong(p, "class without its closing ]");
        if (begins_named(p)) {
            put_named(p);
            continue;
        }
        uint32_t first = take_char(p, true), last = first;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (begins_named(p)) return wrong(p, "range that ends with a class");
            last = take_char(p, true);
        }
        if (last < first) return wrong(p, "range that ends before it begins");
        put_range(p, first, last);
    }
    p->at++;
    return end_class(p, negated);
}

/* ---- structure ------------------------------------------------------------------------------- */

static regex parse_choice(parser *p);

/* What a group is for: REGEX_IS_SEQUENCE: nothing but to group. */
static regex_kind parse_group_kind(parser *p) {
    if (!take(p, "?") || take(p, ":")) return REGEX_IS_SEQUENCE;
    if (take(p, "=")) return REGEX_IS_AHEAD;
    if (take(p, "!")) return REGEX_IS_NOT_AHEAD;
    if (!take(p, "<")) {
        refuse(p, "flags");
    } else if (peek(p) == '=' || peek(p) == '!') {
        refuse(p, "looking behind");
    } else {
        while (p->at < p->end && *p->at != '>') p->at++;
        if (!take(p, ">")) wrong(p, "group whose name does not end");
    }
    return REGEX_IS_SEQUENCE;
}

static regex parse_group(parser *p) {
    regex_kind kind = parse_group_kind(p);
    if (failed(p)) return REGEX_NEVER;
    if (++p->depth > PATTERN_MAX_DEPTH) return refuse(p, "groups nested too deeply");
    regex inside = parse_choice(p);
    p->depth--;
    if (!failed(p) && !take(p, ")")) return wrong(p, "group without its closing )");
    return kind == REGEX_IS_SEQUENCE || failed(p) ? inside : regex_look(p->pool, kind, inside);
}

static regex parse_atom(parser *p) {
    static const grammar_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    char c = peek(p);
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return regex_class(p->pool, lines, 3, true);
    if (take(p, "^")) return regex_look(p->pool, REGEX_IS_BEGIN, REGEX_NEVER);
    if (take(p, "$")) return regex_look(p->pool, REGEX_IS_NOT_AHEAD, REGEX_CHAR);
    p->n_ranges = 0;
    if (begins_named(p)) {
        put_named(p);
        return end_class(p, false);
    }
    if (c == '*' || c == '+' || c == '?') return wrong(p, "repetition of nothing");
    uint32_t code = take_char(p, false);
    put_range(p, code, code);
    return end_class(p, false);
}

static bool take_number(parser *p, uint32_t *out) {
    const char *start = p->at;
    uint32_t value = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        if (value <= GRAMMAR_MAX_REPEAT) value = value * 10 + (uint32_t)(*p->at - '0');
    }
    if (value > GRAMMAR_MAX_REPEAT) refuse(p, "too many repetitions");
    *out = value;
    return p->at > start;
}

/* {m}, {m,}, {m,n}; anything else is a brace as such. */
static bool take_braces(parser *p, uint32_t *min, uint32_t *max) {
    const char *start = p->at;
    if (!take(p, "{")) return false;
    bool good = take_number(p, min);
    *max = *min;
    if (good && take(p, ",") && !take_number(p, max)) *max = GRAMMAR_NO_BOUND;
    if (good && take(p, "}")) return true;
    p->at = start;
    return false;
}

static regex parse_repeat(parser *p, regex atom) {
    uint32_t min = 0, max = GRAMMAR_NO_BOUND;
    if (take(p, "?"))
        max = 1;
    else if (take(p, "+"))
        min = 1;
    else if (!take(p, "*") && !take_braces(p, &min, &max))
        return atom;
    take(p, "?"); /* as few as possible: the same texts */
    if (max < min) return wrong(p, "repetition with a maximum below its minimum");
    char c = peek(p);
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
    while (!failed(p) && p->at < p->end && peek(p) != '|' && peek(p) != ')')
        add_item(p, &all, parse_repeat(p, parse_atom(p)));
    regex sequence = failed(p) ? REGEX_NEVER : REGEX_EMPTY;
    while (all.n > 0 && !failed(p)) sequence = regex_then(p->pool, all.list[--all.n], sequence);
    mem_free(all.list);
    return sequence;
}

static regex parse_choice(parser *p) {
    items all = {.n = 0};
    do add_item(p, &all, parse_sequence(p));
    while (!failed(p) && take(p, "|"));
    regex choice = failed(p) ? REGEX_NEVER : regex_choice(p->pool, all.list, all.n);
    mem_free(all.list);
    return choice;
}

regex schema_pattern(regex_pool *pool, const char *pattern, size_t n, bool *malformed,
                     const char **why) {
    parser p = {.pool = pool, .at = pattern, .end = pattern + n};
    regex all = memchr(pattern, 0, n) ? refuse(&p, "NUL") : parse_choice(&p);
    if (!failed(&p) && p.at < p.end) wrong(&p, "unexpected )");
    mem_free(p.ranges);
    *malformed = p.malformed;
    *why = p.why;
    return failed(&p) ? REGEX_NEVER : all;
}
