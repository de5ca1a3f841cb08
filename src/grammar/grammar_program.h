/* grammar_program.h: a grammar as instructions over bytes, for the machine of grammar_state.h.
 * Private to src/grammar. Immutable once compiled.
 *
 * An instruction that takes no byte continues at once; a call pushes a frame on the machine's
 * stack. A tail call pushes none, so that lists written with tail recursion need no stack. */
#ifndef GRAMMAR_GRAMMAR_PROGRAM_H
#define GRAMMAR_GRAMMAR_PROGRAM_H

#include "grammar_tree.h"

typedef enum grammar_op {
    GRAMMAR_OP_BYTE,   /* takes a byte in low..high, then `a` */
    GRAMMAR_OP_SPLIT,  /* `a` and `b` */
    GRAMMAR_OP_CALL,   /* rule `a`, then `b` */
    GRAMMAR_OP_JUMP,   /* rule `a`, which also ends this rule */
    GRAMMAR_OP_REPEAT, /* `a`, a LOOP, with a frame of min and max */
    GRAMMAR_OP_LOOP,   /* `a` again, or `b`, depending on the frame */
    GRAMMAR_OP_RETURN  /* the end of a rule */
} grammar_op;

typedef struct grammar_code {
    uint8_t op; /* grammar_op */
    uint8_t low, high;
    int32_t a, b;
    uint32_t min, max;
} grammar_code;

enum { GRAMMAR_MAX_CODE = 1 << 22 };

typedef struct grammar_program {
    grammar_code *code; /* [n_code] */
    size_t n_code;
    int32_t *start; /* [n_rules] */
    int32_t root;   /* its first instruction */
    /* Bytes that no instruction distinguishes form one class. */
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* [n_classes] one byte of each class */
    int32_t n_classes;
} grammar_program;

/* Compiles a checked tree. PI_ERR_LIMIT, PI_ERR_NOMEM. */
pi_status grammar_compile(const grammar_tree *t, int32_t root, grammar_program *out, pi_error *err);
void grammar_program_free(grammar_program *p); /* accepts a zeroed program */

#endif
