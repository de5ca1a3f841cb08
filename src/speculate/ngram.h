/* ngram.h: drafts from the text itself (prompt lookup): the tokens that followed an earlier
 * occurrence of the last tokens. Private to src/speculate. */
#ifndef SPECULATE_NGRAM_H
#define SPECULATE_NGRAM_H

#include <stdint.h>

enum {
    NGRAM_MIN = 2, /* tokens that have to be the same */
    NGRAM_MAX = 16 /* beyond which longer ones are no better */
};

/* Finds the earlier occurrence with the longest match of the last tokens of tokens[n], the latest
 * one of several. Returns the length of the match, at most NGRAM_MAX, and in *next the place behind
 * it; 0: no match of NGRAM_MIN tokens. */
int32_t ngram_find(const int32_t *tokens, int32_t n, int32_t *next);

/* draft[n_draft]: the tokens from `next` on, continued by the draft itself where the text ends, so
 * that a repetition goes on. next < n. */
void ngram_continue(const int32_t *tokens, int32_t n, int32_t next, int32_t *draft,
                    int32_t n_draft);

#endif
