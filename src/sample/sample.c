/* sample.c: the sampler chain: logit bias, samplers in the order of the options, a random draw.
 *
 *   scores (of the whole vocabulary)      logit bias; penalties and DRY, where they come first
 *   candidates (those still running)      from the first filter on
 *
 * With Mirostat the chain is: logit bias, temperature, Mirostat. With a temperature of 0 or less
 * there is no random draw: the best score wins, without filters.
 *
 * Scores are a copy of the logits, made only when something changes them. sampler_create allocates
 * all buffers; sampling allocates nothing. A sampler belongs to one thread. */
#include "sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "candidates.h"
#include "dry.h"
#include "grammar.h"
#include "mem.h"
#include "mirostat.h"
#include "rng.h"

struct sampler {
    pi_sampler_options options; /* without the caller's pointers: see sampler_create */
    pi_sampler_kind chain[PI_SAMPLER_CHAIN_MAX];
    size_t n_chain;
    bool greedy; /* the best score, no draw */
    int32_t n_vocab;
    rng random;
    candidates running; /* items: [n_vocab] */
    float *scores;      /* [n_vocab]; NULL when nothing changes the logits */
    pi_logit_bias *bias;
    size_t n_bias;
    /* Penalty window; both NULL when penalties are off, `ring` also when the window is endless. */
    uint32_t *counts; /* [n_vocab] how often a token is in the window; saturates */
    int32_t *ring;    /* [repeat_last_n] the window, oldest at ring_next once it is full */
    int32_t ring_next, ring_used;
    dry *dry;                /* NULL: off */
    mirostat miro;           /* version 0: off */
    grammar_reader *grammar; /* NULL: none */
    uint64_t *allowed;       /* [n_vocab] bits, with a grammar */
};

/* ---- scores ---------------------------------------------------------------------------------- */

static bool in_chain(const pi_sampler_options *o, pi_sampler_kind kind) {
    if (!o->samplers) return true;
    for (size_t i = 0; i < o->n_samplers; i++) {
        if (o->samplers[i] == kind) return true;
    }
    return false;
}

static bool wants_penalties(const pi_sampler_options *o) {
    bool any = o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
    return any && o->repeat_last_n != 0 && o->mirostat == 0 && in_chain(o, PI_SAMPLER_PENALTIES);
}

bool sampler_wants_breakers(const pi_sampler_options *o) {
    return o->dry_multiplier > 0 && o->dry_base >= 1 && o->dry_last_n != 0 && o->mirostat == 0 &&
           in_chain(o, PI_SAMPLER_DRY);
}

static bool has_bit(const uint64_t *bits, int32_t i) {
    return bits[i >> 6] >> (i & 63) & 1;
}

static void score_allowed(sampler *s, const uint64_t *allowed) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (allowed[i >> 6] == UINT64_MAX)
            i |= 63; /* skips to the last token of the word */
        else if (!has_bit(allowed, i))
            s->scores[i] = -INFINITY;
    }
}

/* Repetition penalty: lowers the score of a repeated token, whatever its sign (Keskar et al. 2019,
 * CTRL, with the usual fix for negative logits). Frequency and presence penalties as in OpenAI's
 * API: a constant per occurrence, and a constant for any number of occurrences. */
static void score_penalties(sampler *s) {
    const pi_sampler_options *o = &s->options;
    if (!s->counts) return;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->counts[i] == 0) continue;
        float x = s->scores[i];
        x = x <= 0 ? x * o->repeat_penalty : x / o->repeat_penalty;
        s->scores[i] = x - (float)s->counts[i] * o->frequency_penalty - o->presence_penalty;
    }
}

static void score_dry(sampler *s) {
    if (s->dry) dry_apply(s->dry, s->scores);
}

/* ---- candidates ------------------------------------------------------------------------------ */

static void filter_top_k(sampler *s) {
    if (s->options.top_k > 0) candidates_top_k(&s->running, s->options.top_k);
}

static void filter_top_n_sigma(sampler *s) {
    if (s->options.top_n_sigma > 0) candidates_top_n_sigma(&s->running, s->options.top_n_sigma);
}

static void filter_typical(sampler *s) {
    if (s->options.typical_p < 1) candidates_typical(&s->running, s->options.typical_p);
}

static void filter_top_p(sampler *s) {
    if (s->options.top_p < 1) candidates_top_p(&s->running, s->options.top_p);
}

static void filter_min_p(sampler *s) {
    if (s->options.min_p > 0) candidates_min_p(&s->running, s->options.min_p);
}

static void filter_xtc(sampler *s) {
    const pi_sampler_options *o = &s->options;
    /* Two entries cannot both reach a threshold above one half. */
    if (o->xtc_probability <= 0 || o->xtc_threshold > 0.5f) return;
    if (rng_uniform(&s->random) >= (double)o->xtc_probability || s->running.n < 2) return;
    candidates_xtc(&s->running, o->xtc_threshold);
}

/* Dynamic temperature: the lower the entropy, the lower the temperature. */
static void filter_temperature(sampler *s) {
    const pi_sampler_options *o = &s->options;
    double temp = (double)o->temp, range = (double)o->dynatemp_range;
    if (range > 0 && s->running.n > 1) {
        double least = fmax(temp - range, 0), most = temp + range;
        double share = candidates_entropy(&s->running) / log((double)s->running.n);
        temp = least + (most - least) * pow(share, (double)o->dynatemp_exponent);
    }
    if (temp > 0)
        candidates_temperature(&s->running, temp);
    else
        candidates_keep_best(&s->running);
}

typedef struct stage {
    void (*apply)(sampler *s);
    bool of_scores; /* the stage works on scores; the others work on candidates */
} stage;

static const stage stages[PI_SAMPLER_KINDS] = {
    [PI_SAMPLER_PENALTIES] = {score_penalties, true},
    [PI_SAMPLER_DRY] = {score_dry, true},
    [PI_SAMPLER_TOP_N_SIGMA] = {filter_top_n_sigma, false},
    [PI_SAMPLER_TOP_K] = {filter_top_k, false},
    [PI_SAMPLER_TYPICAL] = {filter_typical, false},
    [PI_SAMPLER_TOP_P] = {filter_top_p, false},
    [PI_SAMPLER_MIN_P] = {filter_min_p, false},
    [PI_SAMPLER_XTC] = {filter_xtc, false},
    [PI_SAMPLER_TEMPERATURE] = {filter_temperature, false},
};

/* Whether a stage of this kind changes anything; only stages on scores need buffers. */
static bool is_on(const sampler *s, pi_sampler_kind kind) {
    if (kind == PI_SAMPLER_PENALTIES) return s->counts != NULL;
    if (kind == PI_SAMPLER_DRY) return s->dry != NULL;
    return kind != PI_SAMPLER_TOP_N_SIGMA || s->options.top_n_sigma > 0;
}

/* Collects candidates for the stages from `at` on; applies top-k if it is the first one. Returns
 * the next stage. */
static size_t collect(sampler *s, const float *scores, size_t at) {
    int32_t top_k = s->options.top_k > 0 ? s->options.top_k : 0;
    bool first = at < s->n_chain && s->chain[at] == PI_SAMPLER_TOP_K;
    candidates_collect(&s->running, scores, s->n_vocab, first ? top_k : 0);
    return at + first;
}

/* Runs the chain from `at` on over candidates. */
static void run_filters(sampler *s, size_t at) {
    for (; at < s->n_chain && s->running.n > 0; at++) {
        const stage *next = &stages[s->chain[at]];
        if (!is_on(s, s->chain[at])) continue;
        if (next->of_scores) candidates_to_scores(&s->running, s->scores, s->n_vocab);
        next->apply(s);
        if (next->of_scores) candidates_from_scores(&s->running, s->scores);
    }
}

static int32_t most_likely(const float *scores, int32_t n_vocab) {
    float best = -INFINITY;
    int32_t id = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (scores[i] > best) {
            best = scores[i];
            id = i;
        }
    }
    return id;
}

static int32_t draw_filtered(sampler *s, const float *scores) {
    size_t at = 0;
    double probability;
    for (; at < s->n_chain; at++) {
        if (!is_on(s, s->chain[at])) continue;
        if (!stages[s->chain[at]].of_scores) break;
        stages[s->chain[at]].apply(s);
    }
    at = collect(s, scores, at);
    run_filters(s, at);
    if (s->running.n == 0) return 0;
    return s->running.items[candidates_draw(&s->running, &s->random, &probability)].id;
}

/* allowed: [n_vocab] bits; NULL: all. */
static int32_t choose(sampler *s, const float *logits, const uint64_t *allowed) {
    const float *scores = logits;
    if (s->scores) {
        memcpy(s->scores, logits, (size_t)s->n_vocab * sizeof *logits);
        if (allowed) score_allowed(s, allowed);
        for (size_t i = 0; i < s->n_bias; i++) s->scores[s->bias[i].token] += s->bias[i].bias;
        scores = s->scores;
    }
    if (s->greedy) {
        for (size_t i = 0; i < s->n_chain; i++) { /* penalties and DRY, without filters */
            const pi_sampler_kind kind = s->chain[i];
            if (stages[kind].of_scores && is_on(s, kind)) stages[kind].apply(s);
        }
        return most_likely(scores, s->n_vocab);
    }
    if (s->miro.version == 0) return draw_filtered(s, scores);
    candidates_collect(&s->running, scores, s->n_vocab, 0);
    if (s->running.n == 0) return 0;
    filter_temperature(s);
    return s->running.items[mirostat_draw(&s->miro, &s->running, &s->random)].id;
}

/* The first token that the grammar allows; -1: none. For the case that all allowed tokens have
 * probability 0, for example if only the end token is allowed. */
static int32_t first_allowed(const sampler *s, const uint64_t *allowed) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (has_bit(allowed, i)) return i;
    }
    return -1;
}

/* A token that the grammar accepts; -1: none. Before the trigger all tokens are allowed. A token
 * that contains the trigger and continues it wrongly is detected only after the choice; it is then
 * excluded, and another token chosen. */
static int32_t choose_by_grammar(sampler *s, const float *logits) {
    const uint64_t *allowed = grammar_reader_mask(s->grammar);
    uint64_t *left = NULL;
    int32_t token = -1;
    if (!allowed && grammar_reader_progress(s->grammar, NULL) != PI_GRAMMAR_WAITING) return -1;
    for (;;) {
        token = choose(s, logits, allowed);
        if (allowed && !has_bit(allowed, token)) token = first_allowed(s, allowed);
        if (token < 0 || grammar_reader_accept(s->grammar, token)) break;
        /* Out of memory, or too ambiguous: no other token helps. */
        if (grammar_reader_progress(s->grammar, NULL) == PI_GRAMMAR_FAILED) return -1;
        if (!left) {
            left = s->allowed;
            size_t n_bytes = ((size_t)s->n_vocab + 63) / 64 * sizeof *left;
            if (allowed)
                memcpy(left, allowed, n_bytes);
            else
                memset(left, 0xff, n_bytes);
            allowed = left;
        }
        left[token >> 6] &= ~((uint64_t)1 << (token & 63));
    }
    if (token < 0) grammar_reader_stuck(s->grammar);
    return token;
}

int32_t sampler_sample(sampler *s, const float *logits) {
    int32_t token = s->grammar ? choose_by_grammar(s, logits) : choose(s, logits, NULL);
    if (token >= 0) sampler_accept(s, token);
    return token;
}

pi_grammar_progress sampler_grammar_progress(const sampler *s, pi_error *why) {
    if (why) why->status = PI_OK;
    return s->grammar ? grammar_reader_progress(s->grammar, why) : PI_GRAMMAR_NONE;
}

void sampler_grammar_restart(sampler *s) {
    if (s->grammar) grammar_reader_restart(s->grammar);
}

void sampler_accept(sampler *s, int32_t token) {
    assert(token >= 0);
    if (token >= s->n_vocab) return; /* a padding row, from the caller: never sampled */
    if (s->dry) dry_accept(s->dry, token);
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

uint64_t sampler_seed(const sampler *s) {
    return s->options.seed;
}

/* ---- creation -------------------------------------------------------------------------------- */

static bool not_in(float x, float min, float max) {
    return !(x >= min && x <= max); /* catches NaN */
}

static const char *find_bad_penalty(const pi_sampler_options *o) {
    const float any = 1e30f; /* sums of scores and penalties stay finite */
    if (!(o->repeat_penalty > 0) || isinf(o->repeat_penalty))
        return "repetition penalty is not a positive number";
    if (o->repeat_last_n < -1) return "penalty window is below -1";
    if (not_in(o->presence_penalty, -any, any) || not_in(o->frequency_penalty, -any, any))
        return "presence or frequency penalty is not a finite number";
    if (not_in(o->dry_multiplier, 0, any) || not_in(o->dry_base, 0, any))
        return "DRY multiplier or base is negative or not a number";
    if (o->dry_allowed_length < 0) return "DRY allowed length is negative";
    if (o->dry_last_n < -1) return "DRY window is below -1";
    return NULL;
}

static const char *find_bad_chain(const pi_sampler_options *o) {
    if (!o->samplers) return NULL;
    if (o->n_samplers > PI_SAMPLER_CHAIN_MAX) return "too many samplers";
    for (size_t i = 0; i < o->n_samplers; i++) {
        if ((unsigned)o->samplers[i] >= PI_SAMPLER_KINDS) return "unknown sampler";
    }
    return NULL;
}

static const char *find_bad_option(const pi_sampler_options *o) {
    if (isnan(o->temp)) return "temperature is not a number";
    if (not_in(o->dynatemp_range, 0, INFINITY) || not_in(o->dynatemp_exponent, 0, INFINITY))
        return "range or exponent of the temperature is negative or not a number";
    if (not_in(o->top_p, 0, INFINITY)) return "top-p is negative or not a number";
    if (not_in(o->min_p, 0, INFINITY)) return "min-p is negative or not a number";
    if (not_in(o->typical_p, 0, INFINITY)) return "typical-p is negative or not a number";
    if (not_in(o->xtc_probability, 0, INFINITY) || not_in(o->xtc_threshold, 0, INFINITY))
        return "XTC probability or threshold is negative or not a number";
    if (o->mirostat < 0 || o->mirostat > 2) return "mirostat is not 0, 1 or 2";
    if (not_in(o->mirostat_tau, 0, 1e6f) || not_in(o->mirostat_eta, 0, 1e6f))
        return "mirostat's entropy or learning rate is negative or too large";
    if (isnan(o->top_n_sigma)) return "top-n-sigma is not a number";
    const char *bad = find_bad_chain(o);
    return bad ? bad : find_bad_penalty(o);
}

static pi_status check_options(const pi_sampler_options *o, int32_t n_vocab, pi_error *err) {
    const char *what = n_vocab < 1 ? "vocabulary is empty" : find_bad_option(o);
    if (what)
        return error_set(err, PI_ERR_ARG, "%s: sampler options: see powerinfer.h for the ranges",
                         what);
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        const pi_logit_bias *b = &o->logit_bias[i];
        if (b->token < 0 || b->token >= n_vocab)
            return error_set(err, PI_ERR_ARG, "no such token: logit bias of token %d: use 0 to %d",
                             b->token, n_vocab - 1);
        if (isnan(b->bias))
            return error_set(err, PI_ERR_ARG, "not a number: logit bias of token %d: give a number",
                             b->token);
    }
    return PI_OK;
}

static bool bias_create(sampler *s, const pi_sampler_options *o, const sample_vocab *vocab) {
    size_t n = o->n_logit_bias + (o->ignore_eos ? vocab->n_ends : 0);
    if (n == 0) return true;
    s->bias = mem_calloc(n, sizeof *s->bias);
    if (!s->bias) return false;
    for (size_t i = 0; i < o->n_logit_bias; i++) s->bias[s->n_bias++] = o->logit_bias[i];
    while (s->n_bias < n) {
        int32_t end = vocab->ends[s->n_bias - o->n_logit_bias];
        s->bias[s->n_bias++] = (pi_logit_bias){.token = end, .bias = -INFINITY};
    }
    return true;
}

/* False: out of memory. */
static bool buffers_create(sampler *s, const sample_vocab *vocab) {
    const pi_sampler_options *o = &s->options;
    size_t n_vocab = (size_t)s->n_vocab;
    s->running.items = mem_calloc(n_vocab, sizeof *s->running.items);
    if (!s->running.items || !bias_create(s, o, vocab)) return false;
    if (wants_penalties(o)) {
        s->counts = mem_calloc(n_vocab, sizeof *s->counts);
        if (!s->counts) return false;
        if (o->repeat_last_n > 0) {
            s->ring = mem_calloc((size_t)o->repeat_last_n, sizeof *s->ring);
            if (!s->ring) return false;
        }
    }
    if (sampler_wants_breakers(o)) {
        int32_t window = o->dry_last_n < 0 ? vocab->n_history : o->dry_last_n;
        s->dry = dry_create(o, s->n_vocab, window, vocab->breakers);
        if (!s->dry) return false;
    }
    if (o->grammar) {
        s->allowed = mem_calloc((n_vocab + 63) / 64, sizeof *s->allowed);
        if (!s->allowed || grammar_reader_create(o->grammar, &s->grammar, NULL) != PI_OK)
            return false;
    }
    if (!s->bias && !s->counts && !s->dry && !s->grammar) return true;
    s->scores = mem_calloc(n_vocab, sizeof *s->scores);
    return s->scores != NULL;
}

static void chain_create(sampler *s, const pi_sampler_options *o) {
    s->n_chain = o->samplers ? o->n_samplers : PI_SAMPLER_KINDS;
    for (size_t i = 0; i < s->n_chain; i++)
        s->chain[i] = o->samplers ? o->samplers[i] : (pi_sampler_kind)i;
    s->greedy = o->temp <= 0 && (o->mirostat > 0 || in_chain(o, PI_SAMPLER_TEMPERATURE));
}

pi_status sampler_create(const pi_sampler_options *options, const sample_vocab *vocab,
                         sampler **out, pi_error *err) {
    *out = NULL;
    pi_status status = check_options(options, vocab->n_vocab, err);
    if (status != PI_OK) return status;
    sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "sampler");
    s->options = *options;
    s->n_vocab = vocab->n_vocab;
    if (s->options.seed == UINT64_MAX) s->options.seed = rng_entropy();
    rng_seed(&s->random, s->options.seed);
    s->miro = (mirostat){.version = options->mirostat,
                         .n_vocab = s->n_vocab,
                         .tau = (double)options->mirostat_tau,
                         .eta = (double)options->mirostat_eta,
                         .mu = 2 * (double)options->mirostat_tau};
    if (!buffers_create(s, vocab)) {
        sampler_free(s);
        return error_nomem(err, (size_t)vocab->n_vocab * sizeof(candidate),
                           "buffers of the sampler");
    }
    chain_create(s, options);
    s->options.samplers = NULL;   /* the caller's; s->chain is the copy */
    s->options.grammar = NULL;    /* likewise; s->grammar holds it */
    s->options.logit_bias = NULL; /* likewise; s->bias */
    s->options.dry_breakers = NULL;
    *out = s;
    return PI_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Allocates *to, zeroed, as large as the buffer in `from`, if there is one. */
static bool buffer_like(void *to, const void *from, size_t n, size_t size) {
    void **place = to;
    if (!from) return true;
    *place = mem_calloc(n, size);
    return *place != NULL;
}

pi_status sampler_clone(const sampler *from, sampler **out, pi_error *err) {
    size_t n_vocab = (size_t)from->n_vocab;
    sampler *s = mem_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return error_nomem(err, sizeof *s, "sampler");
    s->options = from->options;
    memcpy(s->chain, from->chain, sizeof s->chain);
    s->n_chain = from->n_chain;
    s->greedy = from->greedy;
    s->n_vocab = from->n_vocab;
    s->n_bias = from->n_bias;
    bool good =
        buffer_like(&s->running.items, from->running.items, n_vocab, sizeof *s->running.items) &&
        buffer_like(&s->scores, from->scores, n_vocab, sizeof *s->scores) &&
        buffer_like(&s->bias, from->bias, s->n_bias, sizeof *s->bias) &&
        buffer_like(&s->counts, from->counts, n_vocab, sizeof *s->counts) &&
        buffer_like(&s->ring, from->ring, (size_t)s->options.repeat_last_n, sizeof *s->ring) &&
        buffer_like(&s->allowed, from->allowed, (n_vocab + 63) / 64, sizeof *s->allowed);
    if (good && from->dry) good = (s->dry = dry_clone(from->dry)) != NULL;
    if (good && from->grammar)
        good = grammar_reader_create(grammar_reader_grammar(from->grammar), &s->grammar, NULL) ==
               PI_OK;
    if (!good) {
        sampler_free(s);
        return error_nomem(err, n_vocab * sizeof(candidate), "buffers of the sampler");
    }
    if (s->bias) memcpy(s->bias, from->bias, s->n_bias * sizeof *s->bias);
    sampler_copy(s, from);
    *out = s;
    return PI_OK;
}

void sampler_copy(sampler *to, const sampler *from) {
    assert(to->n_vocab == from->n_vocab && !to->counts == !from->counts && !to->dry == !from->dry &&
           !to->grammar == !from->grammar);
    to->random = from->random;
    to->miro = from->miro;
    if (from->counts)
        memcpy(to->counts, from->counts, (size_t)from->n_vocab * sizeof *from->counts);
    if (from->ring) memcpy(to->ring, from->ring, (size_t)from->ring_used * sizeof *from->ring);
    to->ring_next = from->ring_next;
    to->ring_used = from->ring_used;
    if (from->dry) dry_copy(to->dry, from->dry);
    if (from->grammar) grammar_reader_copy(to->grammar, from->grammar);
}

void sampler_free(sampler *s) {
    if (!s) return;
    grammar_reader_free(s->grammar);
    mem_free(s->allowed);
    mem_free(s->running.items);
    mem_free(s->scores);
    mem_free(s->bias);
    mem_free(s->counts);
    mem_free(s->ring);
    dry_free(s->dry);
    mem_free(s);
}
