/* sample_check.h: compares samplers with known distributions. */
#ifndef SAMPLE_SAMPLE_CHECK_H
#define SAMPLE_SAMPLE_CHECK_H

#include "sample.h"

enum { MAX_VOCAB = 256 };

/* All samplers off, temperature 1: only the draw. */
pi_sampler_options plain_options(void);
sampler *make_sampler(const pi_sampler_options *options, int32_t n_vocab);
int32_t sample_once(const pi_sampler_options *options, const float *logits, int32_t n);
/* Stores logits with the given probabilities. */
void to_logits(const double *p, float *logits, int32_t n);
/* Draws many times and compares the counts with `expected` probabilities. */
void check_distribution(const pi_sampler_options *options, const float *logits,
                        const double *expected, int32_t n);

#endif
