/* base64.h: bytes as text (RFC 4648). */
#ifndef SERVER_BASE64_H
#define SERVER_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Text of n bytes, with its NUL. */
#define BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1)

/* Writes the text of from[n] with a NUL; returns its length. */
size_t base64_encode(const uint8_t *from, size_t n, char *text);

#endif
