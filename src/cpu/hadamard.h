/* hadamard.h: the fast Walsh-Hadamard transform. Every tier compiles it with its instructions;
 * vectorization does not change any sum. Private to src/cpu. */
#ifndef CPU_HADAMARD_H
#define CPU_HADAMARD_H

#include <math.h>
#include <stdint.h>

/* Computes sums and differences of elements `half` apart. A constant `half` lets the compiler
 * unroll. */
static inline __attribute__((always_inline)) void hadamard_step(float *x, int block, int half) {
    for (int i = 0; i < block; i += 2 * half)
        for (int j = i; j < i + half; j++) {
            const float a = x[j], b = x[j + half];
            x[j] = a + b;
            x[j + half] = a - b;
        }
}

static inline void hadamard_run(float *x, int64_t n, int block) {
    const float scale = 1.0f / sqrtf((float)block);
    for (int64_t at = 0; at < n; at += block, x += block) {
        if (block > 1) hadamard_step(x, block, 1);
        if (block > 2) hadamard_step(x, block, 2);
        if (block > 4) hadamard_step(x, block, 4);
        if (block > 8) hadamard_step(x, block, 8);
        for (int half = 16; half < block; half *= 2) hadamard_step(x, block, half);
        for (int i = 0; i < block; i++) x[i] *= scale;
    }
}

#endif
