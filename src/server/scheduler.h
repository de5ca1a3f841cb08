/* scheduler.h: one thread that owns the context and its sessions, and evaluates all sequences
 * together.
 *
 * Every step is one forward pass: a token for each sequence that decodes, and at most one piece of
 * prompts, so that a long prompt never delays the others for longer than a piece takes. Slots keep
 * their KV state: a new sequence gets the slot with the longest common prefix, or a copy of another
 * slot's prefix, and of sequences that wait with the same beginning the first one evaluates it. All
 * this among sequences of one owner.
 *
 * With a speculator a step also has drafted tokens; each sequence gets the accepted ones and one
 * more.
 *
 * Before each step the scheduler looks at the sockets for clients that have left. */
#ifndef SERVER_SCHEDULER_H
#define SERVER_SCHEDULER_H

#include "powerinfer_speculate.h"
#include "sequence.h"

typedef struct scheduler scheduler;

typedef struct scheduler_options {
    const pi_model *model;
    pi_context_options context; /* n_logits and n_ctx are set by the scheduler */
    int32_t n_slots;            /* >= 1, <= context.n_batch */
    int32_t n_ctx;              /* tokens of one slot */
    int32_t max_queue;          /* sequences that wait, at most */
    pi_speculator *speculator;  /* for n_slots texts of n_ctx tokens, outlives it; NULL: none */
} scheduler_options;

/* Since the start. */
typedef struct scheduler_stats {
    uint64_t requests;                     /* sequences that were accepted */
    uint64_t refused;                      /* the queue was full */
    uint64_t left;                         /* ended because the client left */
    uint64_t prompt_tokens, cached_tokens; /* read; taken from a slot instead */
    uint64_t generated_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* accepted: of the drafted ones */
    uint64_t steps, busy_slots;               /* forward passes; slots in them, summed */
    uint64_t longest_piece; /* most tokens of prompts in a step with sequences that decode */
    double prompt_seconds, generated_seconds; /* per sequence, summed */
    int32_t processing, waiting;              /* now */
    pi_counters counters;
} scheduler_stats;

typedef struct slot_view {
    bool busy, in_prompt;
    int owner;                               /* of what is in it */
    int32_t n_tokens;                        /* in its session */
    int32_t n_prompt, n_generated, n_cached; /* of its sequence */
} slot_view;

pi_status scheduler_create(const scheduler_options *options, scheduler **out, pi_error *err);
/* Takes no more sequences, waits `seconds` for those there are, ends the others, joins the thread.
 * What sequences hold stays readable. */
void scheduler_stop(scheduler *s, double seconds);
void scheduler_destroy(scheduler *s); /* stopped before; NULL is fine */

/* Adds `n` sequences, all or none. PI_ERR_LIMIT: the queue is full; PI_ERR_CANCELLED: the server
 * stops. On success the scheduler holds a reference to each. */
pi_status scheduler_add(scheduler *s, sequence *const *sequences, int n, pi_error *err);
/* The reader's reference; a sequence that still runs ends with the next step. */
void scheduler_release(scheduler *s, sequence *q);

/* A slot's KV cache and tokens in a file. */
typedef enum slot_action { SLOT_SAVE, SLOT_RESTORE, SLOT_ERASE } slot_action;
typedef struct slot_job {
    slot_action action;
    int32_t slot;
    const char *path;
    int owner;        /* who saves what it owns, and owns what is restored */
    int32_t n_tokens; /* when it is done: saved, restored, erased */
    pi_status status;
    pi_error error;
    bool done;
    struct slot_job *next;
} slot_job;

/* Waits until the slot is free, then until the job is done. PI_ERR_ARG: the slot is empty;
 * PI_ERR_CANCELLED: the server stops; what pi_session_save and pi_session_load say. */
pi_status scheduler_run_job(scheduler *s, slot_job *job, pi_error *err);

/* Around reading the second part of a sequence; waiting for news is done with this lock. */
pthread_mutex_t *scheduler_lock(scheduler *s);

void scheduler_get_stats(scheduler *s, scheduler_stats *out);
/* out: [n_slots] */
void scheduler_get_slots(scheduler *s, slot_view *out);
const pi_context *scheduler_context(const scheduler *s); /* for what never changes */

#endif
