/* torch_pickle.c: interprets the few instructions with which torch.save builds a table of tensors
 * (Python's pickletools.py lists all instructions). It executes nothing: it knows the four
 * functions and the storage types of such tables, and refuses all other names. */
#include "torch_pickle.h"

#include <string.h>

#include "arena.h"
#include "mem.h"

enum { MAX_STACK = 1 << 20, MAX_MEMO = 1 << 22 };

typedef enum value_kind {
    VALUE_MARK,
    VALUE_OTHER, /* None, a float: not part of a tensor */
    VALUE_INT,   /* also booleans */
    VALUE_TEXT,
    VALUE_GLOBAL, /* one of the known names */
    VALUE_TUPLE,
    VALUE_TABLE,
    VALUE_STORAGE,
    VALUE_TENSOR
} value_kind;

typedef struct value value;

typedef struct table_item {
    value *key, *value;
    struct table_item *next;
} table_item;

typedef struct table {
    table_item *first, *last;
} table;

typedef struct storage {
    safetensors_dtype dtype;
    pickle_text key;
} storage;

struct value {
    value_kind kind;
    int64_t number;   /* value of VALUE_INT; number of items of a VALUE_TUPLE */
    pickle_text text; /* value of VALUE_TEXT; name of a VALUE_GLOBAL */
    union {
        const value *items;
        table *table;
        storage *storage;
        safetensor *tensor;
    } as;
};

typedef struct machine {
    const uint8_t *start, *at, *end;
    const torch_pickle_reader *reader;
    arena arena;
    value *stack, *memo;
    size_t n_stack, stack_capacity, n_memo, memo_capacity;
    pi_error *err;
} machine;

static pi_status refuse(const machine *m, const char *problem) {
    return error_set(m->err, PI_ERR_UNSUPPORTED,
                     "not a plain table of tensors: %s: %s at byte %zu of its pickle: save it as "
                     "safetensors",
                     m->reader->file, problem, (size_t)(m->at - m->start));
}

static pi_status no_memory(const machine *m, size_t n) {
    return error_nomem(m->err, n, "pickle");
}

/* ---- stack, memo, bytes ---------------------------------------------------------------------- */

static pi_status push(machine *m, value v) {
    if (m->n_stack == MAX_STACK) return refuse(m, "too many values");
    if (!mem_grow((void **)&m->stack, &m->stack_capacity, m->n_stack + 1, sizeof *m->stack,
                  MAX_STACK))
        return no_memory(m, sizeof *m->stack * (m->n_stack + 1));
    m->stack[m->n_stack++] = v;
    return PI_OK;
}

static pi_status put(machine *m, uint64_t at) {
    if (m->n_stack == 0 || at >= MAX_MEMO) return refuse(m, "a memo with an empty stack");
    if (at >= m->n_memo) {
        if (!mem_grow((void **)&m->memo, &m->memo_capacity, (size_t)at + 1, sizeof *m->memo,
                      MAX_MEMO))
            return no_memory(m, sizeof *m->memo * ((size_t)at + 1));
        for (; m->n_memo <= at; m->n_memo++) m->memo[m->n_memo] = (value){.kind = VALUE_MARK};
    }
    m->memo[at] = m->stack[m->n_stack - 1];
    return PI_OK;
}

static bool take_number(machine *m, int n, uint64_t *out) {
    if (m->end - m->at < n) return false;
    *out = 0;
    for (int i = 0; i < n; i++) *out |= (uint64_t)m->at[i] << (8 * i);
    m->at += n;
    return true;
}

static bool take_line(machine *m, pickle_text *out) {
    const uint8_t *stop = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!stop) return false;
    *out = (pickle_text){(const char *)m->at, (size_t)(stop - m->at)};
    m->at = stop + 1;
    return true;
}

static bool text_is(pickle_text text, const char *what) {
    return text.n == strlen(what) && memcmp(text.data, what, text.n) == 0;
}

/* Finds the items above the last mark; false: no mark. */
static bool above_mark(const machine *m, size_t *first) {
    size_t i = m->n_stack;
    while (i > 0 && m->stack[i - 1].kind != VALUE_MARK) i--;
    *first = i;
    return i > 0;
}

/* ---- tuples and tables ----------------------------------------------------------------------- */

/* Creates a tuple of the values from `first` on; it replaces everything from `keep` on. */
static pi_status make_tuple(machine *m, size_t first, size_t keep) {
    size_t n = m->n_stack - first;
    value *items = NULL;
    if (n > 0) {
        items = arena_alloc(&m->arena, n * sizeof *items);
        if (!items) return no_memory(m, n * sizeof *items);
        memcpy(items, &m->stack[first], n * sizeof *items);
    }
    m->n_stack = keep;
    return push(m, (value){.kind = VALUE_TUPLE, .number = (int64_t)n, .as.items = items});
}

static pi_status make_table(machine *m) {
    table *t = arena_alloc(&m->arena, sizeof *t);
    if (!t) return no_memory(m, sizeof *t);
    *t = (table){0};
    return push(m, (value){.kind = VALUE_TABLE, .as.table = t});
}

/* Puts the pairs of key and value from `first` on into the table below `keep`. */
static pi_status set_items(machine *m, size_t first, size_t keep) {
    if (keep == 0 || m->n_stack < first || (m->n_stack - first) % 2 != 0 ||
        m->stack[keep - 1].kind != VALUE_TABLE)
        return refuse(m, "items without a table");
    table *t = m->stack[keep - 1].as.table;
    for (size_t i = first; i < m->n_stack; i += 2) {
        table_item *item = arena_alloc(&m->arena, sizeof *item);
        value *pair = arena_alloc(&m->arena, 2 * sizeof *pair);
        if (!item || !pair) return no_memory(m, sizeof *item + 2 * sizeof *pair);
        memcpy(pair, &m->stack[i], 2 * sizeof *pair);
        *item = (table_item){&pair[0], &pair[1], NULL};
        if (t->last)
            t->last->next = item;
        else
            t->first = item;
        t->last = item;
    }
    m->n_stack = keep;
    return PI_OK;
}

/* ---- storages and tensors -------------------------------------------------------------------- */

static const struct {
    const char *name;
    safetensors_dtype dtype;
} storages[] = {
    {"FloatStorage", SAFETENSORS_F32},     {"HalfStorage", SAFETENSORS_F16},
    {"BFloat16Storage", SAFETENSORS_BF16}, {"DoubleStorage", SAFETENSORS_F64},
    {"LongStorage", SAFETENSORS_I64},      {"IntStorage", SAFETENSORS_I32},
    {"ShortStorage", SAFETENSORS_I16},     {"CharStorage", SAFETENSORS_I8},
    {"ByteStorage", SAFETENSORS_U8},       {"BoolStorage", SAFETENSORS_BOOL},
};

enum { N_STORAGES = sizeof storages / sizeof storages[0] };

/* ("storage", torch.FloatStorage, "0", "cpu", 4096) */
static pi_status load_storage(machine *m) {
    value v = m->n_stack > 0 ? m->stack[m->n_stack - 1] : (value){0};
    const value *item = v.as.items;
    if (m->n_stack == 0 || v.kind != VALUE_TUPLE || v.number < 5 || item[0].kind != VALUE_TEXT ||
        !text_is(item[0].text, "storage") || item[1].kind != VALUE_GLOBAL ||
        item[2].kind != VALUE_TEXT || item[4].kind != VALUE_INT || item[4].number < 0)
        return refuse(m, "an unsupported storage");
    for (int i = 0; i < N_STORAGES; i++) {
        if (!text_is(item[1].text, storages[i].name)) continue;
        storage *s = arena_alloc(&m->arena, sizeof *s);
        if (!s) return no_memory(m, sizeof *s);
        *s = (storage){storages[i].dtype, item[2].text};
        m->stack[m->n_stack - 1] = (value){.kind = VALUE_STORAGE, .as.storage = s};
        return PI_OK;
    }
    return refuse(m, "a storage of an unknown type");
}

/* (storage, offset, size, stride, requires_grad, hooks) */
static pi_status rebuild_tensor(machine *m, const value *arg, int64_t n_args, value *out) {
    if (n_args < 4 || arg[0].kind != VALUE_STORAGE || arg[1].kind != VALUE_INT ||
        arg[1].number < 0 || arg[2].kind != VALUE_TUPLE || arg[3].kind != VALUE_TUPLE ||
        arg[2].number != arg[3].number || arg[2].number > SAFETENSORS_MAX_DIMS)
        return refuse(m, "an unsupported tensor");
    safetensor t = {.file = m->reader->file, .dtype = arg[0].as.storage->dtype};
    size_t item = safetensors_dtype_bytes(t.dtype), n_elems = 1, n_storage = 0, offset;
    t.n_dims = (int)arg[2].number;
    for (int i = t.n_dims - 1; i >= 0; i--) {
        const value *size = &arg[2].as.items[i], *stride = &arg[3].as.items[i];
        if (size->kind != VALUE_INT || stride->kind != VALUE_INT || size->number < 0)
            return refuse(m, "an unsupported tensor");
        if (size->number > 1 && (uint64_t)stride->number != n_elems)
            return refuse(m, "a tensor that is not contiguous");
        t.dims[i] = (uint64_t)size->number;
        if (!size_mul(n_elems, (size_t)size->number, &n_elems))
            return refuse(m, "a tensor that is too large");
    }
    const uint8_t *data = m->reader->storage(m->reader->storage_user, arg[0].as.storage->key,
                                             &n_storage);
    if (!data || !size_mul(n_elems, item, &t.n_bytes) ||
        !size_mul((size_t)arg[1].number, item, &offset) || offset > n_storage ||
        t.n_bytes > n_storage - offset)
        return refuse(m, "a tensor beyond its storage");
    t.data = data + offset;
    safetensor *copy = arena_alloc(&m->arena, sizeof *copy);
    if (!copy) return no_memory(m, sizeof *copy);
    *copy = t;
    *out = (value){.kind = VALUE_TENSOR, .as.tensor = copy};
    return PI_OK;
}

static pi_status reduce(machine *m) {
    if (m->n_stack < 2) return refuse(m, "a call with an empty stack");
    value args = m->stack[m->n_stack - 1], f = m->stack[m->n_stack - 2], result;
    if (args.kind != VALUE_TUPLE || f.kind != VALUE_GLOBAL) return refuse(m, "an unsupported call");
    m->n_stack -= 2;
    if (text_is(f.text, "OrderedDict") && args.number == 0) return make_table(m);
    if (text_is(f.text, "_rebuild_tensor_v2")) {
        pi_status status = rebuild_tensor(m, args.as.items, args.number, &result);
        return status == PI_OK ? push(m, result) : status;
    }
    if (text_is(f.text, "_rebuild_parameter") && args.number > 0) return push(m, args.as.items[0]);
    return refuse(m, "an unsupported call");
}

static pi_status load_global(machine *m) {
    static const char *const known[][2] = {{"collections", "OrderedDict"},
                                           {"torch._utils", "_rebuild_tensor_v2"},
                                           {"torch._utils", "_rebuild_parameter"}};
    pickle_text module;
    value v = {.kind = VALUE_GLOBAL};
    if (!take_line(m, &module) || !take_line(m, &v.text)) return refuse(m, "the end of the file");
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        found |= text_is(module, known[i][0]) && text_is(v.text, known[i][1]);
    for (int i = 0; i < N_STORAGES; i++)
        found |= text_is(module, "torch") && text_is(v.text, storages[i].name);
    if (found) return push(m, v);
    return error_set(m->err, PI_ERR_UNSUPPORTED,
                     "not a plain table of tensors: %s: its pickle names %.*s.%.*s: save it as "
                     "safetensors",
                     m->reader->file, (int)(module.n < 60 ? module.n : 60), module.data,
                     (int)(v.text.n < 60 ? v.text.n : 60), v.text.data);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static pi_status push_number(machine *m, int n_bytes, bool is_signed) {
    uint64_t bits;
    if (!take_number(m, n_bytes, &bits)) return refuse(m, "the end of the file");
    int64_t number = is_signed && n_bytes == 4 ? (int32_t)bits : (int64_t)bits;
    return push(m, (value){.kind = VALUE_INT, .number = number});
}

static pi_status push_text(machine *m, int n_length) {
    uint64_t n;
    if (!take_number(m, n_length, &n) || (uint64_t)(m->end - m->at) < n)
        return refuse(m, "the end of the file");
    const value v = {.kind = VALUE_TEXT, .text = {(const char *)m->at, (size_t)n}};
    m->at += n;
    return push(m, v);
}

/* Pushes an integer of up to eight bytes, two's complement. */
static pi_status push_long(machine *m) {
    uint64_t n, bits = 0;
    if (!take_number(m, 1, &n) || n > 8 || !take_number(m, (int)n, &bits))
        return refuse(m, "a number of more than eight bytes");
    if (n > 0 && n < 8 && bits >> (8 * n - 1)) bits |= ~(uint64_t)0 << (8 * n);
    return push(m, (value){.kind = VALUE_INT, .number = (int64_t)bits});
}

static pi_status memo_instruction(machine *m, int n_bytes, bool store) {
    uint64_t at;
    if (!take_number(m, n_bytes, &at)) return refuse(m, "the end of the file");
    if (store) return put(m, at);
    if (at >= m->n_memo || m->memo[at].kind == VALUE_MARK) return refuse(m, "an unknown memo");
    return push(m, m->memo[at]);
}

static pi_status tuple_of(machine *m, size_t n) {
    if (m->n_stack < n) return refuse(m, "a tuple with an empty stack");
    return make_tuple(m, m->n_stack - n, m->n_stack - n);
}

/* Tuples and items up to a mark, and lists, whose items are not needed. */
static pi_status marked_instruction(machine *m, uint8_t op) {
    size_t first;
    if (!above_mark(m, &first)) return refuse(m, "no mark");
    if (op == 't') return make_tuple(m, first, first - 1);
    if (op == 'u') return set_items(m, first, first - 1);
    m->n_stack = first - 1; /* 'e': appended to a list */
    return m->n_stack > 0 ? PI_OK : refuse(m, "items without a list");
}

static pi_status step(machine *m, uint8_t op) {
    uint64_t ignored;
    switch (op) {
    case 0x80: /* protocol */
        return take_number(m, 1, &ignored) ? PI_OK : refuse(m, "the end of the file");
    case '(':
        return push(m, (value){.kind = VALUE_MARK});
    case '}':
        return make_table(m);
    case ')':
        return tuple_of(m, 0);
    case 0x85:
    case 0x86:
    case 0x87:
        return tuple_of(m, (size_t)(op - 0x84));
    case 't':
    case 'u':
    case 'e':
        return marked_instruction(m, op);
    case 's':
        return m->n_stack >= 2 ? set_items(m, m->n_stack - 2, m->n_stack - 2)
                               : refuse(m, "items without a table");
    /* an item of a list; the state of an object (versions of modules in torch) */
    case 'a':
    case 'b':
        if (m->n_stack < 2) return refuse(m, "a state with an empty stack");
        m->n_stack--;
        return PI_OK;
    case ']':
    case 'N':
        return push(m, (value){.kind = VALUE_OTHER});
    case 0x88:
    case 0x89:
        return push(m, (value){.kind = VALUE_INT, .number = op == 0x88});
    case 'G': /* a float */
        return take_number(m, 8, &ignored) ? push(m, (value){.kind = VALUE_OTHER})
                                           : refuse(m, "the end of the file");
    case 'K':
        return push_number(m, 1, false);
    case 'M':
        return push_number(m, 2, false);
    case 'J':
        return push_number(m, 4, true);
    case 0x8a:
        return push_long(m);
    case 'X':
        return push_text(m, 4);
    case 'c':
        return load_global(m);
    case 'q':
        return memo_instruction(m, 1, true);
    case 'r':
        return memo_instruction(m, 4, true);
    case 'h':
        return memo_instruction(m, 1, false);
    case 'j':
        return memo_instruction(m, 4, false);
    case 'Q':
        return load_storage(m);
    case 'R':
        return reduce(m);
    default:
        return refuse(m, "an unsupported opcode");
    }
}

/* ---- the table of tensors -------------------------------------------------------------------- */

static pi_status hand_over(const machine *m) {
    if (m->n_stack != 1 || m->stack[0].kind != VALUE_TABLE) return refuse(m, "no table");
    for (const table_item *item = m->stack[0].as.table->first; item; item = item->next) {
        if (item->key->kind != VALUE_TEXT || item->value->kind != VALUE_TENSOR)
            return refuse(m, "an item that is not a tensor");
        safetensor t = *item->value->as.tensor;
        t.name = item->key->text.data;
        pi_status status = m->reader->tensor(m->reader->tensor_user, &t, item->key->text.n, m->err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

pi_status torch_pickle_parse(const uint8_t *bytes, size_t n_bytes, const torch_pickle_reader *r,
                             pi_error *err) {
    machine m = {.start = bytes, .at = bytes, .end = bytes + n_bytes, .reader = r, .err = err};
    arena_init(&m.arena);
    pi_status status = PI_OK;
    while (status == PI_OK) {
        if (m.at == m.end) {
            status = refuse(&m, "the end of the file");
            break;
        }
        uint8_t op = *m.at++;
        if (op == '.') break;
        status = step(&m, op);
    }
    if (status == PI_OK) status = hand_over(&m);
    mem_free(m.stack);
    mem_free(m.memo);
    arena_free(&m.arena);
    return status;
}
