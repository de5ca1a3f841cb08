/* sequence.h: one text that is being generated: a prompt goes in, text and tokens come out.
 *
 * The thread of a connection creates a sequence, hands it to the scheduler and reads the results;
 * the scheduler's thread writes them. Both threads use the second part of the struct, under the
 * scheduler's lock. Both hold a reference (`references`); the last one to drop it frees the
 * sequence. */
#ifndef SERVER_SEQUENCE_H
#define SERVER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"
#include "neurons.h"
#include "os_thread.h"
#include "powerinfer_generation.h"

enum { SEQUENCE_MAX_TOP = 20 /* alternatives that a token may have */ };

typedef enum finish_reason {
    FINISH_NONE,     /* it still runs */
    FINISH_EOS,      /* the model ended the text */
    FINISH_STOP,     /* one of the stop texts */
    FINISH_LENGTH,   /* the maximum of tokens, or the context is full */
    FINISH_POOLED,   /* the prompt has been read, and `pooled` is complete */
    FINISH_GONE,     /* the client has left */
    FINISH_SHUTDOWN, /* the server stops */
    FINISH_ERROR     /* see `error` */
} finish_reason;

/* A token and the logarithm of its probability by the model, before any sampler. */
typedef struct token_choice {
    int32_t token;
    float logprob;
} token_choice;

typedef struct token_record {
    token_choice chosen; /* logprob: NAN when not requested */
    size_t text_end;     /* bytes of the text of all tokens up to this one */
} token_record;

/* How hidden states of a prompt become its embedding. */
typedef enum pooling {
    POOLING_NONE, /* there is none: the sequence generates */
    POOLING_MEAN, /* the mean of all tokens' */
    POOLING_LAST  /* the last token's */
} pooling;

typedef struct sequence_times { /* clock_seconds */
    double started, first_token, last_token;
} sequence_times;

typedef struct sequence {
    /* Set by the creator; constant afterwards. */
    const pi_model *model;
    int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int32_t n_prompt;
    pi_sampler *sampler;       /* NULL: an embedding */
    pi_generation *generation; /* the text; the scheduler's. NULL: an embedding */
    pooling pooling;
    double *pooled; /* [n_embd] zeroed: sum of the pooled states; the scheduler's until the end */
    int32_t max_tokens; /* -1: to the end of the context */
    int32_t max_draft;  /* drafted tokens per step at most, 0: none; -1: the server's limit */
    pi_stop_text stops[PI_STOP_TEXTS];
    size_t n_stops;
    int n_top;             /* alternatives to note, <= SEQUENCE_MAX_TOP; -1: no logprobs at all */
    bool echo;             /* its tokens and text begin with the prompt's */
    size_t echo_bytes;     /* of the prompt's text; SIZE_MAX: it was given as tokens */
    bool reuse;            /* start from what a slot has of the prompt */
    int32_t preferred;     /* slot that it gets if that is free, plus 1; 0: any */
    int owner;             /* only slots of this owner share prefixes with it */
    int fd;                /* the client's socket; -1: none to watch */
    os_condition *news;    /* signalled when something below has changed */
    struct sequence *next; /* in the queue */

    /* Under the lock. */
    bytes text;           /* final text: complete characters, no beginning of a stop text */
    bytes echoed;         /* with `echo`: text of the prompt's tokens so far */
    size_t echo_end;      /* bytes of `text` that are the prompt's */
    token_record *tokens; /* [n_tokens] */
    size_t n_tokens, tokens_capacity;
    size_t n_echo;      /* the first n_echo tokens are the prompt's */
    token_choice *tops; /* [n_tokens][n_top], most likely first; token -1: none */
    size_t tops_capacity;
    finish_reason finish;
    bool has_end;                   /* the last token is an end-of-generation token */
    const pi_stop_text *stopped_by; /* of FINISH_STOP */
    pi_error error;
    int32_t slot;                        /* that it has, or had; -1: none yet */
    int32_t n_cached;                    /* tokens of the prompt that the slot had */
    int32_t n_fed;                       /* tokens of the prompt that have been evaluated */
    int64_t n_drafted, n_draft_accepted; /* tokens */
    sequence_times times;
    bool abandoned;         /* nobody reads any more */
    neuron_counts *neurons; /* NULL: nobody watches; who makes the sequence allocates it */
    int references;
} sequence;

/* All fields zero or "none"; the caller fills in the first part. NULL: no memory. */
sequence *sequence_create(void);
/* Also frees prompt, sampler, generation, stop texts and pooled. NULL is fine. */
void sequence_free(sequence *q);

/* Adds a stop text. PI_ERR_ARG: empty, above the length limit, or more than PI_STOP_TEXTS;
 * PI_ERR_NOMEM. */
pi_status sequence_add_stop(sequence *q, const char *text, size_t n, pi_error *err);

/* With `echo`: takes the next token of the prompt; `tops` has [n_top], NULL: its probability is not
 * known. */
void sequence_echo(sequence *q, float logprob, const token_choice *tops);
/* Takes a sampled token with its probability; `tops` has [n_top]. Sets `finish` when the text ends
 * with it. */
void sequence_push(sequence *q, const pi_sampled *sampled, token_choice chosen,
                   const token_choice *tops);
/* Ends the text, with the bytes that were held back. */
void sequence_end(sequence *q, finish_reason reason);
void sequence_fail(sequence *q, const pi_error *why);

#endif
