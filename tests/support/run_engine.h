/* run_engine.h: helpers for the engine's models, contexts and sessions, as run_model.h for the
 * public API; each failure fails the running test with its message. */
#ifndef TEST_RUN_ENGINE_H
#define TEST_RUN_ENGINE_H

#include "engine.h"
#include "gpu.h"
#include "tiny_model.h"

model *run_engine_open(const char *path);
/* Writes the model to `path` first. */
model *run_engine_open_tiny(const tiny_model *t, const char *path);
/* Two threads, the best tier, F16 caches, losses of up to 1%; without a device. */
engine_options run_engine_options(pi_mode mode, int n_batch, int n_logits);
engine_context *run_engine_context(const model *m, const engine_options *o);
pi_session *run_engine_session(engine_context *c, int n_ctx);
/* Checks that a session allocates as much device memory as engine_gpu_size reports. */
void run_engine_check_size(const model *m, const engine_options *o, const gpu_library *library,
                           gpu_device *device, int n_ctx);
/* Moves to the CPU what a backend does not support (plan_support.h); also *head. False: nothing
 * had to move. */
bool run_engine_keep(const model *m, gpu_supports *supports, pi_mode mode, plan_split *splits,
                     plan_side *head);

void run_engine_forward(engine_context *c, const pi_input *in, int n);
/* Feeds the tokens `piece` at a time (0: all at once) and stores the logits of all tokens,
 * [n_tokens][n_vocab], unless NULL. */
void run_engine_feed(engine_context *c, pi_session *s, const int32_t *tokens, int n_tokens,
                     int piece, float *logits);
/* Feeds the tokens to a new session of n_ctx positions and destroys it. */
void run_engine_tokens(engine_context *c, int n_ctx, const int32_t *tokens, int n_tokens, int piece,
                       float *logits);

#endif
