/* template_exec.c: statements, loops, macros. Text goes to tpl.out; blocks, macros and filters
 * replace it by their own buffer while they run. */
#include "template_eval.h"

/* ---- text ------------------------------------------------------------------------------------ */

static void write_value(tpl *t, tpl_value v) {
    size_t before = t->out->n;
    tpl_put_str(t, t->out, v);
    size_t n = t->out->n - before;
    if (n > t->output_left) tpl_fail(t, PI_ERR_LIMIT, "the template writes more text than it may");
    t->output_left -= n;
}

/* The text that a body writes, as a string. */
static tpl_value captured(tpl *t, const tpl_node *body, tpl_scope *s) {
    tpl_buffer mine = {0}, *outer = t->out;
    t->out = &mine;
    tpl_exec(t, body, s);
    t->out = outer;
    return tpl_buffer_string(t, &mine);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void assign(tpl *t, const tpl_node *target, tpl_value v, tpl_scope *s) {
    if (target->kind == NODE_NAME) {
        tpl_scope_set(t, s, target->name, v);
        return;
    }
    if (target->kind == NODE_NAMESPACE_REF) {
        tpl_value ns = tpl_scope_get(t, s, target->name);
        if (ns.kind != TPL_NAMESPACE)
            tpl_type_error(t, "cannot assign attribute on non-namespace object");
        tpl_dict_set(t, ns.dict, target->value, v);
        return;
    }
    if (v.kind != TPL_UNDEFINED && !tpl_is_sequence(v) && !tpl_is_string(v) && v.kind != TPL_DICT)
        tpl_type_error(t, "cannot unpack non-iterable %s object", tpl_type(v));
    const tpl_list *items = tpl_iterate(t, v);
    if (items->n > target->list.n)
        tpl_type_error(t, "too many values to unpack (expected %zu)", target->list.n);
    if (items->n < target->list.n) {
        tpl_type_error(t, "not enough values to unpack (expected %zu, got %zu)", target->list.n,
                       items->n);
    }
    for (size_t i = 0; i < items->n; i++) assign(t, target->list.items[i], items->items[i], s);
}

/* Passes the text of a block through its filters, innermost first; NULL: no filters. */
static tpl_value through(tpl *t, const tpl_node *filter, tpl_value text, tpl_scope *s) {
    if (!filter) return text;
    tpl_enter(t);
    text = through(t, filter->a, text, s);
    tpl_leave(t);
    return tpl_apply_filter(t, filter, text, s);
}

static void exec_set_block(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value text = captured(t, node->list.items[0], tpl_scope_new(t, s));
    assign(t, node->a, through(t, node->b, text, s), s);
}

static void exec_filter_block(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_scope *inner = tpl_scope_new(t, s);
    tpl_value text = captured(t, node->list.items[0], inner);
    write_value(t, through(t, node->a, text, inner));
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The items that pass the loop's condition. */
static const tpl_list *filtered(tpl *t, const tpl_node *node, const tpl_list *items, tpl_scope *s) {
    tpl_list *list = tpl_list_new(t, 0);
    tpl_scope *inner = tpl_scope_new(t, s);
    for (size_t i = 0; i < items->n; i++) {
        inner->n = 0;
        assign(t, node->a, items->items[i], inner);
        if (tpl_truth(tpl_eval(t, node->c, inner))) tpl_list_add(t, list, items->items[i]);
    }
    return list;
}

static tpl_flow run_loop(tpl *t, const tpl_node *node, tpl_value over, tpl_scope *s,
                         int64_t depth0) {
    const tpl_list *items = tpl_iterate(t, over);
    const tpl_node *body = node->list.items[0], *otherwise = node->list.items[1];
    if (node->c) items = filtered(t, node, items, s);
    if (items->n == 0) return otherwise ? tpl_exec(t, otherwise, tpl_scope_new(t, s)) : FLOW_ON;
    tpl_loop *loop = tpl_alloc(t, sizeof *loop);
    *loop = (tpl_loop){.items = items, .depth0 = depth0, .node = node, .scope = s};
    tpl_scope *inner = tpl_scope_new(t, s);
    for (size_t i = 0; i < items->n; i++) {
        tpl_step(t);
        inner->n = 0; /* variables set in an iteration end with it, even for macros defined in it */
        loop->index0 = i;
        tpl_scope_set(t, inner, t->program->loop, (tpl_value){.kind = TPL_LOOP, .loop = loop});
        assign(t, node->a, items->items[i], inner);
        if (tpl_exec(t, body, inner) == FLOW_BREAK) break;
    }
    return FLOW_ON;
}

tpl_value tpl_call_loop(tpl *t, tpl_loop *loop, const tpl_args *args) {
    if (!loop->node->op) {
        tpl_type_error(t, "The loop must have the 'recursive' marker to be called recursively.");
    }
    tpl_value over;
    tpl_bind(t, "loop", args, "iterable", 1, &over);
    tpl_buffer mine = {0}, *outer = t->out;
    t->out = &mine;
    run_loop(t, loop->node, over, loop->scope, loop->depth0 + 1);
    t->out = outer;
    return tpl_buffer_string(t, &mine);
}

static tpl_value loop_cycle(tpl *t, tpl_value self, const tpl_args *args) {
    if (args->n == 0) tpl_type_error(t, "no items for cycling given");
    return args->items[self.loop->index0 % args->n];
}

static tpl_value loop_changed(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_list *list = tpl_list_new(t, args->n);
    for (size_t i = 0; i < args->n; i++) tpl_list_add(t, list, args->items[i]);
    tpl_value now = tpl_of_list(TPL_TUPLE, list);
    if (self.loop->changed.kind != TPL_MISSING && tpl_equal(t, self.loop->changed, now))
        return tpl_bool(false);
    self.loop->changed = now;
    return tpl_bool(true);
}

tpl_value tpl_loop_attribute(tpl *t, tpl_value v, tpl_value name) {
    const tpl_loop *loop = v.loop;
    int64_t index0 = (int64_t)loop->index0, length = (int64_t)loop->items->n;
    if (tpl_is(name, "index")) return tpl_int(index0 + 1);
    if (tpl_is(name, "index0")) return tpl_int(index0);
    if (tpl_is(name, "first")) return tpl_bool(index0 == 0);
    if (tpl_is(name, "last")) return tpl_bool(index0 + 1 == length);
    if (tpl_is(name, "length")) return tpl_int(length);
    if (tpl_is(name, "revindex")) return tpl_int(length - index0);
    if (tpl_is(name, "revindex0")) return tpl_int(length - index0 - 1);
    if (tpl_is(name, "depth")) return tpl_int(loop->depth0 + 1);
    if (tpl_is(name, "depth0")) return tpl_int(loop->depth0);
    if (tpl_is(name, "previtem")) {
        if (index0 == 0) return tpl_undefined_hint(t, "there is no previous item");
        return loop->items->items[index0 - 1];
    }
    if (tpl_is(name, "nextitem")) {
        if (index0 + 1 == length) return tpl_undefined_hint(t, "there is no next item");
        return loop->items->items[index0 + 1];
    }
    if (tpl_is(name, "cycle")) return tpl_of_function(t, TPL_METHOD, "cycle", loop_cycle, v);
    if (tpl_is(name, "changed")) return tpl_of_function(t, TPL_METHOD, "changed", loop_changed, v);
    return (tpl_value){.kind = TPL_MISSING};
}

/* ---- macros ---------------------------------------------------------------------------------- */

static bool is_param(tpl *t, const tpl_signature *s, tpl_value name) {
    tpl_work(t, s->n * sizeof *s->texts);
    for (size_t i = 0; i < s->n; i++)
        if (s->texts[i].str->n == name.str->n &&
            memcmp(s->texts[i].str->s, name.str->s, name.str->n) == 0)
            return true;
    return false;
}

/* Named arguments that are not parameters become kwargs or cause an error. */
static tpl_value other_named(tpl *t, const tpl_signature *s, const tpl_args *args,
                             tpl_value *caller) {
    tpl_dict *rest = tpl_dict_new(t);
    for (size_t i = 0; args->named && i < args->named->n; i++) {
        const tpl_entry *e = &args->named->entries[i];
        if (is_param(t, s, e->key)) continue;
        if (s->uses_caller && !s->caller_is_param && tpl_is(e->key, "caller")) {
            *caller = e->value;
            continue;
        }
        if (!s->uses_kwargs) {
            tpl_type_error(t, "macro '%s' takes no keyword argument %s", s->name,
                           tpl_cstr(t, e->key));
        }
        tpl_dict_set(t, rest, e->key, e->value);
    }
    return tpl_of_dict(rest);
}

static void bind_params(tpl *t, const tpl_signature *s, const tpl_args *args, tpl_scope *scope) {
    for (size_t i = 0; i < s->n; i++) {
        tpl_entry *e = args->named ? tpl_dict_find(t, args->named, s->texts[i]) : NULL;
        tpl_value v;
        if (i < args->n) {
            if (e)
                tpl_type_error(t, "macro '%s' takes no keyword argument %s", s->name,
                               tpl_cstr(t, s->texts[i]));
            v = args->items[i];
        } else if (e) {
            v = e->value;
        } else if (s->defaults[i]) {
            v = tpl_eval(t, s->defaults[i], scope);
        } else {
            tpl_buffer hint = {0};
            tpl_put_text(t, &hint, "parameter ");
            tpl_put_repr(t, &hint, s->texts[i]);
            tpl_put(t, &hint, " was not provided", sizeof " was not provided");
            v = tpl_undefined_hint(t, hint.data);
        }
        tpl_scope_set(t, scope, s->params[i], v);
    }
}

tpl_value tpl_call_macro(tpl *t, tpl_macro *macro, const tpl_args *args) {
    const tpl_signature *s = macro->signature;
    tpl_scope *scope = tpl_scope_new(t, macro->scope);
    tpl_value caller = {.kind = TPL_MISSING};
    tpl_value named = other_named(t, s, args, &caller);
    if (args->n > s->n && !s->uses_varargs)
        tpl_type_error(t, "macro '%s' takes not more than %zu argument(s)", s->name, s->n);
    if (s->uses_caller && !s->caller_is_param) {
        if (caller.kind == TPL_MISSING) caller = tpl_undefined_hint(t, "No caller defined");
        tpl_scope_set(t, scope, t->program->caller, caller);
    }
    if (s->uses_kwargs) tpl_scope_set(t, scope, t->program->kwargs, named);
    if (s->uses_varargs) {
        tpl_list *rest = tpl_list_new(t, 0);
        for (size_t i = s->n; i < args->n; i++) tpl_list_add(t, rest, args->items[i]);
        tpl_scope_set(t, scope, t->program->varargs, tpl_of_list(TPL_TUPLE, rest));
    }
    bind_params(t, s, args, scope);
    return captured(t, s->body, scope);
}

static tpl_value macro_value(tpl *t, const tpl_signature *signature, tpl_scope *s) {
    tpl_macro *macro = tpl_alloc(t, sizeof *macro);
    *macro = (tpl_macro){.signature = signature, .scope = s};
    return (tpl_value){.kind = TPL_MACRO, .macro = macro};
}

static void exec_call_block(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_value callee = tpl_eval(t, node->a->a, s);
    tpl_args args = tpl_eval_args(t, node->a->call, s);
    if (!args.named) args.named = tpl_dict_new(t);
    tpl_dict_set(t, args.named, tpl_text(t, "caller"), macro_value(t, node->signature, s));
    t->line = node->line;
    write_value(t, tpl_call_value(t, callee, &args));
}

/* ---- statements ------------------------------------------------------------------------------ */

static tpl_flow exec_if(tpl *t, const tpl_node *node, tpl_scope *s) {
    size_t i = 0;
    for (; i + 1 < node->list.n; i += 2)
        if (tpl_truth(tpl_eval(t, node->list.items[i], s)))
            return tpl_exec(t, node->list.items[i + 1], s);
    return i < node->list.n ? tpl_exec(t, node->list.items[i], s) : FLOW_ON;
}

static tpl_flow exec_body(tpl *t, const tpl_node *node, tpl_scope *s) {
    for (size_t i = 0; i < node->list.n; i++) {
        tpl_flow flow = tpl_exec(t, node->list.items[i], s);
        if (flow != FLOW_ON) return flow;
    }
    return FLOW_ON;
}

static tpl_flow exec_with(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_scope *inner = tpl_scope_new(t, s);
    for (size_t i = 0; i + 1 < node->list.n; i += 2) /* values see only outer variables */
        assign(t, node->list.items[i], tpl_eval(t, node->list.items[i + 1], s), inner);
    return tpl_exec(t, node->a, inner);
}

static tpl_flow exec(tpl *t, const tpl_node *node, tpl_scope *s) {
    switch (node->kind) {
    case NODE_DATA:
        write_value(t, node->value);
        return FLOW_ON;
    case NODE_PRINT:
        write_value(t, tpl_eval(t, node->a, s));
        return FLOW_ON;
    case NODE_BODY:
        return exec_body(t, node, s);
    case NODE_IF:
        return exec_if(t, node, s);
    case NODE_FOR:
        return run_loop(t, node, tpl_eval(t, node->b, s), s, 0);
    case NODE_SET:
        assign(t, node->a, tpl_eval(t, node->b, s), s);
        return FLOW_ON;
    case NODE_SET_BLOCK:
        exec_set_block(t, node, s);
        return FLOW_ON;
    case NODE_MACRO:
        tpl_scope_set(t, s, node->name, macro_value(t, node->signature, s));
        return FLOW_ON;
    case NODE_CALL_BLOCK:
        exec_call_block(t, node, s);
        return FLOW_ON;
    case NODE_FILTER_BLOCK:
        exec_filter_block(t, node, s);
        return FLOW_ON;
    case NODE_WITH:
        return exec_with(t, node, s);
    case NODE_SCOPE:
        return tpl_exec(t, node->a, tpl_scope_new(t, s));
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        tpl_type_error(t, "not a statement");
    }
}

tpl_flow tpl_exec(tpl *t, const tpl_node *node, tpl_scope *s) {
    tpl_step(t);
    tpl_enter(t);
    t->line = node->line;
    tpl_flow flow = exec(t, node, s);
    tpl_leave(t);
    return flow;
}
