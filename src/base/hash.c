/* hash.c: SipHash-1-3 of bytes. */
#include "hash.h"

#include "rng.h"

hash_key hash_key_random(void) {
    return (hash_key){{rng_entropy(), rng_entropy()}};
}

/* Little-endian; compilers turn it into one load. */
static uint64_t load_4(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

/* The last n < 8 bytes, the first one lowest. Overlapping loads replace a loop over bytes: bytes
 * that are read twice land in the same place. */
static uint64_t load_tail(const uint8_t *p, size_t n) {
    if (n >= 4) return load_4(p) | load_4(p + n - 4) << (8 * (n - 4));
    if (n == 0) return 0;
    return (uint64_t)p[0] | (uint64_t)p[n / 2] << (8 * (n / 2)) |
           (uint64_t)p[n - 1] << (8 * (n - 1));
}

uint64_t hash_bytes(hash_key key, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    hash_state s = hash_begin(key);
    size_t n = n_bytes;
    for (; n >= sizeof(uint64_t); p += sizeof(uint64_t), n -= sizeof(uint64_t)) {
        hash_word(&s, load_4(p) | load_4(p + 4) << 32);
    }
    hash_word(&s, (uint64_t)n_bytes << 56 | load_tail(p, n));
    return hash_end(&s);
}
