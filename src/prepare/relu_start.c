/* relu_start.c: initial hidden layers for training, which reproduce a low-rank predictor.
 *
 * A ReLU unit keeps a direction z = b.x where z is positive. Either units come in pairs, z =
 * relu(z) - relu(-z), with two units per direction; or a multiple of a functional a.x, which is
 * about 1 for all tokens, is added to every z (lifts it), and one more unit, relu(a.x), subtracts
 * the lifts from the scores. The lifted form is wrong for tokens where z + LIFT a.x is negative:
 * few, if the inputs have a constant part. a is the regression of 1 on x. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "predictor_fit.h"

/* Deviations of z: one value in 700 of a normal variable is below -3. */
static const double LIFT = 3;
enum { SOLVE_STEPS = 40 };              /* steps of conjugate gradients */
static const double SOLVE_RIDGE = 1e-3; /* fraction of the mean square of an input */
static const double SOLVE_DONE = 1e-6;  /* squared residual, relative */

void relu_start_pairs(const predictor_data *data, const lowrank_factors *from, int64_t rank,
                      float *fc1, float *fc2) {
    int64_t n_embd = data->n_embd, n_ff = data->n_ff, half = rank / 2;
    for (int64_t k = 0; k < half; k++)
        for (int64_t j = 0; j < n_embd; j++) {
            float w = from->fc1[k * n_embd + j];
            fc1[2 * k * n_embd + j] = w;
            fc1[(2 * k + 1) * n_embd + j] = -w;
        }
    for (int64_t i = 0; i < n_ff; i++)
        for (int64_t k = 0; k < half; k++) {
            float w = from->fc2[i * from->rank + k];
            fc2[i * rank + 2 * k] = w;
            fc2[i * rank + 2 * k + 1] = -w;
        }
}

/* ---- the functional -------------------------------------------------------------------------- */

/* The vectors of conjugate gradients for (X^T X / T + ridge) a = mean. */
typedef struct solver {
    la_job *job;
    const predictor_data *data;
    float *a, *direction, *residual, *image; /* [n_embd] */
    float *along;                            /* [n_train]: X direction */
    double ridge;
} solver;

static pi_status solver_make(solver *s, pi_error *err) {
    size_t n = (size_t)s->data->n_embd, tokens = (size_t)s->data->n_train;
    s->a = mem_calloc(4 * n, sizeof(float));
    s->along = mem_alloc(tokens * sizeof(float));
    if (!s->a || !s->along) return error_nomem(err, (4 * n + tokens) * 4, "training a predictor");
    s->direction = s->a + n;
    s->residual = s->direction + n;
    s->image = s->residual + n;
    return PI_OK;
}

/* to = X^T along / T. */
static pi_status transposed_product(solver *s, float *to, pi_error *err) {
    int64_t n = s->data->n_embd, tokens = s->data->n_train;
    gemm_args g = {.m = n,
                   .n = 1,
                   .n_k = tokens,
                   .a = la_transposed(s->data->x, n),
                   .b = la_rows(s->along, 1),
                   .c = to,
                   .ldc = 1,
                   .scale = 1.0f / (float)tokens};
    return la_gemm(s->job, &g, err);
}

static pi_status apply(solver *s, pi_error *err) {
    int64_t n = s->data->n_embd;
    gemm_args g = {.m = s->data->n_train,
                   .n = 1,
                   .n_k = n,
                   .a = la_rows(s->data->x, n),
                   .b = la_rows(s->direction, 1),
                   .c = s->along,
                   .ldc = 1};
    pi_status status = la_gemm(s->job, &g, err);
    if (status == PI_OK) status = transposed_product(s, s->image, err);
    for (int64_t k = 0; k < n; k++) s->image[k] += (float)s->ridge * s->direction[k];
    return status;
}

static double inner(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

static pi_status solve(solver *s, pi_error *err) {
    int64_t n = s->data->n_embd, tokens = s->data->n_train;
    s->ridge = SOLVE_RIDGE * inner(s->data->x, s->data->x, n * tokens) / (double)(n * tokens);
    for (int64_t t = 0; t < tokens; t++) s->along[t] = 1;
    pi_status status = transposed_product(s, s->residual, err);
    memcpy(s->direction, s->residual, (size_t)n * sizeof(float));
    double square = inner(s->residual, s->residual, n), at_first = square;
    for (int i = 0; i < SOLVE_STEPS && status == PI_OK && square > SOLVE_DONE * at_first; i++) {
        status = apply(s, err);
        double curvature = inner(s->direction, s->image, n);
        if (status != PI_OK || !(curvature > 0)) break;
        float length = (float)(square / curvature);
        for (int64_t k = 0; k < n; k++) {
            s->a[k] += length * s->direction[k];
            s->residual[k] -= length * s->image[k];
        }
        double next = inner(s->residual, s->residual, n);
        float keep = (float)(next / square);
        for (int64_t k = 0; k < n; k++) s->direction[k] = s->residual[k] + keep * s->direction[k];
        square = next;
    }
    return status;
}

/* ---- lifted directions ----------------------------------------------------------------------- */

/* lift[k]: lift of direction k, LIFT standard deviations over the first tokens. */
static pi_status find_lifts(la_job *job, const predictor_data *data, const lowrank_factors *from,
                            float *lift, pi_error *err) {
    enum { TOKENS = 512 };
    int64_t tokens = data->n_train < TOKENS ? data->n_train : TOKENS, rank = from->rank;
    size_t bytes = (size_t)(tokens * rank) * sizeof(float);
    float *z = mem_alloc(bytes);
    if (!z) return error_nomem(err, bytes, "training a predictor");
    hidden_args h = {data, from->fc1, rank, 0, tokens, false, z};
    pi_status status = hidden_make(job, &h, err);
    for (int64_t k = 0; k < rank && status == PI_OK; k++) {
        double sum = 0, square = 0;
        for (int64_t t = 0; t < tokens; t++) {
            sum += (double)z[t * rank + k];
            square += (double)z[t * rank + k] * (double)z[t * rank + k];
        }
        double mean = sum / (double)tokens;
        lift[k] = (float)(LIFT * sqrt(fmax(square / (double)tokens - mean * mean, 0)));
    }
    mem_free(z);
    return status;
}

/* The factors of `from`, lifted. a: [n_embd] the functional. */
static void lift_factors(const predictor_data *data, const lowrank_factors *from, int64_t rank,
                         const float *a, const float *lift, float *fc1, float *fc2) {
    int64_t n_embd = data->n_embd, last = rank - 1;
    for (int64_t k = 0; k < last; k++)
        for (int64_t j = 0; j < n_embd; j++)
            fc1[k * n_embd + j] = from->fc1[k * n_embd + j] + lift[k] * a[j];
    memcpy(fc1 + last * n_embd, a, (size_t)n_embd * sizeof(float));
    for (int64_t i = 0; i < data->n_ff; i++) {
        const float *w = from->fc2 + i * from->rank;
        float *row = fc2 + i * rank, lifted = 0;
        for (int64_t k = 0; k < last; k++) {
            row[k] = w[k];
            lifted += lift[k] * w[k];
        }
        row[last] = -lifted;
    }
}

pi_status relu_start_lifted(la_job *job, const predictor_data *data, const lowrank_factors *from,
                            int64_t rank, float *fc1, float *fc2, pi_error *err) {
    solver s = {.job = job, .data = data};
    float *lift = mem_alloc((size_t)from->rank * sizeof *lift);
    pi_status status = PI_OK;
    if (!lift) status = error_nomem(err, (size_t)from->rank * 4, "training a predictor");
    if (status == PI_OK) status = find_lifts(job, data, from, lift, err);
    if (status == PI_OK) status = solver_make(&s, err);
    if (status == PI_OK) status = solve(&s, err);
    if (status == PI_OK) lift_factors(data, from, rank, s.a, lift, fc1, fc2);
    mem_free(s.a);
    mem_free(s.along);
    mem_free(lift);
    return status;
}
