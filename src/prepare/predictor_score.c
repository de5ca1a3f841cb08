/* predictor_score.c: scores and selections of a predictor, for fitting and for measuring an
 * existing predictor. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "mem.h"
#include "predictor_fit.h"

/* ---- scores, neuron by neuron ---------------------------------------------------------------- */

enum {
    VISIT_FLOATS = 2 << 20, /* scores that a thread holds: 8 MiB */
    VISIT_STEP = CPU_GEMM_ROWS,
    VISIT_ROWS_MAX = 20 * VISIT_STEP
};

typedef struct visit_run {
    la_job *job;
    const score_source *source;
    score_range range;
    score_fn fn;
    void *arg;
    int64_t visited; /* neurons */
    int64_t rows;    /* neurons per iteration */
    float *scores;   /* [threads][rows][tokens] */
    float *signs;    /* [threads][rows][n_k], with bits only */
} visit_run;

static void expand_signs(const uint8_t *bits, int64_t n, float *out) {
    for (int64_t k = 0; k < n; k++) out[k] = bits[k / 8] >> (k % 8) & 1 ? 1.0f : -1.0f;
}

static void visit_work(void *arg, int ith, int nth) {
    (void)nth;
    visit_run *v = arg;
    const score_source *s = v->source;
    int64_t tokens = v->range.t1 - v->range.t0, stride = v->range.stride, first;
    float *scores = v->scores + (int64_t)ith * v->rows * tokens;
    float *signs = v->signs ? v->signs + (int64_t)ith * v->rows * s->n_k : NULL;
    while ((first = pool_take(v->job->pool, v->rows)) < v->visited) {
        int64_t rows = v->visited - first < v->rows ? v->visited - first : v->rows;
        const float *a = signs;
        if (signs) {
            for (int64_t i = 0; i < rows; i++)
                expand_signs(s->bits + (first + i) * stride * (s->n_k / 8), s->n_k,
                             signs + i * s->n_k);
        } else {
            a = s->rows + first * stride * s->ld_rows;
        }
        gemm_args g = {.m = rows,
                       .n = tokens,
                       .n_k = s->n_k,
                       .a = la_rows(a, signs ? s->n_k : stride * s->ld_rows),
                       .b = la_transposed(s->inputs + v->range.t0 * s->ld_inputs, s->ld_inputs),
                       .c = scores,
                       .ldc = tokens};
        la_gemm_thread(v->job, ith, &g);
        for (int64_t i = 0; i < rows; i++) {
            if (!la_job_step(v->job, ith, 0)) return;
            v->fn(v->arg, (first + i) * stride, scores + i * tokens);
        }
    }
}

pi_status scores_visit(la_job *job, const score_source *source, score_range range, score_fn fn,
                       void *arg, pi_error *err) {
    int64_t threads = pool_size(job->pool), tokens = range.t1 - range.t0;
    visit_run v = {.job = job, .source = source, .range = range, .fn = fn, .arg = arg};
    v.visited = (range.n_neurons + range.stride - 1) / range.stride;
    enum { TURNS = 4 }; /* minimum iterations of each thread, so that all threads end together */
    v.rows = v.visited / (TURNS * threads);
    if (v.rows > VISIT_ROWS_MAX) v.rows = VISIT_ROWS_MAX;
    if (v.rows > VISIT_FLOATS / tokens) v.rows = VISIT_FLOATS / tokens;
    v.rows = v.rows / VISIT_STEP * VISIT_STEP;
    if (v.rows < VISIT_STEP) v.rows = VISIT_STEP;

    size_t bytes = (size_t)(threads * v.rows * tokens) * sizeof(float);
    size_t sign_bytes = source->bits ? (size_t)(threads * v.rows * source->n_k) * sizeof(float) : 0;
    v.scores = mem_map(bytes);
    if (sign_bytes) v.signs = mem_map(sign_bytes);
    pi_status status = PI_OK;
    if (!v.scores || (sign_bytes && !v.signs)) {
        status = error_nomem(err, bytes + sign_bytes, "predictor scores");
    } else {
        pool_run(job->pool, (int)threads, visit_work, &v);
        status = la_job_status(job, err);
    }
    mem_unmap(v.scores, bytes);
    mem_unmap(v.signs, sign_bytes);
    return status;
}

/* ---- rows of a type -------------------------------------------------------------------------- */

typedef struct rows_run {
    la_job *job;
    const quant_traits *traits;
    int64_t rows, n, ld;
    size_t row_bytes;
    char *packed;
    const float *from; /* packing */
    float *to;         /* unpacking */
} rows_run;

enum { ROWS_AT_A_TIME = 16 };

static void rows_work(void *arg, int ith, int nth) {
    (void)nth;
    rows_run *r = arg;
    int64_t first;
    while ((first = pool_take(r->job->pool, ROWS_AT_A_TIME)) < r->rows) {
        if (!la_job_step(r->job, ith, 0)) return;
        for (int64_t i = first; i < r->rows && i < first + ROWS_AT_A_TIME; i++) {
            char *packed = r->packed + (size_t)i * r->row_bytes;
            if (r->from) r->traits->quantize(r->from + i * r->ld, packed, r->n, NULL);
            if (r->to) r->traits->dequantize(packed, r->to + i * r->ld, r->n);
        }
    }
}

pi_status rows_pack(la_job *job, quant_type type, const float_rows *from, void **out,
                    pi_error *err) {
    size_t row_bytes = 0;
    bool whole = quant_row_bytes(type, (uint64_t)from->n, &row_bytes);
    assert(whole);
    (void)whole;
    size_t bytes = row_bytes * (size_t)from->rows;
    *out = mem_alloc(bytes);
    if (!*out) return error_nomem(err, bytes, "a predictor");
    rows_run r = {.job = job,
                  .traits = quant_find((uint32_t)type),
                  .rows = from->rows,
                  .n = from->n,
                  .ld = from->ld,
                  .row_bytes = row_bytes,
                  .packed = *out,
                  .from = from->data};
    pool_run(job->pool, pool_size(job->pool), rows_work, &r);
    pi_status status = la_job_status(job, err);
    if (status != PI_OK) {
        mem_free(*out);
        *out = NULL;
    }
    return status;
}

void rows_unpack(la_job *job, quant_type type, const void *packed, const float_rows *to) {
    rows_run r = {.job = job,
                  .traits = quant_find((uint32_t)type),
                  .rows = to->rows,
                  .n = to->n,
                  .ld = to->ld,
                  .packed = (char *)packed,
                  .to = to->data};
    bool whole = quant_row_bytes(type, (uint64_t)to->n, &r.row_bytes);
    assert(whole);
    (void)whole;
    pool_run(job->pool, pool_size(job->pool), rows_work, &r);
}

/* ---- a fit's scores -------------------------------------------------------------------------- */

pi_status hidden_make(la_job *job, const hidden_args *h, pi_error *err) {
    gemm_args g = {.m = h->t1 - h->t0,
                   .n = h->rank,
                   .n_k = h->data->n_embd,
                   .a = la_rows(h->data->x + h->t0 * h->data->n_embd, h->data->n_embd),
                   .b = la_transposed(h->fc1, h->data->n_embd),
                   .c = h->out,
                   .ldc = h->rank};
    pi_status status = la_gemm(job, &g, err);
    if (status != PI_OK || !h->relu) return status;
    for (int64_t i = 0; i < g.m * g.n; i++) h->out[i] = fmaxf(h->out[i], 0.0f);
    return status;
}

/* A fit, decoded for tokens [t0, t1): the arguments of scores_visit and their memory. */
typedef struct decoded_fit {
    score_source source;
    float *fc1, *fc2, *hidden;
} decoded_fit;

static void decoded_free(decoded_fit *d) {
    mem_free(d->fc1);
    mem_free(d->fc2);
    mem_free(d->hidden);
}

static pi_status decode_fit(la_job *job, const predictor_fit *fit, const predictor_data *data,
                            int64_t t0, int64_t t1, decoded_fit *out, pi_error *err) {
    *out = (decoded_fit){0};
    if (fit->kind == PREDICTOR_SIGN) {
        out->source = (score_source){.bits = fit->sign,
                                     .inputs = data->x + t0 * data->n_embd,
                                     .ld_inputs = data->n_embd,
                                     .n_k = data->n_embd};
        return PI_OK;
    }
    size_t rank = (size_t)fit->rank, n_embd = (size_t)data->n_embd, n_ff = (size_t)data->n_ff;
    size_t tokens = (size_t)(t1 - t0);
    out->fc1 = mem_alloc(rank * n_embd * sizeof(float));
    out->fc2 = mem_alloc(rank * n_ff * sizeof(float));
    out->hidden = mem_alloc(rank * tokens * sizeof(float));
    if (!out->fc1 || !out->fc2 || !out->hidden) {
        decoded_free(out);
        return error_nomem(err, rank * (n_embd + n_ff + tokens) * sizeof(float), "a predictor");
    }
    float_rows fc1 = {out->fc1, fit->rank, data->n_embd, data->n_embd};
    float_rows fc2 = {out->fc2, data->n_ff, fit->rank, fit->rank};
    rows_unpack(job, fit->type_fc1, fit->fc1, &fc1);
    rows_unpack(job, fit->type_fc2, fit->fc2, &fc2);
    out->source = (score_source){.rows = out->fc2,
                                 .ld_rows = fit->rank,
                                 .inputs = out->hidden,
                                 .ld_inputs = fit->rank,
                                 .n_k = fit->rank};
    hidden_args h = {data,       out->fc1, fit->rank, t0, t1, fit->kind == PREDICTOR_RELU_MLP,
                     out->hidden};
    pi_status status = hidden_make(job, &h, err);
    if (status != PI_OK) decoded_free(out);
    return status;
}

/* ---- quality --------------------------------------------------------------------------------- */

typedef struct measure_run {
    const float *bias;
    const int64_t *start; /* [n_ff + 1] pairs in [t0, t1), by neurons */
    const int32_t *token; /* relative to t0 */
    const float *contribution;
    int64_t tokens;
    struct neuron_quality {
        int64_t selected, kept;
        double contribution;
    } * neuron; /* [n_ff] */
} measure_run;

static void measure_visit(void *arg, int64_t i, const float *scores) {
    measure_run *r = arg;
    struct neuron_quality q = {0};
    float bias = r->bias[i];
    for (int64_t t = 0; t < r->tokens; t++) q.selected += scores[t] + bias >= 0;
    for (int64_t k = r->start[i]; k < r->start[i + 1]; k++) {
        if (!(scores[r->token[k]] + bias >= 0)) continue;
        q.kept++;
        q.contribution += (double)r->contribution[k];
    }
    r->neuron[i] = q;
}

pi_status quality_measure(la_job *job, const predictor_data *data, const score_source *source,
                          const float *bias, const int64_t range[2], predictor_quality *out,
                          pi_error *err) {
    /* The range as a separate active set, by neurons; all its tokens count as training tokens. */
    const active_set *a = data->active;
    int64_t t0 = range[0], tokens = range[1] - t0;
    active_set part = *a;
    part.start = a->start + t0;
    part.n_tokens = tokens;
    size_t n_ff = (size_t)data->n_ff;
    int64_t base = a->n_tokens > 0 ? a->start[t0] : 0;
    neuron_pairs pairs;
    int64_t *start = mem_alloc(((size_t)tokens + 1) * sizeof *start);
    measure_run r = {.bias = bias, .tokens = tokens};
    r.neuron = mem_calloc(n_ff, sizeof *r.neuron);
    if (!start || !r.neuron) {
        mem_free(start);
        mem_free(r.neuron);
        return error_nomem(err, n_ff * sizeof *r.neuron, "the quality of a predictor");
    }
    for (int64_t t = 0; t <= tokens; t++) start[t] = part.start[t] - base;
    part.start = start;
    part.neuron = a->neuron + base;
    part.contribution = a->contribution + base;
    predictor_data all = *data;
    all.active = &part;
    all.n_train = tokens;
    all.n_held = 0;
    pi_status status = neuron_pairs_make(&all, &pairs, err);
    if (status == PI_OK) {
        r.start = pairs.start;
        r.token = pairs.token;
        r.contribution = pairs.contribution;
        score_range visit = {data->n_ff, 1, 0, tokens};
        status = scores_visit(job, source, visit, measure_visit, &r, err);
    }
    if (status == PI_OK) {
        double selected = 0, kept = 0, contribution = 0, total = 0;
        for (size_t i = 0; i < n_ff; i++) {
            selected += (double)r.neuron[i].selected;
            kept += (double)r.neuron[i].kept;
            contribution += r.neuron[i].contribution;
        }
        int64_t fired = start[tokens];
        for (int64_t k = 0; k < fired; k++) total += (double)part.contribution[k];
        double cells = (double)n_ff * (double)tokens;
        *out = (predictor_quality){.recall = fired > 0 ? kept / (double)fired : 1,
                                   .contribution_recall = total > 0 ? contribution / total : 1,
                                   .selected = selected / cells,
                                   .active = (double)fired / cells};
    }
    if (status == PI_OK || pairs.start) neuron_pairs_free(&pairs);
    mem_free(start);
    mem_free(r.neuron);
    return status;
}

pi_status predictor_measure(pool *p, const predictor_fit *fit, const predictor_data *data,
                            int64_t t0, int64_t t1, predictor_quality *out, pi_error *err) {
    assert(fit->kind != PREDICTOR_NONE && 0 <= t0 && t0 < t1);
    la_job job;
    decoded_fit d;
    pi_status status = la_job_init(&job, p, NULL, err);
    if (status != PI_OK) return status;
    status = decode_fit(&job, fit, data, t0, t1, &d, err);
    if (status == PI_OK) {
        const int64_t range[2] = {t0, t1};
        status = quality_measure(&job, data, &d.source, fit->bias, range, out, err);
        decoded_free(&d);
    }
    la_job_free(&job);
    return status;
}
