/* grammar_program.c: compiles a tree to instructions, from the end of a text to its beginning: each
 * node gets its successor instruction, so that only loops are patched later.
 *
 * A class of code points becomes ranges of bytes. Instructions with equal bytes and equal
 * successors are shared, and so are the common ends of ranges. */
#include "grammar_program.h"

#include <string.h>

#include "hash.h"
#include "mem.h"
#include "utf8.h"

typedef struct compiler {
    const grammar_tree *t;
    grammar_program *p;
    size_t capacity;
    int32_t *slots; /* [n_slots] instructions that take bytes: index + 1; 0: free */
    size_t n_slots, used;
    pi_status status;
    pi_error *err;
} compiler;

/* After a failure the result is instruction 0, which always exists. */
static int32_t emit(compiler *c, grammar_code code) {
    if (c->status != PI_OK) return 0;
    grammar_program *p = c->p;
    if (p->n_code >= GRAMMAR_MAX_CODE) {
        c->status = error_set(c->err, PI_ERR_LIMIT, "grammar is too large: more than %d steps",
                              GRAMMAR_MAX_CODE);
        return 0;
    }
    if (!mem_grow((void **)&p->code, &c->capacity, p->n_code + 1, sizeof *p->code,
                  GRAMMAR_MAX_CODE)) {
        c->status = error_nomem(c->err, sizeof *p->code, "grammar");
        return 0;
    }
    p->code[p->n_code] = code;
    return (int32_t)p->n_code++;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static size_t slot_of(const compiler *c, uint8_t low, uint8_t high, int32_t next) {
    uint64_t key = (uint64_t)(uint32_t)next << 16 | (uint64_t)low << 8 | high;
    key *= 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio: inputs do not influence the hash */
    size_t at = (size_t)(key >> 20) & (c->n_slots - 1);
    for (; c->slots[at]; at = (at + 1) & (c->n_slots - 1)) {
        const grammar_code *code = &c->p->code[c->slots[at] - 1];
        if (code->low == low && code->high == high && code->a == next) break;
    }
    return at;
}

static bool slots_grow(compiler *c) {
    compiler old = *c;
    c->n_slots = old.n_slots ? 2 * old.n_slots : 256;
    c->slots = mem_calloc(c->n_slots, sizeof *c->slots);
    if (!c->slots) {
        *c = old;
        return false;
    }
    for (size_t i = 0; i < old.n_slots; i++) {
        if (!old.slots[i]) continue;
        const grammar_code *code = &c->p->code[old.slots[i] - 1];
        c->slots[slot_of(c, code->low, code->high, code->a)] = old.slots[i];
    }
    mem_free(old.slots);
    return true;
}

static int32_t emit_byte(compiler *c, uint8_t low, uint8_t high, int32_t next) {
    if (c->status != PI_OK) return 0;
    if (2 * (c->used + 1) > c->n_slots && !slots_grow(c)) {
        c->status = error_nomem(c->err, 2 * c->n_slots * sizeof *c->slots, "grammar");
        return 0;
    }
    size_t at = slot_of(c, low, high, next);
    if (c->slots[at]) return c->slots[at] - 1;
    int32_t code = emit(c,
                        (grammar_code){.op = GRAMMAR_OP_BYTE, .low = low, .high = high, .a = next});
    if (c->status != PI_OK) return 0;
    c->slots[at] = code + 1;
    c->used++;
    return code;
}

/* ---- classes --------------------------------------------------------------------------------- */

static int32_t add_choice(compiler *c, int32_t choices, int32_t more) {
    if (choices < 0) return more;
    return emit(c, (grammar_code){.op = GRAMMAR_OP_SPLIT, .a = more, .b = choices});
}

/* Code points of one UTF-8 length whose bytes, from the second on, take all values or are equal: a
 * sequence of byte ranges. */
static int32_t emit_block(compiler *c, uint32_t first, uint32_t last, int32_t next) {
    char low[UTF8_MAX_BYTES], high[UTF8_MAX_BYTES];
    size_t n = utf8_encode(first, low);
    utf8_encode(last, high);
    while (n-- > 0) next = emit_byte(c, (uint8_t)low[n], (uint8_t)high[n], next);
    return next;
}

/* Adds first..last, all of one UTF-8 length, to the choices. Splits where the low 6 * k bits of
 * `first` are not all zeros, or those of `last` not all ones. */
static int32_t emit_range(compiler *c, uint32_t first, uint32_t last, int32_t next,
                          int32_t choices) {
    while (first <= last && c->status == PI_OK) {
        uint32_t end = last;
        for (int bits = 6; bits <= 18; bits += 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((first & ~mask) == (end & ~mask)) break; /* they differ only below these bits */
            if (first & mask) {
                end = first | mask;
                break;
            }
            if ((end & mask) != mask) end = (end & ~mask) - 1;
        }
        choices = add_choice(c, choices, emit_block(c, first, end, next));
        first = end + 1;
    }
    return choices;
}

static int32_t emit_class(compiler *c, const grammar_node *node, int32_t next) {
    /* Splits code points by UTF-8 length, without surrogates, which UTF-8 excludes. */
    static const grammar_range lengths[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    int32_t choices = -1;
    for (size_t i = 0; i < node->n; i++) {
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint32_t first = node->ranges[i].first, last = node->ranges[i].last;
            if (first < lengths[k].first) first = lengths[k].first;
            if (last > lengths[k].last) last = lengths[k].last;
            if (first <= last) choices = emit_range(c, first, last, next, choices);
        }
    }
    /* Surrogates only: a byte that no text contains. */
    return choices < 0 ? emit_byte(c, 0xff, 0xff, next) : choices;
}

/* ---- structure ------------------------------------------------------------------------------- */

static int32_t emit_node(compiler *c, const grammar_node *node, int32_t next);

static int32_t emit_repeat(compiler *c, const grammar_node *node, int32_t next) {
    const grammar_node *child = node->last->node;
    uint32_t min = grammar_node_nullable(c->t, child) ? 0 : node->min;
    if (node->max == 1) {
        int32_t once = emit_node(c, child, next);
        return min ? once : add_choice(c, next, once);
    }
    if (node->max == GRAMMAR_NO_BOUND && min <= 1) {
        int32_t again = emit(c, (grammar_code){.op = GRAMMAR_OP_SPLIT, .b = next});
        int32_t body = emit_node(c, child, again);
        if (c->status != PI_OK) return 0;
        c->p->code[again].a = body;
        return min ? body : again;
    }
    int32_t loop = emit(c, (grammar_code){.op = GRAMMAR_OP_LOOP, .b = next});
    int32_t body = emit_node(c, child, loop);
    if (c->status != PI_OK) return 0;
    c->p->code[loop].a = body;
    return emit(c,
                (grammar_code){.op = GRAMMAR_OP_REPEAT, .a = loop, .min = min, .max = node->max});
}

static int32_t emit_rule(compiler *c, int32_t rule, int32_t next) {
    if (c->status == PI_OK && c->p->code[next].op == GRAMMAR_OP_RETURN)
        return emit(c, (grammar_code){.op = GRAMMAR_OP_JUMP, .a = rule});
    return emit(c, (grammar_code){.op = GRAMMAR_OP_CALL, .a = rule, .b = next});
}

static int32_t emit_node(compiler *c, const grammar_node *node, int32_t next) {
    int32_t choices = -1;
    switch (node->kind) {
    case GRAMMAR_BYTES:
        for (size_t i = node->n; i-- > 0;) {
            uint8_t byte = (uint8_t)node->bytes[i];
            next = emit_byte(c, byte, byte, next);
        }
        return next;
    case GRAMMAR_CLASS:
        return emit_class(c, node, next);
    case GRAMMAR_SEQ:
        for (const grammar_link *l = node->last; l; l = l->previous)
            next = emit_node(c, l->node, next);
        return next;
    case GRAMMAR_ALT:
        for (const grammar_link *l = node->last; l; l = l->previous)
            choices = add_choice(c, choices, emit_node(c, l->node, next));
        return choices;
    case GRAMMAR_REPEAT:
        return emit_repeat(c, node, next);
    case GRAMMAR_RULE:
        return emit_rule(c, node->rule, next);
    case GRAMMAR_NEVER:
        break; /* grammar_tree_check has refused it */
    }
    return next;
}

static void find_classes(grammar_program *p) {
    bool begins[257] = {true};
    for (size_t i = 0; i < p->n_code; i++) {
        if (p->code[i].op != GRAMMAR_OP_BYTE) continue;
        begins[p->code[i].low] = true;
        begins[p->code[i].high + 1] = true;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (begins[byte]) p->byte_of[p->n_classes++] = (uint8_t)byte;
        p->class_of[byte] = (uint8_t)(p->n_classes - 1);
    }
}

pi_status grammar_compile(const grammar_tree *t, int32_t root, grammar_program *out,
                          pi_error *err) {
    compiler c = {.t = t, .p = out, .err = err};
    *out = (grammar_program){.n_code = 0};
    out->start = mem_calloc(t->n_rules, sizeof *out->start);
    if (!out->start) c.status = error_nomem(err, t->n_rules * sizeof *out->start, "grammar");
    int32_t end = emit(&c, (grammar_code){.op = GRAMMAR_OP_RETURN});
    for (size_t i = 0; i < t->n_rules && c.status == PI_OK; i++)
        out->start[i] = emit_node(&c, t->rules[i].body, end);
    mem_free(c.slots);
    if (c.status != PI_OK) {
        grammar_program_free(out);
        return c.status;
    }
    out->root = out->start[root];
    find_classes(out);
    return PI_OK;
}

void grammar_program_free(grammar_program *p) {
    mem_free(p->code);
    mem_free(p->start);
    *p = (grammar_program){.n_code = 0};
}
