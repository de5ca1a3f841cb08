/* printable.h: text from files, for display. Names, keys and tokens may hold anything; on a
 * terminal some of it would be commands. Whatever prints or quotes such text goes through here
 * (JSON and SVG have escapes of their own). */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at s[0], n >= 1, when it can be shown as it is; 0 when its first byte has
 * to be escaped: bytes that are not UTF-8, controls (C0, DEL, C1), marks that change the direction
 * of text (UAX 9) and the separators of lines and paragraphs. */
size_t printable_length(const char *s, size_t n);

/* Copies s[n] with escapes, as many whole characters as fit, NUL-terminated; returns the length.
 * 4 * n + 1 bytes always fit. */
size_t printable_copy(char *out, size_t room, const char *s, size_t n);
/* The same to a stream, all of it. */
void printable_print(FILE *out, const char *s, size_t n);

#endif
