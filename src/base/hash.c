/* hash.c: SipHash-1-3 of bytes. */
#include "hash.h"

#include "rng.h"

hash_key hash_key_random(void) {
    return (hash_key){{rng_entropy(), rng_entropy()}};
}

/* Up to eight bytes, the first one lowest. */
static uint64_t load_bytes(const uint8_t *p, size_t n) {
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t hash_bytes(hash_key key, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    hash_state s = hash_begin(key);
    size_t n = n_bytes;
    for (; n >= sizeof(uint64_t); p += sizeof(uint64_t), n -= sizeof(uint64_t)) {
        hash_word(&s, load_bytes(p, sizeof(uint64_t)));
    }
    hash_word(&s, (uint64_t)n_bytes << 56 | load_bytes(p, n));
    return hash_end(&s);
}
