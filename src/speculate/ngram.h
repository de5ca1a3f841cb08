/* ngram.h: drafts from the text itself (prompt lookup): the tokens that followed an earlier
 * occurrence of the last tokens. Private to src/speculate. */
#ifndef SPECULATE_NGRAM_H
#define SPECULATE_NGRAM_H

#include <stdint.h>

enum {
    NGRAM_MIN = 2, /* tokens of a match at least */
    NGRAM_MAX = 16 /* longer matches are no better */
};

/* Finds the earlier occurrence with the longest match of the last tokens of tokens[n]; among equals
 * the latest. Returns the length of the match, at most NGRAM_MAX, and in *next the index after it;
 * 0: no match of NGRAM_MIN tokens. */
int32_t ngram_find(const int32_t *tokens, int32_t n, int32_t *next);

/* Fills draft[n_draft] with the tokens from `next` on. Where the text ends, the draft continues
 * with its own tokens, which continues a repetition. next < n. */
void ngram_continue(const int32_t *tokens, int32_t n, int32_t next, int32_t *draft,
                    int32_t n_draft);

#endif
