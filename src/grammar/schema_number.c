/* schema_number.c: numbers within bounds.
 *
 * A number has an integer part, and a fraction if the schema allows one; only numbers without
 * bounds have exponents. Within bounds, digits are compared with the digits of the bound one by
 * one: while they equal the digits of the lower (upper) bound, the next digit must not be smaller
 * (larger). Numbers have at most SCHEMA_DIGITS digits, or as many as the bound if it has more, so
 * that a reader's rounding does not move them across a bound.
 *
 * Multiples: the digits without the point form a number whose remainder is updated digit by digit.
 * Once no bound applies, the allowed continuation depends only on the remainder and the number of
 * digits left, and becomes a rule. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "schema.h"

enum {
    PLACES = 24,        /* digits of a bound that are examined: see bound_set */
    MULTIPLE_MAX = 100, /* each remainder is a rule */
    MULTIPLE_WHOLE =
        9 /* digits before the point of multiples of fractions, because readers divide doubles */
};

/* |bound|, as digits. */
typedef struct bound {
    bool given, exclusive, negative;
    char whole[PLACES],
        fraction[PLACES + 1]; /* without leading / trailing zeros; whole may be "0" */
} bound;

typedef struct numbers {
    schema_compiler *c;
    uint32_t places;   /* digits allowed after the point */
    size_t digits;     /* total digits of a number */
    uint32_t multiple; /* the digits up to place `exact` are a multiple of this; 1: any */
    size_t exact;
    int32_t *rules; /* [(digits + 1) * 2][multiple] rules of `freely`; -1: not created; NULL:
                       multiple is 1 */
} numbers;

static grammar_node *digit(numbers *n, char first, char last) {
    grammar_range r = {(uint32_t)first, (uint32_t)last};
    return grammar_class(n->c->t, &r, 1, false);
}

static grammar_node *any_digits(numbers *n, uint32_t min, uint32_t max) {
    return grammar_repeat(n->c->t, digit(n, '0', '9'), min, max);
}

/* ---- digits ---------------------------------------------------------------------------------- */

/* A position among the digits: `at` of `end`, before or after the point; left: the remainder of the
 * digits before it. */
typedef struct digit_at {
    size_t at, end;
    uint32_t left;
} digit_at;

/* Digits from a position on and the text after them; low and high: the bounds that the digits so
 * far equal, NULL: none. */
typedef grammar_node *digits_from(numbers *n, const bound *low, const bound *high, digit_at d);

static uint32_t next_left(const numbers *n, uint32_t left, char c) {
    return (left * 10 + (uint32_t)(c - '0')) % n->multiple;
}

/* A digit of least..most and the text after it. `low` still applies after `least`, its digit;
 * `high` still applies after `most`. */
static grammar_node *digits_between(numbers *n, const bound *low, const bound *high, char least,
                                    char most, digits_from *rest_from, digit_at d) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    for (char first = least, last; first <= most; first = (char)(last + 1)) {
        const bound *below = first == least ? low : NULL;
        last = below || n->multiple > 1 ? first : high && first < most ? (char)(most - 1) : most;
        const bound *above = last == most ? high : NULL;
        digit_at next = {d.at + 1, d.end, next_left(n, d.left, first)};
        grammar_node *rest = rest_from(n, below, above, next);
        grammar_add(t, choice, grammar_pair(t, digit(n, first, last), rest));
    }
    return choice;
}

/* Digits without a bound: one rule for each number of digits left and remainder. */
static grammar_node *freely(numbers *n, digits_from *from, size_t digits, bool behind, char least,
                            digit_at d) {
    int32_t *rule = &n->rules[(2 * digits + behind) * n->multiple + d.left];
    bool start = !behind && d.at == 0; /* the first digit is not 0: no shared rule */
    if (start) return digits_between(n, NULL, NULL, least, '9', from, d);
    if (*rule < 0) {
        int32_t made = grammar_rule_new(n->c->t, "digits");
        if (made < 0) return grammar_never();
        *rule = made;
        grammar_node *body = digits_between(n, NULL, NULL, least, '9', from, d);
        n->c->t->rules[made].body = body;
    }
    return grammar_ref(n->c->t, *rule);
}

/* ---- after the point ------------------------------------------------------------------------- */

/* Whether a number may end after `at` digits of the fraction. */
static bool may_end(const numbers *n, const bound *low, const bound *high, size_t at,
                    uint32_t left) {
    bool above = !low || (at >= strlen(low->fraction) && !low->exclusive);
    bool below = !high || at < strlen(high->fraction) || !high->exclusive;
    for (; at < n->exact && n->multiple > 1; at++) left = next_left(n, left, '0');
    return above && below && (n->multiple == 1 || left == 0);
}

static grammar_node *fraction_digits(numbers *n, const bound *low, const bound *high, digit_at d);

/* After d.at digits of the fraction: the end, or more digits. */
static grammar_node *fraction_from(numbers *n, const bound *low, const bound *high, digit_at d) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    if (d.at > 0 && may_end(n, low, high, d.at, d.left))
        grammar_add(t, choice, grammar_text(t, ""));
    if (d.at >= d.end) return choice;
    if (!low && !high && n->multiple == 1)
        return any_digits(n, d.at ? 0 : 1, (uint32_t)(d.end - d.at));
    grammar_add(t, choice, fraction_digits(n, low, high, d));
    return choice;
}

static grammar_node *fraction_digits(numbers *n, const bound *low, const bound *high, digit_at d) {
    if (!low && !high) return freely(n, fraction_from, d.end - d.at, true, '0', d);
    char least = low && d.at < strlen(low->fraction) ? low->fraction[d.at] : '0', most = '9';
    if (high) most = d.at < strlen(high->fraction) ? high->fraction[d.at] : '0';
    return digits_between(n, low, high, least, most, fraction_from, d);
}

/* After all whole digits: the end, or a point and a fraction. */
static grammar_node *fraction(numbers *n, const bound *low, const bound *high, size_t n_whole,
                              uint32_t left) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    size_t room = n_whole < n->digits ? n->digits - n_whole : 0;
    size_t places = n->places < room ? n->places : room;
    if (may_end(n, low, high, 0, left)) grammar_add(t, choice, grammar_text(t, ""));
    if (places == 0) return choice;
    grammar_node *rest = fraction_from(n, low, high, (digit_at){0, places, left});
    grammar_add(t, choice, grammar_pair(t, grammar_text(t, "."), rest));
    return choice;
}

/* ---- before the point ------------------------------------------------------------------------ */

/* For bounds with as many digits as the number. */
static grammar_node *whole_from(numbers *n, const bound *low, const bound *high, digit_at d) {
    grammar_tree *t = n->c->t;
    if (d.at == d.end) return fraction(n, low, high, d.end, d.left);
    char zero = d.at == 0 && d.end > 1 ? '1' : '0';
    if (!low && !high && n->multiple > 1)
        return freely(n, whole_from, d.end - d.at, false, zero, d);
    if (!low && !high) {
        uint32_t rest = (uint32_t)(d.end - d.at - (d.at == 0));
        grammar_node *all = grammar_seq(t);
        if (d.at == 0) grammar_add(t, all, digit(n, zero, '9'));
        grammar_add(t, all, any_digits(n, rest, rest));
        grammar_add(t, all, fraction(n, NULL, NULL, d.end, 0));
        return all;
    }
    char least = low ? low->whole[d.at] : zero, most = high ? high->whole[d.at] : '9';
    return digits_between(n, low, high, least, most, whole_from, d);
}

/* Numbers >= 0, without a sign, from |low| to |high|; NULL: no bound. */
static grammar_node *positive(numbers *n, const bound *low, const bound *high) {
    grammar_node *choice = grammar_alt(n->c->t);
    size_t from = low ? strlen(low->whole) : 1, to = high ? strlen(high->whole) : n->digits;
    size_t longest = n->multiple > 1 && n->exact ? MULTIPLE_WHOLE : n->digits;
    for (size_t length = from; length <= to && length <= longest; length++) {
        grammar_add(n->c->t, choice,
                    whole_from(n, low && length == from ? low : NULL,
                               high && length == to ? high : NULL, (digit_at){0, length, 0}));
    }
    return choice;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* A bound with more integer digits than a number has no effect, or excludes all numbers. A bound
 * with more decimal places than numbers moves inwards to the next number. */
static void bound_set(bound *b, double value, bool exclusive) {
    char text[400];
    memset(b, 0, sizeof *b);
    b->given = true;
    b->exclusive = exclusive;
    b->negative = value < 0;
    snprintf(text, sizeof text, "%.*f", SCHEMA_DIGITS + 2, fabs(value));
    /* After the 15th digit a large bound gets zeros, as in `rounded`, not the digits of its binary
     * form. */
    for (char *p = text + SCHEMA_DIGITS; fabs(value) >= 1e15 && *p && *p != '.'; p++) *p = '0';
    size_t n_whole = strspn(text, "0123456789");
    size_t keep = n_whole < PLACES ? n_whole : PLACES - 1;
    memcpy(b->whole, text, keep);
    memcpy(b->fraction, text + n_whole + 1, SCHEMA_DIGITS + 2);
    for (size_t i = strlen(b->fraction); i > 0 && b->fraction[i - 1] == '0'; i--)
        b->fraction[i - 1] = '\0';
}

/* Digits of a double beyond the 15th are noise of its binary form: 0.1 is 0.1. Large bounds, whose
 * digits are not noise, are rounded inwards: up when sign is 1. */
static double rounded(double value, int sign) {
    char text[40];
    snprintf(text, sizeof text, "%.*g", SCHEMA_DIGITS, value);
    double near = strtod(text, NULL);
    if (fabs(value) > 1e100) return value; /* larger than all numbers that the grammar writes */
    if (fabs(value) < 1e15 || sign * (near - value) >= 0) return near;
    double unit = pow(10, floor(log10(fabs(value))) - SCHEMA_DIGITS + 1);
    snprintf(text, sizeof text, "%.*g", SCHEMA_DIGITS, near + sign * unit);
    return strtod(text, NULL);
}

/* The strictest lower (sign 1) or upper (sign -1) bound. */
static void read_bound(schema_compiler *c, const schema_set *set, int sign, bound *out) {
    const char *plain = sign > 0 ? "minimum" : "maximum";
    const char *strict = sign > 0 ? "exclusiveMinimum" : "exclusiveMaximum";
    double best = 0;
    out->given = false;
    for (size_t i = 0; i < set->n; i++) {
        for (int exclusive = 0; exclusive < 2; exclusive++) {
            const json_node *node = schema_get(set, i, exclusive ? strict : plain);
            double value;
            bool old = false;
            if (!node) continue;
            if (exclusive && json_as_bool(node, &old)) { /* draft 4: modifies the other keyword */
                if (old) schema_widen(c, set->parts[i].node, strict, "give a number");
                continue;
            }
            if (!json_as_double(node, &value)) {
                schema_wrong(c, set->parts[i].node, exclusive ? strict : plain, "not a number");
                return;
            }
            value = rounded(value, sign);
            bool closer = !out->given || sign * (value - best) > 0 || (value == best && exclusive);
            if (!closer) continue;
            best = value;
            bound_set(out, value, exclusive);
        }
    }
}

static bool is_zero(const bound *b) {
    return strcmp(b->whole, "0") == 0 && !b->fraction[0];
}

/* Numbers from low to high with a sign where they are below zero. "-0" is left out. */
static grammar_node *bounded(numbers *n, bound *low, bound *high) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    bound zero;
    bound_set(&zero, 0, true);
    if (!high->given || !high->negative) { /* 0 and above */
        const bound *from = low->given && !low->negative ? low : NULL;
        grammar_add(t, choice, positive(n, from, high->given ? high : NULL));
    }
    if (!low->given || low->negative) { /* below 0 */
        const bound *from = high->given && high->negative ? high : &zero;
        grammar_node *below = positive(n, from, low->given ? low : NULL);
        grammar_add(t, choice, grammar_pair(t, grammar_text(t, "-"), below));
    }
    return choice;
}

static uint32_t common_divisor(uint32_t a, uint32_t b) {
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* value as multiple * 10^-places; false: it has no such form, or the multiple is too large. */
static bool find_multiple(double value, uint32_t *multiple, size_t *places) {
    char text[40];
    for (*places = 0; *places < SCHEMA_DIGITS - MULTIPLE_WHOLE && value > 0; ++*places) {
        snprintf(text, sizeof text, "%.*g", SCHEMA_DIGITS, value * pow(10, (double)*places));
        double scaled = strtod(text, NULL);
        if (scaled > MULTIPLE_MAX) return false;
        *multiple = (uint32_t)scaled;
        if (scaled >= 1 && scaled == floor(scaled)) return true;
    }
    return false;
}

/* The common multiple that all parts demand. */
static void read_multiples(const schema_set *set, numbers *n, bool integer) {
    for (size_t i = 0; i < set->n; i++) {
        const json_node *part = set->parts[i].node;
        double value;
        uint32_t multiple, common;
        size_t places;
        if (!json_get(part, "multipleOf")) continue;
        if (!json_as_double(json_get(part, "multipleOf"), &value) || value <= 0) {
            schema_wrong(n->c, part, "multipleOf", "not a number > 0");
            return;
        }
        for (places = 0; places < SCHEMA_DIGITS && rounded(pow(10, -(double)places), 0) != value;)
            places++;
        if (places < SCHEMA_DIGITS && n->multiple == 1) { /* limits the decimal places */
            if (places < n->places) n->places = (uint32_t)places;
            continue;
        }
        bool good = find_multiple(value, &multiple, &places);
        if (good && integer) { /* the multiples that are integers */
            multiple /= common_divisor(multiple, (uint32_t)lround(pow(10, (double)places)));
            places = 0;
        }
        common = good && n->multiple == 1 ? multiple
                 : good && places == n->exact
                     ? n->multiple / common_divisor(n->multiple, multiple) * multiple
                     : MULTIPLE_MAX + 1;
        if (common > MULTIPLE_MAX) {
            schema_widen(n->c, part, "multipleOf", "needs too many rules");
            continue;
        }
        n->multiple = common;
        n->exact = places;
        if (places < n->places) n->places = (uint32_t)places;
    }
}

static grammar_node *unbounded(numbers *n, bool integer) {
    grammar_tree *t = n->c->t;
    static const grammar_range signs[] = {{'+', '+'}, {'-', '-'}}, es[] = {{'E', 'E'}, {'e', 'e'}};
    grammar_node *all = grammar_seq(t);
    grammar_add(t, all, grammar_optional(t, grammar_text(t, "-")));
    grammar_add(t, all, positive(n, NULL, NULL));
    if (integer || n->places < SCHEMA_DIGITS || n->multiple > 1) return all;
    grammar_node *exponent = grammar_seq(t);
    grammar_add(t, exponent, grammar_class(t, es, 2, false));
    grammar_add(t, exponent, grammar_optional(t, grammar_class(t, signs, 2, false)));
    grammar_add(t, exponent, any_digits(n, 1, 2));
    grammar_add(t, all, grammar_optional(t, exponent));
    return all;
}

/* Maximum digits of a number: more than SCHEMA_DIGITS where all allowed numbers have more. */
static size_t digits_for(const bound *low, const bound *high) {
    size_t digits = SCHEMA_DIGITS, needed = 0;
    if (low->given && !low->negative) needed = strlen(low->whole);
    if (high->given && high->negative) needed = strlen(high->whole);
    return needed > digits && needed < PLACES - 1 ? needed : digits;
}

grammar_node *schema_number(schema_compiler *c, const schema_set *set, bool integer) {
    numbers n = {c, integer ? 0 : SCHEMA_DIGITS, SCHEMA_DIGITS, 1, 0, NULL};
    bound low, high;
    grammar_node *node;
    read_multiples(set, &n, integer);
    read_bound(c, set, 1, &low);
    read_bound(c, set, -1, &high);
    n.digits = digits_for(&low, &high);
    if (c->t->status == PI_OK && n.multiple > 1) {
        n.rules = mem_calloc(2 * (n.digits + 1) * n.multiple, sizeof *n.rules);
        if (!n.rules) grammar_no_memory(c->t);
        for (size_t i = 0; n.rules && i < 2 * (n.digits + 1) * n.multiple; i++) n.rules[i] = -1;
    }
    if (c->t->status != PI_OK)
        node = grammar_never();
    else if (!low.given && !high.given)
        node = unbounded(&n, integer);
    else if (low.given && high.given && is_zero(&low) && is_zero(&high) &&
             (low.exclusive || high.exclusive))
        node = grammar_never();
    else
        node = bounded(&n, &low, &high);
    mem_free(n.rules);
    return node;
}
