/* arena.c: a list of blocks with bump allocation in the newest block. */
#include "arena.h"

#include <stdalign.h>
#include <string.h>

#include "mem.h"

struct arena_block {
    arena_block *next;
    alignas(16) unsigned char data[];
};

enum { ARENA_MIN_BLOCK = 64 * 1024 }; /* bytes */

void arena_init(arena *a) {
    *a = (arena){0};
}

void *arena_alloc(arena *a, size_t n_bytes) {
    size_t size;
    if (!size_align(n_bytes, 16, &size)) return NULL;
    if (!a->head || a->capacity - a->used < size) {
        size_t capacity = size > ARENA_MIN_BLOCK ? size : ARENA_MIN_BLOCK;
        size_t total;
        if (!size_add(capacity, sizeof(arena_block), &total)) return NULL;
        arena_block *block = mem_calloc(1, total);
        if (!block) return NULL;
        block->next = a->head;
        a->head = block;
        a->used = 0;
        a->capacity = capacity;
    }
    void *p = a->head->data + a->used;
    a->used += size;
    return p;
}

void *arena_calloc(arena *a, size_t count, size_t n_bytes) {
    size_t total;
    return size_mul(count, n_bytes, &total) ? arena_alloc(a, total) : NULL;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
    size_t size;
    char *copy = size_add(n, 1, &size) ? arena_alloc(a, size) : NULL;
    if (copy) memcpy(copy, s, n);
    return copy;
}

void arena_free(arena *a) {
    while (a->head) {
        arena_block *next = a->head->next;
        mem_free(a->head);
        a->head = next;
    }
    arena_init(a);
}
