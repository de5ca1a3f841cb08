/* template_parser.c: parses expressions by recursive descent with Jinja's precedences: if-else, or,
 * and, not, comparisons, + -, ~, * / // %, **, signs, then calls, items and attributes, then
 * filters and tests. tpl_enter limits the depth. */
#include <stdio.h>

#include "template_ast.h"

/* ---- tokens and nodes ------------------------------------------------------------------------ */

const tpl_token *tpl_peek(const tpl_parser *p) {
    return &p->tokens.items[p->at];
}

const tpl_token *tpl_next(tpl_parser *p) {
    const tpl_token *token = &p->tokens.items[p->at];
    if (token->type != TOKEN_END) p->at++;
    p->t->line = p->tokens.items[p->at].line;
    return token;
}

static bool is_name(const tpl_token *token, const char *name) {
    return token->type == TOKEN_NAME && token->n == strlen(name) &&
           memcmp(token->s, name, token->n) == 0;
}

bool tpl_at_name(const tpl_parser *p, const char *name) {
    return is_name(tpl_peek(p), name);
}

bool tpl_at_op(const tpl_parser *p, int op) {
    const tpl_token *token = tpl_peek(p);
    return token->type == TOKEN_OPERATOR && token->op == op;
}

bool tpl_skip_op(tpl_parser *p, int op) {
    if (!tpl_at_op(p, op)) return false;
    tpl_next(p);
    return true;
}

bool tpl_skip_name(tpl_parser *p, const char *name) {
    if (!tpl_at_name(p, name)) return false;
    tpl_next(p);
    return true;
}

static void describe(const tpl_token *token, char *buf, size_t n_buf) {
    static const char *const doubles[] = {"==", "!=", ">=", "<=", "//", "**"};
    switch (token->type) {
    case TOKEN_NAME:
    case TOKEN_STRING:
        snprintf(buf, n_buf, "%.*s", (int)(token->n < 80 ? token->n : 80), token->s);
        break;
    case TOKEN_OPERATOR:
        if (token->op >= OP_EQ)
            snprintf(buf, n_buf, "%s", doubles[token->op - OP_EQ]);
        else
            snprintf(buf, n_buf, "%c", (char)token->op);
        break;
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        snprintf(buf, n_buf, "number");
        break;
    case TOKEN_END:
        snprintf(buf, n_buf, "end of template");
        break;
    case TOKEN_BLOCK_END:
        snprintf(buf, n_buf, "%%}");
        break;
    case TOKEN_PRINT_END:
        snprintf(buf, n_buf, "}}");
        break;
    default:
        snprintf(buf, n_buf, "text");
    }
}

noreturn void tpl_unexpected(tpl_parser *p, const char *expected) {
    char got[96];
    const tpl_token *token = tpl_peek(p);
    describe(token, got, sizeof got);
    p->t->line = token->line;
    if (expected) tpl_type_error(p->t, "expected %s, got '%s'", expected, got);
    tpl_type_error(p->t, "unexpected '%s'", got);
}

void tpl_expect_op(tpl_parser *p, int op) {
    char expected[8];
    snprintf(expected, sizeof expected, "'%c'", (char)op);
    if (!tpl_skip_op(p, op)) tpl_unexpected(p, expected);
}

const tpl_token *tpl_expect_name(tpl_parser *p) {
    if (tpl_peek(p)->type != TOKEN_NAME) tpl_unexpected(p, "a name");
    return tpl_next(p);
}

tpl_node *tpl_node_new(tpl_parser *p, tpl_node_kind kind) {
    tpl_node *node = tpl_alloc(p->t, sizeof *node);
    node->kind = kind;
    node->line = tpl_peek(p)->line;
    return node;
}

void tpl_nodes_add(tpl_parser *p, tpl_nodes *nodes, tpl_node *node) {
    if (nodes->n == nodes->capacity) {
        size_t capacity = nodes->capacity ? 2 * nodes->capacity : 4;
        tpl_node **items = tpl_alloc_array(p->t, capacity, sizeof(tpl_node *));
        if (nodes->n) memcpy(items, nodes->items, nodes->n * sizeof(tpl_node *));
        nodes->items = items;
        nodes->capacity = capacity;
    }
    nodes->items[nodes->n++] = node;
}

uint32_t tpl_intern(tpl_parser *p, const char *s, size_t n) {
    uint32_t name = text_table_add(&p->program->names, s, n);
    if (name == TEXT_TABLE_NONE) {
        p->t->status = error_nomem(p->t->err, n, "chat template");
        longjmp(p->t->fail, 1);
    }
    return name;
}

/* Renderings in several threads share literals, so everything in them is computed here. */
tpl_value tpl_literal(tpl_parser *p, const char *s, size_t n) {
    tpl_value v = tpl_string(p->t, s, n);
    tpl_chars(p->t, v);
    return v;
}

static tpl_node *binary(tpl_parser *p, tpl_node_kind kind, int op, tpl_node *a) {
    tpl_node *node = tpl_node_new(p, kind);
    node->op = op;
    node->a = a;
    return node;
}

/* ---- primary --------------------------------------------------------------------------------- */

static tpl_node *constant(tpl_parser *p, tpl_value value) {
    tpl_node *node = tpl_node_new(p, NODE_CONST);
    node->value = value;
    return node;
}

static tpl_node *name_or_constant(tpl_parser *p, bool with_namespace) {
    const tpl_token *token = tpl_peek(p);
    tpl_node *node;
    if (is_name(token, "true") || is_name(token, "True")) {
        node = constant(p, tpl_bool(true));
    } else if (is_name(token, "false") || is_name(token, "False")) {
        node = constant(p, tpl_bool(false));
    } else if (is_name(token, "none") || is_name(token, "None")) {
        node = constant(p, tpl_none());
    } else {
        node = tpl_node_new(p, NODE_NAME);
        node->name = tpl_intern(p, token->s, token->n);
        tpl_signature *s = p->signature;
        if (s) {
            s->uses_varargs |= node->name == p->program->varargs;
            s->uses_kwargs |= node->name == p->program->kwargs;
            s->uses_caller |= node->name == p->program->caller;
        }
    }
    tpl_next(p);
    if (with_namespace && node->kind == NODE_NAME && tpl_skip_op(p, '.')) {
        const tpl_token *attribute = tpl_expect_name(p);
        node->kind = NODE_NAMESPACE_REF;
        node->value = tpl_literal(p, attribute->s, attribute->n);
    }
    return node;
}

static tpl_node *string_constant(tpl_parser *p) {
    const tpl_token *token = tpl_next(p);
    if (tpl_peek(p)->type != TOKEN_STRING) return constant(p, tpl_literal(p, token->s, token->n));
    tpl_buffer b = {0};
    tpl_put(p->t, &b, token->s, token->n);
    while (tpl_peek(p)->type == TOKEN_STRING) {
        token = tpl_next(p);
        tpl_put(p->t, &b, token->s, token->n);
    }
    return constant(p, tpl_literal(p, b.data, b.n));
}

static tpl_node *list_literal(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_LIST);
    tpl_expect_op(p, '[');
    while (!tpl_at_op(p, ']')) {
        if (node->list.n) tpl_expect_op(p, ',');
        if (tpl_at_op(p, ']')) break;
        tpl_nodes_add(p, &node->list, tpl_parse_expression(p, true));
    }
    tpl_expect_op(p, ']');
    return node;
}

static tpl_node *dict_literal(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_DICT);
    tpl_expect_op(p, '{');
    while (!tpl_at_op(p, '}')) {
        if (node->list.n) tpl_expect_op(p, ',');
        if (tpl_at_op(p, '}')) break;
        tpl_nodes_add(p, &node->list, tpl_parse_expression(p, true));
        tpl_expect_op(p, ':');
        tpl_nodes_add(p, &node->list, tpl_parse_expression(p, true));
    }
    tpl_expect_op(p, '}');
    return node;
}

static tpl_node *primary(tpl_parser *p, bool with_namespace) {
    const tpl_token *token = tpl_peek(p);
    tpl_node *node;
    switch (token->type) {
    case TOKEN_NAME:
        return name_or_constant(p, with_namespace);
    case TOKEN_STRING:
        return string_constant(p);
    case TOKEN_INTEGER:
        tpl_next(p);
        return constant(p, tpl_int(token->integer));
    case TOKEN_FLOAT:
        tpl_next(p);
        return constant(p, tpl_float(token->real));
    case TOKEN_OPERATOR:
        if (token->op == '(') {
            tpl_next(p);
            node = tpl_parse_tuple(p, true, NULL, true);
            tpl_expect_op(p, ')');
            return node;
        }
        if (token->op == '[') return list_literal(p);
        if (token->op == '{') return dict_literal(p);
        break;
    default:
        break;
    }
    tpl_unexpected(p, NULL);
}

static bool at_tuple_end(const tpl_parser *p, const char *end) {
    const tpl_token *token = tpl_peek(p);
    return token->type == TOKEN_PRINT_END || token->type == TOKEN_BLOCK_END || tpl_at_op(p, ')') ||
           (end && tpl_at_name(p, end));
}

/* A tuple of expressions; with `target`, of assignment targets. */
static tpl_node *tuple(tpl_parser *p, bool target, bool flag, const char *end, bool parentheses) {
    tpl_node *node = tpl_node_new(p, NODE_TUPLE);
    bool is_tuple = false;
    for (;;) {
        if (node->list.n) tpl_expect_op(p, ',');
        if (at_tuple_end(p, end)) break;
        tpl_nodes_add(p, &node->list, target ? primary(p, flag) : tpl_parse_expression(p, flag));
        if (!tpl_at_op(p, ',')) break;
        is_tuple = true;
    }
    if (is_tuple) return node;
    if (node->list.n) return node->list.items[0];
    if (!parentheses) tpl_unexpected(p, "an expression");
    return node;
}

tpl_node *tpl_parse_tuple(tpl_parser *p, bool with_condition, const char *end, bool parentheses) {
    tpl_enter(p->t);
    tpl_node *node = tuple(p, false, with_condition, end, parentheses);
    tpl_leave(p->t);
    return node;
}

static void check_target(tpl_parser *p, const tpl_node *node) {
    if (node->kind == NODE_TUPLE) {
        for (size_t i = 0; i < node->list.n; i++) check_target(p, node->list.items[i]);
    } else if (node->kind != NODE_NAME && node->kind != NODE_NAMESPACE_REF) {
        tpl_type_error(p->t, "can't assign to an expression");
    }
}

tpl_node *tpl_parse_target(tpl_parser *p, bool with_namespace) {
    tpl_node *node = tuple(p, true, with_namespace, "in", false);
    check_target(p, node);
    return node;
}

/* ---- postfix --------------------------------------------------------------------------------- */

static const tpl_call *call_args(tpl_parser *p) {
    tpl_call *call = tpl_alloc(p->t, sizeof *call);
    size_t capacity = 0;
    tpl_expect_op(p, '(');
    for (bool first = true; !tpl_at_op(p, ')'); first = false) {
        if (!first) tpl_expect_op(p, ',');
        if (tpl_at_op(p, ')')) break;
        const tpl_token *token = tpl_peek(p), *after = token + (token->type != TOKEN_END);
        if (tpl_at_op(p, '*') && !call->list && !call->dict) {
            tpl_next(p);
            call->list = tpl_parse_expression(p, true);
        } else if (tpl_at_op(p, OP_POW) && !call->dict) {
            tpl_next(p);
            call->dict = tpl_parse_expression(p, true);
        } else if (token->type == TOKEN_NAME && after->type == TOKEN_OPERATOR && after->op == '=' &&
                   !call->dict) {
            tpl_next(p);
            tpl_next(p);
            if (call->named.n == capacity) {
                capacity = capacity ? 2 * capacity : 4;
                tpl_value *names = tpl_alloc_array(p->t, capacity, sizeof *names);
                if (call->named.n) memcpy(names, call->names, call->named.n * sizeof *names);
                call->names = names;
            }
            call->names[call->named.n] = tpl_literal(p, token->s, token->n);
            tpl_nodes_add(p, &call->named, tpl_parse_expression(p, true));
        } else if (!call->list && !call->dict && !call->named.n) {
            tpl_nodes_add(p, &call->positional, tpl_parse_expression(p, true));
        } else {
            tpl_type_error(p->t, "invalid syntax for function call expression");
        }
    }
    tpl_expect_op(p, ')');
    return call;
}

static bool at_subscript_end(const tpl_parser *p) {
    return tpl_at_op(p, ']') || tpl_at_op(p, ',');
}

static tpl_node *subscribed(tpl_parser *p) {
    tpl_node *first = NULL, *slice;
    if (!tpl_at_op(p, ':')) {
        first = tpl_parse_expression(p, true);
        if (!tpl_at_op(p, ':')) return first;
    }
    tpl_next(p);
    slice = tpl_node_new(p, NODE_SLICE);
    slice->a = first;
    if (!tpl_at_op(p, ':') && !at_subscript_end(p)) slice->b = tpl_parse_expression(p, true);
    if (tpl_skip_op(p, ':') && !at_subscript_end(p)) slice->c = tpl_parse_expression(p, true);
    return slice;
}

static tpl_node *subscript(tpl_parser *p, tpl_node *object) {
    tpl_node *node = binary(p, NODE_ITEM, 0, object);
    if (tpl_skip_op(p, '.')) {
        const tpl_token *token = tpl_peek(p);
        if (token->type == TOKEN_NAME) {
            node->kind = NODE_ATTRIBUTE;
            node->value = tpl_literal(p, token->s, token->n);
        } else if (token->type == TOKEN_INTEGER) {
            node->b = constant(p, tpl_int(token->integer));
        } else {
            tpl_unexpected(p, "a name or a number");
        }
        tpl_next(p);
        return node;
    }
    tpl_expect_op(p, '[');
    tpl_node *index = tpl_node_new(p, NODE_TUPLE);
    while (!tpl_at_op(p, ']')) {
        if (index->list.n) tpl_expect_op(p, ',');
        tpl_nodes_add(p, &index->list, subscribed(p));
    }
    tpl_expect_op(p, ']');
    node->b = index->list.n == 1 ? index->list.items[0] : index;
    return node;
}

static tpl_node *call(tpl_parser *p, tpl_node *callee) {
    tpl_node *node = binary(p, NODE_CALL, 0, callee);
    node->call = call_args(p);
    return node;
}

static tpl_node *postfix(tpl_parser *p, tpl_node *node) {
    for (;;) {
        if (tpl_at_op(p, '.') || tpl_at_op(p, '['))
            node = subscript(p, node);
        else if (tpl_at_op(p, '('))
            node = call(p, node);
        else
            return node;
    }
}

/* The name of a filter or test, dots included. */
static tpl_value dotted_name(tpl_parser *p) {
    const tpl_token *token = tpl_expect_name(p);
    if (!tpl_at_op(p, '.')) return tpl_literal(p, token->s, token->n);
    tpl_buffer b = {0};
    tpl_put(p->t, &b, token->s, token->n);
    while (tpl_skip_op(p, '.')) {
        token = tpl_expect_name(p);
        tpl_put_text(p->t, &b, ".");
        tpl_put(p->t, &b, token->s, token->n);
    }
    return tpl_literal(p, b.data, b.n);
}

tpl_node *tpl_parse_filters(tpl_parser *p, tpl_node *node, bool start_inline) {
    while (start_inline || tpl_at_op(p, '|')) {
        if (!start_inline) tpl_next(p);
        start_inline = false;
        node = binary(p, NODE_FILTER, 0, node);
        node->value = dotted_name(p);
        node->function = tpl_find_filter(node->value.str->s, node->value.str->n);
        if (!node->function && !p->unknown) p->unknown = node;
        if (tpl_at_op(p, '(')) node->call = call_args(p);
    }
    return node;
}

/* A test's argument may have no parentheses: "x is divisibleby 3". */
static bool at_test_argument(const tpl_parser *p) {
    const tpl_token *token = tpl_peek(p);
    switch (token->type) {
    case TOKEN_NAME:
        return !is_name(token, "else") && !is_name(token, "or") && !is_name(token, "and") &&
               !is_name(token, "is") && !is_name(token, "if") && !is_name(token, "in") &&
               !is_name(token, "not");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return tpl_at_op(p, '[') || tpl_at_op(p, '{');
    }
}

static tpl_node *test(tpl_parser *p, tpl_node *value) {
    tpl_next(p); /* is */
    bool negated = tpl_skip_name(p, "not");
    tpl_node *node = binary(p, NODE_TEST, 0, value);
    node->value = dotted_name(p);
    node->function = tpl_find_test(node->value.str->s, node->value.str->n);
    if (!node->function && !p->unknown) p->unknown = node;
    if (tpl_at_op(p, '(')) {
        node->call = call_args(p);
    } else if (at_test_argument(p)) {
        tpl_call *args = tpl_alloc(p->t, sizeof *args);
        tpl_nodes_add(p, &args->positional, postfix(p, primary(p, false)));
        node->call = args;
    } else if (tpl_at_name(p, "is")) {
        tpl_type_error(p->t, "You cannot chain multiple tests with is");
    }
    return negated ? binary(p, NODE_NOT, 0, node) : node;
}

static tpl_node *filters_and_tests(tpl_parser *p, tpl_node *node) {
    for (;;) {
        if (tpl_at_op(p, '|'))
            node = tpl_parse_filters(p, node, false);
        else if (tpl_at_name(p, "is"))
            node = test(p, node);
        else if (tpl_at_op(p, '('))
            node = call(p, node);
        else
            return node;
    }
}

/* ---- operators ------------------------------------------------------------------------------- */

static tpl_node *unary(tpl_parser *p, bool with_filter) {
    tpl_node *node;
    tpl_enter(p->t);
    if (tpl_at_op(p, '-') || tpl_at_op(p, '+')) {
        node = binary(p, tpl_at_op(p, '-') ? NODE_NEGATIVE : NODE_POSITIVE, 0, NULL);
        tpl_next(p);
        node->a = unary(p, false);
    } else {
        node = primary(p, false);
    }
    node = postfix(p, node);
    if (with_filter) node = filters_and_tests(p, node);
    tpl_leave(p->t);
    return node;
}

static tpl_node *power(tpl_parser *p) {
    tpl_node *node = unary(p, true);
    while (tpl_at_op(p, OP_POW)) {
        node = binary(p, NODE_BINARY, OP_POW, node);
        tpl_next(p);
        node->b = unary(p, true);
    }
    return node;
}

static tpl_node *product(tpl_parser *p) {
    tpl_node *node = power(p);
    while (tpl_at_op(p, '*') || tpl_at_op(p, '/') || tpl_at_op(p, OP_FLOORDIV) ||
           tpl_at_op(p, '%')) {
        node = binary(p, NODE_BINARY, tpl_peek(p)->op, node);
        tpl_next(p);
        node->b = power(p);
    }
    return node;
}

static tpl_node *concat(tpl_parser *p) {
    tpl_node *first = product(p), *node;
    if (!tpl_at_op(p, '~')) return first;
    node = tpl_node_new(p, NODE_CONCAT);
    tpl_nodes_add(p, &node->list, first);
    while (tpl_skip_op(p, '~')) tpl_nodes_add(p, &node->list, product(p));
    return node;
}

static tpl_node *sum(tpl_parser *p) {
    tpl_node *node = concat(p);
    while (tpl_at_op(p, '+') || tpl_at_op(p, '-')) {
        node = binary(p, NODE_BINARY, tpl_peek(p)->op, node);
        tpl_next(p);
        node->b = concat(p);
    }
    return node;
}

/* Parses a comparison operator; returns 0 when there is none. */
static int comparison(tpl_parser *p) {
    const tpl_token *token = tpl_peek(p);
    if (token->type == TOKEN_OPERATOR &&
        (token->op == OP_EQ || token->op == OP_NE || token->op == OP_GE || token->op == OP_LE ||
         token->op == '<' || token->op == '>')) {
        tpl_next(p);
        return token->op;
    }
    if (tpl_skip_name(p, "in")) return OP_IN;
    if (is_name(token, "not") && is_name(token + 1, "in")) {
        tpl_next(p);
        tpl_next(p);
        return OP_NOT_IN;
    }
    return 0;
}

static tpl_node *compare(tpl_parser *p) {
    tpl_node *first = sum(p), *node = NULL;
    for (int op; (op = comparison(p)) != 0;) {
        if (!node) node = binary(p, NODE_COMPARE, 0, first);
        tpl_node *operand = binary(p, NODE_OPERAND, op, NULL);
        operand->a = sum(p);
        tpl_nodes_add(p, &node->list, operand);
    }
    return node ? node : first;
}

static tpl_node *negation(tpl_parser *p) {
    if (!tpl_at_name(p, "not")) return compare(p);
    tpl_enter(p->t);
    tpl_node *node = binary(p, NODE_NOT, 0, NULL);
    tpl_next(p);
    node->a = negation(p);
    tpl_leave(p->t);
    return node;
}

static tpl_node *conjunction(tpl_parser *p) {
    tpl_node *node = negation(p);
    while (tpl_skip_name(p, "and")) {
        node = binary(p, NODE_AND, 0, node);
        node->b = negation(p);
    }
    return node;
}

static tpl_node *disjunction(tpl_parser *p) {
    tpl_node *node = conjunction(p);
    while (tpl_skip_name(p, "or")) {
        node = binary(p, NODE_OR, 0, node);
        node->b = conjunction(p);
    }
    return node;
}

/* Filters in a branch that is not taken need not exist: unknown filters of a condition fail only
 * when they are used. */
static tpl_node *condition(tpl_parser *p) {
    const tpl_node *unknown = p->unknown;
    tpl_node *node = disjunction(p);
    if (!tpl_at_name(p, "if")) return node;
    while (tpl_skip_name(p, "if")) {
        node = binary(p, NODE_CONDITION, 0, node);
        node->b = disjunction(p);
        if (tpl_skip_name(p, "else")) {
            tpl_enter(p->t);
            node->c = condition(p);
            tpl_leave(p->t);
        }
    }
    p->unknown = unknown;
    return node;
}

tpl_node *tpl_parse_expression(tpl_parser *p, bool with_condition) {
    tpl_enter(p->t);
    tpl_node *node = with_condition ? condition(p) : disjunction(p);
    tpl_leave(p->t);
    return node;
}
