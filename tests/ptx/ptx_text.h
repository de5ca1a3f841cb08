/* ptx_text.h: words of PTX text, and its symbols. */
#ifndef TEST_PTX_TEXT_H
#define TEST_PTX_TEXT_H

#include "ptx_inside.h"

/* Part of a text; the text outlives it. */
typedef struct ptx_word {
    const char *at;
    size_t n; /* 0: end of the text */
} ptx_word;

/* A position in the text. */
typedef struct ptx_reader {
    const char *at;
    uint32_t line;
    const char *file;
    ptx_error *error;
    bool failed;
} ptx_reader;

/* Reads the next word: a name with dots, $ and %, a number, a quoted text, or one other
 * character. */
ptx_word ptx_next(ptx_reader *r);
ptx_word ptx_peek(ptx_reader *r);
bool ptx_is(ptx_word w, const char *text);
/* Takes the word if it follows. */
bool ptx_accept(ptx_reader *r, const char *text);
void ptx_expect(ptx_reader *r, const char *text);
/* Skips to after the brace that closes the last one read. */
void ptx_skip_braces(ptx_reader *r);
/* Records the first error, at this position; shows *word (NULL: none). */
void ptx_wrong(ptx_reader *r, const char *what, const ptx_word *word);
/* Parses an integer, or the bits of a float: 0f3F800000, 0d3FF0000000000000. */
bool ptx_number(ptx_word w, uint64_t *value);
uint64_t ptx_read_number(ptx_reader *r);

/* The meaning of a name. */
typedef struct ptx_symbol {
    ptx_word name;
    enum ptx_symbol_kind {
        SYMBOL_REGISTERS, /* `count` registers, name0, name1...; 0: one register, `name` */
        SYMBOL_SHARED,
        SYMBOL_LOCAL, /* includes parameters and results of device functions */
        SYMBOL_PARAM,
        SYMBOL_GLOBAL
    } kind;
    char type; /* type of registers: w, d, p as in ptx_operation */
    uint32_t count, n_bytes;
    uint64_t at; /* offset; address of a global variable */
} ptx_symbol;

typedef struct ptx_symbols {
    ptx_symbol *all;
    size_t n, room;
} ptx_symbols;

bool ptx_symbols_add(ptx_symbols *s, ptx_symbol symbol); /* false: out of memory */
/* Returns the latest symbol with this name; *index: number of the register. NULL: none. */
const ptx_symbol *ptx_symbols_find(const ptx_symbols *s, ptx_word name, uint32_t *index);

/* Parses a variable after its state space: [.align n] .type name[size]. */
typedef struct ptx_variable {
    ptx_word name;
    uint32_t align, element, n_bytes;
} ptx_variable;
ptx_variable ptx_read_variable(ptx_reader *r);
/* Bytes of a type such as .b32 or .f64; 0: not known. */
uint32_t ptx_type_bytes(ptx_word type);

/* ---- modules --------------------------------------------------------------------------------- */

/* An entry or a device function. */
typedef struct ptx_function {
    ptx_word name;
    bool entry;
    ptx_reader head, body; /* at its parameters; after its opening brace */
    bool has_result;
} ptx_function;

struct ptx_module {
    char *text, *file;
    ptx_memory *memory;
    ptx_function *functions;
    size_t n_functions, function_room;
    ptx_symbols globals;
    ptx_symbols shared; /* of no function: `at` is the alignment */
    ptx_kernel *kernels;
};

/* Appends the instructions of a kernel. */
bool ptx_decode(ptx_module *m, ptx_kernel *k, ptx_function *f, ptx_error *error);

/* Makes room for items[n]. False: out of memory. */
bool ptx_grow(void **items, size_t *room, size_t n, size_t size);

#endif
