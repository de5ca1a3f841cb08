/* schema_number.c: numbers within bounds.
 *
 * A number is written as whole digits, and a fraction if it may have one; the exponent is for
 * numbers without bounds. Within bounds, digits are compared with those of the bound one by one: as
 * long as they are equal to the lower (upper) bound's, the next one may not be smaller (larger).
 * Numbers have at most SCHEMA_DIGITS digits, so that a reader's rounding does not move them across
 * a bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema.h"

enum { PLACES = 24 }; /* digits of a bound behind the point that are looked at: see bound_set */

/* |bound|, by its digits. */
typedef struct bound {
    bool given, exclusive, negative;
    char whole[PLACES],
        fraction[PLACES + 1]; /* without leading / trailing zeros; whole may be "0" */
} bound;

typedef struct numbers {
    schema_compiler *c;
    uint32_t places; /* digits allowed behind the point */
} numbers;

static grammar_node *digit(numbers *n, char first, char last) {
    grammar_range r = {(uint32_t)first, (uint32_t)last};
    return grammar_class(n->c->t, &r, 1, false);
}

static grammar_node *any_digits(numbers *n, uint32_t min, uint32_t max) {
    return grammar_repeat(n->c->t, digit(n, '0', '9'), min, max);
}

/* ---- digits ---------------------------------------------------------------------------------- */

/* Digits `at` to `end` and what follows them; low and high: the bounds that the digits so far are
 * equal to, NULL: none. */
typedef grammar_node *digits_from(numbers *n, const bound *low, const bound *high, size_t at,
                                  size_t end);

/* Digit `at`, and those that `rest` gives after it. */
typedef struct digit_place {
    digits_from *rest;
    size_t at, end;
} digit_place;

/* A digit of least..most and what follows it: after least, the digit of `low`, that bound counts
 * still, after most, the digit of `high`, that one. */
static grammar_node *digits_between(numbers *n, const bound *low, const bound *high, char least,
                                    char most, digit_place p) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    for (char first = least, last; first <= most; first = (char)(last + 1)) {
        const bound *below = first == least ? low : NULL;
        last = below ? first : high && first < most ? (char)(most - 1) : most;
        const bound *above = last == most ? high : NULL;
        grammar_node *rest = p.rest(n, below, above, p.at + 1, p.end);
        grammar_add(t, choice, grammar_pair(t, digit(n, first, last), rest));
    }
    return choice;
}

/* ---- behind the point ------------------------------------------------------------------------ */

/* Whether a number may end after `at` digits of the fraction. */
static bool may_end(const bound *low, const bound *high, size_t at) {
    bool above = !low || (at >= strlen(low->fraction) && !low->exclusive);
    bool below = !high || at < strlen(high->fraction) || !high->exclusive;
    return above && below;
}

static grammar_node *fraction_from(numbers *n, const bound *low, const bound *high, size_t at,
                                   size_t places) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    if (at > 0 && may_end(low, high, at)) grammar_add(t, choice, grammar_text(t, ""));
    if (at >= places) return choice;
    if (!low && !high) return any_digits(n, at ? 0 : 1, (uint32_t)(places - at));
    char least = low && at < strlen(low->fraction) ? low->fraction[at] : '0', most = '9';
    if (high) most = at < strlen(high->fraction) ? high->fraction[at] : '0';
    digit_place place = {fraction_from, at, places};
    grammar_add(t, choice, digits_between(n, low, high, least, most, place));
    return choice;
}

/* After all whole digits: the end, or a point and what follows. */
static grammar_node *fraction(numbers *n, const bound *low, const bound *high, size_t n_whole) {
    grammar_tree *t = n->c->t;
    grammar_node *choice = grammar_alt(t);
    size_t room = n_whole < SCHEMA_DIGITS ? SCHEMA_DIGITS - n_whole : 0;
    size_t places = n->places < room ? n->places : room;
    if (may_end(low, high, 0)) grammar_add(t, choice, grammar_text(t, ""));
    if (places == 0) return choice;
    grammar_node *rest = fraction_from(n, low, high, 0, places);
    grammar_add(t, choice, grammar_pair(t, grammar_text(t, "."), rest));
    return choice;
}

/* ---- before the point ------------------------------------------------------------------------ */

/* Both bounds are as long as the number. */
static grammar_node *whole_from(numbers *n, const bound *low, const bound *high, size_t at,
                                size_t n_whole) {
    grammar_tree *t = n->c->t;
    if (at == n_whole) return fraction(n, low, high, n_whole);
    char zero = at == 0 && n_whole > 1 ? '1' : '0';
    if (!low && !high) {
        uint32_t rest = (uint32_t)(n_whole - at - (at == 0));
        grammar_node *all = grammar_seq(t);
        if (at == 0) grammar_add(t, all, digit(n, zero, '9'));
        grammar_add(t, all, any_digits(n, rest, rest));
        grammar_add(t, all, fraction(n, NULL, NULL, n_whole));
        return all;
    }
    char least = low ? low->whole[at] : zero, most = high ? high->whole[at] : '9';
    return digits_between(n, low, high, least, most, (digit_place){whole_from, at, n_whole});
}

/* Numbers >= 0, without a sign, from |low| to |high|; NULL: no bound. */
static grammar_node *positive(numbers *n, const bound *low, const bound *high) {
    grammar_node *choice = grammar_alt(n->c->t);
    size_t from = low ? strlen(low->whole) : 1, to = high ? strlen(high->whole) : SCHEMA_DIGITS;
    for (size_t length = from; length <= to && length <= SCHEMA_DIGITS; length++) {
        grammar_add(n->c->t, choice,
                    whole_from(n, low && length == from ? low : NULL,
                               high && length == to ? high : NULL, 0, length));
    }
    return choice;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* A bound of more whole digits than a number has bounds nothing, or leaves nothing. One of more
 * places than numbers have is moved to the next place inwards: numbers do not come closer. */
static void bound_set(bound *b, double value, bool exclusive) {
    char text[400];
    memset(b, 0, sizeof *b);
    b->given = true;
    b->exclusive = exclusive;
    b->negative = value < 0;
    snprintf(text, sizeof text, "%.*f", SCHEMA_DIGITS + 2, fabs(value));
    size_t n_whole = strspn(text, "0123456789");
    size_t keep = n_whole < PLACES ? n_whole : PLACES - 1;
    memcpy(b->whole, text, keep);
    memcpy(b->fraction, text + n_whole + 1, SCHEMA_DIGITS + 2);
    for (size_t i = strlen(b->fraction); i > 0 && b->fraction[i - 1] == '0'; i--)
        b->fraction[i - 1] = '\0';
}

/* Digits of a double beyond the 15th are noise of its binary form: 0.1 is 0.1. */
static double rounded(double value) {
    char text[40];
    snprintf(text, sizeof text, "%.*g", SCHEMA_DIGITS, value);
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
            if (exclusive && json_as_bool(node, &old)) { /* draft 4: a word about the other one */
                if (old) schema_unsupported(c, strict, "give a number");
                continue;
            }
            if (!json_as_double(node, &value)) {
                grammar_fail(c->t, PI_ERR_FORMAT, "JSON Schema: %s is not a number",
                             exclusive ? strict : plain);
                return;
            }
            value = rounded(value);
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

/* 1, 0.1, 0.01 ... as a number of places; -1: something else. */
static int places_of(const json_node *node) {
    double value;
    char text[40];
    if (!json_as_double(node, &value)) return -1;
    for (int places = 0; places < SCHEMA_DIGITS; places++) {
        snprintf(text, sizeof text, "1e-%d", places);
        if (strtod(text, NULL) == value) return places;
    }
    return -1;
}

static grammar_node *unbounded(numbers *n, bool integer) {
    grammar_tree *t = n->c->t;
    static const grammar_range signs[] = {{'+', '+'}, {'-', '-'}}, es[] = {{'E', 'E'}, {'e', 'e'}};
    grammar_node *all = grammar_seq(t);
    grammar_add(t, all, grammar_optional(t, grammar_text(t, "-")));
    grammar_add(t, all, positive(n, NULL, NULL));
    if (integer || n->places < SCHEMA_DIGITS) return all;
    grammar_node *exponent = grammar_seq(t);
    grammar_add(t, exponent, grammar_class(t, es, 2, false));
    grammar_add(t, exponent, grammar_optional(t, grammar_class(t, signs, 2, false)));
    grammar_add(t, exponent, any_digits(n, 1, 2));
    grammar_add(t, all, grammar_optional(t, exponent));
    return all;
}

grammar_node *schema_number(schema_compiler *c, const schema_set *set, bool integer) {
    numbers n = {c, integer ? 0 : SCHEMA_DIGITS};
    bound low, high;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *multiple = schema_get(set, i, "multipleOf");
        int places = multiple ? places_of(multiple) : SCHEMA_DIGITS;
        if (places < 0) return schema_unsupported(c, "multipleOf", "only 1, 0.1, 0.01 and so on");
        if ((uint32_t)places < n.places) n.places = (uint32_t)places;
    }
    read_bound(c, set, 1, &low);
    read_bound(c, set, -1, &high);
    if (!low.given && !high.given) return unbounded(&n, integer);
    if (low.given && high.given && is_zero(&low) && is_zero(&high) &&
        (low.exclusive || high.exclusive))
        return grammar_never();
    return bounded(&n, &low, &high);
}
