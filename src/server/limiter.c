/* limiter.c: see limiter.h. */
#include "limiter.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "os_thread.h"

typedef struct bucket {
    double limit; /* per minute; 0: no limit */
    double level; /* <= capacity_of; below 0: used in advance */
    double time;  /* clock_seconds of the level */
} bucket;

typedef struct account {
    bucket requests, tokens;
    int32_t concurrent, running;
} account;

struct limiter {
    os_mutex lock;
    int n;
    account *accounts; /* [n] */
};

/* A minute's worth, and enough for one request. */
static double capacity_of(const bucket *b) {
    return b->limit > 0 && b->limit < 1 ? 1 : b->limit;
}

static void refill(bucket *b, double now) {
    b->level += (now - b->time) * b->limit / 60;
    if (b->level > capacity_of(b)) b->level = capacity_of(b);
    b->time = now;
}

/* Seconds until the bucket holds `wanted`. */
static double until(const bucket *b, double wanted) {
    return b->level >= wanted ? 0 : (wanted - b->level) * 60 / b->limit;
}

static limit_level level_of(const bucket *b) {
    if (b->limit == 0) return (limit_level){.limit = 0};
    return (limit_level){
        .limit = b->limit, .left = b->level > 0 ? b->level : 0, .refill = until(b, capacity_of(b))};
}

pi_status limiter_create(const server_options *options, limiter **out, pi_error *err) {
    *out = NULL;
    const size_t n = options->limits ? (size_t)options->n_api_keys : 0;
    limiter *l = mem_calloc(1, sizeof *l);
    if (l) l->accounts = mem_calloc(n + 1, sizeof *l->accounts);
    if (!l || !l->accounts) {
        mem_free(l);
        return error_nomem(err, n * sizeof *l->accounts, "limits of keys");
    }
    os_mutex_init(&l->lock);
    l->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        const key_limits *k = &options->limits[i];
        l->accounts[i] = (account){.requests = {k->requests, 0, clock_seconds()},
                                   .tokens = {k->tokens, 0, clock_seconds()},
                                   .concurrent = k->concurrent};
        l->accounts[i].requests.level = capacity_of(&l->accounts[i].requests);
        l->accounts[i].tokens.level = capacity_of(&l->accounts[i].tokens);
    }
    *out = l;
    return PI_OK;
}

void limiter_destroy(limiter *l) {
    if (!l) return;
    os_mutex_destroy(&l->lock);
    mem_free(l->accounts);
    mem_free(l);
}

limit_refusal limiter_begin(limiter *l, int key, limit_levels *levels, double *retry) {
    limit_refusal refusal = LIMIT_NONE;
    const double now = clock_seconds();
    *levels = (limit_levels){.requests = {0}};
    *retry = 0;
    if (key < 0 || key >= l->n) return LIMIT_NONE;
    account *a = &l->accounts[key];
    os_mutex_lock(&l->lock);
    refill(&a->requests, now);
    refill(&a->tokens, now);
    if (a->concurrent > 0 && a->running >= a->concurrent) {
        refusal = LIMIT_CONCURRENT;
        *retry = 1; /* when one ends is not known */
    }
    if (a->tokens.limit > 0 && a->tokens.level < 1) {
        refusal = LIMIT_TOKENS;
        *retry = until(&a->tokens, 1);
    }
    if (a->requests.limit > 0 && a->requests.level < 1) {
        refusal = LIMIT_REQUESTS;
        *retry = until(&a->requests, 1);
    }
    if (refusal == LIMIT_NONE) {
        a->requests.level -= a->requests.limit > 0;
        a->running++;
    }
    levels->requests = level_of(&a->requests);
    levels->tokens = level_of(&a->tokens);
    os_mutex_unlock(&l->lock);
    return refusal;
}

void limiter_end(limiter *l, int key) {
    if (key < 0 || key >= l->n) return;
    os_mutex_lock(&l->lock);
    l->accounts[key].running--;
    os_mutex_unlock(&l->lock);
}

void limiter_charge(limiter *l, int key, int64_t n_tokens) {
    if (key < 0 || key >= l->n) return;
    account *a = &l->accounts[key];
    os_mutex_lock(&l->lock);
    refill(&a->tokens, clock_seconds());
    if (a->tokens.limit > 0) a->tokens.level -= (double)n_tokens;
    os_mutex_unlock(&l->lock);
}
