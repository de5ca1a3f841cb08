/* generate.h: the parts around pi_generate that run and chat share: output, progress, signals and
 * counts.
 *
 *     generation_begin(&g);
 *     status = pi_generate(g.context, g.session, &g.options, &g.result, &err);
 *     status = generation_end(&g, status, &err); */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli.h"
#include "cli_text.h"
#include "terminal.h"

typedef struct generation {
    /* in; belong to the caller */
    pi_context *context;
    pi_session *session;
    pi_generate_options options; /* generation_begin sets stop texts, callbacks and user */
    const text_list *stops;      /* the text ends behind the first of them that it contains */
    bool terminal;               /* standard output is a terminal: control characters are escaped */
    bool stream;                 /* write the text to standard output while it is generated */
    bool quiet;                  /* no progress on standard error */
    /* Receives the text instead of standard output; NULL: standard output. */
    void (*write)(void *user, const char *text, size_t n_bytes);
    void *write_user;
    bool one_paragraph; /* the text ends before its first empty line */
    /* out; freed by generation_free */
    pi_generated result;
    text_buffer text;
    int32_t *tokens; /* [n_tokens], without the end token */
    size_t n_tokens, tokens_capacity;
    int signal;                  /* signal that was caught; 0: none */
    pi_counters decode_counters; /* counters of the tokens evaluated after the prompt */
    bool output_failed;          /* writing standard output failed */
    int output_errno;            /* its errno */
    /* private */
    pi_stop_text stop_texts[PI_STOP_TEXTS];
    terminal_progress progress;
    bool progress_shown;
    double started;
    bool paragraph_ended;
    pi_error error; /* error of a callback */
} generation;

/* Until generation_end, the first signal cancels the generation. */
void generation_begin(generation *g);
/* status: result of pi_generate. A signal or a failing standard output is not an error: see
 * result.stop and output_failed. */
pi_status generation_end(generation *g, pi_status status, pi_error *err);
void generation_free(generation *g);

/* For JSON: [pi_stop]. */
extern const char *const generation_stop_names[];
/* Evaluated tokens per second; 0: the time was too short to measure. */
double generation_prompt_tps(const generation *g);
double generation_tps(const generation *g);

#endif
