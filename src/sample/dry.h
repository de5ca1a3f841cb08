/* dry.h: "don't repeat yourself": lowers the score of every token that would continue a sequence
 * which the text already contains; the longer the sequence, the lower. Private to src/sample.
 *
 * Definition: https://github.com/oobabooga/text-generation-webui/pull/5677. A token that follows an
 * earlier occurrence of the last L tokens, L >= allowed_length, loses multiplier * base^(L -
 * allowed_length); the longest L counts. Sequence breakers are never part of a repeated sequence: L
 * is at most the number of tokens after the last breaker. */
#ifndef SAMPLE_DRY_H
#define SAMPLE_DRY_H

#include "powerinfer.h"

enum { DRY_BREAKER_MAX = 20 }; /* tokens of one sequence breaker, as in llama.cpp */

/* A sequence breaker in tokens. */
typedef struct dry_breaker {
    int32_t tokens[DRY_BREAKER_MAX];
    int32_t n; /* >= 1 */
} dry_breaker;

typedef struct dry_breakers {
    dry_breaker *items;
    size_t n;
} dry_breakers;

typedef struct dry dry;

/* `last_n` >= 1: tokens in the window. `breakers` is copied; NULL: none. Returns NULL when out of
 * memory. */
dry *dry_create(const pi_sampler_options *options, int32_t n_vocab, int32_t last_n,
                const dry_breakers *breakers);
/* A copy, including the history; NULL: out of memory. */
dry *dry_clone(const dry *from);
/* Copies the history of `from` to its clone `to`. */
void dry_copy(dry *to, const dry *from);
void dry_free(dry *d); /* accepts NULL */
void dry_accept(dry *d, int32_t token);
/* Lowers scores[n_vocab]. O(tokens in the window). */
void dry_apply(dry *d, float *scores);

#endif
