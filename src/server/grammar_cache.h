/* grammar_cache.h: grammars that requests have brought, by owner and text. A grammar that comes
 * again is not compiled again, and what was found out about which tokens may follow is still known.
 *
 * Used by the threads of connections; grammars themselves are shared with the scheduler's. */
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "bytes.h"
#include "os_thread.h"
#include "powerinfer.h"

enum { GRAMMAR_CACHE_MAX = 64 }; /* grammars; the one used longest ago goes */
/* Bytes of all of them, at which so many go, too; looked at when one is added. */
#define GRAMMAR_CACHE_BYTES ((size_t)128 << 20)

typedef struct cached_grammar {
    bytes key;
    pi_grammar *grammar;
    uint64_t used; /* counts up */
} cached_grammar;

typedef struct grammar_cache_stats {
    uint64_t compiled, reused; /* since the start */
    int32_t n;                 /* now */
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
    int owner; /* grammars are shared by those of one owner */
    const char *gbnf;
    size_t n_gbnf;
    const pi_grammar_options *options; /* NULL: none */
} grammar_source;

/* As pi_grammar_create, whose result the caller frees. */
pi_status grammar_cache_get(grammar_cache *c, const grammar_source *source, pi_grammar **out,
                            pi_error *err);
grammar_cache_stats grammar_cache_get_stats(grammar_cache *c);

#endif
