/* recurrent_state.h: the state of a session's recurrent layers, with snapshots of earlier
 * positions.
 *
 * A recurrent state cannot be rewound: the session can only return to positions with a stored
 * state. A call of forward reads the state at the session's length and writes the new state to
 * another slot, so a call that fails or is cancelled changes nothing, and the session can return to
 * the position before the last call. Prefill stores the state before the last token (so that
 * repeating the prompt evaluates one token), decode one state every RECURRENT_INTERVAL tokens; the
 * state before drafted tokens stays until the next call. When slots run out, the snapshot whose
 * removal leaves the smallest gap is dropped, never the latest: so some snapshots remain near the
 * beginning, which conversations share.
 *
 * Position 0 needs no slot: all zeros. The system allocates pages of slots when they are written.
 * For layers whose primary is the GPU, the floats here are only a buffer for copies from and to the
 * GPU (gpu_kv.c). */
#ifndef SESSION_RECURRENT_STATE_H
#define SESSION_RECURRENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "recurrent_slots.h"

enum {
    RECURRENT_INTERVAL = 256, /* tokens */
    RECURRENT_NONE = -1       /* no slot: a state of zeros; no position */
};

typedef struct recurrent_slot {
    int64_t pos; /* number of tokens fed into the state; RECURRENT_NONE: the slot is free */
    bool kept;   /* a snapshot, kept beyond the last call */
} recurrent_slot;

typedef struct recurrent_state {
    float *data;      /* [RECURRENT_SLOTS][n_floats] */
    int64_t n_floats; /* 0: the model has no such layers, and every position can be rewound to */
    size_t n_bytes;
    recurrent_slot slot[RECURRENT_SLOTS];
    int now; /* slot of the session's state */
    /* Slots of a call: state after its tokens; state after n_before of them, or RECURRENT_NONE. */
    int next, before;
    int n_tokens, n_before;
    bool keep_before;
} recurrent_state;

/* PI_ERR_NOMEM. */
pi_status recurrent_create(recurrent_state *s, int64_t n_floats, pi_error *err);
void recurrent_free(recurrent_state *s); /* accepts a zeroed state */

/* The floats of a slot; NULL for RECURRENT_NONE. */
float *recurrent_floats(const recurrent_state *s, int slot);
/* Call before feeding n_tokens; the caller may rewind the last n_drafts. Chooses slots for the new
 * state and for the state before the drafts (without drafts: before the last token). */
void recurrent_begin(recurrent_state *s, int n_tokens, int n_drafts);
/* Call after tokens were fed; the session now has `length` tokens. */
void recurrent_end(recurrent_state *s, int64_t length);

/* The last position of at most `length` that the session can return to. The session has at least
 * `length` tokens. */
int64_t recurrent_point(const recurrent_state *s, int64_t length);
/* The state at a rewind point; NULL: all zeros. */
const float *recurrent_at(const recurrent_state *s, int64_t pos);
/* Returns to a rewind point; drops later snapshots. */
void recurrent_rewind(recurrent_state *s, int64_t pos);
/* Drops all states. Returns the floats of the state at `pos`, which the caller fills; NULL for
 * position 0. */
float *recurrent_replace(recurrent_state *s, int64_t pos);

#endif
