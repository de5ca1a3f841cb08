/* grammar_tree.c: creates nodes and rules. */
#include "grammar_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

/* Shared by all trees; never changes. */
static grammar_node never = {.kind = GRAMMAR_NEVER, .depth = 1};

bool grammar_tree_init(grammar_tree *t) {
    *t = (grammar_tree){.status = PI_OK};
    arena_init(&t->memory);
    return text_table_init(&t->names, 16);
}

void grammar_tree_free(grammar_tree *t) {
    arena_free(&t->memory);
    text_table_free(&t->names);
    mem_free(t->named);
    mem_free(t->rules);
}

grammar_node *grammar_fail(grammar_tree *t, pi_status status, const char *format, ...) {
    char message[PI_ERROR_TEXT_MAX];
    va_list args;
    if (t->status != PI_OK) return &never;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    t->status = error_set(&t->err, status, "%s", message);
    return &never;
}

grammar_node *grammar_no_memory(grammar_tree *t) {
    return grammar_fail(t, PI_ERR_NOMEM, "out of memory: grammar");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static grammar_node *make(grammar_tree *t, grammar_kind kind) {
    if (t->status != PI_OK) return &never;
    if (++t->n_nodes > GRAMMAR_MAX_NODES)
        return grammar_fail(t, PI_ERR_LIMIT, "grammar is too large: more than %d parts",
                            GRAMMAR_MAX_NODES);
    grammar_node *node = arena_alloc(&t->memory, sizeof *node);
    if (!node) return grammar_no_memory(t);
    node->kind = kind;
    node->depth = 1;
    return node;
}

grammar_node *grammar_never(void) {
    return &never;
}

bool grammar_is_never(const grammar_node *node) {
    return node->kind == GRAMMAR_NEVER || (node->kind == GRAMMAR_ALT && node->n == 0);
}

grammar_node *grammar_bytes(grammar_tree *t, const char *bytes, size_t n) {
    grammar_node *node = make(t, GRAMMAR_BYTES);
    if (node->kind == GRAMMAR_NEVER) return node;
    node->bytes = arena_strndup(&t->memory, bytes, n);
    node->n = n;
    return node->bytes ? node : grammar_no_memory(t);
}

grammar_node *grammar_text(grammar_tree *t, const char *text) {
    return grammar_bytes(t, text, strlen(text));
}

static int compare_ranges(const void *a, const void *b) {
    uint32_t x = ((const grammar_range *)a)->first, y = ((const grammar_range *)b)->first;
    return (x > y) - (x < y);
}

/* Sorts and joins adjacent ranges; returns the number of ranges. */
static size_t join_ranges(grammar_range *r, size_t n) {
    size_t used = 0;
    qsort(r, n, sizeof *r, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        if (used && r[i].first <= r[used - 1].last + 1) {
            if (r[i].last > r[used - 1].last) r[used - 1].last = r[i].last;
        } else {
            r[used++] = r[i];
        }
    }
    return used;
}

size_t grammar_complement(const grammar_range *r, size_t n, grammar_range *out) {
    uint32_t next = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].first > next) out[used++] = (grammar_range){next, r[i].first - 1};
        next = r[i].last + 1;
    }
    if (next < GRAMMAR_CODE_POINTS) out[used++] = (grammar_range){next, GRAMMAR_CODE_POINTS - 1};
    return used;
}

grammar_node *grammar_class(grammar_tree *t, const grammar_range *ranges, size_t n, bool negated) {
    grammar_node *node = make(t, GRAMMAR_CLASS);
    if (node->kind == GRAMMAR_NEVER) return node;
    grammar_range *own = arena_calloc(&t->memory, 2 * n + 1, sizeof *own);
    if (!own) return grammar_no_memory(t);
    if (n) memcpy(own, ranges, n * sizeof *own);
    n = join_ranges(own, n);
    node->ranges = own;
    node->n = n;
    if (negated) {
        node->ranges = own + n;
        node->n = grammar_complement(own, n, own + n);
    }
    return node->n ? node : &never;
}

bool grammar_class_has(const grammar_node *set, uint32_t code) {
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->n && set->ranges[low].first <= code;
}

grammar_node *grammar_seq(grammar_tree *t) {
    return make(t, GRAMMAR_SEQ);
}

grammar_node *grammar_alt(grammar_tree *t) {
    return make(t, GRAMMAR_ALT);
}

void grammar_add(grammar_tree *t, grammar_node *list, grammar_node *child) {
    if (list->kind == GRAMMAR_NEVER || (list->kind == GRAMMAR_ALT && grammar_is_never(child)))
        return;
    if (grammar_is_never(child)) { /* a sequence with GRAMMAR_NEVER is GRAMMAR_NEVER */
        list->kind = GRAMMAR_NEVER;
        return;
    }
    grammar_link *link = arena_alloc(&t->memory, sizeof *link);
    if (!link) {
        grammar_no_memory(t);
        return;
    }
    *link = (grammar_link){child, list->last};
    list->last = link;
    list->n++;
    if (child->depth >= list->depth) list->depth = child->depth + 1;
    if (list->depth > GRAMMAR_MAX_DEPTH)
        grammar_fail(t, PI_ERR_LIMIT, "grammar is nested too deeply: at most %d levels",
                     GRAMMAR_MAX_DEPTH);
}

grammar_node *grammar_repeat(grammar_tree *t, grammar_node *child, uint32_t min, uint32_t max) {
    if (grammar_is_never(child)) max = 0;
    if (min > max) return &never;
    if (max == 0) return grammar_text(t, "");
    grammar_node *node = make(t, GRAMMAR_SEQ); /* links the child like a sequence */
    grammar_add(t, node, child);
    if (node->kind == GRAMMAR_NEVER) return &never;
    node->kind = GRAMMAR_REPEAT;
    node->min = min;
    node->max = max;
    return node;
}

grammar_node *grammar_optional(grammar_tree *t, grammar_node *child) {
    return grammar_repeat(t, child, 0, 1);
}

grammar_node *grammar_pair(grammar_tree *t, grammar_node *a, grammar_node *b) {
    grammar_node *seq = grammar_seq(t);
    grammar_add(t, seq, a);
    grammar_add(t, seq, b);
    return seq;
}

grammar_node *grammar_ref(grammar_tree *t, int32_t rule) {
    grammar_node *node = make(t, GRAMMAR_RULE);
    if (node->kind != GRAMMAR_NEVER) node->rule = rule;
    return node;
}

/* ---- rules ----------------------------------------------------------------------------------- */

int32_t grammar_rule_new(grammar_tree *t, const char *what) {
    if (t->status != PI_OK) return -1;
    if (!mem_grow((void **)&t->rules, &t->rules_capacity, t->n_rules + 1, sizeof *t->rules,
                  GRAMMAR_MAX_RULES)) {
        if (t->n_rules >= GRAMMAR_MAX_RULES)
            grammar_fail(t, PI_ERR_LIMIT, "grammar has more than %d rules", GRAMMAR_MAX_RULES);
        else
            grammar_no_memory(t);
        return -1;
    }
    const char *name = arena_strndup(&t->memory, what, strlen(what));
    if (!name) {
        grammar_no_memory(t);
        return -1;
    }
    t->rules[t->n_rules] = (grammar_rule){.name = name};
    return (int32_t)t->n_rules++;
}

int32_t grammar_rule_find(const grammar_tree *t, const char *name, size_t n_name) {
    uint32_t entry = text_table_find(&t->names, name, n_name);
    return entry == TEXT_TABLE_NONE ? -1 : t->named[entry];
}

int32_t grammar_rule_named(grammar_tree *t, const char *name, size_t n_name) {
    int32_t rule = grammar_rule_find(t, name, n_name);
    if (rule >= 0 || t->status != PI_OK) return rule;
    const char *copy = arena_strndup(&t->memory, name, n_name);
    if (!copy) {
        grammar_no_memory(t);
        return -1;
    }
    rule = grammar_rule_new(t, copy);
    if (rule < 0) return -1;
    if (!mem_grow((void **)&t->named, &t->named_capacity, t->names.count + 1, sizeof *t->named,
                  GRAMMAR_MAX_RULES) ||
        text_table_add(&t->names, copy, n_name) == TEXT_TABLE_NONE) {
        grammar_no_memory(t);
        return -1;
    }
    t->named[t->names.count - 1] = rule;
    return rule;
}
