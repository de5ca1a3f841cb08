/* mem.c: allocation with a failure hook. Counters are atomic: any thread may allocate. */
#include "mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "os_memory.h"

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

void *mem_map(size_t n_bytes) {
    return allocation_allowed() ? os_memory_map(n_bytes ? n_bytes : 1) : NULL;
}

void mem_unmap(void *p, size_t n_bytes) {
    if (p) os_memory_unmap(p, n_bytes ? n_bytes : 1);
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
