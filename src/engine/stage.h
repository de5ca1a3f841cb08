/* stage.h: a model on several machines (cluster.h): every rank has a range of the layers. Private
 * to src/engine.
 *
 * A context of rank 0 tells the other ranks' contexts what to do, one command after the other:
 * create or change a session, forward. For a forward pass all ranks split the inputs into the same
 * ubatches. A rank receives the residual stream of a ubatch, runs the steps of its layers and sends
 * the stream on; the last rank sends rank 0 the rows for which logits or hidden states are wanted.
 * Rank 0 computes its layers of the next ubatches meanwhile.
 *
 * Several passes may be under way, of different sessions. After an error a rank sends the error
 * instead of a stream, and nothing more in this pass; rank 0 then rewinds the sessions on the ranks
 * on which they grew. */
#ifndef ENGINE_STAGE_H
#define ENGINE_STAGE_H

#include "context.h"

typedef enum stage_op {
    STAGE_FORWARD,   /* a[0] inputs; then stage_input for each, then their tokens */
    STAGE_CREATE,    /* session a[0] of a[1] positions */
    STAGE_DESTROY,   /* session a[0] */
    STAGE_REWIND,    /* session a[0] to a[1] tokens */
    STAGE_COPY,      /* to session a[0] from a[1] the first a[2] tokens */
    STAGE_REMOVE,    /* from session a[0] tokens [a[1], a[2]) */
    STAGE_GET,       /* session a[0], layer a[1], a[3] positions from a[2]; answer in bulk */
    STAGE_PUT,       /* as STAGE_GET, of a[4] stored positions, which follow in bulk */
    STAGE_GET_STATE, /* session a[0] after a[1] tokens; answer in bulk */
    STAGE_END_LOAD,  /* session a[0], tokens from a[1] on, length a[2]; the state follows in bulk */
    STAGE_USAGE,     /* answer in bulk */
    STAGE_END        /* the context of rank 0 is destroyed */
} stage_op;

typedef struct stage_command {
    int64_t op;
    int64_t a[5];
} stage_command;

typedef struct stage_input {
    int32_t session, n_tokens, n_drafts, logits, hidden;
} stage_input;

/* Begins a message between ranks in a forward pass. PI_OK: the residual stream of a ubatch follows,
 * or its wanted rows. Otherwise the text of the error follows. */
typedef struct stage_header {
    int32_t status;
    int32_t n_rows;
} stage_header;

typedef struct stage_reply {
    int32_t status;
    char message[PI_ERROR_TEXT_MAX];
} stage_reply;

/* On rank 0: a ubatch that the other ranks compute; the last rank will send its wanted rows. */
typedef struct stage_pending {
    int n_rows; /* wanted rows */
    int n_out, n_hidden, first_logits_row, first_hidden_row;
    plan_form form;
    int32_t *out, *hidden; /* [n_batch] indices of wanted rows */
} stage_pending;

enum { STAGE_PENDING = 64, STAGE_PASSES = 8 };

/* On rank 0: a forward pass under way. */
typedef struct stage_pass {
    pi_input *inputs; /* [n_batch] */
    int n_inputs;
    int n_pending; /* messages of the last rank that have not arrived */
    int logits_rows, hidden_rows;
    bool is_over; /* there was an error: the last rank sends nothing more in this pass */
    pi_status status;
    pi_error why;
} stage_pass;

typedef struct engine_stage {
    cluster *cluster;
    int rank, n_ranks;
    int end[CLUSTER_MAX_RANKS];
    cluster_buffer in;                    /* the last message of CLUSTER_ACTIVATIONS */
    cluster_buffer command;               /* the last command, with the tokens of the pass */
    stage_pending pending[STAGE_PENDING]; /* rank 0: a ring with the ubatches of all passes */
    int first_pending, n_pending;
    stage_pass
        passes[STAGE_PASSES]; /* rank 0: a ring; passes end in the order in which they began */
    int first_pass, n_passes, max_passes;
    int32_t next_number; /* of sessions */
    pi_input *inputs;    /* [n_batch] other ranks: of the pass */
    int32_t *rows;       /* [n_batch] scratch memory */
    double computing;
    uint64_t ubatches;
} engine_stage;

/* stage.c: options->stages is not NULL. PI_ERR_NOMEM; PI_ERR_UNSUPPORTED: layers that share what is
 * on GPUs. The context has its plan. */
pi_status stage_create(engine_context *c, pi_error *err);
void stage_destroy(
    engine_context *c); /* on rank 0 also tells the other ranks; NULL stage is fine */
/* On rank 0: begins a pass with checked inputs; ends the oldest one. After stage_end the sessions
 * of the pass have grown, and *n_logits rows of logits and *n_hidden hidden states are there. */
pi_status stage_begin(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
pi_status stage_end(engine_context *c, int *n_logits, int *n_hidden, pi_error *err);
/* On other ranks: runs this rank's layers for all ubatches of a pass. */
pi_status stage_run(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);

/* stage_session.c: sends a command to all other ranks; stage_run_command also waits until all have
 * answered and returns the first error. */
pi_status stage_send_command(engine_context *c, const stage_command *command, pi_error *err);
pi_status stage_run_command(engine_context *c, const stage_command *command, pi_error *err);
pi_status stage_wait_reply(engine_context *c, int rank, pi_error *err);
/* On rank 0: creates or destroys the other ranks' part of a session. */
pi_status stage_session_create(engine_context *c, pi_session *s, pi_error *err);
void stage_session_destroy(pi_session *s);
extern const session_ranks stage_sessions;

#endif
