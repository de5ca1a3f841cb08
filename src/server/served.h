/* served.h: a model that the server has loaded, with all that answers need of it. Immutable once
 * created, apart from what scheduler, encoder and grammars guard themselves. registry.h counts who
 * uses it. */
#ifndef SERVER_SERVED_H
#define SERVER_SERVED_H

#include "grammar_cache.h"
#include "os_thread.h"
#include "prompt.h"
#include "scheduler.h"
#include "server_options.h"
#include "tool_style.h"

typedef struct served_model {
    served_options options;
    int index; /* in the registry */
    pi_model_info info;
    scheduler *scheduler;
    struct encoder *encoder; /* NULL: the model generates text */
    prompt_maker prompts;
    tool_style tools;
    int32_t *marks; /* [n_marks] control tokens that stay in the text for parsing, ascending */
    size_t n_marks;
    grammar_cache grammars;
    os_mutex sampling_lock; /* of options.sampling, which POST /props changes */
    json_doc *variables;    /* options.template_variables; NULL: none */
    /* pooling of embeddings; POOLING_NONE: the model's pooling is not supported */
    pooling pooling;
} served_model;

/* PI_ERR_NOT_FOUND: no built-in template has that name; PI_ERR_FORMAT: the template, or its
 * variables; PI_ERR_ARG: more slots than tokens in a batch. Also the errors of pi_context_create
 * and pi_session_create. shares: weights of the accounts of sequences. */
pi_status served_create(const served_options *options, const account_shares *shares,
                        served_model **out, pi_error *err);
/* Ends sequences and calls; the results of sequences stay readable. */
void served_stop(served_model *m);
void served_destroy(served_model *m); /* accepts NULL */

/* The defaults of requests. Strings and arrays of `changed` are those of the options. */
pi_sampler_options served_sampling(served_model *m);
void served_set_sampling(served_model *m, const pi_sampler_options *changed);

#endif
