/* schema_array.c: arrays: first the items with individual schemas (all of them, unless maxItems is
 * smaller), then the items that `items` describes. */
#include "schema.h"

enum { PREFIX_MAX = 4096 };

/* The schemas of the first items in one part: prefixItems, or an array as `items` of old drafts. */
static const json_node *prefix_of(const schema_set *set, size_t i) {
    const json_node *prefix = schema_get(set, i, "prefixItems");
    const json_node *items = schema_get(set, i, "items");
    if (!prefix && json_kind_of(items) == JSON_ARRAY) prefix = items;
    return prefix;
}

static const json_node *rest_of(const schema_set *set, size_t i) {
    const json_node *items = schema_get(set, i, "items");
    return json_kind_of(items) == JSON_ARRAY ? schema_get(set, i, "additionalItems") : items;
}

/* Item k; k SIZE_MAX: the items after the prefix. */
static grammar_node *item(schema_compiler *c, const schema_set *set, size_t k) {
    schema_set value = {.n = 0};
    for (size_t i = 0; i < set->n; i++) {
        const json_node *prefix = prefix_of(set, i), *rest = rest_of(set, i);
        if (prefix && k < json_count(prefix))
            schema_add(c, &value, json_at(prefix, k), -1);
        else if (rest)
            schema_add(c, &value, rest, -1);
    }
    return schema_spaced(c, schema_rule(c, &value));
}

/* From a minimum to a maximum number of items of one kind; `after`: other items come before
 * them. */
static grammar_node *items(schema_compiler *c, const schema_set *set, uint32_t min, uint32_t max,
                           bool after) {
    grammar_tree *t = c->t;
    if (max == 0) return grammar_text(t, "");
    grammar_node *one = item(c, set, SIZE_MAX);
    grammar_node *more = grammar_pair(t, schema_sign(c, ","), one);
    if (after) return grammar_repeat(t, more, min, max);
    uint32_t rest = max == GRAMMAR_NO_BOUND ? max : max - 1;
    grammar_node *all = grammar_pair(t, one, grammar_repeat(t, more, min ? min - 1 : 0, rest));
    return min ? all : grammar_optional(t, all);
}

static void check_unique(schema_compiler *c, const schema_set *set, uint32_t max) {
    for (size_t i = 0; i < set->n; i++) {
        bool unique = false;
        json_as_bool(schema_get(set, i, "uniqueItems"), &unique);
        if (unique && max > 1)
            schema_widen(c, set->parts[i].node, "uniqueItems", "a grammar cannot compare items");
    }
}

grammar_node *schema_array(schema_compiler *c, const schema_set *set) {
    grammar_tree *t = c->t;
    uint32_t min = schema_most(c, set, "minItems", 0);
    uint32_t max = schema_least(c, set, "maxItems", GRAMMAR_NO_BOUND);
    size_t n_prefix = 0;
    bool rest = false;
    for (size_t i = 0; i < set->n; i++) {
        const json_node *prefix = prefix_of(set, i), *others = rest_of(set, i);
        bool allowed = true;
        if (prefix && json_kind_of(prefix) != JSON_ARRAY)
            return schema_wrong(c, set->parts[i].node, "prefixItems", "not an array");
        if (json_count(prefix) > PREFIX_MAX)
            return schema_too_large(c, set->parts[i].node, "prefixItems", "too many items");
        if (json_count(prefix) > n_prefix) n_prefix = json_count(prefix);
        if (others) rest = true;
        if (others && json_as_bool(others, &allowed) && !allowed && max > json_count(prefix))
            max = (uint32_t)json_count(prefix);
    }
    if (n_prefix && !rest && max > n_prefix && min <= n_prefix) max = (uint32_t)n_prefix;
    if (n_prefix > max) n_prefix = max;
    check_unique(c, set, max);
    if (c->t->status != PI_OK || min > max) return grammar_never();
    grammar_node *all = grammar_seq(t);
    grammar_add(t, all, schema_sign(c, "["));
    for (size_t k = 0; k < n_prefix; k++) {
        if (k) grammar_add(t, all, schema_sign(c, ","));
        grammar_add(t, all, item(c, set, k));
    }
    uint32_t used = (uint32_t)n_prefix;
    uint32_t left = max == GRAMMAR_NO_BOUND ? max : max - used;
    grammar_add(t, all, items(c, set, min > used ? min - used : 0, left, used > 0));
    grammar_add(t, all, grammar_text(t, "]"));
    return all;
}
