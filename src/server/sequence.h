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
#include "os_socket.h"
#include "os_thread.h"
#include "powerinfer_generation.h"
#include "reasoning.h"

enum { SEQUENCE_MAX_TOP = 20 /* alternatives that a token may have */ };

typedef enum finish_reason {
    FINISH_NONE,     /* still running */
    FINISH_EOS,      /* the model ended the text */
    FINISH_STOP,     /* one of the stop texts */
    FINISH_LENGTH,   /* max_tokens was reached, or the context is full */
    FINISH_POOLED,   /* the prompt has been read, and `pooled` is complete */
    FINISH_GONE,     /* the client has left */
    FINISH_TIMEOUT,  /* its time was over before the first token */
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

/* How the hidden states of a prompt are combined to its embedding. */
typedef enum pooling {
    POOLING_NONE, /* no embedding: the sequence generates */
    POOLING_MEAN, /* mean over all tokens */
    POOLING_LAST  /* hidden state of the last token */
} pooling;

typedef struct sequence_times { /* clock_seconds */
    double queued, started, first_token, last_token;
} sequence_times;

typedef struct sequence {
    /* Set by the creator; constant afterwards. */
    const pi_model *model;
    int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int32_t n_prompt;
    pi_sampler *sampler;       /* NULL: an embedding */
    pi_generation *generation; /* the text; used by the scheduler only. NULL: an embedding */
    pooling pooling;
    double *pooled;     /* [n_embd] zeroed; sum of hidden states; the scheduler writes it */
    int32_t max_tokens; /* -1: to the end of the context */
    int32_t max_draft;  /* maximum drafted tokens per step; 0: none; -1: the server's limit */
    pi_stop_text stops[PI_STOP_TEXTS];
    size_t n_stops;
    double max_seconds; /* after the first token; then the text ends, but not within its first line;
                           0: none */
    int32_t
        min_indent; /* from the second line on, a line with fewer blanks ends the text before it */
    int n_top;      /* number of alternatives, <= SEQUENCE_MAX_TOP; -1: no logprobs */
    bool echo;      /* tokens and text begin with the prompt */
    size_t echo_bytes;  /* bytes of the prompt's text; SIZE_MAX: the prompt was given as tokens */
    bool reuse;         /* reuse a slot's KV state of the prompt's beginning */
    int32_t preferred;  /* preferred slot plus 1; 0: any */
    int owner;          /* shares prefixes only with slots of this owner */
    int account;        /* whose share of the slots it takes; 0: requests without a key */
    int32_t priority;   /* lower numbers start first */
    double deadline;    /* clock_seconds after which the text ends; 0: none */
    os_socket fd;       /* the client's socket, watched for a disconnect; OS_SOCKET_NONE */
    os_condition *news; /* signalled when a field below has changed */
    struct sequence *next; /* next in the queue */

    reasoning_watch reasoning; /* begun by the creator; then used by the scheduler's thread only */

    /* Used under the lock. */
    bytes text;           /* final text: complete characters, no beginning of a stop text */
    bytes echoed;         /* with `echo`: text of the prompt's tokens so far */
    size_t line;          /* where the last line begins in `text`; 0: still in the first line */
    size_t echo_end;      /* bytes of `text` that belong to the prompt */
    token_record *tokens; /* [n_tokens] */
    size_t n_tokens, tokens_capacity;
    size_t n_echo;      /* the first n_echo tokens belong to the prompt */
    token_choice *tops; /* [n_tokens][n_top], most likely first; token -1: none */
    size_t tops_capacity;
    finish_reason finish;
    bool has_end;                   /* the last token is an end-of-generation token */
    const pi_stop_text *stopped_by; /* stop text, with FINISH_STOP */
    pi_error error;
    int32_t slot;                        /* current or last slot; -1: none yet */
    int32_t n_cached;                    /* tokens of the prompt reused from a slot or the store */
    int32_t n_fed;                       /* tokens of the prompt that have been evaluated */
    int64_t n_drafted, n_draft_accepted; /* tokens */
    sequence_times times;
    int32_t n_reasoning;    /* tokens of reasoning */
    uint64_t last_ubatch;   /* number of ubatches up to its last token */
    bool abandoned;         /* the reader has dropped its reference */
    neuron_counts *neurons; /* allocated by the creator; NULL: not watched */
    int references;
} sequence;

/* All fields zero or "none"; the caller fills in the first part. NULL: out of memory. */
sequence *sequence_create(void);
/* Also frees prompt, sampler, generation, stop texts and pooled. Accepts NULL. */
void sequence_free(sequence *q);

/* Adds a stop text. PI_ERR_ARG: empty, above the length limit, or more than PI_STOP_TEXTS;
 * PI_ERR_NOMEM. */
pi_status sequence_add_stop(sequence *q, const char *text, size_t n, pi_error *err);

/* With `echo`: takes the next token of the prompt. tops: [n_top]; NULL: its probability is not
 * known. */
void sequence_echo(sequence *q, float logprob, const token_choice *tops);
/* Takes a sampled token with its probability. tops: [n_top]. Sets `finish` when the token ends the
 * text. */
void sequence_push(sequence *q, const pi_sampled *sampled, token_choice chosen,
                   const token_choice *tops);
/* Ends the text and releases the bytes that were held back. */
void sequence_end(sequence *q, finish_reason reason);
void sequence_fail(sequence *q, const pi_error *why);

#endif
