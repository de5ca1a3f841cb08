/* sample.c: from logits to a token.
 *
 * One call walks the chain that llama.cpp has made the custom: repetition penalty, top-k, top-p,
 * min-p, temperature, draw. A vocabulary may have 150,000 entries of which a few dozen matter, so
 * nothing is ever sorted as a whole:
 *
 *   top-k   a heap of the k best seen so far, its worst on top; one comparison for almost every
 *           entry. O(n + k log k) in practice
 *   top-p   without a top-k before it: a heap of everything, best on top, from which entries are
 *           taken until they hold the mass p. O(n + m log n) for m entries taken
 *   min-p   a threshold relative to the best entry, which is known by then
 *
 * Buffers are made in sampler_create; sampling allocates nothing. A sampler belongs to one thread.
 *
 * Invariants: candidates never hold NaN or -inf, and +inf is cut to FLT_MAX, so that differences of
 * logits are never NaN. `better` is a strict total order (ties go to the lower id), which makes the
 * kept set, and with it the drawn token, independent of how a heap happens to be laid out. */
#include "sample.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "mem.h"
#include "rng.h"

typedef struct candidate {
    float logit;
    int32_t id;
    float weight; /* exp((logit - best) / temperature), in 0..1; set by the draw */
} candidate;

struct sampler {
    pi_sampler_options options;
    int32_t n_vocab;
    rng random;
    candidate *candidates; /* [n_vocab] */
    /* Penalty window; both NULL when the penalty is off, `ring` also when the window is endless. */
    uint32_t *counts; /* [n_vocab] how often a token is in the window; saturates */
    int32_t *ring;    /* [repeat_last_n] the window, oldest at ring_next once it is full */
    int32_t ring_next, ring_used;
};

static bool options_check(const pi_sampler_options *o, int32_t n_vocab, pi_error *err) {
    const char *what = NULL;
    if (isnan(o->temp)) what = "temperature is not a number";
    if (isnan(o->top_p) || o->top_p < 0) what = "top-p is negative or not a number";
    if (isnan(o->min_p) || o->min_p < 0) what = "min-p is negative or not a number";
    if (!(o->repeat_penalty > 0) || isinf(o->repeat_penalty)) {
        what = "repetition penalty is not a positive number";
    }
    if (o->repeat_last_n < -1) what = "penalty window is below -1";
    if (n_vocab < 1) what = "vocabulary is empty";
    if (!what) return true;
    error_set(err, PI_ERR_ARG, "%s: sampler options: see powerinfer.h for the ranges", what);
    return false;
}

/* Bytes of the buffers that the options ask for; false when one could not be had. */
static bool buffers_create(sampler *s) {
    s->candidates = mem_calloc((size_t)s->n_vocab, sizeof *s->candidates);
    if (!s->candidates) return false;
    bool penalty = s->options.repeat_penalty != 1 && s->options.repeat_last_n != 0;
    if (!penalty) return true;
    s->counts = mem_calloc((size_t)s->n_vocab, sizeof *s->counts);
    if (!s->counts) return false;
    if (s->options.repeat_last_n < 0) return true;
    s->ring = mem_calloc((size_t)s->options.repeat_last_n, sizeof *s->ring);
    return s->ring != NULL;
}

pi_status sampler_create(const pi_sampler_options *options, int32_t n_vocab, sampler **out,
                         pi_error *err) {
    *out = NULL;
    if (!options_check(options, n_vocab, err)) return PI_ERR_ARG;
    sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "sampler");
    s->options = *options;
    s->n_vocab = n_vocab;
    if (s->options.seed == UINT64_MAX) s->options.seed = rng_entropy();
    rng_seed(&s->random, s->options.seed);
    if (!buffers_create(s)) {
        sampler_free(s);
        return error_nomem(err, (size_t)n_vocab * sizeof(candidate), "buffers of the sampler");
    }
    *out = s;
    return PI_OK;
}

void sampler_free(sampler *s) {
    if (!s) return;
    mem_free(s->candidates);
    mem_free(s->counts);
    mem_free(s->ring);
    mem_free(s);
}

uint64_t sampler_seed(const sampler *s) {
    return s->options.seed;
}

void sampler_accept(sampler *s, int32_t token) {
    assert(token >= 0 && token < s->n_vocab);
    if (!s->counts) return;
    if (s->ring) {
        if (s->ring_used == s->options.repeat_last_n) {
            s->counts[s->ring[s->ring_next]]--;
        } else {
            s->ring_used++;
        }
        s->ring[s->ring_next] = token;
        s->ring_next = s->ring_next + 1 == s->options.repeat_last_n ? 0 : s->ring_next + 1;
    }
    if (s->counts[token] < UINT32_MAX) s->counts[token]++;
}

/* The logit of token i after the penalty: a repeated token gets a smaller score whatever its sign
 * (Keskar et al. 2019, CTRL, with the fix for negative logits that everyone uses). */
static inline float logit_at(const sampler *s, const float *logits, int32_t i) {
    float x = logits[i];
    if (s->counts && s->counts[i] > 0) {
        x = x <= 0 ? x * s->options.repeat_penalty : x / s->options.repeat_penalty;
    }
    if (isnan(x)) return -INFINITY;
    return x > FLT_MAX ? FLT_MAX : x;
}

static inline bool better(const candidate *a, const candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Restores the heap below `i`. On top is the best entry, or the worst one if `worst_first`. */
static void sift_down(candidate *heap, int32_t n, int32_t i, bool worst_first) {
    candidate moving = heap[i];
    while (i < n / 2) {
        int32_t child = 2 * i + 1;
        if (child + 1 < n && better(&heap[child + 1], &heap[child]) != worst_first) child++;
        if (better(&heap[child], &moving) == worst_first) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void heapify(candidate *heap, int32_t n, bool worst_first) {
    for (int32_t i = n / 2; i-- > 0;) sift_down(heap, n, i, worst_first);
}

static void swap(candidate *a, candidate *b) {
    candidate t = *a;
    *a = *b;
    *b = t;
}

/* Every entry with a chance, in order of ids. Returns how many. */
static int32_t collect_all(sampler *s, const float *logits) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float x = logit_at(s, logits, i);
        if (x > -INFINITY) s->candidates[n++] = (candidate){.logit = x, .id = i};
    }
    return n;
}

/* The k best entries, best first. Returns how many, which may be fewer than k. */
static int32_t collect_top_k(sampler *s, const float *logits, int32_t k) {
    candidate *heap = s->candidates;
    int32_t n = 0, i = 0;
    for (; i < s->n_vocab && n < k; i++) {
        float x = logit_at(s, logits, i);
        if (x > -INFINITY) heap[n++] = (candidate){.logit = x, .id = i};
    }
    heapify(heap, n, true);
    /* Ids ascend, so an entry equal to the worst one kept is never better than it. */
    for (; i < s->n_vocab; i++) {
        float x = logit_at(s, logits, i);
        if (x > heap[0].logit) {
            heap[0] = (candidate){.logit = x, .id = i};
            sift_down(heap, n, 0, true);
        }
    }
    for (int32_t last = n - 1; last > 0; last--) { /* taking the worst off leaves best first */
        swap(&heap[0], &heap[last]);
        sift_down(heap, last, 0, true);
    }
    return n;
}

static float best_logit(const candidate *c, int32_t n) {
    float best = c[0].logit;
    for (int32_t i = 1; i < n; i++) {
        if (c[i].logit > best) best = c[i].logit;
    }
    return best;
}

/* The smallest number of best entries whose probabilities sum to at least p; at least one. They
 * end up first in `c`, best first. `sorted`: they are best first already. */
static int32_t keep_top_p(candidate *c, int32_t n, float p, bool sorted) {
    float best = sorted ? c[0].logit : best_logit(c, n);
    double total = 0;
    for (int32_t i = 0; i < n; i++) total += exp((double)c[i].logit - (double)best);
    double wanted = (double)p * total, mass = 0;
    if (sorted) {
        for (int32_t i = 0; i < n; i++) {
            mass += exp((double)c[i].logit - (double)best);
            if (mass >= wanted) return i + 1;
        }
        return n;
    }
    heapify(c, n, false);
    int32_t taken = 0;
    while (taken < n) { /* what is taken piles up at the end of the array, best last */
        int32_t last = n - 1 - taken;
        swap(&c[0], &c[last]);
        sift_down(c, last, 0, false);
        taken++;
        mass += exp((double)c[last].logit - (double)best);
        if (mass >= wanted) break;
    }
    int32_t half = taken < n / 2 ? taken : n / 2;
    for (int32_t i = 0; i < half; i++) swap(&c[i], &c[n - 1 - i]);
    return taken;
}

/* Entries at least min_p times as likely as the best one, which always stays. Keeps the order. */
static int32_t keep_min_p(candidate *c, int32_t n, float min_p) {
    float best = best_logit(c, n);
    double floor = (double)best + fmin(log((double)min_p), 0);
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if ((double)c[i].logit >= floor) c[kept++] = c[i];
    }
    return kept;
}

static int32_t draw(sampler *s, int32_t n) {
    candidate *c = s->candidates;
    double best = (double)best_logit(c, n), temp = (double)s->options.temp, total = 0;
    int32_t last = 0; /* the last entry with any weight; rounding may let the walk run past it */
    for (int32_t i = 0; i < n; i++) {
        c[i].weight = (float)exp(((double)c[i].logit - best) / temp);
        total += (double)c[i].weight;
        if (c[i].weight > 0) last = i;
    }
    double target = rng_uniform(&s->random) * total, mass = 0;
    for (int32_t i = 0; i < last; i++) {
        mass += (double)c[i].weight;
        if (target < mass) return c[i].id;
    }
    return c[last].id;
}

static int32_t most_likely(const sampler *s, const float *logits) {
    float best = -INFINITY;
    int32_t id = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float x = logit_at(s, logits, i);
        if (x > best) {
            best = x;
            id = i;
        }
    }
    return id;
}

static int32_t choose(sampler *s, const float *logits) {
    const pi_sampler_options *o = &s->options;
    if (o->temp <= 0) return most_likely(s, logits);
    bool sorted = o->top_k > 0 && o->top_k < s->n_vocab;
    int32_t n = sorted ? collect_top_k(s, logits, o->top_k) : collect_all(s, logits);
    if (n == 0) return 0;
    if (o->top_p < 1) n = keep_top_p(s->candidates, n, o->top_p, sorted);
    if (o->min_p > 0) n = keep_min_p(s->candidates, n, o->min_p);
    return draw(s, n);
}

int32_t sampler_sample(sampler *s, const float *logits) {
    int32_t token = choose(s, logits);
    sampler_accept(s, token);
    return token;
}
