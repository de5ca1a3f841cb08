/* template_filter_sequence.c: filters of sequences and dicts. Where Python returns a generator,
 * they return an iterator: a list that can be iterated once and has no length. */
#include "template_ast.h"
#include "template_eval.h"

#define FILTER(name)  static tpl_value filter_##name(tpl *t, tpl_value v, const tpl_args *args)
#define NO_ARGS(name) tpl_bind(t, name, args, "", 0, NULL)

static bool given(tpl_value v) {
    return v.kind != TPL_MISSING && v.kind != TPL_NONE;
}

static tpl_value iterator(tpl_list *list) {
    return tpl_of_list(TPL_ITERATOR, list);
}

static tpl_list *copy_of(tpl *t, const tpl_list *from) {
    tpl_list *list = tpl_list_new(t, from->n);
    for (size_t i = 0; i < from->n; i++) tpl_list_add(t, list, from->items[i]);
    return list;
}

/* ---- paths and keys -------------------------------------------------------------------------- */

static tpl_value path_part(tpl *t, tpl_value object, const char *s, size_t n) {
    int64_t index;
    bool digits = n > 0;
    for (size_t i = 0; i < n; i++) digits &= s[i] >= '0' && s[i] <= '9';
    tpl_value part = tpl_string(t, s, n);
    if (digits && tpl_parse_int(t, part, 10, &index)) part = tpl_int(index);
    return tpl_get_item(t, object, part);
}

/* Follows an attribute path in the syntax of filters: "function.name", or an index; see
 * make_attrgetter in Jinja. */
static tpl_value get_path(tpl *t, tpl_value object, tpl_value path, tpl_value standard) {
    if (!given(path)) return object;
    if (!tpl_is_string(path)) {
        object = tpl_get_item(t, object, path);
        return given(standard) && object.kind == TPL_UNDEFINED ? standard : object;
    }
    const char *s = path.str->s, *end = s + path.str->n;
    tpl_work(t, path.str->n);
    for (;;) {
        const char *dot = memchr(s, '.', (size_t)(end - s));
        object = path_part(t, object, s, (size_t)((dot ? dot : end) - s));
        if (given(standard) && object.kind == TPL_UNDEFINED) object = standard;
        if (!dot) return object;
        s = dot + 1;
    }
}

/* Converts strings to lower case unless case_sensitive. */
static tpl_value fold(tpl *t, tpl_value v, bool case_sensitive) {
    return !case_sensitive && tpl_is_string(v) ? tpl_change_case(t, v, CASE_LOWER) : v;
}

/* Several paths, separated by commas, give a list of keys. */
static tpl_value sort_key(tpl *t, tpl_value item, tpl_value paths, bool case_sensitive) {
    const tpl_value none = {.kind = TPL_MISSING};
    tpl_list *keys = tpl_list_new(t, 1);
    if (!tpl_is_string(paths)) {
        tpl_list_add(t, keys, fold(t, get_path(t, item, paths, none), case_sensitive));
        return tpl_of_list(TPL_LIST, keys);
    }
    const char *s = paths.str->s, *end = s + paths.str->n;
    for (;;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        tpl_value path = tpl_string(t, s, (size_t)((comma ? comma : end) - s));
        tpl_list_add(t, keys, fold(t, get_path(t, item, path, none), case_sensitive));
        if (!comma) return tpl_of_list(TPL_LIST, keys);
        s = comma + 1;
    }
}

typedef struct keyed {
    tpl_value key, item;
} keyed;

/* Stable: b goes first only if it is less (greater, when reversed). */
static bool goes_first(tpl *t, const keyed *b, const keyed *a, bool reverse) {
    tpl_step(t);
    return reverse ? tpl_compare(t, a->key, b->key, "<") == -1
                   : tpl_compare(t, b->key, a->key, "<") == -1;
}

static void merge_sort(tpl *t, keyed *items, keyed *spare, size_t n, bool reverse) {
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge_sort(t, items, spare, half, reverse);
    merge_sort(t, items + half, spare, n - half, reverse);
    while (i < half && j < n)
        spare[k++] = goes_first(t, &items[j], &items[i], reverse) ? items[j++] : items[i++];
    while (i < half) spare[k++] = items[i++];
    while (j < n) spare[k++] = items[j++];
    memcpy(items, spare, n * sizeof *items);
}

static void sort_items(tpl *t, keyed *items, size_t n, bool reverse) {
    merge_sort(t, items, tpl_alloc_array(t, n, sizeof *items), n, reverse);
}

/* ---- sorting --------------------------------------------------------------------------------- */

FILTER(sort) {
    tpl_value a[3];
    tpl_bind(t, "sort", args, "reverse case_sensitive attribute", 0, a);
    const tpl_list *from = tpl_iterate(t, v);
    keyed *items = tpl_alloc_array(t, from->n, sizeof *items);
    for (size_t i = 0; i < from->n; i++) {
        items[i].item = from->items[i];
        items[i].key = sort_key(t, from->items[i], a[2], tpl_bool_arg(a[1], false));
    }
    sort_items(t, items, from->n, tpl_bool_arg(a[0], false));
    tpl_list *list = tpl_list_new(t, from->n);
    for (size_t i = 0; i < from->n; i++) tpl_list_add(t, list, items[i].item);
    return tpl_of_list(TPL_LIST, list);
}

FILTER(dictsort) {
    tpl_value a[3];
    tpl_bind(t, "dictsort", args, "case_sensitive by reverse", 0, a);
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (v.kind != TPL_DICT) tpl_type_error(t, "dictsort takes a mapping, not %s", tpl_type(v));
    bool by_value = tpl_is(a[1], "value");
    if (given(a[1]) && !by_value && !tpl_is(a[1], "key"))
        tpl_type_error(t, "You can only sort by either \"key\" or \"value\"");
    size_t n = v.dict->n;
    keyed *items = tpl_alloc_array(t, n, sizeof *items);
    for (size_t i = 0; i < n; i++) {
        const tpl_entry *e = &v.dict->entries[i];
        items[i].item = tpl_pair(t, e->key, e->value);
        items[i].key = fold(t, by_value ? e->value : e->key, tpl_bool_arg(a[0], false));
    }
    sort_items(t, items, n, tpl_bool_arg(a[2], false));
    tpl_list *list = tpl_list_new(t, n);
    for (size_t i = 0; i < n; i++) tpl_list_add(t, list, items[i].item);
    return tpl_of_list(TPL_LIST, list);
}

FILTER(groupby) {
    tpl_value a[3];
    tpl_bind(t, "groupby", args, "attribute default case_sensitive", 1, a);
    const tpl_list *from = tpl_iterate(t, v);
    bool case_sensitive = tpl_bool_arg(a[2], false);
    keyed *items = tpl_alloc_array(t, from->n, sizeof *items);
    for (size_t i = 0; i < from->n; i++) {
        items[i].item = from->items[i];
        items[i].key = fold(t, get_path(t, from->items[i], a[0], a[1]), case_sensitive);
    }
    sort_items(t, items, from->n, false);
    tpl_list *groups = tpl_list_new(t, 0), *group = NULL;
    for (size_t i = 0; i < from->n; i++) {
        if (i == 0 || !tpl_equal(t, items[i - 1].key, items[i].key)) {
            group = tpl_list_new(t, 1);
            tpl_value pair = tpl_pair(t, get_path(t, items[i].item, a[0], a[1]),
                                      tpl_of_list(TPL_LIST, group));
            pair.list->type = "group";
            tpl_list_add(t, groups, pair);
        }
        tpl_list_add(t, group, items[i].item);
    }
    return tpl_of_list(TPL_LIST, groups);
}

static tpl_value extreme(tpl *t, tpl_value v, const tpl_args *args, bool greatest) {
    tpl_value a[2], best = tpl_none(), best_key = best;
    const tpl_value none = {.kind = TPL_MISSING};
    tpl_bind(t, greatest ? "max" : "min", args, "case_sensitive attribute", 0, a);
    const tpl_list *from = tpl_iterate(t, v);
    if (from->n == 0) return tpl_undefined_hint(t, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < from->n; i++) {
        tpl_step(t);
        tpl_value key = fold(t, get_path(t, from->items[i], a[1], none), tpl_bool_arg(a[0], false));
        if (i) {
            int order = tpl_compare(t, key, best_key, greatest ? ">" : "<");
            if (order != (greatest ? 1 : -1)) continue;
        }
        best = from->items[i];
        best_key = key;
    }
    return best;
}

FILTER(max) {
    return extreme(t, v, args, true);
}

FILTER(min) {
    return extreme(t, v, args, false);
}

FILTER(unique) {
    tpl_value a[2];
    const tpl_value none = {.kind = TPL_MISSING};
    tpl_bind(t, "unique", args, "case_sensitive attribute", 0, a);
    const tpl_list *from = tpl_iterate(t, v);
    tpl_list *list = tpl_list_new(t, 0);
    tpl_dict *seen = tpl_dict_new(t);
    for (size_t i = 0; i < from->n; i++) {
        tpl_value key = fold(t, get_path(t, from->items[i], a[1], none), tpl_bool_arg(a[0], false));
        if (tpl_dict_find(t, seen, key)) continue;
        tpl_dict_set(t, seen, key, tpl_none());
        tpl_list_add(t, list, from->items[i]);
    }
    return iterator(list);
}

/* ---- choosing and mapping -------------------------------------------------------------------- */

static tpl_args rest_of(const tpl_args *args, size_t from) {
    return (tpl_args){.items = args->items + from, .n = args->n - from, .named = args->named};
}

/* select, reject, selectattr, rejectattr: [attribute,] [test, its arguments] */
static tpl_value choose(tpl *t, tpl_value v, const tpl_args *args, bool wanted, bool by_attribute) {
    size_t off = by_attribute ? 1 : 0;
    tpl_list *list = tpl_list_new(t, 0);
    tpl_function test = NULL;
    tpl_args rest = {0};
    if (!tpl_truth(v)) return iterator(list);
    if (args->n < off) tpl_type_error(t, "Missing parameter for attribute name");
    if (args->n > off) {
        tpl_value name = tpl_string_arg(t, args->items[off], "a test's name");
        test = tpl_find_test(name.str->s, name.str->n);
        if (!test) tpl_type_error(t, "No test named %s.", tpl_cstr(t, name));
        rest = rest_of(args, off + 1);
    }
    const tpl_list *from = tpl_iterate(t, v);
    for (size_t i = 0; i < from->n; i++) {
        tpl_value item = from->items[i];
        if (by_attribute)
            item = get_path(t, item, args->items[0], (tpl_value){.kind = TPL_MISSING});
        tpl_step(t);
        if (tpl_truth(test ? test(t, item, &rest) : item) == wanted)
            tpl_list_add(t, list, from->items[i]);
    }
    return iterator(list);
}

FILTER(select) {
    return choose(t, v, args, true, false);
}

FILTER(reject) {
    return choose(t, v, args, false, false);
}

FILTER(selectattr) {
    return choose(t, v, args, true, true);
}

FILTER(rejectattr) {
    return choose(t, v, args, false, true);
}

FILTER(map) {
    tpl_list *list = tpl_list_new(t, 0);
    tpl_function call = NULL;
    tpl_args rest = {0};
    tpl_value a[2] = {{.kind = TPL_MISSING}, {.kind = TPL_MISSING}};
    if (!tpl_truth(v)) return iterator(list);
    bool by_attribute = args->n == 0 && args->named &&
                        tpl_dict_find_text(t, args->named, "attribute");
    if (by_attribute) {
        tpl_bind(t, "map", args, "attribute default", 1, a);
    } else {
        if (args->n == 0) tpl_type_error(t, "map requires a filter argument");
        tpl_value name = tpl_string_arg(t, args->items[0], "a filter's name");
        call = tpl_find_filter(name.str->s, name.str->n);
        if (!call) tpl_type_error(t, "No filter named %s.", tpl_cstr(t, name));
        rest = rest_of(args, 1);
    }
    const tpl_list *from = tpl_iterate(t, v);
    for (size_t i = 0; i < from->n; i++) {
        tpl_step(t);
        tpl_value item = from->items[i];
        tpl_list_add(t, list, call ? call(t, item, &rest) : get_path(t, item, a[0], a[1]));
    }
    return iterator(list);
}

/* ---- parts ----------------------------------------------------------------------------------- */

FILTER(first) {
    NO_ARGS("first");
    if (tpl_is_string(v) && v.str->n) return tpl_substring(t, v, 0, 1);
    if (v.kind == TPL_ITERATOR && v.list->next < v.list->n) return v.list->items[v.list->next++];
    const tpl_list *list = tpl_iterate(t, v);
    if (list->n) return list->items[0];
    return tpl_undefined_hint(t, "No first item, sequence was empty.");
}

FILTER(last) {
    NO_ARGS("last");
    if (v.kind == TPL_ITERATOR) tpl_type_error(t, "'generator' object is not reversible");
    if (v.kind == TPL_UNDEFINED) return tpl_undefined_hint(t, "No last item, sequence was empty.");
    if (tpl_is_string(v) && v.str->n)
        return tpl_substring(t, v, tpl_chars(t, v) - 1, tpl_chars(t, v));
    const tpl_list *list = tpl_iterate(t, v);
    if (list->n) return list->items[list->n - 1];
    return tpl_undefined_hint(t, "No last item, sequence was empty.");
}

FILTER(reverse) {
    NO_ARGS("reverse");
    if (tpl_is_string(v)) return tpl_slice(t, v, tpl_none(), tpl_none(), tpl_int(-1));
    const tpl_list *from = tpl_iterate(t, v);
    tpl_list *list = tpl_list_new(t, from->n);
    for (size_t i = from->n; i-- > 0;) tpl_list_add(t, list, from->items[i]);
    return tpl_of_list(v.kind == TPL_ITERATOR ? TPL_LIST : TPL_ITERATOR, list);
}

FILTER(items) {
    NO_ARGS("items");
    if (v.kind == TPL_UNDEFINED) return iterator(tpl_list_new(t, 0));
    if (v.kind != TPL_DICT) tpl_type_error(t, "Can only get item pairs from a mapping.");
    tpl_list *list = tpl_list_new(t, v.dict->n);
    for (size_t i = 0; i < v.dict->n; i++)
        tpl_list_add(t, list, tpl_pair(t, v.dict->entries[i].key, v.dict->entries[i].value));
    return iterator(list);
}

FILTER(list) {
    NO_ARGS("list");
    return tpl_of_list(TPL_LIST, copy_of(t, tpl_iterate(t, v)));
}

/* ---- reducing -------------------------------------------------------------------------------- */

FILTER(length) {
    NO_ARGS("length");
    return tpl_int((int64_t)tpl_length(t, v));
}

FILTER(join) {
    tpl_value a[2];
    tpl_bind(t, "join", args, "d attribute", 0, a);
    const tpl_list *list = tpl_iterate(t, v);
    if (given(a[1])) {
        tpl_list *parts = tpl_list_new(t, list->n);
        for (size_t i = 0; i < list->n; i++)
            tpl_list_add(t, parts,
                         get_path(t, list->items[i], a[1], (tpl_value){.kind = TPL_MISSING}));
        list = parts;
    }
    return tpl_join(t, a[0].kind == TPL_MISSING ? tpl_text(t, "") : a[0], list);
}

FILTER(sum) {
    tpl_value a[2];
    tpl_bind(t, "sum", args, "attribute start", 0, a);
    const tpl_list *list = tpl_iterate(t, v);
    tpl_value total = a[1].kind == TPL_MISSING ? tpl_int(0) : a[1];
    if (tpl_is_string(total))
        tpl_type_error(t, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < list->n; i++) {
        tpl_step(t);
        tpl_value item = get_path(t, list->items[i], a[0], (tpl_value){.kind = TPL_MISSING});
        total = tpl_binary(t, '+', total, item);
    }
    return total;
}

static const tpl_entry_point sequence_filters[] = {{"count", filter_length},
                                                   {"dictsort", filter_dictsort},
                                                   {"first", filter_first},
                                                   {"groupby", filter_groupby},
                                                   {"items", filter_items},
                                                   {"join", filter_join},
                                                   {"last", filter_last},
                                                   {"length", filter_length},
                                                   {"list", filter_list},
                                                   {"map", filter_map},
                                                   {"max", filter_max},
                                                   {"min", filter_min},
                                                   {"reject", filter_reject},
                                                   {"rejectattr", filter_rejectattr},
                                                   {"reverse", filter_reverse},
                                                   {"select", filter_select},
                                                   {"selectattr", filter_selectattr},
                                                   {"sort", filter_sort},
                                                   {"sum", filter_sum},
                                                   {"unique", filter_unique},
                                                   {NULL, NULL}};

tpl_function tpl_find_filter(const char *name, size_t n) {
    tpl_function f = tpl_find_in(tpl_text_filters, name, n);
    return f ? f : tpl_find_in(sequence_filters, name, n);
}
