/* schema_regex_emit.c: expressions as rules of a grammar. Expressions without intersection and
 * complement are translated directly, with counted repetitions. In other expressions each
 * derivative becomes a rule: a character, then the rule of the derivative by this character. */
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "schema_regex.h"

enum { INTERVALS_MAX = 1 << 16 };

/* Code points from `first` up to the next interval belong to the same classes; `kind` is equal for
 * intervals that no class of the pool distinguishes. */
typedef struct interval {
    uint32_t first, kind;
} interval;

typedef struct emitter {
    regex_pool *p;
    grammar_tree *t;
    interval *intervals; /* [n_intervals] ascending, from code point 0 on */
    size_t n_intervals, intervals_capacity;
    uint32_t *samples; /* [n_kinds] one code point of each */
    size_t n_kinds;
    regex *targets; /* [n_kinds] derivatives of a state */
    int32_t *rules; /* [n_rules] by expression: its rule, or that of a class; -1: none */
    size_t n_rules, rules_capacity;
    regex *states; /* [n_states] expressions that have rules; the rules from `next` on have no body
                      yet */
    size_t n_states, next, states_capacity;
} emitter;

static bool failed(const emitter *e) {
    return e->p->status != PI_OK || e->t->status != PI_OK;
}

static void no_memory(emitter *e) {
    regex_fail(e->p, PI_ERR_NOMEM, "out of memory");
}

/* ---- direct translation ---------------------------------------------------------------------- */

static grammar_node *plain(emitter *e, regex r) {
    grammar_tree *t = e->t;
    const regex_node x = *regex_get(e->p, r);
    grammar_node *all;
    switch (x.kind) {
    case REGEX_IS_EMPTY:
        return grammar_text(t, "");
    case REGEX_IS_CLASS:
        return r == REGEX_CHAR ? schema_any_character(e->p->c)
                               : schema_characters(t, x.set->ranges, x.set->n, false);
    case REGEX_IS_SEQUENCE:
    case REGEX_IS_CHOICE:
        all = x.kind == REGEX_IS_SEQUENCE ? grammar_seq(t) : grammar_alt(t);
        for (; regex_get(e->p, r)->kind == x.kind && !failed(e); r = regex_get(e->p, r)->b)
            grammar_add(t, all, plain(e, regex_get(e->p, r)->a));
        grammar_add(t, all, plain(e, r));
        return all;
    case REGEX_IS_REPEAT:
        return grammar_repeat(t, plain(e, x.a), x.min, x.max);
    default:
        return grammar_never();
    }
}

/* ---- intervals ------------------------------------------------------------------------------- */

static int by_first(const void *a, const void *b) {
    uint32_t x = ((const interval *)a)->first, y = ((const interval *)b)->first;
    return (x > y) - (x < y);
}

static void add_interval(emitter *e, uint32_t first) {
    if (first >= GRAMMAR_CODE_POINTS || failed(e)) return;
    if (e->n_intervals == INTERVALS_MAX)
        regex_fail(e->p, PI_ERR_LIMIT, "too large");
    else if (mem_grow((void **)&e->intervals, &e->intervals_capacity, e->n_intervals + 1,
                      sizeof *e->intervals, INTERVALS_MAX))
        e->intervals[e->n_intervals++] = (interval){.first = first};
    else
        no_memory(e);
}

/* Gives intervals that no class distinguishes the same kind: each class splits the kinds. */
static void find_kinds(emitter *e, size_t n_nodes) {
    uint32_t *split = mem_calloc(e->n_intervals, sizeof *split); /* the kind of those inside */
    e->n_kinds = 1;
    if (!split) no_memory(e);
    for (size_t k = 0; k < n_nodes && !failed(e); k++) {
        const regex_node *node = regex_get(e->p, (regex)k);
        if (node->kind != REGEX_IS_CLASS) continue;
        size_t before = e->n_kinds, at = 0;
        bool *inside = mem_calloc(2 * before + e->n_intervals, sizeof *inside);
        if (!inside) {
            no_memory(e);
            break;
        }
        bool *some_in = inside + e->n_intervals, *some_out = some_in + before;
        for (size_t i = 0; i < e->n_intervals; i++) {
            while (at < node->set->n && node->set->ranges[at].last < e->intervals[i].first) at++;
            inside[i] = at < node->set->n && node->set->ranges[at].first <= e->intervals[i].first;
            *(inside[i] ? &some_in[e->intervals[i].kind] : &some_out[e->intervals[i].kind]) = true;
        }
        for (size_t i = 0; i < before; i++)
            split[i] = some_in[i] && some_out[i] ? (uint32_t)e->n_kinds++ : (uint32_t)i;
        for (size_t i = 0; i < e->n_intervals; i++)
            if (inside[i]) e->intervals[i].kind = split[e->intervals[i].kind];
        mem_free(inside);
    }
    mem_free(split);
}

/* The classes of the pool divide the code points into intervals. Derivatives add no intervals:
 * their classes are unions of these. */
static void find_intervals(emitter *e) {
    size_t n_nodes = e->p->n, n = 0;
    add_interval(e, 0);
    for (size_t i = 0; i < n_nodes && !failed(e); i++) {
        const regex_node *node = regex_get(e->p, (regex)i);
        for (size_t k = 0; node->kind == REGEX_IS_CLASS && k < node->set->n; k++) {
            add_interval(e, node->set->ranges[k].first);
            add_interval(e, node->set->ranges[k].last + 1);
        }
    }
    if (failed(e)) return;
    qsort(e->intervals, e->n_intervals, sizeof *e->intervals, by_first);
    for (size_t i = 0; i < e->n_intervals; i++)
        if (n == 0 || e->intervals[n - 1].first != e->intervals[i].first)
            e->intervals[n++] = e->intervals[i];
    e->n_intervals = n;
    find_kinds(e, n_nodes);
    e->samples = mem_calloc(e->n_kinds, sizeof *e->samples);
    e->targets = mem_calloc(e->n_kinds, sizeof *e->targets);
    if (!e->samples || !e->targets) {
        no_memory(e);
        return;
    }
    for (size_t i = e->n_intervals; i-- > 0;)
        e->samples[e->intervals[i].kind] = e->intervals[i].first;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Pointer to the rule of an expression; NULL: no memory. */
static int32_t *rule_place(emitter *e, regex r) {
    size_t n = (size_t)r + 1;
    if (n > e->n_rules) {
        if (!mem_grow((void **)&e->rules, &e->rules_capacity, n, sizeof *e->rules,
                      REGEX_MAX_NODES)) {
            no_memory(e);
            return NULL;
        }
        while (e->n_rules < n) e->rules[e->n_rules++] = -1;
    }
    return &e->rules[r];
}

static grammar_node *state(emitter *e, regex r) {
    int32_t *rule = rule_place(e, r);
    if (!rule) return grammar_never();
    if (*rule < 0) {
        *rule = grammar_rule_new(e->t, "characters");
        if (*rule < 0) return grammar_never();
        if (!mem_grow((void **)&e->states, &e->states_capacity, e->n_states + 1, sizeof *e->states,
                      REGEX_MAX_NODES)) {
            no_memory(e);
            return grammar_never();
        }
        e->states[e->n_states++] = r;
    }
    return grammar_ref(e->t, *rule);
}

/* A character of the kinds that lead to `target`; it is a rule because many states share it. */
static grammar_node *characters(emitter *e, regex target) {
    grammar_range *ranges = mem_calloc(e->n_intervals, sizeof *ranges);
    size_t n = 0;
    if (!ranges) {
        no_memory(e);
        return grammar_never();
    }
    for (size_t i = 0; i < e->n_intervals; i++) {
        uint32_t end = i + 1 < e->n_intervals ? e->intervals[i + 1].first : GRAMMAR_CODE_POINTS;
        if (e->targets[e->intervals[i].kind] == target)
            ranges[n++] = (grammar_range){e->intervals[i].first, end - 1};
    }
    regex set = regex_class(e->p, ranges, n, false);
    mem_free(ranges);
    int32_t *rule = failed(e) ? NULL : rule_place(e, set);
    if (!rule) return grammar_never();
    const regex_node *node = regex_get(e->p, set);
    if (*rule < 0) {
        *rule = grammar_rule_new(e->t, "character");
        if (*rule < 0) return grammar_never();
        e->t->rules[*rule].body = schema_characters(e->t, node->set->ranges, node->set->n, false);
    }
    return grammar_ref(e->t, *rule);
}

static grammar_node *transitions(emitter *e, regex r) {
    grammar_node *choice = grammar_alt(e->t);
    if (regex_get(e->p, r)->nullable) grammar_add(e->t, choice, grammar_text(e->t, ""));
    for (size_t k = 0; k < e->n_kinds; k++) e->targets[k] = regex_after(e->p, r, e->samples[k]);
    for (size_t k = 0; k < e->n_kinds && !failed(e); k++) {
        bool seen = e->targets[k] == REGEX_NEVER;
        for (size_t i = 0; i < k && !seen; i++) seen = e->targets[i] == e->targets[k];
        if (seen) continue;
        grammar_node *one = characters(e, e->targets[k]);
        grammar_add(e->t, choice, grammar_pair(e->t, one, state(e, e->targets[k])));
    }
    return choice;
}

static grammar_node *as_states(emitter *e, regex r, size_t max_states) {
    find_intervals(e);
    if (failed(e)) return NULL;
    grammar_node *start = state(e, r);
    for (; e->next < e->n_states && !failed(e); e->next++) {
        regex one = e->states[e->next];
        if (e->n_states > max_states) return NULL;
        grammar_node *body = regex_get(e->p, one)->sets ? transitions(e, one) : plain(e, one);
        e->t->rules[e->rules[one]].body = body;
    }
    return start;
}

grammar_node *regex_emit(regex_pool *p, regex r, size_t max_states) {
    emitter e = {.p = p, .t = p->c->t};
    grammar_node *node = NULL;
    if (p->status == PI_OK && !regex_get(p, r)->sets)
        node = plain(&e, r);
    else if (p->status == PI_OK)
        node = as_states(&e, r, max_states);
    bool good = p->status == PI_OK;
    for (; e.next < e.n_states; e.next++) /* unused rules after a failure */
        e.t->rules[e.rules[e.states[e.next]]].body = grammar_text(e.t, "");
    mem_free(e.intervals);
    mem_free(e.samples);
    mem_free(e.targets);
    mem_free(e.rules);
    mem_free(e.states);
    return good ? node : NULL;
}
