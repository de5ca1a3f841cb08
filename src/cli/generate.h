/* generate.h: the loop that turns a prompt into a completion. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli.h"
#include "cli_text.h"

typedef enum stop_reason {
    STOP_EOS,    /* the model ended the text */
    STOP_LENGTH, /* as many tokens as asked for, or the context is full */
    STOP_SIGNAL  /* Ctrl-C or SIGTERM */
} stop_reason;

typedef struct generation {
    /* in; belong to the caller */
    const pi_model *model;
    pi_context *context;
    pi_session *session; /* empty */
    pi_sampler *sampler;
    const int32_t *prompt; /* [n_prompt] */
    int32_t n_prompt;      /* >= 1 */
    int32_t n_predict;     /* -1: to the end of text or context */
    bool ignore_eos;
    bool stream; /* write the text to standard output as it comes */
    /* out; freed by generation_free */
    text_buffer text;
    int32_t *tokens; /* [n_tokens], the end token is not among them */
    size_t n_tokens, tokens_capacity;
    stop_reason stop;
    double prompt_seconds, decode_seconds; /* decode: everything after the prompt */
    int32_t n_decoded;                     /* forward passes after the prompt */
    bool output_failed;                    /* standard output cannot be written any more */
    int output_errno;                      /* why */
    /* own */
    size_t n_shown; /* bytes of text already streamed */
    float *logits;  /* [n_vocab] copy that end tokens are struck out of; NULL: not needed */
    int32_t *ends;  /* [n_ends] tokens to strike out */
    size_t n_ends, ends_capacity;
} generation;

/* Runs to a stop. A signal and a failing standard output are no errors: see stop and
 * output_failed. */
pi_status generation_run(generation *g, pi_error *err);
void generation_free(generation *g);

#endif
