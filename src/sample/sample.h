/* sample.h: from logits to a token. Names, defaults and order are llama.cpp's: repetition penalty,
 * top-k, top-p, min-p, temperature, draw. Options are the public pi_sampler_options. */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H

#include "error.h"
#include "powerinfer.h"

typedef struct sampler sampler;

pi_status sampler_create(const pi_sampler_options *options, int32_t n_vocab, sampler **out,
                         pi_error *err);
void sampler_free(sampler *s); /* NULL is fine */
void sampler_accept(sampler *s, int32_t token);
/* logits [n_vocab] are not changed. NaN logits count as -inf; if all are -inf the result is token
 * 0. Ties go to the lower id. No allocation. The same seed gives the same tokens. */
int32_t sampler_sample(sampler *s, const float *logits);
uint64_t sampler_seed(const sampler *s);

#endif
