/* synth_predict.c: the predictor of a synthetic model, computed from the recipe instead of from
 * data.
 *
 * The gate of a neuron is  G = t + L + N  (L: low-rank part, variance SYNTH_LOW_RANK_SHARE; N:
 * noise). The predictor sees L with an error, its score. All are normal, so that the best estimate
 * is M = t + slope * score,  and G given M is normal around M with one deviation for all neurons.
 * The expected contribution of a neuron grows with M alone: selecting the neurons with M >=
 * threshold, one threshold for all, reaches any recall with the fewest neurons. */
#include <math.h>

#include "synth.h"

enum {
    NEURONS = 512, /* points of the integral over neurons */
    SCORES = 256,  /* points of the integral over scores, between -+ SCORE_MAX deviations */
    HALVINGS = 40
};

static const double SCORE_MAX = 6;
/* Estimates beyond are practically certain: t is within -+5. */
static const double THRESHOLD_MAX = 12;

static double normal_density(double x) {
    const double inverse_sqrt_two_pi = 0.39894228040143268;
    return inverse_sqrt_two_pi * exp(-0.5 * x * x);
}

double synth_relu_mean(double m, double s) {
    if (s <= 0) return m > 0 ? m : 0;
    return m * synth_phi(m / s) + s * normal_density(m / s);
}

/* Deviations of M over tokens and of G given M. */
typedef struct estimate {
    double spread, rest;
} estimate;

/* Mean of relu(G) over the tokens where M >= threshold, for one neuron, by the middle rule in M. */
static double selected_mean(const estimate *e, double t, double threshold) {
    double low = (threshold - t) / e->spread, sum = 0;
    if (low < -SCORE_MAX) low = -SCORE_MAX;
    if (low >= SCORE_MAX) return 0;
    double step = (SCORE_MAX - low) / SCORES;
    for (int i = 0; i < SCORES; i++) {
        double z = low + (i + 0.5) * step;
        sum += normal_density(z) * synth_relu_mean(t + e->spread * z, e->rest);
    }
    return sum * step;
}

static double recall_of(const estimate *e, const double *t, double threshold) {
    double selected = 0, all = 0;
    for (int i = 0; i < NEURONS; i++) {
        selected += selected_mean(e, t[i], threshold);
        all += synth_relu_mean(t[i], sqrt(e->spread * e->spread + e->rest * e->rest));
    }
    return selected / all;
}

synth_predictor synth_predictor_solve(const synth_profile *profile, double recall,
                                      double gate_error, double predictor_error) {
    synth_predictor p = {.slope = 1 / (1 + predictor_error)};
    double seen = SYNTH_LOW_RANK_SHARE * p.slope; /* variance of M */
    estimate e = {.spread = sqrt(seen), .rest = sqrt(1 + gate_error - seen)};
    double t[NEURONS], low = -THRESHOLD_MAX, high = THRESHOLD_MAX;
    for (int i = 0; i < NEURONS; i++)
        t[i] = synth_clamp_mean(profile->mu + profile->tau * synth_probit((i + 0.5) / NEURONS));
    for (int i = 0; i < HALVINGS; i++) {
        double middle = 0.5 * (low + high);
        if (recall_of(&e, t, middle) >= recall)
            low = middle;
        else
            high = middle;
    }
    p.threshold = low;
    p.recall = recall_of(&e, t, low);
    for (int i = 0; i < NEURONS; i++) p.density += synth_phi((t[i] - low) / e.spread) / NEURONS;
    return p;
}

/* The fraction of neurons with g |u| > cut: g has the density f[i] at (i + 0.5) * step, u is
 * normal. */
static double above_cut(const double *f, double step, double cut) {
    double sum = 0;
    for (int i = 0; i < SCORES; i++) sum += f[i] * step * 2 * synth_phi(-cut / ((i + 0.5) * step));
    return sum;
}

double synth_cut_down(const synth_profile *profile, double density) {
    double f[SCORES] = {0}, low = 0, high = THRESHOLD_MAX, step = THRESHOLD_MAX / SCORES;
    for (int n = 0; n < NEURONS; n++) {
        double quantile = synth_probit((n + 0.5) / NEURONS);
        double t = synth_clamp_mean(profile->mu + profile->tau * quantile);
        for (int i = 0; i < SCORES; i++) f[i] += normal_density((i + 0.5) * step - t) / NEURONS;
    }
    for (int i = 0; i < HALVINGS; i++) {
        double middle = 0.5 * (low + high);
        if (above_cut(f, step, middle) > density)
            low = middle;
        else
            high = middle;
    }
    return low;
}
