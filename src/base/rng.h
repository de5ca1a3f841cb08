/* rng.h: a small generator for sampling, synthesis and tests: xoshiro256** seeded by splitmix64
 * (Blackman and Vigna, https://prng.di.unimi.it/). The same seed gives the same stream on every
 * machine. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t s[4];
} rng;

void rng_seed(rng *r, uint64_t seed);
uint64_t rng_u64(rng *r);
double rng_uniform(rng *r); /* [0, 1), 53 bits */
float rng_normal(rng *r);   /* mean 0, variance 1 (Box–Muller, one value per call) */
uint64_t rng_entropy(void); /* a seed from the system, for "-s -1" */

#endif
