/* scheduler_slot.h: the scheduler's slots: their sessions, contents and users. Private to the
 * scheduler's two files. */
#ifndef SERVER_SCHEDULER_SLOT_H
#define SERVER_SCHEDULER_SLOT_H

#include "powerinfer_speculate.h"
#include "prompt_store.h"
#include "sequence.h"

typedef enum slot_state { SLOT_FREE, SLOT_PROMPT, SLOT_DECODE } slot_state;

typedef struct slot {
    pi_session *session;
    int32_t *tokens;  /* [n_ctx] tokens that were fed */
    int32_t n_tokens; /* number of these tokens */
    int owner;        /* owner of the sequence that fed the tokens */
    bool reusable;    /* later prompts may have these tokens: the prompt store saves them */
    slot_state state;
    sequence *sequence; /* NULL: free */
    /* Input in SLOT_DECODE. From SLOT_FEED on: the last token of the text, then a draft. Before
     * SLOT_FEED: tokens of `tokens` that the session lacks because recurrent layers were rewound
     * further. */
    int32_t feed[PI_DRAFT_MAX + 1 + PI_DRAFT_MAX];
    int32_t n_draft, n_again; /* number of draft tokens; number of tokens fed again */
    bool drafting;            /* the speculator knows the text by the slot's number */
    uint64_t order;           /* counter value at the last start or release */
    int32_t piece;            /* new tokens of the slot in the step under way */
    bool in_step;             /* a step is under way: nothing else may use the slot */
    uint64_t stepped;         /* number of its last step */
} slot;

enum { SLOT_FEED = PI_DRAFT_MAX };

/* Least number of tokens for which it pays to copy another slot's prefix or to wait for it. */
enum { SLOT_SHARE_MIN = 16 };

/* Returns the free slot for a sequence: the preferred slot, else the slot with the longest common
 * prefix, else the least recently used. NULL: no slot is free. */
slot *slot_choose(slot *slots, int n_slots, const sequence *q);

/* Prepares a free slot for a sequence: its session keeps the common prefix. `store` saves what the
 * session loses, and extends the prefix; NULL: none. */
void slot_prepare(slot *t, const sequence *q, prompt_store *store);
/* Assigns slot number i, which is prepared, to the sequence. The speculator forgets the text of
 * another owner. */
void slot_start(slot *slots, int i, sequence *q, pi_speculator *speculator, uint64_t order);

/* Maximum drafted tokens of a step, over all slots. */
enum { SLOT_DRAFT_ROWS = 64 };

/* Called before the first token of a sequence is sampled: starts drafting for its text, unless the
 * request disables drafts. */
void slot_begin_drafts(slot *slots, slot *t, pi_speculator *speculator);
/* Called before a step: sets the tokens that its decoding slots [n] feed before and after their
 * last token. Drafts have at most `rows` tokens in total. drafts: [n] */
void slots_draft(slot *slots, slot *const *decoding, int n, pi_speculator *speculator,
                 int32_t n_ctx, int32_t rows, pi_draft *drafts);

/* Called before the next piece of t's prompt is read: copies the longest prefix that another slot
 * has. False: an earlier sequence is reading the common prefix, or the slot that has it is in a
 * step; wait. */
bool slot_share(slot *slots, int n_slots, slot *t);

#endif
