/* sha256.h: the SHA-256 digest (FIPS 180-4), to name a text by its contents. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

enum { SHA256_HEX = 64 };

/* Writes the digest of n_bytes in lower-case hexadecimal, NUL-terminated. */
void sha256_hex(const void *data, size_t n_bytes, char hex[SHA256_HEX + 1]);

#endif
