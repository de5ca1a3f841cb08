/* template_statement.c: parses statements, one function per tag. */
#include "template_ast.h"

static tpl_node *statements(tpl_parser *p, const char *const *ends);

static void expect_block_end(tpl_parser *p) {
    if (tpl_peek(p)->type != TOKEN_BLOCK_END) tpl_unexpected(p, "'%}'");
    tpl_next(p);
}

/* An unknown filter or test is an error here, unless an `if` may keep it from being reached. */
static void check_known(tpl_parser *p) {
    const tpl_node *node = p->unknown;
    p->unknown = NULL;
    if (!node || p->soft) return;
    p->t->line = node->line;
    tpl_type_error(p->t, "No %s named %s.", node->kind == NODE_FILTER ? "filter" : "test",
                   tpl_cstr(p->t, node->value));
}

/* Parses statements up to the tag `end` and skips it. */
static tpl_node *body_until(tpl_parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    tpl_node *body = statements(p, ends);
    tpl_next(p);
    return body;
}

/* State of the enclosing function, saved while a function body is parsed: inside the body there is
 * no enclosing loop or condition. */
typedef struct outside {
    int loops, soft;
    tpl_signature *signature;
} outside;

static outside enter_function(tpl_parser *p, tpl_signature *signature) {
    outside o = {.loops = p->loops, .soft = p->soft, .signature = p->signature};
    p->loops = p->soft = 0;
    p->signature = signature;
    return o;
}

/* Like enter_function, for a body whose text is captured; its names still belong to the enclosing
 * macro. */
static outside enter_text(tpl_parser *p) {
    return enter_function(p, p->signature);
}

static void leave_function(tpl_parser *p, outside o) {
    if (o.signature && p->signature) {
        o.signature->uses_varargs |= p->signature->uses_varargs;
        o.signature->uses_kwargs |= p->signature->uses_kwargs;
        o.signature->uses_caller |= p->signature->uses_caller;
    }
    p->loops = o.loops;
    p->soft = o.soft;
    p->signature = o.signature;
}

static tpl_node *parse_if(tpl_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    tpl_node *node = tpl_node_new(p, NODE_IF);
    p->soft++;
    for (bool more = true; more;) {
        tpl_nodes_add(p, &node->list, tpl_parse_tuple(p, false, NULL, false));
        tpl_nodes_add(p, &node->list, statements(p, ends));
        more = tpl_skip_name(p, "elif");
    }
    if (tpl_skip_name(p, "else"))
        tpl_nodes_add(p, &node->list, body_until(p, "endif"));
    else if (!tpl_skip_name(p, "endif"))
        tpl_unexpected(p, "'endif'");
    p->soft--;
    return node;
}

static tpl_node *parse_for(tpl_parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    tpl_node *node = tpl_node_new(p, NODE_FOR), *otherwise = NULL;
    node->a = tpl_parse_target(p, false);
    if (!tpl_skip_name(p, "in")) tpl_unexpected(p, "'in'");
    node->b = tpl_parse_tuple(p, false, "recursive", false);
    if (tpl_skip_name(p, "if")) node->c = tpl_parse_expression(p, true);
    node->op = tpl_skip_name(p, "recursive");
    check_known(p);
    int soft = p->soft;
    p->soft = 0;
    p->loops++;
    tpl_nodes_add(p, &node->list, statements(p, ends));
    p->loops--;
    if (tpl_skip_name(p, "else"))
        otherwise = body_until(p, "endfor");
    else
        tpl_next(p);
    p->soft = soft;
    tpl_nodes_add(p, &node->list, otherwise);
    return node;
}

static tpl_node *parse_set(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_SET);
    node->a = tpl_parse_target(p, true);
    if (tpl_skip_op(p, '=')) {
        node->b = tpl_parse_tuple(p, true, NULL, false);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->b = tpl_parse_filters(p, NULL, false);
    check_known(p);
    outside o = enter_text(p);
    tpl_nodes_add(p, &node->list, body_until(p, "endset"));
    leave_function(p, o);
    return node;
}

static void parse_signature(tpl_parser *p, tpl_signature *s) {
    size_t capacity = 0;
    tpl_expect_op(p, '(');
    while (!tpl_at_op(p, ')')) {
        if (s->n) tpl_expect_op(p, ',');
        const tpl_token *token = tpl_expect_name(p);
        if (s->n == capacity) {
            capacity = capacity ? 2 * capacity : 4;
            uint32_t *params = tpl_alloc_array(p->t, capacity, sizeof *params);
            tpl_value *texts = tpl_alloc_array(p->t, capacity, sizeof *texts);
            tpl_node **defaults = tpl_alloc_array(p->t, capacity, sizeof(tpl_node *));
            for (size_t i = 0; i < s->n; i++) {
                params[i] = s->params[i];
                texts[i] = s->texts[i];
                defaults[i] = s->defaults[i];
            }
            s->params = params;
            s->texts = texts;
            s->defaults = defaults;
        }
        s->params[s->n] = tpl_intern(p, token->s, token->n);
        s->texts[s->n] = tpl_literal(p, token->s, token->n);
        s->caller_is_param |= s->params[s->n] == p->program->caller;
        if (tpl_skip_op(p, '='))
            s->defaults[s->n] = tpl_parse_expression(p, true);
        else if (s->n && s->defaults[s->n - 1])
            tpl_type_error(p->t, "non-default argument follows default argument");
        s->n++;
    }
    tpl_expect_op(p, ')');
}

static void function_body(tpl_parser *p, tpl_signature *s, const char *end) {
    check_known(p);
    outside o = enter_function(p, s);
    s->body = body_until(p, end);
    leave_function(p, o);
}

static tpl_node *parse_macro(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_MACRO);
    tpl_signature *s = tpl_alloc(p->t, sizeof *s);
    const tpl_token *token = tpl_expect_name(p);
    char *name = tpl_alloc(p->t, token->n + 1);
    memcpy(name, token->s, token->n);
    s->name = name;
    node->name = tpl_intern(p, token->s, token->n);
    node->signature = s;
    parse_signature(p, s);
    function_body(p, s, "endmacro");
    return node;
}

static tpl_node *parse_call_block(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_CALL_BLOCK);
    tpl_signature *s = tpl_alloc(p->t, sizeof *s);
    s->name = "caller";
    if (tpl_at_op(p, '(')) parse_signature(p, s);
    node->a = tpl_parse_expression(p, true);
    if (node->a->kind != NODE_CALL) tpl_unexpected(p, "a call");
    node->signature = s;
    function_body(p, s, "endcall");
    return node;
}

static tpl_node *parse_filter_block(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_FILTER_BLOCK);
    node->a = tpl_parse_filters(p, NULL, true);
    check_known(p);
    outside o = enter_text(p);
    tpl_nodes_add(p, &node->list, body_until(p, "endfilter"));
    leave_function(p, o);
    return node;
}

static tpl_node *parse_with(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_WITH);
    while (tpl_peek(p)->type != TOKEN_BLOCK_END) {
        if (node->list.n) tpl_expect_op(p, ',');
        /* The target is a single name: a comma begins the next one. */
        tpl_node *target = tpl_node_new(p, NODE_NAME);
        const tpl_token *token = tpl_expect_name(p);
        target->name = tpl_intern(p, token->s, token->n);
        tpl_nodes_add(p, &node->list, target);
        tpl_expect_op(p, '=');
        tpl_nodes_add(p, &node->list, tpl_parse_expression(p, true));
    }
    node->a = body_until(p, "endwith");
    return node;
}

/* generation: marks the model's output for training; the text is not changed. */
static tpl_node *parse_scope(tpl_parser *p, const char *end) {
    tpl_node *node = tpl_node_new(p, NODE_SCOPE);
    outside o = enter_text(p);
    node->a = body_until(p, end);
    leave_function(p, o);
    return node;
}

/* block NAME [scoped] [required] ... endblock [NAME]: chat templates cannot be extended, so a block
 * is simply its content. */
static tpl_node *parse_block(tpl_parser *p) {
    tpl_expect_name(p);
    while (tpl_skip_name(p, "scoped") || tpl_skip_name(p, "required")) {}
    tpl_node *node = parse_scope(p, "endblock");
    if (tpl_peek(p)->type == TOKEN_NAME) tpl_next(p);
    return node;
}

static tpl_node *parse_jump(tpl_parser *p, tpl_node_kind kind) {
    if (p->loops == 0)
        tpl_type_error(p->t, "'%s' outside loop", kind == NODE_BREAK ? "break" : "continue");
    return tpl_node_new(p, kind);
}

/* print A, B: writes both without a separator. */
static tpl_node *parse_print(tpl_parser *p) {
    tpl_node *body = tpl_node_new(p, NODE_BODY);
    while (tpl_peek(p)->type != TOKEN_BLOCK_END) {
        if (body->list.n) tpl_expect_op(p, ',');
        tpl_node *node = tpl_node_new(p, NODE_PRINT);
        node->a = tpl_parse_expression(p, true);
        tpl_nodes_add(p, &body->list, node);
    }
    return body;
}

static tpl_node *statement(tpl_parser *p) {
    static const char *const files[] = {"include", "import", "from", "extends"};
    const tpl_token *token = tpl_peek(p);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (tpl_at_name(p, files[i]))
            tpl_fail(p->t, PI_ERR_UNSUPPORTED, "%s is not supported in chat templates", files[i]);
    if (tpl_skip_name(p, "if")) return parse_if(p);
    if (tpl_skip_name(p, "for")) return parse_for(p);
    if (tpl_skip_name(p, "set")) return parse_set(p);
    if (tpl_skip_name(p, "macro")) return parse_macro(p);
    if (tpl_skip_name(p, "call")) return parse_call_block(p);
    if (tpl_skip_name(p, "filter")) return parse_filter_block(p);
    if (tpl_skip_name(p, "with")) return parse_with(p);
    if (tpl_skip_name(p, "generation")) return parse_scope(p, "endgeneration");
    if (tpl_skip_name(p, "block")) return parse_block(p);
    if (tpl_skip_name(p, "break")) return parse_jump(p, NODE_BREAK);
    if (tpl_skip_name(p, "continue")) return parse_jump(p, NODE_CONTINUE);
    if (tpl_skip_name(p, "print")) return parse_print(p);
    if (token->type != TOKEN_NAME) tpl_unexpected(p, "the name of a tag");
    tpl_type_error(p->t, "Encountered unknown tag %s.",
                   tpl_cstr(p->t, tpl_string(p->t, token->s, token->n)));
}

static bool at_end_tag(const tpl_parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (tpl_at_name(p, *ends)) return true;
    return false;
}

static tpl_node *print(tpl_parser *p) {
    tpl_node *node = tpl_node_new(p, NODE_PRINT);
    tpl_next(p);
    node->a = tpl_parse_tuple(p, true, NULL, false);
    if (tpl_peek(p)->type != TOKEN_PRINT_END) tpl_unexpected(p, "'}}'");
    tpl_next(p);
    check_known(p);
    return node;
}

/* Parses statements up to a tag in `ends`, whose name is then the next token; NULL: up to the end.
 * The tag before the statements ends here. */
static tpl_node *statements(tpl_parser *p, const char *const *ends) {
    tpl_node *body;
    tpl_enter(p->t);
    if (ends) {
        tpl_skip_op(p, ':'); /* accepted because Python users write it */
        expect_block_end(p);
        check_known(p);
    }
    body = tpl_node_new(p, NODE_BODY);
    for (;;) {
        const tpl_token *token = tpl_peek(p);
        if (token->type == TOKEN_DATA) {
            tpl_node *data = tpl_node_new(p, NODE_DATA);
            data->value = tpl_literal(p, token->s, token->n);
            tpl_nodes_add(p, &body->list, data);
            tpl_next(p);
        } else if (token->type == TOKEN_PRINT_BEGIN) {
            tpl_nodes_add(p, &body->list, print(p));
        } else if (token->type == TOKEN_BLOCK_BEGIN) {
            tpl_next(p);
            if (at_end_tag(p, ends)) break;
            tpl_nodes_add(p, &body->list, statement(p));
            expect_block_end(p);
            check_known(p);
        } else if (ends) {
            while (ends[1]) ends++; /* the last one always ends the block */
            tpl_type_error(p->t, "unexpected end of template, expected '%s'", ends[0]);
        } else {
            break;
        }
    }
    tpl_leave(p->t);
    return body;
}

tpl_node *tpl_parse_template(tpl_parser *p) {
    return statements(p, NULL);
}
