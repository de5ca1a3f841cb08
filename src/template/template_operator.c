/* template_operator.c: Python's arithmetic, comparisons and slices, but with 64-bit integers. */
#include <math.h>

#include "template_eval.h"

static const char *op_name(int op) {
    static const char singles[] = "+\0-\0*\0/\0%\0<\0>";
    static const char *const doubles[] = {"==", "!=", ">=", "<=", "//", "** or pow()"};
    if (op >= OP_EQ) return doubles[op - OP_EQ];
    for (size_t i = 0; i < sizeof singles; i += 2)
        if (singles[i] == (char)op) return &singles[i];
    return "?";
}

static noreturn void unsupported(tpl *t, int op, tpl_value a, tpl_value b) {
    if (op == '+' && (a.kind == TPL_STRING || a.kind == TPL_LIST || a.kind == TPL_TUPLE)) {
        tpl_type_error(t, "can only concatenate %s (not \"%s\") to %s", tpl_type(a), tpl_type(b),
                       tpl_type(a));
    }
    tpl_type_error(t, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op), tpl_type(a),
                   tpl_type(b));
}

static noreturn void overflow(tpl *t) {
    tpl_fail(t, PI_ERR_LIMIT, "an integer is beyond 64 bits");
}

static noreturn void by_zero(tpl *t, int op, bool ints) {
    if (op == '%') tpl_type_error(t, ints ? "integer modulo by zero" : "float modulo");
    if (op == '/') tpl_type_error(t, ints ? "division by zero" : "float division by zero");
    tpl_type_error(t, ints ? "integer division or modulo by zero" : "float floor division by zero");
}

static tpl_value power_ints(tpl *t, int64_t base, int64_t exponent) {
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0) tpl_type_error(t, "0.0 cannot be raised to a negative power");
        return tpl_float(pow((double)base, (double)exponent));
    }
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow(t);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) overflow(t);
    }
    return tpl_int(result);
}

static tpl_value ints(tpl *t, int op, int64_t a, int64_t b) {
    int64_t r;
    switch (op) {
    case '+':
        if (__builtin_add_overflow(a, b, &r)) overflow(t);
        return tpl_int(r);
    case '-':
        if (__builtin_sub_overflow(a, b, &r)) overflow(t);
        return tpl_int(r);
    case '*':
        if (__builtin_mul_overflow(a, b, &r)) overflow(t);
        return tpl_int(r);
    case OP_POW:
        return power_ints(t, a, b);
    default:
        break;
    }
    if (b == 0) by_zero(t, op, true);
    if (op == '/') return tpl_float((double)a / (double)b);
    if (b == -1) { /* the smallest integer has no positive counterpart */
        if (op == '%') return tpl_int(0);
        if (__builtin_sub_overflow((int64_t)0, a, &r)) overflow(t);
        return tpl_int(r);
    }
    /* Rounds towards minus infinity; the remainder has the sign of b. */
    int64_t quotient = a / b, rest = a % b;
    if (rest && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    return tpl_int(op == '%' ? rest : quotient);
}

static tpl_value floats(tpl *t, int op, double a, double b) {
    double r;
    switch (op) {
    case '+':
        return tpl_float(a + b);
    case '-':
        return tpl_float(a - b);
    case '*':
        return tpl_float(a * b);
    case OP_POW:
        if (a == 0 && b < 0) tpl_type_error(t, "0.0 cannot be raised to a negative power");
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            tpl_fail(t, PI_ERR_UNSUPPORTED, "complex numbers are not supported");
        if (isinf(r) && !isinf(a) && !isinf(b)) tpl_type_error(t, "Numerical result out of range");
        return tpl_float(r);
    default:
        break;
    }
    if (b == 0) by_zero(t, op, false);
    if (op == '/') return tpl_float(a / b);
    /* Same as CPython's float_divmod. */
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            quotient -= 1;
        }
    } else {
        rest = copysign(0, b);
    }
    if (op == '%') return tpl_float(rest);
    if (quotient == 0) return tpl_float(copysign(0, a / b));
    double whole = floor(quotient);
    return tpl_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

static tpl_value add_lists(tpl *t, tpl_kind kind, const tpl_list *a, const tpl_list *b) {
    size_t n;
    if (!size_add(a->n, b->n, &n)) n = SIZE_MAX;
    tpl_list *list = tpl_list_new(t, n);
    tpl_work(t, n * sizeof *list->items);
    if (a->n) memcpy(list->items, a->items, a->n * sizeof *a->items);
    if (b->n) memcpy(list->items + a->n, b->items, b->n * sizeof *b->items);
    list->n = n;
    return tpl_of_list(kind, list);
}

static tpl_value add_strings(tpl *t, tpl_value a, tpl_value b) {
    bool safe = a.str->safe || b.str->safe;
    if (safe) {
        a = tpl_escape(t, a);
        b = tpl_escape(t, b);
    }
    tpl_value v = tpl_append(t, a, b);
    v.str->safe = safe;
    return v;
}

static tpl_value repeat_list(tpl *t, tpl_value v, int64_t times) {
    size_t n;
    if (times < 0) times = 0;
    if (!size_mul(v.list->n, (size_t)times, &n)) n = SIZE_MAX;
    tpl_list *list = tpl_list_new(t, n);
    tpl_work(t, n * sizeof *list->items);
    for (size_t i = 0; i < n; i++) list->items[i] = v.list->items[i % v.list->n];
    list->n = n;
    return tpl_of_list(v.kind, list);
}

/* A sequence times an integer, in either order; TPL_MISSING for other operands. */
static tpl_value repeated(tpl *t, tpl_value a, tpl_value b) {
    int64_t times;
    if (tpl_integer(a, &times)) {
        tpl_value c = a;
        a = b;
        b = c;
    }
    if (!tpl_integer(b, &times)) return (tpl_value){.kind = TPL_MISSING};
    if (tpl_is_string(a)) return tpl_repeat(t, a, times);
    if (a.kind == TPL_LIST || a.kind == TPL_TUPLE) return repeat_list(t, a, times);
    return (tpl_value){.kind = TPL_MISSING};
}

tpl_value tpl_binary(tpl *t, int op, tpl_value a, tpl_value b) {
    int64_t i, j;
    double x, y;
    if (tpl_integer(a, &i) && tpl_integer(b, &j)) return ints(t, op, i, j);
    if (tpl_number(a, &x) && tpl_number(b, &y)) return floats(t, op, x, y);
    if (op == '%' && tpl_is_string(a)) return tpl_format_percent(t, a, b);
    if (a.kind == TPL_UNDEFINED) tpl_fail_undefined(t, a);
    if (b.kind == TPL_UNDEFINED) tpl_fail_undefined(t, b);
    if (op == '+' && tpl_is_string(a) && tpl_is_string(b)) return add_strings(t, a, b);
    if (op == '+' && a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE))
        return add_lists(t, a.kind, a.list, b.list);
    if (op == '*') {
        tpl_value v = repeated(t, a, b);
        if (v.kind != TPL_MISSING) return v;
        if (tpl_is_string(a) || a.kind == TPL_LIST || a.kind == TPL_TUPLE)
            tpl_type_error(t, "can't multiply sequence by non-int of type '%s'", tpl_type(b));
    }
    unsupported(t, op, a, b);
}

tpl_value tpl_negative(tpl *t, tpl_value v) {
    int64_t i;
    if (tpl_integer(v, &i)) return ints(t, '-', 0, i);
    if (v.kind == TPL_FLOAT) return tpl_float(-v.f);
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    tpl_type_error(t, "bad operand type for unary -: '%s'", tpl_type(v));
}

bool tpl_holds(tpl *t, int op, tpl_value a, tpl_value b) {
    int order;
    switch (op) {
    case OP_EQ:
        return tpl_equal(t, a, b);
    case OP_NE:
        return !tpl_equal(t, a, b);
    case OP_IN:
        return tpl_contains(t, b, a);
    case OP_NOT_IN:
        return !tpl_contains(t, b, a);
    default:
        break;
    }
    order = tpl_compare(t, a, b, op_name(op));
    if (order == 2) return false;
    return op == '<' ? order < 0 : op == '>' ? order > 0 : op == OP_LE ? order <= 0 : order >= 0;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int64_t slice_bound(tpl *t, tpl_value v, int64_t standard, int64_t n, int64_t low,
                           int64_t high) {
    int64_t i;
    if (v.kind == TPL_MISSING || v.kind == TPL_NONE) return standard;
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (!tpl_integer(v, &i)) {
        tpl_type_error(t, "slice indices must be integers or None or have an __index__ method");
    }
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static tpl_value slice_string(tpl *t, tpl_value s, int64_t from, int64_t count, int64_t step) {
    tpl_buffer b = {0};
    if (step == 1) return tpl_substring(t, s, (size_t)from, (size_t)(from + count));
    const tpl_list *chars = tpl_iterate(t, s);
    for (int64_t k = 0; k < count; k++) {
        const tpl_str *c = chars->items[from + k * step].str;
        tpl_put(t, &b, c->s, c->n);
    }
    return tpl_with_safety(t, tpl_buffer_string(t, &b), s.str->safe);
}

tpl_value tpl_slice(tpl *t, tpl_value object, tpl_value start, tpl_value stop, tpl_value step) {
    int64_t by = 1;
    if (object.kind == TPL_UNDEFINED) tpl_fail_undefined(t, object);
    if (object.kind == TPL_DICT) tpl_type_error(t, "unhashable type: 'slice'");
    bool is_list = object.kind >= TPL_LIST && object.kind <= TPL_RANGE;
    if (!tpl_is_string(object) && !is_list)
        tpl_type_error(t, "'%s' object is not subscriptable", tpl_type(object));
    if (step.kind != TPL_MISSING && step.kind != TPL_NONE && !tpl_integer(step, &by))
        tpl_type_error(t, "slice indices must be integers or None or have an __index__ method");
    if (by == 0) tpl_type_error(t, "slice step cannot be zero");
    if (by < -INT64_MAX) by = -INT64_MAX;
    int64_t n = (int64_t)tpl_length(t, object), low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    int64_t from = slice_bound(t, start, by > 0 ? low : high, n, low, high);
    int64_t to = slice_bound(t, stop, by > 0 ? high : low, n, low, high);
    int64_t span = by > 0 ? to - from : from - to, stride = by > 0 ? by : -by;
    int64_t count = span > 0 ? (span - 1) / stride + 1 : 0;
    if (count == 0) from = 0;
    if (tpl_is_string(object)) return slice_string(t, object, from, count, by);
    tpl_list *list = tpl_list_new(t, (size_t)count);
    for (int64_t k = 0; k < count; k++) tpl_list_add(t, list, object.list->items[from + k * by]);
    if (object.kind == TPL_RANGE) {
        list->start = object.list->start + from * object.list->step;
        list->step = object.list->step * by;
        list->stop = object.list->start + to * object.list->step;
    }
    return tpl_of_list(object.kind, list);
}
