/* grammar_check.c: checks all rules before a grammar is compiled: each is defined, each can end,
 * none calls itself before it has taken a byte (otherwise the machine's stack would grow without
 * end). Functions recurse over trees, to GRAMMAR_MAX_DEPTH at most. */
#include <string.h>

#include "grammar_tree.h"
#include "mem.h"

/* Maximum nodes to visit in the search for rules that are nullable or can end: about 0.3 s. */
#define CHECK_MAX_STEPS ((uint64_t)100 << 20)

typedef struct checker {
    grammar_tree *t;
    int32_t *first; /* [n_rules + 1] where the calls of a rule begin */
    int32_t *calls; /* rules that a rule calls before it takes a byte */
    size_t n_calls, calls_capacity;
} checker;

/* Whether a node can end, given the rules known so far; empty: whether it can end without a
 * byte. */
static bool can_end(const grammar_tree *t, const grammar_node *node, bool empty) {
    switch (node->kind) {
    case GRAMMAR_NEVER:
        return false;
    case GRAMMAR_BYTES:
        return !empty || node->n == 0;
    case GRAMMAR_CLASS:
        return !empty;
    case GRAMMAR_SEQ:
        for (const grammar_link *l = node->last; l; l = l->previous) {
            if (!can_end(t, l->node, empty)) return false;
        }
        return true;
    case GRAMMAR_ALT:
        for (const grammar_link *l = node->last; l; l = l->previous) {
            if (can_end(t, l->node, empty)) return true;
        }
        return false;
    case GRAMMAR_REPEAT:
        return node->min == 0 || can_end(t, node->last->node, empty);
    case GRAMMAR_RULE:
        return empty ? t->rules[node->rule].nullable : t->rules[node->rule].ends;
    }
    return false;
}

bool grammar_node_nullable(const grammar_tree *t, const grammar_node *node) {
    return can_end(t, node, true);
}

static bool node_ends(const checker *c, const grammar_node *node) {
    return can_end(c->t, node, false);
}

/* Visits one rule; true when the visit found something new. */
static bool learn(checker *c, size_t i) {
    grammar_rule *rule = &c->t->rules[i];
    bool news = false;
    if (!rule->ends && node_ends(c, rule->body)) rule->ends = news = true;
    if (!rule->nullable && grammar_node_nullable(c->t, rule->body)) rule->nullable = news = true;
    return news;
}

/* Visits rules in alternating order, because grammars are written top down or bottom up. */
static void learn_all(checker *c) {
    grammar_tree *t = c->t;
    uint64_t steps = 0;
    for (bool news = true, forward = false; news; forward = !forward) {
        news = false;
        for (size_t k = 0; k < t->n_rules; k++) {
            if (learn(c, forward ? k : t->n_rules - 1 - k)) news = true;
        }
        steps += 2 * (uint64_t)(t->n_nodes + t->n_rules);
        if (steps <= CHECK_MAX_STEPS) continue;
        grammar_fail(t, PI_ERR_LIMIT, "grammar is too complex: %zu rules", t->n_rules);
        return;
    }
}

/* Notes the rules that a node may call before it takes a byte. */
static void note_calls(checker *c, const grammar_node *node);

/* Children are linked backwards: the last child is reached when all before it are nullable. */
static bool note_seq(checker *c, const grammar_link *l) {
    const grammar_node *few[64], **order = few;
    size_t n = 0;
    for (const grammar_link *k = l; k; k = k->previous) n++;
    if (n > sizeof few / sizeof *few) {
        order = mem_calloc(n, sizeof *order);
        if (!order) return false;
    }
    for (size_t i = n; i-- > 0; l = l->previous) order[i] = l->node;
    for (size_t i = 0; i < n; i++) {
        note_calls(c, order[i]);
        if (!grammar_node_nullable(c->t, order[i])) break;
    }
    if (order != few) mem_free(order);
    return true;
}

static void note_calls(checker *c, const grammar_node *node) {
    bool room = true;
    if (node->kind == GRAMMAR_RULE) {
        room = mem_grow((void **)&c->calls, &c->calls_capacity, c->n_calls + 1, sizeof *c->calls,
                        INT32_MAX);
        if (room) c->calls[c->n_calls++] = node->rule;
    } else if (node->kind == GRAMMAR_SEQ) {
        room = note_seq(c, node->last);
    } else if (node->kind == GRAMMAR_ALT) {
        for (const grammar_link *l = node->last; l; l = l->previous) note_calls(c, l->node);
    } else if (node->kind == GRAMMAR_REPEAT) {
        note_calls(c, node->last->node);
    }
    if (!room) grammar_no_memory(c->t);
}

/* Depth-first search along the calls, with an explicit stack: a call of a rule that is still on the
 * stack closes a cycle. next[rule]: the call to visit next. */
static void find_circle(checker *c) {
    grammar_tree *t = c->t;
    size_t n = t->n_rules, depth = 0;
    int32_t *next = mem_calloc(n, sizeof *next), *open = mem_calloc(n, sizeof *open);
    bool *is_open = mem_calloc(n, sizeof *is_open);
    if (!next || !open || !is_open) grammar_no_memory(t);
    if (t->status == PI_OK) memcpy(next, c->first, n * sizeof *next);
    for (size_t i = 0; i < n && t->status == PI_OK; i++) {
        if (next[i] == c->first[i]) open[depth++] = (int32_t)i;
        while (depth && t->status == PI_OK) {
            int32_t rule = open[depth - 1];
            is_open[rule] = next[rule] < c->first[rule + 1];
            if (!is_open[rule]) {
                depth--;
                continue;
            }
            int32_t called = c->calls[next[rule]++];
            if (is_open[called])
                grammar_fail(t, PI_ERR_FORMAT,
                             "left recursion: grammar rule %s: let it take a character before it "
                             "uses itself",
                             t->rules[called].name);
            else if (next[called] == c->first[called])
                open[depth++] = called;
        }
    }
    mem_free(next);
    mem_free(open);
    mem_free(is_open);
}

/* Removes alternatives that can never end from a node that can. */
static void prune(checker *c, grammar_node *node) {
    if (node->kind == GRAMMAR_ALT) {
        for (grammar_link **l = &node->last; *l;) {
            if (node_ends(c, (*l)->node)) {
                prune(c, (*l)->node);
                l = &(*l)->previous;
            } else {
                *l = (*l)->previous;
                node->n--;
            }
        }
    } else if (node->kind == GRAMMAR_REPEAT && !node_ends(c, node->last->node)) {
        node->kind = GRAMMAR_BYTES; /* matches no text */
        node->bytes = "";
        node->n = 0;
    } else if (node->kind == GRAMMAR_SEQ || node->kind == GRAMMAR_REPEAT) {
        for (grammar_link *l = node->last; l; l = l->previous) prune(c, l->node);
    }
}

static void prune_rules(checker *c) {
    static grammar_node unused = {.kind = GRAMMAR_BYTES, .depth = 1, .bytes = ""};
    for (size_t i = 0; i < c->t->n_rules; i++) {
        if (c->t->rules[i].ends)
            prune(c, c->t->rules[i].body);
        else
            c->t->rules[i].body = &unused; /* now no rule that can end calls it */
    }
}

static void check_rules(checker *c, int32_t root) {
    grammar_tree *t = c->t;
    for (size_t i = 0; i < t->n_rules; i++) {
        if (!t->rules[i].body) {
            grammar_fail(t, PI_ERR_FORMAT, "grammar rule %s is not defined", t->rules[i].name);
            return;
        }
    }
    learn_all(c);
    for (size_t i = 0; i < t->n_rules && t->status == PI_OK; i++) {
        if (t->rules[i].schema && !t->rules[i].ends)
            grammar_fail(t, PI_ERR_FORMAT,
                         "%s: no text can satisfy the schema: it is contradictory or infinitely "
                         "recursive",
                         t->rules[i].schema);
    }
    if (t->status == PI_OK && t->prune && !t->rules[root].ends)
        grammar_fail(t, PI_ERR_FORMAT,
                     "no text can satisfy the schema: it is contradictory or infinitely recursive");
    if (t->prune && t->status == PI_OK) prune_rules(c);
    for (size_t i = 0; i < t->n_rules && t->status == PI_OK; i++) {
        c->first[i] = (int32_t)c->n_calls;
        note_calls(c, t->rules[i].body);
    }
    c->first[t->n_rules] = (int32_t)c->n_calls;
    if (t->status == PI_OK) find_circle(c);
    for (size_t i = 0; i < t->n_rules && t->status == PI_OK; i++) {
        if (t->rules[i].ends || t->prune) continue;
        grammar_fail(t, PI_ERR_FORMAT, "grammar rule %s can never end: infinite recursion",
                     t->rules[i].name);
    }
}

pi_status grammar_tree_check(grammar_tree *t, int32_t root) {
    checker c = {.t = t};
    if (t->status != PI_OK) return t->status;
    c.first = mem_calloc(t->n_rules + 1, sizeof *c.first);
    if (c.first)
        check_rules(&c, root);
    else
        grammar_no_memory(t);
    mem_free(c.first);
    mem_free(c.calls);
    return t->status;
}
