/* reasoning.h: follows the reasoning in a text that is being generated: counts its tokens, and says
 * which tokens end it when its budget is used up. Works on tokens, so that it needs neither the
 * released text nor control tokens that the answer hides. Zeroed: follows nothing. Used by one
 * thread at a time. */
#ifndef SERVER_REASONING_H
#define SERVER_REASONING_H

#include <stdbool.h>
#include <stdint.h>

#include "powerinfer.h"

enum { REASONING_END_TOKENS = 96, REASONING_TAIL = 256 };

typedef enum reasoning_state {
    REASONING_NONE,  /* nothing is followed */
    REASONING_START, /* only blanks and perhaps the beginning of a mark so far */
    REASONING_OPEN,
    REASONING_CLOSED
} reasoning_state;

typedef struct reasoning_watch {
    const pi_model *model;
    int32_t budget; /* tokens; -1: no limit */
    int32_t n;      /* tokens of reasoning so far */
    reasoning_state state;
    const struct reasoning_mark *mark; /* of the open or last reasoning; NULL: none yet */
    bool reopens;                      /* several messages may be reasoning */
    /* Tokens that end the reasoning; the first n_written of them are in the text. */
    int32_t end[REASONING_END_TOKENS];
    int n_end, n_written;
    char tail[REASONING_TAIL]; /* [n_tail] end of the text, in which marks are searched */
    size_t n_tail;
} reasoning_watch;

/* Begins an answer that follows this prompt. */
void reasoning_begin(reasoning_watch *r, const pi_model *model, int32_t budget, const char *prompt,
                     size_t n_prompt);
/* Returns the token that must follow now; -1: any token may follow. */
int32_t reasoning_forced(const reasoning_watch *r);
/* Takes the token that follows. */
void reasoning_note(reasoning_watch *r, int32_t token);

#endif
