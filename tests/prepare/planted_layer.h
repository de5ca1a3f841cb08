/* planted_layer.h: a synthetic layer whose gate is a matrix of low rank plus noise, with inputs,
 * active neurons and contributions as in a ReLU layer. */
#ifndef TESTS_PLANTED_LAYER_H
#define TESTS_PLANTED_LAYER_H

#include "predictor.h"

typedef struct planted_shape {
    int64_t n_embd, n_ff, n_train, n_held;
    int64_t rank;   /* rank of the gate's main part */
    double noise;   /* share of the noise in the gate's variance */
    double bias;    /* mean of the gate in standard deviations: with -1.3 about a tenth is active */
    double spread;  /* standard deviation of this mean over neurons */
    bool gate_bias; /* the mean is a bias of the layer, not a constant component of the inputs */
    bool rectified; /* activity is a sum of `rank` rectified directions; the gate has only its
                       linear part (without noise, gate_bias, spread) */
    uint64_t seed;
} planted_shape;

typedef struct planted_layer {
    predictor_data data;
    active_set active;
    float *x, *gate, *bias;
} planted_layer;

void planted_make(const planted_shape *shape, planted_layer *out);
void planted_free(planted_layer *p);

/* A layer and a worker pool, as a cmocka fixture. */
typedef struct planted_fixture {
    pool *pool;
    planted_layer layer;
} planted_fixture;
int planted_set_up(const planted_shape *shape, int n_threads, void **state);
int planted_tear_down(void **state);

#endif
