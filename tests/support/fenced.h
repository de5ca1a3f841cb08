/* fenced.h: memory that ends at a page without access: a read or write beyond the end ends the
 * program in every build, even where a sanitizer does not know the instruction. */
#ifndef TEST_FENCED_H
#define TEST_FENCED_H

#include <stddef.h>

/* Returns n_bytes of zeroed memory that ends at most 3 bytes before the fence. The address is a
 * multiple of 4, or of 64 if n_bytes is. Never returns NULL: the test fails instead. n_bytes may be
 * 0. */
void *fenced_alloc(size_t n_bytes);
void *fenced_calloc(size_t count, size_t n_bytes);
void fenced_free(void *p); /* NULL is fine */

#endif
