/* lowrank.c: the best approximation of a gate by a product of two thin matrices, for the
 * distribution of the inputs.
 *
 * With C the covariance of the inputs, E |W (x - m) - A B (x - m)|^2 is least, over all A of r
 * columns and B of r rows, for A = U, B = U^T W, where the columns of U are the first r
 * eigenvectors of W C W^T: the left singular vectors of W S with S S^T = C. Means need no rank: the
 * neurons' biases compensate for them; without biases C has the second moments, m = 0. U is found
 * by subspace iteration from random signs (Halko, Martinsson and Tropp 2011, algorithm 4.4, and 5.3
 * for the last step): Q <- orth(W C W^T Q), a few times, then the eigenvectors of the small matrix
 * Q^T W C W^T Q turn Q into U. The first columns are the solutions of smaller ranks.
 *
 * C from few samples is shrunk towards a multiple of the identity by the amount with the least mean
 * squared error (Ledoit and Wolf 2004), so that directions missing from the samples keep some
 * variance.
 *
 * Vectors are kept as rows: Q^T is [rank][n_ff]. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "predictor_fit.h"
#include "rng.h"

enum {
    OVERSAMPLE = 16, /* extra vectors, so that the last component also converges */
    ITERATIONS = 3
};

typedef struct lowrank_run {
    la_job *job;
    const predictor_data *data;
    int64_t wide;        /* rank + OVERSAMPLE, at most n_embd and n_ff */
    float *covariance;   /* [n_embd][n_embd] */
    float *mean;         /* [n_embd] */
    float *q;            /* [wide][n_ff] */
    float *g, *h;        /* [wide][n_embd]: Q^T W, Q^T W C */
    float *gram;         /* [wide][wide] */
    double *eigenvector; /* [wide][wide] */
    double *eigenvalue;  /* [wide] */
} lowrank_run;

void lowrank_free(lowrank_factors *f) {
    mem_free(f->fc1);
    mem_free(f->fc2);
    *f = (lowrank_factors){0};
}

static void run_free(lowrank_run *r) {
    mem_free(r->covariance);
    mem_free(r->mean);
    mem_free(r->q);
    mem_free(r->g);
    mem_free(r->h);
    mem_free(r->gram);
    mem_free(r->eigenvector);
    mem_free(r->eigenvalue);
}

static pi_status run_make(lowrank_run *r, pi_error *err) {
    size_t n_embd = (size_t)r->data->n_embd, n_ff = (size_t)r->data->n_ff, wide = (size_t)r->wide;
    r->covariance = mem_alloc(n_embd * n_embd * sizeof(float));
    r->mean = mem_calloc(n_embd, sizeof(float));
    r->q = mem_alloc(wide * n_ff * sizeof(float));
    r->g = mem_alloc(wide * n_embd * sizeof(float));
    r->h = mem_alloc(wide * n_embd * sizeof(float));
    r->gram = mem_alloc(wide * wide * sizeof(float));
    r->eigenvector = mem_alloc(wide * wide * sizeof(double));
    r->eigenvalue = mem_alloc(wide * sizeof(double));
    if (r->covariance && r->mean && r->q && r->g && r->h && r->gram && r->eigenvector &&
        r->eigenvalue)
        return PI_OK;
    return error_nomem(err, (n_embd * n_embd + wide * (n_ff + 2 * n_embd + 3 * wide)) * 4,
                       "a low-rank predictor");
}

/* ---- the covariance -------------------------------------------------------------------------- */

static void find_mean(const predictor_data *data, double *sum, float *mean) {
    for (int64_t t = 0; t < data->n_train; t++) {
        const float *x = data->x + t * data->n_embd;
        for (int64_t k = 0; k < data->n_embd; k++) sum[k] += (double)x[k];
    }
    for (int64_t k = 0; k < data->n_embd; k++) mean[k] = (float)(sum[k] / (double)data->n_train);
}

/* Sum over the training tokens of |x - mean|^4. */
static double fourth_moments(const predictor_data *data, const float *mean) {
    double sum = 0;
    for (int64_t t = 0; t < data->n_train; t++) {
        const float *x = data->x + t * data->n_embd;
        float length2 = 0;
        for (int64_t k = 0; k < data->n_embd; k++) length2 += (x[k] - mean[k]) * (x[k] - mean[k]);
        sum += (double)length2 * (double)length2;
    }
    return sum;
}

/* C <- (1 - share) C + share * tr(C)/n * 1. `share` is the expected squared error of C over its
 * squared distance from that multiple of the identity. */
static void shrink(lowrank_run *r) {
    const predictor_data *data = r->data;
    int64_t n = data->n_embd;
    double trace = 0, square = 0, tokens = (double)data->n_train;
    for (int64_t i = 0; i < n; i++) {
        trace += (double)r->covariance[i * n + i];
        for (int64_t j = 0; j < n; j++) {
            double c = (double)r->covariance[i * n + j];
            square += c * c;
        }
    }
    double level = trace / (double)n, distance = square - level * trace;
    double error = (fourth_moments(data, r->mean) / tokens - square) / tokens;
    double share = distance > 0 ? error / distance : 1;
    share = fmin(fmax(share, 0), 1);
    float keep = (float)(1 - share), add = (float)(share * level);
    for (int64_t i = 0; i < n * n; i++) r->covariance[i] *= keep;
    for (int64_t i = 0; i < n; i++) r->covariance[i * n + i] += add;
}

static pi_status find_covariance(lowrank_run *r, pi_error *err) {
    const predictor_data *data = r->data;
    int64_t n = data->n_embd;
    double *sum = mem_calloc((size_t)n, sizeof *sum);
    if (!sum) return error_nomem(err, (size_t)n * sizeof *sum, "a low-rank predictor");
    if (!data->unbiased) find_mean(data, sum, r->mean);
    mem_free(sum);
    gemm_args g = {.m = n,
                   .n = n,
                   .n_k = data->n_train,
                   .a = la_transposed(data->x, n),
                   .b = la_rows(data->x, n),
                   .c = r->covariance,
                   .ldc = n,
                   .scale = 1.0f / (float)data->n_train,
                   .lower_only = true};
    pi_status status = la_gemm(r->job, &g, err);
    if (status != PI_OK) return status;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) r->covariance[i * n + j] -= r->mean[i] * r->mean[j];
    la_mirror_lower(r->covariance, n);
    shrink(r);
    return PI_OK;
}

/* ---- the subspace ---------------------------------------------------------------------------- */

/* out [rows][n] = a [rows][n_k] * b [n_k][n], all row-major. */
static pi_status product(la_job *job, const float_rows *a, const float *b, int64_t n, float *out,
                         pi_error *err) {
    gemm_args g = {.m = a->rows,
                   .n = n,
                   .n_k = a->n,
                   .a = la_rows(a->data, a->ld),
                   .b = la_rows(b, n),
                   .c = out,
                   .ldc = n};
    return la_gemm(job, &g, err);
}

/* g = Q^T W, h = g C. */
static pi_status project(lowrank_run *r, pi_error *err) {
    int64_t n_embd = r->data->n_embd, n_ff = r->data->n_ff;
    float_rows q = {r->q, r->wide, n_ff, n_ff}, g = {r->g, r->wide, n_embd, n_embd};
    pi_status status = product(r->job, &q, r->data->gate, n_embd, r->g, err);
    if (status == PI_OK) status = product(r->job, &g, r->covariance, n_embd, r->h, err);
    return status;
}

/* Q^T = h W^T, orthonormal. */
static pi_status expand(lowrank_run *r, pi_error *err) {
    int64_t n_embd = r->data->n_embd, n_ff = r->data->n_ff;
    gemm_args back = {.m = r->wide,
                      .n = n_ff,
                      .n_k = n_embd,
                      .a = la_rows(r->h, n_embd),
                      .b = la_transposed(r->data->gate, n_embd),
                      .c = r->q,
                      .ldc = n_ff};
    pi_status status = la_gemm(r->job, &back, err);
    if (status == PI_OK) status = la_orthonormal_rows(r->job, r->q, r->wide, n_ff, err);
    return status;
}

static pi_status find_subspace(lowrank_run *r, uint64_t seed, pi_error *err) {
    rng random;
    rng_seed(&random, seed);
    for (int64_t i = 0; i < r->wide * r->data->n_ff; i++)
        r->q[i] = rng_u64(&random) >> 63 ? 1.0f : -1.0f;
    pi_status status = PI_OK;
    for (int i = 0; i < ITERATIONS && status == PI_OK; i++) {
        status = project(r, err);
        if (status == PI_OK) status = expand(r, err);
    }
    if (status == PI_OK) status = project(r, err);
    if (status != PI_OK) return status;
    gemm_args small = {.m = r->wide,
                       .n = r->wide,
                       .n_k = r->data->n_embd,
                       .a = la_rows(r->h, r->data->n_embd),
                       .b = la_transposed(r->g, r->data->n_embd),
                       .c = r->gram,
                       .ldc = r->wide,
                       .lower_only = true};
    status = la_gemm(r->job, &small, err);
    if (status != PI_OK) return status;
    la_mirror_lower(r->gram, r->wide);
    for (int64_t i = 0; i < r->wide * r->wide; i++) r->eigenvector[i] = (double)r->gram[i];
    return la_eigen(r->job, r->eigenvector, r->wide, r->eigenvalue, err);
}

/* ---- the factors ----------------------------------------------------------------------------- */

/* Divides component k between the factors: fc1's row has the standard deviation sigma over the
 * inputs, fc2's column norm 1; sigma^2 is the eigenvalue. Blocks of quantized types contain 32
 * neighbouring components of fc2's rows, and of fc1's outputs when these are rounded to int8: with
 * sqrt(sigma) on each side, neither spans a wide range. The common factor gives the entries of both
 * an equal mean square, so that block scales are within the range of float16. */
static void balance(const lowrank_run *r, lowrank_factors *f) {
    int64_t n_embd = r->data->n_embd, n_ff = r->data->n_ff, rank = f->rank;
    double square1 = 0, square2 = 0;
    for (int64_t k = 0; k < rank; k++) {
        double sigma = sqrt(fmax(r->eigenvalue[k], 0));
        float root = sigma > 0 ? (float)sqrt(sigma) : 0.0f;
        float inverse = sigma > 0 ? 1.0f / root : 0.0f;
        for (int64_t j = 0; j < n_embd; j++) {
            float *w = &f->fc1[k * n_embd + j];
            *w *= inverse;
            square1 += (double)*w * (double)*w;
        }
        for (int64_t i = 0; i < n_ff; i++) {
            float *w = &f->fc2[i * rank + k];
            *w *= root;
            square2 += (double)*w * (double)*w;
        }
    }
    if (!(square1 > 0 && square2 > 0)) return;
    double ratio = (square2 / (double)n_ff) / (square1 / (double)n_embd);
    float up = (float)sqrt(sqrt(ratio)), down = 1 / up;
    for (int64_t i = 0; i < rank * n_embd; i++) f->fc1[i] *= up;
    for (int64_t i = 0; i < rank * n_ff; i++) f->fc2[i] *= down;
}

static pi_status make_factors(lowrank_run *r, lowrank_factors *f, pi_error *err) {
    int64_t n_embd = r->data->n_embd, n_ff = r->data->n_ff;
    /* The rotation in float; reuses the memory of the small matrix of products. */
    for (int64_t i = 0; i < f->rank * r->wide; i++) r->gram[i] = (float)r->eigenvector[i];
    float_rows turn = {r->gram, f->rank, r->wide, r->wide};
    pi_status status = product(r->job, &turn, r->g, n_embd, f->fc1, err);
    if (status != PI_OK) return status;
    /* fc2 [n_ff][rank] = Q * turn^T */
    gemm_args g = {.m = n_ff,
                   .n = f->rank,
                   .n_k = r->wide,
                   .a = la_transposed(r->q, n_ff),
                   .b = la_transposed(r->gram, r->wide),
                   .c = f->fc2,
                   .ldc = f->rank};
    status = la_gemm(r->job, &g, err);
    if (status == PI_OK) balance(r, f);
    return status;
}

static double operations(const predictor_data *data, int64_t wide) {
    double n_embd = (double)data->n_embd, n_ff = (double)data->n_ff, w = (double)wide;
    double pass = 4 * w * n_ff * n_embd + 2 * w * n_embd * n_embd + 4 * w * w * n_ff;
    return n_embd * n_embd * (double)data->n_train + (ITERATIONS + 1) * pass;
}

pi_status lowrank_factorise(la_job *job, const predictor_data *data, int64_t rank, uint64_t seed,
                            double to, lowrank_factors *out, pi_error *err) {
    int64_t wide = rank + OVERSAMPLE;
    if (wide > data->n_embd) wide = data->n_embd;
    if (wide > data->n_ff) wide = data->n_ff;
    if (rank > wide) rank = wide;
    lowrank_run r = {.job = job, .data = data, .wide = wide};
    *out = (lowrank_factors){.rank = rank};
    size_t row = (size_t)rank * sizeof(float);
    out->fc1 = mem_alloc(row * (size_t)data->n_embd);
    out->fc2 = mem_alloc(row * (size_t)data->n_ff);
    pi_status status = PI_OK;
    if (!out->fc1 || !out->fc2)
        status = error_nomem(err, row * (size_t)(data->n_embd + data->n_ff), "a predictor");
    if (status == PI_OK) status = run_make(&r, err);
    if (status == PI_OK) {
        la_job_stage(job, to, operations(data, wide));
        status = find_covariance(&r, err);
    }
    if (status == PI_OK) status = find_subspace(&r, seed, err);
    if (status == PI_OK) status = make_factors(&r, out, err);
    run_free(&r);
    if (status != PI_OK) lowrank_free(out);
    return status;
}
