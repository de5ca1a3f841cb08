/* run_model.h: helpers to open, feed and compare models through the public API; each failure fails
 * the running test with its message. */
#ifndef TEST_RUN_MODEL_H
#define TEST_RUN_MODEL_H

#include "powerinfer.h"

typedef struct run_model {
    pi_model *model;
    pi_context *context;
    int n_vocab;
} run_model;

/* Scalar kernels, one thread, F32 cache, batches of 64. */
pi_context_options run_exact_options(void);

run_model run_open(const char *path, const pi_context_options *options);
void run_close(run_model *r);
pi_memory run_memory(const run_model *r);
pi_session *run_session(const run_model *r, int n_ctx);

/* Feeds the tokens `piece` at a time (0: all at once) and stores the logits of all tokens,
 * [n_tokens][n_vocab]. */
void run_feed(const run_model *r, pi_session *s, const int32_t *tokens, int n_tokens, int piece,
              float *logits);
/* Feeds the tokens to a new session and destroys it. */
void run_tokens(const run_model *r, const int32_t *tokens, int n_tokens, int piece, float *logits);

/* Returns sum (a - b)^2 / sum b^2. */
double run_nmse(const float *a, const float *b, int64_t n);

/* All choices of kernels, scalar first. */
enum { RUN_KERNELS = 4 };
extern const pi_kernels run_kernels[RUN_KERNELS];
/* True if this CPU supports the kernels. */
bool run_has_kernels(const char *path, pi_kernels kernels);

/* Seeded ids below n_vocab. */
void run_random_tokens(uint64_t seed, int n_vocab, int32_t *tokens, int n_tokens);

/* Asserts the form "what was wrong: where: what to do" on one line. */
void run_check_message(const pi_error *err, pi_status status);

#endif
