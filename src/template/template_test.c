/* template_test.c: the tests of `is`. */
#include "template_ast.h"
#include "template_eval.h"

#define NO_ARGS(name) tpl_bind(t, name, args, "", 0, NULL)

static tpl_value other(tpl *t, const tpl_args *args, const char *name) {
    tpl_value v;
    tpl_bind(t, name, args, "other", 1, &v);
    return v;
}

/* A test that depends only on the kind. */
#define KIND_TEST(name, condition)                                                                 \
    static tpl_value is_##name(tpl *t, tpl_value v, const tpl_args *args) {                        \
        NO_ARGS(#name);                                                                            \
        return tpl_bool(condition);                                                                \
    }
KIND_TEST(defined, v.kind != TPL_UNDEFINED)
KIND_TEST(undefined, v.kind == TPL_UNDEFINED)
KIND_TEST(none, v.kind == TPL_NONE)
KIND_TEST(boolean, v.kind == TPL_BOOL)
KIND_TEST(true, v.kind == TPL_BOOL && v.b)
KIND_TEST(false, v.kind == TPL_BOOL && !v.b)
KIND_TEST(integer, v.kind == TPL_INT)
KIND_TEST(float, v.kind == TPL_FLOAT)
KIND_TEST(number, v.kind >= TPL_BOOL && v.kind <= TPL_FLOAT)
KIND_TEST(string, v.kind == TPL_STRING)
KIND_TEST(mapping, v.kind == TPL_DICT)
KIND_TEST(callable, tpl_is_callable(v) || v.kind == TPL_UNDEFINED)
KIND_TEST(escaped, v.kind == TPL_STRING && v.str->safe)
KIND_TEST(iterable, (v.kind >= TPL_STRING && v.kind <= TPL_DICT) || v.kind == TPL_UNDEFINED ||
                        v.kind == TPL_LOOP)
KIND_TEST(sequence, (v.kind >= TPL_STRING && v.kind <= TPL_RANGE) || v.kind == TPL_DICT ||
                        v.kind == TPL_UNDEFINED)

#define COMPARE_TEST(name, op)                                                                     \
    static tpl_value is_##name(tpl *t, tpl_value v, const tpl_args *args) {                        \
        return tpl_bool(tpl_holds(t, op, v, other(t, args, #name)));                               \
    }
COMPARE_TEST(eq, OP_EQ)
COMPARE_TEST(ne, OP_NE)
COMPARE_TEST(lt, '<')
COMPARE_TEST(le, OP_LE)
COMPARE_TEST(gt, '>')
COMPARE_TEST(ge, OP_GE)
COMPARE_TEST(in, OP_IN)

static tpl_value remainder_of(tpl *t, tpl_value v, tpl_value by) {
    if (tpl_is_string(v)) tpl_type_error(t, "not all arguments converted during string formatting");
    return tpl_binary(t, '%', v, by);
}

static tpl_value is_odd(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("odd");
    return tpl_bool(tpl_equal(t, remainder_of(t, v, tpl_int(2)), tpl_int(1)));
}

static tpl_value is_even(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("even");
    return tpl_bool(tpl_equal(t, remainder_of(t, v, tpl_int(2)), tpl_int(0)));
}

static tpl_value is_divisibleby(tpl *t, tpl_value v, const tpl_args *args) {
    tpl_value by;
    tpl_bind(t, "divisibleby", args, "num", 1, &by);
    return tpl_bool(tpl_equal(t, remainder_of(t, v, by), tpl_int(0)));
}

static tpl_value is_lower(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("lower");
    return tpl_bool(tpl_all_cased(t, tpl_str_of(t, v), false));
}

static tpl_value is_upper(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("upper");
    return tpl_bool(tpl_all_cased(t, tpl_str_of(t, v), true));
}

/* Tests for the same object; Python's small integers, True, False and None are single objects. */
static tpl_value is_sameas(tpl *t, tpl_value v, const tpl_args *args) {
    tpl_value b = other(t, args, "sameas");
    if (v.kind != b.kind) return tpl_bool(false);
    switch (v.kind) {
    case TPL_NONE:
        return tpl_bool(true);
    case TPL_BOOL:
    case TPL_INT:
    case TPL_STRING:
        return tpl_bool(tpl_equal(t, v, b));
    case TPL_FLOAT:
        return tpl_bool(false);
    default:
        return tpl_bool(v.list == b.list);
    }
}

static tpl_value is_filter(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("filter");
    return tpl_bool(tpl_is_string(v) && tpl_find_filter(v.str->s, v.str->n));
}

static tpl_value is_test(tpl *t, tpl_value v, const tpl_args *args) {
    NO_ARGS("test");
    return tpl_bool(tpl_is_string(v) && tpl_find_test(v.str->s, v.str->n));
}

static const tpl_entry_point tests[] = {{"defined", is_defined},
                                        {"undefined", is_undefined},
                                        {"none", is_none},
                                        {"boolean", is_boolean},
                                        {"true", is_true},
                                        {"false", is_false},
                                        {"integer", is_integer},
                                        {"float", is_float},
                                        {"number", is_number},
                                        {"string", is_string},
                                        {"mapping", is_mapping},
                                        {"callable", is_callable},
                                        {"escaped", is_escaped},
                                        {"iterable", is_iterable},
                                        {"sequence", is_sequence},
                                        {"odd", is_odd},
                                        {"even", is_even},
                                        {"divisibleby", is_divisibleby},
                                        {"lower", is_lower},
                                        {"upper", is_upper},
                                        {"sameas", is_sameas},
                                        {"filter", is_filter},
                                        {"test", is_test},
                                        {"in", is_in},
                                        {"==", is_eq},
                                        {"eq", is_eq},
                                        {"equalto", is_eq},
                                        {"!=", is_ne},
                                        {"ne", is_ne},
                                        {"<", is_lt},
                                        {"lt", is_lt},
                                        {"lessthan", is_lt},
                                        {"<=", is_le},
                                        {"le", is_le},
                                        {">", is_gt},
                                        {"gt", is_gt},
                                        {"greaterthan", is_gt},
                                        {">=", is_ge},
                                        {"ge", is_ge},
                                        {NULL, NULL}};

tpl_function tpl_find_test(const char *name, size_t n) {
    return tpl_find_in(tests, name, n);
}
