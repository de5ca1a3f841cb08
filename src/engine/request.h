/* request.h: checks the inputs of a call of engine_forward and splits them into ubatches. Private
 * to src/engine. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "context.h"

/* PI_ERR_ARG, PI_ERR_LIMIT, PI_ERR_RANGE: no session changes. */
pi_status request_check(const engine_context *c, const pi_input *inputs, int n_inputs,
                        pi_error *err);
/* Rows of logits that the inputs want. */
int request_logits(const pi_input *inputs, int n_inputs);
pi_status request_check_tokens(const engine_context *c, const pi_input *in, pi_error *err);

/* Progress of a request: earlier ubatches fed `done` tokens of input `index`. */
typedef struct request_cursor {
    int index, done;
} request_cursor;

int request_room(const engine_context *c); /* maximum tokens of a ubatch */
/* Sets up c->cpu.ubatch with the next tokens, at most n_batch; false: all tokens were fed. */
bool request_next_ubatch(engine_context *c, const pi_input *inputs, int n_inputs,
                         request_cursor *at);

#endif
