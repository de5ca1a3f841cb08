/* template_value.c: budgets, allocation, and queries on values. Hashing and equality follow Python:
 * 1, 1.0 and True are one key. */
#include "template_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "clock.h"
#include "os_text.h"
#include "utf8.h"

enum {
    WORK_BYTES = 16,     /* bytes read per step */
    LARGE_BYTES = 8192,  /* larger allocations go to another arena and spare small blocks */
    DICT_LINEAR = 8,     /* entries of a dict that is searched without a table */
    MESSAGE_ROOM = 4096, /* bytes; a pi_error truncates longer messages */
    CLOCK_STEPS = 4096,  /* steps between two readings of the clock: well below a millisecond */
};

/* ---- errors and budgets ---------------------------------------------------------------------- */

noreturn void tpl_fail(tpl *t, pi_status status, const char *format, ...) {
    char text[MESSAGE_ROOM];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t n = strlen(text);
    if (n && text[n - 1] == '.') text[n - 1] = 0; /* some Jinja messages end with a period */
    t->status = error_set(t->err, status, "%s: template line %d", text, t->line);
    longjmp(t->fail, 1);
}

noreturn void tpl_type_error(tpl *t, const char *format, ...) {
    char text[MESSAGE_ROOM];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tpl_fail(t, PI_ERR_FORMAT, "%s", text);
}

noreturn void tpl_fail_undefined(tpl *t, tpl_value v) {
    const tpl_undefined *u = v.undefined;
    if (u->hint) tpl_type_error(t, "%s", u->hint);
    const char *name = tpl_cstr(t, u->name);
    if (!u->owner) tpl_type_error(t, "%s is undefined", name);
    if (u->unsafe)
        tpl_type_error(t, "access to attribute %s of '%s' object is unsafe.", name, u->owner);
    if (tpl_is_string(u->name)) tpl_type_error(t, "'%s' has no attribute %s", u->owner, name);
    tpl_type_error(t, "%s has no element %s", u->owner, name);
}

void *tpl_alloc(tpl *t, size_t n_bytes) {
    size_t charged;
    if (!size_add(n_bytes, 16, &charged) || charged > t->memory_left)
        tpl_fail(t, PI_ERR_LIMIT, "the template needs more memory than it may have");
    t->memory_left -= charged;
    void *p = arena_alloc(n_bytes >= LARGE_BYTES ? &t->large : &t->small, n_bytes);
    if (!p) {
        t->status = error_nomem(t->err, n_bytes, "chat template");
        longjmp(t->fail, 1);
    }
    return p;
}

void *tpl_alloc_array(tpl *t, size_t count, size_t n_bytes) {
    size_t total;
    if (!size_mul(count, n_bytes, &total)) total = SIZE_MAX;
    return tpl_alloc(t, total);
}

static void spend(tpl *t, uint64_t steps) {
    if (steps > t->steps_left)
        tpl_fail(t, PI_ERR_LIMIT, "the template takes more steps than it may");
    t->steps_left -= steps;
    if (t->deadline == 0 || (t->unwatched += steps) < CLOCK_STEPS) return;
    t->unwatched = 0;
    if (clock_seconds() > t->deadline)
        tpl_fail(t, PI_ERR_LIMIT, "the template takes more time than it may");
}

void tpl_work(tpl *t, size_t n_bytes) {
    size_t rest = t->work_rest + n_bytes % WORK_BYTES;
    t->work_rest = (unsigned)(rest % WORK_BYTES);
    spend(t, n_bytes / WORK_BYTES + rest / WORK_BYTES);
}

void tpl_step(tpl *t) {
    spend(t, 1);
}

void tpl_enter(tpl *t) {
    if (t->depth >= TPL_MAX_DEPTH)
        tpl_fail(t, PI_ERR_LIMIT, "the template is nested too deeply: more than %d levels",
                 TPL_MAX_DEPTH);
    t->depth++;
}

void tpl_leave(tpl *t) {
    t->depth--;
}

/* ---- buffers --------------------------------------------------------------------------------- */

void tpl_put(tpl *t, tpl_buffer *b, const char *s, size_t n) {
    if (n == 0) return;
    tpl_work(t, n);
    if (n > b->capacity - b->n) {
        size_t capacity = b->capacity ? b->capacity : 64;
        while (capacity - b->n < n)
            if (!size_mul(capacity, 2, &capacity)) capacity = SIZE_MAX;
        char *data = tpl_alloc(t, capacity);
        if (b->n) memcpy(data, b->data, b->n);
        b->data = data;
        b->capacity = capacity;
    }
    memcpy(b->data + b->n, s, n);
    b->n += n;
}

void tpl_put_text(tpl *t, tpl_buffer *b, const char *s) {
    tpl_put(t, b, s, strlen(s));
}

void tpl_put_char(tpl *t, tpl_buffer *b, uint32_t code_point) {
    char bytes[UTF8_MAX_BYTES];
    tpl_put(t, b, bytes, utf8_encode(code_point, bytes));
}

tpl_value tpl_append(tpl *t, tpl_value a, tpl_value b) {
    tpl_buffer *tail = NULL;
    for (size_t i = 0; i < TPL_TAILS; i++)
        if (t->tails[i].data == a.str->s && t->tails[i].n == a.str->n) tail = &t->tails[i];
    if (!tail || a.str->n == 0) {
        tail = &t->tails[t->next_tail++ % TPL_TAILS];
        *tail = (tpl_buffer){0};
        tpl_put(t, tail, a.str->s, a.str->n);
    }
    tpl_put(t, tail, b.str->s, b.str->n);
    return tpl_buffer_string(t, tail);
}

tpl_value tpl_buffer_string(tpl *t, const tpl_buffer *b) {
    return tpl_string(t, b->data, b->n);
}

/* ---- making values --------------------------------------------------------------------------- */

tpl_value tpl_string(tpl *t, const char *s, size_t n) {
    tpl_str *str = tpl_alloc(t, sizeof *str);
    *str = (tpl_str){.s = s ? s : "", .n = n, .chars = TPL_UNCOUNTED};
    return (tpl_value){.kind = TPL_STRING, .str = str};
}

tpl_value tpl_text(tpl *t, const char *s) {
    return tpl_string(t, s, strlen(s));
}

tpl_value tpl_copy(tpl *t, const char *s, size_t n) {
    char *copy = tpl_alloc(t, n);
    if (n) memcpy(copy, s, n);
    return tpl_string(t, copy, n);
}

tpl_value tpl_with_safety(tpl *t, tpl_value string, bool safe) {
    if (string.str->safe == safe) return string;
    tpl_value v = tpl_string(t, string.str->s, string.str->n);
    v.str->chars = string.str->chars;
    v.str->safe = safe;
    return v;
}

static tpl_value undefined(tpl *t, tpl_undefined u) {
    tpl_undefined *copy = tpl_alloc(t, sizeof *copy);
    *copy = u;
    return (tpl_value){.kind = TPL_UNDEFINED, .undefined = copy};
}

tpl_value tpl_undefined_hint(tpl *t, const char *hint) {
    return undefined(t, (tpl_undefined){.hint = hint});
}

tpl_value tpl_undefined_name(tpl *t, const char *owner, tpl_value name) {
    return undefined(t, (tpl_undefined){.owner = owner, .name = name});
}

tpl_value tpl_undefined_unsafe(tpl *t, const char *owner, tpl_value name) {
    return undefined(t, (tpl_undefined){.owner = owner, .name = name, .unsafe = true});
}

tpl_value tpl_of_function(tpl *t, tpl_kind kind, const char *name, tpl_function call,
                          tpl_value self) {
    tpl_callable *c = tpl_alloc(t, sizeof *c);
    *c = (tpl_callable){.name = name, .call = call, .self = self};
    return (tpl_value){.kind = kind, .callable = c};
}

tpl_list *tpl_list_new(tpl *t, size_t capacity) {
    tpl_list *list = tpl_alloc(t, sizeof *list);
    list->capacity = capacity;
    if (capacity) list->items = tpl_alloc_array(t, capacity, sizeof *list->items);
    return list;
}

void tpl_list_add(tpl *t, tpl_list *list, tpl_value v) {
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        tpl_value *items = tpl_alloc_array(t, capacity, sizeof *items);
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = v;
}

tpl_value tpl_pair(tpl *t, tpl_value a, tpl_value b) {
    tpl_list *list = tpl_list_new(t, 2);
    list->items[0] = a;
    list->items[1] = b;
    list->n = 2;
    return tpl_of_list(TPL_TUPLE, list);
}

/* ---- numbers --------------------------------------------------------------------------------- */

bool tpl_integer(tpl_value v, int64_t *out) {
    if (v.kind != TPL_INT && v.kind != TPL_BOOL) return false;
    *out = v.kind == TPL_INT ? v.i : v.b;
    return true;
}

bool tpl_number(tpl_value v, double *out) {
    int64_t i;
    if (v.kind == TPL_FLOAT) {
        *out = v.f;
        return true;
    }
    if (!tpl_integer(v, &i)) return false;
    *out = (double)i;
    return true;
}

/* Compares exactly, also when an int has no double: <0, 0, >0; 2 with a NaN. */
static int compare_int_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

static bool compare_numbers(tpl_value a, tpl_value b, int *out) {
    double x, y;
    int64_t i, j;
    if (!tpl_number(a, &x) || !tpl_number(b, &y)) return false;
    bool a_int = tpl_integer(a, &i), b_int = tpl_integer(b, &j);
    if (a_int && b_int) {
        *out = i < j ? -1 : i > j;
    } else if (a_int) {
        *out = compare_int_float(i, y);
    } else if (b_int) {
        int c = compare_int_float(j, x);
        *out = c == 2 ? 2 : -c;
    } else {
        *out = isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    return true;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static uint32_t hash_bytes(const char *s, size_t n) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static uint32_t hash_int(int64_t i) {
    return (uint32_t)(((uint64_t)i * 0x9e3779b97f4a7c15u) >> 32);
}

static uint32_t hash_value(tpl *t, tpl_value v) {
    int64_t i;
    uint32_t h = 17;
    if (tpl_integer(v, &i)) return hash_int(i);
    switch (v.kind) {
    case TPL_FLOAT:
        if (v.f >= -0x1p63 && v.f < 0x1p63 && v.f == floor(v.f)) return hash_int((int64_t)v.f);
        return hash_bytes((const char *)&v.f, sizeof v.f);
    case TPL_STRING:
        tpl_work(t, v.str->n);
        return hash_bytes(v.str->s, v.str->n);
    case TPL_TUPLE:
        tpl_enter(t);
        tpl_work(t, v.list->n * sizeof v);
        for (size_t k = 0; k < v.list->n; k++) h = h * 31 + hash_value(t, v.list->items[k]);
        tpl_leave(t);
        return h;
    case TPL_LIST:
    case TPL_DICT:
    case TPL_VIEW:
        tpl_type_error(t, "unhashable type: '%s'", tpl_type(v));
    default:
        return (uint32_t)v.kind;
    }
}

static void dict_index(tpl_dict *d, size_t entry) {
    size_t at = d->entries[entry].hash & (d->n_slots - 1);
    while (d->slots[at]) at = (at + 1) & (d->n_slots - 1);
    d->slots[at] = (uint32_t)entry + 1;
}

static tpl_entry *dict_find(tpl *t, const tpl_dict *d, tpl_value key, uint32_t hash) {
    if (!d->n_slots) {
        for (size_t k = 0; k < d->n; k++) {
            tpl_entry *e = &d->entries[k];
            if (e->hash == hash && tpl_equal(t, e->key, key)) return e;
        }
        return NULL;
    }
    for (size_t at = hash & (d->n_slots - 1); d->slots[at]; at = (at + 1) & (d->n_slots - 1)) {
        tpl_entry *e = &d->entries[d->slots[at] - 1];
        tpl_step(t);
        if (e->hash == hash && tpl_equal(t, e->key, key)) return e;
    }
    return NULL;
}

tpl_dict *tpl_dict_new(tpl *t) {
    return tpl_alloc(t, sizeof(tpl_dict));
}

tpl_entry *tpl_dict_find(tpl *t, const tpl_dict *d, tpl_value key) {
    return dict_find(t, d, key, hash_value(t, key));
}

tpl_entry *tpl_dict_find_text(tpl *t, const tpl_dict *d, const char *key) {
    tpl_str str = {.s = key, .n = strlen(key), .chars = TPL_UNCOUNTED};
    return tpl_dict_find(t, d, (tpl_value){.kind = TPL_STRING, .str = &str});
}

static void dict_grow(tpl *t, tpl_dict *d) {
    size_t capacity = d->capacity ? 2 * d->capacity : 4;
    tpl_entry *entries = tpl_alloc_array(t, capacity, sizeof *entries);
    if (d->n) memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->capacity = capacity;
    if (capacity > DICT_LINEAR) {
        d->n_slots = 4 * capacity;
        d->slots = tpl_alloc_array(t, d->n_slots, sizeof *d->slots);
        for (size_t k = 0; k < d->n; k++) dict_index(d, k);
    }
}

void tpl_dict_set(tpl *t, tpl_dict *d, tpl_value key, tpl_value value) {
    uint32_t hash = hash_value(t, key);
    tpl_entry *e = dict_find(t, d, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (d->n == d->capacity) dict_grow(t, d);
    d->entries[d->n] = (tpl_entry){.key = key, .value = value, .hash = hash};
    if (d->n_slots) dict_index(d, d->n);
    d->n++;
}

/* ---- queries --------------------------------------------------------------------------------- */

bool tpl_is(tpl_value v, const char *text) {
    return v.kind == TPL_STRING && v.str->n == strlen(text) &&
           memcmp(v.str->s, text, v.str->n) == 0;
}

const char *tpl_type(tpl_value v) {
    static const char *const names[] = {
        [TPL_MISSING] = "Undefined", [TPL_UNDEFINED] = "Undefined",
        [TPL_NONE] = "NoneType",     [TPL_BOOL] = "bool",
        [TPL_INT] = "int",           [TPL_FLOAT] = "float",
        [TPL_STRING] = "str",        [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",       [TPL_RANGE] = "range",
        [TPL_VIEW] = "dict_items",   [TPL_ITERATOR] = "generator",
        [TPL_DICT] = "dict",         [TPL_NAMESPACE] = "Namespace",
        [TPL_FUNCTION] = "function", [TPL_METHOD] = "builtin_function_or_method",
        [TPL_MACRO] = "Macro",       [TPL_LOOP] = "LoopContext",
        [TPL_JOINER] = "Joiner"};
    if (v.kind == TPL_VIEW) return v.list->type;
    if (v.kind == TPL_STRING && v.str->safe) return "Markup";
    return names[v.kind];
}

const char *tpl_owner(tpl_value v) {
    static const char *const names[] = {[TPL_MISSING] = "jinja2.runtime.Undefined object",
                                        [TPL_UNDEFINED] = "jinja2.runtime.Undefined object",
                                        [TPL_NONE] = "None",
                                        [TPL_BOOL] = "bool object",
                                        [TPL_INT] = "int object",
                                        [TPL_FLOAT] = "float object",
                                        [TPL_STRING] = "str object",
                                        [TPL_LIST] = "list object",
                                        [TPL_TUPLE] = "tuple object",
                                        [TPL_RANGE] = "range object",
                                        [TPL_VIEW] = "dict_items object",
                                        [TPL_ITERATOR] = "generator object",
                                        [TPL_DICT] = "dict object",
                                        [TPL_NAMESPACE] = "jinja2.utils.Namespace object",
                                        [TPL_FUNCTION] = "function object",
                                        [TPL_METHOD] = "builtin_function_or_method object",
                                        [TPL_MACRO] = "jinja2.runtime.Macro object",
                                        [TPL_LOOP] = "jinja2.runtime.LoopContext object",
                                        [TPL_JOINER] = "jinja2.utils.Joiner object"};
    return names[v.kind];
}

bool tpl_truth(tpl_value v) {
    switch (v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
    case TPL_NONE:
        return false;
    case TPL_BOOL:
        return v.b;
    case TPL_INT:
        return v.i != 0;
    case TPL_FLOAT:
        return v.f != 0;
    case TPL_STRING:
        return v.str->n != 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW:
        return v.list->n != 0;
    case TPL_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

size_t tpl_chars(tpl *t, tpl_value string) {
    tpl_str *str = string.str;
    if (str->chars == TPL_UNCOUNTED) {
        size_t count = 0;
        tpl_work(t, str->n);
        for (size_t i = 0; i < str->n; i++) count += ((unsigned char)str->s[i] & 0xC0) != 0x80;
        str->chars = count;
    }
    return str->chars;
}

size_t tpl_length(tpl *t, tpl_value v) {
    if (tpl_is_string(v)) return tpl_chars(t, v);
    if (v.kind == TPL_DICT) return v.dict->n;
    if (v.kind == TPL_UNDEFINED) return 0;
    if (tpl_is_sequence(v) && v.kind != TPL_ITERATOR) return v.list->n;
    tpl_type_error(t, "object of type '%s' has no len()", tpl_type(v));
}

static bool equal_dicts(tpl *t, const tpl_dict *a, const tpl_dict *b) {
    if (a->n != b->n) return false;
    for (size_t k = 0; k < a->n; k++) {
        const tpl_entry *e = dict_find(t, b, a->entries[k].key, a->entries[k].hash);
        if (!e || !tpl_equal(t, a->entries[k].value, e->value)) return false;
    }
    return true;
}

static bool equal_lists(tpl *t, const tpl_list *a, const tpl_list *b) {
    if (a->n != b->n) return false;
    for (size_t k = 0; k < a->n; k++)
        if (!tpl_equal(t, a->items[k], b->items[k])) return false;
    return true;
}

bool tpl_equal(tpl *t, tpl_value a, tpl_value b) {
    int order;
    bool equal = false;
    tpl_step(t);
    if (compare_numbers(a, b, &order)) return order == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case TPL_UNDEFINED:
    case TPL_NONE:
        return true;
    case TPL_STRING:
        if (a.str->n != b.str->n) return false;
        tpl_work(t, a.str->n);
        return memcmp(a.str->s, b.str->s, a.str->n) == 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
        if (a.list == b.list) return true;
        tpl_enter(t);
        equal = equal_lists(t, a.list, b.list);
        tpl_leave(t);
        return equal;
    case TPL_DICT:
        if (a.dict == b.dict) return true;
        tpl_enter(t);
        equal = equal_dicts(t, a.dict, b.dict);
        tpl_leave(t);
        return equal;
    case TPL_METHOD:
    case TPL_FUNCTION:
        return a.callable->call == b.callable->call && a.callable->name == b.callable->name;
    default:
        return a.list == b.list; /* identity */
    }
}

static int compare_lists(tpl *t, const tpl_list *a, const tpl_list *b, const char *op) {
    for (size_t k = 0; k < a->n && k < b->n; k++) {
        if (tpl_equal(t, a->items[k], b->items[k])) continue;
        tpl_enter(t);
        int order = tpl_compare(t, a->items[k], b->items[k], op);
        tpl_leave(t);
        return order;
    }
    return a->n < b->n ? -1 : a->n > b->n;
}

int tpl_compare(tpl *t, tpl_value a, tpl_value b, const char *op) {
    int order;
    if (compare_numbers(a, b, &order)) return order;
    if (a.kind == TPL_UNDEFINED) tpl_fail_undefined(t, a);
    if (b.kind == TPL_UNDEFINED) tpl_fail_undefined(t, b);
    if (a.kind == TPL_STRING && b.kind == TPL_STRING) {
        size_t n = a.str->n < b.str->n ? a.str->n : b.str->n;
        tpl_work(t, n);
        order = memcmp(a.str->s, b.str->s, n); /* UTF-8 sorts like code points */
        if (order) return order < 0 ? -1 : 1;
        return a.str->n < b.str->n ? -1 : a.str->n > b.str->n;
    }
    if (a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE))
        return compare_lists(t, a.list, b.list, op);
    tpl_type_error(t, "'%s' not supported between instances of '%s' and '%s'", op, tpl_type(a),
                   tpl_type(b));
}

bool tpl_contains(tpl *t, tpl_value container, tpl_value item) {
    if (tpl_is_string(container)) {
        if (!tpl_is_string(item)) {
            tpl_type_error(t, "'in <string>' requires string as left operand, not %s",
                           tpl_type(item));
        }
        tpl_work(t, container.str->n);
        return item.str->n == 0 ||
               os_find(container.str->s, container.str->n, item.str->s, item.str->n) != NULL;
    }
    if (container.kind == TPL_DICT) return tpl_dict_find(t, container.dict, item) != NULL;
    if (container.kind == TPL_UNDEFINED) return false;
    if (!tpl_is_sequence(container))
        tpl_type_error(t, "argument of type '%s' is not iterable", tpl_type(container));
    const tpl_list *list = tpl_iterate(t, container);
    for (size_t k = 0; k < list->n; k++)
        if (tpl_equal(t, list->items[k], item)) return true;
    return false;
}

/* ---- iteration ------------------------------------------------------------------------------- */

const char *tpl_char_at(tpl *t, tpl_value string, size_t index) {
    const tpl_str *str = string.str;
    if (tpl_chars(t, string) == str->n) return str->s + index;
    if (index == str->chars) return str->s + str->n;
    const char *p = str->s;
    for (size_t k = 0; k < index; k++) do
            p++;
        while (((unsigned char)*p & 0xC0) == 0x80);
    tpl_work(t, (size_t)(p - str->s));
    return p;
}

tpl_value tpl_substring(tpl *t, tpl_value string, size_t first, size_t last) {
    if (first >= last) return tpl_with_safety(t, tpl_text(t, ""), string.str->safe);
    const char *begin = tpl_char_at(t, string, first), *end = tpl_char_at(t, string, last);
    tpl_value v = tpl_string(t, begin, (size_t)(end - begin));
    v.str->chars = last - first;
    v.str->safe = string.str->safe;
    return v;
}

static const tpl_list *iterate_string(tpl *t, tpl_value v) {
    tpl_list *list = tpl_list_new(t, tpl_chars(t, v));
    const char *p = v.str->s, *end = p + v.str->n;
    while (p < end) {
        const char *begin = p++;
        while (p < end && ((unsigned char)*p & 0xC0) == 0x80) p++;
        tpl_value c = tpl_string(t, begin, (size_t)(p - begin));
        c.str->chars = 1;
        c.str->safe = v.str->safe;
        tpl_list_add(t, list, c);
    }
    return list;
}

const tpl_list *tpl_iterate(tpl *t, tpl_value v) {
    static const tpl_list nothing = {0};
    tpl_list *list;
    switch (v.kind) {
    case TPL_UNDEFINED:
        return &nothing;
    case TPL_STRING:
        return iterate_string(t, v);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW:
        return v.list;
    case TPL_ITERATOR:
        list = tpl_list_new(t, 0);
        list->items = v.list->items + v.list->next;
        list->n = list->capacity = v.list->n - v.list->next;
        v.list->next = v.list->n;
        return list;
    case TPL_DICT:
        list = tpl_list_new(t, v.dict->n);
        for (size_t k = 0; k < v.dict->n; k++) tpl_list_add(t, list, v.dict->entries[k].key);
        return list;
    default:
        tpl_type_error(t, "'%s' object is not iterable", tpl_type(v));
    }
}
