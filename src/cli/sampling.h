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

/* PI_ERR_ARG when a logit bias is not of the form ID+BIAS, or there is no sampler of a name. `s`
 * must stay where it is. */
pi_status sampling_create(const cli_options *o, sampling *s, pi_error *err);
/* The grammar or schema of the options, once the model is there. */
pi_status sampling_add_grammar(const cli_options *o, const pi_model *model, sampling *s,
                               pi_error *err);
void sampling_free(sampling *s);

/* With -v: the settings that differ from being off, on standard error. */
void sampling_print(const cli_options *o);

#endif
