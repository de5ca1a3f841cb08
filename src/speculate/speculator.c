/* speculator.c: the texts; chooses the drafter and the number of tokens of each draft.
 *
 * Acceptance depends on the source of a draft: look-ups by the length of the match, and the draft
 * model. Each text has its own counts of each kind. */
#include "powerinfer_speculate.h"

#include <string.h>

#include "draft_model.h"
#include "draft_pace.h"
#include "error.h"
#include "mem.h"
#include "ngram.h"

/* Kinds of drafts: look-ups of 2, 3, 4 to 7, 8 or more tokens; the draft model. */
enum { KIND_NGRAMS, KIND_NGRAMS_LAST = 3, KIND_MODEL, KINDS };

/* The time of a step without drafts is the reference for the others. PLAIN_STEPS such steps come
 * after PLAIN_FIRST steps with drafts, then after twice as many each time, up to PLAIN_LAST: a
 * program's first steps may be slow, while the system still moves its threads to cores. */
enum { PLAIN_STEPS = 2, PLAIN_FIRST = 4, PLAIN_LAST = 128 };

/* A draft of TRIED_TOKENS measures the time of the draft model, at first and after TRIED_AFTER
 * steps without it; meanwhile the time fades, so that the draft model is tried again. */
enum { TRIED_AFTER = 64, TRIED_TOKENS = 2 };
#define FADE 0.99

typedef struct text {
    const pi_sampler *sampler;
    int32_t *tokens; /* [n_ctx + 1]: tokens in the session, and the last one */
    int32_t n;
    int32_t draft[PI_DRAFT_MAX];
    int32_t n_draft, n_right; /* tokens of the last draft; how many were accepted so far */
    bool wrong;               /* the next one was rejected */
    int kind;                 /* of the draft */
    pace_hits hits[KINDS];
    pi_draft_counts counts;
} text;

struct pi_speculator {
    pi_speculator_options options;
    text *texts;     /* [n_texts] */
    draft_job *jobs; /* [n_texts] */
    draft_model model;
    bool has_model; /* there is a draft model and it has not failed */
    bool repeats;   /* the model has recurrent layers */
    pace_costs costs;
    int32_t n_drafted_steps; /* since the last step without drafts */
    int32_t plain_after;     /* drafted steps after which PLAIN_STEPS follow */
    int32_t n_plain;         /* of these, steps that are left */
    int32_t n_model_idle;    /* steps since the draft model drafted */
};

/* ---- creation -------------------------------------------------------------------------------- */

pi_speculator_options pi_speculator_default_options(void) {
    return (pi_speculator_options){.n_texts = 1, .n_max = 16, .n_piece = 512};
}

static pi_status check(const pi_speculator_options *o, pi_error *err) {
    const char *what = NULL;
    if (o->n_texts < 1 || o->n_texts > PI_SPECULATE_TEXTS || o->n_ctx < 1 || o->n_piece < 1)
        what = "n_texts, n_ctx or n_piece";
    if (o->n_max < 1 || o->n_max > PI_DRAFT_MAX || o->n_min < 0 || o->n_min > o->n_max)
        what = "n_max or n_min";
    if (!(o->p_min >= 0 && o->p_min <= 1)) what = "p_min";
    if (!o->ngrams && !o->draft_model) what = "neither ngrams nor draft_model";
    if (o->n_chain < 0 || o->n_chain >= PI_DRAFT_HEADS) what = "n_chain";
    if (what)
        return error_set(err, PI_ERR_ARG,
                         "out of range: speculative decoding: %s: see powerinfer_speculate.h",
                         what);
    return PI_OK;
}

static pi_status create_texts(pi_speculator *s, pi_error *err) {
    size_t n = (size_t)s->options.n_texts, n_tokens = (size_t)s->options.n_ctx + 1;
    s->texts = mem_calloc(n, sizeof *s->texts);
    s->jobs = mem_calloc(n, sizeof *s->jobs);
    if (!s->texts || !s->jobs) return error_nomem(err, n * sizeof *s->texts, "texts");
    for (size_t i = 0; i < n; i++) {
        s->texts[i].tokens = mem_calloc(n_tokens, sizeof *s->texts[i].tokens);
        if (!s->texts[i].tokens) return error_nomem(err, n_tokens * sizeof(int32_t), "texts");
    }
    return PI_OK;
}

pi_status pi_speculator_create(const pi_speculator_options *options, pi_speculator **out,
                               pi_error *err) {
    *out = NULL;
    pi_status status = check(options, err);
    if (status != PI_OK) return status;
    pi_speculator *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "speculative decoding");
    pi_model_info info;
    pi_model_get_info(options->model, &info);
    s->repeats = info.recurrent;
    s->options = *options;
    s->plain_after = PLAIN_FIRST;
    s->has_model = options->draft_model != NULL;
    if (s->has_model && options->n_chain > 0) { /* a token per head */
        const int32_t most = 1 + options->n_chain;
        if (s->options.n_max > most) s->options.n_max = most;
        if (s->options.n_min > most) s->options.n_min = most;
    }
    status = create_texts(s, err);
    if (status == PI_OK && s->has_model) status = draft_model_create(&s->model, options, err);
    if (status != PI_OK) {
        pi_speculator_destroy(s);
        return status;
    }
    *out = s;
    return PI_OK;
}

void pi_speculator_destroy(pi_speculator *s) {
    if (!s) return;
    draft_model_free(&s->model);
    for (int32_t i = 0; s->texts && i < s->options.n_texts; i++) mem_free(s->texts[i].tokens);
    mem_free(s->texts);
    mem_free(s->jobs);
    mem_free(s);
}

/* ---- texts ----------------------------------------------------------------------------------- */

pi_status pi_speculator_begin(pi_speculator *s, int32_t number, const int32_t *tokens,
                              int32_t n_tokens, const pi_sampler *sampler, pi_error *err) {
    text *t = &s->texts[number];
    int32_t *room = t->tokens;
    *t = (text){.sampler = sampler, .tokens = room};
    if (n_tokens > s->options.n_ctx)
        return error_set(err, PI_ERR_LIMIT, "the text has %d tokens: speculative decoding: %d fit",
                         n_tokens, s->options.n_ctx);
    memcpy(t->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    t->n = n_tokens;
    return s->has_model ? draft_model_begin(&s->model, number, sampler, err) : PI_OK;
}

void pi_speculator_forget(pi_speculator *s, int32_t number) {
    if (s->has_model) draft_model_forget(&s->model, number);
}

bool pi_speculator_accept(pi_speculator *s, int32_t number, int32_t token) {
    text *t = &s->texts[number];
    if (t->n <= s->options.n_ctx) t->tokens[t->n++] = token;
    if (t->wrong || t->n_right == t->n_draft) return false;
    t->wrong = t->draft[t->n_right] != token;
    if (t->wrong) return false;
    t->n_right++;
    t->counts.accepted++;
    return true;
}

pi_draft_counts pi_speculator_counts(const pi_speculator *s, int32_t number) {
    return s->texts[number].counts;
}

/* Counts the accepted and rejected tokens of the last draft. */
static void settle(text *t) {
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == t->kind && t->n_right + t->wrong > 0)
            pace_checked(&t->hits[kind], t->n_right, t->wrong);
        else
            pace_idle(&t->hits[kind]);
    }
    t->n_draft = t->n_right = 0;
    t->wrong = false;
}

/* ---- drafting -------------------------------------------------------------------------------- */

/* Chooses the length of a draft of this kind, at most `room`. */
static pace_choice choose(const pi_speculator *s, const text *t, int kind, const pace_step *at,
                          int32_t room) {
    const pi_speculator_options *o = &s->options;
    int32_t most = room < o->n_max ? room : o->n_max;
    if (most < o->n_min || most < 1) return (pace_choice){.gain = 1};
    pace_choice c = pace_choose(&s->costs, at, pace_chance(&t->hits[kind]), most);
    if (c.n < o->n_min) c.n = o->n_min;
    return c;
}

/* Drafts below n_min are dropped. */
static int32_t long_enough(const pi_speculator *s, int32_t n) {
    return n >= s->options.n_min ? n : 0;
}

/* Drafts for one text by look-up, or fills in `job` (n_wanted > 0) for the draft model. Adds the
 * draft to the step. */
static void draft_one(pi_speculator *s, const pi_draft *d, pace_step *at, draft_job *job) {
    text *t = &s->texts[d->text];
    int32_t next = 0, same = s->options.ngrams ? ngram_find(t->tokens, t->n, &next) : 0;
    pace_choice ngram = {.gain = 1}, other = {.gain = 1};
    if (same > 0) {
        pace_step costless = *at;
        costless.draft_seconds = 0;
        t->kind = same < 4 ? same - NGRAM_MIN : same < 8 ? KIND_NGRAMS_LAST - 1 : KIND_NGRAMS_LAST;
        ngram = choose(s, t, t->kind, &costless, d->room);
    }
    if (s->has_model) {
        bool trial = s->model.each.n == 0 || s->n_model_idle > TRIED_AFTER;
        bool cut = trial && s->options.n_min <= TRIED_TOKENS && d->room > TRIED_TOKENS;
        other = choose(s, t, KIND_MODEL, at, cut ? TRIED_TOKENS : d->room);
    }
    if (other.n > 0 && (ngram.n == 0 || other.gain > ngram.gain)) {
        t->kind = KIND_MODEL;
        *job = (draft_job){.text = d->text,
                           .tokens = t->tokens,
                           .n_tokens = t->n,
                           .sampler = t->sampler,
                           .session = d->session,
                           .draft = t->draft,
                           .n_wanted = other.n};
        ngram = other;
    } else {
        ngram_continue(t->tokens, t->n, next, t->draft, ngram.n);
        int32_t end = 0; /* an end token ends the draft: the tokens after it are another text */
        while (end < ngram.n && !pi_token_is_end(s->options.model, t->draft[end])) end++;
        t->n_draft = long_enough(s, end);
    }
    at->n_tokens += ngram.n;
    at->n_expected += ngram.n_expected;
}

static pi_status run_model(pi_speculator *s, int32_t n_jobs, pi_error *err) {
    s->n_model_idle++;
    if (n_jobs == 0) {
        s->model.each.seconds *= FADE;
        return PI_OK;
    }
    s->n_model_idle = 0;
    pi_status status = draft_model_run(&s->model, s->jobs, n_jobs, &s->options, err);
    for (int32_t i = 0; i < n_jobs; i++) {
        draft_job *j = &s->jobs[i];
        s->texts[j->text].n_draft = long_enough(s, j->n);
    }
    s->has_model = status == PI_OK;
    return status;
}

pi_status pi_speculator_draft(pi_speculator *s, pi_draft *drafts, int32_t n, int32_t n_others,
                              pi_error *err) {
    if (s->n_drafted_steps >= s->plain_after) {
        s->n_plain = PLAIN_STEPS;
        if (s->plain_after < PLAIN_LAST) s->plain_after *= 2;
    }
    bool plain = s->options.n_min == 0 && (s->n_plain > 0 || !pace_knows(&s->costs, n + n_others));
    if (s->n_plain > 0) s->n_plain--;
    int32_t n_jobs = 0, n_drafted = 0;
    pace_step at = {.n_tokens = n + n_others,
                    .n_expected = n + n_others,
                    .draft_seconds = s->model.each.seconds / n,
                    .repeats = s->repeats};
    for (int32_t i = 0; i < n; i++) {
        settle(&s->texts[drafts[i].text]);
        at.n_tokens += drafts[i].n_again;
    }
    for (int32_t i = 0; i < n && !plain; i++) {
        draft_job *job = &s->jobs[n_jobs];
        job->n_wanted = 0;
        draft_one(s, &drafts[i], &at, job);
        n_jobs += job->n_wanted > 0;
    }
    pi_status status = run_model(s, n_jobs, err);
    for (int32_t i = 0; i < n; i++) {
        text *t = &s->texts[drafts[i].text];
        drafts[i].n = t->n_draft;
        drafts[i].tokens = t->draft;
        t->counts.drafted += (uint64_t)t->n_draft;
        n_drafted += t->n_draft;
    }
    s->n_drafted_steps = n_drafted > 0 ? s->n_drafted_steps + 1 : 0;
    return status;
}

void pi_speculator_measured(pi_speculator *s, int32_t n_tokens, double seconds) {
    pace_measured(&s->costs, n_tokens, seconds);
}
