/* sample_check.h: samplers held against distributions that are known. */
#ifndef SAMPLE_SAMPLE_CHECK_H
#define SAMPLE_SAMPLE_CHECK_H

#include "sample.h"

enum { MAX_VOCAB = 256 };

/* All stages off but the draw, temperature 1. */
pi_sampler_options plain_options(void);
sampler *make_sampler(const pi_sampler_options *options, int32_t n_vocab);
int32_t sample_once(const pi_sampler_options *options, const float *logits, int32_t n);
/* Logits of the given probabilities. */
void to_logits(const double *p, float *logits, int32_t n);
/* Draws many times and holds the counts against `expected` probabilities. */
void check_distribution(const pi_sampler_options *options, const float *logits,
                        const double *expected, int32_t n);

#endif
