/* sha256.c: SHA-256 as FIPS 180-4 (section 6.2) defines it. Plain and a few hundred MB/s: it names
 * calibration texts, which are small, and checks downloads, which are slower. */
#include "sha256.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = SHA256_BLOCK, ROUNDS = 64, LENGTH_BYTES = 8 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

/* One of the 64 steps; the names of the eight words move instead of their values. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                           \
    do {                                                                                           \
        uint32_t t1 = (h) + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +                       \
                      (((e) & (f)) ^ (~(e) & (g))) + round_constants[i] + w[i];                    \
        (d) += t1;                                                                                 \
        (h) = t1 + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +                                \
              (((a) & (b)) ^ ((a) & (c)) ^ ((b) & (c)));                                           \
    } while (0)

static void add_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[ROUNDS];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        uint32_t s0 = rotate(x, 7) ^ rotate(x, 18) ^ x >> 3;
        uint32_t s1 = rotate(y, 17) ^ rotate(y, 19) ^ y >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (int i = 0; i < ROUNDS; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void sha256_begin(sha256 *s) {
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    *s = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *s, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    size_t n_kept = s->n_bytes % BLOCK;
    s->n_bytes += n_bytes;
    if (n_kept) {
        size_t n = BLOCK - n_kept < n_bytes ? BLOCK - n_kept : n_bytes;
        memcpy(s->block + n_kept, p, n);
        if (n_kept + n < BLOCK) return;
        add_block(s->state, s->block);
        p += n;
        n_bytes -= n;
    }
    for (; n_bytes >= BLOCK; p += BLOCK, n_bytes -= BLOCK) add_block(s->state, p);
    if (n_bytes) memcpy(s->block, p, n_bytes);
}

void sha256_end(sha256 *s, char hex[SHA256_HEX + 1]) {
    /* The rest, a set bit, zeros, and the length in bits: one block or two. */
    uint8_t tail[2 * BLOCK] = {0};
    size_t left = s->n_bytes % BLOCK;
    memcpy(tail, s->block, left);
    tail[left] = 0x80;
    size_t n_tail = left + 1 + LENGTH_BYTES <= BLOCK ? BLOCK : 2 * BLOCK;
    uint64_t n_bits = s->n_bytes * 8;
    for (int i = 0; i < LENGTH_BYTES; i++)
        tail[n_tail - 1 - (size_t)i] = (uint8_t)(n_bits >> (8 * i));
    for (size_t at = 0; at < n_tail; at += BLOCK) add_block(s->state, tail + at);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
}

void sha256_hex(const void *data, size_t n_bytes, char hex[SHA256_HEX + 1]) {
    sha256 s;
    sha256_begin(&s);
    if (n_bytes) sha256_add(&s, data, n_bytes);
    sha256_end(&s, hex);
}
