/* grammar_cache.h: caches the grammars of requests, by owner and text. A repeated grammar is not
 * compiled again and keeps its token masks.
 *
 * The threads of connections use the cache; they share the grammars with the scheduler's thread. */
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "bytes.h"
#include "os_thread.h"
#include "powerinfer.h"

enum { GRAMMAR_CACHE_MAX = 64 }; /* number of grammars; the least recently used is evicted */
/* Total size in bytes above which grammars are evicted; checked when one is added. */
#define GRAMMAR_CACHE_BYTES ((size_t)128 << 20)

typedef struct cached_grammar {
    bytes key;
    pi_grammar *grammar;
    uint64_t used; /* counter of uses */
} cached_grammar;

typedef struct grammar_cache_stats {
    uint64_t compiled, reused; /* since the server's start */
    int32_t n;                 /* current number */
} grammar_cache_stats;

typedef struct grammar_cache {
    os_mutex lock;
    cached_grammar entries[GRAMMAR_CACHE_MAX]; /* [stats.n] */
    uint64_t clock;
    grammar_cache_stats stats;
} grammar_cache;

void grammar_cache_init(grammar_cache *c);
void grammar_cache_free(grammar_cache *c);

typedef struct grammar_source {
    const pi_model *model;
    int owner; /* only requests of one owner share grammars */
    const char *gbnf;
    size_t n_gbnf;
    const pi_grammar_options *options; /* NULL: none */
} grammar_source;

/* Like pi_grammar_create; the caller frees the result. */
pi_status grammar_cache_get(grammar_cache *c, const grammar_source *source, pi_grammar **out,
                            pi_error *err);
grammar_cache_stats grammar_cache_get_stats(grammar_cache *c);

#endif
