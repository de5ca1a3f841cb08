/* act_put.h: stores activations that another device has quantized. */
#ifndef CPU_ACT_PUT_H
#define CPU_ACT_PUT_H

#include "cpu.h"

/* Stores a vector of Q8 (or Q8_BF16) in COLUMNS that was quantized elsewhere: q[n], a scale d per
 * group of 32 and the sums of q over 16 elements. */
void cpu_act_put_q8(const cpu_act *a, int64_t col, const int8_t *q, const float *d,
                    const int32_t *sum);

#endif
