/* mem.c: allocation with a failure hook. Counters are atomic: any thread may allocate. */
#include "mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_int_fast64_t allocation_count;
static atomic_int_fast64_t fail_at; /* value of allocation_count that fails; 0: none */

void mem_fail_at(int64_t n) {
    atomic_store(&fail_at, n ? atomic_load(&allocation_count) + n : 0);
}
int64_t mem_count(void) {
    return atomic_load(&allocation_count);
}

static bool allocation_allowed(void) {
    int64_t number = atomic_fetch_add(&allocation_count, 1) + 1;
    return number != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mem_alloc(size_t n_bytes) {
    return allocation_allowed() ? malloc(n_bytes ? n_bytes : 1) : NULL;
}

void *mem_calloc(size_t count, size_t n_bytes) {
    size_t total; /* checked here: sanitizers report an overflow within calloc as an error */
    if (!size_mul(count, n_bytes, &total) || !allocation_allowed()) return NULL;
    return total ? calloc(count, n_bytes) : calloc(1, 1);
}

void *mem_realloc(void *p, size_t n_bytes) {
    return allocation_allowed() ? realloc(p, n_bytes ? n_bytes : 1) : NULL;
}

char *mem_strndup(const char *s, size_t n) {
    size_t size;
    char *copy = size_add(n, 1, &size) ? mem_alloc(size) : NULL;
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *mem_strdup(const char *s) {
    return mem_strndup(s, strlen(s));
}

void mem_free(void *p) {
    free(p);
}

/* Transparent huge pages have 2 MiB on x86-64, and on ARM with 4 KiB pages. An aligned start lets
 * the first huge page be used. */
enum { HUGE_PAGE = 2 << 20 };

void *mem_map(size_t n_bytes) {
    if (!allocation_allowed()) return NULL;
    if (n_bytes == 0) n_bytes = 1;
    if (n_bytes < HUGE_PAGE) {
        void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    size_t padded;
    if (!size_add(n_bytes, HUGE_PAGE, &padded)) return NULL;
    char *p = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t head = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
    const size_t page = 4096;
    size_t used = (n_bytes + page - 1) & ~(page - 1);
    size_t tail = (padded - head > used) ? padded - head - used : 0;
    if (head) munmap(p, head);
    if (tail) munmap(p + head + used, tail & ~(page - 1));
    (void)madvise(p + head, used, MADV_HUGEPAGE);
    return p + head;
}

void mem_unmap(void *p, size_t n_bytes) {
    if (p) munmap(p, n_bytes ? n_bytes : 1);
}

bool mem_grow(void **items, size_t *capacity, size_t need, size_t item_bytes, size_t max_items) {
    if (need <= *capacity) return true;
    if (need > max_items) return false;
    size_t count = *capacity ? *capacity : 16;
    if (count > max_items) count = max_items;
    while (count < need) count = count > max_items / 2 ? max_items : count * 2;
    size_t n_bytes;
    if (!size_mul(count, item_bytes, &n_bytes)) return false;
    void *p = mem_realloc(*items, n_bytes);
    if (!p) return false;
    *items = p;
    *capacity = count;
    return true;
}
