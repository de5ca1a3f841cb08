/* dry.c: the DRY penalty in linear time.
 *
 * Read backwards, the history is a string whose prefixes are the ends of the text: the length of
 * the match between the end of the text and the text that ends at position i is the Z-function of
 * that string (Gusfield 1997, section 1.3), computed for all positions together in O(n). The token
 * after position i in the text is the token before it in the string. */
#include "dry.h"

#include <math.h>
#include <string.h>

#include "mem.h"

struct dry {
    float multiplier, base;
    int32_t allowed_length;
    int32_t longest; /* exponent at which the penalty stops growing: the limit of a float */
    int32_t window, n_vocab;
    int32_t *ring; /* [window] ring of the last `used` tokens, the newest before `next` */
    int32_t next, used;
    int32_t *recent; /* [window] the history backwards, newest first */
    int32_t *match;  /* [window] Z-function of `recent` */
    int32_t *length; /* [n_vocab] length of the longest sequence that a token would continue; 0
                        between calls */
    dry_breakers breakers;
    uint8_t *is_head; /* [n_vocab] whether a breaker begins with the token; NULL: no breakers */
};

static int32_t exponent_limit(float base) {
    if (base <= 1) return INT32_MAX;
    double limit = log(3e38) / log((double)base);
    return limit < INT32_MAX ? (int32_t)limit : INT32_MAX;
}

static bool copy_breakers(dry *d, const dry_breakers *b, int32_t n_vocab) {
    if (!b || b->n == 0) return true;
    d->breakers.items = mem_calloc(b->n, sizeof *b->items);
    d->is_head = mem_calloc((size_t)n_vocab, 1);
    if (!d->breakers.items || !d->is_head) return false;
    memcpy(d->breakers.items, b->items, b->n * sizeof *b->items);
    d->breakers.n = b->n;
    for (size_t i = 0; i < b->n; i++) d->is_head[b->items[i].tokens[0]] = 1;
    return true;
}

static bool make_buffers(dry *d, const dry_breakers *breakers) {
    size_t window = (size_t)d->window;
    d->ring = mem_calloc(window, sizeof *d->ring);
    d->recent = mem_calloc(window, sizeof *d->recent);
    d->match = mem_calloc(window, sizeof *d->match);
    d->length = mem_calloc((size_t)d->n_vocab, sizeof *d->length);
    return d->ring && d->recent && d->match && d->length && copy_breakers(d, breakers, d->n_vocab);
}

dry *dry_create(const pi_sampler_options *o, int32_t n_vocab, int32_t last_n,
                const dry_breakers *breakers) {
    dry *d = mem_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->n_vocab = n_vocab;
    d->multiplier = o->dry_multiplier;
    d->base = o->dry_base;
    d->allowed_length = o->dry_allowed_length;
    d->longest = exponent_limit(o->dry_base);
    d->window = last_n;
    if (make_buffers(d, breakers)) return d;
    dry_free(d);
    return NULL;
}

dry *dry_clone(const dry *from) {
    dry *d = mem_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->multiplier = from->multiplier;
    d->base = from->base;
    d->allowed_length = from->allowed_length;
    d->longest = from->longest;
    d->window = from->window;
    d->n_vocab = from->n_vocab;
    if (!make_buffers(d, &from->breakers)) {
        dry_free(d);
        return NULL;
    }
    dry_copy(d, from);
    return d;
}

void dry_copy(dry *to, const dry *from) {
    memcpy(to->ring, from->ring, (size_t)from->used * sizeof *from->ring);
    to->next = from->next;
    to->used = from->used;
}

void dry_free(dry *d) {
    if (!d) return;
    mem_free(d->ring);
    mem_free(d->recent);
    mem_free(d->match);
    mem_free(d->length);
    mem_free(d->breakers.items);
    mem_free(d->is_head);
    mem_free(d);
}

void dry_accept(dry *d, int32_t token) {
    d->ring[d->next] = token;
    d->next = d->next + 1 == d->window ? 0 : d->next + 1;
    if (d->used < d->window) d->used++;
}

/* Whether breaker b begins at position `newest - at` of the history. */
static bool breaker_at(const dry *d, const dry_breaker *b, int32_t at) {
    if (b->n - 1 > at) return false;
    for (int32_t i = 0; i < b->n; i++) {
        if (d->recent[at - i] != b->tokens[i]) return false;
    }
    return true;
}

/* Tokens after the last breaker: no repeated sequence is longer. */
static int32_t tokens_since_breaker(const dry *d) {
    for (int32_t at = 0; at < d->used && d->is_head; at++) {
        if (!d->is_head[d->recent[at]]) continue;
        int32_t longest = 0;
        for (size_t i = 0; i < d->breakers.n; i++) {
            const dry_breaker *b = &d->breakers.items[i];
            if (b->n > longest && breaker_at(d, b, at)) longest = b->n;
        }
        if (longest) return at + 1 - longest;
    }
    return d->used;
}

/* match[i]: how many tokens from recent[i] on equal those from recent[0] on. [left, right) is the
 * match found so far that ends last. */
static void match_all(const int32_t *recent, int32_t *match, int32_t n) {
    int32_t left = 0, right = 0;
    for (int32_t i = 1; i < n; i++) {
        int32_t m = 0;
        if (i < right) m = match[i - left] < right - i ? match[i - left] : right - i;
        while (i + m < n && recent[m] == recent[i + m]) m++;
        match[i] = m;
        if (i + m > right) {
            left = i;
            right = i + m;
        }
    }
}

void dry_apply(dry *d, float *scores) {
    int32_t n = d->used;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = d->next - 1 - i;
        d->recent[i] = d->ring[at < 0 ? at + d->window : at];
    }
    int32_t limit = tokens_since_breaker(d);
    if (limit < d->allowed_length || limit == 0) return;
    match_all(d->recent, d->match, n);
    for (int32_t i = 1; i < n; i++) {
        int32_t length = d->match[i] < limit ? d->match[i] : limit, next = d->recent[i - 1];
        if (length > d->length[next]) d->length[next] = length;
    }
    for (int32_t i = 1; i < n; i++) { /* visits every token once, and clears its length */
        int32_t next = d->recent[i - 1], length = d->length[next];
        d->length[next] = 0;
        if (length == 0 || length < d->allowed_length) continue;
        if (!(scores[next] > -INFINITY)) continue; /* banned tokens stay banned */
        int32_t exponent = length - d->allowed_length;
        if (exponent > d->longest) exponent = d->longest;
        double penalty = (double)d->multiplier * pow((double)d->base, (double)exponent);
        scores[next] = (float)fmax((double)scores[next] - penalty, -3e38);
    }
}
