/* reasoning.c: see reasoning.h. */
#include "reasoning.h"

#include <string.h>

#include "message.h"
#include "os_text.h"
#include "utf8.h"

/* Tokens beyond the budget in which a character or the model's own mark may still be completed. */
enum { SLACK = 8 };

static void open_at(reasoning_watch *r, const struct reasoning_mark *mark) {
    char text[256];
    size_t n = 0;
    r->state = REASONING_OPEN;
    r->mark = mark;
    r->n_end = r->n_written = 0;
    snprintf(text, sizeof text, "%s%s", mark->end, mark->after);
    if (r->budget >= 0 && pi_tokenize(r->model, text, strlen(text), PI_TOKENIZE_SPECIAL, r->end,
                                      REASONING_END_TOKENS, &n, NULL) == PI_OK)
        r->n_end = (int)n;
}

void reasoning_begin(reasoning_watch *r, const pi_model *model, int32_t budget, const char *prompt,
                     size_t n_prompt) {
    const struct reasoning_mark *mark = message_open_mark(prompt, n_prompt);
    *r = (reasoning_watch){.model = model, .budget = budget, .state = REASONING_START};
    r->reopens = message_has_headers(prompt, n_prompt);
    if (mark) open_at(r, mark);
}

int32_t reasoning_forced(const reasoning_watch *r) {
    if (r->n_written > 0) return r->end[r->n_written];
    if (r->state != REASONING_OPEN || r->budget < 0 || r->n < r->budget || r->n_end == 0) return -1;
    const bool whole = utf8_complete_prefix(r->tail, r->n_tail) == r->n_tail &&
                       message_beginning_at_end(r->tail, r->n_tail, r->mark->end) == 0;
    return whole || r->n >= (int64_t)r->budget + SLACK ? r->end[0] : -1;
}

/* Finds the next mark in the tail, drops the text up to its end, and changes the state. True: call
 * again. */
static bool step(reasoning_watch *r) {
    const char *found = NULL, *mark = NULL;
    size_t used = 0;
    bool more = false;
    if (r->state == REASONING_START) {
        const struct reasoning_mark *begun = message_mark_at(r->tail, r->n_tail, &used, &more);
        if (begun)
            open_at(r, begun);
        else if (!more)
            r->state = REASONING_CLOSED;
        else
            return false;
    } else {
        if (r->state == REASONING_CLOSED && !r->reopens) return false;
        if (r->state == REASONING_CLOSED && !r->mark) r->mark = message_header_mark();
        mark = r->state == REASONING_OPEN ? r->mark->end : r->mark->begin;
        found = os_find(r->tail, r->n_tail, mark, strlen(mark));
        if (!found) return false;
        used = (size_t)(found - r->tail) + strlen(mark);
        if (r->state == REASONING_OPEN)
            r->state = REASONING_CLOSED;
        else
            open_at(r, r->mark);
    }
    memmove(r->tail, r->tail + used, r->n_tail - used);
    r->n_tail -= used;
    return true;
}

void reasoning_note(reasoning_watch *r, int32_t token) {
    char text[REASONING_TAIL / 2];
    size_t n = 0;
    if (r->state == REASONING_NONE) return;
    const int32_t forced = reasoning_forced(r);
    if (forced >= 0 && forced == token)
        r->n_written = r->n_written + 1 < r->n_end ? r->n_written + 1 : 0;
    if (forced >= 0 && forced != token) { /* the request bans the token */
        r->budget = -1;
        r->n_written = 0;
    }
    const bool ending = forced >= 0 && forced == token;
    if (r->state == REASONING_OPEN && !ending) r->n++;
    if (pi_token_text(r->model, token, true, text, sizeof text, &n, NULL) != PI_OK) return;
    if (r->n_tail + n > sizeof r->tail) {
        const size_t drop = r->n_tail + n - sizeof r->tail;
        memmove(r->tail, r->tail + drop, r->n_tail - drop);
        r->n_tail -= drop;
    }
    memcpy(r->tail + r->n_tail, text, n);
    r->n_tail += n;
    const reasoning_state before = r->state;
    while (step(r)) continue;
    /* The model's own mark is not part of the reasoning. */
    if (before == REASONING_OPEN && r->state == REASONING_CLOSED && !ending) r->n--;
}
