/* relu_mlp.c: a predictor with one hidden layer, trained to classify neurons as active.
 *
 * Scores are fc2 relu(fc1 x). It starts as a low-rank predictor (relu_start.c) and is trained by
 * AdamW (Loshchilov and Hutter 2019) on the logistic loss of "neuron i fires for token t"; firing
 * pairs are weighted by their contribution. Tokens are reshuffled into minibatches for every epoch.
 * After each epoch thresholds are fitted as for the final predictor: a state is better if it
 * selects fewer held-out neurons at equal contribution recall (equivalent to more recall at an
 * equal number of selections); training ends after EPOCHS_PATIENT epochs without improvement.
 *
 * The same seed gives the same predictor for any number of threads. Memory: four times the
 * parameters, and a minibatch of scores. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "predictor_fit.h"
#include "rng.h"

enum {
    EPOCHS_DEFAULT = 8,
    EPOCHS_PATIENT = 2,
    BATCH = 256,    /* tokens */
    ELEMENTS = 4096 /* elements of a parameter vector per unit of work */
};
/* Initial standard deviation of a neuron's scores, in units of the logistic function: fitting
 * slopes to low-rank scores gives this value. */
static const double GAIN = 3;
/* Weight of a firing pair of mean contribution, relative to a pair that does not fire: recall is
 * more important. */
static const double FIRING_WEIGHT = 20, WEIGHT_MAX = 200;
/* Learning rates relative to the mean size of a matrix's entries; they decay to 0 over all
 * epochs. */
static const double STEP = 0.015, BIAS_STEP = 0.02;
static const double BETA1 = 0.9, BETA2 = 0.99, EPSILON = 1e-8, DECAY = 1e-2;
/* A state is better if it selects fewer neurons by this fraction. */
static const double PROGRESS = 0.995;

typedef struct trainer {
    la_job *job;
    const predictor_data *data;
    const neuron_pairs *pairs;
    const relu_mlp_options *options;
    int64_t rank;
    size_t n1, n2, n_params; /* entries of fc1, of fc2, of both and the bias */
    float *w, *best;         /* [n_params] fc1 [rank][n_embd], fc2 [n_ff][rank], bias [n_ff] */
    float *grad, *m, *v;     /* [n_params] */
    float *x;                /* [BATCH][n_embd] */
    float *h, *dh;           /* [BATCH][rank] */
    float *s;                /* [BATCH][n_ff] scores, then their gradients */
    float *hidden;           /* [all tokens][rank] */
    float *thresholds;       /* [n_ff] */
    int32_t *order;          /* [n_train] */
    double mean_contribution;
    int64_t first, count; /* the minibatch, in order */
    int64_t step, steps;  /* step of AdamW, and number of steps */
    double size1, size2;  /* root mean square entries of fc1, fc2 at the start */
} trainer;

static float *fc1_of(const trainer *t) {
    return t->w;
}
static float *fc2_of(const trainer *t) {
    return t->w + t->n1;
}
static float *bias_of(const trainer *t) {
    return t->w + t->n1 + t->n2;
}

static void trainer_free(trainer *t) {
    mem_free(t->w);
    mem_free(t->best);
    mem_free(t->grad);
    mem_free(t->m);
    mem_free(t->v);
    mem_free(t->x);
    mem_free(t->h);
    mem_free(t->dh);
    mem_free(t->s);
    mem_free(t->hidden);
    mem_free(t->thresholds);
    mem_free(t->order);
}

static pi_status trainer_make(trainer *t, pi_error *err) {
    const predictor_data *data = t->data;
    size_t rank = (size_t)t->rank, n_ff = (size_t)data->n_ff, n_embd = (size_t)data->n_embd;
    size_t tokens = (size_t)(data->n_train + data->n_held);
    t->n1 = rank * n_embd;
    t->n2 = rank * n_ff;
    t->n_params = t->n1 + t->n2 + n_ff;
    t->w = mem_alloc(t->n_params * sizeof(float));
    t->best = mem_alloc(t->n_params * sizeof(float));
    t->grad = mem_alloc(t->n_params * sizeof(float));
    t->m = mem_calloc(t->n_params, sizeof(float));
    t->v = mem_calloc(t->n_params, sizeof(float));
    t->x = mem_alloc(BATCH * n_embd * sizeof(float));
    t->h = mem_alloc(BATCH * rank * sizeof(float));
    t->dh = mem_alloc(BATCH * rank * sizeof(float));
    t->s = mem_alloc(BATCH * n_ff * sizeof(float));
    t->hidden = mem_alloc(tokens * rank * sizeof(float));
    t->thresholds = mem_alloc(n_ff * sizeof(float));
    t->order = mem_alloc((size_t)data->n_train * sizeof(int32_t));
    if (t->w && t->best && t->grad && t->m && t->v && t->x && t->h && t->dh && t->s && t->hidden &&
        t->thresholds && t->order)
        return PI_OK;
    size_t floats = 5 * t->n_params + BATCH * (n_embd + 2 * rank + n_ff) + tokens * rank;
    return error_nomem(err, floats * sizeof(float), "training a predictor");
}

/* ---- the start ------------------------------------------------------------------------------- */

static void find_mean_contribution(trainer *t) {
    double sum = 0, count = 0;
    for (int64_t i = 0; i < t->data->n_ff; i++)
        for (int64_t k = t->pairs->start[i]; k < t->pairs->split[i]; k++) {
            sum += (double)t->pairs->contribution[k];
            count++;
        }
    t->mean_contribution = sum > 0 ? sum / count : 1;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Turns a token's scores into the loss's gradients with respect to them. */
static void token_gradient(const trainer *t, int64_t token, float *s) {
    const active_set *a = t->data->active;
    const float *bias = bias_of(t);
    for (int64_t i = 0; i < t->data->n_ff; i++) s[i] = 1 / (1 + expf(-(s[i] + bias[i])));
    double unit = FIRING_WEIGHT / t->mean_contribution;
    for (int64_t k = a->start[token]; k < a->start[token + 1]; k++) {
        float *g = &s[a->neuron[k]];
        *g = (*g - 1) * (float)fmin(unit * (double)a->contribution[k], WEIGHT_MAX);
    }
}

static void gather_work(void *arg, int ith, int nth) {
    (void)ith;
    (void)nth;
    trainer *t = arg;
    size_t n_embd = (size_t)t->data->n_embd;
    int64_t i;
    while ((i = pool_take(t->job->pool, 1)) < t->count)
        memcpy(t->x + (size_t)i * n_embd, t->data->x + (size_t)t->order[t->first + i] * n_embd,
               n_embd * sizeof(float));
}

static void gradient_work(void *arg, int ith, int nth) {
    (void)ith;
    (void)nth;
    trainer *t = arg;
    int64_t i;
    while ((i = pool_take(t->job->pool, 1)) < t->count)
        token_gradient(t, t->order[t->first + i], t->s + i * t->data->n_ff);
}

static void bias_work(void *arg, int ith, int nth) {
    (void)ith;
    (void)nth;
    trainer *t = arg;
    int64_t n_ff = t->data->n_ff, first;
    float *grad = t->grad + t->n1 + t->n2;
    while ((first = pool_take(t->job->pool, ELEMENTS)) < n_ff) {
        int64_t end = first + ELEMENTS < n_ff ? first + ELEMENTS : n_ff;
        memset(grad + first, 0, (size_t)(end - first) * sizeof *grad);
        for (int64_t k = 0; k < t->count; k++)
            for (int64_t i = first; i < end; i++) grad[i] += t->s[k * n_ff + i];
    }
}

static pi_status find_scores(trainer *t, pi_error *err) {
    int64_t n_embd = t->data->n_embd, n_ff = t->data->n_ff, rank = t->rank;
    gemm_args hidden = {.m = t->count,
                        .n = rank,
                        .n_k = n_embd,
                        .a = la_rows(t->x, n_embd),
                        .b = la_transposed(fc1_of(t), n_embd),
                        .c = t->h,
                        .ldc = rank};
    pi_status status = la_gemm(t->job, &hidden, err);
    if (status != PI_OK) return status;
    for (int64_t i = 0; i < t->count * rank; i++) t->h[i] = fmaxf(t->h[i], 0.0f);
    gemm_args scores = {.m = t->count,
                        .n = n_ff,
                        .n_k = rank,
                        .a = la_rows(t->h, rank),
                        .b = la_transposed(fc2_of(t), rank),
                        .c = t->s,
                        .ldc = n_ff};
    return la_gemm(t->job, &scores, err);
}

static pi_status find_gradients(trainer *t, pi_error *err) {
    int64_t n_embd = t->data->n_embd, n_ff = t->data->n_ff, rank = t->rank;
    gemm_args fc2 = {.m = n_ff,
                     .n = rank,
                     .n_k = t->count,
                     .a = la_transposed(t->s, n_ff),
                     .b = la_rows(t->h, rank),
                     .c = t->grad + t->n1,
                     .ldc = rank};
    gemm_args hidden = {.m = t->count,
                        .n = rank,
                        .n_k = n_ff,
                        .a = la_rows(t->s, n_ff),
                        .b = la_rows(fc2_of(t), rank),
                        .c = t->dh,
                        .ldc = rank};
    gemm_args fc1 = {.m = rank,
                     .n = n_embd,
                     .n_k = t->count,
                     .a = la_transposed(t->dh, rank),
                     .b = la_rows(t->x, n_embd),
                     .c = t->grad,
                     .ldc = n_embd};
    pi_status status = la_gemm(t->job, &fc2, err);
    if (status == PI_OK) status = la_gemm(t->job, &hidden, err);
    if (status != PI_OK) return status;
    for (int64_t i = 0; i < t->count * rank; i++)
        if (!(t->h[i] > 0)) t->dh[i] = 0;
    return la_gemm(t->job, &fc1, err);
}

/* AdamW for entries [first, end): w -= rate * (m / sqrt(v) + decay * w), moments corrected for
 * their initial bias. */
static void update(trainer *t, size_t first, size_t end, double rate, double decay) {
    float b1 = (float)BETA1, b2 = (float)BETA2, rest1 = 1 - b1, rest2 = 1 - b2;
    double correct1 = 1 - pow(BETA1, (double)t->step), correct2 = 1 - pow(BETA2, (double)t->step);
    float scale = (float)(rate / correct1), scale_v = (float)(1 / correct2);
    float keep = (float)(1 - rate * decay), epsilon = (float)EPSILON;
    float *restrict w = t->w, *restrict m = t->m, *restrict v = t->v;
    const float *restrict grad = t->grad;
    float unit = 1 / (float)t->count;
    for (size_t i = first; i < end; i++) {
        float g = grad[i] * unit;
        m[i] = b1 * m[i] + rest1 * g;
        v[i] = b2 * v[i] + rest2 * g * g;
        w[i] = keep * w[i] - scale * m[i] / (sqrtf(v[i] * scale_v) + epsilon);
    }
}

static void update_work(void *arg, int ith, int nth) {
    (void)ith;
    (void)nth;
    trainer *t = arg;
    double left = 1 - (double)(t->step - 1) / (double)t->steps;
    const size_t ends[3] = {t->n1, t->n1 + t->n2, t->n_params};
    const double rates[3] = {STEP * t->size1, STEP * t->size2, BIAS_STEP * GAIN};
    int64_t taken;
    while ((taken = pool_take(t->job->pool, ELEMENTS)) < (int64_t)t->n_params) {
        size_t at = (size_t)taken, end = at + ELEMENTS < t->n_params ? at + ELEMENTS : t->n_params;
        for (int part = 0; part < 3; part++) {
            size_t stop = end < ends[part] ? end : ends[part];
            if (at >= stop) continue;
            update(t, at, stop, rates[part] * left, part < 2 ? DECAY : 0);
            at = stop;
        }
    }
}

static pi_status train_batch(trainer *t, pi_error *err) {
    int threads = pool_size(t->job->pool);
    pool_run(t->job->pool, threads, gather_work, t);
    pi_status status = find_scores(t, err);
    if (status != PI_OK) return status;
    pool_run(t->job->pool, threads, gradient_work, t);
    pool_run(t->job->pool, threads, bias_work, t);
    status = find_gradients(t, err);
    if (status != PI_OK) return status;
    t->step++;
    pool_run(t->job->pool, threads, update_work, t);
    return PI_OK;
}

/* ---- scales ---------------------------------------------------------------------------------- */

static double root_mean_square(const float *w, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)w[i] * (double)w[i];
    return sqrt(sum / (double)n);
}

/* Scales hidden units to mean square 1; columns of fc2 compensate. */
static void scale_units(trainer *t) {
    int64_t n_embd = t->data->n_embd, n_ff = t->data->n_ff, rank = t->rank;
    for (int64_t k = 0; k < rank; k++) {
        double square = 0;
        for (int64_t i = 0; i < t->count; i++)
            square += (double)t->h[i * rank + k] * (double)t->h[i * rank + k];
        if (!(square > 0)) continue;
        float back = (float)sqrt(square / (double)t->count), scale = 1 / back;
        for (int64_t j = 0; j < n_embd; j++) fc1_of(t)[k * n_embd + j] *= scale;
        for (int64_t i = 0; i < n_ff; i++) fc2_of(t)[i * rank + k] *= back;
    }
}

/* Scales neurons' scores to deviation GAIN; biases give every neuron its frequency, for normally
 * distributed scores: the normal distribution function is close to the logistic function with
 * slope 1.702. */
static void scale_scores(trainer *t) {
    const float slope = 1.702f;
    int64_t n_ff = t->data->n_ff, rank = t->rank;
    for (int64_t i = 0; i < n_ff; i++) {
        double sum = 0, square = 0;
        for (int64_t k = 0; k < t->count; k++) {
            double s = (double)t->s[k * n_ff + i];
            sum += s;
            square += s * s;
        }
        double mean = sum / (double)t->count;
        double variance = square / (double)t->count - mean * mean;
        double scale = variance > 0 ? GAIN / sqrt(variance) : 0;
        for (int64_t k = 0; k < rank; k++) fc2_of(t)[i * rank + k] *= (float)scale;
        double fired = (double)(t->pairs->split[i] - t->pairs->start[i]) + 0.5;
        double share = fired / ((double)t->data->n_train + 1);
        bias_of(t)[i] = (float)(GAIN / (double)slope * log(share / (1 - share)) - mean * scale);
    }
}

/* Sets the scales from a sample of evenly spaced tokens. */
static pi_status find_scales(trainer *t, pi_error *err) {
    int64_t n = t->data->n_train;
    t->first = 0;
    t->count = n < BATCH ? n : BATCH;
    for (int64_t i = 0; i < t->count; i++) t->order[i] = (int32_t)(i * n / t->count);
    pool_run(t->job->pool, pool_size(t->job->pool), gather_work, t);
    pi_status status = find_scores(t, err);
    if (status != PI_OK) return status;
    scale_units(t);
    scale_scores(t);
    t->size1 = root_mean_square(fc1_of(t), t->n1);
    t->size2 = root_mean_square(fc2_of(t), t->n2);
    return PI_OK;
}

/* ---- epochs ---------------------------------------------------------------------------------- */

static pi_status train_epoch(trainer *t, rng *random, pi_error *err) {
    int64_t n = t->data->n_train;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(rng_u64(random) % (uint64_t)(i + 1));
        int32_t other = t->order[i];
        t->order[i] = t->order[j];
        t->order[j] = other;
    }
    pi_status status = PI_OK;
    for (t->first = 0; t->first < n && status == PI_OK; t->first += BATCH) {
        t->count = n - t->first < BATCH ? n - t->first : BATCH;
        status = train_batch(t, err);
    }
    return status;
}

/* Fraction of neurons that the current state selects on held-out tokens with fitted thresholds. */
static pi_status judge(trainer *t, double *selected, pi_error *err) {
    const predictor_data *data = t->data;
    hidden_args h = {data, fc1_of(t), t->rank, 0, data->n_train + data->n_held, true, t->hidden};
    pi_status status = hidden_make(t->job, &h, err);
    if (status != PI_OK) return status;
    score_source source = {.rows = fc2_of(t),
                           .ld_rows = t->rank,
                           .inputs = t->hidden,
                           .ld_inputs = t->rank,
                           .n_k = t->rank};
    predictor_quality quality;
    status = threshold_fit(t->job, data, t->pairs, &source, t->options->target, t->thresholds,
                           &quality, err);
    *selected = quality.selected;
    return status;
}

/* Chooses the better of two starts; stores it in w and best. */
static pi_status start(trainer *t, const lowrank_factors *from, double *best, pi_error *err) {
    double selected;
    pi_status status = relu_start_lifted(t->job, t->data, from, t->rank, fc1_of(t), fc2_of(t), err);
    if (status == PI_OK) status = find_scales(t, err);
    if (status == PI_OK) status = judge(t, best, err);
    if (status != PI_OK) return status;
    memcpy(t->best, t->w, t->n_params * sizeof *t->w);
    double size1 = t->size1, size2 = t->size2;
    relu_start_pairs(t->data, from, t->rank, fc1_of(t), fc2_of(t));
    status = find_scales(t, err);
    if (status == PI_OK) status = judge(t, &selected, err);
    if (status != PI_OK) return status;
    if (selected < *best) {
        *best = selected;
        memcpy(t->best, t->w, t->n_params * sizeof *t->w);
    } else {
        memcpy(t->w, t->best, t->n_params * sizeof *t->w);
        t->size1 = size1;
        t->size2 = size2;
    }
    return PI_OK;
}

static pi_status train(trainer *t, const lowrank_factors *from, pi_error *err) {
    int epochs = t->options->epochs > 0 ? t->options->epochs : EPOCHS_DEFAULT, since = 0;
    int64_t n = t->data->n_train;
    double best = 0, selected = 0;
    pi_status status = start(t, from, &best, err);
    t->steps = epochs * ((n + BATCH - 1) / BATCH);
    for (int64_t i = 0; i < n; i++) t->order[i] = (int32_t)i;
    rng random;
    rng_seed(&random, t->options->seed);
    for (int e = 0; e < epochs && since < EPOCHS_PATIENT && status == PI_OK; e++) {
        status = train_epoch(t, &random, err);
        if (status == PI_OK) status = judge(t, &selected, err);
        if (status != PI_OK) break;
        since++;
        if (selected < best * PROGRESS) since = 0;
        if (selected >= best) continue;
        best = selected;
        memcpy(t->best, t->w, t->n_params * sizeof *t->w);
    }
    return status;
}

pi_status relu_mlp_train(la_job *job, const predictor_data *data, const neuron_pairs *pairs,
                         const relu_mlp_options *options, lowrank_factors *factors, pi_error *err) {
    trainer t = {.job = job, .data = data, .pairs = pairs, .options = options};
    t.rank = options->rank;
    size_t n1 = (size_t)(t.rank * data->n_embd), n2 = (size_t)(t.rank * data->n_ff);
    lowrank_factors out = {.rank = t.rank};
    out.fc1 = mem_alloc(n1 * sizeof(float));
    out.fc2 = mem_alloc(n2 * sizeof(float));
    pi_status status = PI_OK;
    if (!out.fc1 || !out.fc2)
        status = error_nomem(err, (n1 + n2) * sizeof(float), "training a predictor");
    if (status == PI_OK) status = trainer_make(&t, err);
    if (status == PI_OK) {
        find_mean_contribution(&t);
        double tokens = (double)(data->n_train + data->n_held), epochs = EPOCHS_DEFAULT;
        double product = 2 * (double)t.rank * (double)(data->n_embd + data->n_ff);
        la_job_stage(job, options->to, product * tokens * 4 * epochs);
        status = train(&t, factors, err);
    }
    if (status == PI_OK) {
        memcpy(out.fc1, t.best, n1 * sizeof(float));
        memcpy(out.fc2, t.best + n1, n2 * sizeof(float));
        lowrank_free(factors);
        *factors = out;
    } else {
        lowrank_free(&out);
    }
    trainer_free(&t);
    return status;
}
