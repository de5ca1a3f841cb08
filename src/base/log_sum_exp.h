/* log_sum_exp.h: the logarithm of a sum of exponentials, for softmax and perplexity. */
#ifndef BASE_LOG_SUM_EXP_H
#define BASE_LOG_SUM_EXP_H

#include <math.h>
#include <stdint.h>

/* log(sum over i < n of exp(x[i])), n >= 1, summed in double; *most is the largest x[i]. */
static inline double log_sum_exp(const float *x, int32_t n, float *most) {
    float top = x[0];
    for (int32_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)top);
    *most = top;
    return (double)top + log(sum);
}

#endif
