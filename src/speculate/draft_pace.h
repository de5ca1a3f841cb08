/* draft_pace.h: how many tokens are worth drafting, from the measured acceptance rate and the
 * measured time of steps. Private to src/speculate.
 *
 * With an acceptance rate `a` for each token, a draft of n gives 1 + a + ... + a^n tokens in a
 * step. The n with the most tokens per second is chosen, 0 unless another n is better by a margin.
 * With recurrent layers the next step evaluates the accepted tokens of a partly rejected draft
 * again; its time counts here. Only this choice depends on the clock, the text never does. */
#ifndef SPECULATE_DRAFT_PACE_H
#define SPECULATE_DRAFT_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { PACE_SIZES = 320 }; /* tokens of a step; larger steps count as steps of this size */

/* A time that is measured repeatedly: the minimum of the first few measurements, whose caches are
 * cold, then a running mean. */
typedef struct pace_time {
    double seconds; /* 0: never measured */
    int32_t n;      /* measurements, counted up to FIRST_TIMES */
} pace_time;

void pace_time_add(pace_time *t, double seconds);

/* Times of steps by their number of tokens. */
typedef struct pace_costs {
    pace_time of[PACE_SIZES + 1];
    uint32_t measured[PACE_SIZES + 1]; /* number of the step that measured the time last */
    uint32_t step;                     /* number of the current step */
} pace_costs;

/* Fading counts of drafted tokens of one kind: checked; accepted. */
typedef struct pace_hits {
    double tried, right;
} pace_hits;

void pace_measured(pace_costs *c, int32_t n_tokens, double seconds);
/* Whether steps of n_tokens were measured lately, and more than once. */
bool pace_knows(const pace_costs *c, int32_t n_tokens);
/* Seconds of a step of n_tokens: measured, interpolated, or a guess from the nearest measured size,
 * rather too low, so that the size is tried. The unit is arbitrary when nothing was measured. */
double pace_cost(const pace_costs *c, int32_t n_tokens);

/* Counts a checked draft: `right` tokens were accepted, then `wrong` (0 or 1) was rejected. */
void pace_checked(pace_hits *h, int32_t right, int32_t wrong);
/* Counts a step without a draft: counts fade, so that drafts are tried again later. */
void pace_idle(pace_hits *h);
double pace_chance(const pace_hits *h);

/* The step for which a draft's length is chosen, without the draft. */
typedef struct pace_step {
    int32_t n_tokens;     /* tokens that the step evaluates */
    double n_expected;    /* tokens that it yields: one per text, plus expected accepted drafts */
    double draft_seconds; /* time to draft a token */
    bool repeats;         /* the next step evaluates accepted tokens again (recurrent layers) */
} pace_step;

typedef struct pace_choice {
    int32_t n;         /* 0..n_max */
    double gain;       /* tokens per second relative to the step without the draft */
    double n_expected; /* tokens that the draft adds */
} pace_choice;

pace_choice pace_choose(const pace_costs *c, const pace_step *s, double chance, int32_t n_max);

#endif
