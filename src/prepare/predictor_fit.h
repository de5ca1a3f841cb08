/* predictor_fit.h: shared by the files of predictor fitting. Private to src/prepare. */
#ifndef PREPARE_PREDICTOR_FIT_H
#define PREPARE_PREDICTOR_FIT_H

#include "linalg.h"
#include "predictor.h"
#include "threshold.h"

/* Float rows in memory: row i at data + i * ld. */
typedef struct float_rows {
    float *data;
    int64_t rows, n, ld;
} float_rows;

/* Quantizes rows into new memory (mem_free), and decodes them. n is a multiple of the type's
 * block. */
pi_status rows_pack(la_job *job, quant_type type, const float_rows *from, void **out,
                    pi_error *err);
void rows_unpack(la_job *job, quant_type type, const void *packed, const float_rows *to);

/* out [t1 - t0][rank] = x fc1^T for tokens [t0, t1); with relu, negative values become 0. */
typedef struct hidden_args {
    const predictor_data *data;
    const float *fc1; /* [rank][n_embd] */
    int64_t rank, t0, t1;
    bool relu;
    float *out;
} hidden_args;
pi_status hidden_make(la_job *job, const hidden_args *h, pi_error *err);

/* Quality of scores + bias on tokens [range[0], range[1]); the source's inputs start at token
 * range[0]. */
pi_status quality_measure(la_job *job, const predictor_data *data, const score_source *source,
                          const float *bias, const int64_t range[2], predictor_quality *out,
                          pi_error *err);

/* The best factors of a rank: fc2 fc1 (x - mean) ~ W (x - mean). */
typedef struct lowrank_factors {
    int64_t rank;
    float *fc1; /* [rank][n_embd] */
    float *fc2; /* [n_ff][rank]; columns in descending importance */
} lowrank_factors;

/* Computes the factors from training tokens. `to`: the job's fraction at the end. PI_ERR_NOMEM,
 * PI_ERR_CANCELLED, PI_ERR_RANGE. */
pi_status lowrank_factorise(la_job *job, const predictor_data *data, int64_t rank, uint64_t seed,
                            double to, lowrank_factors *out, pi_error *err);
void lowrank_free(lowrank_factors *f);

/* Hidden layers [rank] that reproduce `from` (of that rank or more): fc1 [rank][n_embd], fc2
 * [n_ff][rank]. Pairs reproduce rank / 2 directions of `from`, lifted units approximately rank -
 * 1. */
void relu_start_pairs(const predictor_data *data, const lowrank_factors *from, int64_t rank,
                      float *fc1, float *fc2);
pi_status relu_start_lifted(la_job *job, const predictor_data *data, const lowrank_factors *from,
                            int64_t rank, float *fc1, float *fc2, pi_error *err);

typedef struct relu_mlp_options {
    int64_t rank; /* even, at most the rank of the start */
    double target;
    int epochs; /* maximum; 0: the default */
    uint64_t seed;
    double to; /* the job's fraction at the end */
} relu_mlp_options;

/* Trains fc2 relu(fc1 x), starting from `factors`, which it replaces. On failure they are
 * unchanged. PI_ERR_NOMEM, PI_ERR_CANCELLED, PI_ERR_RANGE. */
pi_status relu_mlp_train(la_job *job, const predictor_data *data, const neuron_pairs *pairs,
                         const relu_mlp_options *options, lowrank_factors *factors, pi_error *err);

#endif
