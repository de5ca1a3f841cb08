/* grammar_case.h: grammars over small vocabularies, for tests. Failures fail the running test. */
#ifndef TEST_GRAMMAR_CASE_H
#define TEST_GRAMMAR_CASE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar.h"
#include "rng.h"

/* A vocabulary: bytes of tokens, "" for control tokens; the last token ends a text. */
typedef struct case_vocab {
    const char *const *texts; /* [n]; NULL: the 256 single bytes */
    int32_t n;
    vocab_trie *trie;
} case_vocab;

/* Every byte, then `texts`, then a token that ends the text. */
void case_vocab_create(case_vocab *v, const char *const *texts, int32_t n);
void case_vocab_free(case_vocab *v);
int32_t case_vocab_end(const case_vocab *v);

/* PI_OK, or the error of the compilation. */
pi_status case_gbnf(const case_vocab *v, const char *text, pi_grammar **out, pi_error *err);
pi_status case_lazy(const case_vocab *v, const char *text, const pi_grammar_options *o,
                    pi_grammar **out, pi_error *err);
pi_status case_schema(const case_vocab *v, const char *json, pi_grammar **out, pi_error *err);
/* With pi_grammar_schema.widen set. */
pi_status case_widened(const case_vocab *v, const char *json, pi_grammar **out, pi_error *err);

/* -1: no text of the grammar begins like this; 0: a prefix of a text; 1: a complete text. */
int case_match(pi_grammar *g, const char *text);

/* Generates a random text: tokens from the masks, the end with some probability where allowed.
 * Returns the length in bytes; -1: no end within n_tokens. */
int case_sample(pi_grammar *g, const case_vocab *v, rng *random, int n_tokens, char *text,
                size_t capacity);

#endif
