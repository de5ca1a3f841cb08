/* rng.c: xoshiro256** 1.0 with splitmix64 seeding. */
#include "rng.h"

#include <math.h>

#include "clock.h"
#include "os_thread.h"

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

void rng_seed(rng *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[i] = z ^ (z >> 31);
    }
}

uint64_t rng_u64(rng *r) {
    uint64_t *s = r->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double rng_uniform(rng *r) {
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

float rng_normal(rng *r) {
    const double two_pi = 6.283185307179586;
    double u = 1.0 - rng_uniform(r); /* (0, 1], so that its logarithm is finite */
    return (float)(sqrt(-2.0 * log(u)) * cos(two_pi * rng_uniform(r)));
}

uint64_t rng_entropy(void) {
    uint64_t seed;
    if (os_random(&seed, sizeof seed)) return seed;
    return (uint64_t)(clock_seconds() * 1e9) ^ ((uint64_t)os_process_id() << 32);
}
