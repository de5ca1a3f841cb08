/* ngram.h: drafts from the text itself: what followed the last tokens where they were before.
 * Private to src/speculate. */
#ifndef SPECULATE_NGRAM_H
#define SPECULATE_NGRAM_H

#include <stdint.h>

enum {
    NGRAM_MIN = 2, /* tokens that have to be the same */
    NGRAM_MAX = 16 /* beyond which longer ones are no better */
};

/* Of the places before the end of tokens[n] where its last tokens are, too, one with the most of
 * them, and of these the latest. Returns how many tokens are the same there, at most NGRAM_MAX, and
 * in *next the place behind them; 0: fewer than NGRAM_MIN anywhere. */
int32_t ngram_find(const int32_t *tokens, int32_t n, int32_t *next);

/* draft[n_draft]: the tokens from `next` on, and where the text ends those of the draft itself, so
 * that what repeats goes on repeating. next < n. */
void ngram_continue(const int32_t *tokens, int32_t n, int32_t next, int32_t *draft,
                    int32_t n_draft);

#endif
