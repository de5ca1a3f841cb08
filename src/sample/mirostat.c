/* mirostat.c: both versions of Mirostat.
 *
 * Version 1 estimates the exponent s of a Zipf distribution from the most likely tokens and from it
 * the k whose top-k sampling has surprisal mu on average. Version 2 removes tokens with a surprisal
 * above mu. Both move mu by the error of the drawn token's surprisal. */
#include "mirostat.h"

#include <math.h>

enum { ZIPF_TOKENS = 100 }; /* tokens that the exponent is estimated from; the paper's m */

/* Least squares over pairs of neighbours in rank: s = sum(t b) / sum(t t), t = log((i+2)/(i+1)), b
 * = log(p_i / p_{i+1}). Only the items used need to be sorted. */
static double estimate_zipf(const candidates *c) {
    double tb = 0, tt = 0;
    for (int32_t i = 0; i + 1 < c->n && i + 1 < ZIPF_TOKENS; i++) {
        double t = log((double)(i + 2) / (double)(i + 1));
        tb += t * ((double)c->items[i].logit - (double)c->items[i + 1].logit);
        tt += t * t;
    }
    return tt > 0 ? tb / tt : 1;
}

/* k of the paper's equation (30), within 1..n. s = 1 and s = 0 are special cases, since the formula
 * has 0/0 there. */
static int32_t zipf_k(const mirostat *m, double s, int32_t n) {
    double epsilon = s - 1, log_n = log((double)m->n_vocab);
    double share = fabs(epsilon) < 1e-6 ? 1 / log_n : epsilon / (1 - exp(-epsilon * log_n));
    double k = pow(share * exp2(m->mu), 1 / fmax(s, 1e-6));
    if (!(k < (double)n)) return n; /* catches NaN: a vocabulary of one token */
    return k < 1 ? 1 : (int32_t)k;
}

static void cut_zipf(const mirostat *m, candidates *c) {
    candidates_sort(c, ZIPF_TOKENS);
    int32_t k = zipf_k(m, estimate_zipf(c), c->n);
    if (k > ZIPF_TOKENS) candidates_sort(c, k);
    c->n = k;
    c->sorted = true;
}

static void cut_surprising(const mirostat *m, candidates *c) {
    double best = (double)candidates_best(c), total = 0;
    for (int32_t i = 0; i < c->n; i++) total += exp((double)c->items[i].logit - best);
    double floor = best + log(total) - m->mu * log(2.0); /* logit with surprisal mu */
    if (!(floor <= best)) {
        candidates_keep_best(c);
        return;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if ((double)c->items[i].logit >= floor) c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

int32_t mirostat_draw(mirostat *m, candidates *c, rng *random) {
    if (m->version == 1)
        cut_zipf(m, c);
    else
        cut_surprising(m, c);
    double probability;
    int32_t chosen = candidates_draw(c, random, &probability);
    m->mu -= m->eta * (-log2(probability) - m->tau);
    return chosen;
}
