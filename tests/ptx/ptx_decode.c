/* ptx_decode.c: turns a kernel's text into instructions. An unknown form is an error with its line:
 * nothing is skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_text.h"

enum { MAX_DEPTH = 4, MAX_CALL_PARAMS = 8 };

typedef struct label {
    ptx_word name;
    uint32_t pc;
} label;

/* One expansion of a function: the kernel, or a function at one place where it is called. */
typedef struct instance {
    ptx_function *function;
    label *labels, *jumps; /* jumps: instructions and their target labels */
    size_t n_labels, label_room, n_jumps, jump_room;
    int depth;
} instance;

typedef struct decoder {
    ptx_reader r;
    ptx_module *m;
    ptx_kernel *k;
    ptx_symbols symbols;
    ptx_symbols shared; /* variables of the module that were named, with their places */
    instance *in;
    uint32_t sink; /* register for unused results */
} decoder;

typedef struct operand {
    enum { OPERAND_REGISTER, OPERAND_NUMBER } kind;
    char type; /* type of a register */
    uint32_t at;
    uint64_t value;
} operand;

/* ---- registers ------------------------------------------------------------------------------- */

static uint32_t lane_bytes(char type) {
    return type == 'p' ? 4 : type == 'd' ? 8 * WARP : 4 * WARP;
}

static uint32_t new_registers(decoder *d, char type, uint32_t count) {
    ptx_kernel *k = d->k;
    const uint32_t at = (k->n_register_bytes + 7) / 8 * 8;
    if (count > 100000 || at > (64u << 20)) {
        ptx_wrong(&d->r, "too many registers", NULL);
        return at;
    }
    k->n_register_bytes = at + count * lane_bytes(type);
    return at;
}

static uint32_t new_fill(decoder *d, ptx_fill fill) {
    ptx_kernel *k = d->k;
    for (size_t i = 0; i < k->n_fills; i++) {
        const ptx_fill *f = &k->fills[i];
        if (f->what == fill.what && f->wide == fill.wide && f->value == fill.value) return f->at;
    }
    void *fills = k->fills;
    if (!ptx_grow(&fills, &k->fill_room, k->n_fills, sizeof fill)) {
        ptx_wrong(&d->r, "no memory", NULL);
        return 0;
    }
    k->fills = fills;
    fill.at = new_registers(d, fill.wide ? 'd' : 'w', 1);
    k->fills[k->n_fills++] = fill;
    return fill.at;
}

static uint32_t constant(decoder *d, uint64_t value, bool wide) {
    return new_fill(
        d,
        (ptx_fill){.what = FILL_CONSTANT, .wide = wide, .value = wide ? value : (uint32_t)value});
}

/* ---- operands -------------------------------------------------------------------------------- */

static bool read_special(decoder *d, ptx_word w, operand *o) {
    static const struct {
        const char *name;
        enum ptx_special what;
    } specials[] = {
        {"%tid.x", FILL_TID_X},       {"%tid.y", FILL_ZERO},        {"%tid.z", FILL_ZERO},
        {"%ntid.x", FILL_NTID_X},     {"%ntid.y", FILL_ONE},        {"%ntid.z", FILL_ONE},
        {"%ctaid.x", FILL_CTAID_X},   {"%ctaid.y", FILL_CTAID_Y},   {"%ctaid.z", FILL_CTAID_Z},
        {"%nctaid.x", FILL_NCTAID_X}, {"%nctaid.y", FILL_NCTAID_Y}, {"%nctaid.z", FILL_NCTAID_Z},
        {"%laneid", FILL_LANEID}};
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        if (!ptx_is(w, specials[i].name)) continue;
        *o = (operand){.kind = OPERAND_REGISTER, .type = 'w'};
        o->at = new_fill(d, (ptx_fill){.what = specials[i].what});
        return true;
    }
    return false;
}

/* A shared variable of the module: it gets its place in the kernel when it is named first. NULL:
 * there is none. */
static const ptx_symbol *find_shared(decoder *d, ptx_word name) {
    uint32_t index;
    const ptx_symbol *s = ptx_symbols_find(&d->shared, name, &index);
    if (s) return s;
    s = ptx_symbols_find(&d->m->shared, name, &index);
    if (!s) return NULL;
    ptx_symbol placed = *s;
    const uint32_t align = (uint32_t)s->at;
    placed.at = (d->k->n_shared + align - 1) / align * align;
    d->k->n_shared = (uint32_t)placed.at + s->n_bytes;
    if (!ptx_symbols_add(&d->shared, placed)) {
        ptx_wrong(&d->r, "no memory", NULL);
        return NULL;
    }
    return ptx_symbols_find(&d->shared, name, &index);
}

/* Parses a register, a number, or a variable, whose value is its address in its space. */
static operand read_operand(decoder *d) {
    operand o = {.kind = OPERAND_NUMBER};
    const bool minus = ptx_accept(&d->r, "-");
    const ptx_word w = ptx_next(&d->r);
    uint32_t index;
    if (ptx_number(w, &o.value)) {
        if (minus) o.value = 0 - o.value;
        return o;
    }
    if (minus || read_special(d, w, &o)) return o;
    const ptx_symbol *s = ptx_symbols_find(&d->symbols, w, &index);
    if (!s) s = ptx_symbols_find(&d->m->globals, w, &index);
    if (!s) s = find_shared(d, w);
    if (ptx_is(w, "_")) {
        o = (operand){.kind = OPERAND_REGISTER, .type = 'w', .at = d->sink};
    } else if (!s) {
        ptx_wrong(&d->r, "unknown name", &w);
    } else if (s->kind == SYMBOL_REGISTERS) {
        o.kind = OPERAND_REGISTER;
        o.type = s->type;
        o.at = (uint32_t)s->at + index * lane_bytes(s->type);
    } else {
        o.value = s->at;
    }
    return o;
}

/* Returns a register of this type; a number becomes a constant register. */
static uint32_t as_register(decoder *d, const operand *o, char type) {
    if (o->kind == OPERAND_NUMBER && type == 'p')
        return constant(d, o->value ? UINT32_MAX : 0, false);
    if (o->kind == OPERAND_NUMBER) return constant(d, o->value, type == 'd');
    if (o->kind != OPERAND_REGISTER || o->type != type)
        ptx_wrong(&d->r, "an operand of another type", NULL);
    return o->at;
}

static uint32_t read_register(decoder *d, char type) {
    const operand o = read_operand(d);
    return as_register(d, &o, type);
}

/* Parses {a, b, ...} with at most `most` operands, or one operand; returns their number. */
static uint32_t read_vector(decoder *d, operand *all, uint32_t most) {
    uint32_t n = 0;
    if (!ptx_accept(&d->r, "{")) {
        all[0] = read_operand(d);
        return 1;
    }
    do {
        const operand o = read_operand(d);
        if (n < most) all[n] = o;
        n++;
    } while (ptx_accept(&d->r, ",") && !d->r.failed);
    ptx_expect(&d->r, "}");
    if (n > most) ptx_wrong(&d->r, "a vector of too many elements", NULL);
    return n;
}

/* [register or variable + offset] */
static void read_address(decoder *d, ptx_insn *i) {
    ptx_expect(&d->r, "[");
    uint32_t index;
    const ptx_word w = ptx_peek(&d->r);
    const ptx_symbol *s = ptx_symbols_find(&d->symbols, w, &index);
    const operand o = read_operand(d);
    i->based = o.kind == OPERAND_REGISTER;
    i->r[0] = o.at;
    i->narrow = o.type == 'w';
    if (!i->based) i->offset = (int64_t)o.value;
    if (i->space == SPACE_PARAM && s && s->kind == SYMBOL_LOCAL) i->space = SPACE_LOCAL;
    if (ptx_accept(&d->r, "+")) i->offset += (int64_t)ptx_read_number(&d->r);
    ptx_expect(&d->r, "]");
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void emit(decoder *d, const ptx_insn *i) {
    ptx_kernel *k = d->k;
    void *code = k->code;
    if (!ptx_grow(&code, &k->code_room, k->n_code, sizeof *i)) {
        ptx_wrong(&d->r, "no memory", NULL);
        return;
    }
    k->code = code;
    k->code[k->n_code++] = *i;
}

static bool fits(const ptx_operation *op, const operand *o, size_t n) {
    if (strlen(op->operands) != n) return false;
    for (size_t i = 0; i < n; i++) {
        if (o[i].kind == OPERAND_NUMBER ? i == 0 : op->operands[i] != o[i].type) return false;
    }
    return true;
}

/* Decodes an operation of the table. False: the table has none with this name and these
 * operands. */
static bool set_operation(decoder *d, ptx_insn *i, ptx_word name, const operand *o, size_t n) {
    for (size_t k = 0; k < ptx_n_alu; k++) {
        const ptx_operation *op = &ptx_alu[k];
        if (!ptx_is(name, op->name) || !fits(op, o, n)) continue;
        i->run = op->run;
        for (size_t j = 0; j < n; j++) i->r[j] = as_register(d, &o[j], op->operands[j]);
        return true;
    }
    return false;
}

static void decode_operation(decoder *d, ptx_insn *i, ptx_word name) {
    operand o[MAX_OPERANDS];
    size_t n = 0;
    do {
        const operand one = read_operand(d);
        if (n < MAX_OPERANDS) o[n] = one;
        n++;
    } while (ptx_accept(&d->r, ",") && !d->r.failed);
    if (n > MAX_OPERANDS || !set_operation(d, i, name, o, n))
        ptx_wrong(&d->r, "unknown instruction, or other operands", &name);
}

/* mov with a vector on one side packs or unpacks registers. */
static void decode_mov(decoder *d, ptx_insn *i, ptx_word name) {
    operand o[4], large;
    ptx_reader start = d->r;
    const bool apart = ptx_is(ptx_peek(&d->r), "{");
    const bool wide = ptx_is(name, "mov.b64");
    if (apart) {
        if (read_vector(d, o + 1, 2) != 2) ptx_wrong(&d->r, "a vector of two is expected", &name);
        ptx_expect(&d->r, ",");
        o[0] = read_operand(d);
    } else {
        large = read_operand(d);
        ptx_expect(&d->r, ",");
        const ptx_word w = ptx_peek(&d->r);
        if (ptx_is(w, "%globaltimer")) {
            ptx_next(&d->r);
            i->run = ptx_globaltimer;
            i->r[0] = as_register(d, &large, 'd');
            return;
        }
        if (!ptx_is(w, "{")) {
            d->r = start;
            decode_operation(d, i, name);
            return;
        }
        o[0] = large;
        if (read_vector(d, o + 1, 2) != 2) ptx_wrong(&d->r, "a vector of two is expected", &name);
    }
    const char *op = apart ? (wide ? "unpack.64" : "unpack.32") : (wide ? "pack.64" : "pack.32");
    if (!set_operation(d, i, (ptx_word){op, strlen(op)}, o, 3))
        ptx_wrong(&d->r, "unknown form", &name);
}

/* ld and st: .volatile .acquire .release .sys .global .nc .v4 .u32 */
static void read_access(decoder *d, ptx_insn *i, ptx_word name) {
    static const char *const spaces[] = {".generic", ".global", ".shared", ".local", ".param"};
    bool ordered = false;
    i->n = 1;
    for (size_t at = 2; at < name.n && !d->r.failed;) {
        ptx_word part = {name.at + at, 1};
        while (at + part.n < name.n && part.at[part.n] != '.') part.n++;
        at += part.n;
        bool known = false;
        for (uint8_t s = 0; s < sizeof spaces / sizeof spaces[0]; s++) {
            if (!ptx_is(part, spaces[s])) continue;
            i->space = s;
            known = true;
        }
        if (ptx_is(part, ".v2") || ptx_is(part, ".v4")) {
            i->n = (uint8_t)(part.at[2] - '0');
        } else if (ptx_is(part, ".volatile")) {
            i->atomic = true;
        } else if (ptx_is(part, ".acquire") || ptx_is(part, ".release")) {
            i->atomic = ordered = true;
        } else if (ptx_type_bytes(part)) {
            i->size = (uint8_t)ptx_type_bytes(part);
            i->is_signed = part.at[1] == 's';
        } else if (!known && !ptx_is(part, ".sys") && !ptx_is(part, ".nc")) {
            ptx_wrong(&d->r, "unknown access", &name);
        }
    }
    const bool load = name.at[0] == 'l';
    i->run = load ? (ordered ? ptx_load_acquire : ptx_load)
                  : (ordered ? ptx_store_release : ptx_store);
    if (i->size == 0) ptx_wrong(&d->r, "an access without a type", &name);
}

static void decode_access(decoder *d, ptx_insn *i, ptx_word name) {
    operand o[4];
    uint32_t n;
    read_access(d, i, name);
    if (name.at[0] == 'l') {
        n = read_vector(d, o, 4);
        ptx_expect(&d->r, ",");
        read_address(d, i);
    } else {
        read_address(d, i);
        ptx_expect(&d->r, ",");
        n = read_vector(d, o, 4);
    }
    if (n != i->n) ptx_wrong(&d->r, "a vector of another size", &name);
    i->wide = i->size == 8;
    for (uint32_t k = 0; k < n; k++)
        if (o[k].kind == OPERAND_REGISTER && o[k].at != d->sink) i->wide = o[k].type == 'd';
    for (uint32_t k = 0; k < n && !d->r.failed; k++)
        i->r[k + 1] = o[k].kind == OPERAND_REGISTER && o[k].at == d->sink
                          ? d->sink
                          : as_register(d, &o[k], i->wide ? 'd' : 'w');
}

/* atom.global.add.u32 d, [a], b */
static void decode_atomic(decoder *d, ptx_insn *i, ptx_word name) {
    const bool add = ptx_is(name, "atom.global.add.u32");
    if (!add && !ptx_is(name, "atom.global.max.s32")) ptx_wrong(&d->r, "unknown form", &name);
    i->run = add ? ptx_atomic_add : ptx_atomic_max;
    i->space = SPACE_GLOBAL;
    i->size = 4, i->n = 1;
    i->atomic = true;
    i->r[1] = read_register(d, 'w');
    ptx_expect(&d->r, ",");
    read_address(d, i);
    ptx_expect(&d->r, ",");
    i->r[2] = read_register(d, 'w');
}

/* cp.async.cg.shared.global [to], [from], 16, n; cp.async.wait_all */
static void decode_copy(decoder *d, ptx_insn *i, ptx_word name) {
    if (ptx_is(name, "cp.async.wait_all")) {
        i->run = ptx_copy_wait;
        return;
    }
    if (!ptx_is(name, "cp.async.cg.shared.global")) ptx_wrong(&d->r, "unknown form", &name);
    i->run = ptx_copy_begin;
    ptx_insn to = {0}, from = {0};
    read_address(d, &to);
    ptx_expect(&d->r, ",");
    read_address(d, &from);
    ptx_expect(&d->r, ",");
    if (!to.based || !from.based || to.offset || from.offset || !to.narrow || from.narrow ||
        ptx_read_number(&d->r) != 16)
        ptx_wrong(&d->r, "unknown form", &name);
    i->r[0] = to.r[0];
    i->r[1] = from.r[0];
    i->r[2] = constant(d, 16, false);
    if (ptx_accept(&d->r, ",")) i->r[2] = read_register(d, 'w');
}

static void decode_matrix(decoder *d, ptx_insn *i, ptx_word name) {
    static const char plain[] = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
    static const char transposed[] = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
    if (!ptx_is(name, plain) && !ptx_is(name, transposed)) ptx_wrong(&d->r, "unknown form", &name);
    i->run = ptx_is(name, plain) ? ptx_load_matrix : ptx_load_matrix_t;
    i->kind = KIND_WARP;
    operand o[4];
    if (read_vector(d, o, 4) != 4) ptx_wrong(&d->r, "four registers are expected", &name);
    for (int k = 0; k < 4 && !d->r.failed; k++) i->r[k + 1] = as_register(d, &o[k], 'w');
    ptx_expect(&d->r, ",");
    read_address(d, i);
    if (!i->based || i->offset || !i->narrow) ptx_wrong(&d->r, "unknown form", &name);
}

static void decode_mma(decoder *d, ptx_insn *i, ptx_word name) {
    static const struct {
        const char *name;
        ptx_run run;
        uint32_t n[4]; /* numbers of registers of d, a, b, c */
    } shapes[] = {
        {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", ptx_mma_k8_f16, {4, 2, 1, 4}},
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ptx_mma_k16_f16, {4, 4, 2, 4}},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", ptx_mma_k16_bf16, {4, 4, 2, 4}},
        {"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", ptx_mma_m8_k16_s8, {2, 1, 1, 2}},
        {"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", ptx_mma_k16_s8, {4, 2, 1, 4}},
        {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", ptx_mma_k32_s8, {4, 4, 2, 4}}};
    i->kind = KIND_WARP;
    uint32_t at = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        if (!ptx_is(name, shapes[s].name)) continue;
        i->run = shapes[s].run;
        for (int part = 0; part < 4 && !d->r.failed; part++) {
            operand o[4];
            if (part > 0) ptx_expect(&d->r, ",");
            if (read_vector(d, o, 4) != shapes[s].n[part]) ptx_wrong(&d->r, "other sizes", &name);
            for (uint32_t k = 0; k < shapes[s].n[part] && !d->r.failed; k++)
                i->r[at++] = as_register(d, &o[k], 'w');
        }
    }
    if (!i->run) ptx_wrong(&d->r, "unknown form", &name);
}

/* shfl.sync.bfly.b32 d|p, a, b, c, members; vote.sync.ballot.b32 d, p, members */
static void decode_lanes(decoder *d, ptx_insn *i, ptx_word name) {
    static const char shuffle[] = "wwww", ballot[] = "pw"; /* types after the result */
    const bool votes = ptx_is(name, "vote.sync.ballot.b32");
    if (!votes && !ptx_is(name, "shfl.sync.bfly.b32")) ptx_wrong(&d->r, "unknown form", &name);
    i->kind = KIND_WARP;
    i->run = votes ? ptx_ballot : ptx_shuffle_bfly;
    uint32_t at = 0;
    i->r[at++] = read_register(d, 'w');
    if (!votes) i->r[at++] = ptx_accept(&d->r, "|") ? read_register(d, 'p') : d->sink;
    for (const char *type = votes ? ballot : shuffle; *type && !d->r.failed; type++) {
        ptx_expect(&d->r, ",");
        i->r[at++] = read_register(d, *type);
    }
}

static void add_jump(decoder *d, uint32_t pc, ptx_word to) {
    instance *in = d->in;
    void *jumps = in->jumps;
    if (!ptx_grow(&jumps, &in->jump_room, in->n_jumps, sizeof *in->jumps)) {
        ptx_wrong(&d->r, "no memory", NULL);
        return;
    }
    in->jumps = jumps;
    in->jumps[in->n_jumps++] = (label){to, pc};
}

static void add_label(decoder *d, ptx_word name) {
    instance *in = d->in;
    void *labels = in->labels;
    if (!ptx_grow(&labels, &in->label_room, in->n_labels, sizeof *in->labels)) {
        ptx_wrong(&d->r, "no memory", NULL);
        return;
    }
    in->labels = labels;
    in->labels[in->n_labels++] = (label){name, (uint32_t)d->k->n_code};
}

static void decode_function(decoder *d, ptx_function *f, const uint32_t *params, size_t n_params,
                            int depth);

/* call.uni (result), function, (parameters): expands the function's text here. */
static void decode_call(decoder *d) {
    uint32_t params[MAX_CALL_PARAMS], index; /* offsets in local memory; the result first */
    size_t n = 0;
    ptx_word name = {"", 0};
    do {
        if (!ptx_accept(&d->r, "(")) {
            name = ptx_next(&d->r);
            continue;
        }
        do {
            const ptx_word w = ptx_next(&d->r);
            const ptx_symbol *s = ptx_symbols_find(&d->symbols, w, &index);
            if (!s || s->kind != SYMBOL_LOCAL || n == MAX_CALL_PARAMS)
                ptx_wrong(&d->r, "unknown parameter", &w);
            else
                params[n++] = (uint32_t)s->at;
        } while (ptx_accept(&d->r, ",") && !d->r.failed);
        ptx_expect(&d->r, ")");
    } while (ptx_accept(&d->r, ",") && !d->r.failed);
    ptx_expect(&d->r, ";");
    for (size_t i = 0; i < d->m->n_functions && !d->r.failed; i++) {
        ptx_function *f = &d->m->functions[i];
        if (f->entry || f->name.n != name.n || memcmp(f->name.at, name.at, name.n) != 0) continue;
        if (d->in->depth == MAX_DEPTH) ptx_wrong(&d->r, "calls too deep", &name);
        decode_function(d, f, params, n, d->in->depth + 1);
        return;
    }
    ptx_wrong(&d->r, "unknown function", &name);
}

static bool starts(ptx_word w, const char *text) {
    const size_t n = strlen(text);
    return w.n >= n && memcmp(w.at, text, n) == 0;
}

/* Decodes jumps, ends and barriers. False: another instruction. */
static bool decode_control(decoder *d, ptx_insn *i, ptx_word name) {
    if (ptx_is(name, "bra") || ptx_is(name, "bra.uni")) {
        i->kind = KIND_BRANCH;
        add_jump(d, (uint32_t)d->k->n_code, ptx_next(&d->r));
    } else if (ptx_is(name, "ret") || ptx_is(name, "exit")) {
        i->kind = KIND_EXIT;
        if (d->in->depth > 0) { /* jumps to the end of the function's text */
            i->kind = KIND_BRANCH;
            add_jump(d, (uint32_t)d->k->n_code, (ptx_word){"", 0});
        }
    } else if (ptx_is(name, "bar.sync")) {
        i->kind = KIND_BARRIER;
        if (ptx_read_number(&d->r) != 0) ptx_wrong(&d->r, "a barrier other than 0", &name);
    } else if (ptx_is(name, "membar.sys") || ptx_is(name, "membar.gl")) {
        i->run = ptx_fence;
    } else if (ptx_is(name, "griddepcontrol.wait") ||
               ptx_is(name, "griddepcontrol.launch_dependents")) {
        i->run = ptx_nothing; /* launches follow one another */
    } else if (ptx_is(name, "nanosleep.u32")) {
        i->run = ptx_nanosleep;
        read_register(d, 'w');
    } else {
        return false;
    }
    return true;
}

static void decode_instruction(decoder *d, ptx_word name) {
    ptx_insn i = {.guard = NO_GUARD, .line = d->r.line};
    if (ptx_is(name, "@")) {
        i.guard_not = ptx_accept(&d->r, "!");
        i.guard = read_register(d, 'p');
        name = ptx_next(&d->r);
    }
    if (starts(name, "call")) {
        if (i.guard != NO_GUARD) ptx_wrong(&d->r, "a call by some lanes", &name);
        decode_call(d);
        return;
    }
    if (decode_control(d, &i, name)) {
    } else if (starts(name, "mov.") && !ptx_is(name, "mov.pred")) {
        decode_mov(d, &i, name);
    } else if (starts(name, "ld.") || starts(name, "st.")) {
        decode_access(d, &i, name);
    } else if (starts(name, "atom.")) {
        decode_atomic(d, &i, name);
    } else if (starts(name, "cp.async.")) {
        decode_copy(d, &i, name);
    } else if (starts(name, "ldmatrix.")) {
        decode_matrix(d, &i, name);
    } else if (starts(name, "mma.")) {
        decode_mma(d, &i, name);
    } else if (starts(name, "shfl.") || starts(name, "vote.")) {
        decode_lanes(d, &i, name);
    } else if (ptx_is(name, "bar.warp.sync")) {
        i.kind = KIND_WARP;
        i.run = ptx_warp_sync;
        i.r[0] = read_register(d, 'w');
    } else if (ptx_is(name, "prefetch.global.L2")) {
        i.run = ptx_prefetch;
        i.space = SPACE_GLOBAL;
        i.size = i.n = 1;
        read_address(d, &i);
    } else {
        decode_operation(d, &i, name);
    }
    ptx_expect(&d->r, ";");
    emit(d, &i);
}

/* ---- declarations ---------------------------------------------------------------------------- */

static void add_symbol(decoder *d, ptx_symbol s) {
    if (!ptx_symbols_add(&d->symbols, s)) ptx_wrong(&d->r, "no memory", NULL);
}

/* .reg .b32 %r<20>; or single names */
static void declare_registers(decoder *d) {
    const ptx_word type = ptx_next(&d->r);
    ptx_symbol s = {.kind = SYMBOL_REGISTERS, .type = 'w'};
    if (ptx_is(type, ".pred"))
        s.type = 'p';
    else if (ptx_type_bytes(type) == 8)
        s.type = 'd';
    else if (ptx_type_bytes(type) == 0)
        ptx_wrong(&d->r, "unknown type", &type);
    do {
        s.name = ptx_next(&d->r);
        s.count = 0;
        if (ptx_accept(&d->r, "<")) {
            s.count = (uint32_t)ptx_read_number(&d->r);
            ptx_expect(&d->r, ">");
        }
        s.at = new_registers(d, s.type, s.count ? s.count : 1);
        add_symbol(d, s);
    } while (ptx_accept(&d->r, ",") && !d->r.failed);
    ptx_expect(&d->r, ";");
}

static void declare_variable(decoder *d, bool shared) {
    const ptx_variable v = ptx_read_variable(&d->r);
    uint32_t *n = shared ? &d->k->n_shared : &d->k->n_local;
    const uint32_t at = (*n + v.align - 1) / v.align * v.align;
    *n = at + v.n_bytes;
    add_symbol(
        d, (ptx_symbol){.name = v.name, .kind = shared ? SYMBOL_SHARED : SYMBOL_LOCAL, .at = at});
    ptx_expect(&d->r, ";");
}

/* Result and parameters of a function: (.param .b64 a, .param .b64 b). Parameters of a kernel have
 * a separate space; parameters of functions are in local memory, at the caller's offsets. */
static void declare_params(decoder *d, const uint32_t *params, size_t n_params) {
    const bool entry = d->in->function->entry;
    size_t n = 0;
    for (int list = d->in->function->has_result ? 0 : 1; list < 2 && !d->r.failed; list++) {
        if (list == 1) ptx_next(&d->r); /* the name */
        if (!ptx_accept(&d->r, "(") || ptx_accept(&d->r, ")")) continue;
        do {
            ptx_expect(&d->r, ".param");
            const ptx_variable v = ptx_read_variable(&d->r);
            ptx_symbol s = {.name = v.name, .kind = entry ? SYMBOL_PARAM : SYMBOL_LOCAL};
            if (entry) {
                s.at = (d->k->n_params + v.align - 1) / v.align * v.align;
                d->k->n_params = (uint32_t)s.at + v.n_bytes;
            } else if (n < n_params) {
                s.at = params[n];
            }
            n++;
            add_symbol(d, s);
        } while (ptx_accept(&d->r, ",") && !d->r.failed);
        ptx_expect(&d->r, ")");
    }
    if (!entry && n != n_params) ptx_wrong(&d->r, "another number of parameters", NULL);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Decodes statements up to the closing brace of the function. */
static void decode_body(decoder *d) {
    size_t scopes[16];
    for (size_t depth = 1; depth > 0 && !d->r.failed;) {
        const ptx_word w = ptx_next(&d->r);
        if (w.n == 0 || depth == sizeof scopes / sizeof scopes[0]) {
            ptx_wrong(&d->r, "braces do not match", NULL);
        } else if (ptx_is(w, "{")) {
            scopes[depth++] = d->symbols.n;
        } else if (ptx_is(w, "}")) {
            if (--depth > 0) d->symbols.n = scopes[depth];
        } else if (ptx_is(w, ".reg")) {
            declare_registers(d);
        } else if (ptx_is(w, ".shared")) {
            declare_variable(d, true);
        } else if (ptx_is(w, ".local") || ptx_is(w, ".param")) {
            declare_variable(d, false);
        } else if (ptx_is(w, ".pragma")) {
            ptx_next(&d->r);
            ptx_expect(&d->r, ";");
        } else if (ptx_accept(&d->r, ":")) {
            add_label(d, w);
        } else if (!ptx_is(w, ";")) {
            decode_instruction(d, w);
        }
    }
}

static void resolve_jumps(decoder *d) {
    const instance *in = d->in;
    for (size_t i = 0; i < in->n_jumps && !d->r.failed; i++) {
        const label *jump = &in->jumps[i];
        bool found = jump->name.n == 0;
        uint32_t pc = (uint32_t)d->k->n_code;
        for (size_t k = 0; k < in->n_labels && !found; k++) {
            found = in->labels[k].name.n == jump->name.n &&
                    memcmp(in->labels[k].name.at, jump->name.at, jump->name.n) == 0;
            pc = in->labels[k].pc;
        }
        if (!found) ptx_wrong(&d->r, "unknown label", &jump->name);
        d->k->code[jump->pc].target = pc;
    }
}

static void decode_function(decoder *d, ptx_function *f, const uint32_t *params, size_t n_params,
                            int depth) {
    const ptx_reader back = d->r;
    const size_t n_symbols = d->symbols.n;
    instance *outer = d->in, in = {.function = f, .depth = depth};
    d->in = &in;
    d->r = f->head;
    d->r.error = back.error;
    declare_params(d, params, n_params);
    const bool failed = d->r.failed;
    d->r = f->body;
    d->r.error = back.error;
    d->r.failed = failed;
    decode_body(d);
    resolve_jumps(d);
    free(in.labels);
    free(in.jumps);
    d->in = outer;
    d->symbols.n = n_symbols;
    const bool wrong = d->r.failed;
    d->r = back;
    d->r.failed = wrong;
}

bool ptx_decode(ptx_module *m, ptx_kernel *k, ptx_function *f, ptx_error *error) {
    decoder d = {.r = f->head, .m = m, .k = k};
    d.r.error = error;
    d.r.failed = false;
    new_registers(&d, 'w', 1); /* offset 0: read by operations with fewer operands */
    d.sink = new_registers(&d, 'd', 1);
    decode_function(&d, f, NULL, 0, 0);
    emit(&d, &(ptx_insn){.guard = NO_GUARD, .kind = KIND_EXIT, .line = f->body.line});
    free(d.symbols.all);
    free(d.shared.all);
    return !d.r.failed;
}
