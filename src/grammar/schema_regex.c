/* schema_regex.c: creates expressions and their derivatives. Expressions have one normal form
 * (sequences and choices lean to the right, choices are sorted), so that an expression has few
 * different derivatives. */
#include "schema_regex.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "utf8.h"

/* Derivatives for all schemas of a grammar: about a second. */
#define REGEX_MAX_STEPS ((uint64_t)1 << 22)

enum { UNROLLED_MAX = 16 }; /* repetitions of a lookahead */

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

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* ---- the pool -------------------------------------------------------------------------------- */

regex regex_fail(regex_pool *p, pi_status status, const char *why) {
    if (p->status == PI_OK) {
        p->status = status;
        p->why = why;
    }
    return REGEX_NEVER;
}

const regex_node *regex_get(const regex_pool *p, regex r) {
    return &p->nodes[r];
}

static void *no_memory(regex_pool *p) {
    regex_fail(p, PI_ERR_NOMEM, "out of memory");
    return NULL;
}

/* The number of a node; extra[n_extra]: further values that identify it. */
static regex intern(regex_pool *p, regex_node node, const void *extra, size_t n_extra) {
    const uint32_t head[5] = {(uint32_t)node.kind, (uint32_t)node.a, (uint32_t)node.b, node.min,
                              node.max};
    if (p->status != PI_OK) return REGEX_NEVER;
    size_t n = sizeof head + n_extra;
    char *key = mem_alloc(n);
    if (!key) return regex_fail(p, PI_ERR_NOMEM, "out of memory");
    memcpy(key, head, sizeof head);
    if (n_extra) memcpy(key + sizeof head, extra, n_extra);
    uint32_t entry = text_table_find(&p->known, key, n);
    if (entry == TEXT_TABLE_NONE) {
        const char *copy = arena_strndup(&p->memory, key, n);
        if (p->n == REGEX_MAX_NODES || node.depth > REGEX_MAX_DEPTH)
            regex_fail(p, PI_ERR_LIMIT, "too large");
        else if (!copy || !mem_grow((void **)&p->nodes, &p->capacity, p->n + 1, sizeof *p->nodes,
                                    REGEX_MAX_NODES))
            no_memory(p);
        else
            entry = text_table_add(&p->known, copy, n);
        if (p->status == PI_OK && entry == TEXT_TABLE_NONE) no_memory(p);
        if (p->status == PI_OK) p->nodes[p->n++] = node;
    }
    mem_free(key);
    return p->status == PI_OK ? (regex)entry : REGEX_NEVER;
}

bool regex_pool_init(regex_pool *p, schema_compiler *c) {
    static const grammar_range all[] = {{0, GRAMMAR_CODE_POINTS - 1}};
    *p = (regex_pool){.c = c};
    arena_init(&p->memory);
    if (!text_table_init(&p->known, 64)) return false;
    intern(p, (regex_node){.kind = REGEX_IS_NEVER, .least = GRAMMAR_NO_BOUND, .depth = 1}, NULL, 0);
    intern(p, (regex_node){.kind = REGEX_IS_EMPTY, .nullable = true, .depth = 1}, NULL, 0);
    regex one = regex_class(p, all, 1, false);
    regex_repeat(p, one, 0, GRAMMAR_NO_BOUND);
    return p->status == PI_OK;
}

void regex_pool_free(regex_pool *p) {
    arena_free(&p->memory);
    text_table_free(&p->known);
    mem_free(p->nodes);
    *p = (regex_pool){.n = 0};
}

/* ---- creating -------------------------------------------------------------------------------- */

regex regex_class(regex_pool *p, const grammar_range *ranges, size_t n, bool negated) {
    if (p->status != PI_OK) return REGEX_NEVER;
    const grammar_node *set = grammar_class(p->c->t, ranges, n, negated);
    if (p->c->t->status != PI_OK) return regex_fail(p, p->c->t->status, "out of memory");
    if (set->kind == GRAMMAR_NEVER) return REGEX_NEVER;
    regex_node node = {.kind = REGEX_IS_CLASS, .set = set, .least = 1, .most = 1, .depth = 1};
    return intern(p, node, set->ranges, set->n * sizeof *set->ranges);
}

/* A length: a minimum to a maximum number of any characters. */
static bool is_length(const regex_pool *p, regex r, uint32_t *min, uint32_t *max) {
    const regex_node *node = &p->nodes[r];
    *min = *max = 1;
    if (r == REGEX_CHAR) return true;
    if (node->kind != REGEX_IS_REPEAT || node->a != REGEX_CHAR) return false;
    *min = node->min;
    *max = node->max;
    return true;
}

regex regex_then(regex_pool *p, regex a, regex b) {
    if (p->status != PI_OK || a == REGEX_NEVER || b == REGEX_NEVER) return REGEX_NEVER;
    if (a == REGEX_EMPTY) return b;
    if (b == REGEX_EMPTY) return a;
    const regex_node x = p->nodes[a], y = p->nodes[b];
    uint32_t least, most, more, even_more;
    if (is_length(p, a, &least, &most) && is_length(p, b, &more, &even_more))
        return regex_repeat(p, REGEX_CHAR, add_counts(least, more), add_counts(most, even_more));
    if (x.kind == REGEX_IS_SEQUENCE) return regex_then(p, x.a, regex_then(p, x.b, b));
    if (a == REGEX_ANY && y.kind == REGEX_IS_SEQUENCE && y.a == REGEX_ANY) return b;
    regex_node node = {.kind = REGEX_IS_SEQUENCE, .a = a, .b = b};
    node.nullable = x.nullable && y.nullable;
    node.looks = x.looks || y.looks;
    node.sets = x.sets || y.sets;
    node.least = add_counts(x.least, y.least);
    node.most = add_counts(x.most, y.most);
    node.depth = (x.depth > y.depth ? x.depth : y.depth) + 1;
    return intern(p, node, NULL, 0);
}

static int compare_numbers(const void *a, const void *b) {
    regex x = *(const regex *)a, y = *(const regex *)b;
    return (x > y) - (x < y);
}

/* Members of a chain of `kind`. */
typedef struct members {
    regex *items; /* [n] */
    size_t n, capacity;
} members;

static void add_member(regex_pool *p, members *m, regex r) {
    if (m->n == REGEX_MAX_LIST) {
        regex_fail(p, PI_ERR_LIMIT, "too large");
    } else if (mem_grow((void **)&m->items, &m->capacity, m->n + 1, sizeof *m->items,
                        REGEX_MAX_LIST)) {
        m->items[m->n++] = r;
    } else {
        no_memory(p);
    }
}

static void add_members(regex_pool *p, members *m, regex_kind kind, regex r) {
    for (; p->nodes[r].kind == kind; r = p->nodes[r].b) add_member(p, m, p->nodes[r].a);
    add_member(p, m, r);
}

/* The chain of sorted members, built from the last one. */
static regex chain(regex_pool *p, members *m, regex_kind kind, regex none) {
    if (m->n) qsort(m->items, m->n, sizeof *m->items, compare_numbers);
    regex all = none;
    for (size_t i = m->n; i-- > 0 && p->status == PI_OK;) {
        if (i + 1 < m->n && m->items[i] == m->items[i + 1]) continue;
        if (all == none) {
            all = m->items[i];
            continue;
        }
        const regex_node x = p->nodes[m->items[i]], y = p->nodes[all];
        bool or = kind == REGEX_IS_CHOICE;
        regex_node node = {.kind = kind, .a = m->items[i], .b = all};
        node.nullable = or ? x.nullable || y.nullable : x.nullable && y.nullable;
        node.looks = x.looks || y.looks;
        node.sets = x.sets || y.sets || ! or ;
        node.least = or ? smaller(x.least, y.least) : larger(x.least, y.least);
        node.most = or ? larger(x.most, y.most) : smaller(x.most, y.most);
        node.depth = (x.depth > y.depth ? x.depth : y.depth) + 1;
        all = intern(p, node, NULL, 0);
    }
    return all;
}

/* Joins the classes among the members. */
static void join_classes(regex_pool *p, members *m) {
    size_t n_ranges = 0, n = 0, n_classes = 0;
    for (size_t i = 0; i < m->n; i++) {
        const regex_node *node = &p->nodes[m->items[i]];
        n_classes += node->kind == REGEX_IS_CLASS;
        n_ranges += node->kind == REGEX_IS_CLASS ? node->set->n : 0;
    }
    if (n_classes < 2) return;
    grammar_range *all = mem_calloc(n_ranges, sizeof *all);
    if (!all) {
        no_memory(p);
        return;
    }
    n_ranges = 0;
    for (size_t i = 0; i < m->n; i++) {
        const regex_node *node = &p->nodes[m->items[i]];
        if (node->kind != REGEX_IS_CLASS) {
            m->items[n++] = m->items[i];
            continue;
        }
        memcpy(all + n_ranges, node->set->ranges, node->set->n * sizeof *all);
        n_ranges += node->set->n;
    }
    m->items[n++] = regex_class(p, all, n_ranges, false);
    m->n = n;
    mem_free(all);
}

regex regex_choice(regex_pool *p, const regex *list, size_t n) {
    members m = {.n = 0};
    bool any = false;
    for (size_t i = 0; i < n && p->status == PI_OK; i++) {
        any = any || list[i] == REGEX_ANY;
        if (list[i] != REGEX_NEVER) add_members(p, &m, REGEX_IS_CHOICE, list[i]);
    }
    for (size_t i = 0; i < m.n; i++) any = any || m.items[i] == REGEX_ANY;
    if (p->status == PI_OK && !any) join_classes(p, &m);
    regex all = p->status != PI_OK ? REGEX_NEVER
                : any              ? REGEX_ANY
                                   : chain(p, &m, REGEX_IS_CHOICE, REGEX_NEVER);
    mem_free(m.items);
    return all;
}

regex regex_or(regex_pool *p, regex a, regex b) {
    const regex list[] = {a, b};
    return a == b ? a : regex_choice(p, list, 2);
}

/* A class repeated within bounds. */
static bool is_run(const regex_pool *p, regex r, regex *of, uint32_t *min, uint32_t *max) {
    const regex_node *node = &p->nodes[r];
    *of = node->kind == REGEX_IS_REPEAT ? node->a : r;
    *min = node->kind == REGEX_IS_REPEAT ? node->min : 1;
    *max = node->kind == REGEX_IS_REPEAT ? node->max : 1;
    return p->nodes[*of].kind == REGEX_IS_CLASS;
}

/* Removes the lengths from the members and returns them as one length, unless the members imply
 * it. */
static regex join_lengths(regex_pool *p, members *m) {
    uint32_t least = 0, most = GRAMMAR_NO_BOUND, min, max;
    size_t n = 0;
    regex of;
    for (size_t i = 0; i < m->n; i++) {
        if (is_length(p, m->items[i], &min, &max)) {
            least = larger(least, min);
            most = smaller(most, max);
        } else {
            m->items[n++] = m->items[i];
        }
    }
    m->n = n;
    if (least > most) return REGEX_NEVER;
    if (n == 1 && is_run(p, m->items[0], &of, &min, &max)) {
        m->n = 0;
        least = larger(least, min);
        most = smaller(most, max);
        return least > most ? REGEX_NEVER : regex_repeat(p, of, least, most);
    }
    for (size_t i = 0; i < n; i++) {
        const regex_node *node = &p->nodes[m->items[i]];
        if (node->least > most || node->most < least) return REGEX_NEVER;
        if (node->least >= least && node->most <= most) return REGEX_ANY;
    }
    return regex_repeat(p, REGEX_CHAR, least, most);
}

regex regex_both(regex_pool *p, regex a, regex b) {
    members m = {.n = 0};
    if (p->status != PI_OK || a == REGEX_NEVER || b == REGEX_NEVER) return REGEX_NEVER;
    if (a == b || b == REGEX_ANY) return a;
    if (a == REGEX_ANY) return b;
    if (a == REGEX_EMPTY || b == REGEX_EMPTY)
        return p->nodes[a].nullable && p->nodes[b].nullable ? REGEX_EMPTY : REGEX_NEVER;
    add_members(p, &m, REGEX_IS_BOTH, a);
    if (p->status == PI_OK) add_members(p, &m, REGEX_IS_BOTH, b);
    regex length = p->status == PI_OK ? join_lengths(p, &m) : REGEX_NEVER;
    if (length != REGEX_NEVER && length != REGEX_ANY) add_member(p, &m, length);
    regex all = length == REGEX_NEVER || p->status != PI_OK
                    ? REGEX_NEVER
                    : chain(p, &m, REGEX_IS_BOTH, REGEX_ANY);
    mem_free(m.items);
    return all;
}

regex regex_not(regex_pool *p, regex a) {
    if (p->status != PI_OK) return REGEX_NEVER;
    if (a == REGEX_NEVER) return REGEX_ANY;
    if (a == REGEX_ANY) return REGEX_NEVER;
    const regex_node x = p->nodes[a];
    if (x.kind == REGEX_IS_NOT) return x.a;
    if (x.kind == REGEX_IS_REPEAT && x.a == REGEX_CHAR && x.min == 1 && x.max == GRAMMAR_NO_BOUND)
        return REGEX_EMPTY;
    regex_node node = {.kind = REGEX_IS_NOT, .a = a, .most = GRAMMAR_NO_BOUND};
    node.nullable = !x.nullable;
    node.looks = x.looks;
    node.sets = true;
    node.depth = x.depth + 1;
    return intern(p, node, NULL, 0);
}

/* Whether the counts k * min..max, for k in least..most, cover everything from the first to the
 * last. */
static bool counts_join(uint32_t min, uint32_t max, uint32_t least, uint32_t most) {
    uint64_t k = least ? least : 1;
    if (max == GRAMMAR_NO_BOUND) return least > 0 || min <= 1;
    if (least == 0) return min <= 1;
    return least == most || k * (max - min) + 1 >= min;
}

regex regex_repeat(regex_pool *p, regex a, uint32_t min, uint32_t max) {
    if (p->status != PI_OK || min > max) return REGEX_NEVER;
    const regex_node x = p->nodes[a];
    if (max == 0 || a == REGEX_EMPTY) return REGEX_EMPTY;
    if (a == REGEX_NEVER) return min ? REGEX_NEVER : REGEX_EMPTY;
    if (x.nullable && !x.looks) min = 0;
    if (min == 1 && max == 1) return a;
    if (x.kind == REGEX_IS_REPEAT && counts_join(x.min, x.max, min, max)) {
        /* A product that overflows means no bound. */
        return regex_repeat(p, x.a, times_counts(x.min, min), times_counts(x.max, max));
    }
    regex_node node = {.kind = REGEX_IS_REPEAT, .a = a, .min = min, .max = max};
    node.nullable = min == 0 || x.nullable;
    node.looks = x.looks;
    node.sets = x.sets;
    node.least = times_counts(x.least, min);
    node.most = times_counts(x.most, max);
    node.depth = x.depth + 1;
    return intern(p, node, NULL, 0);
}

regex regex_look(regex_pool *p, regex_kind kind, regex a) {
    regex_node node = {.kind = kind, .a = a, .nullable = true, .looks = true};
    node.depth = p->nodes[a].depth + 1;
    return intern(p, node, NULL, 0);
}

regex regex_text(regex_pool *p, const char *text, size_t n) {
    regex all = REGEX_EMPTY;
    while (n > 0) { /* from the end, as sequences lean to the right */
        size_t begin = n - 1, step;
        while (begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80) begin--;
        uint32_t code = (uint32_t)utf8_decode(text + begin, n - begin, &step);
        const grammar_range one = {code, code};
        all = regex_then(p, regex_class(p, &one, 1, false), all);
        n = begin;
    }
    return all;
}

/* ---- assertions ------------------------------------------------------------------------------ */

static regex resolve(regex_pool *p, regex r, regex rest, bool begins);

static regex resolve_repeat(regex_pool *p, const regex_node *x, regex rest, bool begins) {
    if (x->max > UNROLLED_MAX)
        return regex_fail(p, PI_ERR_UNSUPPORTED, "an assertion within a repetition");
    regex all = rest;
    for (uint32_t i = x->max; i > 0 && p->status == PI_OK; i--) {
        regex once = resolve(p, x->a, all, begins && i == 1);
        all = i > x->min ? regex_or(p, once, rest) : once;
    }
    return all;
}

/* Concatenation of r and `rest`; assertions of r apply to both. */
static regex resolve(regex_pool *p, regex r, regex rest, bool begins) {
    if (p->status != PI_OK) return REGEX_NEVER;
    if (++p->c->t->regex_steps > REGEX_MAX_STEPS) return regex_fail(p, PI_ERR_LIMIT, "too large");
    const regex_node x = p->nodes[r];
    if (!x.looks) return regex_then(p, r, rest);
    switch (x.kind) {
    case REGEX_IS_SEQUENCE: {
        bool still = begins && p->nodes[x.a].most == 0; /* consumes no character */
        if (begins && !still && p->nodes[x.a].nullable && p->nodes[x.b].looks) {
            regex probe = resolve(p, x.b, REGEX_ANY, true),
                  other = resolve(p, x.b, REGEX_ANY, false);
            if (probe != other) return regex_fail(p, PI_ERR_UNSUPPORTED, "^ inside");
        }
        return resolve(p, x.a, resolve(p, x.b, rest, still), begins);
    }
    case REGEX_IS_CHOICE: {
        regex first = resolve(p, x.a, rest, begins);
        return regex_or(p, first, resolve(p, x.b, rest, begins));
    }
    case REGEX_IS_REPEAT:
        return resolve_repeat(p, &x, rest, begins);
    case REGEX_IS_AHEAD:
        return regex_both(p, resolve(p, x.a, REGEX_ANY, begins), rest);
    case REGEX_IS_NOT_AHEAD:
        return regex_both(p, regex_not(p, resolve(p, x.a, REGEX_ANY, begins)), rest);
    case REGEX_IS_BEGIN:
        return begins ? rest : REGEX_NEVER;
    default:
        return REGEX_NEVER; /* no other kinds of patterns contain assertions */
    }
}

regex regex_find(regex_pool *p, regex pattern) {
    regex first = resolve(p, pattern, REGEX_ANY, true);
    regex later = resolve(p, pattern, REGEX_ANY, false);
    if (p->status != PI_OK) return REGEX_NEVER;
    if (first == later) return regex_then(p, REGEX_ANY, first);
    return regex_or(p, first,
                    regex_then(p, regex_repeat(p, REGEX_CHAR, 1, GRAMMAR_NO_BOUND), later));
}

/* ---- derivatives ----------------------------------------------------------------------------- */

/* The texts that may follow `code` in a sequence: from its first part, and from each later part
 * while the parts before it may be empty. */
static regex after_sequence(regex_pool *p, regex r, uint32_t code) {
    members m = {.n = 0};
    for (;;) {
        const regex_node x = p->nodes[r];
        if (x.kind != REGEX_IS_SEQUENCE) {
            add_member(p, &m, regex_after(p, r, code));
            break;
        }
        add_member(p, &m, regex_then(p, regex_after(p, x.a, code), x.b));
        if (!p->nodes[x.a].nullable || p->status != PI_OK) break;
        r = x.b;
    }
    regex all = p->status == PI_OK ? regex_choice(p, m.items, m.n) : REGEX_NEVER;
    mem_free(m.items);
    return all;
}

static regex after_choice(regex_pool *p, regex r, uint32_t code) {
    members m = {.n = 0};
    for (; p->nodes[r].kind == REGEX_IS_CHOICE && p->status == PI_OK; r = p->nodes[r].b)
        add_member(p, &m, regex_after(p, p->nodes[r].a, code));
    if (p->status == PI_OK) add_member(p, &m, regex_after(p, r, code));
    regex all = p->status == PI_OK ? regex_choice(p, m.items, m.n) : REGEX_NEVER;
    mem_free(m.items);
    return all;
}

regex regex_after(regex_pool *p, regex r, uint32_t code) {
    if (p->status != PI_OK) return REGEX_NEVER;
    if (++p->c->t->regex_steps > REGEX_MAX_STEPS) return regex_fail(p, PI_ERR_LIMIT, "too large");
    const regex_node x = p->nodes[r];
    uint32_t most = x.max == GRAMMAR_NO_BOUND ? x.max : x.max - 1;
    regex first;
    switch (x.kind) {
    case REGEX_IS_CLASS:
        return grammar_class_has(x.set, code) ? REGEX_EMPTY : REGEX_NEVER;
    case REGEX_IS_SEQUENCE:
        return after_sequence(p, r, code);
    case REGEX_IS_CHOICE:
        return after_choice(p, r, code);
    case REGEX_IS_BOTH:
        first = regex_after(p, x.a, code);
        return first == REGEX_NEVER ? first : regex_both(p, first, regex_after(p, x.b, code));
    case REGEX_IS_NOT:
        return regex_not(p, regex_after(p, x.a, code));
    case REGEX_IS_REPEAT:
        first = regex_after(p, x.a, code);
        return first == REGEX_NEVER
                   ? first
                   : regex_then(p, first, regex_repeat(p, x.a, x.min ? x.min - 1 : 0, most));
    default:
        return REGEX_NEVER;
    }
}

bool regex_matches(regex_pool *p, regex r, const char *text, size_t n) {
    for (size_t i = 0, step; i < n && r != REGEX_NEVER; i += step)
        r = regex_after(p, r, (uint32_t)utf8_decode(text + i, n - i, &step));
    return p->status == PI_OK && p->nodes[r].nullable;
}
