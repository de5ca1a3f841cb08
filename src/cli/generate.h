/* generate.h: generation for run and chat: pi_generate with the program's output, progress, signals
 * and counts. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "cli.h"
#include "cli_text.h"
#include "terminal.h"

typedef struct generation {
    /* in; belong to the caller */
    pi_context *context;
    pi_session *session;
    pi_generate_options options; /* stops, callbacks and user are generation_run's */
    const text_list *stops;      /* texts that end the text, which is shown up to their end */
    bool terminal;               /* standard output is one: control characters are escaped */
    bool stream;                 /* write the text to standard output as it comes */
    bool quiet;                  /* no progress on standard error */
    /* Takes the text in place of standard output; NULL: none. */
    void (*write)(void *user, const char *text, size_t n_bytes);
    void *write_user;
    bool one_paragraph; /* the text ends before its first empty line */
    /* out; freed by generation_free */
    pi_generated result;
    text_buffer text;
    int32_t *tokens; /* [n_tokens], without the end token */
    size_t n_tokens, tokens_capacity;
    int signal;                  /* that was caught; 0: none */
    pi_counters decode_counters; /* of the tokens evaluated after the prompt */
    bool output_failed;          /* standard output cannot be written any more */
    int output_errno;            /* why */
    /* own */
    terminal_progress progress;
    bool progress_shown;
    double started;
    bool paragraph_ended;
    pi_error error; /* of a callback */
} generation;

/* Generates to the end. A signal and a failing standard output are no errors: see result.stop and
 * output_failed. */
pi_status generation_run(generation *g, pi_error *err);
void generation_free(generation *g);

/* For JSON: [pi_stop]. */
extern const char *const generation_stop_names[];
/* Tokens per second, without those of the cache; 0: too short to tell. */
double generation_prompt_tps(const generation *g);
double generation_tps(const generation *g);

#endif
