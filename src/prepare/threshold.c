/* threshold.c: thresholds from scores; threshold.h defines the objective.
 *
 * A thread handles one neuron at a time, from all its scores: a histogram of the scores, a
 * histogram of the losses of its firing tokens, the hull, and the hull's pieces, which go into a
 * list. The list is sorted by a total order, and all sums follow that order, so that the result
 * does not depend on threads. Memory: the pieces, about twenty of 32 bytes per neuron. */
#include "threshold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

enum {
    BINS = 128,
    POINTS = BINS + 2, /* thresholds at the lower edge of bin 0 .. BINS, then "never" */
};

/* ---- the active set by neurons --------------------------------------------------------------- */

pi_status neuron_pairs_make(const predictor_data *data, neuron_pairs *out, pi_error *err) {
    const active_set *a = data->active;
    size_t n = (size_t)data->n_ff, n_pairs = (size_t)a->start[a->n_tokens];
    *out = (neuron_pairs){.start = mem_calloc(n + 1, sizeof *out->start),
                          .split = mem_calloc(n, sizeof *out->split),
                          .token = mem_alloc(n_pairs * sizeof *out->token),
                          .contribution = mem_alloc(n_pairs * sizeof *out->contribution)};
    if (!out->start || !out->split || !out->token || !out->contribution) {
        neuron_pairs_free(out);
        return error_nomem(err, n_pairs * (sizeof(int32_t) + sizeof(float)), "active neurons");
    }
    for (size_t i = 0; i < n_pairs; i++) out->start[a->neuron[i] + 1]++;
    for (size_t i = 0; i < n; i++) {
        out->start[i + 1] += out->start[i];
        out->split[i] = out->start[i]; /* count so far: index of its next pair */
    }
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t k = a->start[t]; k < a->start[t + 1]; k++) {
            int64_t at = out->split[a->neuron[k]]++;
            out->token[at] = (int32_t)t;
            out->contribution[at] = a->contribution[k];
        }
    for (size_t i = 0; i < n; i++) {
        int64_t at = out->start[i];
        while (at < out->start[i + 1] && out->token[at] < data->n_train) at++;
        out->split[i] = at;
    }
    return PI_OK;
}

void neuron_pairs_free(neuron_pairs *p) {
    mem_free(p->start);
    mem_free(p->split);
    mem_free(p->token);
    mem_free(p->contribution);
    *p = (neuron_pairs){0};
}

/* ---- the prior ------------------------------------------------------------------------------- */

enum {
    CLASSES = 33,         /* by number of firings in training: 0, 1, 2-3, 4-7, ... */
    PRIOR_POINTS = 12,    /* points of a class's distribution */
    PRIOR_NEURONS = 1024, /* neurons examined per class */
    PRIOR_EACH = 16,      /* scores of each neuron */
    PRIOR_ENOUGH = 64     /* minimum scores for a distribution; smaller classes add scores of
                             neighbouring classes */
};
/* Edges of the quantiles that the points represent: finer at the low end, where thresholds are. */
static const double prior_edge[PRIOR_POINTS + 1] = {0,    0.004, 0.012, 0.03, 0.06, 0.1, 0.16,
                                                    0.24, 0.35,  0.5,   0.65, 0.8,  1};
/* In samples: equivalent to two more firings of every neuron. Values between 1 and 8 hardly change
 * the result. */
static const double prior_weight = 2;

typedef struct prior {
    bool known;
    float point[CLASSES][PRIOR_POINTS]; /* in deviations from a neuron's mean score, ascending */
    double penalty[CLASSES];            /* mean over the class's samples */
} prior;

static int class_of(int64_t n) {
    int c = 0;
    for (; n > 0 && c < CLASSES - 1; n /= 2) c++;
    return c;
}

typedef struct moments {
    double mean, deviation;
} moments;

static moments score_moments(const float *scores, int64_t n) {
    enum { LANES = 8 };
    double sums[LANES] = {0}, squares[LANES] = {0}, sum = 0, square = 0;
    for (int64_t t = 0; t + LANES <= n; t += LANES)
        for (int l = 0; l < LANES; l++) {
            double s = (double)scores[t + l];
            sums[l] += s;
            squares[l] += s * s;
        }
    for (int64_t t = n - n % LANES; t < n; t++) {
        sum += (double)scores[t];
        square += (double)scores[t] * (double)scores[t];
    }
    for (int l = 0; l < LANES; l++) {
        sum += sums[l];
        square += squares[l];
    }
    double mean = sum / (double)n, variance = square / (double)n - mean * mean;
    return (moments){mean, variance > 0 ? sqrt(variance) : 0};
}

typedef struct prior_run {
    const predictor_data *data;
    const neuron_pairs *pairs;
    int64_t stride;
    float (*sample)[PRIOR_EACH]; /* [visited neurons] */
} prior_run;

static int64_t prior_count(const neuron_pairs *pairs, int64_t neuron) {
    int64_t n = pairs->split[neuron] - pairs->start[neuron];
    return n < PRIOR_EACH ? n : PRIOR_EACH;
}

static void prior_visit(void *arg, int64_t neuron, const float *scores) {
    prior_run *r = arg;
    int64_t first = r->pairs->start[neuron], n = r->pairs->split[neuron] - first;
    moments m = score_moments(scores, r->data->n_train);
    float *sample = r->sample[neuron / r->stride];
    int64_t count = prior_count(r->pairs, neuron);
    for (int64_t k = 0; k < count; k++) { /* evenly spaced over its firing tokens */
        double s = (double)scores[r->pairs->token[first + k * n / count]];
        sample[k] = m.deviation > 0 ? (float)((s - m.mean) / m.deviation) : 0.0f;
    }
}

static int ascending(const void *pa, const void *pb) {
    float a = *(const float *)pa, b = *(const float *)pb;
    return (a > b) - (a < b) + (isnan(a) != 0) - (isnan(b) != 0); /* NaN last: a total order */
}

/* Sorted scores of class c, plus neighbouring classes in both directions until there are enough.
 * Returns their number. */
static size_t prior_gather(const prior_run *r, int64_t visited, int c, float *all) {
    size_t n = 0;
    for (int distance = 0; distance < CLASSES && n < PRIOR_ENOUGH; distance++) {
        for (int64_t v = 0; v < visited; v++) {
            int64_t neuron = v * r->stride;
            int d = class_of(r->pairs->split[neuron] - r->pairs->start[neuron]) - c;
            if (abs(d) != distance) continue;
            int64_t count = prior_count(r->pairs, neuron);
            memcpy(all + n, r->sample[v], (size_t)count * sizeof *all);
            n += (size_t)count;
        }
    }
    qsort(all, n, sizeof *all, ascending);
    return n;
}

static void prior_penalties(const predictor_data *data, const neuron_pairs *pairs, prior *out) {
    double sum[CLASSES] = {0}, count[CLASSES] = {0}, all = 0, all_count = 0;
    for (int64_t i = 0; i < data->n_ff; i++) {
        int c = class_of(pairs->split[i] - pairs->start[i]);
        for (int64_t k = pairs->start[i]; k < pairs->split[i]; k++)
            sum[c] += (double)pairs->contribution[k] * (double)pairs->contribution[k];
        count[c] += (double)(pairs->split[i] - pairs->start[i]);
    }
    for (int c = 0; c < CLASSES; c++) {
        all += sum[c];
        all_count += count[c];
    }
    double mean = all_count > 0 ? all / all_count : 0;
    for (int c = CLASSES - 1; c >= 0; c--) { /* an empty class copies the next larger class */
        if (count[c] > 0) mean = sum[c] / count[c];
        out->penalty[c] = mean;
    }
}

static pi_status prior_make(la_job *job, const predictor_data *data, const neuron_pairs *pairs,
                            const score_source *source, prior *out, pi_error *err) {
    int64_t stride = data->n_ff > PRIOR_NEURONS ? data->n_ff / PRIOR_NEURONS : 1;
    int64_t visited = (data->n_ff + stride - 1) / stride;
    prior_run r = {.data = data, .pairs = pairs, .stride = stride};
    size_t bytes = (size_t)visited * sizeof *r.sample;
    r.sample = mem_alloc(bytes);
    float *all = mem_alloc(bytes);
    pi_status status = PI_OK;
    if (!r.sample || !all) status = error_nomem(err, 2 * bytes, "score statistics");
    if (status == PI_OK) {
        score_range range = {data->n_ff, stride, 0, data->n_train};
        status = scores_visit(job, source, range, prior_visit, &r, err);
    }
    if (status == PI_OK) {
        prior_penalties(data, pairs, out);
        out->known = true;
        for (int c = 0; c < CLASSES && out->known; c++) {
            size_t n = prior_gather(&r, visited, c, all);
            out->known = n > 0;
            for (int p = 0; p < PRIOR_POINTS && n > 0; p++) {
                double middle = (prior_edge[p] + prior_edge[p + 1]) / 2;
                out->point[c][p] = all[(size_t)(middle * (double)n)];
            }
        }
    }
    mem_free(r.sample);
    mem_free(all);
    return status;
}

/* ---- one neuron ------------------------------------------------------------------------------ */

/* Pairs below a threshold: numbers of tokens and of firing tokens, and contributions. */
typedef struct missed {
    double train, held; /* contributions */
    int32_t train_fired, held_fired, train_tokens, held_tokens;
} missed;

/* One piece of a neuron's hull: raising its threshold from the previous point to point `to`. */
typedef struct piece {
    float price; /* penalty per avoided selection in training */
    int32_t neuron, to;
    float train, held; /* additional missed contributions */
    int32_t train_fired, held_fired, train_tokens, held_tokens;
} piece;

typedef struct neuron_scale {
    float low, width; /* low edge of bin 0; width of every bin */
    int32_t point;    /* the threshold chosen */
    missed below;     /* contributions missed even at point 0: held-out tokens only */
} neuron_scale;

typedef struct fit_run {
    const predictor_data *data;
    const neuron_pairs *pairs;
    const prior *prior;
    neuron_scale *scale; /* [n_ff] */
    piece *pieces;       /* room for POINTS of every neuron */
    atomic_int_fast64_t n_pieces;
    atomic_bool not_finite;
} fit_run;

typedef struct histogram {
    int32_t tokens[POINTS + 1], held_tokens[POINTS + 1]; /* [0]: below bin 0; [1 + b]: bin b */
    int32_t train_fired[POINTS + 1], held_fired[POINTS + 1];
    double penalty[POINTS + 1], train[POINTS + 1], held[POINTS + 1];
} histogram;

static int bin_of(float score, float low, float inverse) {
    float b = (score - low) * inverse;
    return !(b >= 0) ? 0 : b >= BINS ? BINS + 1 : (int)b + 1;
}

static void count_scores(const float *scores, int64_t n, float low, float inverse, int32_t *bins) {
    for (int64_t t = 0; t < n; t++) bins[bin_of(scores[t], low, inverse)]++;
}

/* Sets the range of a neuron's bins. False when the neuron has neither samples nor a prior, or no
 * finite scores. */
static bool find_scale(fit_run *r, int64_t neuron, const float *scores, moments m,
                       const float *points, neuron_scale *scale) {
    const neuron_pairs *pairs = r->pairs;
    float low = INFINITY, high = -INFINITY;
    for (int64_t k = pairs->start[neuron]; k < pairs->split[neuron]; k++) {
        float s = scores[pairs->token[k]];
        low = s < low ? s : low;
        high = s > high ? s : high;
    }
    if (r->prior->known) {
        float first = (float)(m.mean + m.deviation * (double)points[0]);
        float last = (float)(m.mean + m.deviation * (double)points[PRIOR_POINTS - 1]);
        low = first < low ? first : low;
        high = last > high ? last : high;
    }
    bool finite = isfinite(m.mean) && isfinite(m.deviation);
    if (!finite) atomic_store(&r->not_finite, true);
    if (!isfinite(low) || !isfinite(high) || !finite) return false;
    float width = (high - low) / BINS;
    float least = fmaxf(fabsf(low), fabsf(high)) * 0x1p-20f; /* sixteen steps of a float */
    scale->low = low;
    scale->width = fmaxf(fmaxf(width, least), 1e-30f);
    return true;
}

static void fill_histogram(const fit_run *r, int64_t neuron, const float *scores, moments m,
                           const float *points, const neuron_scale *scale, histogram *h) {
    const neuron_pairs *pairs = r->pairs;
    float inverse = 1 / scale->width, low = scale->low;
    int64_t n_train = r->data->n_train;
    memset(h, 0, sizeof *h);
    count_scores(scores, n_train, low, inverse, h->tokens);
    count_scores(scores + n_train, r->data->n_held, low, inverse, h->held_tokens);
    double penalties = 0;
    for (int64_t k = pairs->start[neuron]; k < pairs->split[neuron]; k++) {
        int b = bin_of(scores[pairs->token[k]], low, inverse);
        double c = (double)pairs->contribution[k];
        h->penalty[b] += c * c;
        h->train[b] += c;
        h->train_fired[b]++;
        penalties += c * c;
    }
    for (int64_t k = pairs->split[neuron]; k < pairs->start[neuron + 1]; k++) {
        int b = bin_of(scores[pairs->token[k]], low, inverse);
        h->held[b] += (double)pairs->contribution[k];
        h->held_fired[b]++;
    }
    if (!r->prior->known) return;
    int64_t n = pairs->split[neuron] - pairs->start[neuron];
    double mean = (penalties + prior_weight * r->prior->penalty[class_of(n)]) /
                  ((double)n + prior_weight);
    for (int p = 0; p < PRIOR_POINTS; p++) {
        float s = (float)(m.mean + m.deviation * (double)points[p]);
        double weight = prior_weight * (prior_edge[p + 1] - prior_edge[p]);
        h->penalty[bin_of(s, low, inverse)] += weight * mean;
    }
}

/* Point k misses all pairs in h[0 .. k]. */
static void add_bin(const histogram *h, int k, missed *m) {
    m->train += h->train[k];
    m->held += h->held[k];
    m->train_fired += h->train_fired[k];
    m->held_fired += h->held_fired[k];
    m->train_tokens += h->tokens[k];
    m->held_tokens += h->held_tokens[k];
}

/* The lower convex hull of (avoided, penalty) over the points, from left to right; returns the
 * number of points on it. The first is point 0. */
static int lower_hull(const double *avoided, const double *penalty, int *hull) {
    int n = 0;
    for (int k = 0; k < POINTS; k++) {
        if (n > 0 && avoided[k] <= avoided[hull[n - 1]]) continue; /* costs more, avoids no more */
        while (n > 1) {
            int a = hull[n - 2], b = hull[n - 1];
            double left = (penalty[b] - penalty[a]) * (avoided[k] - avoided[a]);
            if (left < (penalty[k] - penalty[a]) * (avoided[b] - avoided[a])) break;
            n--;
        }
        hull[n++] = k;
    }
    return n;
}

static void emit_pieces(fit_run *r, int64_t neuron, const histogram *h) {
    double avoided[POINTS], penalty[POINTS];
    missed at[POINTS], so_far = {0};
    double tokens = 0, lost = 0;
    for (int k = 0; k < POINTS; k++) {
        add_bin(h, k, &so_far);
        tokens += h->tokens[k];
        lost += h->penalty[k];
        avoided[k] = tokens;
        penalty[k] = lost;
        at[k] = so_far;
    }
    int hull[POINTS], n = lower_hull(avoided, penalty, hull);
    r->scale[neuron].below = at[0];
    piece *out = r->pieces + atomic_fetch_add(&r->n_pieces, n - 1);
    for (int i = 1; i < n; i++) {
        int a = hull[i - 1], b = hull[i];
        *out++ = (piece){.price = (float)((penalty[b] - penalty[a]) / (avoided[b] - avoided[a])),
                         .neuron = (int32_t)neuron,
                         .to = b,
                         .train = (float)(at[b].train - at[a].train),
                         .held = (float)(at[b].held - at[a].held),
                         .train_fired = at[b].train_fired - at[a].train_fired,
                         .held_fired = at[b].held_fired - at[a].held_fired,
                         .train_tokens = at[b].train_tokens - at[a].train_tokens,
                         .held_tokens = at[b].held_tokens - at[a].held_tokens};
    }
}

static void fit_visit(void *arg, int64_t neuron, const float *scores) {
    fit_run *r = arg;
    const neuron_pairs *pairs = r->pairs;
    neuron_scale *scale = &r->scale[neuron];
    const float *points = r->prior->point[class_of(pairs->split[neuron] - pairs->start[neuron])];
    moments m = score_moments(scores, r->data->n_train);
    *scale = (neuron_scale){.point = BINS + 1};
    if (!find_scale(r, neuron, scores, m, points, scale)) {
        for (int64_t k = pairs->split[neuron]; k < pairs->start[neuron + 1]; k++) {
            scale->below.held += (double)pairs->contribution[k];
            scale->below.held_fired++;
        }
        scale->below.train_tokens = (int32_t)r->data->n_train;
        scale->below.held_tokens = (int32_t)r->data->n_held;
        return;
    }
    scale->point = 0;
    histogram h;
    fill_histogram(r, neuron, scores, m, points, scale, &h);
    emit_pieces(r, neuron, &h);
}

/* ---- the layer ------------------------------------------------------------------------------- */

static int cheapest_first(const void *pa, const void *pb) {
    const piece *a = pa, *b = pb;
    if (a->price != b->price) return a->price < b->price ? -1 : 1;
    if (a->neuron != b->neuron) return a->neuron < b->neuron ? -1 : 1;
    return a->to - b->to;
}

/* Sums over the layer. */
typedef struct layer_sums {
    double train, held; /* contributions */
    int64_t train_fired, held_fired, train_tokens, held_tokens;
} layer_sums;

/* Totals: contributions, firings, and pairs of a token and a neuron. */
static layer_sums layer_total(const predictor_data *data, const neuron_pairs *pairs) {
    layer_sums all = {.train_tokens = data->n_train * data->n_ff,
                      .held_tokens = data->n_held * data->n_ff};
    for (int64_t i = 0; i < data->n_ff; i++) {
        for (int64_t k = pairs->start[i]; k < pairs->split[i]; k++)
            all.train += (double)pairs->contribution[k];
        for (int64_t k = pairs->split[i]; k < pairs->start[i + 1]; k++)
            all.held += (double)pairs->contribution[k];
        all.train_fired += pairs->split[i] - pairs->start[i];
        all.held_fired += pairs->start[i + 1] - pairs->split[i];
    }
    return all;
}

/* Takes pieces until the budget of training or held-out tokens is exhausted. Returns the missed
 * contributions. */
static layer_sums take_pieces(fit_run *r, double target, const layer_sums *all) {
    layer_sums now = {0};
    for (int64_t i = 0; i < r->data->n_ff; i++) {
        const missed *m = &r->scale[i].below;
        now.held += m->held;
        now.held_fired += m->held_fired;
        now.train_tokens += m->train_tokens;
        now.held_tokens += m->held_tokens;
    }
    double budget = (1 - target) * all->train, held_budget = (1 - target) * all->held;
    int64_t n = atomic_load(&r->n_pieces);
    qsort(r->pieces, (size_t)n, sizeof *r->pieces, cheapest_first);
    for (int64_t i = 0; i < n; i++) {
        const piece *p = &r->pieces[i];
        if (p->train_fired > 0 && (target >= 1 || now.train + (double)p->train > budget)) break;
        if (p->held_fired > 0 && now.held + (double)p->held > held_budget) break;
        now.train += (double)p->train;
        now.held += (double)p->held;
        now.train_fired += p->train_fired;
        now.held_fired += p->held_fired;
        now.train_tokens += p->train_tokens;
        now.held_tokens += p->held_tokens;
        r->scale[p->neuron].point = p->to;
    }
    return now;
}

static double share_left(double gone, double all) {
    return all > 0 ? 1 - gone / all : 1;
}

static predictor_quality quality_of(const predictor_data *data, const layer_sums *all,
                                    const layer_sums *lost) {
    if (data->n_held > 0)
        return (predictor_quality){
            .recall = share_left((double)lost->held_fired, (double)all->held_fired),
            .contribution_recall = share_left(lost->held, all->held),
            .selected = share_left((double)lost->held_tokens, (double)all->held_tokens),
            .active = (double)all->held_fired / (double)all->held_tokens};
    return (predictor_quality){
        .recall = share_left((double)lost->train_fired, (double)all->train_fired),
        .contribution_recall = share_left(lost->train, all->train),
        .selected = share_left((double)lost->train_tokens, (double)all->train_tokens),
        .active = (double)all->train_fired / (double)all->train_tokens};
}

static float bias_of(const neuron_scale *s) {
    if (s->point == BINS + 1) return THRESHOLD_NEVER;
    if (s->point == 0) return -s->low;
    /* A score is in the bin when (score - low) / width, rounded, is at least the bin's number: the
     * edge is slightly lower, so that rounding selects a neuron rather than misses it. */
    return -(s->low + ((float)s->point - 1e-3f) * s->width);
}

pi_status threshold_fit(la_job *job, const predictor_data *data, const neuron_pairs *pairs,
                        const score_source *source, double target, float *bias,
                        predictor_quality *quality, pi_error *err) {
    size_t n_ff = (size_t)data->n_ff, bytes = n_ff * POINTS * sizeof(piece);
    prior before = {0};
    fit_run r = {.data = data, .pairs = pairs, .prior = &before};
    atomic_init(&r.n_pieces, 0);
    atomic_init(&r.not_finite, false);
    r.scale = mem_calloc(n_ff, sizeof *r.scale);
    r.pieces = mem_map(bytes); /* pages that are never written take no memory */
    pi_status status = PI_OK;
    if (!r.scale || !r.pieces) status = error_nomem(err, bytes, "thresholds");
    if (status == PI_OK) status = prior_make(job, data, pairs, source, &before, err);
    if (status == PI_OK) {
        score_range range = {data->n_ff, 1, 0, data->n_train + data->n_held};
        status = scores_visit(job, source, range, fit_visit, &r, err);
    }
    if (status == PI_OK && atomic_load(&r.not_finite))
        status = error_set(err, PI_ERR_RANGE,
                           "not a finite number: predictor: scores: the model does not work on "
                           "this text");
    if (status == PI_OK) {
        layer_sums all = layer_total(data, pairs), lost = take_pieces(&r, target, &all);
        *quality = quality_of(data, &all, &lost);
        for (size_t i = 0; i < n_ff; i++) bias[i] = bias_of(&r.scale[i]);
    }
    mem_unmap(r.pieces, bytes);
    mem_free(r.scale);
    return status;
}
