/* fenced.h: memory that ends at a page without access, so that reading or writing beyond it ends
 * the program in every build, also where no sanitizer knows the instruction. */
#ifndef TEST_FENCED_H
#define TEST_FENCED_H

#include <stddef.h>

/* n_bytes whose address is a multiple of 4, of 64 where n_bytes is; at most 3 bytes before the
 * fence. Zeroed. Never NULL: the test fails instead. Sizes of 0 are fine. */
void *fenced_alloc(size_t n_bytes);
void *fenced_calloc(size_t count, size_t n_bytes);
void fenced_free(void *p); /* NULL is fine */

#endif
