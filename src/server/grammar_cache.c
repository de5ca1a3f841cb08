/* grammar_cache.c: a list of at most 64 grammars; the look-up compares lengths before texts. The
 * lock is not held while a grammar compiles: two requests that bring the same new grammar at the
 * same time may both compile it; the second result is dropped. */
#include "grammar_cache.h"

#include <string.h>

#include "error.h"
#include "log.h"

void grammar_cache_init(grammar_cache *c) {
    *c = (grammar_cache){.clock = 0};
    os_mutex_init(&c->lock);
}

/* Called under the lock; frees the entry outside the lock. */
static void drop(grammar_cache *c, int32_t i) {
    pi_grammar_free(c->entries[i].grammar);
    bytes_free(&c->entries[i].key);
    c->entries[i] = c->entries[--c->stats.n];
    c->entries[c->stats.n] = (cached_grammar){.grammar = NULL};
}

void grammar_cache_free(grammar_cache *c) {
    while (c->stats.n > 0) drop(c, c->stats.n - 1);
    os_mutex_destroy(&c->lock);
}

/* Appends a text preceded by its length, so that the borders between texts are unambiguous. */
static bool put(bytes *key, const char *text, size_t n) {
    return bytes_append(key, (const char *)&n, sizeof n) && bytes_append(key, text, n);
}

static bool put_optional(bytes *key, const char *text) {
    return put(key, text ? text : "", text ? strlen(text) : 0);
}

/* Builds the key from everything that defines a grammar. */
static bool make_key(bytes *key, const grammar_source *source, const pi_grammar_options *o) {
    bool good = put(key, (const char *)&source->owner, sizeof source->owner) &&
                put(key, source->gbnf, source->n_gbnf);
    for (size_t i = 0; good && i < o->n_schemas; i++)
        good = put(key, o->schemas[i].rule, strlen(o->schemas[i].rule)) &&
               put(key, o->schemas[i].schema, o->schemas[i].n_schema) &&
               put_optional(key, o->schemas[i].name) && put_optional(key, o->schemas[i].path) &&
               put(key, o->schemas[i].widen ? "w" : "s", 1);
    for (size_t i = 0; good && i < o->n_trigger_words; i++)
        good = put(key, "trigger", 7) && put(key, o->trigger_words[i], strlen(o->trigger_words[i]));
    return good;
}

/* Called under the lock. Returns the grammar of a key with one more reference; NULL: not in the
 * cache. */
static pi_grammar *find(grammar_cache *c, const bytes *key) {
    for (int32_t i = 0; i < c->stats.n; i++) {
        cached_grammar *e = &c->entries[i];
        if (e->key.used != key->used || memcmp(e->key.data, key->data, key->used) != 0) continue;
        e->used = ++c->clock;
        return pi_grammar_retain(e->grammar);
    }
    return NULL;
}

/* Called under the lock. Makes room for one more entry. */
static void evict(grammar_cache *c) {
    for (;;) {
        size_t n_bytes = 0;
        int32_t oldest = 0;
        for (int32_t i = 0; i < c->stats.n; i++) {
            n_bytes += pi_grammar_memory(c->entries[i].grammar) + c->entries[i].key.used;
            if (c->entries[i].used < c->entries[oldest].used) oldest = i;
        }
        bool full = c->stats.n == GRAMMAR_CACHE_MAX || n_bytes > GRAMMAR_CACHE_BYTES;
        if (c->stats.n == 0 || !full) return;
        drop(c, oldest);
    }
}

/* Stores a compiled grammar, unless another thread stored it first. Takes ownership of the key. */
static void keep(grammar_cache *c, bytes *key, pi_grammar *grammar) {
    os_mutex_lock(&c->lock);
    pi_grammar *other = find(c, key);
    c->stats.compiled++;
    if (other) {
        pi_grammar_free(other);
        bytes_free(key);
    } else {
        evict(c);
        c->entries[c->stats.n++] = (cached_grammar){
            .key = *key, .grammar = pi_grammar_retain(grammar), .used = ++c->clock};
    }
    os_mutex_unlock(&c->lock);
}

pi_status grammar_cache_get(grammar_cache *c, const grammar_source *source, pi_grammar **out,
                            pi_error *err) {
    const pi_grammar_options none = {.root = NULL};
    bytes key = {0};
    *out = NULL;
    const pi_grammar_options *options = source->options ? source->options : &none;
    if (!make_key(&key, source, options)) {
        bytes_free(&key);
        return error_nomem(err, source->n_gbnf, "grammar");
    }
    os_mutex_lock(&c->lock);
    *out = find(c, &key);
    bool found = *out != NULL;
    c->stats.reused += found;
    os_mutex_unlock(&c->lock);
    pi_status status = PI_OK;
    if (!found)
        status = pi_grammar_create(source->model, source->gbnf, source->n_gbnf, options, out, err);
    for (size_t i = 0; status == PI_OK && !found && pi_grammar_widened(*out, i); i++) {
        pi_error note; /* keeps the client's text on one line */
        error_set(&note, PI_ERR_UNSUPPORTED, "%s: not enforced: a grammar cannot express it",
                  pi_grammar_widened(*out, i));
        log_line(LOG_LEVEL_WARN, "%s", note.message);
    }
    if (status == PI_OK && !found)
        keep(c, &key, *out);
    else
        bytes_free(&key);
    return status;
}

grammar_cache_stats grammar_cache_get_stats(grammar_cache *c) {
    os_mutex_lock(&c->lock);
    grammar_cache_stats stats = c->stats;
    os_mutex_unlock(&c->lock);
    return stats;
}
