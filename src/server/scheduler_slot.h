/* scheduler_slot.h: slots of the scheduler: sessions, what is in them, and who uses them. Private
 * to the scheduler's two files. */
#ifndef SERVER_SCHEDULER_SLOT_H
#define SERVER_SCHEDULER_SLOT_H

#include "powerinfer_speculate.h"
#include "sequence.h"

typedef enum slot_state { SLOT_FREE, SLOT_PROMPT, SLOT_DECODE } slot_state;

typedef struct slot {
    pi_session *session;
    int32_t *tokens;  /* [n_ctx], what was fed */
    int32_t n_tokens; /* of them */
    int owner;        /* of the sequence that fed them */
    slot_state state;
    sequence *sequence; /* NULL: free */
    /* Of SLOT_DECODE: from SLOT_FEED on the last token of the text, then a draft; before it what
     * the session lacks of `tokens`, since recurrent layers were rewound further. */
    int32_t feed[PI_DRAFT_MAX + 1 + PI_DRAFT_MAX];
    int32_t n_draft, n_again; /* tokens of these */
    bool drafting;            /* the speculator knows the text, by the slot's number */
    uint64_t order;           /* when it was started or released last: counts up */
    int32_t piece;            /* new tokens in the step that is being run */
} slot;

enum { SLOT_FEED = PI_DRAFT_MAX };

/* Tokens from which copying a prefix of another slot, or waiting for it, is worth it. */
enum { SLOT_SHARE_MIN = 16 };

/* The free slot that a sequence should get: the preferred one, else the longest common prefix, then
 * the one that was used longest ago. NULL: none is free. */
slot *slot_choose(slot *slots, int n_slots, const sequence *q);

/* Gives slot number i to the sequence; its session keeps the prefix they share. The speculator
 * forgets the text of another owner. */
void slot_start(slot *slots, int i, sequence *q, pi_speculator *speculator, uint64_t order);

/* Drafted tokens of a step at most, of all slots together. */
enum { SLOT_DRAFT_ROWS = 64 };

/* Before the first token of a sequence is sampled: its text is drafted for from now on, unless its
 * request does not want that. */
void slot_begin_drafts(slot *slots, slot *t, pi_speculator *speculator);
/* Before a step: sets what the slots that decode feed before and after their last tokens; drafts
 * have `rows` tokens at most. drafts: [n_slots] */
void slots_draft(slot *slots, int n_slots, pi_speculator *speculator, int32_t n_ctx, int32_t rows,
                 pi_draft *drafts);

/* Before the next piece of t's prompt is read: copies the longest prefix that another slot has, and
 * says with false that an earlier sequence is just reading what both begin with. */
bool slot_share(slot *slots, int n_slots, slot *t);

#endif
