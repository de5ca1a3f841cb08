/* prepare_head.c: a predictor of the output head: a sketch of the output matrix W, whose products
 * approximate the logits.
 *
 * The sketch is fc2 fc1 ~ W, of the rank and the types that read the fewest bytes per token. It is
 * the best approximation for the hidden vectors of the calibration text (lowrank.c). A token of the
 * vocabulary is a candidate if its score is within a distance of the best score; logits of
 * candidates are computed, the others keep their scores. So every distance gives a distribution,
 * and its KL divergence from the exact one is the loss that bounds the choice, together with the
 * fraction of positions whose most likely token differs. Both fall as the distance grows.
 *
 * One pass over the logits of a sample evaluates all distances: tokens are sorted into bins by
 * their scores' distance from the best one, and a distance that ends with bin b has the logits of
 * bins 0 to b and the scores of the others. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "affix.h"
#include "mem.h"
#include "predictor_fit.h"
#include "prepare.h"

enum {
    RANK_STEP = 32, /* blocks of the types below */
    RANK_MAX = 512, /* the factors of a vocabulary of 150k then take 300 MB each */
    GROUP = 32,     /* positions per product */
    SAMPLE = 1024,  /* positions for the choice */
    BINS = 96       /* distances that are tried, and a last bin for all others */
};
static const float bin_width = 0.25f; /* logits */

/* Bound of both measures of the loss, as a fraction of max_loss; the rest is for the layers. */
static const double loss_share = 0.25;
/* Above this fraction of the head's bytes, a sketch is not worth its loss. */
static const double most_bytes = 0.5;

/* Effects of all distances on one position, or sums over positions. */
typedef struct bin_quality {
    double rows[BINS];    /* candidates */
    double kl[BINS];      /* KL divergence of the result from the exact distribution */
    double differs[BINS]; /* 1: the most likely token differs */
} bin_quality;

typedef struct head_fit {
    preparation *p;
    la_job job;
    float scale;       /* of logits */
    const float *bias; /* [n_vocab] or NULL */
    int64_t n_embd, n_vocab;
    float *w;              /* [n_vocab][n_embd] */
    lowrank_factors whole; /* of the largest rank */
    /* The candidate: the factors of a rank, as stored. */
    int64_t rank;
    float *fc1, *fc2; /* [rank][n_embd], [n_vocab][rank]; allocated for the largest rank */
    /* A group of positions. */
    float *x, *hidden;      /* [GROUP][n_embd], [GROUP][rank] */
    float *logits, *scores; /* [GROUP][n_vocab] */
    bin_quality *quality;   /* [GROUP] */
    int64_t n_group;
} head_fit;

bool prepare_is_sketch(const char *name) {
    return starts_with(name, "output_sketch.");
}

static void release(head_fit *f) {
    la_job_free(&f->job);
    lowrank_free(&f->whole);
    mem_free(f->w);
    mem_free(f->fc1);
    mem_free(f->fc2);
    mem_free(f->x);
    mem_free(f->hidden);
    mem_free(f->logits);
    mem_free(f->scores);
    mem_free(f->quality);
}

static pi_status allocate(head_fit *f, int64_t rank, pi_error *err) {
    size_t n_embd = (size_t)f->n_embd, n_vocab = (size_t)f->n_vocab, r = (size_t)rank;
    f->fc1 = mem_calloc(r * n_embd, sizeof(float));
    f->fc2 = mem_calloc(r * n_vocab, sizeof(float));
    f->x = mem_calloc(GROUP * n_embd, sizeof(float));
    f->hidden = mem_calloc(GROUP * r, sizeof(float));
    f->logits = mem_calloc(GROUP * n_vocab, sizeof(float));
    f->scores = mem_calloc(GROUP * n_vocab, sizeof(float));
    f->quality = mem_calloc(GROUP, sizeof *f->quality);
    if (f->fc1 && f->fc2 && f->x && f->hidden && f->logits && f->scores && f->quality) return PI_OK;
    return error_nomem(err, (r * n_embd + (r + 2 * GROUP) * n_vocab) * sizeof(float),
                       "a predictor of the output head");
}

/* ---- quality --------------------------------------------------------------------------------- */

/* The tokens of a bin: best ones, and sums of exp(value - the position's largest logit). */
typedef struct token_bin {
    int64_t n;
    double logits, scores;
    double moved;                   /* exp(logit - largest) * (logit - score) */
    int64_t best_logit, best_score; /* tokens; -1: the bin is empty */
} token_bin;

static float with_bias(const head_fit *f, float product, int64_t token) {
    return product * f->scale + (f->bias ? f->bias[token] : 0);
}

static float with_cap(const head_fit *f, float logit) {
    float cap = f->p->model->hp.logit_softcap;
    return cap > 0 ? cap * tanhf(logit / cap) : logit;
}

/* The token with the larger value; -1: none. */
static int64_t better(const float *values, int64_t a, int64_t b) {
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return values[b] > values[a] ? b : a;
}

/* Sorts the vocabulary into bins. Distances count before the soft cap. Products become logits and
 * scores. Returns the most likely token. */
static int64_t fill_bins(const head_fit *f, float *logits, float *scores, token_bin *bins) {
    int64_t n = f->n_vocab, top = 0;
    float best = -INFINITY;
    for (int b = 0; b <= BINS; b++) bins[b] = (token_bin){.best_logit = -1, .best_score = -1};
    for (int64_t i = 0; i < n; i++) {
        scores[i] = with_bias(f, scores[i], i);
        logits[i] = with_cap(f, with_bias(f, logits[i], i));
        if (scores[i] > best) best = scores[i];
        top = better(logits, top, i);
    }
    for (int64_t i = 0; i < n; i++) {
        float gap = best - scores[i];
        token_bin *bin = &bins[gap < BINS * bin_width ? (int)(gap / bin_width) : BINS];
        scores[i] = with_cap(f, scores[i]);
        double weight = exp((double)logits[i] - (double)logits[top]);
        bin->n++;
        bin->logits += weight;
        bin->scores += exp((double)scores[i] - (double)logits[top]);
        if (weight > 0) bin->moved += weight * ((double)logits[i] - (double)scores[i]);
        bin->best_logit = better(logits, bin->best_logit, i);
        bin->best_score = better(scores, bin->best_score, i);
    }
    return top;
}

/* A distance that ends with bin b: KL = log(Z' / Z) + sum over the others of p (logit - score), Z'
 * the sum of exp over logits of candidates and scores of the others. */
static void judge_position(const head_fit *f, float *logits, float *scores, bin_quality *out) {
    token_bin bins[BINS + 1];
    int64_t top = fill_bins(f, logits, scores, bins), best_logit[BINS], best_score = -1, n = 0;
    double all = 0, kept = 0, left = 0, moved = 0;
    for (int b = 0; b <= BINS; b++) {
        all += bins[b].logits;
        n += bins[b].n;
        if (b == BINS) break;
        best_logit[b] = better(logits, b > 0 ? best_logit[b - 1] : -1, bins[b].best_logit);
        out->rows[b] = (double)n / (double)f->n_vocab;
    }
    kept = all;
    for (int b = BINS - 1; b >= 0; b--) { /* bin b + 1 leaves the candidates */
        const token_bin *bin = &bins[b + 1];
        kept -= bin->logits;
        left += bin->scores;
        moved += bin->moved;
        best_score = better(scores, best_score, bin->best_score);
        int64_t a = best_logit[b], c = best_score;
        bool other = c >= 0 && (a < 0 || scores[c] > logits[a]);
        out->kl[b] = log((kept + left) / all) + moved / all;
        out->differs[b] = (other ? c : a) != top;
    }
}

static void judge_positions(void *arg, int ith, int nth) {
    head_fit *f = arg;
    (void)ith;
    (void)nth;
    for (int64_t i; (i = pool_take(f->p->pool, 1)) < f->n_group;)
        judge_position(f, f->logits + i * f->n_vocab, f->scores + i * f->n_vocab, &f->quality[i]);
}

/* out [GROUP][n_out] = in [GROUP][n_in] times the transpose of w [n_out][n_in]. */
static pi_status multiply(head_fit *f, const float *in, const float *w, int64_t n_in, int64_t n_out,
                          float *out, pi_error *err) {
    gemm_args g = {.m = f->n_group,
                   .n = n_out,
                   .n_k = n_in,
                   .a = la_rows(in, n_in),
                   .b = la_transposed(w, n_in),
                   .c = out,
                   .ldc = n_out};
    return la_gemm(&f->job, &g, err);
}

/* Mean quality of the current candidate over n positions, evenly spread from position `from` to
 * `end` of the calibration text. */
static pi_status judge_candidate(head_fit *f, const float *x, int64_t from, int64_t end, int64_t n,
                                 double to, bin_quality *out, pi_error *err) {
    pi_status status = PI_OK;
    double operations = 2 * (double)f->n_vocab * (double)(f->n_embd + f->rank);
    if (n > end - from) n = end - from;
    la_job_stage(&f->job, to, operations * (double)n);
    *out = (bin_quality){0};
    for (int64_t at = 0; at < n && status == PI_OK; at += GROUP) {
        f->n_group = n - at < GROUP ? n - at : GROUP;
        for (int64_t i = 0; i < f->n_group; i++)
            memcpy(f->x + i * f->n_embd, x + (from + (at + i) * (end - from) / n) * f->n_embd,
                   (size_t)f->n_embd * sizeof *x);
        status = multiply(f, f->x, f->w, f->n_embd, f->n_vocab, f->logits, err);
        if (status == PI_OK) status = multiply(f, f->x, f->fc1, f->n_embd, f->rank, f->hidden, err);
        if (status == PI_OK)
            status = multiply(f, f->hidden, f->fc2, f->rank, f->n_vocab, f->scores, err);
        if (status != PI_OK) return status;
        pool_run(f->p->pool, pool_size(f->p->pool), judge_positions, f);
        for (int64_t i = 0; i < f->n_group; i++)
            for (int b = 0; b < BINS; b++) {
                out->rows[b] += f->quality[i].rows[b] / (double)n;
                out->kl[b] += f->quality[i].kl[b] / (double)n;
                out->differs[b] += f->quality[i].differs[b] / (double)n;
            }
    }
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static size_t row_bytes(quant_type type, int64_t n) {
    size_t n_bytes = 0;
    bool whole = quant_row_bytes(type, (uint64_t)n, &n_bytes);
    assert(whole);
    (void)whole;
    return n_bytes;
}

static size_t sketch_bytes(const head_fit *f, const prepare_head *h) {
    return (size_t)h->rank * row_bytes(h->type_fc1, f->n_embd) +
           (size_t)f->n_vocab * row_bytes(h->type_fc2, h->rank);
}

/* The factors of h as stored, decoded. With `keeps` the stored bytes go to h. */
static pi_status round_factors(head_fit *f, prepare_head *h, bool keeps, pi_error *err) {
    void *fc1 = NULL, *fc2 = NULL;
    float_rows rows = {f->whole.fc1, h->rank, f->n_embd, f->n_embd};
    pi_status status = rows_pack(&f->job, h->type_fc1, &rows, &fc1, err);
    if (status == PI_OK) {
        rows.data = f->fc1;
        rows_unpack(&f->job, h->type_fc1, fc1, &rows);
        rows = (float_rows){f->whole.fc2, f->n_vocab, h->rank, f->whole.rank};
        status = rows_pack(&f->job, h->type_fc2, &rows, &fc2, err);
    }
    if (status == PI_OK) {
        rows = (float_rows){f->fc2, f->n_vocab, h->rank, h->rank};
        rows_unpack(&f->job, h->type_fc2, fc2, &rows);
        f->rank = h->rank;
    }
    if (keeps && status == PI_OK) {
        h->fc1 = fc1;
        h->fc2 = fc2;
        return PI_OK;
    }
    mem_free(fc1);
    mem_free(fc2);
    return status;
}

/* The shortest distance within the bounds; BINS: none is. */
static int choose_bin(const preparation *p, const bin_quality *q) {
    double most = loss_share * p->options->max_loss;
    int b = BINS;
    while (b > 0 && q->kl[b - 1] <= most && q->differs[b - 1] <= most) b--;
    return b;
}

/* Tries ranks and types in ascending order, until the sketch alone takes as many bytes as the best
 * one with its candidates. */
static pi_status choose(head_fit *f, const float *x, pi_error *err) {
    preparation *p = f->p;
    int64_t n_train = (int64_t)(p->text.n_windows - p->text.n_held) * p->text.n_window;
    double whole = (double)p->model->t[ROLE_OUTPUT].n_bytes;
    pi_status status = PI_OK;
    p->head = (prepare_head){.bytes = 1};
    for (int64_t rank = RANK_STEP; rank <= f->whole.rank; rank += rank < 128 ? 32 : 64) {
        for (int i = 0; i < 2; i++) {
            prepare_head h = {
                .rank = rank, .type_fc1 = QUANT_Q8_0, .type_fc2 = i ? QUANT_Q8_0 : QUANT_Q4_0};
            bin_quality q;
            h.bytes = (double)sketch_bytes(f, &h) / whole;
            if (h.bytes >= p->head.bytes) continue;
            status = round_factors(f, &h, false, err);
            double to = f->job.to + (1 - f->job.to) / 8;
            if (status == PI_OK) status = judge_candidate(f, x, 0, n_train, SAMPLE, to, &q, err);
            if (status != PI_OK) return status;
            int b = choose_bin(p, &q);
            if (b == BINS) continue;
            h.distance = (float)(b + 1) * bin_width;
            h.bytes += q.rows[b];
            if (h.bytes < p->head.bytes) p->head = h;
        }
    }
    return PI_OK;
}

/* The quality of the choice on held-out positions. */
static pi_status judge_choice(head_fit *f, const float *x, pi_error *err) {
    preparation *p = f->p;
    prepare_head *h = &p->head;
    int64_t n = prepare_text_count(&p->text);
    int64_t n_train = n - (int64_t)p->text.n_held * p->text.n_window;
    bin_quality q;
    pi_status status = round_factors(f, h, true, err);
    if (status == PI_OK) status = judge_candidate(f, x, n_train, n, SAMPLE, 1, &q, err);
    if (status != PI_OK) return status;
    int b = (int)(h->distance / bin_width) - 1;
    h->rows = q.rows[b];
    h->same = 1 - q.differs[b];
    h->bytes = (double)sketch_bytes(f, h) / (double)p->model->t[ROLE_OUTPUT].n_bytes + h->rows;
    return PI_OK;
}

/* ---- the fit --------------------------------------------------------------------------------- */

/* The head's input, in place. */
static void norm_rows(const model *m, const cpu_kernels *kernels, float *x, int64_t n) {
    const float *weight = m->t[ROLE_OUTPUT_NORM].data, *bias = m->t[ROLE_OUTPUT_NORM_BIAS].data;
    int64_t n_embd = m->hp.n_embd;
    for (int64_t i = 0; weight && i < n; i++, x += n_embd) {
        if (m->hp.norm == NORM_RMS) {
            kernels->rms_norm(x, weight, x, n_embd, m->hp.norm_eps);
            if (bias) kernels->add(x, bias, x, n_embd);
        } else if (m->hp.norm == NORM_LAYER) {
            kernels->layer_norm(x, weight, bias, x, n_embd, m->hp.norm_eps);
        }
    }
}

static bool step_fit(void *user, const char *stage, double fraction) {
    (void)stage;
    return prepare_step(user, "fitting the output head", fraction, NULL) == PI_OK;
}

static pi_status fit(head_fit *f, float *x, pi_error *err) {
    preparation *p = f->p;
    const model *m = p->model;
    model_tensor output = m->t[ROLE_OUTPUT];
    progress steps = {.fn = step_fit, .user = p};
    int64_t rank = f->n_embd / 2 / RANK_STEP * RANK_STEP;
    if (rank > RANK_MAX) rank = RANK_MAX;
    output.scale = 1; /* the engine scales the products */
    pi_status status = la_job_init(&f->job, p->pool, &steps, err);
    if (status != PI_OK) return status;
    f->w = mem_calloc((size_t)f->n_vocab * (size_t)f->n_embd, sizeof *f->w);
    if (!f->w) return error_nomem(err, (size_t)(f->n_vocab * f->n_embd) * 4, "the output matrix");
    prepare_decode_rows(p->pool, &output, NULL, f->w);
    predictor_data data = {.n_embd = f->n_embd,
                           .n_ff = f->n_vocab,
                           .n_train = (int64_t)(p->text.n_windows - p->text.n_held) *
                                      p->text.n_window,
                           .x = x,
                           .gate = f->w,
                           .unbiased = true};
    status = lowrank_factorise(&f->job, &data, rank, p->options->seed, 0.3, &f->whole, err);
    if (status == PI_OK) status = allocate(f, f->whole.rank, err);
    if (status == PI_OK) status = choose(f, x, err);
    if (status != PI_OK) return status;
    if (p->head.rank > 0 && p->head.bytes <= most_bytes) return judge_choice(f, x, err);
    notify(&p->notifier, "no predictor of the output head: %s: the dense head is computed",
           p->head.rank > 0 ? "it would save less than half of the head's bytes"
                            : "none is within the allowed loss");
    p->head = (prepare_head){0};
    return PI_OK;
}

pi_status prepare_fit_head(preparation *p, const cpu_kernels *kernels, float *x, pi_error *err) {
    const model *m = p->model;
    head_fit f = {.p = p,
                  .scale = m->t[ROLE_OUTPUT].scale * m->hp.logit_scale,
                  .bias = m->t[ROLE_OUTPUT_BIAS].data,
                  .n_embd = m->hp.n_embd,
                  .n_vocab = m->hp.n_vocab};
    const char *why = m->sparse.head.kind == HEAD_PROFILER ? "the model has one"
                      : f.n_embd < 2 * RANK_STEP || f.n_embd % RANK_STEP
                          ? "n_embd must be a multiple of 32, and 64 or more"
                          : NULL;
    if (why) {
        notify(&p->notifier, "no predictor of the output head is made: %s", why);
        return PI_OK;
    }
    norm_rows(m, kernels, x, prepare_text_count(&p->text));
    pi_status status = fit(&f, x, err);
    release(&f);
    return status;
}
