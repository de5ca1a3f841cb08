/* template_eval.c: variables and expressions. */
#include "template_eval.h"

#include <stdio.h>

/* ---- scopes ---------------------------------------------------------------------------------- */

tpl_scope *tpl_scope_new(tpl *t, tpl_scope *parent) {
    tpl_scope *s = tpl_alloc(t, sizeof *s);
    s->parent = parent;
    return s;
}

void tpl_scope_set(tpl *t, tpl_scope *s, uint32_t name, tpl_value v) {
    if (!s) {
        t->globals[name] = v;
        return;
    }
    tpl_work(t, s->n * sizeof *s->names);
    for (size_t i = 0; i < s->n; i++) {
        if (s->names[i] != name) continue;
        s->values[i] = v;
        return;
    }
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        uint32_t *names = tpl_alloc_array(t, capacity, sizeof *names);
        tpl_value *values = tpl_alloc_array(t, capacity, sizeof *values);
        for (size_t i = 0; i < s->n; i++) {
            names[i] = s->names[i];
            values[i] = s->values[i];
        }
        s->names = names;
        s->values = values;
        s->capacity = capacity;
    }
    s->names[s->n] = name;
    s->values[s->n++] = v;
}

static tpl_value name_text(tpl *t, uint32_t name) {
    const text_entry *e = &t->program->names.entries[name];
    return tpl_string(t, e->data, e->n_bytes);
}

tpl_value tpl_scope_get(tpl *t, const tpl_scope *s, uint32_t name) {
    for (; s; s = s->parent) {
        tpl_work(t, sizeof *s + s->n * sizeof *s->names);
        for (size_t i = 0; i < s->n; i++)
            if (s->names[i] == name) return s->values[i];
    }
    if (t->globals[name].kind != TPL_MISSING) return t->globals[name];
    return tpl_undefined_name(t, NULL, name_text(t, name));
}

/* ---- attributes and items -------------------------------------------------------------------- */

static bool is_internal(tpl_value name) {
    const tpl_str *s = name.str;
    return s->n > 4 && memcmp(s->s, "__", 2) == 0 && memcmp(s->s + s->n - 2, "__", 2) == 0;
}

/* The result of Python's getattr(); TPL_MISSING: no such attribute. */
static tpl_value own_attribute(tpl *t, tpl_value object, tpl_value name) {
    if (object.kind == TPL_NAMESPACE) {
        tpl_entry *e = tpl_dict_find(t, object.dict, name);
        return e ? e->value : (tpl_value){.kind = TPL_MISSING};
    }
    if (object.kind == TPL_LOOP) return tpl_loop_attribute(t, object, name);
    if (is_internal(name)) return tpl_undefined_unsafe(t, tpl_type(object), name);
    return tpl_method(t, object, name);
}

tpl_value tpl_get_attribute(tpl *t, tpl_value object, tpl_value name) {
    if (object.kind == TPL_UNDEFINED) tpl_fail_undefined(t, object);
    tpl_value v = own_attribute(t, object, name);
    if (v.kind != TPL_MISSING) return v;
    if (object.kind == TPL_DICT) {
        tpl_entry *e = tpl_dict_find(t, object.dict, name);
        if (e) return e->value;
    }
    return tpl_undefined_name(t, tpl_owner(object), name);
}

static bool is_hashable(tpl_value v) {
    return v.kind != TPL_LIST && v.kind != TPL_DICT && v.kind != TPL_VIEW;
}

tpl_value tpl_get_item(tpl *t, tpl_value object, tpl_value index) {
    int64_t i;
    if (object.kind == TPL_UNDEFINED) tpl_fail_undefined(t, object);
    if (object.kind == TPL_DICT && is_hashable(index)) {
        tpl_entry *e = tpl_dict_find(t, object.dict, index);
        if (e) return e->value;
    }
    bool indexed = object.kind >= TPL_STRING && object.kind <= TPL_RANGE;
    if (indexed && tpl_integer(index, &i)) {
        int64_t n = (int64_t)tpl_length(t, object);
        if (i < 0) i += n;
        if (i >= 0 && i < n) {
            if (!tpl_is_string(object)) return object.list->items[i];
            return tpl_substring(t, object, (size_t)i, (size_t)i + 1);
        }
    }
    if (tpl_is_string(index)) {
        tpl_value v = own_attribute(t, object, index);
        if (v.kind != TPL_MISSING) return v;
    }
    return tpl_undefined_name(t, tpl_owner(object), index);
}

/* ---- calls ----------------------------------------------------------------------------------- */

tpl_args tpl_eval_args(tpl *t, const tpl_call *call, tpl_scope *s) {
    tpl_list items = {0};
    tpl_args args = {0};
    if (!call) return args;
    for (size_t i = 0; i < call->positional.n; i++)
        tpl_list_add(t, &items, tpl_eval(t, call->positional.items[i], s));
    if (call->list) {
        const tpl_list *more = tpl_iterate(t, tpl_eval(t, call->list, s));
        for (size_t i = 0; i < more->n; i++) tpl_list_add(t, &items, more->items[i]);
    }
    if (call->named.n || call->dict) args.named = tpl_dict_new(t);
    for (size_t i = 0; i < call->named.n; i++)
        tpl_dict_set(t, args.named, call->names[i], tpl_eval(t, call->named.items[i], s));
    if (call->dict) {
        tpl_value more = tpl_eval(t, call->dict, s);
        if (more.kind != TPL_DICT)
            tpl_type_error(t, "argument after ** must be a mapping, not %s", tpl_type(more));
        for (size_t i = 0; i < more.dict->n; i++) {
            const tpl_entry *e = &more.dict->entries[i];
            if (!tpl_is_string(e->key)) tpl_type_error(t, "keywords must be strings");
            if (tpl_dict_find(t, args.named, e->key))
                tpl_type_error(t, "got multiple values for keyword argument %s",
                               tpl_cstr(t, e->key));
            tpl_dict_set(t, args.named, e->key, e->value);
        }
    }
    args.items = items.items;
    args.n = items.n;
    return args;
}

tpl_value tpl_call_value(tpl *t, tpl_value callee, const tpl_args *args) {
    tpl_value v;
    tpl_enter(t);
    switch (callee.kind) {
    case TPL_FUNCTION:
    case TPL_METHOD:
    case TPL_JOINER:
        v = callee.callable->call(t, callee.callable->self, args);
        break;
    case TPL_MACRO:
        v = tpl_call_macro(t, callee.macro, args);
        break;
    case TPL_LOOP:
        v = tpl_call_loop(t, callee.loop, args);
        break;
    case TPL_UNDEFINED:
        tpl_fail_undefined(t, callee);
    default:
        tpl_type_error(t, "'%s' object is not callable", tpl_type(callee));
    }
    tpl_leave(t);
    return v;
}

tpl_value tpl_apply_filter(tpl *t, const tpl_node *node, tpl_value value, tpl_scope *s) {
    tpl_args args = tpl_eval_args(t, node->call, s);
    t->line = node->line;
    if (!node->function) tpl_type_error(t, "No filter named %s.", tpl_cstr(t, node->value));
    return node->function(t, value, &args);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static tpl_value eval_sequence(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_list *list = tpl_list_new(t, node->list.n);
    for (size_t i = 0; i < node->list.n; i++)
        tpl_list_add(t, list, tpl_eval(t, node->list.items[i], s));
    return tpl_of_list(node->kind == NODE_LIST ? TPL_LIST : TPL_TUPLE, list);
}

static tpl_value eval_dict(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_dict *d = tpl_dict_new(t);
    for (size_t i = 0; i + 1 < node->list.n; i += 2) {
        tpl_value key = tpl_eval(t, node->list.items[i], s);
        tpl_dict_set(t, d, key, tpl_eval(t, node->list.items[i + 1], s));
    }
    return tpl_of_dict(d);
}

static tpl_value eval_item(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value object = tpl_eval(t, node->a, s), bounds[3];
    if (node->b->kind != NODE_SLICE) return tpl_get_item(t, object, tpl_eval(t, node->b, s));
    const tpl_node *const parts[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] ? tpl_eval(t, parts[i], s) : (tpl_value){.kind = TPL_MISSING};
    return tpl_slice(t, object, bounds[0], bounds[1], bounds[2]);
}

static tpl_value eval_call(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value callee = tpl_eval(t, node->a, s);
    tpl_args args = tpl_eval_args(t, node->call, s);
    t->line = node->line;
    return tpl_call_value(t, callee, &args);
}

static tpl_value eval_test(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value value = tpl_eval(t, node->a, s);
    tpl_args args = tpl_eval_args(t, node->call, s);
    t->line = node->line;
    if (!node->function) tpl_type_error(t, "No test named %s.", tpl_cstr(t, node->value));
    return node->function(t, value, &args);
}

static tpl_value eval_compare(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value left = tpl_eval(t, node->a, s);
    for (size_t i = 0; i < node->list.n; i++) {
        const tpl_node *operand = node->list.items[i];
        tpl_value right = tpl_eval(t, operand->a, s);
        t->line = node->line;
        if (!tpl_holds(t, operand->op, left, right)) return tpl_bool(false);
        left = right;
    }
    return tpl_bool(true);
}

static tpl_value eval_concat(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value v = tpl_str_of(t, tpl_eval(t, node->list.items[0], s));
    for (size_t i = 1; i < node->list.n; i++)
        v = tpl_append(t, v, tpl_str_of(t, tpl_eval(t, node->list.items[i], s)));
    return v;
}

static tpl_value eval_condition(tpl *t, const tpl_node *node, tpl_scope *s) {
    if (tpl_truth(tpl_eval(t, node->b, s))) return tpl_eval(t, node->a, s);
    if (node->c) return tpl_eval(t, node->c, s);
    return tpl_undefined_hint(t, "the inline if-expression evaluated to false and no else section "
                                 "was defined.");
}

static tpl_value eval_operator(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value a = tpl_eval(t, node->a, s), b;
    switch (node->kind) {
    case NODE_NOT:
        return tpl_bool(!tpl_truth(a));
    case NODE_NEGATIVE:
        return tpl_negative(t, a);
    case NODE_POSITIVE:
        if (a.kind == TPL_UNDEFINED) tpl_fail_undefined(t, a);
        if (a.kind < TPL_BOOL || a.kind > TPL_FLOAT)
            tpl_type_error(t, "bad operand type for unary +: '%s'", tpl_type(a));
        return a.kind == TPL_BOOL ? tpl_int(a.b) : a;
    case NODE_AND:
        return tpl_truth(a) ? tpl_eval(t, node->b, s) : a;
    case NODE_OR:
        return tpl_truth(a) ? a : tpl_eval(t, node->b, s);
    default:
        b = tpl_eval(t, node->b, s);
        t->line = node->line;
        return tpl_binary(t, node->op, a, b);
    }
}

static tpl_value eval(tpl *t, const tpl_node *node, tpl_scope *s) {
    switch (node->kind) {
    case NODE_CONST:
        return node->value;
    case NODE_NAME:
        return tpl_scope_get(t, s, node->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_sequence(t, node, s);
    case NODE_DICT:
        return eval_dict(t, node, s);
    case NODE_ATTRIBUTE:
        return tpl_get_attribute(t, tpl_eval(t, node->a, s), node->value);
    case NODE_ITEM:
        return eval_item(t, node, s);
    case NODE_SLICE: /* a slice among several indices: no object here accepts one */
        tpl_type_error(t, "unhashable type: 'slice'");
    case NODE_CALL:
        return eval_call(t, node, s);
    case NODE_FILTER:
        return tpl_apply_filter(t, node, tpl_eval(t, node->a, s), s);
    case NODE_TEST:
        return eval_test(t, node, s);
    case NODE_COMPARE:
        return eval_compare(t, node, s);
    case NODE_CONCAT:
        return eval_concat(t, node, s);
    case NODE_CONDITION:
        return eval_condition(t, node, s);
    default:
        return eval_operator(t, node, s);
    }
}

tpl_value tpl_eval(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_step(t);
    tpl_enter(t);
    t->line = node->line;
    tpl_value v = eval(t, node, s);
    tpl_leave(t);
    return v;
}
