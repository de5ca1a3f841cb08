/* template_call.c: argument binding, and the global functions. */
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "template_eval.h"

tpl_function tpl_find_in(const tpl_entry_point *table, const char *name, size_t n) {
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0) return table->call;
    return NULL;
}

static size_t position_of(const char *names, tpl_value name) {
    size_t at = 0;
    for (const char *p = names; *p; at++) {
        size_t n = strcspn(p, " ");
        if (n == name.str->n && memcmp(p, name.str->s, n) == 0) return at;
        p += n + (p[n] == ' ');
    }
    return SIZE_MAX;
}

void tpl_bind(tpl *t, const char *function, const tpl_args *args, const char *names,
              size_t required, tpl_value *out) {
    size_t count = *names ? 1 : 0;
    for (const char *p = names; *p; p++) count += *p == ' ';
    if (args->n > count) {
        tpl_type_error(t, "%s() takes at most %zu argument%s (%zu given)", function, count,
                       count == 1 ? "" : "s", args->n);
    }
    for (size_t i = 0; i < count; i++)
        out[i] = i < args->n ? args->items[i] : (tpl_value){.kind = TPL_MISSING};
    for (size_t i = 0; args->named && i < args->named->n; i++) {
        const tpl_entry *e = &args->named->entries[i];
        size_t at = position_of(names, e->key);
        if (at == SIZE_MAX)
            tpl_type_error(t, "%s() got an unexpected keyword argument %s", function,
                           tpl_cstr(t, e->key));
        if (out[at].kind != TPL_MISSING)
            tpl_type_error(t, "%s() got multiple values for argument %s", function,
                           tpl_cstr(t, e->key));
        out[at] = e->value;
    }
    for (size_t i = 0; i < required; i++)
        if (out[i].kind == TPL_MISSING)
            tpl_type_error(t, "%s() is missing an argument: it takes (%s)", function, names);
}

int64_t tpl_int_arg(tpl *t, tpl_value v, int64_t standard) {
    int64_t i;
    if (v.kind == TPL_MISSING || v.kind == TPL_NONE) return standard;
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (!tpl_integer(v, &i))
        tpl_type_error(t, "'%s' object cannot be interpreted as an integer", tpl_type(v));
    return i;
}

bool tpl_bool_arg(tpl_value v, bool standard) {
    return v.kind == TPL_MISSING ? standard : tpl_truth(v);
}

tpl_value tpl_string_arg(tpl *t, tpl_value v, const char *what) {
    if (v.kind == TPL_UNDEFINED) tpl_fail_undefined(t, v);
    if (!tpl_is_string(v)) tpl_type_error(t, "%s must be str, not %s", what, tpl_type(v));
    return v;
}

/* ---- global functions ------------------------------------------------------------------------ */

static tpl_value global_raise(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value message;
    (void)self;
    tpl_bind(t, "raise_exception", args, "message", 1, &message);
    tpl_value text = tpl_str_of(t, message);
    t->status = error_set(t->err, PI_ERR_ARG, "%.*s",
                          (int)(text.str->n < 8192 ? text.str->n : 8192), text.str->s);
    longjmp(t->fail, 1);
}

static tpl_value global_strftime(tpl *t, tpl_value self, const tpl_args *args) {
    enum { FORMAT_MAX = 1024, TEXT_MAX = 4096 };
    tpl_value format;
    char text[TEXT_MAX], pattern[FORMAT_MAX];
    (void)self;
    tpl_bind(t, "strftime_now", args, "format", 1, &format);
    const tpl_str *f = tpl_string_arg(t, format, "format").str;
    if (f->n == 0) return tpl_text(t, "");
    if (f->n + 2 > sizeof pattern) tpl_fail(t, PI_ERR_LIMIT, "a time format is too long");
    /* A leading blank distinguishes an empty result from a buffer that is too small. */
    pattern[0] = ' ';
    memcpy(pattern + 1, f->s, f->n);
    pattern[f->n + 1] = 0;
    size_t n = clock_format(text, sizeof text, pattern, &t->now);
    if (n == 0) tpl_fail(t, PI_ERR_LIMIT, "a time is too long");
    return tpl_copy(t, text + 1, n - 1);
}

static tpl_value global_range(tpl *t, tpl_value self, const tpl_args *args) {
    (void)self;
    if (args->n == 0 || args->n > 3 || args->named)
        tpl_type_error(t, "range expected 1 to 3 arguments, got %zu", args->n);
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < args->n; i++) bounds[i] = tpl_int_arg(t, args->items[i], 0);
    if (args->n == 1) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    int64_t start = bounds[0], stop = bounds[1], step = bounds[2];
    if (step == 0) tpl_type_error(t, "range() arg 3 must not be zero");
    uint64_t span = 0, stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && stop > start) span = (uint64_t)stop - (uint64_t)start;
    if (step < 0 && stop < start) span = (uint64_t)start - (uint64_t)stop;
    uint64_t n = span ? (span - 1) / stride + 1 : 0;
    if (n > TPL_MAX_RANGE)
        tpl_fail(t, PI_ERR_LIMIT,
                 "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                 TPL_MAX_RANGE);
    tpl_list *list = tpl_list_new(t, n);
    tpl_work(t, n * sizeof *list->items);
    for (uint64_t i = 0; i < n; i++)
        tpl_list_add(t, list, tpl_int((int64_t)((uint64_t)start + i * (uint64_t)step)));
    list->start = start;
    list->stop = stop;
    list->step = step;
    return tpl_of_list(TPL_RANGE, list);
}

/* dict(...) and namespace(...): a mapping or pairs, then named arguments. */
static tpl_dict *dict_of(tpl *t, const tpl_args *args, const char *function) {
    tpl_dict *d = tpl_dict_new(t);
    if (args->n > 1)
        tpl_type_error(t, "%s expected at most 1 argument, got %zu", function, args->n);
    if (args->n && args->items[0].kind == TPL_DICT) {
        const tpl_dict *from = args->items[0].dict;
        for (size_t i = 0; i < from->n; i++)
            tpl_dict_set(t, d, from->entries[i].key, from->entries[i].value);
    } else if (args->n) {
        const tpl_list *pairs = tpl_iterate(t, args->items[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const tpl_list *pair = tpl_iterate(t, pairs->items[i]);
            if (pair->n != 2) {
                tpl_type_error(t,
                               "dictionary update sequence element #%zu has length %zu; 2 is "
                               "required",
                               i, pair->n);
            }
            tpl_dict_set(t, d, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; args->named && i < args->named->n; i++)
        tpl_dict_set(t, d, args->named->entries[i].key, args->named->entries[i].value);
    return d;
}

static tpl_value global_dict(tpl *t, tpl_value self, const tpl_args *args) {
    (void)self;
    return tpl_of_dict(dict_of(t, args, "dict"));
}

static tpl_value global_namespace(tpl *t, tpl_value self, const tpl_args *args) {
    (void)self;
    return (tpl_value){.kind = TPL_NAMESPACE, .dict = dict_of(t, args, "namespace")};
}

/* The first call returns an empty string, later calls the separator. */
static tpl_value joiner_call(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_bind(t, "joiner", args, "", 0, NULL);
    return self.list->next++ ? self.list->items[0] : tpl_text(t, "");
}

static tpl_value global_joiner(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value separator;
    (void)self;
    tpl_bind(t, "joiner", args, "sep", 0, &separator);
    tpl_list *list = tpl_list_new(t, 1);
    tpl_list_add(t, list, separator.kind == TPL_MISSING ? tpl_text(t, ", ") : separator);
    return tpl_of_function(t, TPL_JOINER, "joiner", joiner_call, tpl_of_list(TPL_LIST, list));
}

static const tpl_entry_point globals[] = {{"raise_exception", global_raise},
                                          {"strftime_now", global_strftime},
                                          {"range", global_range},
                                          {"dict", global_dict},
                                          {"namespace", global_namespace},
                                          {"joiner", global_joiner},
                                          {NULL, NULL}};

void tpl_define_globals(tpl *t) {
    for (const tpl_entry_point *g = globals; g->name; g++) {
        uint32_t name = text_table_find(&t->program->names, g->name, strlen(g->name));
        if (name != TEXT_TABLE_NONE)
            t->globals[name] = tpl_of_function(t, TPL_FUNCTION, g->name, g->call, tpl_none());
    }
}
