/* recurrent_state.c: assigns slots to positions. */
#include "recurrent_state.h"

#include "mem.h"

pi_status recurrent_create(recurrent_state *s, int64_t n_floats, pi_error *err) {
    *s = (recurrent_state){.n_floats = n_floats, .now = RECURRENT_NONE};
    for (int i = 0; i < RECURRENT_SLOTS; i++) s->slot[i].pos = RECURRENT_NONE;
    if (n_floats == 0) return PI_OK;
    bool fits = size_mul((size_t)n_floats, RECURRENT_SLOTS * sizeof(float), &s->n_bytes);
    if (fits) s->data = mem_map(s->n_bytes);
    if (s->data) return PI_OK;
    return error_set(err, PI_ERR_NOMEM,
                     "out of memory: recurrent state: %d snapshots of %lld floats could not be "
                     "allocated",
                     RECURRENT_SLOTS, (long long)n_floats);
}

void recurrent_free(recurrent_state *s) {
    mem_unmap(s->data, s->n_bytes);
    *s = (recurrent_state){0};
}

float *recurrent_floats(const recurrent_state *s, int slot) {
    return slot == RECURRENT_NONE ? NULL : s->data + slot * s->n_floats;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The snapshot before `pos`, or 0. */
static int64_t kept_before(const recurrent_state *s, int64_t pos) {
    int64_t best = 0;
    for (int i = 0; i < RECURRENT_SLOTS; i++) {
        const recurrent_slot *t = &s->slot[i];
        if (t->kept && t->pos < pos && t->pos > best) best = t->pos;
    }
    return best;
}

/* The snapshot after `pos`; INT64_MAX: none. */
static int64_t kept_after(const recurrent_state *s, int64_t pos) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < RECURRENT_SLOTS; i++)
        if (s->slot[i].kept && s->slot[i].pos > pos && s->slot[i].pos < best) best = s->slot[i].pos;
    return best;
}

/* The snapshot whose removal leaves the smallest gap; never the session's current state. */
static int least_wanted(const recurrent_state *s) {
    int best = RECURRENT_NONE;
    int64_t least = INT64_MAX;
    for (int i = 0; i < RECURRENT_SLOTS; i++) {
        const recurrent_slot *t = &s->slot[i];
        if (i == s->now || !t->kept) continue;
        int64_t gap = kept_after(s, t->pos) - kept_before(s, t->pos);
        if (best != RECURRENT_NONE && gap >= least) continue;
        least = gap;
        best = i;
    }
    return best;
}

/* Frees a slot and returns it: first choice a used slot without a snapshot (its pages are already
 * allocated), then an unused slot, then the slot of a snapshot. */
static int take_slot(recurrent_state *s) {
    int used = RECURRENT_NONE, unused = RECURRENT_NONE;
    for (int i = RECURRENT_SLOTS - 1; i >= 0; i--) {
        if (i == s->now || i == s->next || s->slot[i].kept) continue;
        *(s->slot[i].pos == RECURRENT_NONE ? &unused : &used) = i;
    }
    int best = used != RECURRENT_NONE ? used : unused != RECURRENT_NONE ? unused : least_wanted(s);
    s->slot[best] = (recurrent_slot){.pos = RECURRENT_NONE};
    return best;
}

void recurrent_begin(recurrent_state *s, int n_tokens, int n_drafts) {
    if (s->n_floats == 0) return;
    recurrent_slot *now = s->now == RECURRENT_NONE ? NULL : &s->slot[s->now];
    if (now && now->pos - kept_before(s, now->pos) >= RECURRENT_INTERVAL) now->kept = true;
    s->next = s->before = RECURRENT_NONE;
    s->next = take_slot(s);
    s->n_tokens = n_tokens;
    s->n_before = n_tokens - (n_drafts > 0 ? n_drafts : 1);
    s->keep_before = n_drafts == 0;
    if (s->n_before > 0) s->before = take_slot(s);
}

void recurrent_end(recurrent_state *s, int64_t length) {
    if (s->n_floats == 0) return;
    s->slot[s->next] = (recurrent_slot){.pos = length};
    s->now = s->next;
    if (s->before != RECURRENT_NONE)
        s->slot[s->before] = (recurrent_slot){.pos = length - s->n_tokens + s->n_before,
                                              .kept = s->keep_before};
}

/* ---- positions ------------------------------------------------------------------------------- */

static int slot_at(const recurrent_state *s, int64_t pos) {
    for (int i = 0; i < RECURRENT_SLOTS && pos > 0; i++)
        if (s->slot[i].pos == pos) return i;
    return RECURRENT_NONE;
}

int64_t recurrent_point(const recurrent_state *s, int64_t length) {
    int64_t best = 0;
    if (s->n_floats == 0) return length;
    for (int i = 0; i < RECURRENT_SLOTS; i++)
        if (s->slot[i].pos <= length && s->slot[i].pos > best) best = s->slot[i].pos;
    return best;
}

const float *recurrent_at(const recurrent_state *s, int64_t pos) {
    return recurrent_floats(s, slot_at(s, pos));
}

void recurrent_rewind(recurrent_state *s, int64_t pos) {
    if (s->n_floats == 0) return;
    s->now = slot_at(s, pos);
    for (int i = 0; i < RECURRENT_SLOTS; i++)
        if (s->slot[i].pos > pos) s->slot[i] = (recurrent_slot){.pos = RECURRENT_NONE};
}

float *recurrent_replace(recurrent_state *s, int64_t pos) {
    recurrent_rewind(s, 0);
    if (pos == 0 || s->n_floats == 0) return NULL;
    s->now = 0;
    s->slot[0].pos = pos;
    return recurrent_floats(s, 0);
}
