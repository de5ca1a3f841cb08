/* template_ast.h: a parsed template: a tree of nodes in the template's arena, with variable names
 * as numbers. Read-only after parsing. */
#ifndef TEMPLATE_AST_H
#define TEMPLATE_AST_H

#include "template_lexer.h"
#include "template_value.h"
#include "text_table.h"

typedef enum tpl_node_kind {
    /* expressions */
    NODE_CONST,         /* value */
    NODE_NAME,          /* name */
    NODE_LIST,          /* list */
    NODE_TUPLE,         /* list */
    NODE_DICT,          /* list: key, value, key, value, ... */
    NODE_ATTRIBUTE,     /* a . value */
    NODE_ITEM,          /* a [ b ] */
    NODE_SLICE,         /* a : b : c as an index; each may be NULL */
    NODE_CALL,          /* a ( call ) */
    NODE_FILTER,        /* a | function (call); a NULL: the text of a block; value: filter name */
    NODE_TEST,          /* a is function (call); value: test name */
    NODE_NOT,           /* a */
    NODE_NEGATIVE,      /* a */
    NODE_POSITIVE,      /* a */
    NODE_BINARY,        /* a op b */
    NODE_AND,           /* a, b */
    NODE_OR,            /* a, b */
    NODE_CONCAT,        /* list */
    NODE_COMPARE,       /* a, then list of NODE_OPERAND */
    NODE_OPERAND,       /* op, a */
    NODE_CONDITION,     /* a if b else c; c may be NULL */
    NODE_NAMESPACE_REF, /* target: name . value */
    /* statements */
    NODE_DATA,         /* value */
    NODE_PRINT,        /* a */
    NODE_IF,           /* list: condition, body, condition, body, ..., [else body] */
    NODE_BODY,         /* list of statements */
    NODE_FOR,          /* for a in b if c: list = {body, else or NULL}; op: recursive */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a, filter b or NULL; list = {body} */
    NODE_MACRO,        /* name, value (macro name), signature */
    NODE_CALL_BLOCK,   /* a: NODE_CALL, signature of the caller block */
    NODE_FILTER_BLOCK, /* a: NODE_FILTER; list = {body} */
    NODE_WITH,         /* list: target, value, ...; a: body */
    NODE_SCOPE,        /* a: a body that keeps its variables inside */
    NODE_BREAK,
    NODE_CONTINUE
} tpl_node_kind;

typedef struct tpl_node tpl_node;

typedef struct tpl_nodes {
    tpl_node **items;
    size_t n, capacity;
} tpl_nodes;

typedef struct tpl_call {
    tpl_nodes positional;
    tpl_value *names; /* [named.n] strings */
    tpl_nodes named;
    tpl_node *list, *dict; /* *list, **dict; NULL: none */
} tpl_call;

typedef struct tpl_signature {
    const char *name;    /* NUL-terminated */
    uint32_t *params;    /* [n] */
    tpl_value *texts;    /* [n] their names */
    tpl_node **defaults; /* [n]; NULL: none */
    size_t n;
    bool uses_varargs, uses_kwargs, uses_caller, caller_is_param;
    tpl_node *body;
} tpl_signature;

struct tpl_node {
    tpl_node_kind kind;
    int line, op;
    uint32_t name;
    tpl_value value;
    tpl_node *a, *b, *c;
    tpl_nodes list;
    const tpl_call *call;
    const tpl_signature *signature;
    tpl_function function;
};

struct template_program {
    arena small, large; /* the tree, and copies of the source */
    text_table names;   /* of variables */
    tpl_node *body;
    uint32_t loop, caller, varargs, kwargs; /* names with a meaning */
};

/* Builds the tree (template_parser.c, template_statement.c). */
typedef struct tpl_parser {
    tpl *t;
    struct template_program *program;
    tpl_tokens tokens;
    size_t at;
    int loops;                /* enclosing loops of this function */
    int soft;                 /* enclosing ifs: inside, unknown filters fail only when used */
    const tpl_node *unknown;  /* the first unknown filter or test so far */
    tpl_signature *signature; /* of the enclosing macro or call block; NULL: none */
} tpl_parser;

tpl_node *tpl_parse_expression(tpl_parser *p, bool with_condition);
/* Expressions separated by commas make a tuple; up to `end` (a name such as "recursive"). */
tpl_node *tpl_parse_tuple(tpl_parser *p, bool with_condition, const char *end, bool parentheses);
tpl_node *tpl_parse_target(tpl_parser *p, bool with_namespace);
tpl_node *tpl_parse_filters(tpl_parser *p, tpl_node *node, bool start_inline);
tpl_node *tpl_parse_template(tpl_parser *p);

tpl_node *tpl_node_new(tpl_parser *p, tpl_node_kind kind);
void tpl_nodes_add(tpl_parser *p, tpl_nodes *nodes, tpl_node *node);
const tpl_token *tpl_peek(const tpl_parser *p);
const tpl_token *tpl_next(tpl_parser *p);
bool tpl_at_name(const tpl_parser *p, const char *name);
bool tpl_at_op(const tpl_parser *p, int op);
bool tpl_skip_op(tpl_parser *p, int op);
bool tpl_skip_name(tpl_parser *p, const char *name);
void tpl_expect_op(tpl_parser *p, int op);
const tpl_token *tpl_expect_name(tpl_parser *p);
noreturn void tpl_unexpected(tpl_parser *p, const char *expected);
uint32_t tpl_intern(tpl_parser *p, const char *s, size_t n);
tpl_value tpl_literal(tpl_parser *p, const char *s, size_t n);

/* NULL: no such filter, no such test. */
tpl_function tpl_find_filter(const char *name, size_t n);
tpl_function tpl_find_test(const char *name, size_t n);

#endif
