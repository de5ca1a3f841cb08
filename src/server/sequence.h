/* sequence.h: one text being generated: a prompt goes in, text and tokens come out.
 *
 * The thread of a connection creates a sequence, passes it to the scheduler and reads the results;
 * the scheduler's thread writes them. The scheduler's lock guards what both threads use: the second
 * part of the struct. Both threads hold a reference (`references`); whoever drops the last one
 * frees the sequence. */
#ifndef SERVER_SEQUENCE_H
#define SERVER_SEQUENCE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"
#include "neurons.h"
#include "powerinfer.h"

enum {
    SEQUENCE_MAX_STOPS = 64,        /* maximum stop texts of a sequence */
    SEQUENCE_MAX_STOP_BYTES = 1024, /* maximum bytes of a stop text */
    SEQUENCE_MAX_TOP = 20           /* maximum alternatives of a token */
};

typedef enum finish_reason {
    FINISH_NONE,     /* still running */
    FINISH_EOS,      /* the model ended the text */
    FINISH_STOP,     /* a stop text was found */
    FINISH_LENGTH,   /* the token limit was reached, or the context is full */
    FINISH_POOLED,   /* the prompt has been read, and `pooled` is complete */
    FINISH_GONE,     /* the client has left */
    FINISH_SHUTDOWN, /* the server stops */
    FINISH_ERROR     /* an error; see `error` */
} finish_reason;

typedef struct stop_text {
    char *text; /* [n], n >= 1 */
    size_t n;
} stop_text;

/* A token and the logarithm of its probability in the model's distribution, before any sampler. */
typedef struct token_choice {
    int32_t token;
    float logprob;
} token_choice;

typedef struct token_record {
    token_choice chosen; /* logprob: NAN when not requested */
    size_t text_end;     /* bytes of the text of all tokens through this one */
} token_record;

/* How the hidden states of a prompt become its embedding. */
typedef enum pooling {
    POOLING_NONE, /* no embedding: the sequence generates */
    POOLING_MEAN, /* mean of all tokens */
    POOLING_LAST  /* last token */
} pooling;

typedef struct sequence_times { /* clock_seconds */
    double started, first_token, last_token;
} sequence_times;

typedef struct sequence {
    /* Set by the creator; constant afterwards. */
    const pi_model *model;
    int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int32_t n_prompt;
    pi_sampler *sampler; /* NULL: an embedding */
    pooling pooling;
    /* [n_embd] zeroed; sum of the pooled hidden states; only the scheduler writes it until the
     * sequence ends */
    double *pooled;
    int32_t max_tokens; /* -1: until the context is full */
    int32_t max_draft;  /* maximum drafted tokens per step; 0: none; -1: the server's limit */
    stop_text stops[SEQUENCE_MAX_STOPS];
    int n_stops;
    /* alternatives to record, <= SEQUENCE_MAX_TOP; -1: no log probabilities */
    int n_top;
    bool echo; /* tokens and text begin with those of the prompt */
    /* length of the prompt's text; SIZE_MAX: the prompt was given as tokens */
    size_t echo_bytes;
    bool reuse;           /* reuse the prefix of the prompt that a slot holds */
    int32_t preferred;    /* preferred slot plus 1; 0: any */
    int owner;            /* only slots of this owner share prefixes with the sequence */
    const int32_t *marks; /* [n_marks] control tokens that have a text, ascending; borrowed */
    size_t n_marks;
    bool ignore_eos;       /* the sampler then never returns an end-of-text token */
    int fd;                /* the client's socket; -1: nothing to poll */
    pthread_cond_t *news;  /* signalled when a field below has changed */
    struct sequence *next; /* next in the queue */

    /* Guarded by the lock. */
    bytes text;           /* released text: whole characters, no prefix of a stop text */
    bytes held;           /* text after it, held back */
    token_record *tokens; /* [n_tokens] */
    size_t n_tokens, tokens_capacity;
    size_t n_echo;      /* number of leading tokens that belong to the prompt */
    token_choice *tops; /* [n_tokens][n_top], most likely first; token -1: none */
    size_t tops_capacity;
    finish_reason finish;
    const stop_text *stopped_by; /* for FINISH_STOP */
    pi_error error;
    int32_t slot;                        /* its current or last slot; -1: none yet */
    int32_t n_cached;                    /* tokens of the prompt that were reused */
    int32_t n_fed;                       /* tokens of the prompt that have been read */
    int64_t n_drafted, n_draft_accepted; /* tokens */
    sequence_times times;
    bool abandoned;         /* no reader is left */
    neuron_counts *neurons; /* NULL: not watched; allocated by the creator */
    int references;
} sequence;

/* Returns a sequence; the caller fills in the first part. NULL: out of memory. */
sequence *sequence_create(void);
/* Also frees what the creator filled in: prompt, sampler, stop texts, pooled. Accepts NULL. */
void sequence_free(sequence *q);

/* Adds a stop text. PI_ERR_ARG: empty or too long; PI_ERR_LIMIT: too many; PI_ERR_NOMEM. */
pi_status sequence_add_stop(sequence *q, const char *text, size_t n, pi_error *err);

/* With `echo`: takes the next token of the prompt. `tops`: [n_top]; NULL: its probability is
 * unknown. */
void sequence_echo(sequence *q, float logprob, const token_choice *tops);
/* Takes a sampled token. `tops`: [n_top]. Sets `finish` when the text ends with this token. */
void sequence_push(sequence *q, token_choice chosen, const token_choice *tops);
/* Ends the text: releases the text held back, except what a stop text removes. */
void sequence_end(sequence *q, finish_reason reason);
void sequence_fail(sequence *q, const pi_error *why);

#endif
