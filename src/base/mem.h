/* mem.h: all allocations of the project, for three reasons: sizes are checked, a test can make the
 * n-th allocation fail, and large buffers get huge pages.
 *
 * All functions are thread-safe. A size of 0 is treated as 1. Nothing here sets a pi_error: callers
 * know what the memory was for (see error_nomem). */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEM_CACHE_LINE = 64 }; /* bytes; x86-64 and most ARM cores */

void *mem_alloc(size_t n_bytes);                /* uninitialised; NULL when out of memory */
void *mem_calloc(size_t count, size_t n_bytes); /* zeroed; NULL also when the product overflows */
void *mem_realloc(void *p, size_t n_bytes);     /* after NULL `p` is still valid */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* copies exactly n bytes and adds a NUL */
void mem_free(void *p);                     /* NULL is fine; for the five functions above */

/* Zeroed anonymous memory of at least n_bytes, page-aligned, with huge pages where the kernel
 * grants them (MADV_HUGEPAGE). For copied weights, KV caches and scratch buffers. */
void *mem_map(size_t n_bytes);
void mem_unmap(void *p, size_t n_bytes); /* the size passed to mem_map; NULL is fine */

/* Grows an array to hold at least `need` items of `item_bytes`, doubling *capacity. `max_items` is
 * the declared limit of the buffer. False when out of memory or over the limit. */
bool mem_grow(void **items, size_t *capacity, size_t need, size_t item_bytes, size_t max_items);

/* Checked arithmetic for sizes from files and requests: false on overflow, *out untouched. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
/* Rounds up to a multiple of `align` (a power of two); false on overflow. */
static inline bool size_align(size_t a, size_t align, size_t *out) {
    size_t r;
    if (!size_add(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

/* Test hook: the n-th allocation from now (1 = the next) fails, once; 0 switches it off. */
void mem_fail_at(int64_t n);
/* Number of allocations since the program started; tells a test how far to go with mem_fail_at. */
int64_t mem_count(void);

#endif
