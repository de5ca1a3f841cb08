/* sha256.h: the SHA-256 digest (FIPS 180-4), to identify texts and to check downloads. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_HEX = 64, SHA256_BLOCK = 64 };

/* State of a digest whose bytes arrive in pieces. */
typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;            /* added so far */
    uint8_t block[SHA256_BLOCK]; /* the last n_bytes % SHA256_BLOCK of them */
} sha256;

void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t n_bytes);
/* Writes the digest in lower-case hexadecimal, NUL-terminated. */
void sha256_end(sha256 *s, char hex[SHA256_HEX + 1]);

/* Digest of n_bytes in memory. */
void sha256_hex(const void *data, size_t n_bytes, char hex[SHA256_HEX + 1]);

#endif
