/* activation_formula.h: the activations of activation.h in double, the reference for every
 * implementation. */
#ifndef TEST_ACTIVATION_FORMULA_H
#define TEST_ACTIVATION_FORMULA_H

#include <math.h>

#include "activation.h"

/* Returns f(x), for DReLU the function of the gate. `threshold`: FATReLU only. */
static inline double activation_formula(activation f, double threshold, double x) {
    switch (f) {
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_GELU:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case ACTIVATION_FATRELU:
        return x > threshold ? x : 0;
    default:
        return x > 0 ? x : 0;
    }
}

#endif
