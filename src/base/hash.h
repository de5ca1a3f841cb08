/* hash.h: the hash of tables whose keys come from a file: SipHash with one round per word and three
 * at the end (Aumasson and Bernstein 2012, "SipHash: a fast short-input PRF"). The key is random
 * and never leaves the process: without it nobody can write a file whose names all collide, which
 * would turn every look-up into a scan of the whole table. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct hash_key {
    uint64_t k[2];
} hash_key;

typedef struct hash_state {
    uint64_t v[4];
} hash_state;

hash_key hash_key_random(void); /* from the system's entropy; one per table */
uint64_t hash_bytes(hash_key key, const void *data, size_t n_bytes);

static inline uint64_t hash_rotate(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

static inline void hash_round(hash_state *s) {
    uint64_t *v = s->v;
    v[0] += v[1];
    v[2] += v[3];
    v[1] = hash_rotate(v[1], 13) ^ v[0];
    v[3] = hash_rotate(v[3], 16) ^ v[2];
    v[0] = hash_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = hash_rotate(v[1], 17) ^ v[2];
    v[3] = hash_rotate(v[3], 21) ^ v[0];
    v[2] = hash_rotate(v[2], 32);
}

static inline hash_state hash_begin(hash_key key) {
    /* "somepseudorandomlygeneratedbytes", from the paper */
    return (hash_state){{key.k[0] ^ 0x736f6d6570736575u, key.k[1] ^ 0x646f72616e646f6du,
                         key.k[0] ^ 0x6c7967656e657261u, key.k[1] ^ 0x7465646279746573u}};
}

static inline void hash_word(hash_state *s, uint64_t word) {
    s->v[3] ^= word;
    hash_round(s);
    s->v[0] ^= word;
}

static inline uint64_t hash_end(hash_state *s) {
    s->v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) hash_round(s);
    return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

/* Hash of a number. All keys have the same length, so the length is not hashed. */
static inline uint64_t hash_u64(hash_key key, uint64_t number) {
    hash_state s = hash_begin(key);
    hash_word(&s, number);
    return hash_end(&s);
}

#endif
