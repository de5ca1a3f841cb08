/* base64.h: base64 text of bytes (RFC 4648). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Size of the text of n bytes, including the NUL. */
#define BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1)

/* Writes the text of from[n] with a NUL; returns the length of the text. */
size_t base64_encode(const uint8_t *from, size_t n, char *text);
/* Decodes text[n] to at most `room` bytes; returns their number, 0: not base64, or too long. */
size_t base64_decode(const char *text, size_t n, uint8_t *out, size_t room);

#endif
