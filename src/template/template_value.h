/* template_value.h: the values of a rendering, and the state that owns them.
 *
 * A value is 16 bytes. Strings, lists and dicts are allocated in the arena of the rendering (those
 * of literals in the arena of the template) and never change once built: the sandbox forbids
 * templates to change them. Only namespaces, iterators and loops change.
 *
 * Errors have a single path: tpl_fail calls longjmp back to template_render (or template_parse),
 * which frees the arena. Functions therefore return their result, allocations never return NULL,
 * and no caller may own anything outside the arena. */
#ifndef TEMPLATE_VALUE_H
#define TEMPLATE_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "error.h"
#include "json.h"
#include "mem.h"

typedef enum tpl_kind {
    TPL_MISSING, /* no value: an unset variable or an absent argument */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_RANGE,    /* a list whose text form is range(a, b) */
    TPL_VIEW,     /* a list: keys, values or items of a dict */
    TPL_ITERATOR, /* a list that can be iterated once, as map and select return */
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_FUNCTION, /* a global function */
    TPL_METHOD,   /* a method of a value, bound to it */
    TPL_MACRO,
    TPL_LOOP,
    TPL_JOINER
} tpl_kind;

typedef struct tpl tpl;
typedef struct tpl_str tpl_str;
typedef struct tpl_list tpl_list;
typedef struct tpl_dict tpl_dict;
typedef struct tpl_undefined tpl_undefined;
typedef struct tpl_callable tpl_callable;
typedef struct tpl_macro tpl_macro;
typedef struct tpl_loop tpl_loop;

typedef struct tpl_value {
    tpl_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        tpl_str *str;
        tpl_list *list; /* LIST to ITERATOR, JOINER */
        tpl_dict *dict; /* DICT, NAMESPACE */
        const tpl_undefined *undefined;
        tpl_callable *callable; /* FUNCTION, METHOD */
        tpl_macro *macro;
        tpl_loop *loop;
    };
} tpl_value;

#define TPL_UNCOUNTED SIZE_MAX

struct tpl_str {
    const char *s; /* [n] UTF-8, without a NUL */
    size_t n;      /* bytes */
    size_t chars;  /* code points; TPL_UNCOUNTED: not known yet */
    bool safe;     /* Markup: text added to it is escaped */
};

struct tpl_list {
    tpl_value *items; /* [n] */
    size_t n, capacity;
    size_t next;               /* ITERATOR: items taken */
    const char *type;          /* VIEW: "dict_items", ... */
    int64_t start, stop, step; /* RANGE */
};

typedef struct tpl_entry {
    tpl_value key, value;
    uint32_t hash;
} tpl_entry;

struct tpl_dict {
    tpl_entry *entries; /* [n], in insertion order */
    size_t n, capacity;
    uint32_t *slots; /* [n_slots], entry + 1 or 0; NULL for small dicts */
    size_t n_slots;  /* a power of two, more than 2 n */
};

/* Why a value is undefined; the message is built only when needed. */
struct tpl_undefined {
    const char *hint;  /* the complete message, or NULL */
    const char *owner; /* type without the attribute: "dict object"; NULL: a variable */
    tpl_value name;
    bool unsafe; /* the sandbox hides it */
};

typedef struct tpl_args {
    tpl_value *items; /* [n] positional */
    size_t n;
    tpl_dict *named; /* keys are strings; NULL: none */
} tpl_args;

typedef tpl_value (*tpl_function)(tpl *t, tpl_value self, const tpl_args *args);

struct tpl_callable {
    const char *name;
    tpl_function call;
    tpl_value self;
};

/* Text that grows in the arena. */
typedef struct tpl_buffer {
    char *data;
    size_t n, capacity;
} tpl_buffer;

enum { TPL_TAILS = 4 };

struct tpl {
    arena small, large;
    uint64_t memory_left, steps_left, output_left;
    unsigned work_rest; /* bytes of work below one step */
    double deadline;    /* in clock_seconds(); 0: none */
    uint64_t unwatched; /* steps since the clock was read last */
    int depth;          /* recursion depth, all kinds */
    int line;           /* template line, for messages */
    jmp_buf fail;
    pi_status status;
    pi_error *err;
    struct tm now;
    tpl_buffer *out;             /* receives the text */
    tpl_buffer tails[TPL_TAILS]; /* the last concatenated strings: see tpl_append */
    unsigned next_tail;
    const struct template_program *program;
    tpl_value *globals; /* [names of the program]; TPL_MISSING: not set */
    json_doc *parsed;   /* the document that fromjson is converting; its texts are copied */
};

enum {
    TPL_MAX_DEPTH = 1000,  /* of nested expressions, statements, calls and values together */
    TPL_MAX_RANGE = 100000 /* items; the limit of Jinja's sandbox */
};

/* ---- state (template_value.c) ---------------------------------------------------------------- */

/* Ends the rendering with this message and the template's line. */
noreturn void tpl_fail(tpl *t, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);
noreturn void tpl_type_error(tpl *t, const char *format, ...) BASE_PRINTF(2, 3);
noreturn void tpl_fail_undefined(tpl *t, tpl_value v);
void *tpl_alloc(tpl *t, size_t n_bytes); /* zeroed */
void *tpl_alloc_array(tpl *t, size_t count, size_t n_bytes);
void tpl_work(tpl *t, size_t n_bytes); /* charges steps for reading n_bytes */
void tpl_step(tpl *t);
void tpl_enter(tpl *t); /* one level deeper; tpl_leave undoes it */
void tpl_leave(tpl *t);

void tpl_put(tpl *t, tpl_buffer *b, const char *s, size_t n);
void tpl_put_text(tpl *t, tpl_buffer *b, const char *s);
void tpl_put_char(tpl *t, tpl_buffer *b, uint32_t code_point);
/* a + b. If `a` is among the last TPL_TAILS results of tpl_append, b is appended to its buffer:
 * templates that build a text piece by piece take linear time and memory. */
tpl_value tpl_append(tpl *t, tpl_value a, tpl_value b);
tpl_value tpl_buffer_string(tpl *t, const tpl_buffer *b); /* shares the bytes */

/* ---- making values --------------------------------------------------------------------------- */

static inline tpl_value tpl_none(void) {
    return (tpl_value){.kind = TPL_NONE};
}
static inline tpl_value tpl_bool(bool b) {
    return (tpl_value){.kind = TPL_BOOL, .b = b};
}
static inline tpl_value tpl_int(int64_t i) {
    return (tpl_value){.kind = TPL_INT, .i = i};
}
static inline tpl_value tpl_float(double f) {
    return (tpl_value){.kind = TPL_FLOAT, .f = f};
}
static inline tpl_value tpl_of_list(tpl_kind kind, tpl_list *list) {
    return (tpl_value){.kind = kind, .list = list};
}
static inline tpl_value tpl_of_dict(tpl_dict *dict) {
    return (tpl_value){.kind = TPL_DICT, .dict = dict};
}
tpl_value tpl_string(tpl *t, const char *s, size_t n); /* borrows s */
tpl_value tpl_text(tpl *t, const char *s);             /* NUL-terminated, borrowed */
tpl_value tpl_copy(tpl *t, const char *s, size_t n);
tpl_value tpl_with_safety(tpl *t, tpl_value string, bool safe);
tpl_value tpl_undefined_hint(tpl *t, const char *hint);
tpl_value tpl_undefined_name(tpl *t, const char *owner, tpl_value name);
tpl_value tpl_undefined_unsafe(tpl *t, const char *owner, tpl_value name);
tpl_value tpl_of_function(tpl *t, tpl_kind kind, const char *name, tpl_function call,
                          tpl_value self);

tpl_list *tpl_list_new(tpl *t, size_t capacity);
void tpl_list_add(tpl *t, tpl_list *list, tpl_value v);
tpl_dict *tpl_dict_new(tpl *t);
void tpl_dict_set(tpl *t, tpl_dict *d, tpl_value key, tpl_value value);
/* NULL: no such key. Fails when the key is not hashable. */
tpl_entry *tpl_dict_find(tpl *t, const tpl_dict *d, tpl_value key);
tpl_entry *tpl_dict_find_text(tpl *t, const tpl_dict *d, const char *key);
tpl_value tpl_pair(tpl *t, tpl_value a, tpl_value b); /* a tuple */

/* ---- queries --------------------------------------------------------------------------------- */

static inline bool tpl_is_string(tpl_value v) {
    return v.kind == TPL_STRING;
}
static inline bool tpl_is_sequence(tpl_value v) { /* has .list */
    return v.kind >= TPL_LIST && v.kind <= TPL_ITERATOR;
}
static inline bool tpl_is_callable(tpl_value v) {
    return (v.kind >= TPL_FUNCTION && v.kind <= TPL_LOOP) || v.kind == TPL_JOINER;
}
bool tpl_is(tpl_value v, const char *text); /* a string of these bytes */
const char *tpl_type(tpl_value v);          /* Python's name: "str", "NoneType" */
const char *tpl_owner(tpl_value v);         /* the object's name in Jinja's messages */
bool tpl_truth(tpl_value v);
size_t tpl_chars(tpl *t, tpl_value string);
size_t tpl_length(tpl *t, tpl_value v); /* len(); fails where Python does */
bool tpl_equal(tpl *t, tpl_value a, tpl_value b);
int tpl_compare(tpl *t, tpl_value a, tpl_value b, const char *op); /* <0, 0, >0; 2: unordered */
bool tpl_contains(tpl *t, tpl_value container, tpl_value item);
bool tpl_number(tpl_value v, double *out);   /* int, float or bool */
bool tpl_integer(tpl_value v, int64_t *out); /* int or bool */
/* The items of any iterable; an iterator is consumed. Do not modify them. */
const tpl_list *tpl_iterate(tpl *t, tpl_value v);
/* Code points [first, last) of a string; shares the bytes. */
tpl_value tpl_substring(tpl *t, tpl_value string, size_t first, size_t last);
const char *tpl_char_at(tpl *t, tpl_value string, size_t index); /* index <= chars */

/* ---- text of values (template_text.c) -------------------------------------------------------- */

void tpl_put_repr(tpl *t, tpl_buffer *b, tpl_value v);
void tpl_put_str(tpl *t, tpl_buffer *b, tpl_value v);
tpl_value tpl_str_of(tpl *t, tpl_value v);   /* str(v): a string that is not safe */
tpl_value tpl_soft_str(tpl *t, tpl_value v); /* str(v), but a safe string stays safe */
const char *tpl_cstr(tpl *t, tpl_value v);   /* for messages: repr, NUL-terminated */
void tpl_put_float(tpl *t, tpl_buffer *b, double f);
enum { TPL_FLOAT_ROOM = 40 };
void tpl_format_float(double f, char buf[TPL_FLOAT_ROOM]); /* like repr() */
tpl_value tpl_escape(tpl *t, tpl_value v);                 /* a safe string */

#endif
