/* linalg.c: orthonormal bases and eigenvectors.
 *
 * Bases are kept as rows, so that a vector is contiguous. Within a block of BLOCK rows Gram-Schmidt
 * runs on one thread (it is a small share of the work); between blocks it consists of matrix
 * products. The eigenproblem has the size of a predictor's rank: it runs in double precision on one
 * thread, in loops over rows that the compiler vectorizes. */
#include "linalg.h"

#include <math.h>
#include <string.h>

#include "mem.h"

enum { BLOCK = 32 };
/* A row whose norm falls to this fraction is rounding error of earlier rows: float has 24 bits, and
 * sums of thousands of products keep about 20. */
static const double DEPENDENT = 1e-6;

static double dot(const float *a, const float *b, int64_t n) {
    enum { LANES = 8 };
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++) sum += (double)a[i] * (double)b[i];
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

/* Gram-Schmidt within rows [0, count) of q. length2[i]: |row i|^2 before any projection. */
static void orthonormal_block(float *q, int64_t count, int64_t n, const double *length2) {
    for (int64_t i = 0; i < count; i++) {
        float *row = q + i * n;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < i; j++) {
                const float *other = q + j * n;
                float share = (float)dot(row, other, n);
                for (int64_t k = 0; k < n; k++) row[k] -= share * other[k];
            }
        double left = dot(row, row, n);
        bool depends = !(left > length2[i] * DEPENDENT * DEPENDENT);
        float scale = depends ? 0.0f : (float)(1 / sqrt(left));
        for (int64_t k = 0; k < n; k++) row[k] = depends ? 0.0f : row[k] * scale;
    }
}

pi_status la_orthonormal_rows(la_job *job, float *q, int64_t rows, int64_t n, pi_error *err) {
    size_t bytes = (size_t)(BLOCK * rows) * sizeof(float);
    float *shares = mem_alloc(bytes); /* [BLOCK][rows before] */
    if (!shares) return error_nomem(err, bytes, "an orthonormal basis");
    pi_status status = PI_OK;
    for (int64_t i = 0; i < rows && status == PI_OK; i += BLOCK) {
        int64_t count = rows - i < BLOCK ? rows - i : BLOCK;
        double length2[BLOCK];
        for (int64_t r = 0; r < count; r++) length2[r] = dot(q + (i + r) * n, q + (i + r) * n, n);
        for (int pass = 0; pass < 2 && i > 0 && status == PI_OK; pass++) {
            gemm_args project = {.m = count,
                                 .n = i,
                                 .n_k = n,
                                 .a = la_rows(q + i * n, n),
                                 .b = la_transposed(q, n),
                                 .c = shares,
                                 .ldc = i};
            status = la_gemm(job, &project, err);
            gemm_args subtract = {.m = count,
                                  .n = n,
                                  .n_k = i,
                                  .a = la_rows(shares, i),
                                  .b = la_rows(q, n),
                                  .c = q + i * n,
                                  .ldc = n,
                                  .scale = -1,
                                  .add = true};
            if (status == PI_OK) status = la_gemm(job, &subtract, err);
        }
        orthonormal_block(q + i * n, count, n, length2);
    }
    mem_free(shares);
    return status;
}

/* ---- eigenvectors ---------------------------------------------------------------------------- */

typedef struct tridiagonal_form {
    double *diag, *side; /* [n]; side[k] couples k and k + 1 */
    double *beta;        /* [n] beta of the reflections */
    double *scratch;     /* [n] */
} tridiagonal_form;

/* Reduces a to tridiagonal form by reflections: a = Q T Q^T. Row k of a becomes the vector v of
 * reflection k, 1 - beta[k] v v^T. Like the next two functions, returns early when the job must
 * stop. */
static void tridiagonal(la_job *job, double *a, int64_t n, const tridiagonal_form *form) {
    double *diag = form->diag, *side = form->side, *beta = form->beta, *p = form->scratch;
    for (int64_t k = 0; k + 1 < n; k++) {
        if (!la_job_step(job, 0, 0)) return;
        double *v = a + k * n; /* v[k + 1 .. n - 1]; symmetric, so row k is column k */
        diag[k] = v[k];
        double rest2 = 0;
        for (int64_t j = k + 2; j < n; j++) rest2 += v[j] * v[j];
        double norm2 = rest2 + v[k + 1] * v[k + 1];
        beta[k] = 0;
        side[k] = v[k + 1];
        if (!(rest2 > 0)) continue;
        double alpha = v[k + 1] > 0 ? -sqrt(norm2) : sqrt(norm2);
        side[k] = alpha;
        v[k + 1] -= alpha;
        beta[k] = 1 / (norm2 - (v[k + 1] + alpha) * alpha); /* 2 / |v|^2 */
        /* A - v w^T - w v^T with p = beta A v, w = p - beta/2 (p.v) v */
        double pv = 0;
        for (int64_t i = k + 1; i < n; i++) {
            const double *row = a + i * n;
            double sum = 0;
            for (int64_t j = k + 1; j < n; j++) sum += row[j] * v[j];
            p[i] = beta[k] * sum;
            pv += p[i] * v[i];
        }
        for (int64_t i = k + 1; i < n; i++) p[i] -= beta[k] / 2 * pv * v[i];
        for (int64_t i = k + 1; i < n; i++) {
            double *row = a + i * n, vi = v[i], wi = p[i];
            for (int64_t j = k + 1; j < n; j++) row[j] -= vi * p[j] + wi * v[j];
        }
    }
    diag[n - 1] = a[(n - 1) * n + n - 1];
    side[n - 1] = 0;
}

/* z = Q^T of the reflections in a: row k of z will become eigenvector k. */
static void accumulate(la_job *job, const double *a, int64_t n, const tridiagonal_form *form,
                       double *z) {
    const double *beta = form->beta;
    double *p = form->scratch;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) z[i * n + j] = i == j;
    /* Q = H_0 H_1 ...; Q^T's rows: apply the reflections from the last to the first on the right, z
     * <- z H_k. Rows and columns up to k still equal the identity. */
    for (int64_t k = n - 2; k >= 0; k--) {
        const double *v = a + k * n;
        if (!la_job_step(job, 0, 0)) return;
        if (beta[k] == 0) continue;
        for (int64_t i = k + 1; i < n; i++) {
            double *row = z + i * n, sum = 0;
            for (int64_t j = k + 1; j < n; j++) sum += row[j] * v[j];
            p[i] = beta[k] * sum;
            for (int64_t j = k + 1; j < n; j++) row[j] -= p[i] * v[j];
        }
    }
}

/* One implicit QL step on the block [l, m] (side[m] is negligible): a shift, then rotations from m
 * down to l that chase the bulge. Rows of z are rotated along. */
static void ql_step(double *diag, double *side, int64_t l, int64_t m, double *z, int64_t n) {
    double g = (diag[l + 1] - diag[l]) / (2 * side[l]), r = hypot(g, 1);
    g = diag[m] - diag[l] + side[l] / (g + (g >= 0 ? r : -r));
    double s = 1, c = 1, p = 0;
    for (int64_t i = m - 1; i >= l; i--) {
        double f = s * side[i], b = c * side[i];
        r = hypot(f, g);
        side[i + 1] = r;
        if (r == 0) { /* the block splits here */
            diag[i + 1] -= p;
            side[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = diag[i + 1] - p;
        r = (diag[i] - g) * s + 2 * c * b;
        p = s * r;
        diag[i + 1] = g + p;
        g = c * r - b;
        double *upper = z + (i + 1) * n, *lower = z + i * n;
        for (int64_t k = 0; k < n; k++) {
            double u = upper[k], w = lower[k];
            upper[k] = s * w + c * u;
            lower[k] = c * w - s * u;
        }
    }
    diag[l] -= p;
    side[l] = g;
    side[m] = 0;
}

/* Diagonalises in place, with at most STEPS_MAX steps (two or three per value are usual). */
static void diagonalise(la_job *job, double *diag, double *side, int64_t n, double *z) {
    enum { STEPS_MAX = 60 };
    const double precision = 0x1p-52;
    for (int64_t l = 0; l < n; l++) {
        for (int step = 0; step < STEPS_MAX; step++) {
            int64_t m = l;
            while (m + 1 < n && fabs(side[m]) > precision * (fabs(diag[m]) + fabs(diag[m + 1])))
                m++;
            if (m == l) break;
            if (!la_job_step(job, 0, 0)) return;
            ql_step(diag, side, l, m, z, n);
        }
    }
}

/* Copies rows of z to a, in descending order of diag. order: [n] scratch. */
static void sort_descending(const double *diag, const double *z, int64_t n, int64_t *order,
                            double *value, double *a) {
    for (int64_t i = 0; i < n; i++) { /* insertion sort: n is some hundreds, and mostly in order */
        int64_t at = i;
        for (; at > 0 && diag[order[at - 1]] < diag[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        value[i] = diag[order[i]];
        memcpy(a + i * n, z + order[i] * n, (size_t)n * sizeof *a);
    }
}

pi_status la_eigen(la_job *job, double *a, int64_t n, double *value, pi_error *err) {
    for (int64_t i = 0; i < n * n; i++)
        if (!isfinite(a[i]))
            return error_set(err, PI_ERR_RANGE,
                             "not a finite number: predictor: products of inputs and weights: the "
                             "model does not work on this text");
    size_t square = (size_t)(n * n), bytes = (square + 4 * (size_t)n) * sizeof(double);
    double *z = mem_alloc(bytes);
    int64_t *order = mem_alloc((size_t)n * sizeof *order);
    pi_status status = PI_OK;
    if (!z || !order) {
        status = error_nomem(err, bytes, "eigenvectors");
    } else {
        double *rest = z + square;
        tridiagonal_form form = {rest, rest + n, rest + 2 * n, rest + 3 * n};
        tridiagonal(job, a, n, &form);
        accumulate(job, a, n, &form, z);
        diagonalise(job, form.diag, form.side, n, z);
        sort_descending(form.diag, z, n, order, value, a);
        status = la_job_status(job, err);
    }
    mem_free(order);
    mem_free(z);
    return status;
}
