/* planted_layer.h: a synthetic layer whose gate is of low rank plus noise, with inputs, firings and
 * contributions as a ReLU layer would have them. */
#ifndef TESTS_PLANTED_LAYER_H
#define TESTS_PLANTED_LAYER_H

#include "predictor.h"

typedef struct planted_shape {
    int64_t n_embd, n_ff, n_train, n_held;
    int64_t rank;   /* of the gate's main part */
    double noise;   /* share of the gate's variance that is not of low rank */
    double bias;    /* mean of the gate, in deviations: -1.3 leaves about a tenth active */
    double spread;  /* of that mean over neurons */
    bool gate_bias; /* through a bias of the layer's, instead of a common part of the inputs */
    bool rectified; /* what fires is a sum of `rank` rectified directions; the gate has only its
                       linear part (noise, gate_bias and spread do not apply) */
    uint64_t seed;
} planted_shape;

typedef struct planted_layer {
    predictor_data data;
    active_set active;
    float *x, *gate, *bias;
} planted_layer;

void planted_make(const planted_shape *shape, planted_layer *out);
void planted_free(planted_layer *p);

/* A layer with a pool to fit on, as cmocka's fixture. */
typedef struct planted_fixture {
    pool *pool;
    planted_layer layer;
} planted_fixture;
int planted_set_up(const planted_shape *shape, int n_threads, void **state);
int planted_tear_down(void **state);

#endif
