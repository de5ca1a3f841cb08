/* recurrent_state.h: the state of a session's recurrent layers, with snapshots of earlier
 * positions.
 *
 * Such a state cannot be rewound: what it was at a position is known only where it was kept. A call
 * of forward reads the state at the session's length and writes the new one to another slot, so a
 * call that fails or is cancelled changes nothing, and the position before the last call can be
 * returned to. Of prompts, the state before the last token is kept (the same prompt again feeds one
 * token), of generated text one every RECURRENT_INTERVAL tokens; before drafted tokens it stays
 * until the next call. When slots run out, the snapshot goes whose absence leaves the smallest
 * hole, never the latest: so some stay near the beginning, which conversations share.
 *
 * Position 0 needs no slot: all zeros. Slots' pages appear as they are written. Of layers whose
 * primary is the GPU, the floats here are not looked at but on the way there and back (gpu_kv.c).
 */
#ifndef ENGINE_RECURRENT_STATE_H
#define ENGINE_RECURRENT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum {
    RECURRENT_KEPT = 4,                   /* snapshots */
    RECURRENT_SLOTS = RECURRENT_KEPT + 2, /* with the state before and after a call */
    RECURRENT_INTERVAL = 256,             /* tokens */
    RECURRENT_NONE = -1                   /* no slot: a state of zeros; no position */
};

typedef struct recurrent_slot {
    int64_t pos; /* tokens that the state has seen; RECURRENT_NONE: the slot is free */
    bool kept;   /* a snapshot, not only a state of the last call */
} recurrent_slot;

typedef struct recurrent_state {
    float *data;      /* [RECURRENT_SLOTS][n_floats] */
    int64_t n_floats; /* 0: the model has no such layers, and every position can be rewound to */
    size_t n_bytes;
    recurrent_slot slot[RECURRENT_SLOTS];
    int now; /* the session's */
    /* Of a call: after its tokens, and after n_before of them, or RECURRENT_NONE. */
    int next, before;
    int n_tokens, n_before;
    bool keep_before;
} recurrent_state;

/* PI_ERR_NOMEM. */
pi_status recurrent_create(recurrent_state *s, int64_t n_floats, pi_error *err);
void recurrent_free(recurrent_state *s); /* a zeroed one is fine */

/* The floats of a slot; NULL for RECURRENT_NONE. */
float *recurrent_floats(const recurrent_state *s, int slot);
/* Before a call that feeds n_tokens, of which the last n_drafts may be taken back: chooses where
 * the new state and the one before the drafts go, or before the last token if there are none. */
void recurrent_begin(recurrent_state *s, int n_tokens, int n_drafts);
/* After one that succeeded; the session has `length` tokens now. */
void recurrent_end(recurrent_state *s, int64_t length);

/* The last position of at most `length` that can be returned to, in a session of at least that
 * length. */
int64_t recurrent_point(const recurrent_state *s, int64_t length);
/* The floats at such a position; NULL: all zeros. */
const float *recurrent_at(const recurrent_state *s, int64_t pos);
/* Goes back to such a position; later snapshots are dropped. */
void recurrent_rewind(recurrent_state *s, int64_t pos);
/* Forgets everything; the floats returned, of position `pos`, are for the caller to fill. NULL for
 * position 0. */
float *recurrent_replace(recurrent_state *s, int64_t pos);

#endif
