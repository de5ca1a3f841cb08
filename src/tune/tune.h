/* tune.h: the parts of pi_tune. Private to src/tune.
 *
 *   tune.c        the input and its prepared form; which settings are timed, and which is chosen
 *   tune_time.c   times decode with one setting
 *   tune_write.c  writes the chosen model with its settings */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include "powerinfer_tools.h"
#include "progress.h"

enum {
    TUNE_ROUNDS = 5,
    TUNE_TIMED = 128,     /* tokens of a round, at most */
    TUNE_TIMED_LONG = 256 /* in long contexts: also for the loss, which is noisy with fewer */
};

/* A setting and its measurements. */
typedef struct tune_setting {
    const char *path; /* of the model */
    pi_mode mode;
    pi_tune_trial trial;
    double tps[TUNE_ROUNDS];     /* of each round; trial.rounds counts them */
    float nats[TUNE_TIMED_LONG]; /* [n_nats] -log p of each token of the first whole round */
    int n_nats;
    bool unfit;      /* the mode does not apply to the model; not reported */
    bool from_drive; /* weights are read from the drive */
    bool on_gpu;
    /* While it is open; NULL otherwise, and where it cannot be timed: */
    pi_model *model;
    pi_context *context;
    pi_session *session;
} tune_setting;

/* Tokens of the text that every setting evaluates: the first `depth` as a prompt, the others one by
 * one. */
typedef struct tune_text {
    int32_t *tokens; /* [n] */
    int32_t n, depth;
} tune_text;

/* Opens the model with a setting and evaluates the prompt. Without an error nothing may be open
 * either: trial.reason says that the loss is unknown or above max_loss, `unfit` that the mode does
 * not apply. */
pi_status tune_open(const pi_tune_options *o, const tune_text *text, tune_setting *s,
                    pi_error *err);
/* Times decode after the prompt until `seconds` have passed; INFINITY: all tokens of the text. */
pi_status tune_round(const tune_text *text, double seconds, tune_setting *s, pi_error *err);
void tune_close(tune_setting *s);

/* Copies a GGUF file with the settings' keys. */
pi_status tune_write(const char *path, const char *out_path, const tune_setting *chosen,
                     const pi_tune_result *r, int32_t n_ctx, progress *report, pi_error *err);

#endif
