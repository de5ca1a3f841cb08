/* draft_pace.c: the estimates. Rough constants are enough: steps differ by some ten percent, and
 * the steps that a wrong guess leads to correct it. */
#include "draft_pace.h"

#include <math.h>

/* Time of each further token of a step, relative to a step of one token: measured at a tenth to a
 * third. The guess is rather low, so that drafts are tried. */
#define GUESSED_SHARE 0.125
enum { FIRST_TIMES = 3 };
/* The running mean weights a longer time by a quarter, clamped to twice the old mean: one page
 * fault is no trend. Chance makes steps longer, not shorter, so a shorter time weighs more. */
#define LONGER_WEIGHT  0.25
#define SHORTER_WEIGHT 0.75
#define NEW_MOST       2.0
/* Steps after which a time is stale: contexts grow, machines get busy. */
enum { FORGOTTEN_AFTER = 512 };
/* The prior counts as so many tried tokens. */
#define PRIOR_TRIED  2.0
#define PRIOR_CHANCE 0.6
/* Factors by which counts fade, per checked draft and per step without a draft. */
#define FADE_CHECKED 0.95
#define FADE_IDLE    0.99
/* Minimum ratio of tokens per second with and without the draft. */
#define LEAST_GAIN 1.03

static int32_t size_of(int32_t n_tokens) {
    return n_tokens < PACE_SIZES ? n_tokens : PACE_SIZES;
}

void pace_time_add(pace_time *t, double seconds) {
    if (!(seconds > 0)) return;
    if (t->n == 0)
        t->seconds = seconds;
    else if (t->n < FIRST_TIMES)
        t->seconds = fmin(t->seconds, seconds);
    else if (seconds < t->seconds)
        t->seconds += SHORTER_WEIGHT * (seconds - t->seconds);
    else
        t->seconds += LONGER_WEIGHT * (fmin(seconds, NEW_MOST * t->seconds) - t->seconds);
    if (t->n < FIRST_TIMES) t->n++;
}

static bool is_known(const pace_costs *c, int32_t n) {
    return c->of[n].n > 0 && c->step - c->measured[n] <= FORGOTTEN_AFTER;
}

void pace_measured(pace_costs *c, int32_t n_tokens, double seconds) {
    int32_t n = size_of(n_tokens);
    c->step++;
    if (!is_known(c, n)) c->of[n] = (pace_time){.n = 0};
    pace_time_add(&c->of[n], seconds);
    c->measured[n] = c->step;
}

bool pace_knows(const pace_costs *c, int32_t n_tokens) {
    int32_t n = size_of(n_tokens);
    return is_known(c, n) && c->of[n].n > 1;
}

double pace_cost(const pace_costs *c, int32_t n_tokens) {
    int32_t n = size_of(n_tokens), low = n, high = n;
    while (low > 0 && !is_known(c, low)) low--;
    while (high <= PACE_SIZES && !is_known(c, high)) high++;
    if (low == n) return c->of[n].seconds;
    double shape = 1 + GUESSED_SHARE * (n - 1);
    if (low > 0 && high <= PACE_SIZES) {
        double part = (double)(n - low) / (high - low);
        return c->of[low].seconds + part * (c->of[high].seconds - c->of[low].seconds);
    }
    if (low > 0) return c->of[low].seconds * shape / (1 + GUESSED_SHARE * (low - 1));
    if (high <= PACE_SIZES) return c->of[high].seconds * shape / (1 + GUESSED_SHARE * (high - 1));
    return shape;
}

void pace_checked(pace_hits *h, int32_t right, int32_t wrong) {
    h->tried = FADE_CHECKED * h->tried + right + wrong;
    h->right = FADE_CHECKED * h->right + right;
}

void pace_idle(pace_hits *h) {
    h->tried *= FADE_IDLE;
    h->right *= FADE_IDLE;
}

double pace_chance(const pace_hits *h) {
    return (h->right + PRIOR_TRIED * PRIOR_CHANCE) / (h->tried + PRIOR_TRIED);
}

pace_choice pace_choose(const pace_costs *c, const pace_step *s, double chance, int32_t n_max) {
    pace_choice best = {.gain = 1};
    double plain = s->n_expected / pace_cost(c, s->n_tokens), added = 0, all_right = 1;
    double again = 0;
    for (int32_t n = 1; n <= n_max; n++) {
        again += (n - 1) * all_right * (1 - chance);
        all_right *= chance;
        added += all_right;
        double seconds = pace_cost(c, s->n_tokens + n) + n * s->draft_seconds;
        if (s->repeats && again > 0)
            seconds += again * (pace_cost(c, s->n_tokens + 1) - pace_cost(c, s->n_tokens));
        double gain = (s->n_expected + added) / seconds / plain;
        if (gain > best.gain && gain >= LEAST_GAIN)
            best = (pace_choice){.n = n, .gain = gain, .n_expected = added};
    }
    return best;
}
