/* scheduler_slot.c: decides which slot holds what part of a prompt. All functions run on the
 * scheduler's thread. */
#include "scheduler_slot.h"

#include <string.h>

#include "common_prefix.h"

/* Length of the prefix that can be reused. The last token of a prompt is always fed, because its
 * logits begin the answer. Recurrent layers can be rewound only to some prefixes. */
static int32_t usable(const slot *t, const sequence *q) {
    bool shared = q->reuse && q->owner == t->owner;
    int32_t n = shared ? common_prefix(t->tokens, t->n_tokens, q->prompt, q->n_prompt - 1) : 0;
    return pi_session_rewind_point(t->session, n);
}

slot *slot_choose(slot *slots, int n_slots, const sequence *q) {
    slot *best = NULL;
    int32_t longest = 0;
    if (q->preferred > 0 && q->preferred <= n_slots && slots[q->preferred - 1].state == SLOT_FREE)
        return &slots[q->preferred - 1];
    for (int i = 0; i < n_slots; i++) {
        slot *t = &slots[i];
        if (t->state != SLOT_FREE) continue;
        int32_t n = usable(t, q);
        if (best && (n < longest || (n == longest && t->order > best->order))) continue;
        best = t;
        longest = n;
    }
    return best;
}

void slot_prepare(slot *t, const sequence *q, prompt_store *store) {
    int32_t n = usable(t, q), found = 0;
    if (store && q->reuse) found = prompt_store_find(store, q->prompt, q->n_prompt - 1, q->owner);
    if (store && t->reusable && t->n_tokens >= n + SLOT_SHARE_MIN)
        prompt_store_save(store, t->session, t->tokens, t->n_tokens, t->owner);
    if (pi_session_rewind(t->session, n, NULL) != PI_OK) n = 0; /* the rewind succeeds there */
    if (found >= n + SLOT_SHARE_MIN) {
        n = prompt_store_restore(store, t->session, n, q->prompt, found, q->owner);
        memcpy(t->tokens, q->prompt, (size_t)n * sizeof *t->tokens);
    }
    t->n_tokens = n;
}

void slot_start(slot *slots, int i, sequence *q, pi_speculator *speculator, uint64_t order) {
    slot *t = &slots[i];
    if (speculator && t->owner != q->owner) pi_speculator_forget(speculator, i);
    t->owner = q->owner;
    t->reusable = q->reuse;
    t->sequence = q;
    q->slot = i;
    t->state = SLOT_PROMPT;
    t->n_draft = t->n_again = 0;
    t->drafting = false;
    t->order = order;
}

/* Whether two texts may have a common prefix of n tokens: a cheap test before they are compared. */
static bool may_share(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b, int32_t n) {
    return n <= n_a && n <= n_b && a[n - 1] == b[n - 1];
}

bool slot_share(slot *slots, int n_slots, slot *t) {
    const sequence *q = t->sequence;
    const slot *from = NULL;
    int32_t longest = t->n_tokens + SLOT_SHARE_MIN;
    if (!q->reuse) return true;
    for (int i = 0; i < n_slots; i++) {
        const slot *o = &slots[i];
        if (o == t) continue;
        const bool longer = may_share(o->tokens, o->n_tokens, q->prompt, q->n_prompt, longest);
        int32_t n = longer ? usable(o, q) : 0;
        if (n >= longest && o->in_step) return false;
        if (n >= longest) {
            longest = n;
            from = o;
        }
        if (o->state != SLOT_PROMPT || o->order > t->order || o->owner != t->owner) continue;
        if (!may_share(o->sequence->prompt, o->sequence->n_prompt, q->prompt, q->n_prompt,
                       t->n_tokens + SLOT_SHARE_MIN))
            continue;
        int32_t coming = common_prefix(o->sequence->prompt, o->sequence->n_prompt, q->prompt,
                                       q->n_prompt - 1);
        if (coming >= t->n_tokens + SLOT_SHARE_MIN && coming > o->n_tokens) return false;
    }
    if (from && pi_session_copy(t->session, from->session, longest, NULL) == PI_OK) {
        for (int32_t i = 0; i < longest; i++) t->tokens[i] = from->tokens[i];
        t->n_tokens = longest;
    } else if (from) { /* a failed copy may have emptied the session */
        t->n_tokens = pi_session_length(t->session) < t->n_tokens ? 0 : t->n_tokens;
    }
    return true;
}

void slot_begin_drafts(slot *slots, slot *t, pi_speculator *speculator) {
    const sequence *q = t->sequence;
    t->drafting = speculator && q->max_draft != 0 &&
                  pi_speculator_begin(speculator, (int32_t)(t - slots), q->prompt, q->n_prompt,
                                      q->sampler, NULL) == PI_OK;
}

/* Tokens that the slot can take after its next one. */
static int32_t draft_room(const slot *t, int32_t n_ctx, int32_t share) {
    const sequence *q = t->sequence;
    int64_t left = q->max_tokens < 0 ? INT32_MAX
                                     : q->max_tokens - (int64_t)(q->n_tokens - q->n_echo);
    int64_t room = n_ctx - t->n_tokens - 1;
    if (left - 1 < room) room = left - 1;
    if (q->max_draft >= 0 && q->max_draft < room) room = q->max_draft;
    return room < share ? (int32_t)room : share;
}

void slots_draft(slot *slots, slot *const *decoding, int n, pi_speculator *speculator,
                 int32_t n_ctx, int32_t rows, pi_draft *drafts) {
    int32_t n_drafts = 0;
    for (int i = 0; i < n; i++) {
        slot *t = decoding[i];
        t->n_draft = t->n_again = 0;
        if (!t->drafting) continue;
        int32_t room = draft_room(t, n_ctx, rows / n);
        t->n_again = t->n_tokens - pi_session_length(t->session);
        memcpy(t->feed + SLOT_FEED - t->n_again, t->tokens + t->n_tokens - t->n_again,
               (size_t)t->n_again * sizeof *t->feed);
        drafts[n_drafts++] = (pi_draft){.text = (int32_t)(t - slots),
                                        .room = room,
                                        .n_again = t->n_again,
                                        .session = t->session};
    }
    if (n_drafts == 0) return;
    pi_speculator_draft(speculator, drafts, n_drafts, n - n_drafts,
                        NULL); /* after an error the draft model drafts no more */
    for (int32_t i = 0; i < n_drafts; i++) {
        slot *t = &slots[drafts[i].text];
        t->n_draft = drafts[i].n;
        if (t->n_draft > 0)
            memcpy(t->feed + SLOT_FEED + 1, drafts[i].tokens, (size_t)t->n_draft * sizeof *t->feed);
    }
}
