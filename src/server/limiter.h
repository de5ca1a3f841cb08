/* limiter.h: the limits of API keys: requests and tokens per minute, requests at a time.
 *
 * Each limit per minute is a bucket that refills evenly and holds at most a minute's worth, so that
 * a key may use a minute's worth at once after a minute of silence. A request needs one request of
 * the bucket, and a bucket of tokens that is not empty: how many tokens it takes is known only when
 * it has ended. What it takes beyond the bucket has to refill before the next request. */
#ifndef SERVER_LIMITER_H
#define SERVER_LIMITER_H

#include "server_options.h"

typedef struct limiter limiter;

pi_status limiter_create(const server_options *options, limiter **out, pi_error *err);
void limiter_destroy(limiter *l); /* accepts NULL */

typedef struct limit_level {
    double limit;  /* per minute; 0: no limit */
    double left;   /* >= 0 */
    double refill; /* seconds until it is full */
} limit_level;

typedef struct limit_levels {
    limit_level requests, tokens;
} limit_levels;

typedef enum limit_refusal {
    LIMIT_NONE,
    LIMIT_REQUESTS,
    LIMIT_TOKENS,
    LIMIT_CONCURRENT
} limit_refusal;

/* Begins a request of a key (-1: no key, no limits). *levels: after it. *retry: seconds until the
 * request may succeed, after a refusal. A request that was begun must be ended. */
limit_refusal limiter_begin(limiter *l, int key, limit_levels *levels, double *retry);
void limiter_end(limiter *l, int key);
/* Takes tokens that a request has used. */
void limiter_charge(limiter *l, int key, int64_t n_tokens);

#endif
