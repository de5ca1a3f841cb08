/* printable.h: makes text from files safe to display. Names, keys and tokens may contain anything,
 * including terminal commands. All code that prints or quotes such text uses these functions (JSON
 * and SVG have their own escapes). */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at s[0], n >= 1, when it can be displayed; 0 when its first byte must be
 * escaped: bytes that are not UTF-8, control characters (C0, DEL, C1), bidirectional controls (UAX
 * 9), and line and paragraph separators. */
size_t printable_length(const char *s, size_t n);

/* Copies s[n] with escapes, as many whole characters as fit, NUL-terminated; returns the length. 4
 * * n + 1 bytes always suffice. */
size_t printable_copy(char *out, size_t room, const char *s, size_t n);
/* Writes s[n] with escapes to a stream. */
void printable_print(FILE *out, const char *s, size_t n);

#endif
