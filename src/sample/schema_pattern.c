/* schema_pattern.c: regular expressions of ECMA-262, as far as they are regular: no assertions but
 * ^ and $ at the ends, no back references.
 *
 *     pattern = alternative { "|" alternative }        with ^ and $ at its ends
 *     choice  = sequence { "|" sequence }
 *     atom    = character | . | \escape | [class] | "(" [ ?: | ?<name> ] choice ")"
 *
 * A pattern that is not anchored may be found anywhere: any characters stand before and after. */
#include <string.h>

#include "hex_digit.h"
#include "schema.h"
#include "utf8.h"

enum { CLASS_MAX = 512, PATTERN_MAX_DEPTH = 48 }; /* ranges of a class; groups */

/* What was parsed: texts, and how many characters they have. */
typedef struct parsed {
    grammar_node *node;
    uint32_t least, most; /* GRAMMAR_NO_BOUND: any number */
} parsed;

typedef struct parser {
    schema_compiler *c;
    grammar_tree *t;
    const char *at, *end;
    int depth;
} parser;

typedef struct char_set {
    grammar_range ranges[CLASS_MAX];
    size_t n;
} char_set;

static parsed none(parser *p) {
    return (parsed){grammar_text(p->t, ""), 0, 0};
}

static parsed refuse(parser *p, const char *what) {
    return (parsed){schema_unsupported(p->c, "pattern", what), 0, 0};
}

static parsed wrong(parser *p, const char *what) {
    return (parsed){grammar_fail(p->t, PI_ERR_FORMAT, "JSON Schema: pattern: %s", what), 0, 0};
}

static bool failed(const parser *p) {
    return p->t->status != PI_OK;
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

static uint32_t add_counts(uint32_t a, uint32_t b) {
    uint64_t sum = (uint64_t)a + b;
    bool endless = a == GRAMMAR_NO_BOUND || b == GRAMMAR_NO_BOUND;
    return endless || sum >= GRAMMAR_NO_BOUND ? GRAMMAR_NO_BOUND : (uint32_t)sum;
}

static uint32_t times_counts(uint32_t a, uint32_t b) {
    uint64_t product = (uint64_t)a * b;
    if (a == 0 || b == 0) return 0;
    bool endless = a == GRAMMAR_NO_BOUND || b == GRAMMAR_NO_BOUND;
    return endless || product >= GRAMMAR_NO_BOUND ? GRAMMAR_NO_BOUND : (uint32_t)product;
}

/* ---- characters ------------------------------------------------------------------------------ */

static void put_range(parser *p, char_set *set, uint32_t first, uint32_t last) {
    if (set->n == CLASS_MAX)
        grammar_fail(p->t, PI_ERR_LIMIT, "JSON Schema: pattern: class of more than %d ranges",
                     CLASS_MAX);
    else
        set->ranges[set->n++] = (grammar_range){first, last};
}

/* \d \w \s and their opposites. */
static bool put_named(parser *p, char_set *set, char name) {
    static const grammar_range digits[] = {{'0', '9'}};
    static const grammar_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const grammar_range spaces[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const grammar_range *r = digits;
    size_t n = 1;
    char low = (char)(name | 0x20);
    if (low == 'w') {
        r = words;
        n = sizeof words / sizeof *words;
    } else if (low == 's') {
        r = spaces;
        n = sizeof spaces / sizeof *spaces;
    } else if (low != 'd') {
        return false;
    }
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (name == low) put_range(p, set, r[i].first, r[i].last);
        if (name != low && r[i].first > next) put_range(p, set, next, r[i].first - 1);
        next = r[i].last + 1;
    }
    if (name != low) put_range(p, set, next, GRAMMAR_CODE_POINTS - 1);
    return true;
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
    if (c == 'u') {
        uint32_t value = take_hex(p, 4);
        if (value >= 0xd800 && value <= 0xdfff) refuse(p, "surrogates");
        return value;
    }
    if (c == 'b' && in_class) {
        p->at++;
        return '\b';
    }
    bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word) refuse(p, "this kind of escape");
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

static parsed one_of(parser *p, const char_set *set, bool negated) {
    return (parsed){schema_characters(p->t, set->ranges, set->n, negated), 1, 1};
}

static bool begins_named(const parser *p) {
    return p->end - p->at > 1 && p->at[0] == '\\' && strchr("dDwWsS", p->at[1]);
}

static parsed parse_class(parser *p) {
    char_set set = {.n = 0};
    bool negated = take(p, "^");
    while (!failed(p) && peek(p) != ']') {
        if (p->at >= p->end) return wrong(p, "class without its closing ]");
        if (begins_named(p)) {
            put_named(p, &set, p->at[1]);
            p->at += 2;
            continue;
        }
        uint32_t first = take_char(p, true), last = first;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (begins_named(p)) return wrong(p, "range that ends with a class");
            last = take_char(p, true);
        }
        if (last < first) return wrong(p, "range that ends before it begins");
        put_range(p, &set, first, last);
    }
    p->at++;
    return one_of(p, &set, negated);
}

/* ---- structure ------------------------------------------------------------------------------- */

static parsed parse_choice(parser *p);

static parsed parse_group(parser *p) {
    if (take(p, "?")) {
        if (take(p, "<") && peek(p) != '=' && peek(p) != '!') {
            while (p->at < p->end && *p->at != '>') p->at++;
            if (!take(p, ">")) return wrong(p, "group whose name does not end");
        } else if (!take(p, ":")) {
            return refuse(p, "assertions and flags");
        }
    }
    if (++p->depth > PATTERN_MAX_DEPTH)
        return (parsed){grammar_fail(p->t, PI_ERR_LIMIT,
                                     "JSON Schema: pattern: nested too deeply: at most %d groups",
                                     PATTERN_MAX_DEPTH),
                        0, 0};
    parsed inside = parse_choice(p);
    p->depth--;
    if (!failed(p) && !take(p, ")")) return wrong(p, "group without its closing )");
    return inside;
}

static parsed parse_atom(parser *p) {
    static const grammar_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    char_set set = {.n = 0};
    char c = peek(p);
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return (parsed){schema_characters(p->t, lines, 3, true), 1, 1};
    if (begins_named(p)) {
        put_named(p, &set, p->at[1]);
        p->at += 2;
        return one_of(p, &set, false);
    }
    if (c == '^' || c == '$') return refuse(p, "^ and $ inside");
    if (c == '*' || c == '+' || c == '?') return wrong(p, "repetition of nothing");
    uint32_t code = take_char(p, false);
    put_range(p, &set, code, code);
    return one_of(p, &set, false);
}

static bool take_number(parser *p, uint32_t *out) {
    const char *start = p->at;
    uint32_t value = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        if (value <= GRAMMAR_MAX_REPEAT) value = value * 10 + (uint32_t)(*p->at - '0');
    }
    if (value > GRAMMAR_MAX_REPEAT)
        grammar_fail(p->t, PI_ERR_LIMIT, "JSON Schema: pattern: more than %d repetitions",
                     GRAMMAR_MAX_REPEAT);
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

static parsed parse_repeat(parser *p, parsed atom) {
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
    return (parsed){grammar_repeat(p->t, atom.node, min, max), times_counts(atom.least, min),
                    times_counts(atom.most, max)};
}

/* A `$` that ends the pattern is left to the caller, if he wants to know. */
static parsed parse_sequence(parser *p, bool *ends) {
    parsed all = {grammar_seq(p->t), 0, 0};
    bool any = false;
    while (!failed(p) && p->at < p->end && peek(p) != '|' && peek(p) != ')') {
        if (ends && peek(p) == '$' && (p->at + 1 == p->end || p->at[1] == '|')) {
            p->at++;
            *ends = true;
            break;
        }
        parsed item = parse_repeat(p, parse_atom(p));
        grammar_add(p->t, all.node, item.node);
        all.least = add_counts(all.least, item.least);
        all.most = add_counts(all.most, item.most);
        any = true;
    }
    return any ? all : none(p);
}

static void add_choice(parser *p, parsed *all, parsed one, bool first) {
    grammar_add(p->t, all->node, one.node);
    if (first || one.least < all->least) all->least = one.least;
    if (first || one.most > all->most) all->most = one.most;
}

static parsed parse_choice(parser *p) {
    parsed all = {grammar_alt(p->t), 0, 0};
    bool first = true;
    do {
        add_choice(p, &all, parse_sequence(p, NULL), first);
        first = false;
    } while (!failed(p) && take(p, "|"));
    return all;
}

/* Any characters, before or after what is not anchored. */
static void add_any(parser *p, grammar_node *seq) {
    grammar_add(p->t, seq, grammar_repeat(p->t, schema_any_character(p->c), 0, GRAMMAR_NO_BOUND));
}

static parsed parse_alternative(parser *p) {
    bool begins = take(p, "^"), ends = false;
    parsed inside = parse_sequence(p, &ends);
    parsed all = {grammar_seq(p->t), inside.least, inside.most};
    if (!begins) add_any(p, all.node);
    grammar_add(p->t, all.node, inside.node);
    if (!ends) add_any(p, all.node);
    if (!begins || !ends) all.most = GRAMMAR_NO_BOUND;
    return all;
}

grammar_node *schema_pattern(schema_compiler *c, const char *pattern, size_t n, uint32_t *least,
                             uint32_t *most) {
    parser p = {.c = c, .t = c->t, .at = pattern, .end = pattern + n};
    parsed all = {grammar_alt(c->t), 0, 0};
    bool first = true;
    if (memchr(pattern, 0, n)) return refuse(&p, "NUL").node;
    do {
        add_choice(&p, &all, parse_alternative(&p), first);
        first = false;
    } while (!failed(&p) && take(&p, "|"));
    if (!failed(&p) && p.at < p.end) wrong(&p, "unexpected )");
    *least = all.least;
    *most = all.most;
    return failed(&p) ? grammar_never() : all.node;
}
