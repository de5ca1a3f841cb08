/* scheduler_slot.c: which slot has what of a prompt. All of it runs on the scheduler's thread. */
#include "scheduler_slot.h"

/* How many of the first tokens of a and b are the same. */
static int32_t common(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    int32_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* The last token of a prompt is always fed: its logits are what the answer begins with. With
 * recurrent layers only some prefixes can be returned to. */
static int32_t usable(const slot *t, const sequence *q) {
    int32_t n = q->reuse ? common(t->tokens, t->n_tokens, q->prompt, q->n_prompt - 1) : 0;
    return pi_session_rewind_point(t->session, n);
}

slot *slot_choose(slot *slots, int n_slots, const sequence *q) {
    slot *best = NULL;
    int32_t longest = 0;
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

void slot_start(slot *t, sequence *q, uint64_t order) {
    int32_t n = usable(t, q);
    if (pi_session_rewind(t->session, n, NULL) != PI_OK) n = 0; /* it can be rewound there */
    t->n_tokens = n;
    t->sequence = q;
    t->state = SLOT_PROMPT;
    t->order = order;
}

bool slot_share(slot *slots, int n_slots, slot *t) {
    const sequence *q = t->sequence;
    const slot *from = NULL;
    int32_t longest = t->n_tokens + SLOT_SHARE_MIN;
    if (!q->reuse) return true;
    for (int i = 0; i < n_slots; i++) {
        const slot *o = &slots[i];
        if (o == t) continue;
        int32_t n = usable(o, q);
        if (n >= longest) {
            longest = n;
            from = o;
        }
        if (o->state != SLOT_PROMPT || o->order > t->order) continue;
        int32_t coming = common(o->sequence->prompt, o->sequence->n_prompt, q->prompt,
                                q->n_prompt - 1);
        if (coming >= t->n_tokens + SLOT_SHARE_MIN && coming > o->n_tokens) return false;
    }
    if (from && pi_session_copy(t->session, from->session, longest, NULL) == PI_OK) {
        for (int32_t i = 0; i < longest; i++) t->tokens[i] = from->tokens[i];
        t->n_tokens = longest;
    } else if (from) { /* a failed copy may have emptied it */
        t->n_tokens = pi_session_length(t->session) < t->n_tokens ? 0 : t->n_tokens;
    }
    return true;
}
