/* sampling.h: sampler options from the command line, for every command that samples. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "cli.h"
#include "cli_text.h"

typedef struct sampling {
    pi_sampler_options options; /* points into what follows */
    pi_logit_bias bias[OPTION_MAX_TEXTS];
    text_list breakers;
    const char *breaker_texts[OPTION_MAX_TEXTS];
    pi_sampler_kind chain[PI_SAMPLER_CHAIN_MAX];
    pi_grammar *grammar; /* NULL: none */
} sampling;

/* PI_ERR_ARG: a malformed logit bias, or an unknown sampler. `s` must not be moved or copied: its
 * options point into it. */
pi_status sampling_create(const cli_options *o, sampling *s, pi_error *err);
/* Adds the grammar or schema of the options, once the model is open. */
pi_status sampling_add_grammar(const cli_options *o, const pi_model *model, sampling *s,
                               pi_error *err);
void sampling_free(sampling *s);

/* With -v: prints the samplers in use and their settings on standard error. */
void sampling_print(const cli_options *o);

#endif
