/* linalg.h: the linear algebra of fitting predictors: float matrix products over the worker pool,
 * orthonormal bases, eigenvectors of small symmetric matrices. Private to src/prepare.
 *
 * All matrices are dense. Everything runs within a job: the pool, per-thread work space that is
 * allocated once, and the progress. Results do not depend on the number of threads: one thread sums
 * an element, in a fixed order. The calling thread reports progress; when the callback requests a
 * stop, running work ends within milliseconds with PI_ERR_CANCELLED. */
#ifndef PREPARE_LINALG_H
#define PREPARE_LINALG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu.h"
#include "error.h"
#include "pool.h"
#include "progress.h"

typedef struct la_job {
    pool *pool;
    progress *progress;
    cpu_kernels kernels;
    float *work; /* [threads][LA_WORK_FLOATS] */
    size_t work_bytes;
    /* The current stage covers the fractions [from, to) of the job and takes `total` floating-point
     * operations, `done` of them finished. */
    double from, to, total;
    atomic_int_fast64_t done;
    atomic_bool stop;
} la_job;

/* PI_ERR_NOMEM. progress may be NULL. */
pi_status la_job_init(la_job *job, pool *p, progress *progress, pi_error *err);
void la_job_free(la_job *job);
/* The next stage ends at fraction `to` of the job and takes about `operations`. */
void la_job_stage(la_job *job, double to, double operations);
/* Counts operations; thread 0 of a run (or the caller outside a run) also reports. False: stop. */
bool la_job_step(la_job *job, int ith, double operations);
/* PI_ERR_CANCELLED: a stop was requested; else PI_OK. */
pi_status la_job_status(la_job *job, pi_error *err);

/* Element (i, j) of a matrix is data[i * row + j * column]. */
typedef struct la_matrix {
    const float *data;
    int64_t row, column;
} la_matrix;

/* A row-major matrix with row stride `ld`, and the transpose of such a matrix. */
static inline la_matrix la_rows(const float *data, int64_t ld) {
    return (la_matrix){data, ld, 1};
}
static inline la_matrix la_transposed(const float *data, int64_t ld) {
    return (la_matrix){data, 1, ld};
}

/* C[i][j] = sum over k of A(i, k) * B(k, j), i < m, j < n, k < n_k. Fast only if A and B each have
 * a stride of 1. */
typedef struct gemm_args {
    int64_t m, n, n_k;
    la_matrix a, b;
    float *c;
    int64_t ldc;
    float scale;     /* scale of A; 0 counts as 1 */
    bool add;        /* C += instead of C = */
    bool lower_only; /* for symmetric products: elements above the diagonal are undefined */
} gemm_args;

/* Runs on all threads of the job's pool. */
pi_status la_gemm(la_job *job, const gemm_args *g, pi_error *err);
/* Like la_gemm, on thread ith alone, from inside a run. Stops early when the job must stop. */
void la_gemm_thread(la_job *job, int ith, const gemm_args *g);

/* Copies the lower triangle of c [n][n] to the upper one. */
void la_mirror_lower(float *c, int64_t n);

/* Makes the rows of q [rows][n] orthonormal, in place, from first to last: block Gram-Schmidt,
 * every step twice (Giraud, Langou, Rozloznik and van den Eshof 2005). A row that depends linearly
 * on earlier rows becomes 0. */
pi_status la_orthonormal_rows(la_job *job, float *q, int64_t rows, int64_t n, pi_error *err);

/* Eigenvectors of the symmetric a [n][n], which is overwritten: row k becomes the k-th vector, of
 * length 1, value[k] its eigenvalue, largest first. Householder reduction to a tridiagonal matrix
 * and implicit QL steps (Golub and Van Loan, Matrix Computations, 8.3). PI_ERR_NOMEM;
 * PI_ERR_RANGE when a is not finite. */
pi_status la_eigen(la_job *job, double *a, int64_t n, double *value, pi_error *err);

#endif
