/* scheduler.h: one thread that owns the context and its sessions, and computes all sequences
 * together.
 *
 * Every step is one forward pass: one token for each sequence that generates, and at most one piece
 * of prompts, so that a long prompt never delays the other sequences for longer than a piece takes.
 * All prompts that are being read share the piece equally, so that a long prompt does not delay the
 * short ones either.
 *
 * Sequences that wait for a slot are started by priority (lower numbers first), then by account:
 * the one that has been served least, in tokens over its weight (Sheng et al., Fairness in Serving
 * Large Language Models, OSDI 2024); then in order of arrival. An account that comes back after it
 * had no sequences starts level with the least served of the others: silence earns no credit.
 *
 * Slots keep the KV state of what they have read. A new sequence gets the slot with the longest
 * common prefix, or a copy of another slot's prefix. When several waiting sequences have a common
 * prefix, only the first of them evaluates the prefix. Only sequences of one owner share prefixes.
 *
 * With a speculator, a step also has drafted tokens of the sequences that generate; each sequence
 * gets the accepted tokens of its draft, and one more.
 *
 * If a model is on several machines, as many steps are under way as there are machines, and each
 * has its share of the sequences: while one machine computes its layers for one step, the others
 * compute theirs for other steps. A sequence is in one step at a time.
 *
 * The scheduler polls the clients' sockets before each step to find clients that have left. */
#ifndef SERVER_SCHEDULER_H
#define SERVER_SCHEDULER_H

#include "histogram.h"
#include "powerinfer_speculate.h"
#include "prompt_store.h"
#include "sequence.h"

typedef struct scheduler scheduler;

/* Weights of the accounts of sequences. */
typedef struct account_shares {
    const double *weights; /* [n], each > 0; copied */
    int n;                 /* >= 1 */
} account_shares;

typedef struct scheduler_options {
    const pi_model *model;
    pi_context_options context; /* the scheduler sets n_logits and n_ctx */
    int32_t n_slots;            /* >= 1, <= context.n_batch */
    int32_t n_ctx;              /* capacity of one slot */
    int32_t max_queue;          /* maximum number of sequences that wait */
    account_shares shares;
    prompt_store_options store; /* neither memory nor a folder: no store */
    /* for n_slots texts of n_ctx tokens; outlives the scheduler; NULL: none */
    pi_speculator *speculator;
} scheduler_options;

/* Since the start. */
typedef struct scheduler_stats {
    uint64_t requests; /* sequences that were accepted */
    /* sequences that were refused because the queue was full */
    uint64_t refused;
    uint64_t left;                         /* sequences that ended because the client left */
    uint64_t prompt_tokens, cached_tokens; /* tokens read; tokens reused from a slot or the store */
    uint64_t generated_tokens;
    /* accepted_tokens: drafted tokens that were accepted */
    uint64_t drafted_tokens, accepted_tokens;
    uint64_t steps, busy_slots; /* forward passes; sum of their slots */
    uint64_t longest_piece;     /* maximum prompt tokens of a step that also generated */
    uint64_t longest_gap;       /* maximum ubatches from a token of a sequence to its next one */
    uint64_t late;              /* sequences that ended because their time was over */
    /* from the arrival of a sequence to its slot, and to its first token; between tokens */
    histogram queue_seconds, first_token_seconds, token_seconds;
    double prompt_seconds, generated_seconds; /* sums over sequences */
    int32_t processing, waiting;              /* current numbers */
    prompt_store_stats store;
    pi_counters counters;
} scheduler_stats;

typedef struct slot_view {
    bool busy, in_prompt;
    int owner;                               /* owner of the slot's content */
    int32_t n_tokens;                        /* length of its session */
    int32_t n_prompt, n_generated, n_cached; /* tokens of its sequence */
} slot_view;

pi_status scheduler_create(const scheduler_options *options, scheduler **out, pi_error *err);
/* Accepts no more sequences, ends all, and joins the thread. The results of sequences stay
 * readable. */
void scheduler_stop(scheduler *s);
void scheduler_destroy(scheduler *s); /* after scheduler_stop; accepts NULL */

/* Adds `n` sequences, all or none. PI_ERR_LIMIT: the queue is full; PI_ERR_CANCELLED: the server
 * stops. On success the scheduler holds a reference to each. */
pi_status scheduler_add(scheduler *s, sequence *const *sequences, int n, pi_error *err);
/* Drops the reader's reference; a running sequence ends with the next step. */
void scheduler_release(scheduler *s, sequence *q);

/* An operation on a slot's KV cache and tokens; SAVE and RESTORE use a file. */
typedef enum slot_action { SLOT_SAVE, SLOT_RESTORE, SLOT_ERASE } slot_action;
typedef struct slot_job {
    slot_action action;
    int32_t slot;
    const char *path;
    /* a job saves only this owner's content; restored content belongs to this owner */
    int owner;
    int32_t n_tokens; /* result: tokens saved, restored or erased */
    pi_status status;
    pi_error error;
    bool done;
    struct slot_job *next;
} slot_job;

/* Waits until the slot is free, then until the job is done. PI_ERR_ARG: the slot is empty;
 * PI_ERR_CANCELLED: the server stops. Also the errors of pi_session_save and pi_session_load. */
pi_status scheduler_run_job(scheduler *s, slot_job *job, pi_error *err);

/* Hold this lock to read the second part of a sequence, and to wait for news. */
os_mutex *scheduler_lock(scheduler *s);

void scheduler_get_stats(scheduler *s, scheduler_stats *out);
/* Bytes of the KV caches and recurrent states of all slots. */
uint64_t scheduler_cache_bytes(const scheduler *s);
/* out: [n_slots] */
void scheduler_get_slots(scheduler *s, slot_view *out);
const pi_context *scheduler_context(const scheduler *s); /* only for values that never change */

#endif
