/* schema_regex_narrow.c: limits lengths without counting. An expression with a length needs a state
 * for each pair of a text position and a position in the expression. Where there are too many
 * states, unbounded repetitions get bounds instead, until all texts are short enough. */
#include "schema_regex.h"

/* r with its unbounded repetitions limited to n. */
static regex shorten(regex_pool *p, regex r, uint32_t n) {
    const regex_node x = *regex_get(p, r);
    if (p->status != PI_OK || x.most != GRAMMAR_NO_BOUND) return r;
    switch (x.kind) {
    case REGEX_IS_SEQUENCE: {
        regex first = shorten(p, x.a, n);
        return regex_then(p, first, shorten(p, x.b, n));
    }
    case REGEX_IS_CHOICE: {
        regex first = shorten(p, x.a, n);
        return regex_or(p, first, shorten(p, x.b, n));
    }
    case REGEX_IS_REPEAT: {
        uint32_t most = x.max == GRAMMAR_NO_BOUND ? (n > x.min ? n : x.min) : x.max;
        return regex_repeat(p, shorten(p, x.a, n), x.min, most);
    }
    default:
        return r;
    }
}

/* A class repeated within bounds; it contains all texts of r. */
static bool find_run(const regex_pool *p, regex r, const grammar_node **set, uint32_t *min,
                     uint32_t *max) {
    const regex_node *x = regex_get(p, r);
    if (x->kind == REGEX_IS_SEQUENCE && regex_get(p, x->b)->nullable) x = regex_get(p, x->a);
    if (x->kind != REGEX_IS_REPEAT || regex_get(p, x->a)->kind != REGEX_IS_CLASS) return false;
    *set = regex_get(p, x->a)->set;
    *min = x->min;
    *max = x->max;
    return true;
}

static bool covers(const grammar_node *set, const grammar_node *part) {
    size_t at = 0;
    for (size_t i = 0; i < part->n; i++) {
        while (at < set->n && set->ranges[at].last < part->ranges[i].last) at++;
        if (at == set->n || set->ranges[at].first > part->ranges[i].first) return false;
    }
    return true;
}

/* Whether all characters of r are in the set. */
static bool is_within(const regex_pool *p, regex r, const grammar_node *set) {
    const regex_node *x = regex_get(p, r);
    switch (x->kind) {
    case REGEX_IS_EMPTY:
        return true;
    case REGEX_IS_CLASS:
        return covers(set, x->set);
    case REGEX_IS_REPEAT:
        return is_within(p, x->a, set);
    case REGEX_IS_SEQUENCE:
    case REGEX_IS_CHOICE:
        return is_within(p, x->a, set) && is_within(p, x->b, set);
    default:
        return false;
    }
}

/* For the intersection of `run`, a length, and `other`: returns `other` with bounds that fit. */
static regex fit(regex_pool *p, regex run, regex other) {
    const grammar_node *set;
    uint32_t min, max;
    if (!find_run(p, run, &set, &min, &max) || !is_within(p, other, set)) return REGEX_NEVER;
    uint32_t n = max;
    regex fitting = other;
    while (p->status == PI_OK && regex_get(p, fitting)->most > max && n > 0) {
        fitting = shorten(p, other, n);
        n /= 2;
    }
    const regex_node *x = regex_get(p, fitting);
    return p->status == PI_OK && x->least >= min && x->most <= max ? fitting : REGEX_NEVER;
}

regex regex_narrow(regex_pool *p, regex r) {
    const regex_node x = *regex_get(p, r);
    if (p->status != PI_OK || x.kind != REGEX_IS_BOTH) return REGEX_NEVER;
    regex rest = regex_get(p, x.b)->kind == REGEX_IS_BOTH ? regex_narrow(p, x.b) : x.b;
    if (rest == REGEX_NEVER) return REGEX_NEVER;
    regex fitting = fit(p, x.a, rest);
    return fitting != REGEX_NEVER ? fitting : fit(p, rest, x.a);
}
