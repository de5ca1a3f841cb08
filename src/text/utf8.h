/* utf8.h: iterates over UTF-8 and tolerates bad bytes. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX_BYTES = 4, UTF8_REPLACEMENT = 0xFFFD };

/* Decodes one code point at s (n >= 1 bytes left); *step gets the bytes consumed (>= 1). Ill-formed
 * sequences (overlong, surrogate, truncated, > U+10FFFF) give -1 and step 1. */
int32_t utf8_decode(const char *s, size_t n, size_t *step);
/* Writes 1..4 bytes; code points outside Unicode are written as U+FFFD. Returns the length. */
size_t utf8_encode(uint32_t code_point, char out[UTF8_MAX_BYTES]);
bool utf8_is_valid(const char *s, size_t n);
/* Length of the longest prefix that does not end inside a sequence: the part that can be displayed
 * now when text arrives in pieces. */
size_t utf8_complete_prefix(const char *s, size_t n);

#endif
