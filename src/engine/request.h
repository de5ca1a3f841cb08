/* request.h: the inputs of a call of engine_forward: checked, and split into ubatches. Private to
 * src/engine. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "context.h"

/* PI_ERR_ARG, PI_ERR_LIMIT, PI_ERR_RANGE: nothing is fed. */
pi_status request_check(const engine_context *c, const pi_input *inputs, int n_inputs,
                        pi_error *err);
pi_status request_check_tokens(const engine_context *c, const pi_input *in, pi_error *err);

/* Where a request stands: input `index`, of which `done` tokens were fed by earlier ubatches. */
typedef struct request_cursor {
    int index, done;
} request_cursor;

/* Sets up c->ubatch with the next tokens, n_batch at most; false when all have been fed. */
bool request_next_ubatch(engine_context *c, const pi_input *inputs, int n_inputs,
                         request_cursor *at);

#endif
