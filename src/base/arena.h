/* arena.h: memory that is freed all at once. A model's names, vocabulary and plan live in one.
 * Not thread-safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

typedef struct arena_block arena_block;
typedef struct arena {
    arena_block *head;
    size_t used, capacity; /* within head, bytes */
} arena;

void arena_init(arena *a);
void *arena_alloc(arena *a, size_t n_bytes); /* 16-byte aligned, zeroed; NULL when out of memory */
void *arena_calloc(arena *a, size_t count, size_t n_bytes); /* NULL also on overflow */
char *arena_strndup(arena *a, const char *s, size_t n);     /* n bytes and a NUL */
void arena_free(arena *a);                                  /* frees all; a is as after init */

#endif
