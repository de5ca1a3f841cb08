/* generate.h: the generation loop. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli.h"
#include "cli_text.h"
#include "powerinfer_speculate.h"

typedef enum stop_reason {
    STOP_EOS,    /* the model ended the text */
    STOP_LENGTH, /* as many tokens as asked for, or the context is full */
    STOP_TEXT,   /* one of the texts that end it */
    STOP_SIGNAL  /* Ctrl-C or SIGTERM */
} stop_reason;

typedef struct generation {
    /* in; belong to the caller */
    const pi_model *model;
    pi_context *context;
    pi_session *session; /* the first n_cached tokens of the prompt are in it */
    pi_sampler *sampler;
    pi_speculator *speculator; /* drafts for text 0; NULL: none */
    const int32_t *prompt;     /* [n_prompt] */
    int32_t n_prompt;          /* >= 1 */
    int32_t n_cached;          /* < n_prompt */
    int32_t n_predict;         /* -1: to the end of text or context */
    int32_t n_batch;           /* tokens per step of the progress report */
    int32_t n_keep;            /* tokens that a shift keeps; <= n_prompt */
    bool shift;                /* go on when the context is full */
    bool ignore_eos;
    bool terminal; /* standard output is one: what it would obey is escaped */
    bool stream;   /* write the text to standard output as it comes */
    bool quiet;    /* no progress on standard error */
    /* Takes the text in place of standard output; NULL: none. */
    void (*write)(void *user, const char *text, size_t n_bytes);
    void *write_user;
    bool one_paragraph;     /* the text ends before its first empty line */
    const text_list *stops; /* texts that end it, the last thing that is shown; none empty */
    /* out; freed by generation_free */
    text_buffer text;
    int32_t *tokens; /* [n_tokens], the end token is not among them */
    size_t n_tokens, tokens_capacity;
    stop_reason stop;
    int signal;                            /* of STOP_SIGNAL */
    int n_shifts;                          /* of the context */
    bool context_full;                     /* the reason of STOP_LENGTH */
    double prompt_seconds, decode_seconds; /* decode: everything after the prompt */
    int32_t n_decoded;                     /* tokens evaluated after the prompt */
    int32_t n_steps;                       /* forward passes for them */
    pi_draft_counts drafts;
    pi_counters decode_counters; /* bytes read by these */
    bool output_failed;          /* standard output cannot be written any more */
    int output_errno;            /* why */
    /* own */
    size_t n_shown; /* bytes of text already streamed */
    int32_t n_past; /* tokens of prompt and text in the session; drafted ones may follow */
    int32_t row;    /* of logits: the next token's */
    int32_t *fed;   /* [capacity of the session]: the tokens in it; with `shift` or a speculator */
} generation;

/* Runs to a stop. A signal and a failing standard output are no errors: see stop and
 * output_failed. */
pi_status generation_run(generation *g, pi_error *err);
void generation_free(generation *g);

/* For JSON: [stop_reason]. */
extern const char *const generation_stop_names[];
/* Tokens per second, without those of the cache; 0: too short to tell. */
double generation_prompt_tps(const generation *g);
double generation_tps(const generation *g);

#endif
