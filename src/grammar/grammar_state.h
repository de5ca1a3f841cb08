/* grammar_state.h: the machine that reads bytes by a compiled grammar. Private to src/grammar.
 *
 * A state is the set of all possible continuations: pairs of an instruction that takes a byte and a
 * set of frames to continue with when its rule ends. A frame names the instruction to continue at
 * and the set below it: stacks share their common parts, and an ambiguous grammar does not multiply
 * the stacks (Tomita's graph-structured stack; a set is a node of the graph).
 *
 * Equal sets and states have one number. The transition from a state by a class of bytes is
 * computed once and stored: reading a similar text again costs one look-up per byte. When the
 * tables are large, all unused states are freed.
 *
 * Not thread-safe: grammar.h has the lock. */
#ifndef GRAMMAR_GRAMMAR_STATE_H
#define GRAMMAR_GRAMMAR_STATE_H

#include "grammar_program.h"
#include "hash.h"

typedef struct grammar_frame {
    int32_t pc;          /* GRAMMAR_ACCEPT: the text may end */
    uint32_t need, room; /* for a LOOP: remaining repetitions, minimum and maximum (or NO_BOUND) */
    int32_t below;       /* a set with a lower number; 0: none */
} grammar_frame;

typedef struct grammar_item {
    int32_t pc, set;
} grammar_item;

typedef struct grammar_span {
    uint32_t first, n;
} grammar_span;

typedef struct grammar_state {
    grammar_span items;
    bool accepts;   /* the text may end here */
    int32_t masked; /* the state that has the mask; GRAMMAR_UNKNOWN: not computed yet */
    uint64_t *mask; /* tokens that may follow (grammar.h); NULL: not computed */
} grammar_state;

enum {
    GRAMMAR_ACCEPT = -1,
    GRAMMAR_DEAD = 0,          /* the state without continuations */
    GRAMMAR_START = 1,         /* the state before the first byte */
    GRAMMAR_UNKNOWN = -1,      /* a transition that is not computed yet */
    GRAMMAR_SET_MAX = 1 << 16, /* frames of a set, items of a state */
};

/* Bytes of tables: above the first limit, unused states are freed; the second is never reached. */
#define GRAMMAR_TABLES_SOFT ((size_t)48 << 20)
#define GRAMMAR_TABLES_HARD ((size_t)160 << 20)
/* Maximum pairs and frames that one token, or the mask of one state, may visit: about 0.3 s. */
#define GRAMMAR_MAX_STEPS ((uint64_t)1 << 20)

/* A table from contents to numbers. */
typedef struct grammar_index {
    int32_t *slots; /* number + 1; 0: free */
    size_t n_slots, used;
} grammar_index;

typedef struct grammar_pairs {
    grammar_item *items;
    size_t n, capacity;
} grammar_pairs;

typedef struct grammar_machine {
    const grammar_program *program;
    grammar_frame *frames; /* frames of all sets */
    size_t n_frames, frames_capacity;
    grammar_span *sets; /* [n_sets]; 0 is the empty one */
    size_t n_sets, sets_capacity;
    grammar_item *items; /* items of all states */
    size_t n_items, items_capacity;
    grammar_state *states; /* [n_states] */
    size_t n_states, states_capacity;
    int32_t *next; /* [n_states][n_classes] */
    size_t next_capacity;
    grammar_index set_index, state_index;
    size_t mask_bytes; /* bytes of all masks */
    size_t mask_words; /* words of one mask */
    uint64_t steps;    /* pairs and frames visited since the caller set it to 0 */
    /* Scratch for finding one state. */
    grammar_pairs open, found;
    grammar_frame *merged;
    size_t n_merged, merged_capacity;
    uint64_t *seen; /* [n_seen] low bits: index in `open` + 1; high bits: number of the search */
    size_t n_seen;
    uint32_t search;
    hash_key key;
    bool counts;      /* some LOOP has a bound */
    pi_status status; /* status of the last failure */
} grammar_machine;

/* mask_words: uint64_t of a state's mask. PI_ERR_NOMEM, PI_ERR_LIMIT. */
pi_status grammar_machine_init(grammar_machine *m, const grammar_program *p, size_t mask_words);
void grammar_machine_free(grammar_machine *m);

/* The state after a byte of a class; GRAMMAR_UNKNOWN: m->status says why it was not found. */
int32_t grammar_step(grammar_machine *m, int32_t state, int class_of_byte);
static inline int32_t grammar_next(grammar_machine *m, int32_t state, uint8_t byte) {
    int c = m->program->class_of[byte];
    int32_t to = m->next[(size_t)state * (size_t)m->program->n_classes + (size_t)c];
    return to != GRAMMAR_UNKNOWN ? to : grammar_step(m, state, c);
}

/* Whether a byte can follow a state. */
bool grammar_goes_on(const grammar_machine *m, int32_t state);

size_t grammar_machine_bytes(const grammar_machine *m);
/* Frees all states except the start and live[n_live], whose numbers it changes. On PI_ERR_NOMEM all
 * states stay. */
pi_status grammar_machine_collect(grammar_machine *m, int32_t **live, size_t n_live);

/* A state that has the mask of `state` for tokens of at most n_bytes: its counts are limited to
 * values that such short texts can distinguish. GRAMMAR_UNKNOWN as above. */
int32_t grammar_state_within(grammar_machine *m, int32_t state, uint32_t n_bytes);

#endif
