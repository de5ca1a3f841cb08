/* fenced.c: see fenced.h. A page with the size comes first, then the data, then the fence. */
#include "fenced.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *fenced_alloc(size_t n_bytes) {
    if (n_bytes == 0) n_bytes = 1;
    size_t page = page_bytes(), data = (n_bytes + page - 1) / page * page;
    char *base = mmap(NULL, page + data + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + page + data, page, PROT_NONE), 0);
    *(size_t *)(void *)base = page + data + page;
    return base + ((page + data - n_bytes) & ~(size_t)3);
}

void *fenced_calloc(size_t count, size_t n_bytes) {
    size_t total;
    assert_false(__builtin_mul_overflow(count, n_bytes, &total));
    return fenced_alloc(total);
}

/* p lies in the first page of the data. */
void fenced_free(void *p) {
    if (!p) return;
    size_t page = page_bytes();
    char *base = (char *)p - (uintptr_t)p % page - page;
    assert_int_equal(munmap(base, *(size_t *)(void *)base), 0);
}
