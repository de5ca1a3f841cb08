/* sample.h: logits to token. Names, defaults and order are llama.cpp's; the chain is the table in
 * sample.c. Options are the public pi_sampler_options. */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H

#include "dry.h"
#include "error.h"
#include "powerinfer.h"

/* Facts of the vocabulary, and options that the caller resolves to tokens. */
typedef struct sample_vocab {
    int32_t n_vocab;
    int32_t n_history;   /* window for a dry_last_n of -1, >= 1 */
    const int32_t *ends; /* [n_ends] tokens that ignore_eos bans */
    size_t n_ends;
    const dry_breakers *breakers; /* NULL: none */
} sample_vocab;

typedef struct sampler sampler;

/* Copies the options that it needs. Ignores strings of the options (dry_breakers). */
pi_status sampler_create(const pi_sampler_options *options, const sample_vocab *vocab,
                         sampler **out, pi_error *err);
void sampler_free(sampler *s); /* accepts NULL */
/* A copy that would sample the same tokens. */
pi_status sampler_clone(const sampler *from, sampler **out, pi_error *err);
/* Copies the state of `from` to its clone `to`: history, random state, position in the grammar. No
 * allocation. */
void sampler_copy(sampler *to, const sampler *from);
void sampler_accept(sampler *s, int32_t token);
/* logits [n_vocab] are not changed. NaN logits count as -inf; if all are -inf the result is token
 * 0. Ties go to the lower id. No allocation. The same seed gives the same tokens. */
int32_t sampler_sample(sampler *s, const float *logits);
/* With a grammar: -1 when no token may follow. */
pi_grammar_progress sampler_grammar_progress(const sampler *s, pi_error *why);
void sampler_grammar_restart(sampler *s);
uint64_t sampler_seed(const sampler *s);
/* Whether DRY is on, so that its breakers are needed. */
bool sampler_wants_breakers(const pi_sampler_options *options);

#endif
