/* template_eval.h: the evaluator: expressions (template_eval.c), operators (template_operator.c),
 * statements, loops and macros (template_exec.c), and the functions they call. */
#ifndef TEMPLATE_EVAL_H
#define TEMPLATE_EVAL_H

#include "json.h"
#include "template_ast.h"
#include "template_value.h"

/* Variables of one loop iteration, macro call or block. Variables of the template itself are in
 * tpl.globals, and its scope is NULL. */
typedef struct tpl_scope tpl_scope;
struct tpl_scope {
    tpl_scope *parent;
    uint32_t *names;   /* [n] */
    tpl_value *values; /* [n] */
    size_t n, capacity;
};

struct tpl_macro {
    const tpl_signature *signature;
    tpl_scope *scope; /* where it was defined */
};

struct tpl_loop {
    const tpl_list *items;
    size_t index0;
    int64_t depth0;
    const tpl_node *node; /* NODE_FOR */
    tpl_scope *scope;     /* around the loop */
    tpl_value changed;    /* the last arguments of loop.changed */
};

tpl_scope *tpl_scope_new(tpl *t, tpl_scope *parent);
void tpl_scope_set(tpl *t, tpl_scope *s, uint32_t name, tpl_value v);
tpl_value tpl_scope_get(tpl *t, const tpl_scope *s, uint32_t name);

tpl_value tpl_eval(tpl *t, const tpl_node *node, tpl_scope *s);
/* Applies a NODE_FILTER to a computed value. */
tpl_value tpl_apply_filter(tpl *t, const tpl_node *node, tpl_value value, tpl_scope *s);
tpl_value tpl_call_value(tpl *t, tpl_value callee, const tpl_args *args);
tpl_args tpl_eval_args(tpl *t, const tpl_call *call, tpl_scope *s);
tpl_value tpl_get_attribute(tpl *t, tpl_value object, tpl_value name);
tpl_value tpl_get_item(tpl *t, tpl_value object, tpl_value index);

tpl_value tpl_binary(tpl *t, int op, tpl_value a, tpl_value b);
tpl_value tpl_negative(tpl *t, tpl_value v);
tpl_value tpl_slice(tpl *t, tpl_value object, tpl_value start, tpl_value stop, tpl_value step);
bool tpl_holds(tpl *t, int op, tpl_value a, tpl_value b); /* a comparison */

typedef enum tpl_flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } tpl_flow;

tpl_flow tpl_exec(tpl *t, const tpl_node *node, tpl_scope *s);
tpl_value tpl_call_macro(tpl *t, tpl_macro *macro, const tpl_args *args);
tpl_value tpl_call_loop(tpl *t, tpl_loop *loop, const tpl_args *args);
tpl_value tpl_loop_attribute(tpl *t, tpl_value loop, tpl_value name);

/* ---- functions that templates call ----------------------------------------------------------- */

/* Binds arguments to `names` (separated by blanks) in out[n]; TPL_MISSING for absent ones. The
 * first `required` arguments must be present. */
void tpl_bind(tpl *t, const char *function, const tpl_args *args, const char *names,
              size_t required, tpl_value *out);
int64_t tpl_int_arg(tpl *t, tpl_value v, int64_t standard);      /* standard: for MISSING or None */
bool tpl_bool_arg(tpl_value v, bool standard);                   /* truth; standard: MISSING */
tpl_value tpl_string_arg(tpl *t, tpl_value v, const char *what); /* fails unless v is a string */

/* A method or other attribute of a value; TPL_MISSING: no such name. */
tpl_value tpl_method(tpl *t, tpl_value object, tpl_value name);
/* Defines range, namespace and the other globals that the template uses. */
void tpl_define_globals(tpl *t);

tpl_value tpl_from_json(tpl *t, const json_node *node);
tpl_value tpl_filter_tojson(tpl *t, tpl_value v, const tpl_args *args);
tpl_value tpl_filter_fromjson(tpl *t, tpl_value v, const tpl_args *args);
tpl_value tpl_format_percent(tpl *t, tpl_value format, tpl_value values);    /* "%s" % values */
tpl_value tpl_format_braces(tpl *t, tpl_value format, const tpl_args *args); /* str.format */

/* String functions shared by filters and methods (template_string.c). */
typedef enum tpl_side { SIDE_LEFT = 1, SIDE_RIGHT = 2, SIDE_BOTH = 3 } tpl_side;
tpl_value tpl_strip(tpl *t, tpl_value s, tpl_value chars, tpl_side side);
tpl_value tpl_replace(tpl *t, tpl_value s, tpl_value from, tpl_value to, int64_t count);
typedef enum tpl_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE } tpl_case;
tpl_value tpl_change_case(tpl *t, tpl_value s, tpl_case kind);
tpl_list *tpl_split_lines(tpl *t, tpl_value s, bool keep_ends);
tpl_value tpl_pad(tpl *t, tpl_value s, int64_t width, tpl_value fill, tpl_side side);
tpl_value tpl_repeat(tpl *t, tpl_value s, int64_t times);
tpl_value tpl_join(tpl *t, tpl_value separator, const tpl_list *items);
bool tpl_all_cased(tpl *t, tpl_value s, bool upper);                 /* str.isupper, str.islower */
bool tpl_parse_int(tpl *t, tpl_value s, int64_t base, int64_t *out); /* as int(s, base) */
bool tpl_parse_float(tpl *t, tpl_value s, double *out);

/* Function tables by name, terminated by a NULL name. */
typedef struct tpl_entry_point {
    const char *name;
    tpl_function call;
} tpl_entry_point;
tpl_function tpl_find_in(const tpl_entry_point *table, const char *name, size_t n);
extern const tpl_entry_point tpl_text_filters[];

#endif
